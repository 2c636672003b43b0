//! One descriptor in one set, and the slabs that entries come from.
//!
//! An entry has two halves. What the program asked for and what it was told ([`Terms`]) lies in memory that children of
//! fork share, as they share the kernel's set; lists and addresses are private to each process.

use super::list::Link;
use super::set::Set;
use super::TAG;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use shunt_inbox::datagram::Datagram;
use shunt_stream::socket::Socket;
use shunt_sys::{clock, mapping};
use shunt_table::global::{LockedCell, Mutex};
use shunt_table::memory::joint::Joint;
use shunt_table::{private, table};

/// One descriptor in one set: this process's half.
pub struct Entry {
    pub(super) set: AtomicPtr<Set>,
    pub(super) socket: AtomicPtr<Socket>,
    /// An epoll set inside this one.
    pub(super) inner: AtomicPtr<Set>,
    /// A datagram socket.
    pub(super) datagram: AtomicPtr<Datagram>,
    /// What was done to its gate ([`shunt_inbox::datagram::epoll::gate`]).
    pub(super) gate: AtomicU32,
    terms: AtomicPtr<Terms>,
    /// What the kernel's set knows it under.
    pub(super) tag: AtomicU64,
    /// The number that the program added, which it may have closed since.
    pub(super) fd: AtomicI32,
    /// Place in the slabs.
    index: u32,
    /// Not a TCP socket that never was a stream or a listener, of which the kernel's set tells everything, under the tag.
    pub(super) ours: AtomicBool,
    /// Its [`place`] among the set's queues.
    pub(super) queue: AtomicU32,
    /// The life of the terms that this entry belongs to.
    generation: AtomicU32,
    /// When it last had an event, in ticks.
    pub(super) last: AtomicU64,
    /// When it was first announced since its last event, in ticks; 0: not yet ([`super::arming::arm`]). A peer that rang for an earlier
    /// announcement may take that back long after it was heard.
    pub(super) announced: AtomicU64,
    /// The answer in which it was last reported, so that no answer names it twice.
    pub(super) answer: AtomicU32,
    /// Edge-triggered: what its peer had done at the last report ([`super::events`]).
    pub(super) news: AtomicU64,
    /// What a set around its set saw last, to tell arrivals; 0: nothing yet.
    pub(super) noticed: AtomicU64,
    /// An inner set of which the kernel said something that was not looked into yet.
    pub(super) heard: AtomicBool,
    /// Descriptors of its own for a listener's rendezvous and bells, where another duplicate of the listener is in the set; -1: none.
    pub(super) queues: [AtomicI32; 2],
    /// The peer was asked to say when bytes arrive.
    pub(super) stamped: AtomicBool,
    /// Its registration was changed to wake a sleeper, and is to be changed back.
    pub(super) kicked: AtomicBool,
    /// The kernel does not look at its companion for a moment ([`super::nested`]).
    pub(super) hushed: AtomicBool,
    pub(super) links: [Link; 2],
    pub(super) next_watcher: AtomicPtr<Entry>,
}

/// Values of [`Entry::queue`].
pub(super) mod place {
    /// Cold, or disabled: its doorbell tells.
    pub const NONE: u32 = 0;
    /// Looked at, because it may become ready without a doorbell.
    pub const WATCHED: u32 = 1;
    /// Found ready, and not known not to be since.
    pub const READY: u32 = 2;
    /// A listener, whose clients may bid in memory.
    pub const LISTENING: u32 = 3;
}

/// What the program asked for, and what it was told: shared with children of fork.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct Terms {
    pub(super) events: AtomicU32,
    /// [`term`] bits.
    pub(super) flags: AtomicU32,
    pub(super) data: AtomicU64,
    /// Edge-triggered: the signature of the socket at the last report.
    pub(super) seen: AtomicU64,
    /// Edge-triggered: the count of blocked sends at the last report.
    pub(super) unblocked: AtomicU32,
    /// Counts lives: the removal of the entry, in whatever process, begins another.
    pub(super) generation: AtomicU32,
}

/// Bits of [`Terms::flags`].
pub(super) mod term {
    /// ONESHOT fired: nothing until modified.
    pub const DISABLED: u32 = 1;
    /// Edge-triggered: report what holds once more, whether or not it changed.
    pub const FRESH: u32 = 2;
    /// Removed by the program, but still in the kernel's set: programs that add and remove a stream around each message
    /// cost no system call.
    pub const DORMANT: u32 = 4;
    /// Edge-triggered: when last looked at, there was no space to send into; space is an edge then.
    pub const NO_SPACE: u32 = 8;
    /// The kernel's set hears of its companion's space, by which another process tells ([`shunt_stream::waiting::bells::poke`]).
    pub const POKED: u32 = 16;
}

const CHUNK: usize = 256;
const CHUNKS: usize = 4096;
const INDEX_BITS: u32 = 20;
const _: () = assert!(CHUNK * CHUNKS == 1 << INDEX_BITS);

/// The entries of this process. What each event of the kernel's looks at comes last, apart from what is written.
#[repr(C)]
pub(super) struct Entries {
    /// Guards entries and sets that are free, or that were never given out.
    pub(super) slabs: Mutex,
    free: AtomicPtr<Entry>,
    /// Entries below have been given out. Those above are untouched, and a child may give them out as well.
    begun: AtomicU32,
    /// Entries below belong to the process that forked this one, too: they are not given out again here.
    inherited: AtomicU32,
    /// Distinguishes the tags of processes that share sets; the counter behind `families` is shared by them.
    family: AtomicU32,
    families: AtomicPtr<AtomicU32>,
    /// What the sets of a family share.
    pub(super) joint: Joint,
    chunks: LockedCell<[*mut Entry; CHUNKS]>,
    chunk_count: AtomicU32,
}

pub(super) static ENTRIES: Entries = Entries {
    slabs: Mutex::new(),
    free: AtomicPtr::new(core::ptr::null_mut()),
    begun: AtomicU32::new(0),
    inherited: AtomicU32::new(0),
    family: AtomicU32::new(0),
    families: AtomicPtr::new(core::ptr::null_mut()),
    joint: Joint::new(),
    chunks: LockedCell::new([core::ptr::null_mut(); CHUNKS]),
    chunk_count: AtomicU32::new(0),
};

impl Entry {
    /// Something came at `time`.
    #[inline(always)]
    pub(super) fn had_event(&self, time: u64) {
        self.last.store(time, Ordering::Relaxed);
        self.announced.store(0, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn terms(&self) -> &'static Terms {
        // SAFETY: set when the entry was begun; such memory is never unmapped.
        unsafe { &*self.terms.load(Ordering::Acquire) }
    }

    /// The next life of this entry has other terms: processes that have these go on with them.
    pub(super) fn leave_terms(&self) {
        let lives = self.index >= ENTRIES.inherited.load(Ordering::Relaxed);
        let fresh = ENTRIES.slabs.lock().filter(|_| lives).and_then(|_slabs| ENTRIES.joint.take::<Terms>());
        let Some(fresh) = fresh else { return };
        // Another thread may be about to tell an event of this life.
        let (data, events) = (self.terms().data.load(Ordering::Relaxed).into(), self.wanted().into());
        let generation = self.generation.load(Ordering::Relaxed).into();
        // SAFETY: memory for one, to which no thread refers yet.
        unsafe { fresh.write(Terms { data, events, generation, ..Terms::default() }) };
        self.terms.store(fresh, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn has(&self, flags: u32) -> bool {
        self.terms().flags.load(Ordering::Relaxed) & flags != 0
    }

    #[inline(always)]
    pub(super) fn wanted(&self) -> u32 {
        self.terms().events.load(Ordering::Relaxed)
    }

    /// Whether no process removed it, in another process after a fork.
    #[inline(always)]
    pub(super) fn valid(&self) -> bool {
        self.terms().generation.load(Ordering::Relaxed) == self.generation.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn socket(&self) -> Option<&'static Socket> {
        // SAFETY: null or a slab object.
        unsafe { self.socket.load(Ordering::Relaxed).as_ref() }
    }

    #[inline(always)]
    pub(super) fn inner(&self) -> Option<&'static Set> {
        // SAFETY: null or a slab object.
        unsafe { self.inner.load(Ordering::Acquire).as_ref() }
    }

    #[inline(always)]
    pub(super) fn datagram(&self) -> Option<&'static Datagram> {
        // SAFETY: null or a slab object.
        unsafe { self.datagram.load(Ordering::Acquire).as_ref() }
    }

    pub(super) fn set(&self) -> Option<&'static Set> {
        // SAFETY: null or a slab object.
        unsafe { self.set.load(Ordering::Acquire).as_ref() }
    }

    /// A descriptor of the entry's socket. The number that was added may be closed, and another file's by now, while a
    /// duplicate keeps the open file in the set (epoll(7), Q6).
    pub(super) fn descriptor(&self) -> Option<i32> {
        self.added().or_else(|| table::numbers().find(|fd| self.is_of(*fd)))
    }

    /// That number, if it is still the socket's: the one by which the kernel's set knows it.
    pub(super) fn added(&self) -> Option<i32> {
        Some(self.fd.load(Ordering::Relaxed)).filter(|fd| self.is_of(*fd))
    }

    fn is_of(&self, fd: i32) -> bool {
        let word = table::get(fd);
        word.object::<Socket>().is_some_and(|s| core::ptr::eq(s, self.socket.load(Ordering::Relaxed)))
            || word.object::<Datagram>().is_some_and(|d| core::ptr::eq(d, self.datagram.load(Ordering::Relaxed)))
    }
}

/// The entry that the kernel means by `tag`, if it is one of this process and still the same.
pub(super) fn tagged(tag: u64) -> Option<&'static Entry> {
    let index = tag as usize & ((1 << INDEX_BITS) - 1);
    if index / CHUNK >= ENTRIES.chunk_count.load(Ordering::Acquire) as usize {
        return None;
    }
    // SAFETY: published chunks are never unmapped.
    let entry = unsafe { &*(*ENTRIES.chunks.get())[index / CHUNK].add(index % CHUNK) };
    (entry.tag.load(Ordering::Acquire) == tag).then_some(entry)
}

/// There is a chunk for the next entry; `None` when memory is short.
fn grow() -> Option<()> {
    let chunk = ENTRIES.begun.load(Ordering::Relaxed) as usize / CHUNK;
    if chunk == ENTRIES.chunk_count.load(Ordering::Relaxed) as usize {
        if chunk == CHUNKS {
            return None;
        }
        let memory = mapping::reserve(CHUNK * core::mem::size_of::<Entry>()).ok()?.cast::<Entry>();
        // SAFETY: under the slab lock.
        unsafe { (*ENTRIES.chunks.get())[chunk] = memory };
        ENTRIES.chunk_count.store(chunk as u32 + 1, Ordering::Release);
    }
    Some(())
}

/// An entry that was never given out; `None` when memory is short.
fn begin() -> Option<&'static Entry> {
    grow()?;
    let terms = ENTRIES.joint.take::<Terms>()?;
    let index = ENTRIES.begun.load(Ordering::Relaxed) as usize;
    // SAFETY: inside a chunk; all-zero is a valid Entry and valid Terms, and nothing refers to this one yet.
    let entry = unsafe {
        let entry = (*ENTRIES.chunks.get())[index / CHUNK].add(index % CHUNK);
        (&raw mut (*entry).index).write(index as u32);
        &*entry
    };
    entry.terms.store(terms, Ordering::Relaxed);
    ENTRIES.begun.store(index as u32 + 1, Ordering::Release);
    Some(entry)
}

/// An entry that no descriptor uses, fresh; `None` when memory is short.
pub(super) fn new_entry() -> Option<&'static Entry> {
    let _slabs = ENTRIES.slabs.lock()?;
    // SAFETY: null or a free entry.
    let entry = match unsafe { ENTRIES.free.load(Ordering::Relaxed).as_ref() } {
        Some(free) => {
            ENTRIES.free.store(free.next_watcher.load(Ordering::Relaxed), Ordering::Relaxed);
            free
        }
        None => begin()?,
    };
    let terms = entry.terms();
    let generation = terms.generation.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    terms.flags.store(term::FRESH, Ordering::Relaxed);
    terms.seen.store(0, Ordering::Relaxed);
    terms.unblocked.store(0, Ordering::Relaxed);
    entry.generation.store(generation, Ordering::Relaxed);
    entry.inner.store(core::ptr::null_mut(), Ordering::Relaxed);
    entry.socket.store(core::ptr::null_mut(), Ordering::Relaxed);
    entry.datagram.store(core::ptr::null_mut(), Ordering::Relaxed);
    entry.gate.store(0, Ordering::Relaxed);
    entry.queues.iter().for_each(|queue| queue.store(-1, Ordering::Relaxed));
    entry.queue.store(place::NONE, Ordering::Relaxed);
    for flag in [&entry.ours, &entry.heard, &entry.stamped, &entry.kicked, &entry.hushed] {
        flag.store(false, Ordering::Relaxed);
    }
    entry.answer.store(0, Ordering::Relaxed);
    entry.had_event(clock::ticks());
    let life = (generation as u64 & 0xfff) << INDEX_BITS | (ENTRIES.family.load(Ordering::Relaxed) as u64 & 0xffff) << 32;
    entry.tag.store(TAG | life | entry.index as u64, Ordering::Release);
    Some(entry)
}

/// Gives an entry back. It is in no list any more.
pub(super) fn free_entry(entry: &'static Entry) {
    entry.tag.store(0, Ordering::Release);
    entry.set.store(core::ptr::null_mut(), Ordering::Release);
    entry.socket.store(core::ptr::null_mut(), Ordering::Release);
    entry.datagram.store(core::ptr::null_mut(), Ordering::Release);
    entry.queues.iter().for_each(|queue| private::close(queue.swap(-1, Ordering::AcqRel)));
    if entry.index < ENTRIES.inherited.load(Ordering::Relaxed) {
        return;
    }
    if let Some(_slabs) = ENTRIES.slabs.lock() {
        entry.next_watcher.store(ENTRIES.free.load(Ordering::Relaxed), Ordering::Relaxed);
        ENTRIES.free.store(super::list::address(entry), Ordering::Relaxed);
    }
}

/// A private descriptor got another number, and `act` gets each entry.
pub(super) fn moved(from: i32, to: i32, act: impl Fn(&'static Entry)) {
    for index in 0..ENTRIES.begun.load(Ordering::Acquire) as usize {
        // SAFETY: published chunks are never unmapped.
        let entry = unsafe { &*(*ENTRIES.chunks.get())[index / CHUNK].add(index % CHUNK) };
        for queue in &entry.queues {
            shunt_table::private::renumber(queue, from, to);
        }
        act(entry);
    }
}

/// Room for the first sets and entries: children that make some in turn have no mapping to make.
pub(super) fn make_room() {
    if let Some(_slabs) = ENTRIES.slabs.lock() {
        super::set::make_room();
        grow();
    }
}

/// Before a fork: the counter that gives each process of the family tags of its own.
pub(super) fn before_fork() {
    if ENTRIES.begun.load(Ordering::Relaxed) > 0 && ENTRIES.families.load(Ordering::Relaxed).is_null() {
        if let Ok(page) = mapping::reserve_for_children(4096) {
            ENTRIES.families.store(page.cast(), Ordering::Relaxed);
        }
    }
}

/// In the child: what exists is the parent's as well.
pub(super) fn forked() {
    ENTRIES.slabs.reset();
    ENTRIES.free.store(core::ptr::null_mut(), Ordering::Relaxed);
    ENTRIES.inherited.store(ENTRIES.begun.load(Ordering::Relaxed), Ordering::Relaxed);
    ENTRIES.joint.forked();
    // SAFETY: null or the shared page.
    if let Some(families) = unsafe { ENTRIES.families.load(Ordering::Relaxed).as_ref() } {
        ENTRIES.family.store(families.fetch_add(1, Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// Whether the entry is in the list of its set that holds what is neither a socket of ours nor a set.
pub(super) fn other(entry: &Entry) -> bool {
    entry.socket.load(Ordering::Relaxed).is_null()
        && entry.inner.load(Ordering::Relaxed).is_null()
        && entry.datagram.load(Ordering::Relaxed).is_null()
}
