//! One descriptor in one set, and the slabs that entries come from.

use super::set::Set;
use crate::global::{Mutex, Shared};
use crate::socket::Socket;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use shunt_sys::{clock, mapping};

/// One descriptor in one set.
pub struct Entry {
    pub(super) set: AtomicPtr<Set>,
    pub(super) socket: AtomicPtr<Socket>,
    /// An epoll set inside this one.
    pub(super) inner: AtomicPtr<Set>,
    pub(super) fd: AtomicI32,
    pub(super) events: AtomicU32,
    pub(super) data: AtomicU64,
    /// Number under which the kernel knows it.
    pub(super) index: u32,
    /// ONESHOT fired: nothing until modified.
    pub(super) disabled: AtomicBool,
    pub(super) active: AtomicBool,
    /// Edge-triggered: report what holds once more, whether or not it changed.
    pub(super) fresh: AtomicBool,
    /// Edge-triggered: the peer's word and our state at the last report.
    pub(super) seen: AtomicU64,
    /// Edge-triggered: the count of blocked sends at the last report of OUT.
    pub(super) unblocked: AtomicU32,
    /// When it last had an event, in ticks.
    pub(super) last: AtomicU64,
    /// Removed by the program, but still in the kernel's set: programs that add and remove a stream around each message
    /// cost no system call.
    pub(super) dormant: AtomicBool,
    pub(super) next_active: AtomicPtr<Entry>,
    pub(super) next_watcher: AtomicPtr<Entry>,
    pub(super) next_in_set: AtomicPtr<Entry>,
}

pub(super) static SLABS: Mutex = Mutex::new();

static FREE_ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(core::ptr::null_mut());

const CHUNK: usize = 256;

const CHUNKS: usize = 4096;

static CHUNK_TABLE: Shared<[*mut Entry; CHUNKS]> = Shared::new([core::ptr::null_mut(); CHUNKS]);

static CHUNK_COUNT: AtomicU32 = AtomicU32::new(0);

pub(super) fn entry_at(index: u32) -> Option<&'static Entry> {
    let chunk = index as usize / CHUNK;
    if chunk >= CHUNK_COUNT.load(Ordering::Acquire) as usize {
        return None;
    }
    // SAFETY: published chunks are never unmapped.
    unsafe { Some(&*(*CHUNK_TABLE.get())[chunk].add(index as usize % CHUNK)) }
}

pub(super) fn new_entry() -> Option<&'static Entry> {
    let _slabs = SLABS.lock()?;
    let mut first = FREE_ENTRIES.load(Ordering::Relaxed);
    if first.is_null() {
        let chunk = CHUNK_COUNT.load(Ordering::Relaxed) as usize;
        if chunk == CHUNKS {
            return None;
        }
        let memory = mapping::reserve(CHUNK * core::mem::size_of::<Entry>()).ok()?.cast::<Entry>();
        for i in (0..CHUNK).rev() {
            // SAFETY: inside the fresh chunk; all-zero is a valid Entry.
            unsafe {
                let entry = memory.add(i);
                (&raw mut (*entry).index).write((chunk * CHUNK + i) as u32);
                (*entry).next_in_set.store(first, Ordering::Relaxed);
                first = entry;
            }
        }
        // SAFETY: under the slab lock.
        unsafe { (*CHUNK_TABLE.get())[chunk] = memory };
        CHUNK_COUNT.store(chunk as u32 + 1, Ordering::Release);
    }
    // SAFETY: a free entry.
    let entry = unsafe { &*first };
    FREE_ENTRIES.store(entry.next_in_set.load(Ordering::Relaxed), Ordering::Relaxed);
    for flag in [&entry.disabled, &entry.active] {
        flag.store(false, Ordering::Relaxed);
    }
    entry.fresh.store(true, Ordering::Relaxed);
    entry.seen.store(0, Ordering::Relaxed);
    entry.unblocked.store(0, Ordering::Relaxed);
    entry.inner.store(core::ptr::null_mut(), Ordering::Relaxed);
    entry.last.store(clock::ticks(), Ordering::Relaxed);
    entry.dormant.store(false, Ordering::Relaxed);
    Some(entry)
}

pub(super) fn free_entry(entry: &'static Entry) {
    entry.set.store(core::ptr::null_mut(), Ordering::Release);
    entry.socket.store(core::ptr::null_mut(), Ordering::Release);
    if let Some(_slabs) = SLABS.lock() {
        entry.next_in_set.store(FREE_ENTRIES.load(Ordering::Relaxed), Ordering::Relaxed);
        FREE_ENTRIES.store(address(entry), Ordering::Relaxed);
    }
}

pub(super) fn address<T>(reference: &'static T) -> *mut T {
    reference as *const T as *mut T
}
