//! The straight way of almost all messages over a device that loses nothing: a request or a reply of up to four words, without
//! data, alone in its frame. Such a frame is one line of cache to the device.
//!
//! Everything here is decided before anything is changed: what is unusual in any way is left as it was, and takes the general
//! way, which means the same. It is compiled into the code that polls, with the device's and the handlers' code around it:
//! between two processors each instruction before the reply's line is part of the time that a caller waits.

use crate::dispatch::{Asker, Dispatch, Link, Message, Replier, LINE};
use crate::frame::{Kind, Task, MESSAGE, SHORT, VERSION};
use crate::memory::Memory;
use crate::state::{sign, Peer};
use crate::{Nanoseconds, Side};

const HEAD: usize = (SHORT + MESSAGE) / 8;
/// Words of a message that goes this way: with the headers they fill a line.
const STRAIGHT: usize = LINE - HEAD;
/// The first half of the first word: version and kind, no flags, no channel.
const PLAIN: u32 = (VERSION << 4 | Kind::Plain as u8) as u32;

/// The asker, where the connection is found in the engine's memory.
struct Found<'a, 'm, L: ?Sized> {
    memory: &'a mut Memory<'m>,
    link: &'a mut L,
}

impl<L: Link + ?Sized> Asker for Found<'_, '_, L> {
    #[inline]
    fn reply(&mut self, index: u32, handler: u8, words: &[u64]) -> bool {
        self.memory.peer_mut(index).is_some_and(|peer| peer.reply_straight(index, handler, words, self.link))
    }
    fn general(&mut self, index: u32) -> Option<(Side<'_>, &mut dyn Link)> {
        Some((self.memory.side(index)?, &mut self.link))
    }
}

/// The asker, where the connection is at hand.
pub(crate) struct AtHand<'a, 's> {
    pub side: &'a mut Side<'s>,
    pub link: &'a mut dyn Link,
}

impl Asker for AtHand<'_, '_> {
    fn reply(&mut self, index: u32, handler: u8, words: &[u64]) -> bool {
        self.side.peer.reply_straight(index, handler, words, self.link)
    }
    fn general(&mut self, _: u32) -> Option<(Side<'_>, &mut dyn Link)> {
        Some((self.side.reborrow(), self.link))
    }
}

impl Peer {
    #[inline(always)]
    fn straight_limit(&self) -> u32 {
        self.requests_taken.wrapping_add(self.replies.saturating_sub(self.replies_owed))
    }

    /// Gives a frame to the device, which refuses it where it has no room.
    #[inline(always)]
    fn send_straight<L: Link + ?Sized>(&mut self, index: u32, task: Task, handler: u8, words: &[u64], link: &mut L) -> bool {
        let (limit, count) = (self.straight_limit(), words.len());
        let first = u64::from(PLAIN) | u64::from(limit) << 32;
        let head = task as u64 | u64::from(handler) << 8 | (count as u64) << 16;
        let [a, b, c, d] = match *words {
            [] => [0; STRAIGHT],
            [a] => [a, 0, 0, 0],
            [a, b] => [a, b, 0, 0],
            [a, b, c] => [a, b, c, 0],
            [a, b, c, d] => [a, b, c, d],
            _ => return false,
        };
        if !link.send_words(index, &[first, self.remote_token, head, a, b, c, d].map(u64::to_le), HEAD + count) {
            return false;
        }
        self.limit_said = limit;
        self.counters.frames_sent += 1;
        true
    }

    /// Sends a request; false: nothing was done.
    #[inline(always)]
    pub(crate) fn request_straight<L: Link + ?Sized>(&mut self, index: u32, handler: u8, words: &[u64], link: &mut L) -> bool {
        let credit = self.limit.wrapping_sub(self.requests_sent) as i32 > 0;
        let waiting = self.queues.iter().fold(0, |all, queue| all | queue.length) != 0;
        if self.straight == 0 || !credit || waiting || !self.send_straight(index, Task::Request, handler, words, link) {
            return false;
        }
        self.requests_sent = self.requests_sent.wrapping_add(1);
        true
    }

    /// Sends the reply to a request that is being handled, and that `replies_owed` counts; false: nothing was done.
    #[inline(always)]
    fn reply_straight<L: Link + ?Sized>(&mut self, index: u32, handler: u8, words: &[u64], link: &mut L) -> bool {
        if self.straight == 0 || words.len() > STRAIGHT || self.queues[0].length != 0 {
            return false;
        }
        // Counted as answered before it leaves, so that the frame carries the credit.
        let owed = self.replies_owed;
        self.replies_owed = owed.saturating_sub(1);
        let sent = self.send_straight(index, Task::Reply, handler, words, link);
        if !sent {
            self.replies_owed = owed;
        }
        sent
    }

    /// Heeds the header of a frame that is in order; false: nothing was done.
    #[inline(always)]
    fn accept_straight(&mut self, said: u32) -> bool {
        let ahead = said.wrapping_sub(self.requests_sent) as i32;
        if ahead > crate::config::MAXIMUM_WINDOW as i32 {
            return false;
        }
        if self.limit.wrapping_sub(said) as i32 <= 0 {
            self.limit = said;
            if ahead > 0 {
                self.starved = 0;
            }
        }
        true
    }

    /// Writes down what no caller waits for: behind the handler.
    #[inline(always)]
    fn note_straight(&mut self) {
        self.sign = sign::CONFIRMED;
        self.heard = 1;
        self.counters.frames_received += 1;
        self.counters.handled += 1;
    }
}

/// A request whose handler runs: what is written down behind it is written down however it ends.
struct Handling<'a, 'm> {
    memory: &'a mut Memory<'m>,
    index: u32,
    done: bool,
}

impl Drop for Handling<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        let Some(peer) = self.memory.peer_mut(self.index) else { return };
        peer.note_straight();
        if !self.done {
            peer.replies_owed = peer.replies_owed.saturating_sub(1);
        }
        if peer.straight_limit().wrapping_sub(peer.limit_said) as i32 >= (peer.replies / 2).max(1) as i32 {
            self.memory.shared.mark_busy(self.index);
        }
    }
}

impl Memory<'_> {
    /// Takes a frame, if it is one of those; false: nothing was done.
    #[inline(always)]
    pub(crate) fn receive_straight<L: Link + ?Sized, D: Dispatch + ?Sized>(
        &mut self,
        now: Nanoseconds,
        index: u32,
        frame: &[u8],
        link: &mut L,
        dispatch: &mut D,
    ) -> bool {
        if frame.len() > LINE * 8 || cfg!(target_endian = "big") {
            return false;
        }
        let Ok(&[first, token, head, ref words @ ..]) = bytemuck::try_cast_slice::<u8, u64>(frame) else { return false };
        let Some(peer) = self.peer_mut(index) else { return false };
        // A message without data and flags, and nothing behind it. A peer that is not up has no straight way, so the token is
        // one.
        let usual = first as u32 == PLAIN && head >> 16 == words.len() as u64 && token == peer.token && peer.straight != 0;
        if !usual {
            return false;
        }
        let (task, handler, said) = (head as u8, (head >> 8) as u8, (first >> 32) as u32);
        let message = Message { peer: index, channel: 0, handler, words, data: &[], bulk: None };
        if task == Task::Request as u8 && peer.limit_said != peer.requests_taken {
            if !peer.accept_straight(said) {
                return false;
            }
            peer.requests_taken = peer.requests_taken.wrapping_add(1);
            peer.replies_owed += 1;
            let mut handling = Handling { memory: self, index, done: false };
            let Handling { memory, done, .. } = &mut handling;
            let mut asker = Found { memory, link };
            dispatch.request(message, Replier { index, asker: &mut asker, now, done, request: (handler, words) });
            return true;
        }
        if task == Task::Reply as u8 && peer.requests_sent != peer.replies_received {
            if !peer.accept_straight(said) {
                return false;
            }
            peer.replies_received = peer.replies_received.wrapping_add(1);
            peer.note_straight();
            dispatch.reply(message);
            return true;
        }
        false
    }
}
