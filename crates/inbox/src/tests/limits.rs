//! How much may wait: a datagram beyond is dropped where the kernel drops it, and no sender of UDP hears of that.

use super::*;
use shunt_segment::inbox::charge;
use shunt_sys::libc::{MSG_DONTWAIT, SOL_SOCKET, SO_RCVBUF};

/// How many of `count` datagrams of this length are there to be received.
fn kept(world: &World, buffer: i32, length: usize, count: usize) -> usize {
    let (near, far) = world.two();
    world.set(far, SOL_SOCKET, SO_RCVBUF, buffer).unwrap();
    for _ in 0..count {
        assert_eq!(world.send_to(near, &vec![1; length], far), Ok(length));
    }
    assert!(world.in_memory(far));
    world.all(far, 1 << 16).len()
}

#[test]
fn small_datagrams_are_dropped_where_the_kernels_are() {
    let kept = in_both(|world| kept(world, 40_000, 100, 500));
    assert!((50..500).contains(&kept), "{kept}");
}

#[test]
fn large_datagrams_are_dropped_no_earlier_than_the_kernels() {
    for length in [1_000, 5_000, 30_000] {
        let [ours, kernels] = [true, false].map(|ours| kept(&World::new(ours), 50_000, length, 200));
        assert!(ours >= kernels && ours <= kernels + 1, "{length}: {ours}, and the kernel's {kernels}");
    }
}

#[test]
fn an_empty_queue_takes_any_datagram() {
    let told = in_both(|world| kept(world, 1_000, 60_000, 3));
    assert_eq!(told, 1);
}

#[test]
fn those_that_were_dropped_are_the_last() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        world.set(far, SOL_SOCKET, SO_RCVBUF, 20_000).unwrap();
        for number in 0..300 {
            world.send_to(near, format!("{number}").as_bytes(), far).unwrap();
        }
        let all = world.all(far, 64);
        world.send_to(near, b"behind", far).unwrap();
        (all.iter().enumerate().all(|(at, text)| *text == at.to_string()), all.len() < 300, world.text(far, 64, MSG_DONTWAIT))
    });
    assert_eq!(told, (true, true, Ok("behind".into())));
}

#[test]
fn room_that_was_made_is_used_again() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        world.set(far, SOL_SOCKET, SO_RCVBUF, 20_000).unwrap();
        (0..5)
            .map(|_| {
                (0..200).for_each(|_| _ = world.send_to(near, &[1; 300], far).unwrap());
                world.all(far, 512).len()
            })
            .collect::<Vec<_>>()
    });
    assert!(told.iter().all(|kept| *kept == told[0]), "{told:?}");
}

#[test]
fn a_limit_is_told_to_senders_when_it_changes() {
    let world = World::new(true);
    let (_, far) = world.two();
    let limit = || world.inbox(far).unwrap().header().limit.load(std::sync::atomic::Ordering::Relaxed);
    let before = limit();
    world.set(far, SOL_SOCKET, SO_RCVBUF, 10_000).unwrap();
    assert_eq!((before > 20_000, limit()), (true, 20_000), "the kernel doubles it");
    world.set(far, SOL_SOCKET, SO_RCVBUF, i32::MAX).unwrap();
    assert!((limit() as usize) < shunt_segment::inbox::RING_MOST, "and a ring has its own");
}

#[test]
fn a_datagram_is_charged_no_less_than_it_takes_of_the_ring() {
    for length in (0..=65_507).step_by(13) {
        assert!(charge(length, true) >= (length + 64) as u64 && charge(length, false) >= (length + 32) as u64, "{length}");
    }
}
