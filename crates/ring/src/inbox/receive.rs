//! Taking datagrams out, and looks at the kernel's queue beside them.

use super::record::Front;
use super::Inbox;
use crate::lock;
use core::sync::atomic::Ordering;
use shunt_segment::inbox::{mark, POSITION};

impl Inbox {
    /// The oldest datagram.
    #[inline(always)]
    pub fn front(&self) -> Option<Front> {
        self.at(self.header().head.load(Ordering::SeqCst) & POSITION)
    }

    /// Whether the oldest datagram, seen while the gate is shut, stays until a receiver takes it: only then may a poll or a set tell of it. A sender that
    /// finds the gate shut behind its datagram takes that back, which it decides under the senders' lock. `me` and `pause` as in [`Inbox::post`].
    #[cold]
    pub fn stays(&self, me: u32, pause: impl FnMut(u32)) -> bool {
        // Without the lock where this very thread has it, and asks in a signal's handler.
        let Some(held) = lock::acquire(&self.header().lock, me, false, pause) else { return true };
        drop(held);
        self.front().is_some()
    }

    /// The datagram at `position`, if one begins there.
    #[inline(always)]
    pub(crate) fn at(&self, position: u64) -> Option<Front> {
        let first = self.word(position).load(Ordering::SeqCst);
        if first & !mark::ALL != position || first & mark::PRESENT == 0 {
            return None;
        }
        Some(self.read(position, first))
    }

    /// Copies the first bytes of the datagram into `pieces`; gives how many were copied, `None` if a piece faults.
    ///
    /// # Safety
    /// The pieces are the program's.
    #[inline(always)]
    pub unsafe fn copy(&self, front: &Front, pieces: impl Iterator<Item = (*mut u8, usize)>) -> Option<usize> {
        let mut done = 0;
        for (data, room) in pieces {
            if done == front.length {
                break;
            }
            let size = room.min(front.length - done);
            // SAFETY: the piece is writable or faults, and no datagram is longer than the ring.
            if !unsafe { self.ring().get(front.payload.wrapping_add(done as u64), data, size) } {
                return None;
            }
            done += size;
        }
        Some(done)
    }

    /// Takes the datagram: false if another receiver, or its sender, took it meanwhile.
    #[inline(always)]
    pub fn take(&self, front: &Front) -> bool {
        self.header().head.compare_exchange(front.position, front.next, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Whether the datagram still is the oldest: what was copied is what it held.
    pub fn still(&self, front: &Front) -> bool {
        self.header().head.load(Ordering::SeqCst) == front.position
    }

    /// Nobody could take `front`: another receiver was quicker, as a rule. But where the head holds more than a position, which a sender
    /// alone can have written that garbles what it shares, nobody ever could, and a receiver of datagrams would try for ever.
    #[cold]
    pub fn straighten(&self, front: &Front) {
        let head = &self.header().head;
        let now = head.load(Ordering::SeqCst);
        if now != front.position && now & POSITION == front.position {
            let _ = head.compare_exchange(now, front.position, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    /// Whether the kernel's queue may have its turn before `front`: no sender went there while older records lay here.
    pub fn may_yield(&self, front: &Front) -> bool {
        front.position >= self.header().barrier.load(Ordering::SeqCst)
    }

    /// A receiver is about to look at the kernel's queue: the number of this look.
    pub fn begin_look(&self) -> u64 {
        self.header().looks.fetch_add(1, Ordering::SeqCst).wrapping_add(1)
    }

    /// Look number `look` found the kernel's queue empty: senders may come back if all that used the kernel did so before.
    pub fn note_drained(&self, look: u64) {
        let behind = &self.header().behind;
        let due = behind.load(Ordering::SeqCst);
        if due != 0 && look >= due {
            let _ = behind.compare_exchange(due, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    /// Position of the newest datagram's end, as senders say: changes with each arrival.
    pub fn arrivals(&self) -> u64 {
        self.header().tail.load(Ordering::Acquire)
    }
}
