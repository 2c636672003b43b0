//! Time stamps: processor ticks for spinning, nanoseconds for deadlines.

use crate::calls;
use core::sync::atomic::{AtomicU64, Ordering};

/// The processor's time stamp counter (constant rate on every machine shunt runs on).
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: RDTSC has no preconditions in user mode.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The processor that runs this thread now, as Linux numbers them (RDTSCP's auxiliary word holds it).
#[inline(always)]
pub fn processor() -> u32 {
    let mut auxiliary = 0u32;
    // SAFETY: RDTSCP has no preconditions in user mode.
    unsafe { core::arch::x86_64::__rdtscp(&mut auxiliary) };
    auxiliary & 0xfff
}

/// Nanoseconds of CLOCK_MONOTONIC, by system call: for slow paths only.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    calls::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Ticks per 1024 ns; 0 until calibrated.
static RATE: AtomicU64 = AtomicU64::new(0);
static START_TICKS: AtomicU64 = AtomicU64::new(0);
static START_NS: AtomicU64 = AtomicU64::new(0);

/// Notes the start of the calibration interval. Called once at start-up.
pub fn start() {
    START_NS.store(monotonic_ns(), Ordering::Relaxed);
    START_TICKS.store(ticks(), Ordering::Relaxed);
}

/// Whether the rate of the time stamp counter is known exactly.
pub fn calibrated() -> bool {
    RATE.load(Ordering::Relaxed) != 0
}

/// Ticks in `ns` nanoseconds. A first guess of 2.5 GHz serves until a millisecond has passed since [`start`],
/// then the measured rate: no start-up delay for a figure that only bounds spinning.
pub fn ticks_for_ns(ns: u64) -> u64 {
    let mut rate = RATE.load(Ordering::Relaxed);
    if rate == 0 {
        rate = 2560;
        let start = START_NS.load(Ordering::Relaxed);
        if start != 0 {
            let elapsed = monotonic_ns().saturating_sub(start);
            if elapsed > 1_000_000 {
                let passed = ticks().wrapping_sub(START_TICKS.load(Ordering::Relaxed));
                rate = ((passed as u128 * 1024 / elapsed as u128) as u64).clamp(256, 16384);
                RATE.store(rate, Ordering::Relaxed);
            }
        }
    }
    ns.saturating_mul(rate) / 1024
}
