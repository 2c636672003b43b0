//! Locks in symmetric memory: rank 0's copy holds the next ticket (low half) and the turn (high half). 0 is free, and a lock that no
//! rank wants is 0 again.

use crate::error::{Error, Result};
use crate::far::Operation;
use crate::remote::wire::Request;
use crate::trace::{self, Kind, What};
use crate::wait::{self, Span, Waits};
use crate::world::World;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Duration;

/// The next in turn has the lock; true if there is one.
///
/// # Safety
/// `at` is an aligned word of mapped memory.
pub(crate) unsafe fn pass_on(at: usize) -> bool {
    // SAFETY: by the caller.
    let word = unsafe { AtomicU64::from_ptr(at as *mut u64) };
    let next = |value: u64| {
        let (ticket, turn) = (value as u32, turn(value).wrapping_add(1));
        Some(if ticket == turn { 0 } else { u64::from(turn) << 32 | u64::from(ticket) })
    };
    let before = word.fetch_update(AcqRel, Acquire, next).unwrap_or_else(|value| value);
    before as u32 != turn(before).wrapping_add(1)
}

/// The lock's number, if rank 0 lives on another host.
fn far(world: &World, address: usize) -> Option<u64> {
    world.place_of(0, address, 8).filter(|place| place % 8 == 0 && world.is_far(0))
}

/// Waits until it is the ticket's turn, as far as rank 0's host says: it is asked again and again, at first after as long as short turns of those
/// before take, less and less often while one has it, and soon again when it has gone on.
fn wait_far(world: &World, address: usize, ticket: u32) -> Result<()> {
    let (shortest, longest) = (Duration::from_micros(20), Duration::from_millis(1));
    let (mut pause, mut last) = (shortest, ticket);
    loop {
        let now = turn(world.far_atomic(address, Operation::Load, 0u64, 0, 0)?);
        if now == ticket {
            return Ok(());
        }
        if let Some(cause) = world.ended() {
            return Err(Error::Ended(cause));
        }
        let wanted = if now == last { pause * 2 } else { shortest * ticket.wrapping_sub(now).min(50) };
        (pause, last) = (wanted.min(longest), now);
        std::thread::sleep(pause);
    }
}

fn word(world: &World, address: usize) -> Result<&'static AtomicU64> {
    let at = world.remote(address, 8, 0).ok_or_else(|| world.wrong(address, 8, 0))?;
    if at % 8 != 0 {
        return Err(Error::Alignment { rank: 0, address, size: 8 });
    }
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
    if let Some(place) = far(world, address) {
        let _scope = trace::scope(world, || What { kind: Kind::Lock, place: place + 1, amount: 0 });
        // The low half, which wraps by itself.
        let ticket = world.far_atomic(address, Operation::Add, 1u32, 0, 0)?;
        wait_far(world, address, ticket)?;
        world.own_block().holds.store(place + 1, Relaxed);
        return Ok(());
    }
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
    let (taken, place) = match far(world, address) {
        Some(place) => (world.far_atomic(address, Operation::CompareSwap, 1u64, 0, 0)? == 0, place),
        None => {
            let word = word(world, address)?;
            (word.compare_exchange(0, 1, AcqRel, Acquire).is_ok(), world.number(word.as_ptr() as usize))
        }
    };
    if taken {
        world.own_block().holds.store(place + 1, Relaxed);
    }
    Ok(taken)
}

/// Gives it to the next.
///
/// # Errors
/// If the address is wrong.
pub fn clear(world: &World, address: usize) -> Result<()> {
    world.complete()?;
    if let (Some(place), Some(way)) = (far(world, address), world.other_hosts()) {
        world.own_block().holds.store(0, Relaxed);
        return way.ask(world, way.hosts().of(0), |token| Request::Unlock { place, token });
    }
    let word = word(world, address)?;
    world.own_block().holds.store(0, Relaxed);
    // SAFETY: checked by `word`.
    if unsafe { pass_on(word.as_ptr() as usize) } {
        // The next in turn may sleep; which rank that is, is not known.
        (0..world.ranks()).for_each(|rank| world.flagged(rank));
    }
    Ok(())
}
