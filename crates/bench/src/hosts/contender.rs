//! What all contenders have in common.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use shunt_testkit::hosts::Host;

use super::endpoints::{Carrier, Endpoints};
use super::messages::Messages;
use super::programs::{Programs, Way};
use super::tables::MESSAGES;
use super::{kernel, Plan};

/// How messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// There and back, one at a time.
    RoundTrip,
    /// One way, as fast as they are taken.
    Stream,
}

/// One way of carrying messages between two hosts.
pub trait Contender {
    /// Its row.
    fn name(&self) -> &'static str;

    /// Whether it carries messages of so many bytes in that way: a bare endpoint's are no longer than a packet, and neither are
    /// requests; streams of active messages are bytes.
    fn carries(&self, _size: usize, _pattern: Pattern) -> bool {
        true
    }

    /// Seconds of a round trip, the median of one turn.
    ///
    /// # Errors
    /// A sentence.
    fn round_trip(&self, hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<f64, String>;

    /// One host sends as fast as it can.
    ///
    /// # Errors
    /// A sentence.
    fn stream(&self, hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<Streamed, String>;
}

/// One turn of streaming.
#[derive(Clone, Copy, Debug)]
pub struct Streamed {
    /// Messages that arrived.
    pub messages: f64,
    /// In so many seconds.
    pub seconds: f64,
    /// Seconds of processor time, of both ends and of agents.
    pub processor: f64,
    /// Part of the messages sent that did not arrive.
    pub lost: f64,
}

/// All of them, in the order of the tables; those under shunt over the devices of `sockets`.
pub fn all(sockets: &[Carrier]) -> Vec<Box<dyn Contender>> {
    let mut all: Vec<Box<dyn Contender>> = vec![
        Box::new(Endpoints { name: "endpoint xdp, own queue", carrier: Carrier::Own }),
        Box::new(Endpoints { name: "endpoint xdp, emulated", carrier: Carrier::Multiplexed }),
        Box::new(Endpoints { name: "endpoint udp", carrier: Carrier::Udp }),
        Box::new(Messages { name: MESSAGES, carrier: Carrier::Own }),
        Box::new(Messages { name: "active messages, udp", carrier: Carrier::Udp }),
    ];
    for carrier in sockets {
        all.push(Box::new(Programs { name: carrier.sockets(), way: Way::Shunt(*carrier) }));
    }
    all.push(Box::new(kernel::Datagrams));
    all.push(Box::new(kernel::Stream));
    all.push(Box::new(Programs { name: "kernel TCP, programs, spinning", way: Way::Spinning }));
    all.push(Box::new(Programs { name: "kernel TCP, programs, blocking", way: Way::Blocking }));
    all.push(Box::new(Programs { name: "kernel TCP, no offload, spinning", way: Way::WithoutOffload }));
    all
}

/// Keeps the calling thread on one processor, where there is more than one.
pub fn pin(processor: usize) {
    // SAFETY: the set is plain bits, as large as said.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// The calling thread goes before everything that has no real-time priority, where that is permitted (sched(7)).
pub fn first_of_all() {
    let priority = libc::sched_param { sched_priority: 10 };
    // SAFETY: concerns the calling thread; the structure is as large as said.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) };
}

/// Seconds of processor time that the calling thread has used.
pub fn thread_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: written by the kernel.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Round trips by `turn` for the plan's time, after some to get warm; the median.
pub fn time_round_trips(time: Duration, mut turn: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    let began = Instant::now();
    while began.elapsed() < time / 5 {
        turn()?;
    }
    let (began, mut times) = (Instant::now(), Vec::with_capacity(1 << 17));
    while began.elapsed() < time {
        let start = Instant::now();
        turn()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().ok_or_else(|| "no round trip was finished".to_string())
}

/// Both ends at once, the second on the other processor: `serve` until the flag is set, `drive` meanwhile.
pub fn side_by_side<T: Send, U: Send>(
    serve: impl FnOnce(&AtomicBool, &AtomicU64) -> T + Send,
    drive: impl FnOnce(&AtomicU64) -> U + Send,
) -> (T, U) {
    let (over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            pin(1);
            serve(&over, &count)
        });
        let driven = scope.spawn(|| {
            pin(0);
            drive(&count)
        });
        let driven = driven.join();
        over.store(true, Relaxed);
        let served = served.join();
        match (served, driven) {
            (Ok(served), Ok(driven)) => (served, driven),
            (Err(panic), _) | (_, Err(panic)) => std::panic::resume_unwind(panic),
        }
    })
}
