//! Links: the segments that this process shares with others, as their maker (client) or guest (server).
//!
//! A link's address range is never unmapped while the process lives: a dropped link is replaced by blank memory and its
//! range serves the next one, so a thread that races with a close reads zeros, not a fault. All functions are called
//! under the set-up lock.

use crate::global::{self, Shared};
use crate::{kept, ports, private, window};
use core::sync::atomic::{AtomicBool, Ordering};
use shunt_ring::offers;
use shunt_segment::area::{ring_offset, BASE_SIZE, CHANNEL_PAGES, FIRST_IN_WINDOW, LINK_SIZE, PAGE, RING_SIZE};
use shunt_segment::channel::{life, release, ChannelPage};
use shunt_segment::link::{self, LinkHeader, Party};
use shunt_segment::CHANNELS;
use shunt_sys::libc::{self, AF_UNIX, F_ADD_SEALS, F_GET_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK};
use shunt_sys::libc::{SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};
use shunt_sys::{calls, mapping, Errno, Result};

const SEALS: i32 = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
/// Links that a process can have.
pub const MOST: usize = 4096;

/// Idle links of ours that wait for another connection to their listener. Whether that listener still exists only its
/// process could tell, in memory that it can write, so what bounds their number is this.
const IDLE_MOST: usize = 8;

/// Words of a bit set of channels, and its bits that stand for none.
const WORDS: usize = CHANNELS.div_ceil(64);
const NO_CHANNEL: u64 = if CHANNELS.is_multiple_of(64) { 0 } else { u64::MAX << (CHANNELS % 64) };

/// A link as this process knows it.
#[derive(Clone, Copy)]
pub struct Link {
    /// First byte; null: an unused entry.
    pub base: *mut u8,
    /// The private descriptor of the memfd.
    pub fd: i32,
    /// True if this process made it and gives out its channels.
    pub ours: bool,
    /// True after a fork: the parent gives out the channels.
    pub inherited: bool,
    /// Inode of the listener that it leads to (for ours).
    pub listener: u32,
    /// The rendezvous through which it came, -1: none (for theirs).
    pub rendezvous: i32,
    /// Name of the link.
    pub nonce: u64,
    /// Name of the link.
    pub sequence: u32,
    /// The other process and its user, as the kernel told: the client's for theirs, for ours whoever listens. A process
    /// id of 0: one that this PID namespace does not see.
    pub other: (u32, u32),
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
    /// The client has let go of its bell: it is gone, or wants the link no longer.
    left: bool,
    /// One of a station's, for streams to other hosts: it stays, whether anybody uses it or not.
    lasting: bool,
}

struct Links {
    entries: *mut Link,
    count: usize,
    sequence: u32,
    blanks: [*mut u8; 64],
    blank_count: usize,
    sweep: usize,
}

static LINKS: Shared<Links> = Shared::new(Links {
    entries: core::ptr::null_mut(),
    count: 0,
    sequence: 0,
    blanks: [core::ptr::null_mut(); 64],
    blank_count: 0,
    sweep: 0,
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

    fn add(&mut self, link: Link) -> Result<usize> {
        if self.entries.is_null() {
            self.entries = mapping::reserve(MOST * core::mem::size_of::<Link>())?.cast();
        }
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
        Ok(index)
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
        if unsafe { mapping::blank(base, BASE_SIZE) }.is_ok() && self.blank_count < self.blanks.len() {
            self.blanks[self.blank_count] = base;
            self.blank_count += 1;
        }
    }
}

/// Maps a segment; when the address space is short, idle links go first.
fn map_segment(fd: i32) -> Result<*mut u8> {
    loop {
        match links().try_map(fd) {
            Err(Errno(libc::ENOMEM)) => {
                let idle = links().all().iter().position(|l| !l.base.is_null() && l.live == 0 && !l.lasting && !awaited(l));
                let Some(index) = idle else { return Err(Errno(libc::ENOMEM)) };
                drop_link(index);
                window::release_blanks();
                let links = links();
                while links.blank_count > 0 {
                    links.blank_count -= 1; // a blank range counts as well
                    let _ = calls::munmap(links.blanks[links.blank_count], BASE_SIZE);
                }
            }
            other => return other,
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

fn introduce(party: &Party) {
    party.pid.store(calls::getpid(), Ordering::Relaxed);
    party.uid.store(calls::geteuid(), Ordering::Relaxed);
    let mut name = [0u64; 2];
    let _ = shunt_sys::check(
        // SAFETY: PR_GET_NAME writes 16 bytes.
        unsafe { shunt_sys::syscall!(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr()) },
    );
    party.program[0].store(name[0], Ordering::Relaxed);
    party.program[1].store(name[1], Ordering::Relaxed);
    party.barrier.store(global::BARRIERS.load(Ordering::Relaxed), Ordering::Release);
}

/// A channel for a new connection to the listener with inode `listener`.
pub struct Offer {
    /// Index of the link.
    pub index: usize,
    /// The channel.
    pub channel: usize,
    /// The link.
    pub link: Link,
}

/// Finds or makes a link to `listener` with a free channel, and takes that channel.
///
/// Errors: ENOMEM, EMFILE, EFBIG (RLIMIT_FSIZE).
pub fn offer(listener: u32) -> Result<Offer> {
    let links = links();
    // The newest first: older ones are full as a rule.
    for (index, link) in links.all().iter_mut().enumerate().rev() {
        if !link.base.is_null() && link.ours && !link.inherited && link.listener == listener {
            if let Some(channel) = take_channel(link, index) {
                return Ok(Offer { index, channel, link: *link });
            }
        }
    }
    for (index, link) in links.all().iter_mut().enumerate() {
        if !link.base.is_null() && link.ours && !link.inherited && link.listener == listener && reclaim(link) {
            if let Some(channel) = take_channel(link, index) {
                return Ok(Offer { index, channel, link: *link });
            }
        }
    }
    let index = make(listener)?;
    let link = &mut self::links().all()[index];
    let channel = take_channel(link, index).ok_or(Errno(libc::ENOMEM))?;
    Ok(Offer { index, channel, link: *link })
}

/// Channels that we closed, and whose server's end nobody will: processes that share a connection after a fork may exit
/// without a word. True: some were found.
fn reclaim(link: &mut Link) -> bool {
    let server = &header(link.base).server;
    // Numbers of processes mean the same to us as to them only in one PID namespace.
    if link.other.0 == 0 || server.pid.load(Ordering::Relaxed) != link.other.0 {
        return false;
    }
    let mut any = false;
    for channel in (0..CHANNELS).filter(|channel| link.waiting(*channel)) {
        let page = page(link.base, channel);
        let side = &page.sides[1];
        let alive = |pid: u32| calls::kill(pid as i32, 0) != Err(Errno(libc::ESRCH));
        if released(page, 0) && !released(page, 1) && side.orphaned(side.owners.load(Ordering::Acquire).max(1), alive) {
            side.released.store(release::CLOSED, Ordering::Release);
            any = true;
        }
    }
    any
}

fn take_channel(link: &mut Link, index: usize) -> Option<usize> {
    for k in 0..WORDS {
        let mut waiting = link.waiting[k];
        // Channels that the server let go meanwhile come first: their lines are warm.
        while waiting != 0 {
            let channel = k * 64 + waiting.trailing_zeros() as usize;
            waiting &= waiting - 1;
            let page = page(link.base, channel);
            if released(page, 0) && released(page, 1) && !reusable(page, index, channel) {
                return Some(lend(link, index, channel));
            }
            if waiting.count_ones() < link.waiting[k].count_ones().saturating_sub(8) {
                break;
            }
        }
    }
    for k in 0..WORDS {
        if link.used[k] != u64::MAX {
            let channel = k * 64 + (!link.used[k]).trailing_zeros() as usize;
            return Some(lend(link, index, channel));
        }
    }
    // What is kept for other addresses gives way.
    let idle = (0..CHANNELS).find(|channel| link.waiting(*channel) && reusable(page(link.base, *channel), index, *channel))?;
    Some(lend(link, index, idle))
}

/// Makes a channel that nobody uses ready for a connection with a companion of its own.
fn lend(link: &mut Link, index: usize, channel: usize) -> usize {
    let (word, bit) = (channel / 64, 1u64 << (channel % 64));
    link.waiting[word] &= !bit;
    link.used[word] |= bit;
    kept::forget(index, channel);
    return_port(link, channel);
    let page = page(link.base, channel);
    for (side, carriage) in page.sides.iter().zip(&page.carriages) {
        // Only a carrier that was killed leaves its name behind, and its entry among the owners with it.
        if side.family.iter().any(|place| place.load(Ordering::Relaxed) != 0) {
            carriage.clear();
        }
        side.clear();
    }
    for settings in &page.settings {
        settings.clear();
    }
    let generation = page.head.generation.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    page.head.pair.store(generation, Ordering::Relaxed);
    channel
}

/// Whether both ends of the last connection on a channel kept their companions.
pub fn reusable(page: &ChannelPage, index: usize, channel: usize) -> bool {
    page.sides.iter().all(|side| side.released.load(Ordering::Acquire) == release::KEPT) && kept::get(index, channel).is_some()
}

impl Link {
    /// Whether we have closed the channel's last connection.
    pub fn waiting(&self, channel: usize) -> bool {
        self.waiting[channel / 64] & 1 << (channel % 64) != 0
    }

    /// A connection made in memory begins on a channel that was kept.
    pub fn lend_again(&mut self, channel: usize) {
        self.waiting[channel / 64] &= !(1 << (channel % 64));
        let page = page(self.base, channel);
        for side in &page.sides {
            side.clear_for_next();
        }
        for settings in &page.settings {
            settings.clear();
        }
        page.head.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// The connection did not come about.
    pub fn withdraw(&mut self, channel: usize) {
        self.waiting[channel / 64] |= 1 << (channel % 64);
    }
}

/// The connection that had the port is over at both ends.
fn return_port(link: &mut Link, channel: usize) {
    let port = core::mem::take(&mut link.ports[channel]);
    if port != 0 {
        ports::give_back(port);
    }
}

/// Notes the reserved port of a connection, and who listens (from SO_PEERCRED).
pub fn note(index: usize, channel: usize, port: u16, listener: u32) {
    if let Some(link) = links().all().get_mut(index) {
        link.ports[channel] = port;
        link.other.0 = listener;
    }
}

/// Whether the last owner of `side` has let go.
fn released(page: &ChannelPage, side: usize) -> bool {
    page.sides[side].released.load(Ordering::Acquire) != release::NOT
}

/// A segment of ours, mapped and introduced: its private descriptor, and its first byte.
fn make_segment() -> Result<(i32, *mut u8)> {
    if calls::soft_limit(libc::RLIMIT_FSIZE) < LINK_SIZE as u64 {
        return Err(Errno(libc::EFBIG)); // ftruncate would raise SIGXFSZ
    }
    let fd = calls::memfd_create(link::NAME, libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)?;
    let fd = private::keep(fd)?;
    let made = calls::ftruncate(fd, LINK_SIZE as i64)
        .and_then(|()| calls::fcntl(fd, F_ADD_SEALS, SEALS as usize))
        .and_then(|_| map_segment(fd));
    let base = match made {
        Ok(base) => base,
        Err(error) => {
            private::close(fd);
            return Err(error);
        }
    };
    let links = links();
    links.sequence += 1;
    let header = header(base);
    header.version.store(shunt_segment::VERSION, Ordering::Relaxed);
    header.channels.store(CHANNELS as u32, Ordering::Relaxed);
    header.nonce.store(global::NONCE.load(Ordering::Relaxed), Ordering::Relaxed);
    header.sequence.store(links.sequence, Ordering::Relaxed);
    introduce(&header.client);
    header.magic.store(link::MAGIC, Ordering::Release);
    Ok((fd, base))
}

/// A link for streams to other hosts: this program has one side of its channels, and its station the other. Whoever has the
/// station gives the channels out.
pub fn make_lasting() -> Result<usize> {
    let (fd, base) = make_segment()?;
    introduce(&header(base).server);
    let links = links();
    let (nonce, sequence) = (global::NONCE.load(Ordering::Relaxed), links.sequence);
    links.add(Link {
        base,
        fd,
        ours: false,
        inherited: false,
        listener: 0,
        rendezvous: -1,
        nonce,
        sequence,
        other: (0, u32::MAX),
        ports: [0; CHANNELS],
        live: 0,
        used: [NO_CHANNEL; WORDS],
        waiting: [0; WORDS],
        bell: -1,
        bell_for_server: -1,
        rotor: 0,
        left: false,
        lasting: true,
    })
}

fn make(listener: u32) -> Result<usize> {
    sweep();
    drop_oldest_idle();
    let (fd, base) = make_segment()?;
    let links = self::links();
    let bell = make_bell(links, listener);
    let link = Link {
        base,
        fd,
        ours: true,
        inherited: false,
        listener,
        rendezvous: -1,
        nonce: global::NONCE.load(Ordering::Relaxed),
        sequence: links.sequence,
        other: (0, 0),
        ports: [0; CHANNELS],
        live: 0,
        used: [NO_CHANNEL; WORDS],
        waiting: [0; WORDS],
        bell: bell[0],
        bell_for_server: bell[1],
        rotor: 0,
        left: false,
        lasting: false,
    };
    links.add(link)
}

/// The two ends of a bell, for the first link to a listener: connections are made in memory through that one.
fn make_bell(links: &mut Links, listener: u32) -> [i32; 2] {
    let mut pair = [-1; 2];
    let others = links.all().iter().any(|l| !l.base.is_null() && l.ours && l.listener == listener && l.bell >= 0);
    if others || calls::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.as_mut_ptr()).is_err() {
        return [-1; 2];
    }
    pair.map(|fd| private::keep(fd).unwrap_or(-1))
}

/// The index of the link through which connections to `listener` are made in memory.
pub fn for_offers(listener: u32) -> Option<usize> {
    let fits = |l: &Link| !l.base.is_null() && l.ours && !l.inherited && l.listener == listener && l.bell >= 0;
    links().all().iter().position(fits)
}

/// Link `index`, which exists.
pub fn at(index: usize) -> &'static mut Link {
    &mut links().all()[index]
}

/// How many entries the list of links has.
pub fn count() -> usize {
    links().count
}

/// The bell of link `index` goes, and with it connections made in memory.
pub fn end_offers(index: usize) {
    crate::offered::forget(index);
    let link = at(index);
    if !link.ours && !link.inherited {
        offers::set_backlog(&header(link.base).offers, 0);
    }
    private::close(core::mem::replace(&mut link.bell, -1));
    private::close(core::mem::replace(&mut link.bell_for_server, -1));
}

/// Nobody holds the other end of the bell any more: the client is gone, or wants the link no longer. If the last of its
/// connections was kept for another one, nothing else would say so before the next client comes. (Its number would not:
/// one that nobody has waited for still exists.)
pub fn client_left(index: usize) {
    end_offers(index);
    at(index).left = true;
    let link = *at(index);
    if !link.base.is_null() && !link.ours && link.live == 0 {
        drop_unless_awaited(index);
    }
}

/// The bell's other end has been sent.
pub fn bell_sent(index: usize) {
    private::close(core::mem::replace(&mut at(index).bell_for_server, -1));
}

/// Room for another pair: those of links that no connection uses now go.
pub fn forget_idle_pairs() {
    for index in 0..count() {
        let link = at(index);
        if !link.base.is_null() && link.live == 0 {
            kept::forget_all(index);
        }
    }
}

/// The link that a client named, if this process has it and it really is that client's.
pub fn known(nonce: u64, sequence: u32, client: (u32, u32)) -> Option<(usize, Link)> {
    let found = links()
        .all()
        .iter()
        .enumerate()
        .find(|(_, l)| !l.base.is_null() && !l.ours && l.nonce == nonce && l.sequence == sequence && l.other == client);
    found.map(|(index, link)| (index, *link))
}

/// Whether `fd` is a segment that cannot fault us: sealed against shrinking, of the right size, writable.
fn check_segment(fd: i32) -> Result<()> {
    let seals = calls::fcntl(fd, F_GET_SEALS, 0)?;
    // SAFETY: plain integers.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    calls::fstat(fd, &mut status)?;
    // A write seal would turn our own stores into faults.
    let write_sealed = seals & (libc::F_SEAL_WRITE | libc::F_SEAL_FUTURE_WRITE) != 0;
    if seals & SEALS != SEALS || status.st_size != LINK_SIZE as i64 || write_sealed {
        return Err(Errno(libc::EPROTO));
    }
    Ok(())
}

/// Takes up the segment that an earlier image of this process left open as `fd`. Its client is not known for sure, so
/// it serves the connections that came with it and no others.
pub fn take_up(fd: i32) -> Result<()> {
    check_segment(fd)?;
    if let Ok(name) = name_of(fd) {
        if by_name(name.0, name.1).is_some() {
            return Err(Errno(libc::EEXIST)); // it is mapped already
        }
    }
    let base = map_segment(fd)?;
    let head = header(base);
    if head.magic.load(Ordering::Acquire) != link::MAGIC || head.version.load(Ordering::Relaxed) != shunt_segment::VERSION {
        links().unmap(base);
        return Err(Errno(libc::EPROTO));
    }
    crate::table::set_private(fd);
    let _ = calls::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize);
    let link = Link {
        base,
        fd,
        ours: false,
        inherited: true,
        listener: 0,
        rendezvous: -1,
        nonce: head.nonce.load(Ordering::Relaxed),
        sequence: head.sequence.load(Ordering::Relaxed),
        other: (0, u32::MAX),
        ports: [0; CHANNELS],
        live: 0,
        used: [NO_CHANNEL; WORDS],
        waiting: [0; WORDS],
        bell: -1,
        bell_for_server: -1,
        rotor: 0,
        left: false,
        lasting: false,
    };
    links().add(link).map(|_| ())
}

/// Whether `fd` is a link's memfd.
pub fn is_segment(fd: i32) -> bool {
    check_segment(fd).is_ok() && name_of(fd).is_ok()
}

/// Reads a link's name from its file, which need not be mapped.
fn name_of(fd: i32) -> Result<(u64, u32)> {
    let mut words = [0u64; 4];
    calls::pread(fd, words.as_mut_ptr().cast(), 32, 0)?;
    if words[0] != link::MAGIC {
        return Err(Errno(libc::EPROTO));
    }
    Ok((words[2], words[3] as u32))
}

/// A link by its name.
pub fn by_name(nonce: u64, sequence: u32) -> Option<(usize, Link)> {
    let found = links().all().iter().enumerate().find(|(_, l)| !l.base.is_null() && l.nonce == nonce && l.sequence == sequence);
    found.map(|(index, link)| (index, *link))
}

/// Drops links that were taken up and turned out to carry nothing.
pub fn drop_unused() {
    for index in 0..links().count {
        let link = links().all()[index];
        if !link.base.is_null() && link.inherited && link.live == 0 {
            drop_link(index);
        }
    }
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

/// Takes a client's segment in: checks seals, size and header before anything is believed. Closes `fd` on error.
pub fn adopt(fd: i32, nonce: u64, sequence: u32, client: (u32, u32), rendezvous: i32) -> Result<(usize, Link)> {
    sweep();
    if let Err(error) = check_segment(fd) {
        let _ = calls::close(fd);
        return Err(error);
    }
    let fd = private::keep(fd)?;
    let base = match map_segment(fd) {
        Ok(base) => base,
        Err(error) => {
            private::close(fd);
            return Err(error);
        }
    };
    let head = header(base);
    let honest = head.magic.load(Ordering::Acquire) == link::MAGIC
        && head.version.load(Ordering::Relaxed) == shunt_segment::VERSION
        && head.channels.load(Ordering::Relaxed) == CHANNELS as u32;
    if !honest {
        links().unmap(base);
        private::close(fd);
        return Err(Errno(libc::EPROTO));
    }
    introduce(&head.server);
    let link = Link {
        base,
        fd,
        ours: false,
        inherited: false,
        listener: 0,
        rendezvous,
        nonce,
        sequence,
        other: client,
        ports: [0; CHANNELS],
        live: 0,
        used: [NO_CHANNEL; WORDS],
        waiting: [0; WORDS],
        bell: -1,
        bell_for_server: -1,
        rotor: 0,
        left: false,
        lasting: false,
    };
    match links().add(link) {
        Ok(index) => Ok((index, link)),
        Err(error) => {
            links().unmap(base);
            private::close(fd);
            Err(error)
        }
    }
}

/// Counts a connection of this process in or out of link `index`.
pub fn enter(index: usize) {
    if let Some(link) = links().all().get_mut(index) {
        link.live += 1;
    }
}

/// A connection of this process has ended. `peer_gone`: the other process vanished, so the link has no future. `kept`:
/// its companion may serve another connection. The channel can be lent again once both sides have released it.
pub fn leave(index: usize, channel: usize, peer_gone: bool, kept: bool) {
    let links = links();
    let Some(link) = links.all().get_mut(index) else { return };
    link.live = link.live.saturating_sub(1);
    if !kept {
        kept::forget(index, channel);
    }
    if link.ours && !link.inherited {
        let page = page(link.base, channel);
        let over = released(page, 0) && (peer_gone || released(page, 1));
        if over {
            // Only we can lend the channel again, and not before this.
            trim(link.base, channel);
            window::trim(index, channel);
        }
        let (word, bit) = (channel / 64, 1u64 << (channel % 64));
        if over && !kept {
            link.used[word] &= !bit;
            return_port(link, channel);
        } else {
            link.waiting[word] |= bit;
        }
    }
    let (idle, copy) = (link.live == 0, *link);
    let dead = || copy.other.0 != 0 && ended(copy.other.0);
    if idle && copy.inherited {
        drop_link(index);
    } else if idle && (peer_gone || copy.left || (!copy.ours && !kept && dead())) {
        drop_unless_awaited(index);
    }
    if !kept {
        sweep();
    }
}

/// Whether process `pid` has ended. Its number lives on until somebody has waited for it, so a process descriptor is asked:
/// nothing would look at the link again before another client comes.
fn ended(pid: u32) -> bool {
    let pidfd = match calls::pidfd_open(pid as i32, 0) {
        Ok(pidfd) => pidfd,
        Err(error) => return error == Errno(libc::ESRCH),
    };
    let ended = calls::poll_one(pidfd, libc::POLLIN, 0).is_ok_and(|events| events != 0);
    let _ = calls::close(pidfd);
    ended
}

/// The server is about to release a channel: if its client has done so already, the memory goes now, because afterwards
/// the client may lend the channel again. The caller holds the socket's locks, so this one is not waited for.
pub fn about_to_release(index: usize, base: *mut u8, channel: usize, side: usize) {
    if side == 1 && released(page(base, channel), 0) {
        if let Some(_setup) = global::SETUP.try_lock() {
            trim(base, channel);
            window::trim(index, channel);
        }
    }
}

/// Gives the memory of large rings back; small ones stay warm for the next connection.
fn trim(base: *mut u8, channel: usize) {
    for side in 0..2 {
        let word = page(base, channel).sides[side].post.word.load(Ordering::Relaxed);
        let class = (word >> shunt_segment::channel::word::CLASS_SHIFT) as usize & 7;
        if class >= FIRST_IN_WINDOW {
            let largest = FIRST_IN_WINDOW - 1;
            // SAFETY: the ring lies in the link; a peer that still reads it sees zeros: its connection is over.
            let ring = unsafe { base.add(ring_offset(channel, side, largest)) };
            let _ = calls::madvise(ring, RING_SIZE[largest] as usize, libc::MADV_REMOVE);
        }
    }
}

fn drop_link(index: usize) {
    let links = links();
    if links.all()[index].lasting {
        return;
    }
    for channel in 0..CHANNELS {
        return_port(&mut links.all()[index], channel);
    }
    let link = links.all()[index];
    if !link.ours {
        // Should the client live, it must send the link again with its next connection.
        header(link.base).sole.store(0, Ordering::Release);
    }
    kept::forget_all(index);
    end_offers(index);
    let links = self::links();
    links.all()[index].base = core::ptr::null_mut();
    links.unmap(link.base);
    window::drop_link(index);
    private::close(link.fd);
}

/// Whether a link would have been dropped, had there not been connections that wait to be accepted: perhaps through it.
static OWED: AtomicBool = AtomicBool::new(false);

fn drop_unless_awaited(index: usize) {
    if awaited(at(index)) {
        at(index).left = true;
        OWED.store(true, Ordering::Release);
    } else {
        drop_link(index);
    }
}

/// Nothing waits to be accepted at this moment: links that were kept because something might go now.
pub fn drop_owed() {
    if OWED.load(Ordering::Relaxed) && OWED.swap(false, Ordering::AcqRel) {
        let Some(_setup) = global::SETUP.lock() else { return };
        for index in 0..count() {
            let link = at(index);
            if !link.base.is_null() && link.left && link.live == 0 {
                drop_unless_awaited(index);
            }
        }
    }
}

/// Looks at a few idle links: those whose other process is gone are dropped. Cheap enough for each accept.
pub fn sweep() {
    let links = links();
    for _ in 0..2 {
        if links.count == 0 {
            return;
        }
        links.sweep = (links.sweep + 1) % links.count;
        let index = links.sweep;
        let link = links.all()[index];
        if link.base.is_null() || link.live > 0 {
            continue;
        }
        if link.other.0 != 0 && calls::kill(link.other.0 as i32, 0) == Err(Errno(libc::ESRCH)) && !awaited(&link) {
            drop_link(index);
        }
    }
}

/// Makes room for a link of ours when many are idle. Numbers grow, so the smallest is the oldest.
fn drop_oldest_idle() {
    let idle = |link: &Link| !link.base.is_null() && link.ours && !link.inherited && link.live == 0;
    let links = links();
    if links.all().iter().filter(|link| idle(link)).count() < IDLE_MOST {
        return;
    }
    let all = links.all().iter().enumerate().filter(|(_, link)| idle(link));
    if let Some(index) = all.min_by_key(|(_, link)| link.sequence).map(|(index, _)| index) {
        drop_link(index);
    }
}

/// Whether the client may have left connections that still wait to be accepted: its bytes are in them, although it has
/// gone. The kernel's queue knows; the link's own words are the client's to write.
fn awaited(link: &Link) -> bool {
    !link.ours
        && ((link.bell >= 0 && offers::waiting(&header(link.base).offers) > 0)
            || calls::poll_one(link.rendezvous, libc::POLLIN, 0).is_ok_and(|events| events & libc::POLLIN != 0))
}

/// Before a fork of a process whose listener others will share: clients must send their links again.
pub fn not_sole() {
    for link in links().all() {
        if !link.base.is_null() && !link.ours {
            header(link.base).sole.store(0, Ordering::Release);
            offers::set_backlog(&header(link.base).offers, 0);
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
        link.inherited = link.ours;
    }
    crate::offered::forked();
}

/// The state of a channel that a client offers: true if it can be accepted now.
pub fn accept_channel(link: &Link, channel: usize, generation: u32) -> bool {
    let head = &page(link.base, channel).head;
    head.generation.load(Ordering::Acquire) == generation
        && head.state.compare_exchange(life::OFFERED, life::ACCEPTED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Unmaps all links but those whose address `needed` knows, and forgets them.
pub(crate) fn forget_all_but(needed: impl Fn(*mut u8) -> bool) {
    for link in links().all() {
        if !link.base.is_null() && !needed(link.base) {
            let _ = calls::munmap(link.base, BASE_SIZE);
            link.base = core::ptr::null_mut();
        }
    }
}

/// Where the list of links lies.
pub(crate) fn entries_address() -> usize {
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
