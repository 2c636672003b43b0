//! Ends and resets: what is left to be read, and what calls say behind it (tcp_shutdown, tcp_fin, tcp_reset).

use super::*;
use shunt_sys::libc::{EPIPE, MSG_NOSIGNAL, SHUT_RD, SHUT_RDWR, SHUT_WR};

const QUIET: i32 = MSG_NOSIGNAL;

#[test]
fn an_end_is_nothing_to_read() {
    let Pair { near, far } = &Pair::new();
    near.shut(SHUT_WR).unwrap();
    assert_eq!(far.receive(&mut [0; 4], 0), Ok(0));
    assert_eq!(far.receive(&mut [0; 4], 0), Ok(0), "again and again");
    assert_eq!(far.receive(&mut [0; 4], NOW), Ok(0));
}

#[test]
fn bytes_come_before_the_end() {
    let Pair { near, far } = &Pair::new();
    near.send(b"last", 0).unwrap();
    near.shut(SHUT_WR).unwrap();
    assert_eq!(far.text(2, 0).unwrap(), "la");
    assert_eq!(far.text(9, 0).unwrap(), "st");
    assert_eq!(far.text(9, 0).unwrap(), "");
}

#[test]
fn a_half_that_is_shut_sends_no_more() {
    let Pair { near, far } = &Pair::new();
    near.shut(SHUT_WR).unwrap();
    assert_eq!(error(near.send(b"x", QUIET)), EPIPE);
    far.send(b"other way", 0).unwrap();
    assert_eq!(near.text(64, 0).unwrap(), "other way");
}

#[test]
fn a_half_that_is_shut_receives_what_is_there() {
    let Pair { near, far } = &Pair::new();
    near.send(b"before", 0).unwrap();
    far.shut(SHUT_RD).unwrap();
    assert_eq!(far.text(64, 0).unwrap(), "before", "Linux gives it");
    assert_eq!(far.text(64, 0).unwrap(), "", "and then an end");
    near.send(b"after", 0).unwrap();
    assert_eq!(far.text(64, 0).unwrap(), "after", "and what comes all the same");
}

#[test]
fn both_halves() {
    let Pair { near, far } = &Pair::new();
    near.shut(SHUT_RDWR).unwrap();
    assert_eq!(error(near.send(b"x", QUIET)), EPIPE);
    assert_eq!(near.receive(&mut [0; 4], 0), Ok(0));
    assert_eq!(far.receive(&mut [0; 4], 0), Ok(0));
}

#[test]
fn only_three_ways_to_shut() {
    let Pair { near, .. } = &Pair::new();
    for how in [-1, 3, i32::MAX] {
        assert_eq!(error(near.shut(how)), libc::EINVAL);
    }
}

#[test]
fn a_close_is_an_end() {
    let Pair { near, far } = &Pair::new();
    near.send(b"bye", 0).unwrap();
    near.close(false);
    assert_eq!(far.text(9, 0).unwrap(), "bye");
    assert_eq!(far.text(9, 0).unwrap(), "");
}

#[test]
fn the_first_send_behind_a_close_is_taken_and_the_next_is_not() {
    let Pair { near, far } = &Pair::new();
    near.close(false);
    assert_eq!(far.send(b"x", QUIET), Ok(1), "the peer answers by a reset");
    assert_eq!(error(far.send(b"x", QUIET)), EPIPE);
}

#[test]
fn a_reset_is_told_once() {
    let Pair { near, far } = &Pair::new();
    near.close(true);
    assert_eq!(error(far.receive(&mut [0; 4], 0)), libc::ECONNRESET);
    assert_eq!(far.receive(&mut [0; 4], 0), Ok(0));
    assert_eq!(error(far.send(b"x", QUIET)), EPIPE);
}

#[test]
fn a_reset_is_told_to_who_sends() {
    let Pair { near, far } = &Pair::new();
    near.close(true);
    assert_eq!(error(far.send(b"x", QUIET)), libc::ECONNRESET);
    assert_eq!(error(far.send(b"x", QUIET)), EPIPE);
    assert_eq!(far.receive(&mut [0; 4], 0), Ok(0));
}

#[test]
fn a_reset_is_told_by_so_error() {
    let Pair { near, far } = &Pair::new();
    assert_eq!(far.take_error(), None);
    near.close(true);
    assert_eq!(far.take_error(), Some(libc::ECONNRESET));
    assert_eq!(far.take_error(), None);
    assert_eq!(far.receive(&mut [0; 4], 0), Ok(0));
}

#[test]
fn a_blocked_receiver_hears_the_end() {
    let pair = Pair::new();
    let (near, far) = (pair.near, pair.far);
    let receiver = std::thread::spawn(move || far.receive(&mut [0; 4], 0));
    std::thread::sleep(std::time::Duration::from_millis(20));
    near.shut(SHUT_WR).unwrap();
    assert_eq!(receiver.join().unwrap(), Ok(0));
}

#[test]
fn a_blocked_receiver_hears_the_reset() {
    let pair = Pair::new();
    let (near, far) = (pair.near, pair.far);
    let receiver = std::thread::spawn(move || far.receive(&mut [0; 4], 0));
    std::thread::sleep(std::time::Duration::from_millis(20));
    near.close(true);
    assert_eq!(error(receiver.join().unwrap()), libc::ECONNRESET);
}

#[test]
fn a_blocked_sender_hears_the_close() {
    let pair = Pair::new();
    let (near, far) = (pair.near, pair.far);
    let sender = std::thread::spawn(move || {
        let bytes = pattern(1 << 20);
        loop {
            if let Err(error) = near.send(&bytes, QUIET) {
                return error.0;
            }
        }
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    far.close(true);
    assert!([libc::ECONNRESET, EPIPE].contains(&sender.join().unwrap()));
}

#[test]
fn own_shutdown_wakes_the_own_receiver() {
    let pair = Pair::new();
    let far = pair.far;
    let receiver = std::thread::spawn(move || far.receive(&mut [0; 4], 0));
    std::thread::sleep(std::time::Duration::from_millis(20));
    far.shut(SHUT_RD).unwrap();
    assert_eq!(receiver.join().unwrap(), Ok(0));
}
