//! Locks in symmetric memory: rank 0's copy holds the next ticket (low half) and the turn (high half). 0 is free, and a lock that no
//! rank wants is 0 again.

use crate::error::Result;
use crate::trace::{self, Kind, What};
use crate::wait::{self, Span, Waits};
use crate::world::World;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

fn word(world: &World, address: usize) -> Result<&'static AtomicU64> {
    let at = world.remote(address, 8, 0).filter(|at| at % 8 == 0).ok_or_else(|| world.wrong(address, 8, 0))?;
    // SAFETY: eight aligned bytes of symmetric memory, which stays as long as the process.
    Ok(unsafe { AtomicU64::from_ptr(at as *mut u64) })
}

fn turn(value: u64) -> u32 {
    (value >> 32) as u32
}

/// Waits for the lock.
///
/// # Errors
/// If the address is wrong, or if the job ends.
pub fn set(world: &World, address: usize) -> Result<()> {
    let word = word(world, address)?;
    let place = world.number(word.as_ptr() as usize);
    let _scope = trace::scope(world, || What { kind: Kind::Lock, place: place + 1, amount: 0 });
    let ticket = take(word);
    wait::until(world, Waits::Lock, Span::flag(place), || turn(word.load(Acquire)) == ticket)?;
    world.own_block().holds.store(place + 1, Relaxed);
    Ok(())
}

/// The next ticket. Its half wraps by itself, and must not carry into the turn.
fn take(word: &AtomicU64) -> u32 {
    let next = |value: u64| Some(value & !0xffff_ffff | u64::from((value as u32).wrapping_add(1)));
    word.fetch_update(AcqRel, Acquire, next).unwrap_or_else(|value| value) as u32
}

/// Takes the lock if no rank has it.
///
/// # Errors
/// If the address is wrong.
pub fn test(world: &World, address: usize) -> Result<bool> {
    let word = word(world, address)?;
    let taken = word.compare_exchange(0, 1, AcqRel, Acquire).is_ok();
    if taken {
        world.own_block().holds.store(world.number(word.as_ptr() as usize) + 1, Relaxed);
    }
    Ok(taken)
}

/// Gives it to the next.
///
/// # Errors
/// If the address is wrong.
pub fn clear(world: &World, address: usize) -> Result<()> {
    world.quiet();
    let word = word(world, address)?;
    world.own_block().holds.store(0, Relaxed);
    let next = |value: u64| {
        let (ticket, turn) = (value as u32, turn(value).wrapping_add(1));
        Some(if ticket == turn { 0 } else { u64::from(turn) << 32 | u64::from(ticket) })
    };
    let before = word.fetch_update(AcqRel, Acquire, next).unwrap_or_else(|value| value);
    if before as u32 != turn(before).wrapping_add(1) {
        // The next in turn may sleep; which rank that is, is not known.
        (0..world.ranks()).for_each(|rank| world.flagged(rank));
    }
    Ok(())
}
