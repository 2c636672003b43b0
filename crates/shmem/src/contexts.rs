//! Communication contexts. On one host a copy by the processor is done when the call returns, and between hosts all contexts are complete
//! together: so a context has nothing to keep apart, and is a team, for the numbers of its ranks.

use crate::setup::write;
use crate::teams::{self, Team};
use shunt_pgas::World;
use std::ffi::c_int;

/// What `shmem_ctx_t` points to.
pub struct Context {
    team: Team,
    start: i64,
    stride: i64,
    size: usize,
}

pub type Ctx = *mut Context;

/// `SHMEM_CTX_DEFAULT`.
pub const DEFAULT: Ctx = std::ptr::without_provenance_mut(1);

/// The rank of the job that a context's number names; one that does not exist if it names none.
#[inline(always)]
pub fn rank(context: Ctx, pe: c_int) -> usize {
    if context.addr() == 1 {
        return pe as isize as usize;
    }
    of_team(context, pe)
}

/// How many ranks a context of a team knows; none of the default context.
pub fn members(context: Ctx) -> Option<usize> {
    match context.addr() {
        0 => Some(0),
        1 => None,
        // SAFETY: as in `of_team`.
        _ => Some(unsafe { &*context }.size),
    }
}

#[inline(never)]
fn of_team(context: Ctx, pe: c_int) -> usize {
    if context.is_null() {
        return usize::MAX;
    }
    // SAFETY: a handle that `create` gave and `destroy` has not taken back.
    let context = unsafe { &*context };
    if pe < 0 || pe as usize >= context.size {
        return usize::MAX;
    }
    (context.start + i64::from(pe) * context.stride) as usize
}

pub fn create(team: Team, options: i64, context: *mut Ctx) -> c_int {
    let _ = options;
    let group = if World::current().ranks() == 0 { None } else { teams::group(team) };
    let Some(group) = group else {
        write(context, std::ptr::null_mut());
        return -1;
    };
    let (start, stride) = group.span();
    write(context, Box::into_raw(Box::new(Context { team, start, stride, size: group.size() })));
    0
}

pub fn destroy(context: Ctx) {
    if context.addr() > 1 {
        crate::setup::or_fail("shmem_ctx_destroy", World::current().complete());
        // SAFETY: as above; the program does not use it any more.
        drop(unsafe { Box::from_raw(context) });
    }
}

pub fn get_team(context: Ctx, team: *mut Team) -> c_int {
    let found = match context.addr() {
        0 => teams::INVALID,
        1 => teams::WORLD,
        // SAFETY: as above.
        _ => unsafe { (*context).team },
    };
    write(team, found);
    if found.is_null() {
        -1
    } else {
        0
    }
}
