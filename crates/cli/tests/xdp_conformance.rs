//! Every device is judged by one suite: endpoints over AF_XDP, between two hosts.
mod agents;

use agents::{attach, pair, Agent};
use shunt_endpoint::conformance::{Boxed, Couple};
use shunt_endpoint::Endpoint;
use shunt_testkit::hosts::Joint;
use shunt_xdp::protocol::Kind;

/// How a couple is made.
#[derive(Clone, Copy)]
struct How {
    kinds: [Kind; 2],
    version_6: bool,
    queues: u32,
    lend: &'static str,
    more: &'static [&'static str],
}

const OWN: How = How { kinds: [Kind::Own; 2], version_6: false, queues: 1, lend: "0", more: &[] };
const MULTIPLEXED: How = How { kinds: [Kind::Multiplexed; 2], lend: "none", ..OWN };

fn couple(how: How) -> Option<Couple> {
    let hosts = pair(Joint { queues: how.queues, ..Joint::default() })?;
    let lend = ["--lend", how.lend];
    let agents: Vec<Agent> = hosts.iter().map(|host| Agent::start(host, &[&lend[..], how.more].concat())).collect();
    let [a, b] = [0, 1].map(|index: usize| -> Boxed {
        let endpoint = attach(&hosts[index], how.kinds[index], how.version_6);
        assert_eq!(endpoint.kind(), how.kinds[index]);
        Box::new(endpoint)
    });
    Some(Couple { a, b, keep: Some(Box::new((agents, hosts))) })
}

/// The suite asks for all where nothing is lost on the way.
fn faithful(how: How) -> Option<Couple> {
    couple(how).map(Couple::faithful)
}

mod own_queues {
    use super::*;
    shunt_endpoint::conformance!(|| couple(OWN));
    shunt_endpoint::conformance!(@wrapped || couple(OWN));
}

mod own_queues_without_loss {
    use super::*;
    shunt_endpoint::conformance!(
        @each || faithful(OWN);
        ordered_stream held_arrivals batches closing injection arming no_wake_up_is_lost counting updates_arrive
    );
}

/// Where frames and runs might overtake each other there are no runs.
mod own_of_two_queues {
    use super::*;
    const HOW: How = How { queues: 2, lend: "1", ..OWN };
    shunt_endpoint::conformance!(@each || faithful(HOW); ordered_stream batches closing);
}

/// Runs over IPv6.
mod own_queues_of_version_6 {
    use super::*;
    const HOW: How = How { version_6: true, ..OWN };
    shunt_endpoint::conformance!(@each || faithful(HOW); ordered_stream batches closing);
}

/// Before the stack, on a port that no sender knows to be an agent's, and by a program that was loaded for it.
mod own_generic {
    use super::*;
    const HOW: How = How { more: &["--attach", "generic", "--port", "4000"], ..OWN };
    shunt_endpoint::conformance!(@each || faithful(HOW); ordered_stream batches closing);
}

mod multiplexed {
    use super::*;
    shunt_endpoint::conformance!(|| couple(MULTIPLEXED));
    shunt_endpoint::conformance!(@wrapped || couple(MULTIPLEXED));
}

mod multiplexed_without_loss {
    use super::*;
    shunt_endpoint::conformance!(
        @each || faithful(How { version_6: true, ..MULTIPLEXED });
        ordered_stream no_buffers held_arrivals batches closing injection arming counting updates_arrive
    );
}

/// A host that has only UDP sockets talks with one that has an agent.
fn couple_with_udp(kind: Kind, version_6: bool) -> Option<Couple> {
    couple_of_udp_and(How { version_6, ..if kind == Kind::Own { OWN } else { MULTIPLEXED } })
}

fn couple_of_udp_and(How { kinds: [kind, _], version_6, lend, more, .. }: How) -> Option<Couple> {
    use shunt_endpoint::device::udp::{ipv4, ipv6, Options, Udp};
    let hosts = pair(Joint::default())?;
    let agent = Agent::start(&hosts[0], &[&["--lend", lend][..], more].concat());
    let xdp = attach(&hosts[0], kind, version_6);
    let address = match hosts[1].addresses[usize::from(version_6)] {
        std::net::IpAddr::V4(ip) => ipv4(ip.octets(), 0),
        std::net::IpAddr::V6(ip) => ipv6(ip.octets(), 0, 0),
    };
    // One size for both: what the suite sends as the largest message, both can receive.
    let udp = hosts[1].enter(|| Udp::bind(&address, Options::default())).expect("a UDP endpoint");
    assert_eq!(xdp.capabilities().largest, udp.capabilities().largest);
    Some(Couple { a: Box::new(xdp), b: Box::new(udp), keep: Some(Box::new((agent, hosts))) }.faithful())
}

mod own_queue_with_udp {
    use super::*;
    shunt_endpoint::conformance!(
        @each || couple_with_udp(Kind::Own, false);
        small_messages large_messages gathered ordered_stream tags_protect held_arrivals arming counting updates_arrive
    );
}

mod multiplexed_with_udp {
    use super::*;
    shunt_endpoint::conformance!(
        @each || couple_with_udp(Kind::Multiplexed, true);
        small_messages large_messages ordered_stream tags_protect counting updates_arrive
    );
}

/// The other way round: the suite sends most from the first to the second.
mod udp_with_own_queue {
    use super::*;
    fn couple() -> Option<Couple> {
        couple_with_udp(Kind::Own, true).map(|Couple { a, b, keep }| Couple { a: b, b: a, keep })
    }
    shunt_endpoint::conformance!(@each || couple(); small_messages large_messages ordered_stream held_arrivals arming updates_arrive);
}

mod udp_with_multiplexed {
    use super::*;
    fn couple() -> Option<Couple> {
        couple_with_udp(Kind::Multiplexed, false).map(|Couple { a, b, keep }| Couple { a: b, b: a, keep })
    }
    shunt_endpoint::conformance!(@each || couple(); small_messages large_messages ordered_stream held_arrivals arming updates_arrive);
}

/// Runs of datagrams for a port that the sender does not know as an agent's: nobody cuts them before the stack's hook.
mod udp_uncut {
    use super::*;
    fn couple(how: How) -> Option<Couple> {
        let how = How { more: &["--attach", "generic", "--port", "4000"], ..how };
        couple_of_udp_and(how).map(|Couple { a, b, keep }| Couple { a: b, b: a, keep })
    }
    mod own_queue {
        use super::*;
        shunt_endpoint::conformance!(@each || couple(OWN); small_messages large_messages held_arrivals arming updates_arrive);
    }
    mod multiplexed {
        use super::*;
        const IPV6: How = How { version_6: true, ..MULTIPLEXED };
        shunt_endpoint::conformance!(@each || couple(IPV6); small_messages large_messages held_arrivals arming updates_arrive);
    }
}

/// Over IPv6, through the stack's hook, from a queue of one's own to an emulated endpoint.
mod mixed_generic {
    use super::*;
    const HOW: How =
        How { kinds: [Kind::Own, Kind::Multiplexed], version_6: true, queues: 2, lend: "1", more: &["--attach", "generic"] };
    shunt_endpoint::conformance!(
        @each || faithful(HOW);
        small_messages large_messages ordered_stream held_arrivals batches arming counting updates_arrive
    );
}
