//! What an agent was not given it leaves alone: other interfaces of its host, and everything that the kernel keeps for all of
//! them.
mod agents;

use std::collections::BTreeMap;
use std::path::Path;

use agents::{attach, foreign_program, pair, Agent};
use shunt_endpoint::conformance::{connect, provide};
use shunt_endpoint::{Arrival, Endpoint, Message};
use shunt_testkit::hosts::{Host, Joint};
use shunt_xdp::protocol::Kind;

/// What somebody could notice, by where it is read.
type State = BTreeMap<String, String>;

/// Values that change by themselves.
const RESTLESS: [&str; 3] = ["nf_conntrack_count", "dirty", "flush"];

fn say(host: &Host, program: &str, line: &str) -> String {
    let output = host.command(program).args(line.split(' ')).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn read_all(directory: &Path, without: &str, into: &mut State) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if name == without || RESTLESS.iter().any(|word| name.contains(word)) {
        } else if path.is_dir() {
            read_all(&path, without, into);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            into.insert(path.display().to_string(), text);
        }
    }
}

/// Everything but the interface that the agent is given.
fn rest_of(host: &Host) -> State {
    let mut state = State::new();
    for line in ["-d link show", "addr show"] {
        for interface in ["lo", "far0", "near0", "plain0", "foreign0"] {
            let line = format!("{line} dev {interface}");
            state.insert(format!("ip {line}"), say(host, "ip", &line));
        }
    }
    for line in ["rule show", "-6 rule show", "route show table all", "-6 route show table all"] {
        state.insert(format!("ip {line}"), say(host, "ip", line));
    }
    for line in ["qdisc show dev near0", "filter show dev near0 ingress", "qdisc show dev plain0"] {
        let said = say(host, "tc", line);
        assert!(!said.is_empty(), "tc {line}");
        state.insert(format!("tc {line}"), said);
    }
    host.enter(|| read_all(Path::new("/proc/sys/net"), &host.interface, &mut state));
    assert!(state.keys().any(|key| key.contains("conf/near0/rp_filter")), "the settings of interfaces are read");
    state
}

/// The interface that it is given, for the time before and after.
fn given(host: &Host) -> [String; 2] {
    ["-d link show dev", "addr show dev"].map(|line| say(host, "ip", &format!("{line} {}", host.interface)))
}

fn expect_same(before: &State, host: &Host, when: &str) {
    let now = rest_of(host);
    for (place, text) in before {
        assert_eq!(Some(text), now.get(place), "{place}, {when}");
    }
    assert_eq!(before.len(), now.len(), "{when}");
}

/// A message each way, by endpoints of both kinds.
fn talk(hosts: &[Host; 2]) {
    let mut a = attach(&hosts[0], Kind::Any, false);
    let mut b = attach(&hosts[1], Kind::Any, false);
    provide(&mut a, 64);
    provide(&mut b, 64);
    let (to_b, _) = connect(&mut a, &mut b);
    let mut arrival = Arrival::empty();
    while !b.receive(&mut arrival) {
        let _ = a.send(&Message::small(to_b, b"one"));
        a.flush().expect("the device works");
    }
    b.release(&mut arrival);
}

#[test]
fn other_interfaces_stay_as_they_are() {
    let Some(hosts) = pair(Joint { queues: 2, mtu: 1500 }) else { return };
    let host = &hosts[0];
    for line in [
        "link add near0 type veth peer name far0",
        "link add plain0 type veth peer name plain1",
        "link set plain1 up",
        "link add foreign0 type veth peer name foreign1",
        "addr add 10.78.0.1/24 dev near0",
        "addr add 10.79.0.1/24 dev plain0",
        "link set near0 mtu 1400 up",
        "link set far0 up",
        "link set plain0 promisc on up",
        "link set foreign0 up",
        "link set foreign1 up",
        "route add 10.80.0.0/16 via 10.78.0.9",
    ] {
        host.ip(line);
    }
    host.enter(|| {
        std::fs::write("/proc/sys/net/ipv4/conf/near0/rp_filter", "2").expect("a setting");
        std::fs::write("/proc/sys/net/ipv6/conf/plain0/disable_ipv6", "1").expect("a setting");
    });
    for line in [
        "qdisc add dev near0 root pfifo limit 77",
        "qdisc add dev near0 clsact",
        "filter add dev near0 ingress protocol ip prio 7 u32 match u32 0 0 flowid 1:1",
        "qdisc add dev plain0 root pfifo limit 78",
    ] {
        let output = host.command("tc").args(line.split(' ')).output().expect("tc runs");
        assert!(output.status.success(), "tc {line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let _foreign = host.enter(|| foreign_program("foreign0"));
    // Addresses of links are made up a moment after these are up.
    let settled = || !say(host, "ip", "-6 addr show tentative").contains("inet6");
    while !settled() {
        std::thread::yield_now();
    }
    // The kernel lets a program at one end of such a pair limit the other's packets.
    let _peer = Agent::start(&hosts[1], &["--lend", "1"]);
    let (before, own) = (rest_of(host), given(host));
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGTERM] {
        let mut agent = Agent::start(host, &["--lend", "1"]);
        expect_same(&before, host, "while the agent serves");
        talk(&hosts);
        expect_same(&before, host, "after endpoints talked");
        agent.signal(signal);
        agent.wait();
        expect_same(&before, host, "after the agent ended");
        if signal == libc::SIGTERM {
            assert_eq!(own, given(host), "the interface that it was given, after it ended");
        }
    }
}
