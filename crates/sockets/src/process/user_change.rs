//! A process that becomes another user: it may run code for that one from now on, or be traced, so it is to have no memory of
//! connections that are not its own.
//!
//! At this moment it is still trusted, as it was that of the user that it was. What it shares with others is narrowed to the
//! connections of which it has a descriptor ([`shunt_link`]). seteuid(2) alone is ignored: the process can switch
//! back, so narrowing its links would protect nothing.

use core::sync::atomic::Ordering;
use shunt_handover::waiting::leave_to_kernel;
use shunt_link as link;
use shunt_rendezvous::accept::owner::{claim, whose};
use shunt_rendezvous::carriers;
use shunt_stream::references::keep::before_narrowing;
use shunt_stream::socket::{stream, Socket};
use shunt_sys::calls;
use shunt_table::global::{self, SETUP};
use shunt_table::process::user::{own, set_effective, set_own};
use shunt_table::process::{status_page, users};
use shunt_table::table;
use shunt_table::table::Kind;

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
    pub(crate) fn outcome(&self, [real, effective, saved]: [u32; 3]) -> [u32; 3] {
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
    set_effective(now[1]);
    let before = own();
    if now.contains(&before) {
        return;
    }
    status_page::separate();
    if SETUP.lock().is_none() || carriers::all().any(|carrier| (carrier.is_driving)()) {
        global::owe_user_change();
        return;
    }
    set_own(now[1]);
    for_listeners(|fd, listener| {
        listener.listening.claimed.store(0, Ordering::Relaxed);
        if let Err(whose) = claim(listener) {
            leave_to_kernel(fd, listener, whose); // another process has accepted at this very moment
        }
    });
    shunt_inbox::datagram::user_changed(before);
    carriers::all().for_each(|carrier| (carrier.user_changed)());
    table::programs().filter_map(stream).for_each(before_narrowing);
    if let Some(_setup) = SETUP.lock() {
        link::narrow();
    }
    users::leave();
}

fn for_listeners(each: impl Fn(i32, &'static Socket)) {
    for fd in table::numbers() {
        if let (Kind::Listener, Some(listener)) = (table::get(fd).kind(), table::get(fd).object::<Socket>()) {
            if listener.private_fd.load(Ordering::Acquire) >= 0 {
                each(fd, listener);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_sys::libc;
    use shunt_table::process::user::start;

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
            crate::wiring::fill();
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
