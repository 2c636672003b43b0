//! Private descriptors that move.

use super::{alone, wiring};
use core::sync::atomic::{AtomicBool, Ordering};
use shunt_rendezvous::carriers::{self, Carrier, Carriers};
use shunt_stream::progress::{self, Progress};
use std::sync::Mutex;

static TOLD: AtomicBool = AtomicBool::new(false);
static ASKED: Mutex<Vec<bool>> = Mutex::new(Vec::new());

static CARRIER: Carrier = Carrier { moved: |_, _| TOLD.store(true, Ordering::Relaxed), ..shunt_plain::PLAIN_PEERS };
static ONE: Carriers = &[&CARRIER];

static ASKS: Progress = Progress {
    inside: Some(|| {
        ASKED.lock().unwrap().push(TOLD.load(Ordering::Relaxed));
        None
    }),
    is_driven: || false,
    drive: |_| {},
    kick: |_| true,
    hold_back: |_, _| true,
    ring: |_, _| {},
    watch: |_, _| None,
    watch_stream: |_, _, _| {},
    unwatch: |_| {},
    leave: |_, _| false,
    for_kernel: |_| {},
};

#[test]
fn sets_ask_carriers_for_numbers_that_these_know() {
    let _alone = alone();
    carriers::fill(&ONE);
    progress::fill(Some(&ASKS));
    crate::process::moved(1 << 20, (1 << 20) + 1);
    progress::fill(None);
    wiring::fill();
    assert_eq!(*ASKED.lock().unwrap(), [true]);
}
