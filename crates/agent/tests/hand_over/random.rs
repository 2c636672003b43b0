//! Hand-overs at random moments, under load, with every byte compared.

use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use shunt_testkit::hosts::Host;
use shunt_testkit::Random;

use crate::agent::{pair, Agent};
use crate::client::{Line, Queue};
use crate::peer::serve;

/// Hand-overs there, and as many back, in one test.
const HAND_OVERS: u32 = 2000;
/// Bytes that are under way at most, there and back: a burst, often none.
const AHEAD: u64 = 24 << 10;

/// The byte at a place of a stream.
fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// How far a stream is.
#[derive(Default)]
struct Progress {
    sent: u64,
    back: u64,
}

/// Reads what there is, and compares it with what belongs at this place; `None`: the end.
fn check(line: &mut Line, bytes: &mut [u8], at: u64) -> Option<u64> {
    let count = line.read(bytes)?;
    for (index, got) in bytes[..count].iter().enumerate() {
        assert_eq!(*got, byte(at + index as u64), "byte {} of {}", at + index as u64, line.tuple.ours);
    }
    Some(count as u64)
}

fn run(version_6: bool, lines: usize, hand_overs: u32) {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    exchange(&hosts[0], serve(&hosts[1], version_6), lines, hand_overs);
}

/// With a peer that sends back what it gets, from a host whose agent serves.
pub fn exchange(host: &Host, server: SocketAddr, lines: usize, hand_overs: u32) {
    host.enter(|| {
        let mut random = Random::for_test();
        let mut queue = Queue::new(host);
        let mut lines: Vec<Line> = (0..lines).map(|_| Line::connect(server)).collect();
        let mut all: Vec<Progress> = lines.iter().map(|_| Progress::default()).collect();
        let (mut taken, mut declined, mut carried) = (0, 0, 0);
        let mut bytes = vec![0; 16 << 10];
        let until = Instant::now() + Duration::from_secs(100);
        while taken < hand_overs {
            assert!(Instant::now() < until, "{taken} hand-overs, {declined} declined; {:?}", lines[0].ended);
            queue.turn(&mut lines);
            for (line, progress) in lines.iter_mut().zip(&mut all) {
                let quiet = progress.sent == progress.back;
                if (quiet && random.below(4) > 0) || random.below(200) == 0 {
                    let room = (AHEAD - (progress.sent - progress.back)).min(bytes.len() as u64);
                    let length =
                        if random.below(3) == 0 { random.below(room + 1) } else { random.below(room.min(64) + 1) } as usize;
                    (0..length).for_each(|index| bytes[index] = byte(progress.sent + index as u64));
                    progress.sent += line.write(&bytes[..length]) as u64;
                }
                let count = check(line, &mut bytes, progress.back).expect("no end yet");
                progress.back += count;
                assert!(progress.back <= progress.sent);
                if line.taken.is_some() {
                    carried += count;
                    if random.below(30) == 0 {
                        queue.give(line);
                    }
                } else if random.below(10) == 0 {
                    match queue.take(line) {
                        Ok(()) => taken += 1,
                        Err(decline) => {
                            assert_eq!(decline, shunt_xdp::protocol::Decline::Unacknowledged);
                            declined += 1;
                        }
                    }
                }
            }
        }
        assert!(carried > 0);
        // The end: what is on its way comes, and then the peer's end, whoever has the connection when it does.
        for (index, progress) in all.iter_mut().enumerate() {
            while progress.back < progress.sent || lines[index].taken.is_some() {
                assert!(Instant::now() < until);
                queue.turn(&mut lines);
                progress.back += check(&mut lines[index], &mut bytes, progress.back).expect("no end yet");
                if progress.back == progress.sent {
                    queue.give(&mut lines[index]);
                }
            }
            lines[index].stream.shutdown(Shutdown::Write).expect("an end");
            while let Some(count) = check(&mut lines[index], &mut bytes, progress.back) {
                assert!(Instant::now() < until && count == 0);
                queue.turn(&mut lines);
            }
        }
        println!("{taken} hand-overs, {declined} declined, {carried} bytes at user level");
    });
}

#[test]
fn one_connection() {
    run(false, 1, HAND_OVERS);
}

#[test]
fn many_connections() {
    run(false, 16, 2 * HAND_OVERS);
}

#[test]
fn over_ipv6() {
    run(true, 4, HAND_OVERS / 2);
}
