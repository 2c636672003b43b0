//! Ports over UDP: the functions of `include/shunt_network.h`.

use crate::passing::{self, buffer, bytes, came, received, said, semantics, sent};
use crate::results::{code, failed, REFUSED};
use crate::windows::Alignment;
use crate::{free, made};
use shunt_buffers::port::network::{UdpPort, Window};
use shunt_buffers::port::Error;
use shunt_buffers::region::{Pool, Region};
use shunt_buffers::{Allocation, Integrity, Semantics};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_over(fd: c_int, pool: *const Pool, error: *mut c_int) -> *mut UdpPort {
    // SAFETY: the crate's contract.
    unsafe { made(UdpPort::over(fd, &*pool), error) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_close(port: *mut UdpPort) {
    // SAFETY: the crate's contract.
    unsafe { free(port) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_offer(port: *mut UdpPort, pool: *const Pool) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { failed((&mut *port).offer(&*pool)) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_set_quota(port: *mut UdpPort, bytes: usize) {
    // SAFETY: the crate's contract.
    unsafe { (&mut *port).set_quota(bytes) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_set_pooled(port: *mut UdpPort, bytes: usize) {
    // SAFETY: the crate's contract.
    unsafe { (&mut *port).set_pooled(bytes) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_set_outboard(port: *mut UdpPort) {
    // SAFETY: the crate's contract.
    unsafe { (&mut *port).set_outboard() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_set_patience(port: *mut UdpPort, milliseconds: c_int) {
    // SAFETY: the crate's contract.
    unsafe { (&mut *port).set_patience(u64::try_from(milliseconds).ok().map(Duration::from_millis)) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_has_room(port: *mut UdpPort, length: usize) -> c_int {
    // SAFETY: the crate's contract.
    said(unsafe { (&mut *port).has_room(length) })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_descriptor(port: *mut UdpPort) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { (*port).descriptor() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_progress(port: *mut UdpPort) -> c_int {
    // SAFETY: the crate's contract.
    said(unsafe { (&mut *port).progress() })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_drain(port: *mut UdpPort) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { failed((&mut *port).drain()) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_send(
    port: *mut UdpPort,
    data: *const c_void,
    length: usize,
    number: c_int,
    ticket: *mut u64,
) -> c_int {
    let strong = |semantics: &Semantics| semantics.integrity == Integrity::Strong;
    let Some(semantics) = semantics(number, Allocation::Application).filter(strong) else { return REFUSED };
    // SAFETY: the crate's contract.
    unsafe { sent((&mut *port).send(bytes(data, length), semantics), ticket) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_send_shared(
    port: *mut UdpPort,
    region: *const Region,
    length: usize,
    number: c_int,
    ticket: *mut u64,
) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { passing::send_shared(port, region, length, number, ticket) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_send_region(
    port: *mut UdpPort,
    region: *mut Region,
    length: usize,
    number: c_int,
    ticket: *mut u64,
) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { passing::send_region(port, region, length, number, ticket) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_completed(port: *mut UdpPort, ticket: u64) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { passing::completed(port, ticket) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_has_message(port: *mut UdpPort) -> c_int {
    // SAFETY: the crate's contract.
    said(unsafe { (&mut *port).has_message() })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_has_whole_message(port: *mut UdpPort) -> c_int {
    // SAFETY: the crate's contract.
    said(unsafe { (&mut *port).has_whole_message() })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_next_length(port: *mut UdpPort, length: *mut usize) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { passing::next_length(port, length) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_receive(
    port: *mut UdpPort,
    data: *mut c_void,
    room: usize,
    number: c_int,
    length: *mut usize,
) -> c_int {
    let Some(semantics) = semantics(number, Allocation::Application) else { return REFUSED };
    // SAFETY: the crate's contract.
    unsafe { received((&mut *port).receive(buffer(data, room), semantics), length) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_receive_region(
    port: *mut UdpPort,
    number: c_int,
    region: *mut *mut Region,
    length: *mut usize,
) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { passing::receive_region(port, number, region, length) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_post_region(
    port: *mut UdpPort,
    region: *mut Region,
    length: usize,
    number: c_int,
) -> c_int {
    // SAFETY: the crate's contract.
    let size = unsafe { (*region).size() };
    let Some(semantics) = semantics(number, Allocation::Application).filter(|_| length <= size) else { return REFUSED };
    // SAFETY: the crate's contract; the handle is consumed unless this fails, when its memory is the caller's handle again.
    unsafe {
        match (&mut *port).post_region(region.read(), length, semantics) {
            Ok(()) => {
                drop(Box::from_raw(region.cast::<core::mem::ManuallyDrop<Region>>()));
                0
            }
            Err((back, limit)) => {
                region.write(back);
                code(limit.into())
            }
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_post(port: *mut UdpPort, length: usize, number: c_int) -> c_int {
    let Some(semantics) = semantics(number, Allocation::System) else { return REFUSED };
    // SAFETY: the crate's contract.
    unsafe { failed((&mut *port).post(length, semantics).map_err(Error::Limit)) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_posted(port: *mut UdpPort, region: *mut *mut Region, length: *mut usize) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { came((&mut *port).posted(), region, length) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_take_back(port: *mut UdpPort, region: *mut *mut Region) -> c_int {
    // SAFETY: the crate's contract.
    unsafe {
        failed((&mut *port).take_back().map_err(Error::Limit).map(|back| {
            region.write(back.map_or(core::ptr::null_mut(), |back| Box::into_raw(Box::new(back))));
        }))
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_alignment(port: *const UdpPort, alignment: *mut Alignment) {
    // SAFETY: the crate's contract.
    unsafe {
        alignment.write((&*port).alignment().into());
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_set_swap_from(port: *mut UdpPort, bytes: usize) {
    // SAFETY: the crate's contract.
    unsafe { (&mut *port).set_swap_from(bytes) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_window_create(port: *const UdpPort, length: usize, error: *mut c_int) -> *mut Window {
    // SAFETY: the crate's contract.
    unsafe { made((&*port).window(length).map_err(Error::Limit), error) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_receive_into(
    port: *mut UdpPort,
    window: *mut Window,
    number: c_int,
    length: *mut usize,
) -> c_int {
    let Some(semantics) = semantics(number, Allocation::Application) else { return REFUSED };
    // SAFETY: the crate's contract.
    unsafe { received((&mut *port).receive_into(&mut *window, semantics), length) }
}
