//! Datagrams of programs with `--inet`, which look for them at the kernel's socket, beside `shunt run` without that and beside no shunt. The peer is always plain, and spins.

use std::io;

use shunt_testkit::hosts::Host;

use super::programs::{next_port, Way, RUN_LIMIT, START_LIMIT};
use super::record::{Record, Sheet};
use super::taken::{add, TO_KERNEL, TO_RUN, WAYS};
use super::Plan;
use crate::cells::pair::Report;
use crate::programs::Measuring;

/// Of these figures.
const ROUND_TRIPS: &str = "UDP, 8 B round trip, the other end plain: us, us of the end's processor";
const RATES: &str =
    "UDP one way from a plain sender, what the receiver gets: thousands in a second, us of its processor for each";

/// All of it.
///
/// # Errors
/// A sentence.
pub fn datagrams(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let heads = ["kernel", "run", "--inet", TO_KERNEL, TO_RUN, "us", "run", "--inet"];
    let mut sheets = [ROUND_TRIPS, RATES].map(|title| Sheet::new(title, &heads, &[1, 1, 1, 2, 2, 1]));
    let [round_trips, rates] = &mut sheets;
    let connected = |way| round_trip([way, Way::Blocking], 8, hosts, plan).map(|(time, [own, _])| (time, own));
    add(round_trips, "a client, connected", plan, true, WAYS, connected)?;
    let bound = |way| round_trip([Way::Blocking, way], 8, hosts, plan).map(|(time, [_, own])| (time, own));
    add(round_trips, "a server, not connected", plan, true, WAYS, bound)?;
    for size in [64, 1400] {
        add(rates, &format!("{size} B"), plan, false, WAYS, |way| one_way(way, size, hosts, plan))?;
    }
    sheets.into_iter().for_each(|sheet| record.add(sheet));
    Ok(())
}

fn report(output: &str) -> io::Result<Report> {
    let line = output.lines().rev().find(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(line).map_err(io::Error::other)
}

fn cpu(report: &Report) -> f64 {
    report.cpu_ns as f64 / 1e3 / report.operations.max(1) as f64
}

/// The medium round trip of a client and a server, us, and what it costs each one's processor; an end without shunt spins, as the others look.
pub fn round_trip([client, server]: [Way; 2], size: usize, hosts: &[Host; 2], plan: &Plan<'_>) -> io::Result<(f64, [f64; 2])> {
    let (port, address) = (next_port().to_string(), hosts[1].addresses[0].to_string());
    let (samples, path) = (plan.scratch.join("samples"), Measuring::Udp.path(plan.scratch));
    let spins = |way| if way == Way::Blocking { &["--spin", "1"][..] } else { &[] };
    let both = ["--port", &port, "--host", &address];
    let launched = server.launch(&hosts[1], plan, &path).args(["echo"]).args(both).args(spins(server));
    let mut server = launched.core(plan.cores().1).start(plan.scratch)?;
    server.wait_for_output("ready", START_LIMIT)?;
    let launched = client.launch(&hosts[0], plan, &path).args(["ask"]).args(both).args(spins(client));
    let launched = launched.args(["--size", &size.to_string(), "--milliseconds", &plan.time.as_millis().to_string()]);
    let launched = launched.args(["--samples".as_ref(), samples.as_os_str()]);
    let asked = launched.core(plan.cores().0).start(plan.scratch)?.finish(RUN_LIMIT)?;
    let answered = server.finish(RUN_LIMIT)?;
    let bytes = std::fs::read(&samples)?;
    let words = bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let mut times: Vec<u32> = words.collect();
    times.sort_unstable();
    let middle = times.get(times.len() / 2).ok_or_else(|| io::Error::other("no samples"))?;
    Ok((f64::from(*middle) / 1e3, [cpu(&report(&asked.output)?), cpu(&report(&answered.output)?)]))
}

fn one_way(way: Way, size: usize, hosts: &[Host; 2], plan: &Plan<'_>) -> io::Result<(f64, f64)> {
    let (port, address) = (next_port().to_string(), hosts[1].addresses[0].to_string());
    let path = Measuring::Udp.path(plan.scratch);
    let both = ["--port", &port, "--host", &address];
    let spins = if way == Way::Blocking { &["--spin", "1"][..] } else { &[] };
    let launched = way.launch(&hosts[1], plan, &path).args(["sink"]).args(both).args(spins);
    let mut server = launched.core(plan.cores().1).start(plan.scratch)?;
    server.wait_for_output("ready", START_LIMIT)?;
    let launched = Way::Blocking.launch(&hosts[0], plan, &path).args(["flood"]).args(both);
    let launched = launched.args(["--size", &size.to_string(), "--milliseconds", &plan.time.as_millis().to_string()]);
    launched.core(plan.cores().0).start(plan.scratch)?.finish(RUN_LIMIT)?;
    let got = report(&server.finish(RUN_LIMIT)?.output)?;
    Ok((got.operations as f64 * 1e6 / got.elapsed_ns.max(1) as f64, cpu(&got)))
}
