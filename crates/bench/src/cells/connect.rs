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

    fn figure(self, forked: bool, report: &PairReport) -> Figure {
        let (name, title) = match (self, forked) {
            (Placement::OneCore, false) => ("connect/one-core", "connect+accept+close, one core"),
            (Placement::TwoCores, false) => ("connect/two-cores", "connect+accept+close, two cores"),
            (Placement::OneCore, true) => ("connect/forked/one-core", "the same, the server forked after listen"),
            (Placement::TwoCores, true) => ("connect/forked/two-cores", "the same, two cores"),
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
        "connect+accept+close, both ends on one core and on two; floor: the same over abstract AF_UNIX"
    }

    fn floors(&mut self, instrument: &mut Instrument, collector: &mut Collector) -> io::Result<()> {
        let bare = Contender { carrier: Carrier::Kernel, prefix: Vec::new() };
        for placement in Placement::all(instrument) {
            let report = pair(&options(false), placement.cores(instrument), false).over_unix(instrument, &bare)?;
            collector.add_floor("AF_UNIX", vec![placement.figure(false, &report), placement.figure(true, &report)]);
        }
        Ok(())
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let look = contender.carrier == Carrier::Shunt && repeat == 0;
        let mut turn = Turn::default();
        for forked in [false, true] {
            for placement in Placement::all(instrument) {
                let report = pair(&options(forked), placement.cores(instrument), look).over_tcp(instrument, contender)?;
                turn.figures.push(placement.figure(forked, &report));
                turn.accelerated = report.accelerated.or(turn.accelerated);
            }
        }
        Ok(turn)
    }
}

fn options(forked: bool) -> [String; 4] {
    ["--connections".into(), CONNECTIONS.to_string(), "--forked".into(), u32::from(forked).to_string()]
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
