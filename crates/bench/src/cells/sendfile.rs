//! One file sent over and over by sendfile, from memory, from a tmpfs and from a disk.

use std::io;
use std::time::Duration;

use super::pair::{Pair, Sides};
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Figure, Unit};
use crate::programs::Measuring;

const SIZES: [usize; 5] = [16 << 10, 128 << 10, 1 << 20, 4 << 20, 64 << 20];
/// What the receiver asks for.
const BUFFER: &str = "262144";

/// One connection, one direction, blocking calls.
#[derive(Debug)]
pub struct SendFile;

impl Cell for SendFile {
    fn name(&self) -> &'static str {
        "sendfile"
    }

    fn about(&self) -> &'static str {
        "a file of 16 KiB to 64 MiB sent over and over by sendfile: a memfd, a file of /dev/shm, one of a disk in memory"
    }

    fn carriers(&self) -> &'static [Carrier] {
        &[Carrier::Kernel, Carrier::Shunt]
    }

    fn repeats(&self, settings: &Settings) -> usize {
        settings.repeats.min(5)
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let disk = instrument.scratch.to_string_lossy().into_owned();
        let places = [("memfd", "memory"), ("tmpfs", "/dev/shm"), ("disk", disk.as_str())];
        let milliseconds = (instrument.settings.milliseconds / 2).max(20);
        let mut turn = Turn::default();
        for (kind, place) in places {
            for size in SIZES {
                let report = Pair {
                    program: Measuring::Stream,
                    cores: Some((instrument.machine.server_core, instrument.machine.client_core)),
                    both: &["--size".into(), size.to_string(), "--buffer".into(), BUFFER.into()],
                    client: &["--milliseconds".into(), milliseconds.to_string(), "--file".into(), place.into()],
                    measured: Duration::from_millis(milliseconds),
                    look: contender.carrier == Carrier::Shunt && repeat == 0 && size == SIZES[0],
                    sides: Sides::Both,
                }
                .over_tcp(instrument, contender)?;
                turn.accelerated = report.accelerated.or(turn.accelerated);
                let rate = report.client.operations as f64 * 1e9 / report.client.elapsed_ns.max(1) as f64;
                let title = format!("sendfile, {kind}, {}", super::bytes(size));
                let figure = Figure::new(format!("sendfile/{kind}/{size}B"), title, Unit::BytesPerSecond, rate);
                turn.figures.push(figure.with_cpu(report.cpu_per_operation_ns() * size as f64));
            }
        }
        Ok(turn)
    }
}
