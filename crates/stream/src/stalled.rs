//! TCP_USER_TIMEOUT: a peer that takes nothing for so long, while there is no room for more, ends the connection (RFC 5482, and
//! `tcp_probe_timer` in net/ipv4/tcp_timer.c).
//!
//! A send that finds no room notes when, and what the peer had taken by then: only there, and only where the option is set. From
//! then on this process looks now and then ([`deadlines`]). A peer that takes something begins the time
//! anew, and ends it when it has taken half of what there was: the rest is what TCP's window could hold by then.

use super::{deadlines, end};
use crate::socket::parts::Stalled;
use crate::socket::{flag, Socket};
use crate::waiting::watchers::Change;
use core::sync::atomic::Ordering;
use shunt_segment::channel::state;
use shunt_sys::clock;

/// Looks within one time limit: a peer that takes something is known to have done so within a quarter of it.
const LOOKS: u64 = 4;

/// How long Linux waits before it first asks a peer whose window is closed, from when on it counts (the least retransmission timeout), and
/// until it says so, in ns.
const PROBE: u64 = 250_000_000;

impl Stalled {
    /// The option was set, to `milliseconds`.
    pub fn set(&self, milliseconds: i32) {
        self.limit.store(milliseconds.max(0) as u64 * 1_000_000, Ordering::Relaxed);
    }

    /// Whether it is set: a thread that waits for anything on the stream then must hear when it has no room any more.
    #[inline]
    pub fn limited(&self) -> bool {
        self.limit.load(Ordering::Relaxed) != 0
    }

    /// For a new stream.
    pub fn forget(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// For a new socket.
    pub fn reset(&self) {
        self.set(0);
        self.forget();
    }
}

/// A send found no room.
#[inline]
pub fn note(socket: &Socket, fd: i32) {
    if socket.connected.stalled.limited() && !socket.has(flag::REMOTE) {
        note_limited(socket, fd);
    }
}

/// The option was set on a stream, on which there may be no room already.
pub fn note_if_full(socket: &Socket, fd: i32) {
    let (free, size) = socket.outgoing().writable();
    if free * 3 < size && !socket.outgoing().can_grow() {
        note(socket, fd);
    }
}

#[cold]
fn note_limited(socket: &Socket, fd: i32) {
    let Stalled { since, taken, full, .. } = &socket.connected.stalled;
    let (now, noted) = (clock::monotonic_ns(), since.load(Ordering::Acquire) != 0);
    full.store(socket.outgoing().unacknowledged(), Ordering::Relaxed);
    if noted {
        return deadlines::look_at(look(socket, fd, now));
    }
    taken.store(socket.outgoing().taken(), Ordering::Relaxed);
    since.store(now, Ordering::Release);
    deadlines::look_at(again(socket, now));
    // Threads that sleep already are to sleep no longer than this.
    crate::waiting::watchers::changed(socket, Change::Ready);
    crate::waiting::wake_pollers::all();
}

/// It is `now`: looks after the stream if it was noted, and gives when to look again.
pub fn keep(socket: &Socket, fd: i32, now: u64) -> u64 {
    match socket.connected.stalled.since.load(Ordering::Acquire) {
        0 => u64::MAX,
        _ => look(socket, fd, now),
    }
}

fn again(socket: &Socket, now: u64) -> u64 {
    let limit = socket.connected.stalled.limit.load(Ordering::Relaxed);
    now.saturating_add((limit + PROBE) / LOOKS)
}

/// What has become of a stream that was noted. Gives when to look again; `u64::MAX`: no more.
fn look(socket: &Socket, fd: i32, now: u64) -> u64 {
    let Stalled { limit, since, taken, full } = &socket.connected.stalled;
    let unread = socket.outgoing().unacknowledged();
    let limit = limit.load(Ordering::Relaxed);
    let over = socket.own().receive.state.load(Ordering::Relaxed) & (state::DONE | state::PEER_GONE) != 0;
    if limit == 0 || over || unread * 2 < full.load(Ordering::Relaxed) {
        since.store(0, Ordering::Release);
        return u64::MAX;
    }
    let position = socket.outgoing().taken();
    if taken.swap(position, Ordering::Relaxed) != position {
        since.store(now, Ordering::Release);
    } else if now.saturating_sub(since.load(Ordering::Acquire)) >= limit + PROBE {
        since.store(0, Ordering::Release);
        end::time_out(socket, fd);
        return u64::MAX;
    }
    again(socket, now)
}
