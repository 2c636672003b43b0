//! Calls that receive.

use super::fast_path::{read, recv};
use crate::errno::answer;
use crate::{datagrams, real, received};
use core::ffi::{c_int, c_uint, c_void};
use shunt_calls::libc::{self, iovec, mmsghdr, msghdr, sockaddr, socklen_t, timespec};
use shunt_inbox::datagram;
use shunt_inbox::datagram::Datagram;
use shunt_stream as stream;
use shunt_stream::socket::calling;
use shunt_stream::transfer;
use shunt_stream::waiting::kernel_sockets;
use shunt_table::memory::pieces::MOST;

point! {
    fn __read(fd: c_int, data: *mut c_void, length: usize) -> isize {
        read(fd, data, length)
    }
    fn __read_chk(fd: c_int, data: *mut c_void, length: usize, room: usize) -> isize {
        match calling::stream(fd) {
            Ok(_) if length <= room => read(fd, data, length),
            Err(_call) if length <= room && (datagram::is(fd) || kernel_sockets::is(fd)) => read(fd, data, length),
            _ => real::__read_chk(fd, data, length, room),
        }
    }
    fn readv(fd: c_int, vector: *const iovec, count: c_int) -> isize {
        match calling::stream(fd) {
            Ok(socket) => answer(transfer::read(socket, fd, vector, count as usize, 0)),
            Err(_call) => match shunt_table::table::find::<Datagram>(fd) {
                Some(socket) => datagrams::receive_vector(fd, socket, vector, count),
                None if kernel_sockets::is(fd) => received::into_vector(fd, vector, count, || real::readv(fd, vector, count)),
                None => real::readv(fd, vector, count),
            },
        }
    }
    fn preadv2(fd: c_int, vector: *const iovec, count: c_int, offset: i64, flags: c_int) -> isize {
        match calling::stream(fd) {
            Ok(socket) if offset == -1 => answer(transfer::read_flagged(socket, fd, vector, count as usize, flags)),
            Err(_call) if offset == -1 && flags == 0 && datagram::is(fd) => readv(fd, vector, count),
            Err(_call) if offset == -1 && datagram::is(fd) => {
                let got = real::preadv2(fd, vector, count, offset, flags);
                if got >= 0 || crate::errno::errno() != libc::EAGAIN {
                    return got;
                }
                // RWF_NOWAIT, which this kernel knows: nothing lies in its queue.
                let mut message: msghdr = core::mem::zeroed();
                (message.msg_iov, message.msg_iovlen) = (vector.cast_mut(), count as usize);
                recvmsg(fd, &mut message, libc::MSG_DONTWAIT)
            }
            _ => real::preadv2(fd, vector, count, offset, flags),
        }
    }
    fn preadv64v2(fd: c_int, vector: *const iovec, count: c_int, offset: i64, flags: c_int) -> isize {
        preadv2(fd, vector, count, offset, flags)
    }
    fn __recv_chk(fd: c_int, data: *mut c_void, length: usize, room: usize, flags: c_int) -> isize {
        match calling::stream(fd) {
            Ok(socket) if length <= room => answer(stream::receive(socket, fd, data.cast(), length, flags)),
            Err(_call) if length <= room && (datagram::is(fd) || kernel_sockets::is(fd)) => recv(fd, data, length, flags),
            _ => real::__recv_chk(fd, data, length, room, flags),
        }
    }
    fn recvfrom(fd: c_int, data: *mut c_void, length: usize, flags: c_int, address: *mut sockaddr, address_length: *mut socklen_t) -> isize {
        match calling::stream(fd) {
            Ok(socket) => answer(transfer::receive_from(socket, fd, data.cast(), length.min(MOST), flags, address, address_length)),
            Err(_call) => match shunt_table::table::find::<Datagram>(fd) {
                Some(socket) => {
                    let kernel = || real::recvfrom(fd, data, length, flags, address, address_length);
                    datagrams::receive_from(fd, socket, data, length, flags, address, address_length, kernel)
                }
                None => {
                    let kernel = || real::recvfrom(fd, data, length, flags, address, address_length);
                    match kernel_sockets::are_no_concern(fd, true) {
                        true => kernel(),
                        false => received::from(fd, data, length, flags, address, address_length, kernel),
                    }
                }
            },
        }
    }
    fn __recvfrom_chk(fd: c_int, data: *mut c_void, length: usize, room: usize, flags: c_int, address: *mut sockaddr, address_length: *mut socklen_t) -> isize {
        match calling::stream(fd) {
            Ok(socket) if length <= room => {
                answer(transfer::receive_from(socket, fd, data.cast(), length.min(MOST), flags, address, address_length))
            }
            Err(_call) if length <= room && (datagram::is(fd) || kernel_sockets::is(fd)) => recvfrom(fd, data, length, flags, address, address_length),
            _ => real::__recvfrom_chk(fd, data, length, room, flags, address, address_length),
        }
    }
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
        match calling::stream(fd) {
            Ok(socket) => answer(transfer::receive_message(socket, fd, message, flags)),
            Err(_call) => match shunt_table::table::find::<Datagram>(fd) {
                Some(socket) => datagrams::receive_message(fd, socket, message, flags),
                None if kernel_sockets::is(fd) => received::message(fd, message, flags, || real::recvmsg(fd, message, flags)),
                None => crate::passing::receive(fd, message, flags),
            },
        }
    }
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
        match calling::stream(fd) {
            Ok(socket) => answer(transfer::receive_messages(socket, fd, messages, count, flags, timeout)) as c_int,
            Err(_call) => match shunt_table::table::find::<Datagram>(fd) {
                Some(socket) => datagrams::receive_messages(fd, socket, messages, count, flags, timeout),
                None => crate::passing::receive_several(fd, messages, count, flags, timeout),
            },
        }
    }
}
