//! What a sender wishes of one datagram: the control messages of sendmsg(2), and options that stand for them.

use super::Datagram;
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_sys::libc::{self, c_int, cmsghdr, msghdr, IPPROTO_IP, IPPROTO_IPV6};
use shunt_sys::{calls, user};

/// UDP_SEGMENT of linux/udp.h.
pub const UDP_SEGMENT: c_int = 103;

/// What one datagram is to be sent with.
#[derive(Clone, Copy, Default)]
pub struct Wishes {
    /// The source address: `::` for the socket's own; `::ffff:0.0.0.0` for the one that the route gives, as IP_PKTINFO
    /// has it.
    pub source: [u8; 16],
    /// The source must be a loopback address, and the destination: the datagram leaves by that interface.
    pub by_loopback: bool,
    /// Time to live or hop limit; `None`: the socket's.
    pub ttl: Option<u8>,
    /// Type of service or traffic class; `None`: the socket's.
    pub tos: Option<u8>,
    /// Bytes of each datagram that this one stands for; `None`: the socket's.
    pub segment: Option<u16>,
}

/// Most bytes of control messages that are looked at.
const MOST: usize = 256;

/// Reads the control messages of a datagram to an IPv6 address (`v6`) or an IPv4 one; `None`: the kernel's to judge.
///
/// # Safety
/// As sendmsg(2).
#[cold]
pub unsafe fn read(message: &msghdr, v6: bool) -> Option<Wishes> {
    const HEADER: usize = core::mem::size_of::<cmsghdr>();
    let length = message.msg_controllen;
    let mut bytes = [0u8; MOST];
    // SAFETY: the program's memory, which may fault.
    if length > MOST || !unsafe { user::copy(message.msg_control.cast(), bytes.as_mut_ptr(), length) } {
        return None;
    }
    let mut wishes = Wishes::default();
    let mut rest = &bytes[..length];
    while rest.len() >= HEADER {
        let word = |at: usize| rest.get(at..at + 4).map_or(0, |b| c_int::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        let size = u64::from_ne_bytes([rest[0], rest[1], rest[2], rest[3], rest[4], rest[5], rest[6], rest[7]]) as usize;
        let (level, kind) = (word(8), word(12));
        let data = rest.get(HEADER..size)?;
        let number = || (data.len() == 4).then(|| word(HEADER));
        match (level, kind) {
            (IPPROTO_IP, libc::IP_PKTINFO) if !v6 && data.len() == 12 => {
                let chosen = &data[4..8];
                wishes.by_loopback = by_loopback(word(HEADER))?;
                wishes.source = [0; 16];
                wishes.source[10..12].fill(0xff);
                wishes.source[12..].copy_from_slice(chosen);
            }
            (IPPROTO_IP, libc::IP_TTL) if !v6 => wishes.ttl = Some(number().filter(|ttl| (1..256).contains(ttl))? as u8),
            (IPPROTO_IP, libc::IP_TOS) if !v6 => wishes.tos = Some(number().filter(|tos| (0..256).contains(tos))? as u8),
            (IPPROTO_IPV6, libc::IPV6_PKTINFO) if v6 && data.len() == 20 => {
                wishes.by_loopback = by_loopback(word(HEADER + 16))?;
                wishes.source.copy_from_slice(&data[..16]);
            }
            (IPPROTO_IPV6, libc::IPV6_HOPLIMIT) if v6 => wishes.ttl = Some(number().filter(|ttl| (0..256).contains(ttl))? as u8),
            (IPPROTO_IPV6, libc::IPV6_TCLASS) if v6 => wishes.tos = Some(number().filter(|tos| (0..256).contains(tos))? as u8),
            (libc::IPPROTO_UDP, UDP_SEGMENT) if data.len() == 2 => {
                wishes.segment = Some(u16::from_ne_bytes([data[0], data[1]]));
            }
            _ => return None,
        }
        rest = rest.get(((size + 7) & !7)..).unwrap_or(&[]);
    }
    Some(wishes)
}

/// Whether the interface that was named is the loopback one; `None`: another one is.
fn by_loopback(interface: c_int) -> Option<bool> {
    match interface {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// What the socket's options say of each datagram: IP_TTL, IP_TOS, IPV6_UNICAST_HOPS, IPV6_TCLASS, and a bit that they
/// were read.
pub struct Outgoing(AtomicU64);

const KNOWN: u64 = 1 << 63;

impl Outgoing {
    /// They may be others now.
    pub fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Time to live and type of service of datagrams to IPv4 or IPv6 addresses.
    #[inline(always)]
    pub fn get(&self, fd: i32, socket: &Datagram, v6: bool) -> (u8, u8) {
        let mut known = self.0.load(Ordering::Relaxed);
        if known == 0 {
            known = self.learn(fd, socket);
        }
        let known = if v6 { known >> 16 } else { known };
        (known as u8, (known >> 8) as u8)
    }

    #[cold]
    fn learn(&self, fd: i32, socket: &Datagram) -> u64 {
        let get = |level, name| calls::getsockopt_int(fd, level, name).unwrap_or(0) as u8 as u64;
        let mut all = KNOWN | get(IPPROTO_IP, libc::IP_TTL) | get(IPPROTO_IP, libc::IP_TOS) << 8;
        if socket.family.load(Ordering::Relaxed) == libc::AF_INET6 {
            all |= get(IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) << 16 | get(IPPROTO_IPV6, libc::IPV6_TCLASS) << 24;
        }
        self.0.store(all, Ordering::Relaxed);
        all
    }
}
