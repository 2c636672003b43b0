//! Collective operations of a group: copies between two barriers. Addresses are symmetric and checked for every member before
//! anything is written.

use crate::error::{Error, Result};
use crate::group::Group;
use crate::trace::{self, Kind};
use crate::world::World;

/// Elements that a reduction works on at a time: on the stack, and in the nearest cache.
const BLOCK: usize = 128;

/// Where a rank's copy lies, or the error.
fn at(world: &World, address: usize, length: usize, rank: usize) -> Result<usize> {
    world.remote(address, length, rank).ok_or_else(|| world.wrong(address, length, rank as i64))
}

/// A rank's bytes become those at `to`, in this process, once [`World::complete`] has returned.
///
/// # Safety
/// `to` is memory of the calling program that it vouches for.
unsafe fn take(world: &World, address: usize, length: usize, rank: usize, to: usize) -> Result<()> {
    if world.is_far(rank) {
        // SAFETY: by the caller; a collective completes before it returns.
        return unsafe { world.far_get(to as *mut u8, address, length, rank, false) };
    }
    copy(at(world, address, length, rank)?, to, length);
    Ok(())
}

fn copy(from: usize, to: usize, length: usize) {
    if from != to {
        // SAFETY: callers pass addresses that `at` has checked for this length, or memory of the calling program that it vouches for.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, length) };
    }
}

/// A member's place; a rank that calls a collective of a group it is not in is a fault of the program.
fn place(world: &World, group: &Group) -> Result<usize> {
    group.index().ok_or(Error::Rank { rank: world.me() as i64, ranks: group.size() })
}

/// `bytes` of the root's source become everybody's destination; the root's own as well if it says so.
///
/// # Errors
/// If an address or the root is wrong, or if the job ends.
///
/// # Safety
/// Without symmetric addresses it refuses; the program must not use the destination meanwhile.
pub unsafe fn broadcast(
    world: &World,
    group: &Group,
    destination: usize,
    source: usize,
    bytes: usize,
    root: usize,
    to_root: bool,
) -> Result<()> {
    let _scope = trace::scope(world, || group.what(Kind::Broadcast, bytes));
    if root >= group.size() {
        return Err(Error::Rank { rank: root as i64, ranks: group.size() });
    }
    let index = place(world, group)?;
    group.barrier(world)?;
    if bytes > 0 && (index != root || to_root) {
        // SAFETY: the caller's promise.
        unsafe { take(world, source, bytes, group.rank(root), destination)? };
    }
    group.barrier(world)
}

/// Everybody's source, one after the other in order of places, in everybody's destination; lengths may differ.
///
/// # Errors
/// If an address is wrong, or if the job ends.
///
/// # Safety
/// As [`broadcast`].
pub unsafe fn collect(world: &World, group: &Group, destination: usize, source: usize, bytes: usize) -> Result<()> {
    let _scope = trace::scope(world, || group.what(Kind::Collect, bytes));
    place(world, group)?;
    group.tell(world, 0, bytes as u64)?;
    group.barrier(world)?;
    let mut to = destination;
    for index in 0..group.size() {
        let length = if group.size() == 1 { bytes } else { group.told(world, index, 0) as usize };
        if length > 0 {
            // SAFETY: the caller's promise.
            unsafe { take(world, source, length, group.rank(index), to)? };
        }
        to += length;
    }
    group.barrier(world)
}

/// As [`collect`] with equal lengths.
///
/// # Errors
/// If an address is wrong, or if the job ends.
///
/// # Safety
/// As [`broadcast`].
pub unsafe fn fcollect(world: &World, group: &Group, destination: usize, source: usize, bytes: usize) -> Result<()> {
    let _scope = trace::scope(world, || group.what(Kind::Fcollect, bytes));
    let own = place(world, group)?;
    group.barrier(world)?;
    if bytes > 0 {
        for step in 0..group.size() {
            // Each begins with itself, so that not all read from one.
            let index = (own + step) % group.size();
            // SAFETY: the caller's promise.
            unsafe { take(world, source, bytes, group.rank(index), destination + index * bytes)? };
        }
    }
    group.barrier(world)
}

/// Block `j` of member `i` becomes block `i` of member `j`. Elements of `size` bytes, `count` of them in a block, lie `step` apart at the source and
/// `destination_step` at the destination.
///
/// # Errors
/// If an address is wrong, or if the job ends.
///
/// # Safety
/// As [`broadcast`].
pub unsafe fn alltoalls(
    world: &World,
    group: &Group,
    destination: usize,
    source: usize,
    (destination_step, step): (usize, usize),
    size: usize,
    count: usize,
) -> Result<()> {
    let _scope = trace::scope(world, || group.what(Kind::Alltoall, size.saturating_mul(count)));
    let own = place(world, group)?;
    group.barrier(world)?;
    if count > 0 && size > 0 {
        for turn in 0..group.size() {
            let index = (own + turn) % group.size();
            let to = destination + index * count * destination_step * size;
            let from = source + own * count * step * size;
            let reach = ((count - 1) * step + 1) * size;
            let rank = group.rank(index);
            if world.is_far(rank) {
                // SAFETY: the caller's promise.
                unsafe {
                    if step == 1 && destination_step == 1 {
                        world.far_get(to as *mut u8, from, count * size, rank, false)?;
                    } else {
                        world.far_gather(
                            (to as *mut u8, (destination_step * size) as isize),
                            (from, step * size),
                            (size, count),
                            rank,
                        )?;
                    }
                }
                continue;
            }
            let from = at(world, from, reach, rank)?;
            if step == 1 && destination_step == 1 {
                copy(from, to, count * size);
            } else {
                for element in 0..count {
                    copy(from + element * step * size, to + element * destination_step * size, size);
                }
            }
        }
    }
    group.barrier(world)
}

/// Element by element, `operation` over all members' sources in order of places, in everybody's destination, which may be the source.
///
/// # Errors
/// If an address is wrong, or if the job ends.
///
/// # Safety
/// As [`broadcast`]; addresses must be aligned for `T`, whose every pattern of bits is a value.
pub unsafe fn reduce<T: Copy>(
    world: &World,
    group: &Group,
    destination: usize,
    source: usize,
    count: usize,
    operation: impl Fn(T, T) -> T,
) -> Result<()> {
    let _scope = trace::scope(world, || group.what(Kind::Reduce, count.saturating_mul(size_of::<T>())));
    let own = place(world, group)?;
    group.barrier(world)?;
    // A member alone computes a piece, from all sources to all destinations: so the source may be the destination.
    let size = size_of::<T>();
    let piece = count.div_ceil(group.size()).next_multiple_of(BLOCK.min(64)).max(64);
    let (first, last) = ((own * piece).min(count), ((own + 1) * piece).min(count));
    // Pieces of members on other hosts are brought here as a whole, and results are sent there as a whole.
    let bytes = (last - first) * size;
    let far = |index: &usize| bytes > 0 && world.is_far(group.rank(*index));
    let mut pieces: Vec<Option<Vec<T>>> = Vec::new();
    let mut results: Vec<T> = Vec::new();
    if (0..group.size()).any(|index| far(&index)) {
        for index in 0..group.size() {
            let mut piece = far(&index).then(|| Vec::<T>::with_capacity(last - first));
            if let Some(piece) = &mut piece {
                // SAFETY: the vector has the capacity, and lives until all is complete. Any bits are a value.
                unsafe { take(world, source + first * size, bytes, group.rank(index), piece.as_mut_ptr() as usize)? };
            }
            pieces.push(piece);
        }
        world.complete()?;
        results.reserve_exact(last - first);
    }
    let mut from = first;
    while from < last {
        let length = BLOCK.min(last - from);
        let mut block = [std::mem::MaybeUninit::<T>::uninit(); BLOCK];
        for index in 0..group.size() {
            let other = match pieces.get(index) {
                Some(Some(piece)) => piece.as_ptr().wrapping_add(from - first),
                _ => at(world, source + from * size, length * size, group.rank(index))? as *const T,
            };
            for (element, place) in block[..length].iter_mut().enumerate() {
                // SAFETY: `at` has checked `length` elements, or a piece has them; the first member's have initialised the block.
                unsafe {
                    let value = other.add(element).read();
                    let sum = if index == 0 { value } else { operation(place.assume_init(), value) };
                    place.write(sum);
                }
            }
        }
        if !pieces.is_empty() {
            // SAFETY: initialised above; within the capacity.
            unsafe {
                std::ptr::copy_nonoverlapping(block.as_ptr().cast::<T>(), results.as_mut_ptr().add(from - first), length);
            }
        }
        for index in (0..group.size()).filter(|index| !far(index)) {
            let to = at(world, destination + from * size, length * size, group.rank(index))?;
            copy(block.as_ptr() as usize, to, length * size);
        }
        from += length;
    }
    for index in (0..group.size()).filter(far) {
        let to = destination + first * size;
        // SAFETY: all elements were copied there.
        unsafe { world.far_put(to, results.as_ptr().cast(), bytes, group.rank(index))? };
    }
    group.barrier(world)
}
