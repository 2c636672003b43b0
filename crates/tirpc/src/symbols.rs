//! The symbols that stand before libtirpc's. The linker gives them its version (`tools/symbols.map`): other libraries have functions of the
//! same names.

use libc::{c_int, c_uint, c_void};

use crate::layout::{Client, Netbuf, Transport};
use crate::real::{find, Create, Register};
use crate::{client, datagram, server};

/// clnt_vc_create(3).
///
/// # Safety
/// As the function itself.
#[no_mangle]
pub unsafe extern "C-unwind" fn clnt_vc_create(
    fd: c_int,
    address: *const Netbuf,
    program: u32,
    version: u32,
    send_size: c_uint,
    receive_size: c_uint,
) -> *mut Client {
    let real = find(c"clnt_vc_create");
    if real.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: the function has this prototype; the caller's arguments.
    unsafe {
        let made = core::mem::transmute::<*mut c_void, Create>(real)(fd, address, program, version, send_size, receive_size);
        if !made.is_null() {
            client::adopt(made, fd);
        }
        made
    }
}

/// clnt_dg_create(3).
///
/// # Safety
/// As the function itself.
#[no_mangle]
pub unsafe extern "C-unwind" fn clnt_dg_create(
    fd: c_int,
    address: *const Netbuf,
    program: u32,
    version: u32,
    send_size: c_uint,
    receive_size: c_uint,
) -> *mut Client {
    let real = find(c"clnt_dg_create");
    if real.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: the function has this prototype; the caller's arguments.
    unsafe {
        let made = core::mem::transmute::<*mut c_void, Create>(real)(fd, address, program, version, send_size, receive_size);
        if !made.is_null() {
            datagram::client::adopt(made, fd, send_size);
        }
        made
    }
}

/// xprt_register(3).
///
/// # Safety
/// As the function itself.
#[no_mangle]
pub unsafe extern "C-unwind" fn xprt_register(transport: *mut Transport) {
    let real = find(c"xprt_register");
    if real.is_null() {
        return;
    }
    // SAFETY: the function has this prototype; the caller's transport.
    unsafe {
        server::adopt(transport, real);
        datagram::server::adopt(transport, real);
        core::mem::transmute::<*mut c_void, Register>(real)(transport);
    }
}
