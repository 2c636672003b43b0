//! What a library of shunt's own that stands behind this one asks of it: `libshunt_tirpc.so`, which carries calls over streams of a program.
//!
//! These are no calls of the C library's. A library that does not find them does without.

use core::ffi::c_int;
use shunt_poll::fast_path;
use shunt_sys::section;

/// Handlers of the program's wait from here on, in this thread, until [`shunt_deliver_handlers`]: as if all signals were blocked, without a
/// system call. A caller that is about to sleep blocks them first.
#[no_mangle]
pub extern "C" fn shunt_defer_handlers() {
    section::enter();
}

/// The end of [`shunt_defer_handlers`]: a signal that came meanwhile is delivered.
#[no_mangle]
pub extern "C" fn shunt_deliver_handlers() {
    section::leave();
}

/// Whether `fd` is an accelerated stream: sends cost a copy and no system call, so one more of them saves a copy. 1, or 0.
#[no_mangle]
pub extern "C" fn shunt_is_stream(fd: c_int) -> c_int {
    fast_path::is_stream(fd).into()
}

/// Whether bytes of the stream `fd`, or a datagram for it, are there, or come within about as long as an answer takes that is on its way: 1, or 0. -1:
/// looking for them is no use, or `fd` is no accelerated socket.
#[no_mangle]
pub extern "C" fn shunt_bytes_come(fd: c_int) -> c_int {
    fast_path::bytes_come(fd).map_or(-1, c_int::from)
}
