//! Windows of ports in shared memory: pages of regions that their sender gave away are swapped in, others' bytes are copied.

mod common;

use common::UNIT;
use shunt_buffers::costs::Costs;
use shunt_buffers::port::{Error, Port, Window};
use shunt_buffers::Semantics;
use shunt_region::{Audience, Limit, Pages, Pool, Shape};

fn pool(audience: Audience) -> Pool {
    Pool::create(Shape { unit: UNIT, units: 32 }, Pages::Small, audience).unwrap()
}

/// A sender and its pool, a receiver and its.
fn pair(audience: Audience) -> (Port, Port, Pool, Pool) {
    let (mut here, mut there) = Port::pair().unwrap();
    here.trust();
    there.trust();
    let (from, to) = (pool(audience), pool(Audience::Trusted));
    here.offer(&from).unwrap();
    (here, there, from, to)
}

fn message(pool: &Pool, length: usize, seed: usize) -> (shunt_region::Region, Vec<u8>) {
    let mut region = pool.allocate(length).unwrap();
    region.bytes_mut().fill(0xee);
    for (at, byte) in region.bytes_mut()[..length].iter_mut().enumerate() {
        *byte = (at / 3 + at + seed) as u8;
    }
    let bytes = region.bytes()[..length].to_vec();
    (region, bytes)
}

/// What is not changed by a swap is the buffer's place, and what lies behind the message; what is, is whose pages they are.
#[test]
fn what_is_moved_is_swapped_in_and_the_rest_stays() {
    let (mut here, mut there, from, to) = pair(Audience::Trusted);
    there.set_swap_from(1);
    let alignment = there.alignment(&to);
    assert_eq!((alignment.granularity, alignment.offset, alignment.preferred, alignment.copy_below), (4096, 0, UNIT, 1));
    let mut window = Window::new(&to, 4 * UNIT).unwrap();
    let place = window.bytes().as_ptr();
    assert!(alignment.suits(place as usize));
    window.bytes_mut().fill(0x33);
    let mut model = window.bytes().to_vec();
    let moves = [Semantics::MOVE, Semantics::EMULATED_MOVE, Semantics::WEAK_MOVE, Semantics::EMULATED_WEAK_MOVE];
    let lengths = [4 * UNIT, 1, 4096, 4097, 4096 + 3000, UNIT, 3 * UNIT + 2049, 3 * UNIT + 2047, 0, 2 * UNIT];
    for (seed, length) in lengths.into_iter().cycle().take(40).enumerate() {
        let (region, bytes) = message(&from, length, seed);
        here.send_region(region, length, moves[seed % 4]).unwrap();
        assert_eq!(there.receive_into(&mut window), Ok(length));
        model[..length].copy_from_slice(&bytes);
        assert!(window.bytes() == &model[..] && window.bytes().as_ptr() == place, "{length}, {seed}");
        // The application's own writes stay, too.
        let at = seed * 5000 % model.len();
        (model[at], window.bytes_mut()[at]) = (0x77, 0x77);
    }
    assert!(window.is_lent());
    here.progress().unwrap();
    assert!(here.lent().1 > 0 && to.free() == 32, "all of the window is the sender's: {:?}", here.lent());
    // The window's own again.
    window.keep().unwrap();
    assert!(window.bytes() == &model[..] && !window.is_lent());
    there.progress().unwrap();
    here.progress().unwrap();
    assert_eq!(here.lent(), (0, 0));
    drop(here);
    assert_eq!(from.free(), 32);
    from.allocate(32 * UNIT).unwrap().bytes_mut().fill(0);
    assert!(window.bytes() == &model[..]);
    drop(window);
    assert_eq!(to.free(), 32);
}

/// A window that is dropped gives the sender's regions back with the next call.
#[test]
fn a_window_that_ends_gives_back() {
    let (mut here, mut there, from, to) = pair(Audience::Trusted);
    there.set_swap_from(1);
    let mut window = Window::new(&to, UNIT).unwrap();
    let (region, _) = message(&from, UNIT, 1);
    let ticket = here.send_region(region, UNIT, Semantics::EMULATED_WEAK_MOVE).unwrap();
    there.receive_into(&mut window).unwrap();
    there.progress().unwrap();
    assert_eq!(here.completed(ticket), Ok(false));
    drop(window);
    there.progress().unwrap();
    assert_eq!((here.completed(ticket), here.lent()), (Ok(true), (0, 0)));
}

/// What its sender goes on using, or may not be written, is copied, and goes back at once; and so is what is shorter than the threshold.
#[test]
fn what_is_only_lent_is_copied() {
    for (audience, from_length) in [(Audience::Trusted, 1), (Audience::Anyone, 1), (Audience::Trusted, UNIT + 1)] {
        let (mut here, mut there, from, to) = pair(audience);
        there.set_swap_from(from_length);
        let mut window = Window::new(&to, UNIT).unwrap();
        for semantics in Semantics::ALL {
            let (region, bytes) = message(&from, UNIT, semantics.index());
            let moved = semantics.allocation == shunt_buffers::Allocation::System;
            if moved {
                here.send_region(region, UNIT, semantics).unwrap();
            } else if semantics.integrity == shunt_buffers::Integrity::Weak {
                here.send_shared(&region, UNIT, semantics).unwrap();
            } else {
                here.send(&region.bytes()[..UNIT], true).unwrap();
            }
            assert_eq!(there.receive_into(&mut window), Ok(UNIT));
            assert!(window.bytes() == &bytes[..], "{}", semantics.name());
            let swapped = moved && audience == Audience::Trusted && from_length == 1;
            assert_eq!(window.is_lent(), swapped, "{}", semantics.name());
            here.progress().unwrap();
            assert_eq!(here.lent().1 > 0, swapped, "{}", semantics.name());
            // The next one comes into pages of the window's own.
            window.keep().unwrap();
        }
    }
}

/// Whoever reads a region still when it is moved gets what was sent: the copy that is swapped in is another region.
#[test]
fn a_region_that_others_read_is_copied_before_it_is_moved() {
    let (mut here, mut there, from, to) = pair(Audience::Trusted);
    there.set_swap_from(1);
    let (mut beside, mut third) = Port::pair().unwrap();
    beside.trust();
    third.trust();
    beside.set_costs(Costs::USUAL);
    beside.offer(&from).unwrap();
    beside.policy().tcow_from = UNIT;
    let mut window = Window::new(&to, 2 * UNIT).unwrap();
    window.bytes_mut().fill(0x33);
    for (seed, length) in [2 * UNIT, UNIT + 3000].into_iter().enumerate() {
        for (number, strong) in [true, false].into_iter().enumerate() {
            let (region, bytes) = message(&from, 2 * UNIT, seed + number);
            match strong {
                true => beside.send(region.bytes(), true).unwrap(),
                false => beside.send_shared(&region, 2 * UNIT, Semantics::EMULATED_SHARE).unwrap(),
            };
            assert_eq!(beside.lent().1, 1, "it is read where it lies");
            here.send_region(region, length, Semantics::EMULATED_WEAK_MOVE).unwrap();
            assert_eq!(there.receive_into(&mut window), Ok(length));
            assert!(window.is_lent() && window.bytes()[..length] == bytes[..length]);
            window.bytes_mut().fill(0x33);
            let mut buffer = vec![0; 2 * UNIT];
            assert_eq!(third.receive(&mut buffer), Ok(2 * UNIT));
            assert!(buffer == bytes, "{length}");
            assert_eq!(here.copied(Limit::Read), (2 * seed + number + 1) as u64);
            beside.progress().unwrap();
            here.progress().unwrap();
        }
    }
    drop((window, here, there, beside, third));
    assert_eq!((from.free(), to.free()), (32, 32));
}

/// Nothing is received into pages that a port has lent that has ended: their owner has them again.
#[test]
fn pages_of_an_ended_port_are_not_received_into() {
    for by_another in [true, false] {
        let (mut here, mut there, from, to) = pair(Audience::Trusted);
        there.set_swap_from(1);
        let mut window = Window::new(&to, UNIT).unwrap();
        let (region, _) = message(&from, UNIT, 1);
        here.send_region(region, UNIT, Semantics::EMULATED_WEAK_MOVE).unwrap();
        there.receive_into(&mut window).unwrap();
        assert!(window.is_lent());
        // The next one, of bytes that are copied, or of a region; and by another port.
        let (mut sender, mut receiver) = Port::pair().unwrap();
        receiver.set_swap_from(1);
        if by_another {
            sender.send(&[7; 5000], false).unwrap();
        } else {
            here.send(&[7; 5000], false).unwrap();
            let (region, _) = message(&from, UNIT, 2);
            here.send_region(region, 5000, Semantics::EMULATED_WEAK_MOVE).unwrap();
        }
        drop(here);
        assert_eq!(from.free(), 32);
        let mut all = from.allocate(32 * UNIT).unwrap();
        all.bytes_mut().fill(0x55);
        match by_another {
            true => assert_eq!(receiver.receive_into(&mut window), Ok(5000)),
            false => assert_eq!([there.receive_into(&mut window), there.receive_into(&mut window)], [Ok(5000), Ok(5000)]),
        }
        assert!(!window.is_lent());
        window.bytes_mut().fill(0x99);
        assert!(all.bytes().iter().all(|byte| *byte == 0x55), "{by_another}");
    }
}

/// A window with a second port's pages has none of the first one's, which gets its own back.
#[test]
fn a_window_has_pages_of_one_port_at_a_time() {
    let (mut here, mut there, from, to) = pair(Audience::Trusted);
    let (mut second, mut other, of_second, _) = pair(Audience::Trusted);
    there.set_swap_from(1);
    other.set_swap_from(1);
    let mut window = Window::new(&to, 2 * UNIT).unwrap();
    let (region, first) = message(&from, 2 * UNIT, 1);
    let ticket = here.send_region(region, 2 * UNIT, Semantics::MOVE).unwrap();
    there.receive_into(&mut window).unwrap();
    let (region, bytes) = message(&of_second, UNIT, 2);
    second.send_region(region, UNIT, Semantics::MOVE).unwrap();
    assert_eq!(other.receive_into(&mut window), Ok(UNIT));
    there.progress().unwrap();
    assert_eq!(here.completed(ticket), Ok(true));
    drop((here, there));
    from.allocate(32 * UNIT).unwrap().bytes_mut().fill(0);
    assert!(window.is_lent() && window.bytes() == &[&bytes[..], &first[UNIT..]].concat()[..]);
}

/// Neither a message that is too long nor a child's window loses anything.
#[test]
fn a_message_that_does_not_fit_waits() {
    let (mut here, mut there, from, to) = pair(Audience::Trusted);
    there.set_swap_from(1);
    let mut window = Window::new(&to, UNIT).unwrap();
    let (region, bytes) = message(&from, 2 * UNIT, 7);
    here.send_region(region, 2 * UNIT, Semantics::MOVE).unwrap();
    assert_eq!(there.receive_into(&mut window), Err(Error::Length(2 * UNIT)));
    let mut larger = Window::new(&to, 2 * UNIT).unwrap();
    assert_eq!(there.receive_into(&mut larger), Ok(2 * UNIT));
    assert!(larger.bytes() == &bytes[..]);
    // A sender that dies is not missed: the file stays.
    drop(here);
    assert_eq!(there.receive_into(&mut window), Err(Error::Gone));
    assert!(larger.bytes() == &bytes[..]);
}

/// Where there are huge pages they are swapped without being asked for, and only into windows of such.
#[test]
fn huge_pages_are_swapped_by_themselves() {
    const HUGE: usize = 2 << 20;
    let huge = || Pool::create(Shape { unit: HUGE, units: 6 }, Pages::Huge, Audience::Trusted);
    let (from, to) = match (huge(), huge()) {
        (Ok(from), Ok(to)) => (from, to),
        _ => return println!("skipped: no huge pages here"),
    };
    let (mut here, mut there) = Port::pair().unwrap();
    assert_eq!(there.alignment(&to).copy_below, usize::MAX, "no such pool can come");
    here.trust();
    there.trust();
    here.offer(&from).unwrap();
    assert_eq!((there.alignment(&to).granularity, there.alignment(&to).copy_below), (HUGE, HUGE));
    let mut window = Window::new(&to, 2 * HUGE).unwrap();
    let mut model = window.bytes().to_vec();
    for (seed, length) in [HUGE, 2 * HUGE, HUGE - 1, HUGE + HUGE / 2 + 1, HUGE + 5].into_iter().cycle().take(15).enumerate() {
        let (region, bytes) = message(&from, length, seed);
        here.send_region(region, length, Semantics::EMULATED_WEAK_MOVE).unwrap();
        assert_eq!(there.receive_into(&mut window), Ok(length));
        model[..length].copy_from_slice(&bytes);
        assert!(window.bytes() == &model[..], "{length}");
        assert_eq!(window.is_lent(), seed > 0 || length >= HUGE);
        here.progress().unwrap();
    }
    let mut small = Window::new(&pool(Audience::Trusted), HUGE).unwrap();
    let (region, bytes) = message(&from, HUGE, 3);
    here.send_region(region, HUGE, Semantics::EMULATED_WEAK_MOVE).unwrap();
    assert_eq!(there.receive_into(&mut small), Ok(HUGE));
    assert!(small.bytes() == &bytes[..] && !small.is_lent());
    assert_eq!(Window::new(&common::pool(), UNIT).err(), Some(Limit::Untrusted));
}
