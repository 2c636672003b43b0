//! UDP on one host: what a program gains, and that none loses.

use std::io;
use std::time::Duration;

use super::pair;
use super::RUN_LIMIT;
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Turn};
use crate::measurement::{Figure, Unit};
use crate::process::Launch;
use crate::programs::Measuring;

/// Each way in which programs use datagrams, on two cores and on one.
#[derive(Debug)]
pub struct Datagrams;

/// Modes of the program, whether they count datagrams a second, and what they are.
const MODES: [(&str, bool, &str); 8] = [
    ("roundtrip", false, "question and answer"),
    ("epoll", false, "the server in epoll_wait"),
    ("info", false, "the server answers by IP_PKTINFO"),
    ("sleeping", true, "200 us between questions"),
    ("query", false, "a socket for each question"),
    ("stream", true, "one sender"),
    ("many", true, "four senders"),
    ("batch", true, "sendmmsg and recvmmsg"),
];

impl Cell for Datagrams {
    fn name(&self) -> &'static str {
        "datagrams"
    }

    fn about(&self) -> &'static str {
        "UDP datagrams of 64 bytes: questions and answers, streams, batches, on two cores and on one"
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, _: usize) -> io::Result<Turn> {
        let mut prefix = contender.prefix.clone();
        if contender.carrier == Carrier::Shunt {
            if let Some(place) = prefix.iter().position(|word| word == "--") {
                prefix.splice(place..place, ["--udp".into(), "on".into()]);
            }
        }
        let contender = Contender { carrier: contender.carrier, prefix };
        let milliseconds = instrument.settings.milliseconds;
        let (server, client) = (instrument.machine.server_core, instrument.machine.client_core);
        let mut figures = Vec::new();
        for (cores, client) in [("two cores", client), ("one core", server)] {
            for (mode, counts, what) in MODES {
                let finished = Launch::through(&contender, &Measuring::Datagrams.path(&instrument.scratch))
                    .args([mode, "--server-core", &server.to_string(), "--client-core", &client.to_string()])
                    .args(["--milliseconds", &milliseconds.to_string()])
                    .run(&instrument.scratch, Duration::from_millis(milliseconds) + RUN_LIMIT)?;
                let report = pair::report(&finished)?;
                let (operations, elapsed) = (report.operations.max(1) as f64, report.elapsed_ns as f64);
                let (unit, value) = match counts {
                    true => (Unit::PerSecond, operations * 1e9 / elapsed),
                    false => (Unit::Nanoseconds, elapsed / operations),
                };
                let key = format!("datagrams/{mode}/{}", cores.replace(' ', "-"));
                let figure = Figure::new(key, format!("{what}, {cores}"), unit, value);
                figures.push(figure.with_cpu(report.cpu_ns as f64 / operations));
            }
        }
        Ok(Turn { figures, accelerated: None })
    }
}
