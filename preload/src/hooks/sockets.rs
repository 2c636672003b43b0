//! Sockets: made, bound, connected, accepted, asked about.

use crate::errno::{answer, set_errno};
use crate::{cancel, locals, real};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use shunt_calls::libc::{self, sockaddr, socklen_t};
use shunt_inbox::datagram::Datagram;
use shunt_inbox::{datagram, local};
use shunt_rendezvous::options::names;
use shunt_rendezvous::{
    accept as accepting, connect as connecting, duplicate_names, listen as listening, opening, options, socket_cache,
};
use shunt_segment::process::kind as row_kind;
use shunt_segment::reason::Reason;
use shunt_sockets::about;
use shunt_stream as stream;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::kernel_sockets;
use shunt_sys::{check, syscall, user};
use shunt_table::process::status_page;
use shunt_table::table::Kind;
use shunt_table::{global, sockaddr as addresses, table};

fn internet_datagram(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    let base = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    (domain == libc::AF_INET || domain == libc::AF_INET6)
        && base == libc::SOCK_DGRAM
        && (protocol == 0 || protocol == libc::IPPROTO_UDP)
}

/// accept4(2); `kernel`: the call that the program made.
#[inline(always)]
unsafe fn accept_any(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    let word = table::get(fd);
    match (word.kind(), word.object::<Socket>()) {
        // SAFETY: passed on.
        (Kind::Listener, Some(socket)) => answer(unsafe { accepting::accept(fd, socket, address, length, flags) }) as c_int,
        (Kind::Stream, _) => {
            set_errno(libc::EINVAL);
            -1
        }
        _ => {
            let accepted = kernel();
            if accepted >= 0 {
                table::take(accepted);
                if word.kind() == Kind::Tcp {
                    kernel_sockets::accepted(accepted, flags & libc::SOCK_NONBLOCK != 0);
                }
                if let Some(listener) = word.object::<Datagram>().filter(|socket| socket.is_local()) {
                    local::accepted(listener, accepted, flags);
                }
            }
            accepted
        }
    }
}

/// socket(2) gave `fd`.
unsafe fn made(fd: c_int, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if fd >= 0 {
        opening::opened(fd, domain, kind, protocol);
        if global::ready() && internet_datagram(domain, kind, protocol) && datagram::enabled() {
            datagram::created(fd, domain, kind & libc::SOCK_NONBLOCK != 0);
        }
        local::created(fd, domain, kind);
    }
    fd
}

/// socket(2) by number. It is the kernel's: a library behind this one may have a `socket` of its own that gets here (mptcpize's).
///
/// # Safety
/// None of its own.
pub unsafe fn socket_by_number(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: a plain system call.
    let result = unsafe { check(syscall!(libc::SYS_socket, domain, kind, protocol)) };
    let fd = answer(result.map(|fd| fd as isize)) as c_int;
    // SAFETY: as the C function.
    unsafe { made(fd, domain, kind, protocol) }
}

hook! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        if let Some(fd) = opening::from_spare(domain, kind, protocol) {
            return fd;
        }
        made(real::socket(domain, kind, protocol), domain, kind, protocol)
    }

    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int {
        let result = real::socketpair(domain, kind, protocol, ends);
        if result == 0 {
            let ends = [ends.read_unaligned(), ends.add(1).read_unaligned()];
            for fd in ends {
                table::take(fd);
            }
            local::paired(ends, domain, kind);
        }
        result
    }

    fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        let word = table::get(fd);
        if let (Kind::Stream, Some(socket)) = (word.kind(), word.object::<Socket>()) {
            return answer(options::refuse_bind(socket, address, length)) as c_int;
        }
        touched(fd);
        let to = if word.kind() == Kind::Tcp { addresses::read(address, length) } else { None };
        let bound = to.is_some_and(|(_, to)| duplicate_names::bind(fd, &to, address, length));
        let result = if bound { 0 } else { real::bind(fd, address, length) };
        if let (0, Some(socket)) = (result, word.object::<Socket>()) {
            socket.set(flag::BOUND);
        }
        if let (0, Some(socket)) = (result, word.object::<Datagram>().filter(|socket| !socket.is_local())) {
            datagram::bound(fd, socket);
        }
        result
    }

    fn listen(fd: c_int, backlog: c_int) -> c_int {
        let word = table::get(fd);
        match (word.kind(), word.object::<Socket>()) {
            (Kind::Stream, _) => {
                set_errno(libc::EINVAL);
                -1
            }
            (Kind::Tcp | Kind::Listener, Some(socket)) => {
                let prepared = listening::prepare(fd, socket, backlog);
                let result = real::listen(fd, backlog);
                match (result, prepared) {
                    (0, Ok(())) => listening::opened(fd, socket),
                    (0, Err(reason)) => status_page::note(fd, row_kind::TCP, reason, None),
                    _ => listening::withdraw(fd, socket),
                }
                result
            }
            _ => real::listen(fd, backlog),
        }
    }

    fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        cancel::point();
        accept_any(fd, address, length, 0, || real::accept(fd, address, length))
    }

    fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
        cancel::point();
        accept_any(fd, address, length, flags, || real::accept4(fd, address, length, flags))
    }

    fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        cancel::point();
        connect_any(fd, address, length)
    }
    fn __connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        cancel::point();
        connect_any(fd, address, length)
    }

    /// The C library would ask the companion.
    fn sockatmark(fd: c_int) -> c_int {
        let mut mark: c_int = 0;
        const SIOCATMARK: core::ffi::c_ulong = 0x8905;
        if super::descriptors::ioctl(fd, SIOCATMARK, &raw mut mark as usize) < 0 {
            return -1;
        }
        mark
    }

    fn shutdown(fd: c_int, how: c_int) -> c_int {
        match shunt_stream::socket::stream(fd) {
            Some(socket) => answer(stream::shutdown(socket, fd, how)) as c_int,
            None => {
                if let Some(socket) = shunt_table::table::find::<Datagram>(fd) {
                    datagram::options::plain(socket, datagram::pin::SHUT);
                    datagram::options::settle_sends(socket);
                }
                touched(fd);
                let result = match local::socket(fd) {
                    Some(socket) => local::shut(socket, || real::shutdown(fd, how)),
                    None => real::shutdown(fd, how),
                };
                if result < 0 && (0..=2).contains(&how) {
                    // The kernel says ENOTCONN, and the connection that is made afterwards begins shut down all the same.
                    if let (Kind::Tcp, Some(socket)) = (table::get(fd).kind(), table::get(fd).object::<Socket>()) {
                        socket.set(flag::PLAIN);
                    }
                }
                if let (Kind::Listener, Some(socket)) = (table::get(fd).kind(), table::get(fd).object::<Socket>()) {
                    listening::stopped(fd, socket);
                }
                result
            }
        }
    }

    fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        match shunt_stream::socket::stream(fd) {
            Some(socket) => answer(names::local(socket, address, length)) as c_int,
            None => match table::get(fd).object::<Socket>().and_then(|socket| names::unconnected(socket, fd, address, length)) {
                Some(told) => answer(told) as c_int,
                None => real::getsockname(fd, address, length),
            },
        }
    }

    fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        match shunt_stream::socket::stream(fd) {
            Some(socket) => answer(names::remote(socket, fd, address, length)) as c_int,
            None => real::getpeername(fd, address, length),
        }
    }

    fn getsockopt(fd: c_int, level: c_int, name: c_int, data: *mut c_void, length: *mut socklen_t) -> c_int {
        if level == about::LEVEL && global::ready() && global::options().accelerate {
            return answer(about::get(fd, name, data.cast(), length)) as c_int;
        }
        shunt_stream::beside::before_asking(fd);
        match shunt_stream::socket::stream(fd) {
            Some(socket) => answer(options::get(socket, fd, level, name, data.cast(), length)) as c_int,
            None => {
                if (level, name) == (libc::SOL_SOCKET, libc::SO_COOKIE) {
                    touched(fd); // it is given out now, and for good
                    if let (Kind::Tcp, Some(socket)) = (table::get(fd).kind(), table::get(fd).object::<Socket>()) {
                        options::note_get(fd, socket, level, name);
                    }
                }
                let result = real::getsockopt(fd, level, name, data, length);
                if let (0, libc::SOL_SOCKET, libc::SO_ERROR, Some(socket)) = (result, level, name, local::socket(fd)) {
                    locals::error_option(fd, socket, data, length);
                }
                result
            }
        }
    }

    fn setsockopt(fd: c_int, level: c_int, name: c_int, data: *const c_void, length: socklen_t) -> c_int {
        if level == about::LEVEL && global::ready() && global::options().accelerate {
            return answer(about::set(fd, name, data.cast(), length)) as c_int;
        }
        match (level, name) {
            // Numbers of completions, times of arrival (the last are for 64-bit time) and counts of what waits (TCP_INQ) are for one carrier to give.
            (libc::SOL_SOCKET, libc::SO_ZEROCOPY | libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS | libc::SO_TIMESTAMPING | 63..=65)
            | (libc::IPPROTO_TCP, 36) => shunt_stream::progress::for_kernel(fd),
            _ => {}
        }
        let _stays = shunt_rendezvous::exchange::stays(fd);
        let word = table::get(fd);
        match (word.kind(), word.object::<Socket>()) {
            (Kind::Stream, Some(socket)) => answer(options::set(socket, fd, level, name, data.cast(), length)) as c_int,
            (Kind::Tcp | Kind::Listener, Some(socket)) => {
                touched(fd);
                let result = real::setsockopt(fd, level, name, data, length);
                kernel_sockets::option_set(fd, level, name);
                if result == 0 {
                    if word.kind() == Kind::Listener {
                        shunt_rendezvous::listen::options::note_set_on_listener(fd, socket, level, name, data.cast(), length);
                    } else {
                        options::note_given(fd, socket, level, name, data.cast(), length);
                    }
                    if options::only_the_kernel_can(level, name) {
                        socket.set(flag::FILTERED);
                    }
                }
                result
            }
            _ => {
                let result = real::setsockopt(fd, level, name, data, length);
                kernel_sockets::option_set(fd, level, name);
                if let (0, Some(socket)) = (result, word.object::<Datagram>()) {
                    if socket.is_local() {
                        let value = if length >= 4 { user::read(data.cast::<c_int>()).unwrap_or(1) } else { 1 };
                        local::option_set(socket, level, name, value);
                        local::limit_set(socket, level, name, data.cast(), length);
                    } else {
                        datagram::options::set(fd, socket, level, name, data.cast(), length);
                    }
                }
                result
            }
        }
    }
}

unsafe fn connect_any(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    shunt_rendezvous::answers::begins();
    // SAFETY: the caller gives what connect asks for.
    unsafe {
        let word = table::get(fd);
        let socket = match (word.kind(), word.object::<Socket>()) {
            (Kind::Stream, Some(socket)) => {
                if let Err(error) = addresses::check(address, length) {
                    return answer(Err(error)) as c_int;
                }
                if length < 2 {
                    set_errno(libc::EINVAL);
                    return -1;
                }
                let family = user::read(&raw const (*address).sa_family);
                if family.is_ok_and(|family| family as c_int == libc::AF_UNSPEC) {
                    let _alone = socket.has(flag::REMOTE).then(shunt_rendezvous::exchange::exclusively);
                    let _stays = shunt_rendezvous::exchange::stays(fd).filter(|_| socket.has(flag::LIFELINE));
                    if !shunt_stream::socket::is_of(fd, socket) {
                        return real::connect(fd, address, length); // it has just become the kernel's
                    }
                    return answer(shunt_rendezvous::disconnect::disconnect(fd, socket)) as c_int;
                }
                if connecting::first_success(socket) {
                    return 0;
                }
                set_errno(libc::EISCONN);
                return -1;
            }
            (Kind::Tcp, Some(socket)) if !socket.has(flag::KERNEL) => socket,
            _ => {
                let result = real::connect(fd, address, length);
                if let (0, Some(socket)) = (result, word.object::<Datagram>()) {
                    if socket.is_local() {
                        local::connected(fd, socket);
                    } else {
                        datagram::moved_to_address(fd, socket);
                    }
                }
                if let (0, Kind::Listener, Some(socket)) = (result, word.kind(), word.object::<Socket>()) {
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
                    shunt_rendezvous::carriers::Outcome::Connected => {
                        crate::log::announce(fd);
                        if socket.has(flag::CONNECTING) {
                            set_errno(libc::EINPROGRESS);
                            return -1;
                        }
                        return 0;
                    }
                    shunt_rendezvous::carriers::Outcome::Kernel(reason) => reason,
                    shunt_rendezvous::carriers::Outcome::Done(result, reason) => {
                        let errno = result.map_or_else(|error| error.0, |_| 0);
                        if errno == 0 || errno == libc::EINPROGRESS || errno == libc::EINTR {
                            socket.set(flag::KERNEL);
                            status_page::note(fd, row_kind::TCP, reason, None);
                            crate::log::explain(fd, reason);
                        }
                        return answer(result) as c_int;
                    }
                }
            }
            _ => Reason::UnsupportedSocket,
        };
        touched(fd);
        let result = real::connect(fd, address, length);
        let errno = if result < 0 { crate::errno::errno() } else { 0 };
        if result == 0 || errno == libc::EINPROGRESS || errno == libc::EINTR {
            socket.set(flag::KERNEL);
            status_page::note(fd, row_kind::TCP, reason, None);
            crate::log::explain(fd, reason);
            set_errno(errno);
        }
        result
    }
}

/// The kernel is about to change the open file of a TCP socket: no spare may share it.
pub(super) fn touched(fd: c_int) {
    if let Some(socket) = table::get(fd).object::<Socket>() {
        socket_cache::spoil(socket);
    }
}

/// An IPv4 address on an IPv6 socket, or the other way round, is the kernel's to refuse.
fn fits_family(socket: c_int, address: c_int) -> bool {
    socket == address
}
