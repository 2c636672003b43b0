//! How wide this processor's vectors are.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a vector that copies use: 16 (or 0, before [`find`]), 32 or 64.
pub(super) static WIDTH: AtomicU32 = AtomicU32::new(0);

/// Finds out, once, at start-up.
pub fn find() {
    WIDTH.store(widest(), Ordering::Relaxed);
}

/// The widest that copies may use here. Vectors of 64 bytes make processors slower that had them before FSRM.
pub(super) fn widest() -> u32 {
    const OSXSAVE: u32 = 1 << 27;
    const AVX2: u32 = 1 << 5;
    const AVX512F: u32 = 1 << 16;
    const AVX512VL: u32 = 1 << 31;
    const FSRM: u32 = 1 << 4;
    // What the kernel saves of a thread: XMM, YMM; masks, and both halves of ZMM.
    const YMM: u32 = 0b110;
    const ZMM: u32 = 0b1110_0110;
    const EXTENDED: u32 = 7;
    if __cpuid(0).eax < EXTENDED || __cpuid(1).ecx & OSXSAVE == 0 {
        return 16;
    }
    let (features, saved) = (__cpuid_count(EXTENDED, 0), saved());
    let wide = AVX512F | AVX512VL;
    if features.ebx & wide == wide && features.edx & FSRM != 0 && saved & ZMM == ZMM {
        64
    } else if features.ebx & AVX2 != 0 && saved & YMM == YMM {
        32
    } else {
        16
    }
}

/// XCR0.
fn saved() -> u32 {
    let low: u32;
    // SAFETY: the caller has looked whether the instruction is there.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack, preserves_flags)) };
    low
}
