//! How accept(2) sleeps where several processes have the listener: one of them is woken for a client, as the kernel wakes one of its own
//! (prepare_to_wait_exclusive), where ppoll(2) on the queues would have all of them look.
//!
//! The queues lie in an epoll set of each process's own, exclusively (EPOLLEXCLUSIVE). It is made when that first sleeps, and goes with the
//! rendezvous or the listener.
//!
//! No other thread is woken for the client that woke a thread here. So that thread takes one from these queues before it takes one that
//! offers or bids in memory: there are never more clients in the queues than threads that were woken and have not looked, unless none
//! sleeps. A thread whose listener defers looks at its own list first, and sleeps in ppoll.

use super::acceptors::ACCEPTORS;
use crate::accept::{deferred, queues};
use core::sync::atomic::Ordering;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, epoll_event};
use shunt_sys::{calls, sleeping, thread, Errno, Result};
use shunt_table::table::Kind;
use shunt_table::{private, table};

const BELLS: u64 = 1;

/// The set of `listener`, whose descriptor is `fd`. `None`: it is to sleep in another way.
pub(super) fn set(fd: i32, listener: &Socket) -> Option<i32> {
    if !listener.has(flag::LISTENER_SHARED) || deferred::concern(listener) {
        return None;
    }
    let known = listener.listening.accepting_fd.load(Ordering::Acquire);
    if known >= 0 {
        return Some(known);
    }
    make(fd, listener)
}

#[cold]
fn make(fd: i32, listener: &Socket) -> Option<i32> {
    let [rendezvous, bells] = queues(listener);
    if rendezvous < 0 || bells < 0 || private::are_short() {
        return None;
    }
    // Before there is one: a fork beside this must not leave the child with the parent's.
    ACCEPTORS.any_asleep.store(true, Ordering::SeqCst);
    let made = calls::epoll_create1(libc::EPOLL_CLOEXEC).and_then(private::keep).ok()?;
    let add = |queue: i32, events: i32, data: u64| {
        calls::epoll_ctl(made, libc::EPOLL_CTL_ADD, queue, &mut epoll_event { events: events as u32, u64: data })
    };
    let exclusive = libc::EPOLLIN | libc::EPOLLEXCLUSIVE;
    // Bells are a set themselves, which cannot be exclusive; they are this process's alone.
    let filled =
        add(rendezvous, exclusive, 0).and_then(|()| add(fd, exclusive, 0)).and_then(|()| add(bells, libc::EPOLLIN, BELLS));
    let another = || listener.listening.accepting_fd.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire).is_err();
    if filled.is_err() || another() {
        private::close(made);
        return Some(listener.listening.accepting_fd.load(Ordering::Acquire)).filter(|known| *known >= 0);
    }
    Some(made)
}

/// Sleeps in such a set. Gives whether the bells alone spoke. `looked`: see [`shunt_sys::sleeping::sleep6`].
pub(super) fn in_set(set: i32, listener: &Socket, looked: u64) -> Result<bool> {
    let mut event = epoll_event { events: 0, u64: 0 };
    match sleeping::epoll_pwait2(set, &mut event, 1, core::ptr::null(), core::ptr::null(), looked) {
        // The process was stopped and goes on: accept(2) goes on sleeping, epoll_wait(2) does not (signal(7)).
        Err(Errno(libc::EINTR)) if thread::handled() == looked => Ok(false),
        // The number went meanwhile: by another thread that closes the listener, or for a program that wants it itself.
        Err(Errno(libc::EBADF | libc::EINVAL)) if listener.listening.accepting_fd.load(Ordering::Acquire) != set => Ok(false),
        slept => slept.map(|_| event.u64 == BELLS),
    }
}

/// The listener, or its rendezvous, goes.
pub fn forget(listener: &Socket) {
    private::close_at(&listener.listening.accepting_fd);
}

/// In the child after fork: the sets are the parent's.
pub fn forked() {
    if !ACCEPTORS.any_asleep.swap(false, Ordering::Relaxed) {
        return;
    }
    for fd in table::programs() {
        let word = table::get(fd);
        if let (Kind::Listener, Some(listener)) = (word.kind(), word.object::<Socket>()) {
            forget(listener);
        }
    }
}
