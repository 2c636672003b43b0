//! Ports over networks: the functions of `include/shunt_network.h`.

use crate::passing::{self, buffer, bytes, came, received, said, semantics, sent};
use crate::results::{code, failed, REFUSED};
use crate::windows::Alignment;
use crate::{free, made};
use shunt_buffers::port::network::{beside, Owned};
use shunt_buffers::port::Error;
use shunt_buffers::port::Window;
use shunt_buffers::region::{Pool, Region};
use shunt_buffers::{Allocation, Integrity, Semantics};
use shunt_endpoint::Endpoint;
use shunt_sys::{libc, Errno};
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::time::Duration;

/// The header's `shunt_network`: over any device.
pub type Network = Owned<Box<dyn Endpoint + Send>>;

/// # Safety
/// The crate's contract.
unsafe fn over<E: Endpoint + Send + 'static>(
    fd: c_int,
    endpoint: Result<E, Error>,
    pool: *const Pool,
    error: *mut c_int,
) -> *mut Network {
    let endpoint = endpoint.map(|endpoint| Box::new(endpoint) as Box<dyn Endpoint + Send>);
    // SAFETY: passed on.
    unsafe { made(Network::with(fd, endpoint, &*pool), error) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_over(fd: c_int, pool: *const Pool, error: *mut c_int) -> *mut Network {
    // SAFETY: the crate's contract.
    unsafe { over(fd, beside(fd), pool, error) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_over_xdp(
    fd: c_int,
    interface: *const c_char,
    version_6: c_int,
    pool: *const Pool,
    error: *mut c_int,
) -> *mut Network {
    // SAFETY: the crate's contract.
    let interface = unsafe { CStr::from_ptr(interface) };
    // Room for as many packets as messages of some hundred kilobytes are.
    let sizes = Sizes { channels: 64, depth: 1024, segment: 4 << 20 };
    let attach = |name| Xdp::attach(name, Kind::Any, version_6 != 0, sizes);
    let endpoint = interface.to_str().map_or(Err(Errno(libc::ENODEV)), attach);
    // SAFETY: the crate's contract.
    unsafe { over(fd, endpoint.map_err(Error::System), pool, error) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_close(port: *mut Network) {
    // SAFETY: the crate's contract.
    unsafe { free(port) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_offer(port: *mut Network, pool: *const Pool) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { failed((&mut *port).offer(&*pool)) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_set_quota(port: *mut Network, bytes: usize) {
    // SAFETY: the crate's contract.
    unsafe { (&mut *port).set_quota(bytes) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_set_pooled(port: *mut Network, bytes: usize) {
    // SAFETY: the crate's contract.
    unsafe { (&mut *port).set_pooled(bytes) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_set_outboard(port: *mut Network) {
    // SAFETY: the crate's contract.
    unsafe { (&mut *port).set_outboard() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_set_patience(port: *mut Network, milliseconds: c_int) {
    // SAFETY: the crate's contract.
    unsafe { (&mut *port).set_patience(u64::try_from(milliseconds).ok().map(Duration::from_millis)) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_has_room(port: *mut Network, length: usize) -> c_int {
    // SAFETY: the crate's contract.
    said(unsafe { (&mut *port).has_room(length) })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_descriptor(port: *mut Network) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { (*port).descriptor() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_progress(port: *mut Network) -> c_int {
    // SAFETY: the crate's contract.
    said(unsafe { (&mut *port).progress() })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_drain(port: *mut Network) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { failed((&mut *port).drain()) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_send(
    port: *mut Network,
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
    port: *mut Network,
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
    port: *mut Network,
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
pub unsafe extern "C" fn shunt_network_completed(port: *mut Network, ticket: u64) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { passing::completed(port, ticket) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_has_message(port: *mut Network) -> c_int {
    // SAFETY: the crate's contract.
    said(unsafe { (&mut *port).has_message() })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_has_whole_message(port: *mut Network) -> c_int {
    // SAFETY: the crate's contract.
    said(unsafe { (&mut *port).has_whole_message() })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_next_length(port: *mut Network, length: *mut usize) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { passing::next_length(port, length) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_receive(
    port: *mut Network,
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
    port: *mut Network,
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
    port: *mut Network,
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
pub unsafe extern "C" fn shunt_network_post(port: *mut Network, length: usize, number: c_int) -> c_int {
    let Some(semantics) = semantics(number, Allocation::System) else { return REFUSED };
    // SAFETY: the crate's contract.
    unsafe { failed((&mut *port).post(length, semantics).map_err(Error::Limit)) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_posted(port: *mut Network, region: *mut *mut Region, length: *mut usize) -> c_int {
    // SAFETY: the crate's contract.
    unsafe { came((&mut *port).posted(), region, length) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_take_back(port: *mut Network, region: *mut *mut Region) -> c_int {
    // SAFETY: the crate's contract.
    unsafe {
        failed((&mut *port).take_back().map_err(Error::Limit).map(|back| {
            region.write(back.map_or(core::ptr::null_mut(), |back| Box::into_raw(Box::new(back))));
        }))
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_alignment(port: *const Network, alignment: *mut Alignment) {
    // SAFETY: the crate's contract.
    unsafe {
        alignment.write((&*port).alignment().into());
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_set_swap_from(port: *mut Network, bytes: usize) {
    // SAFETY: the crate's contract.
    unsafe { (&mut *port).set_swap_from(bytes) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_window_create(port: *const Network, length: usize, error: *mut c_int) -> *mut Window {
    // SAFETY: the crate's contract.
    unsafe { made((&*port).window(length).map_err(Error::Limit), error) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_network_receive_into(
    port: *mut Network,
    window: *mut Window,
    number: c_int,
    length: *mut usize,
) -> c_int {
    let Some(semantics) = semantics(number, Allocation::Application) else { return REFUSED };
    // SAFETY: the crate's contract.
    unsafe { received((&mut *port).receive_into(&mut *window, semantics), length) }
}
