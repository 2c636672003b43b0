//! No two connections have the same addresses.
//!
//! A port that is lent is one connection's alone. A program may bind the port of another connection itself, where both allow it (SO_REUSEADDR,
//! SO_REUSEPORT), and connect to the same server: the kernel, which would refuse that, does not know of accelerated connections. So a socket that was
//! bound to a port beside another one, and no other, is compared with the connections of this process, with the kernel's, and with what the
//! companions of all processes are called; and this process does not lend such a port.
//!
//! A companion keeps its name while it is kept for another connection. Of another process's it cannot be told whether one lives on it: it counts.

use crate::answers;
use shunt_link as link;
use shunt_link::ports::shared::{any, is_shared, share};
use shunt_segment::address::Address;
use shunt_segment::name::Hello;
use shunt_stream::socket::{flag, of_channel, stream, Socket};
use shunt_sys::libc::{self, sockaddr, socklen_t, SOL_SOCKET, SO_REUSEADDR, SO_REUSEPORT};
use shunt_sys::{calls, Errno};
use shunt_table::global;
use shunt_table::{diag, route, table};

/// bind(2) of the TCP socket `fd` to a port of the program's choice, first without SO_REUSEADDR, so that it shows whether another socket has the port.
/// False: the caller binds.
///
/// # Safety
/// As for bind(2); `address` is what was read from the program's memory.
pub unsafe fn bind(fd: i32, to: &Address, address: *const sockaddr, length: socklen_t) -> bool {
    if to.port == 0 || !global::options().accelerate {
        return false;
    }
    let is_set = |option| calls::getsockopt_int(fd, SOL_SOCKET, option).unwrap_or(0) != 0;
    if is_set(SO_REUSEPORT) {
        share(to.port); // without it the socket would be no member of a group
        return false;
    }
    if !is_set(SO_REUSEADDR) || calls::setsockopt_int(fd, SOL_SOCKET, SO_REUSEADDR, 0).is_err() {
        return false;
    }
    let bound = calls::bind(fd, address, length);
    let _ = calls::setsockopt_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if bound == Err(Errno(libc::EADDRINUSE)) {
        share(to.port);
    }
    bound.is_ok()
}

/// Whether `socket`, at `fd`, would get the addresses of a connection that lives if it connected to `server`. Under the set-up lock.
pub fn lives(fd: i32, socket: &Socket, server: &Address) -> bool {
    if !socket.has(flag::BOUND) || !any() {
        return false;
    }
    let bound = shunt_table::sockaddr::bound_address(fd);
    if !is_shared(bound.port) {
        return false;
    }
    let client = if bound.is_unspecified() {
        let Ok(Some(source)) = route::local_source(server) else { return false };
        Address { port: bound.port, scope: server.scope, ..source }
    } else {
        Address { scope: server.scope, ..bound }
    };
    is_here(&client, server) || diag::is_taken(&client, server) || is_elsewhere(&client, server)
}

/// Whether this process has either end.
fn is_here(client: &Address, server: &Address) -> bool {
    let pair = (*client, *server);
    table::programs().any(|fd| stream(fd).is_some_and(|stream| stream.addresses() == pair))
        || link::lent_pages().any(|page| of_channel(page) == pair)
}

/// Whether a process has the client's end. `false` where the kernel tells nothing.
fn is_elsewhere(client: &Address, server: &Address) -> bool {
    // SAFETY: the set-up lock is held.
    let room = unsafe { &mut *answers::piece().get() };
    diag::any_unix_name(room, |name| {
        Hello::decode(name)
            .is_some_and(|hello| hello.client == *client && hello.server == *server && !link::lends(hello.nonce, hello.sequence))
    })
    .unwrap_or(false)
}
