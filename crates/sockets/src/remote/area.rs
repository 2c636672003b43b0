//! The area: which addresses of other hosts are reached past the kernel's TCP, and by which device.

use crate::global::{self, Shared, SETUP};
use crate::rendezvous::route::{self, Way};
use shunt_options::Hosts;
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_station::Choice;
use shunt_sys::libc::{self, AF_UNIX, SOCK_CLOEXEC, SOCK_SEQPACKET};
use shunt_sys::{calls, clock};

/// How one gets to another host.
#[derive(Clone, Copy)]
pub struct Device {
    /// The address here, without a port.
    pub source: Address,
    /// An agent runs for the interface.
    agent: bool,
    name: [u8; libc::IFNAMSIZ],
    mtu: u32,
}

impl Device {
    /// The device that a station is to have.
    pub fn choice(&self) -> Choice<'_> {
        if self.agent {
            Choice::Xdp { interface: self.name(), version_6: self.source.as_v4().is_none() }
        } else {
            Choice::Udp { local: self.source, mtu: self.mtu }
        }
    }

    fn name(&self) -> &str {
        let length = self.name.iter().position(|byte| *byte == 0).unwrap_or(self.name.len());
        core::str::from_utf8(&self.name[..length]).unwrap_or("")
    }
}

/// How long it is believed that an agent runs for an interface, or does not, in ns.
const BELIEVE: u64 = 1_000_000_000;

/// Interfaces that are remembered: number, whether an agent runs, until when.
static AGENTS: Shared<[(u32, bool, u64); 8]> = Shared::new([(0, false, 0); 8]);

/// Servers whose hosts did not answer in time: each is asked again when this is over.
static SLOW: Shared<[(Address, u64); 16]> = Shared::new([(Address { ip: [0; 16], port: 0, scope: 0 }, 0); 16]);

/// Whether the server's host did not answer in time a moment ago.
pub fn was_slow(server: &Address, now: u64) -> bool {
    let Some(_setup) = SETUP.lock() else { return true };
    // SAFETY: the set-up lock is held.
    unsafe { &*SLOW.get() }.iter().any(|(address, until)| address == server && *until > now)
}

/// Remembers that the server's host did not answer in time.
pub fn note_slow(server: &Address, now: u64) {
    let Some(_setup) = SETUP.lock() else { return };
    // SAFETY: the set-up lock is held.
    if let Some(oldest) = unsafe { &mut *SLOW.get() }.iter_mut().min_by_key(|(_, until)| *until) {
        *oldest = (*server, now + BELIEVE);
    }
}

/// Whether connections to `ip` can leave this host past the kernel at all.
pub fn holds(ip: &[u8; 16]) -> bool {
    match &global::options().hosts {
        Hosts::None => false,
        Hosts::Auto => true,
        Hosts::Listed(subnets) => subnets.contains(ip),
    }
}

/// How to get to `server`, which is not this host's.
pub fn device(server: &Address) -> Result<Device, Reason> {
    if !holds(&server.ip) {
        return Err(outside());
    }
    let _setup = SETUP.lock().ok_or(Reason::Unknown)?;
    let way = match route::way(server) {
        Ok(Some(way)) if !way.local && !way.source.is_unspecified() => way,
        _ => return Err(Reason::NotLocal),
    };
    to(&way)
}

fn to(way: &Way) -> Result<Device, Reason> {
    let mut device = Device { source: Address { port: 0, ..way.source }, agent: false, name: [0; libc::IFNAMSIZ], mtu: 1500 };
    let listed = matches!(global::options().hosts, Hosts::Listed(_));
    let now = clock::monotonic_ns();
    // SAFETY: the set-up lock is held.
    let agents = unsafe { &mut *AGENTS.get() };
    let known = agents.iter().find(|(interface, _, until)| *interface == way.interface && *until > now);
    if let (Some((_, false, _)), false) = (known, listed) {
        return Err(outside());
    }
    describe(way.interface, &mut device).ok_or(Reason::OutsideArea)?;
    device.agent = match known {
        Some((_, runs, _)) => *runs,
        None => {
            let runs = agent_runs(device.name());
            if let Some(oldest) = agents.iter_mut().min_by_key(|(_, _, until)| *until) {
                *oldest = (way.interface, runs, now + BELIEVE);
            }
            runs
        }
    };
    if listed || (device.agent && !way.routed) {
        Ok(device)
    } else {
        Err(outside())
    }
}

/// Why an address is left to the kernel: where nobody speaks of other hosts, that it is one suffices.
fn outside() -> Reason {
    match global::options().hosts {
        Hosts::Listed(_) => Reason::OutsideArea,
        Hosts::None | Hosts::Auto => Reason::NotLocal,
    }
}

/// A device by which a listener at `address` (unspecified: any) can be reached from the area.
pub fn device_for_listener(address: &Address) -> Option<Device> {
    let _setup = SETUP.lock()?;
    let by = |ip: [u8; 16]| match route::way(&Address { ip, port: 9, scope: 0 }) {
        Ok(Some(way)) if !way.local && !way.source.is_unspecified() => to(&way).ok(),
        _ => None,
    };
    match &global::options().hosts {
        Hosts::None => None,
        Hosts::Listed(subnets) => subnets.list().iter().find_map(|subnet| {
            // A host, where the prefix leaves room for some; the second one where this host is the first.
            let hosts = if subnet.bits < 127 { [1, 2] } else { [u8::from(subnet.bits < 128), 0] };
            hosts.into_iter().find_map(|host| {
                let mut ip = subnet.ip;
                ip[15] |= host;
                by(ip)
            })
        }),
        Hosts::Auto => {
            if address.is_loopback() {
                return None;
            }
            // Interfaces are numbered from 1; agents are told by their names.
            let found = (1..64).find_map(|interface| {
                let mut device = Device { source: *address, agent: true, name: [0; libc::IFNAMSIZ], mtu: 1500 };
                describe(interface, &mut device)?;
                agent_runs(device.name()).then_some(device)
            })?;
            Some(found)
        }
    }
}

/// Fills in an interface's name and its largest packet.
fn describe(interface: u32, device: &mut Device) -> Option<()> {
    const SIOCGIFNAME: u64 = 0x8910;
    const SIOCGIFMTU: u64 = 0x8921;
    let fd = calls::socket(AF_UNIX, libc::SOCK_DGRAM | SOCK_CLOEXEC, 0).ok()?;
    // struct ifreq: the name, and a union of 24 bytes.
    let mut request = [0u8; 40];
    request[16..20].copy_from_slice(&interface.to_ne_bytes());
    let named = calls::ioctl(fd, SIOCGIFNAME, request.as_mut_ptr() as usize);
    device.name.copy_from_slice(&request[..16]);
    let sized = calls::ioctl(fd, SIOCGIFMTU, request.as_mut_ptr() as usize);
    let _ = calls::close(fd);
    named.ok()?;
    if sized.is_ok() {
        let mtu = u32::from_ne_bytes([request[16], request[17], request[18], request[19]]);
        device.mtu = mtu.clamp(576, 9000);
    }
    Some(())
}

/// Whether somebody answers at the name of the interface's agent.
fn agent_runs(interface: &str) -> bool {
    let mut name = [0u8; 48];
    let length = shunt_xdp::protocol::name(interface, &mut name);
    let (address, length) = crate::sockaddr::abstract_name(&name[..length]);
    let Ok(fd) = calls::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) else { return false };
    let met = calls::connect(fd, (&address as *const libc::sockaddr_un).cast(), length);
    let _ = calls::close(fd);
    met.is_ok()
}
