//! The directory: whether there is one, names in it that stay for a while, and what killed processes left there.

use crate::path::{Identity, Path, NAME, PREFIX, REMOVED, SERVED};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shunt_config::Near;
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_sys::libc::{self, AT_FDCWD, O_CLOEXEC, O_DIRECTORY, O_PATH, O_RDONLY};
use shunt_sys::{calls, clock, Errno};
use shunt_table::global::{self, LockedCell, SETUP};
use shunt_table::private::Pending;

/// How long it is believed that the directory is there, or is not (ns), and between two looks through it.
const BELIEVED: u64 = 1_000_000_000;
/// How long a name stays whose connection nobody has claimed (ns): longer than a server claims one, with the ticks of the kernel's clock.
pub(crate) const STAYS: u64 = 200_000_000;
/// How old a name is that nobody listens at, when any process may remove it (s).
const LEFT: i64 = 1;
/// Names that one process has stay, at most.
const MOST: usize = 64;
/// Pieces of the directory's list that are read in one look, each of some 60 names: a directory that was filled up costs no more.
const MOST_LOOKS: u32 = 16;

/// What is known of the directory.
struct Directory {
    /// A filter of system calls refuses what connections need that are made here.
    is_barred: AtomicBool,
    until: AtomicU64,
    is_there: AtomicBool,
    looked_through: AtomicU64,
    /// Under the set-up lock.
    names: LockedCell<Names>,
}

static DIRECTORY: Directory = Directory {
    is_barred: AtomicBool::new(false),
    until: AtomicU64::new(0),
    is_there: AtomicBool::new(false),
    looked_through: AtomicU64::new(0),
    names: LockedCell::new(Names::NONE),
};

/// Names that stay for a while: the connection's address, what the name is, and since when (ns).
struct Names {
    entries: [(Address, Identity, u64); MOST],
    count: usize,
}

impl Names {
    const NONE: Names = Names { entries: [(Address { ip: [0; 16], port: 0, scope: 0 }, Identity::NONE, 0); MOST], count: 0 };

    /// Removes those that need not stay.
    fn settle(&mut self, directory: &[u8], now: u64) {
        let mut at = 0;
        while at < self.count {
            let (address, identity, since) = self.entries[at];
            if now.saturating_sub(since) < STAYS {
                at += 1;
                continue;
            }
            // Others may have removed it, and made it anew.
            Path::of(directory, &address).remove_exactly(&identity);
            self.count -= 1;
            self.entries[at] = self.entries[self.count];
        }
    }
}

/// Those names of this process that need stay no longer go. Errors: NearQuota: too many stay.
pub(crate) fn settle(directory: &[u8], now: u64) -> Result<(), Reason> {
    let Some(_setup) = SETUP.lock() else { return Ok(()) };
    // SAFETY: under the set-up lock.
    let names = unsafe { &mut *DIRECTORY.names.get() };
    names.settle(directory, now);
    if names.count == MOST {
        return Err(Reason::NearQuota);
    }
    Ok(())
}

/// A name of this process stays for a while. False: there is no room.
pub(crate) fn stays(address: &Address, identity: &Identity) -> bool {
    let Some(_setup) = SETUP.lock() else { return false };
    // SAFETY: under the set-up lock.
    let names = unsafe { &mut *DIRECTORY.names.get() };
    let Some(place) = names.entries.get_mut(names.count) else { return false };
    *place = (*address, *identity, clock::monotonic_ns());
    names.count += 1;
    true
}

/// The directory that the options name, unless a filter is in the way.
pub fn named() -> Option<&'static [u8]> {
    global::options().near.directory().filter(|_| !DIRECTORY.is_barred.load(Ordering::Relaxed))
}

/// Whether the directory is one in which others than its owner cannot take a name's place: of root, or of this process's user, and where others write, with the
/// sticky bit. Asked of the usual one, which no option need name.
fn is_kept(fd: i32) -> bool {
    calls::status_of(fd).is_ok_and(|status| {
        let is_of_its_user = status.st_uid == 0 || status.st_uid == calls::geteuid();
        is_of_its_user && (status.st_mode & 0o022 == 0 || status.st_mode & libc::S_ISVTX != 0)
    })
}

/// The directory, where it is one.
pub fn here() -> Option<&'static [u8]> {
    let directory = named()?;
    let now = clock::monotonic_ns();
    if now >= DIRECTORY.until.load(Ordering::Relaxed) {
        let found = calls::openat(AT_FDCWD, Path::new(&[directory]).pointer(), O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
        let found = found.map(Pending);
        let is_usual = global::options().near == Near::AUTO;
        let is_there = found.is_ok_and(|fd| !is_usual || is_kept(fd.0));
        DIRECTORY.is_there.store(is_there, Ordering::Relaxed);
        DIRECTORY.until.store(now + BELIEVED, Ordering::Relaxed);
    }
    DIRECTORY.is_there.load(Ordering::Relaxed).then_some(directory)
}

/// No connection is made by the directory from now on: a filter refuses what that needs.
pub fn stop() {
    DIRECTORY.is_barred.store(true, Ordering::Relaxed);
}

/// In the child after fork: the names are the parent's to remove.
pub fn forget() {
    // SAFETY: the child of a fork has one thread, and forks hold the set-up lock.
    unsafe { *DIRECTORY.names.get() = Names::NONE };
}

/// The process ends, and with it its connections.
pub fn ending() {
    let Some(directory) = named() else { return };
    if let Some(_setup) = SETUP.try_lock() {
        // SAFETY: under the set-up lock.
        unsafe { (*DIRECTORY.names.get()).settle(directory, u64::MAX) };
    }
}

/// Once in a second: removes names that nobody listens at, as far as this user may.
pub fn look_through(directory: &[u8], now: u64) {
    let last = DIRECTORY.looked_through.load(Ordering::Relaxed);
    let mine = || DIRECTORY.looked_through.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if now.saturating_sub(last) < BELIEVED || !mine() {
        return;
    }
    let Ok(fd) = calls::openat(AT_FDCWD, Path::new(&[directory]).pointer(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) else {
        return;
    };
    let fd = Pending(fd);
    let mut entries = [0u64; 512];
    let mut looks = 0..MOST_LOOKS;
    while let (Some(_), Ok(got @ 1..)) =
        (looks.next(), calls::getdents64(fd.0, entries.as_mut_ptr().cast(), core::mem::size_of_val(&entries)))
    {
        // SAFETY: the kernel has written so many bytes of the array.
        let bytes = unsafe { core::slice::from_raw_parts(entries.as_ptr().cast::<u8>(), got) };
        each_name(bytes, |name| remove_if_left(directory, name));
    }
}

/// The names in what getdents64(2) gave.
fn each_name(mut entries: &[u8], mut found: impl FnMut(&[u8])) {
    // d_ino and d_off, then d_reclen, d_type, and the name with its 0.
    while let Some(length) = entries.get(16..18).map(|bytes| usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]))) {
        let Some(entry) = entries.get(..length).filter(|entry| entry.len() > 19) else { return };
        let name = entry[19..].split(|byte| *byte == 0).next().unwrap_or(&[]);
        if name.len() == NAME && [PREFIX, SERVED, REMOVED].iter().any(|prefix| name.starts_with(prefix)) {
            found(name);
        }
        entries = &entries[length..];
    }
}

fn remove_if_left(directory: &[u8], name: &[u8]) {
    let path = Path::new(&[directory, b"/", name]);
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    calls::clock_gettime(libc::CLOCK_REALTIME, &mut now);
    let Some(identity) = path.identity().filter(|identity| now.tv_sec - identity.changed() / 1_000_000_000 > LEFT) else {
        return;
    };
    if name.starts_with(REMOVED) {
        path.remove(); // its remover was killed
    } else if path.connect().err() == Some(Errno(libc::ECONNREFUSED)) {
        path.remove_exactly(&identity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_usual_directory_is_one_that_is_kept() {
        let path = std::env::temp_dir().join(format!("near-kept-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory");
        let is_kept_with = |mode: u32| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("its mode");
            is_kept(std::os::fd::AsRawFd::as_raw_fd(&std::fs::File::open(&path).expect("it")))
        };
        assert!([0o700, 0o755, 0o1777, 0o3770].into_iter().all(is_kept_with));
        assert!(![0o777, 0o770, 0o702].into_iter().any(is_kept_with));
        std::fs::remove_dir(&path).expect("it");
    }

    #[test]
    fn what_is_no_entry_of_a_directory_is_not_read() {
        let mut found = 0;
        let mut entry = [0u8; 72];
        entry[16] = 72;
        entry[19..19 + NAME].copy_from_slice(&crate::path::name(&Address::default()));
        each_name(&entry, |_| found += 1);
        assert_eq!(found, 1);
        for length in [0, 18, 19, 73, 255] {
            entry[16] = length;
            each_name(&entry, |_| found += 1);
        }
        assert_eq!(found, 1);
    }
}
