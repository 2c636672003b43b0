//! What becomes of all links at once: at a fork, in another network namespace, in a copy of the process, when a private descriptor moves.

use crate::list::{at, count, end_sole, header, links};
use crate::{companion_cache, window};
use core::sync::atomic::Ordering;
use shunt_segment::area::BASE_SIZE;
use shunt_sys::calls;
use shunt_table::private;

/// Before a fork of a process whose listener others will share: clients must send their links again.
pub fn not_sole() {
    links().all().iter().filter(|link| !link.base.is_null() && !link.ours).for_each(end_sole);
}

/// Link `index`, if `server` is the process at its server's end: clients are to come through the rendezvous, or the kernel.
pub fn end_offers_to(index: usize, server: u32) {
    let link = at(index);
    if !link.base.is_null() && header(link.base).server.pid.load(Ordering::Relaxed) == server {
        end_sole(link);
    }
}

/// The process is in another network namespace: it makes no connections through links that it made in the old one. Its clients go on.
pub fn namespace_changed() {
    for index in 0..count() {
        let link = at(index);
        if !link.base.is_null() && link.ours && !link.inherited {
            companion_cache::forget_all(index);
            private::close(core::mem::replace(&mut link.bell, -1));
            private::close(core::mem::replace(&mut link.bell_for_server, -1));
            link.inherited = true;
        }
    }
}

/// In the child after fork: our links' channels are the parent's to give out, and others' offers the parent's to accept.
/// Descriptors that would keep dead connections alive are closed.
pub fn forked() {
    for index in 0..count() {
        let link = at(index);
        if link.base.is_null() {
            continue;
        }
        companion_cache::forget_all(index);
        private::close(core::mem::replace(&mut link.bell, -1));
        private::close(core::mem::replace(&mut link.bell_for_server, -1));
        link.inherited |= link.ours;
    }
}

/// Unmaps all links with their windows, and forgets them: a copy of a process lets go of what that one shares.
pub fn forget_all() {
    for index in 0..count() {
        if !at(index).base.is_null() {
            window::drop_link(index);
        }
    }
    forget_all_but(|_| false);
}

/// Unmaps all links but those whose address `needed` knows, and forgets them.
pub fn forget_all_but(needed: impl Fn(*mut u8) -> bool) {
    for index in 0..count() {
        let base = at(index).base;
        if !base.is_null() && !needed(base) {
            let _ = calls::munmap(base, BASE_SIZE);
            links().forget(index);
        }
    }
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    companion_cache::moved(from, to);
    for link in links().all() {
        if link.fd == from {
            link.fd = to;
        }
        for slot in [&mut link.rendezvous, &mut link.bell, &mut link.bell_for_server] {
            if *slot == from {
                *slot = to;
            }
        }
    }
}
