//! Ports of accepted connections whose listener has closed.
//!
//! On Linux an accepted socket holds its port by itself, and no socket binds there before the last one has ended, unless both sides allow
//! it (SO_REUSEADDR, SO_REUSEPORT). A companion is no TCP socket: while the listener lives it holds the port for all, and as it closes a TCP
//! socket that is bound to the connections' address takes its place, with what the listener allowed.
//!
//! A listener that other processes have as well leaves none, nor does one whose connections other processes have taken along: each child of a
//! server that forks for a client closes its copy, and would pay for a socket that its parent's listener makes superfluous.

use core::sync::atomic::{AtomicBool, Ordering};
use shunt_segment::address::Address;
use shunt_stream::socket::{flag, stream, Socket};
use shunt_sys::libc::{POLLRDHUP, SHUT_RD, SOCK_CLOEXEC, SOCK_STREAM, SOL_SOCKET, SO_REUSEADDR, SO_REUSEPORT};
use shunt_sys::{calls, Result};
use shunt_table::global::LockedCell;
use shunt_table::private;
use shunt_table::sockaddr::Encoded;
use shunt_table::table::{self, Kind};

/// Addresses that are held at most.
const MOST: usize = 16;

#[derive(Clone, Copy)]
struct Held {
    /// The bound socket; -1: an unused place.
    fd: i32,
    address: Address,
    /// How many connections have to end before they are counted again. Those of a later listener count as well, so no more than this are left.
    left: u32,
}

const NOTHING: Held = Held { fd: -1, address: Address { ip: [0; 16], port: 0, scope: 0 }, left: 0 };

/// The addresses that are held for listeners whose connections have not all ended.
struct Addresses {
    held: LockedCell<[Held; MOST]>,
    /// Whether anything is held: a connection that ends asks no more than this.
    any: AtomicBool,
}

static ADDRESSES: Addresses = Addresses { held: LockedCell::new([NOTHING; MOST]), any: AtomicBool::new(false) };

fn held() -> &'static mut [Held; MOST] {
    // SAFETY: the set-up lock is held.
    unsafe { &mut *ADDRESSES.held.get() }
}

/// The listener at `fd` is about to close, or a socket that listened once. Under the set-up lock.
pub fn listener_closes(fd: i32, listener: &Socket) {
    let port = listener.listening.port.load(Ordering::Relaxed) as u16;
    let mut listens = listener.kind() == Kind::Listener;
    if port == 0 || listener.has(flag::LISTENER_SHARED) || (listens && !is_ours_alone(listener)) {
        return;
    }
    for (_, address) in accepted().filter(|(_, address)| address.port == port) {
        if let Some(known) = held().iter_mut().find(|held| held.fd >= 0 && held.address == address) {
            known.left = count(&address);
            continue;
        }
        let Some(free) = held().iter_mut().find(|held| held.fd < 0) else { return };
        if core::mem::take(&mut listens) {
            // It closes with this descriptor. No other socket is bound beside one that listens.
            let _ = calls::shutdown(fd, SHUT_RD);
        }
        let Ok(bound) = bound_beside(fd, listener, &address) else { return };
        *free = Held { fd: bound, address, left: count(&address) };
        ADDRESSES.any.store(true, Ordering::Relaxed);
    }
}

/// Whether the rendezvous still takes clients: another process that took the listener without a word of ours (pidfd_getfd) has shut it.
fn is_ours_alone(listener: &Socket) -> bool {
    let rendezvous = listener.private_fd.load(Ordering::Acquire);
    rendezvous >= 0 && calls::poll_one(rendezvous, POLLRDHUP, 0) == Ok(0)
}

/// This process's accepted connections, each once, and their own addresses.
fn accepted() -> impl Iterator<Item = (&'static Socket, Address)> {
    table::programs().filter_map(|fd| {
        let socket = stream(fd).filter(|socket| socket.side() == 1)?;
        let same = |other: i32| stream(other).is_some_and(|other| core::ptr::eq(other, socket));
        let again = socket.references.load(Ordering::Relaxed) > 1 && (0..fd).any(same);
        (!again).then(|| (socket, socket.addresses().1))
    })
}

fn count(address: &Address) -> u32 {
    accepted().filter(|(_, own)| own == address).count() as u32
}

/// A socket bound to `address` beside the socket at `fd`, which listens no longer: SO_REUSEADDR lets it in, where SO_REUSEPORT would leave the port open
/// to everybody who sets that.
fn bound_beside(fd: i32, listener: &Socket, address: &Address) -> Result<i32> {
    let family = listener.family.load(Ordering::Relaxed);
    let options = [SO_REUSEADDR, SO_REUSEPORT];
    let allowed = options.map(|option| calls::getsockopt_int(fd, SOL_SOCKET, option).unwrap_or(0));
    let bound = private::keep(calls::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)?)?;
    let name = Encoded::new(family, address);
    let result = calls::setsockopt_int(fd, SOL_SOCKET, SO_REUSEADDR, 1)
        .and_then(|()| calls::setsockopt_int(bound, SOL_SOCKET, SO_REUSEADDR, 1))
        .and_then(|()| calls::bind(bound, name.pointer(), name.length));
    for (socket, known) in [(fd, 1), (bound, 2)] {
        for (option, allowed) in options.iter().zip(allowed).take(known) {
            let _ = calls::setsockopt_int(socket, SOL_SOCKET, *option, allowed);
        }
    }
    result.map(|_| bound).inspect_err(|_| private::close(bound))
}

/// A stream ends, whose last descriptor is in the table no longer. Under the set-up lock.
pub fn ended(socket: &Socket) {
    if !ADDRESSES.any.load(Ordering::Relaxed) || socket.side() != 1 {
        return;
    }
    let address = socket.addresses().1;
    let Some(found) = held().iter_mut().find(|held| held.fd >= 0 && held.address == address) else { return };
    found.left = found.left.saturating_sub(1);
    if found.left == 0 {
        found.left = count(&address);
    }
    if found.left == 0 {
        private::close(core::mem::replace(&mut found.fd, -1));
        ADDRESSES.any.store(held().iter().any(|held| held.fd >= 0), Ordering::Relaxed);
    }
}

/// A private descriptor got another number. Under the set-up lock.
pub fn moved(from: i32, to: i32) {
    for held in held().iter_mut().filter(|held| held.fd == from) {
        held.fd = to;
    }
}
