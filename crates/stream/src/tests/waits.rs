//! Waits: each ends by what it waits for, by its limit or by the end of the stream, and no thread sleeps through a bell.

use super::*;
use crate::waiting::holding::Waiter;
use crate::waiting::wake;
use core::sync::atomic::Ordering;
use shunt_segment::channel::arm;
use shunt_sys::clock;
use std::thread;

#[test]
fn a_receiver_that_sleeps_is_woken_by_each_send() {
    let pair = Pair::new();
    let (near, far) = (pair.near, pair.far);
    let receiver = thread::spawn(move || {
        for expected in 0..200u32 {
            let got = receive_whole(&far, 4);
            assert_eq!(got, expected.to_ne_bytes());
        }
    });
    for number in 0..200u32 {
        if number % 10 == 0 {
            thread::sleep(std::time::Duration::from_millis(2)); // it is asleep by now, as a rule
        }
        near.send(&number.to_ne_bytes(), 0).unwrap();
    }
    receiver.join().unwrap();
}

#[test]
fn to_and_fro_without_losing_a_bell() {
    let pair = Pair::new();
    let (near, far) = (pair.near, pair.far);
    let echo = thread::spawn(move || loop {
        let mut bytes = [0; 8];
        match far.receive(&mut bytes, libc::MSG_WAITALL).unwrap() {
            8 => assert_eq!(far.send(&bytes, 0), Ok(8)),
            _ => return,
        }
    });
    for number in 0..20_000u64 {
        near.send(&number.to_ne_bytes(), 0).unwrap();
        assert_eq!(receive_whole(&near, 8), number.to_ne_bytes());
    }
    near.shut(libc::SHUT_WR).unwrap();
    echo.join().unwrap();
}

#[test]
fn a_deadline_that_is_over_is_not_slept_for() {
    let Pair { far, .. } = &Pair::new();
    let began = shunt_sys::thread::handled();
    assert_eq!(crate::sleep::wait(far.socket, far.fd, arm::IN, clock::monotonic_ns(), began), Err(EAGAIN));
    assert_eq!(far.socket.own().wait.sleepers.load(Ordering::Relaxed), 0, "the account is closed");
}

#[test]
fn what_is_there_is_not_waited_for() {
    let Pair { near, far } = &Pair::new();
    near.send(b"x", 0).unwrap();
    let began = shunt_sys::thread::handled();
    assert_eq!(crate::sleep::wait(far.socket, far.fd, arm::IN, u64::MAX, began), Ok(()));
    assert_eq!(crate::sleep::wait(far.socket, far.fd, arm::OUT, u64::MAX, began), Ok(()));
}

#[test]
fn a_wait_is_counted_as_long_as_it_lasts() {
    let Pair { far, .. } = &Pair::new();
    assert!(far.socket.hold.is_own());
    let waiter = Waiter::on(far.socket);
    assert!(waiter.is_on(far.socket));
    assert!(far.socket.hold.is_open(far.socket));
    waiter.leave();
}

#[test]
fn a_socket_that_waits_lingers_when_its_number_is_closed() {
    use crate::waiting::holding;
    let Pair { far, .. } = &Pair::new();
    assert!(!holding::linger(far.socket, far.fd), "nobody waits");
    let waiter = Waiter::on(far.socket);
    far.socket.references.store(0, Ordering::SeqCst);
    assert!(holding::linger(far.socket, far.fd), "somebody does");
    assert_ne!(far.socket.hold.number(far.fd), far.fd, "by a private number");
    far.socket.references.store(1, Ordering::SeqCst);
    waiter.leave();
}

#[test]
fn a_byte_that_no_bell_accounts_for_breaks_the_connection_off() {
    let Pair { near, far } = &Pair::new();
    assert!(wake::write_bell(near.fd, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL));
    assert_eq!(error(far.text(64, NOW)), libc::ECONNRESET, "it was put there past the library");
}

#[test]
fn a_bell_that_is_counted_is_no_byte_of_the_stream() {
    let Pair { near, far } = &Pair::new();
    wake::ring(near.socket, near.fd);
    assert_eq!(far.text(64, NOW), Err(EAGAIN));
    near.send(b"x", 0).unwrap();
    assert_eq!(far.text(64, 0).unwrap(), "x");
}
