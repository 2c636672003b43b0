//! Descriptors: closed, duplicated, controlled.

use super::processes::with_own_descriptors;
use crate::errno::{answer, set_errno};
use crate::{cancel, real};
use core::ffi::{c_int, c_uint, c_ulong};
use shunt_calls::libc;
use shunt_handover::inherit;
use shunt_inbox::datagram;
use shunt_inbox::datagram::Datagram;
use shunt_sockets::descriptor;
use shunt_stream::progress;
use shunt_stream::socket::Socket;
use shunt_stream::waiting::{kernel_sockets, owner};
use shunt_sys::section::Section;
use shunt_table::table::Kind;
use shunt_table::upcalls::operations;
use shunt_table::{global, table};

hook! {
    fn pipe(ends: *mut c_int) -> c_int {
        made(ends, 0, real::pipe(ends))
    }
    fn __pipe(ends: *mut c_int) -> c_int {
        pipe(ends)
    }
    fn pipe2(ends: *mut c_int, flags: c_int) -> c_int {
        made(ends, flags, real::pipe2(ends, flags))
    }
    fn close(fd: c_int) -> c_int {
        cancel::point();
        let _stays = shunt_rendezvous::exchange::stays(fd); // a set may watch the stream by this number alone
        match table::get(fd).kind() {
            Kind::Private => {
                set_errno(libc::EBADF);
                -1
            }
            // A close that lingers may take long, and is the kernel's.
            Kind::Foreign | Kind::Tcp => {
                operations::closing(fd);
                real::close(fd)
            }
            _ => {
                // One step to handlers: they find the descriptor whole, or gone.
                let _section = Section::begin();
                operations::closing(fd);
                real::close(fd)
            }
        }
    }
    fn __close(fd: c_int) -> c_int {
        cancel::point();
        close(fd)
    }
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        const FLAGS: c_int = (libc::CLOSE_RANGE_UNSHARE | libc::CLOSE_RANGE_CLOEXEC) as c_int;
        let unshares = first <= last && flags & !FLAGS == 0 && flags & libc::CLOSE_RANGE_UNSHARE as c_int != 0;
        let close = || answer(descriptor::close_range(first, last, flags as u32)) as c_int;
        if unshares {
            with_own_descriptors(close)
        } else {
            close()
        }
    }
    fn closefrom(first: c_int) -> () {
        let _ = descriptor::close_range(first.max(0) as u32, u32::MAX, 0);
    }
    fn pidfd_getfd(process: c_int, number: c_int, flags: c_uint) -> c_int {
        if !global::ready() {
            return real::pidfd_getfd(process, number, flags);
        }
        shunt_pipes::kept_pipes::settle_all(); // the process may be this one
        answer(inherit::take_out_of(process, number, flags).map(|fd| fd as isize)) as c_int
    }
    fn dup(fd: c_int) -> c_int {
        if table::get(fd).kind() == Kind::Private {
            set_errno(libc::EBADF);
            return -1;
        }
        let _stays = shunt_rendezvous::exchange::stays(fd);
        let copy = real::dup(fd);
        if copy >= 0 {
            descriptor::duplicated(fd, copy);
        }
        copy
    }
    fn dup2(from: c_int, to: c_int) -> c_int {
        if from == to {
            return real::dup2(from, to);
        }
        replace(from, to, || real::dup2(from, to))
    }
    fn __dup2(from: c_int, to: c_int) -> c_int {
        dup2(from, to)
    }
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
        // What the kernel refuses must leave what lies there alone.
        if from == to || flags & !libc::O_CLOEXEC != 0 {
            return real::dup3(from, to, flags);
        }
        replace(from, to, || real::dup3(from, to, flags))
    }
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        fcntl_any(fd, command, argument)
    }
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        fcntl_any(fd, command, argument)
    }
    fn __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        fcntl_any(fd, command, argument)
    }
    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
        if let libc::FIOASYNC | owner::FIOSETOWN | owner::SIOCSPGRP = request {
            progress::for_kernel(fd);
        }
        let _stays = descriptor::changes(request).then(|| shunt_rendezvous::exchange::stays(fd));
        if descriptor::changes(request) {
            kernel_sockets::changed(fd);
        } else {
            shunt_stream::beside::before_asking(fd);
        }
        if request == libc::FIONBIO {
            if let Some(result) = shunt_pipes::kept_pipes::set_nonblocking(fd, argument) {
                return answer(result.map(|result| result as isize)) as c_int;
            }
        }
        let word = table::get(fd);
        if let Some(socket) = word.object::<Socket>() {
            if let Some(result) = descriptor::ioctl(fd, word.kind(), socket, request, argument as *mut u8) {
                return answer(result) as c_int;
            }
        }
        if let Some(socket) = word.object::<Datagram>() {
            return datagram_ioctl(fd, socket, request, argument);
        }
        real::ioctl(fd, request, argument)
    }
}

/// The result of a call that makes a pipe: where it did, nothing has seen the pipe yet.
unsafe fn made(ends: *mut c_int, flags: c_int, result: c_int) -> c_int {
    if result == 0 && global::ready() {
        // SAFETY: the kernel has written two numbers there; the program may have unmapped them since.
        if let Ok(ends) = unsafe { shunt_sys::user::read(ends.cast::<[c_int; 2]>()) } {
            shunt_pipes::kept_pipes::enter(ends, flags);
        }
    }
    result
}

/// ioctl on a datagram socket: the kernel decides, but for the size of a datagram that lies in the inbox.
unsafe fn datagram_ioctl(fd: c_int, socket: &'static datagram::Datagram, request: c_ulong, argument: usize) -> c_int {
    // SAFETY: as ioctl(2).
    unsafe {
        let result = real::ioctl(fd, request, argument);
        let integer = argument as *mut c_int;
        if socket.is_local() && crate::locals::ioctl(socket, request, argument, result) {
            return result;
        }
        match request {
            libc::FIONREAD if result == 0 => {
                if let Some(size) = datagram::next_size(fd, socket) {
                    integer.write_unaligned(size as c_int);
                }
            }
            // The kernel keeps the time of the last datagram that it has delivered.
            0x8906 | 0x8907 => socket.pin(datagram::pin::OPTION),
            libc::FIONBIO if result == 0 => socket.set_nonblocking(integer.read_unaligned() != 0),
            libc::FIOASYNC if result == 0 => datagram::options::set_async(socket, integer.read_unaligned() != 0),
            _ => {}
        }
        result
    }
}

/// A duplicate takes the number `to`, whatever it was.
unsafe fn replace(from: c_int, to: c_int, duplicate: impl FnOnce() -> c_int) -> c_int {
    if table::get(from).kind() == Kind::Private {
        set_errno(libc::EBADF);
        return -1;
    }
    // The kernel refuses when `from` is not open; then `to` must stay what it is.
    if !global::ready() || shunt_sys::calls::fcntl(from, libc::F_GETFD, 0).is_err() {
        return duplicate();
    }
    // So does it beyond the limit, though something may lie there from before that was lowered.
    let ours = table::get(to).kind() != Kind::Foreign;
    if ours && to as u64 >= shunt_sys::calls::soft_limit(libc::RLIMIT_NOFILE) {
        return duplicate();
    }
    let _section = Section::begin();
    if let Err(error) = descriptor::make_room(to) {
        set_errno(error.0);
        return -1;
    }
    let closes = shunt_rendezvous::exchange::stays(to);
    let was = table::take(to);
    // What lies there ends first: it may need its descriptor still, to ring or to be kept, and afterwards the number is
    // another file's, into which a doorbell would be a byte of the stream.
    descriptor::release(was, to);
    drop(closes);
    let stays = shunt_rendezvous::exchange::stays(from);
    let result = duplicate();
    if result >= 0 {
        descriptor::duplicated(from, to);
        drop(stays);
        if to <= 2 {
            crate::standard::follow(to);
        }
    }
    result
}

unsafe fn fcntl_any(fd: c_int, command: c_int, argument: usize) -> c_int {
    if let Some(result) = shunt_pipes::kept_pipes::control(fd, command, argument) {
        return answer(result.map(|result| result as isize)) as c_int;
    }
    let asks = command == libc::F_GETFL || command == libc::F_GETFD;
    match command {
        libc::F_SETOWN | owner::F_SETOWN_EX | owner::F_SETSIG => progress::for_kernel(fd),
        libc::F_SETFL if argument as c_int & libc::O_ASYNC != 0 => progress::for_kernel(fd),
        _ => {}
    }
    let _stays = (!asks).then(|| shunt_rendezvous::exchange::stays(fd));
    if command == libc::F_SETFL {
        kernel_sockets::changed(fd);
    }
    let word = table::get(fd);
    if let Some(socket) = word.object::<Socket>() {
        if let Some(result) = descriptor::fcntl(fd, word.kind(), socket, command, argument) {
            return answer(result) as c_int;
        }
    }
    if word.kind() == Kind::Private {
        set_errno(libc::EBADF);
        return -1;
    }
    // SAFETY: as the caller's call.
    let result = unsafe { real::fcntl(fd, command, argument) };
    if let (true, libc::F_SETFL, Some(socket)) = (result >= 0, command, word.object::<Datagram>()) {
        datagram::options::set_flags(socket, argument as c_int);
    }
    if result >= 0 && (command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC) {
        descriptor::duplicated(fd, result);
    }
    result
}
