//! The C interface of endpoints. `include/shunt/endpoint.h` says what each function does; here is only how.
//!
//! Every function takes the pointer that a constructor gave, not NULL and not freed, and pointers to as much memory as the
//! header says: that is each one's safety contract.
//!
//! ```text
//! shunt_endpoint_join(a, b, &there, &back);
//! shunt_endpoint_send(a, there, "hello", 5);
//! while (!shunt_endpoint_receive(b, &arrival)) shunt_endpoint_flush(a);
//! printf("%.*s\n", (int)arrival.length, arrival.head);
//! shunt_endpoint_release(b, &arrival);
//! ```
//!
//! The whole program, which tests compile and run, is `examples/endpoint.c`.
#![allow(clippy::missing_safety_doc)]

use shunt_endpoint::device::shm::{Options as ShmOptions, Shm};
use shunt_endpoint::device::udp::{ipv4, Options as UdpOptions, Udp};
use shunt_endpoint::{
    join, Address, Area, Arrival, Body, Bytes, Channel, Endpoint, Message, OpenError, PostError, SendError, Tag, Tags, INLINE,
};
use shunt_sys::{libc, Errno};
use std::sync::atomic::Ordering::Relaxed;

/// An endpoint of any device.
pub struct Handle(Box<dyn Endpoint + Send>);

fn boxed<E: Endpoint + Send + 'static>(made: Result<E, Errno>, error: *mut i32) -> *mut Handle {
    match made {
        Ok(endpoint) => Box::into_raw(Box::new(Handle(Box::new(endpoint)))),
        Err(Errno(number)) => {
            if !error.is_null() {
                // SAFETY: the caller's integer.
                unsafe { *error = number };
            }
            core::ptr::null_mut()
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_shm(channels: u32, segment: u32, error: *mut i32) -> *mut Handle {
    boxed(Shm::new(ShmOptions { channels, segment }), error)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_udp(address: u32, port: u16, error: *mut i32) -> *mut Handle {
    boxed(Udp::bind(&ipv4(address.to_be_bytes(), port), UdpOptions::default()), error)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_free(endpoint: *mut Handle) {
    if !endpoint.is_null() {
        // SAFETY: made by `boxed`, and freed once.
        drop(unsafe { Box::from_raw(endpoint) });
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_address(endpoint: *const Handle, address: *mut [u64; 6]) {
    // SAFETY: the contract above.
    unsafe { *address = (*endpoint).0.address().to_words() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_segment(endpoint: *const Handle, size: *mut u32) -> *mut u8 {
    // SAFETY: the contract above.
    let segment = unsafe { (*endpoint).0.segment() };
    if !size.is_null() {
        // SAFETY: the caller's integer.
        unsafe { *size = segment.size() };
    }
    segment.pointer(Area::new(0, 0)).unwrap_or_default()
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_largest(endpoint: *const Handle) -> u32 {
    // SAFETY: the contract above.
    unsafe { (*endpoint).0.capabilities().largest }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_tag(endpoint: *mut Handle, tag: *mut u64) -> i32 {
    // SAFETY: the contract above.
    match unsafe { (*endpoint).0.new_tag() } {
        Ok(fresh) => {
            // SAFETY: the caller's integer.
            unsafe { *tag = fresh.0 };
            0
        }
        Err(Errno(number)) => -number,
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_open(
    endpoint: *mut Handle,
    remote: *const [u64; 6],
    receive: u64,
    send: u64,
    channel: *mut u32,
) -> i32 {
    // SAFETY: the contract above.
    let (endpoint, remote) = unsafe { (&mut (*endpoint).0, Address::from_words(*remote)) };
    match endpoint.open(&remote, Tags { receive: Tag(receive), send: Tag(send) }) {
        Ok(opened) => {
            // SAFETY: the caller's integer.
            unsafe { *channel = opened.0 };
            0
        }
        Err(error) => not_opened(error),
    }
}

fn not_opened(error: OpenError) -> i32 {
    match error {
        OpenError::Full => -libc::ENOSPC,
        OpenError::Tag => -libc::EEXIST,
        OpenError::Address => -libc::EAFNOSUPPORT,
        OpenError::System(Errno(number)) => -number,
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_join(a: *mut Handle, b: *mut Handle, a_to_b: *mut u32, b_to_a: *mut u32) -> i32 {
    if a == b {
        return -libc::EINVAL;
    }
    // SAFETY: the contract above.
    let (a, b) = unsafe { (&mut (*a).0, &mut (*b).0) };
    match join(&mut **a, &mut **b) {
        Ok((at_a, at_b)) => {
            // SAFETY: the caller's integers.
            unsafe { (*a_to_b, *b_to_a) = (at_a.0, at_b.0) };
            0
        }
        Err(error) => not_opened(error),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_close(endpoint: *mut Handle, channel: u32) {
    // SAFETY: the contract above.
    unsafe { (*endpoint).0.close(Channel(channel)) }
}

fn code(error: SendError) -> i32 {
    match error {
        SendError::NoResource => -libc::EAGAIN,
        SendError::Channel => -libc::ENOTCONN,
        SendError::TooLarge => -libc::EMSGSIZE,
        SendError::Area => -libc::EINVAL,
        SendError::Fault => -libc::EFAULT,
        SendError::Peer => -libc::EPIPE,
        SendError::Device(Errno(number)) => -number,
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_send(endpoint: *mut Handle, channel: u32, bytes: *const u8, length: usize) -> i32 {
    let channel = Channel(channel);
    let message = if length <= INLINE {
        let bytes = if length == 0 { core::ptr::NonNull::dangling().as_ptr() } else { bytes };
        // SAFETY: the caller's bytes.
        Message::small(channel, unsafe { core::slice::from_raw_parts(bytes, length) })
    } else {
        // SAFETY: the caller's bytes are mapped.
        Message { channel, head: &[], body: Body::Bytes(unsafe { Bytes::named(bytes, length) }) }
    };
    // SAFETY: the contract above.
    unsafe { (*endpoint).0.send(&message) }.map_or_else(code, |_| 0)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_send_areas(
    endpoint: *mut Handle,
    channel: u32,
    areas: *const Area,
    count: u32,
    ticket: *mut u32,
) -> i32 {
    // SAFETY: the contract above.
    let areas = if count == 0 { &[] } else { unsafe { core::slice::from_raw_parts(areas, count as usize) } };
    let message = Message { channel: Channel(channel), head: &[], body: Body::Areas(areas) };
    // SAFETY: the contract above.
    match unsafe { (*endpoint).0.send(&message) } {
        Ok(sent) => {
            if !ticket.is_null() {
                // SAFETY: the caller's integer.
                unsafe { *ticket = sent.0 };
            }
            0
        }
        Err(error) => code(error),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_injected(endpoint: *mut Handle) -> u32 {
    // SAFETY: the contract above.
    unsafe { (*endpoint).0.injected().0 }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_backlog(endpoint: *mut Handle, capacity: *mut u32) -> u32 {
    // SAFETY: the contract above.
    let backlog = unsafe { (*endpoint).0.backlog() };
    if !capacity.is_null() {
        // SAFETY: the caller's integer.
        unsafe { *capacity = backlog.capacity };
    }
    backlog.waiting
}

/// `shunt_counters` of the header.
#[repr(C)]
pub struct Counts([u64; 9]);

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_count(endpoint: *const Handle, counts: *mut Counts) {
    // SAFETY: the contract above.
    let counters = unsafe { (*endpoint).0.counters() };
    let [sent, received] = [
        [&counters.sent, &counters.sent_bytes, &counters.refused, &counters.unsent],
        [&counters.received, &counters.received_bytes, &counters.woken, &counters.updates],
    ]
    .map(|half| half.map(|counter| counter.load(Relaxed)));
    let mut all = [0; 9];
    all[..4].copy_from_slice(&sent);
    all[4..8].copy_from_slice(&received);
    all[8] = counters.dropped_in_all();
    // SAFETY: the caller's structure.
    unsafe { *counts = Counts(all) };
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_flush(endpoint: *mut Handle) -> i32 {
    // SAFETY: the contract above.
    unsafe { (*endpoint).0.flush() }.map_or_else(code, |all| all as i32)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_post(endpoint: *mut Handle, area: Area) -> i32 {
    // SAFETY: the contract above.
    match unsafe { (*endpoint).0.post(area) } {
        Ok(()) => 0,
        Err(PostError::Full) => -libc::EAGAIN,
        Err(PostError::Area) => -libc::EINVAL,
        Err(PostError::NotNeeded) => -libc::ENOTSUP,
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_receive(endpoint: *mut Handle, arrival: *mut Arrival) -> i32 {
    // SAFETY: the contract above; any bytes are an arrival.
    unsafe { (*endpoint).0.receive(&mut *arrival) as i32 }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_release(endpoint: *mut Handle, arrival: *mut Arrival) {
    // SAFETY: the contract above.
    unsafe { (*endpoint).0.release(&mut *arrival) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_arrival_copy(
    endpoint: *const Handle,
    arrival: *const Arrival,
    from: usize,
    target: *mut u8,
    length: usize,
) -> usize {
    if length == 0 {
        return 0;
    }
    // SAFETY: the contract above.
    unsafe { (*arrival).copy_to(&(*endpoint).0.segment(), from, core::slice::from_raw_parts_mut(target, length)) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_descriptor(endpoint: *const Handle) -> i32 {
    // SAFETY: the contract above.
    unsafe { (*endpoint).0.descriptor() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_arm(endpoint: *mut Handle) -> i32 {
    // SAFETY: the contract above.
    unsafe { (*endpoint).0.arm() as i32 }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_endpoint_disarm(endpoint: *mut Handle) {
    // SAFETY: the contract above.
    unsafe { (*endpoint).0.disarm() }
}
