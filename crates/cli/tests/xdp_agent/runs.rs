//! Frames that leave together, as few packets.

use std::net::SocketAddr;
use std::time::Duration;

use crate::agents::{attach, mac_of, pair, status, Agent, Raw};
use crate::{pass, until};
use shunt_endpoint::conformance::{connect, provide};
use shunt_endpoint::{Arrival, Body, Bytes, Channel, Endpoint, Message};
use shunt_testkit::hosts::{Host, Joint};
use shunt_wire::endpoint::{Kind as FrameKind, Repr, HEADER};
use shunt_xdp::packet::{Path, Sum};
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;

/// Frames that are sent together cross a veth as few packets, and each arrives; a run made by hand is believed frame by frame.
#[test]
fn runs_are_taken_apart() {
    let Some(hosts) = pair(Joint::default()) else { return };
    for (kind, lend) in [(Kind::Own, "0"), (Kind::Multiplexed, "none")] {
        let agents = [Agent::start(&hosts[0], &["--lend", "0"]), Agent::start(&hosts[1], &["--lend", lend])];
        let mut a = attach(&hosts[0], Kind::Own, false);
        let mut b = attach(&hosts[1], kind, false);
        provide(&mut a, 64);
        provide(&mut b, 64);
        let (to_b, to_a) = connect(&mut a, &mut b);
        pass(&mut a, &mut b, to_b, b"before");
        std::thread::sleep(Duration::from_millis(20));
        let mut arrival = Arrival::empty();
        while b.receive(&mut arrival) {
            b.release(&mut arrival);
        }
        let sorted = || status(&hosts[1])["agents"][0]["sorted"]["sorted"].as_u64().expect("a number");
        let before = sorted();
        for number in 0..50 {
            a.send(&Message::small(to_b, &[number; 100])).expect("there is room");
        }
        let mut next = 0;
        until("all arrive", || {
            a.flush().expect("the device works");
            while b.receive(&mut arrival) {
                assert_eq!(arrival.head(), [next; 100]);
                b.release(&mut arrival);
                next += 1;
            }
            next == 50
        });
        assert!(sorted() - before <= 4, "{} packets", sorted() - before);

        let tag = b.memory().registry().get(to_a).expect("open").tags().receive.0;
        let address = |host: &Host| SocketAddr::new(host.addresses[0], shunt_xdp::protocol::PORT);
        let path =
            Path { from: mac_of(&hosts[0]), to: mac_of(&hosts[1]), source: address(&hosts[0]), destination: address(&hosts[1]) };
        let mut datagram = Vec::new();
        for (tag, text) in [(tag, &b"one"[..]), (tag ^ 1, b"two"), (tag, b"six"), (tag, b"10")] {
            let mut head = [0; HEADER];
            Repr { kind: FrameKind::Message, tag, length: text.len() as u32 }.emit(&mut head);
            datagram.extend_from_slice(&head);
            datagram.extend_from_slice(text);
        }
        let mut frame = path.headers(datagram.len(), Some(Sum::default().add(&datagram)))[..path.header()].to_vec();
        frame.extend_from_slice(&datagram);
        Raw::new(&hosts[0]).send(&frame);
        let mut got = Vec::new();
        until("what is the channel's arrives", || {
            while b.receive(&mut arrival) {
                got.push(arrival.head().to_vec());
                b.release(&mut arrival);
            }
            got.len() == 3
        });
        assert_eq!(got, [&b"one"[..], b"six", b"10"]);
        drop((a, b, agents));
    }
}

/// A frame as long as any may be is one of many, so what long sends are made of leaves in runs of about the same length: none of it
/// by itself, unless it is less than a run.
#[test]
fn long_sends_leave_in_even_runs() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let (_agents, mut a, mut b, to_b) = owners(&hosts);
    let sorted = || status(&hosts[1])["agents"][0]["sorted"]["sorted"].as_u64().expect("a number");
    let longest = a.capabilities().largest as usize;
    for (count, packets) in [(3, 3), (4, 1), (44, 1), (47, 2), (88, 2), (100, 3)] {
        let before = sorted();
        for number in 0..count {
            let bytes = vec![number; longest];
            let body = Body::Bytes(Bytes::from(&bytes[..]));
            a.send(&Message { channel: to_b, head: &[], body }).expect("there is room");
        }
        let (mut arrival, mut bytes) = (Arrival::empty(), vec![0; longest]);
        for number in 0..count {
            until("all arrive", || a.flush().expect("the device works") && b.receive(&mut arrival));
            assert_eq!(arrival.copy_to(&b.segment(), 0, &mut bytes), longest);
            assert!(bytes.iter().all(|byte| *byte == number), "{count} frames");
            b.release(&mut arrival);
        }
        assert_eq!(sorted() - before, packets, "{count} frames");
    }
}

/// Whether the endpoint has a socket for runs.
fn cuts(endpoint: &Xdp) -> bool {
    let (mut kind, mut size) = (0i32, 4);
    let page = endpoint.descriptors().page;
    // SAFETY: an integer of the length said.
    let asked = unsafe { libc::getsockopt(page, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &mut size) };
    asked == 0 && kind == libc::SOCK_DGRAM
}

/// Runs leave by a socket that only root gets, and only where they and frames from the ring stay in order.
#[test]
fn runs_are_roots_and_in_order() {
    for (queues, lend, discipline, user, expected) in
        [(1, "0", None, 0, true), (1, "0", None, 61_002, false), (1, "0", Some("pfifo"), 0, false), (2, "1", None, 0, false)]
    {
        let Some(hosts) = pair(Joint { queues, mtu: 1500 }) else { return };
        if let Some(discipline) = discipline {
            let mut tc = hosts[0].command("tc");
            let done = tc.args(["qdisc", "add", "dev", &hosts[0].interface, "root", discipline]).status();
            assert!(done.expect("tc runs").success());
        }
        let _agent = Agent::start(&hosts[0], &["--lend", lend, "--trust", "61002"]);
        let endpoint = hosts[0].enter(|| {
            // SAFETY: the system call changes this thread alone, unlike the C library's function; the thread ends.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) }, 0);
            Xdp::attach(&hosts[0].interface, Kind::Own, false, Sizes::default()).expect("a queue")
        });
        assert_eq!(cuts(&endpoint), expected, "{queues} queues, {discipline:?}, user {user}");
    }
}

/// An agent on each host, and an owner of its queue, who has sent the second one something; and his channel.
fn owners(hosts: &[Host; 2]) -> ([Agent; 2], Xdp, Xdp, Channel) {
    let agents = hosts.each_ref().map(|host| Agent::start(host, &["--lend", "0"]));
    let mut a = attach(&hosts[0], Kind::Own, false);
    let mut b = attach(&hosts[1], Kind::Own, false);
    provide(&mut a, 64);
    provide(&mut b, 128);
    let (to_b, _) = connect(&mut a, &mut b);
    pass(&mut a, &mut b, to_b, b"before");
    (agents, a, b, to_b)
}

/// A driver that dies after it took a chunk from the ring, and before it wrote that down: no frame is pieced together of what does not
/// belong together.
#[test]
fn chunk_that_is_missing_ends_a_run() {
    use shunt_xdp::socket::{Socket, Umem};
    use shunt_xdp::state::State;
    let Some(hosts) = pair(Joint::default()) else { return };
    let (_agents, mut a, mut b, to_b) = owners(&hosts);
    let (shape, state) = (*b.memory().shape(), State::of(b.memory()));
    // SAFETY: the memory outlives the socket, below.
    let umem = unsafe { Umem::new(b.memory().device_part(), shape.device as usize + shape.segment as usize) };
    let lead = state.lead.load(std::sync::atomic::Ordering::Relaxed);
    let mut dying = Socket::adopt(copies(&b).way, umem, state.rings(), lead).expect("another handle of the ring");
    for _ in 0..3 {
        for number in 0..12 {
            let bytes = [number; 1400];
            let body = Body::Bytes(Bytes::from(&bytes[..]));
            a.send(&Message { channel: to_b, head: &[], body }).expect("there is room");
        }
        let (mut arrival, mut next) = (Arrival::empty(), 0);
        let mut take = |b: &mut Xdp| {
            let got = b.receive(&mut arrival);
            if got {
                let mut bytes = vec![0; 1400];
                assert_eq!(arrival.copy_to(&b.segment(), 0, &mut bytes), 1400);
                assert_eq!(bytes, [next; 1400]);
                b.release(&mut arrival);
                next += 1;
            }
            got
        };
        for _ in 0..3 {
            until("some arrive", || a.flush().expect("the device works") && take(&mut b));
        }
        assert!(dying.take(&mut 0).is_some_and(|chunk| chunk.goes_on()));
        while take(&mut b) {}
        assert!((3..12).contains(&next), "{next}");
        pass(&mut a, &mut b, to_b, b"after");
    }
    drop(dying);
}

/// A run that the kernel refuses leaves by the ring; its socket, whose number others know, stays open.
#[test]
fn refused_runs_leave_by_the_ring() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let _agents = hosts.each_ref().map(|host| Agent::start(host, &["--lend", "0"]));
    let first = attach(&hosts[0], Kind::Own, true);
    // A socket of IPv4 cannot send to an address of IPv6.
    // SAFETY: integers; a duplicate belongs to nobody else.
    let wrong = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let shunt_xdp::Descriptors { connection, memory, bell, way, .. } = copies(&first);
    let mut a = Xdp::adopt(shunt_xdp::Descriptors { connection, memory, bell, way, page: wrong }).expect("another handle");
    let mut b = attach(&hosts[1], Kind::Own, true);
    provide(&mut a, 64);
    provide(&mut b, 64);
    let (to_b, _) = connect(&mut a, &mut b);
    pass(&mut a, &mut b, to_b, b"before");
    let mut arrival = Arrival::empty();
    for _ in 0..3 {
        for number in 0..12 {
            a.send(&Message::small(to_b, &[number; 100])).expect("there is room");
        }
        for number in 0..12 {
            until("all arrive", || a.flush().expect("the device works") && b.receive(&mut arrival));
            assert_eq!(arrival.head(), [number; 100]);
            b.release(&mut arrival);
        }
    }
    assert_eq!(a.descriptors().page, wrong);
    // SAFETY: asks for flags.
    assert!(unsafe { libc::fcntl(wrong, libc::F_GETFD) } >= 0);
}

/// Who is not root any more gives up the socket for runs. What was collected for it leaves by the ring, as all that follows.
#[test]
fn runs_are_given_up_with_root() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let (_agents, mut a, mut b, to_b) = owners(&hosts);
    assert!(cuts(&a));
    let mut arrival = Arrival::empty();
    for _ in 0..3 {
        for number in 0..12 {
            a.send(&Message::small(to_b, &[number; 100])).expect("there is room");
        }
        a.give_up_runs();
        for number in 0..12 {
            until("all arrive", || a.flush().expect("the device works") && b.receive(&mut arrival));
            assert_eq!(arrival.head(), [number; 100]);
            b.release(&mut arrival);
        }
    }
    assert!(!cuts(&a));
    // SAFETY: asks for flags.
    assert!(unsafe { libc::fcntl(a.descriptors().page, libc::F_GETFD) } >= 0, "others know its number");
}

/// The descriptors of an endpoint once more, for another handle.
fn copies(of: &Xdp) -> shunt_xdp::Descriptors {
    // SAFETY: duplicates belong to nobody else.
    let copy = |fd: i32| unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    let shunt_xdp::Descriptors { connection, memory, bell, way, page } = of.descriptors();
    let [connection, memory, bell, way, page] = [connection, memory, bell, way, page].map(copy);
    shunt_xdp::Descriptors { connection, memory, bell, way, page }
}

/// What is left of a run is every driver's: it counts as what waits, wakes who sleeps, and goes with a driver that dies.
#[test]
fn rest_of_a_run_is_everybodys() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let (_agents, mut a, mut b, to_b) = owners(&hosts);
    let mut other = Xdp::adopt(copies(&b)).expect("another handle");
    let wakes = |endpoint: &Xdp| {
        let mut poll = libc::pollfd { fd: endpoint.descriptor(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    };
    for _ in 0..3 {
        assert!(other.arm());
        for number in 0..12 {
            a.send(&Message::small(to_b, &[number; 100])).expect("there is room");
        }
        let mut arrival = Arrival::empty();
        for number in 0..5 {
            until("some arrive", || a.flush().expect("the device works") && b.receive(&mut arrival));
            assert_eq!(arrival.head(), [number; 100]);
            b.release(&mut arrival);
        }
        assert_eq!(other.backlog().waiting, 7);
        assert!(wakes(&other), "what is left is heard of");
        other.disarm();
        assert!(other.receive(&mut arrival));
        assert_eq!(arrival.head(), [5; 100]);
        other.release(&mut arrival);
        other.recover();
        assert_eq!(other.backlog().waiting, 0);
        assert!(!other.receive(&mut arrival) && !b.receive(&mut arrival));
        pass(&mut a, &mut b, to_b, b"after");
    }
}
