//! A stream of this very process that has to be the kernel's from now on: the C library is about to read and write its
//! descriptor by itself (POSIX AIO), or the kernel is, for a ring ([`crate::handover::uring`]).
//!
//! It gets what a program without shunt gets, one end of a kernel connection whose other end a carrier holds, under its
//! own numbers; its epoll sets go on watching it, and calls that sleep on it go on there ([`crate::stream`]'s `carried`).

use crate::global::{Guard, Mutex, SETUP};
use crate::handover::carrier::{self, Cargo};
use crate::handover::plain::{self, Pending};
use crate::process::report;
use crate::rendezvous::listen;
use crate::socket::{flag, Socket};
use crate::table::{self, Kind};
use crate::waiting::{holding, readiness};
use crate::{descriptor, epoll, handover};
use core::sync::atomic::{AtomicBool, Ordering};
use shunt_segment::channel::arm;
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_sys::{calls, libc, section, Errno, Result};

/// One at a time: what two threads give to the kernel at once, each by a ring of its own, is often the same. Taken before all other locks.
static CARRYING: Mutex = Mutex::new();

/// A fork holds it. Written under the set-up lock, so that forks of our own, which do not, find it clear.
static FORKING: AtomicBool = AtomicBool::new(false);

/// Before fork, and before the set-up lock is taken for it: the child finds no stream half given away.
pub(crate) fn before_fork() -> Option<Guard<'static>> {
    CARRYING.lock()
}

/// The fork keeps that until [`after_fork`]. Under the set-up lock.
pub(crate) fn keep_for_fork(held: Option<Guard<'static>>) {
    if let Some(held) = held {
        core::mem::forget(held);
        FORKING.store(true, Ordering::Relaxed);
    }
}

/// After it, in either process, before the set-up lock is let go.
pub(crate) fn after_fork() {
    if FORKING.swap(false, Ordering::Relaxed) {
        CARRYING.reset();
        section::leave();
    }
}

/// In the child after fork.
pub(crate) fn forked() {
    after_fork();
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
    let next = kernels_like(socket).ok_or(Errno(libc::EAGAIN))?;
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
    change_over(socket, next, program.0, Reason::Carried);
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

/// The object of a kernel's socket without numbers yet, which takes the place of `socket`.
fn kernels_like(socket: &Socket) -> Option<&'static Socket> {
    let next = crate::socket::allocate(socket.family.load(Ordering::Relaxed))?;
    next.references.store(0, Ordering::Relaxed);
    next.set(flag::KERNEL);
    if socket.has(flag::NONBLOCK) {
        next.set(flag::NONBLOCK);
    }
    Some(next)
}

/// The numbers of the stream, which is set aside and which no set watches, become those of the kernel's socket `end`.
fn change_over(socket: &'static Socket, next: &'static Socket, end: i32, reason: Reason) {
    for number in 0..table::high_water() {
        if table::get(number).socket().is_some_and(|other| core::ptr::eq(other, socket)) {
            socket.hold.before_closers(|| {
                if !table::is_of(number, socket) {
                    return; // a thread closes it
                }
                let close_on_exec = crate::rendezvous::connect::closes_on_exec(number);
                let _ = calls::dup3(end, number, if close_on_exec { libc::O_CLOEXEC } else { 0 });
                if table::replace(number, socket, Kind::Tcp, next) {
                    report::note(number, kind::TCP, reason, None);
                }
            });
        }
    }
    report::count(reason);
}

/// No number is left of a socket of the kernel's that was a stream, perhaps: nobody looks at that any more.
pub(crate) fn ended(next: &Socket) {
    if next.stands_for.load(Ordering::Relaxed).is_null() {
        return;
    }
    let stream = next.stands_for.swap(core::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or in a slab that is never unmapped; kept for this.
    let Some(stream) = (unsafe { stream.as_ref::<'static>() }) else { return };
    if next.stands_in.load(Ordering::Relaxed) == shunt_sys::thread::process() {
        descriptor::finish(stream, stream.hold.number(-1), false);
        holding::given_up(stream);
    }
}

/// Nobody else gives a stream away meanwhile. `None`: a handler that interrupted the same.
pub(crate) fn alone() -> Option<Guard<'static>> {
    CARRYING.lock()
}

/// As long as this is kept `fd` stays what it is, if it is a stream that may become the kernel's at any time ([`leave`]): what a call changes
/// of it is noted before that, or it finds the kernel's. To be asked before the call looks at the table.
#[inline]
pub fn stays(fd: i32) -> Option<Guard<'static>> {
    let may_be_left = table::stream(fd).is_some_and(|socket| socket.has(flag::REMOTE));
    may_be_left.then(alone).flatten()
}

/// The stream at `fd` becomes the kernel's connection that `take` gives, which has all of its bytes, before and behind. That is asked under
/// both of the stream's locks, behind which no thread finds room or bytes in its rings, and no fork sees it before it is the kernel's. False: nothing was
/// given, and nothing has happened.
pub fn leave(fd: i32, socket: &Socket, take: impl FnOnce() -> Option<i32>) -> bool {
    // SAFETY: sockets live in slabs that are never unmapped.
    let socket: &'static Socket = unsafe { &*core::ptr::from_ref(socket) };
    let Some(_carrying) = CARRYING.lock() else { return false };
    if !table::is_of(fd, socket) || !socket.hold.is_own() || !epoll::can_watch_another(socket) {
        return false; // another thread was first, or the kernel cannot watch it as it is watched
    }
    let Some(next) = kernels_like(socket) else { return false };
    if holding::set_aside(socket, fd).is_err() {
        crate::socket::free(next);
        return false;
    }
    epoll::before_replace(socket);
    next.stands_for.store(core::ptr::from_ref(socket).cast_mut(), Ordering::Relaxed);
    next.stands_in.store(shunt_sys::thread::process(), Ordering::Relaxed);
    next.references.store(1, Ordering::Relaxed); // ours: another thread may close all numbers at once
    let Some(end) = taken(fd, socket, next, take) else {
        crate::socket::free(next);
        epoll::after_replace(socket);
        holding::put_back(socket);
        return false;
    };
    holding::carried(socket, next, end.0);
    epoll::after_dissolve(socket, next);
    if next.references.fetch_sub(1, Ordering::SeqCst) == 1 && !holding::linger(next, end.0) {
        descriptor::end(next, end.0, false);
    }
    true
}

/// The step of [`leave`] that nobody sees half done.
fn taken(fd: i32, socket: &'static Socket, next: &'static Socket, take: impl FnOnce() -> Option<i32>) -> Option<Pending> {
    let (Ok(_receiving), Ok(_sending)) = socket.lock_both_settled() else { return None };
    let _setup = SETUP.lock()?;
    if socket.has(flag::SHARED) {
        return None;
    }
    let end = Pending(take()?);
    // What the keeper needed of it is what the program asked for.
    let _ = calls::setsockopt_int(end.0, libc::SOL_SOCKET, libc::SO_OOBINLINE, i32::from(socket.has(flag::OOB_INLINE)));
    let _ = calls::setsockopt_int(end.0, libc::IPPROTO_TCP, libc::TCP_NODELAY, 0);
    handover::like(socket, fd, end.0);
    holding::left(socket);
    change_over(socket, next, end.0, Reason::Bulk);
    if socket.has(flag::SHUT_RD) {
        let _ = calls::shutdown(end.0, libc::SHUT_RD); // by a thread that had the companion still
    }
    Some(end)
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
