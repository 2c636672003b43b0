//! Local ports for accelerated connections, reserved from the kernel so that a 4-tuple is true and unique.
//!
//! A port is reserved by a TCP socket bound to it. A descriptor for each would be dear, so the bound sockets are put in
//! flight: sent over a socket pair of ours and never received. They live exactly as long as the pair, that is, as long
//! as a process of this family; the ports are lent to connections from a queue in memory and return to it.
//!
//! The kernel gives hardly ever the port again that it gave last, and a socket that was dissolved goes on telling the one it
//! had (`connect` to AF_UNSPEC). So a port rests before it is lent again.
//!
//! A reservation outlasts the connections that use it, and must not keep servers away. It is therefore no obstacle for a socket that binds
//! with SO_REUSEADDR, as on Linux a connection is none whose client has set that too. What is lent is chosen without a bind, so it
//! may be a server's meanwhile, but is never lent for connections to that port: both ends would have one name.
//!
//! After a fork both processes would lend the same ports: the child starts a list of its own.

pub mod shared;

use shunt_sys::libc::{self, AF_INET, AF_INET6, AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_STREAM};
use shunt_sys::{calls, mapping, Errno, Result};
use shunt_table::global::LockedCell;
use shunt_table::{fd_passing, private};

const MOST: usize = 1 << 16;
/// Ports that rest, as long as the kernel has others.
const REST: usize = 4;

struct Reserve {
    /// Ports that no connection uses, as a queue of `count` from `first` on, round a ring of [`MOST`].
    free: *mut u16,
    first: usize,
    count: usize,
    /// The pair's ends: bound sockets are sent from 0 to 1 and stay there.
    pair: Option<[i32; 2]>,
    /// Messages that the current pair holds: its queue is bounded.
    held: usize,
}

/// Local ports, as the process has them.
struct Ports {
    /// Under the set-up lock.
    reserve: LockedCell<Reserve>,
    shared: shared::Shared,
}

static PORTS: Ports = Ports {
    reserve: LockedCell::new(Reserve { free: core::ptr::null_mut(), first: 0, count: 0, pair: None, held: 0 }),
    shared: shared::Shared::new(),
};

/// Lends a port for a connection to `server`, another one. Called under the set-up lock. Errors: those of socket(2), bind(2),
/// EADDRINUSE when all are taken.
pub fn take(server: u16) -> Result<u16> {
    // SAFETY: the set-up lock is held.
    let reserve = unsafe { &mut *PORTS.reserve.get() };
    if reserve.free.is_null() {
        reserve.free = mapping::reserve(MOST * 2)?.cast();
    }
    let lent = if reserve.count > REST { rested(reserve, server) } else { None };
    if let Some(port) = lent {
        return Ok(port);
    }
    let (fd, port) = match bound() {
        Err(error) => return rested(reserve, server).ok_or(error),
        Ok(bound) => bound,
    };
    if park(reserve, fd).is_err() {
        // Too many sockets in flight for this user: keep the descriptor itself.
        private::keep(fd)?;
    } else {
        let _ = calls::close(fd);
    }
    Ok(port)
}

/// The port that was returned first, but not `server`. One that the program has bound itself is lent no more.
fn rested(reserve: &mut Reserve, server: u16) -> Option<u16> {
    let mut others = 2;
    while reserve.count > 0 && others > 0 {
        // SAFETY: first < MOST.
        let port = unsafe { reserve.free.add(reserve.first).read() };
        reserve.first = (reserve.first + 1) % MOST;
        reserve.count -= 1;
        if shared::is_shared(port) {
            continue;
        }
        if port != server {
            return Some(port);
        }
        others -= 1;
        append(reserve, port);
    }
    None
}

/// Takes a port back. Called under the set-up lock.
pub fn give_back(port: u16) {
    // SAFETY: the set-up lock is held.
    append(unsafe { &mut *PORTS.reserve.get() }, port);
}

fn append(reserve: &mut Reserve, port: u16) {
    if reserve.count < MOST && !reserve.free.is_null() {
        // SAFETY: the remainder is less than MOST.
        unsafe { reserve.free.add((reserve.first + reserve.count) % MOST).write(port) };
        reserve.count += 1;
    }
}

/// In the child after fork: what was lent or free stays reserved by the pair, but is the parent's to lend.
pub fn forked() {
    // SAFETY: the child has one thread.
    let reserve = unsafe { &mut *PORTS.reserve.get() };
    reserve.count = 0;
    // The old pair stays open: connections that we inherited use its ports.
    reserve.pair = None;
    reserve.held = 0;
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    // SAFETY: the set-up lock is held.
    let reserve = unsafe { &mut *PORTS.reserve.get() };
    for end in reserve.pair.iter_mut().flatten() {
        if *end == from {
            *end = to;
        }
    }
}

/// A TCP socket bound to a port of the kernel's choice on all addresses of both families.
fn bound() -> Result<(i32, u16)> {
    for family in [AF_INET6, AF_INET] {
        let Ok(fd) = calls::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0) else { continue };
        let mut address = [0u8; 28];
        address[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        let mut length = if family == AF_INET6 { 28 } else { 16 };
        if family == AF_INET6 {
            let _ = calls::setsockopt_int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0);
        }
        let named = calls::bind(fd, address.as_ptr().cast(), length)
            .and_then(|()| calls::getsockname(fd, address.as_mut_ptr().cast(), &mut length));
        match named {
            Ok(()) => {
                // Not before: with the option the kernel looks for a port in half of the range.
                let _ = calls::setsockopt_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
                return Ok((fd, u16::from_be_bytes([address[2], address[3]])));
            }
            Err(error) => {
                let _ = calls::close(fd);
                if family == AF_INET {
                    return Err(error);
                }
            }
        }
    }
    Err(Errno(libc::EAFNOSUPPORT))
}

/// Puts `fd` in flight on the pair.
fn park(reserve: &mut Reserve, fd: i32) -> Result<()> {
    let current = reserve.pair.filter(|_| reserve.held < 200);
    let sending = match current {
        Some([sending, _]) => sending,
        None => renew(reserve)?,
    };
    fd_passing::send(sending, &[fd], MSG_DONTWAIT | MSG_NOSIGNAL)?;
    reserve.held += 1;
    Ok(())
}

/// Another pair. Its sending end.
fn renew(reserve: &mut Reserve) -> Result<i32> {
    let mut pair = [-1; 2];
    calls::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair.as_mut_ptr())?;
    let sending = private::keep(pair[0]).inspect_err(|_| {
        let _ = calls::close(pair[1]);
    })?;
    let receiving = private::keep(pair[1]).inspect_err(|_| private::close(sending))?;
    // A full pair's sending end is not needed any more; its receiving end holds the ports.
    if let Some([full, _]) = reserve.pair.replace([sending, receiving]) {
        private::close(full);
    }
    reserve.held = 0;
    Ok(sending)
}
