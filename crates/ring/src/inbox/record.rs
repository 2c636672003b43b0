//! What stands before the bytes of a datagram in the ring, written and read.

use super::Inbox;
use core::sync::atomic::Ordering;
use shunt_segment::inbox::{mark, ALIGN};

/// Where a datagram comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Source {
    /// True: `ip` is an IPv6 address; false: its last four bytes are an IPv4 address.
    pub v6: bool,
    /// The address, IPv4 in the last four bytes.
    pub ip: [u8; 16],
    /// The port.
    pub port: u16,
    /// The scope of a link-local address.
    pub scope: u32,
    /// The processor that the sender ran on, plus one; 0: unknown.
    pub processor: u16,
}

/// What a datagram tells beside its bytes and its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Details {
    /// The address that it was sent to, as [`Source::ip`].
    pub to: [u8; 16],
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// It stands for datagrams of so many bytes each (UDP_SEGMENT); 0: for itself.
    pub segment: u16,
    /// The interface that it came by; 0: no receiver had asked when it was sent.
    pub interface: u32,
    /// When it was sent, in 256 ticks: [`Front::moment`].
    pub moment: u32,
    /// CLOCK_REALTIME of sending in nanoseconds; 0: no receiver asked.
    pub stamp: u64,
}

/// The oldest datagram.
#[derive(Clone, Copy, Debug)]
pub struct Front {
    pub(crate) position: u64,
    pub(crate) next: u64,
    pub(crate) payload: u64,
    marks: u64,
    /// Bytes of the datagram.
    pub length: usize,
    /// Its source.
    pub source: Source,
    /// When it was sent, in 256 ticks of the processors' time stamp counter, modulo 2^32.
    pub moment: u32,
}

impl Front {
    /// Where it lies: no two datagrams of an inbox have the same.
    #[inline(always)]
    pub fn position(&self) -> u64 {
        self.position
    }
}

/// Words before the bytes: position and marks; length, half the moment, processor, port; address or scope, charges; then
/// for IPv4 the destination with the details and the other half, for IPv6 the source, the details with the other half, and
/// the destination if it is another one than the source; then interface and segment; then the stamp.
pub(crate) const V4_HEADER: u64 = 32;
const V6_HEADER: u64 = 48;

#[inline(always)]
pub(super) fn header_length(marks: u64) -> u64 {
    let fixed = if marks & mark::V6 != 0 { V6_HEADER } else { V4_HEADER };
    let word = |bit| if marks & bit != 0 { 8 } else { 0 };
    fixed + 2 * word(mark::TO) + word(mark::FURTHER) + word(mark::STAMPED)
}

#[inline(always)]
pub(crate) fn record_length(marks: u64, length: usize) -> u64 {
    (header_length(marks) + length as u64).next_multiple_of(ALIGN as u64)
}

/// One half of an address.
#[inline(always)]
fn half(ip: &[u8; 16], k: usize) -> u64 {
    let mut bytes = [0u8; 8];
    bytes.copy_from_slice(&ip[8 * k..8 * k + 8]);
    u64::from_le_bytes(bytes)
}

impl Inbox {
    /// Writes what a datagram at `tail` tells beside its bytes, all but the first word, which publishes it; gives its marks.
    #[inline(always)]
    pub(super) fn describe(&self, tail: u64, charged: u64, source: &Source, details: &Details, length: usize) -> u64 {
        let mut marks = mark::PRESENT;
        let further = details.interface as u64 | (details.segment as u64) << 32;
        if further != 0 {
            marks |= mark::FURTHER;
        }
        if details.stamp != 0 {
            marks |= mark::STAMPED;
        }
        let rest = (details.ttl as u64) << 32 | (details.tos as u64) << 40 | (details.moment as u64 >> 16) << 48;
        let scope = if source.v6 {
            marks |= mark::V6;
            self.word(tail.wrapping_add(24)).store(half(&source.ip, 0), Ordering::Relaxed);
            self.word(tail.wrapping_add(32)).store(half(&source.ip, 1), Ordering::Relaxed);
            self.word(tail.wrapping_add(40)).store(rest, Ordering::Relaxed);
            if details.to != source.ip {
                marks |= mark::TO;
                self.word(tail.wrapping_add(48)).store(half(&details.to, 0), Ordering::Relaxed);
                self.word(tail.wrapping_add(56)).store(half(&details.to, 1), Ordering::Relaxed);
            }
            source.scope as u64
        } else {
            self.word(tail.wrapping_add(24)).store(half(&details.to, 1) >> 32 | rest, Ordering::Relaxed);
            half(&source.ip, 1) >> 32
        };
        let bytes = tail.wrapping_add(header_length(marks));
        if further != 0 {
            let before = if details.stamp != 0 { 16 } else { 8 };
            self.word(bytes.wrapping_sub(before)).store(further, Ordering::Relaxed);
        }
        if details.stamp != 0 {
            self.word(bytes.wrapping_sub(8)).store(details.stamp, Ordering::Relaxed);
        }
        self.word(tail.wrapping_add(8)).store(
            length as u64 | (details.moment as u64 & 0xffff) << 16 | (source.processor as u64) << 32 | (source.port as u64) << 48,
            Ordering::Relaxed,
        );
        self.word(tail.wrapping_add(16)).store(scope | charged << 32, Ordering::Relaxed);
        marks
    }

    #[inline(always)]
    pub(super) fn read(&self, position: u64, first: u64) -> Front {
        let second = self.word(position.wrapping_add(8)).load(Ordering::Relaxed);
        let detail = self.word(position.wrapping_add(16)).load(Ordering::Relaxed) as u32;
        let v6 = first & mark::V6 != 0;
        let length = second as u16 as usize;
        let rest = self.word(position.wrapping_add(if v6 { 40 } else { 24 })).load(Ordering::Relaxed);
        let moment = (second >> 16) as u32 & 0xffff | (rest >> 48 << 16) as u32;
        let mut source = Source { v6, ip: [0; 16], port: (second >> 48) as u16, scope: 0, processor: (second >> 32) as u16 };
        if v6 {
            source.ip[..8].copy_from_slice(&self.word(position.wrapping_add(24)).load(Ordering::Relaxed).to_le_bytes());
            source.ip[8..].copy_from_slice(&self.word(position.wrapping_add(32)).load(Ordering::Relaxed).to_le_bytes());
            source.scope = detail;
        } else {
            source.ip[12..].copy_from_slice(&detail.to_le_bytes());
        }
        Front {
            position,
            next: position.wrapping_add(record_length(first, length)),
            payload: position.wrapping_add(header_length(first)),
            marks: first & mark::ALL,
            length,
            source,
            moment,
        }
    }

    /// What else the datagram tells. To be believed when [`Inbox::take`] or [`Inbox::still`] has succeeded afterwards.
    pub fn details(&self, front: &Front) -> Details {
        let at = |offset: u64| self.word(front.position.wrapping_add(offset)).load(Ordering::Relaxed);
        let v6 = front.marks & mark::V6 != 0;
        let rest = at(if v6 { 40 } else { 24 });
        let mut to = front.source.ip;
        if !v6 {
            to[12..].copy_from_slice(&(rest as u32).to_le_bytes());
        } else if front.marks & mark::TO != 0 {
            to[..8].copy_from_slice(&at(48).to_le_bytes());
            to[8..].copy_from_slice(&at(56).to_le_bytes());
        }
        let stamped = front.marks & mark::STAMPED != 0;
        let before = |offset: u64| self.word(front.payload.wrapping_sub(offset)).load(Ordering::Relaxed);
        let further = if front.marks & mark::FURTHER != 0 { before(if stamped { 16 } else { 8 }) } else { 0 };
        Details {
            to,
            ttl: (rest >> 32) as u8,
            tos: (rest >> 40) as u8,
            segment: (further >> 32) as u16,
            interface: further as u32,
            moment: front.moment,
            stamp: if stamped { before(8) } else { 0 },
        }
    }
}
