//! Large messages by reference for C: the functions of `include/shunt_buffers.h`, which says what they do.
//!
//! This crate owns the border: raw pointers become references here, once. Every function takes pointers that a constructor gave, not
//! freed, and pointers to as much memory as the header says: that is each one's safety contract.
//!
//! ```text
//! shunt_port *port = shunt_port_accept(fd, &result);
//! shunt_receive_reference(port, &picture);
//! consume(shunt_message_data(picture), shunt_message_length(picture));
//! shunt_give_back(port, picture);
//! ```
//!
//! Both sides of it, which tests compile and run, are `examples/regions.c`.
#![allow(clippy::missing_safety_doc)]

mod network;
mod passing;
mod results;
mod windows;

use passing::{buffer, bytes, put, received, sent};
use results::{code, failed};
use shunt_buffers::port::{Error, Message, Port, AT_ONCE};
use shunt_buffers::region::{before_kernel_writes, Audience, Pages, Pool, Region, Shape};
use shunt_buffers::sockets::{self, Received, ShownMemory};
use std::ffi::{c_int, c_void};

pub use network::*;
pub use results::{shunt_result_text, shunt_result_word};
pub use windows::*;

/// # Safety
/// The caller's integer, or null.
unsafe fn made<T>(result: Result<T, Error>, error: *mut c_int) -> *mut T {
    match result {
        Ok(made) => Box::into_raw(Box::new(made)),
        Err(why) => {
            if !error.is_null() {
                // SAFETY: promised.
                unsafe { *error = code(why) };
            }
            core::ptr::null_mut()
        }
    }
}

/// # Safety
/// Made by [`made`], or null; freed once.
unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: promised.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_pool_create(
    unit: usize,
    units: usize,
    pages: c_int,
    audience: c_int,
    error: *mut c_int,
) -> *mut Pool {
    let pages = match pages {
        0 => Pages::Small,
        1 => Pages::Huge,
        _ => Pages::HugeIfPossible,
    };
    let audience = if audience == 1 { Audience::Trusted } else { Audience::Anyone };
    // SAFETY: the contract above.
    unsafe { made(Pool::create(Shape { unit, units }, pages, audience).map_err(Error::Limit), error) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_pool_release(pool: *mut Pool) {
    // SAFETY: the contract above.
    unsafe { free(pool) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_pool_populate(pool: *const Pool) {
    // SAFETY: the contract above.
    unsafe { (*pool).populate() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_pool_show(pool: *const Pool, socket: c_int) -> c_int {
    // SAFETY: the contract above.
    unsafe { failed(sockets::show(&*pool, socket)) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_memory_show(
    data: *const c_void,
    length: usize,
    socket: c_int,
    error: *mut c_int,
) -> *mut ShownMemory {
    // SAFETY: the contract above.
    unsafe { made(sockets::show_memory(data.cast(), length, socket), error) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_memory_hide(shown: *mut ShownMemory) {
    // SAFETY: the contract above.
    unsafe { free(shown) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_receive_view(
    socket: c_int,
    pool: *const Pool,
    most: usize,
    flags: c_int,
    view: *mut *mut Received,
) -> c_int {
    // SAFETY: the contract above.
    unsafe {
        failed(sockets::receive(socket, &*pool, most, flags).map(|received| {
            view.write(received.map_or(core::ptr::null_mut(), |received| Box::into_raw(Box::new(received))));
        }))
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_view_data(view: *const Received) -> *const c_void {
    // SAFETY: the contract above.
    unsafe { (*view).start().cast() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_view_length(view: *const Received) -> usize {
    // SAFETY: the contract above.
    unsafe { (*view).length() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_view_is_in_place(view: *const Received) -> c_int {
    // SAFETY: the contract above.
    unsafe { (*view).is_in_place().into() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_view_give_back(view: *mut Received) {
    // SAFETY: the contract above.
    unsafe { free(view) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_pool_unit(pool: *const Pool) -> usize {
    // SAFETY: the contract above.
    unsafe { (*pool).shape().unit }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_pool_units(pool: *const Pool) -> usize {
    // SAFETY: the contract above.
    unsafe { (*pool).shape().units }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_pool_free_units(pool: *const Pool) -> usize {
    // SAFETY: the contract above.
    unsafe { (*pool).free() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_region_allocate(pool: *const Pool, bytes: usize, error: *mut c_int) -> *mut Region {
    // SAFETY: the contract above.
    unsafe { made((*pool).allocate(bytes).map_err(Error::Limit), error) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_region_release(region: *mut Region) {
    // SAFETY: the contract above.
    unsafe { free(region) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_region_data(region: *const Region) -> *mut c_void {
    // SAFETY: the contract above.
    unsafe { (*region).pointer().cast() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_region_size(region: *const Region) -> usize {
    // SAFETY: the contract above.
    unsafe { (*region).size() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_connect(fd: c_int, error: *mut c_int) -> *mut Port {
    // SAFETY: the contract above.
    unsafe { made(Port::connect(fd), error) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_accept(fd: c_int, error: *mut c_int) -> *mut Port {
    // SAFETY: the contract above.
    unsafe { made(Port::accept(fd), error) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_over(fd: c_int, error: *mut c_int) -> *mut Port {
    // SAFETY: the contract above.
    unsafe { made(Port::over(fd), error) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_over_copying(fd: c_int, error: *mut c_int) -> *mut Port {
    // SAFETY: the contract above.
    unsafe { made(Port::over_copying(fd), error) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_shares(port: *const Port) -> c_int {
    // SAFETY: the contract above.
    unsafe { (*port).shares().into() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_close(port: *mut Port) {
    // SAFETY: the contract above.
    unsafe { free(port) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_descriptor(port: *const Port) -> c_int {
    // SAFETY: the contract above.
    unsafe { (*port).descriptor() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_trust(port: *mut Port) {
    // SAFETY: the contract above.
    unsafe { (*port).trust() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_offer(port: *mut Port, pool: *const Pool) -> c_int {
    // SAFETY: the contract above.
    unsafe { failed((*port).offer(&*pool)) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_set_quota(port: *mut Port, bytes: usize) -> c_int {
    // SAFETY: the contract above.
    unsafe { failed((*port).set_quota(bytes)) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_set_largest(port: *mut Port, bytes: usize) {
    // SAFETY: the contract above.
    unsafe { (*port).set_largest(bytes) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_lent(port: *const Port, bytes: *mut usize, references: *mut usize) {
    // SAFETY: the contract above.
    unsafe {
        let lent = (*port).lent();
        put(bytes, lent.0);
        put(references, lent.1);
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_copied(port: *const Port, result: c_int) -> u64 {
    // SAFETY: the contract above.
    results::limit(result).map_or(0, |limit| unsafe { (*port).copied(limit) })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_send(
    port: *mut Port,
    data: *const c_void,
    length: usize,
    defer: c_int,
    ticket: *mut u64,
) -> c_int {
    // SAFETY: the contract above.
    unsafe { sent((*port).send(bytes(data, length), defer != 0), ticket) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_send_shared(
    port: *mut Port,
    region: *const Region,
    length: usize,
    number: c_int,
    ticket: *mut u64,
) -> c_int {
    // SAFETY: the contract above.
    unsafe { passing::send_shared(port, region, length, number, ticket) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_send_region(
    port: *mut Port,
    region: *mut Region,
    length: usize,
    number: c_int,
    ticket: *mut u64,
) -> c_int {
    // SAFETY: the contract above.
    unsafe { passing::send_region(port, region, length, number, ticket) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_completed(port: *mut Port, ticket: u64) -> c_int {
    // SAFETY: the contract above.
    unsafe { passing::completed(port, ticket) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_next_length(port: *mut Port, length: *mut usize) -> c_int {
    // SAFETY: the contract above.
    unsafe { passing::next_length(port, length) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_receive(port: *mut Port, data: *mut c_void, room: usize, length: *mut usize) -> c_int {
    // SAFETY: the contract above.
    unsafe { received((*port).receive(buffer(data, room)), length) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_receive_reference(port: *mut Port, message: *mut *mut Message) -> c_int {
    // SAFETY: the contract above.
    unsafe { failed((*port).receive_reference().map(|came| message.write(Box::into_raw(Box::new(came))))) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_message_data(message: *const Message) -> *const c_void {
    // SAFETY: the contract above.
    unsafe { (*message).start().cast() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_message_length(message: *const Message) -> usize {
    // SAFETY: the contract above.
    unsafe { (*message).length() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_message_semantics(message: *const Message) -> c_int {
    // SAFETY: the contract above.
    unsafe { (*message).semantics().index() as c_int }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_message_is_in_place(message: *const Message) -> c_int {
    // SAFETY: the contract above.
    unsafe { (*message).in_place().is_some().into() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_give_back(port: *mut Port, message: *mut Message) -> c_int {
    // SAFETY: the contract above; the handle is consumed, unless it is another port's.
    unsafe {
        match (*port).has_brought(&*message) {
            Ok(()) => failed((*port).give_back(*Box::from_raw(message))),
            Err(limit) => code(limit.into()),
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_receive_region(
    port: *mut Port,
    number: c_int,
    region: *mut *mut Region,
    length: *mut usize,
) -> c_int {
    // SAFETY: the contract above.
    unsafe { passing::receive_region(port, number, region, length) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_forward(to: *mut Port, message: *mut Message, from: *mut Port) -> c_int {
    // SAFETY: the contract above: two ports; the handle is consumed, unless it is another port's.
    unsafe {
        match (*from).has_brought(&*message) {
            Ok(()) => failed((*to).forward(*Box::from_raw(message), &mut *from)),
            Err(limit) => code(limit.into()),
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_settle(to: *mut Port, from: *mut Port, left: *mut usize) -> c_int {
    // SAFETY: the contract above: two ports.
    unsafe { failed((*to).settle(&mut *from).map(|count| put(left, count))) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_has_message(port: *const Port) -> c_int {
    // SAFETY: the contract above.
    unsafe { (*port).has_message().into() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_before_kernel_writes(data: *mut c_void, length: usize) {
    before_kernel_writes(data as usize, length);
}

const _: () = assert!(AT_ONCE.number() == u64::MAX);
