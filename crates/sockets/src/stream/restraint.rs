//! A sender of files who is ahead of a busy reader waits in a ring that stays in the caches.
//!
//! In a ring of a few hundred KiB a file's bytes go from one processor's cache into the other's. In one of megabytes each line goes
//! to memory and back, which takes twice as long where many connections have such rings. So a non-blocking sendfile ends at
//! the largest ring of the base when that is full, though the ring could grow, and the socket is not writable again until the
//! reader has made room. Only for so long, and only for those who look: whoever goes to sleep for room arms the socket, looks once more,
//! and finds it writable, since the ring can grow; the next sendfile makes it do so. A reader who does not come thus leaves
//! as many bytes in the rings as ever.
//!
//! So do large sends from memory, of a thread that turns to many streams: what is behind a few of them is in the caches whatever their
//! rings, and a ring of megabytes costs them fewer turns.

use super::put::has_ended;
use crate::socket::{flag, Socket};
use crate::waiting::wait;
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_segment::channel::arm;
use shunt_sys::{clock, thread};

/// In ns: for a reader who serves some dozen others with as much before.
const PATIENCE: u64 = 2_000_000;

/// [`Restraint::until`]: the time is over.
const OVER: u64 = 1;

/// Of one stream. All zero: its ring has not been found full.
#[derive(Default)]
pub struct Restraint {
    /// In ticks.
    until: AtomicU64,
}

impl Restraint {
    /// There was room, or the stream is a new one.
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

/// Before a large send: says whether it stays in the rings of the base.
#[inline(never)]
pub fn begin(socket: &Socket, fd: i32, flags: i32) {
    let pipe = socket.outgoing();
    let is_over = || match socket.restraint.until.load(Ordering::Relaxed) {
        0 => false,
        OVER => true,
        end => clock::ticks() >= end,
    };
    let held = thread::is_one_of_many(core::ptr::from_ref(socket).addr())
        && !socket.has(flag::SHARED | flag::ASYNC | flag::REMOTE)
        && pipe.reader_is_elsewhere()
        && wait::nonblocking(socket, fd, flags)
        && !is_awaited(socket)
        && !is_over();
    pipe.window.hold(held);
}

/// Whether a sendfile, or a send that [`begin`] holds, ends when it has found no room, rather than to make the ring grow.
pub fn holds_back(socket: &Socket, fd: i32, flags: i32) -> bool {
    let pipe = socket.outgoing();
    if !pipe.is_largest_of_base() || !pipe.reader_is_elsewhere() || !pipe.can_grow() {
        return false;
    }
    // Who is armed has looked; of other owners' looks nothing is known; a signal is promised when a call had no room.
    if socket.has(flag::SHARED | flag::ASYNC) || is_awaited(socket) || !wait::nonblocking(socket, fd, flags) {
        return false;
    }
    let is_full = || {
        let (free, size) = pipe.writable();
        free * 3 < size
    };
    if has_ended(socket) || socket.has(flag::HUNG_UP) || !is_full() {
        return false;
    }
    let until = &socket.restraint.until;
    match until.load(Ordering::Relaxed) {
        0 => until.store(clock::ticks() + clock::ticks_for_ns(PATIENCE), Ordering::Relaxed),
        OVER => return false,
        end if clock::ticks() >= end => return false,
        _ => {}
    }
    wait::check_peer(socket, fd);
    // An edge, when there is room; what came before is seen here.
    socket.own().transmit.blocked.fetch_add(1, Ordering::AcqRel);
    !has_ended(socket) && is_full()
}

/// Whether a full ring counts as writable, since it can grow.
#[inline]
pub fn can_grow(socket: &Socket) -> bool {
    socket.outgoing().can_grow() && (socket.restraint.until.load(Ordering::Relaxed) <= OVER || is_over(socket))
}

#[cold]
fn is_over(socket: &Socket) -> bool {
    let until = &socket.restraint.until;
    let over = is_awaited(socket) || clock::ticks() >= until.load(Ordering::Relaxed);
    if over {
        until.store(OVER, Ordering::Relaxed);
    }
    over
}
