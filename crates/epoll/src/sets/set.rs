//! An epoll set: where it is kept, what refers to it, and its lists of entries.

use super::arming::pass_kick_on;
use super::control::kernel_side;
use super::entry::{free_entry, other, place, term, Entry, ENTRIES};
use super::list::{address, List, OF_QUEUE, OF_SET};
use super::{datagrams, frames};
use core::sync::atomic::{compiler_fence, AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use shunt_inbox::datagram::Datagram;
use shunt_stream::socket::parts::Hold;
use shunt_stream::socket::Socket;
use shunt_stream::waiting::holding;
use shunt_stream::waiting::holding::SetHead;
use shunt_sys::sleeper;
use shunt_sys::{clock, mapping};
use shunt_table::global::Mutex;
use shunt_table::process::{kernel_only, split_fd_tables};
use shunt_table::table;
use shunt_table::table::{Kind, Object};

/// An epoll set.
pub struct Set {
    pub(super) fd: AtomicI32,
    pub(super) references: AtomicU32,
    head: SetHead,
    pub(super) lock: Mutex,
    /// Entries of ours.
    pub(super) count: AtomicU32,
    /// Those of them of which the kernel does not know all ([`Entry::ours`]); 0: waiting in the set is the kernel's alone.
    pub(super) ours: AtomicU32,
    /// Entries of sockets and of sets.
    pub(super) entries: List<OF_SET>,
    /// Entries of foreign descriptors whose data looks like a tag of ours.
    pub(super) others: List<OF_SET>,
    /// Streams that may become ready without a doorbell, and sets.
    pub(super) watched: List<OF_QUEUE>,
    /// Those found ready, in the order in which they became so. As in the kernel's list, a level-triggered one that was
    /// reported goes to the end.
    pub(super) ready: List<OF_QUEUE>,
    /// Listeners, of whose bids no bell tells.
    pub(super) listening: List<OF_QUEUE>,
    /// Descriptors that are not ours; those closed without being removed are still counted.
    pub(super) foreign: AtomicU32,
    family: AtomicPtr<Family>,
    /// Changes by other processes that were taken note of.
    noted: AtomicU32,
    /// It holds a TCP connection that only the kernel has, or did.
    pub(super) tcp: AtomicBool,
    /// It holds an EPOLLEXCLUSIVE stream or foreign descriptor, or did.
    pub(super) exclusive: AtomicBool,
    /// A stream to another host was armed in it, or in one inside it.
    pub remote: AtomicBool,
    /// The generation of the queue of frames that the kernel's set has ([`super::frames`]).
    pub(super) frames: AtomicI32,
    /// Threads of this process that sleep in it beside that queue.
    pub(super) hearing: AtomicU32,
    /// Threads of this process that sleep in the kernel's set alone, and hear what that has.
    pub(super) silent: AtomicU32,
    /// It holds a datagram socket, or did.
    pub(super) datagrams: AtomicBool,
    /// Other processes may have it since a fork.
    pub(super) shared: AtomicBool,
    /// Forks whose children may sleep in it, having neither ended nor exec'd: bits of `datagram::fork_sharing`.
    pub(super) joint: AtomicU32,
    /// Made before a fork by another process, which may still use it: only what the program asks for changes it.
    pub(super) inherited: AtomicBool,
    /// When a thread was kicked that was asleep, and has not heard it, in ticks ([`super::local_event`]).
    pub(super) kicked_at: AtomicU64,
    /// When the kernel was last asked, in ticks.
    pub(super) last_kernel: AtomicU64,
    /// Where the peer of the last stream that was found ready waits ([`shunt_segment::channel::Wait::processor`]).
    pub(super) peer_processor: AtomicU32,
    /// Numbers the answers given.
    pub(super) answers: AtomicU32,
    /// With which half of the set the next answer begins ([`turn`]).
    pub(super) turn: AtomicU32,
    /// The kernel found it readable for bells that stay ([`super::nested`]).
    pub(super) noisy: AtomicBool,
    /// Counts arrivals in the set, for sets around it.
    pub(super) arrivals: AtomicU32,
    /// First entry of the sets that hold this one.
    pub(super) watchers: AtomicPtr<Entry>,
    next_free: AtomicPtr<Set>,
}

/// What all processes that share a set after a fork know of it.
#[repr(C, align(64))]
struct Family {
    /// Threads that sleep in it, but for those that [`Hold::asleep`] counts. A killed one stays counted: then the others arm their
    /// streams once too often.
    sleepers: AtomicU32,
    /// Counts what the program asked for anew.
    changes: AtomicU32,
}

const SLAB: usize = 64;

/// The sets of this process.
pub(super) struct Sets {
    /// Guards the lists of watchers. Taken before the lock of a set; the lock of a set before those of the sets inside it.
    pub(super) watchers: Mutex,
    free: AtomicPtr<Set>,
    /// The sets of the newest slab that were never given out: the next, and how many. They are untouched, and a child may give
    /// them out as well.
    next: AtomicPtr<Set>,
    left: AtomicU32,
}

pub(super) static SETS: Sets = Sets {
    watchers: Mutex::new(),
    free: AtomicPtr::new(core::ptr::null_mut()),
    next: AtomicPtr::new(core::ptr::null_mut()),
    left: AtomicU32::new(0),
};

/// There is a set that was never given out; `None` when memory is short. Under the slab lock.
pub(super) fn make_room() -> Option<()> {
    if SETS.left.load(Ordering::Relaxed) == 0 {
        SETS.next.store(mapping::reserve(SLAB * core::mem::size_of::<Set>()).ok()?.cast(), Ordering::Relaxed);
        SETS.left.store(SLAB as u32, Ordering::Relaxed);
    }
    Some(())
}

/// A set that was never given out; `None` when memory is short.
fn begin() -> Option<&'static Set> {
    make_room()?;
    let family = ENTRIES.joint.take::<Family>()?;
    let memory = SETS.next.load(Ordering::Relaxed);
    // SAFETY: inside a slab; all-zero is a valid Set.
    let set = unsafe { &*memory };
    set.family.store(family, Ordering::Relaxed);
    // In this order: a child that is forked in between has one too few, and none outside the mapping.
    SETS.left.fetch_sub(1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    SETS.next.store(memory.wrapping_add(1), Ordering::Relaxed);
    Some(set)
}

/// The program made an epoll descriptor.
pub fn created(fd: i32) {
    if !table::fits(fd) || split_fd_tables::are_split() || kernel_only::confined() {
        return;
    }
    let Some(slabs) = ENTRIES.slabs.lock() else { return };
    // SAFETY: null or a free set.
    let set = match unsafe { SETS.free.load(Ordering::Relaxed).as_ref() } {
        Some(free) => {
            SETS.free.store(free.next_free.load(Ordering::Relaxed), Ordering::Relaxed);
            free
        }
        None => match begin() {
            Some(begun) => begun,
            None => return,
        },
    };
    set.fd.store(fd, Ordering::Relaxed);
    set.references.store(1, Ordering::Relaxed);
    set.head.hold.reset();
    for count in [&set.count, &set.ours, &set.joint, &set.foreign, &set.hearing, &set.silent, &set.family().sleepers] {
        count.store(0, Ordering::Relaxed);
    }
    for flag in [&set.shared, &set.inherited, &set.tcp, &set.exclusive, &set.datagrams, &set.noisy, &set.remote] {
        flag.store(false, Ordering::Relaxed);
    }
    set.frames.store(frames::NONE, Ordering::Relaxed);
    set.entries.clear();
    set.others.clear();
    set.watched.clear();
    set.ready.clear();
    set.listening.clear();
    set.turn.store(turn::KERNEL, Ordering::Relaxed);
    set.watchers.store(core::ptr::null_mut(), Ordering::Relaxed);
    shunt_table::table::enter(fd, Kind::Epoll, set);
    drop(slabs);
    split_fd_tables::withdraw(fd);
}

/// A duplicate of the set's descriptor appeared.
pub fn retain(set: &Set) {
    set.references.fetch_add(1, Ordering::AcqRel);
}

/// Descriptor `fd` of the set is about to be closed.
pub fn release(set: &'static Set, fd: i32) {
    if set.references.fetch_sub(1, Ordering::SeqCst) == 1 && !holding::linger_set(set.head(), fd) {
        end(set);
    }
}

/// No descriptor of the set is left, and no call waits in it.
pub fn end(set: &'static Set) {
    // Children go on with what the entries of a shared one ask for.
    let leave = |set: &'static Set, entry: &'static Entry| {
        if set.shared.load(Ordering::Relaxed) {
            entry.leave_terms();
        }
        detach(set, entry);
    };
    if let Some(_watchers) = SETS.watchers.lock() {
        while let Some(entry) = watcher(&set.watchers) {
            set.watchers.store(entry.next_watcher.load(Ordering::Relaxed), Ordering::Relaxed);
            if let Some(outer) = entry.set() {
                let Some(_held) = outer.lock.lock() else { return };
                leave(outer, entry);
            }
        }
        if let Some(_held) = set.lock.lock() {
            while let Some(entry) = set.entries.first().or(set.others.first()) {
                leave(set, entry);
            }
        }
    }
    // The sleepers' word is shared with children that may still count in it: such a set is not used again.
    if set.shared.load(Ordering::Relaxed) {
        return;
    }
    if let Some(_slabs) = ENTRIES.slabs.lock() {
        set.next_free.store(SETS.free.load(Ordering::Relaxed), Ordering::Relaxed);
        SETS.free.store(address(set), Ordering::Relaxed);
    }
}

/// In the child after a fork: sets that the parent gave back are its own to use again.
pub(super) fn forget_free_sets() {
    SETS.free.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// Values of [`Set::turn`].
pub(super) mod turn {
    /// The kernel's events, if it is time to ask for them.
    pub const KERNEL: u32 = 0;
    /// Streams: the kernel's events filled the last answer.
    pub const STREAMS: u32 = 1;
    /// The kernel's events, in any case: streams filled the last answer.
    pub const KERNEL_AT_ONCE: u32 = 2;
}

impl Set {
    fn family(&self) -> &'static Family {
        // SAFETY: set when the set was begun; such memory is never unmapped.
        unsafe { &*self.family.load(Ordering::Relaxed) }
    }

    /// Calls that wait in it, and its descriptor if the program has none any more.
    pub fn hold(&self) -> &Hold {
        &self.head.hold
    }

    /// What calls wait by.
    pub fn head(&self) -> &SetHead {
        &self.head
    }

    /// The set of a head.
    pub fn of_head(head: &SetHead) -> &'static Set {
        // SAFETY: heads are made as a part of sets alone, which live in slabs that are never unmapped.
        unsafe { &*core::ptr::from_ref(head).byte_sub(core::mem::offset_of!(Set, head)).cast::<Set>() }
    }

    /// A thread sleeps in the set, or in poll on its descriptor; or no longer.
    pub fn sleeps(&self, asleep: bool) {
        match asleep {
            true => self.family().sleepers.fetch_add(1, Ordering::SeqCst),
            false => self.family().sleepers.fetch_sub(1, Ordering::AcqRel),
        };
    }

    /// Threads that sleep in it, of all processes that have it.
    pub(super) fn sleepers(&self) -> u32 {
        let own = self.head.hold.asleep();
        own + self.family().sleepers.load(Ordering::SeqCst)
    }

    /// Whether others sleep in it, or around it, and may have to hear of what is done in it.
    #[inline(always)]
    pub(super) fn is_awaited(&self) -> bool {
        self.sleepers() > 0 || !self.watchers.load(Ordering::Acquire).is_null()
    }

    /// A fork is about to give it to another process, which is to see how many sleep in it.
    pub(super) fn share(&self) {
        self.shared.store(true, Ordering::Relaxed);
        self.head.hold.join(&self.family().sleepers);
    }

    /// Whether others than the calling thread sleep in it.
    pub(super) fn others_asleep(&self) -> bool {
        self.sleepers() > sleeper::open_about(core::ptr::from_ref(self) as usize)
    }

    /// An entry asks for something new: processes that share the set must look at it.
    pub(super) fn note_change(&self) {
        if self.shared.load(Ordering::Relaxed) {
            self.family().changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Looks at everything if another process changed something.
    #[inline]
    pub(super) fn catch_up(&'static self) {
        if self.shared.load(Ordering::Relaxed) {
            let changes = self.family().changes.load(Ordering::Acquire);
            if self.noted.swap(changes, Ordering::Relaxed) != changes {
                let Some(_held) = self.lock.lock() else { return };
                for entry in self.entries.iter().filter(|entry| !kernel_side(entry)) {
                    activate(self, entry);
                }
            }
        }
    }

    /// A descriptor of the set: the number that it was made under may be closed, and another file's by now.
    pub(super) fn descriptor(&self) -> Option<i32> {
        let same = |fd: i32| table::get(fd).object::<Set>().is_some_and(|set| core::ptr::eq(set, self));
        let made = self.fd.load(Ordering::Relaxed);
        if same(made) {
            return Some(made);
        }
        let kept = self.head.hold.number(-1);
        if kept >= 0 {
            return Some(kept);
        }
        table::numbers().find(|fd| same(*fd))
    }

    /// By which a call goes on that was made by `epfd`, which other threads may have closed, and which may be another file's by now. One that
    /// no table has, as it is just being closed, is the set's until then.
    #[inline]
    pub(super) fn number(&self, epfd: i32) -> i32 {
        let word = table::get(epfd);
        match word.object::<Set>() {
            Some(now) if core::ptr::eq(now, self) => epfd,
            _ => self.descriptor().unwrap_or(if word.kind() == Kind::Foreign { epfd } else { -1 }),
        }
    }

    /// Whether nothing can be ready without the kernel saying so.
    pub(super) fn quiet(&self) -> bool {
        self.watched.is_empty() && self.ready.is_empty()
    }

    /// All entries that are looked at, those found ready first.
    pub(super) fn active(&self) -> impl Iterator<Item = &'static Entry> + '_ {
        self.ready.iter().chain(self.watched.iter())
    }
}

/// The entry that a list of watchers goes on with.
pub(super) fn watcher(link: &AtomicPtr<Entry>) -> Option<&'static Entry> {
    // SAFETY: list links are null or entries, which are never unmapped.
    unsafe { link.load(Ordering::Acquire).as_ref() }
}

fn watchers_of(entry: &'static Entry) -> Option<&'static AtomicPtr<Entry>> {
    let socket = entry.socket().map(|socket| socket.watchers.entries());
    socket.or(entry.inner().map(|inner| &inner.watchers)).or(entry.datagram().map(|socket| socket.watchers.entries()))
}

/// Enters the entry among the watchers of its socket or set. Under [`Sets::watchers`].
pub(super) fn watch(entry: &'static Entry) {
    if let Some(head) = watchers_of(entry) {
        entry.next_watcher.store(head.load(Ordering::Relaxed), Ordering::Relaxed);
        head.store(address(entry), Ordering::Release);
    }
}

/// Takes the entry out of that list. Under [`Sets::watchers`].
pub(super) fn unwatch(entry: &'static Entry) {
    let Some(mut link) = watchers_of(entry) else { return };
    while let Some(other) = watcher(link) {
        if core::ptr::eq(other, entry) {
            link.store(entry.next_watcher.load(Ordering::Relaxed), Ordering::Relaxed);
            return;
        }
        link = &other.next_watcher;
    }
}

/// Puts the entry into one of the set's queues, at its end, or into none. Under the set's lock.
pub(super) fn enqueue(set: &'static Set, entry: &'static Entry, queue: u32) {
    let before = entry.queue.load(Ordering::Relaxed);
    entry.queue.store(queue, Ordering::Relaxed);
    match before {
        place::WATCHED => set.watched.remove(entry),
        place::READY => set.ready.remove(entry),
        place::LISTENING => set.listening.remove(entry),
        _ => {}
    }
    match queue {
        place::WATCHED => set.watched.append(entry),
        place::READY => set.ready.append(entry),
        place::LISTENING => set.listening.append(entry),
        _ => {}
    }
}

/// Something may have happened to the entry: it is looked at from now on. Under the set's lock.
pub(super) fn activate(set: &'static Set, entry: &'static Entry) {
    entry.had_event(clock::ticks());
    if entry.queue.load(Ordering::Relaxed) == place::NONE && !entry.has(term::DISABLED | term::DORMANT) {
        enqueue(set, entry, place::WATCHED);
    }
}

/// The program's entry for `fd`.
pub(super) fn find(set: &'static Set, fd: i32) -> Option<&'static Entry> {
    find_any(set, fd).filter(|entry| !entry.has(term::DORMANT))
}

/// Finds the entry, dormant or not: in the short list of the watchers of what `fd` is, or among the set's others.
pub(super) fn find_any(set: &'static Set, fd: i32) -> Option<&'static Entry> {
    let word = table::get(fd);
    let same = |entry: &&'static Entry| entry.fd.load(Ordering::Relaxed) == fd && entry.valid();
    let head =
        word.object::<Socket>().map(|socket| socket.watchers.entries()).or(word.object::<Set>().map(|inner| &inner.watchers));
    let head = head.or(word.object::<Datagram>().map(|socket| socket.watchers.entries()));
    let Some(head) = head else {
        return set.others.iter().find(same);
    };
    let mut at = watcher(head);
    while let Some(entry) = at {
        if entry.set.load(Ordering::Relaxed) == address(set) && same(&entry) {
            return Some(entry);
        }
        at = watcher(&entry.next_watcher);
    }
    None
}

/// Enters a new entry into the set. Under [`Sets::watchers`] and the set's lock.
pub(super) fn attach(set: &'static Set, entry: &'static Entry) {
    watch(entry);
    if other(entry) {
        set.others.append(entry);
    } else {
        set.entries.append(entry);
    }
    entry.set.store(address(set), Ordering::Release);
    set.count.fetch_add(1, Ordering::Release);
    let kind = entry.socket().map(|socket| socket.kind());
    if kind != Some(Kind::Tcp) {
        becomes_ours(set, entry);
    }
    if kind == Some(Kind::Listener) {
        enqueue(set, entry, place::LISTENING);
    }
}

/// The kernel alone no longer knows what the entry is ready for: a thread that waits in the set from now on looks at it in memory, too. One that
/// waits there already shows among the sleepers, and has to be woken.
pub(super) fn becomes_ours(set: &'static Set, entry: &'static Entry) {
    if !entry.ours.swap(true, Ordering::Relaxed) {
        set.ours.fetch_add(1, Ordering::SeqCst);
    }
}

/// Forgets an entry. Under [`Sets::watchers`] and the set's lock.
pub(super) fn detach(set: &'static Set, entry: &'static Entry) {
    enqueue(set, entry, place::NONE);
    pass_kick_on(set, entry);
    datagrams::warm(entry);
    if other(entry) {
        set.others.remove(entry);
    } else {
        set.entries.remove(entry);
    }
    unwatch(entry);
    set.count.fetch_sub(1, Ordering::Release);
    if entry.ours.swap(false, Ordering::Relaxed) && set.ours.fetch_sub(1, Ordering::Release) == 1 {
        frames::part(set); // it is the kernel's alone
    }
    free_entry(entry);
}

// SAFETY: sets live in slabs that are never unmapped, and nothing else is entered under this kind.
unsafe impl Object for Set {
    #[inline(always)]
    fn is(kind: Kind) -> bool {
        kind == Kind::Epoll
    }
}
