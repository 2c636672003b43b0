//! Connection tracking (nf_conntrack): what it is told of a connection whose segments it will not see.
//!
//! It would take the kernel's segments behind the give-back for such as are out of window, and a rule that drops those would be the
//! connection's end. An entry that is *liberal* lets them pass; that is a flag of the entry's own, for each direction.

use std::net::IpAddr;

use shunt_sys::Errno;
use shunt_xdp::netlink::attribute;
use shunt_xdp::protocol::Decline;
use shunt_xdp::tcp::Tuple;

use super::netlink::{append, nest, Message, Sockets};

/// `include/uapi/linux/netfilter/nfnetlink_conntrack.h`: message types, with the subsystem in the upper byte, and attributes.
const NEW: u16 = 1 << 8;
const GET: u16 = 1 << 8 | 1;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const PROTOCOL_INFORMATION: u16 = 4;
const COUNTERS: u16 = 9;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const IP_V4: [u16; 2] = [1, 2];
const IP_V6: [u16; 2] = [3, 4];
const PROTOCOL_NUMBER: u16 = 1;
const PORTS: [u16; 2] = [2, 3];
const INFORMATION_TCP: u16 = 1;
const FLAGS: [u16; 2] = [4, 5];
/// IP_CT_TCP_FLAG_BE_LIBERAL.
const LIBERAL: u8 = 8;

/// Has the connection's entry be liberal, if there is one. `uncounted`: also if it counts the connection's packets (nf_conntrack_acct).
pub fn make_liberal(sockets: &mut Sockets, tuple: &Tuple, uncounted: bool) -> Result<(), Decline> {
    let fixed = [if tuple.ours.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u8, 0, 0, 0];
    let ours = tuple_of(tuple);
    let asked = Message::new(GET, 0, &fixed).nested(TUPLE_ORIGINAL, &ours).ask_by(sockets, libc::NETLINK_NETFILTER, |answer| {
        let find = |kind| attribute(answer.get(4..).unwrap_or_default(), kind).and_then(ends_of);
        let (original, reply) = (find(TUPLE_ORIGINAL)?, find(TUPLE_REPLY)?);
        let counts = attribute(answer.get(4..).unwrap_or_default(), COUNTERS).is_some();
        Some(((original.1, original.0) != reply, counts))
    });
    match asked {
        // No entry; or nothing here that tracks.
        Err(Errno(libc::ENOENT)) => Ok(()),
        Err(_) if !is_there() => Ok(()),
        Err(_) | Ok(None) => Err(Decline::Tracking),
        Ok(Some((true, _))) => Err(Decline::Translated),
        Ok(Some((false, true))) if !uncounted => Err(Decline::Counted),
        Ok(Some((false, _))) => {
            let mut flags = Vec::new();
            FLAGS.into_iter().for_each(|kind| append(&mut flags, kind, &[LIBERAL, LIBERAL]));
            let mut information = Vec::new();
            nest(&mut information, INFORMATION_TCP, &flags);
            let message = Message::new(NEW, libc::NLM_F_ACK as u16, &fixed).nested(TUPLE_ORIGINAL, &ours);
            match message.nested(PROTOCOL_INFORMATION, &information).ask_by(sockets, libc::NETLINK_NETFILTER, |_| ()) {
                Ok(()) | Err(Errno(libc::ENOENT)) => Ok(()),
                Err(_) => Err(Decline::Tracking),
            }
        }
    }
}

/// Whether this network namespace tracks connections at all.
fn is_there() -> bool {
    std::fs::read_to_string("/proc/thread-self/net/stat/nf_conntrack").is_ok()
}

/// A tuple in attributes, from this host to the other: entries are found by either direction's.
fn tuple_of(tuple: &Tuple) -> Vec<u8> {
    let (mut addresses, mut protocol, mut both) = (Vec::new(), Vec::new(), Vec::new());
    append(&mut protocol, PROTOCOL_NUMBER, &[libc::IPPROTO_TCP as u8]);
    for (index, end) in [&tuple.ours, &tuple.theirs].into_iter().enumerate() {
        match end.ip() {
            IpAddr::V4(ip) => append(&mut addresses, IP_V4[index], &ip.octets()),
            IpAddr::V6(ip) => append(&mut addresses, IP_V6[index], &ip.octets()),
        }
        append(&mut protocol, PORTS[index], &end.port().to_be_bytes());
    }
    nest(&mut both, TUPLE_IP, &addresses);
    nest(&mut both, TUPLE_PROTOCOL, &protocol);
    both
}

/// An address and a port, as bytes.
type End = (Vec<u8>, Vec<u8>);

/// The ends in a tuple's attributes: source, destination.
fn ends_of(run: &[u8]) -> Option<(End, End)> {
    let (addresses, protocol) = (attribute(run, TUPLE_IP)?, attribute(run, TUPLE_PROTOCOL)?);
    let end = |index: usize| {
        let address = attribute(addresses, IP_V4[index]).or_else(|| attribute(addresses, IP_V6[index]))?;
        Some((address.to_vec(), attribute(protocol, PORTS[index])?.to_vec()))
    };
    Some((end(0)?, end(1)?))
}
