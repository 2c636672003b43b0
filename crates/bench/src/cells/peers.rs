//! Other people's measuring programs: sockperf and netperf as clients and servers; UCX's active messages over shared memory and
//! iceoryx2's publish-subscribe as points of reference.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::pair::finish_watching;
use super::{RUN_LIMIT, START_LIMIT};
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Collector, Figure, Unit};
use crate::network::is_listening;
use crate::process::{Launch, Running};
use crate::programs::External;

const SOCKPERF: External = External { name: "sockperf", package: "sockperf" };
pub(super) const NETPERF: External = External { name: "netperf", package: "netperf" };
pub(super) const NETSERVER: External = External { name: "netserver", package: "netperf" };
/// UCX's own.
pub const UCX: External = External { name: "ucx_perftest", package: "ucx-utils" };
/// `crates/bench/iceoryx2`, which `cargo install --path` puts where cargo puts programs.
const ICEORYX2: External = External { name: "iceoryx2-latency", package: "none: cargo install --path crates/bench/iceoryx2" };
/// What sockperf's smallest message has.
const BYTES: &str = "14";

/// Round trips in a second at most: sockperf has room for 600,000, and gives up when there are more.
const MOST: &str = "400000";

/// netperf tells streams in 10^6 bits a second.
pub(super) const STREAM_UNIT: f64 = 125e3;

/// netperf's tests: row, title, its name, its own options, unit, and what its figure is to be multiplied by.
const TESTS: [(&str, &str, &str, &[&str], Unit, f64); 3] = [
    ("peers/netperf/rr", "netperf TCP_RR, 1 B", "TCP_RR", &[], Unit::PerSecond, 1.0),
    ("peers/netperf/crr", "netperf TCP_CRR, 1 B", "TCP_CRR", &[], Unit::PerSecond, 1.0),
    (
        "peers/netperf/stream",
        "netperf TCP_STREAM, 64 KiB",
        "TCP_STREAM",
        &["--", "-m", "65536"],
        Unit::BytesPerSecond,
        STREAM_UNIT,
    ),
];

/// Each with the server on one core and the client on the other.
#[derive(Debug)]
pub struct Peers;

impl Cell for Peers {
    fn name(&self) -> &'static str {
        "peers"
    }

    fn about(&self) -> &'static str {
        "sockperf and netperf as they are; beside them UCX and iceoryx2 over shared memory: whichever is installed"
    }

    /// Whichever of the two is there is asked.
    fn prepare(&mut self, _: &mut Instrument) -> io::Result<()> {
        match (SOCKPERF.find(), NETPERF.find()) {
            (Err(one), Err(other)) => Err(io::Error::other(format!("{one}, and {other}"))),
            _ => Ok(()),
        }
    }

    fn repeats(&self, settings: &Settings) -> usize {
        // Both measure whole seconds; of sockperf's, the first and the last half do not count.
        settings.repeats.min(5)
    }

    fn floors(&mut self, instrument: &mut Instrument, collector: &mut Collector) -> io::Result<()> {
        if let Ok(program) = UCX.find() {
            let figure = Figure::new("peers/sockperf/p50", TITLE, Unit::Nanoseconds, ucx(instrument, &program)?);
            collector.add_floor("UCX am_lat, shared memory", vec![figure]);
        }
        if let Ok(program) = ICEORYX2.find() {
            let cores = [instrument.machine.client_core, instrument.machine.server_core].map(|core| core.to_string());
            let finished = Launch::plain(&program).args(cores).args(["100000"]).run(&instrument.scratch, RUN_LIMIT)?;
            let median = finished.output.trim().parse();
            let median = median.map_err(|_| io::Error::other(format!("iceoryx2-latency printed {:?}", finished.output)))?;
            let figure = Figure::new("peers/sockperf/p50", TITLE, Unit::Nanoseconds, median);
            collector.add_floor("iceoryx2, publish-subscribe", vec![figure]);
        }
        Ok(())
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let mut turn = match SOCKPERF.find() {
            Ok(_) => sockperf(instrument, contender, repeat)?,
            Err(_) => Turn::default(),
        };
        if NETPERF.find().is_ok() {
            turn.figures.extend(netperf(instrument, contender)?);
        }
        Ok(turn)
    }
}

/// Nanoseconds of UCX's way there and back.
fn ucx(instrument: &mut Instrument, program: &Path) -> io::Result<f64> {
    let port = instrument.ports.take()?.to_string();
    // One transport alone: what it is asked to measure; the others serve to find each other.
    let arguments = ["-p", &port, "-t", "am_lat", "-x", "posix", "-d", "memory", "-s", BYTES, "-n", "100000", "-f"];
    let mut server =
        Launch::plain(program).args(&arguments[..2]).core(instrument.machine.server_core).start(&instrument.scratch)?;
    server.wait_until("listening", START_LIMIT, |_| is_listening(port.parse().expect("a port")))?;
    let client = Launch::plain(program)
        .args(["127.0.0.1"])
        .args(arguments)
        .core(instrument.machine.client_core)
        .run(&instrument.scratch, RUN_LIMIT)?;
    Ok(ucx_one_way(&client.output)? * 2e3)
}

fn sockperf(instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
    let look = contender.carrier == Carrier::Shunt && repeat == 0;
    let port = instrument.ports.take()?;
    let place = ["--tcp", "-i", "127.0.0.1", "-p", &port.to_string()].map(String::from);
    let mut server = server(instrument, contender, SOCKPERF, &["server"], &place)?;
    server.wait_until("listening", START_LIMIT, |_| is_listening(port))?;
    let client = Launch::through(contender, &SOCKPERF.find().map_err(io::Error::other)?)
        .args(["ping-pong", "-m", BYTES, "-t", "2", "--full-rtt", "--mps", MOST])
        .args(&place)
        .core(instrument.machine.client_core)
        .start(&instrument.scratch)?;
    let (finished, accelerated) = finish_watching(client, &server, RUN_LIMIT, look)?;
    let figure = Figure::new("peers/sockperf/p50", TITLE, Unit::Nanoseconds, sockperf_median(&finished.output)? * 1e3);
    Ok(Turn { figures: vec![figure], accelerated })
}

fn netperf(instrument: &mut Instrument, contender: &Contender) -> io::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let server = Netserver::start(instrument, contender)?;
    for (row, title, test, options, unit, factor) in TESTS {
        let asked = server.ask(instrument, contender, test, options, false)?;
        let value = asked.rate * factor;
        // A transaction each; for the stream, 64 KiB each. The test lasts a second.
        let operations = if unit == Unit::BytesPerSecond { value / 65536.0 } else { value };
        figures.push(Figure::new(row, title, unit, value).with_cpu(asked.cpu_ns / operations));
    }
    server.stop();
    Ok(figures)
}

/// netperf's server, and where it listens.
#[derive(Debug)]
pub(super) struct Netserver {
    running: Running,
    port: u16,
}

/// What one test of netperf told: its last figure, CPU nanoseconds of both ends, and whether shared memory was seen.
#[derive(Debug)]
pub(super) struct Asked {
    pub rate: f64,
    pub cpu_ns: f64,
    pub accelerated: Option<bool>,
}

impl Netserver {
    /// Without children (`-f`): it does not wait for them, so their CPU time would not be counted.
    pub(super) fn start(instrument: &mut Instrument, contender: &Contender) -> io::Result<Self> {
        let port = instrument.ports.take()?;
        let mut running = server(instrument, contender, NETSERVER, &["-D", "-f", "-4", "-L", "127.0.0.1"], &place_of(port))?;
        running.wait_until("listening", START_LIMIT, |_| is_listening(port))?;
        Ok(Netserver { running, port })
    }

    /// One test, which lasts a second.
    pub(super) fn ask(
        &self,
        instrument: &Instrument,
        contender: &Contender,
        test: &str,
        options: &[&str],
        look: bool,
    ) -> io::Result<Asked> {
        let before = self.running.cpu();
        let client = Launch::through(contender, &NETPERF.find().map_err(io::Error::other)?)
            .args(["-H", "127.0.0.1", "-t", test, "-l", "1", "-P", "0"])
            .args(place_of(self.port))
            .args(options)
            .core(instrument.machine.client_core)
            .start(&instrument.scratch)?;
        let (finished, accelerated) = finish_watching(client, &self.running, RUN_LIMIT, look)?;
        let cpu_ns = (self.running.cpu().saturating_sub(before) + finished.cpu).as_nanos() as f64;
        Ok(Asked { rate: netperf_rate(&finished.output)?, cpu_ns, accelerated })
    }

    pub(super) fn stop(self) {
        self.running.stop(nix::sys::signal::Signal::SIGTERM, Duration::from_secs(2));
    }
}

const TITLE: &str = "sockperf ping-pong, 14 B, p50";

fn place_of(port: u16) -> [String; 2] {
    ["-p".into(), port.to_string()]
}

fn server(
    instrument: &Instrument,
    contender: &Contender,
    program: External,
    words: &[&str],
    place: &[String],
) -> io::Result<Running> {
    Launch::through(contender, &program.find().map_err(io::Error::other)?)
        .args(words)
        .args(place)
        .core(instrument.machine.server_core)
        .start(&instrument.scratch)
}

/// Microseconds of `---> percentile 50.000 =   68.601`.
fn sockperf_median(output: &str) -> io::Result<f64> {
    let line = output.lines().find(|line| line.contains("percentile 50.000"));
    line.and_then(|line| line.split('=').nth(1)?.trim().parse().ok())
        .ok_or_else(|| io::Error::other(format!("sockperf printed no percentile: {output:?}")))
}

/// The last word of the first line with figures: a rate.
fn netperf_rate(output: &str) -> io::Result<f64> {
    let fields = |line: &str| line.split_ascii_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
    let figures = output.lines().filter_map(|line| fields(line).ok()).find(|fields| fields.len() >= 5);
    figures
        .and_then(|fields| fields.last().copied())
        .filter(|rate| *rate > 0.0)
        .ok_or_else(|| io::Error::other(format!("netperf printed no rate: {output:?}")))
}

/// Microseconds one way: in the last line, behind the count of iterations stands the median.
pub fn ucx_one_way(output: &str) -> io::Result<f64> {
    let line = output.lines().rev().find(|line| !line.trim().is_empty());
    line.and_then(|line| line.trim().trim_start_matches("Final:").split_ascii_whitespace().nth(1)?.parse().ok())
        .ok_or_else(|| io::Error::other(format!("ucx_perftest printed no latency: {output:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_read() {
        assert_eq!(sockperf_median("sockperf: ---> percentile 50.000 =   68.601\n").unwrap(), 68.601);
        assert_eq!(netperf_rate("16384  131072 1        1       1.00     38547.60   \n16384  131072 \n").unwrap(), 38547.6);
        assert_eq!(netperf_rate("131072  16384  16384    1.00     6600.93   \n").unwrap(), 6600.93);
        assert_eq!(
            ucx_one_way("|  Test  | # iterations |\n       100000      0.135     0.170     0.170       78.42\n").unwrap(),
            0.135
        );
        let final_line = "Final:                200000      0.542     4.078     7.804        1.87\n";
        assert_eq!(ucx_one_way(final_line).unwrap(), 0.542);
        assert!(sockperf_median("").is_err() && netperf_rate("establish control: are you sure\n").is_err());
        assert!(ucx_one_way("").is_err() && ucx_one_way("+----+\n").is_err());
    }
}
