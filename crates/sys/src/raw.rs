//! The system call instruction. Everything that enters the kernel passes through [`call6`].
//!
//! x86-64 only so far: another architecture needs its own of this file and of the others that hold assembly (`sleeping`, `section`,
//! `thread`, `processor`, `cancel`, `interrupt_sleep`, `user`).

use core::arch::asm;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("shunt runs on x86-64 Linux; porting means the files of shunt-sys that hold assembly");

/// Enters the kernel with up to six arguments; returns the kernel's raw value.
///
/// # Safety
/// The caller upholds what the system call `number` asks of its arguments.
#[inline(always)]
pub unsafe fn call6(number: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    let value: isize;
    // SAFETY: the register convention of the kernel's x86-64 ABI; rcx and r11 are clobbered by `syscall`.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => value,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    value
}

/// `syscall!(NUMBER, arguments...)`: the raw kernel value, arguments cast to words.
#[macro_export]
macro_rules! syscall {
    ($n:expr) => { $crate::raw::call6($n, 0, 0, 0, 0, 0, 0) };
    ($n:expr, $a:expr) => { $crate::raw::call6($n, $a as usize, 0, 0, 0, 0, 0) };
    ($n:expr, $a:expr, $b:expr) => { $crate::raw::call6($n, $a as usize, $b as usize, 0, 0, 0, 0) };
    ($n:expr, $a:expr, $b:expr, $c:expr) => { $crate::raw::call6($n, $a as usize, $b as usize, $c as usize, 0, 0, 0) };
    ($n:expr, $a:expr, $b:expr, $c:expr, $d:expr) => {
        $crate::raw::call6($n, $a as usize, $b as usize, $c as usize, $d as usize, 0, 0)
    };
    ($n:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => {
        $crate::raw::call6($n, $a as usize, $b as usize, $c as usize, $d as usize, $e as usize, 0)
    };
    ($n:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::raw::call6($n, $a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize)
    };
}
