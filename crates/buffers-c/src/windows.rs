//! Windows, and what ports in shared memory do with them: of `include/shunt_buffers.h`.

use crate::passing::received;
use crate::results::failed;
use crate::{free, made};
use shunt_buffers::align;
use shunt_buffers::port::{Error, Port, Window};
use shunt_buffers::region::Pool;
use std::ffi::{c_int, c_void};

/// The header's `shunt_alignment`.
#[repr(C)]
pub struct Alignment {
    granularity: usize,
    offset: usize,
    preferred: usize,
    copy_below: usize,
}

impl From<align::Alignment> for Alignment {
    fn from(found: align::Alignment) -> Alignment {
        let align::Alignment { granularity, offset, preferred, copy_below } = found;
        Alignment { granularity, offset, preferred, copy_below }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_pool_window(pool: *const Pool, length: usize, error: *mut c_int) -> *mut Window {
    // SAFETY: the crate's contract.
    unsafe { made(Window::new(&*pool, length).map_err(Error::Limit), error) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_window_release(window: *mut Window) {
    // SAFETY: the crate's contract.
    unsafe { free(window) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_window_data(window: *mut Window) -> *mut c_void {
    // SAFETY: the crate's contract.
    unsafe { (&mut *window).bytes_mut().as_mut_ptr().cast() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_window_length(window: *const Window) -> usize {
    // SAFETY: the crate's contract.
    unsafe { (&*window).bytes().len() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_window_is_lent(window: *const Window) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { c_int::from((&*window).is_lent()) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_window_keep(window: *mut Window) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { failed((&mut *window).keep().map_err(Error::Limit)) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_alignment(port: *const Port, pool: *const Pool, alignment: *mut Alignment) {
    // SAFETY: the crate's contract.
    unsafe { alignment.write((&*port).alignment(&*pool).into()) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_port_set_swap_from(port: *mut Port, bytes: usize) {
    // SAFETY: the crate's contract.
    unsafe { (&mut *port).set_swap_from(bytes) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_receive_into(port: *mut Port, window: *mut Window, length: *mut usize) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { received((&mut *port).receive_into(&mut *window), length) }
}
