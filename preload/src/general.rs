//! What `read`, `recv`, `write` and `send` do when the fast path has declined: any socket, any length, any flags.

use crate::errno::answer;
use crate::{cancel, datagrams, real, received};
use core::ffi::{c_int, c_void};
use shunt_inbox::datagram::Datagram;
use shunt_stream as stream;
use shunt_stream::socket::calling;
use shunt_sys::section;
use shunt_table::memory::pieces::MOST;

/// Each function of this file: what the C function of its name asks for; and its double, called in a section that it ends.
macro_rules! general {
    ($($name:ident, $from_section:ident ( $($arg:ident : $ty:ty),* ) $body:block)*) => {
        $(
            /// # Safety
            /// As for the C function.
            #[inline(never)]
            pub unsafe fn $name($($arg: $ty),*) -> isize {
                let _shield = cancel::shield();
                cancel::point();
                // SAFETY: promised by the caller.
                unsafe { $body }
            }

            /// # Safety
            /// As for the C function.
            #[inline(never)]
            pub unsafe fn $from_section($($arg: $ty),*) -> isize {
                section::leave();
                // SAFETY: promised by the caller.
                unsafe { $name($($arg),*) }
            }
        )*
    };
}

general! {
    read, read_from_section (fd: c_int, data: *mut c_void, length: usize) {
        match calling::stream(fd) {
            Ok(_) if length == 0 => 0,
            Ok(socket) => answer(stream::receive(socket, fd, data.cast(), length, 0)),
            Err(_call) => match shunt_table::table::find::<Datagram>(fd) {
                Some(socket) if length > 0 => {
                    let nobody = core::ptr::null_mut();
                    let kernel = || real::read(fd, data, length);
                    datagrams::receive_from(fd, socket, data, length, 0, nobody, nobody.cast(), kernel)
                }
                _ if length == 0 => real::read(fd, data, length),
                _ => received::into_buffer(fd, data, length, 0, || real::read(fd, data, length)),
            },
        }
    }

    recv, recv_from_section (fd: c_int, data: *mut c_void, length: usize, flags: c_int) {
        match calling::stream(fd) {
            Ok(socket) => answer(stream::receive(socket, fd, data.cast(), length.min(MOST), flags)),
            Err(_call) => match shunt_table::table::find::<Datagram>(fd) {
                Some(socket) => {
                    let nobody = core::ptr::null_mut();
                    let kernel = || real::recv(fd, data, length, flags);
                    datagrams::receive_from(fd, socket, data, length, flags, nobody, nobody.cast(), kernel)
                }
                None => received::into_buffer(fd, data, length, flags, || real::recv(fd, data, length, flags)),
            },
        }
    }

    write, write_from_section (fd: c_int, data: *const c_void, length: usize) {
        match calling::stream(fd) {
            Ok(socket) => answer(stream::send(socket, fd, data.cast(), length, 0)),
            Err(_call) => match shunt_table::table::find::<Datagram>(fd) {
                Some(socket) => {
                    let kernel = || real::write(fd, data, length);
                    datagrams::send_to(fd, socket, data, length, 0, core::ptr::null(), 0, kernel)
                }
                None => real::write(fd, data, length),
            },
        }
    }

    send, send_from_section (fd: c_int, data: *const c_void, length: usize, flags: c_int) {
        match calling::stream(fd) {
            Ok(socket) => answer(stream::send(socket, fd, data.cast(), length.min(MOST), flags)),
            Err(_call) => match shunt_table::table::find::<Datagram>(fd) {
                Some(socket) => {
                    let kernel = || real::send(fd, data, length, flags);
                    datagrams::send_to(fd, socket, data, length, flags, core::ptr::null(), 0, kernel)
                }
                None => real::send(fd, data, length, flags),
            },
        }
    }
}
