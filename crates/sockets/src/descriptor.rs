//! close, dup, fcntl and ioctl: what happens to our objects when descriptors come and go.

use crate::global::SETUP;
use crate::options::judge::Judge;
use crate::process::report;
use crate::rendezvous::{held, kept, listen, offered, spare, taking};
use crate::socket::{self, flag, Socket};
use crate::stream::{corked, deadlines, urgent};
use crate::table::{self, Kind, Word};
use crate::waiting::{holding, owner, wait};
use crate::{epoll, link, private};
use core::sync::atomic::{fence, Ordering};
use shunt_segment::channel::{arm, release, state, word};
use shunt_sys::libc::{self, c_int};
use shunt_sys::{calls, thread, user, Result};

/// The program closes `fd`: lets go of what it was. The caller then closes the descriptor itself.
pub fn closing(fd: i32) {
    let word = table::take(fd);
    report::forget(fd);
    release(word, fd);
}

/// Lets go of what a descriptor was.
pub fn release(word: Word, fd: i32) {
    match word.kind() {
        Kind::Stream | Kind::Listener | Kind::Tcp => {
            if let Some(socket) = word.socket() {
                socket.hold.await_ringers();
                if socket.references.fetch_sub(1, Ordering::SeqCst) == 1 && !holding::linger(socket, fd) {
                    end(socket, fd, true);
                }
            }
        }
        Kind::Epoll => {
            if let Some(set) = word.set() {
                epoll::release(set, fd);
            }
        }
        Kind::Datagram => {
            if let Some(socket) = word.datagram() {
                crate::datagram::release(socket, fd);
            }
        }
        Kind::Foreign | Kind::Private => {}
    }
}

/// No descriptor of the program's refers to the socket any more, and no call waits for it. `fd` is the last descriptor;
/// `whole`: its number is the program's, so that the companion behind it may be kept for another connection.
pub(crate) fn end(socket: &'static Socket, fd: i32, whole: bool) {
    let unwatched = epoll::forget_socket(socket, fd);
    crate::handover::carried::ended(socket); // of whatever kind it has become since
    match socket.kind() {
        Kind::Stream => {
            // Threads that sleep on it all the same (there was no descriptor to keep) would sleep for ever: the companion
            // lives as long as they do, so neither the peer nor they would hear of the end.
            if socket.own().wait.sleepers.load(Ordering::Relaxed) > 0 && !socket.has(flag::SHARED) {
                let _ = calls::shutdown(fd, libc::SHUT_RDWR);
                socket.set(flag::SPENT);
            }
            finish(socket, fd, unwatched && whole)
        }
        kind => {
            spare::spoil(socket);
            if socket.inode.load(Ordering::Relaxed) != 0 {
                if let Some(_setup) = SETUP.lock() {
                    held::listener_closes(fd, socket);
                }
            }
            if kind == Kind::Listener {
                if !socket.has(flag::LISTENER_SHARED) {
                    crate::remote::listens_no_longer(socket.inode.load(Ordering::Relaxed));
                }
                crate::rendezvous::accept::refuse_waiting(socket);
            }
            offered::retire(socket);
            private::close_at(&socket.private_fd);
            if kind == Kind::Listener {
                if let Some(_setup) = SETUP.lock() {
                    crate::rendezvous::relatives::listener_closed();
                }
            }
        }
    }
    socket::free(socket);
}

/// The last descriptor of this process for a stream goes: tells the peer, unless other processes own the side too.
/// Then the kernel tells it when the last of them closes the companion. `free`: `fd` may be kept for another connection.
pub(crate) fn finish(socket: &'static Socket, fd: i32, free: bool) {
    let own = socket.own();
    let index = socket.link_index.load(Ordering::Relaxed) as usize;
    let mut keep = free && keep(socket, fd, index);
    // Wait for threads that are in the middle of a copy; a signal handler that interrupted one must not.
    let ended = crate::waiting::readiness::closed(socket);
    let (receiving, sending) = socket.lock_both();
    let last = leaves(socket);
    keep &= last && !socket.has(flag::SHARED);
    if last {
        let held = socket.outgoing().held() > 0;
        let fresh = socket.outgoing().announced() & word::FIN == 0;
        announce_end(socket, ended);
        let signalled = wait::peer_is_signalled(socket) && socket.outgoing().announced() & word::RST == 0;
        if fresh && signalled {
            wait::ring_by_closer(socket, fd); // beside the bell, or the hang-up: an end signals twice
        } else if signalled {
            own.receive.state.fetch_or(state::CLOSED_LATE, Ordering::AcqRel);
        }
        if (keep || held) && (fresh || !signalled) {
            // Where the companion is kept the kernel will not hang up: whoever sleeps must hear it from us, and a peer that shut its
            // receiving half hears nothing but the kernel. And who was not rung for bytes that were held back wakes by a bell for
            // half of what a hang-up costs.
            fence(Ordering::SeqCst);
            keep &= socket.peer().receive.state.load(Ordering::Relaxed) & state::SHUT_RD == 0;
            wait::notify_by_closer(socket, fd, arm::IN | arm::OUT);
            // A bell that nobody hears: the peer's end has gone.
            keep &= !socket.has(flag::HUNG_UP);
        }
        link::about_to_release(index, socket.link(), socket.channel(), socket.side());
        own.released.store(if keep { release::KEPT } else { release::CLOSED }, Ordering::Release);
    } else if !crate::global::single_threaded() {
        wait::ring_for_others(socket, fd);
    }
    drop((receiving, sending));
    if !last {
        crate::handover::settle::tell(socket);
    }
    let gone = own.receive.state.load(Ordering::Relaxed) & state::PEER_GONE != 0;
    private::close_at(&socket.private_fd);
    if let Some(_setup) = SETUP.lock() {
        held::ended(socket);
        link::leave(index, socket.channel(), gone, keep);
    }
}

/// This process owns the side no longer. True: nobody does.
fn leaves(socket: &Socket) -> bool {
    let own = socket.own();
    let owners = own.owners.fetch_sub(1, Ordering::AcqRel);
    let me = thread::process();
    own.part(me);
    // Children that exited or were killed never said so: see whether any of them still lives.
    let alive = |pid: u32| pid != me && crate::process::may_live(pid);
    owners <= 1 || own.orphaned(owners - 1, alive)
}

/// Tells the peer that the last owner has closed. `ended`: both directions had ended before. The caller holds both locks.
fn announce_end(socket: &Socket, ended: bool) {
    let (_, unread) = socket.incoming().look();
    // Once both directions have ended there is nothing left to reset (tcp_close, TCP_CLOSE).
    // Another owner may have asked for it.
    let asked = socket.own().receive.state.load(Ordering::Relaxed) & state::LINGER_RESET != 0;
    // A carrier leaves before it ends: one that is there still was killed, with bytes that nobody can find.
    let lost = || socket.has(flag::SHARED) && socket.carriage().any();
    let lingers = socket.has(flag::LINGER_RESET) || (asked && socket.has(flag::SHARED)) || lost();
    let broken = socket.own().transmit.broken.load(Ordering::Relaxed) != 0;
    let reset = broken || (!ended && (unread > 0 || lingers));
    // A reset that was announced already stays what it was.
    let announced = socket.outgoing().announced();
    let late = if announced & word::FIN != 0 && announced & word::RST == 0 { word::LATE } else { 0 };
    socket.outgoing().end(word::FIN | word::CLOSED | if reset { word::RST | late } else { 0 });
    wait::stamp_if_asked(socket);
}

/// The process ends: as [`finish`], for a process that needs nothing afterwards. True: nobody owns the side any more. The
/// caller holds both locks, and `ended` was known before it took them.
pub(crate) fn say_end(socket: &Socket, ended: bool) -> bool {
    let last = leaves(socket);
    if last {
        announce_end(socket, ended);
        socket.own().released.store(release::CLOSED, Ordering::Release);
    }
    last
}

/// Keeps a duplicate of the companion if another connection could use it: made in memory, alive, and as it was made.
fn keep(socket: &Socket, fd: i32, index: usize) -> bool {
    let own = socket.own().receive.state.load(Ordering::Relaxed);
    let spoilt = flag::SHARED | flag::SPENT | flag::ASYNC | flag::HUNG_UP | flag::SHUT_RD | flag::BOUND;
    if socket.has(spoilt) || own & (state::SHUT_RD | state::PEER_GONE) != 0 || index >= link::MOST {
        return false;
    }
    let Some(_setup) = SETUP.lock() else { return false };
    let link = link::at(index);
    if link.base.is_null() || link.inherited {
        return false;
    }
    let header = link::header(link.base);
    let usable = match header.sole.load(Ordering::Acquire) {
        1 => link.bell >= 0,
        _ if link.ours => link.bell >= 0 && header.bid.intended.load(Ordering::Relaxed) != 0,
        _ => taking::keeps(index),
    };
    usable && kept::keep(index, socket.channel(), fd, socket.has(flag::NONBLOCK), socket.addresses())
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
            if let Some(set) = word.set() {
                epoll::retain(set);
                table::set_epoll(to, set);
            }
        }
        Kind::Datagram => {
            if let Some(socket) = word.datagram() {
                socket.references.fetch_add(1, Ordering::AcqRel);
                table::set_datagram(to, socket);
            }
        }
        kind => {
            if let Some(socket) = word.socket() {
                socket.references.fetch_add(1, Ordering::AcqRel);
                socket.clear(flag::CLOSE_ON_EXEC_KNOWN);
                table::set_socket(to, kind, socket);
            }
        }
    }
    report::copy(from, to);
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
        _ => spare::spoil(socket),
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
        _ => spare::spoil(socket),
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
            deadlines::keep();
            Some(answer(urgent::readable(socket)))
        }
        (libc::TIOCOUTQ | SIOCOUTQNSD, Kind::Stream) => Some(answer(crate::stream::room::unacknowledged(socket))),
        (request, Kind::Stream) if about_interfaces(request) => {
            Some(Judge::fresh(socket).and_then(|judge| judge.ioctl(request, argument as usize)))
        }
        (SIOCATMARK, Kind::Stream) => Some(answer(crate::stream::urgent::at_mark(socket) as usize)),
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
        let _stay = ours().find_map(|fd| crate::handover::carried::stays(fd as i32));
        for fd in ours() {
            if let Some(socket) = table::get(fd as i32).socket() {
                socket.clear(flag::CLOSE_ON_EXEC_KNOWN);
            }
        }
        return calls::close_range(first, last, flags).map(|()| 0);
    }
    let end = || (table::high_water() as u32).min(last.saturating_add(1));
    // All of the program's first: what closes may leave a private descriptor behind, at any free number.
    let mut fd = first;
    while fd < end() {
        if table::get(fd as i32).kind() != Kind::Private {
            closing(fd as i32);
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
