//! Two processes of one measuring program: a server and its client, pinned.

use std::io;
use std::time::Duration;

use serde::Deserialize;

use super::{RUN_LIMIT, START_LIMIT};
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Instrument, Turn};
use crate::process::{Finished, Launch, Running};
use crate::programs::Measuring;

/// The line that a measuring program prints about itself.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Rounds, bytes or connections.
    pub operations: u64,
    /// Time that they took, as this side saw it.
    pub elapsed_ns: u64,
    /// CPU time of this side over that time.
    pub cpu_ns: u64,
    /// Host-wide clock at the start and the end, where the two sides measure together.
    pub start_ns: u64,
    /// See `start_ns`.
    pub end_ns: u64,
    /// Context switches of the longest sleep.
    pub context_switches: u64,
    /// Bytes of resident memory that its connections have added.
    pub resident: u64,
    /// Median time of a message by plain send, from memory of its own and from a pool, and by reference.
    pub plain_ns: u64,
    /// See `plain_ns`.
    pub pool_ns: u64,
    /// See `plain_ns`.
    pub reference_ns: u64,
    /// See `plain_ns`.
    pub file_ns: u64,
    /// The same by a plain send that lends its bytes.
    pub lent_ns: u64,
    /// Bytes that went by reference.
    pub referred: u64,
}

/// What both sides said.
#[derive(Clone, Copy, Debug)]
pub struct PairReport {
    /// The server's line.
    pub server: Report,
    /// The client's line.
    pub client: Report,
    /// Whether a link segment was seen in the server while it ran; `None` if no look was taken.
    pub accelerated: Option<bool>,
}

impl PairReport {
    /// CPU nanoseconds of both sides for each operation of the client.
    pub fn cpu_per_operation_ns(&self) -> f64 {
        (self.server.cpu_ns + self.client.cpu_ns) as f64 / self.client.operations.max(1) as f64
    }
}

/// Which ends are under shunt; the others are plain programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sides {
    /// Server and client.
    #[default]
    Both,
    /// The client alone.
    Client,
    /// The server alone.
    Server,
}

/// How to run a pair.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// Which program.
    pub program: Measuring,
    /// Core of the server and of the client; none: they run where the scheduler puts them.
    pub cores: Option<(usize, usize)>,
    /// Arguments of both sides.
    pub both: &'a [String],
    /// Further arguments of the client.
    pub client: &'a [String],
    /// How long the client measures.
    pub measured: Duration,
    /// Whether to look for a link segment while they run: once is enough, and looking costs time.
    pub look: bool,
    /// Which of them run behind the contender's prefix.
    pub sides: Sides,
}

impl Pair<'_> {
    /// Runs server and client through `contender` over loopback.
    pub fn over_tcp(&self, instrument: &mut Instrument, contender: &Contender) -> io::Result<PairReport> {
        let port = instrument.ports.take()?;
        self.at(instrument, contender, ["--port".into(), port.to_string()])
    }

    /// Runs server and client over an abstract AF_UNIX name.
    pub fn over_unix(&self, instrument: &mut Instrument, contender: &Contender) -> io::Result<PairReport> {
        // The scratch directory's name is unique on the host; the port makes each run's so.
        let unique = instrument.scratch.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = format!("{unique}-{}", instrument.ports.take()?);
        self.at(instrument, contender, ["--unix".into(), name])
    }

    fn at(&self, instrument: &Instrument, contender: &Contender, place: [String; 2]) -> io::Result<PairReport> {
        let scratch = &instrument.scratch;
        let path = self.program.path(scratch);
        let side = |contender: &Contender, role: &str, core: Option<usize>| {
            let core = core.map_or("-1".into(), |core| core.to_string());
            Launch::through(contender, &path).args([role, "--core", &core]).args(&place).args(self.both)
        };
        let bare = Contender { carrier: Carrier::Kernel, prefix: Vec::new() };
        let server = if self.sides == Sides::Client { &bare } else { contender };
        let client = if self.sides == Sides::Server { &bare } else { contender };
        let mut server = side(server, "server", self.cores.map(|cores| cores.0)).start(scratch)?;
        server.wait_for_output("ready", START_LIMIT)?;
        let client = side(client, "client", self.cores.map(|cores| cores.1)).args(self.client).start(scratch)?;
        let (client, accelerated) = finish_watching(client, &server, self.measured + RUN_LIMIT, self.look)?;
        let server = server.finish(RUN_LIMIT)?;
        Ok(PairReport { server: report(&server)?, client: report(&client)?, accelerated })
    }
}

/// Waits for a client and, if asked to, looks meanwhile whether the server holds a link: more and more
/// seldom, until it was seen.
pub fn finish_watching(
    mut client: Running,
    server: &Running,
    limit: Duration,
    look: bool,
) -> io::Result<(Finished, Option<bool>)> {
    let (mut looks, mut seen) = (0, false);
    for pause in [10, 30, 60, 150, 400, 1000] {
        if !look || seen || client.wait_end(Duration::from_millis(pause))? {
            break;
        }
        seen = server.maps_a_link();
        looks += 1;
    }
    // The first look may have come before the first connection.
    let accelerated = if looks > 1 || seen { Some(seen) } else { None };
    Ok((client.finish(limit)?, accelerated))
}

/// Runs a load generator to its end, and tells the turn whether shared memory was seen in the first of the servers. Gives what it
/// printed, and the CPU nanoseconds of all of them.
pub fn run_load(
    instrument: &Instrument,
    client: Launch,
    servers: &[Running],
    look: bool,
    turn: &mut Turn,
) -> io::Result<(String, f64)> {
    let cpu = || servers.iter().map(Running::cpu).sum::<Duration>();
    let before = cpu();
    let (finished, accelerated) = finish_watching(client.start(&instrument.scratch)?, &servers[0], RUN_LIMIT, look)?;
    turn.accelerated = accelerated.or(turn.accelerated);
    let cpu = cpu().saturating_sub(before) + finished.cpu;
    Ok((finished.output, cpu.as_nanos() as f64))
}

/// Reads the last line that a measuring program printed.
pub fn report(finished: &Finished) -> io::Result<Report> {
    let line = finished.output.lines().last().unwrap_or_default();
    serde_json::from_str(line).map_err(|error| io::Error::other(format!("cannot read {line:?}: {error}")))
}
