//! Programs whose connections are taken from the kernel, on a path that loses packets: the engine recovers, or gives back so that the kernel does, beside
//! the kernel alone. The peer is plain.

use std::io;
use std::time::Duration;

use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::{segment, Host, Joint, Segment};
use shunt_testkit::wire::{Path, Wire};

use super::programs::{next_port, Way, RUN_LIMIT, START_LIMIT};
use super::record::{Record, Sheet};
use super::switch::Switched;
use super::tables::{fewer, median};
use super::Plan;
use crate::cells::pair::Report;
use crate::programs::Measuring;

const TITLE: &str = "connections with a plain peer, packets lost on the way";

/// What recovers from losses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Recovery {
    Kernel,
    GivesBack,
    Own,
}

const ALL: [Recovery; 3] = [Recovery::Kernel, Recovery::GivesBack, Recovery::Own];

impl Recovery {
    fn way(self) -> Way {
        if self == Recovery::Kernel {
            Way::Blocking
        } else {
            Way::Taken
        }
    }

    /// The first host's agent, where one is needed.
    fn agent(self, host: &Host, plan: &Plan<'_>) -> Result<Option<Agent>, String> {
        let how = match self {
            Recovery::Kernel => return Ok(None),
            Recovery::GivesBack => "give-back",
            Recovery::Own => "own",
        };
        Agent::start(host, plan.shunt, &["--lend", "0", "--take", "--recovery", how]).map(Some)
    }
}

/// Packets of a thousand that are lost, each way, and the names of that.
const SHARES: [(u32, &str); 4] = [(0, "none"), (1, "0.1 %"), (10, "1 %"), (50, "5 %")];
/// Rows of each, and whether less is better.
const ROWS: [(&str, bool); 8] = [
    ("8 B there and back, 16 connections, in a second", false),
    ("median, us", true),
    ("99th percentile, us", true),
    ("8 KiB there and back, 16 connections, in a second", false),
    ("8 KiB, median, us", true),
    ("8 KiB, 99th percentile, us", true),
    ("stream to the peer, Mb/s", false),
    ("stream from the peer, Mb/s", false),
];

/// All of it.
///
/// # Errors
/// A sentence.
pub fn lossy(plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let few = fewer(plan);
    let mut sheet = Sheet::new(TITLE, &["kernel", "give back", "own", "own/kernel", "own/give"], &[0, 0, 0, 2]);
    let site = Switched::new()?;
    for (share, name) in SHARES {
        let lossy = site.lose(share).map_err(|error| format!("no program may be put at the interface: {error}"))?;
        add(&mut sheet, &format!("no delay, lost: {name}"), &site.hosts, &few)?;
        drop(lossy);
    }
    drop(site);
    for (share, name) in SHARES {
        let Segment { hosts, switch } = segment(2, Joint::default())?;
        let hosts: [Host; 2] = hosts.try_into().map_err(|_| "two hosts were asked for".to_string())?;
        let path = Path { delay: Duration::from_millis(5), lost: u64::from(share) * 10, ..Path::default() };
        let wire = Wire::new(switch, &hosts, path).map_err(|error| format!("a wire: {error}"))?;
        add(&mut sheet, &format!("5 ms each way, lost: {name}"), &hosts, &few)?;
        drop(wire);
    }
    record.add(sheet);
    Ok(())
}

/// Rows of one path: all three take turns, and ratios are medians of those of single turns.
fn add(sheet: &mut Sheet, path: &str, hosts: &[Host; 2], plan: &Plan<'_>) -> Result<(), String> {
    let mut figures: [Vec<[f64; 8]>; 3] = Default::default();
    for _ in 0..plan.repeats {
        for (recovery, figures) in ALL.into_iter().zip(&mut figures) {
            let _agent = recovery.agent(&hosts[0], plan)?;
            figures.push(turn(recovery.way(), hosts, plan).map_err(|error| format!("{path}: {error}"))?);
        }
    }
    for (row, (what, is_time)) in ROWS.into_iter().enumerate() {
        let name = format!("{path}: {what}");
        let ratio = |below: usize| {
            let pairs = figures[2].iter().zip(&figures[below]).map(|(own, other)| (own[row], other[row]));
            median(pairs.map(|(own, other)| if is_time { other / own } else { own / other }).collect())
        };
        sheet.put(&name, &[0, 1, 2].map(|at: usize| median(figures[at].iter().map(|figure| figure[row]).collect())));
        sheet.put(&name, &[ratio(0), ratio(1)]);
    }
    Ok(())
}

/// One of each kind. The program on the first host is the one of which this is measured.
fn turn(way: Way, hosts: &[Host; 2], plan: &Plan<'_>) -> io::Result<[f64; 8]> {
    let [here, peer] = [(way, &hosts[0]), (Way::Blocking, &hosts[1])];
    let samples = plan.scratch.join("samples").display().to_string();
    let long = Plan { time: plan.time * LONGER, sizes: Vec::new(), tables: Vec::new(), sockets: Vec::new(), ..*plan };
    let round_trips = |size| {
        let both = ["--size", size, "--wait", "epoll", "--connections", CONNECTIONS];
        let report = pair(Measuring::Load, &long, (here, &["--samples", &samples]), (peer, &[]), &both)?;
        // Pairs of a size and a time.
        let bytes = std::fs::read(&samples)?;
        let times = bytes.chunks_exact(8).map(|pair| u32::from_ne_bytes([pair[4], pair[5], pair[6], pair[7]]));
        let mut times: Vec<u32> = times.collect();
        times.sort_unstable();
        let at = |share: usize| times.get(times.len() * share / 100).map_or(f64::NAN, |time| f64::from(*time) / 1e3);
        Ok::<_, io::Error>([report.operations as f64 * 1e9 / report.elapsed_ns.max(1) as f64, at(50), at(99)])
    };
    let stream = |client, server| {
        let report = pair(Measuring::Stream, plan, (client, &[]), (server, &[]), &["--size", "65536"])?;
        Ok::<f64, io::Error>(report.operations as f64 * 8e3 / report.elapsed_ns.max(1) as f64)
    };
    let ([a, b, c], [d, e, f]) = (round_trips("8")?, round_trips("8192")?);
    Ok([a, b, c, d, e, f, stream(here, peer)?, stream(peer, here)?])
}

/// Losses are rare, and round trips of one connection few: so a longer time, and several.
const LONGER: u32 = 4;
const CONNECTIONS: &str = "16";

/// How a program runs and where, and arguments of its own.
type End<'a> = ((Way, &'a Host), &'a [&'a str]);

/// A client and a server; what the client said.
fn pair(program: Measuring, plan: &Plan<'_>, client: End<'_>, server: End<'_>, both: &[&str]) -> io::Result<Report> {
    let (port, address) = (next_port().to_string(), server.0 .1.addresses[0].to_string());
    let path = program.path(plan.scratch);
    let start = |((way, host), own): End<'_>, role: &str, core| {
        let launch = way.launch(host, plan, &path).args([role, "--port", &port, "--host", &address]).args(both).args(own);
        launch.args(["--milliseconds", &plan.time.as_millis().to_string()]).core(core).start(plan.scratch)
    };
    let mut server = start(server, "server", plan.cores().1)?;
    server.wait_for_output("ready", START_LIMIT)?;
    let client = start(client, "client", plan.cores().0)?.finish(RUN_LIMIT)?;
    server.finish(RUN_LIMIT)?;
    let line = client.output.lines().rev().find(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(line).map_err(io::Error::other)
}
