//! Calls between two hosts over AF_XDP are judged by the sentences that calls over every other device are judged by.

mod agents;
#[path = "../../rpc/tests/common/mod.rs"]
mod common;
#[path = "../../rpc/tests/sentences/mod.rs"]
mod sentences;

use std::path::Path;
use std::process::Command;

use agents::{pair, Agent};
use sentences::{be_the_other_side, Device};
use shunt_rpc::{Address, Running, ServerOptions};
use shunt_testkit::hosts::{Host, Joint};

/// The host of servers, and the one of callers.
struct Hosts {
    hosts: [Host; 2],
}

impl Device for Hosts {
    fn address(&self, _: &str) -> Address {
        format!("xdp:{}:0", self.hosts[0].addresses[0]).parse().unwrap()
    }

    fn serve(&self, address: &Address, options: ServerOptions) -> Running {
        self.hosts[0].enter(|| sentences::listening(address, options))
    }

    fn beside_servers(&self, program: &Path) -> Command {
        self.hosts[0].command(program)
    }

    fn beside_callers(&self, program: &Path) -> Command {
        self.hosts[1].command(program)
    }
}

/// Hosts with agents that lend these of so many queues; nothing without root, which is told.
fn judged(queues: u32, lend: &str, judge: impl FnOnce(&Hosts) + Send) {
    let Some(hosts) = pair(Joint { queues, ..Joint::default() }) else { return };
    let agents: Vec<Agent> = hosts.iter().map(|host| Agent::start(host, &["--lend", lend])).collect();
    let hosts = Hosts { hosts };
    hosts.hosts[1].enter(|| judge(&hosts));
    drop(agents);
}

/// The first end of a host has a queue of its own; for the others the agent moves frames, by the queue that it keeps.
fn own_queues(judge: impl FnOnce(&Hosts) + Send) {
    judged(2, "1", judge);
}

fn emulated(judge: impl FnOnce(&Hosts) + Send) {
    judged(1, "none", judge);
}

sentences!(own, super::own_queues);
sentences!(moved, super::emulated);

#[test]
fn the_other_side() {
    be_the_other_side();
}

/// A side is free to choose: frames are the same.
#[test]
fn a_caller_with_sockets_calls_a_server_with_a_queue() {
    own_queues(|hosts| {
        let server = hosts.server("mixed", ServerOptions::default());
        let plain = server.address().to_string().replace("xdp:", "udp:");
        let client = common::client(&plain.parse().unwrap());
        let data = common::Data::from(vec![7; 100_000]);
        assert!(client.call::<_, common::Data>(common::ECHO, &data).unwrap() == data);
    });
}

#[test]
fn a_server_without_an_agent_says_so() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let agent = Agent::start(&hosts[1], &["--lend", "0"]);
    let hosts = Hosts { hosts };
    let server = hosts.server("lonely", ServerOptions::default());
    let connect = || shunt_rpc::Client::connect(server.address(), common::PROGRAM, 1..=1, shunt_rpc::Options::default());
    let error = hosts.hosts[1].enter(|| connect().err()).expect("no end of the server's");
    assert_eq!((error.kind(), error.side()), (shunt_rpc::Kind::System, shunt_rpc::Side::Server), "{error}");
    assert!(error.to_string().contains("agent"), "{error}");
    drop(agent);
}
