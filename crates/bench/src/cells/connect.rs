//! Connection set-up and tear-down: what a connection per request pays.

use std::io;
use std::time::Duration;

use super::pair::{Pair, PairReport, Sides};
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Turn};
use crate::measurement::{Collector, Figure, Unit};
use crate::programs::Measuring;

/// Connections of one run: fewer than any listener's queue holds.
const CONNECTIONS: u32 = 2000;

/// A loop of connect and close against a loop of accept and close.
#[derive(Debug)]
pub struct Connect;

/// Where the two loops run.
#[derive(Clone, Copy, Debug)]
enum Placement {
    OneCore,
    TwoCores,
}

/// The processes that hold the listener.
#[derive(Clone, Copy, Debug)]
enum Server {
    /// One process that never forked.
    Alone,
    /// A child accepts, and its parent has the listener as well.
    Forked,
    /// Parent and child accept.
    Acceptors,
    /// A child came and went.
    AloneAgain,
}

impl Server {
    const ALL: [Server; 4] = [Server::Alone, Server::Forked, Server::Acceptors, Server::AloneAgain];

    /// `--forked` of `programs/connect.c`.
    fn options(self) -> [String; 4] {
        let forked = match self {
            Server::Alone => "0",
            Server::Forked => "1",
            Server::AloneAgain => "2",
            Server::Acceptors => "3",
        };
        ["--connections".into(), CONNECTIONS.to_string(), "--forked".into(), forked.into()]
    }
}

impl Placement {
    fn all(instrument: &Instrument) -> &'static [Placement] {
        match instrument.machine.server_core == instrument.machine.client_core {
            true => &[Placement::OneCore],
            false => &[Placement::OneCore, Placement::TwoCores],
        }
    }

    fn cores(self, instrument: &Instrument) -> (usize, usize) {
        let server = instrument.machine.server_core;
        match self {
            Placement::OneCore => (server, server),
            Placement::TwoCores => (server, instrument.machine.client_core),
        }
    }

    fn figure(self, server: Server, report: &PairReport) -> Figure {
        let (place, where_) = match self {
            Placement::OneCore => ("one-core", "one core"),
            Placement::TwoCores => ("two-cores", "two cores"),
        };
        let (name, title) = match server {
            Server::Alone => (format!("connect/{place}"), format!("connect+accept+close, {where_}")),
            Server::Forked => (format!("connect/forked/{place}"), format!("  child accepts, parent listens, {where_}")),
            Server::Acceptors => (format!("connect/acceptors/{place}"), format!("  two processes accept, {where_}")),
            Server::AloneAgain => (format!("connect/alone-again/{place}"), format!("  forked, alone again, {where_}")),
        };
        let end = report.server.end_ns.max(report.client.end_ns);
        let each = (end - report.client.start_ns) as f64 / report.client.operations.max(1) as f64;
        Figure::new(name, title, Unit::Nanoseconds, each).with_cpu(report.cpu_per_operation_ns())
    }
}

impl Cell for Connect {
    fn name(&self) -> &'static str {
        "connect"
    }

    fn about(&self) -> &'static str {
        "connect+accept+close, both ends on one core and on two, servers of one process and of several; floor: AF_UNIX"
    }

    fn floors(&mut self, instrument: &mut Instrument, collector: &mut Collector) -> io::Result<()> {
        let bare = Contender { carrier: Carrier::Kernel, prefix: Vec::new() };
        for placement in Placement::all(instrument) {
            let report = pair(&Server::Alone.options(), placement.cores(instrument), false).over_unix(instrument, &bare)?;
            collector.add_floor("AF_UNIX", Server::ALL.map(|server| placement.figure(server, &report)).to_vec());
        }
        Ok(())
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let look = contender.carrier == Carrier::Shunt && repeat == 0;
        let mut turn = Turn::default();
        for server in Server::ALL {
            for placement in Placement::all(instrument) {
                let report = pair(&server.options(), placement.cores(instrument), look).over_tcp(instrument, contender)?;
                turn.figures.push(placement.figure(server, &report));
                turn.accelerated = report.accelerated.or(turn.accelerated);
            }
        }
        Ok(turn)
    }
}

fn pair(both: &[String], cores: (usize, usize), look: bool) -> Pair<'_> {
    Pair {
        program: Measuring::Connect,
        cores: Some(cores),
        both,
        client: &[],
        measured: Duration::ZERO,
        look,
        sides: Sides::Both,
    }
}
