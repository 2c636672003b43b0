//! What each intercepted symbol does. Variants of one call share a body.

use crate::{answer, cancel, datagrams, general, real, set_errno};
use core::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use core::sync::atomic::Ordering;
use shunt_calls::libc::{
    self, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, pollfd, rlimit, sigset_t, sockaddr, socklen_t, timespec, timeval,
};
use shunt_sockets::poll::{self, Query};
use shunt_sockets::polled::Entries;
use shunt_sockets::segment::process::kind as row_kind;
use shunt_sockets::segment::reason::Reason;
use shunt_sockets::socket::flag;
use shunt_sockets::swift::{self, Declined};
use shunt_sockets::sys::section::Section;
use shunt_sockets::sys::user;
use shunt_sockets::table::{self, Kind};
use shunt_sockets::{
    accept as accepting, connect as connecting, datagram, descriptor, epoll, global, listen as listening, names, opening,
    options, report, select as selecting, sockaddr as addresses, spare, stream, transfer,
};

macro_rules! hook {
    ($($(#[$meta:meta])* fn $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty $body:block)*) => {
        $(
            #[no_mangle]
            $(#[$meta])*
            #[allow(unused_unsafe)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
                let _shield = cancel::shield();
                // SAFETY: the caller gives what the C function of this name asks for.
                unsafe { $body }
            }
        )*
    };
}

/// Hooks that try the swift way first, which is not taken by a thread that is cancelled. What they leave to do is the last
/// thing that they do (`crate::general`, with all that other hooks do).
macro_rules! swift_hook {
    ($(fn $name:ident ( $fd:ident: c_int, $($arg:ident : $ty:ty),* ) -> isize, $from_section:ident, $attempt:expr;)*) => {
        $(
            /// # Safety
            /// As for the C function.
            #[no_mangle]
            pub unsafe extern "C" fn $name($fd: c_int, $($arg: $ty),*) -> isize {
                // SAFETY: the caller gives what the C function of this name asks for.
                unsafe {
                    if let Some(socket) = table::stream($fd) {
                        match $attempt(socket) {
                            Ok(moved) => return moved,
                            Err(Declined::InSection) => return general::$from_section($fd, $($arg),*),
                            Err(Declined::Unusual) => {}
                        }
                    }
                    general::$name($fd, $($arg),*)
                }
            }
        )*
    };
}

swift_hook! {
    fn read(fd: c_int, data: *mut c_void, length: usize) -> isize, read_from_section,
        |socket| swift::receive::<true>(socket, fd, data.cast(), length, 0);
    fn recv(fd: c_int, data: *mut c_void, length: usize, flags: c_int) -> isize, recv_from_section,
        |socket| swift::receive::<true>(socket, fd, data.cast(), length, flags);
    fn write(fd: c_int, data: *const c_void, length: usize) -> isize, write_from_section,
        |socket| swift::send::<true>(socket, fd, data.cast(), length, 0);
    fn send(fd: c_int, data: *const c_void, length: usize, flags: c_int) -> isize, send_from_section,
        |socket| swift::send::<true>(socket, fd, data.cast(), length, flags);
}

/// Hooks of calls that are cancellation points (pthreads(7)).
macro_rules! point {
    ($($(#[$meta:meta])* fn $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty $body:block)*) => {
        hook! { $($(#[$meta])* fn $name($($arg: $ty),*) -> $ret { cancel::point(); $body })* }
    };
}

fn internet_datagram(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    let base = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    (domain == libc::AF_INET || domain == libc::AF_INET6)
        && base == libc::SOCK_DGRAM
        && (protocol == 0 || protocol == libc::IPPROTO_UDP)
}

// ---- sockets -----------------------------------------------------------------------------------------------------

hook! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        if let Some(fd) = opening::from_spare(domain, kind, protocol) {
            return fd;
        }
        let fd = real::socket(domain, kind, protocol);
        if fd >= 0 {
            opening::opened(fd, domain, kind, protocol);
            if global::ready() && internet_datagram(domain, kind, protocol) && datagram::enabled() {
                datagram::created(fd, domain, kind & libc::SOCK_NONBLOCK != 0);
            }
        }
        fd
    }

    fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        let word = table::get(fd);
        if word.kind() == Kind::Stream {
            set_errno(libc::EINVAL);
            return -1;
        }
        touched(fd);
        let result = real::bind(fd, address, length);
        if let (0, Some(socket)) = (result, word.socket()) {
            socket.set(flag::BOUND);
        }
        if let (0, Some(socket)) = (result, word.datagram()) {
            datagram::moved_to_address(fd, socket);
        }
        result
    }

    fn listen(fd: c_int, backlog: c_int) -> c_int {
        let word = table::get(fd);
        match (word.kind(), word.socket()) {
            (Kind::Stream, _) => {
                set_errno(libc::EINVAL);
                -1
            }
            (Kind::Tcp | Kind::Listener, Some(socket)) => {
                let prepared = listening::prepare(fd, socket, backlog);
                let result = real::listen(fd, backlog);
                match (result, prepared) {
                    (0, Ok(())) => listening::opened(fd, socket),
                    (0, Err(reason)) => report::note(fd, row_kind::TCP, reason, None),
                    _ => listening::withdraw(fd, socket),
                }
                result
            }
            _ => real::listen(fd, backlog),
        }
    }

    fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        cancel::point();
        accept4(fd, address, length, 0)
    }

    fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
        cancel::point();
        let word = table::get(fd);
        match (word.kind(), word.socket()) {
            (Kind::Listener, Some(socket)) => answer(accepting::accept(fd, socket, address, length, flags)) as c_int,
            (Kind::Stream, _) => {
                set_errno(libc::EINVAL);
                -1
            }
            _ => {
                let accepted = real::accept4(fd, address, length, flags);
                if accepted >= 0 {
                    table::take(accepted);
                }
                accepted
            }
        }
    }

    fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        cancel::point();
        connect_any(fd, address, length)
    }
    fn __connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        cancel::point();
        connect_any(fd, address, length)
    }

    fn shutdown(fd: c_int, how: c_int) -> c_int {
        match table::stream(fd) {
            Some(socket) => answer(stream::shutdown(socket, fd, how)) as c_int,
            None => {
                if let Some(socket) = table::datagram(fd) {
                    datagram::options::plain(socket, datagram::pin::SHUT);
                }
                touched(fd);
                let result = real::shutdown(fd, how);
                if result < 0 && (0..=2).contains(&how) {
                    // The kernel says ENOTCONN, and the connection that is made afterwards begins shut down all the same.
                    if let (Kind::Tcp, Some(socket)) = (table::get(fd).kind(), table::get(fd).socket()) {
                        socket.set(flag::PLAIN);
                    }
                }
                if let (Kind::Listener, Some(socket)) = (table::get(fd).kind(), table::get(fd).socket()) {
                    listening::stopped(fd, socket);
                }
                result
            }
        }
    }

    fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        match table::stream(fd) {
            Some(socket) => answer(names::local(socket, address, length)) as c_int,
            None => real::getsockname(fd, address, length),
        }
    }

    fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        match table::stream(fd) {
            Some(socket) => answer(names::remote(socket, address, length)) as c_int,
            None => real::getpeername(fd, address, length),
        }
    }

    fn getsockopt(fd: c_int, level: c_int, name: c_int, data: *mut c_void, length: *mut socklen_t) -> c_int {
        match table::stream(fd) {
            Some(socket) => answer(options::get(socket, fd, level, name, data.cast(), length)) as c_int,
            None => {
                if (level, name) == (libc::SOL_SOCKET, libc::SO_COOKIE) {
                    touched(fd); // it is given out now, and for good
                    if let (Kind::Tcp, Some(socket)) = (table::get(fd).kind(), table::get(fd).socket()) {
                        options::note_get(fd, socket, level, name);
                    }
                }
                real::getsockopt(fd, level, name, data, length)
            }
        }
    }

    fn setsockopt(fd: c_int, level: c_int, name: c_int, data: *const c_void, length: socklen_t) -> c_int {
        let word = table::get(fd);
        match (word.kind(), word.socket()) {
            (Kind::Stream, Some(socket)) => answer(options::set(socket, fd, level, name, data.cast(), length)) as c_int,
            (Kind::Tcp | Kind::Listener, Some(socket)) => {
                touched(fd);
                let result = real::setsockopt(fd, level, name, data, length);
                if result == 0 {
                    options::note_set(fd, socket, level, name);
                    if options::only_the_kernel_can(level, name) {
                        socket.set(flag::FILTERED);
                    }
                }
                result
            }
            _ => {
                let result = real::setsockopt(fd, level, name, data, length);
                if let (0, Some(socket)) = (result, word.datagram()) {
                    datagram::options::set(fd, socket, level, name, data.cast(), length);
                }
                result
            }
        }
    }
}

unsafe fn connect_any(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller gives what connect asks for.
    unsafe {
        let word = table::get(fd);
        let socket = match (word.kind(), word.socket()) {
            (Kind::Stream, Some(socket)) => {
                let family = if length >= 2 { user::read(&raw const (*address).sa_family) } else { Ok(libc::AF_INET as u16) };
                if family.is_ok_and(|family| family as c_int == libc::AF_UNSPEC) {
                    return answer(shunt_sockets::disconnect::disconnect(fd, socket)) as c_int;
                }
                if socket.has(flag::CONNECTING) {
                    socket.clear(flag::CONNECTING);
                    return 0;
                }
                set_errno(libc::EISCONN);
                return -1;
            }
            (Kind::Tcp, Some(socket)) if !socket.has(flag::KERNEL) => socket,
            _ => {
                let result = real::connect(fd, address, length);
                if let (0, Some(socket)) = (result, word.datagram()) {
                    datagram::moved_to_address(fd, socket);
                }
                if let (0, Kind::Listener, Some(socket)) = (result, word.kind(), word.socket()) {
                    listening::stopped(fd, socket);
                }
                return result;
            }
        };
        let reason = match addresses::read(address, length) {
            Some((family, server))
                if fits_family(socket.family.load(Ordering::Relaxed), family) && !socket.has(flag::PLAIN | flag::FILTERED) =>
            {
                match connecting::connect(fd, socket, server) {
                    connecting::Outcome::Connected => {
                        crate::start::announce(fd);
                        if socket.has(flag::CONNECTING) {
                            set_errno(libc::EINPROGRESS);
                            return -1;
                        }
                        return 0;
                    }
                    connecting::Outcome::Kernel(reason) => reason,
                }
            }
            _ => Reason::UnsupportedSocket,
        };
        touched(fd);
        let result = real::connect(fd, address, length);
        let errno = if result < 0 { *crate::__errno_location() } else { 0 };
        if result == 0 || errno == libc::EINPROGRESS || errno == libc::EINTR {
            socket.set(flag::KERNEL);
            report::note(fd, row_kind::TCP, reason, None);
            crate::start::explain(fd, reason);
            set_errno(errno);
        }
        result
    }
}

/// The kernel is about to change the open file of a TCP socket: no spare may share it.
fn touched(fd: c_int) {
    if let Some(socket) = table::get(fd).socket() {
        spare::spoil(socket);
    }
}

/// An IPv4 address on an IPv6 socket, or the other way round, is the kernel's to refuse.
fn fits_family(socket: c_int, address: c_int) -> bool {
    socket == address
}

// ---- receive -----------------------------------------------------------------------------------------------------

point! {
    fn __read(fd: c_int, data: *mut c_void, length: usize) -> isize {
        read(fd, data, length)
    }
    fn __read_chk(fd: c_int, data: *mut c_void, length: usize, room: usize) -> isize {
        match table::stream(fd) {
            Some(_) if length <= room => read(fd, data, length),
            None if length <= room && datagram::is(fd) => read(fd, data, length),
            _ => real::__read_chk(fd, data, length, room),
        }
    }
    fn readv(fd: c_int, vector: *const iovec, count: c_int) -> isize {
        match table::stream(fd) {
            Some(socket) => answer(transfer::read(socket, fd, vector, count as usize, 0)),
            None => match table::datagram(fd) {
                Some(socket) => datagrams::receive_vector(fd, socket, vector, count),
                None => real::readv(fd, vector, count),
            },
        }
    }
    fn preadv2(fd: c_int, vector: *const iovec, count: c_int, offset: i64, flags: c_int) -> isize {
        match table::stream(fd).filter(|_| offset == -1) {
            Some(socket) => answer(transfer::read_flagged(socket, fd, vector, count as usize, flags)),
            None => real::preadv2(fd, vector, count, offset, flags),
        }
    }
    fn preadv64v2(fd: c_int, vector: *const iovec, count: c_int, offset: i64, flags: c_int) -> isize {
        preadv2(fd, vector, count, offset, flags)
    }
    fn __recv_chk(fd: c_int, data: *mut c_void, length: usize, room: usize, flags: c_int) -> isize {
        match table::stream(fd) {
            Some(socket) if length <= room => answer(stream::receive(socket, fd, data.cast(), length, flags)),
            None if length <= room && datagram::is(fd) => recv(fd, data, length, flags),
            _ => real::__recv_chk(fd, data, length, room, flags),
        }
    }
    fn recvfrom(fd: c_int, data: *mut c_void, length: usize, flags: c_int, address: *mut sockaddr, address_length: *mut socklen_t) -> isize {
        match table::stream(fd) {
            Some(socket) => answer(transfer::receive_from(socket, fd, data.cast(), length, flags, address, address_length)),
            None => match table::datagram(fd) {
                Some(socket) => {
                    let kernel = || real::recvfrom(fd, data, length, flags, address, address_length);
                    datagrams::receive_from(fd, socket, data, length, flags, address, address_length, kernel)
                }
                None => real::recvfrom(fd, data, length, flags, address, address_length),
            },
        }
    }
    fn __recvfrom_chk(fd: c_int, data: *mut c_void, length: usize, room: usize, flags: c_int, address: *mut sockaddr, address_length: *mut socklen_t) -> isize {
        match table::stream(fd) {
            Some(socket) if length <= room => {
                answer(transfer::receive_from(socket, fd, data.cast(), length, flags, address, address_length))
            }
            None if length <= room && datagram::is(fd) => recvfrom(fd, data, length, flags, address, address_length),
            _ => real::__recvfrom_chk(fd, data, length, room, flags, address, address_length),
        }
    }
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
        match table::stream(fd) {
            Some(socket) => answer(transfer::receive_message(socket, fd, message, flags)),
            None => match table::datagram(fd) {
                Some(socket) => datagrams::receive_message(fd, socket, message, flags),
                None => crate::passing::receive(fd, message, flags),
            },
        }
    }
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
        match table::stream(fd) {
            Some(socket) => answer(transfer::receive_messages(socket, fd, messages, count, flags, timeout)) as c_int,
            None => match table::datagram(fd) {
                Some(socket) => datagrams::receive_messages(fd, socket, messages, count, flags, timeout),
                None => crate::passing::receive_several(fd, messages, count, flags, timeout),
            },
        }
    }
}

// ---- send --------------------------------------------------------------------------------------------------------

point! {
    fn __write(fd: c_int, data: *const c_void, length: usize) -> isize {
        write(fd, data, length)
    }
    fn writev(fd: c_int, vector: *const iovec, count: c_int) -> isize {
        match table::stream(fd) {
            Some(socket) => answer(transfer::send(socket, fd, vector, count as usize, 0)),
            None => match table::datagram(fd) {
                Some(socket) => datagrams::send_vector(fd, socket, vector, count),
                None => real::writev(fd, vector, count),
            },
        }
    }
    fn pwritev2(fd: c_int, vector: *const iovec, count: c_int, offset: i64, flags: c_int) -> isize {
        match table::stream(fd).filter(|_| offset == -1) {
            Some(socket) => answer(transfer::write_flagged(socket, fd, vector, count as usize, flags)),
            None => real::pwritev2(fd, vector, count, offset, flags),
        }
    }
    fn pwritev64v2(fd: c_int, vector: *const iovec, count: c_int, offset: i64, flags: c_int) -> isize {
        pwritev2(fd, vector, count, offset, flags)
    }
    fn __send(fd: c_int, data: *const c_void, length: usize, flags: c_int) -> isize {
        send(fd, data, length, flags)
    }
    fn sendto(fd: c_int, data: *const c_void, length: usize, flags: c_int, address: *const sockaddr, address_length: socklen_t) -> isize {
        match table::stream(fd) {
            Some(socket) => answer(stream::send(socket, fd, data.cast(), length, flags)),
            None => match table::datagram(fd) {
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
        match table::stream(fd) {
            Some(socket) => answer(transfer::send_message(socket, fd, message, flags)),
            None => match table::datagram(fd) {
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
        match table::stream(fd) {
            Some(socket) => answer(transfer::send_messages(socket, fd, messages, count, flags)) as c_int,
            None => match table::datagram(fd) {
                Some(socket) => datagrams::send_messages(fd, socket, messages, count, flags),
                None => {
                    touched(fd);
                    crate::passing::send_several(fd, messages, count, flags)
                }
            },
        }
    }
    fn splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, length: usize, flags: c_uint) -> isize {
        match (table::stream(from), table::stream(to)) {
            (None, None) => real::splice(from, from_offset, to, to_offset, length, flags),
            // A pipe has no offset (ESPIPE), and a socket cannot seek (EINVAL).
            (Some(_), None) if !to_offset.is_null() => answer(Err(shunt_sockets::sys::Errno(libc::ESPIPE))),
            (None, Some(_)) if !from_offset.is_null() => answer(Err(shunt_sockets::sys::Errno(libc::ESPIPE))),
            (Some(_), None) if !from_offset.is_null() => answer(Err(shunt_sockets::sys::Errno(libc::EINVAL))),
            (None, Some(_)) if !to_offset.is_null() => answer(Err(shunt_sockets::sys::Errno(libc::EINVAL))),
            (Some(socket), None) => answer(transfer::splice_out(socket, from, to, length, flags)),
            (None, Some(socket)) => answer(transfer::splice_in(socket, to, from, length, flags)),
            (Some(_), Some(_)) => {
                set_errno(libc::EINVAL); // one end must be a pipe
                -1
            }
        }
    }
}

hook! {
    fn sendfile(out: c_int, from: c_int, offset: *mut i64, count: usize) -> isize {
        match table::stream(out) {
            Some(socket) => answer(transfer::send_file(socket, out, from, offset, count)),
            None => real::sendfile(out, from, offset, count),
        }
    }
    fn sendfile64(out: c_int, from: c_int, offset: *mut i64, count: usize) -> isize {
        sendfile(out, from, offset, count)
    }
}

// ---- signals -----------------------------------------------------------------------------------------------------

hook! {
    fn sigaction(number: c_int, action: *const c_void, old: *mut c_void) -> c_int {
        crate::signals::install(number, action, old)
    }
    fn __sigaction(number: c_int, action: *const c_void, old: *mut c_void) -> c_int {
        crate::signals::install(number, action, old)
    }
    fn signal(number: c_int, handler: usize) -> usize {
        crate::signals::set(number, handler, crate::signals::Style::Bsd)
    }
    fn bsd_signal(number: c_int, handler: usize) -> usize {
        signal(number, handler)
    }
    fn ssignal(number: c_int, handler: usize) -> usize {
        signal(number, handler)
    }
    fn sysv_signal(number: c_int, handler: usize) -> usize {
        crate::signals::set(number, handler, crate::signals::Style::SystemV)
    }
    fn __sysv_signal(number: c_int, handler: usize) -> usize {
        sysv_signal(number, handler)
    }
    fn sigset(number: c_int, handler: usize) -> usize {
        crate::signals::set_and_unblock(number, handler)
    }
    fn sigignore(number: c_int) -> c_int {
        let result = crate::signals::set(number, libc::SIG_IGN, crate::signals::Style::Plain);
        if result == libc::SIG_ERR { -1 } else { 0 }
    }
    fn siginterrupt(number: c_int, interrupts: c_int) -> c_int {
        crate::signals::interrupts(number, interrupts != 0)
    }
}

// ---- wait --------------------------------------------------------------------------------------------------------

/// Whether a set of `count` entries is one to look at. More than descriptors can be open is EINVAL, whatever lies behind
/// the pointer: the kernel says so.
fn plausible(count: nfds_t) -> bool {
    count > 0 && (count <= 1024 || count <= shunt_sockets::sys::calls::soft_limit(libc::RLIMIT_NOFILE))
}

/// poll(2) and ppoll(2). `None`: nothing of ours is in the set, or the set or the mask faults: the kernel's to answer.
#[inline(always)]
pub(crate) unsafe fn poll_any(set: *mut pollfd, count: nfds_t, limit: Option<u64>, mask: *const sigset_t) -> Option<c_int> {
    // SAFETY: the program's pointers, which may fault.
    unsafe {
        if !plausible(count) {
            return None;
        }
        let mut entries = Entries::new();
        if !entries.read(set, count as usize) || !poll::concerns_us(entries.slice()) || !readable_mask(mask) {
            return None;
        }
        let frame = entries.frame();
        let result = Query::new(entries.slice(), poll::deadline(limit), mask, frame).poll();
        Some(answer(entries.write(set).and(result)) as c_int)
    }
}

/// Whether the kernel would not find EFAULT in a signal mask.
pub(crate) unsafe fn readable_mask(mask: *const sigset_t) -> bool {
    // SAFETY: the program's pointer, which may fault.
    mask.is_null() || unsafe { user::read(mask.cast::<u64>()) }.is_ok()
}

/// A relative time in ns; `None`: it makes no sense or faults, for the kernel to say.
pub(crate) unsafe fn duration(time: *const timespec) -> Option<Option<u64>> {
    if time.is_null() {
        return Some(None);
    }
    // SAFETY: the program's pointer, which may fault.
    match unsafe { user::read(time) } {
        Ok(t) if t.tv_sec >= 0 && (0..1_000_000_000).contains(&t.tv_nsec) => {
            Some(Some((t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec as u64)))
        }
        _ => None,
    }
}

fn milliseconds(timeout: c_int) -> Option<u64> {
    (timeout >= 0).then_some(timeout as u64 * 1_000_000)
}

hook! {
    fn poll(set: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        cancel::point();
        match poll_any(set, count, milliseconds(timeout), core::ptr::null()) {
            Some(result) => result,
            None => real::poll(set, count, timeout),
        }
    }
    fn __poll(set: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        cancel::point();
        poll(set, count, timeout)
    }
    fn __poll_chk(set: *mut pollfd, count: nfds_t, timeout: c_int, room: usize) -> c_int {
        cancel::point();
        if room / core::mem::size_of::<pollfd>() < count as usize {
            return real::__poll_chk(set, count, timeout, room);
        }
        poll(set, count, timeout)
    }
    fn ppoll(set: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        cancel::point();
        let Some(limit) = duration(timeout) else { return real::ppoll(set, count, timeout, mask) };
        match poll_any(set, count, limit, mask) {
            Some(result) => result,
            None => real::ppoll(set, count, timeout, mask),
        }
    }
    fn __ppoll_chk(set: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: usize) -> c_int {
        cancel::point();
        if room / core::mem::size_of::<pollfd>() < count as usize {
            return real::__ppoll_chk(set, count, timeout, mask, room);
        }
        ppoll(set, count, timeout, mask)
    }
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int {
        cancel::point();
        let mut sets = selecting::Sets::new([read.cast(), write.cast(), except.cast()]);
        if !sets.read(count) || !sets.concern_us() {
            return real::select(count, read, write, except, timeout);
        }
        let limit = if timeout.is_null() {
            None
        } else {
            match user::read(timeout) {
                Ok(t) if t.tv_sec >= 0 && t.tv_usec >= 0 => {
                    Some((t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_usec as u64 * 1000))
                }
                _ => return real::select(count, read, write, except, timeout),
            }
        };
        let deadline = poll::deadline(limit);
        let result = selecting::select(&mut sets, deadline, core::ptr::null());
        // Linux writes the time that is left back, and forgives a fault.
        if let Some(limit) = limit {
            let left = if limit == 0 { 0 } else { deadline.saturating_sub(shunt_sockets::sys::clock::monotonic_ns()) };
            let left = timeval { tv_sec: (left / 1_000_000_000) as i64, tv_usec: (left % 1_000_000_000 / 1000) as i64 };
            let _ = user::write(timeout, left);
        }
        answer(result) as c_int
    }
    fn __select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int {
        cancel::point();
        select(count, read, write, except, timeout)
    }
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        cancel::point();
        let mut sets = selecting::Sets::new([read.cast(), write.cast(), except.cast()]);
        match duration(timeout) {
            Some(limit) if sets.read(count) && sets.concern_us() && readable_mask(mask) => {
                answer(selecting::select(&mut sets, poll::deadline(limit), mask)) as c_int
            }
            _ => real::pselect(count, read, write, except, timeout, mask),
        }
    }
    fn epoll_create(size: c_int) -> c_int {
        let fd = real::epoll_create(size);
        new_set(fd)
    }
    fn epoll_create1(flags: c_int) -> c_int {
        let fd = real::epoll_create1(flags);
        new_set(fd)
    }
    fn epoll_ctl(epfd: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        let mut set = table::get(epfd).set();
        if set.is_none() && table::get(epfd).kind() == Kind::Foreign && matches!(table::get(fd).kind(), Kind::Stream | Kind::Listener) {
            // A set made by a call that we do not see, if it is one: then the kernel does not know the descriptor in it.
            use shunt_sockets::sys::{calls, Errno};
            match calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut()) {
                Ok(_) | Err(Errno(libc::ENOENT)) => {}
                Err(_) => return real::epoll_ctl(epfd, operation, fd, event),
            }
            epoll::created(epfd);
            set = table::get(epfd).set();
        }
        if let Some(set) = set {
            if let Some(result) = epoll::control(set, epfd, operation, fd, event) {
                return answer(result) as c_int;
            }
            let result = real::epoll_ctl(epfd, operation, fd, event);
            if result == 0 {
                epoll::foreign(set, operation);
            }
            return result;
        }
        if let (libc::EPOLL_CTL_ADD, Some(socket)) = (operation, table::datagram(fd)) {
            socket.pin(datagram::pin::SET); // a set of which we know nothing
        }
        real::epoll_ctl(epfd, operation, fd, event)
    }
    fn epoll_wait(epfd: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int {
        cancel::point();
        match table::get(epfd).set() {
            Some(set) => wait_in(set, epfd, events, count, milliseconds(timeout), core::ptr::null(), || {
                real::epoll_wait(epfd, events, count, timeout)
            }),
            None => real::epoll_wait(epfd, events, count, timeout),
        }
    }
    fn epoll_pwait(epfd: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t) -> c_int {
        cancel::point();
        match table::get(epfd).set() {
            Some(set) => wait_in(set, epfd, events, count, milliseconds(timeout), mask, || {
                real::epoll_pwait(epfd, events, count, timeout, mask)
            }),
            None => real::epoll_pwait(epfd, events, count, timeout, mask),
        }
    }
    fn epoll_pwait2(epfd: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        cancel::point();
        match (table::get(epfd).set(), duration(timeout)) {
            (Some(set), Some(limit)) => wait_in(set, epfd, events, count, limit, mask, || {
                real::epoll_pwait2(epfd, events, count, timeout, mask)
            }),
            _ => real::epoll_pwait2(epfd, events, count, timeout, mask),
        }
    }
}

/// Waits in a set of ours, or in the kernel's if it holds nothing of ours (which another thread may change meanwhile).
unsafe fn wait_in(
    set: &'static epoll::Set,
    epfd: c_int,
    events: *mut epoll_event,
    count: c_int,
    limit: Option<u64>,
    mask: *const sigset_t,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's array.
    unsafe {
        let mut deadline = 0;
        if epoll::plain(set) || !readable_mask(mask) {
            if limit != Some(0) {
                deadline = poll::deadline(limit);
            }
            if let Some(got) = epoll::wait_plain(set, !readable_mask(mask), kernel) {
                if let Some(translated) = epoll::leave_plain(set, events, got.max(0) as usize) {
                    return if got < 0 { got } else { translated as c_int };
                }
            }
        } else {
            deadline = poll::deadline(limit);
        }
        answer(epoll::wait(set, epfd, events, count, deadline, mask)) as c_int
    }
}

fn new_set(fd: c_int) -> c_int {
    if fd >= 0 && global::ready() && global::options().accelerate {
        table::take(fd);
        epoll::created(fd);
    }
    fd
}

// ---- descriptors -------------------------------------------------------------------------------------------------

hook! {
    fn close(fd: c_int) -> c_int {
        cancel::point();
        match table::get(fd).kind() {
            Kind::Private => {
                set_errno(libc::EBADF);
                -1
            }
            // A close that lingers may take long, and is the kernel's.
            Kind::Foreign | Kind::Tcp => {
                descriptor::closing(fd);
                real::close(fd)
            }
            _ => {
                // One step to handlers: they find the descriptor whole, or gone.
                let _section = Section::begin();
                descriptor::closing(fd);
                real::close(fd)
            }
        }
    }
    fn __close(fd: c_int) -> c_int {
        cancel::point();
        close(fd)
    }
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        answer(descriptor::close_range(first, last, flags as u32)) as c_int
    }
    fn closefrom(first: c_int) -> () {
        let _ = descriptor::close_range(first.max(0) as u32, u32::MAX, 0);
    }
    fn dup(fd: c_int) -> c_int {
        if table::get(fd).kind() == Kind::Private {
            set_errno(libc::EBADF);
            return -1;
        }
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
        let word = table::get(fd);
        if let Some(socket) = word.socket() {
            if let Some(result) = descriptor::ioctl(fd, word.kind(), socket, request, argument as *mut u8) {
                return answer(result) as c_int;
            }
        }
        if let Some(socket) = word.datagram() {
            return datagram_ioctl(fd, socket, request, argument);
        }
        real::ioctl(fd, request, argument)
    }
}

/// ioctl on a datagram socket: the kernel decides, but for the size of a datagram that lies in the inbox.
unsafe fn datagram_ioctl(fd: c_int, socket: &'static datagram::Datagram, request: c_ulong, argument: usize) -> c_int {
    // SAFETY: as ioctl(2).
    unsafe {
        let result = real::ioctl(fd, request, argument);
        let integer = argument as *mut c_int;
        match request {
            libc::FIONREAD if result == 0 => {
                if let Some(size) = datagram::next_size(socket) {
                    integer.write_unaligned(size as c_int);
                }
            }
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
    if !global::ready() || shunt_sockets::sys::calls::fcntl(from, libc::F_GETFD, 0).is_err() {
        return duplicate();
    }
    let _section = Section::begin();
    descriptor::make_room(to);
    let was = table::take(to);
    // What lies there ends first: it may need its descriptor still, to ring or to be kept, and afterwards the number is
    // another file's, into which a doorbell would be a byte of the stream.
    descriptor::release(was, to);
    let result = duplicate();
    if result >= 0 {
        descriptor::duplicated(from, to);
        if to <= 2 {
            crate::stdio::standard(to);
        }
    }
    result
}

unsafe fn fcntl_any(fd: c_int, command: c_int, argument: usize) -> c_int {
    let word = table::get(fd);
    if let Some(socket) = word.socket() {
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
    if let (true, libc::F_SETFL, Some(socket)) = (result >= 0, command, word.datagram()) {
        datagram::options::set_flags(socket, argument as c_int);
    }
    if result >= 0 && (command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC) {
        descriptor::duplicated(fd, result);
    }
    result
}

// ---- threads -----------------------------------------------------------------------------------------------------

#[no_mangle]
unsafe extern "C" fn pthread_cancel(thread: usize) -> c_int {
    // SAFETY: as the function itself.
    unsafe { cancel::pthread_cancel(thread) }
}

#[no_mangle]
unsafe extern "C" fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int {
    // SAFETY: as the function itself.
    unsafe { cancel::pthread_setcanceltype(kind, old) }
}

// ---- processes ---------------------------------------------------------------------------------------------------

/// Address space of the descriptor table and other constant parts of this library.
const OWN_SPACE: u64 = 32 << 20;

unsafe fn widened(resource: c_int, limit: *const rlimit) -> Option<rlimit> {
    if resource != libc::RLIMIT_AS as c_int || !global::ready() {
        return None;
    }
    // SAFETY: the caller's limits, which may fault: that is the kernel's to say.
    let mut wider = unsafe { user::read(limit) }.ok()?;
    let _setup = global::SETUP.lock()?;
    let ours = shunt_sockets::link::address_space() + OWN_SPACE;
    wider.rlim_cur = wider.rlim_cur.saturating_add(ours);
    wider.rlim_max = wider.rlim_max.saturating_add(ours);
    // Only root may go beyond the hard limit that there is.
    let mut now = libc::rlimit64 { rlim_cur: 0, rlim_max: u64::MAX };
    let _ = shunt_sockets::sys::calls::prlimit(0, resource as u32, core::ptr::null(), &mut now);
    wider.rlim_max = wider.rlim_max.min(now.rlim_max);
    wider.rlim_cur = wider.rlim_cur.min(wider.rlim_max);
    Some(wider)
}

hook! {
    fn fork() -> c_int {
        crate::copies::fork()
    }
    fn _Fork() -> c_int {
        crate::copies::fork_without_handlers()
    }
    fn vfork() -> c_int {
        crate::copies::vfork()
    }
    fn __vfork() -> c_int {
        crate::copies::vfork()
    }
    fn clone(function: *mut c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent_tid: usize, tls: usize, child_tid: usize) -> c_int {
        crate::copies::clone(function, stack, flags, argument, parent_tid, tls, child_tid)
    }
    fn _exit(status: c_int) -> () {
        crate::end::now(status)
    }
    fn _Exit(status: c_int) -> () {
        crate::end::now(status)
    }
    fn abort() -> () {
        crate::end::aborting();
        real::abort()
    }
    /// The program's limit on its address space does not mean ours: what links take is added, and hidden again.
    fn setrlimit(resource: c_int, limit: *const rlimit) -> c_int {
        match widened(resource, limit) {
            Some(limit) => real::setrlimit(resource, &limit),
            None => real::setrlimit(resource, limit),
        }
    }
    fn setrlimit64(resource: c_int, limit: *const rlimit) -> c_int {
        setrlimit(resource, limit)
    }
    fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
        if let Some(result) = crate::direct::call(number, a, b, c, d, e, f) {
            return result as c_long;
        }
        real::syscall(number, a, b, c, d, e, f)
    }
}
