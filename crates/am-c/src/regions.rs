//! Regions that are shown to peers: names as the header has them, over [`shunt_am::port::Regions`].

use crate::{entered, result, slice, Inside, NO_MEMORY, OUTSIDE, REFUSED, STALE};
use shunt_am::port::{Name, Shows};
use shunt_am::Access;
use shunt_region::{Audience, Limit, Pages, Pool, Shape};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// `shunt_am_region`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CRegion {
    peer: u32,
    reserved: u32,
    words: [u64; 2],
}

impl CRegion {
    fn of(name: Name) -> CRegion {
        CRegion { peer: name.peer(), reserved: 0, words: name.to_words() }
    }

    fn name(self) -> Result<Name, Limit> {
        Name::from_words(self.peer, self.words)
    }
}

/// What a limit is in the header.
pub(crate) fn number(limit: Limit) -> c_int {
    match limit {
        Limit::Stale | Limit::State => STALE,
        Limit::Outside => OUTSIDE,
        Limit::Violation | Limit::OtherPeer => REFUSED,
        _ => NO_MEMORY,
    }
}

const UNIT: usize = 64 << 10;

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_show_region(
    port: *mut crate::Handle,
    peer: u32,
    length: usize,
    kind: c_int,
    region: *mut CRegion,
    memory: *mut *mut c_void,
) -> c_int {
    let Inside { program, .. } = &mut entered!(port);
    let access = match kind {
        0 => Access::Store,
        1 => Access::Get,
        2 => Access::Fetch,
        _ => return REFUSED,
    };
    // A pool for each, which goes with its region: memory of a program in C comes and goes by itself.
    let shape = Shape { unit: UNIT, units: length.div_ceil(UNIT).max(1) };
    let made = Pool::create(shape, Pages::Small, Audience::Anyone).and_then(|pool| pool.allocate(length));
    let shown = made.and_then(|made| {
        let address = made.pointer();
        program.regions().show(peer, access, made, length).map(|name| (name, address))
    });
    match shown {
        Ok((name, address)) => {
            // SAFETY: the caller's, valid for writing.
            unsafe { (*region, *memory) = (CRegion::of(name), address.cast()) };
            0
        }
        Err(limit) => number(limit),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_take_back_region(port: *mut crate::Handle, region: *const CRegion) -> c_int {
    // SAFETY: the caller's.
    let name = unsafe { *region }.name();
    let Inside { program, .. } = &mut entered!(port);
    name.and_then(|name| program.regions().take_back(name)).map_or_else(number, |_| 0)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_named(peer: u32, words: *const u64, region: *mut CRegion) -> c_int {
    // SAFETY: the caller's two words.
    let words = unsafe { [*words, *words.add(1)] };
    match Name::from_words(peer, words) {
        Ok(name) => {
            // SAFETY: the caller's, valid for writing.
            unsafe { *region = CRegion::of(name) };
            0
        }
        Err(limit) => number(limit),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_store_region(
    port: *mut crate::Handle,
    theirs: *const CRegion,
    offset: u64,
    data: *const u8,
    length: usize,
    handler: u8,
    words: *const u64,
    count: u32,
) -> c_int {
    // SAFETY: the caller's, of the lengths that it says.
    let (name, words, data) = unsafe { ((*theirs).name(), slice(words, count as usize), slice(data, length)) };
    let name = match name {
        Ok(name) => name,
        Err(limit) => return number(limit),
    };
    let Inside { port, program, .. } = &mut entered!(port);
    result(port.store_region((name, offset), data, (handler, words), *program))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_am_get_region(
    port: *mut crate::Handle,
    theirs: *const CRegion,
    offset: u64,
    mine: *const CRegion,
    length: u64,
    milliseconds: u32,
) -> c_int {
    // SAFETY: the caller's.
    let names = unsafe { ((*theirs).name(), (*mine).name()) };
    let (theirs, mine) = match names {
        (Ok(theirs), Ok(mine)) => (theirs, mine),
        (Err(limit), _) | (_, Err(limit)) => return number(limit),
    };
    let Inside { port, program, .. } = &mut entered!(port);
    let limit = Duration::from_millis(milliseconds.into());
    result(port.get_region((theirs, offset), mine, length, limit, *program))
}
