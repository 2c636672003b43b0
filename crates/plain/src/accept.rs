//! At accept(2): a connection that the kernel gave to a listener is taken, if its port is one of the option's.

use core::sync::atomic::Ordering;

use shunt_segment::address::Address;
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket::{self, Socket};
use shunt_sys::{calls, libc};
use shunt_table::global::{self, SETUP};
use shunt_table::process::{kernel_only, status_page};
use shunt_table::sockaddr;
use shunt_table::table::{self, Kind};

use crate::seat::Seat;
use crate::{leaving, local};

/// The kernel gave the connection `fd` to `listener`: true if it is a stream now.
pub fn accepted(fd: i32, _: i32, listener: &Socket, flags: i32) -> bool {
    let ports = &global::options().inet;
    if ports.is_empty() {
        return false;
    }
    // By the listener's port alone: most that are left alone, many short ones, are not asked for their names.
    let name = Address { port: listener.listening.port.load(Ordering::Relaxed) as u16, ..Address::default() };
    if !ports.contains(name.port) || !table::fits(fd) || kernel_only::keeps() {
        return false;
    }
    let alone = local::does_not_pay(&name).then_some(Reason::InetShort);
    let taken = alone.map_or_else(|| take(fd, listener, &name, flags), Err);
    taken.err().filter(|reason| *reason != Reason::NotLocal).into_iter().for_each(status_page::count);
    taken.is_ok()
}

fn take(fd: i32, listener: &Socket, name: &Address, flags: i32) -> Result<(), Reason> {
    let client = sockaddr::peer_address(fd).filter(|client| !client.is_loopback()).ok_or(Reason::NotLocal)?;
    let server = sockaddr::bound_address(fd);
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    let local = local::towards(&client, name).inspect(|local| leaving::make_room(local))?;
    let socket = socket::allocate(listener.family.load(Ordering::Relaxed)).ok_or(Reason::NoMemory)?;
    let seat = Seat::take(local, fd, [&server, &client], name, nonblocking).inspect_err(|_| socket::free(socket))?;
    let _ = calls::dup3(seat.near, fd, if flags & libc::SOCK_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 });
    let _ = calls::close(seat.near);
    {
        let _setup = SETUP.lock();
        seat.settle(socket, nonblocking);
    }
    shunt_rendezvous::listen::options::inherit(listener, socket, u64::MAX); // the kernel has made it just now
    shunt_rendezvous::options::connected(socket, fd, true);
    table::enter(fd, Kind::Stream, socket);
    status_page::note(fd, kind::STREAM, Reason::Taken, Some(seat.channel()));
    seat.begin();
    Ok(())
}
