//! Traffic of an interface that no program under shunt has: as it is without an agent, with one, and with one that has taken connections of a process.

use std::io;

use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::Host;

use super::programs::{next_port, Way, START_LIMIT};
use super::record::{Record, Sheet};
use super::taken::{add, bulk, round_trip};
use super::Plan;
use crate::process::Running;
use crate::programs::Measuring;

/// The table, of which aims are made.
pub const BESIDE: &str = "other traffic of an interface with taken connections";
/// Its rows: us, Gb/s.
pub const ROWS: [&str; 3] = ["8 B round trip, us", "stream from it, Gb/s", "stream to it, Gb/s"];
/// Its column.
pub const TO_NONE: &str = "taken/none";

#[derive(Clone, Copy)]
enum With {
    Nothing,
    Agent,
    Taken,
}

/// Connections that are taken meanwhile, and silent.
const CONNECTIONS: &str = "50";

/// All of it.
///
/// # Errors
/// A sentence.
pub fn beside(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let mut sheet = Sheet::new(BESIDE, &["none", "agent", "taken", TO_NONE, "taken/agent"], &[2]);
    let ways = [With::Nothing, With::Agent, With::Taken];
    let ends = hosts.each_ref().map(|host| (Way::Blocking, host));
    add(&mut sheet, ROWS[0], plan, true, ways, |with| {
        with.during(hosts, plan, || round_trip([Way::Blocking; 2], 8, hosts, plan))
    })?;
    add(&mut sheet, ROWS[1], plan, false, ways, |with| with.during(hosts, plan, || bulk(ends, 64 << 10, plan)))?;
    let back = [ends[1], ends[0]];
    add(&mut sheet, ROWS[2], plan, false, ways, |with| with.during(hosts, plan, || bulk(back, 64 << 10, plan)))?;
    record.add(sheet);
    Ok(())
}

impl With {
    /// A measurement of something else on the first host.
    fn during<T>(self, hosts: &[Host; 2], plan: &Plan<'_>, turn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let agent = |arguments| Agent::start(&hosts[0], plan.shunt, arguments).map(Some).map_err(io::Error::other);
        let (_agent, _silent) = match self {
            With::Nothing => (None, None),
            With::Agent => (agent(&["--lend", "0"])?, None),
            With::Taken => {
                let agent = agent(&["--lend", "0", "--take"])?;
                (agent, Some(silent(hosts, plan)?))
            }
        };
        turn()
    }
}

/// A client by `--inet` and a plain server, whose connections have carried messages, and carry none now.
fn silent(hosts: &[Host; 2], plan: &Plan<'_>) -> io::Result<[Running; 2]> {
    let (port, address) = (next_port().to_string(), hosts[1].addresses[0].to_string());
    let path = Measuring::Idle.path(plan.scratch);
    let both = ["--port", &port, "--host", &address, "--connections", CONNECTIONS];
    let mut server = Way::Blocking.launch(&hosts[1], plan, &path).args(["server"]).args(both).start(plan.scratch)?;
    server.wait_for_output("ready", START_LIMIT)?;
    let client = Way::Taken.launch(&hosts[0], plan, &path).args(["client"]).args(both).args(["--milliseconds", "9000"]);
    let client = client.start(plan.scratch)?;
    // Fifty take a few milliseconds, and a queue some ten.
    std::thread::sleep(std::time::Duration::from_millis(300));
    Ok([server, client])
}
