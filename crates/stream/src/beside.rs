//! The TCP connection that stays beside a stream to another network namespace: what is asked of the room above that looks after it (`shunt_lifeline`).
//!
//! A stream that an administrator wants back there ([`flag::CUT`]) takes the general way in all of its calls. A send of such a stream takes back first what this
//! side has said of its rest ([`shunt_ring::cut`]), and finds no room once the stream has moved, as one does that another thread has left to the kernel.

use crate::life::{self, Event};
use crate::socket::{flag, Socket};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use shunt_ring::cut;
use shunt_sys::clock;

/// What is asked.
pub struct Beside {
    /// Looks whether any of them has ended, or is asked for; true: a stream has ended.
    pub keep: fn() -> bool,
    /// The stream ends, and its private descriptor is about to be closed.
    pub end: fn(&Socket),
    /// The peer's side says that a tool asks.
    pub asked: fn(&Socket),
    /// See [`leave`].
    pub leave: fn(&Socket, i32, bool) -> bool,
    /// See [`drive`].
    pub drive: fn(),
}

/// See [`fill`].
struct State {
    table: AtomicPtr<Beside>,
    /// Streams that are to go back.
    cutting: AtomicU32,
    /// Until when (ns) those send nothing behind what was not received.
    withheld: AtomicU64,
}

static BESIDE: State =
    State { table: AtomicPtr::new(core::ptr::null_mut()), cutting: AtomicU32::new(0), withheld: AtomicU64::new(0) };

/// Fills the table in, before there is a stream.
pub fn fill(beside: &'static Beside) {
    BESIDE.table.store(core::ptr::from_ref(beside).cast_mut(), Ordering::Release);
}

fn table() -> Option<&'static Beside> {
    // SAFETY: null, or the static that `fill` was given.
    unsafe { BESIDE.table.load(Ordering::Acquire).as_ref() }
}

/// See [`Beside::keep`].
pub(crate) fn keep() -> bool {
    table().is_some_and(|beside| (beside.keep)())
}

/// See [`Beside::end`].
pub fn end(socket: &Socket) {
    if let Some(beside) = table().filter(|_| socket.has(flag::LIFELINE)) {
        (beside.end)(socket);
    }
}

/// See [`Beside::asked`].
#[cold]
pub(crate) fn asked(socket: &Socket) {
    if let Some(beside) = table() {
        (beside.asked)(socket);
    }
}

/// Before a call looks at a stream that is to go back: does so if it can be now. `sends`: the call would send, and waits for that a little. True: it has become
/// the kernel's, where the call goes on. The caller has no lock, and is not counted among those who sleep for the stream.
#[cold]
pub fn leave(socket: &Socket, fd: i32, sends: bool) -> bool {
    socket.has(flag::CUT) && table().is_some_and(|beside| (beside.leave)(socket, fd, sends))
}

/// Before a call that asks the stream at `fd` for something else than bytes, and never waits: it asks the TCP connection, where the stream has moved.
#[inline]
pub fn before_asking(fd: i32) {
    if let Some(socket) = crate::socket::stream(fd).filter(|socket| socket.has(flag::CUT)) {
        leave(socket, fd, false);
    }
}

/// By a thread that is about to sleep, as [`leave`] for all such streams.
#[inline]
pub fn drive() {
    if BESIDE.cutting.load(Ordering::Relaxed) != 0 {
        if let Some(beside) = table() {
            (beside.drive)();
        }
    }
}

/// How many streams are to go back.
pub fn cutting() -> &'static AtomicU32 {
    &BESIDE.cutting
}

/// Until when (ns) those send nothing behind what was not received.
pub fn withheld() -> &'static AtomicU64 {
    &BESIDE.withheld
}

/// Whether the stream has moved to TCP, though perhaps not in this process yet: its rings and its companion say nothing of it any more.
#[inline]
pub fn has_moved(socket: &Socket) -> bool {
    socket.has(flag::CUT) && cut::has_moved(&socket.page().head)
}

/// Whether it has, asked by one that would send or end it: if not this side is not at rest any more, and the stream stays until it is. Under the lock for
/// sending.
#[inline]
pub fn has_moved_before_sending(socket: &Socket) -> bool {
    socket.has(flag::CUT) && !cut::thaw(&socket.page().head, socket.side())
}

/// Whether a send finds no room: it has moved, or its rings are to become empty. Under the lock for sending.
#[cold]
pub(crate) fn withholds(socket: &Socket) -> bool {
    let until = BESIDE.withheld.load(Ordering::Relaxed);
    // A call that does not wait finds no room where there is something to read, either: its program goes on to that.
    let is_to_read = || socket.has(flag::NONBLOCK) && socket.incoming().look().1 > 0;
    let rests = || cut::have_heard(&socket.page().head) && (socket.outgoing().unacknowledged() > 0 || is_to_read());
    (until != 0 && clock::monotonic_ns() < until && rests()) || has_moved_before_sending(socket)
}

/// Other processes are about to have the side: it does not go back. Under both locks. Whatever shares streams has left those before that had moved
/// (`shunt_lifeline::to_share`), so one that has all the same is broken off rather than had by two.
pub(crate) fn shared(socket: &Socket) {
    if has_moved_before_sending(socket) {
        life::happens(socket.own(), Event::Distrusted);
    }
}
