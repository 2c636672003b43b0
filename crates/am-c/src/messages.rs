//! Requests, replies, stores, gets, and bytes of ordered channels.

use crate::program::CReplier;
use crate::{entered, refusal, result, slice, Handle, Inside, REFUSED};
use shunt_am::{Get, Store};
use std::ffi::c_int;

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_request(
    port: *mut Handle,
    peer: u32,
    handler: u8,
    words: *const u64,
    count: u32,
    data: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: the caller's, as here.
    unsafe { shunt_am_request_on(port, peer, 0, handler, words, count, data, length) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_request_on(
    port: *mut Handle,
    peer: u32,
    channel: u16,
    handler: u8,
    words: *const u64,
    count: u32,
    data: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: memory of the lengths that the caller says.
    let (words, data) = unsafe { (slice(words, count as usize), slice(data, length)) };
    let Inside { port, program, .. } = &mut entered!(port);
    result(port.request_on(peer, channel, handler, words, data, *program))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_try_request(
    port: *mut Handle,
    peer: u32,
    channel: u16,
    handler: u8,
    words: *const u64,
    count: u32,
    data: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: as above.
    let (words, data) = unsafe { (slice(words, count as usize), slice(data, length)) };
    let Inside { port, .. } = &mut entered!(port);
    port.now();
    let sent = port.with(|engine, now, link| engine.request(now, peer, channel, handler, words, data, link));
    sent.map_or_else(refusal, |()| 0)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_store(
    port: *mut Handle,
    peer: u32,
    offset: u64,
    data: *const u8,
    length: usize,
    handler: u8,
    words: *const u64,
    count: u32,
) -> c_int {
    // SAFETY: as above.
    let (words, data) = unsafe { (slice(words, count as usize), slice(data, length)) };
    let Inside { port, program, .. } = &mut entered!(port);
    result(port.store(peer, &Store { offset, handler, words }, data, *program))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_get(
    port: *mut Handle,
    peer: u32,
    from: u64,
    to: u64,
    length: u64,
    handler: u8,
    words: *const u64,
    count: u32,
) -> c_int {
    // SAFETY: as above.
    let words = unsafe { slice(words, count as usize) };
    let Inside { port, program, .. } = &mut entered!(port);
    result(port.get(peer, &Get { from, to, length, handler, words }, *program))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_send(port: *mut Handle, peer: u32, channel: u16, data: *const u8, length: usize) -> c_int {
    // SAFETY: as above.
    let data = unsafe { slice(data, length) };
    let Inside { port, program, .. } = &mut entered!(port);
    result(port.send(peer, channel, data, *program))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_grant(port: *mut Handle, peer: u32, channel: u16, limit: u64, step: u64) -> c_int {
    entered!(port).port.engine().grant(peer, channel, limit, step).map_or_else(refusal, |()| 0)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_room(port: *mut Handle, peer: u32, channel: u16) -> u64 {
    entered!(port, 0).port.engine().room(peer, channel)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_reply(
    replier: *mut CReplier<'_>,
    handler: u8,
    words: *const u64,
    count: u32,
    data: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: the replier lives while its handler runs; memory of the lengths that the caller says.
    let (replier, words, data) = unsafe { (&mut *replier, slice(words, count as usize), slice(data, length)) };
    let Some(replier) = replier.0.take() else { return REFUSED };
    replier.reply(handler, words, data).map_or_else(refusal, |()| 0)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_refuse(replier: *mut CReplier<'_>) {
    // SAFETY: the replier lives while its handler runs.
    if let Some(replier) = unsafe { &mut *replier }.0.take() {
        replier.refuse();
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_medium_maximum(port: *mut Handle) -> usize {
    entered!(port, 0).port.engine().medium_maximum()
}
