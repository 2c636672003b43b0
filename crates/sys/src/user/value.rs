//! Words and plain values.

use super::{access, copy};
use crate::{Errno, Result};
use core::arch::asm;
use core::mem::MaybeUninit;
use libc::EFAULT;

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

/// [`copy()`] with an error. Errors: EFAULT.
///
/// # Safety
/// As for [`copy()`].
#[inline]
pub unsafe fn copy_all(source: *const u8, target: *mut u8, length: usize) -> Result<()> {
    // SAFETY: passed on.
    if unsafe { copy(source, target, length) } {
        Ok(())
    } else {
        Err(Errno(EFAULT))
    }
}
