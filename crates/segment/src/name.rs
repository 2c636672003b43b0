//! Abstract AF_UNIX names: how a client finds a listener, and how it says who it is.
//!
//! A listener's name holds the inode of the TCP socket that owns the port. The client asks the kernel (sock_diag)
//! which TCP socket would get its connection, so specific and wildcard addresses, dual-stack listeners and
//! SO_REUSEPORT groups follow the kernel's own rules, and the answer names the owner to check against.
//!
//! A client binds its end to a name that holds the [`Hello`]: the accepting side learns it from accept(2) itself,
//! atomically with the connection.

use crate::address::Address;
use crate::VERSION;

/// Longest name in bytes, without the leading NUL (`sun_path` has 108 bytes).
pub const LONGEST: usize = 107;

const LISTENER: &[u8] = b"shunt1-listen-";
const INBOX: &[u8] = b"shunt1-inbox-";
const STATION: &[u8] = b"shunt1-station-";
const CLIENT: &[u8] = b"shunt1-client-";
const SERVER: &[u8] = b"shunt1-server-";
const RELAY: &[u8] = b"shunt1-carrier-";

/// Length of an encoded [`Hello`] name.
pub const HELLO: usize = CLIENT.len() + 4 + 8 + 4 + 2 + 2 + 4 + 18 + 18 + 4;

/// A name under construction.
#[derive(Clone, Copy)]
pub struct Name {
    /// The bytes.
    pub bytes: [u8; LONGEST],
    /// How many of them count.
    pub length: usize,
}

impl Name {
    fn new(prefix: &[u8]) -> Name {
        let mut name = Name { bytes: [0; LONGEST], length: 0 };
        name.push(prefix);
        name
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// The name as a slice.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The name at which the listener whose TCP socket has `inode` answers.
pub fn listener(inode: u64) -> Name {
    numbered(LISTENER, inode)
}

/// The name at which a gate asks the station that serves the listener whose TCP socket has `inode`.
pub fn station(inode: u64) -> Name {
    numbered(STATION, inode)
}

/// The name at which the inbox of the datagram socket with `inode` is handed over.
pub fn inbox(inode: u64) -> Name {
    numbered(INBOX, inode)
}

/// The name at which the relay `id` is asked to settle ([`crate::channel::Carriage`]).
pub fn relay(id: u64) -> Name {
    numbered(RELAY, id)
}

fn numbered(prefix: &[u8], inode: u64) -> Name {
    let mut name = Name::new(prefix);
    let mut digits = [0u8; 16];
    for (i, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(inode >> (60 - 4 * i)) as usize & 15];
    }
    name.push(&digits);
    name
}

/// [`Hello::link_follows`] of a connection that only brings another one, which waited in memory for its listener. In a name it may be
/// more: one parcel of a connection may be under way with its sender's name when the process that opened it sends the next.
pub const FOLLOWS_PARCEL: u16 = 2;

/// What a client tells with its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Layout version of the client.
    pub version: u32,
    /// Names the link, with `sequence`.
    pub nonce: u64,
    /// Number of the link in its client process.
    pub sequence: u32,
    /// Channel of the link.
    pub channel: u16,
    /// 1: the link's descriptor follows on the companion. [`FOLLOWS_PARCEL`]: that, and the companion itself.
    pub link_follows: u16,
    /// Generation of the channel.
    pub generation: u32,
    /// The client's address.
    pub client: Address,
    /// The address it connected to.
    pub server: Address,
}

impl Hello {
    /// The client's name.
    pub fn encode(&self) -> Name {
        self.encode_as(CLIENT)
    }

    /// The name of the server's end, where that is the one which connected ([`Hello::of_side`]).
    pub fn encode_for_server(&self) -> Name {
        const _: () = assert!(SERVER.len() == CLIENT.len());
        self.encode_as(SERVER)
    }

    fn encode_as(&self, prefix: &[u8]) -> Name {
        let mut name = Name::new(prefix);
        name.push(&self.version.to_le_bytes());
        name.push(&self.nonce.to_le_bytes());
        name.push(&self.sequence.to_le_bytes());
        name.push(&self.channel.to_le_bytes());
        name.push(&self.link_follows.to_le_bytes());
        name.push(&self.generation.to_le_bytes());
        for address in [&self.client, &self.server] {
            name.push(&address.ip);
            name.push(&address.port.to_le_bytes());
        }
        name.push(&self.client.scope.to_le_bytes());
        name
    }

    /// Reads a client's name; `None` if it is not one of this version, whatever the bytes are.
    pub fn decode(name: &[u8]) -> Option<Hello> {
        Hello::read(name.strip_prefix(CLIENT)?)
    }

    /// Reads the name of either end, and says which side has it: 0 the client's, 1 the server's. One of a connection's ends has a name.
    pub fn of_side(name: &[u8]) -> Option<(Hello, usize)> {
        let ends = [CLIENT, SERVER];
        ends.iter().enumerate().find_map(|(side, prefix)| Some((Hello::read(name.strip_prefix(*prefix)?)?, side)))
    }

    fn read(rest: &[u8]) -> Option<Hello> {
        let mut at = Reader { rest };
        let version = at.u32()?;
        if version != VERSION {
            return None;
        }
        let nonce = at.u64()?;
        let sequence = at.u32()?;
        let channel = at.u16()?;
        let link_follows = at.u16()?;
        let generation = at.u32()?;
        let mut client = Address { ip: at.take()?, port: at.u16()?, scope: 0 };
        let mut server = Address { ip: at.take()?, port: at.u16()?, scope: 0 };
        client.scope = at.u32()?;
        server.scope = client.scope;
        if !at.rest.is_empty() || channel as usize >= crate::CHANNELS {
            return None;
        }
        let link_follows = link_follows.min(FOLLOWS_PARCEL);
        Some(Hello { version, nonce, sequence, channel, link_follows, generation, client, server })
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            version: VERSION,
            nonce: 0x0123_4567_89ab_cdef,
            sequence: 7,
            channel: 9,
            link_follows: 1,
            generation: 12,
            client: Address::v4([127, 0, 0, 1], 40000),
            server: Address::v4([127, 0, 0, 2], 6379),
        }
    }

    #[test]
    fn a_hello_survives_the_trip() {
        let name = hello().encode();
        assert_eq!(name.length, HELLO);
        assert!(name.length <= LONGEST);
        assert_eq!(Hello::decode(name.as_slice()), Some(hello()));
        assert_eq!(Hello::of_side(name.as_slice()), Some((hello(), 0)));
        let servers = hello().encode_for_server();
        assert_eq!((Hello::of_side(servers.as_slice()), Hello::decode(servers.as_slice())), (Some((hello(), 1)), None));
    }

    #[test]
    fn other_bytes_are_refused() {
        let name = hello().encode();
        for cut in 0..name.length {
            assert_eq!(Hello::decode(&name.as_slice()[..cut]), None);
        }
        let mut wrong = name;
        wrong.bytes[CLIENT.len()] ^= 1;
        assert_eq!(Hello::decode(wrong.as_slice()), None);
        let mut far = hello();
        far.channel = crate::CHANNELS as u16;
        assert_eq!(Hello::decode(far.encode().as_slice()), None);
    }

    #[test]
    fn listeners_have_names_of_their_own() {
        assert_eq!(listener(0xbeef).as_slice(), b"shunt1-listen-000000000000beef");
    }
}
