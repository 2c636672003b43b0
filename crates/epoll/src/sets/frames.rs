//! Frames from other hosts wake a thread in the kernel's set: it has their queue as an exclusive member. So one of the threads that sleep in sets is
//! woken, and each sleeps by one call.
//!
//! The queue's edge is told once. The thread that hears it drives, or leaves the frames to one that surely will: it may have been told
//! while another thread held the carrier's lock and had looked before ([`drive`]).

use super::arming::{kick, kick_inside};
use super::entry::Entry;
use super::fork::each_set;
use super::scan::Answer;
use super::set::Set;
use super::{ET, EXCLUSIVE, IN, TAG};
use core::sync::atomic::Ordering;
use shunt_stream::progress::{self, Inside, Sleeper};
use shunt_sys::libc::epoll_event;
use shunt_sys::{calls, libc, user, Errno};

/// No entry's tag: what comes under it is no event.
pub(super) const FRAMES: u64 = TAG | 0xf_ffff;

/// For what the queue, and what tells of the rest, are in the kernel's set.
pub(super) const MEMBERS: [u32; 2] = [IN | ET | EXCLUSIVE, IN];

/// No queue's generation.
pub(super) const NONE: i32 = -1;

/// Whether the set has the queue that there is now.
pub(super) fn has(set: &Set) -> bool {
    let known = set.frames.load(Ordering::Relaxed);
    known != NONE && progress::inside().is_some_and(|inside| inside.queue >= 0 && inside.generation == known)
}

/// The queue joins the set, if it is of that kind, and the set is this process's alone and in no other set. False: it is to be slept beside.
pub(super) fn join(set: &'static Set) -> bool {
    let Some(_held) = set.lock.lock() else { return false };
    // Read under the lock: behind a change of numbers the sets are gone through, each under its own.
    let Some(inside) = progress::inside().filter(|inside| inside.queue >= 0) else { return false };
    if set.frames.load(Ordering::Relaxed) == inside.generation {
        return true;
    }
    let alone = !set.shared.load(Ordering::Relaxed) && set.watchers.load(Ordering::Relaxed).is_null();
    let Some(epfd) = set.descriptor().filter(|_| alone) else { return false };
    // A queue from before has left with its file; what tells of the rest is there still.
    let has = |(fd, events)| matches!(calls::epoll_add(epfd, fd, events, FRAMES), Ok(()) | Err(Errno(libc::EEXIST)));
    let joined = numbers(&inside).into_iter().zip(MEMBERS).all(has);
    set.frames.store(if joined { inside.generation } else { NONE }, Ordering::Release);
    if !joined {
        leave(epfd, numbers(&inside));
    }
    joined
}

fn numbers(inside: &Inside) -> [i32; 2] {
    [inside.queue, inside.rest]
}

fn leave(epfd: i32, fds: [i32; 2]) {
    fds.into_iter().for_each(|fd| _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut()));
}

/// It leaves, before others look at the set; a thread that sleeps in it is woken, and sleeps beside the queue then. Under the set's lock.
pub(super) fn part(set: &'static Set) {
    if set.frames.swap(NONE, Ordering::AcqRel) == NONE {
        return;
    }
    let (Some(inside), Some(epfd)) = (progress::inside(), set.descriptor()) else { return };
    leave(epfd, numbers(&inside));
    if set.sleepers() > 0 {
        wake_one(set, epfd, None);
    }
}

/// A private descriptor got another number, and still has the old one. Behind the carriers, which tell the new one: sets know files by numbers.
pub(super) fn moved(from: i32, to: i32) {
    let Some(which) = progress::inside().and_then(|inside| numbers(&inside).iter().position(|fd| *fd == to)) else { return };
    each_set(|set| {
        let (Some(_held), Some(epfd)) = (set.lock.lock(), set.descriptor()) else { return };
        // Also from a set that has parted with it just now, by a number that it did not know yet, or that a thread has joined by the new one.
        leave(epfd, [from, to]);
        // What tells of the rest stays while there is no queue.
        let stays = which == 1 && set.frames.load(Ordering::Relaxed) != NONE;
        if (stays || has(set)) && calls::epoll_add(epfd, to, MEMBERS[which], FRAMES).is_err() {
            part(set);
        }
    });
}

/// Whether `count` events of the kernel's at `events` are all of the queue's.
///
/// # Safety
/// `events` has so many.
pub(super) unsafe fn are_all(set: &Set, events: *const epoll_event, count: usize) -> bool {
    // SAFETY: the caller's array, which may go at any moment.
    let event = |at| unsafe { user::read(events.wrapping_add(at)) };
    count <= MEMBERS.len()
        && set.frames.load(Ordering::Relaxed) != NONE
        && (0..count).all(|at| event(at).is_ok_and(|event| event.u64 == FRAMES))
}

/// What the thread has heard of outside a sleep is driven before it leaves.
pub(super) fn drive(answer: &Answer) {
    if answer.frames {
        drop(progress::watch(Sleeper::Awake));
    }
}

/// Whether a thread of this process sleeps in the set and none there hears of frames: those that do have left, and the others fell asleep while there
/// was nothing to hear, or while the set had the queue.
pub(super) fn is_deaf(set: &Set) -> bool {
    set.remote.load(Ordering::Relaxed)
        && !has(set)
        && set.hearing.load(Ordering::Relaxed) == 0
        && set.silent.load(Ordering::Relaxed) > 0
        && progress::is_driven()
}

/// A look from outside has taken back all kicks, that by which a sleeper was to hear of frames among them: the set has the queue again, or the
/// sleeper is woken again.
pub(super) fn give_ears(set: &'static Set, epfd: i32) {
    if !is_deaf(set) || join(set) {
        return;
    }
    if let Some(_held) = set.lock.lock() {
        wake_one(set, epfd, None);
        set.noisy.store(true, Ordering::Relaxed); // the thread that looks rests, and lets that one run
    }
}

/// Wakes a thread that sleeps in the set, by a stream's entry, not `but`: without one there is nothing to be woken for. Under the set's lock.
pub(super) fn wake_one(set: &'static Set, epfd: i32, but: Option<&Entry>) {
    let serves = |entry: &&Entry| {
        let is_other = !but.is_some_and(|but| core::ptr::eq(but, *entry));
        is_other && !super::control::kernel_side(entry) && entry.inner().is_none()
    };
    // An active one first: the companion of another may have no room, and then nothing wakes by it.
    let _ = kick_inside(set, epfd) || set.entries.iter().filter(serves).any(|entry| kick(epfd, entry));
}
