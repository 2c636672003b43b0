//! Whether a client waits to be accepted, and waiting for one.

use super::acceptors::{place, ACCEPTORS};
use super::sleep;
use crate::accept::deferred;
use crate::accept_fd;
use crate::options::multipath;
use crate::reconnect::{server, shared_server};
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_stream::options::limits;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::holding::Asleep;
use shunt_stream::waiting::spin;
use shunt_sys::libc::{self, pollfd};
use shunt_sys::{calls, clock, sleeping, stops, thread, Errno, Result};
use shunt_table::global::SETUP;

/// Whether accepting from `listener` leaves bells on the line.
pub fn leaves_bells(listener: &Socket) -> bool {
    ACCEPTORS.place.load(Ordering::Relaxed) == place::ACCEPT && listener.watchers.is_empty()
}

/// The program is told that a listener is readable: it may call accept as one that does not wait.
pub fn told() {
    ACCEPTORS.place.store(place::SETS, Ordering::Relaxed);
}

/// Whether who calls accept was told that somebody is there.
pub(super) fn was_told() -> bool {
    ACCEPTORS.place.load(Ordering::Relaxed) == place::SETS
}

/// Waits until one of the queues has a connection. A listener that another thread closes meanwhile goes on listening. Gives whether the kernel
/// may have woken this thread alone ([`sleep`]).
pub(super) fn wait(fd: i32, listener: &Socket, deadline: &mut Option<u64>, began: u64) -> Result<bool> {
    link::drop_owed();
    if listener.has(flag::LISTENER_SHARED) {
        if let Some(_setup) = SETUP.lock() {
            crate::listen::options::follow(listener);
        }
    }
    // Nobody was found since the last wait, though a queue may have said that it is readable each time.
    if deadline.is_some_and(|deadline| clock::monotonic_ns() >= deadline) {
        return Err(Errno(libc::EAGAIN));
    }
    let limit = if multipath::is(listener) { 0 } else { listener.receive_timeout.load(Ordering::Relaxed) };
    if deadline.is_none() && limit == limits::AT_ONCE {
        return Err(Errno(libc::EAGAIN));
    }
    let deadline = *deadline.get_or_insert_with(|| limits::deadline(limit));
    // Before the account: a handler that closes it has run since, and keeps the thread from sleeping.
    let looked = thread::handled();
    let mut asleep = Asleep::new(listener);
    // SAFETY: the account stays here, and ends below.
    unsafe { asleep.begin() };
    let result = if listener.hold.is_open(listener) {
        wait_open(listener.hold.number(fd), listener, deadline, [began, looked])
    } else {
        Err(Errno(libc::EBADF))
    };
    // SAFETY: begun above.
    unsafe { asleep.end() };
    result
}

fn wait_open(fd: i32, listener: &Socket, deadline: u64, [began, looked]: [u64; 2]) -> Result<bool> {
    let [rendezvous, bells] = queues(listener);
    if ACCEPTORS.place.load(Ordering::Relaxed) != place::ACCEPT {
        ACCEPTORS.place.store(place::ACCEPT, Ordering::Relaxed);
    }
    let mut set = [bells, rendezvous, fd].map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 });
    // Connections come in bursts: a few looks cost less than a sleep and a wake-up. A client on this very processor makes
    // several when it is let, where a sleeper would be woken for each.
    let mut budget = spin::begin_expecting(ACCEPTORS.client.load(Ordering::Relaxed), shared_server::bid_is_near());
    while budget.more() {
        if server::waiting(listener) || shared_server::any(listener) {
            budget.end();
            return Ok(false);
        }
        let offered = server::are_usual(listener);
        let asked = !offered || budget.rounds() & 0x3f == 0x3f;
        if asked
            && calls::ppoll(set.as_mut_ptr(), set.len(), &mut spin::ZERO.clone(), core::ptr::null(), calls::KERNEL_SIGSET)? > 0
        {
            budget.end();
            settle(listener, &set);
            return Ok(false);
        }
        if !offered && !budget.same_processor {
            calls::sched_yield();
        }
    }
    if thread::interrupted_since(began, deadline == u64::MAX) {
        return Err(Errno(libc::EINTR)); // a handler ran while we looked
    }
    server::take_left_bells(listener);
    let none = core::ptr::null_mut();
    let mut alone = false;
    let ready = accept_fd::during(bells, || match deadline {
        u64::MAX => match sleep::set(fd, listener) {
            Some(own) => sleep::in_set(own, listener, looked).map(|bells| {
                alone = true;
                set[0].revents = if bells { libc::POLLIN } else { 0 };
                1
            }),
            None => sleeping::ppoll(set.as_mut_ptr(), set.len(), none, core::ptr::null(), looked),
        },
        _ => stops::ppoll_until(&mut set, deadline, core::ptr::null(), looked),
    });
    budget.end();
    match ready {
        // A handler that was installed past us is not counted: which one ran is unknown.
        Err(Errno(libc::EINTR))
            if thread::handled() == looked && deadline == u64::MAX && shunt_stream::waiting::signals::all_restart() =>
        {
            Ok(false)
        }
        Err(Errno(libc::EINTR)) => thread::resume(began, looked, deadline == u64::MAX).map(|()| false),
        Err(error) => Err(error),
        Ok(0) => Err(Errno(libc::EAGAIN)),
        Ok(_) => {
            settle(listener, &set);
            Ok(alone)
        }
    }
}

/// Whether a client may wait in one of shunt's own queues.
pub fn someone_waits(listener: &Socket) -> bool {
    if deferred::any(listener) {
        return true;
    }
    let rendezvous = listener.private_fd.load(Ordering::Acquire);
    server::waiting(listener) || calls::poll_one(rendezvous, libc::POLLIN, 0).is_ok_and(|events| events != 0)
}

/// The kernel says that a queue is readable: if only bells are, they are taken off.
fn settle(listener: &Socket, set: &[pollfd; 3]) {
    if set[0].revents != 0 && !server::waiting(listener) {
        server::take_spent_bells(listener);
    }
}

/// The descriptors that stand for a listener beside its TCP socket, in poll and epoll: the rendezvous, and clients' bells.
pub fn queues(listener: &Socket) -> [i32; 2] {
    [listener.private_fd.load(Ordering::Acquire), listener.listening.bells_fd.load(Ordering::Acquire)]
}

/// Whether a listener that the kernel reports as readable has a connection to accept: a bell may be readable although its
/// offer has been taken.
pub fn ready(fd: i32, listener: &Socket) -> bool {
    told();
    if deferred::concern(listener) {
        return deferred::ready(listener) || super::anyone(fd);
    }
    if listener.listening.offering.load(Ordering::Acquire) == 0 || server::waiting(listener) {
        return true;
    }
    if super::anyone(fd) || super::anyone(listener.private_fd.load(Ordering::Acquire)) {
        return true;
    }
    server::take_spent_bells(listener);
    server::waiting(listener)
}
