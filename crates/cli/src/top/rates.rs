//! Two looks, and what happened between them.
use std::collections::HashMap;

use serde::Serialize;
use shunt_pgas::view::{self, Wait};

use super::sample::{Process, Sample};
use crate::filter::{Filter, Row};
use crate::inspect::connection::{socket_text, Connection, Party};
use crate::inspect::jobs::{self, Job};
use crate::inspect::processes;
use crate::ss::{seen, seen_stream};

/// All that is shown.
#[derive(Default, Serialize)]
pub struct Rates {
    /// Fields are added under one number, never changed.
    pub schema: &'static str,
    /// Seconds since 1970.
    pub time: f64,
    /// What rates are of.
    pub interval_seconds: f64,
    pub connections: Vec<ConnectionRates>,
    pub processes: Vec<ProcessRates>,
    pub ranks: Vec<Rank>,
}

/// A rank of a job on this host.
#[derive(Clone, Serialize)]
pub struct Rank {
    /// The number of the job's memory, which all its ranks have in common.
    pub job: u64,
    pub rank: usize,
    pub pid: u32,
    pub program: String,
    pub state: &'static str,
    /// `barrier`, `lock`, `value`; null if it does not wait, or not for long.
    pub waits: Option<&'static str>,
    /// The ranks it waits for: those that are missing in the barrier, the one that has the lock.
    pub waits_for_ranks: Vec<usize>,
    /// The same in words.
    pub waits_for: String,
    pub waited_seconds: Option<f64>,
}

/// A connection that lives.
#[derive(Clone, Serialize)]
pub struct ConnectionRates {
    pub state: String,
    pub carrier: String,
    pub seconds: u64,
    /// Bytes sent by both ends, so far and each second.
    pub bytes: u64,
    pub bytes_per_second: f64,
    pub wakeups_per_second: f64,
    pub client: EndRates,
    pub server: EndRates,
}

/// One end of it.
#[derive(Clone, Serialize)]
pub struct EndRates {
    pub address: String,
    pub port: u16,
    pub pid: Option<u32>,
    pub program: String,
    pub sent_bytes: u64,
    pub sent_bytes_per_second: f64,
    /// Of sleepers at this end.
    pub wakeups_per_second: f64,
    /// How it last waited; null of another host's end.
    pub waits: Option<&'static str>,
}

/// A process under shunt.
#[derive(Clone, Serialize)]
pub struct ProcessRates {
    pub pid: u32,
    pub program: String,
    pub connections: usize,
    /// Bytes that its ends have sent and received, of connections that live.
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub sent_bytes_per_second: f64,
    pub received_bytes_per_second: f64,
    /// Bells that its ends got.
    pub wakeups_per_second: f64,
    pub sleeps_per_second: f64,
    /// Shares of one processor's time, of all its threads together.
    pub cpu_share: f64,
    pub spun_share: f64,
    pub slept_share: f64,
    pub fall_backs: u64,
    /// Why, since it started: the most frequent first.
    pub reasons: Vec<Given>,
}

/// A fall-back's reason.
#[derive(Clone, Serialize)]
pub struct Given {
    pub reason: &'static str,
    pub explanation: &'static str,
    pub count: u64,
    /// Since the look before.
    pub more: u64,
}

impl Rates {
    /// What of `now` the filter lets through, with what happened since `before`.
    pub fn between(before: &Sample, now: &Sample, filter: &Filter) -> Rates {
        let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let earlier: HashMap<_, &Connection> = before.connections.iter().map(|old| (old.key, old)).collect();
        let mut connections: Vec<(bool, ConnectionRates)> = Vec::new();
        for connection in &now.connections {
            let old = earlier.get(&connection.key).copied();
            connections.push((filter.holds(&seen(connection)), of_connection(connection, old, seconds)));
        }
        let ends: HashMap<_, u64> = before.streams.iter().map(|old| (old.ends(), old.sent_bytes)).collect();
        for stream in &now.streams {
            let rate = rate(stream.sent_bytes, ends.get(&stream.ends()).copied(), seconds);
            connections.push((filter.holds(&seen_stream(stream)), of_stream(stream, rate)));
        }
        let processes = of_processes(before, now, seconds, &connections, filter);
        let shown = connections.into_iter().filter_map(|(shown, connection)| shown.then_some(connection)).collect();
        let ranks = now.jobs.iter().flat_map(|job| ranks(job, filter)).collect();
        Rates { schema: "shunt.top/1", time: now.time, interval_seconds: seconds, connections: shown, processes, ranks }
    }
}

/// The ranks of a job that the filter lets through.
fn ranks<'j>(job: &'j Job, filter: &'j Filter) -> impl Iterator<Item = Rank> + 'j {
    let one = |(rank, row): (usize, &view::Row)| {
        let (waits, waits_for_ranks) = match &row.wait {
            Wait::Nothing => (None, vec![]),
            Wait::Value(_) => (Some("value"), vec![]),
            Wait::Barrier { missing, .. } => (Some("barrier"), missing.clone()),
            Wait::Lock(owner) => (Some("lock"), owner.iter().copied().collect()),
        };
        Rank {
            job: job.number,
            rank,
            pid: row.process,
            program: processes::program(row.process).unwrap_or_default(),
            state: row.state(),
            waits,
            waits_for_ranks,
            waits_for: row.wait.to_string(),
            waited_seconds: jobs::waited(row),
        }
    };
    let here = job.rows.iter().enumerate().filter(|(_, row)| row.state != view::ELSEWHERE);
    here.map(one).filter(|rank| filter.holds(&alone(rank.pid, &rank.program)))
}

/// A count that grew. One that fell is another's: what is new counts from nothing.
fn rate(now: u64, before: Option<u64>, seconds: f64) -> f64 {
    now.checked_sub(before.unwrap_or(0)).unwrap_or(now) as f64 / seconds
}

fn of_connection(connection: &Connection, old: Option<&Connection>, seconds: f64) -> ConnectionRates {
    let end = |party: &Party, old: Option<&Party>, woken: (u32, Option<u32>)| EndRates {
        address: party.address.clone(),
        port: party.port,
        pid: party.pid,
        program: party.program.clone(),
        sent_bytes: party.sent_bytes,
        sent_bytes_per_second: rate(party.sent_bytes, old.map(|old| old.sent_bytes), seconds),
        // Bells outlive connections: of a new one there is nothing to compare them with.
        wakeups_per_second: woken.1.map_or(0.0, |before| f64::from(woken.0.wrapping_sub(before)) / seconds),
        waits: party.waits,
    };
    let (client, server) = (&connection.client, &connection.server);
    let client_rates = end(client, old.map(|old| &old.client), (server.bells_rung, old.map(|old| old.server.bells_rung)));
    let server_rates = end(server, old.map(|old| &old.server), (client.bells_rung, old.map(|old| old.client.bells_rung)));
    ConnectionRates {
        state: connection.state.to_owned(),
        carrier: connection.carrier.to_owned(),
        seconds: connection.seconds.into(),
        bytes: client.sent_bytes + server.sent_bytes,
        bytes_per_second: client_rates.sent_bytes_per_second + server_rates.sent_bytes_per_second,
        wakeups_per_second: client_rates.wakeups_per_second + server_rates.wakeups_per_second,
        client: client_rates,
        server: server_rates,
    }
}

fn of_stream(stream: &crate::inspect::stations::Stream, sent: f64) -> ConnectionRates {
    let here = EndRates {
        address: stream.local.clone(),
        port: stream.local_port,
        pid: stream.pids.first().copied(),
        program: stream.program.clone(),
        sent_bytes: stream.sent_bytes,
        sent_bytes_per_second: sent,
        wakeups_per_second: 0.0,
        waits: None,
    };
    let there = EndRates {
        address: stream.remote.clone(),
        port: stream.remote_port,
        pid: None,
        program: String::new(),
        sent_bytes: stream.received_bytes,
        sent_bytes_per_second: 0.0,
        ..here.clone()
    };
    let (client, server) = if stream.role == "client" { (here, there) } else { (there, here) };
    ConnectionRates {
        state: stream.way.to_owned(),
        carrier: stream.carrier().to_owned(),
        seconds: stream.seconds,
        bytes: stream.sent_bytes + stream.received_bytes,
        bytes_per_second: sent,
        wakeups_per_second: 0.0,
        client,
        server,
    }
}

fn of_processes(
    before: &Sample,
    now: &Sample,
    seconds: f64,
    connections: &[(bool, ConnectionRates)],
    filter: &Filter,
) -> Vec<ProcessRates> {
    let ticks = now.ticks.saturating_sub(before.ticks).max(1) as f64;
    let earlier: HashMap<u32, &Process> = before.processes.iter().map(|old| (old.pid, old)).collect();
    let one = |process: &Process| {
        // A process number may be another's by now.
        let old = earlier.get(&process.pid).copied().filter(|old| old.program == process.program && old.cpu <= process.cpu);
        let of_waits = |now: u64, before: Option<u64>| before.map_or(0.0, |before| now.saturating_sub(before) as f64);
        let waited = old.map(|old| old.waited);
        let given: Vec<Given> = process
            .reasons
            .iter()
            .filter(|(reason, _)| reason.is_fall_back())
            .map(|(reason, count)| {
                let earlier =
                    old.and_then(|old| old.reasons.iter().find(|(known, _)| known == reason)).map_or(0, |(_, count)| *count);
                let more = if old.is_some() { count.saturating_sub(earlier) } else { *count };
                Given { reason: reason.word(), explanation: reason.text(), count: *count, more }
            })
            .collect();
        let mut rates = ProcessRates {
            pid: process.pid,
            program: process.program.clone(),
            connections: 0,
            sent_bytes: 0,
            received_bytes: 0,
            sent_bytes_per_second: 0.0,
            received_bytes_per_second: 0.0,
            wakeups_per_second: 0.0,
            sleeps_per_second: of_waits(process.waited.sleeps, waited.map(|waited| waited.sleeps)) / seconds,
            cpu_share: old.map_or(0.0, |old| (process.cpu - old.cpu) / seconds),
            spun_share: of_waits(process.waited.spun, waited.map(|waited| waited.spun)) / ticks,
            slept_share: of_waits(process.waited.slept, waited.map(|waited| waited.slept)) / ticks,
            fall_backs: given.iter().map(|given| given.count).sum(),
            reasons: given,
        };
        rates.reasons.sort_by_key(|given| std::cmp::Reverse(given.count));
        let mut shown = filter.holds(&alone(process.pid, &process.program));
        for (passes, connection) in connections {
            for (own, other) in [(&connection.client, &connection.server), (&connection.server, &connection.client)] {
                if own.pid == Some(process.pid) {
                    shown |= passes;
                    rates.connections += 1;
                    rates.sent_bytes += own.sent_bytes;
                    rates.received_bytes += other.sent_bytes;
                    rates.sent_bytes_per_second += own.sent_bytes_per_second;
                    rates.received_bytes_per_second += other.sent_bytes_per_second;
                    rates.wakeups_per_second += own.wakeups_per_second;
                }
            }
        }
        shown.then_some(rates)
    };
    now.processes.iter().filter_map(one).collect()
}

/// A process without connections, as a filter sees it.
fn alone(pid: u32, program: &str) -> Row<'_> {
    let end = || crate::filter::End { address: "", port: 0, program, pid: Some(pid), pids: &[] };
    Row { state: "", carrier: "", reason: "", ends: [end(), end()] }
}

impl EndRates {
    /// The program and the process, as `ss` writes them.
    pub fn process(&self) -> String {
        match self.pid {
            Some(pid) => format!("{}/{pid}", self.program),
            None if !self.program.is_empty() => format!("{}/?", self.program),
            None => "-".to_owned(),
        }
    }

    /// Its address and port.
    pub fn place(&self) -> String {
        socket_text(&self.address, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn what_is_new_counts_from_nothing() {
        assert_eq!(rate(30, Some(10), 2.0), 10.0);
        assert_eq!(rate(30, None, 2.0), 15.0);
        assert_eq!(rate(30, Some(31), 2.0), 15.0, "another connection under the same key");
    }
}
