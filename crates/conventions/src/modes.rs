//! Modes of FILEs: what fopen(3) asks of open(2) for them, and what a FILE then forbids.

use core::ffi::c_int;
use shunt_calls::libc;

/// How open(2) opens for a mode of fopen(3).
pub fn open_flags(mode: &[u8]) -> c_int {
    let both = mode.contains(&b'+');
    let kind = match mode.first() {
        Some(b'r') => 0,
        Some(b'w') => libc::O_CREAT | libc::O_TRUNC,
        _ => libc::O_CREAT | libc::O_APPEND,
    };
    let access = match (both, mode.first()) {
        (true, _) => libc::O_RDWR,
        (false, Some(b'r')) => libc::O_RDONLY,
        _ => libc::O_WRONLY,
    };
    kind | access | if mode.contains(&b'e') { libc::O_CLOEXEC } else { 0 } | if mode.contains(&b'x') { libc::O_EXCL } else { 0 }
}

/// Bits of `_flags`, the first word of the C library's FILE (struct_FILE.h, libio.h): they have not changed since there were
/// inline functions that looked at them.
const NO_READS: c_int = 0x4;
const NO_WRITES: c_int = 0x8;
const IS_APPENDING: c_int = 0x1000;

/// The first word of a FILE whose direction becomes that of a file opened with `opens` (freopen(3)).
pub fn directed(flags: c_int, opens: c_int) -> c_int {
    let forbids = match opens & libc::O_ACCMODE {
        libc::O_RDONLY => NO_WRITES,
        libc::O_WRONLY => NO_READS,
        _ => 0,
    };
    let appends = if opens & libc::O_APPEND != 0 { IS_APPENDING } else { 0 };
    flags & !(NO_READS | NO_WRITES | IS_APPENDING) | forbids | appends
}

/// What a mode of popen(3) asks for: to read from the shell; that the descriptor is closed on exec. `None`: it is none.
pub fn of_pipe(mode: &[u8]) -> Option<(bool, bool)> {
    let has = |letter| mode.contains(&letter);
    (has(b'r') != has(b'w') && mode.iter().all(|letter| b"rwe".contains(letter))).then(|| (has(b'r'), has(b'e')))
}

#[cfg(test)]
#[path = "tests/modes.rs"]
mod tests;
