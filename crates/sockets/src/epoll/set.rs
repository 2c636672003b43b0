//! An epoll set: where it is kept, who refers to it, and its lists of entries.

use super::entry::{address, free_entry, Entry, SLABS};
use crate::global::Mutex;
use crate::table;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use shunt_sys::{clock, mapping};

/// An epoll set.
pub struct Set {
    pub(super) fd: AtomicI32,
    pub(super) references: AtomicU32,
    pub(super) lock: Mutex,
    /// Entries of ours; 0: the set is the kernel's alone.
    pub(super) count: AtomicU32,
    pub(super) entries: AtomicPtr<Entry>,
    pub(super) active: AtomicPtr<Entry>,
    pub(super) dormant: AtomicU32,
    /// Descriptors that are not ours; those closed without being removed are still counted.
    pub(super) foreign: AtomicU32,
    pub(super) sleepers: AtomicU32,
    /// Made before a fork by another process, which may still use it: only what the program asks for changes it.
    pub(super) inherited: AtomicBool,
    pub(super) last_kernel: AtomicU64,
    pub(super) next_free: AtomicPtr<Set>,
}

pub(super) static WATCHERS: Mutex = Mutex::new();

static FREE_SETS: AtomicPtr<Set> = AtomicPtr::new(core::ptr::null_mut());

/// The program made an epoll descriptor.
pub fn created(fd: i32) {
    if !table::fits(fd) {
        return;
    }
    let Some(_slabs) = SLABS.lock() else { return };
    let mut first = FREE_SETS.load(Ordering::Relaxed);
    if first.is_null() {
        let Ok(memory) = mapping::reserve(64 * core::mem::size_of::<Set>()) else { return };
        let memory = memory.cast::<Set>();
        for i in (0..64).rev() {
            // SAFETY: inside the fresh slab; all-zero is a valid Set.
            unsafe {
                let set = memory.add(i);
                (*set).next_free.store(first, Ordering::Relaxed);
                first = set;
            }
        }
    }
    // SAFETY: a free set.
    let set = unsafe { &*first };
    FREE_SETS.store(set.next_free.load(Ordering::Relaxed), Ordering::Relaxed);
    set.fd.store(fd, Ordering::Relaxed);
    set.references.store(1, Ordering::Relaxed);
    set.count.store(0, Ordering::Relaxed);
    set.entries.store(core::ptr::null_mut(), Ordering::Relaxed);
    set.active.store(core::ptr::null_mut(), Ordering::Relaxed);
    set.sleepers.store(0, Ordering::Relaxed);
    set.inherited.store(false, Ordering::Relaxed);
    set.dormant.store(0, Ordering::Relaxed);
    set.foreign.store(0, Ordering::Relaxed);
    table::set_epoll(fd, set);
}

/// A duplicate of the set's descriptor appeared.
pub fn retain(set: &Set) {
    set.references.fetch_add(1, Ordering::AcqRel);
}

/// A descriptor of the set was closed.
pub fn release(set: &'static Set) {
    if set.references.fetch_sub(1, Ordering::AcqRel) > 1 {
        return;
    }
    if let Some(_watchers) = WATCHERS.lock() {
        if let Some(_held) = set.lock.lock() {
            while let Some(entry) = ours(&set.entries) {
                set.entries.store(entry.next_in_set.load(Ordering::Relaxed), Ordering::Relaxed);
                unwatch(entry);
                free_entry(entry);
            }
            set.active.store(core::ptr::null_mut(), Ordering::Relaxed);
            set.count.store(0, Ordering::Relaxed);
        }
    }
    if let Some(_slabs) = SLABS.lock() {
        set.next_free.store(FREE_SETS.load(Ordering::Relaxed), Ordering::Relaxed);
        FREE_SETS.store(address(set), Ordering::Relaxed);
    }
}

pub(super) fn ours(link: &AtomicPtr<Entry>) -> Option<&'static Entry> {
    // SAFETY: list links are null or entries, which are never unmapped.
    unsafe { link.load(Ordering::Acquire).as_ref() }
}

/// Takes the entry out of its socket's list. Under WATCHERS.
pub(super) fn unwatch(entry: &'static Entry) {
    // SAFETY: null or a slab object.
    let Some(socket) = (unsafe { entry.socket.load(Ordering::Relaxed).as_ref() }) else { return };
    let mut link = &socket.watchers;
    while let Some(other) = ours(link) {
        if core::ptr::eq(other, entry) {
            link.store(entry.next_watcher.load(Ordering::Relaxed), Ordering::Relaxed);
            return;
        }
        link = &other.next_watcher;
    }
}

pub(super) fn unlink(
    head: &'static AtomicPtr<Entry>,
    entry: &'static Entry,
    next: fn(&'static Entry) -> &'static AtomicPtr<Entry>,
) {
    let mut link = head;
    while let Some(other) = ours(link) {
        if core::ptr::eq(other, entry) {
            link.store(next(entry).load(Ordering::Relaxed), Ordering::Relaxed);
            return;
        }
        link = next(other);
    }
}

/// Puts the entry on its set's active list. Under the set's lock.
pub(super) fn activate(set: &'static Set, entry: &'static Entry) {
    entry.last.store(clock::ticks(), Ordering::Relaxed);
    if !entry.active.swap(true, Ordering::Relaxed) {
        entry.next_active.store(set.active.load(Ordering::Relaxed), Ordering::Relaxed);
        set.active.store(address(entry), Ordering::Relaxed);
    }
}

pub(super) fn find(set: &'static Set, fd: i32) -> Option<&'static Entry> {
    find_any(set, fd).filter(|entry| !entry.dormant.load(Ordering::Relaxed))
}

/// Finds the entry, dormant or not: in the short list of the socket's watchers, or (foreign descriptors whose data looks
/// like a tag of ours) in the set's.
pub(super) fn find_any(set: &'static Set, fd: i32) -> Option<&'static Entry> {
    if let Some(socket) = table::get(fd).socket() {
        let mut at = ours(&socket.watchers);
        while let Some(entry) = at {
            if entry.fd.load(Ordering::Relaxed) == fd && entry.set.load(Ordering::Relaxed) == address(set) {
                return Some(entry);
            }
            at = ours(&entry.next_watcher);
        }
        return None;
    }
    let socket = core::ptr::null_mut();
    let mut at = ours(&set.entries);
    while let Some(entry) = at {
        if entry.fd.load(Ordering::Relaxed) == fd && entry.socket.load(Ordering::Relaxed) == socket {
            return Some(entry);
        }
        at = ours(&entry.next_in_set);
    }
    None
}

/// Forgets an entry. Under WATCHERS and the set's lock.
pub(super) fn detach(set: &'static Set, entry: &'static Entry) {
    if entry.active.swap(false, Ordering::Relaxed) {
        unlink(&set.active, entry, |e| &e.next_active);
    }
    unlink(&set.entries, entry, |e| &e.next_in_set);
    unwatch(entry);
    set.count.fetch_sub(1, Ordering::Release);
    free_entry(entry);
}
