//! `shunt ss`: the live accelerated connections of this user's processes.
use serde::Serialize;

use crate::failure::Failure;
use crate::inspect::connection::{self, socket_text, Connection, Party};
use crate::output::{print, print_json};
use crate::text_table::{bytes_text, text_table};

#[derive(Serialize)]
struct Report<'a> {
    connections: &'a [Connection],
    /// The agents of this network namespace, with the endpoints that this user may see.
    agents: &'a [shunt_agent::report::Report],
}

/// Prints the connections.
pub fn ss(json: bool) -> Result<u8, Failure> {
    let connections = connection::all();
    let asked = shunt_agent::report::interfaces();
    let agents: Vec<_> = asked.iter().filter_map(|interface| shunt_agent::report::ask(interface).ok()).collect();
    if json {
        print_json(&Report { connections: &connections, agents: &agents })?;
        return Ok(0);
    }
    if connections.is_empty() {
        print("no accelerated connections\n")?;
    } else {
        let heading =
            ["STATE", "CARRIER", "CLIENT", "PROGRAM", "SENT", "RING", "WAIT", "SERVER", "PROGRAM", "SENT", "RING", "WAIT", "AGE"];
        print(&text_table(&heading, &connections.iter().map(row).collect::<Vec<_>>()))?;
    }
    for agent in agents.iter().filter(|agent| !agent.endpoints.is_empty()) {
        print(&format!("\n{}", crate::agent::text(agent)))?;
    }
    Ok(0)
}

fn row(connection: &Connection) -> Vec<String> {
    let mut row = vec![connection.state.to_owned(), connection.carrier.to_owned()];
    row.extend(columns(&connection.client));
    row.extend(columns(&connection.server));
    row.push(format!("{}s", connection.seconds));
    row
}

fn columns(party: &Party) -> [String; 5] {
    let process = match party.pid {
        Some(pid) => format!("{}/{pid}", party.program),
        None => "-".to_owned(),
    };
    let fill = match (party.in_flight_bytes, party.ring_bytes) {
        (Some(used), Some(size)) => format!("{}/{}", bytes_text(used), bytes_text(size.into())),
        _ => "damaged".to_owned(),
    };
    let address = socket_text(&party.address, party.port);
    [address, process, bytes_text(party.sent_bytes), fill, party.waits.to_owned()]
}
