//! What poll(2) was given: how many entries there may be, and a copy of the program's array.

use crate::memory::leased;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shunt_sys::libc::{self, pollfd};
use shunt_sys::{calls, user, Result};

/// RLIMIT_NOFILE as it was asked last, or 0; and how often it was changed. (What another process changes, by prlimit, is not noticed
/// if it is less.)
static LIMIT: AtomicU64 = AtomicU64::new(0);
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Whether poll takes so many entries.
#[inline]
pub fn takes(count: u64) -> bool {
    count <= LIMIT.load(Ordering::Relaxed) || takes_now(count)
}

#[cold]
fn takes_now(count: u64) -> bool {
    let changes = CHANGES.load(Ordering::SeqCst);
    let limit = calls::soft_limit(libc::RLIMIT_NOFILE);
    LIMIT.store(limit, Ordering::SeqCst);
    if CHANGES.load(Ordering::SeqCst) != changes {
        LIMIT.store(0, Ordering::SeqCst); // what was asked may be what was before
    }
    count <= limit
}

/// A limit of this process may have been changed.
pub fn limit_changed(resource: i32) {
    if resource == libc::RLIMIT_NOFILE as i32 {
        CHANGES.fetch_add(1, Ordering::SeqCst);
        LIMIT.store(0, Ordering::SeqCst);
    }
}

/// The program's set, copied: its memory may fault, and another thread may change it meanwhile.
pub struct Entries {
    stack: MaybeUninit<[pollfd; Entries::SMALL]>,
    heap: *mut pollfd,
    count: usize,
}

impl Entries {
    /// Entries that are kept on the stack: 4 KiB.
    const SMALL: usize = 512;

    /// Room for a copy.
    pub fn new() -> Entries {
        Entries { stack: MaybeUninit::uninit(), heap: core::ptr::null_mut(), count: 0 }
    }

    /// Copies the set; false if it faults or memory is short.
    ///
    /// # Safety
    /// `set` may be any address that is not ours.
    #[inline]
    pub unsafe fn read(&mut self, set: *const pollfd, count: usize) -> bool {
        let size = count * core::mem::size_of::<pollfd>();
        leased::begin(self.frame());
        if count > Entries::SMALL {
            match leased::reserve(size, self.frame()) {
                Ok(memory) => self.heap = memory.cast(),
                Err(_) => return false,
            }
        }
        self.count = count;
        // SAFETY: there is room for `count` entries.
        unsafe { user::copy(set.cast(), self.slice().as_mut_ptr().cast(), size) }
    }

    /// By which the call is known that keeps them ([`leased`]).
    pub fn frame(&self) -> usize {
        self as *const Entries as usize
    }

    /// The copy.
    #[inline]
    pub fn slice(&mut self) -> &mut [pollfd] {
        let start = if self.heap.is_null() { self.stack.as_mut_ptr().cast() } else { self.heap };
        // SAFETY: `count` entries that `read` filled, or is about to.
        unsafe { core::slice::from_raw_parts_mut(start, self.count) }
    }

    /// Tells the program what came of it. Errors: EFAULT.
    ///
    /// # Safety
    /// As for [`Entries::read`].
    #[inline]
    pub unsafe fn write(&mut self, set: *mut pollfd) -> Result<()> {
        for (index, entry) in self.slice().iter().enumerate() {
            // SAFETY: an address inside the program's set.
            unsafe { user::write(&raw mut (*set.wrapping_add(index)).revents, entry.revents)? };
        }
        Ok(())
    }
}

impl Default for Entries {
    fn default() -> Self {
        Entries::new()
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        if !self.heap.is_null() {
            // SAFETY: made by `read`.
            unsafe { leased::release(self.heap.cast()) };
        }
    }
}
