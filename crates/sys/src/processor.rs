//! What the processor says of itself: its time stamp counter, its number, how large its own cache is and how wide its vectors are.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::sync::atomic::{AtomicU32, Ordering};

/// What has been asked once. In a virtual machine the question (CPUID) takes a microsecond.
#[repr(C)]
pub(crate) struct Processor {
    /// Bytes of a vector that copies use: 16 (or 0, before [`find_vectors`]), 32 or 64. The first word, which assembly reads.
    pub(crate) vector: AtomicU32,
    /// KiB of the second-level cache, plus one; 0: not asked yet.
    second_level: AtomicU32,
}

pub(crate) static PROCESSOR: Processor = Processor { vector: AtomicU32::new(0), second_level: AtomicU32::new(0) };

/// The processor's time stamp counter. Where its rate is not constant ([`has_invariant_ticks`]) it only bounds spinning.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: RDTSC has no preconditions in user mode.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The processor that runs this thread now, as Linux numbers them (RDTSCP's auxiliary word holds it).
#[inline(always)]
pub fn number() -> u32 {
    let mut auxiliary = 0u32;
    // SAFETY: RDTSCP has no preconditions in user mode.
    unsafe { core::arch::x86_64::__rdtscp(&mut auxiliary) };
    auxiliary & 0xfff
}

/// Whether the counter runs at one rate, whatever the processor does (CPUID's "invariant TSC"): else it is no clock.
pub fn has_invariant_ticks() -> bool {
    const ADVANCED_POWER_MANAGEMENT: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    __cpuid(0x8000_0000).eax >= ADVANCED_POWER_MANAGEMENT && __cpuid(ADVANCED_POWER_MANAGEMENT).edx & INVARIANT != 0
}

/// Whether the second-level cache is known, and smaller than `bytes`.
pub fn cache_is_smaller_than(bytes: usize) -> bool {
    let known = match PROCESSOR.second_level.load(Ordering::Relaxed) {
        0 => ask_for_cache(),
        known => known,
    };
    known > 1 && ((known - 1) as usize) << 10 < bytes
}

#[cold]
fn ask_for_cache() -> u32 {
    const EXTENDED: u32 = 0x8000_0000;
    // Makers agree on this leaf: the upper half of the register is the cache's KiB.
    const CACHES: u32 = 0x8000_0006;
    let kib = if __cpuid(EXTENDED).eax >= CACHES { __cpuid(CACHES).ecx >> 16 } else { 0 };
    PROCESSOR.second_level.store(kib + 1, Ordering::Relaxed);
    kib + 1
}

/// Finds out how wide vectors are, once, at start-up.
pub fn find_vectors() {
    PROCESSOR.vector.store(widest_vector(), Ordering::Relaxed);
}

/// Bytes of the widest vector that copies may use here. Vectors of 64 bytes make processors slower that had them before FSRM.
pub(crate) fn widest_vector() -> u32 {
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
