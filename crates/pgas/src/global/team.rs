//! Teams of ranks, and their collective operations: every member calls them, in one order.
//!
//! What comes of each call lies in memory of the caller's own, so nothing has to be waited for before it is used.

use super::{Global, Plain, Symmetric};
use crate::atomic::Word;
use crate::collective;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::trace::{self, Kind};
use crate::world::World;
use std::cell::Cell;
use std::marker::PhantomData;

/// The word that values are told in: splits use the first.
const VALUE: usize = 1;

/// Ranks, of which the caller is one. Members are numbered from 0.
#[derive(Debug)]
pub struct Team {
    members: Members,
    /// One thread at a time calls it.
    of: PhantomData<Cell<()>>,
}

#[derive(Debug)]
enum Members {
    All,
    Host,
    Part(Group),
}

impl World {
    /// All ranks.
    pub fn team(&self) -> Team {
        Members::All.into()
    }

    /// The ranks of this host.
    pub fn team_of_host(&self) -> Team {
        Members::Host.into()
    }

    /// The sum, minimum or whatever of all ranks' values, in order of ranks.
    ///
    /// # Errors
    /// If the job ends.
    pub fn reduce<T: Word>(&self, value: T, operation: impl Fn(T, T) -> T) -> Result<T> {
        self.team().reduce(self, value, operation)
    }
}

impl From<Members> for Team {
    fn from(members: Members) -> Team {
        Team { members, of: PhantomData }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        if let Members::Part(group) = &self.members {
            group.leave(World::current());
        }
    }
}

impl Team {
    fn group<'team>(&'team self, world: &'team World) -> &'team Group {
        match &self.members {
            Members::All => world.all(),
            Members::Host => world.near(),
            Members::Part(group) => group,
        }
    }

    /// How many members it has.
    pub fn size(&self, world: &World) -> usize {
        self.group(world).size()
    }

    /// The caller's number.
    pub fn index(&self, world: &World) -> usize {
        self.group(world).index().expect("teams are made for their members")
    }

    /// The rank of a member; none if there is no such member.
    pub fn rank(&self, world: &World, index: usize) -> Option<usize> {
        let group = self.group(world);
        (index < group.size()).then(|| group.rank(index))
    }

    /// The member that a rank is, if it is one.
    pub fn place(&self, world: &World, rank: usize) -> Option<usize> {
        self.group(world).place(rank)
    }

    /// The `size` members from `start` on, `stride` apart, as a team; none for those that are not among them. All members call it.
    ///
    /// # Errors
    /// If there are no such members, or too many teams; if the job ends.
    pub fn split(&self, world: &World, start: usize, stride: usize, size: usize) -> Result<Option<Team>> {
        let group = self.group(world);
        let last = size.saturating_sub(1).saturating_mul(stride).saturating_add(start);
        if size == 0 || last >= group.size() || (stride == 0 && size > 1) {
            return Err(Error::Member { number: last.min(i64::MAX as usize) as i64, members: group.size() });
        }
        let mark = group.mark(world)?;
        self.part(world, (start, stride, size), mark)
    }

    /// Members in rows of `width`, the last of which may be shorter: the caller's row and its column. All members call it.
    ///
    /// # Errors
    /// If the width is 0, or if there are too many teams; if the job ends.
    pub fn split_grid(&self, world: &World, width: usize) -> Result<(Team, Team)> {
        let (size, index) = (self.size(world), self.index(world));
        if width == 0 {
            return Err(Error::Setup("rows of no members".into()));
        }
        let width = width.min(size);
        let (row, column) = (index / width, index % width);
        let group = self.group(world);
        let marks = (group.mark(world)?, group.mark(world)?);
        let across = self.part(world, (row * width, 1, width.min(size - row * width)), marks.0)?;
        let down = self.part(world, (column, width, (size - column).div_ceil(width)), marks.1)?;
        Ok((across.expect("the caller's own"), down.expect("the caller's own")))
    }

    fn part(&self, world: &World, (start, stride, size): (usize, usize, usize), mark: u32) -> Result<Option<Team>> {
        let (first, step) = self.group(world).span();
        let (start, stride) = (first + start as i64 * step, stride as i64 * step);
        if !(0..size as i64).any(|at| start + at * stride == world.me() as i64) {
            return Ok(None);
        }
        Ok(Some(Members::Part(Group::find(world, start, stride, size, mark)?).into()))
    }

    /// Waits for all members; what each has put before is seen by all.
    ///
    /// # Errors
    /// If the job ends.
    pub fn barrier(&self, world: &World) -> Result<()> {
        self.group(world).barrier(world)
    }

    /// Everybody's value, in order of members.
    fn values<T: Word, R>(&self, world: &World, value: T, of: impl FnOnce(&dyn Fn(usize) -> T) -> R) -> Result<R> {
        let group = self.group(world);
        group.tell(world, VALUE, value.bits())?;
        group.barrier(world)?;
        let told = |index: usize| if group.size() == 1 { value } else { T::from_bits(group.told(world, index, VALUE)) };
        let result = of(&told);
        group.barrier(world)?;
        Ok(result)
    }

    /// The root's value, at all members.
    ///
    /// # Errors
    /// If there is no such member; if the job ends.
    pub fn broadcast<T: Word>(&self, world: &World, root: usize, value: T) -> Result<T> {
        self.check(world, root)?;
        self.values(world, value, |told| told(root))
    }

    /// The sum, minimum or whatever of all members' values, in order of members, at all of them.
    ///
    /// # Errors
    /// If the job ends.
    pub fn reduce<T: Word>(&self, world: &World, value: T, operation: impl Fn(T, T) -> T) -> Result<T> {
        let size = self.size(world);
        self.values(world, value, |told| (1..size).fold(told(0), |sum, index| operation(sum, told(index))))
    }

    /// What the values of members up to the caller make together.
    ///
    /// # Errors
    /// If the job ends.
    pub fn scan<T: Word>(&self, world: &World, value: T, operation: impl Fn(T, T) -> T) -> Result<T> {
        let own = self.index(world);
        self.values(world, value, |told| (1..=own).fold(told(0), |sum, index| operation(sum, told(index))))
    }

    /// Everybody's value, at all members.
    ///
    /// # Errors
    /// If the job ends.
    pub fn collect<T: Word>(&self, world: &World, value: T) -> Result<Vec<T>> {
        let size = self.size(world);
        self.values(world, value, |told| (0..size).map(told).collect())
    }

    fn check(&self, world: &World, index: usize) -> Result<usize> {
        let members = self.size(world);
        self.rank(world, index).ok_or(Error::Member { number: index as i64, members })
    }

    /// Runs what reads other members' arrays into the caller's memory, between two barriers.
    fn between<T: Plain>(
        &self,
        world: &World,
        (kind, bytes): (Kind, usize),
        body: impl FnOnce(&Group, &dyn Fn(Global<T>, &mut [T]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let group = self.group(world);
        let _scope = trace::scope(world, || group.what(kind, bytes));
        group.barrier(world)?;
        body(group, &|from, to| from.get_all(world, to))?;
        group.barrier(world)
    }

    /// The first elements of the root's array become the caller's `to`, at all members.
    ///
    /// # Errors
    /// If there is no such member, or the array has not so many elements; if the job ends.
    pub fn broadcast_all<T: Plain>(&self, world: &World, root: usize, from: Symmetric<T>, to: &mut [T]) -> Result<()> {
        let rank = self.check(world, root)?;
        self.between(world, (Kind::Broadcast, size_of_val(to)), |_, get| get(from.at(rank, 0), to))
    }

    /// The first `count` elements of each member's array, one after the other in order of members; counts may differ.
    ///
    /// # Errors
    /// If an array has not so many elements; if the job ends.
    pub fn collect_all<T: Plain>(&self, world: &World, from: Symmetric<T>, count: usize) -> Result<Vec<T>> {
        if count > from.length {
            return Err(from.at(world.me(), 0).wrong(world, count));
        }
        let counts: Vec<u64> = self.collect(world, count as u64)?;
        let mut all = Vec::new();
        self.between(world, (Kind::Collect, count * size_of::<T>()), |group, get| {
            for (index, count) in counts.iter().enumerate() {
                let (start, place) = (all.len(), from.at(group.rank(index), 0));
                // What others tell is no size of an allocation before it is known to be in the array.
                let count = (*count as usize).min(from.length);
                // SAFETY: any bits are a value.
                all.resize(start + count, unsafe { std::mem::zeroed() });
                get(place, &mut all[start..])?;
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// Block `j` of member `i`'s array becomes block `i` of member `j`'s `to`; there are as many blocks as members.
    ///
    /// # Errors
    /// If `to` is no whole number of blocks, or the array has fewer elements; if the job ends.
    pub fn all_to_all<T: Plain>(&self, world: &World, from: Symmetric<T>, to: &mut [T]) -> Result<()> {
        let (size, own) = (self.size(world), self.index(world));
        if !to.len().is_multiple_of(size) {
            return Err(Error::Setup(format!("{} elements are not as many for each of {size} members", to.len())));
        }
        let block = to.len() / size;
        self.between(world, (Kind::Alltoall, block * size_of::<T>()), |group, get| {
            // Each begins with itself, so that not all read from one.
            for index in (0..size).map(|step| (own + step) % size).filter(|_| block > 0) {
                get(from.at(group.rank(index), own * block), &mut to[index * block..][..block])?;
            }
            Ok(())
        })
    }

    /// Element by element, the sum, minimum or whatever of all members' arrays, in order of members; in everybody's `to`, which may be the same array.
    ///
    /// # Errors
    /// If the arrays have not so many elements; if the job ends.
    pub fn reduce_all<T: Plain>(
        &self,
        world: &World,
        (from, to): (Symmetric<T>, Symmetric<T>),
        count: usize,
        operation: impl Fn(T, T) -> T,
    ) -> Result<()> {
        if count > from.length.min(to.length) {
            return Err(from.at(world.me(), 0).wrong(world, count));
        }
        // SAFETY: both are arrays of so many elements on each rank; any bits are values. Nothing of Rust's refers to either.
        unsafe { collective::reduce(world, self.group(world), to.address, from.address, count, operation) }
    }

    /// Element by element, what the arrays of members up to the caller make together.
    ///
    /// # Errors
    /// If the array has not so many elements; if the job ends.
    pub fn scan_all<T: Plain>(
        &self,
        world: &World,
        from: Symmetric<T>,
        to: &mut [T],
        operation: impl Fn(T, T) -> T,
    ) -> Result<()> {
        let own = self.index(world);
        self.between(world, (Kind::Scan, size_of_val(to)), |group, get| {
            get(from.at(group.rank(0), 0), to)?;
            let mut next = to.to_vec();
            for index in 1..=own {
                get(from.at(group.rank(index), 0), &mut next)?;
                to.iter_mut().zip(&next).for_each(|(sum, value)| *sum = operation(*sum, *value));
            }
            Ok(())
        })
    }
}
