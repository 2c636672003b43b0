//! What a listener has besides what every socket has. Fields are written by the crates above, which know what they mean.

use crate::socket::option_history::History;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// A listener's part of a socket.
pub struct Listening {
    /// Private flags ([`super::flag::Listener`]).
    pub flags: AtomicU32,
    /// A descriptor for the bells of clients (`shunt_rendezvous::reconnect::server`). -1: none.
    pub bells_fd: AtomicI32,
    /// The set in which accept sleeps beside other processes (`shunt_rendezvous::accept`). -1: none.
    pub accepting_fd: AtomicI32,
    /// The rendezvous of one that does not listen yet, if another process may (`shunt_rendezvous::listen::promise`). -1: none.
    pub promised_fd: AtomicI32,
    /// The backlog.
    pub backlog: AtomicU32,
    /// Others have it, if at all, by forks alone (`shunt_rendezvous::listen::sharing`): 1.
    pub only_forked: AtomicU32,
    /// Whether its connections are known to be this process's user's (`shunt_table::process::users`): 1.
    pub claimed: AtomicU32,
    /// Clients may offer connections in memory: 1.
    pub offering: AtomicU32,
    /// TCP_DEFER_ACCEPT, in seconds; 0: off (`shunt_rendezvous::accept::deferred`).
    pub defers: AtomicU32,
    /// Since when, in ticks.
    pub defers_since: AtomicU64,
    /// Tells when a deferred client is due. -1: none.
    pub timer_fd: AtomicI32,
    /// What it is set to, CLOCK_MONOTONIC in ns; 0: nothing.
    pub timer_at: AtomicU64,
    /// The port.
    pub port: AtomicU32,
    /// Whether it, or a socket that was accepted from one and dissolved, is bound to an address, and not to all: 1.
    pub at_address: AtomicU32,
    /// The network namespace: 0, or one that was left since ([`shunt_table::route::leaving`]).
    pub namespace: AtomicU32,
    /// The inode, which clients know it by.
    pub inode: AtomicU64,
    /// Calls of accept since the kernel's queue had its turn.
    pub accepts: AtomicU32,
    /// What its options were earlier; null: nothing was kept.
    pub earlier: AtomicPtr<History>,
    /// When its options were last changed, as this process knows (`shunt_rendezvous::options::follow`).
    pub options_time: AtomicU64,
}

impl Listening {
    /// As a fresh socket's.
    pub(super) fn reset(&self) {
        for fd in [&self.bells_fd, &self.timer_fd, &self.accepting_fd, &self.promised_fd] {
            fd.store(-1, Ordering::Relaxed);
        }
        let words = [
            &self.flags,
            &self.defers,
            &self.backlog,
            &self.offering,
            &self.only_forked,
            &self.port,
            &self.at_address,
            &self.namespace,
            &self.accepts,
        ];
        words.into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.inode.store(0, Ordering::Relaxed);
    }
}
