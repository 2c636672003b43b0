//! setcontext(3) and swapcontext(3): the mask that a context brings must not block SIGSYS while calls are told by it.
//!
//! They jump to the C library's function and leave no frame of ours: a context may go on in another thread, or never.

use crate::{masks, real};
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use shunt_calls::libc::{self, ucontext_t};

/// setcontext(3).
///
/// # Safety
/// As the function itself.
#[unsafe(naked)]
#[no_mangle]
pub unsafe extern "C" fn setcontext(context: *const c_void) -> c_int {
    naked_asm!("push rdi", "call {before}", "pop rdi", "jmp rax", before = sym before_set)
}

/// swapcontext(3).
///
/// # Safety
/// As the function itself.
#[unsafe(naked)]
#[no_mangle]
pub unsafe extern "C" fn swapcontext(old: *mut c_void, context: *const c_void) -> c_int {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdi, rsi",
        "call {before}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        before = sym before_swap
    )
}

unsafe extern "C" fn before_set(context: *mut ucontext_t) -> *const c_void {
    // SAFETY: the program's context.
    unsafe { masks::open_context(context) };
    or_missing(real::setcontext_itself())
}

unsafe extern "C" fn before_swap(context: *mut ucontext_t) -> *const c_void {
    // SAFETY: the program's context.
    unsafe { masks::open_context(context) };
    or_missing(real::swapcontext_itself())
}

fn or_missing(function: *mut c_void) -> *const c_void {
    if function.is_null() {
        missing as *const () as *const c_void
    } else {
        function
    }
}

extern "C" fn missing() -> c_int {
    crate::errno::set_errno(libc::ENOSYS);
    -1
}
