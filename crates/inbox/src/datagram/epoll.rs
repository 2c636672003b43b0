//! A datagram socket in epoll sets.
//!
//! The kernel's set watches the socket as it is. While threads of this process alone wait in a set, and none of them
//! sleeps there, the set is *warm* for the socket: senders may write into its inbox, and the set looks there. Before a thread
//! sleeps the set grows *cold*: the gate is pinned, so that each datagram is an event of the kernel's.

use super::{flag, Datagram};
use core::sync::atomic::Ordering;
use shunt_sys::{calls, libc};

/// What a set did to the gate, as each of its entries remembers it.
pub mod gate {
    /// Nothing.
    pub const WARM: u32 = 0;
    /// It counts as a sleeper; there was no inbox yet.
    pub const COUNTED: u32 = 1;
    /// And pinned the gate.
    pub const PINNED: u32 = 2;
}

impl Datagram {
    /// A set that was warm grows cold. What lies in the inbox afterwards lay there before: the caller looks once more.
    pub fn cool(&self) -> u32 {
        // An inbox that another thread makes meanwhile stays shut: see `inbox_table::make`.
        self.cold.fetch_add(1, Ordering::SeqCst);
        match self.inbox() {
            Some(inbox) => {
                inbox.pin();
                gate::PINNED
            }
            None => gate::COUNTED,
        }
    }

    /// A set is warm again; `how` is what [`Datagram::cool`] gave.
    pub fn warm(&self, how: u32) {
        if how == gate::WARM {
            return;
        }
        self.cold.fetch_sub(1, Ordering::SeqCst);
        if let (gate::PINNED, Some(inbox)) = (how, self.inbox()) {
            inbox.unpin();
        }
        self.let_in();
    }

    /// Changes with each datagram that arrives in the inbox.
    pub fn arrivals(&self) -> u64 {
        self.inbox().map_or(0, |inbox| inbox.arrivals())
    }

    /// The processor that the last sender ran on, plus one; 0: unknown.
    pub fn peer_processor(&self) -> u32 {
        self.peer_processor.load(Ordering::Relaxed)
    }

    /// What poll(2) says beside `found`, which is known of the inbox: space, and errors that an own datagram brought.
    pub fn rest(&self, fd: i32, asked: u32, found: u32) -> u32 {
        let more = asked & !(found | (libc::EPOLLERR | libc::EPOLLHUP) as u32);
        if more == 0 && !self.may_have_error() {
            return 0;
        }
        calls::poll_one(fd, more as i16, 0).map_or(0, |events| events as u16 as u32 & asked)
    }

    /// From now on sending is the kernel's: it tells a set of each datagram that has left.
    pub fn send_plainly(&self) {
        self.flags.fetch_or(flag::SEND_PLAIN, Ordering::Relaxed);
    }
}
