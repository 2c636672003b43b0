//! listen: the rendezvous beside the shadow socket.
//!
//! The TCP listener stays what it is and serves everyone else. A private AF_UNIX listener, named after the TCP socket's
//! inode, takes the connections of shunt clients; the kernel gives it a backlog, accept sharing between forked workers
//! and back-pressure. It exists before the port listens, so no client finds the one without the other.

pub mod forward;
pub mod options;
pub mod promise;
pub mod sharing;

use crate::accept;
use crate::reconnect::{server, shared_server};
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_segment::address::Address;
use shunt_segment::name;
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::watchers;
use shunt_stream::waiting::watchers::Change;
use shunt_sys::libc::{self, AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};
use shunt_sys::{calls, Errno, Result};
use shunt_table::process::status_page;
use shunt_table::table::Kind;
use shunt_table::{private, receiver, sockaddr, table};

/// Prepares the rendezvous of the TCP socket `fd`. The caller then lets the kernel listen, and calls [`opened`] or,
/// when that failed, [`withdraw`]. An error leaves a plain TCP listener and a reason.
pub fn prepare(fd: i32, socket: &Socket, backlog: i32) -> core::result::Result<(), Reason> {
    crate::socket_cache::spoil(socket);
    let known = socket.private_fd.load(Ordering::Relaxed);
    if known >= 0 {
        let _ = calls::listen(known, backlog); // listen again changes the backlog
        socket.listening.backlog.store(backlog.max(0) as u32, Ordering::Relaxed);
        return Ok(());
    }
    let options = shunt_table::global::options();
    if !options.accelerate {
        return Err(Reason::SwitchedOff);
    }
    if private::are_scarce() {
        return Err(Reason::NoDescriptors);
    }
    shunt_table::process::filtered::look_again();
    shunt_table::process::kernel_only::carry();
    if shunt_table::process::kernel_only::keeps() {
        return Err(shunt_table::process::kernel_only::reason());
    }
    if shunt_table::process::uring::before_listen() {
        return Err(Reason::IoUring);
    }
    if socket.has(flag::ASYNC) || socket.has(flag::FILTERED) {
        return Err(Reason::UnsupportedSocket); // the kernel signals, or filters, what arrives at its own queue
    }
    if socket.has(flag::PLAIN) && !socket.has(flag::LISTENER_HANDED) && others_have(fd) {
        return Err(Reason::UnsupportedSocket); // they may listen too, and accept: one queue for all is the kernel's
    }
    let bound = sockaddr::bound_address(fd);
    if bound.port != 0 && !options.ports.contains(bound.port) {
        return Err(Reason::PortNotListed);
    }
    let status = calls::status_of(fd).map_err(|_| Reason::UnsupportedSocket)?;
    // Clients believe only the port's owner, and the kernel names who listens at the rendezvous: they would connect in vain.
    if status.st_uid != calls::geteuid() {
        return Err(Reason::SocketOfOther);
    }
    if shunt_table::global::SETUP.lock().is_some_and(|_setup| !link::holds_range()) {
        return Err(Reason::NoMemory);
    }
    let promised = promise::take(socket);
    let unix = if promised >= 0 { Ok(promised) } else { calls::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) };
    if let Some(reason) = unix.err().and_then(crate::attach::forbidden) {
        return Err(reason);
    }
    let made = (|| -> Result<[i32; 2]> {
        let unix = if promised >= 0 { promised } else { private::keep(unix?)? };
        let (address, length) = sockaddr::abstract_name(name::listener(status.st_ino).as_slice());
        let address = (&address as *const libc::sockaddr_un).cast();
        let bound = if promised >= 0 { Ok(()) } else { calls::bind(unix, address, length) };
        let listens = bound.and_then(|()| calls::listen(unix, backlog)).and_then(|()| server::bells());
        listens.map(|bells| [unix, bells]).inspect_err(|_| private::close(unix))
    })();
    match made {
        Ok([unix, bells]) => {
            socket.listening.backlog.store(backlog.max(0) as u32, Ordering::Relaxed);
            socket.listening.bells_fd.store(bells, Ordering::Relaxed);
            socket.listening.inode.store(status.st_ino, Ordering::Relaxed);
            socket.listening.options_time.store(0, Ordering::Relaxed);
            note_address(socket, &bound);
            socket.private_fd.store(unix, Ordering::Release);
            if socket.has(flag::LISTENER_HANDED) {
                if let Some(_setup) = shunt_table::global::SETUP.lock() {
                    sharing::out_of_sight(socket);
                }
            }
            shunt_link::fd_reserve::begin();
            // Before the kernel listens: a client that can connect finds the station.
            crate::carriers::listens(fd, status.st_ino, &bound);
            Ok(())
        }
        Err(Errno(libc::EADDRINUSE)) => Err(Reason::ListenerNameTaken),
        Err(Errno(libc::EMFILE | libc::ENFILE)) => Err(Reason::NoDescriptors),
        Err(error) if error.is_refusal() => Err(Reason::SystemCallFilter),
        Err(_) => Err(Reason::Refused),
    }
}

/// Whether another process has the socket that does not listen yet, as far as can be seen.
#[cold]
fn others_have(fd: i32) -> bool {
    calls::status_of(fd).is_ok_and(|status| receiver::holder(status.st_ino as u32).is_some())
}

/// The kernel listens now: enters the listener in the table.
///
/// The TCP listener becomes non-blocking, because accept waits for two queues; what the program set is kept beside it.
pub fn opened(fd: i32, socket: &'static Socket) {
    if table::get(fd).kind() == Kind::Listener {
        return;
    }
    if let Some(_setup) = shunt_table::global::SETUP.lock() {
        crate::answers::forget_answers();
    }
    let address = sockaddr::bound_address(fd);
    let known = socket.listening.port.load(Ordering::Relaxed) == address.port as u32;
    note_address(socket, &address);
    crate::options::note_six_only(fd, socket);
    socket.set_listener();
    let flags = calls::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
    let set = match socket.has(flag::LISTENER_HANDED) {
        // Another process that listens by it has set the kernel's flag.
        true => socket.has(flag::NONBLOCK) || nonblocking(socket),
        false => flags & libc::O_NONBLOCK != 0,
    };
    set_nonblocking(socket, set);
    if flags & libc::O_NONBLOCK == 0 {
        let _ = calls::fcntl(fd, libc::F_SETFL, (flags | libc::O_NONBLOCK) as usize);
    }
    for other in table::numbers() {
        if table::get(other).object::<Socket>().is_some_and(|s| core::ptr::eq(s, socket)) {
            shunt_table::table::enter(other, Kind::Listener, socket);
            status_page::note(other, kind::LISTENER, Reason::Listening, None);
        }
    }
    watchers::changed(socket, Change::BecameListener);
    if !known {
        crate::carriers::listens(fd, socket.listening.inode.load(Ordering::Relaxed), &address);
    }
}

/// The address that a listener is bound to.
pub fn note_address(socket: &Socket, bound: &Address) {
    socket.listening.port.store(bound.port as u32, Ordering::Relaxed);
    socket.listening.at_address.store(!bound.is_unspecified() as u32, Ordering::Relaxed);
}

/// O_NONBLOCK as the program set it; the kernel's own flag is always set. All who share the listener share the rendezvous
/// too, whose O_APPEND (which means nothing to a socket) tells them.
pub fn nonblocking(socket: &Socket) -> bool {
    let rendezvous = socket.private_fd.load(Ordering::Acquire);
    if rendezvous >= 0 && socket.has(flag::LISTENER_SHARED) {
        if let Ok(flags) = calls::fcntl(rendezvous, libc::F_GETFL, 0) {
            return flags & libc::O_APPEND != 0;
        }
    }
    socket.has(flag::LISTENER_NONBLOCK)
}

/// The program sets or clears O_NONBLOCK.
pub fn set_nonblocking(socket: &Socket, on: bool) {
    if on {
        socket.set(flag::LISTENER_NONBLOCK);
    } else {
        socket.clear(flag::LISTENER_NONBLOCK);
    }
    let rendezvous = socket.private_fd.load(Ordering::Acquire);
    if let Ok(flags) = calls::fcntl(rendezvous, libc::F_GETFL, 0) {
        let marked = if on { flags | libc::O_APPEND } else { flags & !libc::O_APPEND };
        let _ = calls::fcntl(rendezvous, libc::F_SETFL, marked as usize);
    }
}

/// Whether another process has made the rendezvous refuse clients (`shunt_handover`); then it is retired.
pub fn retired(socket: &Socket) -> bool {
    let refuses = refuses(socket);
    if refuses {
        retire(socket, Reason::ListenerHandedOver);
    }
    refuses
}

/// Whether the rendezvous refuses clients, and none waits there any more, nor one in memory.
pub fn refuses(socket: &Socket) -> bool {
    let rendezvous = socket.private_fd.load(Ordering::Acquire);
    if rendezvous < 0 || !socket.has(flag::LISTENER_SHARED) {
        return false;
    }
    calls::poll_one(rendezvous, libc::POLLRDHUP, 0).is_ok_and(|events| events & libc::POLLRDHUP != 0)
        && shunt_table::global::SETUP
            .try_lock()
            .is_some_and(|_setup| shunt_table::diag::unix_waiting(rendezvous).unwrap_or(0) == 0 && server::cease(socket))
}

/// A client could not be taken in for want of memory or of numbers, or because a filter refuses the calls: those that come from now on
/// find the kernel's TCP, which keeps them.
pub fn is_short(socket: &Socket) {
    socket.set(flag::LISTENER_SHARED); // so that the end of the queue is looked for
    socket.listening.only_forked.store(0, Ordering::Relaxed);
    let _ = calls::shutdown(socket.private_fd.load(Ordering::Acquire), libc::SHUT_RD);
}

/// The rendezvous takes no clients any more: the listener is the kernel's alone.
pub fn retire(socket: &Socket, why: Reason) {
    watchers::changed(socket, Change::RendezvousGoes);
    shared_server::retire(socket);
    accept::forget_set(socket);
    set_nonblocking(socket, nonblocking(socket));
    private::close(socket.private_fd.swap(-1, Ordering::AcqRel));
    status_page::count(why);
}

/// The kernel refused to listen.
pub fn withdraw(fd: i32, socket: &Socket) {
    if table::get(fd).kind() != Kind::Listener {
        private::close(socket.listening.bells_fd.swap(-1, Ordering::Relaxed));
        let rendezvous = socket.private_fd.swap(-1, Ordering::Relaxed);
        if rendezvous >= 0 {
            let _ = calls::shutdown(rendezvous, libc::SHUT_RDWR); // others may have it
        }
        private::close(rendezvous);
        crate::carriers::listens_no_longer(socket.listening.inode.load(Ordering::Relaxed));
    }
}

/// The kernel does not listen any more (shutdown, or connect to AF_UNSPEC), but the socket stays: clients that were not accepted
/// see a reset (inet_csk_listen_stop), and listen may be called again.
pub fn stopped(fd: i32, socket: &'static Socket) {
    if calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) != Ok(0) {
        return;
    }
    hang_up_on_waiting(socket);
    left(fd, socket);
}

/// A client that waits in the rendezvous is refused, though others may hold it: TCP resets them all. Without a word, as
/// [`crate::accept::refuse_waiting`], which takes each in, would retire what is about to cease.
fn hang_up_on_waiting(socket: &Socket) {
    let rendezvous = socket.private_fd.load(Ordering::Acquire);
    let _ = calls::shutdown(rendezvous, libc::SHUT_RDWR);
    // No client comes any more, and where none is left accept does not wait.
    while let Ok(waiting) = calls::accept4(rendezvous, core::ptr::null_mut(), core::ptr::null_mut(), libc::SOCK_CLOEXEC) {
        let _ = calls::close(waiting);
    }
}

/// A listener that was given to the kernel.
pub fn left(fd: i32, socket: &'static Socket) {
    watchers::changed(socket, Change::CeasedToListen);
    crate::accept::deferred::listener_ends(socket);
    server::retire(socket);
    let nonblocking = nonblocking(socket);
    let rendezvous = socket.private_fd.swap(-1, Ordering::AcqRel);
    // Other processes may hold it too.
    let _ = calls::shutdown(rendezvous, libc::SHUT_RDWR);
    private::close(rendezvous);
    socket.set_plain();
    for other in table::numbers() {
        if table::get(other).object::<Socket>().is_some_and(|s| core::ptr::eq(s, socket)) {
            shunt_table::table::enter(other, Kind::Tcp, socket);
            status_page::note(other, kind::TCP, Reason::Unconnected, None);
        }
    }
    if !nonblocking {
        let flags = calls::fcntl(fd, libc::F_GETFL, 0).unwrap_or(libc::O_RDWR);
        let _ = calls::fcntl(fd, libc::F_SETFL, (flags & !libc::O_NONBLOCK) as usize);
    } else {
        socket.set(flag::NONBLOCK);
    }
    socket.clear(flag::LISTENER_NONBLOCK);
}
