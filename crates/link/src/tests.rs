//! Links of one process, without a server: what is lent, kept, refused and given back.
//!
//! The list of links is the process's, and tests are its threads: each holds the set-up lock for as long as it lasts, and drops its links.

mod channels;
mod hostile;
mod pairs;
mod ports;
mod waiting;

use crate::drop::drop_link;
use crate::{at, header, offer, page, Offer};
use core::sync::atomic::Ordering;
use shunt_sys::{calls, clock, libc};
use shunt_table::global::{Guard, SETUP};
use std::collections::HashSet;
use std::sync::Once;

/// The set-up lock, and links that go with it.
struct Room {
    made: HashSet<usize>,
    _setup: Guard<'static>,
}

impl Room {
    fn enter() -> Room {
        static STARTED: Once = Once::new();
        STARTED.call_once(|| {
            clock::start();
            crate::users::fill(&upcalls::USERS);
        });
        let setup = SETUP.lock().expect("no handler interrupts a test");
        shunt_table::process::user::is_now(calls::geteuid());
        Room { made: HashSet::new(), _setup: setup }
    }

    /// A channel of a link to `listener`, as a client takes it.
    fn offer(&mut self, listener: u32) -> Offer {
        let offer = offer(listener).expect("memory for a link");
        self.made.insert(offer.index);
        crate::enter(offer.index);
        offer
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        for index in self.made.drain() {
            if !at(index).base.is_null() {
                at(index).lasting = false;
                drop_link(index);
            }
        }
    }
}

/// What the room above is told of.
mod upcalls {
    use crate::users::Users;
    use std::sync::atomic::{AtomicUsize, Ordering};

    pub(super) static OFFERS_END: AtomicUsize = AtomicUsize::new(usize::MAX);
    pub(super) static USERS: Users = Users {
        connections: |_| 0,
        deferred: |_| 0,
        shut: |_| {},
        offers_end: |index| OFFERS_END.store(index, Ordering::Relaxed),
    };
}

/// A fresh socket pair.
fn pair() -> [i32; 2] {
    let mut pair = [-1; 2];
    calls::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr()).expect("a pair");
    pair
}

/// Whether a number is open.
fn is_open(fd: i32) -> bool {
    calls::fcntl(fd, libc::F_GETFD, 0).is_ok()
}
