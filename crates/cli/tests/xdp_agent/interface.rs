//! What becomes of the interface, and the agent with it.

use crate::agents::{attach, mac_of, pair, status, Agent, Raw, SHUNT};
use crate::{attach_own, pass, until};
use shunt_endpoint::conformance::{connect, provide};
use shunt_endpoint::{Body, Bytes, Endpoint, Message, SendError, Tag, Tags};
use shunt_testkit::hosts::Joint;
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;

/// The interface goes down under load and comes back; then it is removed, and the agent ends.
#[test]
fn interface_goes_down_and_away() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let mut agents = hosts.each_ref().map(|host| Agent::start(host, &["--lend", "none"]));
    let mut a = attach(&hosts[0], Kind::Multiplexed, false);
    let mut b = attach(&hosts[1], Kind::Multiplexed, false);
    provide(&mut b, 64);
    let (to_b, _) = connect(&mut a, &mut b);
    pass(&mut a, &mut b, to_b, b"up");
    hosts[0].ip("link set left0 down");
    for _ in 0..1000 {
        let _ = a.send(&Message::small(to_b, b"into the void"));
        let _ = a.flush();
    }
    hosts[0].ip("link set left0 up");
    pass(&mut a, &mut b, to_b, b"up again");
    hosts[0].ip("link del left0");
    for agent in &mut agents {
        assert_eq!(agent.wait(), Some(1), "an agent without an interface ends");
    }
    until("the endpoints hear of it", || {
        let _ = a.arm();
        a.disarm();
        a.flush().is_err()
    });
}

/// The interface is renamed, gets an address, and its packets may be shorter, then longer again: the agent goes with it.
#[test]
fn agent_follows_its_interface() {
    let Some(mut hosts) = pair(Joint { queues: 2, mtu: 1500 }) else { return };
    let agents = hosts.each_ref().map(|host| Agent::start(host, &["--lend", "1"]));
    let mut own = attach_own(&hosts[0]);
    let mut emulated = attach(&hosts[0], Kind::Multiplexed, false);
    let mut peer = attach(&hosts[1], Kind::Multiplexed, false);
    provide(&mut peer, 64);
    let [(one, _), (two, _)] = [connect(&mut own, &mut peer), connect(&mut emulated, &mut peer)];
    pass(&mut own, &mut peer, one, b"one");
    pass(&mut emulated, &mut peer, two, b"two");

    let old = std::mem::replace(&mut hosts[0].interface, "other0".to_string());
    hosts[0].ip(&format!("link set {old} down"));
    hosts[0].ip(&format!("link set {old} name other0"));
    hosts[0].ip("link set other0 up");
    until("it is asked for by its new name", || status(&hosts[0])["agents"][0]["interface"] == "other0");
    let by_old = hosts[0].enter(|| Xdp::attach(&old, Kind::Any, false, Sizes::default()));
    assert_eq!(by_old.err().map(|errno| errno.0), Some(libc::ECONNREFUSED));
    let output = hosts[0].command(SHUNT).args(["agent", "--interface", "other0"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("has an agent already (process {})", agents[0].child.id())), "{said}");
    pass(&mut own, &mut peer, one, b"one again");
    pass(&mut emulated, &mut peer, two, b"two again");
    let mut made = attach(&hosts[0], Kind::Multiplexed, false);
    let (three, _) = connect(&mut made, &mut peer);
    pass(&mut made, &mut peer, three, b"three");

    hosts[0].ip("addr add 10.77.0.77/24 dev other0");
    until("its address is told", || {
        status(&hosts[0])["agents"][0]["addresses"].as_array().unwrap().iter().any(|address| address == "10.77.0.77")
    });

    let most = |endpoint: &Xdp| endpoint.capabilities().largest;
    let whole = most(&made);
    let bytes = vec![5; whole as usize];
    let long = |channel| Message { channel, head: &[], body: Body::Bytes(Bytes::from(&bytes[..])) };
    hosts[0].ip("link set other0 mtu 1400");
    until("it is known", || status(&hosts[0])["agents"][0]["largest_frame"] == 1414);
    assert_eq!(own.send(&long(one)).err(), Some(SendError::TooLarge));
    let _ = emulated.send(&long(two)).expect("a queue");
    until("it is counted", || {
        emulated.flush().expect("the device works");
        status(&hosts[0])["agents"][0]["endpoints"].as_array().unwrap().iter().any(|endpoint| endpoint["unsent"] == 1)
    });
    let short = attach(&hosts[0], Kind::Multiplexed, false);
    assert_eq!(most(&short), whole - 100);
    pass(&mut own, &mut peer, one, b"one at last");
    // As long as they were; the agent's queues were made for no longer ones.
    hosts[0].ip("link set other0 mtu 3000");
    until("it is known", || status(&hosts[0])["agents"][0]["largest_frame"] == 1514);
    own.send(&long(one)).expect("room");
}

/// The interface gets another Ethernet address: frames come from it, the agent's and those that a program writes itself.
#[test]
fn frames_come_from_the_address_of_now() {
    let Some(hosts) = pair(Joint { queues: 2, mtu: 1500 }) else { return };
    let _agent = Agent::start(&hosts[0], &["--lend", "1"]);
    let hears = Raw::listening(&hosts[1]);
    let mut endpoints = [attach_own(&hosts[0]), attach(&hosts[0], Kind::Multiplexed, false)];
    let channels = endpoints.each_mut().map(|endpoint| {
        let tags = Tags { receive: endpoint.new_tag().expect("a tag"), send: Tag(7) };
        endpoint.open(&shunt_endpoint::device::udp::ipv4([10, 77, 0, 2], 9), tags).expect("a channel")
    });
    let mut arrive_from = |mac: [u8; 6]| {
        for (endpoint, channel) in endpoints.iter_mut().zip(channels) {
            until("a frame from there", || {
                let _ = endpoint.send(&Message::small(channel, b"frame"));
                endpoint.flush().expect("the device works");
                std::iter::from_fn(|| hears.next()).any(|frame| frame[6..12] == mac && frame.ends_with(b"frame"))
            });
        }
    };
    arrive_from(mac_of(&hosts[0]));
    for last in [0x77, 0x78] {
        hosts[0].ip(&format!("link set left0 address 02:00:00:00:00:{last:x}"));
        arrive_from([2, 0, 0, 0, 0, last]);
    }
}
