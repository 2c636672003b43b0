//! The agent: who may have what, what it survives, what it leaves behind.
mod agents;

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use agents::{as_user, attach, foreign_program, mac_of, pair, status, Agent, Raw, SHUNT};
use shunt_endpoint::conformance::{connect, provide};
use shunt_endpoint::{Arrival, Body, Bytes, Channel, Drop as Reason, Endpoint, Message, SendError, Tag, Tags};
use shunt_testkit::hosts::{Host, Joint};
use shunt_testkit::Random;
use shunt_wire::endpoint::{Kind as FrameKind, Repr, HEADER};
use shunt_xdp::packet::{Path, Sum};
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;

const DEADLINE: Duration = Duration::from_secs(20);

/// Waits until it holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < DEADLINE, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends until the message has arrived at the other end.
fn pass(from: &mut dyn Endpoint, to: &mut dyn Endpoint, channel: Channel, bytes: &[u8]) {
    let mut arrival = Arrival::empty();
    until("a message passes", || {
        match from.send(&Message::small(channel, bytes)) {
            Ok(_) | Err(SendError::NoResource) => {}
            Err(error) => panic!("{error:?}"),
        }
        from.flush().expect("the device works");
        if !to.receive(&mut arrival) {
            return false;
        }
        let same = arrival.head() == bytes;
        to.release(&mut arrival);
        same
    });
}

/// An endpoint with a queue of its own: the kernel frees a queue some time after the last descriptor of its socket.
fn attach_own(host: &Host) -> Xdp {
    let mut made = None;
    until("the queue can be lent", || {
        made = host.enter(|| Xdp::attach(&host.interface, Kind::Own, false, Sizes::default())).ok();
        made.is_some()
    });
    made.expect("made")
}

fn program_of(host: &Host) -> Option<String> {
    let output = host.command("ip").args(["-d", "link", "show", &host.interface]).output().expect("ip runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.contains("xdp").then_some(text)
}

/// Spoofed, truncated, oversized and random frames reach nobody, are counted, and disturb nothing.
#[test]
fn hostile_frames_reach_nobody() {
    let Some(hosts) = pair(Joint::default()) else { return };
    for (kind, lend) in [(Kind::Own, "0"), (Kind::Multiplexed, "none")] {
        let agents = hosts.each_ref().map(|host| Agent::start(host, &["--lend", lend]));
        let mut a = attach(&hosts[0], kind, false);
        let mut b = attach(&hosts[1], kind, false);
        provide(&mut a, 64);
        provide(&mut b, 64);
        let (to_b, to_a) = connect(&mut a, &mut b);
        pass(&mut a, &mut b, to_b, b"before");
        let tags = b.memory().registry().get(to_a).expect("open").tags();

        let raw = Raw::new(&hosts[0]);
        let address = |host: &Host| SocketAddr::new(host.addresses[0], shunt_xdp::protocol::PORT);
        let good =
            Path { from: mac_of(&hosts[0]), to: mac_of(&hosts[1]), source: address(&hosts[0]), destination: address(&hosts[1]) };
        let frame = |path: &Path, tag: u64, kind: FrameKind, length: u32, payload: &[u8]| {
            let mut datagram = vec![0; HEADER];
            Repr { kind, tag, length }.emit(&mut datagram);
            datagram.extend_from_slice(payload);
            let mut frame = path.headers(datagram.len(), Some(Sum::default().add(&datagram)))[..path.header()].to_vec();
            frame.extend_from_slice(&datagram);
            frame
        };
        let message =
            |path: &Path, payload: &[u8]| frame(path, tags.receive.0, FrameKind::Message, payload.len() as u32, payload);
        // The arrangement is right: a frame made by hand arrives.
        let mut arrival = Arrival::empty();
        until("a frame made by hand arrives", || {
            raw.send(&message(&good, b"by hand"));
            b.receive(&mut arrival)
        });
        b.release(&mut arrival);
        std::thread::sleep(Duration::from_millis(20));
        while b.receive(&mut arrival) {
            b.release(&mut arrival);
        }

        let count = |b: &Xdp, reason| b.counters().dropped(reason);
        // From another address than the channel's.
        let spoofed = Path { source: "10.77.0.99:29544".parse().unwrap(), ..good };
        let other_port = Path { source: SocketAddr::new(hosts[0].addresses[0], 7), ..good };
        let before = count(&b, Reason::Source);
        raw.send(&message(&spoofed, b"spoofed"));
        raw.send(&message(&other_port, b"spoofed"));
        // Lengths that lie, a kind that is none, updates of memory that was not exported, a checksum that is wrong.
        raw.send(&frame(&good, tags.receive.0, FrameKind::Message, 4, b"longer than said"));
        raw.send(&frame(&good, tags.receive.0, FrameKind::Message, 4000, b"shorter than said"));
        raw.send(&frame(&good, tags.receive.0, FrameKind::UpdateNotify, 20, &[0; 20]));
        let mut strange = message(&good, b"of no kind");
        strange[good.header() + 3] = 9;
        raw.send(&strange);
        let mut damaged = message(&good, b"something to protect");
        *damaged.last_mut().unwrap() ^= 4;
        raw.send(&damaged);
        // Every truncation of a good frame: the interface pads none of them.
        let whole = message(&good, b"cut short");
        (14..whole.len()).for_each(|length| raw.send(&whole[..length]));
        // Bits of a good frame changed at random; tags that nobody has; noise.
        let mut random = Random::seeded(7);
        for _ in 0..2000 {
            let mut bytes = message(&good, &[9; 200]);
            for _ in 0..1 + random.below(3) {
                // The tag stays: what carries another one reaches nobody here.
                let at = std::iter::repeat_with(|| 12 + random.below(bytes.len() as u64 - 12) as usize);
                let mut at = at;
                let at = at.find(|at| !(50..58).contains(at)).expect("endless");
                bytes[at] = bytes[at].wrapping_add(1 + random.below(255) as u8);
            }
            raw.send(&bytes);
            raw.send(&frame(&good, random.word(), FrameKind::Message, 3, b"???"));
            let mut noise: Vec<u8> = (0..14 + random.below(1400)).map(|_| random.word() as u8).collect();
            noise[..6].copy_from_slice(&good.to);
            raw.send(&noise);
        }
        let mut delivered = 0;
        until("all that is malformed is counted", || {
            while b.receive(&mut arrival) {
                delivered += 1;
                b.release(&mut arrival);
            }
            let reasons = [Reason::Length, Reason::Kind];
            count(&b, Reason::Source) >= before + 2
                && count(&b, Reason::Export) > 0
                && (reasons.iter().all(|reason| count(&b, *reason) > 0) || kind == Kind::Multiplexed)
        });
        assert_eq!(delivered, 0, "malformed frames were delivered");
        pass(&mut a, &mut b, to_b, b"after");
        pass(&mut b, &mut a, to_a, b"after");
        let told = status(&hosts[1]);
        let sorted = &told["agents"][0]["sorted"];
        assert!(sorted["unknown-tag"].as_u64().unwrap() >= 2000, "{sorted}");
        assert!(sorted["foreign"].as_u64().unwrap() > 0, "{sorted}");
        drop((a, b, agents));
    }
}

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

/// Before the stack only where each frame is whole there, alone, and known by its queue.
#[test]
fn program_stands_where_frames_are_whole() {
    for (joint, arguments, place) in [
        (Joint::default(), &["--lend", "0"][..], "generic"),
        (Joint::default(), &["--attach", "native"][..], "native"),
        (Joint::default(), &["--port", "4000", "--lend", "0"][..], "native"),
        (Joint { queues: 2, mtu: 1500 }, &[][..], "native"),
        (Joint { queues: 1, mtu: 3400 }, &["--lend", "0"][..], "native"),
    ] {
        let Some(hosts) = pair(joint) else { return };
        let agent = Agent::start(&hosts[0], arguments);
        assert!(agent.said.contains(&format!("attached a program ({place})")), "{}", agent.said);
    }
}

/// While an agent only says that its host takes part, it is in no packet's way.
#[test]
fn program_waits_for_an_endpoint() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let has_program = || program_of(&hosts[0]).is_some();
    let agent = Agent::start(&hosts[0], &[]);
    assert!(agent.said.contains("will attach a program"), "{}", agent.said);
    let refused = hosts[0].enter(|| Xdp::attach("left0", Kind::Own, false, Sizes::default()).err().map(|errno| errno.0));
    assert_eq!((refused, has_program()), (Some(libc::EBUSY), false));
    drop(attach(&hosts[0], Kind::Any, false));
    assert!(has_program(), "it stays, as a driver may stop the interface for each change");
    drop(agent);
    until("the program's end", || !has_program());
}

/// Killed in mid-traffic: endpoints hear of it, the kernel detaches, a new agent serves at once.
#[test]
fn killed_agent_leaves_nothing() {
    let Some(hosts) = pair(Joint { queues: 2, mtu: 1500 }) else { return };
    let mut agent = Agent::start(&hosts[0], &["--lend", "1"]);
    let _other = Agent::start(&hosts[1], &["--lend", "1"]);
    for round in 0..3 {
        let mut own = attach_own(&hosts[0]);
        let mut emulated = attach(&hosts[0], Kind::Multiplexed, false);
        let mut peer = attach(&hosts[1], Kind::Multiplexed, false);
        provide(&mut peer, 64);
        let (one, _) = connect(&mut own, &mut peer);
        let (two, _) = connect(&mut emulated, &mut peer);
        pass(&mut own, &mut peer, one, b"one");
        pass(&mut emulated, &mut peer, two, b"two");
        assert!(own.arm() && emulated.arm());
        agent.signal(libc::SIGKILL);
        assert_eq!(agent.wait(), None);
        for endpoint in [&mut own, &mut emulated] {
            let events = shunt_sys::calls::poll_one(endpoint.descriptor(), libc::POLLIN, DEADLINE.as_nanos() as i64);
            assert!(events.is_ok_and(|events| events & libc::POLLIN != 0), "sleepers are woken");
            endpoint.disarm();
            assert!(matches!(endpoint.flush(), Err(SendError::Device(_))));
        }
        until("the program is detached", || program_of(&hosts[0]).is_none());
        // The endpoints of the dead agent are still open: the new one does not mind.
        agent = Agent::start(&hosts[0], &["--lend", "1"]);
        assert!(program_of(&hosts[0]).is_some());
        let again = attach(&hosts[0], Kind::Multiplexed, false);
        drop((own, emulated, again));
        assert_eq!(attach_own(&hosts[0]).kind(), Kind::Own, "round {round}: the queue can be lent again");
    }
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait(), Some(0));
    assert!(program_of(&hosts[0]).is_none(), "a signal detaches");
}

/// Endpoints that die take nothing with them: tags, queues and accounts come back.
#[test]
fn endpoints_that_end_give_everything_back() {
    let Some(hosts) = pair(Joint { queues: 2, mtu: 1500 }) else { return };
    let _agent = Agent::start(&hosts[0], &["--lend", "1", "--endpoints", "3"]);
    for _ in 0..5 {
        let mut all: Vec<Xdp> = (0..3).map(|_| attach(&hosts[0], Kind::Any, false)).collect();
        all.iter_mut().for_each(|endpoint| {
            endpoint.new_tag().expect("a tag");
        });
        assert!(
            all.iter().filter(|endpoint| endpoint.kind() == Kind::Own).count() <= 1,
            "one queue is lent, if it is free again"
        );
        let fourth = hosts[0].enter(|| Xdp::attach(&hosts[0].interface, Kind::Any, false, Sizes::default()));
        assert_eq!(fourth.err().map(|errno| errno.0), Some(libc::EDQUOT));
        let told = status(&hosts[0]);
        assert_eq!(told["agents"][0]["endpoints"].as_array().unwrap().len(), 3);
        assert_eq!(told["agents"][0]["endpoints"][0]["tags"], 1);
        drop(all);
        until("all is given back", || status(&hosts[0])["agents"][0]["endpoints"].as_array().unwrap().is_empty());
    }
}

/// The interface goes down under load and comes back; then it is removed, and the agent ends.
#[test]
fn interface_goes_down_and_away() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let mut agents = hosts.each_ref().map(|host| Agent::start(host, &["--lend", "none"]));
    let mut a = attach(&hosts[0], Kind::Multiplexed, false);
    let mut b = attach(&hosts[1], Kind::Multiplexed, false);
    provide(&mut b, 64);
    let (to_b, _) = connect(&mut a, &mut b);
    pass(&mut a, &mut b, to_b, b"up");
    hosts[0].ip("link set left0 down");
    for _ in 0..1000 {
        let _ = a.send(&Message::small(to_b, b"into the void"));
        let _ = a.flush();
    }
    hosts[0].ip("link set left0 up");
    pass(&mut a, &mut b, to_b, b"up again");
    hosts[0].ip("link del left0");
    for agent in &mut agents {
        assert_eq!(agent.wait(), Some(1), "an agent without an interface ends");
    }
    until("the endpoints hear of it", || {
        let _ = a.arm();
        a.disarm();
        a.flush().is_err()
    });
}

/// The interface is renamed, gets an address, and its packets may be shorter, then longer again: the agent goes with it.
#[test]
fn agent_follows_its_interface() {
    let Some(mut hosts) = pair(Joint { queues: 2, mtu: 1500 }) else { return };
    let agents = hosts.each_ref().map(|host| Agent::start(host, &["--lend", "1"]));
    let mut own = attach_own(&hosts[0]);
    let mut emulated = attach(&hosts[0], Kind::Multiplexed, false);
    let mut peer = attach(&hosts[1], Kind::Multiplexed, false);
    provide(&mut peer, 64);
    let [(one, _), (two, _)] = [connect(&mut own, &mut peer), connect(&mut emulated, &mut peer)];
    pass(&mut own, &mut peer, one, b"one");
    pass(&mut emulated, &mut peer, two, b"two");

    let old = std::mem::replace(&mut hosts[0].interface, "other0".to_string());
    hosts[0].ip(&format!("link set {old} down"));
    hosts[0].ip(&format!("link set {old} name other0"));
    hosts[0].ip("link set other0 up");
    until("it is asked for by its new name", || status(&hosts[0])["agents"][0]["interface"] == "other0");
    let by_old = hosts[0].enter(|| Xdp::attach(&old, Kind::Any, false, Sizes::default()));
    assert_eq!(by_old.err().map(|errno| errno.0), Some(libc::ECONNREFUSED));
    let output = hosts[0].command(SHUNT).args(["agent", "--interface", "other0"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("has an agent already (process {})", agents[0].child.id())), "{said}");
    pass(&mut own, &mut peer, one, b"one again");
    pass(&mut emulated, &mut peer, two, b"two again");
    let mut made = attach(&hosts[0], Kind::Multiplexed, false);
    let (three, _) = connect(&mut made, &mut peer);
    pass(&mut made, &mut peer, three, b"three");

    hosts[0].ip("addr add 10.77.0.77/24 dev other0");
    until("its address is told", || {
        status(&hosts[0])["agents"][0]["addresses"].as_array().unwrap().iter().any(|address| address == "10.77.0.77")
    });

    let most = |endpoint: &Xdp| endpoint.capabilities().largest;
    let whole = most(&made);
    let bytes = vec![5; whole as usize];
    let long = |channel| Message { channel, head: &[], body: Body::Bytes(Bytes::from(&bytes[..])) };
    hosts[0].ip("link set other0 mtu 1400");
    until("it is known", || status(&hosts[0])["agents"][0]["largest_frame"] == 1414);
    assert_eq!(own.send(&long(one)).err(), Some(SendError::TooLarge));
    let _ = emulated.send(&long(two)).expect("a queue");
    until("it is counted", || {
        emulated.flush().expect("the device works");
        status(&hosts[0])["agents"][0]["endpoints"].as_array().unwrap().iter().any(|endpoint| endpoint["unsent"] == 1)
    });
    let short = attach(&hosts[0], Kind::Multiplexed, false);
    assert_eq!(most(&short), whole - 100);
    pass(&mut own, &mut peer, one, b"one at last");
    // As long as they were; the agent's queues were made for no longer ones.
    hosts[0].ip("link set other0 mtu 3000");
    until("it is known", || status(&hosts[0])["agents"][0]["largest_frame"] == 1514);
    own.send(&long(one)).expect("room");
}

/// The interface gets another Ethernet address: frames come from it, the agent's and those that a program writes itself.
#[test]
fn frames_come_from_the_address_of_now() {
    let Some(hosts) = pair(Joint { queues: 2, mtu: 1500 }) else { return };
    let _agent = Agent::start(&hosts[0], &["--lend", "1"]);
    let hears = Raw::listening(&hosts[1]);
    let mut endpoints = [attach_own(&hosts[0]), attach(&hosts[0], Kind::Multiplexed, false)];
    let channels = endpoints.each_mut().map(|endpoint| {
        let tags = Tags { receive: endpoint.new_tag().expect("a tag"), send: Tag(7) };
        endpoint.open(&shunt_endpoint::device::udp::ipv4([10, 77, 0, 2], 9), tags).expect("a channel")
    });
    let mut arrive_from = |mac: [u8; 6]| {
        for (endpoint, channel) in endpoints.iter_mut().zip(channels) {
            until("a frame from there", || {
                let _ = endpoint.send(&Message::small(channel, b"frame"));
                endpoint.flush().expect("the device works");
                std::iter::from_fn(|| hears.next()).any(|frame| frame[6..12] == mac && frame.ends_with(b"frame"))
            });
        }
    };
    arrive_from(mac_of(&hosts[0]));
    for last in [0x77, 0x78] {
        hosts[0].ip(&format!("link set left0 address 02:00:00:00:00:{last:x}"));
        arrive_from([2, 0, 0, 0, 0, last]);
    }
}

/// Users without privilege: emulated endpoints, their own and within limits; no queue; no view of others.
#[test]
fn users_are_kept_apart() {
    let Some(hosts) = pair(Joint { queues: 2, mtu: 1500 }) else { return };
    let (one, two) = (61_001, 61_002);
    let _agent = Agent::start(&hosts[0], &["--lend", "1", "--trust", "61002", "--memory", "2"]);
    // The credentials of a connection are those of the thread that connected.
    let attach_as = |user: u32, kind: Kind, sizes: Sizes| {
        hosts[0].enter(|| {
            // SAFETY: the system call changes this thread alone, unlike the C library's function; the thread ends.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
            assert_eq!(changed, 0);
            Xdp::attach(&hosts[0].interface, kind, false, sizes)
        })
    };
    let small = Sizes { channels: 64, depth: 64, segment: 1 << 18 };
    let refused = |made: Result<Xdp, shunt_sys::Errno>| made.err().map(|errno| errno.0);
    assert_eq!(refused(attach_as(one, Kind::Own, small)), Some(libc::EACCES), "a queue is for those who are trusted");
    assert_eq!(refused(attach_as(one, Kind::Multiplexed, Sizes { segment: 4 << 20, ..small })), Some(libc::EDQUOT));
    // The registry counts: 65,536 channels have more than eight MiB of it.
    assert_eq!(refused(attach_as(one, Kind::Multiplexed, Sizes { channels: 1 << 16, ..small })), Some(libc::EDQUOT));
    for wrong in [
        Sizes { depth: 3, ..small },
        Sizes { depth: 1 << 20, ..small },
        Sizes { segment: 4097, ..small },
        Sizes { segment: u32::MAX, ..small },
        Sizes { channels: 0, ..small },
    ] {
        let errno = refused(attach_as(one, Kind::Multiplexed, wrong));
        assert!(matches!(errno, Some(libc::EINVAL | libc::EDQUOT)), "{wrong:?}: {errno:?}");
    }
    let mut mine = attach_as(one, Kind::Any, small).expect("an emulated endpoint");
    assert_eq!(mine.kind(), Kind::Multiplexed);
    let trusted = attach_as(two, Kind::Any, small).expect("an endpoint");
    assert_eq!(trusted.kind(), Kind::Own);
    let tag = mine.new_tag().expect("a tag");
    // Another user's tag cannot be registered, nor one that nobody was given.
    let mut other = attach_as(two, Kind::Multiplexed, small).expect("an endpoint");
    let remote = shunt_xdp::address::encode(&SocketAddr::new(hosts[1].addresses[0], 9), 0);
    for stolen in [tag, shunt_endpoint::Tag(12345)] {
        let tags = shunt_endpoint::Tags { receive: stolen, send: tag };
        assert_eq!(other.open(&remote, tags), Err(shunt_endpoint::OpenError::Tag));
    }
    // Addresses that are not reached by this interface.
    for elsewhere in ["127.0.0.1:9", "10.77.0.1:9", "192.0.2.1:9", "224.0.0.1:9", "10.77.0.2:0", "[fd77::2]:9"] {
        let remote = shunt_xdp::address::encode(&elsewhere.parse().unwrap(), 0);
        let receive = other.new_tag().expect("a tag");
        let opened = other.open(&remote, shunt_endpoint::Tags { receive, send: tag });
        assert_eq!(opened, Err(shunt_endpoint::OpenError::Address), "{elsewhere}");
    }
    let seen = |user: u32| {
        let output = hosts[0].enter(|| {
            let mut command = Command::new(SHUNT);
            as_user(command.args(["agent", "status", "--json"]), user).output().expect("it runs")
        });
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        told["agents"][0]["endpoints"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|endpoint| endpoint["user"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(seen(one), [one]);
    assert_eq!(seen(two), [two, two]);
    assert_eq!(seen(0).len(), 3);
}

/// Hostile memory: an emulated endpoint's owner writes anything anywhere; the agent and the others go on.
#[test]
fn hostile_memory_disturbs_nobody() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let _agents = hosts.each_ref().map(|host| Agent::start(host, &["--lend", "none"]));
    let mut vandal = attach(&hosts[0], Kind::Multiplexed, false);
    let mut honest = attach(&hosts[0], Kind::Multiplexed, false);
    let mut peer = attach(&hosts[1], Kind::Multiplexed, false);
    provide(&mut peer, 64);
    let (bad, back) = connect(&mut vandal, &mut peer);
    let (good, _) = connect(&mut honest, &mut peer);
    pass(&mut vandal, &mut peer, bad, b"still tame");
    let size = {
        // SAFETY: integers.
        let mut state: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: written by the kernel.
        assert_eq!(unsafe { libc::fstat(vandal.descriptors().memory, &mut state) }, 0);
        state.st_size as usize
    };
    let memory = shunt_sys::mapping::shared(vandal.descriptors().memory, size).expect("mapped");
    let mut random = Random::seeded(3);
    for round in 0..300 {
        for _ in 0..2000 {
            // Mostly where descriptors, positions and the registry are.
            let limit = if random.below(4) == 0 { size } else { (size - (1 << 20)).min(1 << 18) };
            let at = random.below(limit as u64 / 4) as usize * 4;
            // SAFETY: inside the mapping; that others use it is the point.
            unsafe { memory.add(at).cast::<u32>().write_volatile(random.word() as u32 >> random.below(32)) };
        }
        let one = 1u64;
        // SAFETY: eight bytes to an eventfd of ours.
        unsafe { libc::write(vandal.descriptors().way, (&raw const one).cast(), 8) };
        if round % 10 == 0 {
            let _ = peer.send(&Message::small(back, &[1; 100]));
            pass(&mut honest, &mut peer, good, &[round as u8; 20]);
        }
    }
    // A request that makes no sense ends its connection, and nothing else.
    let connection = vandal.descriptors().connection;
    // SAFETY: as many bytes as said.
    unsafe { libc::send(connection.as_raw_fd(), [7u8; 40].as_ptr().cast(), 40, libc::MSG_NOSIGNAL) };
    until("the vandal is thrown out", || status(&hosts[0])["agents"][0]["endpoints"].as_array().unwrap().len() == 1);
    pass(&mut honest, &mut peer, good, b"at the end");
}

/// Sentences: no root, no interface, an interface that is taken.
#[test]
fn refusals_say_what_to_do() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let run = |command: &mut Command| {
        let output = command.output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let agent = |interface: &str| {
        let mut command = hosts[0].command(SHUNT);
        command.args(["agent", "--interface", interface]);
        command
    };
    let unprivileged = hosts[0].enter(|| {
        let mut command = Command::new(SHUNT);
        run(as_user(command.args(["agent", "--interface", "left0"]), 61_001))
    });
    let (code, said) = unprivileged;
    assert!(code == Some(1) && said.contains("needs root") && said.contains("udp"), "{said}");
    let (code, said) = run(&mut agent("nowhere0"));
    assert!(code == Some(1) && said.contains("no interface \"nowhere0\""), "{said}");
    let (code, said) = run(&mut agent("lo"));
    assert!(code == Some(1) && said.contains("Ethernet"), "{said}");
    let (code, said) = run(agent("left0").args(["--lend", "9"]));
    assert!(code == Some(1) && said.contains("1 receive queues"), "{said}");
    let (code, said) = run(agent("left0").args(["--lend", "x"]));
    assert!(code == Some(2) && said.contains("--lend"), "{said}");
    let first = Agent::start(&hosts[0], &["--lend", "0"]);
    // A veth of one queue is better served before the stack; the driver is for who asks for it.
    assert!(first.said.contains("left0: attached a program (generic)"), "{}", first.said);
    let (code, said) = run(&mut agent("left0"));
    assert!(code == Some(1) && said.contains(&format!("process {}", first.child.id())), "{said}");
    drop(first);
    let mut nobody = hosts[0].command(SHUNT);
    let (code, said) = run(nobody.args(["agent", "status", "--interface", "left0"]));
    assert!(code == Some(1) && said.contains("no agent serves left0"), "{said}");
    // Somebody else's program is left alone.
    let foreign = hosts[0].enter(|| foreign_program(&hosts[0].interface));
    let (code, said) = run(&mut agent("left0"));
    assert!(code == Some(1) && said.contains("somebody_else") && said.contains("leaves it alone"), "{said}");
    drop(foreign);
    // A child that another test forks has it for a moment, too.
    until("the program is gone", || program_of(&hosts[0]).is_none());
    Agent::start(&hosts[0], &[]);
}
