//! What the functions of both kinds of ports have in common: each of theirs is a name and one of these.

use crate::network::Network;
use crate::results::{code, REFUSED, TOO_LONG};
use core::ops::DerefMut;
use shunt_buffers::port::network::NotSent;
use shunt_buffers::port::{Awaited, Error, Port, Ticket};
use shunt_buffers::region::Region;
use shunt_buffers::{Allocation, Semantics};
use std::ffi::{c_int, c_void};

/// A port of either kind.
pub trait Passing {
    fn send_shared(&mut self, region: &Region, length: usize, semantics: Semantics) -> Result<Ticket, Error>;
    fn send_region(&mut self, region: Region, length: usize, semantics: Semantics) -> Result<Ticket, NotSent>;
    fn completed(&mut self, ticket: Ticket) -> Result<bool, Error>;
    fn next_length(&mut self) -> Result<usize, Error>;
    fn receive_region(&mut self, semantics: Semantics) -> Result<(Region, usize), Error>;
}

macro_rules! passing {
    ($($port:ty, $this:ident => $inner:expr, $not_sent:expr;)*) => { $(
        impl Passing for $port {
            fn send_shared(&mut self, region: &Region, length: usize, semantics: Semantics) -> Result<Ticket, Error> {
                let $this = self;
                $inner.send_shared(region, length, semantics)
            }
            fn send_region(&mut self, region: Region, length: usize, semantics: Semantics) -> Result<Ticket, NotSent> {
                let $this = self;
                $inner.send_region(region, length, semantics).map_err($not_sent)
            }
            fn completed(&mut self, ticket: Ticket) -> Result<bool, Error> {
                let $this = self;
                $inner.completed(ticket)
            }
            fn next_length(&mut self) -> Result<usize, Error> {
                let $this = self;
                $inner.next_length()
            }
            fn receive_region(&mut self, semantics: Semantics) -> Result<(Region, usize), Error> {
                let $this = self;
                $inner.receive_region(semantics)
            }
        }
    )* };
}

// By their own methods, which come before these.
passing! {
    // Its calls last as long as they take.
    Port, port => port, |why| NotSent { region: None, why };
    Network, port => port.deref_mut(), core::convert::identity;
}

/// # Safety
/// The caller's memory, or null.
pub unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: promised.
        unsafe { to.write(value) };
    }
}

pub fn semantics(number: c_int, allocation: Allocation) -> Option<Semantics> {
    let found = usize::try_from(number).ok().and_then(Semantics::of_index)?;
    (found.allocation == allocation).then_some(found)
}

/// A truth, or what went wrong.
pub fn said(result: Result<bool, Error>) -> c_int {
    result.map_or_else(code, c_int::from)
}

/// The bytes of a message that is sent.
///
/// # Safety
/// The caller's; of no bytes the pointer may be null.
pub unsafe fn bytes<'a>(data: *const c_void, length: usize) -> &'a [u8] {
    if length == 0 {
        &[]
    } else {
        // SAFETY: promised.
        unsafe { core::slice::from_raw_parts(data.cast(), length) }
    }
}

/// The buffer for a message.
///
/// # Safety
/// As for [`bytes`].
pub unsafe fn buffer<'a>(data: *mut c_void, room: usize) -> &'a mut [u8] {
    if room == 0 {
        &mut []
    } else {
        // SAFETY: promised.
        unsafe { core::slice::from_raw_parts_mut(data.cast(), room) }
    }
}

/// The result of an output.
///
/// # Safety
/// The caller's ticket, or null.
pub unsafe fn sent(result: Result<Ticket, Error>, ticket: *mut u64) -> c_int {
    match result {
        Ok(given) => {
            // SAFETY: promised.
            unsafe { put(ticket, given.number()) };
            0
        }
        Err(why) => code(why),
    }
}

/// # Safety
/// The crate's contract.
pub unsafe fn send_shared(
    port: *mut impl Passing,
    region: *const Region,
    length: usize,
    number: c_int,
    ticket: *mut u64,
) -> c_int {
    // SAFETY: promised.
    let (port, region) = unsafe { (&mut *port, &*region) };
    match semantics(number, Allocation::Application).filter(|_| length <= region.size()) {
        // SAFETY: promised.
        Some(semantics) => unsafe { sent(port.send_shared(region, length, semantics), ticket) },
        None => REFUSED,
    }
}

/// The handle is consumed, unless there was no room in time: then its memory is the caller's handle again.
///
/// # Safety
/// The crate's contract.
pub unsafe fn send_region(port: *mut impl Passing, region: *mut Region, length: usize, number: c_int, ticket: *mut u64) -> c_int {
    // SAFETY: promised; what is read is written back, or the box goes without it.
    unsafe {
        let handle = region.read();
        let result = match semantics(number, Allocation::System).filter(|_| length <= handle.size()) {
            Some(semantics) => (*port).send_region(handle, length, semantics),
            None => {
                drop(Box::from_raw(region.cast::<core::mem::ManuallyDrop<Region>>()));
                drop(handle);
                return REFUSED;
            }
        };
        let result = match result {
            Err(NotSent { region: Some(back), why: why @ Error::Waited(Awaited::Room) }) => {
                region.write(back);
                return code(why);
            }
            other => other.map_err(Error::from),
        };
        drop(Box::from_raw(region.cast::<core::mem::ManuallyDrop<Region>>()));
        sent(result, ticket)
    }
}

/// # Safety
/// The crate's contract.
pub unsafe fn completed(port: *mut impl Passing, ticket: u64) -> c_int {
    // SAFETY: promised.
    said(unsafe { (*port).completed(Ticket::of_number(ticket)) })
}

/// # Safety
/// The crate's contract.
pub unsafe fn next_length(port: *mut impl Passing, length: *mut usize) -> c_int {
    // SAFETY: promised.
    unsafe { crate::results::failed((*port).next_length().map(|found| put(length, found))) }
}

/// The length of a message that was received, or that a buffer was too short for.
///
/// # Safety
/// The caller's integer, or null.
pub unsafe fn received(result: Result<usize, Error>, length: *mut usize) -> c_int {
    let (found, result) = match result {
        Ok(found) => (found, 0),
        Err(Error::Length(needed)) => (needed, TOO_LONG),
        Err(why) => return code(why),
    };
    // SAFETY: promised.
    unsafe { put(length, found) };
    result
}

/// A region and its message's length.
///
/// # Safety
/// The caller's, the length's or null.
pub unsafe fn came(result: Result<(Region, usize), Error>, region: *mut *mut Region, length: *mut usize) -> c_int {
    let result = result.map(|(came, bytes)| {
        // SAFETY: promised.
        unsafe { region.write(Box::into_raw(Box::new(came))) };
        bytes
    });
    // SAFETY: promised.
    unsafe { received(result, length) }
}

/// # Safety
/// The crate's contract.
pub unsafe fn receive_region(port: *mut impl Passing, number: c_int, region: *mut *mut Region, length: *mut usize) -> c_int {
    let Some(semantics) = semantics(number, Allocation::System) else { return REFUSED };
    // SAFETY: promised.
    unsafe { came((*port).receive_region(semantics), region, length) }
}
