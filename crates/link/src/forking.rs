//! Listeners whose server forks for each connection a process that becomes another user.
//!
//! Each such process retires the link that it has, so each connection needs another one, for which it costs more than the
//! kernel's connection does. After a few in a row the listener is left to the kernel, and tried again much later.

use super::{at, end_offers, header, links};
use crate::kept;
use shunt_ring::offers;
use shunt_table::global::Shared;

/// Links retired one after another, before the listener is left to the kernel.
const ENOUGH: u32 = 4;
/// A link in which more connections were made than this before it was retired has paid.
const PAID: u32 = 8;
/// Connections through the kernel, before a link is tried again.
const PATIENCE: u32 = 1000;
/// Listeners that are remembered.
const MOST: usize = 16;

#[derive(Clone, Copy)]
struct Forking {
    /// Its inode; 0: an unused entry.
    listener: u32,
    retired: u32,
    /// Whether no link was made since the last was retired.
    owed: bool,
    /// Connections left to the kernel so far.
    left: u32,
}

struct Known {
    all: [Forking; MOST],
    next: usize,
}

const UNUSED: Forking = Forking { listener: 0, retired: 0, owed: false, left: 0 };

static KNOWN: Shared<Known> = Shared::new(Known { all: [UNUSED; MOST], next: 0 });

fn known() -> &'static mut Known {
    // SAFETY: the set-up lock is held, as every function of links requires.
    unsafe { &mut *KNOWN.get() }
}

fn find(listener: u32) -> Option<&'static mut Forking> {
    known().all.iter_mut().find(|entry| listener != 0 && entry.listener == listener)
}

fn entry(listener: u32) -> &'static mut Forking {
    if let Some(entry) = find(listener) {
        return entry;
    }
    let known = known();
    let entry = &mut known.all[known.next];
    known.next = (known.next + 1) % MOST;
    *entry = Forking { listener, ..UNUSED };
    entry
}

/// Notes once of a link of ours that it was retired. Its bell and the pairs that were kept go, as nobody will use them, unless the
/// server has yet to accept what was made in memory.
pub(super) fn note(index: usize) {
    let link = at(index);
    if link.base.is_null() || !link.ours || link.inherited || !link.is_retired() {
        return;
    }
    if !link.noted {
        link.noted = true;
        let entry = entry(link.listener);
        entry.retired = if link.lent > PAID { 0 } else { entry.retired + 1 };
        entry.owed = true;
    }
    if link.bell >= 0 && offers::waiting(&header(link.base).offers) == 0 {
        end_offers(index);
        kept::forget_all(index);
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
    find(listener).is_some_and(|entry| core::mem::take(&mut entry.owed))
}

/// Whether this connection to `listener` is the kernel's, because links to it do not pay.
pub fn left_to_kernel(listener: u32) -> bool {
    note_all(listener);
    let Some(entry) = find(listener).filter(|entry| entry.retired >= ENOUGH) else { return false };
    entry.left += 1;
    if entry.left > PATIENCE {
        (entry.retired, entry.left) = (ENOUGH - 1, 0);
        return false;
    }
    true
}
