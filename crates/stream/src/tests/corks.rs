//! MSG_MORE and TCP_CORK: bytes that are held back (tcp_push_pending_frames).

use super::*;
use shunt_sys::libc::{MSG_MORE, SHUT_WR};

#[test]
fn more_is_held_back_until_there_is_no_more() {
    let Pair { near, far } = &Pair::new();
    near.send(b"ab", MSG_MORE).unwrap();
    assert_eq!(far.text(64, NOW), Err(EAGAIN));
    near.send(b"cd", 0).unwrap();
    assert_eq!(far.text(64, NOW).unwrap(), "abcd");
}

#[test]
fn a_cork_holds_until_it_is_drawn() {
    let Pair { near, far } = &Pair::new();
    crate::corked::set(near.socket, true);
    near.send(b"ab", 0).unwrap();
    near.send(b"cd", 0).unwrap();
    assert_eq!(far.text(64, NOW), Err(EAGAIN));
    crate::corked::set(near.socket, false);
    crate::corked::push(near.socket, near.fd);
    assert_eq!(far.text(64, NOW).unwrap(), "abcd");
}

#[test]
fn a_full_segment_goes_on() {
    let Pair { near, far } = &Pair::new();
    crate::corked::set(near.socket, true);
    near.send(&pattern(200_000), 0).unwrap();
    assert!(far.receive(&mut vec![0; 1 << 20], NOW).unwrap() >= 32_000, "what fills segments is not held back");
}

#[test]
fn an_end_takes_them_along() {
    let Pair { near, far } = &Pair::new();
    near.send(b"held", MSG_MORE).unwrap();
    near.shut(SHUT_WR).unwrap();
    assert_eq!(far.text(64, 0).unwrap(), "held");
    assert_eq!(far.text(64, 0).unwrap(), "");
}

#[test]
fn a_waiting_receiver_gets_them_in_the_end() {
    let Pair { near, far } = &Pair::new();
    near.send(b"held", MSG_MORE).unwrap();
    assert_eq!(far.text(64, 0).unwrap(), "held", "200 ms later (tcp(7))");
}
