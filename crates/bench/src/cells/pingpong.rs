//! Round trips of a small message: the latency that a request pays.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::pair::{self, Pair, PairReport, Sides};
use super::RUN_LIMIT;
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Turn};
use crate::measurement::{Collector, Figure};
use crate::process::Launch;
use crate::programs::Measuring;
use crate::statistics::Distribution;

/// One connection, two pinned processes, one message in flight.
#[derive(Debug)]
pub struct PingPong;

impl Cell for PingPong {
    fn name(&self) -> &'static str {
        "pingpong"
    }

    fn about(&self) -> &'static str {
        "8-byte round trip by plain send/recv, two pinned processes; floors: a cache line to and fro, a bare ring, AF_UNIX"
    }

    fn carriers(&self) -> &'static [Carrier] {
        &[Carrier::Kernel, Carrier::KernelSpinning, Carrier::Shunt]
    }

    fn floors(&mut self, instrument: &mut Instrument, collector: &mut Collector) -> io::Result<()> {
        let (size, milliseconds) = (instrument.settings.round_trip_bytes, instrument.settings.milliseconds);
        let distribution = floor_distribution(instrument)?;
        collector.add_floor("cache line", figures(size, &distribution, None));
        for (title, distribution) in floors_of(instrument, size, milliseconds)? {
            collector.add_floor(title, figures(size, &distribution, None));
        }
        Ok(())
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let (size, milliseconds) = (instrument.settings.round_trip_bytes, instrument.settings.milliseconds);
        let (distribution, cpu, accelerated) = round_trips(instrument, contender, size, milliseconds, repeat == 0)?;
        Ok(Turn { figures: figures(size, &distribution, Some(cpu)), accelerated })
    }
}

/// One run of the floor: a cache line to and fro.
pub(super) fn floor_distribution(instrument: &Instrument) -> io::Result<Distribution> {
    floor(instrument, &["line"], instrument.settings.milliseconds)
}

/// What else carries messages of `size` bytes to and fro: a bare ring each way, as large as the largest of a connection; and the
/// kernel's AF_UNIX, sleeping and spinning.
pub(super) fn floors_of(
    instrument: &mut Instrument,
    size: usize,
    milliseconds: u64,
) -> io::Result<[(&'static str, Distribution); 3]> {
    let ring = floor(instrument, &["trip", "--capacity", "4194304", "--size", &size.to_string()], milliseconds)?;
    let mut unix = |carrier| {
        let bare = Contender { carrier, prefix: Vec::new() };
        trips(instrument, &bare, size, milliseconds, false, |pair, instrument, contender| pair.over_unix(instrument, contender))
    };
    let (asleep, spinning) = (unix(Carrier::Kernel)?.0, unix(Carrier::KernelSpinning)?.0);
    Ok([("byte ring 4 MiB", ring), ("AF_UNIX", asleep), ("AF_UNIX, spinning", spinning)])
}

fn floor(instrument: &Instrument, words: &[&str], milliseconds: u64) -> io::Result<Distribution> {
    let samples = instrument.scratch.join("samples");
    let finished = Launch::plain(&Measuring::Floor.path(&instrument.scratch))
        .args(words)
        .args(["--core", &instrument.machine.client_core.to_string()])
        .args(["--peer-core", &instrument.machine.server_core.to_string()])
        .args(["--milliseconds", &milliseconds.to_string()])
        .args(["--samples".as_ref(), samples.as_os_str()])
        .run(&instrument.scratch, RUN_LIMIT)?;
    pair::report(&finished)?;
    read(&samples)
}

/// The distribution of round trips, CPU nanoseconds of each, and whether shared memory was seen, if a look was taken.
type Trips = (Distribution, f64, Option<bool>);

/// One run of round trips of `size` bytes over TCP; whether shared memory was seen only if `look`.
pub(super) fn round_trips(
    instrument: &mut Instrument,
    contender: &Contender,
    size: usize,
    milliseconds: u64,
    look: bool,
) -> io::Result<Trips> {
    trips(
        instrument,
        contender,
        size,
        milliseconds,
        look && contender.carrier == Carrier::Shunt,
        |pair, instrument, contender| pair.over_tcp(instrument, contender),
    )
}

fn trips(
    instrument: &mut Instrument,
    contender: &Contender,
    size: usize,
    milliseconds: u64,
    look: bool,
    over: fn(&Pair, &mut Instrument, &Contender) -> io::Result<PairReport>,
) -> io::Result<Trips> {
    let samples = instrument.scratch.join("samples");
    let mut both = vec!["--size".into(), size.to_string()];
    if contender.carrier == Carrier::KernelSpinning {
        both.extend(["--spin".into(), "1".into()]);
    }
    let pair = Pair {
        program: Measuring::PingPong,
        cores: Some((instrument.machine.server_core, instrument.machine.client_core)),
        both: &both,
        client: &["--milliseconds".into(), milliseconds.to_string(), "--samples".into(), samples.to_string_lossy().into_owned()],
        measured: Duration::from_millis(milliseconds),
        look,
        sides: Sides::Both,
    };
    let report = over(&pair, instrument, contender)?;
    Ok((read(&samples)?, report.cpu_per_operation_ns(), report.accelerated))
}

/// Median and 99th percentile of one run.
fn figures(size: usize, distribution: &Distribution, cpu: Option<f64>) -> Vec<Figure> {
    [50.0, 99.0]
        .into_iter()
        .map(|percentile| {
            let (name, title) = (format!("pingpong/{size}B/p{percentile}"), format!("{size} B round trip, p{percentile}"));
            let figure = Figure::percentile(name, title, percentile, distribution);
            match (percentile, cpu) {
                (50.0, Some(cpu)) => figure.with_cpu(cpu).with_distribution(distribution.clone()),
                (50.0, None) => figure.with_distribution(distribution.clone()),
                _ => figure,
            }
        })
        .collect()
}

/// Samples as the C programs write them: 32-bit nanoseconds in the machine's byte order.
pub(super) fn read(path: &Path) -> io::Result<Distribution> {
    let bytes = fs::read(path)?;
    fs::remove_file(path)?;
    let samples: Vec<u32> = bytes.chunks_exact(4).map(|four| u32::from_ne_bytes(four.try_into().unwrap())).collect();
    match samples.is_empty() {
        true => Err(io::Error::other("not one round trip was measured")),
        false => Ok(Distribution::of(&samples)),
    }
}
