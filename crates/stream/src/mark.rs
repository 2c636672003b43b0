//! Where the urgent byte lies: see [`crate::urgent`].

use crate::socket::{flag, Socket};
use core::sync::atomic::Ordering;
use shunt_segment::channel::{urgent, word};

/// The peer's mark, as long as its byte lies before us.
pub(crate) struct Mark {
    pub(crate) word: u64,
    /// Bytes between the next one to receive and the urgent one.
    pub(crate) ahead: usize,
    /// The byte was received with MSG_OOB.
    pub(crate) read: bool,
}

/// Half the circle of positions: what is farther ahead lies behind.
pub(crate) const BEHIND: u64 = 1 << 47;

pub(crate) fn position(socket: &Socket) -> u64 {
    socket.own().receive.position.load(Ordering::Relaxed) & word::POSITION
}

/// 1 if the next byte is an urgent one that a newer one overtook while we stood before it.
pub(crate) fn lost(socket: &Socket) -> usize {
    let word = socket.peer().urgent_lost.load(Ordering::Acquire);
    (word & urgent::VALID != 0 && word & word::POSITION == position(socket) && !socket.has(flag::OOB_INLINE)) as usize
}

pub(crate) fn current(socket: &Socket) -> Option<Mark> {
    // What is announced is looked at first: the mark of an announced byte is then seen.
    let (_, waiting) = socket.incoming().look();
    let word = socket.peer().urgent.load(Ordering::Acquire) & (urgent::VALID | word::POSITION);
    if word & urgent::VALID == 0 {
        return None;
    }
    let taken = socket.own().urgent_taken.load(Ordering::Relaxed);
    let same = taken & (urgent::VALID | word::POSITION) == word;
    let ahead = word.wrapping_sub(position(socket)).wrapping_sub(lost(socket) as u64) & word::POSITION;
    if (same && taken & urgent::PASSED != 0) || ahead >= BEHIND || ahead >= waiting as u64 {
        return None;
    }
    Some(Mark { word, ahead: ahead as usize, read: same && taken & urgent::READ != 0 })
}

/// Whether an urgent byte is there that was not received (POLLPRI).
pub fn pending(socket: &Socket) -> bool {
    socket.peer().urgent.load(Ordering::Acquire) != 0 && current(socket).is_some_and(|mark| !mark.read)
}

/// Whether the next byte to receive is the urgent one (SIOCATMARK).
pub fn at_mark(socket: &Socket) -> bool {
    stands_at(socket, 0)
}

/// Whether the urgent byte is `offset` bytes behind the next one to receive.
pub fn stands_at(socket: &Socket, offset: usize) -> bool {
    socket.peer().urgent.load(Ordering::Acquire) != 0 && current(socket).is_some_and(|mark| mark.ahead == offset)
}

/// Bytes that wait and that no ordinary read will give: 1 for the urgent byte at which the reader stands.
pub fn withheld(socket: &Socket) -> usize {
    if socket.peer().urgent.load(Ordering::Acquire) == 0 {
        return 0;
    }
    (at_mark(socket) && !socket.has(flag::OOB_INLINE)) as usize + lost(socket)
}

/// Bytes that the next read can give at most (FIONREAD, tcp_inq): those before the mark.
pub fn readable(socket: &Socket) -> usize {
    let (_, waiting) = socket.incoming().look();
    if socket.peer().urgent.load(Ordering::Acquire) == 0 || socket.has(flag::OOB_INLINE) {
        return waiting;
    }
    current(socket).map_or(waiting, |mark| mark.ahead)
}
