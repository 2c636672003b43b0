//! Copies of any length, in and out, by registers, vectors or `memcpy`.

use super::routine::shunt_user_copy;
use super::{access, LONG};
use core::arch::asm;

/// Copies `length` bytes, of which source or target is the program's; false if that faults. Then some bytes of the
/// target may have been written.
///
/// # Safety
/// What belongs to us of the two is valid; the program's part may be anything.
#[inline(always)]
pub unsafe fn copy(source: *const u8, target: *mut u8, length: usize) -> bool {
    // SAFETY: passed on.
    unsafe {
        if length >= LONG {
            return shunt_user_copy(target, source, length) != 0;
        }
        copy_short(source, target, length)
    }
}

/// As [`copy`], of fewer than [`LONG`] bytes: no call that the compiler knows of, so it keeps nothing in memory for one.
///
/// # Safety
/// As for [`copy`], and `length < LONG`.
#[inline(always)]
pub unsafe fn copy_short(source: *const u8, target: *mut u8, length: usize) -> bool {
    let mut ok = 1u32;
    // SAFETY: accesses stay inside the two ranges, and a fault is resolved.
    unsafe {
        if length > 16 {
            // They touch few registers: the caller keeps the others. `vzeroupper` is among the instructions, so in a build
            // for AVX no vector register keeps all it had.
            asm!("call {f}", f = sym shunt_user_copy, inout("rdi") target => _, inout("rsi") source => _, in("rdx") length,
                out("rax") ok, out("rcx") _, out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
                out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _, out("xmm16") _, out("xmm17") _, out("xmm18") _,
                out("xmm19") _);
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
/// stores that do not fetch the line. Where the reader still has the lines from last time and is far away, asking is
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
            // Stores of this kind are not ordered, not even among each other.
            core::arch::x86_64::_mm_sfence();
        }
        let done = head + whole;
        ok != 0 && copy(source.wrapping_add(done), target.wrapping_add(done), length - done)
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;
