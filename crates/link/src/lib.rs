//! Links: the segments that this process shares with others, as their maker (client) or guest (server).
//!
//! A link's address range is never unmapped while the process lives: a dropped link is replaced by blank memory and its
//! range serves the next one, so a thread that races with a close reads zeros, not a fault. All functions are called
//! under the set-up lock.
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `shunt_link` and `shunt_stream::socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

mod adopt;
mod bell;
pub mod bids;
mod drop;
mod forking;
pub mod kept;
mod leave;
mod lend;
mod make;
mod narrow;
pub mod ports;
pub mod reserve;
pub mod shared_ports;
mod solitary;
pub mod users;
pub mod window;

pub use adopt::{adopt, by_name, is_named, is_segment, is_segment_of, known, name_of, named, retire_if_shared, take_up};
pub use bell::{bell_known, client_left, end_offers, for_offers, forget_idle_pairs};
pub use drop::{drop_lasting, drop_owed, drop_unused, part_with, sweep};
pub use forking::left_to_kernel;
pub use leave::{about_to_release, ending, enter, leave, let_go};
pub use lend::{clear_for_next, lends, lent_pages, note, offer, reusable, Offer};
pub use make::{holds_range, make_lasting};
pub use narrow::{narrow, no_longer_lasting};
pub use solitary::make_solitary;

use shunt_table::global::Shared;
use shunt_table::private;

use bids::Bids;
use core::sync::atomic::Ordering;
use shunt_ring::offers;
use shunt_segment::area::{BASE_SIZE, CHANNEL_PAGES, PAGE};
use shunt_segment::channel::ChannelPage;
use shunt_segment::link::{LinkHeader, STATIONS};
use shunt_segment::CHANNELS;
use shunt_sys::{calls, libc, mapping, Errno, Result};

/// Links that a process can have.
pub const MOST: usize = 4096;

/// Lists of links by listener.
const LISTS: usize = 256;

/// Words of a bit set of channels, and its bits that stand for none.
const WORDS: usize = CHANNELS.div_ceil(64);
const NO_CHANNEL: u64 = if CHANNELS.is_multiple_of(64) { 0 } else { u64::MAX << (CHANNELS % 64) };

/// A link as this process knows it.
#[derive(Clone, Copy)]
pub struct Link {
    /// First byte; null: an unused entry.
    pub base: *mut u8,
    /// The private descriptor of the memfd; -1: given up ([`narrow()`]).
    pub fd: i32,
    /// True if this process made it and gives out its channels.
    pub ours: bool,
    /// True after a fork: the parent gives out the channels.
    pub inherited: bool,
    /// Inode of the listener that it leads to (for ours).
    pub listener: u32,
    /// The rendezvous through which it came, -1: none (for theirs).
    pub rendezvous: i32,
    /// Name of the link; 0: it cannot be named any more ([`narrow()`]).
    pub nonce: u64,
    /// Name of the link.
    pub sequence: u32,
    /// The other process and its user, as the kernel told: the client's for theirs, for ours whoever listens. A process
    /// id of 0: one that this PID namespace does not see.
    pub other: (u32, u32),
    /// The effective user who made it (for ours), as the kernel tells others.
    user: u32,
    /// Reserved local ports of connections, by channel, 0: none (for ours). Given back when both sides have let go.
    ports: [u16; CHANNELS],
    /// Connections of this process in it.
    pub live: u32,
    /// Channels in use, one bit each (for ours).
    used: [u64; WORDS],
    /// Of those, closed by us and waiting for the server to let go.
    waiting: [u64; WORDS],
    /// The bell of the link's offers: our end of a socket pair. -1: connections are not made in memory.
    pub bell: i32,
    /// The server's end, until it is sent with the first connection. -1: none.
    pub bell_for_server: i32,
    /// The channel that a connection in memory used last.
    pub rotor: u8,
    /// What became of bids (for ours).
    pub bids: Bids,
    /// The client has let go of its bell: it is gone, or wants the link no longer.
    left: bool,
    /// When the kernel was asked last whether the client still lives, in ticks; 0: never.
    asked: u64,
    /// One of a station's, for streams to other hosts: it stays, whether anybody uses it or not.
    lasting: bool,
    /// Connections that were made in it: lent, or (for theirs) accepted by this process.
    lent: u32,
    /// It was found closed to further connections ([`solitary`]).
    closed: bool,
    /// That it was retired was noted (for ours).
    noted: bool,
    /// The next one of its list, plus one; 0: none (for ours).
    next: u16,
}

impl Link {
    /// Whether its channels are this process's to give out, for connections to `listener`.
    fn lends_to(&self, listener: u32) -> bool {
        !self.base.is_null() && self.ours && !self.inherited && self.listener == listener && !self.is_retired()
    }

    /// Whether its channels are streams to other hosts, of this process's family or of another program's.
    fn is_of_a_station(&self) -> bool {
        header(self.base).lent.load(Ordering::Relaxed) == STATIONS
    }

    fn is_retired(&self) -> bool {
        self.closed || header(self.base).retired.load(Ordering::Acquire) != 0
    }

    /// A link at `base` that is neither ours nor anybody's yet. `name`: nonce and sequence.
    fn new(base: *mut u8, fd: i32, name: (u64, u32)) -> Link {
        Link {
            base,
            fd,
            ours: false,
            inherited: false,
            listener: 0,
            rendezvous: -1,
            nonce: name.0,
            sequence: name.1,
            other: (0, 0),
            user: 0,
            ports: [0; CHANNELS],
            live: 0,
            used: [NO_CHANNEL; WORDS],
            waiting: [0; WORDS],
            bell: -1,
            bell_for_server: -1,
            rotor: 0,
            bids: Bids::NONE,
            left: false,
            asked: 0,
            lasting: false,
            lent: 0,
            closed: false,
            noted: false,
            next: 0,
        }
    }
}

struct Links {
    entries: *mut Link,
    count: usize,
    sequence: u32,
    blanks: [*mut u8; 64],
    blank_count: usize,
    sweep: usize,
    /// The first link of each list, plus one; 0: none.
    lists: [u16; LISTS],
}

static LINKS: Shared<Links> = Shared::new(Links {
    entries: core::ptr::null_mut(),
    count: 0,
    sequence: 0,
    blanks: [core::ptr::null_mut(); 64],
    blank_count: 0,
    sweep: 0,
    lists: [0; LISTS],
});

fn links() -> &'static mut Links {
    // SAFETY: the set-up lock is held, as every function here requires.
    unsafe { &mut *LINKS.get() }
}

impl Links {
    fn all(&mut self) -> &mut [Link] {
        if self.entries.is_null() {
            return &mut [];
        }
        // SAFETY: `count` initialised entries.
        unsafe { core::slice::from_raw_parts_mut(self.entries, self.count) }
    }

    /// Memory for the entries, from the first link on.
    fn furnish(&mut self) -> Result<()> {
        if self.entries.is_null() {
            self.entries = mapping::reserve(MOST * core::mem::size_of::<Link>())?.cast();
        }
        Ok(())
    }

    fn add(&mut self, link: Link) -> Result<usize> {
        self.furnish()?;
        let index = match self.all().iter().position(|l| l.base.is_null()) {
            Some(index) => index,
            None if self.count < MOST => {
                self.count += 1;
                self.count - 1
            }
            None => return Err(Errno(libc::ENOMEM)),
        };
        // SAFETY: index < count <= MOST.
        unsafe { self.entries.add(index).write(link) };
        if link.ours {
            // Behind the one with the bell, if there is one.
            let first = self.listed(link.listener).find(|&other| at(other).listener == link.listener && at(other).bell >= 0);
            let place = match first {
                Some(other) => &mut self.all()[other].next,
                None => &mut self.lists[link.listener as usize % LISTS],
            };
            let next = core::mem::replace(place, index as u16 + 1);
            self.all()[index].next = next;
        }
        Ok(index)
    }

    /// The entry is unused from now on.
    fn forget(&mut self, index: usize) {
        let link = self.all()[index];
        self.all()[index].base = core::ptr::null_mut();
        let mut place = &raw mut self.lists[link.listener as usize % LISTS];
        // SAFETY: of our own lists, and of entries in them, which are initialised.
        unsafe {
            while link.ours && *place != 0 {
                if *place == index as u16 + 1 {
                    *place = link.next;
                    return;
                }
                place = &raw mut (*self.entries.add(*place as usize - 1)).next;
            }
        }
    }

    /// Indices of the links of ours to `listener`, and of others of the same list: the one through which connections are made in
    /// memory, then the newest first.
    fn listed(&self, listener: u32) -> impl Iterator<Item = usize> {
        let entry = |number: u16| (number as usize).checked_sub(1);
        let next = move |index: &usize| entry(at(*index).next);
        core::iter::successors(entry(self.lists[listener as usize % LISTS]), next)
    }

    fn try_map(&mut self, fd: i32) -> Result<*mut u8> {
        if self.blank_count > 0 {
            let base = self.blanks[self.blank_count - 1];
            // SAFETY: a blank range; late readers accept any bytes.
            unsafe { mapping::shared_over(base, fd, BASE_SIZE)? };
            self.blank_count -= 1;
            return Ok(base);
        }
        mapping::shared(fd, BASE_SIZE)
    }

    fn unmap(&mut self, base: *mut u8) {
        // SAFETY: no connection of ours uses the range any more; late readers of a closed socket accept zeros.
        if unsafe { mapping::blank_at_any_price(base, BASE_SIZE) } && self.blank_count < self.blanks.len() {
            self.blanks[self.blank_count] = base;
            self.blank_count += 1;
        }
    }
}

/// Bytes of address space that links take now.
pub fn address_space() -> u64 {
    let mapped = links().all().iter().filter(|l| !l.base.is_null()).count();
    ((mapped + links().blank_count) * BASE_SIZE) as u64 + window::address_space()
}

/// The header of the link at `base`.
pub fn header(base: *mut u8) -> &'static LinkHeader {
    // SAFETY: links are page-aligned and start with their header.
    unsafe { &*base.cast::<LinkHeader>() }
}

/// A channel's page.
pub fn page(base: *mut u8, channel: usize) -> &'static ChannelPage {
    // SAFETY: the offset lies in the link.
    unsafe { &*base.add(CHANNEL_PAGES + (channel & (CHANNELS - 1)) * PAGE).cast::<ChannelPage>() }
}

/// Link `index`, which exists.
pub fn at(index: usize) -> &'static mut Link {
    &mut links().all()[index]
}

/// How many entries the list of links has.
pub fn count() -> usize {
    links().count
}

/// The private descriptor of link `index`, -1: none.
pub fn descriptor(index: usize) -> i32 {
    links().all().get(index).map_or(-1, |link| if link.base.is_null() { -1 } else { link.fd })
}

/// As [`descriptor`], for a connection of the link, which keeps it; without the set-up lock.
pub fn descriptor_unlocked(index: usize) -> i32 {
    // SAFETY: entries are never unmapped; a link does not change while a connection of this process is in it.
    unsafe {
        let links = &*LINKS.get();
        if links.entries.is_null() || index >= MOST {
            return -1;
        }
        (*links.entries.add(index)).fd
    }
}

/// Before a fork of a process whose listener others will share: clients must send their links again.
pub fn not_sole() {
    links().all().iter().filter(|link| !link.base.is_null() && !link.ours).for_each(end_sole);
}

/// Whether this process has a link of somebody else's.
pub fn any_guest() -> bool {
    links().all().iter().any(|link| !link.base.is_null() && !link.ours)
}

fn end_sole(link: &Link) {
    header(link.base).sole.store(0, Ordering::Release);
    offers::set_backlog(&header(link.base).offers, 0);
}

/// Link `index`, if `server` is the process at its server's end: clients are to come through the rendezvous, or the kernel.
pub fn end_offers_to(index: usize, server: u32) {
    let link = at(index);
    if !link.base.is_null() && header(link.base).server.pid.load(Ordering::Relaxed) == server {
        end_sole(link);
    }
}

/// The process is in another network namespace: it connects to nobody through links that it made in the old one. Its clients go on.
pub fn namespace_changed() {
    for index in 0..count() {
        let link = at(index);
        if !link.base.is_null() && link.ours && !link.inherited {
            kept::forget_all(index);
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
        kept::forget_all(index);
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

/// Where the list of links lies.
pub fn entries_address() -> usize {
    links().entries as usize
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    kept::moved(from, to);
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
