//! The suite over UDP on loopback and between hosts; spoofed and random frames.

use shunt_endpoint::conformance::{connect, provide, Couple};
use shunt_endpoint::device::udp::{ipv4, ipv6, Options, Udp};
use shunt_endpoint::shared::Shape;
use shunt_endpoint::{Arrival, Body, Drop as Reason, Endpoint, Message};
use shunt_testkit::hosts;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

const COALESCING: Options =
    Options { mtu: 1500, coalesce: true, socket_buffer: 16 << 20, shape: Shape { segment: 16 << 20, ..Shape::SMALL } };

fn loopback(options: Options) -> Udp {
    Udp::bind(&ipv4([127, 0, 0, 1], 0), options).expect("a UDP socket on loopback")
}

fn between_hosts(options: Options, family: usize) -> Option<Couple> {
    let hosts = match hosts::pair(hosts::Joint::default()) {
        Ok(hosts) => hosts,
        Err(sentence) => {
            eprintln!("SKIPPED: {sentence}");
            return None;
        }
    };
    let address = |host: &hosts::Host| match host.addresses[family] {
        IpAddr::V4(address) => ipv4(address.octets(), 0),
        IpAddr::V6(address) => ipv6(address.octets(), 0, 0),
    };
    let [a, b] = [&hosts[0], &hosts[1]].map(|host| host.enter(|| Udp::bind(&address(host), options)).expect("a UDP socket"));
    Some(Couple { a: Box::new(a), b: Box::new(b), keep: Some(Box::new(hosts)) })
}

mod on_loopback {
    use super::*;
    /// On loopback nothing is lost as long as the socket's buffer holds it: the suite may ask for more there.
    fn couple() -> Option<Couple> {
        let options = Options { socket_buffer: 32 << 20, ..Options::default() };
        Some(Couple::new(loopback(options), loopback(options)).faithful())
    }
    shunt_endpoint::conformance!(couple);
    shunt_endpoint::conformance!(@wrapped couple);
}

mod coalesced {
    use super::*;
    fn couple() -> Option<Couple> {
        Some(Couple::new(loopback(COALESCING), loopback(COALESCING)))
    }
    shunt_endpoint::conformance!(couple);
}

mod two_hosts {
    shunt_endpoint::conformance!(|| super::between_hosts(Default::default(), 0));
}

mod two_hosts_ipv6 {
    shunt_endpoint::conformance!(|| super::between_hosts(super::COALESCING, 1));
}

/// Waits until the endpoint has dropped `count` frames in all.
fn wait_for_drops(endpoint: &mut Udp, count: u64) {
    let start = Instant::now();
    let mut arrival = Arrival::empty();
    while endpoint.counters().dropped_in_all() < count {
        assert!(!endpoint.receive(&mut arrival), "a stranger's frame was received");
        assert!(start.elapsed() < Duration::from_secs(20), "dropped {} of {count}", endpoint.counters().dropped_in_all());
    }
}

#[test]
fn strangers_frames_are_counted_by_reason() {
    let (mut a, mut b) = (loopback(Options::default()), loopback(Options::default()));
    provide(&mut b, 16);
    let (to_b, _) = connect(&mut a, &mut b);
    let port = u16::from_be_bytes([b.address().bytes()[2], b.address().bytes()[3]]);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |bytes: &[u8]| assert_eq!(stranger.send_to(bytes, ("127.0.0.1", port)).unwrap(), bytes.len());
    let header = |tag: u64, length: u32| {
        let mut bytes = vec![0; 16];
        shunt_wire::endpoint::Repr { kind: shunt_wire::endpoint::Kind::Message, tag, length }.emit(&mut bytes);
        bytes
    };
    let right = b.memory().registry().iter().next().unwrap().1.tags().receive.0;
    send(b"");
    send(b"short");
    send(&[0xff; 40]);
    let mut version = header(right, 0);
    version[2] = 9;
    send(&version);
    let mut kind = header(right, 0);
    kind[3] = 77;
    send(&kind);
    send(&header(right, 10));
    send(&header(right ^ 1, 0));
    send(&header(right, 0));
    send(&[0x5a; 9000]);
    wait_for_drops(&mut b, 9);
    let expected = [
        (Reason::Short, 2),
        (Reason::Magic, 1),
        (Reason::Version, 1),
        (Reason::Kind, 1),
        (Reason::Length, 1),
        (Reason::Tag, 1),
        (Reason::Source, 1),
        (Reason::Oversized, 1),
    ];
    for (reason, count) in expected {
        assert_eq!(b.counters().dropped(reason), count, "{}", reason.name());
    }
    a.send(&Message::small(to_b, b"friend")).unwrap();
    assert!(a.flush().unwrap());
    let mut arrival = Arrival::empty();
    while !b.receive(&mut arrival) {}
    assert_eq!(arrival.head(), b"friend");
}

/// Runs are no longer than a receive queue has room for those of one call.
#[test]
fn runs_of_small_messages_fit_the_receive_queue() {
    const COUNT: u32 = 400;
    let shape = Shape { send: 512, receive: 256, segment: 16 << 20, ..Shape::SMALL };
    let (mut a, mut b) = (loopback(Options { shape, ..COALESCING }), loopback(Options { shape, ..COALESCING }));
    provide(&mut b, 16);
    let (to_b, _) = connect(&mut a, &mut b);
    for number in 0..COUNT {
        a.send(&Message::small(to_b, &number.to_le_bytes())).expect("room");
    }
    assert!(a.flush().expect("a socket"));
    let mut arrival = Arrival::empty();
    for number in 0..COUNT {
        let began = Instant::now();
        while !b.receive(&mut arrival) {
            assert!(began.elapsed() < Duration::from_secs(20), "lost {number}");
        }
        assert_eq!(arrival.head(), number.to_le_bytes());
        b.release(&mut arrival);
    }
    assert!(b.joined() > 0 && b.counters().dropped(Reason::QueueFull) == 0);
}

/// To be armed asks the kernel nothing: what has come makes the descriptor readable. Neither does the look behind one that has
/// seen all.
#[test]
fn what_came_before_the_arming_wakes() {
    let (mut a, mut b) = (loopback(COALESCING), loopback(COALESCING));
    provide(&mut b, 16);
    let (to_b, _) = connect(&mut a, &mut b);
    let mut send = |text: &[u8]| {
        a.send(&Message::small(to_b, text)).expect("room");
        assert!(a.flush().expect("a socket"));
    };
    let readable = |b: &Udp| shunt_sys::calls::poll_one(b.descriptor(), shunt_sys::libc::POLLIN, 10_000_000_000).expect("poll");
    let mut arrival = Arrival::empty();
    send(b"first");
    assert!(b.arm());
    assert_eq!(readable(&b), shunt_sys::libc::POLLIN);
    b.disarm();
    assert!(b.receive(&mut arrival));
    assert_eq!(arrival.head(), b"first");
    send(b"second");
    assert!(!b.receive(&mut arrival), "there was nothing else when the first was taken in");
    assert!(b.arm());
    assert_eq!(readable(&b), shunt_sys::libc::POLLIN);
    assert!(b.receive(&mut arrival));
    assert_eq!(arrival.head(), b"second");
}

/// Lone messages to which no buffer is lent leave the next one where it is.
#[test]
fn small_messages_come_by_one_buffer() {
    let (mut a, mut b) = (loopback(COALESCING), loopback(COALESCING));
    provide(&mut b, 16);
    let (to_b, _) = connect(&mut a, &mut b);
    let next = |b: &Udp| b.memory().free_queue().peek(0).map(|area| area.offset);
    let (before, mut arrival) = (next(&b), Arrival::empty());
    for number in 0..3u32 {
        a.send(&Message::small(to_b, &number.to_le_bytes())).expect("room");
        assert!(a.flush().expect("a socket"));
        while !b.receive(&mut arrival) {}
        b.release(&mut arrival);
        assert_eq!(next(&b), before);
    }
    let long = [7; 700];
    a.send(&Message { channel: to_b, head: &[], body: Body::Bytes(long[..].into()) }).expect("room");
    assert!(a.flush().expect("a socket"));
    while !b.receive(&mut arrival) {}
    assert_ne!(next(&b), before, "a message lies in it");
    b.release(&mut arrival);
}

#[test]
fn random_frames_reach_nobody_and_lose_no_buffer() {
    let (mut a, mut b) = (loopback(Options::default()), loopback(COALESCING));
    let buffers = provide(&mut b, 8).len() as u32;
    let (to_b, _) = connect(&mut a, &mut b);
    let port = u16::from_be_bytes([b.address().bytes()[2], b.address().bytes()[3]]);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut random = 0x1234_5678u64;
    for round in 0..20_000u64 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut bytes: Vec<u8> = (0..random % 200).map(|k| (random >> (k % 57)) as u8).collect();
        if round % 2 == 0 && bytes.len() >= 4 {
            // Half of them begin as ours do, so that the later checks are met.
            bytes[..4].copy_from_slice(&[b's', b'h', 1, (random >> 20) as u8 & 3]);
        }
        stranger.send_to(&bytes, ("127.0.0.1", port)).unwrap();
        wait_for_drops(&mut b, round + 1);
    }
    assert_eq!(b.memory().free_queue().len(), buffers);
    a.send(&Message::small(to_b, b"friend")).unwrap();
    a.flush().unwrap();
    let mut arrival = Arrival::empty();
    while !b.receive(&mut arrival) {}
    assert_eq!(arrival.head(), b"friend");
}

#[test]
fn an_endpoint_is_driven_by_whoever_has_its_descriptors() {
    let (mut a, mut b) = (loopback(Options::default()), loopback(Options::default()));
    provide(&mut b, 16);
    let (to_b, to_a) = connect(&mut a, &mut b);
    let duplicate = |fd: i32| shunt_sys::calls::fcntl(fd, shunt_sys::libc::F_DUPFD_CLOEXEC, 0).unwrap();
    let mut other = Udp::attach(duplicate(b.memory().fd()), duplicate(b.descriptor())).expect("the same endpoint");
    assert_eq!(other.address(), b.address());
    let mut arrival = Arrival::empty();
    for round in 0..100u32 {
        a.send(&Message::small(to_b, &round.to_le_bytes())).unwrap();
        a.flush().unwrap();
        let turn: &mut dyn Endpoint = if round % 2 == 0 { &mut b } else { &mut other };
        while !turn.receive(&mut arrival) {}
        assert_eq!(arrival.head(), round.to_le_bytes());
        turn.release(&mut arrival);
        turn.send(&Message::small(to_a, b"ok")).unwrap();
        turn.flush().unwrap();
        while !a.receive(&mut arrival) {}
        a.release(&mut arrival);
    }
    assert!(Udp::attach(duplicate(a.descriptor()), duplicate(a.descriptor())).is_err(), "a socket is no memory");
}

/// The kernel cuts a run of messages and joins it again: fewer calls, the same messages.
#[test]
fn runs_of_messages_are_cut_and_joined() {
    let (mut a, mut b) = (loopback(COALESCING), loopback(COALESCING));
    let buffers = provide(&mut b, 64).len() as u32;
    let (to_b, _) = connect(&mut a, &mut b);
    let mut arrival = Arrival::empty();
    for round in 0..50u32 {
        // Equal lengths, then a shorter one, then longer ones again: runs end where they must.
        let lengths: Vec<usize> = (0..40).map(|k| if k % 16 == 9 { 300 } else { 1400 - 100 * (k / 30) }).collect();
        for (number, length) in lengths.iter().enumerate() {
            let bytes = vec![(round as usize + number) as u8; *length];
            a.send(&Message { channel: to_b, head: &[], body: shunt_endpoint::Body::Bytes(bytes[..].into()) }).unwrap();
        }
        assert!(a.flush().unwrap());
        for (number, length) in lengths.iter().enumerate() {
            let start = Instant::now();
            while !b.receive(&mut arrival) {
                assert!(start.elapsed() < Duration::from_secs(20), "round {round}, message {number}");
            }
            let mut bytes = vec![0; *length];
            assert_eq!((arrival.len(), arrival.copy_to(&b.segment(), 0, &mut bytes)), (*length, *length));
            assert!(bytes.iter().all(|byte| *byte == (round as usize + number) as u8));
            b.release(&mut arrival);
        }
    }
    assert_eq!(b.memory().free_queue().len(), buffers, "every buffer came back");
    assert_eq!(b.counters().dropped_in_all(), 0);
    assert!(a.cuts() && b.joined() > 0, "the kernel neither cut nor joined: nothing was tested");
}

/// Runs that an interface does not take any more go one by one, in fragments; when it takes them again, the kernel cuts them again.
#[test]
fn runs_are_tried_again() {
    let hosts = match hosts::pair(hosts::Joint::default()) {
        Ok(hosts) => hosts,
        Err(sentence) => return eprintln!("SKIPPED: {sentence}"),
    };
    let [mut a, mut b] = [1, 2].map(|number| {
        hosts[number - 1].enter(|| Udp::bind(&ipv4([10, 77, 0, number as u8], 0), COALESCING)).expect("a UDP socket")
    });
    provide(&mut b, 64);
    let (to_b, _) = connect(&mut a, &mut b);
    let mut arrival = Arrival::empty();
    // Whether messages of this round came in runs.
    let mut round = || {
        let joined = b.joined();
        for number in 0..32u8 {
            a.send(&Message { channel: to_b, head: &[], body: shunt_endpoint::Body::Bytes([number; 1400][..].into()) }).unwrap();
        }
        assert!(a.flush().unwrap());
        for number in 0..32u8 {
            let start = Instant::now();
            while !b.receive(&mut arrival) {
                assert!(start.elapsed() < Duration::from_secs(20), "message {number}");
            }
            let mut bytes = [0; 1400];
            assert_eq!(arrival.copy_to(&b.segment(), 0, &mut bytes), 1400);
            assert_eq!(bytes, [number; 1400]);
            b.release(&mut arrival);
        }
        b.joined() > joined
    };
    assert!(round());
    hosts[0].ip("link set left0 mtu 1000");
    assert!(!round(), "all arrived, and none in a run");
    hosts[0].ip("link set left0 mtu 1500");
    assert!((0..200).any(|_| round()), "6,400 messages later");
}
