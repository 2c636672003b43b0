//! Put and get: checked copies.

use crate::contexts::{rank, Ctx};
use crate::setup::fail;
use shunt_pgas::trace::{bulk, Kind, BULK};
use shunt_pgas::World;
use std::ffi::c_int;

/// Where the rank's copy lies, and the rank; what is wrong ends the job.
#[inline(always)]
pub fn target(name: &'static str, context: Ctx, address: usize, length: usize, pe: c_int) -> (usize, usize) {
    let rank = rank(context, pe);
    match World::current().remote(address, length, rank) {
        Some(at) => (at, rank),
        None => refuse(name, address, length, rank, pe),
    }
}

#[cold]
#[inline(never)]
fn refuse(name: &'static str, address: usize, length: usize, rank: usize, pe: c_int) -> ! {
    let named = if rank == usize::MAX { i64::from(pe) } else { rank as i64 };
    let world = World::current();
    let error = if rank == usize::MAX && world.ranks() > 0 {
        shunt_pgas::Error::Rank { rank: named, ranks: world.ranks() }
    } else {
        world.wrong(address, length, named)
    };
    fail(name, error)
}

#[inline(always)]
fn copy(from: *const u8, to: *mut u8, bytes: usize, (kind, rank): (Kind, usize)) {
    // SAFETY: one side was checked by `target`, the other is the program's, of the same length. Sizes of one word are one store, as an atomic
    // load at the other side may expect.
    unsafe {
        match bytes {
            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            0..BULK => std::ptr::copy(from, to, bytes),
            _ => {
                let _scope = bulk(World::current(), kind, rank, bytes);
                std::ptr::copy(from, to, bytes);
            }
        }
    }
}

/// Bytes of so many elements; more than memory has if it is more than a number can say.
#[inline(always)]
fn bytes<T>(count: usize) -> usize {
    count.saturating_mul(size_of::<T>())
}

#[inline(always)]
pub fn put<T>(name: &'static str, context: Ctx, to: *mut T, from: *const T, count: usize, pe: c_int) {
    if count == 0 {
        return;
    }
    let (at, rank) = target(name, context, to as usize, bytes::<T>(count), pe);
    if bytes::<T>(count) > 8 {
        World::current().look_ahead(at, bytes::<T>(count));
    }
    copy(from.cast(), at as *mut u8, bytes::<T>(count), (Kind::Put, rank));
    World::current().stored(rank, at, bytes::<T>(count));
}

#[inline(always)]
pub fn get<T>(name: &'static str, context: Ctx, to: *mut T, from: *const T, count: usize, pe: c_int) {
    if count == 0 {
        return;
    }
    let (at, rank) = target(name, context, from as usize, bytes::<T>(count), pe);
    copy(at as *const u8, to.cast(), bytes::<T>(count), (Kind::Get, rank));
}

#[inline(always)]
pub fn p<T: Copy>(name: &'static str, context: Ctx, to: *mut T, value: T, pe: c_int) {
    let (at, rank) = target(name, context, to as usize, size_of::<T>(), pe);
    // SAFETY: checked.
    unsafe { (at as *mut T).write_unaligned(value) };
    World::current().stored(rank, at, size_of::<T>());
}

#[inline(always)]
pub fn g<T: Copy>(name: &'static str, context: Ctx, from: *const T, pe: c_int) -> T {
    let (at, _) = target(name, context, from as usize, size_of::<T>(), pe);
    // SAFETY: checked; each type of the table is plain data. Unaligned is what the program may pass.
    unsafe { (at as *const T).read_unaligned() }
}

/// Bytes from the first element to the last.
#[inline(always)]
fn reach<T>(count: usize, step: isize) -> usize {
    bytes::<T>((count - 1).saturating_mul(step.max(1) as usize).saturating_add(1))
}

pub fn iput<T: Copy>(
    name: &'static str,
    context: Ctx,
    to: *mut T,
    from: *const T,
    (to_step, from_step): (isize, isize),
    count: usize,
    pe: c_int,
) {
    if count == 0 {
        return;
    }
    let (at, rank) = target(name, context, to as usize, reach::<T>(count, to_step), pe);
    for element in 0..count as isize {
        // SAFETY: checked up to the last element; the source is the program's.
        unsafe {
            let value = from.offset(element * from_step).read_unaligned();
            (at as *mut T).offset(element * to_step.max(1)).write_unaligned(value);
        }
    }
    World::current().stored(rank, at, reach::<T>(count, to_step));
}

pub fn iget<T: Copy>(
    name: &'static str,
    context: Ctx,
    to: *mut T,
    from: *const T,
    (to_step, from_step): (isize, isize),
    count: usize,
    pe: c_int,
) {
    if count == 0 {
        return;
    }
    let (at, _) = target(name, context, from as usize, reach::<T>(count, from_step), pe);
    for element in 0..count as isize {
        // SAFETY: as in `iput`.
        unsafe {
            let value = (at as *const T).offset(element * from_step.max(1)).read_unaligned();
            to.offset(element * to_step).write_unaligned(value);
        }
    }
}
