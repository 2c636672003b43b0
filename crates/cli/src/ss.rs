//! `shunt ss`: the live accelerated connections of this user's processes.
use std::cmp::Reverse;

use clap::ArgMatches;
use serde::Serialize;
use shunt_segment::reason::Reason;

use crate::failure::Failure;
use crate::filter::{End, Filter, Row};
use crate::inspect::connection::{self, socket_text, Connection, Party};
use crate::inspect::processes;
use crate::inspect::stations::{self, Stream};
use crate::output::{print, print_json};
use crate::text_table::{bytes_text, text_table};

#[derive(Serialize)]
struct Report<'a> {
    /// Fields are added under one number, never changed.
    schema: &'static str,
    connections: &'a [Connection],
    /// Ended ones whose memory is kept for the next: listed if they are asked for.
    ended: usize,
    /// Those to other hosts.
    streams: &'a [Stream],
    /// The agents of this network namespace, with the endpoints that this user may see.
    agents: &'a [shunt_agent::report::Report],
}

/// Prints the connections that are asked for; ended ones only if `all` are.
///
/// # Errors
/// If the filter has a mistake, or processes are not shown here.
pub fn ss(matches: &ArgMatches) -> Result<u8, Failure> {
    let (json, all) = (matches.get_flag("json"), matches.get_flag("all"));
    let words: Vec<String> = matches.get_many::<String>("filter").into_iter().flatten().cloned().collect();
    let filter = Filter::parse(&words)?;
    processes::are_shown()?;
    let pids = processes::all();
    let mut connections = connection::of_processes(&pids);
    let mut streams = stations::of_processes(&pids, &mut connections).streams;
    connections.retain(|connection| filter.holds(&seen(connection)));
    streams.retain(|stream| filter.holds(&seen_stream(stream)));
    match matches.get_one::<String>("sort").map(String::as_str) {
        Some("sent") => {
            connections.sort_by_key(|connection| Reverse(connection.client.sent_bytes + connection.server.sent_bytes));
            streams.sort_by_key(|stream| Reverse(stream.sent_bytes));
        }
        Some("age") => {
            connections.sort_by_key(|connection| Reverse(connection.seconds));
            streams.sort_by_key(|stream| Reverse(stream.seconds));
        }
        _ => (),
    }
    let ended = connections.iter().filter(|connection| connection.ended).count();
    connections.retain(|connection| all || !connection.ended);
    let asked = shunt_agent::report::interfaces();
    let agents: Vec<_> = asked.iter().filter_map(|interface| shunt_agent::report::ask(interface).ok()).collect();
    if json {
        print_json(&Report { schema: "shunt.ss/1", connections: &connections, ended, streams: &streams, agents: &agents })?;
        return Ok(0);
    }
    if connections.is_empty() && streams.is_empty() {
        print(if filter == Filter::All {
            "no accelerated connections\n"
        } else {
            "no accelerated connections that the filter lets through\n"
        })?;
    }
    if !connections.is_empty() {
        let heading =
            ["STATE", "CARRIER", "CLIENT", "PROGRAM", "SENT", "RING", "WAIT", "SERVER", "PROGRAM", "SENT", "RING", "WAIT", "AGE"];
        print(&text_table(&heading, &connections.iter().map(row).collect::<Vec<_>>()))?;
    }
    if !streams.is_empty() {
        let gap = if connections.is_empty() { "" } else { "\n" };
        let heading =
            ["WAY", "LOCAL", "REMOTE", "PROGRAM", "SENT", "UNDER-WAY", "RECEIVED", "ROUND-TRIP", "WINDOW", "SENT-AGAIN", "AGE"];
        print(&format!("{gap}{}", text_table(&heading, &streams.iter().map(stream_row).collect::<Vec<_>>())))?;
    }
    if ended > 0 && !all {
        let connections = if ended == 1 { "connection" } else { "connections" };
        print(&format!("and memory kept of {ended} ended {connections} (--all)\n"))?;
    }
    for agent in agents.iter().filter(|agent| !agent.endpoints.is_empty()) {
        print(&format!("\n{}", crate::agent::text(agent)))?;
    }
    Ok(0)
}

/// As a filter sees it.
pub fn seen(connection: &Connection) -> Row<'_> {
    fn end(party: &Party) -> End<'_> {
        End { address: &party.address, port: party.port, program: &party.program, pid: party.pid, pids: &party.pids }
    }
    Row {
        state: connection.state,
        carrier: connection.carrier,
        reason: Reason::Accelerated.word(),
        ends: [end(&connection.client), end(&connection.server)],
    }
}

/// As a filter sees it.
pub fn seen_stream(stream: &Stream) -> Row<'_> {
    let here = End { address: &stream.local, port: stream.local_port, program: &stream.program, pid: None, pids: &stream.pids };
    let there = End { address: &stream.remote, port: stream.remote_port, program: "", pid: None, pids: &[] };
    let ends = if stream.role == "client" { [here, there] } else { [there, here] };
    Row { state: stream.way, carrier: stream.carrier(), reason: Reason::OtherHost.word(), ends }
}

fn row(connection: &Connection) -> Vec<String> {
    let mut row = vec![connection.state.to_owned(), connection.carrier.to_owned()];
    row.extend(columns(&connection.client));
    row.extend(columns(&connection.server));
    row.push(format!("{}s", connection.seconds));
    row
}

fn stream_row(stream: &Stream) -> Vec<String> {
    let [local, remote] = stream.ends();
    let process = match stream.pids.first() {
        Some(pid) => format!("{}/{pid}", stream.program),
        None => "-".to_owned(),
    };
    let path =
        |told: &dyn Fn(&stations::Path) -> String| stream.path.as_ref().filter(|path| path.up).map_or("-".to_owned(), told);
    vec![
        if stream.way == "fast" { stream.device.to_owned() } else { format!("{} ({})", stream.carrier(), stream.way) },
        local,
        remote,
        process,
        bytes_text(stream.sent_bytes),
        bytes_text(stream.under_way()),
        bytes_text(stream.received_bytes),
        path(&|path| format!("{:.0}us", path.round_trip_us)),
        path(&|path| format!("{}/{}", path.in_flight_packets, path.window_packets)),
        path(&|path| path.retransmissions.to_string()),
        format!("{}s", stream.seconds),
    ]
}

fn columns(party: &Party) -> [String; 5] {
    let process = match party.pid {
        Some(pid) => format!("{}/{pid}", party.program),
        // Its number would be of another PID namespace, or of an ended process: another process may go by it here.
        None if !party.program.is_empty() => format!("{}/?", party.program),
        None => "-".to_owned(),
    };
    let fill = match (party.in_flight_bytes, party.ring_bytes) {
        (Some(used), Some(size)) => format!("{}/{}", bytes_text(used), bytes_text(size.into())),
        _ => "damaged".to_owned(),
    };
    let address = socket_text(&party.address, party.port);
    [address, process, bytes_text(party.sent_bytes), fill, party.waits.unwrap_or("-").to_owned()]
}
