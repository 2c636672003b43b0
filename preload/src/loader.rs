//! Objects that the loader has mapped, and the symbols in them.
//!
//! ```text
//! list        the objects that there are, in the loader's order
//! objects     where objects lie, and which of them may enter the kernel
//! ```

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

pub mod list;
pub mod objects;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// For dlsym(3): behind this library.
pub const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;

/// The next dlsym(3) behind this library's.
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Stands for a function that the C library does not have.
pub extern "C" fn missing() -> *mut c_void {
    core::ptr::null_mut()
}

/// dlsym(3) itself, which cannot be looked up by itself: the loader's list is read.
pub extern "C" fn dlsym_itself() -> *mut c_void {
    let known = DLSYM.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let found = list::behind(b"dlsym").unwrap_or(missing as *const () as *mut c_void);
    DLSYM.store(found, Ordering::Relaxed);
    found
}

/// What the C library's dlsym(3) gives to this library.
///
/// # Safety
/// As the function itself.
#[inline(never)]
pub unsafe fn look_up(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the function has this prototype; promised by the caller.
    unsafe { core::mem::transmute::<*mut c_void, Dlsym>(dlsym_itself())(handle, name) }
}

/// Finds a symbol anywhere.
///
/// # Safety
/// `name` ends with a NUL.
pub unsafe fn find(name: &[u8]) -> *mut c_void {
    // SAFETY: promised by the caller.
    unsafe { look_up(core::ptr::null_mut(), name.as_ptr().cast()) }
}

/// Finds a symbol behind this library; see [`find`].
///
/// # Safety
/// `name` ends with a NUL.
pub unsafe fn following(name: &[u8]) -> *mut c_void {
    // SAFETY: promised by the caller.
    unsafe { look_up(RTLD_NEXT, name.as_ptr().cast()) }
}

/// Finds a symbol in one library.
///
/// # Safety
/// `library` is one of dlopen's, `name` ends with a NUL.
pub unsafe fn find_in(library: *mut c_void, name: &[u8]) -> *mut c_void {
    // SAFETY: promised by the caller.
    unsafe { look_up(library, name.as_ptr().cast()) }
}
