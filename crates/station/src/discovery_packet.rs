//! The gate's datagrams: one size for all, so that no host gets more than it sent.
//!
//! ```text
//!  0  magic "shuntgat"      8  version, kind (4 each)     16  nonce of the asker (16)    32  cookie (16)
//! 48  client, server (16 each)   80  ports (2 each)       84  flags                      88  name of the sender's station (16)
//! 104 tag by which it is to be sent to                   112  port of its endpoint (2), reserved (2), status (4)      120
//! ```
//!
//! All numbers are little-endian. The host of an endpoint is not told: it is where the question came from, which the cookie has
//! proved, or where it was sent.

use shunt_segment::address::Address;

use crate::{FourTuple, Refusal};

/// Bytes of a datagram.
pub const SIZE: usize = 120;
const MAGIC: [u8; 8] = *b"shuntgat";
const VERSION: u32 = 3;

/// What a datagram is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// Which station serves this connection?
    Ask = 1,
    /// Ask again with this cookie.
    Cookie = 2,
    /// The station.
    Answer = 3,
}

/// The asker has no connection to the station that it was told of before: a new one, please.
pub const FRESH: u32 = 1;
/// In an answer: you know me, by the name.
pub const KNOWN: u32 = 2;

/// A datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// What it is.
    pub kind: Kind,
    /// Random, the asker's: a host that can answer has read the question.
    pub nonce: [u64; 2],
    /// The gate's proof that the asker can be reached.
    pub cookie: [u64; 2],
    /// The connection.
    pub four: FourTuple,
    /// [`FRESH`], [`KNOWN`].
    pub flags: u32,
    /// The sender's station.
    pub identity: [u64; 2],
    /// By which it is to be sent to.
    pub tag: u64,
    /// Of its endpoint.
    pub port: u16,
    /// Of an answer.
    pub refusal: Option<Refusal>,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn half(bytes: &[u8], at: usize) -> u32 {
    let mut half = [0; 4];
    half.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(half)
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn ip(bytes: &[u8], at: usize, port: u16) -> Address {
    let mut ip = [0; 16];
    ip.copy_from_slice(&bytes[at..at + 16]);
    Address { ip, port, scope: 0 }
}

impl Datagram {
    /// Reads any bytes; `None`: no datagram of this version.
    pub fn parse(bytes: &[u8]) -> Option<Datagram> {
        if bytes.len() != SIZE || bytes[..8] != MAGIC || half(bytes, 8) != VERSION {
            return None;
        }
        let kind = [Kind::Ask, Kind::Cookie, Kind::Answer].into_iter().find(|kind| *kind as u32 == half(bytes, 12))?;
        let refusal = match half(bytes, 116) {
            0 => None,
            number => Some(Refusal::of(number)?),
        };
        let two = |at| [word(bytes, at), word(bytes, at + 8)];
        Some(Datagram {
            kind,
            nonce: two(16),
            cookie: two(32),
            four: FourTuple { client: ip(bytes, 48, short(bytes, 80)), server: ip(bytes, 64, short(bytes, 82)) },
            flags: half(bytes, 84),
            identity: two(88),
            tag: word(bytes, 104),
            port: short(bytes, 112),
            refusal,
        })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &(self.kind as u32).to_le_bytes());
        for (at, [low, high]) in [(16, self.nonce), (32, self.cookie), (88, self.identity)] {
            put(at, &low.to_le_bytes());
            put(at + 8, &high.to_le_bytes());
        }
        put(48, &self.four.client.ip);
        put(64, &self.four.server.ip);
        put(80, &self.four.client.port.to_le_bytes());
        put(82, &self.four.server.port.to_le_bytes());
        put(84, &self.flags.to_le_bytes());
        put(104, &self.tag.to_le_bytes());
        put(112, &self.port.to_le_bytes());
        put(116, &self.refusal.map_or(0, |refusal| refusal as u32).to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_emitted_is_parsed() {
        let datagram = Datagram {
            kind: Kind::Answer,
            nonce: [1, 2],
            cookie: [3, u64::MAX],
            four: FourTuple { client: Address::v4([10, 0, 0, 1], 40000), server: Address::v6([0xfd; 16], 80) },
            flags: KNOWN,
            identity: [5, 6],
            tag: 7,
            port: 29544,
            refusal: Some(Refusal::Full),
        };
        let bytes = datagram.emit();
        assert_eq!(Datagram::parse(&bytes), Some(datagram));
        assert_eq!(Datagram::parse(&bytes[..SIZE - 1]), None);
        for (at, value) in [(0, 0), (8, VERSION as u8 + 1), (12, 4), (116, 99)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(Datagram::parse(&other), None, "byte {at}");
        }
    }
}
