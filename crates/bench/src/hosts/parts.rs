//! What a message costs by parts: both ends in one thread, so that no thread waits and no line of cache moves.
//!
//! What the kernel does for a message it does in the sender's call, the receiver's part included: on a veth there is no other
//! thread.

use std::io::{Read, Write};
use std::time::Instant;

use shunt_endpoint::Arrival;
use shunt_testkit::hosts::Host;

use super::contender::pin;
use super::endpoints::{self, Carrier, Endpoints};
use super::record::{Record, Sheet};
use super::tables::median;
use super::{kernel, Plan};

pub const PARTS: &str = "a message one way, both ends in one thread, us";
pub const SENDTO: &str = "endpoint xdp: sendto, by which the frame is received, too";

/// Seconds of each step of one message.
struct Steps<const N: usize> {
    last: Instant,
    times: [Vec<f64>; N],
}

impl<const N: usize> Steps<N> {
    fn new() -> Self {
        Self { last: Instant::now(), times: std::array::from_fn(|_| Vec::new()) }
    }

    fn begin(&mut self) {
        self.last = Instant::now();
    }

    fn done(&mut self, step: usize) {
        let now = Instant::now();
        self.times[step].push((now - self.last).as_secs_f64());
        self.last = now;
    }

    /// Medians, without what looking at the clock takes.
    fn medians(self) -> [f64; N] {
        let look = median((0..1000).map(|_| Instant::now().elapsed().as_secs_f64()).collect());
        self.times.map(|times| (median(times) - look).max(0.0))
    }
}

/// Adds the table.
pub fn parts(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let sizes: Vec<usize> = plan.sizes.iter().copied().filter(|size| *size <= endpoints::LONGEST).collect();
    let heads: Vec<String> = sizes.iter().map(|size| format!("{size} B")).collect();
    let mut sheet = Sheet::new(PARTS, &heads, &[2]);
    for size in &sizes {
        let mut figures: [Vec<f64>; 5] = std::array::from_fn(|_| Vec::new());
        for _ in 0..plan.repeats {
            // The measuring thread is one of its own, so that its processor is free afterwards.
            let found = std::thread::scope(|scope| {
                let turn = || {
                    pin(0);
                    Ok::<_, String>((endpoint(hosts, plan, *size)?, tcp(hosts, plan, *size)?))
                };
                scope.spawn(turn).join().map_err(|_| "an end panicked".to_string())?
            });
            let ([put, call, take], [send, receive]) = found?;
            figures.iter_mut().zip([put, call, take, send, receive]).for_each(|(all, one)| all.push(one));
        }
        let rows = [
            "endpoint xdp: the frame is written",
            SENDTO,
            "endpoint xdp: the message is taken, and copied out",
            "kernel TCP: send, by which the packet is received, too",
            "kernel TCP: recv",
        ];
        for (row, figures) in rows.iter().zip(figures) {
            sheet.put(row, &[median(figures) * 1e6]);
        }
    }
    record.add(sheet);
    Ok(())
}

fn endpoint(hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<[f64; 3], String> {
    let carrier = Endpoints { name: "", carrier: Carrier::Own };
    let endpoints::Joined { ends: [(mut a, to_b), (mut b, _)], agents } = carrier.join(hosts, plan)?;
    let (bytes, mut copy, mut arrival) = (vec![7u8; size], vec![0; size], Arrival::empty());
    // Until the agent knows the neighbour nothing is sent.
    endpoints::send(&mut *a, to_b, &bytes)?;
    let (mut steps, began) = (Steps::new(), Instant::now());
    while began.elapsed() < plan.time {
        steps.begin();
        a.send(&endpoints::message(to_b, &bytes)).map_err(|error| format!("{error:?}"))?;
        steps.done(0);
        a.flush().map_err(|error| format!("{error:?}"))?;
        steps.done(1);
        if b.receive(&mut arrival) {
            arrival.copy_to(&b.segment(), 0, &mut copy);
            b.release(&mut arrival);
            steps.done(2);
        }
    }
    drop(agents);
    Ok(steps.medians())
}

fn tcp(hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<[f64; 2], String> {
    let [mut a, mut b] = kernel::Stream::join(hosts)?;
    let (bytes, mut copy) = (vec![7u8; size], vec![0; size]);
    let (mut steps, began) = (Steps::new(), Instant::now());
    // There and back, as in a round trip: an acknowledgement rides on what comes back.
    while began.elapsed() < plan.time {
        for _ in 0..2 {
            steps.begin();
            a.write_all(&bytes).map_err(|error| error.to_string())?;
            steps.done(0);
            if b.read_exact(&mut copy).is_ok() {
                steps.done(1);
            }
            std::mem::swap(&mut a, &mut b);
        }
    }
    Ok(steps.medians())
}
