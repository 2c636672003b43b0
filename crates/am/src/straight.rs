//! The straight way of almost all messages over a device that loses nothing: a request or a reply of up to four words, without
//! data, alone in its frame. Such a frame is one line of cache to the device.
//!
//! Everything here is decided before anything is changed: what is unusual in any way is left as it was, and takes the general
//! way, which means the same.

use crate::dispatch::{Dispatch, Link, Message, Replier};
use crate::frame::{Kind, Task, MESSAGE, SHORT, VERSION};
use crate::memory::Memory;
use crate::state::{life, sign, Peer, Shared};
use crate::{Nanoseconds, Side};

/// Words of a message that goes this way: with the headers they fill the 56 bytes that a line has.
const STRAIGHT: usize = 4;
const HEAD: usize = (SHORT + MESSAGE) / 8;
/// The first half of the first word: version and kind, no flags, no channel.
const PLAIN: u32 = (VERSION << 4 | Kind::Plain as u8) as u32;

/// Whoever can show a connection: its first lines, or all of it.
pub(crate) trait Sides {
    /// What a straight message touches.
    fn straight(&mut self, peer: u32) -> Option<Straight<'_>>;
    /// All.
    fn side(&mut self, peer: u32) -> Option<Side<'_>>;
}

impl Sides for Memory<'_> {
    #[inline]
    fn straight(&mut self, peer: u32) -> Option<Straight<'_>> {
        let (shared, peer) = self.shared_and_peer(peer)?;
        Some(Straight { shared, peer })
    }
    fn side(&mut self, peer: u32) -> Option<Side<'_>> {
        Memory::side(self, peer)
    }
}

impl Sides for Side<'_> {
    #[inline]
    fn straight(&mut self, _: u32) -> Option<Straight<'_>> {
        Some(Straight { shared: self.shared, peer: self.peer })
    }
    fn side(&mut self, _: u32) -> Option<Side<'_>> {
        Some(self.reborrow())
    }
}

/// The part of a connection that straight messages touch.
pub(crate) struct Straight<'a> {
    pub shared: &'a mut Shared,
    pub peer: &'a mut Peer,
}

impl Straight<'_> {
    /// Up, over a device that loses nothing, and each message goes at once.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        let config = &self.shared.config;
        self.peer.life == life::UP && config.reliable != 0 && config.combine == 0
    }

    #[inline(always)]
    fn limit(&self) -> u32 {
        let free = self.shared.config.replies.saturating_sub(self.peer.replies_owed);
        self.peer.requests_taken.wrapping_add(free)
    }

    /// Gives a frame to the device, which refuses it where it has no room.
    #[inline(always)]
    fn send(&mut self, index: u32, task: Task, handler: u8, words: &[u64], link: &mut dyn Link) -> bool {
        let limit = self.limit();
        let count = words.len();
        let mut frame = [0u64; HEAD + STRAIGHT];
        frame[0] = (u64::from(PLAIN) | u64::from(limit) << 32).to_le();
        frame[1] = self.peer.remote_token.to_le();
        frame[2] = (task as u64 | u64::from(handler) << 8 | (count as u64) << 16).to_le();
        // Word by word: a call to copy so little costs more than the copy.
        match *words {
            [] => {}
            [a] => frame[3] = a.to_le(),
            [a, b] => (frame[3], frame[4]) = (a.to_le(), b.to_le()),
            [a, b, c] => (frame[3], frame[4], frame[5]) = (a.to_le(), b.to_le(), c.to_le()),
            [a, b, c, d] => (frame[3], frame[4], frame[5], frame[6]) = (a.to_le(), b.to_le(), c.to_le(), d.to_le()),
            _ => return false,
        }
        if !link.send(index, &bytemuck::bytes_of(&frame)[..(HEAD + count) * 8], &[]) {
            return false;
        }
        self.peer.limit_said = limit;
        self.peer.counters.frames_sent += 1;
        true
    }

    /// Sends a request; false: nothing was done.
    #[inline(always)]
    pub(crate) fn request(&mut self, index: u32, handler: u8, words: &[u64], link: &mut dyn Link) -> bool {
        let credit = self.peer.limit.wrapping_sub(self.peer.requests_sent) as i32 > 0;
        let waiting = self.peer.queues.iter().fold(0, |all, queue| all | queue.length) != 0;
        if !credit || waiting || !self.is_plain() || !self.send(index, Task::Request, handler, words, link) {
            return false;
        }
        self.peer.requests_sent = self.peer.requests_sent.wrapping_add(1);
        true
    }

    /// Sends the reply to a request that is being handled, and that `replies_owed` counts; false: nothing was done.
    #[inline(always)]
    pub(crate) fn reply(&mut self, index: u32, handler: u8, words: &[u64], link: &mut dyn Link) -> bool {
        let owed = self.peer.replies_owed;
        if words.len() > STRAIGHT || self.peer.queues[0].length != 0 || !self.is_plain() {
            return false;
        }
        // Counted as answered before it leaves, so that the frame carries the credit.
        self.peer.replies_owed = owed.saturating_sub(1);
        let sent = self.send(index, Task::Reply, handler, words, link);
        if !sent {
            self.peer.replies_owed = owed;
        }
        sent
    }

    /// Heeds the header of a frame that is in order; false: nothing was done.
    #[inline(always)]
    fn accept(&mut self, said: u32) -> bool {
        let ahead = said.wrapping_sub(self.peer.requests_sent) as i32;
        if ahead > crate::config::MAXIMUM_WINDOW as i32 {
            return false;
        }
        let peer = &mut *self.peer;
        if peer.limit.wrapping_sub(said) as i32 <= 0 {
            peer.limit = said;
            if ahead > 0 {
                peer.starved = 0;
            }
        }
        true
    }

    /// Writes down what nobody waits for: behind the handler.
    #[inline(always)]
    fn note(&mut self) {
        let peer = &mut *self.peer;
        peer.sign = sign::CONFIRMED;
        peer.heard = 1;
        peer.counters.frames_received += 1;
        peer.counters.handled += 1;
    }
}

impl Memory<'_> {
    /// Takes a frame, if it is one of those; false: nothing was done.
    #[inline(always)]
    pub(crate) fn receive_straight(
        &mut self,
        now: Nanoseconds,
        index: u32,
        frame: &[u8],
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) -> bool {
        if frame.len() > (HEAD + STRAIGHT) * 8 {
            return false;
        }
        let Ok([first, token, head, words @ ..]) = bytemuck::try_cast_slice::<u8, u64>(frame) else { return false };
        let (first, token, head) = (u64::from_le(*first), u64::from_le(*token), u64::from_le(*head));
        let Some(mut straight) = Sides::straight(self, index) else { return false };
        let (task, handler, count) = (head as u8, (head >> 8) as u8, (head >> 16) as u8);
        // A token of 0 stands for no connection; a message without data and flags, and nothing behind it.
        let usual = first as u32 == PLAIN
            && token != 0
            && token == straight.peer.token
            && head >> 24 == 0
            && usize::from(count) == words.len()
            && straight.is_plain();
        if !usual || cfg!(target_endian = "big") {
            return false;
        }
        let said = (first >> 32) as u32;
        let peer = &mut *straight.peer;
        let message = Message { peer: index, channel: 0, handler, words, data: &[], bulk: None };
        if task == Task::Request as u8 && peer.limit_said != peer.requests_taken {
            if !straight.accept(said) {
                return false;
            }
            let peer = &mut *straight.peer;
            peer.requests_taken = peer.requests_taken.wrapping_add(1);
            peer.replies_owed += 1;
            let mut done = false;
            let request = (handler, words);
            dispatch.request(message, Replier { index, sides: self, link, now, done: &mut done, request });
            if let Some(mut straight) = Sides::straight(self, index) {
                straight.note();
                if !done {
                    straight.peer.replies_owed = straight.peer.replies_owed.saturating_sub(1);
                }
                let news = straight.limit().wrapping_sub(straight.peer.limit_said) as i32;
                if news >= (straight.shared.config.replies / 2).max(1) as i32 {
                    straight.shared.mark_busy(index);
                }
            }
            return true;
        }
        if task == Task::Reply as u8 && peer.requests_sent != peer.replies_received {
            if !straight.accept(said) {
                return false;
            }
            straight.peer.replies_received = straight.peer.replies_received.wrapping_add(1);
            straight.note();
            dispatch.reply(message);
            return true;
        }
        false
    }
}
