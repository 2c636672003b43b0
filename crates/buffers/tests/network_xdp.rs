//! Ports between two hosts (network namespaces, and a veth) over AF_XDP.

mod pairs;

use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::{pair, Joint};
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;

#[test]
fn every_sender_and_every_receiver_over_xdp() {
    let tests = std::env::current_exe().unwrap();
    let shunt = tests.ancestors().nth(2).unwrap().join("shunt");
    let hosts = match pair(Joint::default()) {
        Ok(hosts) if shunt.is_file() => hosts,
        Ok(_) => return println!("skipped: no {}", shunt.display()),
        Err(why) => return println!("skipped: {why}"),
    };
    for (kind, lend) in [(Kind::Own, "0"), (Kind::Multiplexed, "none")] {
        let agents: Result<Vec<Agent>, String> = hosts.iter().map(|host| Agent::start(host, &shunt, &["--lend", lend])).collect();
        let agents = agents.unwrap();
        for way in pairs::WAYS {
            let [a, b] = hosts.each_ref().map(|host| {
                let sizes = Sizes { channels: 64, depth: 1024, segment: 4 << 20 };
                host.enter(|| Xdp::attach(&host.interface, kind, false, sizes)).unwrap()
            });
            pairs::pairs_over(a, b, way);
        }
        drop(agents);
    }
}
