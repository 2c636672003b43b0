//! The ring that suits a memory limit: bytes that are not read are memory of the program, and so of its control group
//! (cgroups(7)), while the kernel's TCP has buffers of its own or makes them smaller.

use std::fs::read_to_string;
use std::path::Path;

/// So many full rings take about the whole limit.
const FULL_RINGS: u64 = 256;
/// A ring for which a wake-up is still cheap beside the bytes it carries.
const LEAST: u64 = 64 << 10;
const USUAL: u64 = 4 << 20;

/// Bytes of the largest ring under this process's memory limit; `None`: the usual one.
pub fn ring() -> Option<u64> {
    ring_under(limit(&read_to_string("/proc/self/cgroup").ok()?, Path::new("/sys/fs/cgroup"))?)
}

fn ring_under(limit: u64) -> Option<u64> {
    let share = (limit / FULL_RINGS).max(LEAST);
    (share < USUAL).then(|| 1 << share.ilog2())
}

/// The lowest memory limit of the control groups in `groups` (as in /proc/self/cgroup) and of those around them; version 2, or 1.
fn limit(groups: &str, mounted: &Path) -> Option<u64> {
    let group = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        // A group outside what this namespace sees begins with "..": then the outermost one that it sees is asked.
        let path = if path.contains("..") { "" } else { path.trim_start_matches('/') };
        match controllers {
            "" => Some((mounted.join(path), mounted.to_owned(), "memory.max")),
            _ if controllers.split(',').any(|name| name == "memory") => {
                let top = mounted.join("memory");
                Some((top.join(path), top, "memory.limit_in_bytes"))
            }
            _ => None,
        }
    };
    let read = |path: &Path| read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limits = groups.lines().filter_map(group).flat_map(|(inner, top, file)| {
        let around = inner.ancestors().take_while(|path| path.starts_with(&top));
        around.filter_map(|path| read(&path.join(file))).collect::<Vec<_>>()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_a_small_part_of_the_limit() {
        assert_eq!(ring_under(64 << 20), Some(256 << 10));
        assert_eq!(ring_under(200 << 20), Some(512 << 10));
        assert_eq!(ring_under(1 << 20), Some(64 << 10));
        assert_eq!(ring_under((1 << 30) - 1), Some(2 << 20));
        assert_eq!(ring_under(1 << 30), None);
        assert_eq!(ring_under(9223372036854771712), None);
    }

    #[test]
    fn the_lowest_limit_counts() {
        let mounted = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = mounted.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("memory.max", "max\n");
        write("a/memory.max", "2000\n");
        write("a/b/memory.max", "3000\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/c/memory.limit_in_bytes", "1000\n");
        let limit = |groups| limit(groups, mounted.path());
        assert_eq!(limit("0::/a/b\n"), Some(2000));
        assert_eq!(limit("0::/\n"), None);
        assert_eq!(limit("0::/../..\n"), None);
        assert_eq!(limit("5:cpu,memory:/c\n0::/a\n"), Some(1000));
        assert_eq!(limit("5:cpu:/c\n4:memory:/../x\n"), Some(9223372036854771712));
        assert_eq!(limit("nonsense\n4:memory\n"), None);
        assert_eq!(limit("4:memory:/gone/deep\n"), Some(9223372036854771712));
    }
}
