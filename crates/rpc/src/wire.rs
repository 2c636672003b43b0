//! What the two sides write: the first word of a call and of an answer, and the two records of a binding. Sans I/O: bytes in, values
//! out; nothing here has seen a socket.

use shunt_endpoint::{Address, Tag};

/// Active-message handlers: a call, an answer; bytes of a window that were fetched.
pub(crate) mod handler {
    /// A request: the call's words.
    pub const CALL: u8 = 1;
    /// A request: a part of a window has arrived, and its call comes behind it.
    pub const PART: u8 = 3;
    /// A reply: the answer's words.
    pub const ANSWER: u8 = 4;
    /// A get is complete: its words name the call.
    pub const FETCHED: u8 = 5;
}

/// Bytes of arguments or results that share the line with the first word.
pub const LINE: usize = 24;

/// Bytes that a message of two lines has room for besides all headers.
pub(crate) const SHORT: usize = 64;

/// What stands behind the first word, in this order, and how.
pub(crate) mod flag {
    /// The last word of the arguments holds four bytes.
    pub const HALF: u16 = 1;
    /// No client waits for an answer.
    pub const ONE_WAY: u16 = 2;
    /// A word: the time by which the caller gives up, in nanoseconds. Of CLOCK_MONOTONIC where both share it, else from now on.
    pub const DEADLINE: u16 = 4;
    /// A word: where in the window the arguments lie. The results, in an answer.
    pub const LARGE: u16 = 8;
    /// A word: where in the window there is room for large results.
    pub const ROOM: u16 = 16;
    /// All of them.
    pub const ALL: u16 = 31;
}

/// The name of a call: a place, and which call had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Its place in the caller's table.
    pub slot: u16,
    /// Counts the calls of that place.
    pub generation: u16,
}

/// A piece of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Piece {
    /// Its first byte.
    pub offset: u32,
    /// Its bytes.
    pub length: u32,
}

impl Piece {
    /// Where it ends.
    #[inline]
    pub(crate) fn end(self) -> u32 {
        self.offset + self.length
    }

    #[inline]
    pub(crate) fn word(self) -> u64 {
        u64::from(self.offset) | u64::from(self.length) << 32
    }

    #[inline]
    pub(crate) fn from_word(word: u64) -> Self {
        Self { offset: word as u32, length: (word >> 32) as u32 }
    }
}

/// The first word of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub name: Name,
    /// The procedure of a call; the status of an answer.
    pub code: u16,
    pub flags: u16,
}

impl Head {
    #[inline(always)]
    pub fn word(self) -> u64 {
        u64::from(self.name.slot)
            | u64::from(self.name.generation) << 16
            | u64::from(self.code) << 32
            | u64::from(self.flags) << 48
    }

    #[inline(always)]
    pub fn from_word(word: u64) -> Self {
        let name = Name { slot: word as u16, generation: (word >> 16) as u16 };
        Self { name, code: (word >> 32) as u16, flags: (word >> 48) as u16 }
    }
}

/// The words of a call behind the first, and its arguments where they came with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call<'a> {
    pub head: Head,
    pub deadline: Option<u64>,
    pub large: Option<Piece>,
    pub room: Option<Piece>,
    pub inline: &'a [u8],
}

impl<'a> Call<'a> {
    /// Judges the words and the data of a request or a reply; `None`: they break the format.
    #[inline(always)]
    pub fn parse(words: &'a [u64], data: &'a [u8]) -> Option<Self> {
        let (&first, rest) = words.split_first()?;
        let head = Head::from_word(first);
        if head.flags & !(flag::HALF | flag::ONE_WAY) == 0 {
            // What almost all calls are.
            return Some(Self { head, deadline: None, large: None, room: None, inline: inline(rest, data, head.flags)? });
        }
        Self::parse_rest(head, rest, data)
    }

    #[inline(never)]
    fn parse_rest(head: Head, mut rest: &'a [u64], data: &'a [u8]) -> Option<Self> {
        if head.flags & !flag::ALL != 0 {
            return None;
        }
        let mut next = |bit: u16| -> Option<Option<u64>> {
            if head.flags & bit == 0 {
                return Some(None);
            }
            let (&word, others) = rest.split_first()?;
            rest = others;
            Some(Some(word))
        };
        let deadline = next(flag::DEADLINE)?;
        let large = next(flag::LARGE)?.map(Piece::from_word);
        let room = next(flag::ROOM)?.map(Piece::from_word);
        let inline = inline(rest, data, head.flags)?;
        if large.is_some() && !inline.is_empty() {
            return None;
        }
        Some(Self { head, deadline, large, room, inline })
    }
}

/// The arguments that came in words, or as data: never both.
#[inline(always)]
fn inline<'a>(words: &'a [u64], data: &'a [u8], flags: u16) -> Option<&'a [u8]> {
    if !data.is_empty() {
        return (words.is_empty() && flags & flag::HALF == 0 && data.len().is_multiple_of(4)).then_some(data);
    }
    let bytes: &[u8] = bytemuck::cast_slice(words);
    let half = usize::from(flags & flag::HALF != 0) * 4;
    bytes.get(..bytes.len().checked_sub(half)?)
}

/// Judges the words and data of a call or an answer as their receiver does: the procedure or status, and bytes of arguments or
/// results, if they keep to the format. For fuzzers and dissectors.
#[must_use]
pub fn judge(words: &[u64], data: &[u8]) -> Option<(Name, u16, usize)> {
    let call = Call::parse(words, data)?;
    Some((call.head.name, call.head.code, call.large.map_or(call.inline.len(), |piece| piece.length as usize)))
}

/// Answers, as numbers of the wire.
pub(crate) mod status {
    pub const OK: u16 = 0;
    pub const NO_PROCEDURE: u16 = 1;
    pub const BAD_ARGUMENTS: u16 = 2;
    pub const DEADLINE: u16 = 3;
    pub const CANCELLED: u16 = 4;
    pub const TOO_LONG: u16 = 5;
    pub const PANICKED: u16 = 6;
    pub const APPLICATION: u16 = 7;
    pub const PROTOCOL: u16 = 8;
}

/// The first eight bytes of a binding.
pub const MAGIC: u64 = u64::from_le_bytes(*b"shuntRPC");
/// The version of all this.
pub const PROTOCOL: u32 = 2;
/// Words of a record of a binding.
pub const RECORD: usize = 32;
/// Bytes of one.
pub const RECORD_BYTES: usize = RECORD * 8;

/// What a caller wants of a server that accepts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To call procedures.
    Call,
    /// To be told what there is.
    List,
    /// To be given the definition of the program, in its lowest version.
    Describe,
    /// To be told of calls: the lowest version says of which ([`crate::trace`]).
    Watch,
}

/// Where an endpoint is, the tag by which the other side sends to it, and its active-message offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// The endpoint.
    pub address: Address,
    /// What the other side is to send by.
    pub tag: Tag,
    /// Its engine's.
    pub offer: shunt_am::Offer,
}

impl Card {
    /// Of a question that needs no end.
    pub const NONE: Self = Self { address: Address::NONE, tag: Tag(0), offer: shunt_am::Offer([0; 40]) };

    fn put(&self, words: &mut [u64]) {
        words[..6].copy_from_slice(&self.address.to_words());
        words[6] = self.tag.0;
        bytemuck::cast_slice_mut::<u64, u8>(&mut words[7..12]).copy_from_slice(&self.offer.0);
    }

    fn get(words: &[u64]) -> Self {
        let mut address = [0; 6];
        address.copy_from_slice(&words[..6]);
        let mut offer = [0; 40];
        offer.copy_from_slice(bytemuck::cast_slice(&words[7..12]));
        Self { address: Address::from_words(address), tag: Tag(words[6]), offer: shunt_am::Offer(offer) }
    }
}

/// A caller's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What it wants.
    pub purpose: Purpose,
    /// The program that it wants to call, and the versions that it can.
    pub program: u32,
    /// The first of them.
    pub lowest: u32,
    /// The last.
    pub highest: u32,
    /// Bytes of its window.
    pub window: u64,
    /// Its end.
    pub card: Card,
}

/// A server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Welcome {
    /// Bound.
    Bound {
        /// The version that both have: the highest.
        version: u32,
        /// The server's end.
        card: Card,
    },
    /// Not these versions.
    Versions {
        /// Those that the server has.
        lowest: u32,
        /// To this.
        highest: u32,
    },
    /// No such program.
    Program,
    /// This caller may not.
    Denied,
    /// The server takes no more callers now.
    Full,
    /// The record was none, or of another protocol.
    Protocol {
        /// What the server speaks.
        version: u32,
    },
    /// What was asked for follows: so many bytes.
    List {
        /// Of XDR; of text.
        bytes: u32,
    },
    /// Records of calls follow.
    Watching,
    /// The server could make no end of the device.
    NoEnd,
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn unpair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn bytes_of(words: [u64; RECORD]) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes.copy_from_slice(bytemuck::cast_slice(&words.map(u64::to_le)));
    bytes
}

fn words_of(bytes: &[u8; RECORD_BYTES]) -> [u64; RECORD] {
    let mut words = [0; RECORD];
    for (word, eight) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(eight.try_into().unwrap_or_default());
    }
    words
}

impl Hello {
    /// As bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; RECORD_BYTES] {
        let mut words = [0; RECORD];
        words[0] = MAGIC;
        words[1] = pair(PROTOCOL, self.purpose as u32);
        words[2] = pair(self.program, 0);
        words[3] = pair(self.lowest, self.highest);
        words[4] = self.window;
        self.card.put(&mut words[5..17]);
        bytes_of(words)
    }

    /// From bytes; `None`: they are no such record, or of another protocol.
    #[must_use]
    pub fn parse(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let words = words_of(bytes);
        let (protocol, purpose) = unpair(words[1]);
        if words[0] != MAGIC || protocol != PROTOCOL || words[17..].iter().any(|&word| word != 0) {
            return None;
        }
        let purpose = match purpose {
            0 => Purpose::Call,
            1 => Purpose::List,
            2 => Purpose::Describe,
            3 => Purpose::Watch,
            _ => return None,
        };
        let (lowest, highest) = unpair(words[3]);
        let (program, zero) = unpair(words[2]);
        (zero == 0).then_some(Self { purpose, program, lowest, highest, window: words[4], card: Card::get(&words[5..17]) })
    }
}

impl Welcome {
    /// As bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; RECORD_BYTES] {
        let mut words = [0; RECORD];
        words[0] = MAGIC;
        let (code, value) = match *self {
            Self::Bound { version, card } => {
                card.put(&mut words[5..17]);
                (0, u64::from(version))
            }
            Self::Versions { lowest, highest } => (1, pair(lowest, highest)),
            Self::Program => (2, 0),
            Self::Denied => (3, 0),
            Self::Full => (4, 0),
            Self::Protocol { version } => (5, u64::from(version)),
            Self::List { bytes } => (6, u64::from(bytes)),
            Self::Watching => (7, 0),
            Self::NoEnd => (8, 0),
        };
        words[1] = pair(PROTOCOL, code);
        words[2] = value;
        bytes_of(words)
    }

    /// From bytes; `None`: they are no such record.
    #[must_use]
    pub fn parse(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let words = words_of(bytes);
        if words[0] != MAGIC {
            return None;
        }
        let (value, high) = unpair(words[2]);
        Some(match unpair(words[1]).1 {
            0 => Self::Bound { version: value, card: Card::get(&words[5..17]) },
            1 => Self::Versions { lowest: value, highest: high },
            2 => Self::Program,
            3 => Self::Denied,
            4 => Self::Full,
            5 => Self::Protocol { version: value },
            6 => Self::List { bytes: value },
            7 => Self::Watching,
            8 => Self::NoEnd,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn records_return_as_they_went() {
        let card = Card { address: Address::NONE, tag: Tag(7), offer: shunt_am::Offer([3; 40]) };
        let hello = Hello { purpose: Purpose::Call, program: 9, lowest: 1, highest: 2, window: 4096, card };
        assert_eq!(Hello::parse(&hello.emit()), Some(hello));
        for welcome in [
            Welcome::Bound { version: 2, card },
            Welcome::Versions { lowest: 1, highest: 3 },
            Welcome::Program,
            Welcome::Denied,
            Welcome::Full,
            Welcome::Protocol { version: 1 },
            Welcome::List { bytes: 12 },
            Welcome::Watching,
            Welcome::NoEnd,
        ] {
            assert_eq!(Welcome::parse(&welcome.emit()), Some(welcome));
        }
        assert_eq!(Hello::parse(&[0; RECORD_BYTES]), None);
    }

    #[test]
    fn what_breaks_the_format_is_no_call() {
        let head = |flags| Head { name: Name { slot: 1, generation: 2 }, code: 3, flags }.word();
        assert_eq!(Call::parse(&[], &[]), None);
        assert_eq!(Call::parse(&[head(flag::HALF)], &[]), None, "half of nothing");
        assert_eq!(Call::parse(&[head(flag::DEADLINE)], &[]), None, "no deadline");
        assert_eq!(Call::parse(&[head(32)], &[]), None, "an unknown flag");
        assert_eq!(Call::parse(&[head(0), 1], &[1; 4]), None, "words and data");
        assert_eq!(Call::parse(&[head(0)], &[1; 3]), None, "no whole units");
        assert_eq!(Call::parse(&[head(flag::LARGE), 1, 2], &[]), None, "arguments twice");
        let words = [head(flag::HALF | flag::ROOM), 5 | 6 << 32, 0x0403_0201];
        let call = Call::parse(&words, &[]).unwrap();
        assert_eq!((call.room, call.inline), (Some(Piece { offset: 5, length: 6 }), &[1, 2, 3, 4][..]));
    }

    proptest! {
        #[test]
        fn a_first_word_returns_as_it_went(word: u64) {
            prop_assert_eq!(Head::from_word(word).word(), word);
        }
    }
}
