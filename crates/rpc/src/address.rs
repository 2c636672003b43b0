//! Where a server is: one syntax for all devices.

use std::fmt;
use std::str::FromStr;

/// `NAME` or `shm:NAME`: a server of this host, by its name; `udp:HOST:PORT`, `xdp:HOST:PORT`, `fabric:PROVIDER:HOST:PORT`: a server
/// that listens there.
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
}

impl Address {
    /// Where the TCP listener of a server between hosts is.
    pub(crate) fn place(&self) -> Option<&str> {
        match self {
            Self::Memory(_) => None,
            Self::Udp(place) | Self::Xdp(place) | Self::Fabric(_, place) => Some(place),
        }
    }

    /// The same device at another place.
    pub(crate) fn moved(&self, place: String) -> Self {
        match self {
            Self::Memory(_) => self.clone(),
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

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
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
            return Err(AddressError("the devices are shm, udp, xdp and fabric"));
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
        if name.is_empty() || name.len() > LONGEST || !name.bytes().all(allowed) {
            return Err(AddressError("a name has 1 to 80 letters, digits or ._-/"));
        }
        Ok(Self::Memory(name.to_string()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(name) => write!(to, "shm:{name}"),
            Self::Udp(place) => write!(to, "udp:{place}"),
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
            &long,
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
