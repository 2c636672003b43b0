//! connect(2) to AF_UNSPEC: dissolves a connection with a reset; the descriptors become a TCP socket of the kernel's again (tcp_disconnect).

use core::sync::atomic::Ordering;
use shunt_segment::address::Address;
use shunt_segment::channel::{state, word};
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::watchers::Change;
use shunt_stream::waiting::{holding, readiness, watchers};
use shunt_sys::libc::{self, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};
use shunt_sys::{calls, Errno, Result};
use shunt_table::process::status_page;
use shunt_table::table;
use shunt_table::table::Kind;

use shunt_table::sockaddr::Encoded;

/// Closes a descriptor that has done its work under another number.
struct Spare(i32);
impl Drop for Spare {
    fn drop(&mut self) {
        let _ = calls::close(self.0);
    }
}

/// Dissolves the connection at `fd`.
///
/// # Errors
/// When no socket can be made in its place.
pub fn disconnect(fd: i32, socket: &'static Socket) -> Result<isize> {
    let (family, protocol) = (socket.family.load(Ordering::Relaxed), socket.protocol.load(Ordering::Relaxed));
    // A socket that the program had bound was kept, and is bound again from now on.
    let kept = socket.private_fd.load(Ordering::Relaxed);
    let fresh = if socket.has(flag::BOUND) && kept >= 0 {
        Spare(calls::fcntl(kept, libc::F_DUPFD_CLOEXEC, 0)?)
    } else {
        Spare(calls::socket(family, SOCK_STREAM | SOCK_CLOEXEC, protocol)?)
    };
    let next = shunt_stream::socket::allocate(family).ok_or(Errno(libc::ENOMEM))?;
    next.protocol.store(protocol, Ordering::Relaxed);
    next.references.store(0, Ordering::Relaxed);
    if socket.has(flag::BOUND) {
        next.set(flag::BOUND);
    }
    let nonblocking = calls::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) & libc::O_NONBLOCK;
    if nonblocking != 0 {
        next.set(flag::NONBLOCK);
    }
    crate::options::give_back(fresh.0, socket, next);
    let lived = !readiness::closed(socket);
    // An error that was pending stays. Nothing waits for a connection that the program's own options or a filter keep from being made.
    let _ = calls::fcntl(fresh.0, libc::F_SETFL, (libc::O_RDWR | libc::O_NONBLOCK) as usize);
    let due = socket.own().receive.state.load(Ordering::Relaxed);
    let (client, server) = socket.addresses();
    let own = if socket.side() == 0 { client } else { server };
    let bound = due & state::AT_ADDRESS != 0 && bind_to_address(fresh.0, family, &own);
    next.listening.at_address.store(bound as u32, Ordering::Relaxed);
    let broken = !lived && due & state::PIPE_DUE != 0 && due & state::RESET_DUE == 0;
    if broken && leave_broken_pipe(fresh.0, family).is_err() || lived || due & state::RESET_DUE != 0 {
        leave_error(fresh.0, family);
    } else if bound && !broken {
        leave_error(fresh.0, family); // which lets go of the port
        let _ = calls::getsockopt_int(fresh.0, libc::SOL_SOCKET, libc::SO_ERROR);
    }
    let _ = calls::fcntl(fresh.0, libc::F_SETFL, (libc::O_RDWR | nonblocking) as usize);
    if !next.has(flag::BOUND) {
        let left = shunt_table::sockaddr::bound_address(fresh.0).port;
        next.left_port.store((own.port as u32) << 16 | left as u32, Ordering::Relaxed);
    }
    if let Err(error) = holding::set_aside(socket, fd) {
        shunt_stream::socket::free(next);
        return Err(error);
    }
    watchers::changed(socket, Change::Replacing);
    if lived {
        reset(socket, fd);
    }
    for number in table::numbers() {
        if table::get(number).object::<Socket>().is_some_and(|s| core::ptr::eq(s, socket)) {
            let close_on_exec = crate::attach::closes_on_exec(number);
            let _ = calls::dup3(fresh.0, number, if close_on_exec { libc::O_CLOEXEC } else { 0 });
            if shunt_stream::socket::replace(number, socket, Kind::Tcp, next) {
                status_page::note(number, kind::TCP, Reason::Unconnected, None);
            }
        }
    }
    watchers::follow(socket, next);
    crate::close::finish(socket, fd, false);
    holding::dissolved(socket);
    Ok(0)
}

/// The connection ends here for everybody: for the peer, and for other processes that own this side, which find the error too.
fn reset(socket: &Socket, fd: i32) {
    if let Ok(held) = socket.lock_send() {
        let late = if socket.outgoing().announced() & word::FIN != 0 { word::LATE } else { 0 };
        socket.outgoing().end(word::FIN | word::CLOSED | word::RST | late);
        shunt_stream::waiting::wake::stamp_if_asked(socket);
        drop(held);
    }
    shunt_stream::life::happens(socket.own(), shunt_stream::life::Event::Dissolved);
    if socket.has(flag::REMOTE) {
        shunt_stream::waiting::wake::ring(socket, fd); // the pump is to tell the other host
    }
    // Wakes the threads of ours that sleep for the companion.
    let _ = calls::shutdown(fd, libc::SHUT_RD);
}

/// An accepted socket has its address from the listener, and its port from the connection: it keeps the first alone
/// (SOCK_BINDADDR_LOCK). False: the address has gone.
fn bind_to_address(fd: i32, family: i32, address: &Address) -> bool {
    let bound = Encoded::new(family, &Address { port: 0, ..*address });
    calls::bind(fd, bound.pointer(), bound.length).is_ok()
}

/// Leaves ECONNRESET on a TCP socket as tcp_disconnect does, by the kernel's own way: the socket is connected with itself, and dissolved.
/// Where that is not possible (no loopback) nothing is left.
fn leave_error(fd: i32, family: i32) {
    let mut own = shunt_table::sockaddr::bound_address(fd);
    if own.port == 0 {
        let any = Encoded::new(family, &Address::default());
        if calls::bind(fd, any.pointer(), any.length).is_err() {
            return;
        }
        own = shunt_table::sockaddr::bound_address(fd);
    }
    if own.is_unspecified() {
        own = loopback(family, &own, own.port);
    }
    let itself = Encoded::new(family, &own);
    let _ = calls::connect(fd, itself.pointer(), itself.length);
    dissolve(fd);
}

/// connect(2) of a TCP socket of the kernel's to no address.
fn dissolve(fd: i32) {
    let nobody = [0u8; 16]; // AF_UNSPEC
    let _ = calls::connect(fd, nobody.as_ptr().cast(), nobody.len() as libc::socklen_t);
}

/// Leaves EPIPE on a TCP socket, as a reset behind the end does (tcp_reset), by the kernel's own way: the socket is connected to another
/// one, which closes, and answers the next byte with a reset; then it is dissolved.
///
/// # Errors
/// Where that is not possible.
fn leave_broken_pipe(fd: i32, family: i32) -> Result<()> {
    let listener = Spare(calls::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)?);
    let any = Encoded::new(family, &loopback(family, &shunt_table::sockaddr::bound_address(fd), 0));
    calls::bind(listener.0, any.pointer(), any.length)?;
    calls::listen(listener.0, 1)?;
    let there = Encoded::new(family, &shunt_table::sockaddr::bound_address(listener.0));
    if calls::connect(fd, there.pointer(), there.length).is_err() {
        await_event(fd, libc::POLLOUT)?;
    }
    await_event(listener.0, libc::POLLIN)?;
    drop(Spare(calls::accept4(listener.0, core::ptr::null_mut(), core::ptr::null_mut(), SOCK_CLOEXEC)?));
    await_event(fd, libc::POLLIN)?;
    // An urgent byte goes at once, under a cork too.
    calls::send_byte(fd, 0, libc::MSG_OOB)?;
    calls::poll_one(fd, 0, ARRIVES)?;
    dissolve(fd);
    Ok(())
}

/// Waits for `event` of a connection; one that is none, or has failed, is ready for everything, and has hung up.
///
/// Errors: ENOTCONN.
fn await_event(fd: i32, event: i16) -> Result<()> {
    match calls::poll_one(fd, event, ARRIVES)? & (event | libc::POLLERR | libc::POLLHUP) {
        events if events == event => Ok(()),
        _ => Err(Errno(libc::ENOTCONN)),
    }
}

/// What is sent over the loopback interface is there when the call returns; as a rule. In ns.
const ARRIVES: i64 = 50_000_000;

/// The loopback address that a socket bound to `own` can have to do with: an IPv6 one that is bound to an IPv4 address knows no other.
fn loopback(family: i32, own: &Address, port: u16) -> Address {
    if family == libc::AF_INET || own.as_v4().is_some() {
        Address::v4([127, 0, 0, 1], port)
    } else {
        Address::v6(core::array::from_fn(|place| (place == 15) as u8), port)
    }
}
