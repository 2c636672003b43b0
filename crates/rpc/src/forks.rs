//! Forks of this process: a child has its parent's number plus one, and none of its parent's ends.
//!
//! A socket's end is the news of its process's end, also where a child lives longer. So in a child each descriptor of a binding is one of
//! nothing: the number stays taken, what it stood for is the parent's alone.

use std::cell::UnsafeCell;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::Once;

static COUNT: AtomicU32 = AtomicU32::new(0);
static WATCH: Once = Once::new();

/// Descriptors that no child has, behind a lock that a fork holds.
struct Table {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    descriptors: UnsafeCell<Vec<RawFd>>,
}

// SAFETY: the descriptors are touched with the lock held.
unsafe impl Sync for Table {}

static TABLE: Table = Table { lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), descriptors: UnsafeCell::new(Vec::new()) };

extern "C" fn lock() {
    // SAFETY: a mutex that is never destroyed.
    unsafe { libc::pthread_mutex_lock(TABLE.lock.get()) };
}

extern "C" fn unlock() {
    // SAFETY: held by this thread, which in a child is the only one.
    unsafe { libc::pthread_mutex_unlock(TABLE.lock.get()) };
}

fn with<T>(act: impl FnOnce(&mut Vec<RawFd>) -> T) -> T {
    lock();
    // SAFETY: the lock is held.
    let result = act(unsafe { &mut *TABLE.descriptors.get() });
    unlock();
    result
}

/// In a child, with the lock of its parent's fork.
extern "C" fn begin_child() {
    COUNT.fetch_add(1, Relaxed);
    // SAFETY: the lock is held; system calls that a child of several threads may make.
    unsafe {
        let descriptors = &mut *TABLE.descriptors.get();
        let nothing = || libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        let mut empty = nothing();
        if let (true, Some(&first)) = (empty < 0, descriptors.first()) {
            libc::close(first); // no descriptor was left
            empty = nothing();
        }
        for &descriptor in &*descriptors {
            if descriptor != empty {
                libc::dup3(empty, descriptor, libc::O_CLOEXEC);
            }
        }
        if !descriptors.contains(&empty) {
            libc::close(empty);
        }
        descriptors.clear();
    }
    unlock();
}

pub fn watch() -> u32 {
    WATCH.call_once(|| {
        // SAFETY: handlers that may run at any fork.
        unsafe { libc::pthread_atfork(Some(lock), Some(unlock), Some(begin_child)) };
    });
    number()
}

#[inline(always)]
pub fn number() -> u32 {
    COUNT.load(Relaxed)
}

/// A descriptor that no child has, as long as this lives: it ends before the descriptor does.
#[derive(Debug)]
pub(crate) struct Kept(RawFd);

impl Kept {
    pub fn new(descriptor: &impl AsRawFd) -> Self {
        watch();
        let descriptor = descriptor.as_raw_fd();
        with(|all| all.push(descriptor));
        Self(descriptor)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        with(|all| {
            if let Some(at) = all.iter().position(|&one| one == self.0) {
                all.swap_remove(at);
            }
        });
    }
}
