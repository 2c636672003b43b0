//! Links of ours that their servers have retired: each is noted once, and its bell and its idle pairs go.

use crate::bell::end_offers;
use crate::companion_cache;
use crate::list::{at, header, links};
use shunt_ring::offers;

/// Notes once of a link of ours that it was retired. Its bell and the pairs that were kept go, as they will not be used, unless the
/// server has yet to accept what was made in memory.
pub(super) fn note(index: usize) {
    let link = at(index);
    if link.base.is_null() || !link.ours || link.inherited || !link.is_retired() {
        return;
    }
    if !link.noted {
        link.noted = true;
        links().forking.retired(link.listener, link.lent);
    }
    if link.bell >= 0 && offers::waiting(&header(link.base).offers) == 0 {
        end_offers(index);
        companion_cache::forget_all(index);
    }
}

/// [`note`], of all links to `listener`.
pub(super) fn note_all(listener: u32) {
    for index in links().listed(listener) {
        if at(index).listener == listener {
            note(index);
        }
    }
}

/// Whether a link that was made just now takes the place of a retired one.
pub(super) fn makes_up(listener: u32) -> bool {
    links().forking.makes_up(listener)
}

/// Whether this connection to `listener` is the kernel's, because links to it do not pay.
pub fn left_to_kernel(listener: u32) -> bool {
    note_all(listener);
    links().forking.leaves_to_kernel(listener)
}
