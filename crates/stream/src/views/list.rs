//! Bytes that the program has been handed where they lie, in pools of its peers, and has not given back.
//!
//! One list for the process, by numbers that never come again: what is given back is found when its stream, or that descriptor, is another's
//! by now. A pool stays mapped as long as bytes of it are handed out, whatever becomes of the stream.

use crate::pools;
use crate::socket::Socket;
use core::ptr;
use core::sync::atomic::Ordering;
use shunt_segment::channel::word;
use shunt_sys::thread;
use shunt_table::global::{LockedCell, Mutex};

/// At a time, of all streams and of each. Where there are as many, bytes are copied.
const MOST: usize = 512;
/// See [`MOST`].
const OF_EACH: u32 = 64;

/// Bytes of one stream, from a position on.
#[derive(Clone, Copy)]
struct Handed {
    number: u64,
    /// The stream; null: it has ended.
    socket: *const Socket,
    start: u64,
    /// The pool's place in this process's list ([`pools`]).
    view: u32,
    /// A child of fork has its parent's list, and gives nothing of its parent's back.
    process: u32,
}

struct Memory {
    list: [Option<Handed>; MOST],
    numbers: u64,
}

struct Views {
    lock: Mutex,
    memory: LockedCell<Memory>,
}

// SAFETY: sockets live in slabs that are never unmapped, and are compared here, not used.
unsafe impl Sync for Views {}

static VIEWS: Views = Views { lock: Mutex::new(), memory: LockedCell::new(Memory { list: [None; MOST], numbers: 0 }) };

/// One thread at a time. `None`: this one was interrupted in there.
fn with<R>(part: impl FnOnce(&mut Memory) -> R) -> Option<R> {
    let held = VIEWS.lock.lock()?;
    // SAFETY: the lock is held.
    let result = part(unsafe { &mut *VIEWS.memory.get() });
    drop(held);
    Some(result)
}

/// In a child of fork: no other thread exists here.
pub fn forked() {
    VIEWS.lock.reset();
}

/// Enters bytes of the stream from `start` on, which lie in its view of number `view`; gives their number. `None`: there are as many as can be.
/// The caller holds the receiving lock.
pub(super) fn enter(socket: &Socket, start: u64, view: u32) -> Option<u64> {
    let handed = &socket.connected.loans.handed;
    if handed.load(Ordering::Relaxed) >= OF_EACH {
        return None;
    }
    // Both counts first: a child of fork that finds the entry gives it back, and takes off what was counted for it.
    handed.fetch_add(1, Ordering::Relaxed);
    pools::retain(view);
    let number = with(|memory| {
        let free = memory.list.iter_mut().find(|place| place.is_none())?;
        memory.numbers += 1;
        let number = memory.numbers;
        *free = Some(Handed { number, socket, start, view, process: thread::process() });
        Some(number)
    });
    if number.flatten().is_none() {
        handed.fetch_sub(1, Ordering::Relaxed);
        pools::leave(view);
    }
    number.flatten()
}

/// The stream whose bytes these are; `None`: it has ended, or they are a parent process's. `Err`: there are none of the number.
#[allow(clippy::result_unit_err)]
pub(super) fn stream_of(number: u64) -> Result<Option<&'static Socket>, ()> {
    let found = with(|memory| memory.list.iter().flatten().find(|handed| handed.number == number).copied());
    let handed = found.flatten().ok_or(())?;
    let own = handed.process == thread::process() && !handed.socket.is_null();
    // SAFETY: sockets live in slabs that are never unmapped.
    Ok(own.then(|| unsafe { &*handed.socket }))
}

/// The bytes are the program's no more; false: they were not. Where they are a stream's that goes on the caller holds its receiving lock.
pub(super) fn leave(number: u64) -> bool {
    let taken = with(|memory| {
        let place = memory.list.iter_mut().find(|place| place.is_some_and(|handed| handed.number == number))?;
        place.take()
    });
    let Some(handed) = taken.flatten() else { return false };
    // SAFETY: sockets live in slabs that are never unmapped.
    if let Some(socket) = unsafe { handed.socket.as_ref() } {
        socket.connected.loans.handed.fetch_sub(1, Ordering::Relaxed);
    }
    pools::leave(handed.view);
    true
}

/// The first of the stream's bytes that this process has, as the reader at `position` sees it.
pub(super) fn oldest(socket: &Socket, position: u64) -> Option<u64> {
    let own = thread::process();
    with(|memory| {
        let of_stream = memory.list.iter().flatten().filter(|handed| ptr::eq(handed.socket, socket) && handed.process == own);
        of_stream.map(|handed| handed.start).max_by_key(|start| position.wrapping_sub(*start) & word::POSITION)
    })?
}

/// The stream has ended for this process; what was handed out stays mapped. False: nothing was.
pub(super) fn part(socket: &Socket) -> bool {
    // Not what shared memory says: the peer could change that.
    if socket.connected.loans.handed.swap(0, Ordering::Relaxed) == 0 {
        return false;
    }
    with(|memory| {
        let of_stream = memory.list.iter_mut().flatten().filter(|handed| ptr::eq(handed.socket, socket));
        of_stream.for_each(|handed| handed.socket = ptr::null());
    });
    true
}
