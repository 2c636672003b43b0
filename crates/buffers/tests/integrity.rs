//! The receiver gets the bytes that were there when the output was called for, whoever writes the buffer afterwards; and it does not
//! if the arm is taken away, so these tests can tell.

mod common;

use common::{joined, UNIT};
use proptest::prelude::*;
use shunt_buffers::{fault, Semantics};
use shunt_region::{before_kernel_writes, Limit, Pool, Region};
use shunt_sys::{calls, libc, Errno};

const LENGTH: usize = 3 * UNIT;

/// Sends a region full of ones, lets `writer` overwrite it before the receiver looks, and says whether all ones arrived.
fn survives(armed: bool, writer: impl FnOnce(&mut Region)) -> bool {
    let (mut here, mut there, pool) = joined();
    let mut region = pool.allocate(LENGTH).unwrap();
    region.bytes_mut().fill(1);
    let ticket = here.send(region.bytes(), true).unwrap();
    assert_eq!(here.lent(), (LENGTH, 1), "it went by reference");
    if !armed {
        calls::mprotect(region.pointer(), LENGTH, libc::PROT_READ | libc::PROT_WRITE).unwrap();
    }
    writer(&mut region);
    let mut bytes = vec![0; LENGTH];
    assert_eq!(there.receive(&mut bytes), Ok(LENGTH));
    assert!(here.completed(ticket).unwrap());
    drop(region);
    assert_eq!(pool.free(), 64);
    bytes.iter().all(|byte| *byte == 1)
}

fn in_child(of_library: bool, body: impl FnOnce()) {
    // SAFETY: the child makes system calls and writes memory, and ends.
    let child = if of_library { unsafe { libc_fork() } } else { unsafe { shunt_sys::syscall!(libc::SYS_fork) as i32 } };
    if child == 0 {
        body();
        // SAFETY: ends the child.
        unsafe { shunt_sys::syscall!(libc::SYS_exit_group, 0) };
    }
    assert_eq!(shunt_sys::process::reap(child), Some(0));
}

/// # Safety
/// As fork(3).
unsafe fn libc_fork() -> i32 {
    extern "C" {
        fn fork() -> i32;
    }
    // SAFETY: passed on.
    unsafe { fork() }
}

#[test]
fn against_this_thread_and_another() {
    for armed in [true, false] {
        assert_eq!(survives(armed, |region| region.bytes_mut().fill(2)), armed);
        let other = |region: &mut Region| {
            std::thread::scope(|scope| {
                let half = LENGTH / 2;
                let (front, back) = region.bytes_mut().split_at_mut(half);
                scope.spawn(|| front.fill(2));
                scope.spawn(|| back.fill(3));
            });
            assert!(region.bytes().iter().all(|byte| *byte != 1), "the writers go on");
        };
        assert_eq!(survives(armed, other), armed);
    }
    assert!(fault::mended() > 0);
}

#[test]
fn against_a_forked_child() {
    let write = |region: &mut Region| in_child(true, || region.bytes_mut().fill(2));
    assert!(survives(true, write));
    // Its pools are its own, so it has no arm to lose.
    assert!(survives(false, write));
    let bare = |region: &mut Region| in_child(false, || region.bytes_mut().fill(2));
    assert!(survives(true, bare));
    assert!(!survives(false, bare));
}

#[test]
fn against_read() {
    let read = |region: &mut Region, told: bool| {
        let mut pipe = [0; 2];
        calls::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC).unwrap();
        calls::write(pipe[1], [2u8; 100].as_ptr().cast(), 100).unwrap();
        if told {
            before_kernel_writes(region.pointer() as usize, 100);
        }
        let got = calls::read(pipe[0], region.pointer().cast(), 100);
        let _ = pipe.map(calls::close);
        got
    };
    assert!(survives(true, |region| assert_eq!(read(region, true), Ok(100))));
    assert!(survives(true, |region| assert_eq!(read(region, false), Err(Errno(libc::EFAULT)))));
    assert!(!survives(false, |region| assert_eq!(read(region, false), Ok(100))));
}

#[test]
fn against_process_vm_writev() {
    let write = |region: &mut Region| {
        let own = std::process::id() as i32;
        let mut bytes = [2u8; 100];
        let here = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: 100 };
        let there = libc::iovec { iov_base: region.pointer().cast(), iov_len: 100 };
        calls::process_vm_writev(own, &here, 1, &there, 1, 0)
    };
    assert!(survives(true, |region| assert_eq!(write(region), Err(Errno(libc::EFAULT)))));
    assert!(!survives(false, |region| assert_eq!(write(region), Ok(100))));
}

#[test]
fn a_rewritten_buffer_is_copied_and_static_data_costs_nothing() {
    let (mut here, mut there, pool) = joined();
    let mut region = pool.allocate(LENGTH).unwrap();
    let mut bytes = vec![0; LENGTH];
    let mut send = |here: &mut shunt_buffers::port::Port, region: &Region| {
        here.send(region.bytes(), true).unwrap();
        there.receive(&mut bytes).unwrap();
        here.progress().unwrap();
    };
    for _ in 0..5 {
        send(&mut here, &region);
    }
    assert!(pool.is_armed(&region.located()), "what is not written stays protected");
    assert_eq!(here.copied(Limit::Rewritten), 0);
    send(&mut here, &region);
    // Written between two sends: not while it is read. The whole region is given back by one fault.
    region.bytes_mut().fill(4);
    assert!(!pool.is_armed(&region.located()));
    send(&mut here, &region);
    let write_under_way = |here: &mut shunt_buffers::port::Port, region: &mut Region| {
        here.send(region.bytes(), true).unwrap();
        region.bytes_mut()[0] = 9;
    };
    write_under_way(&mut here, &mut region);
    there.receive(&mut bytes).unwrap();
    here.progress().unwrap();
    for _ in 0..16 {
        here.send(region.bytes(), true).unwrap();
        there.receive(&mut bytes).unwrap();
    }
    assert_eq!(here.copied(Limit::Rewritten), 16);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// Any two halves, any sizes and offsets, written at any time: strong is strong, and every pool is whole in the end.
    #[test]
    fn any_sender_and_any_receiver(
        steps in prop::collection::vec((0usize..8, 0usize..3, 1usize..4 * UNIT, 0usize..3, any::<bool>()), 1..12)
    ) {
        let (mut here, mut there, pool) = joined();
        let own: Pool = common::pool();
        there.offer(&own).unwrap();
        for (number, (semantics, receiver, length, overwrite, defer)) in steps.into_iter().enumerate() {
            let semantics = Semantics::of_index(semantics).unwrap();
            let fill = number as u8 + 1;
            let mut region = pool.allocate(length).unwrap();
            region.bytes_mut().fill(fill);
            let mut kept = None;
            let strong = match semantics.index() {
                0 | 1 => {
                    // A waiting send needs a receiver beside it.
                    here.policy().waiting_from = usize::MAX;
                    here.send(&region.bytes()[..length], defer).unwrap();
                    if let Some(place) = length.checked_div(overwrite) {
                        region.bytes_mut()[place.saturating_sub(1)] = 255;
                    }
                    kept = Some(region);
                    true
                }
                2 | 3 => {
                    here.send_shared(&region, length, semantics).unwrap();
                    kept = Some(region);
                    true
                }
                _ => {
                    here.send_region(region, length, semantics).unwrap();
                    true
                }
            };
            let bytes = match receiver {
                0 => {
                    let mut bytes = vec![0; length + 5];
                    prop_assert_eq!(there.receive(&mut bytes).unwrap(), length);
                    bytes.truncate(length);
                    bytes
                }
                1 => {
                    let message = there.receive_reference().unwrap();
                    let bytes = message.to_vec();
                    there.give_back(message).unwrap();
                    bytes
                }
                _ => {
                    let semantics = Semantics::of_index(4 + number % 4).unwrap();
                    let (region, got) = there.receive_region(semantics).unwrap();
                    prop_assert_eq!(got, length);
                    prop_assert!(semantics != Semantics::MOVE || region.bytes()[length..].iter().all(|byte| *byte == 0));
                    region.bytes()[..length].to_vec()
                }
            };
            prop_assert!(!strong || bytes.iter().all(|byte| *byte == fill), "{} to {}", semantics.name(), receiver);
            prop_assert_eq!(bytes.len(), length);
            drop(kept);
            here.progress().unwrap();
            there.progress().unwrap();
        }
        prop_assert_eq!(here.lent(), (0, 0));
    }
}

/// A policy that learns tries all ways; none shows in what comes.
#[test]
fn messages_are_whole_while_the_policy_learns() {
    let (mut here, mut there, pool) = joined();
    here.policy().learns = true;
    const COUNT: usize = 800;
    let receiver = std::thread::spawn(move || {
        let mut bytes = vec![0; 8 * UNIT];
        for number in 0..COUNT {
            let length = there.receive(&mut bytes).unwrap();
            assert!(length == length_of(number) && bytes[..length].iter().all(|byte| *byte == number as u8), "{number}");
        }
        there
    });
    fn length_of(number: usize) -> usize {
        3_000 << (number / 2 % 8)
    }
    let mut regions: Vec<Region> = (0..4).map(|_| pool.allocate(8 * UNIT).unwrap()).collect();
    let mut lent = 0;
    for number in 0..COUNT {
        let region = &mut regions[number / 16 % 4];
        region.bytes_mut().fill(number as u8);
        here.send(&region.bytes()[..length_of(number)], number % 2 == 1).unwrap();
        lent += here.lent().1;
        region.bytes_mut().fill(!(number as u8));
    }
    let there = receiver.join().unwrap();
    while here.lent().1 > 0 {
        here.progress().unwrap();
    }
    drop(there);
    assert!(lent > 0 && here.copied(Limit::Short) > 0, "both ways");
}
