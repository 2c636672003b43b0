//! epoll sets that hold accelerated sockets.
//!
//! The set is a real epoll descriptor. Foreign descriptors go into it as the program says. A stream's companion goes in
//! edge-triggered, under a tag of ours: a doorbell is an edge. What a stream is ready for is then computed in memory.
//!
//! Each set has a list of *active* streams, those that may be ready without a doorbell. [`wait`] looks at them, spins
//! over them while that pays, and before sleeping arms them all and forgets them: from then on a stream that does
//! nothing costs nothing, and the kernel says which one rang. So cost grows with active sockets, not with registered
//! ones.

use crate::global::{Mutex, Shared};
use crate::readiness;
use crate::socket::Socket;
use crate::table::{self, Kind};
use crate::{accept, spin, wait as waiting};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use shunt_ring::bell;
use shunt_segment::channel::{arm, state, style};
use shunt_sys::libc::{self, epoll_event, sigset_t, timespec};
use shunt_sys::{calls, clock, mapping, thread, Errno, Result};

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
const ERR: u32 = libc::EPOLLERR as u32;
const HUP: u32 = libc::EPOLLHUP as u32;
const ET: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
/// Bits of an event mask that are not events.
const MODES: u32 = ET | ONESHOT | libc::EPOLLEXCLUSIVE as u32 | libc::EPOLLWAKEUP as u32;

/// Upper half-word of our tags in the kernel's event data: not a canonical address, not a small number.
const TAG: u64 = 0x9d3f << 48;
const TAG_MASK: u64 = 0xffff << 48;

/// Ticks without an event after which an active stream is armed, and after which it is left to its doorbell. Between
/// the two it is still looked at: what the peer sent before it could see the flag shows by then.
const ARM_AFTER: u64 = 1_000_000;
const COLD_AFTER: u64 = 2_000_000;

/// Ticks between questions to the kernel while streams alone keep a set busy.
const KERNEL_EVERY: u64 = 60_000;
/// The same where descriptors of the kernel's are in the set, whose events belong in the same answer: only a program
/// that asks again within two microseconds spares the question.
const KERNEL_EVERY_MIXED: u64 = 5_000;

/// One descriptor in one set.
pub struct Entry {
    set: AtomicPtr<Set>,
    socket: AtomicPtr<Socket>,
    /// An epoll set inside this one.
    inner: AtomicPtr<Set>,
    fd: AtomicI32,
    events: AtomicU32,
    data: AtomicU64,
    /// Number under which the kernel knows it.
    index: u32,
    /// ONESHOT fired: nothing until modified.
    disabled: AtomicBool,
    active: AtomicBool,
    /// Edge-triggered: report what holds once more, whether or not it changed.
    fresh: AtomicBool,
    /// Edge-triggered: the peer's word and our state at the last report.
    seen: AtomicU64,
    /// Edge-triggered: the count of blocked sends at the last report of OUT.
    unblocked: AtomicU32,
    /// When it last had an event, in ticks.
    last: AtomicU64,
    /// Removed by the program, but still in the kernel's set: programs that add and remove a stream around each message
    /// cost no system call.
    dormant: AtomicBool,
    next_active: AtomicPtr<Entry>,
    next_watcher: AtomicPtr<Entry>,
    next_in_set: AtomicPtr<Entry>,
}

/// An epoll set.
pub struct Set {
    fd: AtomicI32,
    references: AtomicU32,
    lock: Mutex,
    /// Entries of ours; 0: the set is the kernel's alone.
    count: AtomicU32,
    entries: AtomicPtr<Entry>,
    active: AtomicPtr<Entry>,
    dormant: AtomicU32,
    /// Descriptors that are not ours; those closed without being removed are still counted.
    foreign: AtomicU32,
    sleepers: AtomicU32,
    /// Made before a fork by another process, which may still use it: only what the program asks for changes it.
    inherited: AtomicBool,
    last_kernel: AtomicU64,
    next_free: AtomicPtr<Set>,
}

static WATCHERS: Mutex = Mutex::new();
static SLABS: Mutex = Mutex::new();
static FREE_SETS: AtomicPtr<Set> = AtomicPtr::new(core::ptr::null_mut());
static FREE_ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(core::ptr::null_mut());

const CHUNK: usize = 256;
const CHUNKS: usize = 4096;
static CHUNK_TABLE: Shared<[*mut Entry; CHUNKS]> = Shared::new([core::ptr::null_mut(); CHUNKS]);
static CHUNK_COUNT: AtomicU32 = AtomicU32::new(0);

fn entry_at(index: u32) -> Option<&'static Entry> {
    let chunk = index as usize / CHUNK;
    if chunk >= CHUNK_COUNT.load(Ordering::Acquire) as usize {
        return None;
    }
    // SAFETY: published chunks are never unmapped.
    unsafe { Some(&*(*CHUNK_TABLE.get())[chunk].add(index as usize % CHUNK)) }
}

fn new_entry() -> Option<&'static Entry> {
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

fn free_entry(entry: &'static Entry) {
    entry.set.store(core::ptr::null_mut(), Ordering::Release);
    entry.socket.store(core::ptr::null_mut(), Ordering::Release);
    if let Some(_slabs) = SLABS.lock() {
        entry.next_in_set.store(FREE_ENTRIES.load(Ordering::Relaxed), Ordering::Relaxed);
        FREE_ENTRIES.store(address(entry), Ordering::Relaxed);
    }
}

fn address<T>(reference: &'static T) -> *mut T {
    reference as *const T as *mut T
}

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

fn ours(link: &AtomicPtr<Entry>) -> Option<&'static Entry> {
    // SAFETY: list links are null or entries, which are never unmapped.
    unsafe { link.load(Ordering::Acquire).as_ref() }
}

/// Takes the entry out of its socket's list. Under WATCHERS.
fn unwatch(entry: &'static Entry) {
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

fn unlink(head: &'static AtomicPtr<Entry>, entry: &'static Entry, next: fn(&'static Entry) -> &'static AtomicPtr<Entry>) {
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
fn activate(set: &'static Set, entry: &'static Entry) {
    entry.last.store(clock::ticks(), Ordering::Relaxed);
    if !entry.active.swap(true, Ordering::Relaxed) {
        entry.next_active.store(set.active.load(Ordering::Relaxed), Ordering::Relaxed);
        set.active.store(address(entry), Ordering::Relaxed);
    }
}

fn find(set: &'static Set, fd: i32) -> Option<&'static Entry> {
    find_any(set, fd).filter(|entry| !entry.dormant.load(Ordering::Relaxed))
}

/// Finds the entry, dormant or not: in the short list of the socket's watchers, or (foreign descriptors whose data looks
/// like a tag of ours) in the set's.
fn find_any(set: &'static Set, fd: i32) -> Option<&'static Entry> {
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

/// What the kernel's set holds for an entry.
fn kernel_event(entry: &Entry, kind: Kind) -> epoll_event {
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

/// Forgets an entry. Under WATCHERS and the set's lock.
fn detach(set: &'static Set, entry: &'static Entry) {
    if entry.active.swap(false, Ordering::Relaxed) {
        unlink(&set.active, entry, |e| &e.next_active);
    }
    unlink(&set.entries, entry, |e| &e.next_in_set);
    unwatch(entry);
    set.count.fetch_sub(1, Ordering::Release);
    free_entry(entry);
}

/// Another thread may sleep in the set and know nothing of an entry that is ready: makes the kernel wake it.
fn kick(set: &Set, epfd: i32, entry: &'static Entry) {
    if set.sleepers.load(Ordering::Acquire) == 0 {
        return;
    }
    // A companion is always writable: asking for that makes an edge.
    let mut event = epoll_event { events: IN | OUT | RDHUP | ET, u64: TAG | entry.index as u64 };
    let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, entry.fd.load(Ordering::Relaxed), &mut event);
}

/// The last descriptor of this process for `socket` closes: it leaves all sets.
pub fn forget_socket(socket: &'static Socket, fd: i32) {
    if socket.watchers.load(Ordering::Relaxed).is_null() {
        return;
    }
    let Some(_watchers) = WATCHERS.lock() else { return };
    while let Some(entry) = ours(&socket.watchers) {
        // SAFETY: null or a slab object.
        let Some(set) = (unsafe { entry.set.load(Ordering::Acquire).as_ref() }) else {
            unwatch(entry);
            continue;
        };
        let Some(_held) = set.lock.lock() else { return };
        // Other processes may keep the companion open: then the kernel would not forget it by itself. In a child of fork
        // the set is the parent's too, whose sockets stay watched when the child closes its copies (epoll(7), Q6).
        let epfd = set.fd.load(Ordering::Relaxed);
        let ours_alone = !set.inherited.load(Ordering::Relaxed);
        if ours_alone && entry.fd.load(Ordering::Relaxed) == fd {
            let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
        }
        let rendezvous = socket.private_fd.load(Ordering::Relaxed);
        if ours_alone && rendezvous >= 0 {
            let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, rendezvous, core::ptr::null_mut());
        }
        if entry.dormant.load(Ordering::Relaxed) {
            set.dormant.fetch_sub(1, Ordering::Relaxed);
        }
        detach(set, entry);
    }
}

fn each_watcher(socket: &Socket, mut act: impl FnMut(&'static Set, &'static Entry)) {
    if socket.watchers.load(Ordering::Relaxed).is_null() {
        return;
    }
    let Some(_watchers) = WATCHERS.lock() else { return };
    let mut at = ours(&socket.watchers);
    while let Some(entry) = at {
        at = ours(&entry.next_watcher);
        // SAFETY: null or a slab object.
        if let Some(set) = unsafe { entry.set.load(Ordering::Acquire).as_ref() } {
            act(set, entry);
        }
    }
}

/// A watched TCP socket began to listen: its rendezvous joins the sets.
pub fn became_listener(socket: &Socket) {
    each_watcher(socket, |set, entry| {
        let mut event = kernel_event(entry, Kind::Listener);
        let rendezvous = socket.private_fd.load(Ordering::Relaxed);
        let _ = calls::epoll_ctl(set.fd.load(Ordering::Relaxed), libc::EPOLL_CTL_ADD, rendezvous, &mut event);
    });
}

/// A watched TCP socket is about to be replaced by a companion: it leaves the kernel's sets.
pub fn before_replace(socket: &Socket) {
    each_watcher(socket, |set, entry| {
        let (epfd, fd) = (set.fd.load(Ordering::Relaxed), entry.fd.load(Ordering::Relaxed));
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
    });
}

/// The companion is in place: it joins them.
pub fn after_replace(socket: &Socket) {
    each_watcher(socket, |set, entry| {
        let mut event = kernel_event(entry, Kind::Stream);
        let (epfd, fd) = (set.fd.load(Ordering::Relaxed), entry.fd.load(Ordering::Relaxed));
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, fd, &mut event);
        if let Some(_held) = set.lock.lock() {
            entry.fresh.store(true, Ordering::Relaxed);
            activate(set, entry);
            kick(set, epfd, entry);
        }
    });
}

/// Whether the set is the kernel's alone: epoll_wait then needs nothing of us.
#[inline(always)]
pub fn plain(set: &Set) -> bool {
    set.count.load(Ordering::Acquire) == 0
}

/// A thread is about to wait in a set that is the kernel's alone, and must be woken should that change.
pub fn enter_plain(set: &Set) {
    set.sleepers.fetch_add(1, Ordering::AcqRel);
}

/// The kernel's answer to such a wait. If entries of ours came into the set meanwhile, it may speak of them under their
/// tags: translates. `None`: nothing is left to report, wait on.
///
/// # Safety
/// `events` holds `count` entries and has room for them.
pub unsafe fn leave_plain(set: &'static Set, events: *mut epoll_event, count: usize) -> Option<usize> {
    set.sleepers.fetch_sub(1, Ordering::AcqRel);
    // SAFETY: the caller's array.
    let tagged = |i: usize| unsafe { (*events.add(i)).u64 } & TAG_MASK == TAG;
    // The events decide, not the count of entries: the kernel may speak of one that is just being added.
    if !(0..count).any(tagged) {
        return Some(count);
    }
    let mut batch = [epoll_event { events: 0, u64: 0 }; BATCH];
    let mut sorted = Events { start: events, room: count, count: 0 };
    let mut at = 0;
    while at < count {
        // Sorted events never outnumber those read, so what is read next has not been overwritten.
        let part = (count - at).min(BATCH);
        // SAFETY: the caller's array.
        unsafe { core::ptr::copy_nonoverlapping(events.add(at), batch.as_mut_ptr(), part) };
        let _ = sort(set, &batch[..part], &mut sorted);
        at += part;
    }
    let _ = look(set, &mut sorted);
    (sorted.count > 0).then_some(sorted.count)
}

/// What an entry would report now; 0: nothing. Under the set's lock.
fn report(entry: &'static Entry) -> u32 {
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

/// A set is readable while it has events; as an edge when that begins.
fn report_inner(entry: &'static Entry, inner: &'static Set) -> u32 {
    let wanted = entry.events.load(Ordering::Relaxed);
    let now = readable(inner);
    let before = entry.seen.swap(now as u64, Ordering::Relaxed) != 0;
    if now && (wanted & ET == 0 || !before || entry.fresh.swap(false, Ordering::Relaxed)) {
        wanted & IN
    } else {
        0
    }
}

/// Changes whenever the peer sends or ends: the edges of a socket.
fn signature(socket: &Socket) -> u64 {
    let peer = socket.peer().post.word.load(Ordering::Acquire);
    let ends = socket.own().receive.state.load(Ordering::Acquire) & (state::DONE | state::PEER_GONE | state::SHUT_RD);
    peer ^ (ends as u64).rotate_right(8) ^ socket.peer().urgent.load(Ordering::Acquire).rotate_left(1)
}

/// Looks at the active streams; writes up to `room` events. Under the set's lock.
fn scan(set: &'static Set, events: &mut Events) {
    let time = clock::ticks();
    let mut link = &set.active;
    while let Some(entry) = ours(link) {
        if events.full() {
            // Those not looked at come first next time: rotate the list so that it begins here.
            rotate(set, entry);
            return;
        }
        let now = report(entry);
        if now != 0 {
            entry.last.store(time, Ordering::Relaxed);
            events.push(now, entry.data.load(Ordering::Relaxed));
            if entry.events.load(Ordering::Relaxed) & ONESHOT != 0 {
                entry.disabled.store(true, Ordering::Relaxed);
            }
        } else {
            let idle = time.saturating_sub(entry.last.load(Ordering::Relaxed));
            if idle > ARM_AFTER {
                if !armed(entry) {
                    arm(entry);
                } else if idle > COLD_AFTER {
                    entry.active.store(false, Ordering::Relaxed);
                    link.store(entry.next_active.load(Ordering::Relaxed), Ordering::Relaxed);
                    continue;
                }
            }
        }
        link = &entry.next_active;
    }
}

fn rotate(set: &'static Set, first: &'static Entry) {
    let head = set.active.load(Ordering::Relaxed);
    if head == address(first) {
        return;
    }
    let mut link = &set.active;
    while let Some(entry) = ours(link) {
        if core::ptr::eq(entry, first) {
            link.store(core::ptr::null_mut(), Ordering::Relaxed);
            break;
        }
        link = &entry.next_active;
    }
    let mut link = &first.next_active;
    while let Some(entry) = ours(link) {
        link = &entry.next_active;
    }
    link.store(head, Ordering::Relaxed);
    set.active.store(address(first), Ordering::Relaxed);
}

/// What a set arms: bits of its own, so that waking takes nothing from a thread that sleeps in recv or poll.
fn conditions(entry: &Entry) -> u32 {
    let wanted = entry.events.load(Ordering::Relaxed);
    (arm::IN | if wanted & OUT != 0 { arm::OUT } else { 0 }) << arm::SET_SHIFT
}

/// Arms an entry's stream; true if a barrier is due before the next look.
fn arm(entry: &'static Entry) -> bool {
    // SAFETY: null or a slab object.
    if let Some(inner) = unsafe { entry.inner.load(Ordering::Acquire).as_ref() } {
        return arm_all(inner);
    }
    // SAFETY: streams only are active.
    let Some(socket) = (unsafe { entry.socket.load(Ordering::Relaxed).as_ref() }) else { return false };
    let fd = entry.fd.load(Ordering::Relaxed);
    // Edges do not need the old bells gone; a long row of them would fill the companion.
    let rung = socket.peer().transmit.rung.load(Ordering::Relaxed);
    if rung.wrapping_sub(socket.own().receive.taken.load(Ordering::Relaxed)) > 16 {
        waiting::drain(socket, fd);
    }
    waiting::set_style(socket, style::POLL);
    waiting::announce(socket, conditions(entry))
}

fn armed(entry: &'static Entry) -> bool {
    if !entry.inner.load(Ordering::Acquire).is_null() {
        return false; // looked at for as long as it is in the set
    }
    // SAFETY: streams only are active.
    let Some(socket) = (unsafe { entry.socket.load(Ordering::Relaxed).as_ref() }) else { return true };
    bell::is_armed(&socket.own().wait, conditions(entry))
}

/// Arms all active streams (for a sleep in this set or in one that holds it); true if a barrier is due.
pub fn arm_all(set: &'static Set) -> bool {
    let Some(_held) = set.lock.lock() else { return true };
    let mut due = false;
    let mut at = ours(&set.active);
    while let Some(entry) = at {
        due |= arm(entry);
        at = ours(&entry.next_active);
    }
    due
}

/// Awake again: streams that were busy a moment ago will be looked at, so their peers need not ring; unless another
/// thread or process sleeps in this set, or another set watches the stream, and needs the bell.
fn wake(set: &'static Set) {
    if set.sleepers.load(Ordering::Acquire) > 1 {
        return;
    }
    let Some(_held) = set.lock.lock() else { return };
    let now = clock::ticks();
    let mut at = ours(&set.active);
    while let Some(entry) = at {
        // SAFETY: streams only are active.
        if let Some(socket) = unsafe { entry.socket.load(Ordering::Relaxed).as_ref() } {
            let busy = now.saturating_sub(entry.last.load(Ordering::Relaxed)) < ARM_AFTER;
            let only =
                socket.watchers.load(Ordering::Acquire) == address(entry) && entry.next_watcher.load(Ordering::Acquire).is_null();
            if busy && only && !socket.has(crate::socket::flag::SHARED) {
                bell::disarm(&socket.own().wait, (arm::IN | arm::OUT) << arm::SET_SHIFT);
            }
        }
        at = ours(&entry.next_active);
    }
}

/// Whether the set has events in memory: for poll on an epoll descriptor.
pub fn readable(set: &'static Set) -> bool {
    let Some(_held) = set.lock.lock() else { return false };
    let mut at = ours(&set.active);
    while let Some(entry) = at {
        let disabled = entry.disabled.load(Ordering::Relaxed);
        // SAFETY: null or a slab object.
        if let (false, Some(inner)) = (disabled, unsafe { entry.inner.load(Ordering::Acquire).as_ref() }) {
            if readable(inner) {
                return true;
            }
        }
        // SAFETY: streams only are active.
        if let (false, Some(socket)) = (disabled, unsafe { entry.socket.load(Ordering::Relaxed).as_ref() }) {
            let wanted = entry.events.load(Ordering::Relaxed);
            let now = readiness::events(socket) as u16 as u32 & (wanted & !MODES | ERR | HUP);
            let quiet = wanted & ET != 0
                && !entry.fresh.load(Ordering::Relaxed)
                && signature(socket) == entry.seen.load(Ordering::Relaxed);
            if now != 0 && !quiet {
                return true;
            }
        }
        at = ours(&entry.next_active);
    }
    false
}

/// Whether the kernel's part of an inner set reports anything but bells. Bells are taken note of.
fn inner_ready(inner: &'static Set) -> bool {
    // Without an array of the program's to fill, the kernel's events cannot be taken out to see what they are: a set that
    // holds anything but streams is believed.
    if readable(inner) || inner.foreign.load(Ordering::Relaxed) > 0 {
        return true;
    }
    let Some(_held) = inner.lock.lock() else { return true };
    let mut at = ours(&inner.entries);
    while let Some(entry) = at {
        // SAFETY: null or a slab object.
        let socket = unsafe { entry.socket.load(Ordering::Relaxed).as_ref() };
        if socket.map(|s| s.kind()) != Some(Kind::Stream) {
            return true;
        }
        at = ours(&entry.next_in_set);
    }
    false
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

/// The program's array of events, being filled.
struct Events {
    start: *mut epoll_event,
    room: usize,
    count: usize,
}

impl Events {
    fn full(&self) -> bool {
        self.count == self.room
    }
    fn push(&mut self, events: u32, data: u64) {
        // SAFETY: count < room, checked by the callers; the array is the program's.
        unsafe { self.start.add(self.count).write_unaligned(epoll_event { events, u64: data }) };
        self.count += 1;
    }
}

/// epoll_wait(2) and its forms on a set that holds entries of ours.
///
/// # Safety
/// `events` has room for `room` entries; `mask` is null or valid.
pub unsafe fn wait(
    set: &'static Set,
    epfd: i32,
    events: *mut epoll_event,
    room: i32,
    deadline: u64,
    mask: *const sigset_t,
) -> Result<isize> {
    if room <= 0 {
        return Err(Errno(libc::EINVAL));
    }
    let began = thread::interruptions();
    let mut events = Events { start: events, room: room as usize, count: 0 };
    let now = clock::ticks();
    let every = if set.foreign.load(Ordering::Relaxed) > 0 { KERNEL_EVERY_MIXED } else { KERNEL_EVERY };
    let due = now.wrapping_sub(set.last_kernel.load(Ordering::Relaxed)) > every;
    if due || deadline == 0 {
        ask_kernel(set, epfd, &mut events, Some(0), core::ptr::null())?;
    }
    look(set, &mut events)?;
    if events.count > 0 || deadline == 0 {
        if events.count == 0 && check_peers(set) {
            look(set, &mut events)?;
        }
        return Ok(events.count as isize);
    }
    loop {
        let mut spin = spin::begin(0);
        while spin.more() {
            look(set, &mut events)?;
            if events.count == 0 && spin.rounds() & 0x3f == 0 {
                ask_kernel(set, epfd, &mut events, Some(0), core::ptr::null())?;
            }
            if events.count > 0 {
                spin.end();
                return Ok(events.count as isize);
            }
        }
        let slept = sleep(set, epfd, &mut events, deadline, mask, began);
        spin.end();
        slept?;
        if events.count > 0 || (deadline != u64::MAX && clock::monotonic_ns() >= deadline) {
            return Ok(events.count as isize);
        }
    }
}

fn look(set: &'static Set, events: &mut Events) -> Result<()> {
    if set.active.load(Ordering::Relaxed).is_null() {
        return Ok(());
    }
    let _held = set.lock.lock().ok_or(Errno(libc::EINTR))?;
    scan(set, events);
    Ok(())
}

fn check_peers(set: &'static Set) -> bool {
    let Some(_held) = set.lock.lock() else { return false };
    let mut gone = false;
    let mut at = ours(&set.active);
    while let Some(entry) = at {
        // SAFETY: streams only are active.
        if let Some(socket) = unsafe { entry.socket.load(Ordering::Relaxed).as_ref() } {
            waiting::check_peer(socket, entry.fd.load(Ordering::Relaxed));
            gone |= socket.own().receive.state.load(Ordering::Relaxed) & state::PEER_GONE != 0;
        }
        at = ours(&entry.next_active);
    }
    gone
}

/// Arms the active streams, looks once more, and sleeps in the kernel's epoll. `began`: as in `wait::wait`.
fn sleep(set: &'static Set, epfd: i32, events: &mut Events, deadline: u64, mask: *const sigset_t, began: u32) -> Result<()> {
    set.sleepers.fetch_add(1, Ordering::AcqRel);
    let result = (|| {
        if !set.active.load(Ordering::Relaxed).is_null() {
            if arm_all(set) {
                waiting::barrier();
            }
            look(set, events)?;
            if events.count > 0 {
                wake(set);
                return Ok(());
            }
        }
        if thread::interruptions() != began {
            return Err(Errno(libc::EINTR)); // a handler ran while we looked
        }
        let left = if deadline == u64::MAX { None } else { Some(deadline.saturating_sub(clock::monotonic_ns())) };
        let asked = ask_kernel(set, epfd, events, left, mask);
        cool(set);
        asked?;
        wake(set);
        look(set, events)
    })();
    set.sleepers.fetch_sub(1, Ordering::AcqRel);
    result
}

/// Streams that were armed through a sleep and quiet for long are left to their bells.
fn cool(set: &'static Set) {
    let Some(_held) = set.lock.lock() else { return };
    let now = clock::ticks();
    let mut link = &set.active;
    while let Some(entry) = ours(link) {
        if now.saturating_sub(entry.last.load(Ordering::Relaxed)) > ARM_AFTER && armed(entry) {
            entry.active.store(false, Ordering::Relaxed);
            link.store(entry.next_active.load(Ordering::Relaxed), Ordering::Relaxed);
        } else {
            link = &entry.next_active;
        }
    }
}

const BATCH: usize = 64;

/// Asks the kernel's set, for `timeout` ns (`None`: for ever), and sorts what it says.
fn ask_kernel(set: &'static Set, epfd: i32, events: &mut Events, timeout: Option<u64>, mask: *const sigset_t) -> Result<()> {
    let mut batch = [epoll_event { events: 0, u64: 0 }; BATCH];
    let room = (events.room - events.count).min(BATCH);
    if room == 0 {
        return Ok(());
    }
    let time = timeout.map(|ns| timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
    let pointer = time.as_ref().map_or(core::ptr::null(), |t| t as *const timespec);
    let got = calls::epoll_pwait2(epfd, batch.as_mut_ptr(), room as i32, pointer, mask, calls::KERNEL_SIGSET)?;
    set.last_kernel.store(clock::ticks(), Ordering::Relaxed);
    if got == 0 {
        return Ok(());
    }
    sort(set, &batch[..got], events)
}

/// Sorts the kernel's events: streams become active, ours get the program's data back, others pass as they are.
fn sort(set: &'static Set, batch: &[epoll_event], events: &mut Events) -> Result<()> {
    let _held = set.lock.lock().ok_or(Errno(libc::EINTR))?;
    let mut listeners = [u32::MAX; 8];
    for event in batch {
        let (flags, data) = (event.events, event.u64);
        let entry = if data & TAG_MASK == TAG { entry_at(data as u32) } else { None };
        let Some(entry) = entry else {
            events.push(flags, data);
            continue;
        };
        if entry.set.load(Ordering::Acquire) != address(set) {
            continue; // removed meanwhile, or registered by another process after a fork
        }
        // SAFETY: null or a slab object.
        let socket = unsafe { entry.socket.load(Ordering::Relaxed).as_ref() };
        match (socket.map(|s| s.kind()), socket) {
            (Some(Kind::Stream), Some(socket)) => {
                if flags & (ERR | HUP) != 0 {
                    readiness::note_gone(socket);
                }
                if !entry.dormant.load(Ordering::Relaxed) {
                    activate(set, entry);
                }
            }
            (None, _) if !entry.inner.load(Ordering::Acquire).is_null() => {
                // The inner set heard a bell: whether it has events is seen in memory, or is the kernel's to say.
                // SAFETY: not null.
                let inner = unsafe { &*entry.inner.load(Ordering::Acquire) };
                if plain(inner) || inner_ready(inner) {
                    events.push(flags, entry.data.load(Ordering::Relaxed));
                }
            }
            (Some(Kind::Listener), _) => {
                // Both queues may have spoken: one event is enough.
                if !listeners.contains(&entry.index) {
                    if let Some(slot) = listeners.iter_mut().find(|s| **s == u32::MAX) {
                        *slot = entry.index;
                    }
                    events.push(flags, entry.data.load(Ordering::Relaxed));
                }
            }
            _ => events.push(flags, entry.data.load(Ordering::Relaxed)),
        }
    }
    Ok(())
}

/// In the child after fork: no other thread exists, so no lock is held and nobody sleeps.
pub fn forked() {
    WATCHERS.reset();
    SLABS.reset();
    for fd in 0..table::high_water() {
        if let Some(set) = table::get(fd).set() {
            set.lock.reset();
            set.sleepers.store(0, Ordering::Relaxed);
            set.inherited.store(true, Ordering::Relaxed);
        }
    }
}
