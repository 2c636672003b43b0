//! State of the process that is not a socket's: options, the start-up ladder, the locks of slow paths.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use shunt_config::Options;
use shunt_ring::lock;
use shunt_sys::section::Section;
use shunt_sys::{calls, thread};

/// A value that is written once at start-up, or only under a lock that its user names.
pub struct LockedCell<T>(UnsafeCell<T>);

// SAFETY: users uphold the rule above.
unsafe impl<T> Sync for LockedCell<T> {}

impl<T> LockedCell<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> LockedCell<T> {
        LockedCell(UnsafeCell::new(value))
    }
    /// The value's address.
    pub const fn get(&self) -> *mut T {
        self.0.get()
    }
}

/// What the process knows from its start on, and the lock of slow paths.
#[repr(C, align(64))]
struct Global {
    options: LockedCell<Options>,
    ready: AtomicBool,
    /// 1 if membarrier(2) makes our peers' stores and loads visible, so that senders need no fence.
    barriers: AtomicU32,
    single_threaded: AtomicPtr<u8>,
    lock: SlowPaths,
}

/// What threads write lies in a cache line of its own.
#[repr(C, align(64))]
struct SlowPaths {
    setup: Mutex,
    /// See [`owe_user_change`].
    user_change_owed: AtomicBool,
}

static GLOBAL: Global = Global {
    options: LockedCell::new(Options::default_const()),
    ready: AtomicBool::new(false),
    barriers: AtomicU32::new(0),
    single_threaded: AtomicPtr::new(core::ptr::null_mut()),
    lock: SlowPaths { setup: Mutex::new(), user_change_owed: AtomicBool::new(false) },
};

/// Guards links, ports, netlink sockets, slabs' free lists: everything that set-up and tear-down touch.
pub const SETUP: &Mutex = &GLOBAL.lock.setup;

/// Whether membarrier(2) makes our peers' stores and loads visible, so that senders need no fence.
#[inline(always)]
pub fn barriers() -> bool {
    GLOBAL.barriers.load(Ordering::Relaxed) != 0
}

/// What the kernel has answered.
pub fn set_barriers(known: bool) {
    GLOBAL.barriers.store(known.into(), Ordering::Relaxed);
}

/// The options, fixed at start-up.
#[inline(always)]
pub fn options() -> &'static Options {
    // SAFETY: written by `start` only, before `ready`.
    unsafe { &*GLOBAL.options.get() }
}

/// Whether start-up is complete: before that every call goes to the kernel.
#[inline(always)]
pub fn ready() -> bool {
    GLOBAL.ready.load(Ordering::Acquire)
}

/// First steps of the ladder: options, libc's single-thread flag (may be null).
///
/// # Safety
/// Called once, before any other thread exists.
pub unsafe fn set(options: Options, single_threaded: *mut u8) {
    // SAFETY: promised by the caller.
    unsafe { *GLOBAL.options.get() = options };
    GLOBAL.single_threaded.store(single_threaded, Ordering::Relaxed);
}

/// Last step of the ladder.
pub fn set_ready() {
    GLOBAL.ready.store(true, Ordering::Release);
}

/// Whether this process has one thread only (libc knows; it never says so wrongly).
#[inline(always)]
pub fn single_threaded() -> bool {
    let flag = GLOBAL.single_threaded.load(Ordering::Relaxed);
    // SAFETY: null, or libc's `__libc_single_threaded`, which lives as long as the process.
    !flag.is_null() && unsafe { flag.read_volatile() } != 0
}

/// A lock of slow paths inside one process (tables, slabs, links). Held for microseconds.
pub struct Mutex(AtomicU32);

impl Mutex {
    /// A free lock.
    pub const fn new() -> Mutex {
        Mutex(AtomicU32::new(0))
    }

    /// Takes the lock, in a section, so that no handler of the program finds it held by its own thread; `None` when one
    /// that was installed past us does.
    pub fn lock(&self) -> Option<Guard<'_>> {
        let section = Section::begin();
        let held = lock::acquire(&self.0, thread::id(), single_threaded(), |_| calls::sched_yield())?;
        Some(Guard { _held: held, _section: section, _after: After })
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_>> {
        let section = Section::begin();
        let held = lock::try_acquire(&self.0, thread::id())?;
        Some(Guard { _held: held, _section: section, _after: After })
    }

    /// Whether the calling thread has the lock.
    pub fn is_mine(&self) -> bool {
        self.0.load(Ordering::Relaxed) == thread::id()
    }

    /// In the child after fork: no other thread exists, so its holder is gone.
    pub fn reset(&self) {
        // After a fork the page is the parent's, too, and would be copied for nothing.
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

/// A [`Mutex`] that is held.
pub struct Guard<'a> {
    // Released first: fields are dropped in their order.
    _held: lock::Held<'a>,
    _section: Section,
    _after: After,
}

/// A handler that found the set-up lock held by its own thread has changed the process's user: what follows from that is done when the
/// lock is free.
pub fn owe_user_change() {
    GLOBAL.lock.user_change_owed.store(true, Ordering::Release);
}

struct After;

impl Drop for After {
    #[inline]
    fn drop(&mut self) {
        if GLOBAL.lock.user_change_owed.load(Ordering::Relaxed) {
            owed();
        }
    }
}

#[cold]
fn owed() {
    if GLOBAL.lock.user_change_owed.swap(false, Ordering::AcqRel) {
        crate::upcalls::operations::user_changed();
    }
}

impl Default for Mutex {
    fn default() -> Self {
        Mutex::new()
    }
}
