//! Sleeping and spinning for datagrams: a thread that sleeps shuts the gate, one that spins opens it.

use super::{flag, inbox_table, Datagram, ENOUGH};
use core::sync::atomic::Ordering;
use shunt_segment::address::Address;
use shunt_sys::libc::POLLIN;
use shunt_sys::{calls, clock};
use shunt_table::{global, sockaddr};

/// A thread that sleeps in the kernel for a socket.
#[derive(Clone, Copy)]
pub struct Sleeper {
    /// The gate was shut for it.
    entered: bool,
    /// The life of the object: another thread may close the socket meanwhile, and the next one may get it.
    generation: u32,
}

impl Sleeper {
    /// As something that a place for events holds; never 0.
    pub fn pack(self, socket: &Datagram) -> i16 {
        (Sleeper::mark(socket, self.generation) << 2) as i16 | (self.entered as i16) << 1 | 1
    }

    /// What [`Sleeper::pack`] made, if that was for this socket as it is now.
    pub fn unpack(socket: &Datagram, packed: i16) -> Option<Sleeper> {
        let generation = socket.generation.load(Ordering::Acquire);
        let same = packed & 1 != 0 && packed as u16 >> 2 == Sleeper::mark(socket, generation);
        same.then_some(Sleeper { entered: packed & 2 != 0, generation })
    }

    /// 14 bits.
    fn mark(socket: &Datagram, generation: u32) -> u16 {
        let which = (socket as *const Datagram as usize as u64 >> 6) ^ (generation as u64) << 32;
        (which.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as u16
    }
}

/// Before a sleep: the gate shuts, until [`after_sleep`] takes this sleeper back.
pub fn before_sleep(socket: &Datagram) -> Sleeper {
    let generation = socket.generation.load(Ordering::Acquire);
    // An inbox that another thread makes meanwhile stays shut: see `inbox_table::make`.
    socket.sleeping.fetch_add(1, Ordering::SeqCst);
    let inbox = socket.inbox();
    if let Some(inbox) = inbox {
        if socket.is_local() {
            inbox_table::visitors(socket, clock::ticks()); // a sender that comes to know it now finds it when the thread is awake
        }
        inbox.enter();
    }
    Sleeper { entered: inbox.is_some(), generation }
}

/// After it.
pub fn after_sleep(socket: &Datagram, sleeper: Sleeper) -> bool {
    if socket.generation.load(Ordering::Acquire) != sleeper.generation {
        return false;
    }
    socket.sleeping.fetch_sub(1, Ordering::SeqCst);
    if let (true, Some(inbox)) = (sleeper.entered, socket.inbox()) {
        inbox.leave();
    }
    socket.let_in();
    reopen(socket);
    true
}

/// A thread that polls is about to spin: senders may write from now on.
pub fn before_spin(fd: i32, socket: &'static Datagram) {
    if socket.inbox().is_none() && socket.worthwhile() {
        inbox_table::make(fd, socket);
    }
    if let Some(inbox) = socket.inbox() {
        if inbox.open() && inbox.is_behind() {
            // Senders that used the kernel wait for this.
            let look = inbox.begin_look();
            if calls::poll_one(fd, POLLIN, 0) == Ok(0) {
                socket.asked.store(clock::ticks(), Ordering::Relaxed);
                inbox.note_drained(look);
            }
        }
        inbox_table::visitors(socket, clock::ticks());
    }
}

/// Whether receivers look for what peers that have only a kernel send: where the option `inet` names ports. What it is left to learn are servers of TCP.
pub(super) fn looks_for_plain_peers() -> bool {
    !global::options().inet.is_empty() && !global::options().inet_unasked
}

impl Datagram {
    /// The socket has other ends now: whether that option names a port of theirs.
    pub(super) fn find_plain_peers(&self, fd: i32) {
        let is_named = |end: Address| end.port != 0 && global::options().inet.contains(end.port);
        let looks = looks_for_plain_peers() && !self.is_local();
        match looks && (is_named(sockaddr::bound_address(fd)) || sockaddr::peer_address(fd).is_some_and(is_named)) {
            true => self.flags.fetch_or(flag::INET, Ordering::Relaxed),
            false => self.flags.fetch_and(!flag::INET, Ordering::Relaxed),
        };
    }

    /// Whether an inbox would be made for a receiver that spins.
    pub fn worthwhile(&self) -> bool {
        if self.is_local() && !self.has(flag::CONNECTED) {
            return false;
        }
        // Where other processes own the socket, which know nothing of an inbox, its gate would stay shut.
        (super::is_shared() || self.is_local() || self.has(flag::INET))
            && (self.is_eager() || self.received.load(Ordering::Relaxed) >= ENOUGH)
            && self.pins.load(Ordering::Relaxed) == 0
            && !self.has(flag::SHARED)
    }
}

/// With the option `eager` the inbox exists as soon as the socket has a port, and is open whenever no receiver sleeps.
pub fn begin_eagerly(fd: i32, socket: &'static Datagram) {
    if socket.is_eager() {
        if socket.inbox().is_none() && socket.pins.load(Ordering::Relaxed) == 0 {
            inbox_table::make(fd, socket);
        }
        reopen(socket);
    }
}

/// After a sleep.
pub fn reopen(socket: &Datagram) {
    if socket.is_eager() {
        if let Some(inbox) = socket.inbox() {
            inbox.open();
        }
    }
}
