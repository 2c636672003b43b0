//! Programs under shunt whose peers have only a kernel: threads look before they sleep (`--spin-on-kernel`), beside the same without shunt.

use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::getuid;
use shunt_testkit::hosts::Host;

use super::programs::{next_port, Way, RUN_LIMIT, START_LIMIT};
use super::record::{Record, Sheet};
use super::tables::median;
use super::Plan;
use crate::cells::pair::Report;
use crate::cells::{memcached, redis};
use crate::programs::{External, Measuring};

/// The table of small requests, of which aims are made.
pub const REQUESTS: &str = "8 B requests, the peer without shunt: thousands in a second, us of both processors";
/// Its column of the client under shunt, against neither.
pub const CLIENT: &str = "client /";
/// The same of the server.
pub const SERVER: &str = "server /";

/// Which end is under shunt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Under {
    Neither,
    Client,
    Server,
}

const ALL: [Under; 3] = [Under::Neither, Under::Client, Under::Server];

impl Under {
    /// How the client and the server run.
    fn ways(self) -> [Way; 2] {
        let way = |end| if self == end { Way::Alone } else { Way::Blocking };
        [way(Under::Client), way(Under::Server)]
    }
}

/// Requests in a second, and microseconds of processor time that each cost both ends.
type Figure = (f64, f64);

/// All of it.
///
/// # Errors
/// A sentence.
pub fn inet(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    super::hand_over::hand_overs(hosts, plan, record)?;
    super::halves::halves(hosts, plan, record)?;
    super::taken::taken(hosts, plan, record)?;
    super::datagrams::datagrams(hosts, plan, record)?;
    super::beside::beside(hosts, plan, record)?;
    super::unet::unet(hosts, plan, record)?;
    let mut sheet = sheet(REQUESTS);
    for (processors, where_) in [(2, "two processors"), (1, "one processor")] {
        for wait in ["blocking", "poll", "epoll"] {
            for connections in [1, 8, 50] {
                let plural = if connections == 1 { "" } else { "s" };
                let row = format!("{wait}, {connections} connection{plural}, {where_}");
                add(&mut sheet, &row, plan, |under| load(under, hosts, plan, wait, connections, processors))?;
            }
        }
    }
    record.add(sheet);
    let mut sheet = self::sheet("programs, one of them without shunt: thousands in a second, us of both processors");
    for (connections, pipeline, requests) in [(1, 1, 10_000), (50, 1, 30_000), (50, 16, 150_000)] {
        let row = format!("redis-benchmark -c {connections} -P {pipeline}");
        add(&mut sheet, &row, plan, |under| redis_once(under, hosts, plan, (connections, pipeline), requests))?;
    }
    for connections in [1, 32] {
        let row = format!("memcaslap -c {connections}");
        add(&mut sheet, &row, plan, |under| memcached_once(under, hosts, plan, connections))?;
    }
    record.add(sheet);
    Ok(())
}

fn sheet(title: &str) -> Sheet {
    Sheet::new(title, &["neither", "client", CLIENT, "server", SERVER, "us", "client", "server"], &[1, 1, 2, 1, 2, 1])
}

/// One row: the ratios are medians of those of single turns, because what else runs here changes between turns.
fn add(sheet: &mut Sheet, row: &str, plan: &Plan<'_>, turn: impl Fn(Under) -> io::Result<Figure>) -> Result<(), String> {
    let mut figures: [Vec<Figure>; 3] = Default::default();
    for _ in 0..plan.repeats {
        for (under, figures) in ALL.into_iter().zip(&mut figures) {
            figures.push(turn(under).map_err(|error| format!("{row}: {error}"))?);
        }
    }
    let of = |at: usize, pick: fn(&Figure) -> f64| median(figures[at].iter().map(pick).collect());
    let ratio = |at: usize| median(figures[at].iter().zip(&figures[0]).map(|(one, bare)| one.0 / bare.0).collect());
    let rates = [0, 1, 2].map(|at| of(at, |figure| figure.0 / 1e3));
    let costs = [0, 1, 2].map(|at| of(at, |figure| figure.1));
    sheet.put(row, &[rates[0], rates[1], ratio(1), rates[2], ratio(2)]);
    sheet.put(row, &costs);
    Ok(())
}

/// The cores of client and server.
fn cores(plan: &Plan<'_>, processors: usize) -> (usize, usize) {
    let (client, server) = plan.cores();
    (if processors == 1 { server } else { client }, server)
}

fn load(
    under: Under,
    hosts: &[Host; 2],
    plan: &Plan<'_>,
    wait: &str,
    connections: usize,
    processors: usize,
) -> io::Result<Figure> {
    let [client, server] = under.ways();
    let (client_core, server_core) = cores(plan, processors);
    let (port, address) = (next_port().to_string(), hosts[1].addresses[0].to_string());
    let connections = connections.to_string();
    let both = ["--port", &port, "--host", &address, "--wait", wait, "--connections", &connections];
    let path = Measuring::Load.path(plan.scratch);
    let server = server.launch(&hosts[1], plan, &path).args(["server"]).args(both);
    let mut server = server.core(server_core).start(plan.scratch)?;
    server.wait_for_output("ready", START_LIMIT)?;
    let milliseconds = plan.time.as_millis().to_string();
    let client = client.launch(&hosts[0], plan, &path).args(["client"]).args(both).args(["--milliseconds", &milliseconds]);
    let client = client.core(client_core).start(plan.scratch)?.finish(RUN_LIMIT)?;
    let server = server.finish(RUN_LIMIT)?;
    let said = |output: &str| {
        let line = output.lines().rev().find(|line| line.starts_with('{')).unwrap_or_default();
        serde_json::from_str::<Report>(line).map_err(io::Error::other)
    };
    let (client, server) = (said(&client.output)?, said(&server.output)?);
    let operations = client.operations.max(1) as f64;
    Ok((operations * 1e9 / client.elapsed_ns.max(1) as f64, (client.cpu_ns + server.cpu_ns) as f64 / 1e3 / operations))
}

fn redis_once(
    under: Under,
    hosts: &[Host; 2],
    plan: &Plan<'_>,
    (connections, pipeline): (u32, u32),
    requests: u32,
) -> io::Result<Figure> {
    let server = External { name: "redis-server", package: "redis-server" }.find().map_err(io::Error::other)?;
    let client = External { name: "redis-benchmark", package: "redis-tools" }.find().map_err(io::Error::other)?;
    let [client_way, server_way] = under.ways();
    let (port, address) = (next_port().to_string(), hosts[1].addresses[0].to_string());
    let server = server_way.launch(&hosts[1], plan, &server).args(["--port", &port, "--bind", &address]);
    let server = server.args(["--save", "", "--appendonly", "no", "--protected-mode", "no"]);
    let mut server = server.core(plan.cores().1).start(plan.scratch)?;
    server.wait_for_output("Ready to accept connections", START_LIMIT)?;
    let before = server.cpu();
    let client = client_way.launch(&hosts[0], plan, &client).args(["-h", &address, "-p", &port, "-t", "get", "--csv"]);
    let client = client.args(["-c", &connections.to_string(), "-P", &pipeline.to_string(), "-n", &requests.to_string()]);
    let client = client.core(plan.cores().0).start(plan.scratch)?.finish(RUN_LIMIT)?;
    let processor = client.cpu + server.cpu().saturating_sub(before);
    server.stop(Signal::SIGTERM, Duration::from_secs(2));
    Ok((redis::rate(&client.output)?, processor.as_secs_f64() * 1e6 / f64::from(requests)))
}

fn memcached_once(under: Under, hosts: &[Host; 2], plan: &Plan<'_>, connections: u32) -> io::Result<Figure> {
    let server = memcached::SERVER.find().map_err(io::Error::other)?;
    let client = memcached::CLIENT.find().map_err(io::Error::other)?;
    let [client_way, server_way] = under.ways();
    let (port, address) = (next_port().to_string(), hosts[1].addresses[0].to_string());
    let user: &[&str] = if getuid().is_root() { &["-u", "nobody"] } else { &[] };
    let server = server_way.launch(&hosts[1], plan, &server).args(["-l", &address, "-p", &port, "-U", "0", "-t", "1"]);
    let server = server.args(user).core(plan.cores().1).start(plan.scratch)?;
    let began = std::time::Instant::now();
    while hosts[0].enter(|| std::net::TcpStream::connect(format!("{address}:{port}"))).is_err() {
        if began.elapsed() > START_LIMIT {
            return Err(io::Error::other("memcached does not listen"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = server.cpu();
    let client = client_way.launch(&hosts[0], plan, &client).args(["-s", &format!("{address}:{port}"), "-T", "1"]);
    let client = client.args(["-c", &connections.to_string(), "-t", "1s"]).core(plan.cores().0);
    let client = client.start(plan.scratch)?.finish(RUN_LIMIT)?;
    let processor = client.cpu + server.cpu().saturating_sub(before);
    server.stop(Signal::SIGTERM, Duration::from_secs(2));
    let (operations, rate) = memcached::parse(&client.output)?;
    Ok((rate, processor.as_secs_f64() * 1e6 / operations))
}
