//! dlopen(3): what it loads may make calls of its own, and is looked at when the next socket is entered. dlmopen(3): it loads a C
//! library of its own, whose calls this library does not see, and which the loader does not show.
//!
//! They jump to the C library's functions, which look for libraries on behalf of their caller, by the address of the return.

use super::deep;
use crate::loader::missing;
use crate::raw_calls::code;
use crate::real;
use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_long, c_void};
use shunt_config::Raw;
use shunt_conventions::segments;
use shunt_segment::process::found;
use shunt_table::global;
use shunt_table::process::{kernel_only, status_page};

/// dlopen(3).
///
/// # Safety
/// As the function itself.
#[unsafe(naked)]
#[no_mangle]
pub unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        before = sym before
    )
}

/// What to jump to.
unsafe extern "C" fn before(name: *const c_char, flags: c_int) -> *const c_void {
    code::loading();
    let function = real::dlopen_itself();
    if function.is_null() {
        return missing as *const () as *const c_void;
    }
    // SAFETY: the program's arguments.
    if unsafe { deep::concerns(name, flags) } {
        return open_deep as *const () as *const c_void;
    }
    function
}

unsafe extern "C" fn open_deep(name: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: the program's arguments, passed on.
    unsafe { deep::open(real::dlopen_itself(), name, flags) }
}

/// dlmopen(3).
///
/// # Safety
/// As the function itself.
#[unsafe(naked)]
#[no_mangle]
pub unsafe extern "C" fn dlmopen(space: c_long, name: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {before}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        before = sym before_in_space
    )
}

/// The namespace of the program and of this library (LM_ID_BASE).
const BASE: c_long = 0;

unsafe extern "C" fn before_in_space(space: c_long, name: *const c_char, _flags: c_int) -> *const c_void {
    code::loading();
    if space != BASE && global::ready() && global::options().raw != Raw::Off && !kernel_only::keeps() {
        // SAFETY: the program's argument, null or a string.
        status_page::found(unsafe { segments::file_name(name) }, None, found::UNTOLD);
        kernel_only::keep();
        kernel_only::carry();
    }
    let function = real::dlmopen_itself();
    if function.is_null() {
        missing as *const () as *const c_void
    } else {
        function
    }
}
