//! Put and get: checked copies.

use crate::contexts::{members, rank, Ctx};
use crate::setup::{fail, or_fail};
use shunt_pgas::trace::{bulk, Kind, BULK};
use shunt_pgas::{Error, World};
use std::ffi::c_int;

/// The rank that is meant, if it lives on another host; else what is wrong ends the job.
#[cold]
#[inline(never)]
pub fn far(name: &'static str, context: Ctx, address: usize, length: usize, pe: c_int) -> usize {
    let rank = rank(context, pe);
    if !World::current().is_far(rank) {
        refuse(name, (context, pe), address, length, rank);
    }
    rank
}

/// Where the rank's copy lies; none if the rank may live on another host.
#[inline(always)]
pub fn near(context: Ctx, address: usize, length: usize, pe: c_int) -> Option<(usize, usize)> {
    let rank = rank(context, pe);
    World::current().remote(address, length, rank).map(|at| (at, rank))
}

#[cold]
#[inline(never)]
fn put_far(name: &'static str, context: Ctx, to: usize, (from, bytes): (*const u8, usize), pe: c_int) {
    let (rank, world) = (far(name, context, to, bytes, pe), World::current());
    let _scope = bulk(world, Kind::Put, rank, bytes);
    // SAFETY: the program's memory.
    or_fail(name, unsafe { world.far_put(to, from, bytes, rank) });
}

#[cold]
#[inline(never)]
fn get_far(name: &'static str, context: Ctx, to: *mut u8, (from, bytes): (usize, usize), pe: c_int, now: bool) {
    let (rank, world) = (far(name, context, from, bytes, pe), World::current());
    let _scope = bulk(world, Kind::Get, rank, bytes);
    // SAFETY: the program's memory, which it leaves to the call until `shmem_quiet` if that is what it called.
    or_fail(name, unsafe { world.far_get(to, from, bytes, rank, now) });
}

#[cold]
#[inline(never)]
fn refuse(name: &'static str, (context, pe): (Ctx, c_int), address: usize, length: usize, rank: usize) -> ! {
    let world = World::current();
    let error = match members(context) {
        Some(members) if rank == usize::MAX => Error::Member { number: pe.into(), members },
        _ => world.wrong(address, length, if rank == usize::MAX { pe.into() } else { rank as i64 }),
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
    let Some((at, rank)) = near(context, to as usize, bytes::<T>(count), pe) else {
        return put_far(name, context, to as usize, (from.cast(), bytes::<T>(count)), pe);
    };
    if bytes::<T>(count) > 8 {
        World::current().look_ahead(at, bytes::<T>(count));
    }
    copy(from.cast(), at as *mut u8, bytes::<T>(count), (Kind::Put, rank));
    World::current().stored(rank, at, bytes::<T>(count));
}

#[inline(always)]
pub fn get<T>(name: &'static str, context: Ctx, to: *mut T, from: *const T, count: usize, pe: c_int) {
    get_as(name, context, (to, from), count, pe, true);
}

/// What comes from another host may come later, until `shmem_quiet`.
#[inline(always)]
pub fn get_nbi<T>(name: &'static str, context: Ctx, to: *mut T, from: *const T, count: usize, pe: c_int) {
    get_as(name, context, (to, from), count, pe, false);
}

#[inline(always)]
fn get_as<T>(name: &'static str, context: Ctx, (to, from): (*mut T, *const T), count: usize, pe: c_int, now: bool) {
    if count == 0 {
        return;
    }
    let Some((at, rank)) = near(context, from as usize, bytes::<T>(count), pe) else {
        return get_far(name, context, to.cast(), (from as usize, bytes::<T>(count)), pe, now);
    };
    copy(at as *const u8, to.cast(), bytes::<T>(count), (Kind::Get, rank));
}

#[inline(always)]
pub fn p<T: Copy>(name: &'static str, context: Ctx, to: *mut T, value: T, pe: c_int) {
    let Some((at, rank)) = near(context, to as usize, size_of::<T>(), pe) else {
        return put_far(name, context, to as usize, ((&raw const value).cast(), size_of::<T>()), pe);
    };
    // SAFETY: checked.
    unsafe { (at as *mut T).write_unaligned(value) };
    World::current().stored(rank, at, size_of::<T>());
}

#[inline(always)]
pub fn g<T: Copy>(name: &'static str, context: Ctx, from: *const T, pe: c_int) -> T {
    let Some((at, _)) = near(context, from as usize, size_of::<T>(), pe) else {
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        get_far(name, context, value.as_mut_ptr().cast(), (from as usize, size_of::<T>()), pe, true);
        // SAFETY: the call has filled it; any bits are a value.
        return unsafe { value.assume_init() };
    };
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
    let Some((at, rank)) = near(context, to as usize, reach::<T>(count, to_step), pe) else {
        let (rank, size) = (far(name, context, to as usize, reach::<T>(count, to_step), pe), size_of::<T>());
        let (to, from) = ((to as usize, to_step.max(1) as usize * size), (from.cast(), from_step * size as isize));
        // SAFETY: the program's memory.
        return or_fail(name, unsafe { World::current().far_scatter(to, from, (size, count), rank) });
    };
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
    let Some((at, _)) = near(context, from as usize, reach::<T>(count, from_step), pe) else {
        let (rank, size) = (far(name, context, from as usize, reach::<T>(count, from_step), pe), size_of::<T>());
        let (to, from) = ((to.cast(), to_step * size as isize), (from as usize, from_step.max(1) as usize * size));
        // SAFETY: the program's memory.
        return or_fail(name, unsafe { World::current().far_gather(to, from, (size, count), rank) });
    };
    for element in 0..count as isize {
        // SAFETY: as in `iput`.
        unsafe {
            let value = (at as *const T).offset(element * from_step.max(1)).read_unaligned();
            to.offset(element * to_step).write_unaligned(value);
        }
    }
}
