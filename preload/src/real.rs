//! The C library's own functions: one slot per intercepted symbol.

use crate::loader;
use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use shunt_calls::libc::{
    epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, pollfd, rlimit, sigset_t, sockaddr, socklen_t, timespec, timeval,
};

/// Whether a library that is loaded later may have it.
fn late(name: &str) -> bool {
    name.starts_with("io_uring_")
}

/// Finds a symbol behind this library.
///
/// # Safety
/// `name` ends with a NUL.
#[inline(always)]
unsafe fn next(slot: &AtomicPtr<c_void>, name: &str) -> *mut c_void {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: passed on.
    unsafe { look_up(slot, name) }
}

/// # Safety
/// As for [`next`].
#[cold]
#[inline(never)]
unsafe fn look_up(slot: &AtomicPtr<c_void>, name: &str) -> *mut c_void {
    if FUNCTIONS.resolved.load(Ordering::Relaxed) && !late(name) {
        return core::ptr::null_mut();
    }
    // SAFETY: promised by the caller.
    let found = unsafe { loader::look_up(loader::RTLD_NEXT, name.as_ptr().cast()) };
    slot.store(found, Ordering::Relaxed);
    found
}

/// A value for "this C library has no such function".
pub trait Missing {
    /// -1, with errno ENOSYS set by the caller.
    fn missing() -> Self;
}
impl Missing for c_int {
    fn missing() -> Self {
        -1
    }
}
impl Missing for usize {
    fn missing() -> Self {
        usize::MAX
    }
}
impl Missing for isize {
    fn missing() -> Self {
        -1
    }
}
impl Missing for c_long {
    fn missing() -> Self {
        -1
    }
}
impl Missing for *mut c_void {
    fn missing() -> Self {
        core::ptr::null_mut()
    }
}
impl Missing for () {
    fn missing() -> Self {}
}

macro_rules! slots {
    ($($group:literal $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty;)*) => {
        $(
            /// The C library's function of this name; ENOSYS where it has none.
            ///
            /// # Safety
            /// As the function itself.
            #[inline]
            #[allow(clippy::too_many_arguments, dead_code)]
            pub unsafe fn $name($($arg: $ty),*) -> $ret {
                // SAFETY: the symbol has this prototype.
                unsafe {
                    let found = next(&FUNCTIONS.$name, concat!(stringify!($name), "\0"));
                    if found.is_null() {
                        crate::errno::set_errno(shunt_calls::libc::ENOSYS);
                        return Missing::missing();
                    }
                    let function: unsafe extern "C" fn($($ty),*) -> $ret = core::mem::transmute(found);
                    function($($arg),*)
                }
            }
        )*

        /// A slot for each symbol.
        struct Functions {
            $($name: AtomicPtr<c_void>,)*
            /// They have been looked up. dlsym takes the loader's lock, which a thread that loads a library keeps while
            /// constructors run, and which stays taken in a child of a fork that no handler sees: so nothing is looked up later.
            resolved: AtomicBool,
        }

        static FUNCTIONS: Functions = Functions {
            $($name: AtomicPtr::new(core::ptr::null_mut()),)*
            resolved: AtomicBool::new(false),
        };

        /// Looks all of them up. The library's constructor calls it, before there are threads.
        pub fn resolve() {
            // SAFETY: each name ends with a NUL.
            $(unsafe { next(&FUNCTIONS.$name, concat!(stringify!($name), "\0")) };)*
            FUNCTIONS.resolved.store(true, Ordering::Relaxed);
        }
    };
}
shunt_calls::for_each_call!(slots);

/// Where setcontext(3) lies, for a caller that must not have a frame below it. Null: the C library has none.
pub fn setcontext_itself() -> *mut c_void {
    // SAFETY: the name ends with a NUL.
    unsafe { next(&FUNCTIONS.setcontext, "setcontext\0") }
}

/// As [`setcontext_itself`], of dlopen(3).
pub fn dlopen_itself() -> *mut c_void {
    // SAFETY: the name ends with a NUL.
    unsafe { next(&FUNCTIONS.dlopen, "dlopen\0") }
}

/// As [`setcontext_itself`], of dlmopen(3).
pub fn dlmopen_itself() -> *mut c_void {
    // SAFETY: the name ends with a NUL.
    unsafe { next(&FUNCTIONS.dlmopen, "dlmopen\0") }
}

/// As [`setcontext_itself`], of dlvsym(3).
pub fn dlvsym_itself() -> *mut c_void {
    // SAFETY: the name ends with a NUL.
    unsafe { next(&FUNCTIONS.dlvsym, "dlvsym\0") }
}

/// As [`setcontext_itself`], of swapcontext(3).
pub fn swapcontext_itself() -> *mut c_void {
    // SAFETY: the name ends with a NUL.
    unsafe { next(&FUNCTIONS.swapcontext, "swapcontext\0") }
}
