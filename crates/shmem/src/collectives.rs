//! Collective operations, of teams and of active sets.

use crate::numbers::Number;
use crate::setup::{fail, or_fail};
use crate::teams::{self, Team};
use shunt_pgas::{collective, Error, Group, World};
use std::ffi::c_int;

/// A team's group; none for `SHMEM_TEAM_INVALID`, for which collectives answer that they failed.
pub fn of_team(team: Team) -> Option<&'static Group> {
    if World::current().ranks() == 0 {
        return None;
    }
    teams::group(team)
}

pub fn active_set(name: &'static str, start: c_int, log_stride: c_int, size: c_int) -> Option<&'static Group> {
    let stride = 1i64.checked_shl(log_stride.max(0) as u32).unwrap_or(i64::MAX);
    Some(or_fail(name, World::current().active_set(i64::from(start), stride, i64::from(size))))
}

fn all(name: &'static str) -> (&'static World, &'static Group) {
    let world = World::current();
    if world.ranks() == 0 {
        fail(name, Error::Rank { rank: 0, ranks: 0 });
    }
    (world, world.all())
}

pub fn barrier_all(name: &'static str) {
    let (world, group) = all(name);
    or_fail(name, group.barrier(world));
}

pub fn sync_all(name: &'static str) {
    let (world, group) = all(name);
    or_fail(name, group.sync(world));
}

pub fn barrier(name: &'static str, group: Option<&Group>) {
    if let Some(group) = group {
        or_fail(name, group.barrier(World::current()));
    }
}

pub fn sync(name: &'static str, group: Option<&Group>) {
    if let Some(group) = group {
        or_fail(name, group.sync(World::current()));
    }
}

/// Runs a collective, if there is a group.
fn run(name: &'static str, group: Option<&'static Group>, what: impl FnOnce(&World, &Group) -> shunt_pgas::Result<()>) -> c_int {
    let Some(group) = group else { return -1 };
    or_fail(name, what(World::current(), group));
    0
}

/// With a team, the root gets a copy, too.
pub fn broadcast(
    name: &'static str,
    group: Option<&'static Group>,
    to: usize,
    from: usize,
    size: usize,
    count: usize,
    root: c_int,
) -> c_int {
    broadcast_and(name, group, (to, from), size.saturating_mul(count), root, true)
}

/// With an active set, it does not.
pub fn broadcast_to_others(
    name: &'static str,
    group: Option<&'static Group>,
    to: usize,
    from: usize,
    size: usize,
    count: usize,
    root: c_int,
) -> c_int {
    broadcast_and(name, group, (to, from), size.saturating_mul(count), root, false)
}

fn broadcast_and(
    name: &'static str,
    group: Option<&'static Group>,
    (to, from): (usize, usize),
    bytes: usize,
    root: c_int,
    to_root: bool,
) -> c_int {
    let root = usize::try_from(root).unwrap_or(usize::MAX);
    // SAFETY: addresses are checked; the program vouches for its destination.
    run(name, group, |world, group| unsafe { collective::broadcast(world, group, to, from, bytes, root, to_root) })
}

pub fn collect(name: &'static str, group: Option<&'static Group>, to: usize, from: usize, size: usize, count: usize) -> c_int {
    // SAFETY: as above.
    run(name, group, |world, group| unsafe { collective::collect(world, group, to, from, size.saturating_mul(count)) })
}

pub fn fcollect(name: &'static str, group: Option<&'static Group>, to: usize, from: usize, size: usize, count: usize) -> c_int {
    // SAFETY: as above.
    run(name, group, |world, group| unsafe { collective::fcollect(world, group, to, from, size.saturating_mul(count)) })
}

pub fn alltoall(name: &'static str, group: Option<&'static Group>, to: usize, from: usize, size: usize, count: usize) -> c_int {
    // SAFETY: as above.
    run(name, group, |world, group| unsafe { collective::alltoalls(world, group, to, from, (1, 1), size, count) })
}

pub fn alltoalls(
    name: &'static str,
    group: Option<&'static Group>,
    to: usize,
    from: usize,
    size: usize,
    (to_step, from_step): (isize, isize),
    count: usize,
) -> c_int {
    let steps = (to_step.max(1) as usize, from_step.max(1) as usize);
    // SAFETY: as above.
    run(name, group, |world, group| unsafe { collective::alltoalls(world, group, to, from, steps, size, count) })
}

pub fn reduce<T: Number>(
    name: &'static str,
    group: Option<&'static Group>,
    to: *mut T,
    from: *const T,
    count: usize,
    operation: fn(T, T) -> T,
) -> c_int {
    // SAFETY: as above; `T` is plain data.
    run(name, group, |world, group| unsafe { collective::reduce(world, group, to as usize, from as usize, count, operation) })
}
