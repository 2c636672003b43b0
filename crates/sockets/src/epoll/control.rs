//! epoll_ctl(2): what the program adds, changes and removes.

use super::entry::{address, free_entry, new_entry, Entry};
use super::set::{activate, detach, find, find_any, unlink, Set, WATCHERS};
use super::{ET, IN, OUT, RDHUP, TAG, TAG_MASK};
use crate::table::Kind;
use crate::{accept, table};
use core::sync::atomic::Ordering;
use shunt_sys::libc::epoll_event;
use shunt_sys::{calls, libc, Errno, Result};

/// What the kernel's set holds for an entry.
pub(super) fn kernel_event(entry: &Entry, kind: Kind) -> epoll_event {
    let events = entry.events.load(Ordering::Relaxed);
    let events = match kind {
        Kind::Stream => IN | RDHUP | ET,
        _ => events,
    };
    epoll_event { events, u64: TAG | entry.index as u64 }
}

/// epoll_ctl(2) on a set that the table knows. `None`: nothing of ours is concerned, the kernel shall do it.
///
/// # Safety
/// `event` is null or valid.
pub unsafe fn control(set: &'static Set, epfd: i32, operation: i32, fd: i32, event: *const epoll_event) -> Option<Result<isize>> {
    let word = table::get(fd);
    let kind = word.kind();
    // SAFETY: null or valid.
    let wanted = unsafe { event.as_ref() }.copied();
    // Foreign descriptors are the kernel's, unless their data could be taken for a tag of ours.
    let alias = wanted.is_some_and(|e| e.u64 & TAG_MASK == TAG);
    let concerned =
        matches!(kind, Kind::Stream | Kind::Listener | Kind::Tcp | Kind::Epoll) || (alias && operation == libc::EPOLL_CTL_ADD);
    if !concerned && (set.count.load(Ordering::Relaxed) == 0 || find(set, fd).is_none()) {
        return None;
    }
    let wanted = match (wanted, operation) {
        (_, libc::EPOLL_CTL_DEL) => epoll_event { events: 0, u64: 0 },
        (Some(event), libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD) => event,
        (None, libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD) => return Some(Err(Errno(libc::EFAULT))),
        _ => return Some(Err(Errno(libc::EINVAL))),
    };
    let _watchers = match WATCHERS.lock() {
        Some(held) => held,
        None => return Some(Err(Errno(libc::EINTR))),
    };
    let _held = match set.lock.lock() {
        Some(held) => held,
        None => return Some(Err(Errno(libc::EINTR))),
    };
    Some(match operation {
        libc::EPOLL_CTL_ADD => add(set, epfd, fd, kind, wanted),
        libc::EPOLL_CTL_MOD => modify(set, epfd, fd, kind, wanted),
        _ => remove(set, epfd, fd, kind),
    })
}

fn add(set: &'static Set, epfd: i32, fd: i32, kind: Kind, wanted: epoll_event) -> Result<isize> {
    if let Some(entry) = find_any(set, fd) {
        if !entry.dormant.load(Ordering::Relaxed) {
            return Err(Errno(libc::EEXIST));
        }
        if kind == Kind::Stream && wanted.events & libc::EPOLLEXCLUSIVE as u32 == 0 {
            entry.dormant.store(false, Ordering::Relaxed);
            set.dormant.fetch_sub(1, Ordering::Relaxed);
            return modify(set, epfd, fd, kind, wanted);
        }
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
        set.dormant.fetch_sub(1, Ordering::Relaxed);
        detach(set, entry);
    }
    let Some(entry) = new_entry() else { return Err(Errno(libc::ENOMEM)) };
    entry.events.store(wanted.events, Ordering::Relaxed);
    entry.data.store(wanted.u64, Ordering::Relaxed);
    entry.fd.store(fd, Ordering::Relaxed);
    let mut event = kernel_event(entry, kind);
    if let Err(error) = calls::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, fd, &mut event) {
        free_entry(entry);
        return Err(error);
    }
    let socket = table::get(fd).socket();
    if let (Kind::Listener, Some(s)) = (kind, socket) {
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, accept::descriptors(fd, s)[1], &mut event);
    }
    entry.socket.store(socket.map_or(core::ptr::null_mut(), address), Ordering::Relaxed);
    if let Some(s) = socket {
        entry.next_watcher.store(s.watchers.load(Ordering::Relaxed), Ordering::Relaxed);
        s.watchers.store(address(entry), Ordering::Release);
    }
    entry.next_in_set.store(set.entries.load(Ordering::Relaxed), Ordering::Relaxed);
    set.entries.store(address(entry), Ordering::Release);
    entry.set.store(address(set), Ordering::Release);
    set.count.fetch_add(1, Ordering::Release);
    match (kind, table::get(fd).set()) {
        (Kind::Stream, _) => {
            activate(set, entry);
            kick(set, epfd, entry);
        }
        (_, Some(inner)) => {
            entry.inner.store(address(inner), Ordering::Release);
            activate(set, entry);
        }
        _ => {}
    }
    Ok(0)
}

fn modify(set: &'static Set, epfd: i32, fd: i32, kind: Kind, wanted: epoll_event) -> Result<isize> {
    let Some(entry) = find(set, fd) else { return Err(Errno(libc::ENOENT)) };
    if (wanted.events | entry.events.load(Ordering::Relaxed)) & libc::EPOLLEXCLUSIVE as u32 != 0 {
        return Err(Errno(libc::EINVAL)); // epoll_ctl(2): only with EPOLL_CTL_ADD
    }
    entry.events.store(wanted.events, Ordering::Relaxed);
    entry.data.store(wanted.u64, Ordering::Relaxed);
    entry.disabled.store(false, Ordering::Relaxed);
    entry.fresh.store(true, Ordering::Relaxed);
    if kind == Kind::Stream {
        activate(set, entry);
        kick(set, epfd, entry);
        return Ok(0);
    }
    let mut event = kernel_event(entry, kind);
    calls::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, fd, &mut event)?;
    if let (Kind::Listener, Some(s)) = (kind, table::get(fd).socket()) {
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, accept::descriptors(fd, s)[1], &mut event);
    }
    Ok(0)
}

fn remove(set: &'static Set, epfd: i32, fd: i32, kind: Kind) -> Result<isize> {
    let Some(entry) = find(set, fd) else { return Err(Errno(libc::ENOENT)) };
    if kind == Kind::Stream {
        entry.dormant.store(true, Ordering::Relaxed);
        entry.disabled.store(true, Ordering::Relaxed);
        set.dormant.fetch_add(1, Ordering::Relaxed);
        if entry.active.swap(false, Ordering::Relaxed) {
            unlink(&set.active, entry, |e| &e.next_active);
        }
        return Ok(0);
    }
    let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
    if let (Kind::Listener, Some(s)) = (kind, table::get(fd).socket()) {
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, accept::descriptors(fd, s)[1], core::ptr::null_mut());
    }
    detach(set, entry);
    Ok(0)
}

/// Another thread may sleep in the set and know nothing of an entry that is ready: makes the kernel wake it.
pub(super) fn kick(set: &Set, epfd: i32, entry: &'static Entry) {
    if set.sleepers.load(Ordering::Acquire) == 0 {
        return;
    }
    // A companion is always writable: asking for that makes an edge.
    let mut event = epoll_event { events: IN | OUT | RDHUP | ET, u64: TAG | entry.index as u64 };
    let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, entry.fd.load(Ordering::Relaxed), &mut event);
}

/// A foreign descriptor joined (or left) the kernel's set.
pub fn foreign(set: &Set, operation: i32) {
    match operation {
        libc::EPOLL_CTL_ADD => {
            set.foreign.fetch_add(1, Ordering::Relaxed);
        }
        libc::EPOLL_CTL_DEL => {
            let _ = set.foreign.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        }
        _ => {}
    }
}
