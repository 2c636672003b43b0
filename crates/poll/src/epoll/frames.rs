//! Frames from other hosts wake a thread in the kernel's set: it has their queue as an exclusive member. So one of the threads that sleep in sets is
//! woken, and each sleeps by one call.

use super::arming::kick;
use super::set::Set;
use super::{ET, EXCLUSIVE, IN, TAG};
use core::sync::atomic::Ordering;
use shunt_stream::progress;
use shunt_sys::{calls, libc, Errno};

/// No entry's tag: what comes under it is no event.
const FRAMES: u64 = TAG | 0xf_ffff;

/// The queue joins the set, if it is of that kind, and the set is this process's alone and in no other set. False: it is to be slept beside.
pub(super) fn join(set: &'static Set) -> bool {
    if progress::inside().is_some_and(|inside| inside.queue >= 0 && set.frames.load(Ordering::Acquire) == inside.generation) {
        return true;
    }
    let Some(_held) = set.lock.lock() else { return false };
    let alone = !set.shared.load(Ordering::Relaxed) && set.watchers.load(Ordering::Relaxed).is_null();
    let Some(epfd) = set.descriptor().filter(|_| alone) else { return false };
    let Some(inside) = progress::inside().filter(|inside| inside.queue >= 0) else { return false };
    let add = |fd, events| matches!(calls::epoll_add(epfd, fd, events, FRAMES), Ok(()) | Err(Errno(libc::EEXIST)));
    let added = add(inside.queue, IN | ET | EXCLUSIVE) && add(inside.rest, IN); // one from before has left with its file
    set.frames.store(if added { inside.generation } else { -1 }, Ordering::Release);
    added
}

/// It leaves, before others look at the set; a thread that sleeps in it is woken, and sleeps beside the queue then. Under the set's lock.
pub(super) fn part(set: &'static Set) {
    let known = set.frames.swap(-1, Ordering::AcqRel);
    let Some((inside, epfd)) = progress::inside().filter(|_| known >= 0).zip(set.descriptor()) else { return };
    let leave = |fd| calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
    let _ = (leave(inside.rest), leave(inside.queue)); // one from before is not there
                                                       // A stream's entry, as others' events are the program's own. Without one there is nothing to be woken for.
    let stream = set.entries.iter().find(|entry| !super::control::kernel_side(entry) && entry.inner().is_none());
    stream.filter(|_| set.sleepers() > 0).into_iter().for_each(|entry| kick(epfd, entry));
}
