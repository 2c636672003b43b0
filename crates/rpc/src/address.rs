//! Where a server is: one syntax for all devices.

use std::fmt;
use std::str::FromStr;

/// `NAME` or `shm:NAME`: a server of this host, by its name; `udp:HOST:PORT`: a server that listens there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Shared memory; the name is that of an abstract socket.
    Memory(String),
    /// UDP frames; the host and port are those of the TCP listener that binds callers.
    Udp(String),
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
            let (host, port) = place.rsplit_once(':').ok_or(AddressError("udp:HOST:PORT is wanted"))?;
            if host.is_empty() || port.parse::<u16>().is_err() {
                return Err(AddressError("udp:HOST:PORT is wanted"));
            }
            return Ok(Self::Udp(place.to_string()));
        }
        let name = text.strip_prefix("shm:").unwrap_or(text);
        if name.contains(':') {
            return Err(AddressError("the devices are shm and udp"));
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_they_say() {
        for (text, said) in [("log", "shm:log"), ("shm:a.b/c", "shm:a.b/c"), ("udp:[::1]:7", "udp:[::1]:7")] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), said);
        }
        let long = "x".repeat(81);
        for text in ["", "shm:", "a b", "tcp:x:1", "udp:x", "udp::1", "udp:x:70000", &long] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
