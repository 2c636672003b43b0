//! What the kernel says of an interface.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use shunt_xdp::netlink::{attribute, word, Kept, Request};
use shunt_xdp::packet::ETHERNET;
use shunt_xdp::route::Mac;
use shunt_xdp::socket::KERNEL_HEADROOM;

use crate::ebpf::kernel::Attachment;

/// Bytes of packets that the kernel certainly has in one piece where it shows a program packets in pieces: a page less what it
/// needs itself.
const ONE_PIECE: u32 = 3000;

/// An interface, as it was when it was asked for.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Bytes of the largest packet.
    pub mtu: u32,
    /// Receive queues that it may have.
    pub queues: u32,
    /// Whether frames of AF_XDP and of sockets leave by it in the order in which they were sent: a veth with one transmit queue and
    /// without a queueing discipline, which the former pass by.
    pub keeps_order: bool,
    /// The queueing discipline, by its name.
    pub discipline: String,
    /// Whether it is up.
    pub up: bool,
    /// Whether it is one end of a virtual Ethernet (veth(4)).
    pub is_veth: bool,
    /// The number of an XDP program that is attached to it.
    pub program: Option<u32>,
    /// Its addresses that peers can be told: not those of one link.
    pub addresses: Vec<IpAddr>,
}

impl Interface {
    /// Asks for the interface called `name` in this network namespace.
    ///
    /// # Errors
    /// A sentence: there is none, or it is no Ethernet.
    pub fn find(name: &str) -> Result<Interface, String> {
        let wrong = |error: io::Error| format!("there is no interface {name:?} here ({error})");
        let text = CString::new(name).map_err(|_| format!("there is no interface {name:?}"))?;
        // SAFETY: a string that ends with a zero byte.
        let index = unsafe { libc::if_nametoindex(text.as_ptr()) };
        if index == 0 {
            return Err(wrong(io::Error::last_os_error()));
        }
        let mut interface = Interface::by_index(name, index).map_err(wrong)?;
        if interface.mac == [0; 6] {
            return Err(format!("{name} has no Ethernet address: AF_XDP here needs an Ethernet"));
        }
        let count = channels(&text);
        interface.queues = count.map_or(interface.queues, |(receive, _)| receive);
        interface.keeps_order &= count.is_some_and(|(_, transmit)| transmit == 1);
        interface.addresses = addresses(&text).map_err(wrong)?;
        Ok(interface)
    }

    /// How many receive queues the interface with this name and index has, and its queueing discipline; asked for alone, as it costs a tenth of
    /// all that [`Interface::find`] asks.
    pub fn steering(name: &str, index: u32) -> Option<(u32, String)> {
        let found = Interface::by_index(name, index).ok()?;
        let count = channels(&CString::new(name).ok()?);
        Some((count.map_or(found.queues, |(receive, _)| receive), found.discipline))
    }

    /// The name that interface `index` has now.
    pub fn named(index: u32) -> Option<String> {
        let mut name = [0; libc::IFNAMSIZ];
        // SAFETY: as many bytes as a name may have, and its end.
        let name = unsafe { (!libc::if_indextoname(index, name.as_mut_ptr()).is_null()).then(|| CStr::from_ptr(name.as_ptr())) };
        Some(name?.to_str().ok()?.to_string())
    }

    /// Bytes of the largest frame that a chunk can take, where the interface has larger ones.
    pub fn frame(&self) -> u32 {
        self.mtu.saturating_add(ETHERNET as u32).min(4096 - KERNEL_HEADROOM)
    }

    /// Where the program for datagrams to `port` is tried first: in the driver, but for a veth of one queue. There a frame is a
    /// packet of the kernel's already, which the driver copies for the program into a page of its own; in front of the stack that
    /// is not needed, and the peer goes on handing over segments that were not cut. So it does with runs of datagrams: sockets
    /// that take frames in pieces get them whole, and for those of older kernels the sender knows the agent's usual port. Of
    /// several queues the stack does not know the one that a packet came by, and longer packets would be several pieces each.
    pub fn first_attachment(&self, port: u16) -> Attachment {
        if self.is_veth && self.queues == 1 && self.mtu <= ONE_PIECE && port == shunt_xdp::protocol::PORT {
            Attachment::Generic
        } else {
            Attachment::Native
        }
    }

    /// Whether a program that is attached there is to be shown packets of which only the beginning lies in one piece: before a veth's
    /// stack it meets TCP's segments of 64 KiB, for which there may be no memory in one piece.
    pub fn has_pieces(&self, attachment: Attachment) -> bool {
        attachment == Attachment::Generic && self.mtu <= ONE_PIECE
    }

    fn by_index(name: &str, index: u32) -> io::Result<Interface> {
        /// `struct ifinfomsg`.
        const FIXED: usize = 16;
        const IFLA_QDISC: u16 = 6;
        const IFLA_NUM_RX_QUEUES: u16 = 32;
        const IFLA_EXT_MASK: u16 = 29;
        const IFLA_LINKINFO: u16 = 18;
        const IFLA_INFO_KIND: u16 = 1;
        const IFLA_XDP: u16 = 43;
        const IFLA_XDP_ATTACHED: u16 = 2;
        const IFLA_XDP_PROG_ID: u16 = 4;
        const RTEXT_FILTER_SKIP_STATS: u32 = 8;
        let mut fixed = [0; FIXED];
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
        let request = Request::new(libc::RTM_GETLINK, &fixed).attribute(IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
        let answer = request.ask(&mut Kept::default(), |answer| {
            let find = |kind| answer.attribute(FIXED, kind);
            let xdp = find(IFLA_XDP).unwrap_or_default();
            let attached = attribute(xdp, IFLA_XDP_ATTACHED).is_some_and(|mode| mode.first() != Some(&0));
            let kind = find(IFLA_LINKINFO).and_then(|link| attribute(link, IFLA_INFO_KIND)).unwrap_or_default();
            let program = attribute(xdp, IFLA_XDP_PROG_ID).map(|number| word(number, 0));
            let is_veth = text(kind) == b"veth";
            Interface {
                name: name.to_string(),
                index,
                mac: find(libc::IFLA_ADDRESS).and_then(|address| Mac::try_from(address).ok()).unwrap_or_default(),
                mtu: find(libc::IFLA_MTU).map_or(0, |mtu| word(mtu, 0)),
                queues: find(IFLA_NUM_RX_QUEUES).map_or(1, |count| word(count, 0)).max(1),
                up: word(answer.fixed(), 8) & libc::IFF_UP as u32 != 0,
                keeps_order: is_veth && find(IFLA_QDISC).is_some_and(|discipline| text(discipline) == b"noqueue"),
                discipline: String::from_utf8_lossy(find(IFLA_QDISC).map(text).unwrap_or_default()).into_owned(),
                is_veth,
                program: program.filter(|_| attached),
                addresses: Vec::new(),
            }
        });
        answer.map_err(|errno| io::Error::from_raw_os_error(errno.0))
    }
}

/// A string of rtnetlink's.
fn text(value: &[u8]) -> &[u8] {
    value.strip_suffix(&[0]).unwrap_or(value)
}

/// The queues that it has now to receive and to transmit (ETHTOOL_GCHANNELS); `None` where the driver does not say.
fn channels(interface: &CStr) -> Option<(u32, u32)> {
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    /// `struct ethtool_channels`: command; most of receive, transmit, other, combined; then as many as there are.
    #[repr(C)]
    #[derive(Default)]
    struct Channels {
        command: u32,
        most: [u32; 4],
        now: [u32; 4],
    }
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    // SAFETY: zero is valid for the request; the name was one of an interface, so it fits; the kernel writes the structure,
    // which outlives the call.
    let answered = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (place, byte) in request.ifr_name.iter_mut().zip(interface.to_bytes()) {
            *place = *byte as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut channels).cast();
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let answered = libc::ioctl(socket, SIOCETHTOOL, &mut request);
        libc::close(socket);
        answered == 0
    };
    let [receive, transmit, _, combined] = channels.now;
    (answered && receive + combined > 0).then_some((receive + combined, transmit + combined))
}

fn addresses(interface: &CStr) -> io::Result<Vec<IpAddr>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the list is given back below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: the C library made the list: names end with zero bytes, addresses are as long as their family says.
    unsafe {
        while let Some(entry) = next.as_ref() {
            next = entry.ifa_next;
            if entry.ifa_addr.is_null() || CStr::from_ptr(entry.ifa_name) != interface {
                continue;
            }
            match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let address = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                    found.push(IpAddr::V4(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes())));
                }
                libc::AF_INET6 => {
                    let address = &*entry.ifa_addr.cast::<libc::sockaddr_in6>();
                    let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
                    if !ip.is_unicast_link_local() {
                        found.push(IpAddr::V6(ip));
                    }
                }
                _ => {}
            }
        }
        libc::freeifaddrs(list);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_and_refused() {
        let error = Interface::find("lo").unwrap_err();
        assert!(error.contains("Ethernet"), "{error}");
        let error = Interface::find("no-such-one").unwrap_err();
        assert!(error.contains("no interface"), "{error}");
    }
}
