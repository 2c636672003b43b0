//! Spare TCP sockets: what connect replaces by a companion was never used, and serves the next socket(2).
//!
//! A program that connects to a listener under shunt makes a TCP socket, and the companion takes its place at once.
//! Making and dropping that socket is a third of such a connection's cost. So a private duplicate of it is kept while it
//! is *virgin*, that is, while the kernel holds nothing about it but what socket(2) made, and the next socket(2) of its
//! kind gives the program a duplicate of that one. Whatever would change the open file (an option, bind, a kernel
//! connection, passing it on) ends the sharing first: [`spoil`].

use core::sync::atomic::Ordering;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::calls;
use shunt_sys::libc::{self, SOCK_CLOEXEC, SOCK_NONBLOCK};
use shunt_table::global::{LockedCell, SETUP};
use shunt_table::{private, table};

const MOST: usize = 8;
/// Spares that were spoilt, over those that served, after which no more are kept: this program changes its sockets.
const PATIENCE: i32 = 16;

#[derive(Clone, Copy)]
struct Spare {
    /// The private descriptor; -1: an unused place.
    fd: i32,
    family: i32,
    nonblocking: bool,
    /// A socket of the program shares the open file now.
    lent: bool,
}

struct Spares {
    places: [Spare; MOST],
    spoilt: i32,
}

static SPARES: LockedCell<Spares> =
    LockedCell::new(Spares { places: [Spare { fd: -1, family: 0, nonblocking: false, lent: false }; MOST], spoilt: 0 });

fn spares() -> &'static mut Spares {
    // SAFETY: the set-up lock is held.
    unsafe { &mut *SPARES.get() }
}

/// socket(2) for a TCP socket of `family`; `kind` has its flags. Gives the descriptor and its spare's number for
/// [`Socket::spare`]; `None`: the kernel shall make one.
pub fn open(family: i32, kind: i32) -> Option<(i32, u32)> {
    let _setup = SETUP.lock()?;
    let index = spares().places.iter().position(|s| s.fd >= 0 && !s.lent && s.family == family)?;
    let spare = &mut spares().places[index];
    let duplicate = if kind & SOCK_CLOEXEC != 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    let fd = calls::fcntl(spare.fd, duplicate, 0).ok()?;
    let nonblocking = kind & SOCK_NONBLOCK != 0;
    if spare.nonblocking != nonblocking {
        let flags = libc::O_RDWR | if nonblocking { libc::O_NONBLOCK } else { 0 };
        let _ = calls::fcntl(fd, libc::F_SETFL, flags as usize);
        spare.nonblocking = nonblocking;
    }
    spare.lent = true;
    Some((fd, index as u32 + 1))
}

/// The descriptor that [`open`] gave does not become a socket.
pub fn forsake(number: u32) {
    if let Some(_setup) = SETUP.lock() {
        if let Some(spare) = (number as usize).checked_sub(1).and_then(|index| spares().places.get_mut(index)) {
            spare.lent = false;
        }
    }
}

/// The open file of a TCP socket is about to be changed: it is the program's alone from now on.
#[inline]
pub fn spoil(socket: &Socket) {
    if socket.has(flag::UNTOUCHED) {
        part(socket);
    }
}

#[cold]
fn part(socket: &Socket) {
    let Some(_setup) = SETUP.lock() else { return };
    part_locked(socket);
}

fn part_locked(socket: &Socket) {
    socket.clear(flag::UNTOUCHED);
    let number = socket.spare.swap(0, Ordering::Relaxed) as usize;
    if let Some(spare) = number.checked_sub(1).and_then(|index| spares().places.get_mut(index)) {
        private::close(spare.fd);
        spare.fd = -1;
        spare.lent = false;
        spares().spoilt += 1;
    }
}

/// A companion is about to take the place of the TCP socket `fd`. Under the set-up lock.
pub fn put_by(fd: i32, socket: &Socket) {
    if !socket.has(flag::UNTOUCHED) {
        return;
    }
    socket.clear(flag::UNTOUCHED);
    let nonblocking = socket.has(flag::NONBLOCK);
    let number = socket.spare.swap(0, Ordering::Relaxed) as usize;
    let spares = spares();
    if number > 0 {
        let spare = &mut spares.places[number - 1];
        (spare.lent, spare.nonblocking) = (false, nonblocking);
        spares.spoilt = (spares.spoilt - 1).max(-PATIENCE);
        return;
    }
    if spares.spoilt >= PATIENCE {
        return;
    }
    let Some(place) = spares.places.iter_mut().find(|s| s.fd < 0) else { return };
    let Ok(copy) = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, private::base() as usize) else { return };
    table::set_private(copy);
    *place = Spare { fd: copy, family: socket.family.load(Ordering::Relaxed), nonblocking, lent: false };
}

/// Before other processes get copies of our descriptors: none shares an open file with a spare. Under the set-up lock.
pub fn spoil_all() {
    if spares().places.iter().all(|s| s.fd < 0) {
        return;
    }
    for fd in table::programs() {
        if let Some(socket) = table::get(fd).object::<Socket>() {
            if socket.spare.load(Ordering::Relaxed) != 0 {
                part_locked(socket);
            }
        }
    }
}

/// In the child after fork: the idle spares are the parent's.
pub fn forked() {
    for spare in &mut spares().places {
        private::close(core::mem::replace(&mut spare.fd, -1));
        spare.lent = false;
    }
}

/// A private descriptor got another number. Under the set-up lock.
pub fn moved(from: i32, to: i32) {
    for spare in &mut spares().places {
        if spare.fd == from {
            spare.fd = to;
        }
    }
}
