//! Control messages of received datagrams, from what their records tell.
//!
//! Their order is the kernel's: time, then those of UDP, then those of the address family (`udp_recvmsg`,
//! `udpv6_recvmsg`). What an IPv4 datagram tells on an IPv6 socket is in part said in IPv6's words.

use super::Datagram;
use core::sync::atomic::Ordering;
use shunt_ring::inbox::{Details, Source};
use shunt_segment::address::Address;
use shunt_segment::inbox::ask;
use shunt_stream::control::Writer;
use shunt_sys::libc::{self, c_int, IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET};
use shunt_sys::{calls, clock};
use shunt_table::sockaddr::Encoded;

/// SO_TIMESTAMP and SO_TIMESTAMPNS with 64 bits of time everywhere.
const SO_TIMESTAMP_NEW: c_int = 63;
const SO_TIMESTAMPNS_NEW: c_int = 64;
/// UDP_GRO of linux/udp.h.
pub const UDP_GRO: c_int = 104;
const IPV6_ORIGDSTADDR: c_int = 74;

/// Options that ask, and what for.
const OPTIONS: &[(c_int, c_int, u32)] = &[
    (SOL_SOCKET, libc::SO_TIMESTAMP, ask::TIME),
    (SOL_SOCKET, libc::SO_TIMESTAMPNS, ask::TIME | ask::TIME_NS),
    (SOL_SOCKET, SO_TIMESTAMP_NEW, ask::TIME | ask::TIME_NEW),
    (SOL_SOCKET, SO_TIMESTAMPNS_NEW, ask::TIME | ask::TIME_NS | ask::TIME_NEW),
    (libc::IPPROTO_UDP, UDP_GRO, ask::JOINED),
    (IPPROTO_IP, libc::IP_PKTINFO, ask::INFO),
    (IPPROTO_IP, libc::IP_RECVTTL, ask::TTL),
    (IPPROTO_IP, libc::IP_RECVTOS, ask::TOS),
    (IPPROTO_IP, libc::IP_RECVORIGDSTADDR, ask::DESTINATION),
    (IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, ask::INFO6),
    (IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, ask::HOPS6),
    (IPPROTO_IPV6, libc::IPV6_RECVTCLASS, ask::CLASS6),
    (IPPROTO_IPV6, IPV6_ORIGDSTADDR, ask::DESTINATION6),
];

/// Whether an option asks for messages that a record can give.
pub fn asks(level: c_int, name: c_int) -> bool {
    OPTIONS.iter().any(|option| (option.0, option.1) == (level, name))
}

/// What the socket asks for, as the kernel says.
pub fn asked(fd: i32, socket: &Datagram) -> u32 {
    let v4 = socket.family.load(Ordering::Relaxed) == libc::AF_INET;
    let mut all = 0;
    for (level, name, bits) in OPTIONS.iter().filter(|option| !(v4 && option.0 == IPPROTO_IPV6)) {
        if calls::getsockopt_int(fd, *level, *name).is_ok_and(|value| value != 0) {
            all |= bits;
        }
    }
    all
}

/// Writes the messages that `asks` asks for.
///
/// # Safety
/// The control buffer is the program's.
pub unsafe fn tell(fd: i32, socket: &Datagram, asks: u32, source: &Source, details: &Details, writer: &mut Writer) {
    let family = socket.family.load(Ordering::Relaxed);
    // SAFETY: passed on, here and below.
    let mut put = |level, kind, data: &[u8]| unsafe { writer.put(level, kind, data) };
    if asks & ask::TIME != 0 {
        let at = if details.stamp != 0 { details.stamp } else { clock::realtime_ns() };
        let ns = at % 1_000_000_000;
        let (kind, fraction) = match (asks & ask::TIME_NS != 0, asks & ask::TIME_NEW != 0) {
            (true, false) => (libc::SO_TIMESTAMPNS, ns),
            (true, true) => (SO_TIMESTAMPNS_NEW, ns),
            (false, false) => (libc::SO_TIMESTAMP, ns / 1000),
            (false, true) => (SO_TIMESTAMP_NEW, ns / 1000),
        };
        put(SOL_SOCKET, kind, [at / 1_000_000_000, fraction].map(u64::to_ne_bytes).as_flattened());
    }
    if asks & ask::JOINED != 0 && details.segment != 0 {
        put(libc::IPPROTO_UDP, UDP_GRO, &(details.segment as c_int).to_ne_bytes());
    }
    let mut to = Address { ip: details.to, port: 0, scope: 0 };
    if !source.v6 {
        to = Address::v4([to.ip[12], to.ip[13], to.ip[14], to.ip[15]], 0);
    }
    let interface = match details.interface {
        // The kernel knows it of IPv6 whether the program asked in time or not.
        0 if source.v6 && to.is_loopback() => 1,
        known => known,
    };
    let own_port = || shunt_table::sockaddr::bound_address(fd).port;
    if family == libc::AF_INET6 && asks & ask::INFO6 != 0 {
        let mut info = [0u8; 20];
        info[..16].copy_from_slice(&to.ip);
        info[16..].copy_from_slice(&interface.to_ne_bytes());
        put(IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
    }
    if source.v6 {
        if asks & ask::HOPS6 != 0 {
            put(IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &(details.ttl as c_int).to_ne_bytes());
        }
        if asks & ask::CLASS6 != 0 {
            put(IPPROTO_IPV6, libc::IPV6_TCLASS, &(details.tos as c_int).to_ne_bytes());
        }
        if asks & ask::DESTINATION6 != 0 {
            let encoded = Encoded::new(libc::AF_INET6, &Address { port: own_port(), ..to });
            put(IPPROTO_IPV6, IPV6_ORIGDSTADDR, encoded.bytes());
        }
        return;
    }
    if asks & ask::INFO != 0 {
        let mut info = [0u8; 12];
        info[..4].copy_from_slice(&interface.to_ne_bytes());
        if interface != 0 {
            info[4..8].copy_from_slice(&to.ip[12..]);
        }
        info[8..].copy_from_slice(&to.ip[12..]);
        put(IPPROTO_IP, libc::IP_PKTINFO, &info);
    }
    if asks & ask::TTL != 0 {
        put(IPPROTO_IP, libc::IP_TTL, &(details.ttl as c_int).to_ne_bytes());
    }
    if asks & ask::TOS != 0 {
        put(IPPROTO_IP, libc::IP_TOS, &[details.tos]);
    }
    if asks & ask::DESTINATION != 0 {
        let encoded = Encoded::new(libc::AF_INET, &Address { port: own_port(), ..to });
        put(IPPROTO_IP, libc::IP_ORIGDSTADDR, encoded.bytes());
    }
}
