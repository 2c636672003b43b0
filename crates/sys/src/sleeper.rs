//! What a sleeping call has counted or lent, for the case that a handler of the program leaves it by a jump.
//!
//! A call that sleeps counts itself where others look (which threads must be woken, what must stay open). It takes itself off when
//! it wakes. If a handler interrupts the sleep, whether it will return is not known; so the entry before the handlers takes
//! the call off first ([`before_handler`]), and the call finds that done if it goes on.

use crate::section::Section;
use crate::thread;

/// One call's account; lives on its stack. The first part of whatever the call keeps it in.
#[repr(C)]
pub struct Sleeper {
    take_off: unsafe fn(*mut Sleeper),
    outer: *mut Sleeper,
    /// It counts.
    counts: bool,
    /// The address of what the call sleeps for, where others must tell it from themselves; or 0.
    about: usize,
}

impl Sleeper {
    /// An account that `take_off` closes, given its address.
    pub const fn new(take_off: unsafe fn(*mut Sleeper)) -> Sleeper {
        Sleeper::about(take_off, 0)
    }

    /// The same, of a sleep for what lies at `about`.
    pub const fn about(take_off: unsafe fn(*mut Sleeper), about: usize) -> Sleeper {
        Sleeper { take_off, outer: core::ptr::null_mut(), counts: false, about }
    }

    /// How many open accounts of the calling thread are about what lies there.
    pub fn open_about(about: usize) -> u32 {
        // SAFETY: the block is this thread's; its accounts are alive.
        unsafe {
            let mut at = (*thread::block()).sleeper as *const Sleeper;
            let mut count = 0;
            while !at.is_null() {
                count += ((*at).counts && (*at).about == about) as u32;
                at = (*at).outer;
            }
            count
        }
    }

    /// Opens the account: `count` does what closing takes back.
    ///
    /// # Safety
    /// It stays where it is until [`Sleeper::end`], which follows in this thread, and accounts end in reverse order.
    pub unsafe fn begin(this: *mut Sleeper, count: impl FnOnce()) {
        let _section = Section::begin();
        count();
        // SAFETY: promised by the caller; handlers wait for the end of the section.
        unsafe {
            let block = thread::block();
            (*this).outer = (*block).sleeper as *mut Sleeper;
            (*this).counts = true;
            (*block).sleeper = this as usize;
        }
    }

    /// Closes the account, if no handler's arrival has.
    ///
    /// # Safety
    /// [`Sleeper::begin`] came before.
    pub unsafe fn end(this: *mut Sleeper) {
        let _section = Section::begin();
        // SAFETY: promised by the caller.
        unsafe {
            (*thread::block()).sleeper = (*this).outer as usize;
            close(this);
        }
    }
}

/// # Safety
/// An account of this thread, in a section or before a handler.
unsafe fn close(this: *mut Sleeper) {
    // SAFETY: promised by the caller.
    unsafe {
        if core::mem::take(&mut (*this).counts) {
            ((*this).take_off)(this);
        }
    }
}

/// A handler of the program is about to run, and may leave by a jump: all accounts of the thread are closed.
pub fn before_handler() {
    // SAFETY: the block is this thread's; what it names is alive.
    unsafe {
        let block = thread::block();
        let mut at = core::mem::take(&mut (*block).sleeper) as *mut Sleeper;
        while !at.is_null() {
            close(at);
            at = (*at).outer;
        }
    }
}
