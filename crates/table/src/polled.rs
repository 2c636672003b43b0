//! What poll(2) was given: how many entries there may be, and a copy of the program's array.

use crate::memory::leased;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shunt_sys::libc::{self, pollfd};
use shunt_sys::{calls, user, Errno, Result};

/// How many entries poll takes (RLIMIT_NOFILE, poll(2)).
struct Limit {
    /// As many as it is known to take.
    taken: AtomicU64,
    /// How often the limit was changed. (What another process changes, by prlimit, is not noticed if it is less.)
    changes: AtomicU32,
}

static LIMIT: Limit = Limit { taken: AtomicU64::new(0), changes: AtomicU32::new(0) };

/// Whether poll takes so many entries.
#[inline]
pub fn takes(count: u64) -> bool {
    count <= LIMIT.taken.load(Ordering::Relaxed) || takes_now(count)
}

/// Asked by a poll of nothing that is there, which sees the number first: a filter that lets the program poll may kill for
/// getrlimit, as sshd's does.
#[cold]
fn takes_now(count: u64) -> bool {
    let changes = LIMIT.changes.load(Ordering::SeqCst);
    let nowhere = core::ptr::without_provenance_mut(usize::MAX & !7);
    let asked = calls::ppoll(nowhere, count as usize, core::ptr::null_mut(), core::ptr::null(), 0);
    if count > u32::MAX.into() || asked != Err(Errno(libc::EFAULT)) {
        return false;
    }
    LIMIT.taken.fetch_max(count, Ordering::SeqCst);
    if LIMIT.changes.load(Ordering::SeqCst) != changes {
        LIMIT.taken.store(0, Ordering::SeqCst); // what was asked may be what was before
    }
    true
}

/// A limit of this process may have been changed.
pub fn limit_changed(resource: i32) {
    if resource == libc::RLIMIT_NOFILE as i32 {
        LIMIT.changes.fetch_add(1, Ordering::SeqCst);
        LIMIT.taken.store(0, Ordering::SeqCst);
    }
}

/// The program's set, copied: its memory may fault, and another thread may change it meanwhile.
pub struct Entries {
    stack: MaybeUninit<[pollfd; Entries::SMALL]>,
    /// Of more than that. (A null instead would make this and the stack one constant, and a constant's unknown bytes are written
    /// as zeros: 4 KiB in each poll.)
    heap: MaybeUninit<*mut pollfd>,
    count: usize,
}

impl Entries {
    /// Entries that are kept on the stack: 4 KiB.
    const SMALL: usize = 512;

    /// Room for a copy of `count` entries.
    ///
    /// # Safety
    /// [`Entries::read`] follows, before all else.
    #[inline(always)]
    pub unsafe fn new(count: usize) -> Entries {
        Entries { stack: MaybeUninit::uninit(), heap: MaybeUninit::uninit(), count }
    }

    /// Copies the set; false if it faults or memory is short.
    ///
    /// # Safety
    /// Once; `set` may be any address that is not ours.
    #[inline]
    pub unsafe fn read(&mut self, set: *const pollfd) -> bool {
        let size = self.count * core::mem::size_of::<pollfd>();
        leased::begin(self.frame());
        if self.count > Entries::SMALL {
            match leased::reserve(size, self.frame()) {
                Ok(memory) => self.heap.write(memory.cast()),
                Err(_) => {
                    self.count = 0;
                    return false;
                }
            };
        }
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
        // SAFETY: `count` entries that `read` filled, or is about to; it has written `heap` where they are many.
        unsafe {
            let start = if self.count <= Entries::SMALL { self.stack.as_mut_ptr().cast() } else { self.heap.assume_init() };
            core::slice::from_raw_parts_mut(start, self.count)
        }
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

impl Drop for Entries {
    fn drop(&mut self) {
        if self.count > Entries::SMALL {
            // SAFETY: made by `read`.
            unsafe { leased::release(self.heap.assume_init().cast()) };
        }
    }
}
