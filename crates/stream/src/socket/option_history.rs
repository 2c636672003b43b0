//! Options that a listener had earlier.
//!
//! On Linux an accepted socket is a copy of the listener, made when the client's hand-shake ended (sk_clone_lock), so it has the
//! listener's options of that moment. Ours is made by `accept`. So what a listener's options were is kept when they change
//! while clients wait, and the time at which a client connected tells which of them are meant: in ticks, because nanoseconds
//! that processes make of these differ by more than lies between two calls. A client that lies about it gets one of these
//! sets: it learns and gains nothing.

use super::stored::Stored;
use crate::socket::Socket;
use core::sync::atomic::{AtomicU32, Ordering};
use shunt_sys::{clock, mapping};

/// Changes that are remembered; of more, the oldest are forgotten.
const MOST: usize = 16;

/// Ticks by which a change may seem to lie ahead: the processor reads its counter out of order with memory.
const AHEAD: u64 = 1 << 20;

struct Past {
    /// In ticks.
    until: u64,
    options: Stored,
}

/// A listener's earlier options, the oldest first. Read and written under the set-up lock.
pub struct History {
    count: AtomicU32,
    list: [Past; MOST],
}

/// The options change, or changed at `time` (in ticks) and this process notices now; clients may wait. Under the set-up
/// lock.
pub fn before_change(listener: &Socket, time: u64) {
    let place = &listener.listening.earlier;
    if place.load(Ordering::Relaxed).is_null() {
        // All-zero is an empty history. It stays with the socket's object.
        let Ok(memory) = mapping::reserve(core::mem::size_of::<History>()) else { return };
        place.store(memory.cast(), Ordering::Relaxed);
    }
    // SAFETY: reserved for a history, and under the set-up lock no other thread uses it.
    let history = unsafe { &mut *place.load(Ordering::Relaxed) };
    let mut count = *history.count.get_mut() as usize;
    if count == MOST {
        history.list.rotate_left(1);
        count -= 1;
    }
    history.list[count].until = time;
    history.list[count].options.follow(&listener.stored);
    *history.count.get_mut() = count as u32 + 1;
}

/// The options at `time` (in ticks), if they were others than now. Under the set-up lock.
pub fn at(listener: &Socket, time: u64) -> Option<&Stored> {
    // SAFETY: null or a history; under the set-up lock no other thread changes it.
    let history = unsafe { listener.listening.earlier.load(Ordering::Relaxed).as_ref() }?;
    let list = &history.list[..(history.count.load(Ordering::Relaxed) as usize).min(MOST)];
    // The counter begins anew when a machine wakes: what was until later than now was before that.
    let latest = clock::ticks().saturating_add(AHEAD);
    list.iter().find(|past| time < past.until && past.until <= latest).map(|past| &past.options)
}

/// The object serves another socket.
pub fn forget(socket: &Socket) {
    // SAFETY: as for `at`.
    if let Some(history) = unsafe { socket.listening.earlier.load(Ordering::Relaxed).as_ref() } {
        history.count.store(0, Ordering::Relaxed);
    }
}
