//! The messages of a handshake, each in one piece of an AF_UNIX stream: what a server says of the connection that it has accepted, and what
//! the client answers to the server that named its connection. A message of another version, or another length, is none.

use shunt_segment::address::Address;

/// Says what follows, and which protocol this is.
const MAGIC: [u8; 8] = *b"shunt-n1";

/// Bytes of a claim.
pub const CLAIM: usize = 8 + 4 + 2 + 8 + 2 * 18;
/// Bytes of an answer.
pub const ANSWER: usize = 8 + 16;
/// What a server says to whom it cannot answer otherwise: the link is not known here.
pub const UNKNOWN_LINK: u8 = b'?';

/// 128 random bits of the client's, which come back by the TCP connection.
pub type Token = [u8; 16];

/// What a server says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The layout of segments that it knows.
    pub version: u32,
    /// The mark that the connection shows.
    pub mark: u16,
    /// The process's own name, not 0.
    pub server_id: u64,
    /// Where the connection comes from, as accept(2) tells.
    pub client: Address,
    /// Where it was accepted.
    pub server: Address,
}

fn put(bytes: &mut [u8], at: &mut usize, field: &[u8]) {
    bytes[*at..*at + field.len()].copy_from_slice(field);
    *at += field.len();
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn address(&mut self) -> Option<Address> {
        Some(Address { ip: self.take()?, port: u16::from_le_bytes(self.take()?), scope: 0 })
    }
}

impl Claim {
    /// The message.
    pub fn encode(&self) -> [u8; CLAIM] {
        let (mut bytes, mut at) = ([0; CLAIM], 0);
        put(&mut bytes, &mut at, &MAGIC);
        put(&mut bytes, &mut at, &self.version.to_le_bytes());
        put(&mut bytes, &mut at, &self.mark.to_le_bytes());
        put(&mut bytes, &mut at, &self.server_id.to_le_bytes());
        for address in [&self.client, &self.server] {
            put(&mut bytes, &mut at, &address.ip);
            put(&mut bytes, &mut at, &address.port.to_le_bytes());
        }
        bytes
    }

    /// Reads one, whatever the bytes are.
    pub fn decode(bytes: &[u8]) -> Option<Claim> {
        let mut reader = Reader(bytes);
        let magic: [u8; 8] = reader.take()?;
        let claim = Claim {
            version: u32::from_le_bytes(reader.take()?),
            mark: u16::from_le_bytes(reader.take()?),
            server_id: u64::from_le_bytes(reader.take()?),
            client: reader.address()?,
            server: reader.address()?,
        };
        (magic == MAGIC && claim.server_id != 0 && claim.server_id != u64::MAX && reader.0.is_empty()).then_some(claim)
    }
}

/// The answer that gives a token.
pub fn answer(token: &Token) -> [u8; ANSWER] {
    let (mut bytes, mut at) = ([0; ANSWER], 0);
    put(&mut bytes, &mut at, &MAGIC);
    put(&mut bytes, &mut at, token);
    bytes
}

/// The token of an answer.
pub fn token_of(bytes: &[u8]) -> Option<Token> {
    let mut reader = Reader(bytes);
    let magic: [u8; 8] = reader.take()?;
    let token = reader.take()?;
    (magic == MAGIC && reader.0.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_trip_and_no_others_do() {
        let claim = Claim {
            version: 13,
            mark: 1331,
            server_id: 7,
            client: Address::v4([172, 30, 0, 3], 40_000),
            server: Address::v4([172, 30, 0, 2], 6379),
        };
        let bytes = claim.encode();
        assert_eq!(Claim::decode(&bytes), Some(claim));
        let token = [5; 16];
        assert_eq!(token_of(&answer(&token)), Some(token));
        for cut in 0..CLAIM {
            assert_eq!(
                (Claim::decode(&bytes[..cut]), token_of(&bytes[..cut])),
                (None, if cut == ANSWER { token_of(&bytes[..cut]) } else { None })
            );
        }
        assert_eq!(Claim::decode(&[&bytes[..], b"x"].concat()), None);
        assert_eq!(Claim::decode(&Claim { server_id: 0, ..claim }.encode()), None);
        assert_eq!(token_of(&[0; ANSWER]), None);
    }
}
