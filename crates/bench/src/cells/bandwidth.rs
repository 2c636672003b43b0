//! Streams by size, and the two numbers that describe such a curve: r-infinity and n1/2.
//!
//! Fast Sockets, table 2: bandwidth follows `r n / (n + n1/2)`; r is what long messages reach, n1/2 the size that reaches
//! half of it.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use super::pair::{self, Pair, Sides};
use super::RUN_LIMIT;
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Collector, Figure, Unit};
use crate::process::Launch;
use crate::programs::Measuring;
use crate::statistics::fit_half_power;

const SIZES: [usize; 9] = [8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// As large as the largest ring of a connection.
const FLOOR_CAPACITY: &str = "4194304";

/// One connection, one direction, sends and receives of the same size.
#[derive(Debug)]
pub struct Bandwidth;

impl Cell for Bandwidth {
    fn name(&self) -> &'static str {
        "bandwidth"
    }

    fn about(&self) -> &'static str {
        "streams of 8 B to 1 MiB sends, with r-infinity and n1/2; floor: a bare byte ring of 4 MiB"
    }

    fn repeats(&self, settings: &Settings) -> usize {
        settings.repeats.min(5)
    }

    fn floors(&mut self, instrument: &mut Instrument, collector: &mut Collector) -> io::Result<()> {
        let mut rates = HashMap::new();
        for size in SIZES {
            let finished = Launch::plain(&Measuring::Floor.path(&instrument.scratch))
                .args(["ring", "--capacity", FLOOR_CAPACITY])
                .args(["--core", &instrument.machine.client_core.to_string()])
                .args(["--peer-core", &instrument.machine.server_core.to_string()])
                .args(["--size", &size.to_string()])
                .args(["--milliseconds", &milliseconds(instrument).to_string()])
                .run(&instrument.scratch, RUN_LIMIT)?;
            let report = pair::report(&finished)?;
            rates.insert(size, rate(&report));
        }
        collector.add_floor("byte ring 4 MiB", figures("bandwidth", "stream", &SIZES, &rates, None));
        collector.add_floor("byte ring 4 MiB", vec![smallest(&rates)]);
        Ok(())
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let (mut rates, mut cpu, mut turn) = (HashMap::new(), HashMap::new(), Turn::default());
        let milliseconds = milliseconds(instrument);
        for size in SIZES {
            let report = Pair {
                program: Measuring::Stream,
                cores: Some((instrument.machine.server_core, instrument.machine.client_core)),
                both: &["--size".into(), size.to_string()],
                client: &["--milliseconds".into(), milliseconds.to_string()],
                measured: Duration::from_millis(milliseconds),
                look: contender.carrier == Carrier::Shunt && repeat == 0 && size == SIZES[0],
                sides: Sides::Both,
            }
            .over_tcp(instrument, contender)?;
            rates.insert(size, rate(&report.client));
            cpu.insert(size, report.cpu_per_operation_ns() * size as f64);
            turn.accelerated = report.accelerated.or(turn.accelerated);
        }
        turn.figures = figures("bandwidth", "stream", &SIZES, &rates, Some(&cpu));
        turn.figures.push(smallest(&rates));
        Ok(turn)
    }
}

fn milliseconds(instrument: &Instrument) -> u64 {
    (instrument.settings.milliseconds / 3).max(10)
}

fn rate(report: &pair::Report) -> f64 {
    report.operations as f64 * 1e9 / report.elapsed_ns.max(1) as f64
}

/// The curve, named after the cell, and its fit. Titles begin with `who`, so that streams of several cells can stand in one table.
pub(super) fn figures(
    cell: &str,
    who: &str,
    sizes: &[usize],
    rates: &HashMap<usize, f64>,
    cpu: Option<&HashMap<usize, f64>>,
) -> Vec<Figure> {
    let mut all = Vec::new();
    for size in sizes {
        let title = format!("{who}, {} sends", super::bytes(*size));
        let figure = Figure::new(format!("{cell}/{size}B"), title, Unit::BytesPerSecond, rates[size]);
        all.push(match cpu {
            Some(cpu) => figure.with_cpu(cpu[size]),
            None => figure,
        });
    }
    let points: Vec<(f64, f64)> = sizes.iter().map(|size| (*size as f64, rates[size])).collect();
    let (most, half) = fit_half_power(&points);
    all.push(Figure::new(format!("{cell}/r-infinity"), format!("{who}, r-infinity"), Unit::BytesPerSecond, most));
    all.push(Figure::new(format!("{cell}/n-half"), format!("{who}, n1/2"), Unit::Bytes, half));
    all
}

/// How many of the smallest messages go in a second.
fn smallest(rates: &HashMap<usize, f64>) -> Figure {
    Figure::new("bandwidth/rate", "stream, rate of 8 B sends", Unit::PerSecond, rates[&SIZES[0]] / SIZES[0] as f64)
}
