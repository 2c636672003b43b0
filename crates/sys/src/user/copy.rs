//! Copies of any length, in and out, by registers, vectors or `memcpy`.

use super::{access, LONG};
use crate::thread;
use core::arch::{asm, global_asm};
use core::mem::offset_of;

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
