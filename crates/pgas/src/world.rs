//! This process as a rank of its job: where everybody's memory lies, and the check of addresses.
//!
//! There is one world in a process, at a fixed place, so that an operation finds it without asking whether it exists: before
//! [`World::join`] it has no ranks, and every rank is refused.

use crate::error::{Ended, Error, Result};
use crate::group::{mark, Group};
use crate::heap::Heap;
use crate::image::{self, Image};
use crate::layout::{rank_state, state, Header, Layout, RankBlock, MAGIC, PAGE, RANKS, VERSION};
use crate::memory::{Mapping, Memory, LARGEST};
use crate::pmix;
use crate::remote::client::Remote;
use crate::remote::hosts::{Hosts, TABLE};
use crate::trace::{Ring, RECORDS};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{compiler_fence, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The variable by which the launcher tells a process the job's descriptor and the rank, as `7:0`.
pub const VARIABLE: &str = "SHUNT_SPMD";
/// With the value `thread`, a thread of each rank sends what its program leaves unsent between two calls.
const PROGRESS: &str = "SHMEM_PROGRESS";
/// With another value than 0, addresses are looked up in the list of what is allocated.
pub const CHECK: &str = "SHUNT_SHMEM_CHECK";
/// Bytes of a symmetric heap if nothing else is said.
pub const HEAP: usize = 1 << 30;
/// In a place's number: it is of static data.
pub(crate) const DATA: u64 = 1 << 62;

/// Linux maps so many bytes around an address that is read, as far as their pages exist; heaps begin at multiples of it.
const WINDOW: usize = 64 << 10;

/// How long a rank that ends waits for the others to leave their launcher, which they do at the same time.
const LEAVING: Duration = Duration::from_secs(5);

/// A rank's view of its job.
pub struct World {
    me: usize,
    ranks: usize,
    /// The ranks of this host.
    first: usize,
    local: usize,
    own_heap: usize,
    first_heap: usize,
    heap_bytes: usize,
    own_data: usize,
    first_data: usize,
    data_bytes: usize,
    blocks: usize,
    base: usize,
    mapped: usize,
    layout: Layout,
    crowded: bool,
    heap: Mutex<Option<Heap>>,
    /// Where the highest object of the heap ever was ends: no rank has anything behind it. 0 if every address is looked up ([`CHECK`]).
    top: AtomicUsize,
    careful: bool,
    all: Option<Group>,
    near: Option<Group>,
    /// All ranks as an active set, and for the end: a thread in one of these groups meets none that is in another.
    set: Option<Group>,
    end: Option<Group>,
    remote: Option<Remote>,
    groups: Mutex<Option<HashMap<u64, &'static Group>>>,
    pub(crate) sleepers: AtomicUsize,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("me", &self.me).field("ranks", &self.ranks).finish_non_exhaustive()
    }
}

struct Place(UnsafeCell<World>);

// SAFETY: `join` writes while `JOINING` is held and before it tells any thread that there is a world; after that all is read only, or
// has a lock or atomics of its own. A call that races with `join` is a fault of the program that OpenSHMEM excludes.
unsafe impl Sync for Place {}

static WORLD: Place = Place(UnsafeCell::new(World {
    me: 0,
    ranks: 0,
    first: 0,
    local: 0,
    own_heap: 0,
    first_heap: 0,
    heap_bytes: 0,
    own_data: 0,
    first_data: 0,
    data_bytes: 0,
    blocks: 0,
    base: 0,
    mapped: 0,
    layout: Layout { ranks: 0, heap_bytes: 0, trace: 0 },
    crowded: false,
    heap: Mutex::new(None),
    top: AtomicUsize::new(0),
    careful: false,
    all: None,
    near: None,
    set: None,
    end: None,
    remote: None,
    groups: Mutex::new(None),
    sleepers: AtomicUsize::new(0),
}));

static JOINING: Mutex<bool> = Mutex::new(false);
static EARLY: Mutex<Option<Joined>> = Mutex::new(None);
static FINALIZED: AtomicBool = AtomicBool::new(false);

/// What a process has once its rank is taken, whether or not the program has started the world yet.
struct Joined {
    mapping: Mapping,
    layout: Layout,
    me: usize,
    image: Image,
    crowded: bool,
    /// First rank of this host, and how many it has.
    near: (usize, usize),
    hosts: Option<Hosts>,
}

/// Locks of this crate guard plain lists that are whole at every step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Bytes as people write them: `64M`, `1G`, `0x1000`, `1.5g`.
pub fn bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let (number, unit) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 1u64 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        (at, 't' | 'T') => (&text[..at], 1 << 40),
        _ => (text, 1),
    };
    if let Some(hexadecimal) = number.strip_prefix("0x") {
        return usize::from_str_radix(hexadecimal, 16).ok()?.checked_mul(unit as usize);
    }
    let value: f64 = number.parse().ok().filter(|value: &f64| *value >= 0.0 && *value < 1e15)?;
    Some((value * unit as f64) as usize)
}

/// The size of the heap by the variables that OpenSHMEM has, or by those of other libraries.
pub fn heap_from_environment() -> std::result::Result<usize, String> {
    for name in ["SHMEM_SYMMETRIC_SIZE", "SMA_SYMMETRIC_SIZE", "SHMEM_SYMMETRIC_HEAP_SIZE"] {
        if let Ok(value) = std::env::var(name) {
            return bytes(&value).filter(|size| *size > 0).ok_or(format!("{name}={value} is no size"));
        }
    }
    Ok(HEAP)
}

impl World {
    /// The world of this process; without ranks before [`World::join`].
    #[inline(always)]
    pub fn current() -> &'static World {
        // SAFETY: see `Place`.
        unsafe { &*WORLD.0.get() }
    }

    /// Takes this process's rank and shares the program's static data, if a launcher started it. Called before `main`.
    ///
    /// # Errors
    /// If the job's memory cannot be mapped.
    pub fn join_early() -> Result<()> {
        let mut early = locked(&EARLY);
        if early.is_none() {
            *early = from_environment()?;
        }
        Ok(())
    }

    /// Becomes a rank: of the launcher's job, or of a job of one. A second call changes nothing.
    ///
    /// # Errors
    /// If memory cannot be mapped, or the ranks of the job run different programs.
    pub fn join() -> Result<&'static World> {
        let mut joined = locked(&JOINING);
        if *joined {
            return Ok(World::current());
        }
        World::join_early()?;
        let early = locked(&EARLY).take();
        let Joined { mapping, layout, me, image, crowded, near, hosts } = match early {
            Some(early) => early,
            None => alone()?,
        };
        let windows = (layout.ranks * layout.heap_bytes).div_ceil(WINDOW);
        let mapped = Mapping::anonymous_private(windows.div_ceil(8).next_multiple_of(PAGE))
            .map_err(|error| Error::Setup(format!("no memory for {windows} bits: {error}")))?;
        let base = mapping.leave();
        let first_heap = base + layout.heaps();
        // SAFETY: nothing else looks at the world's plain fields before this function has returned, see `Place`.
        let world = unsafe { &mut *WORLD.0.get() };
        world.me = me;
        world.ranks = layout.ranks;
        (world.first, world.local) = near;
        world.first_heap = first_heap;
        world.own_heap = first_heap + me * layout.heap_bytes;
        world.heap_bytes = layout.heap_bytes;
        world.own_data = image.own;
        world.first_data = image.first;
        world.data_bytes = image.bytes;
        world.base = base;
        world.blocks = base + layout.block(0);
        world.layout = layout;
        world.mapped = mapped.leave();
        world.crowded = crowded;
        if crowded {
            crate::launch::settle(me);
        }
        *locked(&world.heap) = Some(Heap::new(layout.heap_bytes));
        world.careful = std::env::var(CHECK).is_ok_and(|value| value != "0");
        *locked(&world.groups) = Some(HashMap::new());
        crate::wait::register();
        if let Some(hosts) = hosts {
            world.remote = Some(Remote::join(hosts, me, image.bytes, crowded)?);
        }
        world.block(me).state.store(rank_state::JOINED, Release);
        *joined = true;
        let world = World::current();
        let all = |mark| Group::find(world, 0, 1, layout.ranks, mark);
        let (all, set, end) = (all(0)?, all(mark::SET)?, all(mark::END)?);
        let near = Group::find(world, near.0 as i64, 1, near.1, mark::NEAR)?;
        // SAFETY: as above.
        unsafe {
            let world = &mut *WORLD.0.get();
            (world.all, world.set, world.end, world.near) = (Some(all), Some(set), Some(end), Some(near));
        }
        if world.has_other_hosts() && std::env::var(PROGRESS).is_ok_and(|how| how == "thread") {
            crate::far::progress_by_thread(world).map_err(|error| Error::Setup(format!("{PROGRESS}=thread: {error}")))?;
        }
        world.all().barrier(world)?;
        Ok(World::current())
    }

    /// This process needs no other any more: waits for the others to say so, too. Its memory stays until it exits.
    ///
    /// # Errors
    /// If the job ends meanwhile.
    pub fn finalize(&self) -> Result<()> {
        if self.ranks == 0 || FINALIZED.swap(true, AcqRel) {
            return Ok(());
        }
        let result = self.end.as_ref().expect("join has made it").barrier(self);
        self.own_block().state.store(rank_state::FINALIZED, Release);
        pmix::leave();
        if pmix::is_used() {
            self.leave_together();
        }
        if let (Some(remote), Ok(())) = (&self.remote, &result) {
            remote.leave();
        }
        result
    }

    /// Another launcher takes the end of a rank's connection as the end of its part in a meeting that is under way, even if that is one of
    /// programs that follow this one: so no rank goes on before all have left.
    fn leave_together(&self) {
        let limit = Instant::now() + LEAVING;
        self.own_block().left.store(1, Release);
        let all = || (0..self.ranks).all(|rank| self.block(rank).left.load(Acquire) != 0);
        while !all() && self.ended().is_none() && Instant::now() < limit {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Whether [`World::join`] was called and [`World::finalize`] was not.
    pub fn is_live(&self) -> bool {
        self.ranks > 0 && !FINALIZED.load(Acquire)
    }

    /// Whether [`World::finalize`] was called.
    pub fn is_finalized(&self) -> bool {
        FINALIZED.load(Acquire)
    }

    /// This rank.
    #[inline(always)]
    pub fn me(&self) -> usize {
        self.me
    }

    /// How many ranks there are.
    #[inline(always)]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// More ranks than processors.
    #[inline(always)]
    pub fn crowded(&self) -> bool {
        self.crowded
    }

    /// Whether calls are recorded.
    #[inline(always)]
    pub(crate) fn is_traced(&self) -> bool {
        self.layout.trace != 0
    }

    /// This rank's ring, if the job is traced.
    pub(crate) fn ring(&self) -> Option<Ring<'_>> {
        // SAFETY: the job's memory was mapped there for the rest of the process's life, with this layout.
        unsafe { Ring::of(self.base, &self.layout, self.me) }
    }

    /// Where the own heap begins, and its size.
    pub fn own_heap(&self) -> (usize, usize) {
        (self.own_heap, self.heap_bytes)
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// All ranks.
    pub fn all(&self) -> &Group {
        self.all.as_ref().expect("join has made it")
    }

    /// The ranks of this host, which share memory.
    pub fn near(&self) -> &Group {
        self.near.as_ref().expect("join has made it")
    }

    /// Whether the rank lives on this host.
    #[inline(always)]
    pub fn is_near(&self, rank: usize) -> bool {
        rank.wrapping_sub(self.first) < self.local
    }

    /// The way to ranks of other hosts, if there are any.
    #[inline(always)]
    pub(crate) fn other_hosts(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    /// Where this process finds rank `rank`'s copy of the symmetric object at `address`; none if the rank does not exist or lives on another
    /// host, or if not all of `length` bytes are symmetric. [`World::wrong`] says which.
    #[inline(always)]
    pub fn remote(&self, address: usize, length: usize, rank: usize) -> Option<usize> {
        if self.is_near(rank) {
            let (offset, top) = (address.wrapping_sub(self.own_heap), self.top.load(Relaxed));
            if offset < top && length <= top - offset {
                return Some(self.first_heap + rank * self.heap_bytes + offset);
            }
            let offset = address.wrapping_sub(self.own_data);
            if offset < self.data_bytes && length <= self.data_bytes - offset {
                return Some(self.first_data + rank * self.data_bytes + offset);
            }
            return self.looked_up(address, length, rank);
        }
        None
    }

    /// The same of the heap, if every address is looked up.
    #[cold]
    #[inline(never)]
    fn looked_up(&self, address: usize, length: usize, rank: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.own_heap);
        (self.careful && self.is_allocated(offset, length)).then(|| self.first_heap + rank * self.heap_bytes + offset)
    }

    /// Whether the bytes lie below the end of the highest object; within an object, if every address is looked up.
    fn is_allocated(&self, offset: usize, length: usize) -> bool {
        let top = self.top.load(Relaxed);
        match self.careful {
            false => offset < top && length <= top - offset,
            true => locked(&self.heap).as_ref().is_some_and(|heap| heap.has(offset, length)),
        }
    }

    /// Why [`World::remote`] found nothing.
    #[cold]
    pub fn wrong(&self, address: usize, length: usize, rank: i64) -> Error {
        if rank < 0 || rank >= self.ranks as i64 {
            return Error::Rank { rank, ranks: self.ranks };
        }
        Error::Address {
            rank: rank as usize,
            address,
            length,
            heap: (self.own_heap, self.heap_bytes),
            data: (self.own_data, self.data_bytes),
            object: self.object(address),
        }
    }

    /// The object of the heap that an address is in or behind: its offset and size.
    fn object(&self, address: usize) -> Option<(usize, usize)> {
        let offset = address.wrapping_sub(self.own_heap);
        locked(&self.heap).as_ref().filter(|_| offset < self.heap_bytes).and_then(|heap| heap.before(offset))
    }

    /// Whether the bytes are symmetric memory of this rank.
    pub fn is_symmetric(&self, address: usize, length: usize) -> bool {
        self.remote(address, length, self.me).is_some()
    }

    /// To be called after each store of so many bytes at `at`, which [`World::remote`] gave for the rank: wakes it if it sleeps for them. The
    /// sleeper has paid for the order of the caller's store and this load (`membarrier` in `wait`).
    #[inline(always)]
    pub fn stored(&self, rank: usize, at: usize, bytes: usize) {
        compiler_fence(Ordering::SeqCst);
        if self.block(rank).asleep.load(Relaxed) != 0 {
            crate::wait::rouse_for(self, rank, at, bytes);
        }
    }

    /// The same after a store to a flag of the job's own.
    #[inline(always)]
    pub fn flagged(&self, rank: usize) {
        compiler_fence(Ordering::SeqCst);
        if self.block(rank).asleep.load(Relaxed) != 0 {
            crate::wait::rouse(self.block(rank));
        }
    }

    /// To be called before a store of many bytes at `at`, which [`World::remote`] gave: a first look at a window of a heap maps all its pages that
    /// exist, where stores would enter the kernel for each.
    #[inline(always)]
    pub fn look_ahead(&self, at: usize, bytes: usize) {
        let window = at.wrapping_sub(self.first_heap) / WINDOW;
        if at.wrapping_sub(self.first_heap) < self.heap_bytes * self.ranks
            && (self.window(window).load(Relaxed) & 1 << (window % 64) == 0 || bytes > WINDOW)
        {
            self.look(at, bytes);
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&self, at: usize, bytes: usize) {
        let mut next = at;
        while next < at + bytes {
            let window = (next - self.first_heap) / WINDOW;
            if self.window(window).fetch_or(1 << (window % 64), Relaxed) & 1 << (window % 64) == 0 {
                // SAFETY: the caller's bytes are mapped; what is read does not matter.
                unsafe { (next as *const u8).read_volatile() };
            }
            next = (next / WINDOW + 1) * WINDOW;
        }
    }

    /// The word that has a window's bit.
    #[inline(always)]
    fn window(&self, window: usize) -> &AtomicU64 {
        // SAFETY: there is a bit for each window of each heap; the mapping lives as long as the process.
        unsafe { &*((self.mapped + window / 64 * 8) as *const AtomicU64) }
    }

    /// A number for mapped symmetric memory that all ranks have for the same place.
    pub(crate) fn number(&self, at: usize) -> u64 {
        let heaps = at.wrapping_sub(self.first_heap);
        if heaps < self.heap_bytes * self.ranks {
            return heaps as u64;
        }
        DATA | at.wrapping_sub(self.first_data) as u64
    }

    /// The number of a rank's copy of an object, wherever the rank lives; none if there is no such rank, or if the bytes are not symmetric.
    pub fn place_of(&self, rank: usize, address: usize, length: usize) -> Option<u64> {
        if rank >= self.ranks {
            return None;
        }
        let offset = address.wrapping_sub(self.own_data);
        if offset < self.data_bytes && length <= self.data_bytes - offset {
            return Some((rank * self.data_bytes + offset) as u64 | DATA);
        }
        let offset = address.wrapping_sub(self.own_heap);
        self.is_allocated(offset, length).then(|| (rank * self.heap_bytes + offset) as u64)
    }

    /// The number that rank 0's copy of an object has, which is the offset in the heap; none if it is not symmetric.
    pub(crate) fn own_number(&self, address: usize, bytes: usize) -> Option<u64> {
        self.place(0, address, bytes)
    }

    /// The number of a rank's copy of an object; none if it is not symmetric.
    pub(crate) fn place(&self, rank: usize, address: usize, bytes: usize) -> Option<u64> {
        self.place_of(rank, address, bytes)
    }

    /// Puts before it are seen before puts after it. Stores of x86-64 keep their order.
    #[inline(always)]
    pub fn fence(&self) {
        #[cfg(target_arch = "x86_64")]
        compiler_fence(Ordering::SeqCst);
        #[cfg(not(target_arch = "x86_64"))]
        std::sync::atomic::fence(Ordering::SeqCst);
        if let Some(remote) = &self.remote {
            remote.fence();
        }
    }

    /// Puts of this thread are seen by all ranks, and its gets are here.
    ///
    /// # Errors
    /// If the job ends, which a rank notices that waits for another host.
    #[inline(always)]
    pub fn complete(&self) -> Result<()> {
        std::sync::atomic::fence(Ordering::SeqCst);
        match &self.remote {
            None => Ok(()),
            Some(remote) => remote.quiet(self),
        }
    }

    /// Whether ranks of this job live on other hosts.
    pub fn has_other_hosts(&self) -> bool {
        self.remote.is_some()
    }

    /// A rank that waits for something else takes what has come from other hosts, and sends again what was lost on the way there.
    #[inline]
    pub fn progress(&self) {
        if let Some(remote) = &self.remote {
            remote.progress();
        }
    }

    /// Takes so many bytes of the heap, on every rank alike; the address in this process, which is a multiple of `alignment` as far as
    /// heaps begin at such. No barrier.
    ///
    /// # Errors
    /// If there is no room.
    pub fn take(&self, bytes: usize, alignment: usize) -> Result<usize> {
        // Rank 0's heap begins at a multiple of that, the others at multiples of their size after it.
        if alignment > LARGEST || (self.ranks > 1 && !self.heap_bytes.is_multiple_of(alignment.max(1))) {
            return Err(Error::Full { bytes, heap: self.heap_bytes });
        }
        let mut heap = locked(&self.heap);
        let taken = heap.as_mut().and_then(|heap| heap.take(bytes, alignment));
        self.rises(taken, bytes);
        drop(heap);
        let address = taken.map(|offset| self.own_heap + offset).ok_or(Error::Full { bytes, heap: self.heap_bytes })?;
        crate::memory::take_in(address, bytes);
        Ok(address)
    }

    /// An object lies there now.
    fn rises(&self, offset: Option<usize>, bytes: usize) {
        if let (Some(offset), false) = (offset, self.careful) {
            self.top.fetch_max(offset + bytes, Relaxed);
        }
    }

    /// Gives back what [`World::take`] gave; false if nothing begins there. No barrier.
    pub fn give(&self, address: usize) -> bool {
        let offset = address.wrapping_sub(self.own_heap);
        locked(&self.heap).as_mut().is_some_and(|heap| heap.give(offset))
    }

    /// As [`Heap::exchange`], by addresses. The bytes stay where they are.
    pub fn exchange(&self, address: usize, bytes: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.own_heap);
        let taken = locked(&self.heap).as_mut()?.exchange(offset, bytes);
        self.rises(taken, bytes);
        let address = self.own_heap + taken?;
        crate::memory::take_in(address, bytes);
        Some(address)
    }

    /// The size that was asked for, of the object that begins there.
    pub fn size_of(&self, address: usize) -> Option<usize> {
        locked(&self.heap).as_ref().and_then(|heap| heap.size(address.wrapping_sub(self.own_heap)))
    }

    /// The group of an active set, found once and kept.
    ///
    /// # Errors
    /// If the set is none of this job, or if there are too many groups.
    pub fn active_set(&'static self, start: i64, stride: i64, size: i64) -> Result<&'static Group> {
        let last = start + (size - 1).max(0) * stride;
        if size < 1 || start < 0 || last < 0 || start.max(last) >= self.ranks as i64 {
            let rank = if start < 0 || start >= self.ranks as i64 { start } else { last };
            return Err(Error::Rank { rank, ranks: self.ranks });
        }
        if size as usize == self.ranks {
            return Ok(self.set.as_ref().expect("joined"));
        }
        let key = Group::key(start, stride, size as usize, 0);
        if let Some(group) = locked(&self.groups).as_ref().and_then(|groups| groups.get(&key).copied()) {
            return Ok(group);
        }
        // Lives as long as the process: active sets are few, and it is not said when one is over.
        let group: &'static Group = Box::leak(Box::new(Group::find(self, start, stride, size as usize, 0)?));
        locked(&self.groups).as_mut().expect("joined").insert(key, group);
        Ok(group)
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the mapping begins with a header, lives as long as the process, and all that changes is atomic.
        unsafe { &*(self.base as *const Header) }
    }

    /// A rank's block.
    #[inline(always)]
    pub(crate) fn block(&self, rank: usize) -> &RankBlock {
        debug_assert!(rank < self.ranks);
        // SAFETY: callers have checked the rank; blocks lie one after the other, and all in them is atomic.
        unsafe { &*((self.blocks + rank * size_of::<RankBlock>()) as *const RankBlock) }
    }

    pub(crate) fn own_block(&self) -> &RankBlock {
        self.block(self.me)
    }

    /// Why the job ends, if it does.
    pub fn ended(&self) -> Option<Ended> {
        let header = self.header();
        (header.state.load(Acquire) == state::ENDED).then(|| {
            Ended::from_words(header.cause.load(Relaxed), header.cause_rank.load(Relaxed), header.cause_code.load(Relaxed))
        })
    }

    /// The group of all ranks at their end.
    pub(crate) fn end(&self) -> Option<&Group> {
        self.end.as_ref()
    }

    /// Whether the host whose arrival this one awaits in a round of a barrier of these hosts has told its end instead: all its ranks have finalized.
    pub(crate) fn has_gone(&self, key: u64, hosts: &[usize], round: usize) -> bool {
        self.end.as_ref().is_some_and(|end| end.has_told(self, key, hosts, round))
    }

    /// The job ends, since the rank has finalized and will not come to where this one waits for it.
    #[cold]
    pub(crate) fn finalized_early(&self, rank: usize) -> Error {
        let why = Ended::Early { rank };
        if crate::launch::end(self.header(), why) {
            crate::launch::wake_all(self.base, &self.layout);
        }
        Error::Ended(self.ended().unwrap_or(why))
    }

    /// The job ends with status 1, since this rank cannot go on; the caller has said why, and exits.
    pub fn fail(&self) {
        if self.ranks > 0 && !pmix::is_used() {
            crate::launch::end(self.header(), Ended::Status { rank: self.me, status: 1 });
        }
    }

    /// Tells the launcher and all ranks that the job ends with this status. The caller exits next.
    pub fn global_exit(&self, status: i32) {
        if self.ranks > 0 {
            crate::launch::end(self.header(), Ended::Asked { rank: self.me, status });
            pmix::abort(status);
        }
    }
}

/// The rank that the launcher left for this process, if it did.
fn from_environment() -> Result<Option<Joined>> {
    let text = match std::env::var(VARIABLE) {
        Ok(text) if text == pmix::ALONE => return Ok(None),
        Ok(text) => text,
        Err(_) if pmix::is_here() => return from_pmix(),
        Err(_) => return Ok(None),
    };
    let broken = |what: String| Error::Setup(format!("{VARIABLE}={text}: {what}"));
    let numbers: Option<(i32, usize)> =
        text.split_once(':').and_then(|(descriptor, rank)| Some((descriptor.parse().ok()?, rank.parse().ok()?)));
    let (descriptor, me) = numbers.ok_or_else(|| broken("is not DESCRIPTOR:RANK".into()))?;
    let memory = match Memory::inherited(descriptor) {
        Ok(memory) => memory,
        // Another launcher in between, within a rank, has closed what is not its own, and started a job of its own.
        Err(_) if pmix::is_here() => return from_pmix(),
        Err(error) => return Err(broken(format!("no job's memory: {error}"))),
    };
    let joined = from_memory(&memory, me, broken)?;
    if joined.is_some() {
        end_with_parent();
    }
    Ok(joined)
}

/// A program that a rank's shell has started ends with the shell, which ends with the launcher. The kernel means the thread that has started
/// this process: one of several may end sooner.
fn end_with_parent() {
    // SAFETY: asks for a number.
    let parent = unsafe { libc::getppid() };
    let threads = std::fs::read_dir(format!("/proc/{parent}/task")).map_or(0, Iterator::count);
    if threads == 1 {
        // SAFETY: takes numbers only.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    }
}

/// The rank that another launcher has given to this process, if its library is here.
fn from_pmix() -> Result<Option<Joined>> {
    let broken = |what: String| Error::Setup(format!("PMIx: {what}"));
    let Some(started) = pmix::start().map_err(broken)? else { return Ok(None) };
    let joined = from_memory(&started.memory, started.rank, broken)?;
    if let Some(joined) = &joined {
        // Once the static data is shared, which no other thread may change meanwhile. The world keeps the mapping for good.
        let watched = started.watch(joined.mapping.address(), joined.layout);
        watched.map_err(|error| broken(format!("cannot watch the other ranks: {error}")))?;
    }
    Ok(joined)
}

/// Takes a rank of the job whose memory this is; none if another process has it.
fn from_memory(memory: &Memory, me: usize, broken: impl Fn(String) -> Error) -> Result<Option<Joined>> {
    let mapping = memory.map(0, PAGE).map_err(|error| broken(format!("cannot map the job's memory: {error}")))?;
    // SAFETY: a page was mapped; the launcher wrote the header before it started this process, and what changes is atomic.
    let header = unsafe { &*(mapping.address() as *const Header) };
    if header.magic != MAGIC || header.version != VERSION {
        return Err(broken("the launcher is of another version than this program's library".into()));
    }
    let layout = Layout { ranks: header.ranks as usize, heap_bytes: header.heap_bytes as usize, trace: header.trace as usize };
    if layout.ranks == 0 || layout.ranks > RANKS || me >= layout.ranks {
        return Err(broken("no such rank".into()));
    }
    // The heaps' end is before any static data's beginning; a page more or less would be found by a signal later.
    let fits = Layout::fitting(layout.ranks, layout.heap_bytes).is_ok_and(|fitting| fitting.heap_bytes == layout.heap_bytes);
    let length = memory.length().map_err(|error| broken(format!("cannot tell the size of the job's memory: {error}")))?;
    if !fits || layout.trace <= RECORDS && layout.data() > length {
        return Err(broken(format!("{} heaps of {} bytes do not lie in {length} bytes", layout.ranks, layout.heap_bytes)));
    }
    if layout.trace > RECORDS {
        return Err(broken("the job's rings are too long".into()));
    }
    let crowded = header.crowded != 0;
    let near = (header.first as usize, header.local as usize);
    let hosts = if near.1 == layout.ranks {
        None
    } else {
        Some(table(&mapping, layout.ranks).ok_or_else(|| broken("the table of hosts is broken".into()))?)
    };
    if near.0 > me || me >= near.0 + near.1 || near.0 + near.1 > layout.ranks {
        return Err(broken("the rank is another host's".into()));
    }
    let whole = memory.map_aligned(layout.data(), layout.heaps()).map_err(|error| {
        broken(format!("cannot map {} heaps of {} bytes: {error} (SHMEM_SYMMETRIC_SIZE)", layout.ranks, layout.heap_bytes))
    })?;
    drop(mapping);
    // SAFETY: as above; blocks follow the header.
    let (header, block) =
        unsafe { (&*(whole.address() as *const Header), &*((whole.address() + layout.block(me)) as *const RankBlock)) };
    if !take_rank(block) {
        return Ok(None);
    }
    let image = image::share(memory, header, &layout, me)?;
    Ok(Some(Joined { mapping: whole, layout, me, image, crowded, near, hosts }))
}

/// The table of hosts in the header's page.
fn table(header: &Mapping, ranks: usize) -> Option<Hosts> {
    // SAFETY: the page is mapped; the launcher wrote the table before it started this process.
    let words = unsafe { std::slice::from_raw_parts((header.address() + Layout::HOSTS) as *const u64, TABLE) };
    Hosts::from_words(words, ranks)
}

/// Writes this process's number into the block; false if the rank is another process's. After `exec` it is still ours.
fn take_rank(block: &RankBlock) -> bool {
    let own = std::process::id();
    loop {
        let holder = block.process.load(Acquire);
        // SAFETY: signal 0 asks only whether the process exists.
        let gone = || unsafe { libc::kill(holder as i32, 0) } != 0 && block.state.load(Acquire) != rank_state::JOINED;
        if holder != 0 && holder != own && !gone() {
            return false;
        }
        if block.process.compare_exchange(holder, own, AcqRel, Acquire).is_ok() {
            block.state.store(rank_state::TAKEN, Release);
            return true;
        }
    }
}

/// A job of this process alone.
fn alone() -> Result<Joined> {
    let heap = heap_from_environment().map_err(Error::Setup)?;
    let layout = Layout::fitting(1, heap).map_err(Error::Setup)?;
    let trouble = |error: std::io::Error| Error::Setup(format!("no memory for a symmetric heap of {heap} bytes: {error}"));
    let mapping = Mapping::anonymous(layout.data(), layout.heaps()).map_err(trouble)?;
    crate::launch::write_header(mapping.address(), &layout, false);
    Ok(Joined { mapping, layout, me: 0, image: image::own(), crowded: false, near: (0, 1), hosts: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, size) in
            [("4096", Some(4096)), ("64M", Some(64 << 20)), ("1.5k", Some(1536)), ("2g", Some(2 << 30)), ("0x1000", Some(4096))]
        {
            assert_eq!(bytes(text), size, "{text}");
        }
        for text in ["", "M", "many", "-1", "1e30G"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
