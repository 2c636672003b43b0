//! New threads: the kernel tells of no call of theirs until they ask for it.
//!
//! Those that a program makes by clone(2) do not: where they keep their thread-local storage, if they have any, is not known.
//!
//! A library of Go's begins with a thread of its own, before there is a goroutine, whose stack has no room for a signal's frame.
//! Which threads will call into it is not known, so from then on no call is told in this process.

use super::code;
use crate::loader::objects;
use crate::masks;
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use shunt_segment::reason::Reason;
use shunt_sys::{calls, dispatch, mapping};
use shunt_table::process::{kernel_only, status_page};

/// What a thread is to do. It lies in memory of its own until the thread has read it.
#[derive(Clone, Copy)]
#[repr(C)]
struct Work {
    function: *mut c_void,
    argument: *mut c_void,
    /// What the creator believes of SIGSYS, whose mask a thread inherits. That its attributes may name another is not asked.
    veiled: u32,
}

/// Begins a thread by `begin`, which is given a function and its argument.
pub fn with(function: *mut c_void, argument: *mut c_void, begin: impl FnOnce(*mut c_void, *mut c_void) -> c_int) -> c_int {
    code::look();
    kernel_only::carry();
    if !dispatch::begun() {
        return begin(function, argument);
    }
    if objects::is_go(function as usize) {
        dispatch::stop();
        status_page::count(Reason::RawNotTrapped);
        kernel_only::keep();
        kernel_only::carry();
        return begin(function, argument);
    }
    let Ok(memory) = mapping::reserve(size_of::<Work>()) else { return begin(function, argument) };
    let work = memory.cast::<Work>();
    // SAFETY: fresh memory of that size.
    unsafe { work.write(Work { function, argument, veiled: *masks::veiled() }) };
    let result = begin(entry(), work.cast());
    if result != 0 {
        let _ = calls::munmap(memory, size_of::<Work>());
    }
    result
}

fn entry() -> *mut c_void {
    shunt_thread_entry as *const () as *mut c_void
}

/// Where threads begin: it jumps to the program's function, so that no frame of ours is below it.
#[unsafe(naked)]
unsafe extern "C" fn shunt_thread_entry(work: *mut Work) {
    naked_asm!("sub rsp, 8", "call {begin}", "add rsp, 8", "mov rdi, rdx", "jmp rax", begin = sym begin)
}

/// In the registers in which the entry takes them.
#[repr(C)]
struct Begun {
    function: *mut c_void,
    argument: *mut c_void,
}

unsafe extern "C" fn begin(work: *mut Work) -> Begun {
    // SAFETY: written by `with`; no other thread has it.
    let Work { function, argument, veiled } = unsafe { *work };
    let _ = calls::munmap(work.cast(), size_of::<Work>());
    *masks::veiled() = veiled;
    dispatch::arm();
    Begun { function, argument }
}
