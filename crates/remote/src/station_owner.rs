//! The owner of a station: one user, as of a listener's connections ([`users`]). It is the user of the first process that has streams
//! there, or that becomes another user before there are any, as a server's workers do.
//!
//! A process that becomes another user than that keeps the rings of the streams of which it has descriptors, as of connections on one host
//! ([`link::narrow`]), and nothing else of the station. It tells the keeper by bells, like a program that was handed them, by
//! exec or in a message, and that may become another user, too. The numbers of all these streams are never lent again: the keeper
//! retires them when they end.

use super::local_station::{self, LocalStation};
use super::message::Message;
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_sys::libc;
use shunt_sys::section::Section;
use shunt_sys::{calls, clock, sleeping};
use shunt_table::global::SETUP;
use shunt_table::process::{user, users};
use shunt_table::{private, table};

/// How long the keeper may take to become another user (ns), where it gets no processor, and between two looks whether it has.
const FOLLOWS_WITHIN: u64 = 2_000_000_000;
const LOOK: i64 = 100_000;

impl LocalStation {
    /// Whether its streams are this process's user's, or will be from now on.
    pub fn is_own(&self) -> bool {
        if self.claimed.load(Ordering::Relaxed) {
            return true;
        }
        let control = self.control.load(Ordering::Relaxed);
        let Ok(status) = calls::status_of(control) else { return false };
        let own = users::claim(status.st_ino, control, user::own()).is_ok();
        self.claimed.store(own, Ordering::Relaxed);
        own
    }

    /// Has the keeper become this process's user, which writes from now on where the keeper reads. False: it has not.
    fn keeper_follows(&self) -> bool {
        let (user, group) = (calls::geteuid(), calls::getegid());
        let keeper = || self.common().keeper_user.load(Ordering::Acquire);
        // The station is this user's by now, and it has no other: only a keeper that says no, or is gone, ends the wait early.
        if keeper() == 0 && Message::User(user, group).send(self.control.load(Ordering::Relaxed), &[]).is_ok() {
            let until = clock::monotonic_ns() + FOLLOWS_WITHIN;
            while keeper() == 0 && clock::monotonic_ns() < until {
                let _ = sleeping::nap(LOOK);
            }
        }
        keeper() == u64::from(user) + 1
    }

    /// Leaves a station whose agent has ended, if no process has a stream there any more: an agent that is started again and again is not to
    /// cost each program sixteen descriptors and a keeper each time.
    pub(super) fn leave_if_empty(&'static self) {
        let is_empty = || {
            let Some(_setup) = SETUP.lock() else { return false };
            self.links.iter().all(|(_, index)| link::at(*index).live == 0)
        };
        if !self.station.is_over() || self.station.lent() > 0 || self.station.is_driven_here() || !is_empty() {
            return;
        }
        // A handler that jumped out of the middle would leave the rest for ever.
        let _section = Section::begin();
        if self.left.swap(true, Ordering::AcqRel) {
            return; // by another thread
        }
        self.part();
        // No other thread drops them before.
        if let Some(_setup) = SETUP.lock() {
            for &(_, index) in &self.links {
                // One that a thread took an answer from meanwhile stays until its connection is over.
                if link::at(index).live == 0 {
                    link::part_with(index);
                } else {
                    link::no_longer_lasting(index);
                }
            }
        }
    }

    fn leave(&'static self) {
        if self.left.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(_setup) = SETUP.lock() {
            self.links.iter().for_each(|(_, index)| link::no_longer_lasting(*index));
        }
        self.part();
    }

    /// Gives up all but the links.
    fn part(&'static self) {
        local_station::part_with(self);
        let descriptors = self.station.descriptors();
        for fd in descriptors.into_iter().filter(|fd| *fd >= 0) {
            table::take(fd);
        }
        // Where the lock's holders have other numbers it is not to be asked for; a process that is there has never driven.
        self.station.leave(!shunt_table::process::identity::numbers_are_strange());
        // What was left to the holder of the lock.
        let _ = Message::Wake.send(self.control.load(Ordering::Relaxed), &[]);
        private::close_at(&self.control);
    }
}

/// Whether the calling thread was interrupted while it drove.
pub fn is_driving() -> bool {
    !shunt_table::process::identity::numbers_are_strange()
        && local_station::local_stations().any(|local| local.station.is_driven_here())
}

/// This process has become another user: before [`link::narrow`], and while it may still write where its family reads.
pub fn user_changed() {
    for local in local_station::local_stations() {
        local.claimed.store(false, Ordering::Relaxed);
        if !local.is_own() || !local.keeper_follows() {
            local.leave();
        } else if calls::geteuid() != 0 {
            local.station.is_not_roots();
        }
    }
}

/// The keeper, which may have been root's, becomes the user of the streams that it keeps: other processes of that user write into the memory that it reads.
/// Gives the user that it is then.
pub fn become_user(user: u32, group: u32) -> u32 {
    // SAFETY: plain integers.
    unsafe {
        shunt_sys::syscall!(libc::SYS_setgroups, 0, 0);
        shunt_sys::syscall!(libc::SYS_setresgid, group, group, group);
        shunt_sys::syscall!(libc::SYS_setresuid, user, user, user);
    }
    calls::geteuid()
}
