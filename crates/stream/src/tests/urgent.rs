//! The urgent byte (tcp_urg, tcp_recv_urg).

use super::*;
use shunt_sys::libc::{MSG_OOB, POLLIN, POLLPRI};

#[test]
fn it_is_read_beside_the_others() {
    let Pair { near, far } = &Pair::new();
    near.send(b"abc", 0).unwrap();
    near.send(b"!", MSG_OOB).unwrap();
    near.send(b"def", 0).unwrap();
    assert_eq!(far.text(1, MSG_OOB).unwrap(), "!");
    assert_eq!(far.text(64, 0).unwrap(), "abc", "a receive stops at the mark");
    assert_eq!(far.text(64, 0).unwrap(), "def");
}

#[test]
fn the_last_byte_of_a_message_is_the_urgent_one() {
    let Pair { near, far } = &Pair::new();
    assert_eq!(near.send(b"ab!", MSG_OOB), Ok(3));
    assert_eq!(far.text(64, 0).unwrap(), "ab");
    assert_eq!(far.text(64, MSG_OOB).unwrap(), "!");
    assert_eq!(error(far.text(64, MSG_OOB)), libc::EINVAL, "once");
}

#[test]
fn there_is_none() {
    let Pair { near, far } = &Pair::new();
    assert_eq!(error(far.text(1, MSG_OOB)), libc::EINVAL);
    near.send(b"x", 0).unwrap();
    assert_eq!(error(far.text(1, MSG_OOB)), libc::EINVAL);
}

#[test]
fn poll_tells_of_it() {
    let Pair { near, far } = &Pair::new();
    near.send(b"!", MSG_OOB).unwrap();
    assert_eq!(far.events(POLLPRI) & POLLPRI, POLLPRI);
    far.text(1, MSG_OOB).unwrap();
    assert_eq!(far.events(POLLPRI | POLLIN) & POLLPRI, 0);
}

#[test]
fn a_second_one_takes_its_place() {
    let Pair { near, far } = &Pair::new();
    near.send(b"a1", MSG_OOB).unwrap();
    near.send(b"b2", MSG_OOB).unwrap();
    assert_eq!(far.text(1, MSG_OOB).unwrap(), "2");
    let rest = far.text(64, 0).unwrap() + &far.text(64, NOW).unwrap_or_default();
    assert_eq!(rest, "a1b", "the first one is an ordinary byte by then");
}

#[test]
fn at_the_mark() {
    let Pair { near, far } = &Pair::new();
    near.send(b"ab", 0).unwrap();
    near.send(b"!", MSG_OOB).unwrap();
    assert!(!crate::mark::at_mark(far.socket));
    far.text(64, 0).unwrap();
    assert!(crate::mark::at_mark(far.socket));
}
