//! A process that becomes another user: it may run code for that one from now on, or be traced, so it is to have no memory of
//! connections that are not its own.
//!
//! At this moment it is still trusted, as it was that of the user that it was. What it shares with others is narrowed to the
//! connections of which it has a descriptor ([`crate::link`]). A change of the effective user alone is none: who can go
//! back could reach everything all the same.

use crate::global::{OWED, SETUP};
use crate::handover::waiting;
use crate::link;
use crate::process::{report, users};
use crate::remote;
use crate::rendezvous::listen;
use crate::socket::{flag, Socket};
use crate::table::{self, Kind};
use core::sync::atomic::{AtomicU32, Ordering};
use shunt_segment::reason::Reason;
use shunt_sys::{calls, libc};

/// The user under whom the process has what it shares.
static USER: AtomicU32 = AtomicU32::new(0);

/// The effective user, under whom connections are made.
static EFFECTIVE: AtomicU32 = AtomicU32::new(0);

/// At start-up.
pub(super) fn start() {
    let user = calls::geteuid();
    USER.store(user, Ordering::Relaxed);
    EFFECTIVE.store(user, Ordering::Relaxed);
}

/// The effective user, as far as calls tell.
pub(crate) fn effective() -> u32 {
    EFFECTIVE.load(Ordering::Relaxed)
}

/// The child of a process that has what it shares under another user is `user`'s now, and has nothing of that any more.
pub(crate) fn is_now(user: u32) {
    USER.store(user, Ordering::Relaxed);
    EFFECTIVE.store(user, Ordering::Relaxed);
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

/// A call that changes users, as [`changing`] is told of it; -1 changes nothing.
pub enum Call {
    /// setuid(2)
    Set(u32),
    /// setreuid(2)
    RealEffective(u32, u32),
    /// setresuid(2)
    All(u32, u32, u32),
}

impl Call {
    /// The real, effective and saved user after it, should it succeed.
    fn outcome(&self, [real, effective, saved]: [u32; 3]) -> [u32; 3] {
        let or = |wanted: u32, now: u32| if wanted == u32::MAX { now } else { wanted };
        match *self {
            Call::Set(user) if effective == 0 => [user; 3],
            Call::Set(user) => [real, user, saved],
            Call::RealEffective(to_real, to_effective) => {
                let new = [or(to_real, real), or(to_effective, effective)];
                let saves = to_real != u32::MAX || (to_effective != u32::MAX && to_effective != real);
                [new[0], new[1], if saves { new[1] } else { saved }]
            }
            Call::All(to_real, to_effective, to_saved) => [or(to_real, real), or(to_effective, effective), or(to_saved, saved)],
        }
    }
}

fn users_now() -> Option<[u32; 3]> {
    let [mut real, mut effective, mut saved] = [0; 3];
    calls::getresuid(&mut real, &mut effective, &mut saved).ok().map(|()| [real, effective, saved])
}

/// Before a change of user: listeners whose connections are others' are given up, while this process may still touch what waits there.
#[cold]
pub fn changing(call: &Call) {
    let Some(after) = users_now().map(|now| call.outcome(now)) else { return };
    if !after.contains(&own()) {
        for_listeners(|fd, listener| match whose(listener) {
            Some(whose) if whose != after[1] => leave_to_kernel(fd, listener, whose),
            _ => {}
        });
    }
}

/// After a change of user by whatever call.
#[cold]
pub fn changed() {
    let Some(now) = users_now() else { return };
    EFFECTIVE.store(now[1], Ordering::Relaxed);
    let before = USER.load(Ordering::Relaxed);
    if now.contains(&before) {
        return;
    }
    if SETUP.lock().is_none() || remote::is_driving() {
        OWED.store(true, Ordering::Release);
        return;
    }
    USER.store(now[1], Ordering::Relaxed);
    for_listeners(|fd, listener| {
        listener.claimed.store(0, Ordering::Relaxed);
        if let Err(whose) = claim(listener) {
            leave_to_kernel(fd, listener, whose); // somebody has accepted at this very moment
        }
    });
    crate::datagram::user_changed(before);
    remote::user_changed();
    if let Some(_setup) = SETUP.lock() {
        link::narrow();
    }
    users::leave();
}

fn for_listeners(each: impl Fn(i32, &'static Socket)) {
    for fd in 0..table::high_water() {
        if let (Kind::Listener, Some(listener)) = (table::get(fd).kind(), table::get(fd).socket()) {
            if listener.private_fd.load(Ordering::Acquire) >= 0 {
                each(fd, listener);
            }
        }
    }
}

fn whose(listener: &Socket) -> Option<u32> {
    users::whose(listener.inode.load(Ordering::Relaxed), listener.private_fd.load(Ordering::Acquire))
}

/// The listener's connections are this process's user's. Errors: another's, whom no other must see.
fn claim(listener: &Socket) -> Result<(), u32> {
    if listener.claimed.load(Ordering::Relaxed) == 0 {
        users::claim(listener.inode.load(Ordering::Relaxed), listener.private_fd.load(Ordering::Acquire), own())?;
        listener.claimed.store(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether this process may take clients from the rendezvous of `listener`: if they are another user's, it becomes the kernel's.
/// `waits`: whether there is time for that now.
#[inline]
pub(crate) fn may_accept(listener: &Socket, waits: bool) -> bool {
    listener.claimed.load(Ordering::Relaxed) != 0 || claim_to_accept(listener, waits)
}

#[cold]
fn claim_to_accept(listener: &Socket, waits: bool) -> bool {
    let Err(whose) = claim(listener) else { return true };
    let is_it = |fd: &i32| table::get(*fd).socket().is_some_and(|socket| core::ptr::eq(socket, listener));
    if let Some((fd, listener)) =
        table::programs().find(is_it).filter(|_| waits).and_then(|fd| Some((fd, table::get(fd).socket()?)))
    {
        leave_to_kernel(fd, listener, whose);
    }
    false
}

/// The listener, of which two users' processes have the rendezvous, becomes the kernel's. Clients that wait there are carried to the
/// kernel's queue by processes of the user whose they are, who may have other connections in their links; and this process has the
/// rendezvous no more.
#[cold]
fn leave_to_kernel(fd: i32, listener: &'static Socket, whose: u32) {
    if let Some(_setup) = SETUP.lock() {
        link::not_sole(); // ends offers in memory
        listener.set(flag::LISTENER_SHARED);
        listener.only_forked.store(0, Ordering::Relaxed);
    }
    let _ = calls::shutdown(listener.private_fd.load(Ordering::Acquire), libc::SHUT_RD);
    if !waiting::carry_as(whose, fd, listener) {
        report::count(Reason::NotCarried); // no process could be made: they see their connections end
    }
    listen::retire(listener, Reason::UserChanged);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_calls_come_to() {
        const SAME: u32 = u32::MAX;
        assert_eq!(Call::Set(7).outcome([0, 0, 0]), [7, 7, 7]);
        assert_eq!(Call::Set(7).outcome([5, 6, 7]), [5, 7, 7]);
        assert_eq!(Call::RealEffective(SAME, 7).outcome([0, 0, 0]), [0, 7, 7]);
        assert_eq!(Call::RealEffective(SAME, 5).outcome([5, 6, 7]), [5, 5, 7]);
        assert_eq!(Call::RealEffective(7, 7).outcome([0, 0, 0]), [7, 7, 7]);
        assert_eq!(Call::All(SAME, 7, SAME).outcome([0, 0, 0]), [0, 7, 0]);
    }

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
