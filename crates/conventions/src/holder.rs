//! The object that an address lies in, and whether functions of its are those that the preload library stands before.

use crate::tables::Table;
use shunt_calls::CALLS;

/// Beginnings of the names of files for whose functions this library's stand. Parts of the C library up to 2.33 are among them.
const STOOD_FOR: [&[u8]; 6] = [b"libc.so", b"libpthread.so", b"librt.so", b"libutil.so", b"libdl.so", b"liburing.so"];

/// Groups of [`shunt_calls::CALLS`] that are about descriptors: past this library they would do wrong.
const ABOUT_DESCRIPTORS: [&str; 8] = ["sockets", "receive", "send", "wait", "descriptors", "stdio", "aio", "io_uring"];

/// The object that an address lies in.
pub struct Holder<'a> {
    /// Its file, without directories; empty: the program.
    pub file: &'a [u8],
    /// Its symbols.
    pub table: Table,
    /// It was loaded behind this library.
    pub behind: bool,
}

impl Holder<'_> {
    /// Whether it is a library that wraps calls, as this one does, and means the C library's own function. One behind this library is
    /// called by it, so it would call itself. And tools (profilers) so begin processes that are not to be watched.
    pub fn asks_for_itself(&self, name: &[u8]) -> bool {
        let defines = |name: &[u8]| self.table.find(name).is_some();
        let about_descriptors =
            || CALLS.iter().any(|call| call.symbol.as_bytes() == name && ABOUT_DESCRIPTORS.contains(&call.group));
        let is_program = self.file.is_empty();
        !is_program
            && (self.behind && defines(name) || !about_descriptors() && CALLS.iter().any(|call| defines(call.symbol.as_bytes())))
    }

    /// Whether this library's functions stand for its own.
    pub fn is_stood_for(&self) -> bool {
        STOOD_FOR.iter().any(|file| self.file.starts_with(file))
    }
}

#[cfg(test)]
#[path = "tests/holder.rs"]
mod tests;
