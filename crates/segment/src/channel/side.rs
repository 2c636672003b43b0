//! One end of a connection: its lines, its owners, and how it becomes as fresh memory is.

use super::{arm, Post, Receive, Transmit, Wait};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Places for owners of one side; more of them are only counted.
pub const FAMILY: usize = 16;

/// Bits of [`Side::stamp`] that hold a position: more than any ring holds.
pub const STAMP_POSITION: u32 = 24;

/// Coding of [`Side::urgent`], a position and these bits; 0: none was sent.
pub mod urgent {
    /// Set in every valid word.
    pub const VALID: u64 = 1 << 63;
    /// In [`super::Side::urgent_taken`]: the reader has gone past the byte of this word.
    pub const PASSED: u64 = 1 << 62;
    /// In [`super::Side::urgent_taken`]: the byte of this word was received with MSG_OOB.
    pub const READ: u64 = 1 << 61;
}

/// One end of a connection.
#[repr(C)]
pub struct Side {
    /// Announces, carries and acknowledges.
    pub post: Post,
    /// Where changes of class happened, by their number modulo 8: position, the class before it and the number, with the
    /// shifts of [`super::word`].
    pub borders: [AtomicU64; 8],
    /// Sending state.
    pub transmit: Transmit,
    /// Receiving state.
    pub receive: Receive,
    /// Waiting state.
    pub wait: Wait,
    /// Processes that own this side's descriptors, as far as counted.
    pub owners: AtomicU32,
    /// The process that opened this side (as the kernel tells its peer).
    pub pid: AtomicU32,
    /// Set once this side's last owner closed it, to give the channel back ([`release`]).
    pub released: AtomicU32,
    /// AF_INET or AF_INET6; above 16 bits IPPROTO_MPTCP, or 0 for TCP.
    pub address_family: AtomicU32,
    /// The newest urgent byte that this side sent: [`urgent::VALID`] and its position in the stream.
    pub urgent: AtomicU64,
    /// What this side did with the peer's urgent byte: a copy of the peer's word, and [`urgent`] bits.
    pub urgent_taken: AtomicU64,
    /// Processes that own this side besides the first, or with it after a fork; 0: an empty place. A count alone would
    /// never come down when one of them is killed.
    pub family: [AtomicU32; FAMILY],
    /// An urgent byte that a newer one overtook while the reader stood before it: [`urgent::VALID`] and its position.
    pub urgent_lost: AtomicU64,
    /// When this side last rang the peer's bell: CLOCK_REALTIME in ns; kept only for a peer that asks ([`Side::asks_time`]).
    pub rung_at: AtomicU64,
    /// 1: this side reports when bytes arrived (SO_TIMESTAMP), so the peer is to note when it rings.
    pub asks_time: AtomicU32,
    /// SO_RCVBUF as the program set it (and the kernel doubled it); 0: never set.
    pub receive_buffer: AtomicU32,
    /// When bytes, or the end, last arrived that nothing unread stood before, if the peer asks for it ([`arm::STAMP`]): the
    /// sender's ticks, and in the low [`STAMP_POSITION`] bits the position behind them, where an end counts as a byte.
    pub stamp: AtomicU64,
    _reserved: [u64; 8 - FAMILY / 2],
}

impl Side {
    /// Enters process `pid` among the owners, once.
    pub fn join(&self, pid: u32) {
        if self.has(pid) {
            return;
        }
        for place in &self.family {
            if place.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Whether process `pid` is entered among the owners.
    pub fn has(&self, pid: u32) -> bool {
        self.family.iter().any(|place| place.load(Ordering::Relaxed) == pid)
    }

    /// Takes process `pid` out.
    pub fn part(&self, pid: u32) {
        // As a rule no process was entered: sixteen looks cost less than one locked instruction.
        if self.family.iter().fold(0, |all, place| all | place.load(Ordering::Relaxed)) == 0 {
            return;
        }
        for place in &self.family {
            let _ = place.compare_exchange(pid, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Whether all of `count` remaining owners are entered here, and `alive` says of none that it lives.
    pub fn orphaned(&self, count: u32, alive: impl Fn(u32) -> bool) -> bool {
        let mut entered = 0;
        for place in &self.family {
            let pid = place.load(Ordering::Acquire);
            if pid != 0 {
                entered += 1;
                if alive(pid) {
                    return false;
                }
            }
        }
        entered >= count
    }

    /// A side for a model: its atomics are not plain memory.
    #[cfg(loom)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Side {
        let (narrow, wide) = (|| AtomicU32::new(0), || AtomicU64::new(0));
        Side {
            post: Post { word: wide(), ack: wide(), inline: core::array::from_fn(|_| wide()) },
            borders: core::array::from_fn(|_| wide()),
            transmit: Transmit {
                lock: narrow(),
                rung: narrow(),
                switch: wide(),
                acked: wide(),
                small: narrow(),
                class_limit: narrow(),
                blocked: narrow(),
                send_buffer: narrow(),
                word: wide(),
                written: narrow(),
                broken: narrow(),
                later_stamp: wide(),
            },
            receive: Receive {
                position: wide(),
                lock: narrow(),
                taken: narrow(),
                class: narrow(),
                switch: narrow(),
                state: narrow(),
                holder: narrow(),
                noted_from: wide(),
                held: wide(),
            },
            wait: Wait {
                armed: narrow(),
                sleepers: narrow(),
                processor: narrow(),
                style: narrow(),
                held: wide(),
                held_until: wide(),
            },
            owners: narrow(),
            pid: narrow(),
            released: narrow(),
            address_family: narrow(),
            urgent: wide(),
            urgent_taken: wide(),
            family: core::array::from_fn(|_| narrow()),
            urgent_lost: wide(),
            rung_at: wide(),
            asks_time: narrow(),
            receive_buffer: narrow(),
            stamp: wide(),
            _reserved: [0; 8 - FAMILY / 2],
        }
    }

    /// Makes the side as fresh memory is, for a connection with a companion of its own. For a process that gives out a channel
    /// that is not in use.
    pub fn clear(&self) {
        self.clear_for_next();
        for word in [&self.transmit.rung, &self.transmit.written, &self.receive.taken] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Makes the side as fresh memory is, but for the count of bells, as the companion goes on, for when it held bytes back, and for
    /// where its process last ran: a thread that waits before the connection is accepted looks there. If the side slept in the
    /// channel's last connection its peer fences from the first message of the next one on, so that a connection of a few messages
    /// has no barrier.
    pub fn clear_for_next(&self) {
        let (transmit, receive, wait) = (&self.transmit, &self.receive, &self.wait);
        let slept = wait.armed.load(Ordering::Relaxed) >= arm::ONE_ARMING;
        wide([&self.post.word, &self.post.ack, &transmit.switch, &transmit.acked, &transmit.word, &receive.position]);
        wide(self.borders.each_ref());
        narrow([&transmit.lock, &transmit.small, &transmit.class_limit, &transmit.blocked]);
        narrow([&transmit.send_buffer, &transmit.broken]);
        narrow([&receive.lock, &receive.class, &receive.switch, &receive.state, &receive.holder]);
        narrow([&wait.armed, &wait.sleepers, &wait.style]);
        narrow(self.family.each_ref());
        wide([&wait.held, &receive.noted_from, &receive.held]);
        wide([&self.urgent, &self.urgent_taken, &self.urgent_lost, &self.rung_at, &self.stamp, &transmit.later_stamp]);
        narrow([&self.asks_time, &self.receive_buffer, &self.owners, &self.pid, &self.released, &self.address_family]);
        if slept {
            wait.armed.store(arm::FENCE, Ordering::Relaxed);
        }
    }
}

/// Clears words whose number is known when the code is compiled: a store for each, and no loop. Each connection that is made in
/// memory does this to both of its sides.
#[inline(always)]
fn wide<const COUNT: usize>(words: [&AtomicU64; COUNT]) {
    words.into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
}

/// As [`wide`].
#[inline(always)]
fn narrow<const COUNT: usize>(words: [&AtomicU32; COUNT]) {
    words.into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
}

/// Values of [`Side::released`].
pub mod release {
    /// The side is in use.
    pub const NOT: u32 = 0;
    /// The side was closed.
    pub const CLOSED: u32 = 1;
    /// The side was closed, and its companion kept for another connection.
    pub const KEPT: u32 = 2;
}
