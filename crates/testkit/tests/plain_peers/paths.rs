//! The same over paths that take their time, lose and double: what a delay of nothing hides. Bytes are compared, and counts with those of the same
//! load on the kernel; how long anything took decides nothing.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use shunt_testkit::{python_program, script};

use crate::site::{Running, Site};
use crate::wire::{Counts, Path};

const TAKEN: u16 = 7000;
const KERNEL: u16 = 7001;

/// What a load cost.
#[derive(Debug)]
#[allow(dead_code)]
struct Cost {
    /// Frames with bytes, frames without, bytes sent again: of the server's host, of the client's.
    frames: [[u64; 3]; 2],
    /// Hundredths of a second of the server's processor time, and how often its threads slept.
    processor: u64,
    sleeps: u64,
    /// What the client's kernel says of itself.
    kernel: Vec<(String, u64)>,
    reasons: [u64; 2],
}

fn ticks(server: &Running) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", server.child.id())).unwrap_or_default();
    // Behind the name in brackets: state is field 3, user and system time are 14 and 15 (proc_pid_stat(5)).
    let fields: Vec<&str> = text.rsplit_once(')').map(|(_, rest)| rest.split(' ').collect()).unwrap_or_default();
    [12, 13].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum()
}

fn sleeps(server: &Running) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    texts
        .filter_map(|text| {
            text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok())
        })
        .sum()
}

const KERNEL_SAYS: [&str; 6] = [
    "TcpRetransSegs",
    "TcpExtTCPTimeouts",
    "TcpExtTCPLossProbes",
    "TcpExtTCPDSACKRecv",
    "TcpExtTCPSpuriousRTOs",
    "TcpExtTCPAbortOnTimeout",
];

/// proc_pid_net(5): pairs of lines, names and numbers.
fn kernel_says(site: &Site) -> Vec<(String, u64)> {
    let text = site.hosts[1].enter(|| {
        ["snmp", "netstat"]
            .map(|name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default())
            .concat()
    });
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for pair in lines.chunks_exact(2) {
        let prefix = pair[0].split(':').next().unwrap_or_default();
        for (name, value) in pair[0].split(' ').zip(pair[1].split(' ')).skip(1) {
            let name = format!("{prefix}{name}");
            if KERNEL_SAYS.contains(&name.as_str()) {
                found.push((name, value.parse().unwrap_or(0)));
            }
        }
    }
    found
}

fn frames(site: &Site) -> [[u64; 3]; 2] {
    let counts = site.wire.as_ref().map(|wire| wire.counts.clone()).unwrap_or_default();
    let of = |counts: &Counts| {
        let [all, empty, again] = [&counts.frames, &counts.empty, &counts.again].map(|count| count.load(Relaxed));
        [all - empty, empty, again]
    };
    [of(&counts[0]), of(&counts[1])]
}

/// A load at `port`, whose server is on the first host.
fn cost(site: &Site, port: u16, load: &str, count: &str) -> Cost {
    let (python, script) = (python_program(), script("plain_paths.py").display().to_string());
    let (address, number) = (site.address(0), port.to_string());
    let server = site.start(0, TAKEN, &format!("{load}-{port}"), &python, &[&script, "serve", &address, &number]);
    site.wait_for_listener(0, port);
    let before = (frames(site), ticks(&server), sleeps(&server), kernel_says(site));
    assert_eq!(site.run(1, 0, &python, &[&script, load, &address, &number, count]), "fine\n", "{}", server.text());
    let after = (frames(site), ticks(&server), sleeps(&server), kernel_says(site));
    let change = |end: usize| [0, 1, 2].map(|which| after.0[end][which] - before.0[end][which]);
    let said =
        after.3.iter().zip(&before.3).map(|((name, now), (_, then))| (name.clone(), now - then)).filter(|(_, more)| *more > 0);
    let reasons = ["taken", "given-back"].map(|reason| site.count(&server, reason));
    Cost {
        frames: [change(0), change(1)],
        processor: after.1 - before.1,
        sleeps: after.2 - before.2,
        kernel: said.collect(),
        reasons,
    }
}

#[test]
fn look_about() {
    for (label, path) in [
        ("near", Path { delay: Duration::from_millis(5), ..Path::default() }),
        ("far", Path { delay: Duration::from_millis(50), ..Path::default() }),
        ("bad", Path { delay: Duration::from_millis(5), lost: 50, doubled: 50, overtaken: 50 }),
    ] {
        if std::env::var("PATHS").is_ok_and(|p| p != label) {
            continue;
        }
        let Some(site) = Site::over(&format!("plain-{label}"), Some(path)) else { return };
        let only = std::env::var("LOAD").unwrap_or_default();
        for (load, count) in [
            ("talk", "30"),
            ("crowd", "50"),
            ("up", "3000000"),
            ("down", "3000000"),
            ("both", "3000000"),
            ("back", "20"),
            ("sink", "10"),
        ] {
            if !only.is_empty() && only != load {
                continue;
            }
            for port in [KERNEL, TAKEN] {
                let began = std::time::Instant::now();
                let cost = cost(&site, port, load, count);
                eprintln!("{label} {load} {port} {:?} {cost:?}", began.elapsed());
            }
        }
    }
}
