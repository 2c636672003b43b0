//! The error queue of a stream: completions of MSG_ZEROCOPY.
//!
//! Bytes are copied when they are sent, so a send is complete at once. Each one gets a number, and the queue is the range
//! of numbers that were not reported yet: Linux joins notifications whose numbers follow each other as well
//! (Documentation/networking/msg_zerocopy.rst).

use crate::socket::{flag, Socket};
use crate::waiting::wake_pollers;
use crate::waiting::watchers::Change;
use core::sync::atomic::Ordering;
use shunt_sys::libc::sock_extended_err;

/// A send with MSG_ZEROCOPY has moved bytes.
pub fn completed(socket: &Socket) {
    socket.connected.zero_copies.fetch_add(1, Ordering::Release);
    socket.connected.changes.fetch_add(1, Ordering::Relaxed); // an edge
                                                              // Threads that wait for completions: the peer knows of none, and rings for none.
    crate::waiting::watchers::changed(socket, Change::Ready);
    wake_pollers::all();
}

/// Whether something waits in the queue (POLLERR).
pub fn pending(socket: &Socket) -> bool {
    socket.has(flag::ZERO_COPY)
        && socket.connected.zero_copies.load(Ordering::Acquire) != socket.connected.zero_copies_reported.load(Ordering::Relaxed)
}

/// Takes what waits: one notification for the whole range.
pub fn take(socket: &Socket) -> Option<sock_extended_err> {
    let end = socket.connected.zero_copies.load(Ordering::Acquire);
    let begin = socket.connected.zero_copies_reported.swap(end, Ordering::AcqRel);
    (begin != end).then(|| sock_extended_err {
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
