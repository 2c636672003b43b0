//! Companions that outlive their connection, so that the next one on the channel needs no kernel to be made.
//!
//! When the last descriptor of a connection is closed, each end may keep a private duplicate of its companion. If both
//! did, the channel and the pair serve another connection: the client offers it in the link's queue
//! (`shunt_ring::offers`), and each end gives the program a duplicate under a number of its own. The kept descriptor
//! stays for as long as the pair does. All functions are called under the set-up lock.

use crate::fd_reserve;
use crate::list::{at, count, page, MOST as LINKS};
use core::sync::atomic::Ordering;
use shunt_segment::address::Address;
use shunt_segment::channel::release;
use shunt_segment::CHANNELS;
use shunt_sys::libc::{self, RLIMIT_NOFILE};
use shunt_sys::{calls, mapping};
use shunt_table::global::LockedCell;
use shunt_table::private;

/// Pairs that one process keeps at most; a sixteenth of its descriptors if that is less.
const MOST: u64 = 256;

/// One end of a pair.
pub struct Kept {
    /// The descriptor plus one; 0: none is kept.
    place: i32,
    /// O_NONBLOCK, as the open file has it.
    pub nonblocking: bool,
    /// The addresses of its connections.
    pub client: Address,
    /// See `client`.
    pub server: Address,
    /// Which companion of its channel it is ([`shunt_segment::channel::Head::pair`]).
    pub pair: u32,
}

impl Kept {
    /// The private descriptor.
    pub fn descriptor(&self) -> i32 {
        self.place - 1
    }

    /// Gives the open file the flag that the next connection wants.
    pub fn set_nonblocking(&mut self, wanted: bool) {
        if self.nonblocking != wanted {
            let flags = libc::O_RDWR | if wanted { libc::O_NONBLOCK } else { 0 };
            let _ = calls::fcntl(self.descriptor(), libc::F_SETFL, flags as usize);
            self.nonblocking = wanted;
        }
    }
}

struct Table {
    /// Rows of [`CHANNELS`], by the index of the link.
    rows: *mut Kept,
    count: u64,
}

static KEPT: LockedCell<Table> = LockedCell::new(Table { rows: core::ptr::null_mut(), count: 0 });

fn table() -> &'static mut Table {
    // SAFETY: the set-up lock is held.
    unsafe { &mut *KEPT.get() }
}

fn slot(index: usize, channel: usize) -> Option<&'static mut Kept> {
    let rows = table().rows;
    if rows.is_null() || index >= LINKS {
        return None;
    }
    // SAFETY: inside the reserved rows; all-zero is a valid Kept.
    Some(unsafe { &mut *rows.add(index * CHANNELS + channel % CHANNELS) })
}

/// What is kept for a channel of link `index`.
pub fn get(index: usize, channel: usize) -> Option<&'static mut Kept> {
    slot(index, channel).filter(|kept| kept.place != 0)
}

/// Keeps the companion `fd` (a connection's last descriptor, about to be closed). False: it cannot be kept.
pub fn keep(index: usize, channel: usize, fd: i32, nonblocking: bool, addresses: (Address, Address)) -> bool {
    if let Some(kept) = get(index, channel) {
        kept.nonblocking = nonblocking;
        return true;
    }
    if !fd_reserve::is_whole() {
        return false;
    }
    if table().rows.is_null() {
        match mapping::reserve(LINKS * CHANNELS * core::mem::size_of::<Kept>()) {
            Ok(rows) => table().rows = rows.cast(),
            Err(_) => return false,
        }
    }
    if table().count >= MOST.min(calls::soft_limit(RLIMIT_NOFILE) / 16) {
        forget_idle_pairs();
        if table().count >= MOST.min(calls::soft_limit(RLIMIT_NOFILE) / 16) {
            return false;
        }
    }
    let Ok(copy) = private::duplicate(fd) else { return false };
    let Some(kept) = slot(index, channel) else { return false };
    shunt_table::table::set_private(copy);
    let pair = page(at(index).base, channel).head.pair.load(Ordering::Relaxed);
    *kept = Kept { place: copy + 1, nonblocking, client: addresses.0, server: addresses.1, pair };
    table().count += 1;
    true
}

/// Room for another pair: those of links that no connection uses now go. A client may be about to offer one, or its offer
/// may wait: such a pair is the one whose side here is not released. The process that changes that word first has the pair.
pub fn forget_idle_pairs() {
    for index in 0..count() {
        let link = at(index);
        if link.base.is_null() || link.live > 0 {
            continue;
        }
        for channel in (0..CHANNELS).filter(|&channel| get(index, channel).is_some()) {
            let released = &page(link.base, channel).sides[1].released;
            let close = || released.compare_exchange(release::KEPT, release::CLOSED, Ordering::AcqRel, Ordering::Acquire);
            if link.ours || close() != Err(release::NOT) {
                forget(index, channel);
            }
        }
    }
}

/// Closes what is kept for a channel.
pub fn forget(index: usize, channel: usize) {
    if let Some(kept) = get(index, channel) {
        private::close(kept.descriptor());
        kept.place = 0;
        table().count -= 1;
    }
}

/// Closes what is kept for all channels of a link.
pub fn forget_all(index: usize) {
    if table().count > 0 {
        for channel in 0..CHANNELS {
            forget(index, channel);
        }
    }
}

/// A relay begins: it keeps nothing, and its copy of the memory goes.
pub fn none_any_more() {
    let table = table();
    table.rows = core::ptr::null_mut();
    table.count = 0;
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    for index in 0..count() {
        for channel in 0..CHANNELS {
            if let Some(kept) = get(index, channel) {
                if kept.descriptor() == from {
                    kept.place = to + 1;
                }
            }
        }
    }
}
