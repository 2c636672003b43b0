//! One-way bulk transfer: the bandwidth that a large answer gets.

use std::io;
use std::time::Duration;

use super::pair::{self, Pair, PairReport, Sides};
use super::RUN_LIMIT;
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Turn};
use crate::measurement::{Collector, Figure, Unit};
use crate::process::Launch;
use crate::programs::Measuring;

/// One connection, one side sending, the other receiving, both with 64 KiB calls.
#[derive(Debug)]
pub struct Stream;

impl Cell for Stream {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn about(&self) -> &'static str {
        "64 KiB sends over one connection; floors: bare byte rings of 4 MiB to 256 KiB, memcpy, AF_UNIX"
    }

    fn floors(&mut self, instrument: &mut Instrument, collector: &mut Collector) -> io::Result<()> {
        // The first is as large as the largest ring of a connection.
        let kinds: [(&str, &[&str]); 4] = [
            ("byte ring 4 MiB", &["ring", "--capacity", "4194304"]),
            ("byte ring 1 MiB", &["ring", "--capacity", "1048576"]),
            ("byte ring 256 KiB", &["ring", "--capacity", "262144"]),
            ("memcpy in cache", &["memcpy"]),
        ];
        for (title, words) in kinds {
            let finished = Launch::plain(&Measuring::Floor.path(&instrument.scratch))
                .args(words)
                .args(["--core", &instrument.machine.client_core.to_string()])
                .args(["--peer-core", &instrument.machine.server_core.to_string()])
                .args(["--size", &instrument.settings.stream_bytes.to_string()])
                .args(["--milliseconds", &instrument.settings.milliseconds.to_string()])
                .run(&instrument.scratch, RUN_LIMIT)?;
            collector.add_floor(title, vec![figure(instrument.settings.stream_bytes, &pair::report(&finished)?)]);
        }
        for (title, carrier) in [("AF_UNIX", Carrier::Kernel), ("AF_UNIX, spinning", Carrier::KernelSpinning)] {
            let bare = Contender { carrier, prefix: Vec::new() };
            let report = run(instrument, &bare, false, |pair, instrument, contender| pair.over_unix(instrument, contender))?;
            collector.add_floor(title, vec![figure(instrument.settings.stream_bytes, &report.client)]);
        }
        Ok(())
    }

    fn carriers(&self) -> &'static [Carrier] {
        &[Carrier::Kernel, Carrier::KernelSpinning, Carrier::Shunt]
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let report =
            run(instrument, contender, contender.carrier == Carrier::Shunt && repeat == 0, |pair, instrument, contender| {
                pair.over_tcp(instrument, contender)
            })?;
        // CPU time of one message, so that the figure can be read beside its time.
        let cpu = report.cpu_per_operation_ns() * instrument.settings.stream_bytes as f64;
        let figure = figure(instrument.settings.stream_bytes, &report.client).with_cpu(cpu);
        Ok(Turn { figures: vec![figure], accelerated: report.accelerated })
    }
}

fn run(
    instrument: &mut Instrument,
    contender: &Contender,
    look: bool,
    over: fn(&Pair, &mut Instrument, &Contender) -> io::Result<PairReport>,
) -> io::Result<PairReport> {
    let milliseconds = instrument.settings.milliseconds;
    let spin = u32::from(contender.carrier == Carrier::KernelSpinning).to_string();
    let pair = Pair {
        program: Measuring::Stream,
        cores: Some((instrument.machine.server_core, instrument.machine.client_core)),
        both: &["--size".into(), instrument.settings.stream_bytes.to_string(), "--spin".into(), spin],
        client: &["--milliseconds".into(), milliseconds.to_string()],
        measured: Duration::from_millis(milliseconds),
        look,
        sides: Sides::Both,
    };
    over(&pair, instrument, contender)
}

fn figure(size: usize, report: &pair::Report) -> Figure {
    let rate = report.operations as f64 * 1e9 / report.elapsed_ns.max(1) as f64;
    Figure::new(format!("stream/{size}B"), format!("stream, {} sends", super::bytes(size)), Unit::BytesPerSecond, rate)
}
