//! Where a server is: one syntax for all devices.

use std::fmt;
use std::str::FromStr;

/// `NAME` or `shm:NAME`: a server of this host, by its name; `udp:HOST:PORT`, `xdp:HOST:PORT`, `fabric:PROVIDER:HOST:PORT`: a server
/// that listens there; `sunrpc+tcp://HOST[:PORT]` or `sunrpc+udp://HOST[:PORT]`: one that speaks SunRPC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Shared memory; the name is that of an abstract socket.
    Memory(String),
    /// UDP frames; the host and port are those of the TCP listener that binds callers.
    Udp(String),
    /// Frames past the kernel's stack, by the agent of the interface that the binding's connection uses; the rest is as for UDP, and a
    /// side with `udp` has a side with `xdp` as its peer without knowing.
    Xdp(String),
    /// One of libfabric's providers, and the place as for UDP.
    Fabric(String, String),
    /// SunRPC, RFC 5531: other implementations' servers and callers, and ours.
    SunRpc(Place),
}

/// By what messages of SunRPC go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Records in a stream.
    Tcp,
    /// A datagram for each message.
    Udp,
}

/// Where a server of SunRPC is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// By what.
    pub transport: Transport,
    /// A name, or a number; of IPv6 without brackets.
    pub host: String,
    /// `None`: rpcbind of that host knows it.
    pub port: Option<u16>,
}

impl Address {
    /// Where the TCP listener of a server between hosts is.
    pub(crate) fn place(&self) -> Option<&str> {
        match self {
            Self::Memory(_) | Self::SunRpc(_) => None,
            Self::Udp(place) | Self::Xdp(place) | Self::Fabric(_, place) => Some(place),
        }
    }

    /// The same device at another place.
    pub(crate) fn moved(&self, place: String) -> Self {
        match self {
            Self::Memory(_) | Self::SunRpc(_) => self.clone(),
            Self::Udp(_) => Self::Udp(place),
            Self::Xdp(_) => Self::Xdp(place),
            Self::Fabric(provider, _) => Self::Fabric(provider.clone(), place),
        }
    }
}

/// `HOST:PORT`, or what is wanted instead.
fn place_of(place: &str, wanted: &'static str) -> Result<String, AddressError> {
    let (host, port) = place.rsplit_once(':').ok_or(AddressError(wanted))?;
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err(AddressError(wanted));
    }
    Ok(place.to_string())
}

/// Why words are no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressError(&'static str);

impl fmt::Display for AddressError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.0)
    }
}

impl std::error::Error for AddressError {}

/// Bytes of a name at most: an abstract socket's has 107 with ours before it.
const LONGEST: usize = 80;

impl Place {
    fn parse(transport: Transport, text: &str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, behind) = rest.split_once(']')?;
                (host, if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) })
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:%".contains(&byte);
        if host.is_empty() || !host.bytes().all(allowed) {
            return None;
        }
        let port = match port {
            Some(port) => Some(port.parse().ok()?),
            None => None,
        };
        Some(Self { transport, host: host.to_string(), port })
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        for (prefix, transport) in [("sunrpc+tcp://", Transport::Tcp), ("sunrpc+udp://", Transport::Udp)] {
            if let Some(place) = text.strip_prefix(prefix) {
                let place = Place::parse(transport, place);
                return place
                    .map(Self::SunRpc)
                    .ok_or(AddressError("sunrpc+tcp://HOST[:PORT] or sunrpc+udp://HOST[:PORT] is wanted"));
            }
        }
        if let Some(place) = text.strip_prefix("udp:") {
            return place_of(place, "udp:HOST:PORT is wanted").map(Self::Udp);
        }
        if let Some(place) = text.strip_prefix("xdp:") {
            return place_of(place, "xdp:HOST:PORT is wanted").map(Self::Xdp);
        }
        if let Some(rest) = text.strip_prefix("fabric:") {
            const WANTED: &str = "fabric:PROVIDER:HOST:PORT is wanted, with a provider of libfabric's such as tcp or verbs";
            let (provider, place) = rest.split_once(':').ok_or(AddressError(WANTED))?;
            if provider.is_empty() {
                return Err(AddressError(WANTED));
            }
            return place_of(place, WANTED).map(|place| Self::Fabric(provider.to_string(), place));
        }
        let name = text.strip_prefix("shm:").unwrap_or(text);
        if name.contains(':') {
            return Err(AddressError("the devices are shm, udp, xdp, fabric, sunrpc+tcp and sunrpc+udp"));
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
        if name.is_empty() || name.len() > LONGEST || !name.bytes().all(allowed) {
            return Err(AddressError("a name has 1 to 80 letters, digits or ._-/"));
        }
        Ok(Self::Memory(name.to_string()))
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transport, host, port } = self;
        if host.contains(':') {
            write!(to, "sunrpc+{transport}://[{host}]")?;
        } else {
            write!(to, "sunrpc+{transport}://{host}")?;
        }
        port.map_or(Ok(()), |port| write!(to, ":{port}"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(name) => write!(to, "shm:{name}"),
            Self::Udp(place) => write!(to, "udp:{place}"),
            Self::SunRpc(place) => place.fmt(to),
            Self::Xdp(place) => write!(to, "xdp:{place}"),
            Self::Fabric(provider, place) => write!(to, "fabric:{provider}:{place}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_they_say() {
        for (text, said) in
            [("log", "shm:log"), ("shm:a.b/c", "shm:a.b/c"), ("udp:[::1]:7", "udp:[::1]:7"), ("xdp:h:7", "xdp:h:7")]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), said);
        }
        for text in ["sunrpc+tcp://here", "sunrpc+udp://127.0.0.1:7", "sunrpc+tcp://[::1]:111", "sunrpc+tcp://[::1]"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let Ok(Address::SunRpc(place)) = "sunrpc+udp://[::1]:9".parse() else { panic!("an address") };
        assert_eq!(place, Place { transport: Transport::Udp, host: "::1".into(), port: Some(9) });
        let fabric = "fabric:verbs:[fe80::1]:7".parse::<Address>().unwrap();
        assert_eq!(fabric, Address::Fabric("verbs".into(), "[fe80::1]:7".into()));
        assert_eq!(fabric.moved("h:8".into()).to_string(), "fabric:verbs:h:8");
        let long = "x".repeat(81);
        for text in [
            "",
            "shm:",
            "a b",
            "tcp:x:1",
            "udp:x",
            "udp::1",
            "udp:x:70000",
            "xdp:x",
            "fabric:tcp",
            "fabric:h:7",
            "fabric::h:7",
            "sunrpc+tcp://",
            "sunrpc+tcp://a:",
            "sunrpc+udp://a:70000",
            "sunrpc+tcp://[::1",
            "sunrpc+x://a",
            "sunrpc+tcp://a/b",
            &long,
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
