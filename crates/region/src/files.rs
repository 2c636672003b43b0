//! Files of memory that are a program's own: what `shm_open` and memfd_create(2) make, without a header and seals of a pool.
//!
//! Their owner can shorten them, take pages out of them, and write them. So what a peer has of one it copies by a call that cannot fault
//! (pread(2)), which reads a hole as zeros without making it memory; or, where all of the pages are there and a fault would be answered, out of a
//! mapping, as that is faster.
//!
//! **Which file.** No secret can be written into it. Its owner holds a lock (F_OFD_SETLK) on one byte far behind its end, whose place follows from
//! the secret. Only a process that can read the file can lock it so: a peer that names another process's descriptor, whose file it cannot
//! read itself, has no lock there. Where locks are everybody can read (`/proc/locks`), so no secret follows from a place: a keyed hash is one-way.

use crate::shape::LARGEST;
use shunt_secret::siphash;
use shunt_sys::{calls, check, libc, memory_file, syscall, user, Errno};

/// Bytes that are copied out of a mapping at a time.
const PIECE: usize = 256 << 10;
const PAGE: usize = crate::shape::PAGE;

/// The system calls by which files of peers' are read. By the first of them the link is read, too, and whatever cannot be mapped.
pub const CALLS: [i64; 4] = [libc::SYS_pread64, libc::SYS_fstat, libc::SYS_mincore, libc::SYS_rt_sigprocmask];

/// Whether `fd`, which may have been opened by its path alone (O_PATH), is memory: of memfd_create(2), or a file in this process's /dev/shm, where
/// that is a tmpfs. Nothing is asked of the file's own system.
pub(crate) fn is_memory(fd: i32) -> Result<(), Errno> {
    if memory_file::is_anonymous(fd).is_ok() {
        return Ok(());
    }
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let place = calls::openat(libc::AT_FDCWD, c"/dev/shm".as_ptr().cast(), flags, 0)?;
    // SAFETY: plain integers.
    let mut system: libc::statfs = unsafe { core::mem::zeroed() };
    let found = calls::fstatfs(place, &mut system).and_then(|()| memory_file::kind_of(place));
    let _ = calls::close(place);
    let ((_, major, minor), (kind, of_major, of_minor)) = (found?, memory_file::kind_of(fd)?);
    match system.f_type == libc::TMPFS_MAGIC && kind == libc::S_IFREG && (major, minor) == (of_major, of_minor) {
        true => Ok(()),
        false => Err(Errno(libc::EPROTO)),
    }
}

/// A lock of the byte that a secret names.
fn lock_at(kind: i32, secret: [u64; 2]) -> libc::flock64 {
    // SAFETY: plain integers.
    let mut lock: libc::flock64 = unsafe { core::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
    (lock.l_start, lock.l_len) = (1 << 62 | (siphash(secret, &[]) >> 2) as i64, 1);
    lock
}

/// Locks the byte, for as long as the open file is open.
pub(crate) fn claim(fd: i32, secret: [u64; 2]) -> Result<(), Errno> {
    let lock = lock_at(libc::F_RDLCK, secret);
    match calls::fcntl(fd, libc::F_OFD_SETLK, (&raw const lock) as usize) {
        Err(Errno(libc::EAGAIN | libc::EACCES)) => Err(Errno(libc::EBUSY)),
        answer => answer.map(|_| ()),
    }
}

/// Lets go of that byte, if `fd` still is the file of this identity: the number may be another file's by now, of a system that need never answer.
pub(crate) fn release(fd: i32, known: [u64; 2], secret: [u64; 2]) {
    if identity(fd, 0).is_ok_and(|(found, _)| found == known) {
        let lock = lock_at(libc::F_UNLCK, secret);
        let _ = calls::fcntl(fd, libc::F_OFD_SETLK, (&raw const lock) as usize);
    }
}

/// Whether another open file has locked that byte, and nothing but that.
pub(crate) fn is_claimed(fd: i32, secret: [u64; 2]) -> Result<(), Errno> {
    let (mut lock, asked) = (lock_at(libc::F_WRLCK, secret), lock_at(libc::F_RDLCK, secret));
    calls::fcntl(fd, libc::F_OFD_GETLK, (&raw mut lock) as usize)?;
    let is_it = (lock.l_type, lock.l_start, lock.l_len) == (asked.l_type, asked.l_start, asked.l_len);
    if is_it {
        Ok(())
    } else {
        Err(Errno(libc::EPROTO))
    }
}

/// Device and number of a regular file, and how long it is, if it is memory and has `end` bytes at least.
pub(crate) fn identity(fd: i32, end: usize) -> Result<([u64; 2], usize), Errno> {
    is_memory(fd)?;
    let status = calls::status_of(fd)?;
    if end <= LARGEST && status.st_size as u64 >= end as u64 {
        Ok(([status.st_dev, status.st_ino], status.st_size as usize))
    } else {
        Err(Errno(libc::EINVAL))
    }
}

/// A mapping of what the file has now, and how long it is; of none, where it need not be worth it. mincore(2) tells of pages to their file's owner
/// alone. Where the program's address space is limited (RLIMIT_AS), none of it goes to what a peer calls a size.
pub(crate) fn mapped(fd: i32) -> (usize, usize) {
    let is_told = |status: &libc::stat| status.st_uid == calls::geteuid() && calls::soft_limit(libc::RLIMIT_AS) == u64::MAX;
    let size = calls::status_of(fd).ok().filter(is_told).map_or(0, |status| (status.st_size as usize).min(LARGEST));
    let base = if size > 0 { not_locked(fd, size).ok() } else { None };
    base.map_or((0, 0), |base| (base as usize, size))
}

/// Maps the file to be read. In a program that locks what it maps (mlockall, MCL_FUTURE) the kernel would make memory of all holes at once, so
/// that nothing can be read before it is not locked any more.
fn not_locked(fd: i32, size: usize) -> Result<*mut u8, Errno> {
    // SAFETY: a fresh mapping disturbs nothing.
    let base = unsafe { calls::mmap(core::ptr::null_mut(), size, libc::PROT_NONE, libc::MAP_PRIVATE, fd, 0)? };
    // SAFETY: the mapping above.
    let unlocked = check(unsafe { syscall!(libc::SYS_munlock, base, size) });
    unlocked.and_then(|_| calls::mprotect(base, size, libc::PROT_READ)).inspect_err(|_| {
        let _ = calls::munmap(base, size);
    })?;
    Ok(base)
}

/// Where bytes are that are to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In memory, where reading them may fault.
    Memory(usize),
    /// In a file.
    File {
        /// Of the file.
        descriptor: i32,
        /// The first of them.
        offset: usize,
        /// They are mapped here, too; 0: they are not.
        mapped: usize,
    },
}

impl Place {
    /// `bytes` further.
    #[must_use]
    pub fn behind(self, bytes: usize) -> Place {
        match self {
            Place::Memory(address) => Place::Memory(address + bytes),
            Place::File { descriptor, offset, mapped } => {
                Place::File { descriptor, offset: offset + bytes, mapped: if mapped == 0 { 0 } else { mapped + bytes } }
            }
        }
    }

    /// Copies up to `length` bytes; 0: the target faults.
    ///
    /// # Errors
    /// EPROTO: the file does not have them any more.
    ///
    /// # Safety
    /// The target is the program's, and may fault.
    pub unsafe fn copy(self, target: *mut u8, length: usize) -> Result<usize, Errno> {
        let from_memory = |address: usize| {
            // SAFETY: passed on; a fault is an answer.
            unsafe { user::copy(address as *const u8, target, length) }
        };
        match self {
            Place::Memory(address) => Ok(if from_memory(address) { length } else { 0 }),
            Place::File { descriptor, offset, mapped }
                if mapped != 0 && is_safe(mapped, length) && from_memory(mapped) && has(descriptor, offset + length) =>
            {
                Ok(length)
            }
            Place::File { descriptor, offset, .. } => match calls::pread(descriptor, target.cast(), length, offset as i64) {
                Err(Errno(libc::EFAULT)) => Ok(0),
                Ok(0) if length > 0 => Err(Errno(libc::EPROTO)),
                Ok(got) => Ok(got),
                Err(_) => Err(Errno(libc::EPROTO)),
            },
        }
    }
}

/// Whether the descriptor is of the file of this identity, and that has fewer bytes than `end`.
pub(crate) fn is_shorter(fd: i32, known: [u64; 2], end: usize) -> bool {
    calls::status_of(fd).is_ok_and(|status| [status.st_dev, status.st_ino] == known && (status.st_size as u64) < end as u64)
}

/// Whether the file has so many bytes: behind its end a mapping has zeros up to the next page.
pub(crate) fn has(fd: i32, end: usize) -> bool {
    calls::status_of(fd).is_ok_and(|status| status.st_size as u64 >= end as u64)
}

/// Whether `length` bytes of a mapping are memory at this moment, and a fault there, should they be gone in the next, would come to this library's
/// handler: one that is blocked ends the process.
fn is_safe(address: usize, length: usize) -> bool {
    let mut blocked = 0u64;
    let asked = calls::sigprocmask(libc::SIG_BLOCK, core::ptr::null(), &mut blocked, calls::KERNEL_SIGSET);
    const FAULTS: u64 = 1 << (libc::SIGBUS - 1) | 1 << (libc::SIGSEGV - 1);
    if length > PIECE || asked.is_err() || blocked & FAULTS != 0 {
        return false;
    }
    let (first, mut pages) = (address & !(PAGE - 1), [0u8; PIECE / PAGE + 1]);
    let count = (address + length - first).div_ceil(PAGE);
    // SAFETY: an address that is none is an answer; room for as many pages.
    let told = unsafe { syscall!(libc::SYS_mincore, first, count * PAGE, pages.as_mut_ptr()) };
    check(told).is_ok() && pages[..count].iter().all(|page| page & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memfd(size: usize) -> i32 {
        let fd = calls::memfd_create(b"file\0", libc::MFD_CLOEXEC).unwrap();
        calls::ftruncate(fd, size as i64).unwrap();
        fd
    }

    fn again(fd: i32) -> i32 {
        let path = format!("/proc/self/fd/{fd}\0");
        calls::openat(libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0).unwrap()
    }

    #[test]
    fn a_lock_says_which_file_is_meant_as_long_as_it_is_open() {
        let file = memfd(4096);
        let (owner, peer) = (again(file), again(file));
        let secret = [0xdead_beef_0123_4567, 7];
        assert_eq!(is_claimed(peer, secret), Err(Errno(libc::EPROTO)));
        claim(owner, secret).unwrap();
        claim(owner, secret).unwrap();
        assert_eq!((is_claimed(peer, secret), is_claimed(peer, [secret[0], 8])), (Ok(()), Err(Errno(libc::EPROTO))));
        // A lock of all of the file is not one of that byte.
        let other = memfd(4096);
        let (all, look) = (again(other), again(other));
        let lock = libc::flock64 { l_start: 0, l_len: 0, ..lock_at(libc::F_RDLCK, secret) };
        calls::fcntl(all, libc::F_OFD_SETLK, (&raw const lock) as usize).unwrap();
        assert_eq!(is_claimed(look, secret), Err(Errno(libc::EPROTO)));
        let _ = calls::close(owner);
        assert_eq!(is_claimed(peer, secret), Err(Errno(libc::EPROTO)));
        let _ = [file, peer, other, all, look].map(calls::close);
    }

    #[test]
    fn a_file_that_cannot_be_read_cannot_be_claimed() {
        let file = memfd(4096);
        let path = format!("/proc/self/fd/{file}\0");
        let written = calls::openat(libc::AT_FDCWD, path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC, 0).unwrap();
        assert_eq!(claim(written, [1; 2]), Err(Errno(libc::EBADF)));
        let _ = [file, written].map(calls::close);
    }

    #[test]
    fn nothing_but_memory_is_memory() {
        let open = |path: &[u8]| calls::openat(libc::AT_FDCWD, path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC, 0).unwrap();
        let name = format!("/dev/shm/shunt-files-{}\0", std::process::id());
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
        let shared = calls::openat(libc::AT_FDCWD, name.as_ptr(), flags, 0o600).unwrap();
        std::fs::remove_file(name.trim_end_matches('\0')).unwrap();
        let memory = memfd(0);
        assert_eq!((is_memory(shared), is_memory(memory)), (Ok(()), Ok(())));
        for path in [&b"/dev/shm\0"[..], b"/proc/self/maps\0", b"/proc/self/exe\0", b"/dev/null\0", b"/\0"] {
            assert!(is_memory(open(path)).is_err(), "{}", String::from_utf8_lossy(path));
        }
        assert_eq!((identity(memory, 1), identity(shared, LARGEST + 1)), (Err(Errno(libc::EINVAL)), Err(Errno(libc::EINVAL))));
        let _ = (calls::close(shared), calls::close(memory));
    }

    fn copied(place: Place, length: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0xaa; length];
        // SAFETY: as long.
        let got = unsafe { place.copy(bytes.as_mut_ptr(), length)? };
        bytes.truncate(got);
        Ok(bytes)
    }

    #[test]
    fn bytes_are_those_of_the_file_whatever_has_become_of_it() {
        let fd = memfd(4 * PAGE);
        let written: Vec<u8> = (0..4 * PAGE).map(|at| (at * 7 + at / 251) as u8).collect();
        calls::pwrite(fd, written.as_ptr().cast(), 3 * PAGE, 0).unwrap();
        let (base, size) = mapped(fd);
        assert_eq!(size, 4 * PAGE);
        let place = Place::File { descriptor: fd, offset: 0, mapped: base };
        assert!(is_safe(base + 1, 3 * PAGE - 1) && !is_safe(base, 4 * PAGE), "the last page is a hole");
        assert_eq!(copied(place.behind(100), 2 * PAGE).unwrap(), written[100..100 + 2 * PAGE]);
        let blocks = || calls::status_of(fd).unwrap().st_blocks;
        let before = blocks();
        assert_eq!(copied(place, 4 * PAGE).unwrap(), [&written[..3 * PAGE], &[0; PAGE]].concat());
        assert_eq!(blocks(), before, "a hole stays one");
        // What is gone is no fault, and no byte.
        calls::ftruncate(fd, 5000).unwrap();
        assert!(!is_safe(base + PAGE, 2 * PAGE));
        assert_eq!(copied(place, 4 * PAGE).unwrap(), written[..5000]);
        assert_eq!(copied(place.behind(5000), 10), Err(Errno(libc::EPROTO)));
        assert_eq!(copied(Place::File { descriptor: -1, offset: 0, mapped: 0 }, 10), Err(Errno(libc::EPROTO)));
        // Nobody handles faults here, so this one is left to the kernel.
        let unmapped = Place::File { descriptor: fd, offset: 0, mapped: 0 };
        // SAFETY: an address that is none.
        let got = unsafe { unmapped.copy(core::ptr::without_provenance_mut(8), 10) };
        assert_eq!(got, Ok(0));
        let _ = (calls::munmap(base as *mut u8, size), calls::close(fd));
    }

    /// In a child, as a process locks and limits all of its memory.
    #[test]
    fn a_size_costs_a_program_neither_memory_that_it_locks_nor_address_space_that_is_limited() {
        let fd = memfd(1 << 30);
        // SAFETY: the child makes system calls only.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::mlockall(libc::MCL_FUTURE);
                let locks = mapped(fd);
                let is_memory = calls::status_of(fd).map_or(1, |status| status.st_blocks) != 0;
                libc::setrlimit(libc::RLIMIT_AS, &libc::rlimit { rlim_cur: 1 << 46, rlim_max: 1 << 46 });
                libc::_exit(i32::from(is_memory) | i32::from(mapped(fd) != (0, 0)) << 1 | i32::from(locks.0 == 0) << 2);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        };
        // Where not so much may be locked, it is not mapped.
        assert!(libc::WIFEXITED(status) && [0, 4].contains(&libc::WEXITSTATUS(status)), "{status:#x}");
        let _ = calls::close(fd);
    }

    #[test]
    fn a_thread_that_blocks_faults_reads_no_mapping() {
        let fd = memfd(PAGE);
        calls::pwrite(fd, [7u8; 4096].as_ptr().cast(), PAGE, 0).unwrap();
        let (base, size) = mapped(fd);
        assert!(is_safe(base, PAGE));
        for signal in [libc::SIGBUS, libc::SIGSEGV] {
            let (bit, mut before) = (1u64 << (signal - 1), 0);
            calls::sigprocmask(libc::SIG_BLOCK, &bit, &mut before, calls::KERNEL_SIGSET).unwrap();
            assert!(!is_safe(base, PAGE));
            calls::sigprocmask(libc::SIG_SETMASK, &before, core::ptr::null_mut(), calls::KERNEL_SIGSET).unwrap();
        }
        let _ = (calls::munmap(base as *mut u8, size), calls::close(fd));
    }
}
