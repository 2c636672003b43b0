//! Control messages of UDP: what a receiver asks for is told as the kernel tells it, cut to the room there is; what a sender wishes of one
//! datagram is read as the kernel reads it, or left to it.

use super::world::control;
use super::*;
use crate::datagram::cmsg_send;
use shunt_sys::libc::{
    self, msghdr, AF_INET, AF_INET6, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP, MSG_CTRUNC, MSG_DONTWAIT, SOL_SOCKET,
};

/// UDP_SEGMENT, UDP_GRO.
const SEGMENT: i32 = 103;
const GRO: i32 = 104;

fn told(world: &World, far: i32, room: usize) -> (Vec<(i32, i32, Vec<u8>)>, usize, i32) {
    assert!(world.in_memory(far));
    let got = world.receive_message(far, Room { control: room, ..plain(&[64], MSG_DONTWAIT) }).unwrap();
    (got.control, got.control_length, got.flags)
}

/// A datagram to a receiver that has set these options.
fn after(world: &World, family: i32, options: &[(i32, i32)], room: usize) -> (Vec<(i32, i32, Vec<u8>)>, usize, i32) {
    let [near, far] = [(); 2].map(|()| world.udp(family));
    for (level, name) in options {
        world.set(far, *level, *name, 1).unwrap();
    }
    world.send_to(near, b"x", far).unwrap();
    told(world, far, room)
}

#[test]
fn nothing_is_told_to_those_that_ask_for_nothing() {
    assert_eq!(in_both(|world| after(world, AF_INET, &[], 256)), (vec![], 0, 0));
}

#[test]
fn the_address_the_time_to_live_and_the_service_are_told_in_the_kernels_order() {
    let options = [(IPPROTO_IP, libc::IP_RECVTOS), (IPPROTO_IP, libc::IP_PKTINFO), (IPPROTO_IP, libc::IP_RECVTTL)];
    let (messages, _, flags) = in_both(|world| after(world, AF_INET, &options, 256));
    let kinds: Vec<i32> = messages.iter().map(|(_, kind, _)| *kind).collect();
    assert_eq!((kinds, flags), (vec![libc::IP_PKTINFO, libc::IP_TTL, libc::IP_TOS], 0));
    assert_eq!(messages[0].2[8..], [127, 0, 0, 1]);
}

#[test]
fn ipv6_is_told_in_its_own_words() {
    let options =
        [(IPPROTO_IPV6, libc::IPV6_RECVPKTINFO), (IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT), (IPPROTO_IPV6, libc::IPV6_RECVTCLASS)];
    let (messages, _, _) = in_both(|world| after(world, AF_INET6, &options, 256));
    assert_eq!(messages.len(), 3);
}

#[test]
fn messages_without_room_are_cut_and_said_to_be() {
    for room in [0, 8, 15, 16, 20, 24, 28, 32, 40, 47, 48, 56, 64, 200] {
        let options = [(IPPROTO_IP, libc::IP_PKTINFO), (IPPROTO_IP, libc::IP_RECVTTL)];
        let (_, length, flags) = in_both(|world| {
            let (_, length, flags) = after(world, AF_INET, &options, room);
            (room, length, flags)
        });
        assert!(length <= room && (flags & MSG_CTRUNC != 0) == (room < 52), "{room}: {length}, {flags:#x}");
    }
}

#[test]
fn the_original_destination_is_the_own_name() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        world.set(far, IPPROTO_IP, libc::IP_RECVORIGDSTADDR, 1).unwrap();
        world.send_to(near, b"x", far).unwrap();
        let (messages, _, _) = told(world, far, 256);
        let (level, kind, data) = &messages[0];
        (*level, *kind, data[2..4] == world.port(far).to_be_bytes(), data[4..8].to_vec())
    });
    assert_eq!(told, (IPPROTO_IP, libc::IP_ORIGDSTADDR, true, vec![127, 0, 0, 1]));
}

#[test]
fn the_time_is_told_in_the_unit_that_was_asked_for_last() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        [(libc::SO_TIMESTAMP, 1_000_000), (libc::SO_TIMESTAMPNS, 1_000_000_000), (64, 1_000_000_000), (63, 1_000_000)].map(
            |(name, unit)| {
                world.set(far, SOL_SOCKET, name, 1).unwrap();
                let before = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
                world.send_to(near, b"x", far).unwrap();
                let (messages, length, _) = told(world, far, 256);
                let word = |at: usize| u64::from_ne_bytes(messages[0].2[at..at + 8].try_into().unwrap()) as u128;
                let at = word(0) * 1_000_000_000 + word(8) * (1_000_000_000 / unit);
                // Within ten seconds, and not before by more than the unit.
                let now = at + 1_000_000 >= before && at < before + 10_000_000_000;
                (messages.len(), messages[0].1, length, now)
            },
        )
    });
    assert_eq!(told.map(|(_, kind, _, now)| (kind, now)), [(29, true), (35, true), (64, true), (63, true)]);
}

#[test]
fn what_the_sender_set_for_all_its_datagrams_is_told() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        world.set(far, IPPROTO_IP, libc::IP_RECVTTL, 1).unwrap();
        world.set(far, IPPROTO_IP, libc::IP_RECVTOS, 1).unwrap();
        [(7, 0x10), (200, 0x20), (64, 0)].map(|(ttl, tos)| {
            world.set(near, IPPROTO_IP, libc::IP_TTL, ttl).unwrap();
            world.set(near, IPPROTO_IP, libc::IP_TOS, tos).unwrap();
            world.send_to(near, b"x", far).unwrap();
            let (messages, _, _) = told(world, far, 256);
            (messages[0].2.clone(), messages[1].2.clone())
        })
    });
    assert_eq!(told[0], (7i32.to_ne_bytes().to_vec(), vec![0x10]));
}

#[test]
fn what_the_sender_wishes_of_one_datagram_is_told_of_that_one() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        let port = Some(world.port(far));
        world.set(far, IPPROTO_IP, libc::IP_RECVTTL, 1).unwrap();
        world.set(far, IPPROTO_IP, libc::IP_RECVTOS, 1).unwrap();
        let wishes = [
            [control(IPPROTO_IP, libc::IP_TTL, &9i32.to_ne_bytes()), control(IPPROTO_IP, libc::IP_TOS, &0x18i32.to_ne_bytes())]
                .concat(),
            control(IPPROTO_IP, libc::IP_TTL, &255i32.to_ne_bytes()),
            vec![],
        ];
        wishes.map(|wish| {
            world.send_message(near, &[b"x"], port, &wish, 0).unwrap();
            told(world, far, 256).0
        })
    });
    let ttls: Vec<&[u8]> = told.iter().map(|messages| &messages[0].2[..]).collect();
    assert_eq!(ttls, [9i32, 255, 64].map(i32::to_ne_bytes));
}

#[test]
fn wishes_that_make_no_sense_are_refused_with_the_kernels_error() {
    let wrong = [
        control(IPPROTO_IP, libc::IP_TTL, &0i32.to_ne_bytes()),
        control(IPPROTO_IP, libc::IP_TTL, &256i32.to_ne_bytes()),
        control(IPPROTO_IP, libc::IP_TTL, &[1, 0]),
        control(IPPROTO_IP, libc::IP_TOS, &256i32.to_ne_bytes()),
        control(IPPROTO_IP, 9999, &[0; 4]),
        control(IPPROTO_IP, libc::IP_PKTINFO, &[0; 8]),
        (u64::MAX >> 1).to_ne_bytes().repeat(3),
        8u64.to_ne_bytes().repeat(3),
    ];
    for wish in wrong {
        let told = alone_in_both(|world| {
            let (near, far) = world.two();
            world.send_to(near, b"x", far).unwrap();
            let sent = world.send_message(near, &[b"y"], Some(world.port(far)), &wish, 0);
            (sent, world.all(far, 8))
        });
        assert_eq!(told, (Err(Errno(libc::EINVAL)), vec!["x".to_string()]), "{wish:?}");
    }
}

#[test]
fn a_source_that_is_chosen_is_told() {
    let told = alone_in_both(|world| {
        let (near, far) = world.two();
        let wish = |address: [u8; 4]| control(IPPROTO_IP, libc::IP_PKTINFO, &[&[0; 4][..], &address, &[0; 4]].concat());
        let near_any = world.unbound(AF_INET);
        let sent =
            [near, near_any].map(|from| world.send_message(from, &[b"x"], Some(world.port(far)), &wish([127, 0, 0, 2]), 0));
        let names =
            [(); 2].map(|()| world.receive_message(far, Room { name: 16, ..plain(&[8], MSG_DONTWAIT) }).map(|got| got.address));
        (sent, names)
    });
    assert_eq!(told.1[1], Ok([127, 0, 0, 2]));
}

#[test]
fn segments_arrive_one_by_one_or_as_one_with_their_size() {
    let told = alone_in_both(|world| {
        let (near, far) = world.two();
        let wish = control(IPPROTO_UDP, SEGMENT, &3u16.to_ne_bytes());
        let sent = world.send_message(near, &[b"abcdefgh"], Some(world.port(far)), &wish, 0);
        let apart = world.all(far, 64);
        world.set(far, IPPROTO_UDP, GRO, 1).unwrap();
        world.send_message(near, &[b"abcdefgh"], Some(world.port(far)), &wish, 0).unwrap();
        let got = world.receive_message(far, Room { control: 64, ..plain(&[64], MSG_DONTWAIT) }).unwrap();
        (sent, apart, got.told, got.control)
    });
    assert_eq!(told.1, ["abc", "def", "gh"]);
    assert_eq!((told.2, told.3), (8, vec![(IPPROTO_UDP, GRO, 3i32.to_ne_bytes().to_vec())]));
}

/// What is read of a control buffer.
fn read(bytes: &[u8], v6: bool) -> Option<cmsg_send::Wishes> {
    // SAFETY: all-zero is a valid header.
    let mut message: msghdr = unsafe { core::mem::zeroed() };
    (message.msg_control, message.msg_controllen) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
    // SAFETY: a slice.
    unsafe { cmsg_send::read(&message, v6) }
}

#[test]
fn what_is_not_understood_is_left_to_the_kernel_whatever_stands_beside_it() {
    world::start();
    let ttl = control(IPPROTO_IP, libc::IP_TTL, &9i32.to_ne_bytes());
    assert_eq!(read(&ttl, false).and_then(|wishes| wishes.ttl), Some(9));
    let strange = [
        [ttl.clone(), control(SOL_SOCKET, libc::SCM_RIGHTS, &[0; 4])].concat(),
        control(IPPROTO_IP, libc::IP_PKTINFO, &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), // another interface
        vec![0; 257],
    ];
    assert!(strange.iter().all(|bytes| read(bytes, false).is_none()));
    assert!(read(&ttl, true).is_none(), "IPv4's words to an IPv6 address");
    assert!(
        read(&control(IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &0i32.to_ne_bytes()), true).is_some_and(|wishes| wishes.ttl == Some(0))
    );
}

#[test]
fn of_two_wishes_the_last_one_holds() {
    world::start();
    let bytes = [8i32, 9].map(|ttl| control(IPPROTO_IP, libc::IP_TTL, &ttl.to_ne_bytes())).concat();
    assert_eq!(read(&bytes, false).and_then(|wishes| wishes.ttl), Some(9));
}

proptest::proptest! {
    #[test]
    fn whatever_stands_in_a_control_buffer_is_read_within_it(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300), level in 0..3usize, kind in 0..9usize, size in 0u64..64, v6: bool) {
        world::start();
        read(&bytes, v6);
        // One that looks like a message, of a length that may be any.
        let level = [IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP][level];
        let kind = [libc::IP_PKTINFO, libc::IP_TTL, libc::IP_TOS, libc::IPV6_PKTINFO, libc::IPV6_HOPLIMIT, libc::IPV6_TCLASS, SEGMENT, 0, -1][kind];
        let mut message = size.to_ne_bytes().to_vec();
        message.extend([level.to_ne_bytes(), kind.to_ne_bytes()].concat());
        message.extend(&bytes);
        if read(&message, v6).is_some() {
            proptest::prop_assert!((16..=message.len() as u64).contains(&size), "{size} of {}", message.len());
        }
    }
}
