//! Groups of ranks: start, stride and size, and the shared state that their barriers need.
//!
//! All members find one slot in the job's memory by the group's key. What tells groups of equal members apart (a *mark*) is for the caller
//! to choose alike on all members: OpenSHMEM's teams count the splits of their parent, active sets have mark 0.

mod crossing;

use crate::arrival;
use crate::error::{Error, Result};
use crate::layout::{GroupHead, Header, Member, ROUNDS};
use crate::trace::{self, Kind, What};
use crate::wait::{self, Span, Waits};
use crate::world::World;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Marks of groups of a job's own, which [`Group::mark`] does not come to.
pub(crate) mod mark {
    /// Ranks of a host.
    pub const NEAR: u32 = 0x3fff_ffff;
    /// All ranks as an active set.
    pub const SET: u32 = 0x3fff_fffe;
    /// All ranks at their end.
    pub const END: u32 = 0x3fff_fffd;
}

/// A member's view of a group. One thread at a time uses it.
#[derive(Debug)]
pub struct Group {
    start: i64,
    stride: i64,
    size: usize,
    key: u64,
    /// Members that live on this host.
    local: usize,
    /// The hosts of its members in order, if they are several.
    hosts: Vec<usize>,
    /// This rank's place, if it is a member.
    index: Option<usize>,
    slot: Option<usize>,
}

impl Group {
    /// What all members look for.
    pub(crate) fn key(start: i64, stride: i64, size: usize, mark: u32) -> u64 {
        let field = |value: u64, bits: u32| value & ((1 << bits) - 1);
        1 << 63
            | field(u64::from(mark), 30) << 33
            | field(start as u64, 10) << 23
            | field((stride + 1024) as u64, 12) << 11
            | field(size as u64, 11)
    }

    /// The group of `size` ranks from `start` on, `stride` apart. The first member makes its state.
    ///
    /// # Errors
    /// If there are too many groups.
    pub fn find(world: &World, start: i64, stride: i64, size: usize, mark: u32) -> Result<Group> {
        let me = world.me() as i64;
        let index = (0..size).find(|&at| start + at as i64 * stride == me);
        let key = Group::key(start, stride, size, mark);
        let slot = if size > 1 { Some(slot(world, key)?) } else { None };
        let members = || (0..size).map(|at| (start + at as i64 * stride) as usize);
        let hosts = crossing::hosts(world, members());
        let local = members().filter(|rank| world.is_near(*rank)).count();
        Ok(Group { start, stride, size, key, local, hosts, index, slot })
    }

    /// How many members it has.
    pub fn size(&self) -> usize {
        self.size
    }

    /// This rank's place, if it is a member.
    pub fn index(&self) -> Option<usize> {
        self.index
    }

    /// The rank at a place.
    #[inline(always)]
    pub fn rank(&self, index: usize) -> usize {
        (self.start + index as i64 * self.stride) as usize
    }

    /// The place of a rank.
    pub fn place(&self, rank: usize) -> Option<usize> {
        (0..self.size).find(|&index| self.rank(index) == rank)
    }

    /// A mark that no other group has had, the same at all members, which call this together.
    ///
    /// # Errors
    /// If the job ends first.
    pub fn mark(&self, world: &World) -> Result<u32> {
        // Each host counts by itself, in steps that keep their marks apart.
        let (host, hosts) = world.other_hosts().map_or((0, 1), |way| (way.own() as u32, way.hosts().list.len() as u32));
        let draw = || (world.header().marks.fetch_add(1, AcqRel).wrapping_add(1).wrapping_mul(hosts) + host) & 0x3fff_ffff;
        if self.size == 1 {
            return Ok(draw());
        }
        if self.index == Some(0) {
            self.tell(world, 0, u64::from(draw()))?;
        }
        self.barrier(world)?;
        let mark = self.told(world, 0, 0) as u32;
        self.barrier(world)?;
        Ok(mark)
    }

    /// Start and stride, as ranks.
    pub fn span(&self) -> (i64, i64) {
        (self.start, self.stride)
    }

    fn head(&self, world: &World, slot: usize) -> &'static GroupHead {
        head(world, slot)
    }

    fn member(&self, world: &World, slot: usize, index: usize) -> &'static Member {
        debug_assert!(index < self.size);
        member(world, slot, index)
    }

    /// Every member has arrived, and what each stored before is seen by all.
    ///
    /// # Errors
    /// If the job ends first.
    pub fn barrier(&self, world: &World) -> Result<()> {
        self.meet(world, Kind::Barrier)
    }

    /// The same, for callers that promise less about puts.
    ///
    /// # Errors
    /// If the job ends first.
    pub fn sync(&self, world: &World) -> Result<()> {
        self.meet(world, Kind::Sync)
    }

    /// What a record says of a call of this group that moves so many bytes.
    pub(crate) fn what(&self, kind: Kind, bytes: usize) -> What {
        What { kind, place: Group::key(self.start, self.stride, self.size, 0), amount: bytes as u64 }
    }

    #[inline(always)]
    fn meet(&self, world: &World, kind: Kind) -> Result<()> {
        let _scope = trace::scope(world, || self.what(kind, 0));
        world.complete()?;
        let (Some(slot), Some(index)) = (self.slot, self.index) else { return Ok(()) };
        if !self.hosts.is_empty() {
            self.count(world, slot, index)
        } else if world.crowded() {
            self.gather(world, slot, index)
        } else {
            self.exchange(world, slot, index)
        }
    }

    /// Of a group of several hosts: arrivals of this one are counted; the last one tells the other hosts, and wakes the others here.
    fn count(&self, world: &World, slot: usize, index: usize) -> Result<()> {
        let own = self.member(world, slot, index);
        own.number.store(own.number.load(Relaxed).wrapping_add(1), Release);
        let head = self.head(world, slot);
        let turn = head.turn.load(Acquire);
        if head.count.fetch_add(1, AcqRel) + 1 == self.local as u32 {
            crossing::cross(world, self.key, &self.hosts, head, slot)?;
            head.count.store(0, Relaxed);
            head.turn.fetch_add(1, SeqCst);
            if head.sleepers.load(SeqCst) != 0 {
                wait::futex_wake(&head.turn);
            }
            return Ok(());
        }
        wait::until_changed(world, &head.turn, turn, &head.sleepers, slot)
    }

    /// Each member says that it is here, and looks at all others: nothing is counted, since words that many write are slow.
    fn gather(&self, world: &World, slot: usize, index: usize) -> Result<()> {
        let own = self.member(world, slot, index);
        let here = wait::processor();
        own.processor.store(here, Relaxed);
        // In the job's memory, since a program may be followed by another one under the same rank.
        let number = own.number.load(Relaxed).wrapping_add(1);
        own.number.store(number, Release);
        let is_here = |member: usize| arrival::is_here(&self.member(world, slot, member).number, number);
        let mut next = 0;
        let complete = || {
            while next < self.size && is_here(next) {
                next += 1;
            }
            next == self.size
        };
        let shares = |member: usize| self.member(world, slot, member).processor.load(Relaxed) == here && !is_here(member);
        let needed = || (0..self.size).any(shares);
        wait::until_gathered(world, self.head(world, slot), slot, number, complete, needed)
    }

    /// Dissemination: in round r a member tells the one 2^r places further, and hears from the one 2^r before.
    fn exchange(&self, world: &World, slot: usize, index: usize) -> Result<()> {
        let own = self.member(world, slot, index);
        // In the job's memory, since a program may be followed by another one under the same rank.
        let number = own.number.load(Relaxed).wrapping_add(1);
        own.number.store(number, Release);
        for round in 0..ROUNDS {
            let distance = 1 << round;
            if distance >= self.size {
                break;
            }
            let partner = (index + distance) % self.size;
            self.member(world, slot, partner).flags[round].store(number, Release);
            world.flagged(self.rank(partner));
            // A fast partner may be in the next barrier already.
            wait::until(world, Waits::Barrier, Span::flag(slot as u64), || {
                own.flags[round].load(Acquire).wrapping_sub(number) as i32 >= 0
            })?;
        }
        Ok(())
    }

    /// Whether the host before this one in a round has told it one more arrival at this group than this host has begun; those are the group's hosts,
    /// and the key is of another group.
    pub(crate) fn has_told(&self, world: &World, key: u64, hosts: &[usize], round: usize) -> bool {
        let told = |slot: usize| {
            let head = self.head(world, slot);
            head.arrived[round].load(Acquire).wrapping_sub(head.crossings.load(Relaxed)) as i32 > 0
        };
        key != self.key && self.hosts == hosts && self.slot.is_some_and(told)
    }

    /// Leaves words for the others to see after the next barrier; they stay until the one after that.
    ///
    /// # Errors
    /// If the job ends, which members of other hosts are told of.
    pub fn tell(&self, world: &World, at: usize, word: u64) -> Result<()> {
        if let (Some(slot), Some(index)) = (self.slot, self.index) {
            self.member(world, slot, index).told[at].store(word, Release);
            crossing::tell(world, &self.hosts, (self.key, index, at, word))?;
        }
        Ok(())
    }

    /// What a member told.
    pub fn told(&self, world: &World, index: usize, at: usize) -> u64 {
        self.slot.map_or(0, |slot| self.member(world, slot, index).told[at].load(Acquire))
    }

    /// This member needs the group no more. The last one gives the slot back.
    pub fn leave(&self, world: &World) {
        let (Some(slot), Some(_)) = (self.slot, self.index) else { return };
        let head = self.head(world, slot);
        if head.left.fetch_add(1, AcqRel) + 1 == self.local as u32 {
            for index in 0..self.size {
                let member = self.member(world, slot, index);
                member.flags.iter().for_each(|flag| flag.store(0, Relaxed));
                member.number.store(0, Relaxed);
            }
            head.arrived.iter().chain([&head.crossings]).for_each(|word| word.store(0, Relaxed));
            head.turn.store(0, Relaxed);
            head.left.store(0, Relaxed);
            head.key.store(0, Release);
        }
    }
}

/// A member on this host that has come to its end, and so will not come to the barrier of the group at this slot that this rank is in. Both is
/// told by numbers, which go on from one program to the next: a rank that has ended once more than this one, and arrived once less.
pub(crate) fn absentee(world: &World, slot: usize) -> Option<usize> {
    let end = world.end().and_then(|end| end.slot).filter(|end| *end != slot)?;
    let members = members(head(world, slot).key.load(Acquire), world.ranks());
    let number = |slot: usize, index: usize| member(world, slot, index).number.load(Acquire);
    let (ends, arrivals) = (number(end, world.me()), number(slot, members.iter().position(|rank| *rank == world.me())?));
    let is_over = |rank: usize| world.is_near(rank) && number(end, rank).wrapping_sub(ends) as i32 > 0;
    let is_behind = |index: usize| (number(slot, index).wrapping_sub(arrivals) as i32) < 0;
    // In this order: what a rank did before its end is seen once that is.
    members.iter().enumerate().find(|(index, rank)| is_over(**rank) && is_behind(*index)).map(|(_, rank)| *rank)
}

/// Start, stride and size that a key tells.
pub(crate) fn parts(key: u64) -> (i64, i64, i64) {
    let field = |shift: u32, bits: u32| (key >> shift & ((1 << bits) - 1)) as i64;
    (field(23, 10), field(11, 12) - 1024, field(0, 11))
}

/// The members that a key tells, as far as there are such ranks. The key may be any number.
pub(crate) fn members(key: u64, ranks: usize) -> Vec<usize> {
    let (start, stride, size) = parts(key);
    let members = (0..size).map(|at| start + at * stride).filter(|rank| (0..ranks as i64).contains(rank));
    members.map(|rank| rank as usize).take(ranks).collect()
}

fn head(world: &World, slot: usize) -> &'static GroupHead {
    debug_assert!(slot < world.layout().groups());
    // SAFETY: the layout has so many slots; the mapping lives as long as the process; all is atomic.
    unsafe { &*((world.base() + world.layout().group(slot)) as *const GroupHead) }
}

fn member(world: &World, slot: usize, index: usize) -> &'static Member {
    debug_assert!(slot < world.layout().groups() && index < world.ranks());
    let at = world.base() + world.layout().group(slot) + size_of::<GroupHead>() + index * size_of::<Member>();
    // SAFETY: a slot has room for as many members as there are ranks; the mapping lives as long as the process; all is atomic.
    unsafe { &*(at as *const Member) }
}

/// The slot of a key, which the first rank that asks takes. Under a lock, since a slot before it may be given back meanwhile.
fn slot(world: &World, key: u64) -> Result<usize> {
    let lock = &world.header().groups_lock;
    let own = world.me() as u32 + 1;
    wait::until(world, Waits::Lock, Span::FLAG, || lock.compare_exchange(0, own, AcqRel, Relaxed).is_ok())?;
    let found = find_slot(world.header(), world.layout().groups(), key, |slot| &head(world, slot).key);
    lock.store(0, Release);
    // Others may sleep for it.
    for rank in 0..world.ranks() {
        world.flagged(rank);
    }
    found.ok_or(Error::Groups { room: world.layout().groups() })
}

/// The slot of a key, which is taken if there is none; the caller has the lock. Slots that never were taken are not looked at, so that they have no pages.
pub(crate) fn find_slot<'k>(header: &Header, room: usize, key: u64, at: impl Fn(usize) -> &'k AtomicU64) -> Option<usize> {
    let used = (header.groups_used.load(Relaxed) as usize).min(room);
    let find = |wanted| (0..used).find(|slot| at(*slot).load(Acquire) == wanted);
    let slot = find(key).or_else(|| find(0)).or((used < room).then_some(used))?;
    at(slot).store(key, Release);
    header.groups_used.store(used.max(slot + 1) as u32, Release);
    Some(slot)
}
