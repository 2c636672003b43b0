//! UDP: one message is one datagram, however it is cut up, looked at, or too long for its receiver.

use super::*;
use shunt_sys::libc::{self, AF_INET6, MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, POLLIN, POLLOUT};

#[test]
fn each_message_is_received_for_itself_and_in_order() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        for text in ["one", "", "three"] {
            world.send_to(near, text.as_bytes(), far).unwrap();
        }
        assert!(world.in_memory(far));
        [(); 3].map(|()| world.text(far, 64, MSG_DONTWAIT).unwrap())
    });
    assert_eq!(told, ["one", "", "three"]);
}

#[test]
fn what_has_no_room_is_lost_and_said_to_be() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        world.send_to(near, b"abcdef", far).unwrap();
        world.send_to(near, b"next", far).unwrap();
        assert!(world.in_memory(far));
        let short = world.receive_message(far, plain(&[4], MSG_DONTWAIT)).unwrap();
        let next = world.receive_message(far, plain(&[4], MSG_DONTWAIT)).unwrap();
        [(short.told, short.bytes, short.flags), (next.told, next.bytes, next.flags)]
    });
    assert_eq!(told, [(4, b"abcd".to_vec(), MSG_TRUNC), (4, b"next".to_vec(), 0)]);
}

#[test]
fn the_true_length_is_told_to_those_that_ask() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        for _ in 0..3 {
            world.send_to(near, b"abcdef", far).unwrap();
        }
        assert!(world.in_memory(far));
        [(&[2][..], MSG_TRUNC), (&[64], MSG_TRUNC), (&[], MSG_TRUNC | MSG_PEEK)].map(|(pieces, flags)| {
            let got = world.receive_message(far, plain(pieces, flags | MSG_DONTWAIT)).unwrap();
            (got.told, got.flags & MSG_TRUNC)
        })
    });
    assert_eq!(told, [(6, MSG_TRUNC), (6, 0), (6, MSG_TRUNC)]);
}

#[test]
fn a_peek_leaves_the_datagram_where_it_is() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        world.send_to(near, b"first", far).unwrap();
        world.send_to(near, b"second", far).unwrap();
        assert!(world.in_memory(far));
        let flags = [MSG_PEEK, MSG_PEEK, 0, MSG_PEEK, 0].map(|flag| flag | MSG_DONTWAIT);
        (flags.map(|flags| world.text(far, 64, flags).unwrap()), world.text(far, 64, MSG_DONTWAIT | MSG_PEEK))
    });
    assert_eq!(told.0, ["first", "first", "first", "second", "second"]);
    assert_eq!(told.1, Err(Errno(libc::EAGAIN)));
}

#[test]
fn pieces_are_gathered_and_scattered() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        let port = Some(world.port(far));
        let sent = world.send_message(near, &[b"ab", b"", b"cde", b"f"], port, &[], 0);
        assert!(world.in_memory(far));
        let got = world.receive_message(far, plain(&[1, 0, 3, 8], MSG_DONTWAIT)).unwrap();
        (sent, got.told, got.bytes, got.flags)
    });
    assert_eq!(told, (Ok(6), 6, b"abcdef......".to_vec(), 0));
}

#[test]
fn lengths_up_to_the_longest_arrive_whole_and_longer_ones_are_refused() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        [1, 31, 32, 33, 64, 1472, 4096, 9000, 65_507, 65_508, 70_000].map(|length| {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + at / 251) as u8).collect();
            let sent = world.send_to(near, &bytes, far);
            let got = world.receive_message(far, plain(&[70_000], MSG_DONTWAIT));
            let whole = got.as_ref().is_ok_and(|got| got.told == length && got.bytes[..length] == bytes);
            (sent, got.map(|got| got.told), whole)
        })
    });
    assert_eq!(told[8], (Ok(65_507), Ok(65_507), true));
    assert_eq!(told[9], (Err(Errno(libc::EMSGSIZE)), Err(Errno(libc::EAGAIN)), false));
}

#[test]
fn nothing_to_receive_is_told_by_either_way_not_to_wait() {
    let told = in_both(|world| {
        let (_, far) = world.two();
        let by_flag = world.text(far, 8, MSG_DONTWAIT);
        world.set_nonblocking(far);
        (by_flag, world.text(far, 8, 0))
    });
    assert_eq!(told, (Err(Errno(libc::EAGAIN)), Err(Errno(libc::EAGAIN))));
}

#[test]
fn poll_and_the_size_of_the_next_one_know_what_lies_in_memory() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        let before = (world.events(far, POLLIN | POLLOUT), world.readable(far));
        world.send_to(near, b"abc", far).unwrap();
        world.send_to(near, b"longer", far).unwrap();
        assert!(world.in_memory(far));
        let first = (world.events(far, POLLIN), world.readable(far));
        world.text(far, 64, MSG_DONTWAIT).unwrap();
        let second = (world.events(far, POLLIN), world.readable(far));
        world.text(far, 64, MSG_DONTWAIT).unwrap();
        [before, first, second, (world.events(far, POLLIN), world.readable(far))]
    });
    assert_eq!(told, [(POLLOUT, 0), (POLLIN, 3), (POLLIN, 6), (0, 0)]);
}

#[test]
fn a_receive_that_faults_loses_the_datagram() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        world.send_to(near, b"lost", far).unwrap();
        world.send_to(near, b"next", far).unwrap();
        assert!(world.in_memory(far));
        (world.receive_into_nothing(far, 8), world.text(far, 8, MSG_DONTWAIT))
    });
    assert_eq!(told, (Err(Errno(libc::EFAULT)), Ok("next".into())));
}

#[test]
fn a_send_that_faults_sends_nothing() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        world.connect(near, far).unwrap();
        (world.send_from_nothing(near, 8), world.text(far, 8, MSG_DONTWAIT), world.send(near, b"x", 0), world.text(far, 8, 0))
    });
    assert_eq!(told, (Err(Errno(libc::EFAULT)), Err(Errno(libc::EAGAIN)), Ok(1), Ok("x".into())));
}

#[test]
fn ipv6_carries_the_same() {
    let told = in_both(|world| {
        let [near, far] = [(); 2].map(|()| world.udp(AF_INET6));
        world.send_to(near, b"six", far).unwrap();
        assert!(world.in_memory(far));
        let got = world.receive_message(far, Room { name: 28, ..plain(&[64], MSG_DONTWAIT) }).unwrap();
        (got.told, got.port == world.port(near), got.name.1)
    });
    assert_eq!(told, (3, true, 28));
}

#[test]
fn names_are_cut_to_their_room_and_the_length_is_the_true_one() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        [0, 2, 4, 15, 16, 28].map(|name| {
            world.send_to(near, b"x", far).unwrap();
            assert!(world.in_memory(far));
            let got = world.receive_message(far, Room { name, ..plain(&[8], MSG_DONTWAIT) }).unwrap();
            (got.name.1, got.port == world.port(near))
        })
    });
    assert_eq!(told, [(0, false), (16, false), (16, true), (16, true), (16, true), (16, true)]);
}

#[test]
fn a_duplicate_receives_what_the_first_number_would_have() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        world.send_to(near, b"one", far).unwrap();
        let copy = world.dup(far);
        let port = world.port(far);
        world.close(far);
        let sent = world.send_message(near, &[b"two"], Some(port), &[], 0);
        assert!(world.in_memory(copy));
        (sent, world.all(copy, 8))
    });
    assert_eq!(told, (Ok(3), vec!["one".to_string(), "two".into()]));
}
