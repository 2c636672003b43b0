//! Looking after streams to which nothing happens, when it is time ([`crate::deadlines`]).

use crate::deadlines::{begin, end, lifelines, next, NEVER};
use crate::{beside, corked, stalled};
use core::sync::atomic::Ordering;
use shunt_sys::clock;
use shunt_table::table;

/// Looks after the streams that ask for it, if it is time. True if there are bytes that were not there before, or an end.
#[inline]
pub fn keep() -> bool {
    next() != NEVER && (keep_lifelines() | keep_due())
}

fn keep_lifelines() -> bool {
    lifelines().load(Ordering::Relaxed) != NEVER && beside::keep()
}

#[cold]
fn keep_due() -> bool {
    let now = clock::monotonic_ns();
    let Some(look) = begin(now) else { return false };
    let (mut first, mut news) = (NEVER, false);
    for fd in table::numbers() {
        let Some(socket) = crate::socket::stream(fd) else { continue };
        let (next, came) = corked::keep(socket, now);
        first = first.min(next).min(stalled::keep(socket, fd, now));
        news |= came;
    }
    end(look, now, first);
    news
}
