//! dlsym(3) and dlvsym(3): a caller that asks the C library's own handle for a function that this library stands before gets this library's.
//!
//! So foreign function interfaces ask (ctypes, JNA, LuaJIT's `ffi.load`, Julia's `ccall`). What RTLD_NEXT and RTLD_DEFAULT give
//! depends on the caller, which the C library learns from the address of the return: for those it is jumped to.
//!
//! ```text
//! deep        libraries that the loader binds past this one
//! loading     what is loaded later
//! ```

use crate::loader::{dlsym_itself, list, look_up, missing, objects, RTLD_NEXT};
use crate::{raw_calls, real};
use core::arch::naked_asm;
use core::ffi::{c_char, c_void, CStr};
use shunt_conventions::holder::Holder;
use shunt_conventions::segments;
use shunt_conventions::tables::Table;

mod deep;
mod loading;

type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

fn dlvsym_itself() -> *mut c_void {
    let found = real::dlvsym_itself();
    if found.is_null() {
        missing as *const () as *mut c_void
    } else {
        found
    }
}

/// The function that finds what dlvsym(3) is to find next, or anywhere, for `caller`. Symbols of this library have no version, so where they stand
/// for the one that is asked for, that is dlsym(3).
unsafe extern "C" fn by_version(handle: isize, name: *const c_char, version: *const c_char, caller: usize) -> *mut c_void {
    let itself = dlvsym_itself();
    // SAFETY: the function has this prototype; the program's arguments.
    unsafe {
        let function: Dlvsym = core::mem::transmute(itself);
        let following = function(RTLD_NEXT, name, version);
        if following.is_null() || list::own().find(CStr::from_ptr(name).to_bytes()).is_none() {
            return itself;
        }
        let before = || holder_of(caller).is_some_and(|holder| !holder.behind);
        if is_stood_for(following as usize) && (handle == RTLD_DEFAULT || before()) {
            dlsym_itself()
        } else {
            itself
        }
    }
}

const RTLD_DEFAULT: isize = 0;

/// dlsym(3).
///
/// # Safety
/// As the function itself.
#[unsafe(naked)]
#[no_mangle]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        // RTLD_NEXT is -1, RTLD_DEFAULT is 0.
        "lea rax, [rdi + 1]",
        "cmp rax, 1",
        "jbe 2f",
        "mov rdx, [rsp]",
        "jmp {by_handle}",
        "2:",
        "push rdi",
        "push rsi",
        "push rdx",
        "call {itself}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        by_handle = sym by_handle,
        itself = sym dlsym_itself
    )
}

/// dlvsym(3).
///
/// # Safety
/// As the function itself.
#[unsafe(naked)]
#[no_mangle]
pub unsafe extern "C" fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    naked_asm!(
        "lea rax, [rdi + 1]",
        "cmp rax, 1",
        "mov rcx, [rsp]",
        "jbe 2f",
        "jmp {by_handle}",
        "2:",
        "push rdi",
        "push rsi",
        "push rdx",
        "call {by_version}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        by_handle = sym version_by_handle,
        by_version = sym by_version
    )
}

unsafe extern "C" fn by_handle(handle: *mut c_void, name: *const c_char, caller: usize) -> *mut c_void {
    // SAFETY: the program's arguments, passed on.
    unsafe {
        let found = look_up(handle, name);
        raw_calls::loaded();
        ours(name, found, caller)
    }
}

unsafe extern "C" fn version_by_handle(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> *mut c_void {
    // SAFETY: the function has this prototype; the program's arguments, passed on.
    unsafe {
        let function: Dlvsym = core::mem::transmute(dlvsym_itself());
        let found = function(handle, name, version);
        raw_calls::loaded();
        ours(name, found, caller)
    }
}

/// What the program is given that asked for `name` from `caller`, where the C library would give `found`.
///
/// # Safety
/// `name` is a string if anything was found.
unsafe fn ours(name: *const c_char, found: *mut c_void, caller: usize) -> *mut c_void {
    if found.is_null() {
        return found;
    }
    // SAFETY: promised by the caller.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let Some(own) = list::own().find(name) else { return found };
    if is_stood_for(found as usize) && !holder_of(caller).is_some_and(|holder| holder.asks_for_itself(name)) {
        own
    } else {
        found
    }
}

/// Whether an address is a function's for which this library's stand.
fn is_stood_for(address: usize) -> bool {
    holder_of(address).is_some_and(|holder| holder.is_stood_for())
}

/// The object that an address lies in. `None`: it is none of the namespace that this library is in.
fn holder_of(address: usize) -> Option<Holder<'static>> {
    // SAFETY: the loader's description of an object.
    objects::with(address, |object| unsafe {
        let dynamic = segments::dynamic(object)?;
        let table = Table::new(object.dlpi_addr as usize, dynamic);
        Some(Holder { file: segments::file_name(object.dlpi_name), table, behind: !list::is_before(dynamic) })
    })?
}
