//! Calls that send.

use super::fast_path::{send, write};
use super::sockets::touched;
use crate::errno::{answer, set_errno};
use crate::{datagrams, real, splices};
use core::ffi::{c_int, c_uint, c_void};
use shunt_calls::libc::{self, iovec, mmsghdr, msghdr, sockaddr, socklen_t};
use shunt_inbox::datagram::Datagram;
use shunt_pipes::kept_pipes;
use shunt_stream as stream;
use shunt_stream::socket::calling;
use shunt_stream::{send_file, splice as splicing, transfer};
use shunt_sys::{user, Errno};
use shunt_table::memory::pieces::MOST;
use shunt_table::{sockaddr as addresses, table};

point! {
    fn __write(fd: c_int, data: *const c_void, length: usize) -> isize {
        write(fd, data, length)
    }
    fn writev(fd: c_int, vector: *const iovec, count: c_int) -> isize {
        match calling::stream(fd) {
            Ok(socket) => answer(transfer::send(socket, fd, vector, count as usize, 0)),
            Err(_call) => match table::find::<Datagram>(fd) {
                Some(socket) => datagrams::send_vector(fd, socket, vector, count),
                None => real::writev(fd, vector, count),
            },
        }
    }
    fn pwritev2(fd: c_int, vector: *const iovec, count: c_int, offset: i64, flags: c_int) -> isize {
        match calling::stream(fd) {
            Ok(socket) if offset == -1 => answer(transfer::write_flagged(socket, fd, vector, count as usize, flags)),
            Err(_call) if offset == -1 => splices::through_kernel(fd, || real::pwritev2(fd, vector, count, offset, flags)),
            _ => real::pwritev2(fd, vector, count, offset, flags),
        }
    }
    fn pwritev64v2(fd: c_int, vector: *const iovec, count: c_int, offset: i64, flags: c_int) -> isize {
        pwritev2(fd, vector, count, offset, flags)
    }
    fn __send(fd: c_int, data: *const c_void, length: usize, flags: c_int) -> isize {
        send(fd, data, length, flags)
    }
    fn sendto(fd: c_int, data: *const c_void, length: usize, flags: c_int, address: *const sockaddr, address_length: socklen_t) -> isize {
        match calling::stream(fd) {
            Ok(socket) => {
                if stream::is_no_range(data.cast(), length.min(MOST)) {
                    return answer(Err(Errno(libc::EFAULT)));
                }
                // A destination is ignored, but read first.
                if !address.is_null() {
                    if let Err(error) = addresses::check(address, address_length) {
                        return answer(Err(error));
                    }
                }
                answer(stream::send(socket, fd, data.cast(), length.min(MOST), flags))
            }
            Err(_call) => match table::find::<Datagram>(fd) {
                Some(socket) => {
                    let kernel = || real::sendto(fd, data, length, flags, address, address_length);
                    datagrams::send_to(fd, socket, data, length, flags, address, address_length, kernel)
                }
                None => {
                    if flags & libc::MSG_FASTOPEN != 0 {
                        touched(fd);
                    }
                    real::sendto(fd, data, length, flags, address, address_length)
                }
            },
        }
    }
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
        match calling::stream(fd) {
            Ok(socket) => answer(transfer::send_message(socket, fd, message, flags)),
            Err(_call) => match table::find::<Datagram>(fd) {
                Some(socket) => datagrams::send_message(fd, socket, message, flags),
                None => {
                    if flags & libc::MSG_FASTOPEN != 0 {
                        touched(fd);
                    }
                    crate::passing::send(fd, message, flags)
                }
            },
        }
    }
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        match calling::stream(fd) {
            Ok(socket) => answer(transfer::send_messages(socket, fd, messages, count, flags)) as c_int,
            Err(_call) => match table::find::<Datagram>(fd) {
                Some(socket) => datagrams::send_messages(fd, socket, messages, count, flags),
                None => {
                    touched(fd);
                    crate::passing::send_several(fd, messages, count, flags)
                }
            },
        }
    }
    fn splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, length: usize, flags: c_uint) -> isize {
        let _calls = (calling::call(from), calling::call(to));
        let stream = shunt_stream::socket::stream_beside_pipes;
        let ends = (stream(from), stream(to));
        if let ((Some(_), _) | (_, Some(_)), Some(at_once)) = (ends, splicing::begins(length, flags)) {
            return answer(at_once);
        }
        match ends {
            (None, None) => {
                table::get(from).settle_pipe();
                table::get(to).settle_pipe();
                splices::splice(from, from_offset, to, to_offset, length, flags)
            }
            // A pipe has no offset (ESPIPE), and a socket cannot seek (EINVAL); what stands there is read before (__do_splice).
            (Some(_), None) if !to_offset.is_null() => answer(Err(Errno(libc::ESPIPE))),
            (None, Some(_)) if !from_offset.is_null() => answer(Err(Errno(libc::ESPIPE))),
            (Some(_), None) if !from_offset.is_null() => answer(Err(user::read(from_offset).map_or_else(|error| error, |_| Errno(libc::EINVAL)))),
            (None, Some(_)) if !to_offset.is_null() => answer(Err(user::read(to_offset).map_or_else(|error| error, |_| Errno(libc::EINVAL)))),
            (Some(socket), None) => answer(splicing::out(socket, from, to, length, flags)),
            (None, Some(socket)) => answer(splicing::into(socket, to, from, length, flags)),
            (Some(_), Some(_)) => {
                set_errno(libc::EINVAL); // one end must be a pipe
                -1
            }
        }
    }
}

hook! {
    fn tee(from: c_int, to: c_int, length: usize, flags: c_uint) -> isize {
        if splicing::begins(length, flags).is_none() {
            if let Some(result) = kept_pipes::tee(from, to, length, flags) {
                return answer(result);
            }
        }
        table::get(from).settle_pipe();
        table::get(to).settle_pipe();
        real::tee(from, to, length, flags)
    }
    fn vmsplice(pipe: c_int, vector: *const iovec, count: usize, flags: c_uint) -> isize {
        table::get(pipe).settle_pipe();
        real::vmsplice(pipe, vector, count, flags)
    }
    fn sendfile(out: c_int, from: c_int, offset: *mut i64, count: usize) -> isize {
        match calling::stream(out) {
            Ok(socket) => answer(send_file::send_file(socket, out, from, offset, count)),
            Err(_call) => splices::through_kernel(out, || real::sendfile(out, from, offset, count)),
        }
    }
    fn sendfile64(out: c_int, from: c_int, offset: *mut i64, count: usize) -> isize {
        sendfile(out, from, offset, count)
    }
}
