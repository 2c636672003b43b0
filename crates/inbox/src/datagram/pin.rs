//! Why a socket's datagrams come through the kernel, even while the receiver is awake: bits of [`Datagram::pins`]. As long as one is set the
//! gate of the inbox is shut.

use super::{flag, Datagram};
use core::sync::atomic::Ordering;
use shunt_segment::reason::Reason;
use shunt_table::process::status_page;
use shunt_table::table;

/// An option that asks for more than bytes and addresses.
pub const OPTION: u32 = 1 << 0;
/// O_ASYNC: the kernel must see each arrival.
pub const ASYNC: u32 = 1 << 1;
/// In an epoll set that other processes have, too, or that shares its events out.
pub const SET: u32 = 1 << 2;
/// A program that may not know of us has the descriptor, too.
pub const ELSEWHERE: u32 = 1 << 3;
/// shutdown(2).
pub const SHUT: u32 = 1 << 4;
/// In an epoll set that a child has since a fork: until it is gone or has exec'd.
pub const FORK: u32 = 1 << 5;
/// Another process owns the socket, too, since a fork (AF_UNIX).
pub const FORKED: u32 = 1 << 6;

impl Datagram {
    /// From now on the kernel carries what comes, until [`Datagram::unpin`]. What waits in the inbox stays there.
    pub fn pin(&'static self, why: u32) {
        let before = self.pins.fetch_or(why, Ordering::SeqCst);
        if before == 0 {
            if let Some(inbox) = self.inbox() {
                self.flags.fetch_or(flag::GATE_PINNED, Ordering::Relaxed);
                inbox.pin();
            }
            self.note(if self.is_local() { Reason::LocalPinned } else { Reason::DatagramsPinned });
        }
    }

    /// Tells tools what carries the socket's datagrams.
    pub(super) fn note(&'static self, reason: Reason) {
        for fd in table::numbers() {
            if shunt_table::table::find::<Datagram>(fd).is_some_and(|socket| core::ptr::eq(socket, self)) {
                status_page::note(fd, self.row().0, reason, None);
            }
        }
    }

    /// Takes a reason back.
    pub fn unpin(&self, why: u32) {
        let before = self.pins.fetch_and(!why, Ordering::SeqCst);
        if before != 0 && before & !why == 0 {
            self.take_off(flag::GATE_PINNED);
            self.let_in();
        }
    }

    /// Takes a pin off the gate, if `bit` says that it is there.
    pub fn take_off(&self, bit: u32) {
        if let (true, Some(inbox)) = (self.flags.fetch_and(!bit, Ordering::SeqCst) & bit != 0, self.inbox()) {
            inbox.unpin();
        }
    }

    /// Whether a thread began to sleep, or to pin, that knows nothing of the inbox: none that comes now does.
    pub fn has_strangers(&self) -> bool {
        [&self.sleeping, &self.pins, &self.cold].iter().any(|count| count.load(Ordering::SeqCst) != 0)
    }

    /// An inbox that was made while a thread slept opens when none does any more.
    #[inline]
    pub(super) fn let_in(&self) {
        if self.has(flag::BORN_SHUT) && !self.has_strangers() {
            self.take_off(flag::BORN_SHUT);
        }
    }
}
