//! Libraries that are loaded with RTLD_DEEPBIND: which calls of dlopen(3) bind past the preload library.

use core::ffi::c_int;
use shunt_calls::libc;

/// Whether what dlopen(3) loads with these arguments is to be bound anew. One of a name without a directory is not: where it is looked for
/// depends on the caller.
pub fn concerns(name: Option<&[u8]>, flags: c_int) -> bool {
    let deep = flags & libc::RTLD_DEEPBIND != 0 && flags & libc::RTLD_NOLOAD == 0;
    deep && name.is_some_and(|name| name.contains(&b'/') && !name.contains(&b'$'))
}

/// The flags with which it is loaded: what is bound at its first use would be so past the preload library.
pub const fn at_once(flags: c_int) -> c_int {
    flags & !libc::RTLD_LAZY | libc::RTLD_NOW
}

#[cfg(test)]
#[path = "tests/deep.rs"]
mod tests;
