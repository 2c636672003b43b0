//! How much room a sender has: what the peer has received, what is still under way, and what SO_SNDBUF allows of the rest.

use super::{class_of, distance, switch_of, Pipe, POSITION};
use shunt_segment::area::REFERRED;
use shunt_segment::channel::{word, Side};
use shunt_segment::sync::Ordering::{Acquire, Relaxed};

/// Window that Linux offers with the default SO_RCVBUF of 131,072 (tcp_rmem, tcp_adv_win_scale).
const WINDOW: usize = 64 << 10;

/// Whether `ack` acknowledges bytes behind the position of `current`. Under the sending lock only a peer that writes
/// nonsense does: it would make an endless send succeed for ever, even to a peer that is dead.
#[inline(always)]
pub(super) fn ahead(current: u64, ack: u64) -> bool {
    distance(ack, current & POSITION) >= 1 << 47
}

fn window(receiver: &Side) -> usize {
    match receiver.receive_buffer.load(Relaxed) {
        0 => WINDOW,
        set => set as usize / 2,
    }
}

impl Pipe<'_> {
    /// Bytes that may be under way in a ring of `size`: all that fit, or fewer if the program set SO_SNDBUF.
    #[inline(always)]
    pub(crate) fn room_of(&self, size: usize) -> usize {
        match self.own.transmit.send_buffer.load(Relaxed) {
            0 => size,
            set => size.min(self.room_for(set)),
        }
    }

    /// Of the `free` bytes of the current ring those that SO_SNDBUF allows: unread ones in smaller rings count, too.
    #[cold]
    pub(super) fn allowed(&self, free: usize, current: u64, ack: u64) -> usize {
        let room = self.room_for(self.own.transmit.send_buffer.load(Relaxed)) as u64;
        free.min(room.saturating_sub(self.unread(current, ack)) as usize)
    }

    /// What the kernel would hold: three quarters of SO_SNDBUF (the rest goes to its structures), and the peer's window.
    #[cold]
    pub(super) fn room_for(self, send_buffer: u32) -> usize {
        send_buffer as usize / 4 * 3 + self.window_of_peer()
    }

    /// Bytes that the peer's kernel would hold for it: half of SO_RCVBUF.
    pub fn window_of_peer(&self) -> usize {
        window(self.peer)
    }

    /// Bytes that this receiver's kernel would hold for it.
    pub fn own_window(&self) -> usize {
        window(self.own)
    }

    /// The newest position up to which the peer has received, as far as known without touching its receiving line.
    /// Acquire pairs with the Release of the peer's [`Pipe::publish`]: what it acknowledges it has finished reading.
    ///
    /// Acknowledgements are counted without wrap, so the larger one is the newer one, however old the other is: a peer
    /// that only receives never posts any. A hostile peer can only make us believe in a wrong position; that is harmless
    /// to us because offsets are masked and lengths bounded by the ring.
    #[inline(always)]
    pub(crate) fn known_ack(&self) -> u64 {
        let cached = self.own.transmit.acked.load(Relaxed);
        let posted = self.peer.post.ack.load(Acquire);
        cached.max(posted) & POSITION
    }

    /// Reads the peer's receiving position itself: one line transfer. Pairs with the Release in [`Pipe::consume`].
    ///
    /// Never less than [`Pipe::known_ack`], whatever the peer writes: else a poll could promise space, by the one, that a
    /// send does not find, by the other, and a sender would turn round for ever.
    #[inline(never)]
    pub(super) fn refresh_ack(&self) -> u64 {
        let cached = self.own.transmit.acked.load(Relaxed).max(self.peer.post.ack.load(Acquire));
        let position = self.peer.receive.position.load(Acquire);
        if position > cached {
            self.own.transmit.acked.store(position, Relaxed);
        }
        position.max(cached) & POSITION
    }

    /// Bytes up to the position of `current` that the peer has not received when it has received up to `ack`. A caller
    /// without the sending lock may hold a word that is older than the acknowledgement: then none.
    #[inline(always)]
    pub(super) fn unread(&self, current: u64, ack: u64) -> u64 {
        let unread = distance(ack, current & POSITION);
        if unread < 1 << 47 {
            unread
        } else {
            0
        }
    }

    /// How many bytes were sent since the last change of class if the peer has not yet received all from before it.
    ///
    /// The border is a position on the circle, which the stream passes again after 2^48 bytes: once passed it is marked
    /// ([`word::SETTLED`]), and class 0 needs none because only an empty ring returns to it. The number tells a change
    /// that took effect from one that a killed sender prepared and never announced.
    #[inline(always)]
    fn since_border(&self, current: u64, ack: u64) -> Option<u64> {
        let switch = self.own.transmit.switch.load(Relaxed);
        if class_of(current) == 0 || switch & word::SETTLED != 0 || switch_of(switch) != switch_of(current) {
            return None;
        }
        let since = distance(switch & POSITION, current & POSITION);
        (since < self.unread(current, ack)).then_some(since)
    }

    /// Whether the ring of `current` holds bytes that the peer has not received from before another ring was used: the sender
    /// left it ([`Pipe::fill`]) and came back. Then no byte may come to lie a whole ring ahead of the oldest.
    #[cold]
    #[inline(never)]
    fn has_older_bytes(&self, current: u64, ack: u64) -> bool {
        self.is_class_unread(class_of(current), current, ack)
    }

    /// Whether the ring of `class` holds bytes that the peer has not received from before the last change of class.
    pub(super) fn is_class_unread(&self, class: usize, current: u64, ack: u64) -> bool {
        let mut number = switch_of(current);
        for _ in 0..8 {
            let border = self.own.borders[number as usize].load(Relaxed);
            let ahead = distance(ack, border & POSITION);
            if switch_of(border) != number || ahead == 0 || ahead >= 1 << 47 {
                return false;
            }
            if class_of(border) == class {
                return true;
            }
            number = number.wrapping_sub(1) & 7;
        }
        false
    }

    /// Whether all that the peer has not received lies in the ring of `current`.
    pub(super) fn is_settled(&self, current: u64, ack: u64) -> bool {
        self.since_border(current, ack).is_none()
    }

    /// Marks the last border as passed when it is; the caller holds the sending lock.
    #[inline(always)]
    pub(super) fn settle(&self, current: u64, ack: u64) {
        let switch = self.own.transmit.switch.load(Relaxed);
        if switch & word::SETTLED == 0 && self.since_border(current, ack).is_none() {
            self.own.transmit.switch.store(switch | word::SETTLED, Relaxed);
        }
    }

    /// Bytes that fit now into the current class when the peer has received up to `ack`: never more than the ring.
    #[inline(always)]
    pub(super) fn space(&self, current: u64, ack: u64) -> usize {
        let used = match self.since_border(current, ack) {
            Some(since) if !self.has_older_bytes(current, ack) => since,
            _ => self.unread(current, ack),
        };
        let free = (Self::size(class_of(current)) as u64).saturating_sub(used) as usize;
        if self.own.transmit.send_buffer.load(Relaxed) == 0 {
            free
        } else {
            self.allowed(free, current, ack)
        }
    }

    /// Free space as poll(2) sees it, without growing: (free bytes, size of the ring).
    pub fn writable(&self) -> (usize, usize) {
        let current = self.announced();
        if class_of(current) == REFERRED {
            return self.writable_behind(current, self.refresh_ack());
        }
        let size = self.room_of(Self::size(class_of(current)));
        let mut free = self.space(current, self.known_ack());
        if free * 3 < size {
            free = self.space(current, self.refresh_ack());
        }
        // The limit lies in shared memory, and may be another one by now.
        (free.min(size), size)
    }

    /// Bytes sent that the peer did not receive yet.
    pub fn unacknowledged(&self) -> u64 {
        let current = self.announced();
        self.unread(current, self.refresh_ack())
    }

    /// The position up to which the peer has received. It only grows, where what is unread may be the same again after each
    /// refill.
    pub fn taken(&self) -> u64 {
        self.refresh_ack()
    }

    /// As [`Pipe::unacknowledged`], as far as known without touching the peer's receiving line: perhaps too many.
    pub fn unacknowledged_at_most(&self) -> u64 {
        self.unread(self.announced(), self.known_ack())
    }

    /// Whether the peer acknowledges what was never sent; the caller holds the sending lock.
    #[cold]
    pub fn deceived(&self) -> bool {
        ahead(self.announced(), self.refresh_ack())
    }
}
