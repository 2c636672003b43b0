//! Offers against a server that sleeps when nothing waits, in every order that the memory model allows:
//! RUSTFLAGS="--cfg loom" cargo test --release --test loom_offers
//!
//! The bell is a counter that can be waited for. A lost wake-up shows as a deadlock, a byte taken for an offer that still
//! waits shows as one, too.
#![cfg(loom)]

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use shunt_ring::offers::{self, Offered};
use shunt_segment::offers::Offers;

struct Model {
    offers: Offers,
    bell: Mutex<u32>,
    rung: Condvar,
    withdrawn: AtomicU32,
}

// SAFETY: atomics and loom's own types only.
unsafe impl Sync for Model {}
// SAFETY: as above.
unsafe impl Send for Model {}

fn model() -> Arc<Model> {
    let model = Model { offers: Offers::new(), bell: Mutex::new(0), rung: Condvar::new(), withdrawn: AtomicU32::new(0) };
    offers::begin(&model.offers, 8);
    Arc::new(model)
}

fn offer(model: &Model, channel: usize) {
    assert!(offers::open(&model.offers));
    if offers::publish(&model.offers, channel) == Offered::Ring {
        *model.bell.lock().unwrap() += 1;
        model.rung.notify_one();
    }
}

fn take_bells(model: &Model) {
    let spent = offers::spent_bells(&model.offers);
    if spent > 0 {
        let mut bell = model.bell.lock().unwrap();
        let got = spent.min(*bell); // the client may not have written its byte yet
        *bell -= got;
        offers::took_bells(&model.offers, spent, got);
    }
}

/// The server's accept: sleeps on the bell while nothing waits. Bells are taken off after each offer, or only before a sleep.
fn accept(model: &Model, leave_bells: bool) -> usize {
    loop {
        if let Some(channel) = offers::oldest(&model.offers) {
            offers::take(&model.offers);
            if !leave_bells {
                take_bells(model);
            }
            return channel;
        }
        take_bells(model);
        let mut bell = model.bell.lock().unwrap();
        while *bell == 0 {
            bell = model.rung.wait(bell).unwrap();
        }
    }
}

#[test]
fn every_offer_wakes_the_server() {
    wakes(false);
}

/// A client that finds its earlier bell on the line rings none, whether the server leaves it there or takes it off just now.
#[test]
fn every_offer_wakes_a_server_that_leaves_bells() {
    wakes(true);
}

fn wakes(leave_bells: bool) {
    loom::model(move || {
        let model = model();
        let client = {
            let model = model.clone();
            thread::spawn(move || {
                offer(&model, 3);
                offer(&model, 5);
            })
        };
        assert_eq!(accept(&model, leave_bells), 3);
        assert_eq!(accept(&model, leave_bells), 5);
        client.join().unwrap();
    });
}

/// A server that polls: while an offer waits, the bell is readable once the client has returned from ringing it.
#[test]
fn a_waiting_offer_is_seen_by_poll() {
    loom::model(|| {
        let model = model();
        offer(&model, 1);
        let client = {
            let model = model.clone();
            thread::spawn(move || offer(&model, 2))
        };
        assert_eq!(offers::oldest(&model.offers), Some(1));
        offers::take(&model.offers);
        take_bells(&model);
        client.join().unwrap();
        assert_eq!(offers::waiting(&model.offers), 1);
        assert!(*model.bell.lock().unwrap() > 0);
    });
}

/// A server that wants to hear of each: the second offer rings, too, the bells of those that wait stay, and no more.
#[test]
fn each_offer_rings_where_that_is_asked() {
    loom::model(|| {
        let model = model();
        offers::ring_each(&model.offers);
        offer(&model, 1);
        let client = {
            let model = model.clone();
            thread::spawn(move || {
                offer(&model, 2);
                offer(&model, 3);
            })
        };
        offers::take(&model.offers);
        take_bells(&model);
        client.join().unwrap();
        let bell = *model.bell.lock().unwrap();
        assert!((2..=3).contains(&bell));
        for _ in 0..2 {
            offers::take(&model.offers);
            take_bells(&model);
        }
        assert_eq!(*model.bell.lock().unwrap(), 0);
    });
}

/// A listener that closes: an offer is either withdrawn by its client or found by the server's last look.
#[test]
fn no_offer_is_lost_when_the_listener_closes() {
    loom::model(|| {
        let model = model();
        let client = {
            let model = model.clone();
            thread::spawn(move || {
                if offers::open(&model.offers) && offers::publish(&model.offers, 4) == Offered::Closed {
                    model.withdrawn.store(1, Ordering::Relaxed);
                }
                offers::waiting(&model.offers)
            })
        };
        offers::set_backlog(&model.offers, 0);
        let found = offers::waiting(&model.offers);
        let published = client.join().unwrap();
        let withdrawn = model.withdrawn.load(Ordering::Relaxed) as usize;
        assert!(published == 0 || found + withdrawn >= 1);
    });
}
