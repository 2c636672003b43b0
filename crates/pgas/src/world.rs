//! This process as a rank of its job: where everybody's memory lies.
//!
//! There is one world in a process, at a fixed place, so that an operation finds it without asking whether it exists: before
//! [`World::join`] it has no ranks, and every rank is refused.

mod address;
mod heap;
mod leaving;
mod start;

pub use heap::{bytes, heap_from_environment, HEAP};

use crate::error::{Error, Result};
use crate::group::{mark, Group};
use crate::heap::Heap;
use crate::layout::{rank_state, Header, Layout, RankBlock, PAGE};
use crate::memory::Mapping;
use crate::remote::client::Remote;
use crate::trace::Ring;
use address::WINDOW;
use start::{alone, from_environment, Joined};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{compiler_fence, AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The variable by which the launcher tells a process the job's descriptor and the rank, as `7:0`.
pub const VARIABLE: &str = "SHUNT_SPMD";
/// With the value `thread`, a thread of each rank sends what its program leaves unsent between two calls.
const PROGRESS: &str = "SHMEM_PROGRESS";
/// With another value than 0, addresses are looked up in the list of what is allocated.
pub const CHECK: &str = "SHUNT_SHMEM_CHECK";
/// In a place's number: it is of static data.
pub(crate) const DATA: u64 = 1 << 62;

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

/// Locks of this crate guard plain lists that are whole at every step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
}
