//! Memory that another process made, and that is to be mapped: files of a tmpfs, as those of memfd_create(2) are.
//!
//! Seals keep such a file's size, and so an access to a mapping of it from a fault, where its pages are ordinary ones. Huge ones (MFD_HUGETLB)
//! take the same seals, and their maker can punch a hole all the same, whose page is missing where the system has no other. So it is asked
//! for the file system, too.

use crate::{calls, check, syscall, Errno, Result};
use libc::c_int;

/// What memory that is handed to others cannot do any more: change its size, or its seals.
pub const SIZE_SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// Either turns a store to a mapping that is made from now on into a fault.
pub const WRITE_SEALS: c_int = libc::F_SEAL_WRITE | libc::F_SEAL_FUTURE_WRITE;

/// Bytes of a file of ordinary pages of memory.
///
/// Errors: EPROTO where `fd` is another file; those of fstat(2).
pub fn size(fd: c_int) -> Result<usize> {
    let status = calls::status_of(fd)?;
    // SAFETY: plain integers.
    let mut system: libc::statfs = unsafe { core::mem::zeroed() };
    calls::fstatfs(fd, &mut system)?;
    match system.f_type == libc::TMPFS_MAGIC && status.st_mode & libc::S_IFMT == libc::S_IFREG {
        true => usize::try_from(status.st_size).map_err(|_| Errno(libc::EPROTO)),
        false => Err(Errno(libc::EPROTO)),
    }
}

/// Whether `fd`, which may have been opened by its path alone (O_PATH), is memory that memfd_create(2) made, of ordinary pages. Nothing is asked
/// of its file system: one that a process serves (FUSE) could let the question wait for ever.
///
/// Errors: EPROTO where it is another file; those of statx(2) and memfd_create(2).
pub fn is_anonymous(fd: c_int) -> Result<()> {
    let own = calls::memfd_create(b"shunt-kind\0", libc::MFD_CLOEXEC)?;
    let kinds = (kind_of(own), kind_of(fd));
    let _ = calls::close(own);
    match (kinds.0?, kinds.1?) {
        (own, asked) if own == asked => Ok(()),
        _ => Err(Errno(libc::EPROTO)),
    }
}

/// Type and device of a file, as the kernel has them: nothing is asked of its file system.
///
/// Errors: those of statx(2).
pub fn kind_of(fd: c_int) -> Result<(u32, u32, u32)> {
    // SAFETY: plain integers.
    let mut found: libc::statx = unsafe { core::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: an empty path, and room for the answer.
    let asked = unsafe { syscall!(libc::SYS_statx, fd, c"".as_ptr(), flags, libc::STATX_TYPE, &raw mut found) };
    check(asked)?;
    Ok((u32::from(found.stx_mode) & libc::S_IFMT, found.stx_dev_major, found.stx_dev_minor))
}

/// Bytes of such a file that has all of the seals `all`, and its seals.
///
/// Errors: EPROTO where it has not; those of [`size`]; those of fcntl(2), F_GET_SEALS.
pub fn sealed(fd: c_int, all: c_int) -> Result<(usize, c_int)> {
    let seals = calls::fcntl(fd, libc::F_GET_SEALS, 0)?;
    match seals & all == all {
        true => Ok((size(fd)?, seals)),
        false => Err(Errno(libc::EPROTO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(flags: u32, seals: c_int) -> Result<c_int> {
        let fd = calls::memfd_create(b"test\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flags)?;
        calls::ftruncate(fd, 2 << 20)?;
        calls::fcntl(fd, libc::F_ADD_SEALS, seals as usize)?;
        Ok(fd)
    }

    #[test]
    fn only_sealed_memory_of_ordinary_pages() {
        let all = SIZE_SEALS | libc::F_SEAL_WRITE;
        for (seals, needed, answer) in [
            (SIZE_SEALS, SIZE_SEALS, Ok((2 << 20, SIZE_SEALS))),
            (all, SIZE_SEALS, Ok((2 << 20, all))),
            (libc::F_SEAL_GROW | libc::F_SEAL_SEAL, SIZE_SEALS, Err(Errno(libc::EPROTO))),
            (libc::F_SEAL_SHRINK, libc::F_SEAL_SHRINK, Ok((2 << 20, libc::F_SEAL_SHRINK))),
        ] {
            let fd = made(0, seals).unwrap();
            assert_eq!((sealed(fd, needed), size(fd)), (answer, Ok(2 << 20)));
            let _ = calls::close(fd);
        }
        assert_eq!((size(-1), sealed(-1, 0)), (Err(Errno(libc::EBADF)), Err(Errno(libc::EBADF))));
        let null = calls::openat(libc::AT_FDCWD, c"/dev/null".as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC, 0).unwrap();
        assert_eq!(size(null), Err(Errno(libc::EPROTO)));
        let _ = calls::close(null);
    }

    #[test]
    fn a_memfd_is_known_by_its_path_alone_and_nothing_else_is_one() {
        let open = |path: &[u8], flags| calls::openat(libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC, 0);
        let own = made(0, 0).unwrap();
        let path = std::format!("/proc/self/fd/{own}\0");
        let named = open(path.as_bytes(), libc::O_PATH).unwrap();
        assert_eq!((is_anonymous(own), is_anonymous(named)), (Ok(()), Ok(())));
        for other in [&b"/dev/null\0"[..], b"/dev/shm\0", b"/proc/self/exe\0", b"/\0"] {
            let fd = open(other, libc::O_PATH).unwrap();
            assert_eq!(is_anonymous(fd), Err(Errno(libc::EPROTO)), "{other:?}");
            let _ = calls::close(fd);
        }
        assert_eq!(is_anonymous(-1), Err(Errno(libc::EBADF)));
        for fd in [own, named] {
            let _ = calls::close(fd);
        }
    }

    /// It needs no free huge page before it is touched. A kernel without them makes no such file.
    #[test]
    fn huge_pages_are_refused_whatever_their_seals() {
        match made(libc::MFD_HUGETLB, SIZE_SEALS) {
            Ok(fd) => {
                assert_eq!(calls::fcntl(fd, libc::F_GET_SEALS, 0).map(|seals| seals & SIZE_SEALS), Ok(SIZE_SEALS));
                assert_eq!((sealed(fd, SIZE_SEALS), size(fd)), (Err(Errno(libc::EPROTO)), Err(Errno(libc::EPROTO))));
                let _ = calls::close(fd);
            }
            Err(error) => assert!(matches!(error.0, libc::ENOSYS | libc::EINVAL | libc::ENODEV | libc::EPERM), "{error:?}"),
        }
    }
}
