//! `shunt metrics`: what Prometheus and its like read, printed, written to a file or served.
mod serve;
mod text;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use shunt_sys::clock::ticks;

use crate::failure::Failure;
use crate::inspect::connection::{self, Connection};
use crate::inspect::process_state::{State, Waited};
use crate::inspect::processes;
use crate::inspect::stations::{self, Stream};
use crate::output;
use text::{Family, Format, Kind};

/// Prints them once, or writes them to a file, or serves them until it is ended.
///
/// # Errors
/// If processes are not shown here, the file cannot be written, or the address is not to be had.
pub fn metrics(matches: &ArgMatches) -> Result<u8, Failure> {
    processes::are_shown()?;
    if let Some(path) = matches.get_one::<std::ffi::OsString>("output") {
        return output::replace(Path::new(path), &now(Format::Plain), 0o644).map(|()| 0);
    }
    match matches.get_one::<String>("listen") {
        Some(address) => serve::serve(address, now),
        None => output::print(&now(Format::Plain)).map(|()| 0),
    }
}

/// What is so now.
fn now(format: Format) -> String {
    let pids = processes::all();
    let mut connections = connection::of_processes(&pids);
    let streams = stations::of_processes(&pids, &mut connections).streams;
    connections.retain(|connection| !connection.ended);
    text::text(&families(&connections, &streams, &processes_of(&pids)), format)
}

/// A process under shunt, and how often each reason was given in it.
struct Process {
    pid: u32,
    program: String,
    counters: Vec<(&'static str, u64)>,
    waited: Waited,
}

fn processes_of(pids: &[u32]) -> Vec<Process> {
    let one = |pid: &u32| {
        let descriptors = processes::descriptors(*pid).ok()?;
        let state = State::find(*pid, &descriptors).filter(|state| state.own)?;
        Some(Process { pid: *pid, program: processes::program(*pid)?, counters: state.counters(), waited: state.waits() })
    };
    pids.iter().filter_map(one).collect()
}

/// Ticks of the time stamp counter in a second, measured once.
fn ticks_per_second() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (since, before) = (Instant::now(), ticks());
        std::thread::sleep(Duration::from_millis(20));
        (ticks() - before) as f64 / since.elapsed().as_secs_f64()
    })
}

/// Series of connections: links that any user makes may tell of any ports.
const SERIES: usize = 2000;

/// Those with most connections; the others count together, as of port 0.
fn bounded(counted: BTreeMap<Labels, [f64; 3]>) -> BTreeMap<Labels, [f64; 3]> {
    let mut rows: Vec<(Labels, [f64; 3])> = counted.into_iter().collect();
    rows.sort_by(|one, other| other.1[0].total_cmp(&one.1[0]));
    let others = rows.split_off(SERIES.min(rows.len()));
    let mut kept: BTreeMap<Labels, [f64; 3]> = rows.into_iter().collect();
    for (mut labels, row) in others {
        for (name, value) in &mut labels {
            match *name {
                "program" => *value = "?".to_owned(),
                "server_port" => *value = "0".to_owned(),
                _ => {}
            }
        }
        let sum = kept.entry(labels).or_default();
        sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    kept
}

type Labels = Vec<(&'static str, String)>;

/// Connections of one program, role, server's port and carrier, taken together: a label for each connection would be a series for each.
fn families(connections: &[Connection], streams: &[Stream], processes: &[Process]) -> Vec<Family> {
    let mut counted: BTreeMap<Labels, [f64; 3]> = BTreeMap::new();
    let mut add = |program: &str, role: &str, port: u16, carrier: &str, [sent, under_way]: [u64; 2]| {
        let labels = vec![
            ("program", program.to_owned()),
            ("role", role.to_owned()),
            ("server_port", port.to_string()),
            ("carrier", carrier.to_owned()),
        ];
        let row = counted.entry(labels).or_default();
        [row[0], row[1], row[2]] = [row[0] + 1.0, row[1] + sent as f64, row[2] + under_way as f64];
    };
    for connection in connections {
        for (party, role) in [(&connection.client, "client"), (&connection.server, "server")] {
            // Another host's, as of streams between hosts: the program here counts it.
            if party.is_plain {
                continue;
            }
            let amounts = [party.sent_bytes, party.in_flight_bytes.unwrap_or(0)];
            // The name by which one that is not seen introduced itself may be any, and each would be a series.
            let program = if party.pid.is_some() { &party.program } else { "?" };
            add(program, role, connection.server.port, connection.carrier, amounts);
        }
    }
    for stream in streams {
        let port = if stream.role == "server" { stream.local_port } else { stream.remote_port };
        add(&stream.program, stream.role, port, stream.carrier(), [stream.sent_bytes, stream.under_way()]);
    }
    let counted = bounded(counted);
    let rows = |at: usize| counted.iter().map(|(labels, row)| (labels.clone(), row[at])).collect();

    let mut programs: BTreeMap<&str, f64> = BTreeMap::new();
    for process in processes {
        *programs.entry(&process.program).or_default() += 1.0;
    }
    let given = |process: &Process| -> Vec<(Labels, f64)> {
        let labels = |reason: &str| {
            vec![("program", process.program.clone()), ("pid", process.pid.to_string()), ("reason", reason.to_owned())]
        };
        process.counters.iter().map(|(reason, count)| (labels(reason), *count as f64)).collect()
    };
    let rate = ticks_per_second();
    let waits = |told: &dyn Fn(&Waited) -> f64| -> Vec<(Labels, f64)> {
        let labels = |process: &Process| vec![("program", process.program.clone()), ("pid", process.pid.to_string())];
        processes.iter().map(|process| (labels(process), told(&process.waited))).collect()
    };
    vec![
        Family {
            name: "shunt_build_info",
            kind: Kind::Gauge,
            help: "The version of the command that tells this.",
            rows: vec![(vec![("version", env!("CARGO_PKG_VERSION").to_owned())], 1.0)],
        },
        Family {
            name: "shunt_processes",
            kind: Kind::Gauge,
            help: "Processes under shunt.",
            rows: programs.into_iter().map(|(program, count)| (vec![("program", program.to_owned())], count)).collect(),
        },
        Family {
            name: "shunt_connections",
            kind: Kind::Gauge,
            help: "Accelerated connections that live, by each end.",
            rows: rows(0),
        },
        Family {
            name: "shunt_connections_sent_bytes",
            kind: Kind::Gauge,
            help: "Bytes that this end has sent over the accelerated connections that live.",
            rows: rows(1),
        },
        Family {
            name: "shunt_connections_under_way_bytes",
            kind: Kind::Gauge,
            help: "Bytes that this end has sent and the other end has not received.",
            rows: rows(2),
        },
        Family {
            name: "shunt_sockets",
            kind: Kind::Counter,
            help: "How often each reason was given for what carries a socket, since the process started.",
            rows: processes.iter().flat_map(given).collect(),
        },
        Family {
            name: "shunt_sleeps",
            kind: Kind::Counter,
            help: "Waits on connections that slept, of all threads of a process.",
            rows: waits(&|waited| waited.sleeps as f64),
        },
        Family {
            name: "shunt_slept_seconds",
            kind: Kind::Counter,
            help: "Time asleep in waits on connections, of all threads of a process.",
            rows: waits(&|waited| waited.slept as f64 / rate),
        },
        Family {
            name: "shunt_spun_seconds",
            kind: Kind::Counter,
            help: "Time of looking for bytes before a sleep or instead of one, of all threads of a process.",
            rows: waits(&|waited| waited.spun as f64 / rate),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ports_are_few_series() {
        let labels =
            |port: usize| vec![("program", "x".to_owned()), ("role", "server".to_owned()), ("server_port", port.to_string())];
        let counted = (1..=30_000).map(|port| (labels(port), [if port == 7 { 9.0 } else { 1.0 }, 2.0, 3.0])).collect();
        let kept = bounded(counted);
        assert_eq!(kept.len(), SERIES + 1);
        assert_eq!(kept[&labels(7)][0], 9.0);
        assert_eq!(kept.values().map(|row| row[1]).sum::<f64>(), 60_000.0);
        assert_eq!(bounded([(labels(1), [1.0; 3])].into()).len(), 1);
    }
}
