//! AF_UNIX between two processes: a small round trip, and a stream. Shunt is asked for it (`--unix on`).

use std::io;
use std::time::Duration;

use super::pair::{Pair, Sides};
use super::pingpong::read;
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Turn};
use crate::measurement::{Figure, Unit};
use crate::programs::Measuring;

/// One connection to an abstract name, two pinned processes.
#[derive(Debug)]
pub struct Unix;

impl Cell for Unix {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn about(&self) -> &'static str {
        "AF_UNIX streams: 8-byte round trip and 64 KiB sends, two pinned processes; shunt with --unix on"
    }

    fn carriers(&self) -> &'static [Carrier] {
        &[Carrier::Kernel, Carrier::Shunt]
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, _: usize) -> io::Result<Turn> {
        let contender = &asked_for(contender);
        let (small, large) = (instrument.settings.round_trip_bytes, instrument.settings.stream_bytes);
        let milliseconds = instrument.settings.milliseconds;
        let samples = instrument.scratch.join("samples");
        let limit = ["--milliseconds".to_string(), milliseconds.to_string()];
        let pair = |program, size: usize, client: Vec<String>, instrument: &mut Instrument| {
            Pair {
                program,
                cores: Some((instrument.machine.server_core, instrument.machine.client_core)),
                both: &["--size".into(), size.to_string()],
                client: &client,
                measured: Duration::from_millis(milliseconds),
                look: false,
                sides: Sides::Both,
            }
            .over_unix(instrument, contender)
        };
        let client = [&limit[..], &["--samples".into(), samples.to_string_lossy().into_owned()]].concat();
        let trips = pair(Measuring::PingPong, small, client, instrument)?;
        let distribution = read(&samples)?;
        let mut figures: Vec<Figure> = [50.0, 99.0]
            .into_iter()
            .map(|percentile| {
                let name = format!("unix/{small}B/p{percentile}");
                Figure::percentile(name, format!("AF_UNIX, {small} B round trip, p{percentile}"), percentile, &distribution)
            })
            .collect();
        figures[0] = figures[0].clone().with_cpu(trips.cpu_per_operation_ns());
        let stream = pair(Measuring::Stream, large, limit.to_vec(), instrument)?;
        figures.push(
            Figure::new(
                format!("unix/{large}B/stream"),
                format!("AF_UNIX, {large} B sends"),
                Unit::BytesPerSecond,
                stream.client.operations as f64 / stream.client.elapsed_ns as f64 * 1e9,
            )
            .with_cpu(stream.cpu_per_operation_ns() * large as f64),
        );
        Ok(Turn { figures, accelerated: None })
    }
}

/// Shunt, asked to accelerate AF_UNIX.
fn asked_for(contender: &Contender) -> Contender {
    let mut contender = contender.clone();
    if contender.carrier == Carrier::Shunt {
        let end = contender.prefix.iter().position(|word| word == "--").unwrap_or(contender.prefix.len());
        contender.prefix.splice(end..end, ["--unix".into(), "on".into()]);
    }
    contender
}
