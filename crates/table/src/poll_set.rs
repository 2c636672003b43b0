//! What poll(2) was given: a copy of the program's array.

use crate::memory::leased;
use core::mem::MaybeUninit;
use shunt_sys::libc::pollfd;
use shunt_sys::{user, Result};

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
