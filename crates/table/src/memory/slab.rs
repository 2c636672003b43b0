//! Objects of one kind, in slabs that are never unmapped: a thread with a stale reference reads an object of the same kind.

use crate::global::SETUP;
use core::sync::atomic::{AtomicPtr, Ordering};
use shunt_sys::mapping;

/// What lies in slabs. All-zero bytes must be a valid one.
///
/// # Safety
/// Memory that is all zero must be a valid object.
pub unsafe trait Slabbed: Sync + Sized + 'static {
    /// How many are reserved at a time.
    const AT_ONCE: usize;

    /// The next unused one, while this one is unused.
    fn next_free(&self) -> &AtomicPtr<Self>;
}

/// The unused objects of a kind.
pub struct Slab<T>(AtomicPtr<T>);

impl<T: Slabbed> Default for Slab<T> {
    fn default() -> Self {
        Slab::new()
    }
}

impl<T: Slabbed> Slab<T> {
    /// None yet.
    pub const fn new() -> Slab<T> {
        Slab(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// An unused object, as its last user left it; `None` when memory is short. The caller holds the set-up lock.
    pub fn take(&self) -> Option<&'static T> {
        let mut first = self.0.load(Ordering::Relaxed);
        if first.is_null() {
            let slab = mapping::reserve(T::AT_ONCE * core::mem::size_of::<T>()).ok()?.cast::<T>();
            for i in (0..T::AT_ONCE).rev() {
                // SAFETY: inside the fresh slab, which is all zero.
                unsafe {
                    let object = slab.add(i);
                    (*object).next_free().store(first, Ordering::Relaxed);
                    first = object;
                }
            }
        }
        // SAFETY: an object of a slab.
        let object = unsafe { &*first };
        self.0.store(object.next_free().load(Ordering::Relaxed), Ordering::Relaxed);
        Some(object)
    }

    /// Gives one back. In a signal handler that interrupted the holder of the set-up lock it stays unused: a leak of a few
    /// hundred bytes, no harm.
    pub fn give(&self, object: &'static T) {
        if let Some(_setup) = SETUP.lock() {
            object.next_free().store(self.0.load(Ordering::Relaxed), Ordering::Relaxed);
            self.0.store(object as *const T as *mut T, Ordering::Relaxed);
        }
    }
}
