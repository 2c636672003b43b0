//! `shunt bench hosts`: two hosts (network namespaces joined by a veth), and what carries messages between them.
//!
//! Contenders take turns, so that a busy moment hits all of them; each figure is the median of its turns. Both ends have a
//! processor of their own, and spin where the row does not say that they block.

mod aims;
mod beside;
pub mod calls;
pub(crate) mod contender;
mod datagrams;
pub(crate) mod endpoints;
mod halves;
mod hand_over;
mod inet;
mod kernel;
mod lossy;
pub mod messages;
mod near;
mod papers;
mod parts;
mod programs;
mod record;
mod served;
mod sharing;
mod shm;
mod switch;
mod tables;
mod taken;
mod ucx;
mod unet;

use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;
pub use endpoints::Carrier;
use record::Record;
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
    /// Directory of hosts.txt and hosts.json.
    pub output: &'a Path,
}

/// A table, or a few that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// One host: active messages over shm beside the bare endpoint, a bare ring and UCX.
    Shm,
    /// Endpoints over libfabric, if this was built with the feature libfabric.
    Fabric,
    /// Round trips.
    RoundTrip,
    /// What a message over xdp and one over kernel TCP cost by parts.
    Parts,
    /// One host sends as fast as it can.
    Stream,
    /// A stream of large sends: sockets, the endpoint beneath them, kernel TCP with segmentation offload and without.
    Bulk,
    /// Sockets beside the endpoint beneath them, turn by turn, with quartiles.
    Beside,
    /// A stream while a switch drops packets.
    Loss,
    /// redis-benchmark with one connection, with fifty, and with several requests under way in each.
    Redis,
    /// A stream beside kernel TCP over one slow link.
    Share,
    /// Several endpoints on one AF_XDP queue.
    Multiplexed,
    /// Programs under shunt whose peer has only a kernel, and the same without shunt.
    Inet,
    /// Programs whose connections are taken from the kernel, through a switch that loses packets, which the engine recovers from, or the kernel.
    InetLoss,
    /// Two network namespaces on one bridge, under shunt with a directory in common: beside one namespace, and beside the kernel.
    Near,
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
    let began = Instant::now();
    let mut record = Record::new(plan.repeats, plan.time.as_millis() as u64);
    let mut sockets = Vec::new();
    for carrier in &plan.sockets {
        if programs::accelerates(*carrier, &hosts, plan)? {
            sockets.push(*carrier);
        } else {
            record.say(&format!("streams under shunt over {} go through the kernel here, and are left out\n", carrier.word()));
        }
    }
    let plan = &Plan { sockets, sizes: plan.sizes.clone(), tables: plan.tables.clone(), ..*plan };
    let record = &mut record;
    for table in &plan.tables {
        match table {
            Table::Shm => shm::add(plan, record)?,
            Table::Fabric => tables::fabric(&hosts, plan, record)?,
            Table::RoundTrip => tables::round_trips(&hosts, plan, record)?,
            Table::Parts => parts::parts(&hosts, plan, record)?,
            Table::Stream => tables::streams(&hosts, plan, record)?,
            Table::Bulk => tables::bulk(&hosts, plan, record)?,
            Table::Beside => tables::beside_the_endpoint(&hosts, plan, record)?,
            Table::Loss => tables::loss(plan, record)?,
            Table::Redis => tables::redis(&hosts, plan, record)?,
            Table::Share => tables::share(plan, record)?,
            Table::Inet => inet::inet(&hosts, plan, record)?,
            Table::InetLoss => lossy::lossy(plan, record)?,
            Table::Near => near::near(plan, record)?,
            Table::Papers => papers::papers(&hosts, plan, record)?,
            Table::Multiplexed => tables::multiplexed(&hosts, plan, record)?,
        }
    }
    aims::add(record);
    record.write(plan.output, began.elapsed().as_secs_f64()).map_err(|error| format!("{}: {error}", plan.output.display()))
}
