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
use shunt_rpc::{Address, Running, Server, ServerOptions};
use shunt_testkit::hosts::{Host, Joint};

/// The host of servers, and the one of callers.
struct Hosts {
    hosts: [Host; 2],
    device: &'static str,
}

impl Device for Hosts {
    fn address(&self, _: &str) -> Address {
        format!("{}:{}:0", self.device, self.hosts[0].addresses[0]).parse().unwrap()
    }

    fn serve(&self, address: &Address, options: ServerOptions) -> Running {
        self.hosts[0].enter(|| Server::bind(address, options).unwrap().spawn(common::Test::default).unwrap())
    }

    fn beside_servers(&self, program: &Path) -> Command {
        self.hosts[0].command(program)
    }

    fn beside_callers(&self, program: &Path) -> Command {
        self.hosts[1].command(program)
    }
}

/// Hosts with agents that lend queues of these numbers, which the sentences then are true on; nothing without root, which is told.
fn judged(device: &'static str, lend: [&str; 2], judge: impl FnOnce(&Hosts) + Send) {
    let Some(hosts) = pair(Joint::default()) else { return };
    let agents: Vec<Agent> = [0, 1].map(|at: usize| Agent::start(&hosts[at], &["--lend", lend[at]])).into();
    let hosts = Hosts { hosts, device };
    hosts.hosts[1].enter(|| judge(&hosts));
    drop(agents);
}

fn own_queues(judge: impl FnOnce(&Hosts) + Send) {
    judged("xdp", ["0", "0"], judge);
}

fn emulated(judge: impl FnOnce(&Hosts) + Send) {
    judged("xdp", ["none", "none"], judge);
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
    let hosts = Hosts { hosts, device: "xdp" };
    let server = hosts.server("lonely", ServerOptions::default());
    let connect = || shunt_rpc::Client::connect(server.address(), common::PROGRAM, 1..=1, shunt_rpc::Options::default());
    let error = hosts.hosts[1].enter(|| connect().err()).expect("no end of the server's");
    assert_eq!((error.kind(), error.side()), (shunt_rpc::Kind::System, shunt_rpc::Side::Server), "{error}");
    assert!(error.to_string().contains("agent"), "{error}");
    drop(agent);
}
