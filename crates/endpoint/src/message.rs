//! What is sent, and what has arrived.

use crate::address::Channel;
use crate::area::{Area, Bytes, Segment};

/// Bytes of a message that travel in its descriptor: two cache lines of 64 bytes, each with a word that announces it.
pub const INLINE: usize = 112;

/// Words of 8 bytes in one of those lines.
pub const WORDS: usize = INLINE / 16;

/// Areas that one message may be gathered from or scattered over.
pub const SCATTER: usize = 4;

/// The part of an outgoing message that follows its head.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// Nothing.
    None,
    /// Up to [`SCATTER`] areas of the communication segment. They belong to the device until the message is
    /// [injected](crate::Endpoint::injected); what is written there before that may or may not be sent.
    Areas(&'a [Area]),
    /// Bytes of the program, copied (or sent) before `send` returns: base level's one copy.
    Bytes(Bytes<'a>),
}

impl Body<'_> {
    /// Bytes, as far as they can be counted.
    #[inline(always)]
    pub fn len(&self) -> usize {
        match self {
            Body::None => 0,
            Body::Areas(areas) => areas.iter().map(|area| area.length as usize).sum(),
            Body::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A message to be sent: one string of bytes, `head` and then `body`. Where the one ends and the other begins is not told.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Where to.
    pub channel: Channel,
    /// Up to [`INLINE`] bytes, copied into the descriptor: a protocol's header, or all of a small message.
    pub head: &'a [u8],
    /// The rest.
    pub body: Body<'a>,
}

impl<'a> Message<'a> {
    /// A small message.
    pub fn small(channel: Channel, head: &'a [u8]) -> Message<'a> {
        Message { channel, head, body: Body::None }
    }

    /// Bytes in all.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Whether it has no bytes. Such a message may be sent too.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What an [`Arrival`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ArrivalKind {
    /// A message.
    Message = 0,
    /// A notification: a peer has updated exported memory.
    Notification = 1,
}

/// The descriptor of a message that has arrived. Make one [empty](Arrival::empty), and reuse it.
///
/// The first `min(length, INLINE)` bytes are in `head`: private memory, already copied, safe to parse. The rest lies in
/// areas of the segment, and may change under the reader's eyes on some devices: copy it out, then judge it.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub(crate) channel: u32,
    pub(crate) length: u32,
    pub(crate) kind: u32,
    pub(crate) count: u32,
    pub(crate) head: [u8; INLINE],
    pub(crate) areas: [Area; SCATTER],
    /// The buffers to be given back; for the device.
    pub(crate) buffers: [Area; SCATTER],
}

/// The parts of an [`Arrival`], for devices outside this crate.
#[derive(Clone, Copy, Debug)]
pub struct ArrivalParts<'a> {
    /// The channel it came by.
    pub channel: Channel,
    /// Bytes of the whole message.
    pub length: u32,
    /// Its first `min(length, INLINE)` bytes.
    pub head: &'a [u8],
    /// Where the rest lies, at most [`SCATTER`] areas.
    pub areas: &'a [Area],
    /// The buffers that those areas lie in, as many: what [`Arrival::buffers`] gives when it is released.
    pub buffers: &'a [Area],
}

impl Arrival {
    /// Nothing has arrived.
    pub const fn empty() -> Arrival {
        Arrival {
            channel: 0,
            length: 0,
            kind: 0,
            count: 0,
            head: [0; INLINE],
            areas: [Area::new(0, 0); SCATTER],
            buffers: [Area::new(0, 0); SCATTER],
        }
    }

    /// Fills in a message. For devices. What does not fit is cut.
    #[inline(always)]
    pub fn fill(&mut self, parts: &ArrivalParts<'_>) {
        self.channel = parts.channel.0;
        self.length = parts.length;
        self.kind = ArrivalKind::Message as u32;
        let head = parts.head.len().min(INLINE);
        self.head[..head].copy_from_slice(&parts.head[..head]);
        let count = parts.areas.len().min(parts.buffers.len()).min(SCATTER);
        self.count = count as u32;
        self.areas[..count].copy_from_slice(&parts.areas[..count]);
        self.buffers[..count].copy_from_slice(&parts.buffers[..count]);
    }

    /// The channel it came by.
    #[inline(always)]
    pub fn channel(&self) -> Channel {
        Channel(self.channel)
    }

    /// Bytes of the whole message.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// A message or a notification.
    #[inline(always)]
    pub fn kind(&self) -> ArrivalKind {
        if self.kind == 1 {
            ArrivalKind::Notification
        } else {
            ArrivalKind::Message
        }
    }

    /// The first bytes, [`INLINE`] of them or the whole message.
    #[inline(always)]
    pub fn head(&self) -> &[u8] {
        &self.head[..self.len().min(INLINE)]
    }

    /// Where the rest lies.
    #[inline(always)]
    pub fn areas(&self) -> &[Area] {
        &self.areas[..(self.count as usize).min(SCATTER)]
    }

    /// The buffers that the areas lie in. For devices.
    #[inline(always)]
    pub fn buffers(&self) -> &[Area] {
        &self.buffers[..(self.count as usize).min(SCATTER)]
    }

    /// The areas of the message from byte `from` (not before [`INLINE`]) on: what follows a header and some data.
    pub fn areas_from(&self, from: usize) -> impl Iterator<Item = Area> + '_ {
        let mut skip = from.saturating_sub(INLINE) as u64;
        self.areas().iter().filter_map(move |area| {
            let here = skip.min(area.length as u64) as u32;
            skip -= here as u64;
            Some(area.without(here)).filter(|rest| rest.length > 0)
        })
    }

    /// Copies bytes of the message, from `from` on, into `target`, as many as there are; gives their number.
    pub fn copy_to(&self, segment: &Segment, from: usize, target: &mut [u8]) -> usize {
        let head = self.head().get(from..).unwrap_or_default();
        let mut done = head.len().min(target.len());
        target[..done].copy_from_slice(&head[..done]);
        for area in self.areas_from(from) {
            let part = area.first((target.len() - done).min(u32::MAX as usize) as u32);
            if part.length == 0 || !segment.read(part, &mut target[done..][..part.length as usize]) {
                break;
            }
            done += part.length as usize;
        }
        done
    }
}
