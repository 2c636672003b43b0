//! What a stream has besides what every socket has, and besides the line that each send and receive reads.

use super::calling::Calls;
use super::names::Names;
use super::parts::{Restraint, Stalled};
use super::Socket;
use crate::loans::Loans;
use crate::seen::Seen;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// A stream's part of a socket.
pub struct Connected {
    /// A handler was told that both directions have ended, or is not to be ([`crate::waiting::owner::say_cause`]): 1.
    pub end_told: AtomicU32,
    /// Sleeps since the last run of waits that ended awake; see `wake::announce`.
    pub sleeps: AtomicU32,
    /// Waits that ended awake since the last sleep.
    pub spins: AtomicU32,
    /// Bells that were found missing ([`crate::waiting::bypass`]).
    pub missed: AtomicU32,
    /// Bells that were counted when many were looked for, and neither lay on the companion nor were taken ([`crate::waiting::bells`]).
    pub astray: AtomicU32,
    /// When sending and receiving were last seen to have moved bytes.
    pub seen_sending: Seen,
    /// See [`Connected::seen_sending`].
    pub seen_receiving: Seen,
    /// Since when the peer takes nothing.
    pub stalled: Stalled,
    /// Until when a sender of files waits for the reader.
    pub restraint: Restraint,
    /// Sends with MSG_ZEROCOPY so far, and how many of them the error queue has told.
    pub zero_copies: AtomicU32,
    /// See [`Connected::zero_copies`].
    pub zero_copies_reported: AtomicU32,
    /// What it knows of bytes that go by reference.
    pub loans: Loans,
    /// The stream that it was until it became the kernel's, whose object and channel stay what they are as long as calls of other threads may
    /// look at them; and the process in which that is so.
    pub stands_for: AtomicPtr<Socket>,
    /// See [`Connected::stands_for`].
    pub stands_in: AtomicU32,
    /// Which version of the side's options ([`Socket::settings`]) they are.
    pub settings_seen: AtomicU32,
    /// How much was received when that was asked, modulo 2^32.
    pub received_at_check: AtomicU32,
    /// When this process last shut it down, in ticks; 0: never.
    pub changed_at: AtomicU64,
    /// Counts what this process did to the stream that edge-triggered sets hear of: each shutdown wakes them.
    pub changes: AtomicU32,
    /// The same of what is as the arrival of bytes: SO_RCVLOWAT was set, and what is there is enough.
    pub enough: AtomicU32,
    /// The number under which a tool was told of the connection; 0: none yet ([`crate::tap`]).
    pub tapped: AtomicU32,
    /// The position up to which it was told what was sent, plus one; 0: of nothing yet.
    pub tapped_sent: AtomicU64,
    /// Which capture these are for.
    pub tapped_by: AtomicU32,
    /// Both addresses, as they were known when the stream came about: in its channel the peer may change them.
    pub(super) names: Names,
    /// Calls with data under way before it is settled what it becomes.
    pub(super) calls: Calls,
    /// The thread that makes, or made, a stream of it ([`super::introduced`]).
    pub introducer: AtomicU32,
    /// The process of that thread.
    pub introduced_in: AtomicU32,
    /// Index of the link in this process's list.
    pub link_index: AtomicU32,
}

impl Connected {
    /// As a fresh socket's. What is missing here is set when it is attached to a channel.
    pub(super) fn reset(&self) {
        self.link_index.store(u32::MAX, Ordering::Relaxed);
        self.stands_for.store(core::ptr::null_mut(), Ordering::Relaxed);
        self.changed_at.store(0, Ordering::Relaxed);
        let words = [&self.changes, &self.enough, &self.sleeps, &self.spins, &self.zero_copies, &self.zero_copies_reported];
        words.into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.seen_sending.reset();
        self.seen_receiving.reset();
        self.stalled.reset();
        self.loans.reset();
        self.restraint.reset();
    }
}
