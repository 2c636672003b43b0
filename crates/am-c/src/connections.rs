//! Connections: set up, ended, looked at; polling, and sleeping in a loop of the program's own.

use crate::{entered, refusal, result, Handle, Inside, REFUSED};
use std::ffi::c_int;
use std::time::Duration;

/// `shunt_am_status`.
#[repr(C)]
pub struct CStatus {
    up: u32,
    connecting: u32,
    credit: u32,
    window_packets: u32,
    largest_window_packets: u32,
    in_flight_packets: u32,
    queued_packets: u32,
    lost_packets: u32,
    round_trip_ns: u64,
    variation_ns: u64,
    timeout_ns: u64,
    pace_ns: u64,
    frames_sent: u64,
    frames_received: u64,
    retransmissions: u64,
    timeouts: u64,
    duplicates: u64,
    rejected: u64,
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_connect(port: *mut Handle, peer: u32) -> c_int {
    let Inside { port, program, .. } = &mut entered!(port);
    result(port.connect(peer, *program))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_begin_connect(port: *mut Handle, peer: u32) -> c_int {
    let Inside { port, .. } = &mut entered!(port);
    port.now();
    port.with(|engine, now, link| engine.connect(now, peer, link)).map_or_else(refusal, |()| 0)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_accept(port: *mut Handle, peer: u32, milliseconds: u32) -> c_int {
    let Inside { port, program, .. } = &mut entered!(port);
    result(port.accept(peer, *program, Duration::from_millis(milliseconds.into())))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_disconnect(port: *mut Handle, peer: u32) {
    let Inside { port, program, .. } = &mut entered!(port, nothing);
    port.disconnect(peer, *program);
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_get_status(port: *mut Handle, peer: u32, status: *mut CStatus) -> c_int {
    let inside = entered!(port);
    // SAFETY: the caller's, with room for a status.
    let into = unsafe { &mut *status };
    let Some(known) = inside.port.status(peer) else { return REFUSED };
    *into = CStatus {
        up: known.up.into(),
        connecting: known.connecting.into(),
        credit: known.credit,
        window_packets: known.congestion_window,
        largest_window_packets: known.largest_window,
        in_flight_packets: known.in_flight,
        queued_packets: known.queued,
        lost_packets: known.lost,
        round_trip_ns: known.round_trip,
        variation_ns: known.variation,
        timeout_ns: known.timeout,
        pace_ns: known.pace,
        frames_sent: known.counters.frames_sent,
        frames_received: known.counters.frames_received,
        retransmissions: known.counters.retransmissions,
        timeouts: known.counters.timeouts,
        duplicates: known.counters.duplicates,
        rejected: known.counters.rejected,
    };
    0
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_poll(port: *mut Handle) -> c_int {
    let Inside { port, program, .. } = &mut entered!(port);
    port.poll(*program) as c_int
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_wait(port: *mut Handle, milliseconds: u32) -> c_int {
    let Inside { port, program, .. } = &mut entered!(port);
    c_int::from(port.wait(*program, Duration::from_millis(milliseconds.into())))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_set_spin(port: *mut Handle, microseconds: u32) {
    entered!(port, nothing).port.set_spin(Duration::from_micros(microseconds.into()));
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_descriptor(port: *mut Handle) -> c_int {
    entered!(port).port.endpoint().descriptor()
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_arm(port: *mut Handle) -> c_int {
    let pause = entered!(port).port.arm();
    match pause {
        // Rounded up: woken a little late rather than again and again too early.
        Some(pause) => pause.as_millis().saturating_add(1).min(c_int::MAX as u128) as c_int,
        None => 0,
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_disarm(port: *mut Handle) {
    entered!(port, nothing).port.disarm();
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_drain(port: *mut Handle, peer: u32) -> c_int {
    let Inside { port, program, .. } = &mut entered!(port);
    result(port.drain(peer, *program))
}
