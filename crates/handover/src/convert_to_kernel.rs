//! A stream of this very process that has to be the kernel's from now on: the C library is about to read and write its
//! descriptor by itself (POSIX AIO), or the kernel is, for a ring ([`crate::uring`]).
//!
//! It gets what a program without shunt gets, one end of a kernel connection whose other end a relay holds, under its
//! own numbers; its epoll sets go on watching it, and calls that sleep on it go on there ([`shunt_stream`]'s `carried`).

use crate::relay::RelayTask;
use crate::{kernel_pair, relay, waiting};
use shunt_inbox::datagram;
use shunt_inbox::datagram::Datagram;
use shunt_rendezvous::exchange::{alone, change_over, kernels_like, like, Unchanging};
use shunt_rendezvous::{listen, socket_cache};
use shunt_segment::channel::arm;
use shunt_segment::reason::Reason;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::watchers::Change;
use shunt_stream::waiting::{holding, readiness, watchers};
use shunt_sys::{calls, libc, stops, Errno, Result};
use shunt_table::private::Pending;
use shunt_table::table;
use shunt_table::table::Kind;

/// Makes the kernel's what `fd` is, under all its numbers.
///
/// # Errors
/// EAGAIN: it cannot be made so, and is what it was.
pub fn to_kernel(fd: i32) -> Result<()> {
    let word = table::get(fd);
    if let Some(socket) = word.object::<Datagram>() {
        datagram::options::plain(socket, datagram::pin::ELSEWHERE);
    }
    let Some(socket) = word.object::<Socket>() else { return Ok(()) };
    match word.kind() {
        Kind::Stream => carry(fd, socket),
        Kind::Listener => leave_listener(fd, socket),
        _ => {
            socket_cache::spoil(socket);
            socket.set(flag::PLAIN);
            Ok(())
        }
    }
}

/// Makes the stream at `fd` the kernel's, under all its numbers.
///
/// # Errors
/// EAGAIN: no relay could be made; the stream is what it was.
pub fn carry(fd: i32, socket: &'static Socket) -> Result<()> {
    shunt_rendezvous::carriers::sharing::<false>(); // one that can be the kernel's own again needs no relay
    let carrying = shunt_lifeline::to_share().or_else(alone).ok_or(Errno(libc::EAGAIN))?;
    let unchanging = socket.has(flag::REMOTE).then(Unchanging::begin);
    if shunt_stream::socket::stream(fd).is_none_or(|now| !core::ptr::eq(now, socket)) {
        return Ok(()); // another thread was first
    }
    let unable = |_| Errno(libc::EAGAIN);
    let (program, far) = kernel_pair::pair(socket).map_err(unable)?;
    let (program, far) = (Pending(program), Pending(far));
    let next = kernels_like(socket).ok_or(Errno(libc::EAGAIN))?;
    // The relay alone owns the side, unless other processes do.
    let item = RelayTask { stream: fd, relay: far.0, program: program.0, process: calls::getpid() };
    let Ok(relay) = relay::fork(&[item]) else {
        shunt_stream::socket::free(next);
        return Err(Errno(libc::EAGAIN));
    };
    if holding::set_aside(socket, fd).is_err() {
        relay.give_up();
        shunt_stream::socket::free(next);
        return Err(Errno(libc::EAGAIN));
    }
    let readable = readiness::any(socket, arm::IN);
    like(socket, fd, program.0);
    watchers::changed(socket, Change::Replacing);
    change_over(socket, next, program.0, Reason::Carried);
    holding::carried(socket, next, program.0);
    watchers::follow(socket, next);
    shunt_rendezvous::close::finish(socket, fd, false);
    holding::given_up(socket);
    relay.begin();
    drop((unchanging, carrying));
    if readable {
        // What could be read before the call can be read after it.
        let _ = stops::poll_one_through(program.0, libc::POLLIN, ARRIVAL);
    }
    Ok(())
}

/// How long a relay may take until the first bytes arrive, in ns.
const ARRIVAL: i64 = 100_000_000;

/// Makes the listener at `fd` the kernel's, under all its numbers; clients that wait for it are carried to its queue.
///
/// # Errors
/// EAGAIN: a handler that interrupted the same.
pub fn leave_listener(fd: i32, listener: &'static Socket) -> Result<()> {
    let _carrying = alone().ok_or(Errno(libc::EAGAIN))?;
    if table::get(fd).kind() != Kind::Listener {
        return Ok(()); // another thread was first
    }
    waiting::give_listener(fd, listener);
    listen::left(fd, listener);
    Ok(())
}
