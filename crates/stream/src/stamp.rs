//! When bytes, or an end, arrived: so that a set can tell which of several streams became ready first.
//!
//! The kernel queues a socket when bytes arrive for it. A set of ours finds several streams ready in one look; a sender
//! whose peer is in a set with others therefore leaves the time of the first bytes that nothing unread stood before. An
//! end has a position of its own behind all bytes, as TCP's FIN has, and so has a reset behind that.
//! Processors' clocks agree (invariant time stamp counters), so the times of different senders can be compared.

use crate::socket::Socket;
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_segment::channel::{word, STAMP_POSITION};
use shunt_sys::clock;

/// Ticks after which the peer's receiving line is looked at to see whether it has read what the last stamp is about: so
/// a stream does so once in several microseconds, and a message after a pause always. Bytes that come sooner have a stamp of their own, the
/// reader's to judge, with the time of the newest of them.
const LOOK_AFTER: u64 = 10_000;

const POSITIONS: u64 = (1 << STAMP_POSITION) - 1;

/// Positions that the ends in a side's `word` take.
fn ends(word: u64) -> u64 {
    (word & (word::FIN | word::CLOSED | word::RST) != 0) as u64 + (word & word::LATE != 0) as u64
}

/// Bytes were sent to a peer that asked for stamps, or this direction has ended.
#[cold]
#[inline(never)]
pub fn arrived(socket: &Socket) {
    let (own, pipe) = (socket.own(), socket.outgoing());
    let now = clock::ticks();
    let last = own.stamp.load(Ordering::Relaxed);
    let announced = pipe.announced();
    let ends = ends(announced);
    // What is held back has not arrived. To look how much that is would fetch the line that the peer watches.
    let held = if own.wait.held.load(Ordering::Relaxed) == 0 { 0 } else { pipe.held() as u64 };
    let position = announced.wrapping_sub(held).wrapping_add(ends) & POSITIONS;
    let since = position.wrapping_sub(last) & POSITIONS;
    if pipe.unacknowledged_at_most().saturating_sub(held) + ends > since {
        if ends == 0 && (now << STAMP_POSITION).wrapping_sub(last) >> STAMP_POSITION < LOOK_AFTER {
            return own.transmit.later_stamp.store(now << STAMP_POSITION | position, Ordering::Release);
        }
        // An end is never read; a reset behind it is news.
        let unread = || match pipe.unacknowledged().saturating_sub(held) {
            0 => ends.min(1),
            bytes => bytes + ends,
        };
        if unread() > since {
            return;
        }
    }
    own.stamp.store(now << STAMP_POSITION | position, Ordering::Release);
}

/// How long ago the bytes, or the end, arrived that wait, in ticks; 0 if that is not known, which is so for what is just
/// being sent.
pub fn age(socket: &Socket, now: u64) -> u64 {
    let peer = socket.peer();
    let stamps = [&peer.stamp, &peer.transmit.later_stamp];
    let (word, waiting) = socket.incoming().look();
    let read = socket.own().receive.position.load(Ordering::Relaxed);
    let of = |stamp: &AtomicU64| {
        let stamp = stamp.load(Ordering::Acquire);
        let ahead = stamp.wrapping_sub(read) & POSITIONS;
        let waits = ahead > 0 && ahead <= waiting as u64 + ends(word);
        waits.then(|| (now << STAMP_POSITION).wrapping_sub(stamp & !POSITIONS) >> STAMP_POSITION)
    };
    stamps.into_iter().find_map(of).unwrap_or(0)
}
