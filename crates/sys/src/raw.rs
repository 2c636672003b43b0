//! The system call instruction. Everything that enters the kernel passes through [`call6`].
//!
//! x86-64 only so far: another architecture needs this file and `thread.rs`, nothing else.

use core::arch::asm;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("shunt runs on x86-64 Linux; porting means this file and thread.rs");

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

/// As [`call6`], for a call that sleeps: EINTR at once if a handler of the program has run in this thread since
/// [`crate::thread::handled`] gave `began`, and at the latest when the next one returns.
///
/// A handler that runs between the look and the instruction would otherwise be missed; and a call that the kernel
/// restarts after a handler with SA_RESTART would sleep on, although the handler may have used up what was to wake it.
/// So the entry before the handlers ([`leave_sleep`]) moves a thread that it finds here out.
///
/// # Safety
/// As for [`call6`].
#[inline(always)]
pub unsafe fn sleep6(number: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, began: u64) -> isize {
    let value: isize;
    // SAFETY: as in call6; the word is this thread's.
    unsafe {
        asm!(
            "2: cmp qword ptr [{word}], {began}",
            "jne 4f",
            "syscall",
            "3:",
            ".pushsection .text.shunt_sleeps,\"ax\",@progbits",
            "4: mov rax, -4",
            "jmp 3b",
            ".popsection",
            ".pushsection shunt_sleeps,\"aR\",@progbits",
            ".long 2b - .",
            ".long 3b - .",
            ".long 4b - .",
            ".popsection",
            ".hidden __start_shunt_sleeps",
            ".hidden __stop_shunt_sleeps",
            word = in(reg) crate::thread::handled_word(),
            began = in(reg) began,
            inlateout("rax") number as isize => value,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    value
}

extern "C" {
    #[link_name = "__start_shunt_sleeps"]
    static FIRST: Entry;
    #[link_name = "__stop_shunt_sleeps"]
    static LAST: Entry;
}

/// Instructions of [`sleep6`], and where to go on: distances from the fields themselves.
#[repr(C)]
struct Entry {
    start: i32,
    end: i32,
    exit: i32,
}

/// Whether a thread that the kernel finds at `at` is in a call of [`sleep6`].
pub fn is_sleep(at: usize) -> bool {
    // SAFETY: the table lies between the linker's two symbols.
    unsafe {
        let far = |field: *const i32| (field as usize).wrapping_add_signed(*field as isize);
        let count = (&raw const LAST).offset_from(&raw const FIRST) as usize;
        (0..count).map(|i| (&raw const FIRST).add(i)).any(|entry| far(&raw const (*entry).end) == at)
    }
}

/// A handler of the program is about to run: if it interrupts a sleep, or one that was about to begin, the thread goes on
/// behind it, with EINTR.
///
/// # Safety
/// `context` is what the kernel gave to the handler.
pub unsafe fn leave_sleep(context: *mut libc::ucontext_t) {
    // SAFETY: the kernel's structure; the table lies between the linker's two symbols.
    unsafe {
        let at = &mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize];
        let far = |field: *const i32| (field as usize).wrapping_add_signed(*field as isize);
        let mut entry = &raw const FIRST;
        while entry < &raw const LAST {
            if (far(&raw const (*entry).start)..far(&raw const (*entry).end)).contains(&(*at as usize)) {
                *at = far(&raw const (*entry).exit) as i64;
                return;
            }
            entry = entry.add(1);
        }
    }
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
