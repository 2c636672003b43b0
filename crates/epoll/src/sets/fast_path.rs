//! The fast path of epoll_wait(2): one stream keeps the set busy, and no other sleeper is owed anything.
//!
//! Between an arrival and what the program does about it lies what is done here behind the look that finds it. So the looks take
//! no lock, read no clock and move nothing between queues: they are loads of the peer's line. What has come is found once more
//! under the lock, and told as [`super::scan`] tells it. What is unusual, and what the set owes to the kernel, or to others that
//! wait in it, is the general way's ([`mod@super::wait`]), which goes on where this has found nothing.

use super::arming::hand_over;
use super::entry::{place, Entry};
use super::events::{awaits_bytes, find_bytes, take_bytes};
use super::set::{enqueue, turn, Set};
use super::wait::MOST;
use super::{BRIEF, ET, EXCLUSIVE, KERNEL_EVERY, ONESHOT};
use core::sync::atomic::{AtomicBool, Ordering};
use shunt_rendezvous::reconnect::shared_server;
use shunt_stream::socket::Socket;
use shunt_stream::waiting::{readiness, spin};
use shunt_sys::libc::epoll_event;
use shunt_sys::{clock, user};
use shunt_table::table::Kind;

/// Events that are told in another way than as often as they hold, or by edges.
const UNUSUAL: u32 = ONESHOT | EXCLUSIVE;

/// Waits for a short while for bytes of the only stream that is looked at: true if its event is in the program's array, which has
/// room for `room` events. `limit`: how long the call waits at most, in ns.
///
/// # Safety
/// `events` may be any address that is not ours.
#[inline]
pub unsafe fn wait(set: &'static Set, epfd: i32, events: *mut epoll_event, room: i32, limit: Option<u64>) -> bool {
    if !(1..=MOST).contains(&room) || limit.is_some_and(|ns| ns < BRIEF) {
        return false;
    }
    let (Some(entry), now) = (only(set), clock::ticks()) else { return false };
    if owes(set, now) {
        return false;
    }
    let Some(socket) = entry.socket().filter(|socket| socket.kind() == Kind::Stream) else { return false };
    // Before the look: what comes behind it changes the word.
    let word = socket.peer().post.word.load(Ordering::Acquire);
    let (wanted, waiting) = (entry.wanted(), readiness::waits(socket, word));
    // An answer that is full decides with which half of the set the next one begins, where it is given at once.
    if wanted & UNUSUAL != 0 || (waiting && room == 1) || !awaits_bytes(entry, socket, wanted, waiting) {
        return false;
    }
    let tell = || {
        // SAFETY: passed on.
        unsafe { tell(set, entry, socket, now, events) }
    };
    // Bytes that were told of are no edge.
    let told = (waiting && tell()) || ((!waiting || wanted & ET != 0) && spin::comes(socket, word) && tell());
    if told {
        hand_over(set, epfd, false);
    }
    told
}

/// The only entry that is looked at. To be asked again under the set's lock.
#[inline(always)]
fn only(set: &'static Set) -> Option<&'static Entry> {
    let (entry, list) = match (set.ready.first(), set.watched.first()) {
        (Some(entry), None) => (entry, &set.ready),
        (None, Some(entry)) => (entry, &set.watched),
        _ => return None,
    };
    list.last().is_some_and(|last| core::ptr::eq(last, entry)).then_some(entry)
}

/// Whether more is to be looked at than streams, or another thread is to hear of what is done.
#[inline(always)]
fn owes(set: &Set, now: u64) -> bool {
    let flag = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
    flag(&set.shared)
        || flag(&set.exclusive)
        || flag(&set.datagrams)
        || set.foreign.load(Ordering::Relaxed) > 0
        || set.turn.load(Ordering::Relaxed) != turn::KERNEL
        || now.wrapping_sub(set.last_kernel.load(Ordering::Relaxed)) > KERNEL_EVERY
        || set.is_awaited()
        || (shared_server::expects() && !set.listening.is_empty())
        || shunt_stream::progress::is_driven()
}

/// Tells of the bytes that have come, unless another thread was quicker, or something else has come, too.
#[inline(always)]
unsafe fn tell(set: &'static Set, entry: &'static Entry, socket: &'static Socket, now: u64, events: *mut epoll_event) -> bool {
    let Some(_held) = set.lock.lock() else { return false };
    let same =
        only(set).is_some_and(|only| core::ptr::eq(only, entry)) && entry.socket().is_some_and(|s| core::ptr::eq(s, socket));
    let wanted = entry.wanted();
    // A fork in another thread may have shared the set since.
    if !same || wanted & UNUSUAL != 0 || set.shared.load(Ordering::Relaxed) {
        return false;
    }
    let Some(finding) = find_bytes(entry, socket, wanted) else { return false };
    let mut told = 1;
    // SAFETY: the program's array: eight bytes, and the last eight of twelve. Where it faults, nothing was told.
    unsafe {
        let data = entry.terms().data.load(Ordering::Relaxed);
        user::store(events.cast(), data << 32 | finding.events as u64, &mut told);
        user::store((&raw mut (*events).u64).cast(), data, &mut told);
    }
    if told == 0 {
        return false;
    }
    let edges = wanted & ET != 0;
    if edges {
        take_bytes(entry, &finding);
    }
    entry.had_event(now);
    let queue = if edges { place::WATCHED } else { place::READY };
    if entry.queue.load(Ordering::Relaxed) != queue {
        enqueue(set, entry, queue);
    }
    true
}
