//! Options that calls on a stream look at.

use super::*;
use crate::options::effects::apply;
use crate::options::{limits, owners};
use crate::socket::stored::Stored;
use shunt_sys::libc::{SOL_SOCKET, SO_PEEK_OFF, SO_RCVLOWAT, SO_RCVTIMEO, SO_SNDTIMEO};

fn set(end: &End, name: i32, value: i32) {
    apply(end.socket, SOL_SOCKET, name, &value.to_ne_bytes());
}

fn time(seconds: i64, micros: i64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&seconds.to_ne_bytes());
    bytes[8..].copy_from_slice(&micros.to_ne_bytes());
    bytes
}

#[test]
fn a_receive_gives_up_after_its_limit() {
    let Pair { near, far } = &Pair::new();
    apply(far.socket, SOL_SOCKET, SO_RCVTIMEO, &time(0, 20_000));
    assert_eq!(far.receive(&mut [0; 4], 0), Err(EAGAIN));
    near.send(b"x", 0).unwrap();
    assert_eq!(far.text(4, 0).unwrap(), "x");
}

#[test]
fn a_send_gives_up_after_its_limit() {
    let Pair { near, .. } = &Pair::new();
    apply(near.socket, SOL_SOCKET, SO_SNDTIMEO, &time(0, 20_000));
    let bytes = pattern(1 << 20);
    let mut total = 0;
    let last = loop {
        match near.send(&bytes, 0) {
            Ok(some) => total += some,
            Err(error) => break error,
        }
    };
    assert_eq!(last, EAGAIN);
    assert!(total > 0);
}

#[test]
fn negative_seconds_are_no_time_at_all() {
    assert_eq!(limits::of(&time(-1, 0)), limits::AT_ONCE);
    assert_eq!(limits::of(&time(0, 0)), 0);
    assert_eq!(limits::of(&time(1, 500_000)), 1_500_000_000);
    let Pair { far, .. } = &Pair::new();
    apply(far.socket, SOL_SOCKET, SO_RCVTIMEO, &time(-1, 0));
    assert_eq!(far.receive(&mut [0; 4], 0), Err(EAGAIN));
}

#[test]
fn a_peek_goes_on_where_the_last_one_ended() {
    let Pair { near, far } = &Pair::new();
    set(far, SO_PEEK_OFF, 0);
    near.send(b"abcdef", 0).unwrap();
    assert_eq!(far.text(2, libc::MSG_PEEK).unwrap(), "ab");
    assert_eq!(far.text(2, libc::MSG_PEEK).unwrap(), "cd");
    assert_eq!(far.text(3, 0).unwrap(), "abc");
    assert_eq!(far.text(9, libc::MSG_PEEK).unwrap(), "ef", "what is taken moves the offset back (sk_peek_offset_bwd)");
}

#[test]
fn low_water_keeps_a_receive_waiting() {
    let pair = Pair::new();
    let (near, far) = (pair.near, pair.far);
    set(&far, SO_RCVLOWAT, 4);
    let receiver = std::thread::spawn(move || far.text(16, 0));
    near.send(b"ab", 0).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(10));
    near.send(b"cd", 0).unwrap();
    assert_eq!(receiver.join().unwrap().unwrap(), "abcd");
}

#[test]
fn owners_of_a_side_hear_what_one_of_them_set() {
    let pair = Pair::new();
    let other = crate::socket::allocate(libc::AF_INET).unwrap();
    other.attach(pair.far.socket.link(), pair.far.socket.channel(), pair.far.socket.side());
    for socket in [pair.far.socket, other] {
        socket.set(crate::socket::flag::SHARED);
    }
    pair.far.socket.stored.store(SOL_SOCKET, SO_RCVLOWAT, &3i32.to_ne_bytes());
    owners::publish(pair.far.socket);
    owners::catch_up(other);
    assert_eq!(other.stored.find(SOL_SOCKET, SO_RCVLOWAT).unwrap().bytes(), 3i32.to_ne_bytes());
    assert_eq!(other.low_water.load(core::sync::atomic::Ordering::Relaxed), 3);
    crate::socket::free(other);
}

fn stored() -> &'static Stored {
    pair::start();
    &crate::socket::allocate(libc::AF_INET).unwrap().stored
}

#[test]
fn what_was_set_is_found_in_the_order_of_setting() {
    let list = stored();
    assert!(list.is_empty());
    list.store(1, 2, &[3]);
    list.store(1, 4, &[5, 6]);
    list.store(1, 2, &[7]);
    let names: Vec<_> = list.all().map(|entry| (entry.name, entry.bytes().to_vec())).collect();
    assert_eq!(names, [(2, vec![7]), (4, vec![5, 6])]);
    assert!(list.find(1, 3).is_none());
    list.retain(|_, name| name == 4);
    assert_eq!(list.all().count(), 1);
    list.clear();
    assert!(list.is_empty());
}

#[test]
fn another_socket_follows() {
    let (one, other) = (stored(), stored());
    for name in 0..20 {
        one.store(6, name, &name.to_ne_bytes());
    }
    other.store(1, 1, &[1]);
    other.follow(one);
    assert_eq!(other.all().count(), 20);
    assert_eq!(other.find(6, 19).unwrap().bytes(), 19i32.to_ne_bytes());
}

#[test]
fn more_options_than_there_is_room_for_are_left_out() {
    let list = stored();
    for name in 0..100 {
        list.store(6, name, &[0]);
    }
    assert_eq!(list.all().count(), 64);
}

#[test]
fn values_are_ints_or_bytes() {
    use crate::options::effects::integer;
    assert_eq!(integer(&(-5i32).to_ne_bytes()), -5);
    assert_eq!(integer(&[9]), 9);
    assert_eq!(integer(&[]), 0);
}
