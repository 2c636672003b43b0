//! A peer's file, as this process has it open.

use crate::huge::decimal;
use shunt_sys::{calls, libc, Errno};

/// Closed when it is dropped.
#[derive(Debug)]
pub(crate) struct File(pub(crate) i32);

impl Drop for File {
    fn drop(&mut self) {
        let _ = calls::close(self.0);
    }
}

impl File {
    /// The same open file as `fd`, which stays the caller's.
    pub(crate) fn again(fd: i32) -> Result<File, Errno> {
        calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0).map(File)
    }

    /// The same file, which is a regular one, opened to be read. What a peer passed has one position for both processes, and one that is in a
    /// call which uses that can hold up the other's for good. Where there is no /proc it is used as it came.
    pub(crate) fn opened(fd: i32) -> Result<File, Errno> {
        let mut path = [0; 32];
        let names = b"/proc/self/fd/";
        path[..names.len()].copy_from_slice(names);
        decimal(u32::try_from(fd).map_err(|_| Errno(libc::EBADF))?, &mut path, names.len());
        match calls::openat(libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC, 0) {
            Err(Errno(libc::ENOENT)) => File::again(fd),
            other => other.map(File),
        }
    }
}
