//! Active messages over an endpoint: what the sockets are built on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use shunt_am::frame::{FULL, MESSAGE};
use shunt_am::port::{config_for, memory, Port};
use shunt_am::{Config, Data, Dispatch, Message, Replier};
use shunt_endpoint::{Address, Endpoint, Tags};
use shunt_testkit::hosts::Host;

use super::contender::{side_by_side, thread_time, time_round_trips, Contender, Pattern, Streamed};
use super::endpoints::{agents, end, Boxed, Carrier};
use super::Plan;

/// Active messages over endpoints of one device.
pub struct Messages {
    /// The row's name.
    pub name: &'static str,
    /// The device.
    pub carrier: Carrier,
}

/// An end that has not been connected yet: the endpoint, its tags, and where the other one is.
pub type Loose = (Boxed, Tags, Address);

/// Two endpoints that know each other.
pub fn loose(carrier: Carrier, hosts: [&Host; 2]) -> Result<[Loose; 2], String> {
    let wrong = |what: &dyn std::fmt::Debug| format!("{what:?}");
    let (mut a, mut b) = (end(carrier, hosts[0])?, end(carrier, hosts[1])?);
    let (for_a, for_b) = (a.new_tag().map_err(|error| wrong(&error))?, b.new_tag().map_err(|error| wrong(&error))?);
    let (at_a, at_b) = (a.address(), b.address());
    Ok([(a, Tags { receive: for_a, send: for_b }, at_b), (b, Tags { receive: for_b, send: for_a }, at_a)])
}

/// The engine's settings: a window for a stream.
fn config(endpoint: &Boxed) -> Config {
    Config { window: 1024, held: 1024, checked: 1, ..config_for(endpoint, 1) }
}

/// Answers requests with what they bring, and counts.
#[derive(Default)]
pub struct Program {
    replies: u64,
    bytes: u64,
}

impl Program {
    /// Answers so far.
    pub fn replies(&self) -> u64 {
        self.replies
    }
}

impl Dispatch for Program {
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        let _ = replier.reply(1, message.words, message.data);
    }
    fn reply(&mut self, _message: Message<'_>) {
        self.replies += 1;
    }
    fn stream(&mut self, _peer: u32, _channel: u16, data: Data<'_>) {
        self.bytes += data.len() as u64;
    }
}

const CONNECTING: Duration = Duration::from_secs(5);
/// How far ahead of what has arrived a sender may be.
const ROOM: u64 = 4 << 20;

/// Takes a stream, granting room as it goes, until `over`; `count` tells how far it is. It spins while nothing comes, or sleeps.
pub fn take((endpoint, tags, at): Loose, over: &AtomicBool, count: &AtomicU64, sleeps: bool) -> Result<(), String> {
    let config = config(&endpoint);
    let mut space = memory(&config);
    let mut port = Port::new(endpoint, &mut space, &config).map_err(|error| format!("{error:?}"))?;
    let peer = port.open(&at, tags).map_err(|error| format!("{error:?}"))?;
    let mut program = Program::default();
    port.accept(peer, &mut program, CONNECTING).map_err(|error| error.to_string())?;
    let mut granted = 0;
    while !over.load(Relaxed) {
        if program.bytes + ROOM / 2 >= granted {
            granted = program.bytes + ROOM;
            let _ = port.engine().grant(peer, 1, granted, 1);
        }
        if sleeps {
            port.wait(&mut program, Duration::from_millis(5));
        } else if port.poll(&mut program) == 0 {
            std::hint::spin_loop();
        }
        count.store(program.bytes, Relaxed);
    }
    port.disconnect(peer, &mut program);
    Ok(())
}

/// Sends messages of `size` bytes on a stream for `time`; gives the seconds that it took.
pub fn give((endpoint, tags, at): Loose, size: usize, time: Duration) -> Result<f64, String> {
    let config = config(&endpoint);
    let mut space = memory(&config);
    let mut port = Port::new(endpoint, &mut space, &config).map_err(|error| format!("{error:?}"))?;
    let peer = port.open(&at, tags).map_err(|error| format!("{error:?}"))?;
    let mut program = Program::default();
    port.connect(peer, &mut program).map_err(|error| error.to_string())?;
    let (bytes, began) = (vec![7u8; size], Instant::now());
    while began.elapsed() < time {
        // A look at the clock costs more than a small message.
        for _ in 0..32 {
            port.send(peer, 1, &bytes, &mut program).map_err(|error| error.to_string())?;
        }
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Most bytes of a request without words in a packet of 1,500: behind the headers of IPv4 and UDP, of endpoints, of a frame and
/// of a message.
const LONGEST_REQUEST: usize = 1500 - 28 - shunt_wire::endpoint::HEADER - FULL - MESSAGE;

impl Contender for Messages {
    fn name(&self) -> &'static str {
        self.name
    }

    fn carries(&self, size: usize, pattern: Pattern) -> bool {
        pattern == Pattern::Stream || size <= LONGEST_REQUEST
    }

    fn round_trip(&self, hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<f64, String> {
        let agents = agents(self.carrier, hosts.each_ref(), plan)?;
        let [a, b] = loose(self.carrier, hosts.each_ref())?;
        let serve = |over: &AtomicBool, _: &AtomicU64| {
            let (endpoint, tags, at) = b;
            let config = config(&endpoint);
            let mut space = memory(&config);
            let mut port = Port::new(endpoint, &mut space, &config).map_err(|error| format!("{error:?}"))?;
            let peer = port.open(&at, tags).map_err(|error| format!("{error:?}"))?;
            let mut program = Program::default();
            port.accept(peer, &mut program, CONNECTING).map_err(|error| error.to_string())?;
            while !over.load(Relaxed) {
                port.poll(&mut program);
            }
            Ok::<(), String>(())
        };
        let drive = |_: &AtomicU64| {
            let (endpoint, tags, at) = a;
            let config = config(&endpoint);
            let mut space = memory(&config);
            let mut port = Port::new(endpoint, &mut space, &config).map_err(|error| format!("{error:?}"))?;
            let peer = port.open(&at, tags).map_err(|error| format!("{error:?}"))?;
            let mut program = Program::default();
            port.connect(peer, &mut program).map_err(|error| error.to_string())?;
            let bytes = vec![7u8; size];
            time_round_trips(plan.time, || {
                let before = program.replies;
                port.request(peer, 1, &[], &bytes, &mut program).map_err(|error| error.to_string())?;
                while program.replies == before {
                    port.poll(&mut program);
                }
                Ok(())
            })
        };
        let (served, driven) = side_by_side(serve, drive);
        drop(agents);
        served?;
        driven
    }

    fn stream(&self, hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<Streamed, String> {
        let agents = agents(self.carrier, hosts.each_ref(), plan)?;
        let [a, b] = loose(self.carrier, hosts.each_ref())?;
        let serve = |over: &AtomicBool, count: &AtomicU64| take(b, over, count, false).map(|()| thread_time());
        let drive = |count: &AtomicU64| {
            let seconds = give(a, size, plan.time)?;
            Ok::<_, String>((count.load(Relaxed), seconds, thread_time()))
        };
        let (server, driven) = side_by_side(serve, drive);
        drop(agents);
        let (received, seconds, driver) = driven?;
        Ok(Streamed { messages: received as f64 / size as f64, seconds, processor: server? + driver, lost: 0.0 })
    }
}
