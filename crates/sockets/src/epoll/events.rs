//! What an entry would report: levels and edges, computed in memory.

use super::entry::Entry;
use super::nested::report_inner;
use super::{ERR, ET, HUP, MODES, OUT};
use crate::readiness;
use crate::socket::Socket;
use core::sync::atomic::Ordering;
use shunt_segment::channel::state;

/// What an entry would report now; 0: nothing. Under the set's lock.
pub(super) fn report(entry: &'static Entry) -> u32 {
    if entry.disabled.load(Ordering::Relaxed) {
        return 0;
    }
    // SAFETY: null or a slab object.
    if let Some(inner) = unsafe { entry.inner.load(Ordering::Acquire).as_ref() } {
        return report_inner(entry, inner);
    }
    // SAFETY: streams and sets only are active.
    let Some(socket) = (unsafe { entry.socket.load(Ordering::Relaxed).as_ref() }) else { return 0 };
    let wanted = entry.events.load(Ordering::Relaxed);
    let now = readiness::events(socket) as u16 as u32 & (wanted & !MODES | ERR | HUP);
    if now == 0 || wanted & ET == 0 {
        return now;
    }
    let seen = signature(socket);
    let blocked = socket.own().transmit.blocked.load(Ordering::Acquire);
    let edge = entry.fresh.load(Ordering::Relaxed)
        || seen != entry.seen.load(Ordering::Relaxed)
        || (now & OUT != 0 && blocked != entry.unblocked.load(Ordering::Relaxed));
    if !edge {
        return 0;
    }
    entry.fresh.store(false, Ordering::Relaxed);
    entry.seen.store(seen, Ordering::Relaxed);
    if now & OUT != 0 {
        entry.unblocked.store(blocked, Ordering::Relaxed);
    }
    now
}

/// Changes whenever the peer sends or ends: the edges of a socket.
pub(super) fn signature(socket: &Socket) -> u64 {
    let peer = socket.peer().post.word.load(Ordering::Acquire);
    let ends = socket.own().receive.state.load(Ordering::Acquire) & (state::DONE | state::PEER_GONE | state::SHUT_RD);
    peer ^ (ends as u64).rotate_right(8) ^ socket.peer().urgent.load(Ordering::Acquire).rotate_left(1)
}
