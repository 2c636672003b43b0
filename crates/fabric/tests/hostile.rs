//! Strangers at libfabric's level: they speak to an endpoint without being one.
#![cfg(feature = "libfabric")]

mod providers;

use providers::{made, shm, SHM, TCP};
use shunt_endpoint::conformance::{connect, meet, provide};
use shunt_endpoint::{Arrival, Channel, Drop as Reason, Endpoint, Message, OpenError, Tag, Tags};
use shunt_fabric::interface::{Access, Completion, Interface, Memory, Queue, Taken, BATCH, NAME};
use shunt_fabric::{Fabric, Options};
use shunt_sys::{libc, Errno};
use shunt_wire::endpoint::{Kind, Repr, HEADER};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);
const ROOM: usize = 1 << 16;
/// Bytes of a receive buffer, as the suite posts them.
const BUFFER: usize = 8192;

/// A bare endpoint of libfabric, and memory to send from.
struct Stranger {
    memory: Memory,
    bytes: Vec<u8>,
    to: u64,
    interface: Interface,
}

impl Stranger {
    fn towards(victim: &Fabric, options: Options<'_>) -> Stranger {
        let interface = Interface::open(options.provider, options.node, None, true, 16, 16)
            .or_else(|_| Interface::open(options.provider, options.node, None, false, 16, 16))
            .expect("another endpoint");
        let mut bytes = vec![0u8; ROOM];
        // SAFETY: the vector keeps its place, and goes after the registration.
        let memory = unsafe { interface.register(bytes.as_mut_ptr(), ROOM, Access::Local, 0) }.expect("registered");
        let mut name = [0; NAME];
        let address = victim.address();
        name[..address.bytes().len() - 4].copy_from_slice(&address.bytes()[4..]);
        let to = interface.insert(&name).expect("the victim's address");
        Stranger { memory, bytes, to, interface }
    }

    /// Sends `frame`, with the victim looking meanwhile, and waits until it is out.
    fn send(&mut self, frame: &[u8], victim: &mut Fabric) {
        let error = self.start(frame, victim);
        assert_eq!(error, 0, "{} bytes were not sent", frame.len());
    }

    /// Sends `frame`; the code of what became of it.
    fn start(&mut self, frame: &[u8], victim: &mut Fabric) -> i32 {
        self.bytes[..frame.len()].copy_from_slice(frame);
        let part = libc::iovec { iov_base: self.bytes.as_mut_ptr().cast(), iov_len: frame.len() };
        let began = Instant::now();
        let mut completions = [Completion::default(); BATCH];
        let mut out = false;
        while !out || self.interface.completions(Queue::Sent, &mut completions).expect("a queue") == 0 {
            // SAFETY: the bytes stay until the completion, which is waited for; slot 0 is free.
            out = out || unsafe { self.interface.send(&[part], &self.memory, self.to, 0) } == Ok(Taken::Yes);
            assert!(!victim.receive(&mut Arrival::empty()), "a stranger's frame was received");
            assert!(began.elapsed() < SOON, "not sent");
        }
        completions[0].error
    }
}

fn wait_for_drops(victim: &mut Fabric, count: u64) {
    let began = Instant::now();
    while victim.counters().dropped_in_all() < count {
        assert!(!victim.receive(&mut Arrival::empty()), "a stranger's frame was received");
        assert!(
            began.elapsed() < SOON,
            "dropped {} of {count}; {} buffers, {} free",
            victim.counters().dropped_in_all(),
            victim.buffers(),
            victim.memory().free_queue().len()
        );
    }
}

#[track_caller]
fn still_works(a: &mut Fabric, b: &mut Fabric, to_b: Channel) {
    let began = Instant::now();
    while a.send(&Message::small(to_b, b"friend")).is_err() {}
    let mut arrival = Arrival::empty();
    while !b.receive(&mut arrival) {
        a.flush().expect("the device works");
        assert!(began.elapsed() < SOON, "the friend's message does not come");
    }
    assert_eq!(arrival.head(), b"friend");
}

fn right_tag(victim: &Fabric) -> Tag {
    victim.memory().registry().iter().next().expect("a channel").1.tags().receive
}

/// Buffers that are free or with the provider.
fn buffers(victim: &Fabric) -> u32 {
    victim.buffers()
}

fn frame(kind: Kind, tag: u64, length: u32) -> Vec<u8> {
    let mut bytes = vec![7; HEADER + length as usize];
    Repr { kind, tag, length }.emit(&mut bytes);
    bytes
}

fn strangers_are_counted_by_reason(options: Options<'_>) {
    let (mut a, mut b) = (made(options), made(options));
    let all = provide(&mut b, 16).len() as u32;
    let (to_b, _) = connect(&mut a, &mut b);
    meet(&mut a, &mut b);
    let mut stranger = Stranger::towards(&b, options);
    let right = right_tag(&b).0;
    let with = |at: usize, value: u8| {
        let mut bytes = frame(Kind::Message, right, 30);
        bytes[at] = value;
        bytes
    };
    let frames = [
        (Reason::Short, b"short".to_vec()),
        (Reason::Magic, vec![0xff; 40]),
        (Reason::Version, with(2, 9)),
        (Reason::Kind, with(3, 77)),
        (Reason::Length, with(4, 31)),
        (Reason::Length, with(7, 0xff)),
        (Reason::Tag, frame(Kind::Message, right ^ 1, 0)),
        (Reason::Tag, frame(Kind::Message, 0, 300)),
        // Who has the tag may send, unless the provider tells who it is: an update then has to name an export.
        (if b.interface().facts().source != 0 { Reason::Source } else { Reason::Export }, frame(Kind::Update, right, 0)),
        (if b.interface().facts().source != 0 { Reason::Source } else { Reason::Export }, frame(Kind::UpdateNotify, right, 100)),
    ];
    for (number, (reason, bytes)) in frames.iter().enumerate() {
        let before = b.counters().dropped(*reason);
        stranger.send(bytes, &mut b);
        wait_for_drops(&mut b, number as u64 + 1);
        let all: Vec<_> = Reason::ALL.map(|reason| (reason.name(), b.counters().dropped(reason))).into();
        assert_eq!(b.counters().dropped(*reason), before + 1, "frame {number}: {}: {all:?}", reason.name());
    }
    stranger.send(b"", &mut b);
    still_works(&mut a, &mut b, to_b);
    assert_eq!(b.counters().dropped_in_all(), frames.len() as u64);
    assert_eq!(buffers(&b), all, "no buffer was lost");
}

/// libfabric's `tcp` ends the connection of who sends more than fits; its `shm` (1.17) never comes back, which is a matter of
/// one user's processes.
#[test]
fn what_is_too_long_is_dropped() {
    for length in [BUFFER + 1, 12_000, 60_000] {
        let (mut a, mut b) = (made(TCP), made(TCP));
        let all = provide(&mut b, 16).len() as u32;
        let (to_b, _) = connect(&mut a, &mut b);
        meet(&mut a, &mut b);
        let mut stranger = Stranger::towards(&b, TCP);
        stranger.start(&frame(Kind::Message, right_tag(&b).0, (length - HEADER) as u32), &mut b);
        wait_for_drops(&mut b, 1);
        assert_eq!(b.counters().dropped(Reason::Oversized), 1, "{length} bytes");
        still_works(&mut a, &mut b, to_b);
        assert_eq!(buffers(&b), all, "no buffer was lost");
    }
}

#[test]
fn strangers_over_tcp() {
    strangers_are_counted_by_reason(TCP);
}

#[test]
fn strangers_over_shm() {
    strangers_are_counted_by_reason(SHM);
}

fn random_frames_reach_nobody(options: Options<'_>, count: u64) {
    let (mut a, mut b) = (made(options), made(options));
    let all = provide(&mut b, 8).len() as u32;
    let (to_b, to_a) = connect(&mut a, &mut b);
    meet(&mut a, &mut b);
    let key =
        shunt_endpoint::DirectAccess::export(&mut b, to_a, shunt_endpoint::Area::new(0, 4096), shunt_endpoint::Rights::Write);
    let key = key.expect("exported").0;
    let mut stranger = Stranger::towards(&b, options);
    let mut random = 0x1234_5678u64;
    for round in 0..count {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let length = if round % 64 == 0 { random % BUFFER as u64 } else { random % 200 } as usize + 1;
        let mut bytes: Vec<u8> = (0..length).map(|k| (random >> (k % 57)) as u8).collect();
        // Most begin as ours do, so that the later checks are met; some know the export, but not the tag.
        if round % 4 > 0 && length >= HEADER {
            let kind = [Kind::Message, Kind::Update, Kind::UpdateNotify][round as usize % 3];
            Repr { kind, tag: random, length: (length - HEADER) as u32 ^ (round % 4 / 3) as u32 }.emit(&mut bytes);
            if length >= HEADER + 8 {
                bytes[HEADER..HEADER + 8].copy_from_slice(&key.to_le_bytes());
            }
        }
        stranger.send(&bytes, &mut b);
    }
    wait_for_drops(&mut b, count);
    assert_eq!(b.counters().updates.load(std::sync::atomic::Ordering::Relaxed), 0);
    still_works(&mut a, &mut b, to_b);
    assert_eq!(b.counters().dropped_in_all(), count);
    assert_eq!(buffers(&b), all);
}

#[test]
fn random_frames_over_tcp() {
    random_frames_reach_nobody(TCP, 3_000);
}

#[test]
fn random_frames_over_shm() {
    random_frames_reach_nobody(SHM, 20_000);
}

#[test]
fn addresses_of_others_open_no_channel() {
    let (mut a, mut b) = (made(TCP), shm());
    let tags = Tags { receive: Tag(1), send: Tag(2) };
    assert_eq!(a.open(&b.address(), tags), Err(OpenError::Address));
    assert_eq!(b.open(&a.address(), tags), Err(OpenError::Address));
    assert!(a.open(&a.address(), tags).is_ok(), "nothing is left of what was refused");
}

#[test]
fn what_is_not_there_is_named() {
    let open = |options: Options<'_>| Fabric::new(options).map(|_| ());
    assert_eq!(open(Options { provider: "no-such-provider", ..TCP }), Err(Errno(libc::ENODATA)));
    assert_eq!(open(Options { provider: "tcp\0", ..TCP }), Err(Errno(libc::EINVAL)));
    assert_eq!(open(Options { largest: 1, ..TCP }), Err(Errno(libc::EINVAL)));
    assert!(open(Options { node: Some("203.0.113.1"), ..TCP }).is_err(), "an address of another machine");
}

/// Those who share an endpoint with a peer that takes nothing are not held up by it.
#[test]
fn a_peer_that_takes_nothing_holds_up_nobody() {
    for options in [TCP, SHM] {
        let (mut a, mut silent, mut b) = (made(options), made(options), made(options));
        provide(&mut a, 16);
        provide(&mut b, 16);
        let (to_b, _) = connect(&mut a, &mut b);
        meet(&mut a, &mut b);
        let (to_silent, _) = connect(&mut a, &mut silent);
        let mut refused = 0;
        let began = Instant::now();
        // Until it is refused for good, as far as one can tell.
        while refused < 1000 {
            match a.send(&Message::small(to_silent, &[1; 100])) {
                Ok(_) => refused = 0,
                Err(_) => refused += 1,
            }
            a.flush().expect("the device works");
            assert!(began.elapsed() < SOON, "never refused");
        }
        for _ in 0..100 {
            still_works(&mut a, &mut b, to_b);
        }
        drop(silent);
        still_works(&mut a, &mut b, to_b);
    }
}
