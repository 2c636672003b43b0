//! The error queue of a stream: completions of MSG_ZEROCOPY.
//!
//! Bytes are copied when they are sent, so a send is complete at once. Each one gets a number, and the queue is the range
//! of numbers that were not reported yet: Linux joins notifications whose numbers follow each other as well
//! (Documentation/networking/msg_zerocopy.rst).

use crate::socket::{flag, Connected, Socket};
use crate::waiting::wake_pollers;
use crate::waiting::watchers::Change;
use core::sync::atomic::Ordering;
use shunt_sys::libc::sock_extended_err;

/// A send with MSG_ZEROCOPY has moved bytes.
pub fn completed(socket: &Socket) {
    socket.connected.zero_copies.fetch_add(1, Ordering::Release);
    // An edge. Threads that wait for completions: the peer knows of none, and rings for none.
    socket.connected.changes.fetch_add(1, Ordering::Relaxed);
    crate::waiting::watchers::changed(socket, Change::Ready);
    wake_pollers::all();
}

/// Whether something waits in the queue (POLLERR).
pub fn pending(socket: &Socket) -> bool {
    socket.has(flag::ERROR_QUEUE)
        && socket.connected.zero_copies.load(Ordering::Acquire) != socket.connected.zero_copies_reported.load(Ordering::Relaxed)
}

/// Takes what waits: one notification for the whole range.
pub fn take(socket: &Socket) -> Option<sock_extended_err> {
    let Connected { zero_copies, zero_copies_reported, .. } = &socket.connected;
    let mut end = 0;
    // The end is read behind the beginning, so that it is not before it; two threads that take get different ranges.
    let to_end = |begin| {
        end = zero_copies.load(Ordering::Acquire);
        (begin != end).then_some(end)
    };
    let begin = zero_copies_reported.fetch_update(Ordering::AcqRel, Ordering::Acquire, to_end).ok()?;
    Some(sock_extended_err {
        ee_errno: 0,
        ee_origin: SO_EE_ORIGIN_ZEROCOPY,
        ee_type: 0,
        ee_code: SO_EE_CODE_ZEROCOPY_COPIED,
        ee_pad: 0,
        ee_info: begin,
        ee_data: end.wrapping_sub(1),
    })
}

const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
/// The bytes were copied after all, as on every loopback connection.
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;
