//! Atomic operations: an instruction on the rank's own word.

use crate::contexts::Ctx;
use crate::setup::{fail, or_fail};
use crate::transfers::{far, near};
use shunt_pgas::atomic::{self, Word};
use shunt_pgas::{Error, Operation, World};
use std::ffi::c_int;

/// Where the word lies, and whose it is; none if the rank lives on another host.
#[inline(always)]
fn word<T>(name: &'static str, context: Ctx, address: usize, pe: c_int) -> Option<(usize, usize)> {
    let (at, rank) = near(context, address, size_of::<T>(), pe)?;
    if at % size_of::<T>() != 0 {
        fail(name, Error::Alignment { rank, address, size: size_of::<T>() });
    }
    Some((at, rank))
}

/// Operands are the value, and what [`Operation::CompareSwap`] expects.
#[cold]
#[inline(never)]
fn far_word<T: Word>(
    name: &'static str,
    context: Ctx,
    address: usize,
    how: Operation,
    (value, expected): (T, T),
    pe: c_int,
) -> T {
    let rank = far(name, context, address, size_of::<T>(), pe);
    or_fail(name, World::current().far_atomic(address, how, value, expected, rank))
}

#[cold]
#[inline(never)]
fn far_update<T: Word>(name: &'static str, context: Ctx, address: usize, how: Operation, value: T, pe: c_int) {
    let rank = far(name, context, address, size_of::<T>(), pe);
    or_fail(name, World::current().far_update(address, how, value, rank));
}

#[inline(always)]
pub fn fetch<T: Word>(name: &'static str, context: Ctx, from: *const T, pe: c_int) -> T {
    let Some((at, _)) = word::<T>(name, context, from as usize, pe) else {
        return far_word(name, context, from as usize, Operation::Load, (T::from_bits(0), T::from_bits(0)), pe);
    };
    // SAFETY: checked by `word`.
    unsafe { atomic::load(at) }
}

#[inline(always)]
pub fn set<T: Word>(name: &'static str, context: Ctx, to: *mut T, value: T, pe: c_int) {
    update(name, context, to, Operation::Swap, value, pe);
}

/// An operation whose value before is not wanted: on another host it keeps its order as a put does, and is not waited for.
#[inline(always)]
pub fn update<T: Word>(name: &'static str, context: Ctx, to: *mut T, how: Operation, value: T, pe: c_int) {
    let Some((at, rank)) = word::<T>(name, context, to as usize, pe) else {
        return far_update(name, context, to as usize, how, value, pe);
    };
    // SAFETY: checked by `word`.
    unsafe {
        match how {
            Operation::Add => atomic::fetch_add(at, value),
            Operation::And => atomic::fetch_and(at, value),
            Operation::Or => atomic::fetch_or(at, value),
            Operation::Xor => atomic::fetch_xor(at, value),
            _ => atomic::swap(at, value),
        };
    }
    World::current().stored(rank, at, size_of::<T>());
}

macro_rules! operations {
    ($($name:ident $how:ident)*) => {$(
        #[inline(always)]
        pub fn $name<T: Word>(name: &'static str, context: Ctx, to: *mut T, value: T, pe: c_int) -> T {
            let Some((at, rank)) = word::<T>(name, context, to as usize, pe) else {
                return far_word(name, context, to as usize, Operation::$how, (value, value), pe);
            };
            // SAFETY: checked by `word`.
            let before = unsafe { atomic::$name(at, value) };
            World::current().stored(rank, at, size_of::<T>());
            before
        }
    )*};
}
operations! { swap Swap fetch_add Add fetch_and And fetch_or Or fetch_xor Xor }

#[inline(always)]
pub fn compare_swap<T: Word>(name: &'static str, context: Ctx, to: *mut T, expected: T, value: T, pe: c_int) -> T {
    let Some((at, rank)) = word::<T>(name, context, to as usize, pe) else {
        return far_word(name, context, to as usize, Operation::CompareSwap, (value, expected), pe);
    };
    // SAFETY: checked by `word`.
    let before = unsafe { atomic::compare_swap(at, expected, value) };
    World::current().stored(rank, at, size_of::<T>());
    before
}
