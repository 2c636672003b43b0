//! What the memory cgroups around this process allow (cgroups(7), versions 1 and 2).
//!
//! Memory of a pool is found when it is touched, and where a cgroup has no more by then the kernel ends a process of it. So a pool is made
//! only where the limits, which can be asked for before, are well above it.

use crate::limit::Limit;
use core::sync::atomic::{AtomicUsize, Ordering};
use shunt_sys::{calls, libc};

/// Bytes of this process's pools.
static POOLED: AtomicUsize = AtomicUsize::new(0);

/// Pools may have this part of the lowest limit, all together.
const PART: usize = 2;

/// Notes a pool of so many bytes.
///
/// # Errors
/// [`Limit::Memory`]: with it they would be more than half of what a cgroup allows.
pub(crate) fn enter(bytes: usize) -> Result<(), Limit> {
    let all = POOLED.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if all > may_be_pooled() {
        leave(bytes);
        return Err(Limit::Memory);
    }
    Ok(())
}

/// The most bytes that all pools of this process can have together; `usize::MAX`: as many as there are.
pub fn may_be_pooled() -> usize {
    match lowest() {
        usize::MAX => usize::MAX,
        limit => limit / PART,
    }
}

/// A pool has gone.
pub(crate) fn leave(bytes: usize) {
    POOLED.fetch_sub(bytes, Ordering::Relaxed);
}

/// The lowest limit of the groups that this process is in and of those around them; `usize::MAX`: none is to be seen.
fn lowest() -> usize {
    let mut groups = [0; 4096];
    let length = read(b"/proc/self/cgroup\0", &mut groups);
    let lines = groups[..length].split(|byte| *byte == b'\n');
    lines.filter_map(group).map(|(top, path, file)| around(top, path, file, &limit)).min().unwrap_or(usize::MAX)
}

type Bytes = &'static [u8];

/// Of a line of /proc/self/cgroup: where the hierarchy is mounted, the group's path there, and the name of its limit.
fn group(line: &[u8]) -> Option<(Bytes, &[u8], Bytes)> {
    let mut parts = line.splitn(3, |byte| *byte == b':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    // A group outside what this namespace sees: then the outermost one that it sees is asked.
    let path = if path.windows(3).any(|part| part == b"/..") { b"" } else { path };
    match controllers {
        b"" => Some((b"/sys/fs/cgroup", path, b"/memory.max\0")),
        _ if controllers.split(|byte| *byte == b',').any(|name| name == b"memory") => {
            Some((b"/sys/fs/cgroup/memory", path, b"/memory.limit_in_bytes\0"))
        }
        _ => None,
    }
}

/// The lowest that `limit` gives for the group at `path` and those around it.
fn around(top: &[u8], path: &[u8], file: &[u8], limit: &dyn Fn(&[u8]) -> Option<usize>) -> usize {
    let mut whole = [0; 1024];
    let (mut end, mut lowest) = (path.len(), usize::MAX);
    loop {
        let parts = [top, &path[..end], file];
        // A path that is too long is not asked, those around it are.
        if parts.iter().map(|part| part.len()).sum::<usize>() <= whole.len() {
            let mut length = 0;
            for part in parts {
                whole[length..length + part.len()].copy_from_slice(part);
                length += part.len();
            }
            lowest = lowest.min(limit(&whole[..length]).unwrap_or(usize::MAX));
        }
        match path[..end].iter().rposition(|byte| *byte == b'/') {
            Some(slash) => end = slash,
            None => return lowest,
        }
    }
}

/// The number in a file; `None`: there is no such file, or no limit.
fn limit(path: &[u8]) -> Option<usize> {
    let mut text = [0; 32];
    let length = read(path, &mut text);
    number(&text[..length])
}

fn number(text: &[u8]) -> Option<usize> {
    let digits = text.trim_ascii();
    let sound = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    sound.then(|| digits.iter().fold(0usize, |number, digit| number.saturating_mul(10).saturating_add((digit - b'0') as usize)))
}

/// Reads what fits; 0 bytes of a file that is not there.
fn read(path: &[u8], target: &mut [u8]) -> usize {
    debug_assert_eq!(path.last(), Some(&0));
    let Ok(fd) = calls::openat(libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0) else { return 0 };
    let length = calls::read(fd, target.as_mut_ptr().cast(), target.len()).unwrap_or(0);
    let _ = calls::close(fd);
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_around_counts() {
        let files = [
            ("/sys/fs/cgroup/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "2000\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "3000\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "1000\n"),
        ];
        let read = |path: &[u8]| {
            let path = core::str::from_utf8(path).unwrap().trim_end_matches('\0');
            files.iter().find(|file| file.0 == path).and_then(|file| number(file.1.as_bytes()))
        };
        let lowest = |line: &str| group(line.as_bytes()).map(|(top, path, file)| around(top, path, file, &read));
        assert_eq!(lowest("0::/a/b"), Some(2000));
        assert_eq!(lowest("0::/a"), Some(2000));
        assert_eq!(lowest("0::/"), Some(usize::MAX));
        assert_eq!(lowest("0::/../.."), Some(usize::MAX));
        assert_eq!(lowest("5:cpu,memory:/c"), Some(1000));
        assert_eq!(lowest("4:memory:/../x"), Some(9223372036854771712));
        assert_eq!(lowest("4:memory:/gone/deep"), Some(9223372036854771712));
        assert_eq!(lowest(&format!("4:memory:/c/{}", "x".repeat(2000))), Some(1000));
        assert_eq!((lowest("5:cpu:/c"), lowest("nonsense"), lowest("4:memory")), (None, None, None));
    }
}
