//! close, dup, fcntl and ioctl: what happens to our objects when descriptors come and go.

use core::sync::atomic::Ordering;
use shunt_epoll::{self as epoll, Set};
use shunt_inbox::datagram::Datagram;
use shunt_pipes::mapped_files;
use shunt_rendezvous::{close, listen, socket_cache};
use shunt_stream::options::option_probe::OptionProbe;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::{holding, owner};
use shunt_stream::{corked, due, mark, progress};
use shunt_sys::libc::{self, c_int};
use shunt_sys::{calls, user, Result};
use shunt_table::process::status_page;
use shunt_table::table::{Kind, Word};
use shunt_table::{private, table};

/// Lets go of what a descriptor was.
pub fn release(word: Word, fd: i32) {
    match word.kind() {
        Kind::Stream | Kind::Listener | Kind::Tcp => {
            if let Some(socket) = word.object::<Socket>() {
                socket.hold.await_ringers();
                if socket.references.fetch_sub(1, Ordering::SeqCst) == 1 && !holding::linger(socket, fd) {
                    close::end(socket, fd, true);
                }
            }
        }
        Kind::Epoll => {
            if let Some(set) = word.object::<Set>() {
                epoll::release(set, fd);
            }
        }
        Kind::Datagram => {
            if let Some(socket) = word.object::<Datagram>() {
                shunt_inbox::datagram::release(socket, fd);
            }
        }
        Kind::Foreign => mapped_files::closing(fd),
        Kind::Private => {}
    }
}

/// `to` has become a duplicate of `from`.
pub fn duplicated(from: i32, to: i32) {
    let word = table::get(from);
    match word.kind() {
        Kind::Foreign | Kind::Private => {
            table::take(to);
            return;
        }
        Kind::Epoll => {
            if let Some(set) = word.object::<Set>() {
                epoll::retain(set);
                shunt_table::table::enter(to, Kind::Epoll, set);
            }
        }
        Kind::Datagram => {
            if let Some(socket) = word.object::<Datagram>() {
                socket.references.fetch_add(1, Ordering::AcqRel);
                shunt_table::table::enter(to, Kind::Datagram, socket);
            }
        }
        kind => {
            if let Some(socket) = word.object::<Socket>() {
                socket.references.fetch_add(1, Ordering::AcqRel);
                socket.clear(flag::CLOSE_ON_EXEC_KNOWN);
                shunt_table::table::enter(to, kind, socket);
            }
        }
    }
    status_page::copy(from, to);
}

/// Makes room at `fd`, which the program wants for itself: if one of ours lies there it moves away. Errors: EMFILE, when it
/// has no other number to go to.
pub fn make_room(fd: i32) -> Result<()> {
    if table::get(fd).kind() == Kind::Private {
        let moved = private::evacuate(fd)?;
        crate::process::moved(fd, moved);
        table::take(fd);
    }
    Ok(())
}

/// fcntl(2) on one of ours. `None`: the kernel's answer is right as it is.
pub fn fcntl(fd: i32, kind: Kind, socket: &'static Socket, command: c_int, argument: usize) -> Option<Result<isize>> {
    match command {
        libc::F_SETFD => socket.clear(flag::CLOSE_ON_EXEC_KNOWN),
        libc::F_SETFL if argument as i32 & !(libc::O_NONBLOCK | libc::O_ACCMODE) == 0 => {}
        libc::F_GETFL | libc::F_GETFD => {}
        _ => socket_cache::spoil(socket),
    }
    let kind = owner::before_async(socket, kind, fd, command == libc::F_SETFL && argument as i32 & libc::O_ASYNC != 0);
    match (command, kind) {
        (libc::F_SETFL, Kind::Stream | Kind::Tcp) => {
            let result = calls::fcntl(fd, command, argument);
            if result.is_ok() {
                set_nonblocking(socket, argument as i32 & libc::O_NONBLOCK != 0);
                owner::set_async(socket, kind, argument as i32 & libc::O_ASYNC != 0);
            }
            Some(result.map(|v| v as isize))
        }
        (libc::F_SETFL, Kind::Listener) => {
            // Its kernel flag stays non-blocking: accept waits for two queues.
            let result = calls::fcntl(fd, command, argument | libc::O_NONBLOCK as usize);
            if result.is_ok() {
                listen::set_nonblocking(socket, argument as i32 & libc::O_NONBLOCK != 0);
            }
            Some(result.map(|v| v as isize))
        }
        (libc::F_SETOWN | owner::F_SETOWN_EX | owner::F_SETSIG, _) => {
            owner::changes(socket, kind, fd);
            None
        }
        (libc::F_GETFL, Kind::Listener) => Some(calls::fcntl(fd, command, 0).map(|flags| {
            let hidden = if listen::nonblocking(socket) { 0 } else { libc::O_NONBLOCK };
            (flags & !hidden) as isize
        })),
        _ => None,
    }
}

fn set_nonblocking(socket: &Socket, on: bool) {
    if on {
        socket.set(flag::NONBLOCK);
    } else {
        socket.clear(flag::NONBLOCK);
    }
}

const SIOCATMARK: u64 = 0x8905;
const SIOCOUTQNSD: u64 = 0x894B;

/// Whether a request of ioctl(2) changes what the descriptor, or its open file, is.
pub fn changes(request: u64) -> bool {
    matches!(request, libc::FIONBIO | libc::FIOASYNC | libc::FIOCLEX | libc::FIONCLEX | owner::FIOSETOWN | owner::SIOCSPGRP)
}

/// ioctl(2) on one of ours. `None`: the kernel's answer is right as it is.
///
/// # Safety
/// `argument` is what the request asks for.
pub unsafe fn ioctl(fd: i32, kind: Kind, socket: &'static Socket, request: u64, argument: *mut u8) -> Option<Result<isize>> {
    let integer = argument.cast::<c_int>();
    let answer = |value: usize| {
        // SAFETY: the request's argument is an int of the program's.
        unsafe { user::write(integer, value.min(c_int::MAX as usize) as c_int) }.map(|()| 0)
    };
    match request {
        libc::FIOCLEX | libc::FIONCLEX => socket.clear(flag::CLOSE_ON_EXEC_KNOWN),
        libc::FIONBIO | libc::FIONREAD => {}
        _ => socket_cache::spoil(socket),
    }
    match (request, kind) {
        (libc::FIONBIO, Kind::Stream | Kind::Listener | Kind::Tcp) => {
            // SAFETY: the request's argument is an int of the program's.
            let on = match unsafe { user::read(integer) } {
                Ok(value) => value != 0,
                Err(error) => return Some(Err(error)),
            };
            if kind == Kind::Listener {
                listen::set_nonblocking(socket, on);
                return Some(Ok(0));
            }
            let result = calls::ioctl(fd, request, argument as usize);
            if result.is_ok() {
                set_nonblocking(socket, on);
            }
            Some(result.map(|v| v as isize))
        }
        (libc::FIOASYNC, Kind::Stream | Kind::Listener | Kind::Tcp) => {
            // SAFETY: the request's argument is an int of the program's.
            let on = match unsafe { user::read(integer) } {
                Ok(value) => value != 0,
                Err(error) => return Some(Err(error)),
            };
            let kind = owner::before_async(socket, kind, fd, on);
            let result = calls::ioctl(fd, request, argument as usize);
            if result.is_ok() {
                owner::set_async(socket, kind, on);
            }
            Some(result.map(|v| v as isize))
        }
        (owner::FIOSETOWN | owner::SIOCSPGRP, _) => {
            owner::changes(socket, kind, fd);
            None
        }
        (libc::FIONREAD, Kind::Stream) => {
            corked::look(socket);
            due::keep();
            // A program may ask until there is something, and do nothing else.
            progress::drive();
            Some(answer(mark::readable(socket)))
        }
        (libc::TIOCOUTQ | SIOCOUTQNSD, Kind::Stream) => {
            progress::drive();
            Some(answer(shunt_stream::room::unacknowledged(socket)))
        }
        (request, Kind::Stream) if about_interfaces(request) => {
            Some(OptionProbe::fresh(socket).and_then(|probe| probe.ioctl(request, argument as usize)))
        }
        (SIOCATMARK, Kind::Stream) => Some(answer(shunt_stream::mark::at_mark(socket) as usize)),
        _ => None,
    }
}

/// Requests that an internet socket answers about interfaces, neighbours and routes (netdevice(7), arp(7)), and SIOCGSTAMP.
fn about_interfaces(request: u64) -> bool {
    matches!(request, 0x8906 | 0x8907 | 0x890b..=0x890d | 0x8915..=0x891c | 0x8953..=0x8955 | 0x8960..=0x8962)
}

/// close_range(2) without CLOSE_RANGE_CLOEXEC: ours are let go, our private ones survive.
pub fn close_range(first: u32, last: u32, flags: u32) -> Result<isize> {
    if first > last || flags & !(libc::CLOSE_RANGE_UNSHARE | libc::CLOSE_RANGE_CLOEXEC) != 0 {
        return calls::close_range(first, last, flags).map(|()| 0);
    }
    if flags & libc::CLOSE_RANGE_CLOEXEC != 0 {
        let ours = || first..(table::high_water() as u32).min(last.saturating_add(1));
        let _stay = ours().find_map(|fd| shunt_rendezvous::exchange::stays(fd as i32));
        for fd in ours() {
            if let Some(socket) = table::get(fd as i32).object::<Socket>() {
                socket.clear(flag::CLOSE_ON_EXEC_KNOWN);
            }
        }
        return calls::close_range(first, last, flags).map(|()| 0);
    }
    mapped_files::closing_all();
    let end = || (table::high_water() as u32).min(last.saturating_add(1));
    // All of the program's first: what closes may leave a private descriptor behind, at any free number.
    let mut fd = first;
    while fd < end() {
        if table::get(fd as i32).kind() != Kind::Private {
            let _stays = shunt_rendezvous::exchange::stays(fd as i32);
            shunt_table::upcalls::operations::closing(fd as i32);
        }
        fd += 1;
    }
    let (mut start, mut flags) = (first, flags);
    for fd in (first..end()).filter(|&fd| table::get(fd as i32).kind() == Kind::Private) {
        if fd > start {
            calls::close_range(start, fd - 1, flags)?;
            flags = 0; // the table of descriptors is unshared once
        }
        start = fd + 1;
    }
    if start <= last {
        calls::close_range(start, last, flags)?;
    }
    Ok(0)
}
