//! Whether a fault can be mended in every thread of this process: a thread that has SIGSEGV blocked is not helped by a handler, the
//! kernel ends the process instead.
//!
//! Masks are a thread's own, so they are looked up in `/proc`, when the number of threads has changed and, as a mask can change at
//! any time, again and again: as seldom as there are threads, so that one look costs each output about one thread. What a thread
//! blocks between the look and its write is not seen; a program that asks for outputs that return at once promises not to
//! (README).

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_sys::{action, calls, check, libc, syscall};

const TASKS: &CStr = c"/proc/self/task";

/// Threads at the last look that found none, and how many outputs it still holds for.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Whether all threads take SIGSEGV. Where that cannot be found out: no.
pub(crate) fn all_take_faults() -> bool {
    let Some(threads) = count() else { return false };
    // The caller has looked at its own mask.
    if threads == 1 {
        return true;
    }
    let last = LAST.load(Ordering::Relaxed);
    if last >> 32 == threads && last as u32 > 0 {
        LAST.store(last - 1, Ordering::Relaxed);
        return true;
    }
    let all = look();
    LAST.store(if all { threads << 32 | threads } else { 0 }, Ordering::Relaxed);
    all
}

/// A directory has two links, and one more for each directory in it.
fn count() -> Option<u64> {
    // SAFETY: plain integers.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: a path that ends, room for the answer.
    check(unsafe { syscall!(libc::SYS_newfstatat, libc::AT_FDCWD, TASKS.as_ptr(), &raw mut status, 0) }).ok()?;
    status.st_nlink.checked_sub(2)
}

fn look() -> bool {
    let Ok(tasks) = calls::openat(libc::AT_FDCWD, TASKS.as_ptr().cast(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0)
    else {
        return false;
    };
    let all = all_in(tasks);
    let _ = calls::close(tasks);
    all
}

fn all_in(tasks: i32) -> bool {
    /// Of an entry of getdents64(2), what is in front of its name.
    const FRONT: usize = 19;
    let mut room = [0u64; 256];
    loop {
        // SAFETY: as much room.
        let got = check(unsafe { syscall!(libc::SYS_getdents64, tasks, room.as_mut_ptr(), size_of_val(&room)) });
        let Ok(length @ 1..) = got else { return got.is_ok() };
        // SAFETY: as many bytes are there.
        let mut entries = unsafe { core::slice::from_raw_parts(room.as_ptr().cast::<u8>(), length) };
        while let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, low, high, ..] = *entries {
            let (entry, rest) = entries.split_at((low as usize | (high as usize) << 8).clamp(FRONT, entries.len()));
            entries = rest;
            let name = CStr::from_bytes_until_nul(&entry[FRONT..]).unwrap_or(c"");
            if name.to_bytes().first().is_some_and(u8::is_ascii_digit) && !takes_faults(tasks, name) {
                return false;
            }
        }
    }
}

/// A thread that has ended meanwhile writes no more.
fn takes_faults(tasks: i32, thread: &CStr) -> bool {
    let mut path = [0u8; 32];
    let name = thread.to_bytes();
    if name.len() > 16 {
        return false;
    }
    path[..name.len()].copy_from_slice(name);
    path[name.len()..name.len() + 7].copy_from_slice(b"/status");
    let Ok(file) = calls::openat(tasks, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0) else { return true };
    let mut text = [0u8; 4096];
    let got = calls::read(file, text.as_mut_ptr().cast(), text.len());
    let _ = calls::close(file);
    let Ok(length) = got else { return true };
    blocked(&text[..length]).is_some_and(|mask| mask & action::bit(libc::SIGSEGV) == 0 || mask & INTERNAL == INTERNAL)
}

/// Signals of the C library's own, which no program can block through it: a thread with these blocked is being made, or ends, or forks,
/// inside the library, and writes no buffers there.
const INTERNAL: u64 = 3 << 31;

/// The signals that `/proc/PID/status` says are blocked: proc(5), `SigBlk`.
fn blocked(status: &[u8]) -> Option<u64> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"SigBlk:"))?;
    u64::from_str_radix(core::str::from_utf8(line).ok()?.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_found() {
        let text =
            b"Name:\tSigBlk:\nThreads:\t2\nSigPnd:\t0000000000000000\nSigBlk:\tfffffffe7ffbfeff\nSigIgn:\t0000000000001000\n";
        assert_eq!((blocked(text), blocked(b"SigBlk:\t-"), blocked(b"")), (Some(0xffff_fffe_7ffb_feff), None, None));
        assert_eq!(action::bit(32) | action::bit(33), INTERNAL);
    }

    #[test]
    fn threads_are_counted_and_looked_at() {
        assert!(count().is_some_and(|threads| threads > 0));
        assert!(look());
    }
}
