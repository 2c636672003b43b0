//! The list of links that this process has, and what it knows of each.

use crate::bids::Bids;
use crate::forking::Known;
use core::sync::atomic::{AtomicBool, Ordering};
use shunt_ring::offers;
use shunt_segment::area::{BASE_SIZE, CHANNEL_PAGES, PAGE};
use shunt_segment::channel::ChannelPage;
use shunt_segment::link::{LinkHeader, PLAIN_PEERS, STATIONS};
use shunt_segment::CHANNELS;
use shunt_sys::{libc, mapping, Errno, Result};
use shunt_table::global::LockedCell;

/// Links that a process can have.
pub const MOST: usize = 4096;

/// Lists of links by listener.
const LISTS: usize = 256;

/// Words of a bit set of channels, and its bits that stand for none.
pub(crate) const WORDS: usize = CHANNELS.div_ceil(64);
const NO_CHANNEL: u64 = if CHANNELS.is_multiple_of(64) { 0 } else { u64::MAX << (CHANNELS % 64) };

/// A link as this process knows it.
#[derive(Clone, Copy)]
pub struct Link {
    /// First byte; null: an unused entry.
    pub base: *mut u8,
    /// The private descriptor of the memfd; -1: given up ([`crate::narrow()`]).
    pub fd: i32,
    /// True if this process made it and gives out its channels.
    pub ours: bool,
    /// True after a fork: the parent gives out the channels.
    pub inherited: bool,
    /// Inode of the listener that it leads to (for ours).
    pub listener: u32,
    /// The process in another network namespace that it leads to or, if it is theirs, comes from ([`crate::peers`]); 0: none there.
    pub(crate) peer: u64,
    /// That process has proved that it has the link (for ours).
    pub(crate) proved: bool,
    /// The rendezvous through which it came, -1: none (for theirs).
    pub rendezvous: i32,
    /// Name of the link; 0: it cannot be named any more ([`crate::narrow()`]).
    pub nonce: u64,
    /// Name of the link.
    pub sequence: u32,
    /// The other process and its user, as the kernel told: the client's for theirs, for ours the listener's. A process
    /// id of 0: one that this PID namespace does not see.
    pub other: (u32, u32),
    /// The effective user under whom it was made (for ours), as the kernel tells others.
    pub(crate) user: u32,
    /// Reserved local ports of connections, by channel, 0: none (for ours). Given back when both sides have let go.
    pub(crate) ports: [u16; CHANNELS],
    /// Connections of this process in it.
    pub live: u32,
    /// Channels in use, one bit each (for ours).
    pub(crate) used: [u64; WORDS],
    /// Of those, closed by us and waiting for the server to let go.
    pub(crate) waiting: [u64; WORDS],
    /// The bell of the link's offers: our end of a socket pair. -1: connections are not made in memory.
    pub bell: i32,
    /// The server's end, until it is sent with the first connection. -1: none.
    pub bell_for_server: i32,
    /// The channel that a connection in memory used last.
    pub rotor: u8,
    /// What became of bids (for ours).
    pub bids: Bids,
    /// The client has let go of its bell: it is gone, or wants the link no longer.
    pub(crate) left: bool,
    /// When the kernel was asked last whether the client still lives, in ticks; 0: never.
    pub(crate) asked: u64,
    /// One of a station's, for streams to other hosts: it stays, whether a stream uses it or not.
    pub(crate) lasting: bool,
    /// Connections that were made in it: lent, or (for theirs) accepted by this process.
    pub(crate) lent: u32,
    /// It was found closed to further connections ([`crate::dedicated`]).
    pub(crate) closed: bool,
    /// That it was retired was noted (for ours).
    pub(crate) noted: bool,
    /// The next one of its list, plus one; 0: none (for ours).
    pub(crate) next: u16,
}

impl Link {
    /// Whether its channels are this process's to give out, for connections to `listener`.
    pub(crate) fn lends_to(&self, listener: u32) -> bool {
        !self.base.is_null() && self.ours && !self.inherited && self.listener == listener && self.peer == 0 && !self.is_retired()
    }

    /// Whether its channels are streams to other hosts, of this process's family or of another program's, or to peers that have only a kernel.
    pub(crate) fn is_of_a_station(&self) -> bool {
        matches!(header(self.base).lent.load(Ordering::Relaxed), STATIONS | PLAIN_PEERS)
    }

    /// Whether no further connection is made in it.
    pub fn is_retired(&self) -> bool {
        self.closed || header(self.base).retired.load(Ordering::Acquire) != 0
    }

    /// A link at `base` that is neither ours nor a peer's yet. `name`: nonce and sequence.
    pub(crate) fn new(base: *mut u8, fd: i32, name: (u64, u32)) -> Link {
        Link {
            base,
            fd,
            ours: false,
            inherited: false,
            listener: 0,
            peer: 0,
            proved: false,
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

/// The links of this process, under the set-up lock.
pub(crate) struct Links {
    entries: *mut Link,
    pub(crate) count: usize,
    pub(crate) sequence: u32,
    pub(crate) blanks: [*mut u8; 64],
    pub(crate) blank_count: usize,
    pub(crate) sweep: usize,
    /// The first link of each list, plus one; 0: none.
    lists: [u16; LISTS],
    /// Listeners whose servers retire the links that they have.
    pub(crate) forking: Known,
}

/// A page of this process's own, which a copy of a link's header is made in and moved from; zeros, but meanwhile.
#[repr(align(4096))]
pub(crate) struct Spare {
    _words: [u64; PAGE / 8],
}

/// What the process keeps of its links.
#[repr(C)]
pub(crate) struct State {
    /// Under the set-up lock.
    pub(crate) spare: LockedCell<Spare>,
    /// Under the set-up lock.
    list: LockedCell<Links>,
    /// Whether a link would have been dropped, had there not been connections that wait to be accepted: perhaps through it.
    pub(crate) drop_owed: AtomicBool,
}

pub(crate) static LINKS: State = State {
    spare: LockedCell::new(Spare { _words: [0; PAGE / 8] }),
    list: LockedCell::new(Links {
        entries: core::ptr::null_mut(),
        count: 0,
        sequence: 0,
        blanks: [core::ptr::null_mut(); 64],
        blank_count: 0,
        sweep: 0,
        lists: [0; LISTS],
        forking: Known::NONE,
    }),
    drop_owed: AtomicBool::new(false),
};

pub(crate) fn links() -> &'static mut Links {
    // SAFETY: the set-up lock is held, as every function here requires.
    unsafe { &mut *LINKS.list.get() }
}

impl Links {
    pub(crate) fn all(&mut self) -> &mut [Link] {
        if self.entries.is_null() {
            return &mut [];
        }
        // SAFETY: `count` initialised entries.
        unsafe { core::slice::from_raw_parts_mut(self.entries, self.count) }
    }

    /// Memory for the entries, from the first link on.
    pub(crate) fn furnish(&mut self) -> Result<()> {
        if self.entries.is_null() {
            self.entries = mapping::reserve(MOST * core::mem::size_of::<Link>())?.cast();
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, link: Link) -> Result<usize> {
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
    pub(crate) fn forget(&mut self, index: usize) {
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
    pub(crate) fn listed(&self, listener: u32) -> impl Iterator<Item = usize> {
        let entry = |number: u16| (number as usize).checked_sub(1);
        let next = move |index: &usize| entry(at(*index).next);
        core::iter::successors(entry(self.lists[listener as usize % LISTS]), next)
    }

    pub(crate) fn try_map(&mut self, fd: i32) -> Result<*mut u8> {
        if self.blank_count > 0 {
            let base = self.blanks[self.blank_count - 1];
            // SAFETY: a blank range; late readers accept any bytes.
            unsafe { mapping::shared_over(base, fd, BASE_SIZE)? };
            self.blank_count -= 1;
            return Ok(base);
        }
        mapping::shared(fd, BASE_SIZE)
    }

    pub(crate) fn unmap(&mut self, base: *mut u8) {
        // SAFETY: no connection of ours uses the range any more; late readers of a closed socket accept zeros.
        if unsafe { mapping::blank_at_any_price(base, BASE_SIZE) } && self.blank_count < self.blanks.len() {
            self.blanks[self.blank_count] = base;
            self.blank_count += 1;
        }
    }
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
        let links = &*LINKS.list.get();
        if links.entries.is_null() || index >= MOST {
            return -1;
        }
        (*links.entries.add(index)).fd
    }
}

/// Whether this process has a link that another process made.
pub fn any_guest() -> bool {
    links().all().iter().any(|link| !link.base.is_null() && !link.ours)
}

/// Where the list of links lies.
pub fn entries_address() -> usize {
    links().entries as usize
}

/// The process at the server's end of a link that another process made is no longer the only one that accepts: clients are to come through the
/// rendezvous, or the kernel.
pub(crate) fn end_sole(link: &Link) {
    header(link.base).sole.store(0, Ordering::Release);
    offers::set_backlog(&header(link.base).offers, 0);
}
