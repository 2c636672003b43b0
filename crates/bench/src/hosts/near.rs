//! Network namespaces of one host, on one bridge, whose programs have a directory in common.

use std::process::{Command, Stdio};

use shunt_testkit::hosts::{segment, translate, Host, Joint};

use super::contender::Contender;
use super::programs::{self, Programs, Way};
use super::record::{Record, Sheet};
use super::tables::median;
use super::Plan;
use crate::process::Launch;

/// Connections of one turn.
const CONNECTIONS: u32 = 1000;

/// What is measured, and how its figure is shown.
enum Figure {
    RoundTrip,
    Redis(u32, u32),
    Connect,
}

const ROWS: [(&str, Figure); 4] = [
    ("round trip of 8 bytes, us (p50)", Figure::RoundTrip),
    ("redis-benchmark -c 1, thousands in a second", Figure::Redis(1, 20_000)),
    ("redis-benchmark -c 50, thousands in a second", Figure::Redis(50, 60_000)),
    ("connect+accept+close, us", Figure::Connect),
];

impl Figure {
    fn take(&self, way: Way, hosts: &[Host; 2], plan: &Plan<'_>) -> Result<f64, String> {
        match self {
            Figure::RoundTrip => Programs { name: "near", way }.round_trip(hosts, plan, 8).map(|seconds| seconds * 1e6),
            Figure::Redis(connections, requests) => {
                programs::redis(way, hosts, plan, (*connections, 1), *requests).map(|found| found.0 / 1e3)
            }
            Figure::Connect => programs::connect(way, hosts, plan, CONNECTIONS).map(|seconds| seconds * 1e6),
        }
    }
}

/// The ways in turns; ratios are medians of those of single turns, because what else runs here changes between turns.
pub fn near(plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let segment = segment(2, Joint::default()).map_err(|error| format!("two namespaces on a bridge cannot be made: {error}"))?;
    let Ok(hosts) = <[Host; 2]>::try_from(segment.hosts) else { return Err("two namespaces were asked for".into()) };
    for way in [Way::Near, Way::Introduced] {
        let directory = way.near_directory(plan);
        std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    let heads = ["near", "together", "kernel", "near/together", "near/kernel"];
    let mut sheet = Sheet::new("two network namespaces on a bridge", &heads, &[2]);
    for (name, figure) in ROWS {
        let mut taken: [Vec<f64>; 3] = Default::default();
        for _ in 0..plan.repeats {
            for (way, taken) in [Way::Near, Way::Together, Way::Blocking].into_iter().zip(&mut taken) {
                taken.push(figure.take(way, &hosts, plan).map_err(|error| format!("{name}: {error}"))?);
            }
        }
        let ratio = |at: usize| median(taken[0].iter().zip(&taken[at]).map(|(near, other)| near / other).collect());
        let [near, together, kernel] = [0, 1, 2].map(|at: usize| median(taken[at].clone()));
        sheet.put(name, &[near, together, kernel, ratio(1), ratio(2)]);
    }
    record.add(sheet);
    let mut sheet = Sheet::new("a plain server in another network namespace", &["near", "off", "near/off"], &[3]);
    let rows = [("round trip of 8 bytes, us (p50)", Figure::RoundTrip), ("connect+accept+close, us", Figure::Connect)];
    for (name, figure) in rows {
        let mut taken: [Vec<f64>; 2] = Default::default();
        for _ in 0..plan.repeats {
            for (at, taken) in taken.iter_mut().enumerate() {
                taken.push(figure.take(Way::ToPlain(at == 0), &hosts, plan).map_err(|error| format!("{name}: {error}"))?);
            }
        }
        let ratio = median(taken[0].iter().zip(&taken[1]).map(|(near, off)| near / off).collect());
        let [near, off] = taken.map(median);
        sheet.put(name, &[near, off, ratio]);
    }
    record.add(sheet);
    introduced(plan, &hosts, &segment.switch, record)
}

/// Through a published port, whose addresses are translated both ways, beside the kernel through the same.
fn introduced(plan: &Plan<'_>, hosts: &[Host; 2], switch: &Host, record: &mut Record) -> Result<(), String> {
    if let Err(why) = translate(hosts.each_ref(), switch, "5000-5999", None, true) {
        eprintln!("(not measured: a published port: {why})");
        return Ok(());
    }
    let directory = Way::Introduced.near_directory(plan);
    let wrong = |error| format!("shunt hostd: {error}");
    let hostd = Launch::plain(plan.shunt).args(["hostd", "--directory"]).args([&directory]).start(plan.scratch);
    let mut hostd = hostd.map_err(wrong)?;
    let answers = || {
        let mut command = Command::new(plan.shunt);
        command.args(["hostd", "status", "--directory"]).arg(&directory).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    hostd.wait_until("ready", programs::START_LIMIT, |_| answers()).map_err(wrong)?;
    let mut sheet = Sheet::new("a published port, with hostd", &["hostd", "kernel", "hostd/kernel"], &[2]);
    for (name, figure) in ROWS {
        let mut taken: [Vec<f64>; 2] = Default::default();
        for _ in 0..plan.repeats {
            for (way, taken) in [Way::Introduced, Way::Translated].into_iter().zip(&mut taken) {
                taken.push(figure.take(way, hosts, plan).map_err(|error| format!("{name}: {error}"))?);
            }
        }
        let ratio = median(taken[0].iter().zip(&taken[1]).map(|(hostd, kernel)| hostd / kernel).collect());
        let [hostd, kernel] = taken.map(median);
        sheet.put(name, &[hostd, kernel, ratio]);
    }
    drop(hostd);
    record.add(sheet);
    Ok(())
}
