//! The header of TCP (RFC 9293, section 3.1): a view of any bytes, and what an established connection says with it.
//!
//! ```text
//!  0        2        4                 8                 12       13      14       16         18       20
//!  ┌────────┬────────┬─────────────────┬─────────────────┬────────┬───────┬────────┬──────────┬────────┬─────────┐
//!  │ source │ destin.│ sequence        │ acknowledgement │ length │ flags │ window │ checksum │ urgent │ options │
//!  └────────┴────────┴─────────────────┴─────────────────┴────────┴───────┴────────┴──────────┴────────┴─────────┘
//! ```
//!
//! Of the options this side of a connection meets two: time stamps (RFC 7323, section 3) and selective
//! acknowledgements (RFC 2018, section 3). One of another kind, or one of these in another shape, makes the header
//! *odd*: such a segment is left to a whole stack.

use crate::sequence::Seq;

/// Bytes of a header without options.
pub const HEADER: usize = 20;
/// Most bytes of a header.
pub const LONGEST: usize = 60;
/// Bytes that time stamps take, with the two that align them.
pub const TIMESTAMPS: usize = 12;

/// No more data from the sender.
pub const FIN: u8 = 0x01;
/// The first segment of a connection.
pub const SYN: u8 = 0x02;
/// The connection is gone.
pub const RST: u8 = 0x04;
/// The receiver is not to wait for more.
pub const PSH: u8 = 0x08;
/// The acknowledgement means something.
pub const ACK: u8 = 0x10;
/// So does the urgent pointer.
pub const URG: u8 = 0x20;
/// Congestion was met (RFC 3168).
pub const ECE: u8 = 0x40;
/// The sender has taken notice of that.
pub const CWR: u8 = 0x80;

/// Ranges that were received ahead of a gap: start, and the place behind the end. The first `count` of them mean something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    ranges: [(Seq, Seq); 4],
    count: u8,
}

impl Blocks {
    /// Adds one; a fifth is left out.
    pub fn push(&mut self, start: Seq, end: Seq) {
        if let Some(range) = self.ranges.get_mut(usize::from(self.count)) {
            *range = (start, end);
            self.count += 1;
        }
    }

    /// Those that are there.
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        &self.ranges[..usize::from(self.count)]
    }

    /// Leaves so many of them at most.
    pub fn truncate(&mut self, count: usize) {
        self.count = self.count.min(count as u8);
    }
}

/// Time stamps: the sender's clock, and what it last heard of the receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval.
    pub value: u32,
    /// TSecr.
    pub echo: u32,
}

/// What a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Port of the sender.
    pub source: u16,
    /// Port of the receiver.
    pub destination: u16,
    /// Place of the first byte of data.
    pub sequence: Seq,
    /// The place that the sender expects next.
    pub acknowledgement: Seq,
    /// [`FIN`] to [`CWR`].
    pub flags: u8,
    /// Room at the sender, not scaled.
    pub window: u16,
    /// The option of that name.
    pub timestamps: Option<Timestamps>,
    /// The option of that name.
    pub blocks: Blocks,
}

/// Why bytes are no header that this crate reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// Fewer bytes than the header says, or than any header has.
    Short,
    /// The length of the header is less than 20.
    Length,
    /// An option of this kind is unknown here, or has a length that it never has.
    Option(u8),
}

impl Header {
    /// Reads the header at the start of a segment. Returns it and its length.
    ///
    /// # Errors
    /// What is wrong or odd.
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<(Header, usize), Rejection> {
        let Some(fixed) = segment.first_chunk::<HEADER>() else { return Err(Rejection::Short) };
        let length = usize::from(fixed[12] >> 4) * 4;
        if length < HEADER {
            return Err(Rejection::Length);
        }
        let Some(options) = segment.get(HEADER..length) else { return Err(Rejection::Short) };
        let mut header = Header {
            source: u16_at(fixed, 0),
            destination: u16_at(fixed, 2),
            sequence: Seq(u32_at(fixed, 4)),
            acknowledgement: Seq(u32_at(fixed, 8)),
            flags: fixed[13],
            window: u16_at(fixed, 14),
            timestamps: None,
            blocks: Blocks::default(),
        };
        header.options(options)?;
        Ok((header, length))
    }

    fn options(&mut self, mut bytes: &[u8]) -> Result<(), Rejection> {
        // What nearly every segment has: two that align, and time stamps.
        if let [1, 1, 8, 10, rest @ ..] = bytes {
            if rest.len() == 8 {
                self.timestamps = Some(Timestamps { value: u32_at(rest, 0), echo: u32_at(rest, 4) });
                return Ok(());
            }
        }
        while let [kind, rest @ ..] = bytes {
            match kind {
                0 => return Ok(()),
                1 => bytes = rest,
                _ => {
                    let Some(&length) = rest.first() else { return Err(Rejection::Option(*kind)) };
                    let Some(data) = bytes.get(2..usize::from(length)) else { return Err(Rejection::Option(*kind)) };
                    match (kind, data.len()) {
                        (8, 8) => self.timestamps = Some(Timestamps { value: u32_at(data, 0), echo: u32_at(data, 4) }),
                        (5, 8 | 16 | 24 | 32) => {
                            for block in data.chunks_exact(8) {
                                self.blocks.push(Seq(u32_at(block, 0)), Seq(u32_at(block, 4)));
                            }
                        }
                        _ => return Err(Rejection::Option(*kind)),
                    }
                    bytes = &bytes[usize::from(length)..];
                }
            }
        }
        Ok(())
    }

    /// Bytes of the header with its options.
    #[inline]
    pub fn length(&self) -> usize {
        let blocks = self.blocks.as_slice().len();
        HEADER + if self.timestamps.is_some() { TIMESTAMPS } else { 0 } + if blocks == 0 { 0 } else { 4 + 8 * blocks }
    }

    /// Writes the header with a checksum of 0, and returns its length.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`Header::length`], or there are four blocks beside time stamps (three fit).
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let length = self.length();
        assert!(length <= LONGEST, "four blocks and time stamps do not fit a header");
        let bytes = &mut bytes[..length];
        bytes[..2].copy_from_slice(&self.source.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.destination.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.acknowledgement.0.to_be_bytes());
        bytes[12] = (length as u8 / 4) << 4;
        bytes[13] = self.flags;
        bytes[14..16].copy_from_slice(&self.window.to_be_bytes());
        bytes[16..HEADER].fill(0);
        let mut at = HEADER;
        if let Some(Timestamps { value, echo }) = self.timestamps {
            bytes[at..at + 4].copy_from_slice(&[1, 1, 8, 10]);
            bytes[at + 4..at + 8].copy_from_slice(&value.to_be_bytes());
            bytes[at + 8..at + 12].copy_from_slice(&echo.to_be_bytes());
            at += TIMESTAMPS;
        }
        let blocks = self.blocks.as_slice();
        if !blocks.is_empty() {
            bytes[at..at + 4].copy_from_slice(&[1, 1, 5, 2 + 8 * blocks.len() as u8]);
            at += 4;
            for (start, end) in blocks {
                bytes[at..at + 4].copy_from_slice(&start.0.to_be_bytes());
                bytes[at + 4..at + 8].copy_from_slice(&end.0.to_be_bytes());
                at += 8;
            }
        }
        length
    }
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_wrong_is_named() {
        let mut bytes = [0u8; LONGEST];
        assert_eq!(Header::parse(&bytes[..19]), Err(Rejection::Short));
        bytes[12] = 4 << 4;
        assert_eq!(Header::parse(&bytes), Err(Rejection::Length));
        bytes[12] = 6 << 4;
        assert_eq!(Header::parse(&bytes[..23]), Err(Rejection::Short));
        let with = |options: [u8; 4]| {
            let mut bytes = bytes;
            bytes[HEADER..24].copy_from_slice(&options);
            Header::parse(&bytes[..24]).map(|(header, length)| (header.blocks, length))
        };
        assert_eq!(with([1, 1, 1, 0]), Ok((Blocks::default(), 24)));
        assert_eq!(with([0, 77, 77, 77]), Ok((Blocks::default(), 24)));
        for (options, kind) in [
            ([1, 1, 1, 8], 8),
            ([8, 3, 0, 0], 8),
            ([5, 4, 0, 0], 5),
            ([2, 4, 5, 180], 2),
            ([30, 0, 0, 0], 30),
            ([30, 1, 0, 0], 30),
        ] {
            assert_eq!(with(options), Err(Rejection::Option(kind)), "{options:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((header, length)) = Header::parse(&bytes) {
                prop_assert!((HEADER..=bytes.len().min(LONGEST)).contains(&length));
                prop_assert!(header.blocks.as_slice().len() <= 4);
            }
        }

        #[test]
        fn what_is_emitted_is_parsed(
            fixed: (u16, u16, u32, u32, u8, u16), stamps: Option<(u32, u32)>, blocks in proptest::collection::vec(any::<(u32, u32)>(), 0..4)
        ) {
            let mut header = Header {
                source: fixed.0, destination: fixed.1, sequence: Seq(fixed.2), acknowledgement: Seq(fixed.3), flags: fixed.4, window: fixed.5,
                timestamps: stamps.map(|(value, echo)| Timestamps { value, echo }), blocks: Blocks::default(),
            };
            for (start, end) in blocks {
                header.blocks.push(Seq(start), Seq(end));
            }
            let mut bytes = [0xff; LONGEST];
            let length = header.emit(&mut bytes);
            prop_assert_eq!(length, header.length());
            prop_assert_eq!(Header::parse(&bytes[..length]), Ok((header, length)));
        }
    }
}
