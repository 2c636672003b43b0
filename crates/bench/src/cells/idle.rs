//! Silent connections: what it costs to have them and do nothing.

use std::io;
use std::time::Duration;

use super::pair::Pair;
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Figure, Unit};
use crate::programs::Measuring;

/// Two processes with many connections that have carried messages and then stay silent.
#[derive(Debug)]
pub struct Idle;

impl Cell for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn about(&self) -> &'static str {
        "CPU time of two processes with 100 silent connections over ten seconds"
    }

    fn repeats(&self, _: &Settings) -> usize {
        // A state, not a speed: looking once, for long, says more than looking often.
        1
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, _: usize) -> io::Result<Turn> {
        let milliseconds = instrument.settings.idle_milliseconds;
        let connections = instrument.settings.idle_connections;
        let report = Pair {
            program: Measuring::Idle,
            cores: Some((instrument.machine.server_core, instrument.machine.client_core)),
            both: &["--connections".into(), connections.to_string()],
            client: &["--milliseconds".into(), milliseconds.to_string()],
            measured: Duration::from_millis(milliseconds),
            look: contender.carrier == Carrier::Shunt,
            bare_server: false,
        }
        .over_tcp(instrument, contender)?;
        let figure = Figure::new(
            "idle/cpu",
            format!("{connections} idle connections, CPU in {} s", milliseconds / 1000),
            Unit::CpuNanoseconds,
            (report.server.cpu_ns + report.client.cpu_ns) as f64,
        );
        Ok(Turn { figures: vec![figure], accelerated: report.accelerated })
    }
}
