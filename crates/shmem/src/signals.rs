//! Put with a signal: the signal is stored after the bytes, and stores keep their order.

use crate::contexts::Ctx;
use crate::setup::fail;
use crate::{atomics, transfers, waits};
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
    transfers::put(name, context, to, from, count, pe);
    World::current().fence();
    match operation {
        SET => atomics::set(name, context, signal, value, pe),
        ADD => {
            let _ = atomics::fetch_add(name, context, signal, value, pe);
        }
        _ => fail(name, Error::Setup(format!("{operation} is no operation on a signal"))),
    }
}

pub fn fetch(name: &'static str, signal: *const u64) -> u64 {
    atomics::fetch(name, crate::contexts::DEFAULT, signal, World::current().me() as c_int)
}

pub fn wait_until(name: &'static str, signal: *mut u64, how: c_int, value: u64) -> u64 {
    waits::wait_until(name, signal, how, value);
    fetch(name, signal)
}
