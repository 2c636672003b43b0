//! What the ends of TCP connections and `shunt hostd` say to each other, at the socket [`NAME`] of the directory in which network namespaces of one host meet.
//! Each message is one packet of an AF_UNIX SOCK_SEQPACKET connection; one of another length or beginning is none.
//!
//! ```text
//! end                                          hostd
//!   connects                              ──►
//!                                         ◄──  HELLO
//!   CLIENT or SERVER, with its TCP socket ──►
//!                                         ◄──  MET, with an AF_UNIX stream; or REFUSED; or the end
//!   COUNTS                                ──►
//!                                         ◄──  counts
//! ```

/// The socket's name in the directory.
pub const NAME: &[u8] = b"hostd";
/// Says what follows, and which protocol this is.
const MAGIC: [u8; 8] = *b"shunt-h1";
/// Bytes of a request.
pub const REQUEST: usize = 9;
/// Bytes of an answer.
pub const ANSWER: usize = 8 + 1 + 1 + 4 + 8;

/// What an end wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Request {
    /// To be introduced to the server of the connection whose socket comes along.
    Client = b'C',
    /// To be introduced to its client.
    Server = b'S',
    /// What hostd has counted ([`Counts`]).
    Counts = b'?',
}

impl Request {
    /// The message.
    pub fn encode(self) -> [u8; REQUEST] {
        let mut bytes = [self as u8; REQUEST];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes
    }

    /// Reads one, whatever the bytes are.
    pub fn decode(bytes: &[u8]) -> Option<Request> {
        let [kind] = *bytes.strip_prefix(&MAGIC)? else { return None };
        [Request::Client, Request::Server, Request::Counts].into_iter().find(|request| *request as u8 == kind)
    }
}

/// Why hostd introduces nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// What came is no established TCP connection, or one under repair.
    NoConnection = 1,
    /// The user, its network namespace or all of them have as many half-open claims as there is room for.
    Quota = 2,
    /// Another end of the same side has shown the same numbers.
    Ambiguous = 3,
    /// hostd may not read the socket's numbers: its network is another's than the host's root's.
    Forbidden = 4,
}

/// What hostd says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is awake, and takes the socket.
    Hello,
    /// The other end has the other end of the stream that comes along.
    Met {
        /// The other end's user, as hostd sees it.
        user: u32,
        /// The inode of the other end of the stream.
        peer: u64,
    },
    /// Nobody will be introduced.
    Refused(Refusal),
}

impl Answer {
    /// The message.
    pub fn encode(self) -> [u8; ANSWER] {
        let (kind, why, user, peer) = match self {
            Answer::Hello => (b'H', 0, 0, 0),
            Answer::Met { user, peer } => (b'M', 0, user, peer),
            Answer::Refused(why) => (b'R', why as u8, 0, 0),
        };
        let mut bytes = [0; ANSWER];
        bytes[..8].copy_from_slice(&MAGIC);
        (bytes[8], bytes[9]) = (kind, why);
        bytes[10..14].copy_from_slice(&u32::to_le_bytes(user));
        bytes[14..].copy_from_slice(&u64::to_le_bytes(peer));
        bytes
    }

    /// Reads one, whatever the bytes are.
    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        let [kind, why, rest @ ..] = bytes.strip_prefix(&MAGIC)? else { return None };
        let (user, peer) = rest.split_first_chunk::<4>()?;
        let (user, peer) = (u32::from_le_bytes(*user), u64::from_le_bytes(peer.try_into().ok()?));
        let refusals = [Refusal::NoConnection, Refusal::Quota, Refusal::Ambiguous, Refusal::Forbidden];
        match kind {
            b'H' => Some(Answer::Hello),
            b'M' => Some(Answer::Met { user, peer }),
            b'R' => refusals.into_iter().find(|refusal| *refusal as u8 == *why).map(Answer::Refused),
            _ => None,
        }
    }
}

/// What hostd has counted since it began, and what is half-open now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Connections whose ends were introduced.
    pub introduced: u64,
    /// Claims that wait for their other half.
    pub waiting: u64,
    /// Claims whose other half did not come in time, or that were taken back.
    pub alone: u64,
    /// Refused: no connection.
    pub no_connection: u64,
    /// Refused: quota.
    pub quota: u64,
    /// Refused: ambiguous.
    pub ambiguous: u64,
    /// Refused: forbidden.
    pub forbidden: u64,
    /// Connections that said something else, or nothing in time.
    pub senseless: u64,
    /// Whether a kill cannot come between the calls by which a socket's numbers are read.
    pub in_one: u64,
}

/// Bytes of the counts.
pub const COUNTS: usize = 8 + 8 * 9;

impl Counts {
    fn words(&self) -> [u64; 9] {
        let Counts { introduced, waiting, alone, no_connection, quota, ambiguous, forbidden, senseless, in_one } = *self;
        [introduced, waiting, alone, no_connection, quota, ambiguous, forbidden, senseless, in_one]
    }

    /// The message.
    pub fn encode(&self) -> [u8; COUNTS] {
        let mut bytes = [0; COUNTS];
        bytes[..8].copy_from_slice(&MAGIC);
        for (to, word) in bytes[8..].chunks_exact_mut(8).zip(self.words()) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads them, whatever the bytes are.
    pub fn decode(bytes: &[u8]) -> Option<Counts> {
        let bytes: &[u8; COUNTS - 8] = bytes.strip_prefix(&MAGIC)?.try_into().ok()?;
        let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let mut next = || words.next().unwrap_or(0);
        Some(Counts {
            introduced: next(),
            waiting: next(),
            alone: next(),
            no_connection: next(),
            quota: next(),
            ambiguous: next(),
            forbidden: next(),
            senseless: next(),
            in_one: next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_trip_and_no_others_do() {
        for request in [Request::Client, Request::Server, Request::Counts] {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Some(request));
            assert!((0..REQUEST).all(|cut| Request::decode(&bytes[..cut]).is_none()));
            assert_eq!(Request::decode(&[&bytes[..], b"x"].concat()), None);
        }
        let answers = [
            Answer::Hello,
            Answer::Met { user: 1000, peer: u64::MAX },
            Answer::Refused(Refusal::Quota),
            Answer::Refused(Refusal::NoConnection),
            Answer::Refused(Refusal::Ambiguous),
            Answer::Refused(Refusal::Forbidden),
        ];
        for answer in answers {
            let bytes = answer.encode();
            assert_eq!(Answer::decode(&bytes), Some(answer));
            assert!((0..ANSWER).all(|cut| Answer::decode(&bytes[..cut]).is_none()));
            assert_eq!(Answer::decode(&[&bytes[..], b"x"].concat()), None);
        }
        for (at, wrong) in [(0, b'x'), (8, b'x'), (7, b'2')] {
            let (mut request, mut answer) = (Request::Client.encode(), Answer::Refused(Refusal::Quota).encode());
            (request[at], answer[at]) = (wrong, wrong);
            assert_eq!((Request::decode(&request), Answer::decode(&answer)), (None, None), "{at}");
        }
        let counts = Counts { introduced: 1, waiting: 2, alone: 3, in_one: 1, ..Counts::default() };
        assert_eq!(Counts::decode(&counts.encode()), Some(counts));
        assert_eq!(Counts::decode(&Answer::Hello.encode()), None);
    }
}
