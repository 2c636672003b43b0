//! `shunt bench hosts`: two hosts (network namespaces joined by a veth), and what carries messages between them.
//!
//! Contenders take turns, so that a busy moment hits all of them; each figure is the median of its turns. Both ends have a processor of
//! their own, and spin where the row does not say that they block.

mod contender;
mod endpoints;
mod kernel;
mod messages;
mod papers;
mod programs;
mod sharing;
mod switch;
mod tables;

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
pub use endpoints::Carrier;
use shunt_testkit::hosts::{pair, Joint};

/// How to measure.
pub struct Plan<'a> {
    /// The shunt command, which is the agent.
    pub shunt: &'a Path,
    /// Turns of each contender.
    pub repeats: usize,
    /// Measured time of one turn.
    pub time: Duration,
    /// Bytes of messages.
    pub sizes: Vec<usize>,
    /// Which tables.
    pub tables: Vec<Table>,
    /// Devices over which programs run under shunt.
    pub sockets: Vec<Carrier>,
    /// A directory with the measuring programs.
    pub scratch: &'a Path,
}

/// A table, or a few that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// Round trips.
    RoundTrip,
    /// One host sends as fast as it can.
    Stream,
    /// A stream while a switch drops packets.
    Loss,
    /// redis-benchmark with one connection, with fifty, and with several requests under way in each.
    Redis,
    /// A stream beside kernel TCP over one slow link.
    Share,
    /// Several endpoints on one AF_XDP queue.
    Multiplexed,
    /// The tables of U-Net and Fast Sockets.
    Papers,
}

impl Plan<'_> {
    /// Processors of the client's and the server's host.
    fn cores(&self) -> (usize, usize) {
        let last = std::thread::available_parallelism().map_or(1, usize::from).min(2) - 1;
        (0, last)
    }
}

/// Measures and prints.
///
/// # Errors
/// A sentence: no privilege, an agent that does not start.
pub fn run(plan: &Plan<'_>) -> Result<(), String> {
    let hosts = pair(Joint::default()).map_err(|error| format!("two hosts cannot be made: {error}"))?;
    println!("two network namespaces, one veth of one queue, MTU 1500; median of {} turns\n", plan.repeats);
    let mut sockets = Vec::new();
    for carrier in &plan.sockets {
        if programs::accelerates(*carrier, &hosts, plan)? {
            sockets.push(*carrier);
        } else {
            println!("streams under shunt over {} go through the kernel here, and are left out\n", carrier.word());
        }
    }
    let plan = &Plan { sockets, sizes: plan.sizes.clone(), tables: plan.tables.clone(), ..*plan };
    for table in &plan.tables {
        match table {
            Table::RoundTrip => tables::round_trips(&hosts, plan)?,
            Table::Stream => tables::streams(&hosts, plan)?,
            Table::Loss => tables::loss(plan)?,
            Table::Redis => tables::redis(&hosts, plan)?,
            Table::Share => tables::share(plan)?,
            Table::Papers => papers::papers(&hosts, plan)?,
            Table::Multiplexed => tables::multiplexed(&hosts, plan)?,
        }
    }
    Ok(())
}
