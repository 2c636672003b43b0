//! Atomic operations: an instruction on the rank's own word.

use crate::contexts::Ctx;
use crate::setup::fail;
use crate::transfers::target;
use shunt_pgas::atomic::{self, Word};
use shunt_pgas::{Error, World};
use std::ffi::c_int;

#[inline(always)]
fn word<T>(name: &'static str, context: Ctx, address: usize, pe: c_int) -> (usize, usize) {
    let (at, rank) = target(name, context, address, size_of::<T>(), pe);
    if at % size_of::<T>() != 0 {
        fail(name, Error::Alignment { rank, address, size: size_of::<T>() });
    }
    (at, rank)
}

#[inline(always)]
pub fn fetch<T: Word>(name: &'static str, context: Ctx, from: *const T, pe: c_int) -> T {
    let (at, _) = word::<T>(name, context, from as usize, pe);
    // SAFETY: checked by `word`.
    unsafe { atomic::load(at) }
}

#[inline(always)]
pub fn set<T: Word>(name: &'static str, context: Ctx, to: *mut T, value: T, pe: c_int) {
    let _ = swap(name, context, to, value, pe);
}

macro_rules! operations {
    ($($name:ident)*) => {$(
        #[inline(always)]
        pub fn $name<T: Word>(name: &'static str, context: Ctx, to: *mut T, value: T, pe: c_int) -> T {
            let (at, rank) = word::<T>(name, context, to as usize, pe);
            // SAFETY: checked by `word`.
            let before = unsafe { atomic::$name(at, value) };
            World::current().stored(rank, at, size_of::<T>());
            before
        }
    )*};
}
operations! { swap fetch_add fetch_and fetch_or fetch_xor }

#[inline(always)]
pub fn compare_swap<T: Word>(name: &'static str, context: Ctx, to: *mut T, expected: T, value: T, pe: c_int) -> T {
    let (at, rank) = word::<T>(name, context, to as usize, pe);
    // SAFETY: checked by `word`.
    let before = unsafe { atomic::compare_swap(at, expected, value) };
    World::current().stored(rank, at, size_of::<T>());
    before
}
