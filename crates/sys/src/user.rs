//! Memory that the program named: copies that answer "fault" where the kernel would answer EFAULT.
//!
//! A program may pass any address to a call. The kernel's own copies survive a bad one because the page-fault handler
//! finds the faulting instruction in a table and goes on at its fix-up. This file does the same in user space: each
//! access to such memory is an instruction between two addresses in the section `shunt_faults`, and [`resolve`], called
//! from the handler of SIGSEGV and SIGBUS, moves the instruction pointer to the fix-up. Where nothing faults, that costs
//! a register that says so.
//!
//! Copies of more than [`LONG`] bytes are the C library's `memcpy`, which is tuned to the processor. It cannot be in a
//! table, so it is called inside a *window*: the thread's block points to the saved registers, and a fault at an address
//! that the copy may touch returns from the window instead.

use crate::thread;
use crate::{Errno, Result};
use core::arch::{asm, global_asm};
use core::mem::{offset_of, MaybeUninit};
use libc::{siginfo_t, ucontext_t, EFAULT};

/// Copies from this many bytes on are left to `memcpy`.
pub const LONG: usize = 2048;

// shunt_user_copy(target, source, length > 16) -> 1, or 0 after a fault.
//
// Up to LONG bytes with two or four vectors at each end, or 64 bytes at a time and the last 64 again: no stack and no
// register that the caller owns, so the fix-up is to return 0. Longer copies open the window, whose layout from `rsp` on
// is `Window`.
global_asm!(
    ".pushsection .text.shunt_user_copy,\"ax\",@progbits",
    ".balign 64",
    ".globl shunt_user_copy",
    ".hidden shunt_user_copy",
    ".type shunt_user_copy, @function",
    // The table's ends, which the linker defines, are nobody else's.
    ".hidden __start_shunt_faults",
    ".hidden __stop_shunt_faults",
    "shunt_user_copy:",
    ".cfi_startproc",
    "cmp rdx, 32",
    "ja 3f",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + rdx - 16], xmm1",
    "mov eax, 1",
    "ret",
    "3: cmp rdx, 64",
    "ja 4f",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + rdx - 32]",
    "movups xmm3, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + rdx - 32], xmm2",
    "movups [rdi + rdx - 16], xmm3",
    "mov eax, 1",
    "ret",
    "4: cmp rdx, {long}",
    "jae 6f",
    // The last 64 bytes are loaded first and stored last.
    "movups xmm4, [rsi + rdx - 64]",
    "movups xmm5, [rsi + rdx - 48]",
    "movups xmm6, [rsi + rdx - 32]",
    "movups xmm7, [rsi + rdx - 16]",
    "lea rcx, [rdi + rdx - 64]",
    "5: movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "cmp rdi, rcx",
    "jb 5b",
    "movups [rcx], xmm4",
    "movups [rcx + 16], xmm5",
    "movups [rcx + 32], xmm6",
    "movups [rcx + 48], xmm7",
    "mov eax, 1",
    "ret",
    "7: xor eax, eax",
    "ret",
    ".pushsection shunt_faults,\"aR\",@progbits",
    ".long shunt_user_copy - .",
    ".long 7b - .",
    ".long 7b - .",
    ".popsection",
    "6: push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "push rbp",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbp, 0",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r12, 0",
    "push r13",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r13, 0",
    "push r14",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r14, 0",
    "push r15",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r15, 0",
    "push rdx",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "mov rax, qword ptr [rip + shunt_thread_block@GOTTPOFF]",
    "mov qword ptr fs:[rax + {window}], rsp",
    "call qword ptr [rip + memcpy@GOTPCREL]",
    "mov eax, 1",
    "8: mov rcx, qword ptr [rip + shunt_thread_block@GOTTPOFF]",
    "mov qword ptr fs:[rcx + {window}], 0",
    "add rsp, 24",
    ".cfi_adjust_cfa_offset -24",
    "pop r15",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r15",
    "pop r14",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r14",
    "pop r13",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r13",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r12",
    "pop rbp",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbp",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    ".globl shunt_user_fault",
    ".hidden shunt_user_fault",
    "shunt_user_fault:",
    ".cfi_adjust_cfa_offset 72",
    "xor eax, eax",
    "cld",
    "jmp 8b",
    ".cfi_endproc",
    ".size shunt_user_copy, . - shunt_user_copy",
    ".popsection",
    long = const LONG,
    window = const offset_of!(thread::Block, window),
);

extern "C" {
    fn shunt_user_copy(target: *mut u8, source: *const u8, length: usize) -> u32;
    fn shunt_user_fault();
    #[link_name = "__start_shunt_faults"]
    static FIRST: Entry;
    #[link_name = "__stop_shunt_faults"]
    static LAST: Entry;
}

/// Instructions that may fault, and where to go on: distances from the fields themselves.
#[repr(C)]
struct Entry {
    start: i32,
    end: i32,
    fix_up: i32,
}

/// What the window keeps: the copy, then the saved registers.
#[repr(C)]
struct Window {
    target: usize,
    source: usize,
    length: usize,
}

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

/// Copies `length` bytes, of which source or target is the program's; false if that faults. Then some bytes of the
/// target may have been written.
///
/// # Safety
/// What belongs to us of the two is valid; the program's part may be anything.
#[inline(always)]
pub unsafe fn copy(source: *const u8, target: *mut u8, length: usize) -> bool {
    let mut ok = 1u32;
    // SAFETY: accesses stay inside the two ranges, and a fault is resolved.
    unsafe {
        if length >= LONG {
            ok = shunt_user_copy(target, source, length);
        } else if length > 16 {
            // Shorter ones touch few registers: the caller keeps the others.
            asm!("call {f}", f = sym shunt_user_copy, inout("rdi") target => _, inout("rsi") source => _, in("rdx") length,
                out("rax") ok, out("rcx") _, out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
                out("xmm5") _, out("xmm6") _, out("xmm7") _);
        } else if length >= 8 {
            access!(ok, [
                "mov {a}, qword ptr [{s}]",
                "mov {b}, qword ptr [{s} + {n} - 8]",
                "mov qword ptr [{t}], {a}",
                "mov qword ptr [{t} + {n} - 8], {b}"
            ], s = in(reg) source, t = in(reg) target, n = in(reg) length, a = out(reg) _, b = out(reg) _,);
        } else if length >= 4 {
            access!(ok, [
                "mov {a:e}, dword ptr [{s}]",
                "mov {b:e}, dword ptr [{s} + {n} - 4]",
                "mov dword ptr [{t}], {a:e}",
                "mov dword ptr [{t} + {n} - 4], {b:e}"
            ], s = in(reg) source, t = in(reg) target, n = in(reg) length, a = out(reg) _, b = out(reg) _,);
        } else if length >= 2 {
            access!(ok, [
                "movzx {a:e}, word ptr [{s}]",
                "movzx {b:e}, word ptr [{s} + {n} - 2]",
                "mov word ptr [{t}], {a:x}",
                "mov word ptr [{t} + {n} - 2], {b:x}"
            ], s = in(reg) source, t = in(reg) target, n = in(reg) length, a = out(reg) _, b = out(reg) _,);
        } else if length == 1 {
            access!(ok, [
                "movzx {a:e}, byte ptr [{s}]",
                "mov byte ptr [{t}], {a:l}"
            ], s = in(reg) source, t = in(reg) target, a = out(reg) _,);
        }
    }
    ok != 0
}

/// As [`copy`], for a target that another processor reads next: its whole lines go past this processor's caches, by
/// stores that ask nobody for the line. Where the reader still has the lines from last time and is far away, asking is
/// what a copy takes its time for. All is visible before whatever the caller stores next.
///
/// # Safety
/// As for [`copy`]; the source is the program's.
pub unsafe fn copy_away(source: *const u8, target: *mut u8, length: usize) -> bool {
    let head = ((target as usize).wrapping_neg() & (LINE - 1)).min(length);
    let whole = (length - head) & !(LINE - 1);
    let mut ok = 1u32;
    // SAFETY: three parts of the two ranges; a fault is resolved.
    unsafe {
        ok &= copy(source, target, head) as u32;
        if ok != 0 && whole > 0 {
            access!(ok, [
                "5: movups {a}, [{s}]",
                "movups {b}, [{s} + 16]",
                "movups {c}, [{s} + 32]",
                "movups {d}, [{s} + 48]",
                "movntdq [{t}], {a}",
                "movntdq [{t} + 16], {b}",
                "movntdq [{t} + 32], {c}",
                "movntdq [{t} + 48], {d}",
                "add {s}, 64",
                "add {t}, 64",
                "sub {n}, 64",
                "jnz 5b"
            ], s = inout(reg) source.wrapping_add(head) => _, t = inout(reg) target.wrapping_add(head) => _,
                n = inout(reg) whole => _, a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,);
            // Stores of this kind wait for nobody, not even for each other.
            core::arch::x86_64::_mm_sfence();
        }
        let done = head + whole;
        ok != 0 && copy(source.wrapping_add(done), target.wrapping_add(done), length - done)
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Loads a word of the program's; a fault clears `ok`.
///
/// # Safety
/// None of its own; `source` may be anything.
#[inline(always)]
pub unsafe fn load(source: *const u8, ok: &mut u32) -> u64 {
    let mut good = *ok;
    let word: u64;
    // SAFETY: a fault is resolved.
    unsafe {
        access!(good, ["mov {a}, qword ptr [{s}]"], s = in(reg) source, a = out(reg) word,);
    }
    *ok = good;
    word
}

/// Stores a word into the program's memory; a fault clears `ok`.
///
/// # Safety
/// None of its own; `target` may be anything that is not ours.
#[inline(always)]
pub unsafe fn store(target: *mut u8, word: u64, ok: &mut u32) {
    let mut good = *ok;
    // SAFETY: a fault is resolved.
    unsafe {
        access!(good, ["mov qword ptr [{t}], {a}"], t = in(reg) target, a = in(reg) word,);
    }
    *ok = good;
}

/// Whether the program's memory at `target` can be written; what another thread stores there meanwhile stays.
///
/// # Safety
/// As for [`store`].
#[inline]
pub unsafe fn writable(target: *mut u8) -> bool {
    let mut ok = 1u32;
    // SAFETY: a fault is resolved; the byte keeps its value.
    unsafe {
        access!(ok, ["lock or byte ptr [{t}], 0"], t = in(reg) target,);
    }
    ok != 0
}

/// Reads a plain value that the program passed by address. Errors: EFAULT.
///
/// # Safety
/// Any bytes are a valid `T`; `source` may be anything.
#[inline]
pub unsafe fn read<T: Copy>(source: *const T) -> Result<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: our own target has the size; the rest is promised by the caller.
    unsafe {
        if copy(source.cast(), value.as_mut_ptr().cast(), size_of::<T>()) {
            Ok(value.assume_init())
        } else {
            Err(Errno(EFAULT))
        }
    }
}

/// Writes a plain value to where the program wants it. Errors: EFAULT.
///
/// # Safety
/// `target` may be anything that is not ours.
#[inline]
pub unsafe fn write<T: Copy>(target: *mut T, value: T) -> Result<()> {
    // SAFETY: our own source has the size.
    unsafe { copy_all((&raw const value).cast(), target.cast(), size_of::<T>()) }
}

/// [`copy`] with an error. Errors: EFAULT.
///
/// # Safety
/// As for [`copy`].
#[inline]
pub unsafe fn copy_all(source: *const u8, target: *mut u8, length: usize) -> Result<()> {
    // SAFETY: passed on.
    if unsafe { copy(source, target, length) } {
        Ok(())
    } else {
        Err(Errno(EFAULT))
    }
}

/// A fault of this thread, told to the handler of SIGSEGV or SIGBUS: if it is an access of this file, makes the thread
/// go on at the fix-up and gives true.
///
/// # Safety
/// The arguments are what the kernel gave to the handler.
pub unsafe fn resolve(information: *const siginfo_t, context: *mut ucontext_t) -> bool {
    // SAFETY: the kernel's structures; the table lies between the linker's two symbols; an open window lies on the
    // stack of the interrupted copy.
    unsafe {
        let registers = &mut (*context).uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize] as usize;
        let far = |field: *const i32| (field as usize).wrapping_add_signed(*field as isize);
        let mut entry = &raw const FIRST;
        while entry < &raw const LAST {
            if (far(&raw const (*entry).start)..far(&raw const (*entry).end)).contains(&at) {
                registers[libc::REG_RIP as usize] = far(&raw const (*entry).fix_up) as i64;
                return true;
            }
            entry = entry.add(1);
        }
        let window = (*thread::block()).window as *const Window;
        if window.is_null() {
            return false;
        }
        let address = (*information).si_addr() as usize;
        let inside = |start: usize| address.wrapping_sub(start) < (*window).length;
        // An address that no page can have raises a general protection fault, which tells no address.
        let general = (*information).si_code == SI_KERNEL;
        if !general && !inside((*window).source) && !inside((*window).target) {
            return false;
        }
        registers[libc::REG_RSP as usize] = window as i64;
        registers[libc::REG_RIP as usize] = shunt_user_fault as *const () as i64;
        true
    }
}

const SI_KERNEL: i32 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn handler(number: i32, information: *mut siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel's structures; with the default action in place, a fault that is not ours ends the test.
        unsafe {
            if !resolve(information, context.cast()) {
                libc::signal(number, libc::SIG_DFL);
            }
        }
    }

    fn catch_faults() {
        for number in [libc::SIGSEGV, libc::SIGBUS] {
            // SAFETY: installs the handler above.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                assert_eq!(libc::sigaction(number, &action, std::ptr::null_mut()), 0);
            }
        }
    }

    const PAGE: usize = 4096;

    /// Two pages of bytes that cannot be touched on either side; the address of the first.
    fn island() -> *mut u8 {
        // SAFETY: fresh mappings.
        unsafe {
            let nothing = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let sea = crate::calls::mmap(std::ptr::null_mut(), 4 * PAGE, libc::PROT_NONE, nothing, -1, 0).unwrap();
            let land = sea.add(PAGE);
            crate::calls::mmap(land, 2 * PAGE, libc::PROT_READ | libc::PROT_WRITE, nothing | libc::MAP_FIXED, -1, 0).unwrap()
        }
    }

    #[test]
    fn every_length_is_copied_whole_and_faults_at_either_end() {
        catch_faults();
        let land = island();
        let mut ours = vec![0u8; 2 * PAGE + 64];
        for length in (1..700).chain([1000, 4095, 4096, 2 * PAGE]) {
            let (first, last) = (land, land.wrapping_add(2 * PAGE - length));
            for (theirs, faults) in [
                (first, false),
                (last, false),
                (first.wrapping_sub(1), true),
                (last.wrapping_add(1), true),
                (std::ptr::without_provenance_mut(1), true),
            ] {
                if !faults {
                    // SAFETY: inside the island.
                    let bytes = unsafe { std::slice::from_raw_parts_mut(theirs, length) };
                    bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + length) as u8);
                }
                ours.fill(0xee);
                // SAFETY: there is room for `length` bytes.
                assert_eq!(unsafe { copy(theirs, ours.as_mut_ptr(), length) }, !faults, "from {theirs:p}, {length} bytes");
                assert_eq!(ours[length], 0xee, "{length} bytes and no more");
                if !faults {
                    assert!((0..length).all(|i| ours[i] == (i * 7 + length) as u8), "{length} bytes in");
                    ours[..length].iter_mut().for_each(|byte| *byte ^= 0x55);
                }
                // SAFETY: as above.
                assert_eq!(unsafe { copy(ours.as_ptr(), theirs, length) }, !faults, "to {theirs:p}, {length} bytes");
                if !faults {
                    // SAFETY: inside the island.
                    let bytes = unsafe { std::slice::from_raw_parts(theirs, length) };
                    assert_eq!(bytes, &ours[..length], "{length} bytes out");
                }
            }
        }
    }

    #[test]
    fn copies_past_the_caches_are_whole_and_fault_too() {
        catch_faults();
        let land = island();
        let mut ours = vec![0u8; 2 * PAGE + 192];
        for length in (0..300).chain([1000, 4095, 4096, 2 * PAGE]) {
            for skew in [0, 1, 17, 63] {
                for (theirs, faults) in [
                    (land, false),
                    (land.wrapping_add(2 * PAGE - length), false),
                    (land.wrapping_sub(1), length > 0),
                    (land.wrapping_add(2 * PAGE - length + 1), length > 0),
                ] {
                    if !faults {
                        // SAFETY: inside the island.
                        let bytes = unsafe { std::slice::from_raw_parts_mut(theirs, length) };
                        bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + length) as u8);
                    }
                    ours.fill(0xee);
                    // SAFETY: there is room for `length` bytes behind `skew`.
                    let whole = unsafe { copy_away(theirs, ours.as_mut_ptr().add(skew), length) };
                    assert_eq!(whole, !faults, "from {theirs:p}, {length} bytes");
                    assert!(ours[..skew].iter().chain(&ours[skew + length..]).all(|byte| *byte == 0xee));
                    assert!(faults || (0..length).all(|i| ours[skew + i] == (i * 7 + length) as u8), "{length} bytes");
                }
            }
        }
    }

    #[test]
    fn addresses_that_no_page_can_have_fault_too() {
        catch_faults();
        let mut ours = [0u8; 2 * PAGE];
        for address in [1usize << 63, 0x8000_0000_0000_1000, usize::MAX - 4 * PAGE, 0xffff_8000_0000_0000] {
            for length in [1, 8, 16, 100, 600, 2 * PAGE] {
                // SAFETY: our part has the room.
                unsafe {
                    assert!(!copy(address as *const u8, ours.as_mut_ptr(), length));
                    assert!(!copy(ours.as_ptr(), address as *mut u8, length));
                }
            }
            let mut ok = 1;
            // SAFETY: faults are resolved.
            unsafe {
                load(address as *const u8, &mut ok);
                assert_eq!(ok, 0);
                assert!(!writable(address as *mut u8));
                assert_eq!(read(address as *const u64), Err(Errno(EFAULT)));
                assert_eq!(write(address as *mut [u8; 56], [0; 56]), Err(Errno(EFAULT)));
            }
        }
        let mut word = 7u64;
        // SAFETY: a variable of this test.
        unsafe {
            assert!(writable((&raw mut word).cast()));
            assert_eq!(read(&raw const word), Ok(7));
            assert_eq!(write(&raw mut word, 8), Ok(()));
        }
        assert_eq!(word, 8);
    }
}
