//! A station's memory: one sealed memfd that all processes of the station have mapped.
//!
//! ```text
//! 0        Shared: what this is, the lock, peers, listeners, remembered answers, streams
//!          words of the engine (page aligned)
//! ```
//!
//! There are no pointers in it. All fields are atomic words; the holder of the lock writes them, except where it is said
//! otherwise. A state is written last when something is made, so what a killed driver left half-made is free.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use shunt_endpoint::shared::{is_safe_to_map, SEALS};
use shunt_segment::address::Address;
use shunt_sys::{calls, libc, mapping, Errno, Result};

use crate::expired::Spent;
use crate::{FourTuple, Mark, Refusal, Token, PEERS, STREAMS, WORDS};

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"shuntsta");
pub(crate) const VERSION: u32 = 8;
const PAGE: usize = 4096;

/// Ordered channels with each peer.
pub(crate) const CHANNELS: u32 = 1024;
/// Channels in the endpoint's registry.
pub(crate) const REGISTRY: usize = PEERS as usize;
/// Listeners of a station at most.
pub const LISTENERS: usize = 64;
/// Answers that are remembered.
pub(crate) const CONTACTS: usize = 128;

/// What a station counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Count {
    /// Streams opened to others.
    Opened,
    /// Reservations made for others.
    Reserved,
    /// OPENs refused.
    Refused,
    /// Questions heard at query sockets.
    Heard,
    /// Questions, answers and control messages that were malformed, forged or out of place.
    Dropped,
    /// Streams whose path was lost.
    Lost,
    /// Times that a driver was killed while it held the lock.
    Recovered,
    /// Reservations that were not claimed in time.
    Expired,
}

/// How many there are.
pub const COUNTS: usize = 8;

/// A cache line and its neighbour.
#[repr(C, align(128))]
pub(crate) struct CacheLine<T>(pub T);

/// Words of a [`Set`].
const ROWS: usize = STREAMS as usize / 64;

/// A set of streams. Changed by the holder of the station's lock, unless it is said otherwise.
#[repr(C)]
pub(crate) struct Set {
    words: [AtomicU64; ROWS],
    /// A bit for each word that may not be 0: none is missing, also when the driver that changes the set dies in the middle.
    rows: AtomicU64,
}

impl Set {
    #[inline(always)]
    fn word(&self, stream: u32) -> (&AtomicU64, u64) {
        let row = stream as usize / 64 % ROWS;
        (&self.words[row], 1 << row)
    }

    pub(crate) fn insert(&self, stream: u32) {
        let (word, row) = self.word(stream);
        self.rows.store(self.rows.load(Relaxed) | row, Relaxed);
        word.store(word.load(Relaxed) | 1 << (stream % 64), Relaxed);
    }

    pub(crate) fn remove(&self, stream: u32) {
        let (word, row) = self.word(stream);
        let left = word.load(Relaxed) & !(1 << (stream % 64));
        word.store(left, Relaxed);
        if left == 0 {
            self.rows.store(self.rows.load(Relaxed) & !row, Relaxed);
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.load(Relaxed) == 0
    }

    pub(crate) fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Relaxed));
        self.rows.store(0, Relaxed);
    }

    /// As [`Set::insert`], by a thread that does not have the lock: of a set that every process writes, and that is never asked
    /// whether it is empty.
    pub(crate) fn insert_unlocked(&self, stream: u32) {
        self.word(stream).0.fetch_or(1 << (stream % 64), Relaxed);
    }

    /// The lowest one that is neither in this set nor in the other.
    pub(crate) fn lowest_outside(&self, other: &Set) -> Option<u32> {
        let words = self.words.iter().zip(&other.words).map(|(one, other)| one.load(Relaxed) | other.load(Relaxed));
        let (at, word) = words.enumerate().find(|(_, word)| *word != u64::MAX)?;
        Some(at as u32 * 64 + word.trailing_ones())
    }

    /// The members, as they are at each step.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut left = word.load(Relaxed);
            core::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(at as u32 * 64 + bit)
            })
        })
    }
}

/// Where a stream is in its life.
///
/// ```text
/// client  FREE ─open─► OPENING ─OPENED─► OPENED ─bind─► LIVE ─release─► CLOSING ─both closed─► FREE
///                         └─REFUSED, cancelled─► REFUSED ─release─► FREE
/// server  FREE ─OPEN─► RESERVED ─claim─► CLAIMED ─bind─► LIVE
/// any     ─path lost─► LOST ─release─► FREE
/// ```
pub(crate) mod state {
    pub const FREE: u32 = 0;
    pub const OPENING: u32 = 1;
    pub const OPENED: u32 = 2;
    pub const REFUSED: u32 = 3;
    pub const RESERVED: u32 = 4;
    pub const CLAIMED: u32 = 5;
    pub const LIVE: u32 = 6;
    pub const CLOSING: u32 = 7;
    pub const LOST: u32 = 8;
}

/// Bits of [`Entry::flags`].
pub(crate) mod flag {
    /// OPEN has left.
    pub const OPEN_SENT: u32 = 1;
    /// A message is to be sent as soon as there is room.
    pub const WANT_OPEN: u32 = 2;
    pub const WANT_CANCEL: u32 = 4;
    pub const WANT_CLOSE: u32 = 8;
    pub const WANT_RESET: u32 = 16;
    /// CANCEL is under way.
    pub const CANCELLING: u32 = 32;
    /// CLOSE has left, has come.
    pub const CLOSE_SENT: u32 = 64;
    pub const CLOSE_RECEIVED: u32 = 128;
    /// The peer's FIN or RESET has come; before `bind`, the pump has not heard of it.
    pub const FINISHED: u32 = 256;
    pub const RESET: u32 = 512;
    /// RESET has left: nothing else follows.
    pub const RESET_SENT: u32 = 1024;
    /// Lent to a connection of ours.
    pub const OURS: u32 = 2048;
    /// A reservation that a process claimed.
    pub const CLAIMED: u32 = 4096;
    /// The caller needs its number, whatever becomes of the channel: `state::LOST` instead of free.
    pub const KEPT: u32 = 8192;
    /// A reservation that no process claims any more: CLOSE says so.
    pub const UNCLAIMED: u32 = 16384;
    /// One of ours whose connection does not show the mark: that it is not claimed says nothing about the server.
    pub const UNMARKED: u32 = 32768;
}

/// A stream.
#[repr(C, align(128))]
pub(crate) struct Entry {
    pub state: AtomicU32,
    pub flags: AtomicU32,
    pub peer: AtomicU32,
    pub channel: AtomicU32,
    pub generation: AtomicU32,
    pub refusal: AtomicU32,
    /// Process that opened it.
    pub owner: AtomicU32,
    ports: AtomicU32,
    client: [AtomicU64; 2],
    server: [AtomicU64; 2],
    pub token: [AtomicU64; 2],
    /// When it was lent.
    pub since: AtomicU64,
    /// BEGIN's position, plus one, if it came before `bind`; 0: it did not.
    pub begins: AtomicU64,
    /// [`crate::Mark`].
    pub mark: AtomicU64,
    /// The caller's.
    pub words: [AtomicU64; WORDS],
}

impl Entry {
    pub(crate) fn state(&self) -> u32 {
        self.state.load(Relaxed)
    }

    pub(crate) fn has(&self, flags: u32) -> bool {
        self.flags.load(Relaxed) & flags != 0
    }

    pub(crate) fn put(&self, flags: u32) {
        self.flags.store(self.flags.load(Relaxed) | flags, Relaxed);
    }

    pub(crate) fn take(&self, flags: u32) -> bool {
        let before = self.flags.load(Relaxed);
        self.flags.store(before & !flags, Relaxed);
        before & flags != 0
    }

    /// Both ends; scopes are each host's own, and not kept.
    pub(crate) fn four(&self) -> FourTuple {
        let load = |words: &[AtomicU64; 2]| [words[0].load(Relaxed), words[1].load(Relaxed)];
        let ports = self.ports.load(Relaxed);
        FourTuple {
            client: Address::from_words(load(&self.client), ports as u16, 0),
            server: Address::from_words(load(&self.server), (ports >> 16) as u16, 0),
        }
    }

    pub(crate) fn set_four(&self, four: &FourTuple) {
        for (words, values) in [(&self.client, four.client.words()), (&self.server, four.server.words())] {
            words[0].store(values[0], Relaxed);
            words[1].store(values[1], Relaxed);
        }
        self.ports.store(u32::from(four.client.port) | u32::from(four.server.port) << 16, Relaxed);
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark(self.mark.load(Relaxed) as u16)
    }

    pub(crate) fn token(&self) -> Token {
        [self.token[0].load(Relaxed), self.token[1].load(Relaxed)]
    }

    pub(crate) fn refusal(&self) -> Refusal {
        Refusal::of(self.refusal.load(Relaxed)).unwrap_or(Refusal::Lost)
    }
}

/// Whether two 4-tuples name one connection: scopes are each host's own.
pub(crate) fn same(one: &FourTuple, other: &FourTuple) -> bool {
    let ends = |four: &FourTuple| (four.client.ip, four.client.port, four.server.ip, four.server.port);
    ends(one) == ends(other)
}

/// What is known of another station.
pub(crate) mod peer_state {
    pub const FREE: u32 = 0;
    /// An inquiry has it, and a tag.
    pub const ASKING: u32 = 1;
    /// The endpoint has a channel to it.
    pub const OPEN: u32 = 2;
}

/// [`PeerEntry::was_up`].
pub(crate) const LOST: u32 = 2;

/// Another station.
#[repr(C, align(128))]
pub(crate) struct PeerEntry {
    pub state: AtomicU32,
    /// The endpoint's channel.
    pub channel: AtomicU32,
    /// Streams that have one of its channels.
    pub streams: AtomicU32,
    /// 1: this side lends channels from the lowest up, the other one from the highest down.
    pub low: AtomicU32,
    pub receive: AtomicU64,
    pub send: AtomicU64,
    /// The other station's own name: 128 random bits.
    pub identity: [AtomicU64; 2],
    /// Its host.
    pub host: [AtomicU64; 2],
    pub since: AtomicU64,
    /// When a stream of it was last lent or given back.
    pub used: AtomicU64,
    /// 1: it came up once. [`LOST`]: the connection ended.
    pub was_up: AtomicU32,
    reserved: AtomicU32,
    /// Streams by channel, plus one.
    pub by_channel: [AtomicU32; CHANNELS as usize + 1],
}

/// A listener of this station's.
#[repr(C)]
pub(crate) struct Listener {
    /// The TCP socket's; 0: none.
    pub inode: AtomicU64,
    pub ip: [AtomicU64; 2],
    pub port: AtomicU32,
    reserved: AtomicU32,
}

/// An answer.
#[repr(C, align(64))]
pub(crate) struct Contact {
    pub ip: [AtomicU64; 2],
    /// 0: none.
    pub port: AtomicU32,
    /// The peer, or [`Refusal`] and [`Contact::NOBODY`].
    pub peer: AtomicU32,
    /// Until when a negative one is believed; when a positive one was learned.
    pub until: AtomicU64,
    /// The peer's tag, by which another one at its place is known.
    pub tag: AtomicU64,
}

impl Contact {
    pub const NOBODY: u32 = 1 << 31;
}

/// Everything but the engine.
#[repr(C)]
pub(crate) struct Shared {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    /// the device's kind.
    pub device: AtomicU32,
    pub engine_words: AtomicU64,
    pub frame: AtomicU32,
    pub checked: AtomicU32,
    /// Of everything that is drawn at random.
    pub secret: [AtomicU64; 2],
    pub drawn: AtomicU64,
    /// This station's own name.
    pub identity: [AtomicU64; 2],
    /// The newest time that any driver named.
    pub now: AtomicU64,
    /// When timers of the station itself are looked at next.
    pub chores_at: AtomicU64,
    /// Something was sent, and the device wants to be told: by the thread that drives next, if it did not take it at once.
    pub unflushed: AtomicU32,
    /// The arming was taken back while others slept.
    pub arm_again: AtomicU32,
    /// The endpoint's address is none of this host's any more. Written by every process.
    pub stranded: AtomicU32,
    /// A listener or an inquiry was there: chores are to be done.
    pub has_chores: AtomicU32,
    pub counts: [AtomicU64; COUNTS],
    /// Streams: lent, reserved and not claimed, with messages to be sent, with more to do for the pump, lost and untold.
    pub used: Set,
    pub waiting: Set,
    pub wants: Set,
    pub blocked: Set,
    pub untold: Set,
    /// Streams that are never lent again. Written by every process.
    pub retired: Set,
    /// Peers by the place of their channel in the endpoint's registry, plus one.
    pub by_registry: [AtomicU32; REGISTRY],
    /// The driver: process and thread. Written by every process.
    pub lock: CacheLine<AtomicU64>,
    /// A thread found the lock taken. Written by every process.
    pub again: CacheLine<AtomicU32>,
    /// When a thread is to drive. Read by every process.
    pub deadline: CacheLine<AtomicU64>,
    pub driven_at: AtomicU64,
    /// Threads that sleep on the endpoint. Written by every process.
    pub sleepers: AtomicU32,
    pub listeners: [Listener; LISTENERS],
    pub contacts: [Contact; CONTACTS],
    pub spent: Spent,
    pub peers: [PeerEntry; PEERS as usize],
    pub streams: [Entry; STREAMS as usize],
}

pub(crate) const ENGINE: usize = size_of::<Shared>().div_ceil(PAGE) * PAGE;

/// The mapping: a private handle. It is never unmapped: a thread that races with the end reads stale words.
pub(crate) struct Memory {
    base: *mut u8,
    pub fd: i32,
    words: usize,
}

// SAFETY: what it points to is shared by design, and reached by atomics or under the lock.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes the memory of a station with so many words for its engine.
    pub(crate) fn create(words: usize) -> Result<Memory> {
        let size = ENGINE + words * 8;
        let fd = calls::memfd_create(b"shunt-station\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)?;
        let sized = calls::ftruncate(fd, size as i64)
            .and_then(|()| calls::fcntl(fd, libc::F_ADD_SEALS, SEALS as usize))
            .and_then(|_| mapping::shared(fd, size));
        match sized {
            Ok(base) => {
                let memory = Memory { base, fd, words };
                let shared = memory.shared();
                shared.engine_words.store(words as u64, Relaxed);
                shared.version.store(VERSION, Relaxed);
                shared.magic.store(MAGIC, Relaxed);
                Ok(memory)
            }
            Err(error) => {
                let _ = calls::close(fd);
                Err(error)
            }
        }
    }

    /// Maps the memory behind `fd`, which stays the caller's on failure.
    pub(crate) fn attach(fd: i32) -> Result<Memory> {
        let status = calls::status_of(fd)?;
        let size = status.st_size as usize;
        if size < ENGINE || !is_safe_to_map(fd, size) {
            return Err(Errno(libc::EINVAL));
        }
        let base = mapping::shared(fd, size)?;
        let memory = Memory { base, fd, words: (size - ENGINE) / 8 };
        let shared = memory.shared();
        let sound = shared.magic.load(Relaxed) == MAGIC
            && shared.version.load(Relaxed) == VERSION
            && shared.engine_words.load(Relaxed) == memory.words as u64;
        if !sound {
            let _ = calls::munmap(base, size);
            return Err(Errno(libc::EINVAL));
        }
        Ok(memory)
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: mapped for ever, page-aligned, as long as `Shared`; atomics accept any bytes.
        unsafe { &*self.base.cast() }
    }

    /// The engine's words.
    ///
    /// # Safety
    /// The caller holds the station's lock, and has no other slice of them.
    #[allow(clippy::mut_from_ref)] // the lock is the claim
    #[inline(always)]
    pub(crate) unsafe fn engine(&self) -> &mut [u64] {
        // SAFETY: mapped for ever behind `Shared`, aligned; no other thread writes while the lock is held.
        unsafe { core::slice::from_raw_parts_mut(self.base.add(ENGINE).cast(), self.words) }
    }

    /// Shows `look` the lock that all share, where the mapping is blank. Without room for another mapping it sees nothing.
    pub(crate) fn with_shared_lock(&self, look: impl FnOnce(&AtomicU64)) {
        let at = core::mem::offset_of!(Shared, lock);
        let Ok(page) = mapping::shared_part(self.fd, at / PAGE * PAGE, PAGE) else { return };
        // SAFETY: within the page, and aligned as in `Shared`.
        look(unsafe { &*page.add(at % PAGE).cast() });
        let _ = calls::munmap(page, PAGE);
    }

    /// Puts zeros of this process's own in the mapping's place. False: there was no room for them, and nothing is there.
    pub(crate) fn blank(&self) -> bool {
        // SAFETY: every holder of the mapping takes any words.
        unsafe { mapping::blank_at_any_price(self.base, ENGINE + self.words * 8) }
    }

    /// Takes the mapping away.
    pub(crate) fn unmap(&self) {
        let _ = calls::munmap(self.base, ENGINE + self.words * 8);
    }
}

impl Shared {
    pub(crate) fn count(&self, what: Count) {
        let word = &self.counts[what as usize];
        word.store(word.load(Relaxed) + 1, Relaxed);
    }

    /// A number that no other process can guess, never 0.
    pub(crate) fn draw(&self) -> u64 {
        let drawn = self.drawn.load(Relaxed) + 1;
        self.drawn.store(drawn, Relaxed);
        let secret = [self.secret[0].load(Relaxed), self.secret[1].load(Relaxed)];
        shunt_am::siphash(secret, &[drawn, 1]).max(1)
    }

    #[inline(always)]
    pub(crate) fn entry(&self, stream: u32) -> Option<&Entry> {
        self.streams.get(stream as usize)
    }

    #[inline(always)]
    pub(crate) fn peer(&self, peer: u32) -> Option<&PeerEntry> {
        self.peers.get(peer as usize)
    }

    /// The stream that has the peer's channel, with its entry.
    #[inline(always)]
    pub(crate) fn by_channel(&self, peer: u32, channel: u16) -> Option<(u32, &Entry)> {
        let number = self.peer(peer)?.by_channel.get(usize::from(channel))?.load(Relaxed).checked_sub(1)?;
        Some((number, self.entry(number)?))
    }

    /// The peer whose frames come by the endpoint's channel.
    #[inline(always)]
    pub(crate) fn by_registry(&self, channel: shunt_endpoint::Channel) -> Option<u32> {
        let peer = self.by_registry.get(channel.index())?.load(Relaxed).checked_sub(1)?;
        (self.peer(peer)?.channel.load(Relaxed) == channel.0).then_some(peer)
    }
}

pub(crate) fn store2(words: &[AtomicU64; 2], values: [u64; 2]) {
    words[0].store(values[0], Relaxed);
    words[1].store(values[1], Relaxed);
}

pub(crate) fn load2(words: &[AtomicU64; 2]) -> [u64; 2] {
    [words[0].load(Relaxed), words[1].load(Relaxed)]
}
