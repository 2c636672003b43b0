//! What the rooms above do with a descriptor, for the rooms below them: one table, which start-up fills in.
//!
//! These are the cold verbs, by which a descriptor's object is let go of or given to the kernel. Data calls are dispatched
//! statically, by the kind in the descriptor's word.

use super::UPCALLS;
use crate::table::Word;
use core::sync::atomic::Ordering;
use shunt_sys::Result;

/// The verbs.
pub struct Operations {
    /// Lets go of what the word said of the descriptor, which was taken off the table; the caller closes the descriptor.
    pub release: fn(Word, i32),
    /// Makes the kernel's what the descriptor is, under all its numbers. Errors: EAGAIN: it is what it was.
    pub to_kernel: fn(i32) -> Result<()>,
    /// As `to_kernel`, of a listener whose connections are this user's: clients that wait go on as that one's.
    pub to_kernel_as: fn(i32, u32),
    /// The process is another user's: what that changes.
    pub user_changed: fn(),
}

/// Fills the table in, before anything of the program's is entered.
pub fn fill(operations: &'static Operations) {
    UPCALLS.operations.store(core::ptr::from_ref(operations).cast_mut(), Ordering::Release);
}

fn operations() -> Option<&'static Operations> {
    // SAFETY: null, or the static that `fill` was given.
    unsafe { UPCALLS.operations.load(Ordering::Acquire).as_ref() }
}

/// The program closes `fd`: what it was is let go of. The caller then closes the descriptor itself.
pub fn closing(fd: i32) {
    let word = crate::table::take(fd);
    crate::status_rows::forget(fd);
    release(word, fd);
}

/// Lets go of what a descriptor was.
pub fn release(word: Word, fd: i32) {
    if let Some(operations) = operations() {
        (operations.release)(word, fd);
    }
}

/// Makes the kernel's what `fd` is, under all its numbers.
///
/// # Errors
/// EAGAIN: it cannot be made so, and is what it was.
pub fn to_kernel(fd: i32) -> Result<()> {
    operations().map_or(Ok(()), |operations| (operations.to_kernel)(fd))
}

/// Makes the kernel's the listener at `fd`, whose connections are `user`'s.
pub fn to_kernel_as(fd: i32, user: u32) {
    if let Some(operations) = operations() {
        (operations.to_kernel_as)(fd, user);
    }
}

/// The process is another user's now.
pub fn user_changed() {
    if let Some(operations) = operations() {
        (operations.user_changed)();
    }
}
