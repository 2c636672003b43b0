//! dlopen(3): what it loads may make calls of its own, and is looked at when the next socket is entered.
//!
//! It jumps to the C library's function, which looks for libraries on behalf of its caller, by the address of the return.

use super::code;
use crate::real;
use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};

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

extern "C" fn before() -> *const c_void {
    code::loading();
    let function = real::dlopen_itself();
    if function.is_null() {
        missing as *const () as *const c_void
    } else {
        function
    }
}

extern "C" fn missing() -> *mut c_void {
    core::ptr::null_mut()
}
