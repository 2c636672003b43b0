//! Receive posting (Fast Sockets, section 3.3): a call that waits for bytes, and drives while it does, has them copied from the
//! frames into its own buffer. The ring between is only told, once in a turn, that they passed.
//!
//! Only the turns of the waiting thread itself know of its buffer. They are sections, so no handler of the program ever
//! finds a buffer posted that belongs to the call which it interrupted.

use super::local_station::LocalStation;
use super::pump::Rings;
use core::sync::atomic::Ordering;
use shunt_am::Data;
use shunt_segment::channel::{arm, state};
use shunt_station::Stream;
use shunt_stream::locks::Locked;
use shunt_stream::progress::Posting;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::user;

/// Sockets whose bytes take the ring: others may want to see them wait, or a receive is more than taking them.
const UNUSUAL: u32 = flag::SHARED | flag::ASYNC | flag::TIMESTAMPS | flag::SLOW_RECEIVE | flag::HUNG_UP | flag::SHUT_RD;
/// The same, said in the side's state.
const OVER: u32 = state::DONE | state::PEER_GONE | state::RESET_DUE | state::PIPE_DUE | state::SHUT_RD;

/// A frame with fewer bytes of a stream than that is a message of its own, rather than one of many.
const SHORT: usize = 512;

/// What a turn does with the posted buffer.
pub(super) trait Receive {
    /// Whether nothing more is to be waited for: the buffer is full, or holds a short message.
    fn is_content(&self) -> bool;
    /// Takes the first of the bytes that came for `stream`, if they are the next ones to be received; gives their number.
    ///
    /// Where the buffer faults, what this turn brought goes by the ring: a call gets all that came together or EFAULT.
    fn take(&mut self, local: &LocalStation, stream: Stream, data: &Data<'_>) -> usize;
    /// What this turn brought is received, or waits in the ring. Before anything else of the stream is told.
    fn settle(&mut self, local: &LocalStation);
}

/// The steps of these.
trait Step {
    fn receiver(&self, local: &LocalStation, stream: Stream) -> Option<(Locked, &'static Socket)>;
    fn hand_over(&mut self, local: &LocalStation, socket: &Socket);
    fn by_ring(&mut self, local: &LocalStation);
}

impl Receive for Posting {
    fn is_content(&self) -> bool {
        let filled = self.taken + self.held;
        filled > 0 && (filled == self.room || self.short)
    }

    fn take(&mut self, local: &LocalStation, stream: Stream, data: &Data<'_>) -> usize {
        let filled = self.taken + self.held;
        if filled == self.room || (self.held > 0 && self.stream != stream) {
            return 0;
        }
        let receiver = if self.held == 0 { self.receiver(local, stream) } else { None };
        if self.held == 0 && receiver.is_none() {
            return 0;
        }
        let (mut count, mut faulted) = (0, false);
        data.each(&mut |at, length| {
            let part = length.min(self.room - filled - count);
            // SAFETY: the frame's bytes are valid; the buffer may be anything.
            faulted = !unsafe { user::copy(at, self.data.wrapping_add(filled + count), part) };
            count += part;
            !faulted && part == length
        });
        (self.stream, self.short) = (stream, data.len() < SHORT);
        if faulted {
            self.room = filled;
            self.by_ring(local);
            return 0;
        }
        self.held += count;
        if let Some((_held, socket)) = receiver.filter(|_| self.is_content()) {
            self.hand_over(local, socket);
        }
        count
    }

    fn settle(&mut self, local: &LocalStation) {
        if self.held == 0 {
            return;
        }
        match self.receiver(local, self.stream) {
            Some((_held, socket)) => self.hand_over(local, socket),
            None => self.by_ring(local),
        }
    }
}

impl Step for Posting {
    /// The stream's near side, locked, if it is the call's and what comes next may go into the buffer.
    fn receiver(&self, local: &LocalStation, stream: Stream) -> Option<(Locked, &'static Socket)> {
        let socket = local.near(stream).filter(|socket| core::ptr::eq(*socket, self.socket))?;
        let held = socket.try_lock_receive()?;
        let usual = !socket.has(UNUSUAL)
            && socket.generation.load(Ordering::Acquire) == self.generation
            && socket.own().receive.state.load(Ordering::Acquire) & OVER == 0
            && local.far(stream).own().urgent.load(Ordering::Relaxed) == 0
            && socket.incoming().look().1 == 0;
        usual.then_some((held, socket))
    }

    /// What this turn brought is received, of the socket that is the call's and locked.
    #[inline(always)]
    fn hand_over(&mut self, local: &LocalStation, socket: &Socket) {
        local.far(self.stream).outgoing().hand_over(self.held);
        socket.incoming().pass(self.held);
        self.taken += core::mem::take(&mut self.held);
    }

    /// What this turn brought goes into the ring after all.
    fn by_ring(&mut self, local: &LocalStation) {
        let held = core::mem::take(&mut self.held);
        if held == 0 {
            return;
        }
        let (mut done, pump) = (0, Rings::of(local));
        while done < held {
            // SAFETY: the buffer, which another thread may have unmapped since; the station's lock is this side's sending lock.
            match unsafe { local.far(self.stream).outgoing().send(self.data.wrapping_add(self.taken + done), held - done) } {
                0 => return pump.refuse(self.stream),
                put => done += put,
            }
        }
        pump.tell(self.stream, arm::IN);
    }
}
