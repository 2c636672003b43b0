//! Patience with holders of locks, and pauses between bids.
//!
//! Tests enter the room for the sake of numbers: a look into proc(5) takes one that another test has just found closed.

use super::*;
use crate::bids::{Bids, AWAKE_NS};
use crate::patience::{Patience, Waited};
use shunt_segment::bid::Bid;
use shunt_segment::channel::ChannelPage;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

fn fresh_page() -> Box<ChannelPage> {
    // SAFETY: all-zero is a fresh page.
    unsafe { Box::new(core::mem::zeroed()) }
}

fn fresh_bid() -> Bid {
    // SAFETY: all-zero is a fresh one.
    unsafe { core::mem::zeroed() }
}

/// The number of the calling thread, as locks hold it.
fn own_number() -> u32 {
    shunt_sys::thread::id()
}

#[test]
fn a_wait_counts_no_time_in_which_it_did_not_look() {
    let _room = Room::enter();
    let mut waited = Waited::default();
    assert_eq!(waited.look(), 0);
    std::thread::sleep(Duration::from_millis(40));
    assert!((1..=10_000_000).contains(&waited.look()), "a process that was stopped meanwhile did not wait");
}

#[test]
fn a_lock_of_a_thread_that_has_ended_is_taken_from_it() {
    let _room = Room::enter();
    let page = fresh_page();
    let dead = std::thread::spawn(own_number).join().unwrap();
    let word = AtomicU32::new(dead);
    let mut patience = Patience::default();
    let began = std::time::Instant::now();
    while word.load(Ordering::Relaxed) != 0 {
        patience.outlive(&word, dead, &page.sides[0]);
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn a_lock_of_a_thread_that_lives_is_left_to_it() {
    let _room = Room::enter();
    let page = fresh_page();
    page.sides[0].join(calls::getpid());
    let word = AtomicU32::new(own_number());
    let mut patience = Patience::default();
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_millis(30) {
        patience.outlive(&word, own_number(), &page.sides[0]);
        assert_eq!(word.load(Ordering::Relaxed), own_number());
    }
}

#[test]
fn bids_are_made_for_each_connection_as_long_as_they_are_taken() {
    let (mut bids, bid) = (Bids::NONE, fresh_bid());
    bid.intended.store(1, Ordering::Relaxed);
    for _ in 0..20 {
        assert!(bids.are_due(&bid));
        bids.was_in_vain(&bid);
        assert!(bids.are_due(&bid), "one in vain is no reason to pause");
        bids.was_taken();
    }
    assert_eq!((bids.vain, bid.intended.load(Ordering::Relaxed)), (0, 1));
}

#[test]
fn bids_in_vain_become_rare_and_no_rarer_than_one_in_some_hundred() {
    let (mut bids, bid) = (Bids::NONE, fresh_bid());
    bid.intended.store(1, Ordering::Relaxed);
    let mut pauses = Vec::new();
    for _ in 0..14 {
        bids.was_in_vain(&bid);
        let mut pause = 0;
        while !bids.are_due(&bid) {
            pause += 1;
        }
        pauses.push(pause);
    }
    assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256, 256, 256]);
}

#[test]
fn pairs_are_kept_again_just_before_a_bid_is_due() {
    let (mut bids, bid) = (Bids::NONE, fresh_bid());
    bid.intended.store(1, Ordering::Relaxed);
    (0..8).for_each(|_| bids.was_in_vain(&bid));
    assert_eq!(bid.intended.load(Ordering::Relaxed), 0, "they were not worth keeping");
    let mut intended = Vec::new();
    while !bids.are_due(&bid) {
        intended.push(bid.intended.load(Ordering::Relaxed));
    }
    let (last, before) = intended.split_at(intended.len() - 2);
    assert!(last.iter().all(|intended| *intended == 0), "{intended:?}");
    assert_eq!(before, [1, 1]);
}

#[test]
fn a_client_looks_for_as_long_as_the_kernel_would_take_within_bounds() {
    let _room = Room::enter();
    let [least, most] = AWAKE_NS.map(clock::ticks_for_ns);
    let of = |kernel| Bids { kernel, ..Bids::NONE }.patience();
    assert_eq!([of(0), of(least + 1), of(most + 1), of(u64::MAX)], [least, least + 1, most, most]);
}
