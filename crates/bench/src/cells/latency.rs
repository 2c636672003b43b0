//! Round trips by size: where a message stops being one cache line, and where copying takes over.

use std::io;

use super::pingpong::{floor_distribution, floors_of, round_trips};
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Collector, Figure};
use crate::statistics::Distribution;

const SIZES: [usize; 10] = [1, 8, 48, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20];

/// One connection, two pinned processes, one message in flight, of sizes from 1 B to 1 MiB.
#[derive(Debug)]
pub struct Latency;

impl Cell for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn about(&self) -> &'static str {
        "round trips from 1 B to 1 MiB: p50, p99, p99.9; floors: a cache line to and fro (to 48 B), a bare ring, AF_UNIX"
    }

    fn carriers(&self) -> &'static [Carrier] {
        &[Carrier::Kernel, Carrier::KernelSpinning, Carrier::Shunt]
    }

    fn repeats(&self, settings: &Settings) -> usize {
        settings.repeats.min(5)
    }

    fn floors(&mut self, instrument: &mut Instrument, collector: &mut Collector) -> io::Result<()> {
        let distribution = floor_distribution(instrument)?;
        for size in SIZES.into_iter().filter(|size| *size <= 48) {
            collector.add_floor("cache line", figures(size, &distribution, None));
        }
        for size in SIZES {
            for (title, distribution) in floors_of(instrument, size, milliseconds(instrument))? {
                collector.add_floor(title, figures(size, &distribution, None));
            }
        }
        Ok(())
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let mut turn = Turn::default();
        let milliseconds = milliseconds(instrument);
        for size in SIZES {
            let look = repeat == 0 && size == 8;
            let (distribution, cpu, accelerated) = round_trips(instrument, contender, size, milliseconds, look)?;
            turn.figures.extend(figures(size, &distribution, Some(cpu)));
            turn.accelerated = accelerated.or(turn.accelerated);
        }
        Ok(turn)
    }
}

/// Ten sizes in the time of three: large ones need no more, small ones have thousands of rounds in it.
fn milliseconds(instrument: &Instrument) -> u64 {
    (instrument.settings.milliseconds / 3).max(10)
}

fn figures(size: usize, distribution: &Distribution, cpu: Option<f64>) -> Vec<Figure> {
    let figure = |percentile: f64| {
        let name = format!("latency/{size}B/p{percentile}");
        let title = format!("{} round trip, p{percentile}", super::bytes(size));
        let figure = Figure::percentile(name, title, percentile, distribution);
        match cpu {
            Some(cpu) if percentile == 50.0 => figure.with_cpu(cpu),
            _ => figure,
        }
    };
    [50.0, 99.0, 99.9].into_iter().map(figure).collect()
}
