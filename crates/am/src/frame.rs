//! The frame on the wire: views that read any bytes, representations that are valid. `docs/WIRE.md` says the same in prose.
//!
//! All numbers are little-endian. Every frame begins with 16 bytes; data on a device that loses frames has 24 more:
//!
//! ```text
//!  0      1       2         4         8                  16
//!  ┌──────┬───────┬─────────┬─────────┬──────────────────┐
//!  │ kind │ flags │ channel │ check   │ token            │
//!  ├──────┴───────┴─────────┼─────────┼────────┬─────────┤ 32
//!  │ sequence │ acknowledged│ limit   │ time   │
//!  ├──────────┼─────────────┼─────────┴────────┘
//!  │ echo     │ in channel  │ 40   messages, or the map of an acknowledgement
//!  └──────────┴─────────────┘
//! ```
//!
//! `Plain` frames, of devices that lose nothing, have the first 16 bytes only, and the limit in the place of `check`.

/// The version of this format, in the upper half of the first byte.
pub const VERSION: u8 = 2;
/// Bytes of the header that every frame has.
pub const SHORT: usize = 16;
/// Bytes of the header of frames that are numbered and acknowledged.
pub const FULL: usize = 40;
/// Bytes of a message before its words.
pub const MESSAGE: usize = 8;
/// Words a handler may get.
pub const WORDS: usize = 8;
/// Words on the wire: a store's last message has three of its own before the handler's.
pub const WIRE_WORDS: usize = WORDS + 3;
/// Bytes that a data packet needs beside its data, at most.
pub const OVERHEAD: usize = FULL + MESSAGE + WIRE_WORDS * 8;
/// The receiver should acknowledge at once.
pub const PROMPT: u8 = 1;
/// Its sender does not know yet that the receiver is up.
pub const TENTATIVE: u8 = 2;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Asks for a connection: a [`Hello`] follows here, and in the three below.
    Ask = 1,
    /// Numbered messages.
    Data = 2,
    /// Only says what has arrived: a map of 64-bit words follows.
    Acknowledge = 3,
    /// The receiver of a frame knows no such connection; the token is the frame's.
    Reset = 4,
    /// Asks for an acknowledgement.
    Probe = 5,
    /// Messages, or none, over a device that loses nothing.
    Plain = 6,
    /// The sender has closed the connection.
    Bye = 7,
    /// Answers a question: the token is the name in it.
    Answer = 8,
    /// The sender is up, and knows the receiver's name: the token.
    Prove = 9,
    /// Both are up.
    Confirm = 10,
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Shorter than its header.
    Short,
    /// Another version.
    Version,
    /// No such kind.
    Kind,
    /// The integrity word is wrong.
    Check,
    /// A message that is longer than the frame, has too many words, or is of no known kind.
    Message,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The first 16 bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// What it is for.
    pub kind: Kind,
    /// [`PROMPT`], [`TENTATIVE`].
    pub flags: u8,
    /// Ordered channel of the messages; 0: no order.
    pub channel: u16,
    /// Integrity word, 0 where the device checks; in plain frames the request limit.
    pub check: u32,
    /// The connection's, for frames in this direction; in hellos the receiver's name that is known, or 0.
    pub token: u64,
}

impl Short {
    /// Reads a header from any bytes.
    ///
    /// # Errors
    /// Short, of another version, of no known kind.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, Rejection> {
        let Some(head) = frame.first_chunk::<SHORT>() else { return Err(Rejection::Short) };
        if head[0] >> 4 != VERSION {
            return Err(Rejection::Version);
        }
        let kind = match head[0] & 15 {
            1 => Kind::Ask,
            2 => Kind::Data,
            3 => Kind::Acknowledge,
            4 => Kind::Reset,
            5 => Kind::Probe,
            6 => Kind::Plain,
            7 => Kind::Bye,
            8 => Kind::Answer,
            9 => Kind::Prove,
            10 => Kind::Confirm,
            _ => return Err(Rejection::Kind),
        };
        Ok(Self { kind, flags: head[1], channel: u16_at(head, 2), check: u32_at(head, 4), token: u64_at(head, 8) })
    }

    /// Writes the header into the first 16 bytes.
    #[inline]
    pub fn emit(&self, head: &mut [u8]) {
        let mut word = [0; 8];
        word[0] = VERSION << 4 | self.kind as u8;
        word[1] = self.flags;
        word[2..4].copy_from_slice(&self.channel.to_le_bytes());
        word[4..].copy_from_slice(&self.check.to_le_bytes());
        head[..8].copy_from_slice(&word);
        head[8..16].copy_from_slice(&self.token.to_le_bytes());
    }
}

/// The 24 bytes that follow in data, acknowledgements and probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Number of this packet; in an acknowledgement the number that the next packet will have.
    pub sequence: u32,
    /// All packets before this one have arrived.
    pub acknowledged: u32,
    /// Requests up to this number may be sent, counted from the connection's beginning.
    pub limit: u32,
    /// Sender's clock in microseconds when the frame was sent; never 0.
    pub time: u32,
    /// The newest `time` that came from the receiver, advanced by what it waited; 0: none.
    pub echo: u32,
    /// Number of the packet in its ordered channel.
    pub in_channel: u32,
}

impl Numbers {
    /// Reads what follows the first 16 bytes.
    ///
    /// # Errors
    /// Short.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, Rejection> {
        let Some(head) = frame.first_chunk::<FULL>() else { return Err(Rejection::Short) };
        Ok(Self {
            sequence: u32_at(head, 16),
            acknowledged: u32_at(head, 20),
            limit: u32_at(head, 24),
            time: u32_at(head, 28),
            echo: u32_at(head, 32),
            in_channel: u32_at(head, 36),
        })
    }

    /// Writes bytes 16 to 40 of a frame.
    #[inline]
    pub fn emit(&self, head: &mut [u8]) {
        let fields = [self.sequence, self.acknowledged, self.limit, self.time, self.echo, self.in_channel];
        for (at, field) in fields.into_iter().enumerate() {
            head[16 + at * 4..20 + at * 4].copy_from_slice(&field.to_le_bytes());
        }
    }
}

/// What two engines tell each other to set up a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Random number of the sending engine: another one is another life.
    pub epoch: u64,
    /// Random number that names the sender in one connection.
    pub name: u64,
    /// Packets that the sender's map of arrivals covers.
    pub window: u32,
    /// Ordered channels that it has.
    pub channels: u32,
    /// Largest frame that it takes.
    pub frame: u32,
    /// Requests that it takes before it says more.
    pub limit: u32,
    /// 1: plain frames. Both must say the same.
    pub reliable: u32,
}

impl Hello {
    /// Bytes of it.
    pub const SIZE: usize = 40;

    /// Reads it from the bytes behind the first header.
    ///
    /// # Errors
    /// Short, or values that no engine has.
    pub fn parse(body: &[u8]) -> Result<Self, Rejection> {
        let Some(body) = body.first_chunk::<{ Self::SIZE }>() else { return Err(Rejection::Short) };
        let hello = Self {
            epoch: u64_at(body, 0),
            name: u64_at(body, 8),
            window: u32_at(body, 16),
            channels: u32_at(body, 20),
            frame: u32_at(body, 24),
            limit: u32_at(body, 28),
            reliable: u32_at(body, 32),
        };
        let sane = hello.name != 0
            && (8..=crate::config::MAXIMUM_WINDOW).contains(&hello.window)
            && hello.channels <= 4096
            && (crate::config::MINIMUM_FRAME..=crate::config::MAXIMUM_FRAME).contains(&hello.frame)
            && (1..=crate::config::MAXIMUM_WINDOW).contains(&hello.limit)
            && hello.reliable <= 1;
        if sane {
            Ok(hello)
        } else {
            Err(Rejection::Message)
        }
    }

    /// Writes it.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut body = [0; Self::SIZE];
        body[..8].copy_from_slice(&self.epoch.to_le_bytes());
        body[8..16].copy_from_slice(&self.name.to_le_bytes());
        let fields = [self.window, self.channels, self.frame, self.limit, self.reliable];
        for (at, field) in fields.into_iter().enumerate() {
            body[16 + at * 4..20 + at * 4].copy_from_slice(&field.to_le_bytes());
        }
        body
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Task {
    /// Runs a handler that may reply.
    Request = 1,
    /// Runs a handler that may not.
    Reply = 2,
    /// Bytes of an ordered channel.
    Stream = 3,
    /// Bytes for the receiver's segment; words: offset; the last one: offset, beginning, length, the handler's words.
    Store = 4,
    /// Asks for bytes of the receiver's segment; words: offset, length, name.
    Get = 5,
    /// What was asked for; words: name, offset in it.
    Fetched = 6,
    /// Room in an ordered channel; words: channel, limit in bytes from its beginning.
    Room = 7,
    /// A request that could not be run comes back: its handler and words.
    Returned = 8,
}

/// The last message of a transfer.
pub const LAST: u8 = 1;
/// A transfer that was refused.
pub const REFUSED: u8 = 2;

/// A message in a frame.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// What it is.
    pub task: Task,
    /// Which handler.
    pub handler: u8,
    /// [`LAST`], [`REFUSED`].
    pub flags: u8,
    words: &'a [u8],
    /// What follows the words.
    pub data: &'a [u8],
}

impl<'a> Item<'a> {
    /// Takes the first message off `bytes`, which are not empty; gives the rest.
    ///
    /// # Errors
    /// A message that does not fit its frame or is of no kind.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Rejection> {
        let (item, rest, length) = Self::parse_head(bytes)?;
        if rest.len() < length {
            return Err(Rejection::Message);
        }
        let (data, rest) = rest.split_at(length);
        Ok((Self { data, ..item }, rest))
    }

    /// Reads a message that fills `bytes` and `beyond` more; gives the length of its data in both.
    ///
    /// # Errors
    /// As [`Item::parse`]; or other lengths.
    #[inline]
    pub fn parse_split(bytes: &'a [u8], beyond: usize) -> Result<(Self, usize), Rejection> {
        let (item, data, length) = Self::parse_head(bytes)?;
        if data.len().checked_add(beyond) != Some(length) {
            return Err(Rejection::Message);
        }
        Ok((Self { data, ..item }, length))
    }

    /// The message without its data, what follows its words, and the length that it says its data has.
    #[inline]
    fn parse_head(bytes: &'a [u8]) -> Result<(Self, &'a [u8], usize), Rejection> {
        let Some((head, rest)) = bytes.split_first_chunk::<MESSAGE>() else { return Err(Rejection::Message) };
        let task = match head[0] {
            1 => Task::Request,
            2 => Task::Reply,
            3 => Task::Stream,
            4 => Task::Store,
            5 => Task::Get,
            6 => Task::Fetched,
            7 => Task::Room,
            8 => Task::Returned,
            _ => return Err(Rejection::Message),
        };
        let (words, length) = (usize::from(head[2]), u32_at(head, 4) as usize);
        if words > WIRE_WORDS || rest.len() < words * 8 {
            return Err(Rejection::Message);
        }
        let (words, rest) = rest.split_at(words * 8);
        Ok((Self { task, handler: head[1], flags: head[3], words, data: &[] }, rest, length))
    }

    /// The words, in an array, and how many there are.
    #[inline]
    #[must_use]
    pub fn words(&self) -> ([u64; WIRE_WORDS], usize) {
        let mut words = [0; WIRE_WORDS];
        for (word, bytes) in words.iter_mut().zip(self.words.chunks_exact(8)) {
            *word = u64_at(bytes, 0);
        }
        (words, self.words.len() / 8)
    }
}

/// The head of a message and its words, as bytes, with room for the header of a plain frame before them: what one send
/// needs lies in one place, and is written once.
pub(crate) struct Opening {
    bytes: [u8; SHORT + MESSAGE + WIRE_WORDS * 8],
    length: usize,
}

impl Opening {
    /// `words` are at most [`WIRE_WORDS`]; callers have checked.
    #[inline]
    pub(crate) fn new(task: Task, handler: u8, flags: u8, words: &[u64], data: usize) -> Self {
        let mut bytes = [0; SHORT + MESSAGE + WIRE_WORDS * 8];
        let length = SHORT + write_opening(&mut bytes[SHORT..], task, handler, flags, words, data);
        Self { bytes, length }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[SHORT..self.length]
    }

    /// With a header before it: a frame without its data.
    #[inline]
    pub(crate) fn plain(&mut self, header: &Short) -> &[u8] {
        header.emit(&mut self.bytes);
        &self.bytes[..self.length]
    }
}

/// Writes the head of a message and its words; returns their length.
#[inline]
pub(crate) fn write_opening(into: &mut [u8], task: Task, handler: u8, flags: u8, words: &[u64], data: usize) -> usize {
    let mut head = [task as u8, handler, words.len() as u8, flags, 0, 0, 0, 0];
    head[4..].copy_from_slice(&(data as u32).to_le_bytes());
    into[..MESSAGE].copy_from_slice(&head);
    for (bytes, word) in into[MESSAGE..].chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    MESSAGE + words.len() * 8
}

/// Whether a frame of `length` bytes, of which at least the first 112 are given, is one that [`crate::Engine::receive_split`]
/// takes: it holds one message, which moves bulk bytes. Data frames with an integrity word are not for that: the device must
/// check them.
#[must_use]
pub fn is_bulk(head: &[u8], length: usize) -> bool {
    const PLAIN: u8 = VERSION << 4 | Kind::Plain as u8;
    const DATA: u8 = VERSION << 4 | Kind::Data as u8;
    let at = match head.first() {
        Some(&PLAIN) => SHORT,
        Some(&DATA) => FULL,
        _ => return false,
    };
    let Some(message) = head.get(at..).and_then(<[u8]>::first_chunk::<MESSAGE>) else { return false };
    let whole = at + MESSAGE + usize::from(message[2]) * 8 + u32_at(message, 4) as usize;
    whole == length && [Task::Stream as u8, Task::Store as u8, Task::Fetched as u8].contains(&message[0])
}
