//! The symmetric heap. Every call is one of all ranks together.

use crate::setup::{fail, or_fail, tell};
use shunt_pgas::{Error, World};
use std::ffi::c_void;
use std::sync::OnceLock;

/// With SHMEM_DEBUG, ranks look whether all of them ask for the same.
fn is_careful() -> bool {
    static CAREFUL: OnceLock<bool> = OnceLock::new();
    *CAREFUL.get_or_init(|| std::env::var("SHMEM_DEBUG").is_ok_and(|value| value != "0"))
}

/// All ranks are in this call, with this size and the object at this address, if they have one.
fn barrier(name: &'static str, world: &World, bytes: usize, object: usize) {
    let all = world.all();
    if !is_careful() || world.ranks() == 1 {
        return or_fail(name, all.barrier(world));
    }
    let call = name.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let offset = object.wrapping_sub(world.own_heap().0) as u64;
    let own = [bytes as u64, if object == 0 { u64::MAX } else { offset }, call];
    (0..).zip(own).for_each(|(at, word)| or_fail(name, all.tell(world, at, word)));
    or_fail(name, all.barrier(world));
    let first = [0, 1, 2].map(|at| all.told(world, 0, at));
    if first != own {
        let place = |offset: u64| if offset == u64::MAX { "no object".into() } else { format!("offset {offset}") };
        let [size, offset, _] = first;
        fail(
            name,
            Error::Setup(match first[2] == own[2] {
                true => format!("{bytes} bytes, {}; rank 0 calls it with {size} bytes, {}", place(own[1]), place(offset)),
                false => "rank 0 is in another call of the symmetric heap".into(),
            }),
        );
    }
    or_fail(name, all.barrier(world));
}

fn started(name: &'static str) -> &'static World {
    let world = World::current();
    if world.ranks() == 0 {
        fail(name, Error::Rank { rank: 0, ranks: 0 });
    }
    world
}

pub fn malloc(name: &'static str, size: usize, alignment: usize) -> *mut c_void {
    let world = started(name);
    if size == 0 || !alignment.is_power_of_two() {
        return std::ptr::null_mut();
    }
    let address = world.take(size, alignment).unwrap_or(0);
    barrier(name, world, size, address);
    address as *mut c_void
}

pub fn calloc(name: &'static str, count: usize, size: usize) -> *mut c_void {
    let world = started(name);
    let Some(bytes) = count.checked_mul(size).filter(|bytes| *bytes > 0) else { return std::ptr::null_mut() };
    let address = world.take(bytes, 1).unwrap_or(0);
    if address != 0 {
        // SAFETY: the heap has just given these bytes.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0, bytes) };
    }
    barrier(name, world, bytes, address);
    address as *mut c_void
}

pub fn realloc(name: &'static str, old: *mut c_void, size: usize) -> *mut c_void {
    if old.is_null() {
        return malloc(name, size, 1);
    }
    if size == 0 {
        free(name, old);
        return std::ptr::null_mut();
    }
    let world = started(name);
    let Some(length) = world.size_of(old as usize) else {
        // All ranks come to this alike, and the program is told by the result.
        tell(name, not_allocated(world, old));
        return std::ptr::null_mut();
    };
    barrier(name, world, size, old as usize);
    let address = world.exchange(old as usize, size).unwrap_or(0);
    if address != 0 {
        // SAFETY: both are, or were, objects of the heap of at least this length.
        unsafe { std::ptr::copy(old as *const u8, address as *mut u8, length.min(size)) };
    }
    barrier(name, world, size, address);
    address as *mut c_void
}

pub fn free(name: &'static str, object: *mut c_void) {
    if object.is_null() {
        return;
    }
    let world = started(name);
    // Before the barrier, where the others may never arrive.
    if world.size_of(object as usize).is_none() {
        fail(name, not_allocated(world, object));
    }
    // After the end, the heap is still there, and no rank waits any more.
    if world.is_live() {
        barrier(name, world, 0, object as usize);
    }
    world.give(object as usize);
}

fn not_allocated(world: &World, object: *mut c_void) -> Error {
    let offset = (object as usize).wrapping_sub(world.own_heap().0) as i64;
    Error::Setup(format!("nothing is allocated at {object:p} (offset {offset} of the heap)"))
}
