//! The four calls of the hot path.

use crate::{general, real};
use core::ffi::{c_int, c_void};
use shunt_inbox::datagram::Datagram;
use shunt_stream::fast_path;
use shunt_stream::fast_path::Declined;
use shunt_stream::socket::calling;
use shunt_stream::waiting::kernel_sockets;
use shunt_sys::section;
use shunt_table::table;

/// Whether a call that sends is the kernel's alone.
#[inline(always)]
fn is_the_kernel_s(fd: c_int) -> bool {
    table::find::<Datagram>(fd).is_none() && !calling::is_unsettled(fd)
}

swift_hook! {
    fn read(fd: c_int, data: *mut c_void, length: usize) -> isize, read_from_section,
        |socket| fast_path::receive::<true, true>(socket, fd, data.cast(), length, 0),
        |socket| fast_path::receive::<true, false>(socket, fd, data.cast(), length, 0),
        |fd| kernel_sockets::are_no_concern(fd, false);
    fn recv(fd: c_int, data: *mut c_void, length: usize, flags: c_int) -> isize, recv_from_section,
        |socket| fast_path::receive::<true, true>(socket, fd, data.cast(), length, flags),
        |socket| fast_path::receive::<true, false>(socket, fd, data.cast(), length, flags),
        |fd| kernel_sockets::are_no_concern(fd, true);
    fn write(fd: c_int, data: *const c_void, length: usize) -> isize, write_from_section,
        |socket| fast_path::send::<true, true>(socket, fd, data.cast(), length, 0),
        |socket| fast_path::send::<true, false>(socket, fd, data.cast(), length, 0),
        is_the_kernel_s;
    fn send(fd: c_int, data: *const c_void, length: usize, flags: c_int) -> isize, send_from_section,
        |socket| fast_path::send::<true, true>(socket, fd, data.cast(), length, flags),
        |socket| fast_path::send::<true, false>(socket, fd, data.cast(), length, flags),
        is_the_kernel_s;
}
