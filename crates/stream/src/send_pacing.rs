//! A sender who is ahead of a busy reader waits in a ring that stays in the caches.
//!
//! *Files.* In a ring of a few hundred KiB a file's bytes go from one processor's cache into the other's. In one of megabytes each line goes
//! to memory and back, which takes twice as long where many connections have such rings. So a non-blocking sendfile ends at
//! the largest ring of the base when that is full, though the ring could grow, and the socket is not writable again until the
//! reader has made room. Only for so long, and only for threads that look: one that goes to sleep for room arms the socket, looks once
//! more, and finds it writable, since the ring can grow; the next sendfile makes it do so. A reader that does not come thus
//! leaves as many bytes in the rings as ever.
//!
//! So do large sends from memory, of a thread that turns to many streams: what is behind a few of them is in the caches whatever their
//! rings, and a ring of megabytes costs them fewer turns.
//!
//! *Requests and replies* that no ring of the base holds find the ring empty, and so go through it while the reader empties it:
//! their sender waits for room awake, as long as a reader may take to wake up. 1 MiB went to and fro in 130 us instead of
//! 300 where messages, buffers and rings of 1 MiB are more than a processor's cache. Streams, which find bytes of the last send, have the larger
//! rings, and so has a sender whose reader does something else.

use crate::socket::parts::Restraint;
use crate::socket::{flag, Socket};
use crate::waiting::readiness::has_ended;
use crate::waiting::wake;
use core::sync::atomic::Ordering;
use shunt_segment::area::{CLASSES, FIRST_IN_WINDOW, RING_SIZE};
use shunt_segment::channel::arm;
use shunt_sys::{clock, thread};
use shunt_table::global;

/// In ns: for a reader who serves some dozen others with as much before.
const PATIENCE: u64 = 2_000_000;

/// [`Restraint::until`]: the time is over.
const OVER: u64 = 1;

/// Sends of more bytes do not fit the rings of the base.
const LARGEST_OF_BASE: usize = RING_SIZE[FIRST_IN_WINDOW - 1] as usize;
/// Sends of more bytes would wait awake for long.
const LARGEST: usize = RING_SIZE[CLASSES - 1] as usize;
/// Large messages whose senders do not wait for the reader after one that waited in vain; twice as many each time.
const PENALTY: u32 = 16;
const WORST_PENALTY: u32 = 4096;

impl Restraint {
    /// The stream is a new one.
    pub fn reset(&self) {
        self.forget();
        self.alone.store(0, Ordering::Relaxed);
        self.penalty.store(0, Ordering::Relaxed);
    }

    /// There was room.
    pub fn forget(&self) {
        if self.until.load(Ordering::Relaxed) != 0 {
            self.until.store(0, Ordering::Relaxed);
        }
    }
}

fn is_awaited(socket: &Socket) -> bool {
    socket.own().wait.armed.load(Ordering::Relaxed) & (arm::OUT | arm::OUT << arm::SET_SHIFT) != 0
}

/// Sends of fewer bytes are left to the ring's own judgement.
pub const LARGE: usize = 16 << 10;

/// Before a large send of `length` bytes: says whether it stays in the rings of the base.
#[inline(never)]
pub fn begin(socket: &Socket, fd: i32, length: usize, flags: i32) {
    let pipe = socket.outgoing();
    let is_over = || match socket.connected.restraint.until.load(Ordering::Relaxed) {
        0 => false,
        OVER => true,
        end => clock::ticks() >= end,
    };
    let may = !socket.has(flag::SHARED | flag::ASYNC | flag::MAY_LEAVE) && pipe.reader_is_elsewhere();
    let of_many = may
        && thread::is_one_of_many(core::ptr::from_ref(socket).addr())
        && wake::nonblocking(socket, fd, flags)
        && !is_awaited(socket)
        && !is_over();
    let alone = may
        && !of_many
        && (LARGEST_OF_BASE + 1..=LARGEST).contains(&length)
        && pipe.unacknowledged() == 0
        && is_worth_waiting(socket);
    if !alone && socket.connected.restraint.alone.load(Ordering::Relaxed) == 1 {
        socket.connected.restraint.alone.store(0, Ordering::Relaxed);
    }
    pipe.window.hold(of_many || alone);
}

/// Whether the reader came, the last times.
fn is_worth_waiting(socket: &Socket) -> bool {
    let alone = &socket.connected.restraint.alone;
    match alone.load(Ordering::Relaxed) {
        0 | 1 => {
            alone.store(1, Ordering::Relaxed);
            true
        }
        left => {
            alone.store(left - 1, Ordering::Relaxed);
            false
        }
    }
}

/// A send of `length` bytes that [`begin`] held to the rings of the base, or that comes behind one, has found no room: whether it ends for
/// now. Otherwise there is some, or the ring may grow.
#[cold]
pub fn ends(socket: &Socket, fd: i32, length: usize, flags: i32) -> bool {
    let Restraint { alone, penalty, .. } = &socket.connected.restraint;
    if alone.load(Ordering::Relaxed) != 1 {
        if holds_back(socket, fd, flags) {
            return true;
        }
    } else if length > LARGEST_OF_BASE {
        if reader_comes(socket) {
            penalty.store(0, Ordering::Relaxed);
            return false;
        }
        let messages = (2 * penalty.load(Ordering::Relaxed)).clamp(PENALTY, WORST_PENALTY);
        penalty.store(messages, Ordering::Relaxed);
        alone.store(1 + messages, Ordering::Relaxed);
    }
    socket.outgoing().window.hold(false);
    false
}

/// Waits awake until a reader has taken something out, for as long as one takes that wakes up for it. How long this thread's
/// other waits last says nothing about that.
fn reader_comes(socket: &Socket) -> bool {
    let pipe = socket.outgoing();
    let end = clock::ticks() + clock::ticks_for_ns(2 * global::options().spin_ns);
    while clock::ticks() < end {
        let (free, size) = pipe.writable();
        if free >= size / 8 {
            return true;
        }
        core::hint::spin_loop();
    }
    false
}

/// Whether a sendfile, or a send that [`begin`] holds, ends when it has found no room, rather than to make the ring grow.
pub fn holds_back(socket: &Socket, fd: i32, flags: i32) -> bool {
    let pipe = socket.outgoing();
    if !pipe.is_largest_of_base() || !pipe.reader_is_elsewhere() || !pipe.can_grow() {
        return false;
    }
    // A thread that is armed has looked; of other owners' looks nothing is known; a signal is promised when a call had no room.
    if socket.has(flag::SHARED | flag::ASYNC) || is_awaited(socket) || !wake::nonblocking(socket, fd, flags) {
        return false;
    }
    let is_full = || {
        let (free, size) = pipe.writable();
        free * 3 < size
    };
    if has_ended(socket) || socket.has(flag::HUNG_UP) || !is_full() {
        return false;
    }
    let until = &socket.connected.restraint.until;
    match until.load(Ordering::Relaxed) {
        0 => until.store(clock::ticks() + clock::ticks_for_ns(PATIENCE), Ordering::Relaxed),
        OVER => return false,
        end if clock::ticks() >= end => return false,
        _ => {}
    }
    wake::check_peer(socket, fd);
    // An edge, when there is room; what came before is seen here.
    socket.own().transmit.blocked.fetch_add(1, Ordering::AcqRel);
    !has_ended(socket) && is_full()
}

/// Whether a full ring counts as writable, since it can grow.
#[inline]
pub fn can_grow(socket: &Socket) -> bool {
    socket.outgoing().can_grow() && (socket.connected.restraint.until.load(Ordering::Relaxed) <= OVER || is_over(socket))
}

#[cold]
fn is_over(socket: &Socket) -> bool {
    let until = &socket.connected.restraint.until;
    let over = is_awaited(socket) || clock::ticks() >= until.load(Ordering::Relaxed);
    if over {
        until.store(OVER, Ordering::Relaxed);
    }
    over
}
