//! The header that every frame of an endpoint carries: which channel it is for.
//!
//! ```text
//!  0       2         3      4         8                16
//!  ┌───────┬─────────┬──────┬─────────┬────────────────┬─────────┐
//!  │ magic │ version │ kind │ length  │ tag            │ payload │
//!  └───────┴─────────┴──────┴─────────┴────────────────┴─────────┘
//! ```
//!
//! The tag is U-Net's (section 3.2): the receiver chose it at random for this channel, so it names the receiving endpoint
//! and proves that the sender was told. `length` is that of the payload, and must be all that follows: what carries a
//! frame may pad it only where the device says so (Ethernet's minimum of 60 bytes).
//!
//! A frame of kind *update* carries a second header before its data: see [`Update`].

use crate::field::{read, write, Field};

/// First two bytes: "sh".
pub const MAGIC: u16 = u16::from_le_bytes(*b"sh");
/// The UDP port of endpoints on an interface with an agent, unless the agent was told another: "sh" as a number.
pub const AGENT_PORT: u16 = u16::from_be_bytes(*b"sh");
/// Version of this header and of what it says of the payload.
pub const VERSION: u8 = 1;
/// Bytes of the header.
pub const HEADER: usize = 16;

mod at {
    use super::Field;
    pub const MAGIC: Field = 0..2;
    pub const VERSION: Field = 2..3;
    pub const KIND: Field = 3..4;
    pub const LENGTH: Field = 4..8;
    pub const TAG: Field = 8..16;
}

/// What the payload is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A message for the receive queue.
    Message = 0,
    /// Data for exported memory: an [`Update`], then the data.
    Update = 1,
    /// As `Update`, with a notification for the receive queue.
    UpdateNotify = 2,
}

impl Kind {
    /// The kind of that number.
    #[inline(always)]
    pub fn from_code(code: u64) -> Option<Kind> {
        match code {
            0 => Some(Kind::Message),
            1 => Some(Kind::Update),
            2 => Some(Kind::UpdateNotify),
            _ => None,
        }
    }
}

/// Why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// Fewer bytes than a header.
    Short,
    /// Not ours.
    Magic,
    /// Ours, of another version.
    Version,
    /// No such kind.
    Kind,
    /// `length` is not that of the bytes behind the header.
    Length,
}

/// A view of any bytes as a frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Looks at `bytes`, whatever they are.
    #[inline(always)]
    pub fn new(bytes: &'a [u8]) -> Frame<'a> {
        Frame { bytes }
    }

    /// The tag; 0 in a frame that is too short.
    #[inline(always)]
    pub fn tag(&self) -> u64 {
        read(self.bytes, at::TAG)
    }

    /// Bytes that the header announces.
    #[inline(always)]
    pub fn length(&self) -> u32 {
        read(self.bytes, at::LENGTH) as u32
    }

    /// What lies behind the header: `length` bytes at most.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        let payload = self.bytes.get(HEADER..).unwrap_or_default();
        &payload[..payload.len().min(self.length() as usize)]
    }
}

/// A valid header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// What the payload is.
    pub kind: Kind,
    /// The receiver's name for the channel.
    pub tag: u64,
    /// Bytes of the payload.
    pub length: u32,
}

impl Repr {
    /// Reads the header of a frame that fills its bytes exactly.
    ///
    /// # Errors
    /// The first field that is wrong.
    #[inline(always)]
    pub fn parse(frame: &Frame<'_>) -> Result<Repr, Rejection> {
        let repr = Repr::parse_padded(frame)?;
        if frame.bytes.len() - HEADER != repr.length as usize {
            return Err(Rejection::Length);
        }
        Ok(repr)
    }

    /// As [`Repr::parse`], where padding may follow.
    ///
    /// # Errors
    /// The first field that is wrong.
    #[inline(always)]
    pub fn parse_padded(frame: &Frame<'_>) -> Result<Repr, Rejection> {
        let bytes = frame.bytes;
        if bytes.len() < HEADER {
            return Err(Rejection::Short);
        }
        if read(bytes, at::MAGIC) != MAGIC as u64 {
            return Err(Rejection::Magic);
        }
        if read(bytes, at::VERSION) != VERSION as u64 {
            return Err(Rejection::Version);
        }
        let Some(kind) = Kind::from_code(read(bytes, at::KIND)) else { return Err(Rejection::Kind) };
        if frame.length() as usize > bytes.len() - HEADER {
            return Err(Rejection::Length);
        }
        Ok(Repr { kind, tag: frame.tag(), length: frame.length() })
    }

    /// Reads the header of a frame of `total` bytes of which `frame` shows only the first.
    ///
    /// # Errors
    /// The first field that is wrong.
    #[inline(always)]
    pub fn parse_start(frame: &Frame<'_>, total: usize) -> Result<Repr, Rejection> {
        let bytes = frame.bytes;
        if bytes.len() < HEADER || total < HEADER {
            return Err(Rejection::Short);
        }
        let header = Frame::new(&bytes[..HEADER]);
        let repr = Repr::parse_padded(&header);
        // Of a header alone every length but 0 is wrong; all that comes before it was judged.
        if !matches!(repr, Ok(_) | Err(Rejection::Length)) {
            return repr;
        }
        let Some(kind) = Kind::from_code(read(bytes, at::KIND)) else { return Err(Rejection::Kind) };
        if frame.length() as usize != total - HEADER {
            return Err(Rejection::Length);
        }
        Ok(Repr { kind, tag: frame.tag(), length: frame.length() })
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`HEADER`].
    #[inline(always)]
    pub fn emit(&self, bytes: &mut [u8]) {
        write(bytes, at::MAGIC, MAGIC as u64);
        write(bytes, at::VERSION, VERSION as u64);
        write(bytes, at::KIND, self.kind as u64);
        write(bytes, at::LENGTH, self.length as u64);
        write(bytes, at::TAG, self.tag);
    }
}

/// The second header of an update: which exported memory, and where in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Update {
    /// The unguessable name of the export.
    pub key: u64,
    /// First byte, counted from the start of the exported memory.
    pub offset: u64,
}

impl Update {
    /// Bytes of this header.
    pub const HEADER: usize = 16;

    /// Reads the header at the start of an update's payload; `None` if that is too short.
    #[inline]
    pub fn parse(payload: &[u8]) -> Option<Update> {
        (payload.len() >= Update::HEADER).then(|| Update { key: read(payload, 0..8), offset: read(payload, 8..16) })
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`Update::HEADER`].
    pub fn emit(&self, bytes: &mut [u8]) {
        write(bytes, 0..8, self.key);
        write(bytes, 8..16, self.offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn valid() -> Vec<u8> {
        let mut bytes = vec![7; HEADER + 9];
        Repr { kind: Kind::Message, tag: 0x0102_0304_0506_0708, length: 9 }.emit(&mut bytes);
        bytes
    }

    #[test]
    fn every_field_is_checked_and_named() {
        let parse = |bytes: &[u8]| Repr::parse(&Frame::new(bytes));
        let with = |at: usize, value: u8| {
            let mut bytes = valid();
            bytes[at] = value;
            bytes
        };
        assert_eq!(parse(&valid()), Ok(Repr { kind: Kind::Message, tag: 0x0102_0304_0506_0708, length: 9 }));
        for length in 0..HEADER {
            assert_eq!(parse(&valid()[..length]), Err(Rejection::Short));
        }
        assert_eq!(parse(&with(0, 0)), Err(Rejection::Magic));
        assert_eq!(parse(&with(2, 2)), Err(Rejection::Version));
        assert_eq!(parse(&with(3, 3)), Err(Rejection::Kind));
        assert_eq!(parse(&with(4, 8)), Err(Rejection::Length));
        assert_eq!(parse(&with(4, 10)), Err(Rejection::Length));
        assert_eq!(parse(&with(7, 0xff)), Err(Rejection::Length));
        assert_eq!(Repr::parse_padded(&Frame::new(&with(4, 8))).unwrap().length, 8);
        let start = |bytes: &[u8], total| Repr::parse_start(&Frame::new(&bytes[..bytes.len().min(HEADER + 3)]), total);
        for (at, value) in [(0, 0), (2, 2), (3, 3), (4, 8), (4, 10), (7, 0xff), (8, 1), (HEADER, 1), (3, 2)] {
            let bytes = with(at, value);
            assert_eq!(start(&bytes, HEADER + 9), parse(&bytes), "byte {at}");
        }
        assert_eq!(start(&valid(), HEADER + 8), Err(Rejection::Length));
        assert_eq!(start(&valid()[..HEADER - 1], HEADER + 9), Err(Rejection::Short));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_view_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let frame = Frame::new(&bytes);
            let (tag, payload) = (frame.tag(), frame.payload());
            if let Ok(repr) = Repr::parse(&frame) {
                prop_assert_eq!((repr.tag, repr.length as usize), (tag, payload.len()));
                prop_assert_eq!(payload.len() + HEADER, bytes.len());
            }
            let _ = Update::parse(payload);
        }

        #[test]
        fn what_is_emitted_is_parsed(tag: u64, length in 0usize..200, kind in 0u64..3) {
            let mut bytes = vec![0; HEADER + length];
            let repr = Repr { kind: Kind::from_code(kind).unwrap(), tag, length: length as u32 };
            repr.emit(&mut bytes);
            prop_assert_eq!(Repr::parse(&Frame::new(&bytes)), Ok(repr));
        }
    }
}
