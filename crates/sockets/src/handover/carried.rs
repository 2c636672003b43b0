//! A stream of this very process that has to be the kernel's from now on: the C library is about to read and write its
//! descriptor by itself (POSIX AIO), or the kernel is, for a ring ([`crate::handover::uring`]).
//!
//! It gets what a program without shunt gets, one end of a kernel connection whose other end a carrier holds, under its
//! own numbers; its epoll sets go on watching it, and calls that sleep on it go on there ([`crate::stream`]'s `carried`).

use crate::global::Mutex;
use crate::handover::carrier::{self, Cargo};
use crate::handover::plain::{self, Pending};
use crate::process::report;
use crate::rendezvous::listen;
use crate::socket::{flag, Socket};
use crate::table::{self, Kind};
use crate::waiting::{holding, readiness};
use crate::{descriptor, epoll, handover};
use core::sync::atomic::Ordering;
use shunt_segment::channel::arm;
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_sys::{calls, libc, Errno, Result};

/// One at a time: what two threads give to the kernel at once, each by a ring of its own, is often the same.
static CARRYING: Mutex = Mutex::new();

/// In the child after fork.
pub(crate) fn forked() {
    CARRYING.reset();
}

/// Makes the stream at `fd` the kernel's, under all its numbers.
///
/// # Errors
/// EAGAIN: no carrier could be made; the stream is what it was.
pub fn carry(fd: i32, socket: &'static Socket) -> Result<()> {
    let carrying = CARRYING.lock().ok_or(Errno(libc::EAGAIN))?;
    if table::stream(fd).is_none_or(|now| !core::ptr::eq(now, socket)) {
        return Ok(()); // another thread was first
    }
    let unable = |_| Errno(libc::EAGAIN);
    let (program, far) = plain::pair(socket).map_err(unable)?;
    let (program, far) = (Pending(program), Pending(far));
    let next = crate::socket::allocate(socket.family.load(Ordering::Relaxed)).ok_or(Errno(libc::EAGAIN))?;
    next.references.store(0, Ordering::Relaxed);
    next.set(flag::KERNEL);
    if socket.has(flag::NONBLOCK) {
        next.set(flag::NONBLOCK);
    }
    // The carrier alone owns the side, unless other processes do.
    let item = Cargo { stream: fd, carrier: far.0, program: program.0, process: calls::getpid() };
    let Ok(carrier) = carrier::fork(&[item]) else {
        crate::socket::free(next);
        return Err(Errno(libc::EAGAIN));
    };
    if holding::set_aside(socket, fd).is_err() {
        carrier.give_up();
        crate::socket::free(next);
        return Err(Errno(libc::EAGAIN));
    }
    let readable = readiness::any(socket, arm::IN);
    handover::like(socket, fd, program.0);
    epoll::before_replace(socket);
    for number in 0..table::high_water() {
        if table::get(number).socket().is_some_and(|other| core::ptr::eq(other, socket)) {
            let close_on_exec = crate::rendezvous::connect::closes_on_exec(number);
            let _ = calls::dup3(program.0, number, if close_on_exec { libc::O_CLOEXEC } else { 0 });
            if table::replace(number, socket, Kind::Tcp, next) {
                report::note(number, kind::TCP, Reason::Carried, None);
            }
        }
    }
    report::count(Reason::Carried);
    holding::carried(socket, next, program.0);
    epoll::after_dissolve(socket, next);
    descriptor::finish(socket, fd, false);
    holding::given_up(socket);
    carrier.begin();
    drop(carrying);
    if readable {
        // What could be read before the call can be read after it.
        let _ = calls::poll_one(program.0, libc::POLLIN, ARRIVAL);
    }
    Ok(())
}

/// How long a carrier may take until the first bytes arrive, in ns.
const ARRIVAL: i64 = 100_000_000;

/// Makes the listener at `fd` the kernel's, under all its numbers; clients that wait for it are carried to its queue.
///
/// # Errors
/// EAGAIN: a handler that interrupted the same.
pub fn leave_listener(fd: i32, listener: &'static Socket) -> Result<()> {
    let _carrying = CARRYING.lock().ok_or(Errno(libc::EAGAIN))?;
    if table::get(fd).kind() != Kind::Listener {
        return Ok(()); // another thread was first
    }
    handover::give_listener(fd, listener);
    listen::left(fd, listener);
    Ok(())
}
