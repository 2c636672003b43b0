//! Put with a signal: the signal is stored after the bytes, and stores keep their order.

use crate::contexts::Ctx;
use crate::setup::{fail, or_fail};
use crate::{atomics, transfers, waits};
use shunt_pgas::trace::{bulk, Kind};
use shunt_pgas::{Error, World};
use std::ffi::c_int;

const SET: c_int = 0;
const ADD: c_int = 1;

pub fn put<T>(
    name: &'static str,
    context: Ctx,
    to: *mut T,
    from: *const T,
    count: usize,
    signal: *mut u64,
    (value, operation): (u64, c_int),
    pe: c_int,
) {
    if ![SET, ADD].contains(&operation) {
        fail(name, Error::Setup(format!("{operation} is no operation on a signal")));
    }
    let bytes = count.saturating_mul(size_of::<T>());
    if World::current().is_far(crate::contexts::rank(context, pe)) && count > 0 {
        return far(name, context, to as usize, (from.cast(), bytes), (signal as usize, value, operation == ADD), pe);
    }
    transfers::put(name, context, to, from, count, pe);
    World::current().fence();
    match operation {
        ADD => {
            let _ = atomics::fetch_add(name, context, signal, value, pe);
        }
        _ => atomics::set(name, context, signal, value, pe),
    }
}

/// One message, or a store whose end is the signal.
#[cold]
#[inline(never)]
fn far(name: &'static str, context: Ctx, to: usize, (from, bytes): (*const u8, usize), signal: (usize, u64, bool), pe: c_int) {
    let (rank, world) = (transfers::far(name, context, to, bytes, pe), World::current());
    let _scope = bulk(world, Kind::Put, rank, bytes);
    // SAFETY: the program's memory.
    or_fail(name, unsafe { world.far_put_signal(to, (from, bytes), signal, rank) });
}

pub fn fetch(name: &'static str, signal: *const u64) -> u64 {
    waits::idle();
    atomics::fetch(name, crate::contexts::DEFAULT, signal, World::current().me() as c_int)
}

pub fn wait_until(name: &'static str, signal: *mut u64, how: c_int, value: u64) -> u64 {
    waits::wait_until(name, signal, how, value);
    fetch(name, signal)
}
