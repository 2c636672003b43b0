//! One direction of a channel.
//!
//! `send` puts bytes in, as far as there is `room`, in the ring that `growth` chooses; `receive` takes them out, from the
//! ring that the `borders` tell. Short messages have a way of their own (`short.rs`).

mod borders;
mod fill;
mod growth;
mod held;
mod receive;
mod referred;
mod room;
mod send;

pub use fill::Space;
pub use held::SEGMENT;

use crate::copy::Ring;
use crate::window::Window;
use shunt_segment::area::{base_ring_offset, offset_in_window, CLASSES, FIRST_IN_WINDOW, REFERRED, RING_SIZE};
use shunt_segment::channel::{word, Side};

/// Why bytes that wait cannot be received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The peer wrote something that no honest peer writes. The connection is to be reset.
    Violation,
    /// They lie in a window that this process has not mapped, or in no ring ([`Pipe::referred`]).
    Unmapped,
}

/// Bytes copied between two publications: long enough to stream, short enough that both ends copy at the same time.
#[cfg(not(loom))]
pub const CHUNK: usize = 32 << 10;
/// Bytes copied between two publications: few, so that a model sees several chunks.
#[cfg(loom)]
pub const CHUNK: usize = 8;

pub(crate) const POSITION: u64 = word::POSITION;

/// In [`Transmit::small`]: [`Transmit::word`] is a copy of the post's word.
///
/// [`Transmit::small`]: shunt_segment::channel::Transmit::small
/// [`Transmit::word`]: shunt_segment::channel::Transmit::word
pub(crate) const COPIED: u32 = 1 << 31;

/// [`Receive::class`] holds a class and above it the number of bytes that are known to wait in its ring.
///
/// [`Receive::class`]: shunt_segment::channel::Receive::class
pub(crate) const KNOWN_SHIFT: u32 = 3;
pub(crate) const KNOWN_CLASS: u32 = (1 << KNOWN_SHIFT) - 1;

/// The direction that `own` sends in when seen from the sender, and that `own` receives in when seen from the receiver.
///
/// All calls of one kind (send or receive) on one side are made under that side's lock for it.
#[derive(Clone, Copy)]
pub struct Pipe<'a> {
    /// The caller's side.
    pub own: &'a Side,
    /// The other side.
    pub peer: &'a Side,
    /// First byte of the link.
    pub link: *mut u8,
    /// Channel in the link.
    pub channel: usize,
    /// Number of the side that sends in this direction.
    pub sender: usize,
    /// Where this process has the direction's window.
    pub window: &'a Window,
}

#[inline(always)]
pub(crate) fn class_of(word: u64) -> usize {
    (word >> word::CLASS_SHIFT) as usize & 7
}

#[inline(always)]
pub(crate) fn switch_of(word: u64) -> u32 {
    (word >> word::SWITCH_SHIFT) as u32 & 7
}

/// `to - from` on the circle of positions.
#[inline(always)]
pub(crate) fn distance(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) & POSITION
}

impl Pipe<'_> {
    /// The ring of `class`; `None` if it lies in a window that is not mapped, or in none.
    #[inline(always)]
    pub(crate) fn ring(&self, class: usize) -> Option<Ring> {
        if class < FIRST_IN_WINDOW {
            return Some(Ring::at(self.link, base_ring_offset(self.channel, self.sender, class), RING_SIZE[class]));
        }
        if class == REFERRED {
            return None;
        }
        let class = class.min(CLASSES - 1);
        self.window.get().map(|window| Ring::at(window, offset_in_window(class), RING_SIZE[class]))
    }

    /// The ring of class 0.
    #[inline(always)]
    pub(crate) fn smallest(&self) -> Ring {
        Ring::at(self.link, base_ring_offset(self.channel, self.sender, 0), RING_SIZE[0])
    }

    /// Bytes in the ring of `class`.
    #[inline(always)]
    fn size(class: usize) -> usize {
        RING_SIZE[class.min(CLASSES - 1)] as usize
    }
}
