//! Teams: handles of groups.

use crate::setup::{or_fail, write};
use shunt_pgas::{Error, Group, Result, World};
use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard};

/// What `shmem_team_t` points to, but for the predefined ones.
pub struct TeamData {
    group: Group,
    contexts: c_int,
}

pub type Team = *mut TeamData;

/// `shmem_team_config_t`.
#[repr(C)]
pub struct TeamConfig {
    num_contexts: c_int,
}

pub const INVALID: Team = std::ptr::null_mut();
pub const WORLD: Team = std::ptr::without_provenance_mut(1);
const NUM_CONTEXTS: i64 = 1;

/// The group of a handle; none if it is `SHMEM_TEAM_INVALID`. Those of a host share memory, so they are `SHMEM_TEAM_SHARED`.
pub fn group(team: Team) -> Option<&'static Group> {
    match team.addr() {
        0 => None,
        1 => Some(World::current().all()),
        2 => Some(World::current().near()),
        // SAFETY: a handle that a split gave and that was not destroyed.
        _ => Some(unsafe { &(*team).group }),
    }
}

/// Teams that were not destroyed. Finalization destroys them: their groups' state lies in the job's memory, which the next program of a script
/// has, too.
static TEAMS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

fn teams() -> MutexGuard<'static, BTreeSet<usize>> {
    TEAMS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn live(team: Team) -> Option<&'static Group> {
    if World::current().ranks() == 0 {
        return None;
    }
    group(team)
}

pub fn my_pe(team: Team) -> c_int {
    live(team).and_then(Group::index).map_or(-1, |index| index as c_int)
}

pub fn n_pes(team: Team) -> c_int {
    live(team).map_or(-1, |group| group.size() as c_int)
}

pub fn get_config(team: Team, mask: i64, config: *mut TeamConfig) -> c_int {
    if live(team).is_none() || (config.is_null() && mask != 0) {
        return -1;
    }
    if mask & NUM_CONTEXTS != 0 {
        // SAFETY: a handle as above, if it is not a predefined one.
        let contexts = if team.addr() > 2 { unsafe { (*team).contexts } } else { 0 };
        write(config, TeamConfig { num_contexts: contexts });
    }
    0
}

pub fn translate(from: Team, pe: c_int, to: Team) -> c_int {
    let (Some(from), Some(to)) = (live(from), live(to)) else { return -1 };
    if pe < 0 || pe as usize >= from.size() {
        return -1;
    }
    to.place(from.rank(pe as usize)).map_or(-1, |place| place as c_int)
}

pub fn ptr(team: Team, address: usize, pe: c_int) -> *mut c_void {
    match live(team) {
        Some(group) if pe >= 0 && (pe as usize) < group.size() => crate::setup::ptr(address, group.rank(pe as usize) as c_int),
        _ => std::ptr::null_mut(),
    }
}

fn contexts(config: *const TeamConfig, mask: i64) -> c_int {
    if config.is_null() || mask & NUM_CONTEXTS == 0 {
        return 0;
    }
    // SAFETY: the program's configuration.
    unsafe { (*config).num_contexts }
}

/// A part of the parent, as places in it; `INVALID` for ranks outside it.
fn part(parent: &Group, (start, stride, size): (i64, i64, i64), mark: u32, contexts: c_int) -> Result<Team> {
    let world = World::current();
    let (first, step) = parent.span();
    let (start, stride) = (first + start * step, stride * step);
    if !(0..size).any(|index| start + index * stride == world.me() as i64) {
        return Ok(INVALID);
    }
    let group = Group::find(world, start, stride, size as usize, mark)?;
    let team = Box::into_raw(Box::new(TeamData { group, contexts }));
    teams().insert(team.expose_provenance());
    Ok(team)
}

pub fn split_strided(
    name: &'static str,
    parent: Team,
    (start, stride, size): (c_int, c_int, c_int),
    config: *const TeamConfig,
    mask: i64,
    team: *mut Team,
) -> c_int {
    write(team, INVALID);
    let Some(parent) = live(parent) else { return -1 };
    let (start, stride, size) = (i64::from(start), i64::from(stride), i64::from(size));
    let last = start + (size - 1) * stride;
    let inside = |place: i64| place >= 0 && place < parent.size() as i64;
    if size < 1 || !inside(start) || !inside(last) || (size > 1 && stride == 0) {
        return -1;
    }
    let drawn = or_fail(name, parent.mark(World::current()));
    made(name, part(parent, (start, stride, size), drawn, contexts(config, mask)), team)
}

fn made(name: &'static str, result: Result<Team>, team: *mut Team) -> c_int {
    match result {
        Ok(found) => {
            write(team, found);
            0
        }
        Err(Error::Groups { .. }) => -1,
        Err(error) => crate::setup::fail(name, error),
    }
}

type Axis = (*const TeamConfig, i64, *mut Team);

pub fn split_2d(name: &'static str, parent: Team, xrange: c_int, x: Axis, y: Axis) -> c_int {
    write(x.2, INVALID);
    write(y.2, INVALID);
    let Some(parent) = live(parent).filter(|_| xrange > 0) else { return -1 };
    let Some(place) = parent.index() else { return -1 };
    let (size, place) = (parent.size() as i64, place as i64);
    let xrange = i64::from(xrange).min(size);
    let (row, column) = (place / xrange, place % xrange);
    let world = World::current();
    let (first, second) = (or_fail(name, parent.mark(world)), or_fail(name, parent.mark(world)));
    let of_row = (row * xrange, 1, xrange.min(size - row * xrange));
    let of_column = (column, xrange, (size - column + xrange - 1) / xrange);
    let across = made(name, part(parent, of_row, first, contexts(x.0, x.1)), x.2);
    let down = made(name, part(parent, of_column, second, contexts(y.0, y.1)), y.2);
    across.min(down)
}

pub fn destroy(team: Team) {
    if teams().remove(&team.addr()) {
        // SAFETY: a handle that a split gave, which the program does not use any more.
        let data = unsafe { Box::from_raw(team) };
        data.group.leave(World::current());
    }
}

/// Destroys those that the program has left.
pub fn destroy_all() {
    let left: Vec<usize> = teams().iter().copied().collect();
    left.into_iter().for_each(|team| destroy(std::ptr::with_exposed_provenance_mut(team)));
}

pub fn sync(name: &'static str, team: Team) -> c_int {
    let Some(group) = live(team) else { return -1 };
    or_fail(name, group.sync(World::current()));
    0
}
