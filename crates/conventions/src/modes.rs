//! Modes of FILEs: what fopen(3) asks of open(2) for them, and what a FILE then forbids.

use core::ffi::c_int;
use shunt_calls::libc;

/// As many letters of a mode the C library looks at (_IO_new_file_fopen).
const LETTERS: usize = 7;

/// How open(2) opens for a mode of fopen(3). `None`: it is none.
pub fn open_flags(mode: &[u8]) -> Option<c_int> {
    let (first, rest) = mode[..mode.len().min(LETTERS)].split_first()?;
    let (alone, kind) = match first {
        b'r' => (libc::O_RDONLY, 0),
        b'w' => (libc::O_WRONLY, libc::O_CREAT | libc::O_TRUNC),
        b'a' => (libc::O_WRONLY, libc::O_CREAT | libc::O_APPEND),
        _ => return None,
    };
    let with = |letter, flag| if rest.contains(&letter) { flag } else { 0 };
    let access = if rest.contains(&b'+') { libc::O_RDWR } else { alone };
    Some(kind | access | with(b'e', libc::O_CLOEXEC) | with(b'x', libc::O_EXCL))
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
