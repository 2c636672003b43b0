//! Every device is judged by one suite: endpoints over AF_XDP, between two hosts.
mod agents;

use agents::{attach, pair, Agent};
use shunt_endpoint::conformance::{Boxed, Couple};
use shunt_endpoint::{
    Address, Area, Arrival, Backlog, Capabilities, Channel, Counters, Endpoint, Message, OpenError, PostError, Segment,
    SendError, Tags, Ticket,
};
use shunt_testkit::hosts::Joint;
use shunt_xdp::protocol::Kind;

/// A device that says it loses messages, as any between hosts must, where nothing loses them: so the suite asks for all.
struct Faithful<E> {
    endpoint: E,
    capabilities: Capabilities,
}

impl<E: Endpoint> Faithful<E> {
    fn new(endpoint: E) -> Faithful<E> {
        let capabilities = Capabilities { lossy: false, ..*endpoint.capabilities() };
        Faithful { endpoint, capabilities }
    }
}

impl<E: Endpoint> Endpoint for Faithful<E> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn segment(&self) -> Segment {
        self.endpoint.segment()
    }
    fn address(&self) -> Address {
        self.endpoint.address()
    }
    fn new_tag(&mut self) -> Result<shunt_endpoint::Tag, shunt_sys::Errno> {
        self.endpoint.new_tag()
    }
    fn open(&mut self, remote: &Address, tags: Tags) -> Result<Channel, OpenError> {
        self.endpoint.open(remote, tags)
    }
    fn close(&mut self, channel: Channel) {
        self.endpoint.close(channel)
    }
    fn send(&mut self, message: &Message<'_>) -> Result<Ticket, SendError> {
        self.endpoint.send(message)
    }
    fn flush(&mut self) -> Result<bool, SendError> {
        self.endpoint.flush()
    }
    fn injected(&mut self) -> Ticket {
        self.endpoint.injected()
    }
    fn post(&mut self, buffer: Area) -> Result<(), PostError> {
        self.endpoint.post(buffer)
    }
    fn receive(&mut self, arrival: &mut Arrival) -> bool {
        self.endpoint.receive(arrival)
    }
    fn release(&mut self, arrival: &mut Arrival) {
        self.endpoint.release(arrival)
    }
    fn backlog(&mut self) -> Backlog {
        self.endpoint.backlog()
    }
    fn descriptor(&self) -> i32 {
        self.endpoint.descriptor()
    }
    fn arm(&mut self) -> bool {
        self.endpoint.arm()
    }
    fn disarm(&mut self) {
        self.endpoint.disarm()
    }
    fn counters(&self) -> &Counters {
        self.endpoint.counters()
    }
}

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

fn couple(how: How, faithful: bool) -> Option<Couple> {
    let hosts = pair(Joint { queues: how.queues, ..Joint::default() })?;
    let lend = ["--lend", how.lend];
    let agents: Vec<Agent> = hosts.iter().map(|host| Agent::start(host, &[&lend[..], how.more].concat())).collect();
    let [a, b] = [0, 1].map(|index: usize| -> Boxed {
        let endpoint = attach(&hosts[index], how.kinds[index], how.version_6);
        assert_eq!(endpoint.kind(), how.kinds[index]);
        if faithful {
            Box::new(Faithful::new(endpoint))
        } else {
            Box::new(endpoint)
        }
    });
    Some(Couple { a, b, keep: Some(Box::new((agents, hosts))) })
}

mod own_queues {
    use super::*;
    shunt_endpoint::conformance!(|| couple(OWN, false));
}

mod own_queues_without_loss {
    use super::*;
    shunt_endpoint::conformance!(
        @each || couple(OWN, true);
        ordered_stream held_arrivals injection arming no_wake_up_is_lost counting
    );
}

mod multiplexed {
    use super::*;
    shunt_endpoint::conformance!(|| couple(MULTIPLEXED, false));
}

mod multiplexed_without_loss {
    use super::*;
    shunt_endpoint::conformance!(
        @each || couple(How { version_6: true, ..MULTIPLEXED }, true);
        ordered_stream no_buffers held_arrivals injection arming counting
    );
}

/// A host that has only UDP sockets talks with one that has an agent.
fn couple_with_udp(kind: Kind, version_6: bool) -> Option<Couple> {
    use shunt_endpoint::device::udp::{ipv4, ipv6, Options, Udp};
    let hosts = pair(Joint::default())?;
    let agent = Agent::start(&hosts[0], &["--lend", if kind == Kind::Own { "0" } else { "none" }]);
    let xdp = Faithful::new(attach(&hosts[0], kind, version_6));
    let address = match hosts[1].addresses[usize::from(version_6)] {
        std::net::IpAddr::V4(ip) => ipv4(ip.octets(), 0),
        std::net::IpAddr::V6(ip) => ipv6(ip.octets(), 0, 0),
    };
    // One size for both: what the suite sends as the largest message, both can receive.
    let udp = hosts[1].enter(|| Udp::bind(&address, Options::default())).expect("a UDP endpoint");
    let udp = Faithful::new(udp);
    assert_eq!(xdp.capabilities().largest, udp.capabilities().largest);
    Some(Couple { a: Box::new(xdp), b: Box::new(udp), keep: Some(Box::new((agent, hosts))) })
}

mod own_queue_with_udp {
    use super::*;
    shunt_endpoint::conformance!(
        @each || couple_with_udp(Kind::Own, false);
        small_messages large_messages gathered ordered_stream tags_protect held_arrivals arming counting
    );
}

mod multiplexed_with_udp {
    use super::*;
    shunt_endpoint::conformance!(
        @each || couple_with_udp(Kind::Multiplexed, true);
        small_messages large_messages ordered_stream tags_protect counting
    );
}

/// The other way round: the suite sends most from the first to the second.
mod udp_with_own_queue {
    use super::*;
    fn couple() -> Option<Couple> {
        couple_with_udp(Kind::Own, true).map(|Couple { a, b, keep }| Couple { a: b, b: a, keep })
    }
    shunt_endpoint::conformance!(@each || couple(); small_messages large_messages ordered_stream held_arrivals arming);
}

mod udp_with_multiplexed {
    use super::*;
    fn couple() -> Option<Couple> {
        couple_with_udp(Kind::Multiplexed, false).map(|Couple { a, b, keep }| Couple { a: b, b: a, keep })
    }
    shunt_endpoint::conformance!(@each || couple(); small_messages large_messages ordered_stream held_arrivals arming);
}

/// Over IPv6, through the stack's hook, from a queue of one's own to an emulated endpoint.
mod mixed_generic {
    use super::*;
    const HOW: How =
        How { kinds: [Kind::Own, Kind::Multiplexed], version_6: true, queues: 2, lend: "1", more: &["--attach", "generic"] };
    shunt_endpoint::conformance!(
        @each || couple(HOW, true);
        small_messages large_messages ordered_stream arming counting
    );
}
