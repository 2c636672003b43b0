//! The endpoint of a rank or a keeper.

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use shunt_endpoint::device::udp::{self, Udp};
use shunt_endpoint::shared::Shape;
use shunt_endpoint::Endpoint;
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;
use std::io;
use std::net::IpAddr;

/// By what frames go between hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Device {
    /// Datagrams of the kernel.
    #[default]
    Udp = 0,
    /// Past the kernel's stack, by the agent of the interface.
    Xdp = 1,
}

impl Device {
    /// The one with this number.
    pub(crate) fn numbered(number: u32) -> Option<Device> {
        [Device::Udp, Device::Xdp].into_iter().find(|device| *device as u32 == number)
    }
}

impl std::str::FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Device, String> {
        match text {
            "udp" => Ok(Device::Udp),
            "xdp" => Ok(Device::Xdp),
            _ => Err(format!("{text} is no device between hosts; there are udp and xdp")),
        }
    }
}

fn ip(of: SockaddrStorage) -> Option<IpAddr> {
    let four = of.as_sockaddr_in().map(|address| address.ip().into());
    four.or_else(|| of.as_sockaddr_in6().map(|address| address.ip().into()))
}

/// Addresses of this host that others may reach, each with the bits of its network.
pub(crate) fn addresses() -> io::Result<Vec<(IpAddr, u32)>> {
    let bits = |mask: IpAddr| match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    let usable = |at: &IpAddr| match at {
        IpAddr::V4(at) => !at.is_loopback() && !at.is_link_local(),
        IpAddr::V6(at) => !at.is_loopback() && !at.is_unicast_link_local(),
    };
    let mut found: Vec<(IpAddr, u32)> = getifaddrs()?
        .filter_map(|one| Some((one.address.and_then(ip).filter(usable)?, one.netmask.and_then(ip).map_or(0, bits))))
        .collect();
    // Those of IPv4 first, whose frames have more room.
    found.sort_by_key(|(at, _)| at.is_ipv6());
    Ok(found)
}

/// The name of the interface that has the address.
fn interface(at: IpAddr) -> io::Result<String> {
    let found = getifaddrs()?.find(|one| one.address.and_then(ip) == Some(at));
    let missing = || io::Error::new(io::ErrorKind::AddrNotAvailable, format!("no interface of this host has the address {at}"));
    found.map(|one| one.interface_name).ok_or_else(missing)
}

/// An endpoint at an address of this host, for so many channels. `depth` is how many frames may wait.
pub(crate) fn open(device: Device, at: IpAddr, channels: u32, depth: u32) -> io::Result<Box<dyn Endpoint + Send>> {
    let system = |error: shunt_sys::Errno| io::Error::from_raw_os_error(error.0);
    let channels = channels.max(2).next_power_of_two();
    match device {
        Device::Udp => {
            let place = match at {
                IpAddr::V4(at) => udp::ipv4(at.octets(), 0),
                IpAddr::V6(at) => udp::ipv6(at.octets(), 0, 0),
            };
            let shape = Shape { channels, send: depth, receive: depth, free: depth, segment: depth * 4096, device: 0 };
            Ok(Box::new(Udp::bind(&place, udp::Options { shape, ..udp::Options::default() }).map_err(system)?))
        }
        Device::Xdp => {
            let name = interface(at)?;
            let sizes = Sizes { channels, depth, segment: depth * 4096 };
            let made = Xdp::attach(&name, Kind::Any, at.is_ipv6(), sizes).map_err(|errno| {
                let hint = match errno.0 {
                    libc::ECONNREFUSED => format!("; no agent is there: shunt agent --interface {name}, as root"),
                    _ => String::new(),
                };
                io::Error::new(system(errno).kind(), format!("an endpoint of the device xdp on {name}: {}{hint}", system(errno)))
            })?;
            Ok(Box::new(made))
        }
    }
}
