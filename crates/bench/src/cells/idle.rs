//! Silent connections: what it costs to have them and do nothing.

use std::io;
use std::time::Duration;

use super::pair::{Pair, Sides};
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Figure, Unit};
use crate::programs::Measuring;

/// Two processes with connections that have carried messages and then stay silent.
#[derive(Debug)]
pub struct Idle {
    name: &'static str,
    about: &'static str,
    /// How many, and how many messages each carries before; none: as the settings say.
    many: Option<(usize, u32)>,
}

impl Idle {
    /// Some, for long.
    pub fn few() -> Self {
        Idle { name: "idle", about: "CPU time of two processes with 100 silent connections over ten seconds", many: None }
    }

    /// Ten thousand, and the memory that they take.
    pub fn many() -> Self {
        let about = "CPU time of two processes with 10,000 silent connections, and resident memory of each connection";
        Idle { name: "idle-many", about, many: Some((10_000, 2)) }
    }
}

impl Cell for Idle {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn repeats(&self, _: &Settings) -> usize {
        // A state, not a speed: looking once, for long, says more than looking often.
        1
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, _: usize) -> io::Result<Turn> {
        let milliseconds = instrument.settings.idle_milliseconds;
        let connections = self.many.map_or(instrument.settings.idle_connections, |(connections, _)| connections);
        let mut client = vec!["--milliseconds".into(), milliseconds.to_string()];
        if let Some((_, messages)) = self.many {
            client.extend(["--messages".into(), messages.to_string()]);
        }
        let report = Pair {
            program: Measuring::Idle,
            cores: Some((instrument.machine.server_core, instrument.machine.client_core)),
            both: &["--connections".into(), connections.to_string()],
            client: &client,
            measured: Duration::from_millis(milliseconds),
            look: contender.carrier == Carrier::Shunt,
            sides: Sides::Both,
        }
        .over_tcp(instrument, contender)?;
        let mut figures = vec![Figure::new(
            format!("{}/cpu", self.name),
            format!("{connections} idle connections, CPU in {} s", milliseconds / 1000),
            Unit::CpuNanoseconds,
            (report.server.cpu_ns + report.client.cpu_ns) as f64,
        )];
        // Buffers of the kernel are in no process's memory: nothing to compare with.
        if self.many.is_some() && contender.carrier == Carrier::Shunt {
            for (side, report) in [("server", &report.server), ("client", &report.client)] {
                let title = format!("{connections} idle connections, resident memory of each, {side}");
                let each = report.resident as f64 / connections as f64;
                figures.push(Figure::new(format!("{}/resident/{side}", self.name), title, Unit::Bytes, each));
            }
        }
        Ok(Turn { figures, accelerated: report.accelerated })
    }
}
