//! Programs whose connections are taken from the kernel (`--inet`), beside `shunt run` without that and beside no shunt. The peer is always plain.

use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;
use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::{pair, Host, Joint};

use super::programs::{next_port, Way, RUN_LIMIT, START_LIMIT};
use super::record::{Record, Sheet};
use super::tables::median;
use super::Plan;
use crate::cells::pair::Report;
use crate::cells::redis;
use crate::programs::{External, Measuring};

/// The table of servers, of which aims are made.
pub const SERVERS: &str = "redis-server whose clients are plain: thousands of requests in a second, us of its processor";
/// Its columns of ratios, with and without the option.
pub const TO_KERNEL: &str = "/ kernel";
/// See above.
pub const TO_RUN: &str = "/ run";
/// Its row of connections with one request each.
pub const SHORT: &str = "-c 50, a connection each request";
/// The other tables.
const ROUND_TRIPS: &str = "8 B round trip of a client, the server plain and spinning: us";
const BULK: &str = "bulk, the other end plain: Gb/s";

/// Without shunt, under it, with the option.
pub const WAYS: [Way; 3] = [Way::Blocking, Way::Alone, Way::Taken];

/// One row: the ways take turns, and ratios, the third against the others, are medians of those of single turns. `turn` gives a figure and another beside it.
pub fn add<W: Copy>(
    sheet: &mut Sheet,
    row: &str,
    plan: &Plan<'_>,
    is_time: bool,
    ways: [W; 3],
    turn: impl Fn(W) -> io::Result<(f64, f64)>,
) -> Result<(), String> {
    let mut figures: [Vec<(f64, f64)>; 3] = Default::default();
    for _ in 0..plan.repeats {
        for (way, figures) in ways.into_iter().zip(&mut figures) {
            figures.push(turn(way).map_err(|error| format!("{row}: {error}"))?);
        }
    }
    let ratio = |below: usize| {
        let ratios = figures[2].iter().zip(&figures[below]);
        median(ratios.map(|(one, other)| if is_time { other.0 / one.0 } else { one.0 / other.0 }).collect())
    };
    let of = |at: usize, pick: fn(&(f64, f64)) -> f64| median(figures[at].iter().map(pick).collect());
    sheet.put(row, &[0, 1, 2].map(|at| of(at, |figure| figure.0)));
    sheet.put(row, &[ratio(0), ratio(1)]);
    let beside = [0, 1, 2].map(|at| of(at, |figure| figure.1));
    if beside.iter().all(|figure| figure.is_finite()) {
        sheet.put(row, &beside);
    }
    Ok(())
}

/// All of it.
///
/// # Errors
/// A sentence.
pub fn taken(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let agents = agents(hosts, plan)?;
    let ratios = ["kernel", "run", "--inet", TO_KERNEL, TO_RUN];
    let mut sheet = Sheet::new(ROUND_TRIPS, &ratios, &[1, 1, 1, 2]);
    add(&mut sheet, "one connection", plan, true, WAYS, |way| round_trip([way, Way::Blocking], 8, hosts, plan))?;
    record.add(sheet);
    let mut sheet = Sheet::new(SERVERS, &[&ratios[..], &["us", "run", "--inet"]].concat(), &[1, 1, 1, 2, 2, 1]);
    for (row, load, requests) in [
        ("-c 1", &["-c", "1"][..], 20_000),
        ("-c 50", &["-c", "50"], 60_000),
        ("-c 50 -P 16", &["-c", "50", "-P", "16"], 300_000),
        (SHORT, &["-c", "50", "-k", "0"], 4_000),
    ] {
        add(&mut sheet, row, plan, false, WAYS, |way| requests_once(way, hosts, plan, load, requests))?;
    }
    record.add(sheet);
    super::served::served(hosts, plan, record)?;
    let mut sheet = Sheet::new(BULK, &ratios, &[2]);
    streams(&mut sheet, 1500, hosts, plan)?;
    drop(agents);
    let larger = pair(Joint { mtu: 9000, ..Joint::default() })?;
    let _agents = self::agents(&larger, plan)?;
    streams(&mut sheet, 9000, &larger, plan)?;
    record.add(sheet);
    Ok(())
}

/// Of both hosts.
pub fn agents(hosts: &[Host; 2], plan: &Plan<'_>) -> Result<Vec<Agent>, String> {
    hosts.iter().map(|host| Agent::start(host, plan.shunt, &["--lend", "0", "--take"])).collect()
}

fn streams(sheet: &mut Sheet, mtu: u32, hosts: &[Host; 2], plan: &Plan<'_>) -> Result<(), String> {
    let from = |way| bulk([(Way::Blocking, &hosts[0]), (way, &hosts[1])], 64 << 10, plan);
    let to = |way| bulk([(way, &hosts[0]), (Way::Blocking, &hosts[1])], 64 << 10, plan);
    add(sheet, &format!("from a plain client, MTU {mtu}"), plan, false, WAYS, from)?;
    add(sheet, &format!("to a plain server, MTU {mtu}"), plan, false, WAYS, to)
}

/// The medium round trip of so many bytes, in us; an end without shunt spins, as the others look.
pub fn round_trip([client, server]: [Way; 2], size: usize, hosts: &[Host; 2], plan: &Plan<'_>) -> io::Result<(f64, f64)> {
    let (port, address) = (next_port().to_string(), hosts[1].addresses[0].to_string());
    let samples = plan.scratch.join("samples");
    let path = Measuring::PingPong.path(plan.scratch);
    let (size, spins) = (size.to_string(), |way| if way == Way::Blocking { &["--spin", "1"][..] } else { &[] });
    let both = ["--port", &port, "--host", &address, "--size", &size];
    let launched = server.launch(&hosts[1], plan, &path).args(["server"]).args(both).args(spins(server));
    let mut server = launched.core(plan.cores().1).start(plan.scratch)?;
    server.wait_for_output("ready", START_LIMIT)?;
    let milliseconds = plan.time.as_millis().to_string();
    let launched = client.launch(&hosts[0], plan, &path).args(["client"]).args(both).args(["--milliseconds", &milliseconds]);
    let client = launched.args(spins(client)).args(["--samples".as_ref(), samples.as_os_str()]);
    client.core(plan.cores().0).start(plan.scratch)?.finish(RUN_LIMIT)?;
    server.finish(RUN_LIMIT)?;
    let bytes = std::fs::read(&samples)?;
    let mut times: Vec<u32> =
        bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect();
    times.sort_unstable();
    let middle = times.get(times.len() / 2).ok_or_else(|| io::Error::other("no samples"))?;
    Ok((f64::from(*middle) / 1e3, f64::NAN))
}

fn requests_once(way: Way, hosts: &[Host; 2], plan: &Plan<'_>, load: &[&str], requests: u32) -> io::Result<(f64, f64)> {
    let server = External { name: "redis-server", package: "redis-server" }.find().map_err(io::Error::other)?;
    let client = External { name: "redis-benchmark", package: "redis-tools" }.find().map_err(io::Error::other)?;
    let (port, address) = (next_port().to_string(), hosts[1].addresses[0].to_string());
    let server = way.launch(&hosts[1], plan, &server).args(["--port", &port, "--bind", &address]);
    let server = server.args(["--save", "", "--appendonly", "no", "--protected-mode", "no"]);
    let mut server = server.core(plan.cores().1).start(plan.scratch)?;
    server.wait_for_output("Ready to accept connections", START_LIMIT)?;
    let before = server.cpu();
    let client = Way::Blocking.launch(&hosts[0], plan, &client).args(["-h", &address, "-p", &port, "-t", "get", "--csv"]);
    let client = client.args(load).args(["-n", &requests.to_string()]);
    let client = client.core(plan.cores().0).start(plan.scratch)?.finish(RUN_LIMIT)?;
    let processor = server.cpu().saturating_sub(before);
    server.stop(Signal::SIGTERM, Duration::from_secs(2));
    Ok((redis::rate(&client.output)? / 1e3, processor.as_secs_f64() * 1e6 / f64::from(requests)))
}

/// A stream of sends of so many bytes from the client, which is the first of the ends, to the server: Gb/s.
pub fn bulk([client, server]: [(Way, &Host); 2], size: usize, plan: &Plan<'_>) -> io::Result<(f64, f64)> {
    let (port, address) = (next_port().to_string(), server.1.addresses[0].to_string());
    let (path, size) = (Measuring::Stream.path(plan.scratch), size.to_string());
    let both = ["--port", &port, "--host", &address, "--size", &size];
    let launched = |(way, host): (Way, &Host), role| way.launch(host, plan, &path).args([role]).args(both);
    let mut server = launched(server, "server").core(plan.cores().1).start(plan.scratch)?;
    server.wait_for_output("ready", START_LIMIT)?;
    let client = launched(client, "client").args(["--milliseconds", &plan.time.as_millis().to_string()]);
    let client = client.core(plan.cores().0).start(plan.scratch)?.finish(RUN_LIMIT)?;
    server.finish(RUN_LIMIT)?;
    let line = client.output.lines().rev().find(|line| line.starts_with('{')).unwrap_or_default();
    let report: Report = serde_json::from_str(line).map_err(io::Error::other)?;
    Ok((report.operations as f64 * 8.0 / report.elapsed_ns.max(1) as f64, f64::NAN))
}
