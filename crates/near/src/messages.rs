//! The messages of a handshake. All but the proof go over one AF_UNIX connection, each in one piece, and no two of one end without a word of the other's
//! between them. A message of another version, or another length, is none.
//!
//! ```text
//! server                                   client
//!   CLAIM      what it accepted      ──►
//!                                    ◄──   READY   a token, and the channel
//!   COMMITTED, or UNKNOWN_LINK       ──►
//!   PROOF      by TCP: token, secret ══►
//!                                    ◄──   LINK    secret, and the link's memory, if the link is new
//!   TAKEN                            ──►
//!                                    ◄──   GO      secret: the connection is a stream
//! ```

use shunt_segment::address::Address;
use shunt_segment::CHANNELS;

/// Says what follows, and which protocol this is.
const MAGIC: [u8; 8] = *b"shunt-n2";
/// What a proof begins with. Drawn once, for all versions: no program begins a stream so.
const PROVES: [u8; 16] = [0x00, 0xd7, 0x9c, 0x1f, 0xe4, 0x5b, 0xa3, 0x08, 0x7e, 0xc6, 0x31, 0xfb, 0x92, 0x4d, 0xb8, 0x65];

/// Bytes of a claim.
pub const CLAIM: usize = 8 + 4 + 2 + 8 + 2 * 18;
/// Bytes of an answer to a claim.
pub const READY: usize = 8 + 16 + 8 + 4 + 2 + 4 + 1;
/// Bytes of a proof.
pub const PROOF: usize = 16 + 16 + 16 + 8;
/// Bytes of what a client says when it has seen the proof.
pub const WORD: usize = 1 + 16;

/// The server: the proof follows by TCP, whatever happens.
pub const COMMITTED: u8 = b'C';
/// The server: the link is not known here. The client is to offer another one.
pub const UNKNOWN_LINK: u8 = b'?';
/// The server has the link.
pub const TAKEN: u8 = b'T';
/// The client, with the secret and the link's descriptor: the link that it has made.
pub const LINK: u8 = b'L';
/// The client, with the secret: from here on the connection is a stream.
pub const GO: u8 = b'G';

/// In the place of a claim's version: the server takes no more connections at this moment, and leaves this one to TCP.
pub const NOT_NOW: u32 = 0;

/// 128 random bits: the client's are its token, the server's its secret.
pub type Token = [u8; 16];

/// What a server says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The layout of segments that it knows; [`NOT_NOW`].
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

/// What a client answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// What the proof is to hold.
    pub token: Token,
    /// The link's name.
    pub nonce: u64,
    /// The link's name.
    pub sequence: u32,
    /// The channel in it, less than [`CHANNELS`].
    pub channel: u16,
    /// The channel's generation.
    pub generation: u32,
    /// The link was made for this connection, and is sent when the server has proved itself.
    pub is_new: bool,
}

/// What a server writes into the TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proof {
    /// The client's token: its writer has the claim's AF_UNIX connection.
    pub token: Token,
    /// What the client is to say over the AF_UNIX connection: its sender has read the TCP connection.
    pub secret: Token,
    /// The inode of the other end of the server's AF_UNIX connection, as the kernel tells: no relay stands between.
    pub peer: u64,
}

struct Writer<'a>(&'a mut [u8], usize);

impl Writer<'_> {
    fn put(&mut self, field: &[u8]) -> &mut Self {
        self.0[self.1..self.1 + field.len()].copy_from_slice(field);
        self.1 += field.len();
        self
    }
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
        let mut bytes = [0; CLAIM];
        let mut writer = Writer(&mut bytes, 0);
        writer.put(&MAGIC).put(&self.version.to_le_bytes()).put(&self.mark.to_le_bytes()).put(&self.server_id.to_le_bytes());
        for address in [&self.client, &self.server] {
            writer.put(&address.ip).put(&address.port.to_le_bytes());
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
        (magic == MAGIC && claim.server_id != 0 && claim.server_id < 1 << 63 && reader.0.is_empty()).then_some(claim)
    }
}

impl Ready {
    /// The message.
    pub fn encode(&self) -> [u8; READY] {
        let mut bytes = [0; READY];
        let mut writer = Writer(&mut bytes, 0);
        writer.put(&MAGIC).put(&self.token).put(&self.nonce.to_le_bytes()).put(&self.sequence.to_le_bytes());
        writer.put(&self.channel.to_le_bytes()).put(&self.generation.to_le_bytes()).put(&[u8::from(self.is_new)]);
        bytes
    }

    /// Reads one, whatever the bytes are.
    pub fn decode(bytes: &[u8]) -> Option<Ready> {
        let mut reader = Reader(bytes);
        let magic: [u8; 8] = reader.take()?;
        let ready = Ready {
            token: reader.take()?,
            nonce: u64::from_le_bytes(reader.take()?),
            sequence: u32::from_le_bytes(reader.take()?),
            channel: u16::from_le_bytes(reader.take()?),
            generation: u32::from_le_bytes(reader.take()?),
            is_new: reader.take::<1>()? == [1],
        };
        (magic == MAGIC && usize::from(ready.channel) < CHANNELS && reader.0.is_empty()).then_some(ready)
    }
}

/// What the first bytes of a TCP connection are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum First {
    /// A proof, for whomever.
    Proof(Proof),
    /// Part of one, or nothing.
    Part,
    /// The program's.
    Program,
}

impl Proof {
    /// The bytes.
    pub fn encode(&self) -> [u8; PROOF] {
        let mut bytes = [0; PROOF];
        Writer(&mut bytes, 0).put(&PROVES).put(&self.token).put(&self.secret).put(&self.peer.to_le_bytes());
        bytes
    }

    /// Reads the first bytes of a connection, at most [`PROOF`].
    pub fn begin(bytes: &[u8]) -> First {
        let same = PROVES.len().min(bytes.len());
        if bytes[..same] != PROVES[..same] {
            return First::Program;
        }
        let mut reader = Reader(bytes);
        let mut whole = || {
            reader.take::<16>()?;
            Some(Proof { token: reader.take()?, secret: reader.take()?, peer: u64::from_le_bytes(reader.take()?) })
        };
        whole().map_or(First::Part, First::Proof)
    }
}

/// One of the client's last words.
pub fn word(kind: u8, secret: &Token) -> [u8; WORD] {
    let mut bytes = [kind; WORD];
    bytes[1..].copy_from_slice(secret);
    bytes
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
        let ready = Ready { token: [5; 16], nonce: 1 << 60, sequence: 9, channel: 3, generation: 77, is_new: true };
        let answer = ready.encode();
        assert_eq!(Ready::decode(&answer), Some(ready));
        for cut in 0..CLAIM {
            assert_eq!(Claim::decode(&bytes[..cut]), None);
            assert_eq!(Ready::decode(&bytes[..cut]), None, "a claim is no answer");
            assert_eq!(Ready::decode(&answer[..cut.min(READY - 1)]), None);
        }
        assert_eq!(Claim::decode(&[&bytes[..], b"x"].concat()), None);
        assert_eq!(Claim::decode(&Claim { server_id: 0, ..claim }.encode()), None);
        assert_eq!(Ready::decode(&Ready { channel: CHANNELS as u16, ..ready }.encode()), None);
        assert_eq!(Ready::decode(&[0; READY]), None);
    }

    #[test]
    fn a_proof_is_told_from_a_programs_bytes() {
        let proof = Proof { token: [1; 16], secret: [2; 16], peer: 3 };
        let bytes = proof.encode();
        for cut in 0..PROOF {
            assert_eq!(Proof::begin(&bytes[..cut]), First::Part, "{cut}");
        }
        assert_eq!(Proof::begin(&bytes), First::Proof(proof));
        for at in 0..PROVES.len() {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(Proof::begin(&other), First::Program);
            assert_eq!(Proof::begin(&other[..=at]), First::Program);
        }
        assert_eq!(Proof::begin(b"HTTP/1.1 200 OK"), First::Program);
    }
}
