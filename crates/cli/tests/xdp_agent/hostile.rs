//! What others send or write reaches nobody.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::agents::{attach, mac_of, pair, status, Agent, Raw};
use crate::{pass, until};
use shunt_endpoint::conformance::{connect, provide};
use shunt_endpoint::{Arrival, Drop as Reason, Endpoint, Message};
use shunt_testkit::hosts::{Host, Joint};
use shunt_testkit::Random;
use shunt_wire::endpoint::{Kind as FrameKind, Repr, HEADER};
use shunt_xdp::packet::{Path, Sum};
use shunt_xdp::protocol::Kind;
use shunt_xdp::Xdp;

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
