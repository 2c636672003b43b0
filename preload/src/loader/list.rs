//! The loader's list of objects, read without its lock.

use core::ffi::{c_char, c_int, c_void};
use shunt_conventions::tables::{Entry, Table};

/// struct link_map and struct r_debug, as debuggers know them (link.h).
#[repr(C)]
pub struct LinkMap {
    pub address: usize,
    pub name: *const c_char,
    dynamic: *const Entry,
    next: *const LinkMap,
}

#[repr(C)]
struct Debug {
    version: c_int,
    first: *const LinkMap,
}

extern "C" {
    static _r_debug: Debug;
    static _DYNAMIC: Entry;
    static __ehdr_start: u8;
}

/// Finds a symbol in what was loaded behind this library: what RTLD_NEXT gives to it.
///
/// The list is read without the loader's lock. What was loaded with the program stays in it, and has the symbols that are looked for.
pub fn behind(name: &[u8]) -> Option<*mut c_void> {
    let behind = all().skip_while(|map| !is_own(map)).skip(1);
    // SAFETY: the loader's description of an object that stays.
    behind.filter(|map| !map.dynamic.is_null()).find_map(|map| unsafe { Table::new(map.address, map.dynamic) }.find(name))
}

/// Whether the object of this dynamic section was loaded before this library: the program, and what is preloaded before it. They stay.
pub fn is_before(dynamic: *const Entry) -> bool {
    all().take_while(|map| !is_own(map)).any(|map| core::ptr::eq(map.dynamic, dynamic))
}

fn all() -> impl Iterator<Item = &'static LinkMap> {
    // SAFETY: the loader's list, which ends with null.
    unsafe { core::iter::successors(_r_debug.first.as_ref(), |map| map.next.as_ref()) }
}

fn is_own(map: &LinkMap) -> bool {
    core::ptr::eq(map.dynamic, &raw const _DYNAMIC)
}

/// This library's.
pub fn own() -> Table {
    // SAFETY: what the linker defines in each object.
    unsafe { Table::new((&raw const __ehdr_start) as usize, &raw const _DYNAMIC) }
}
