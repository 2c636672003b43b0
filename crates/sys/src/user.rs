//! Memory that the program named: copies that answer "fault" where the kernel would answer EFAULT.
//!
//! A program may pass any address to a call. The kernel's own copies survive a bad one because the page-fault handler
//! finds the faulting instruction in a table and goes on at its fix-up. This module does the same in user space: each
//! access to such memory is an instruction between two addresses in the section `shunt_faults`, and [`resolve`], called
//! from the handler of SIGSEGV and SIGBUS, moves the instruction pointer to the fix-up. Where nothing faults, that costs
//! a register that says so.
//!
//! Copies of at least [`LONG`] bytes, or of 64 KiB where vectors are wide, are the C library's `memcpy`, which is tuned to the
//! processor. It cannot be in a table, so it is called inside a *window*: the thread's block points to the saved registers, and
//! a fault at an address that the copy may touch returns from the window instead.

mod copy;
mod fault;
mod routine;
#[cfg(test)]
mod tests;
mod value;

pub use copy::{copy, copy_away, copy_short};
pub use fault::resolve;
pub use value::{copy_all, load, read, store, writable, write};

/// Copies from this many bytes on may be left to `memcpy`.
pub const LONG: usize = 8 << 10;

/// An access that may fault: `instructions` use only registers; a fault in them clears `ok`.
macro_rules! access {
    ($ok:ident, [$($instruction:literal),*], $($operands:tt)*) => {
        asm!(
            "2:",
            $($instruction,)*
            "3:",
            ".pushsection .text.shunt_user_faults,\"ax\",@progbits",
            "4: xor {ok:e}, {ok:e}",
            "jmp 3b",
            ".popsection",
            ".pushsection shunt_faults,\"aR\",@progbits",
            ".long 2b - .",
            ".long 3b - .",
            ".long 4b - .",
            ".popsection",
            ok = inout(reg) $ok,
            $($operands)*
            options(nostack)
        )
    };
}

use access;
