//! What the engine meets: the device below it, and the program above it.

use crate::config::Nanoseconds;
use crate::connection::Side;
use crate::frame::{Task, WORDS};

/// Most bytes of a frame's head: what an endpoint's descriptor holds.
pub(crate) const HEAD: usize = 112;

/// Words of a line of cache behind the one that announces it.
pub const LINE: usize = 7;

/// The device, as the engine sees it: it takes frames.
pub trait Link {
    /// Sends one frame, `head` and then `body`, to a peer. `head` has at most 112 bytes. False: no room now.
    fn send(&mut self, peer: u32, head: &[u8], body: &[u8]) -> bool;

    /// Sends a frame of whole words, of which the first `count` (at most seven) count: one line of cache to a device in shared
    /// memory. False: no room now.
    #[inline]
    fn send_words(&mut self, peer: u32, words: &[u64; LINE], count: usize) -> bool {
        self.send(peer, bytemuck::cast_slice(&words[..count]), &[])
    }
}

/// Through a reference: what is general is compiled once, for any device.
impl<L: Link + ?Sized> Link for &mut L {
    fn send(&mut self, peer: u32, head: &[u8], body: &[u8]) -> bool {
        (**self).send(peer, head, body)
    }
    fn send_words(&mut self, peer: u32, words: &[u64; LINE], count: usize) -> bool {
        (**self).send_words(peer, words, count)
    }
}

/// The part of a frame that does not lie in the slice given to the engine: a device's buffer that the sender may still
/// change, say. It is copied where it belongs, once.
pub trait Body {
    /// Bytes.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies bytes from `from` on into all of `into`; false if it has not that many.
    fn copy_to(&self, from: usize, into: &mut [u8]) -> bool;
    /// Shows where its bytes lie, in order, until the answer is false: addresses, because others may write there meanwhile.
    fn each(&self, show: &mut dyn FnMut(*const u8, usize) -> bool);
}

/// Bytes that arrived: a slice, and perhaps more in a device's buffer.
#[derive(Clone, Copy)]
pub struct Data<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) rest: Option<&'a dyn Body>,
}

impl<'a> Data<'a> {
    /// Bytes in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() + self.rest.map_or(0, Body::len)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it, where it lies in one piece: always for requests and replies.
    #[must_use]
    pub fn as_slice(&self) -> Option<&'a [u8]> {
        match self.rest {
            None => Some(self.bytes),
            Some(_) => None,
        }
    }

    /// Shows its pieces, in order, until the answer is false. They are valid until the handler returns; others may write there
    /// meanwhile, so they are to be copied, once.
    pub fn each(&self, show: &mut dyn FnMut(*const u8, usize) -> bool) {
        if self.bytes.is_empty() || show(self.bytes.as_ptr(), self.bytes.len()) {
            if let Some(rest) = self.rest {
                rest.each(show);
            }
        }
    }

    /// Copies bytes from `from` on into all of `into`. False if there are fewer.
    pub fn copy_to(&self, from: usize, into: &mut [u8]) -> bool {
        let first = self.bytes.get(from..).unwrap_or_default();
        let first = &first[..first.len().min(into.len())];
        let (start, more) = into.split_at_mut(first.len());
        start.copy_from_slice(first);
        more.is_empty() || self.rest.is_some_and(|rest| rest.copy_to((from + first.len()).saturating_sub(self.bytes.len()), more))
    }
}

/// A message for a handler.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    /// The peer that sent it.
    pub peer: u32,
    /// The ordered channel that it came by; 0: none.
    pub channel: u16,
    /// Which handler it names.
    pub handler: u8,
    /// Its words.
    pub words: &'a [u64],
    /// Its data: valid until the handler returns.
    pub data: &'a [u8],
    /// For the handler of a store or a get: where the bytes were put in our segment, and how many they are.
    pub bulk: Option<(u64, u64)>,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The peer gave no sign of life for the declared time.
    Silent,
    /// It did not answer `connect` in the declared time.
    Unreachable,
    /// It set up the connection anew: it restarted, or had given this one up.
    Restarted,
    /// It does not know the connection.
    Reset,
    /// It closed the connection.
    Closed,
    /// A packet did not arrive, however often it was sent in the declared time, though the peer is heard of: the path lets only shorter
    /// frames through. The next connection has shorter ones.
    Stuck,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is up.
    Up,
    /// It ended; what was not answered never will be.
    Lost(Reason),
}

/// What a message does with memory of the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A peer's store writes there.
    Store,
    /// A peer's get reads it.
    Get,
    /// Bytes come that a get of ours asked for.
    Fetch,
}

/// The program: handlers, and the memory it shows its peers. Private to each process that drives the engine.
pub trait Dispatch {
    /// Runs a request's handler. A caller that does not know the handler calls [`Replier::refuse`].
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>);

    /// Runs a reply's handler, or that of a get that is complete. It is given nothing to reply with: GAM's rule that
    /// replies do not breed replies is a matter of types.
    fn reply(&mut self, message: Message<'_>);

    /// A request of ours came back: no such handler, or a segment it does not fit. `message` is as it was sent, without data.
    fn returned(&mut self, message: Message<'_>) {
        let _ = message;
    }

    /// The next bytes of an ordered channel. They were promised room, so all are to be taken.
    fn stream(&mut self, peer: u32, channel: u16, data: Data<'_>) {
        let _ = (peer, channel, data);
    }

    /// The peer has all bytes of an ordered channel before `upto`: they were given to its program, or wait there in order. Over
    /// a device that loses nothing this is not told.
    fn acknowledged(&mut self, peer: u32, channel: u16, upto: u64) {
        let _ = (peer, channel, upto);
    }

    /// The memory that a peer may store to and get from. Our gets write here too.
    fn segment(&mut self, peer: u32) -> &mut [u8] {
        let _ = peer;
        &mut []
    }

    /// The `length` bytes at `at` of what a peer may use in this way; `None`: there are none, or not for that. The address is the
    /// peer's word. A program that shows more than a segment gives the rest addresses behind it. Asked again for each packet.
    fn place(&mut self, peer: u32, access: Access, at: u64, length: u64) -> Option<&mut [u8]> {
        let _ = access;
        within(self.segment(peer), at, length)
    }

    /// The peer was silent for the declared time, and the connection is about to end for that. True: it is known by other means that the
    /// peer lives and is busy, and its silence counts anew from now.
    fn vouches(&mut self, peer: u32) -> bool {
        let _ = peer;
        false
    }

    /// A connection came up or ended.
    fn event(&mut self, peer: u32, event: Event) {
        let _ = (peer, event);
    }
}

/// The `length` bytes at `at` of `memory`, if it has them: what [`Dispatch::place`] does by itself.
pub fn within(memory: &mut [u8], at: u64, length: u64) -> Option<&mut [u8]> {
    let end = at.checked_add(length).filter(|end| *end <= memory.len() as u64)?;
    memory.get_mut(at as usize..end as usize)
}

/// Through a reference, as [`Link`].
impl<D: Dispatch + ?Sized> Dispatch for &mut D {
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        (**self).request(message, replier);
    }
    fn reply(&mut self, message: Message<'_>) {
        (**self).reply(message);
    }
    fn returned(&mut self, message: Message<'_>) {
        (**self).returned(message);
    }
    fn stream(&mut self, peer: u32, channel: u16, data: Data<'_>) {
        (**self).stream(peer, channel, data);
    }
    fn acknowledged(&mut self, peer: u32, channel: u16, upto: u64) {
        (**self).acknowledged(peer, channel, upto);
    }
    fn segment(&mut self, peer: u32) -> &mut [u8] {
        (**self).segment(peer)
    }
    fn place(&mut self, peer: u32, access: Access, at: u64, length: u64) -> Option<&mut [u8]> {
        (**self).place(peer, access, at, length)
    }
    fn vouches(&mut self, peer: u32) -> bool {
        (**self).vouches(peer)
    }
    fn event(&mut self, peer: u32, event: Event) {
        (**self).event(peer, event);
    }
}

/// Why a call did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The peer's number, the channel or the number of words is out of range.
    Argument,
    /// The connection is not up.
    NotConnected,
    /// The peer takes no more requests now. Poll, and try again.
    NoCredit,
    /// No packet or device buffer is free now. Poll, and try again.
    NoRoom,
    /// More data than a message takes: the peer's frames, or those that the path lets through, may be shorter than the device's.
    TooLong,
}

impl core::fmt::Display for Refused {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        to.write_str(match self {
            Self::Argument => "no such peer or channel, or too many words",
            Self::NotConnected => "the connection is not up",
            Self::NoCredit => "the peer takes no more requests now",
            Self::NoRoom => "no packet is free now",
            Self::TooLong => "more data than a message takes",
        })
    }
}

/// Where a request came from, and the device to it: what answers it.
pub(crate) trait Asker {
    /// Sends a reply the straight way; false: nothing was done.
    fn reply(&mut self, index: u32, handler: u8, words: &[u64]) -> bool;
    /// All of the connection, and the device.
    fn general(&mut self, index: u32) -> Option<(Side<'_>, &mut dyn Link)>;
}

/// The right to answer one request, once.
///
/// A reply always finds room: the requester was given credit only for as many requests as reply packets are set aside.
pub struct Replier<'a> {
    pub(crate) index: u32,
    pub(crate) asker: &'a mut (dyn Asker + 'a),
    pub(crate) now: Nanoseconds,
    pub(crate) done: &'a mut bool,
    pub(crate) request: (u8, &'a [u64]),
}

impl Replier<'_> {
    /// The peer that asked.
    #[must_use]
    pub fn peer(&self) -> u32 {
        self.index
    }

    /// Sends the reply.
    ///
    /// # Errors
    /// `Argument`: more than eight words; `TooLong`: more data than `medium_maximum`. Nothing was sent then, and nothing will be.
    #[inline]
    pub fn reply(self, handler: u8, words: &[u64], data: &[u8]) -> Result<(), Refused> {
        if data.is_empty() && self.asker.reply(self.index, handler, words) {
            *self.done = true;
            return Ok(());
        }
        self.reply_in_general(handler, words, data)
    }

    #[inline(never)]
    fn reply_in_general(self, handler: u8, words: &[u64], data: &[u8]) -> Result<(), Refused> {
        if words.len() > WORDS {
            return Err(Refused::Argument);
        }
        let (mut side, link) = self.asker.general(self.index).ok_or(Refused::Argument)?;
        side.reply(self.now, Task::Reply, handler, words, data, link)?;
        *self.done = true;
        Ok(())
    }

    /// Begins another use of an ordered channel with the peer: see [`crate::Engine::renew`].
    ///
    /// # Errors
    /// `Argument`: no such channel.
    pub fn renew(&mut self, channel: u16, generation: u32) -> Result<(), Refused> {
        self.asker.general(self.index).ok_or(Refused::Argument)?.0.renew(channel, generation)
    }

    /// Sends the request back to where it came from (GAM's "returned message"): there is no such handler.
    pub fn refuse(self) {
        let (handler, words) = self.request;
        let Some((mut side, link)) = self.asker.general(self.index) else { return };
        *self.done = side.reply(self.now, Task::Returned, handler, words, &[], link).is_ok();
    }
}
