//! Sharing: a link with the kernel's TCP, and one AF_XDP queue among many processes' endpoints.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use shunt_endpoint::{Arrival, Message};
use shunt_testkit::hosts::Host;

use super::contender::first_of_all;
use super::endpoints::{agents, post, Carrier};
use super::messages::{give, loose, take};
use super::switch::Switched;
use super::Plan;

/// What a stream beside a TCP connection over one slow link got.
pub struct Shares {
    /// Bytes in a second of the stream of active messages, or of the first TCP connection.
    pub first: f64,
    /// Of the TCP connection beside it.
    pub tcp: f64,
}

/// How the ends of both streams get processors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Before everything without real-time priority, and a receiver sleeps while nothing comes: the link is all that is scarce.
    First,
    /// In turn with whatever else runs, and ends of active messages spin. The kernel's TCP acts in interrupts at once; deadlines
    /// of ends that wait for their turn are met late.
    AmongOthers,
}

impl Ends {
    /// What each thread of an end does first.
    fn begin(self) {
        if self == Ends::First {
            first_of_all();
        }
    }
}

/// Streams to the second host for `time`: over active messages by `carrier` (none: TCP), and over TCP beside it.
///
/// # Errors
/// A sentence.
pub fn share(site: &Switched, plan: &Plan<'_>, carrier: Option<Carrier>, ends: Ends, time: Duration) -> Result<Shares, String> {
    let hosts = &site.hosts;
    let agents = carrier.map(|carrier| agents(carrier, hosts.each_ref(), plan)).transpose()?;
    let over = AtomicBool::new(false);
    let (first, tcp) = (AtomicU64::new(0), AtomicU64::new(0));
    // The first seconds are slow start's.
    let settle = time / 4;
    let result = std::thread::scope(|scope| {
        let beside = stream(hosts)?;
        let own = match carrier {
            None => None,
            Some(carrier) => Some(loose(carrier, hosts.each_ref())?),
        };
        let mut threads = Vec::new();
        match own {
            Some([a, b]) => {
                let (over, first) = (&over, &first);
                threads.push(scope.spawn(move || {
                    ends.begin();
                    take(b, over, first, ends == Ends::First)
                }));
                // It ends after the others, so that it is there as long as they are measured.
                threads.push(scope.spawn(move || {
                    ends.begin();
                    give(a, 1400, settle + time).map(drop)
                }));
            }
            None => carry(scope, stream(hosts)?, ends, &over, &first),
        }
        carry(scope, beside, ends, &over, &tcp);
        std::thread::sleep(settle);
        let before = [first.load(Relaxed), tcp.load(Relaxed)];
        std::thread::sleep(time);
        let after = [first.load(Relaxed), tcp.load(Relaxed)];
        over.store(true, Relaxed);
        for end in threads {
            // The sender may have been cut off in its last call, when the receiver went.
            let result = end.join().map_err(|_| "an end panicked".to_string())?;
            result.or_else(|error| if after[0] > before[0] { Ok(()) } else { Err(error) })?;
        }
        let rate = |at: usize| (after[at] - before[at]) as f64 / time.as_secs_f64();
        Ok(Shares { first: rate(0), tcp: rate(1) })
    });
    drop(agents);
    result
}

fn stream(hosts: &[Host; 2]) -> Result<[TcpStream; 2], String> {
    let join = || -> std::io::Result<[TcpStream; 2]> {
        let listener = hosts[1].enter(|| TcpListener::bind(SocketAddr::new(hosts[1].addresses[0], 0)))?;
        let address = listener.local_addr()?;
        let client = hosts[0].enter(|| TcpStream::connect(address))?;
        Ok([client, listener.accept()?.0])
    };
    join().map_err(|error| error.to_string())
}

/// Both ends of a TCP connection, until `over`; `count` tells how many bytes arrived.
fn carry<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    [mut from, mut to]: [TcpStream; 2],
    ends: Ends,
    over: &'scope AtomicBool,
    count: &'scope AtomicU64,
) {
    scope.spawn(move || {
        ends.begin();
        let bytes = [7u8; 16384];
        while !over.load(Relaxed) && from.write_all(&bytes).is_ok() {}
    });
    scope.spawn(move || {
        ends.begin();
        let mut bytes = [0u8; 65536];
        while let Ok(got @ 1..) = to.read(&mut bytes) {
            count.store(count.load(Relaxed) + got as u64, Relaxed);
        }
    });
}

/// Round trips of `pairs` pairs of endpoints at the same time, all on the agents' queues: seconds of the median and of the 99th
/// percentile, and round trips of all together in a second. Each end gives the processor away while it waits.
///
/// # Errors
/// A sentence.
pub fn multiplexed(hosts: &[Host; 2], plan: &Plan<'_>, pairs: usize) -> Result<(f64, f64, f64), String> {
    let agents = agents(Carrier::Multiplexed, hosts.each_ref(), plan)?;
    let over = AtomicBool::new(false);
    let mut joined = Vec::new();
    for _ in 0..pairs {
        joined.push(loose(Carrier::Multiplexed, hosts.each_ref())?);
    }
    let mut times: Vec<f64> = Vec::new();
    let lost = || "an endpoint was lost".to_string();
    std::thread::scope(|scope| {
        let over = &over;
        let mut drivers = Vec::new();
        for [(mut a, tags_a, at_b), (mut b, tags_b, at_a)] in joined {
            post(&mut a);
            post(&mut b);
            let to_b = a.open(&at_b, tags_a).map_err(|error| format!("{error:?}"))?;
            let to_a = b.open(&at_a, tags_b).map_err(|error| format!("{error:?}"))?;
            scope.spawn(move || {
                let mut arrival = Arrival::empty();
                while !over.load(Relaxed) {
                    if b.receive(&mut arrival) {
                        b.release(&mut arrival);
                        let _ = b.send(&Message::small(to_a, &[7; 8]));
                        let _ = b.flush();
                    } else {
                        std::thread::yield_now();
                    }
                }
            });
            drivers.push(scope.spawn(move || {
                let (mut arrival, mut times, began) = (Arrival::empty(), Vec::new(), Instant::now());
                while began.elapsed() < plan.time {
                    let start = Instant::now();
                    a.send(&Message::small(to_b, &[7; 8])).ok()?;
                    a.flush().ok()?;
                    // A message may be lost; it counts as the time that was waited for it.
                    while start.elapsed() < Duration::from_millis(100) {
                        if a.receive(&mut arrival) {
                            a.release(&mut arrival);
                            break;
                        }
                        std::thread::yield_now();
                    }
                    times.push(start.elapsed().as_secs_f64());
                }
                Some(times)
            }));
        }
        let results: Vec<Option<Vec<f64>>> = drivers.into_iter().map(|driver| driver.join().ok().flatten()).collect();
        over.store(true, Relaxed);
        for result in results {
            times.extend(result.ok_or_else(lost)?);
        }
        Ok::<(), String>(())
    })?;
    drop(agents);
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN);
    Ok((at(0.5), at(0.99), times.len() as f64 / plan.time.as_secs_f64()))
}
