//! At connect(2): the kernel connects, and what it has connected is taken, if the server's port is one of the option's.

use core::sync::atomic::Ordering;

use shunt_rendezvous::carriers::Outcome;
use shunt_rendezvous::{attach, options, socket_cache};
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_stream::socket::introduced::Introduction;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, POLLOUT};
use shunt_sys::{calls, Errno};
use shunt_table::global::{self, SETUP};
use shunt_table::process::kernel_only;
use shunt_table::sockaddr::{self, Encoded};

use crate::leaving;
use crate::local::{self, Local};
use crate::seat::Seat;

/// How long a call that does not wait waits for the connection (ns): it takes a round trip, and what takes longer is far.
const AT_ONCE: i64 = 1_000_000;

/// Connects `fd` to `server`, an address of another host.
///
/// # Errors
/// Why this room has no part in it: the kernel, or another carrier, connects.
pub fn connect(fd: i32, socket: &'static Socket, server: &Address) -> Result<Outcome, Reason> {
    let ports = &global::options().inet;
    if ports.is_empty() || !ports.contains(server.port) || kernel_only::keeps() {
        return Err(Reason::NotLocal);
    }
    // A process that has the same socket from before would wait at it in vain, as one that waits for signals: what comes does not come there.
    if socket.has(flag::PLAIN | flag::OWNED) {
        return Err(Reason::UnsupportedSocket);
    }
    // Asked before, so that what cannot be taken is connected as ever.
    let local = local::towards(server, server).inspect(|local| leaving::make_room(local))?;
    let nonblocking = calls::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0);
    socket_cache::spoil(socket);
    let address = Encoded::new(socket.family.load(Ordering::Relaxed), server);
    let mut connected = calls::connect(fd, address.pointer(), address.length);
    // An error is the kernel's to tell, as it would have been told later: by poll and SO_ERROR.
    if nonblocking && connected == Err(Errno(libc::EINPROGRESS)) && calls::poll_one(fd, POLLOUT, AT_ONCE) == Ok(POLLOUT) {
        connected = Ok(());
    }
    if let Err(error) = connected {
        return Ok(Outcome::Done(Err(error), Reason::InetSlow));
    }
    let taken = take(local, fd, socket, server, nonblocking);
    Ok(match taken {
        Ok(()) => Outcome::Connected,
        Err(reason) => Outcome::Done(Ok(0), reason),
    })
}

fn take(local: &'static Local, fd: i32, socket: &'static Socket, server: &Address, nonblocking: bool) -> Result<(), Reason> {
    // What another thread writes now would be lost to both.
    let introduction = Introduction::begin(fd, socket).ok_or(Reason::InetKernel)?;
    let own = sockaddr::bound_address(fd);
    let seat = Seat::take(local, fd, [&own, server], server, nonblocking)?;
    {
        let _setup = SETUP.lock();
        options::carry_over(fd, socket);
        seat.settle(socket, nonblocking);
    }
    if nonblocking {
        socket.set(flag::CONNECTING); // as every connect to another host on Linux
    }
    attach::replace(fd, seat.near, socket, seat.channel(), Reason::Taken);
    drop(introduction);
    options::connected(socket, fd, true);
    let _ = calls::close(seat.near);
    seat.begin();
    Ok(())
}
