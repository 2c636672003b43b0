//! Memory for the length of one call: on the stack while little is needed.

use crate::memory::leased;
use shunt_sys::Result;

const ON_STACK: usize = 64;

/// An array that lives as long as a call.
pub struct Scratch<T: Copy> {
    stack: [T; ON_STACK],
    heap: *mut T,
    length: usize,
}

impl<T: Copy> Scratch<T> {
    /// `length` copies of `item`, for the call that is known by `frame` ([`leased`]).
    ///
    /// Errors: ENOMEM for long arrays.
    pub fn new(length: usize, item: T, frame: usize) -> Result<Scratch<T>> {
        let mut scratch = Scratch { stack: [item; ON_STACK], heap: core::ptr::null_mut(), length };
        if length > ON_STACK {
            scratch.heap = leased::reserve(length * core::mem::size_of::<T>(), frame)?.cast();
            for i in 0..length {
                // SAFETY: inside the fresh mapping.
                unsafe { scratch.heap.add(i).write(item) };
            }
        }
        Ok(scratch)
    }

    /// All of them.
    pub fn items(&mut self) -> &mut [T] {
        if self.heap.is_null() {
            return &mut self.stack[..self.length];
        }
        // SAFETY: `length` items were written.
        unsafe { core::slice::from_raw_parts_mut(self.heap, self.length) }
    }
}

impl<T: Copy> Drop for Scratch<T> {
    fn drop(&mut self) {
        if !self.heap.is_null() {
            // SAFETY: made by `new`.
            unsafe { leased::release(self.heap.cast()) };
        }
    }
}
