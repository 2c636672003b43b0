//! What a sleeping call has counted or lent, for the case that a handler of the program leaves it by a jump.
//!
//! A call that sleeps counts itself where others look (which threads must be woken, what must stay open). It takes itself off when
//! it wakes. If a handler interrupts the sleep, whether it will return is not known; so the entry before the handlers takes
//! the call off first ([`before_handler`]), and the call finds that done if it goes on.

use crate::section::Section;
use crate::thread;

/// What a sleeping call counts, and where.
pub trait Account {
    /// Counts the call.
    fn enter(&mut self);

    /// Takes it off, once for each [`Account::enter`]: when the sleep ends, or before a handler of the program runs in it.
    fn leave(&mut self);

    /// The address of what the call sleeps for, where others must tell it from themselves ([`open_about`]); or 0.
    fn about(&self) -> usize {
        0
    }
}

/// An account that [`counted`] has opened.
pub struct Open<A>(*mut Counted<A>);

impl<A> Open<A> {
    /// Calls `change` with the account, with handlers kept away. `None`: the arrival of one has closed it.
    pub fn with<T>(&self, change: impl FnOnce(&mut A) -> T) -> Option<T> {
        let _section = Section::begin();
        // SAFETY: alive until `counted` returns; handlers, which alone touch it beside this thread, wait for the section's end.
        unsafe { (*self.0).sleeper.counts.then(|| change(&mut (*self.0).account)) }
    }
}

/// Calls `body` as a call that is counted by `account`, and no longer when `body` returns or a handler jumps out of it. Handlers are kept
/// away from both changes of the counts.
#[inline(always)]
pub fn counted<A: Account, T>(account: A, body: impl FnOnce(&Open<A>) -> T) -> T {
    let sleeper = Sleeper { take_off: leave::<A>, outer: core::ptr::null_mut(), counts: false, about: account.about() };
    let mut counted = Counted { sleeper, account };
    let this = &raw mut counted;
    // SAFETY: the account stays here until it is closed below; accounts of a thread close in reverse order, as its frames do.
    unsafe { begin(this) };
    let result = body(&Open(this));
    // SAFETY: begun above.
    unsafe { end(this.cast()) };
    result
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

/// One call's account; lives on its stack.
#[repr(C)]
struct Counted<A> {
    sleeper: Sleeper,
    account: A,
}

/// What accounts of all kinds begin with.
struct Sleeper {
    take_off: unsafe fn(*mut Sleeper),
    outer: *mut Sleeper,
    /// It counts.
    counts: bool,
    /// [`Account::about`].
    about: usize,
}

unsafe fn leave<A: Account>(this: *mut Sleeper) {
    // SAFETY: the first part of such an account.
    unsafe { (*this.cast::<Counted<A>>()).account.leave() };
}

/// Opens the account.
///
/// # Safety
/// It stays where it is until [`end`], which follows in this thread, and accounts end in reverse order.
unsafe fn begin<A: Account>(this: *mut Counted<A>) {
    let _section = Section::begin();
    // SAFETY: promised by the caller; handlers wait for the end of the section.
    unsafe {
        (*this).account.enter();
        let block = thread::block();
        (*this).sleeper.outer = (*block).sleeper as *mut Sleeper;
        (*this).sleeper.counts = true;
        (*block).sleeper = this as usize;
    }
}

/// Closes the account, if no handler's arrival has.
///
/// # Safety
/// [`begin`] came before.
unsafe fn end(this: *mut Sleeper) {
    let _section = Section::begin();
    // SAFETY: promised by the caller.
    unsafe {
        (*thread::block()).sleeper = (*this).outer as usize;
        close(this);
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
