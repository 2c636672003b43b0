//! Signal masks while calls are told by SIGSYS: blocked, it would end the process. So it never is, and a program that has blocked
//! it hears that it is.

use core::ffi::c_int;
use shunt_calls::libc;
use shunt_sys::action;

/// The signal's bit in the kernel's set.
pub const BIT: u64 = action::bit(libc::SIGSYS);

/// What the kernel is given for the mask that the program wants.
pub const fn without(wanted: u64) -> u64 {
    wanted & !BIT
}

/// What the program is told of a mask, where it believes the signal blocked (`veiled`) or not.
pub const fn told(mask: u64, veiled: u32) -> u64 {
    mask | if veiled != 0 { BIT } else { 0 }
}

/// What the program believes after a change of the mask that succeeded (sigprocmask(2)).
pub const fn changed(veiled: u32, how: c_int, wanted: u64) -> u32 {
    let there = (wanted & BIT != 0) as u32;
    match how {
        libc::SIG_BLOCK => veiled | there,
        libc::SIG_UNBLOCK => veiled & !there,
        _ => there,
    }
}

#[cfg(test)]
#[path = "tests/veil.rs"]
mod tests;
