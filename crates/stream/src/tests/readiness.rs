//! What poll(2) says (tcp_poll).

use super::*;
use shunt_sys::libc::{
    POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM, SHUT_RD, SHUT_RDWR, SHUT_WR,
};

const ALL: i16 = POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLWRNORM;
const WRITABLE: i16 = POLLOUT | POLLWRNORM;
const READABLE: i16 = POLLIN | POLLRDNORM;

#[test]
fn a_fresh_stream_is_writable() {
    let Pair { near, far } = &Pair::new();
    assert_eq!(near.events(ALL), WRITABLE);
    assert_eq!(far.events(ALL), WRITABLE);
    assert_eq!(far.events(POLLIN), 0);
}

#[test]
fn bytes_are_readable() {
    let Pair { near, far } = &Pair::new();
    near.send(b"x", 0).unwrap();
    assert_eq!(far.events(ALL), READABLE | WRITABLE);
    assert_eq!(far.events(POLLIN), POLLIN, "only what is asked for");
    far.text(1, 0).unwrap();
    assert_eq!(far.events(ALL), WRITABLE);
}

#[test]
fn a_full_ring_is_not_writable() {
    let Pair { near, far } = &Pair::new();
    near.set_nonblocking();
    while near.send(&pattern(1 << 20), 0).is_ok() {}
    assert_eq!(near.events(ALL), 0);
    let mut bytes = vec![0; 1 << 20];
    while far.receive(&mut bytes, NOW).is_ok() {}
    assert_eq!(near.events(ALL), WRITABLE);
}

#[test]
fn the_peers_end_is_readable() {
    let Pair { near, far } = &Pair::new();
    near.shut(SHUT_WR).unwrap();
    assert_eq!(far.events(ALL), READABLE | WRITABLE | POLLRDHUP);
    assert_eq!(near.events(ALL), WRITABLE, "for who shut it writing does not block");
}

#[test]
fn both_ends_are_a_hang_up() {
    let Pair { near, far } = &Pair::new();
    near.shut(SHUT_WR).unwrap();
    far.shut(SHUT_WR).unwrap();
    for end in [near, far] {
        assert_eq!(end.events(ALL), READABLE | WRITABLE | POLLRDHUP | POLLHUP);
        assert_eq!(end.events(0), POLLHUP, "asked for or not");
    }
}

#[test]
fn own_receiving_half_shut() {
    let Pair { near, .. } = &Pair::new();
    near.shut(SHUT_RD).unwrap();
    assert_eq!(near.events(ALL), READABLE | WRITABLE | POLLRDHUP);
}

#[test]
fn own_halves_shut() {
    let Pair { near, far } = &Pair::new();
    near.shut(SHUT_RDWR).unwrap();
    assert_eq!(near.events(ALL), READABLE | WRITABLE | POLLRDHUP | POLLHUP);
    assert_eq!(far.events(ALL), READABLE | WRITABLE | POLLRDHUP);
}

#[test]
fn a_reset_is_an_error_until_it_is_told() {
    let Pair { near, far } = &Pair::new();
    near.close(true);
    assert_eq!(far.events(0), POLLERR | POLLHUP);
    far.take_error().unwrap();
    assert_eq!(far.events(0), POLLHUP);
}

#[test]
fn low_water_decides_what_is_readable() {
    let Pair { near, far } = &Pair::new();
    crate::options::effects::apply(far.socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &4i32.to_ne_bytes());
    near.send(b"abc", 0).unwrap();
    assert_eq!(far.events(POLLIN), 0);
    near.send(b"d", 0).unwrap();
    assert_eq!(far.events(POLLIN), POLLIN);
    assert_eq!(far.text(1, 0).unwrap(), "a", "a receive of less is not kept waiting by it");
}
