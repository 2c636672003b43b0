//! dlsym(3) and dlvsym(3): a caller that asks the C library's own handle for a function that this library stands before gets this library's.
//!
//! So foreign function interfaces ask (ctypes, JNA, LuaJIT's `ffi.load`, Julia's `ccall`). What RTLD_NEXT and RTLD_DEFAULT give
//! depends on the caller, which the C library learns from the address of the return: for those it is jumped to.
//!
//! ```text
//! deep        libraries that the loader binds past this one
//! loading     what is loaded later
//! ```

use crate::loader::tables::{self, Table};
use crate::loader::{dlsym_itself, look_up, missing, objects, RTLD_NEXT};
use crate::{raw_calls, real};
use core::arch::naked_asm;
use core::ffi::{c_char, c_void, CStr};
use shunt_calls::CALLS;

mod deep;
mod loading;

type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// Beginnings of the names of files for whose functions this library's stand. Parts of the C library up to 2.33 are among them.
const STOOD_FOR: [&[u8]; 6] = [b"libc.so", b"libpthread.so", b"librt.so", b"libutil.so", b"libdl.so", b"liburing.so"];

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
        if following.is_null() || tables::own().find(CStr::from_ptr(name).to_bytes()).is_none() {
            return itself;
        }
        let before = || Holder::of(caller).is_some_and(|holder| !holder.behind);
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
    let Some(own) = tables::own().find(name) else { return found };
    if is_stood_for(found as usize) && !Holder::of(caller).is_some_and(|holder| holder.asks_for_itself(name)) {
        own
    } else {
        found
    }
}

/// Groups of [`shunt_calls::CALLS`] that are about descriptors: past this library they would do wrong.
const ABOUT_DESCRIPTORS: [&str; 8] = ["sockets", "receive", "send", "wait", "descriptors", "stdio", "aio", "io_uring"];

/// Whether an address is a function's for which this library's stand.
fn is_stood_for(address: usize) -> bool {
    Holder::of(address).is_some_and(|holder| holder.is_stood_for())
}

/// The object that an address lies in.
struct Holder {
    file: &'static [u8],
    table: Table,
    /// It was loaded behind this library.
    behind: bool,
}

impl Holder {
    /// Whether it is a library that wraps calls, as this one does, and means the C library's own function. One behind this library is
    /// called by it, so it would call itself. And tools (profilers) so begin processes that are not to be watched.
    fn asks_for_itself(&self, name: &[u8]) -> bool {
        let defines = |name: &[u8]| self.table.find(name).is_some();
        let about_descriptors =
            || CALLS.iter().any(|call| call.symbol.as_bytes() == name && ABOUT_DESCRIPTORS.contains(&call.group));
        let is_program = self.file.is_empty();
        !is_program
            && (self.behind && defines(name) || !about_descriptors() && CALLS.iter().any(|call| defines(call.symbol.as_bytes())))
    }

    /// Whether this library's functions stand for its own.
    fn is_stood_for(&self) -> bool {
        STOOD_FOR.iter().any(|file| self.file.starts_with(file))
    }

    /// `None`: it lies in none of the namespace that this library is in.
    fn of(address: usize) -> Option<Holder> {
        // SAFETY: the loader's description of an object.
        objects::with(address, |object| unsafe {
            let dynamic = objects::dynamic(object)?;
            let table = Table::new(object.dlpi_addr as usize, dynamic);
            Some(Holder { file: objects::file_name(object.dlpi_name), table, behind: !tables::is_before(dynamic) })
        })?
    }
}
