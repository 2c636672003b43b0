//! A connection for each request: connect, 8 bytes there, 8 bytes back, close.

use std::io;
use std::time::Duration;

use super::pair::{Pair, Sides};
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Turn};
use crate::measurement::{Figure, Unit};
use crate::programs::Measuring;

/// Short-lived connections of one run, and of a long one: a server that keeps its rate.
const FEW: u32 = 2000;
const MANY: u32 = 10_000;

/// Two pinned processes, one connection at a time.
#[derive(Debug)]
pub struct Request;

impl Cell for Request {
    fn name(&self) -> &'static str {
        "request"
    }

    fn about(&self) -> &'static str {
        "connect, request, reply, close: 2,000 times, both ends on one core and on two, and 10,000 times"
    }

    fn carriers(&self) -> &'static [Carrier] {
        &[Carrier::Kernel, Carrier::KernelSpinning, Carrier::Shunt]
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let (server, client) = (instrument.machine.server_core, instrument.machine.client_core);
        let rows = [
            ("one-core", "connect+request+reply, one core", (server, server), FEW),
            ("two-cores", "connect+request+reply, two cores", (server, client), FEW),
            ("many", "the same, 10,000 connections", (server, client), MANY),
        ];
        let mut turn = Turn::default();
        for (name, title, cores, count) in rows {
            let mut both = vec!["--exchange".into(), "1".into(), "--connections".into(), count.to_string()];
            if contender.carrier == Carrier::KernelSpinning {
                // Two that spin on one core wait for the scheduler: no baseline.
                if cores.0 == cores.1 {
                    continue;
                }
                both.extend(["--spin".into(), "1".into()]);
            }
            let report = Pair {
                program: Measuring::Connect,
                cores: Some(cores),
                both: &both,
                client: &[],
                measured: Duration::from_secs(30),
                look: contender.carrier == Carrier::Shunt && repeat == 0,
                sides: Sides::Both,
            }
            .over_tcp(instrument, contender)?;
            let end = report.server.end_ns.max(report.client.end_ns);
            let each = (end - report.client.start_ns) as f64 / report.client.operations.max(1) as f64;
            let figure = Figure::new(format!("request/{name}"), title, Unit::Nanoseconds, each);
            turn.figures.push(figure.with_cpu(report.cpu_per_operation_ns()));
            turn.accelerated = report.accelerated.or(turn.accelerated);
        }
        Ok(turn)
    }
}
