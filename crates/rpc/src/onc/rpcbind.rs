//! rpcbind (RFC 1833): at which port a program is, and telling it so. Version 4 is asked first, then version 2, the port mapper's.

use crate::address::{Place, Transport};
use crate::error::{Error, Kind};
use crate::onc::caller::{Caller, Link, Manner};
use crate::xdr::{self, Bytes, Decoder, Encoder, Xdr};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const PROGRAM: u32 = 100_000;
const PORT: u16 = 111;
const SOCKET: &str = "/run/rpcbind.sock";
const SET: u16 = 1;
const UNSET: u16 = 2;
/// GETADDR; in version 2, GETPORT.
const GET: u16 = 3;
const DUMP: u16 = 4;
/// How long a registered server may take to answer a null call before it counts as gone, and rpcbind to answer us.
const LIMIT: Duration = Duration::from_secs(3);
/// Entries of a dump at most.
const MOST: usize = 65_536;

/// A registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The program's number.
    pub program: u32,
    /// The version's.
    pub version: u32,
    /// `tcp`, `udp`, `tcp6`, `udp6` or another of its names for transports.
    pub net: String,
    /// Universal: of IPv4, six numbers with dots, of which the last two are the port.
    pub address: String,
    /// Its user, as rpcbind knows it.
    pub owner: String,
}

type Text = Bytes<1024>;

fn text(bytes: Text) -> String {
    String::from_utf8_lossy(&bytes.0).into_owned()
}

impl Xdr for Entry {
    const LEAST: usize = 20;
    const MOST: usize = usize::MAX;
    fn encode(&self, to: &mut Encoder<'_>) {
        to.unsigned(self.program);
        to.unsigned(self.version);
        [&self.net, &self.address, &self.owner].into_iter().for_each(|text| to.variable(text.as_bytes()));
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, xdr::Error> {
        let (program, version, net, address, owner) = <(u32, u32, Text, Text, Text)>::decode(from)?;
        Ok(Self { program, version, net: text(net), address: text(address), owner: text(owner) })
    }
}

/// A list of rpcgen's: long ones are no deep recursion here.
struct Entries(Vec<Entry>);

impl Xdr for Entries {
    const LEAST: usize = 4;
    const MOST: usize = usize::MAX;
    fn encode(&self, to: &mut Encoder<'_>) {
        for entry in &self.0 {
            true.encode(to);
            entry.encode(to);
        }
        false.encode(to);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, xdr::Error> {
        let mut entries = vec![];
        while bool::decode(from)? {
            if entries.len() == MOST {
                return Err(from.error(xdr::Reason::Depth));
            }
            entries.push(Entry::decode(from)?);
        }
        Ok(Self(entries))
    }
}

impl Entry {
    /// The port in its address.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        port_of(&self.address)
    }
}

fn port_of(universal: &str) -> Option<u16> {
    let mut parts = universal.rsplit('.');
    let (low, high) = (parts.next()?.parse::<u8>().ok()?, parts.next()?.parse::<u8>().ok()?);
    Some(u16::from_be_bytes([high, low]))
}

fn universal(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

fn net(transport: Transport, six: bool) -> &'static str {
    match (transport, six) {
        (Transport::Tcp, false) => "tcp",
        (Transport::Udp, false) => "udp",
        (Transport::Tcp, true) => "tcp6",
        (Transport::Udp, true) => "udp6",
    }
}

fn manner(limit: Duration) -> Manner {
    let forks = crate::forks::watch();
    Manner { patience: limit, window: 0, deadline: None, record: 16 << 20, claim: None, forks }
}

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("rpcbind: {error}"))
}

fn at_host(transport: Transport, host: &str, version: u32, limit: Duration) -> io::Result<Caller> {
    let link = Link::connect(transport, host, PORT, limit)?;
    Caller::over(link, format!("rpcbind of {host}"), PROGRAM, version, &manner(limit))
}

/// The port of a program at a host.
///
/// # Errors
/// `NotFound`: it is not registered there; else what the system or rpcbind answers.
pub fn port(place: &Place, program: u32, version: u32, limit: Duration) -> io::Result<u16> {
    let missing = || {
        io::Error::new(io::ErrorKind::NotFound, format!("program {program:#x} is not registered at rpcbind of {}", place.host))
    };
    let mut caller = at_host(place.transport, &place.host, 4, limit)?;
    let six = place.host.contains(':');
    let entry = Entry { program, version, net: net(place.transport, six).into(), ..Entry::default() };
    match caller.call::<_, Text>(GET, &entry, limit.min(LIMIT)) {
        Ok(address) if address.0.is_empty() => Err(missing()),
        Ok(address) => port_of(&text(address)).ok_or_else(|| other("an address that is none")),
        Err(error) if matches!(error.kind(), Kind::Version | Kind::NoProcedure) => {
            caller.version = 2;
            let protocol = if place.transport == Transport::Tcp { 6 } else { 17 };
            let port = caller.call::<_, u32>(GET, &(program, version, protocol as u32, 0u32), limit.min(LIMIT)).map_err(other)?;
            u16::try_from(port).ok().filter(|&port| port != 0).ok_or_else(missing)
        }
        Err(error) => Err(other(error)),
    }
}

/// All registrations at a host.
///
/// # Errors
/// What the system or rpcbind answers.
pub fn dump(transport: Transport, host: &str, limit: Duration) -> io::Result<Vec<Entry>> {
    let mut caller = at_host(transport, host, 4, limit)?;
    Ok(caller.call::<_, Entries>(DUMP, &(), limit).map_err(other)?.0)
}

/// rpcbind of this host: through its socket, by which it knows our user, or else over the loopback.
fn here() -> io::Result<Caller> {
    if let Ok(stream) = UnixStream::connect(SOCKET) {
        return Caller::over(Link::Unix(stream), format!("rpcbind at {SOCKET}"), PROGRAM, 4, &manner(LIMIT));
    }
    let host = "127.0.0.1";
    at_host(Transport::Tcp, host, 4, LIMIT).or_else(|_| at_host(Transport::Udp, host, 4, LIMIT)).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("rpcbind of this host does not answer ({error}): start it, or give the address a port"),
        )
    })
}

/// Registrations of a server. Dropped, they end.
#[derive(Debug)]
pub(crate) struct Registered(Vec<Entry>);

impl Registered {
    /// Registers versions of programs, all of them or none. A registration of a server that lives stays; one of a dead server is
    /// replaced.
    pub fn new(transport: Transport, address: SocketAddr, versions: &[(u32, u32)]) -> io::Result<Self> {
        let mut rpcbind = here()?;
        let mut registered = Self(vec![]);
        for &(program, version) in versions {
            // SAFETY: it only asks.
            let owner = unsafe { libc::geteuid() }.to_string();
            let (net, address) = (net(transport, address.is_ipv6()).into(), universal(address));
            let entry = Entry { program, version, net, address, owner };
            set(&mut rpcbind, transport, &entry)?;
            registered.0.push(entry);
        }
        Ok(registered)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Ok(mut rpcbind) = here() else { return };
        for entry in &self.0 {
            // Another server may have taken its place meanwhile.
            if found(&mut rpcbind, entry).is_ok_and(|there| there.is_some_and(|there| there.address == entry.address)) {
                let _ = rpcbind.call::<_, bool>(UNSET, entry, LIMIT);
            }
        }
    }
}

/// What is registered in place of this.
fn found(rpcbind: &mut Caller, entry: &Entry) -> io::Result<Option<Entry>> {
    let all = rpcbind.call::<_, Entries>(DUMP, &(), LIMIT).map_err(other)?;
    Ok(all.0.into_iter().find(|one| (one.program, one.version, &one.net) == (entry.program, entry.version, &entry.net)))
}

fn set(rpcbind: &mut Caller, transport: Transport, entry: &Entry) -> io::Result<()> {
    let what = || format!("program {:#x}, version {}, {}", entry.program, entry.version, entry.net);
    // SET is refused where another address is registered; of one that is dead already, it is tried once more.
    for _ in 0..3 {
        if rpcbind.call::<_, bool>(SET, entry, LIMIT).map_err(other)? {
            return Ok(());
        }
        let Some(there) = found(rpcbind, entry)? else {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("rpcbind does not register {}", what())));
        };
        if lives(transport, &there) {
            let detail = format!("{}: a server at {} is registered at rpcbind, and answers", what(), there.address);
            return Err(io::Error::new(io::ErrorKind::AddrInUse, detail));
        }
        if !rpcbind.call::<_, bool>(UNSET, &Entry { address: String::new(), ..entry.clone() }, LIMIT).map_err(other)? {
            let detail = format!(
                "{}: rpcbind keeps the registration of {}, of user {}, which does not answer",
                what(),
                there.address,
                there.owner
            );
            return Err(io::Error::new(io::ErrorKind::AddrInUse, detail));
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{}: other servers register it all the time", what())))
}

/// Whether the server of a registration answers a null call. Another program's server may have its port by now.
fn lives(transport: Transport, entry: &Entry) -> bool {
    let Some(port) = entry.port() else { return false };
    let host = entry.address.rsplitn(3, '.').nth(2).and_then(|host| host.parse::<IpAddr>().ok());
    let host = match host {
        Some(host) if !host.is_unspecified() => host.to_string(),
        Some(IpAddr::V6(_)) => "::1".into(),
        _ => "127.0.0.1".into(),
    };
    let answered = Link::connect(transport, &host, port, LIMIT).and_then(|link| {
        let mut caller = Caller::over(link, host, entry.program, entry.version, &manner(LIMIT))?;
        Ok(caller.call::<_, ()>(0, &(), LIMIT))
    });
    let gone = |error: &Error| matches!(error.kind(), Kind::TimedOut | Kind::Lost | Kind::Version);
    answered.is_ok_and(|result| !result.is_err_and(|error| gone(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rpcbind_that_goes_on_for_ever_is_given_up() {
        // More, and five words of each: the program, the version and three empty strings.
        let list =
            |count: usize| [[[0, 0, 0, 1], [0; 4], [0; 4], [0; 4], [0; 4], [0; 4]].concat().repeat(count), vec![0; 4]].concat();
        assert_eq!(xdr::from_bytes::<Entries>(&list(MOST)).unwrap().0.len(), 65_536);
        assert!(xdr::from_bytes::<Entries>(&list(MOST + 1)).is_err());
    }

    #[test]
    fn universal_addresses_have_a_port_at_their_end() {
        assert_eq!(universal("10.0.0.1:2049".parse().unwrap()), "10.0.0.1.8.1");
        assert_eq!(
            (port_of("10.0.0.1.8.1"), port_of("::.0.111"), port_of("/run/x.sock"), port_of("")),
            (Some(2049), Some(111), None, None)
        );
    }
}
