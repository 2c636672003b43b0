//! The area: which addresses of other hosts are reached past the kernel's TCP, and by which device.

use shunt_config::{Hosts, Subnet};
use shunt_rendezvous::connect::is_v6only;
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_station::Choice;
use shunt_sys::libc::{self, AF_UNIX, SOCK_CLOEXEC, SOCK_SEQPACKET};
use shunt_sys::{calls, clock, Errno};
use shunt_table::global::{LockedCell, SETUP};
use shunt_table::route::Way;
use shunt_table::{global, interfaces, route};
use shunt_xdp::protocol::{self, Connection};

/// How one gets to another host.
#[derive(Clone, Copy)]
pub struct Device {
    /// The address here, without a port.
    pub source: Address,
    /// An agent runs for the interface.
    agent: bool,
    name: [u8; libc::IFNAMSIZ],
    mtu: u32,
    /// How long its agent is waited for before a station is made by it (ms).
    patience: i64,
}

impl Device {
    /// The device that a station is to have.
    pub fn choice(&self) -> Choice<'_> {
        if self.agent {
            Choice::Agent { interface: self.name(), local: self.source, mtu: self.mtu }
        } else {
            Choice::Udp { local: self.source, mtu: self.mtu }
        }
    }

    /// Bytes of the largest segment that a TCP connection by this interface names, unless a message says otherwise.
    pub fn segment(&self) -> u16 {
        let headers = if self.source.as_v4().is_some() { 40 } else { 60 };
        (self.mtu - headers) as u16
    }

    /// Its agent, if it has one, answers: a station is waited for longer, and not to be where the agent is stopped.
    pub fn answers(&self) -> bool {
        !self.agent || Connection::connect_within(self.name(), self.patience).is_ok_and(|agent| agent.is_awake())
    }

    fn name(&self) -> &str {
        let length = self.name.iter().position(|byte| *byte == 0).unwrap_or(self.name.len());
        core::str::from_utf8(&self.name[..length]).unwrap_or("")
    }
}

/// How long it is believed that an agent runs for an interface, or does not, in ns.
const BELIEVE: u64 = 1_000_000_000;

/// How long a blocking connect waits for the agent's word of a host, and any other (ms). The agent itself asks a host that it does not
/// know, once for all programs, and waits for 20 ms.
const WORD_WITHIN: [i64; 2] = [30, 2];

/// How long an agent that is to make an endpoint is waited for (ms).
const AWAKE_WITHIN: i64 = 100;

/// For how long at most it is believed that no station can be made (ns).
const HOMELESS_MOST: u64 = 30_000_000_000;

type Host = ([u8; 16], Result<(), Reason>, u64);

/// What is known of agents and hosts, and until when each is believed. Under the set-up lock.
pub(super) struct Area {
    /// Interfaces: number, whether an agent runs, until when.
    agents: LockedCell<[(u32, bool, u64); 8]>,
    /// Whether there are agents in this network namespace at all.
    beacon: LockedCell<(bool, u64)>,
    /// Hosts of which an agent has said whether they run shunt, or has not.
    hosts: LockedCell<[Host; 16]>,
    /// Servers whose hosts did not answer in time: each is asked again when this is over.
    slow: LockedCell<[(Address, u64); 16]>,
    /// The interface by which listeners at any address are reached; 0: none has an agent.
    listed: LockedCell<(u32, u64)>,
    /// No station can be made before then, and for how long that was said (ns): twice as long each time, up to [`HOMELESS_MOST`].
    homeless: LockedCell<(u64, u64)>,
    /// Servers that refused a stream ([`super::refusals`]): why, and until when.
    pub(super) refusals: LockedCell<[(Address, Reason, u64); 16]>,
}

pub(super) static AREA: Area = Area {
    agents: LockedCell::new([(0, false, 0); 8]),
    beacon: LockedCell::new((false, 0)),
    hosts: LockedCell::new([([0; 16], Ok(()), 0); 16]),
    slow: LockedCell::new([(Address { ip: [0; 16], port: 0, scope: 0 }, 0); 16]),
    listed: LockedCell::new((0, 0)),
    homeless: LockedCell::new((0, 0)),
    refusals: LockedCell::new([(Address { ip: [0; 16], port: 0, scope: 0 }, Reason::Unknown, 0); 16]),
};

/// The process has left its network namespace. Under the set-up lock.
pub fn left_namespace() {
    // SAFETY: the set-up lock is held.
    unsafe {
        (*AREA.agents.get()).iter_mut().for_each(|known| known.2 = 0);
        (*AREA.hosts.get()).iter_mut().for_each(|known| known.2 = 0);
        (*AREA.slow.get()).iter_mut().for_each(|known| known.1 = 0);
        (*AREA.beacon.get()).1 = 0;
        (*AREA.listed.get()).1 = 0;
        *AREA.homeless.get() = (0, 0);
    }
}

/// A station could not be made: that is not tried again with each connection.
pub fn note_homeless() {
    let Some(_setup) = SETUP.lock() else { return };
    // SAFETY: the set-up lock is held.
    let homeless = unsafe { &mut *AREA.homeless.get() };
    homeless.1 = (2 * homeless.1).clamp(BELIEVE, HOMELESS_MOST);
    homeless.0 = clock::monotonic_ns() + homeless.1;
}

/// A station was made.
pub fn note_local() {
    let Some(_setup) = SETUP.lock() else { return };
    // SAFETY: the set-up lock is held.
    unsafe { *AREA.homeless.get() = (0, 0) };
}

/// Whether a station could not be made a moment ago.
pub fn is_homeless() -> bool {
    let Some(_setup) = SETUP.lock() else { return true };
    // SAFETY: the set-up lock is held.
    clock::monotonic_ns() < unsafe { (*AREA.homeless.get()).0 }
}

/// Whether an agent runs in this network namespace: three calls, once in [`BELIEVE`], are all that others cost where none does. Under
/// the set-up lock.
fn agents_run() -> bool {
    let now = clock::monotonic_ns();
    // SAFETY: the set-up lock is held.
    let known = unsafe { &mut *AREA.beacon.get() };
    if known.1 <= now {
        *known = (is_met(protocol::BEACON, libc::SOCK_DGRAM), now + BELIEVE);
    }
    known.0
}

/// Whether the server's host runs shunt, as far as the interface's agent knows: nothing is made for one that does not. Listed hosts are
/// asked by the connecting thread.
pub fn host_runs(device: &Device, server: &Address, nonblocking: bool) -> Result<(), Reason> {
    if !matches!(global::options().hosts, Hosts::Auto) {
        return Ok(());
    }
    let now = clock::monotonic_ns();
    {
        let _setup = SETUP.lock().ok_or(Reason::Unknown)?;
        // SAFETY: the set-up lock is held.
        let known = unsafe { &*AREA.hosts.get() }.iter().find(|(ip, _, until)| *ip == server.ip && *until > now);
        if let Some((_, answer, _)) = known {
            return *answer;
        }
    }
    let at = core::net::Ipv6Addr::from(server.ip).to_canonical();
    let at = shunt_xdp::address::encode(&core::net::SocketAddr::new(at, 0), server.scope);
    let within = WORD_WITHIN[usize::from(nonblocking)];
    let said = Connection::connect_within(device.name(), within).and_then(|agent| agent.ask_host(&at));
    let answer = match said {
        Ok(()) => Ok(()),
        Err(Errno(libc::EHOSTUNREACH)) => Err(Reason::PeerHostPlain),
        Err(Errno(libc::EINTR)) => return Err(Reason::TooSlow),
        // Its agent is stopped, or has enough to do: other connections do not wait for it, too.
        Err(Errno(libc::EAGAIN)) => Err(Reason::TooSlow),
        // It has no more connections for this user, is not root's, or knows nothing of hosts.
        Err(_) => Err(outside()),
    };
    let _setup = SETUP.lock().ok_or(Reason::Unknown)?;
    // SAFETY: the set-up lock is held.
    if let Some(oldest) = unsafe { &mut *AREA.hosts.get() }.iter_mut().min_by_key(|(_, _, until)| *until) {
        *oldest = (server.ip, answer, now + BELIEVE);
    }
    answer
}

/// Whether the server's host did not answer in time a moment ago.
pub fn was_slow(server: &Address, now: u64) -> bool {
    let Some(_setup) = SETUP.lock() else { return true };
    // SAFETY: the set-up lock is held.
    unsafe { &*AREA.slow.get() }.iter().any(|(address, until)| address == server && *until > now)
}

/// Remembers that the server's host did not answer in time.
pub fn note_slow(server: &Address, now: u64) {
    let Some(_setup) = SETUP.lock() else { return };
    // SAFETY: the set-up lock is held.
    if let Some(oldest) = unsafe { &mut *AREA.slow.get() }.iter_mut().min_by_key(|(_, until)| *until) {
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

/// fe80::/10: such an address means another host on each interface, and no route tells which.
fn is_link_local(ip: &[u8; 16]) -> bool {
    ip[0] == 0xfe && ip[1] & 0xc0 == 0x80
}

/// How to get to `server`, which is not this host's.
pub fn device(server: &Address) -> Result<Device, Reason> {
    if !holds(&server.ip) || is_link_local(&server.ip) {
        return Err(outside());
    }
    let _setup = SETUP.lock().ok_or(Reason::Unknown)?;
    if global::options().hosts == Hosts::Auto && !agents_run() {
        return Err(outside());
    }
    let way = match route::way(server) {
        Ok(Some(way)) if !way.local && !way.source.is_unspecified() => way,
        _ => return Err(Reason::NotLocal),
    };
    to(&way)
}

fn to(way: &Way) -> Result<Device, Reason> {
    let mut device = Device {
        source: Address { port: 0, ..way.source },
        agent: false,
        name: [0; libc::IFNAMSIZ],
        mtu: 1500,
        patience: AWAKE_WITHIN,
    };
    let listed = matches!(global::options().hosts, Hosts::Listed(_));
    let now = clock::monotonic_ns();
    // SAFETY: the set-up lock is held.
    let agents = unsafe { &mut *AREA.agents.get() };
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

/// Why an address is left to the kernel: without an option about other hosts, that it is one suffices.
fn outside() -> Reason {
    match global::options().hosts {
        Hosts::Listed(_) => Reason::OutsideArea,
        Hosts::None | Hosts::Auto => Reason::NotLocal,
    }
}

/// The first interface with an agent; a host may have thousands, so they are looked through once in [`BELIEVE`], and not under the set-up
/// lock.
fn interface_with_agent() -> Option<u32> {
    let now = clock::monotonic_ns();
    let known = {
        let _setup = SETUP.lock()?;
        // SAFETY: the set-up lock is held.
        unsafe { *AREA.listed.get() }
    };
    if now < known.1 {
        return (known.0 != 0).then_some(known.0);
    }
    let has_agent = |_, name: &[u8]| core::str::from_utf8(name).is_ok_and(agent_runs);
    let found = interfaces::find(has_agent).ok().flatten();
    let _setup = SETUP.lock()?;
    // SAFETY: the set-up lock is held.
    unsafe { *AREA.listed.get() = (found.unwrap_or(0), now + BELIEVE) };
    found
}

/// A device by which the listener `fd` at `address` (unspecified: any) can be reached from the area. Its agent is waited for as long as
/// for `patience` (ms), or else the usual time.
pub fn device_for_listener(fd: i32, address: &Address, patience: Option<i64>) -> Option<Device> {
    let device = match &global::options().hosts {
        Hosts::None => None,
        Hosts::Listed(subnets) => listed_device(subnets.list()),
        Hosts::Auto => automatic_device(fd, address),
    };
    device.map(|device| Device { patience: patience.unwrap_or(device.patience), ..device })
}

fn listed_device(subnets: &[Subnet]) -> Option<Device> {
    let _setup = SETUP.lock()?;
    let by = |ip: [u8; 16]| match route::way(&Address { ip, port: 9, scope: 0 }) {
        Ok(Some(way)) if !way.local && !way.source.is_unspecified() => to(&way).ok(),
        _ => None,
    };
    subnets.iter().find_map(|subnet| {
        // A host, where the prefix leaves room for some; the second one where this host is the first.
        let hosts = if subnet.bits < 127 { [1, 2] } else { [u8::from(subnet.bits < 128), 0] };
        hosts.into_iter().find_map(|host| {
            let mut ip = subnet.ip;
            ip[15] |= host;
            by(ip)
        })
    })
}

fn automatic_device(fd: i32, address: &Address) -> Option<Device> {
    let bound = {
        let _setup = SETUP.lock()?;
        if address.is_loopback() || !agents_run() {
            return None;
        }
        if address.is_unspecified() {
            None
        } else {
            Some(route::interface_of(address)?)
        }
    };
    let interface = bound.or_else(interface_with_agent)?;
    let source = Address { port: 0, ..*address };
    let mut device = Device { source, agent: true, name: [0; libc::IFNAMSIZ], mtu: 1500, patience: AWAKE_WITHIN };
    describe(interface, &mut device)?;
    // A station has one family; most of those who reach both come by IPv4. Its gate answers from the first address.
    let any = address.is_unspecified() && address.as_v4().is_none() && !is_v6only(fd);
    if any || address.as_v4().is_some() {
        device.source = first_v4(device.name).unwrap_or(source);
    }
    agent_runs(device.name()).then_some(device)
}

/// The first address of IPv4 that an interface has.
fn first_v4(name: [u8; libc::IFNAMSIZ]) -> Option<Address> {
    const SIOCGIFADDR: u64 = 0x8915;
    let fd = calls::socket(libc::AF_INET, libc::SOCK_DGRAM | SOCK_CLOEXEC, 0).ok()?;
    // struct ifreq: the name, and a `sockaddr_in`, whose address is at 4.
    let mut request = [0u8; 40];
    request[..16].copy_from_slice(&name);
    let has = calls::ioctl(fd, SIOCGIFADDR, request.as_mut_ptr() as usize);
    let _ = calls::close(fd);
    has.ok()?;
    Some(Address::v4([request[20], request[21], request[22], request[23]], 0))
}

/// Fills in an interface's name and its largest packet.
fn describe(interface: u32, device: &mut Device) -> Option<()> {
    let (name, mtu) = shunt_xdp::route::describe(interface)?;
    device.name = name;
    device.mtu = mtu.map_or(device.mtu, |mtu| mtu.clamp(576, 9000));
    Some(())
}

/// Whether a socket answers at the name of the interface's agent.
fn agent_runs(interface: &str) -> bool {
    let mut name = [0u8; 48];
    let length = shunt_xdp::protocol::name(interface, &mut name);
    is_met(&name[..length], SOCK_SEQPACKET)
}

/// Whether a socket of that kind is at a name, if only one that takes no more connections at the moment, or no messages of ours: any
/// process may hold the name that says only that there are agents.
fn is_met(name: &[u8], kind: i32) -> bool {
    let (address, length) = shunt_table::sockaddr::abstract_name(name);
    let Ok(fd) = calls::socket(AF_UNIX, kind | SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) else { return false };
    let met = calls::connect(fd, (&address as *const libc::sockaddr_un).cast(), length);
    let _ = calls::close(fd);
    matches!(met, Ok(_) | Err(Errno(libc::EAGAIN | libc::EPERM)))
}
