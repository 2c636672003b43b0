//! The shim's functions and structures, as `shim/shim.h` has them.

// Told there.
#![allow(missing_docs)]

use shunt_sys::libc::iovec;
use std::ffi::{c_char, c_int, c_void};

/// The opaque interface.
#[repr(C)]
pub struct Handle {
    _private: [u8; 0],
}

/// What is asked for.
#[repr(C)]
pub struct Wish {
    pub provider: *const c_char,
    pub node: *const c_char,
    pub service: *const c_char,
    pub automatic: u32,
    pub sends: u32,
    pub receives: u32,
}

/// What was got.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub provider: [u8; 64],
    pub inject: u64,
    pub largest: u64,
    pub format: u32,
    pub parts: u32,
    pub sends: u32,
    pub receives: u32,
    pub source: u32,
    pub ordered: u32,
    pub automatic: u32,
    pub remote: u32,
    pub addressed: u32,
    pub waits: [i32; 2],
}

/// An operation that is over.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Completion {
    pub length: u64,
    pub source: u64,
    pub slot: u32,
    pub error: i32,
}

/// Registered memory.
#[repr(C)]
pub struct Region {
    pub handle: *mut c_void,
    pub descriptor: *mut c_void,
    pub key: u64,
}

extern "C" {
    pub fn shunt_fabric_open(wish: *const Wish, made: *mut *mut Handle, facts: *mut Facts) -> c_int;
    pub fn shunt_fabric_shut(handle: *mut Handle);
    pub fn shunt_fabric_close(handle: *mut Handle);
    pub fn shunt_fabric_name(handle: *mut Handle, bytes: *mut c_void, length: *mut usize) -> c_int;
    pub fn shunt_fabric_insert(handle: *mut Handle, bytes: *const c_void, address: *mut u64) -> c_int;
    pub fn shunt_fabric_remove(handle: *mut Handle, address: u64) -> c_int;
    pub fn shunt_fabric_register(
        handle: *mut Handle,
        base: *mut c_void,
        length: usize,
        rights: c_int,
        key: u64,
        region: *mut Region,
    ) -> c_int;
    pub fn shunt_fabric_unregister(region: *mut c_void) -> c_int;
    pub fn shunt_fabric_inject(handle: *mut Handle, bytes: *const c_void, length: usize, to: u64) -> isize;
    pub fn shunt_fabric_send(
        handle: *mut Handle,
        parts: *const iovec,
        count: usize,
        descriptor: *mut c_void,
        to: u64,
        slot: u32,
    ) -> isize;
    pub fn shunt_fabric_receive(
        handle: *mut Handle,
        bytes: *mut c_void,
        length: usize,
        descriptor: *mut c_void,
        slot: u32,
    ) -> isize;
    pub fn shunt_fabric_write(
        handle: *mut Handle,
        part: *const iovec,
        descriptor: *mut c_void,
        to: u64,
        address: u64,
        key: u64,
        slot: u32,
    ) -> isize;
    pub fn shunt_fabric_completions(handle: *mut Handle, queue: c_int, completions: *mut Completion, most: usize) -> isize;
    pub fn shunt_fabric_waits(handle: *mut Handle, queue: c_int) -> c_int;
    pub fn shunt_fabric_try_wait(handle: *mut Handle) -> c_int;
    pub fn shunt_fabric_providers(text: *mut c_char, room: usize) -> usize;
}
