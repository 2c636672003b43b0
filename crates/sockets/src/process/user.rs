//! A process that becomes another user: it may run code for that one from now on, or be traced, so it is to have no memory of
//! connections that are not its own.
//!
//! At this moment it is still trusted, as it was that of the user that it was. What it shares with others is narrowed to the
//! connections of which it has a descriptor ([`crate::link`]). A change of the effective user alone is none: who can go
//! back could reach everything all the same.

use crate::global::{OWED, SETUP};
use crate::link;
use crate::process::users;
use crate::rendezvous::{accept, deferred, diag, parcel};
use crate::socket::{flag, Socket};
use crate::table::{self, Kind};
use core::sync::atomic::{AtomicU32, Ordering};
use shunt_sys::{calls, libc};

/// The user under whom the process has what it shares.
static USER: AtomicU32 = AtomicU32::new(0);

/// At start-up.
pub(super) fn start() {
    USER.store(calls::geteuid(), Ordering::Relaxed);
}

/// The user under whom the process has what it shares.
pub fn own() -> u32 {
    USER.load(Ordering::Relaxed)
}

/// Whether `user`, as the kernel tells it, is for sure the one under whom the process has what it shares.
pub fn is_own(user: u32) -> bool {
    // 65534 stands for every user that has no number in this user namespace.
    user == own() && (user != 65534 || crate::process::sees_all_users())
}

/// After a change of user by whatever call.
#[cold]
pub fn changed() {
    let [mut real, mut effective, mut saved] = [0; 3];
    if calls::getresuid(&mut real, &mut effective, &mut saved).is_err() {
        return;
    }
    let before = USER.load(Ordering::Relaxed);
    if [real, effective, saved].contains(&before) {
        return;
    }
    if SETUP.lock().is_none() {
        OWED.store(true, Ordering::Release);
        return;
    }
    USER.store(effective, Ordering::Relaxed);
    for fd in 0..table::high_water() {
        if let (Kind::Listener, Some(listener)) = (table::get(fd).kind(), table::get(fd).socket()) {
            leave_waiting(listener);
        }
    }
    crate::datagram::user_changed(before);
    if let Some(_setup) = SETUP.lock() {
        link::narrow();
    }
    users::leave();
}

/// Clients that nobody has accepted, and whose links this process knows, come again with their links, in their order.
fn leave_waiting(listener: &Socket) {
    let Some(setup) = SETUP.lock() else { return };
    if !link::any_guest() {
        return;
    }
    let alone = !listener.has(flag::LISTENER_SHARED);
    if alone {
        // Until the next client comes ([`crate::rendezvous::relatives`]).
        listener.only_forked.store(1, Ordering::Relaxed);
        listener.set(flag::LISTENER_SHARED);
    }
    link::not_sole();
    let most = listener.backlog.load(Ordering::Relaxed).saturating_add(1);
    let sent_none = match alone {
        true => diag::unix_waiting(listener.private_fd.load(Ordering::Relaxed)).unwrap_or(most),
        false => 0,
    };
    parcel::before_sharing();
    drop(setup);
    for _ in 0..sent_none {
        let Ok((arrival, setup)) = accept::arrive(listener, libc::SOCK_CLOEXEC, None) else { break };
        match parcel::post(arrival.index, arrival.channel, arrival.generation, arrival.companion, listener) {
            Ok(()) => drop(calls::close(arrival.companion)),
            Err(_) => deferred::keep(listener, arrival, &setup),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_inside_the_set_up_lock_may_change_the_user() {
        if calls::geteuid() != 0 {
            return;
        }
        // SAFETY: the child makes system calls and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            SETUP.reset();
            start();
            let held = SETUP.lock();
            // SAFETY: plain integers.
            let gone = unsafe { shunt_sys::syscall!(libc::SYS_setresuid, 65534, 65534, 65534) };
            changed();
            let early = own() != 0;
            drop(held);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(gone != 0 || early || own() != 65534)) };
        }
        let mut status = -1;
        // SAFETY: the child of this test.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
    }
}
