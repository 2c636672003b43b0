//! Memory that a job's processes map: one memfd, or an anonymous mapping for a job of one.

use crate::layout::PAGE;
use shunt_sys::{memory_file, Errno};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A job's memfd.
#[derive(Debug)]
pub struct Memory {
    file: OwnedFd,
}

/// Mapped memory; unmapped when dropped, unless it is left.
#[derive(Debug)]
pub struct Mapping {
    address: usize,
    length: usize,
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Memory that could shrink, or whose pages could be taken away, would be no memory to rely on.
fn is_sealed(descriptor: i32) -> io::Result<()> {
    match memory_file::sealed(descriptor, libc::F_SEAL_SHRINK) {
        Ok(_) => Ok(()),
        Err(Errno(libc::EPROTO)) => Err(io::ErrorKind::InvalidData.into()),
        Err(Errno(error)) => Err(io::Error::from_raw_os_error(error)),
    }
}

impl Memory {
    /// A new one, which never shrinks. Its pages exist once they are written.
    pub fn create(length: usize) -> io::Result<Memory> {
        // SAFETY: the name is a C string, and the result is a new descriptor or an error.
        let file = unsafe {
            let descriptor = check(libc::memfd_create(c"shunt-job".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING))?;
            let first = OwnedFd::from_raw_fd(descriptor);
            // Of a launcher without standard input it would be that.
            OwnedFd::from_raw_fd(check(libc::fcntl(first.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3))?)
        };
        let memory = Memory { file };
        memory.grow(length)?;
        // SAFETY: takes numbers only.
        check(unsafe { libc::fcntl(memory.file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) })?;
        Ok(memory)
    }

    /// The one behind a descriptor that this process has inherited: a descriptor of our own, so that the program may close the other.
    pub fn inherited(descriptor: i32) -> io::Result<Memory> {
        is_sealed(descriptor)?;
        // Above those that programs count on, as far as there are any.
        // SAFETY: takes numbers only.
        let copy = |lowest: i32| check(unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, lowest) });
        let copied = copy(512.min(descriptor + 1)).or_else(|_| copy(3))?;
        // SAFETY: a new descriptor.
        Ok(Memory { file: unsafe { OwnedFd::from_raw_fd(copied) } })
    }

    /// The one that another rank has sent.
    pub fn received(file: OwnedFd) -> io::Result<Memory> {
        is_sealed(file.as_raw_fd())?;
        Ok(Memory { file })
    }

    /// The descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.file)
    }

    /// How long it is.
    pub fn length(&self) -> io::Result<usize> {
        // SAFETY: `stat` is ours, and plain data.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            check(libc::fstat(self.file.as_raw_fd(), &mut stat))?;
            Ok(stat.st_size as usize)
        }
    }

    /// At least this long.
    pub fn grow(&self, length: usize) -> io::Result<()> {
        if self.length()? < length {
            // Two ranks that grow it to the same length do no harm, and a rank never asks for another length than the others. A limit of files'
            // sizes is told by an error, not by the end of this process.
            // SAFETY: takes numbers only; sets an action that runs no code, and the one before.
            unsafe {
                let before = libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                let grown = check(libc::ftruncate(self.file.as_raw_fd(), length as i64));
                libc::signal(libc::SIGXFSZ, before);
                grown.map_err(|error| match error.raw_os_error() {
                    Some(libc::EFBIG) => io::Error::new(error.kind(), format!("{error}: a limit of files' sizes (ulimit -f)")),
                    _ => error,
                })?;
            }
        }
        Ok(())
    }

    /// Makes a part zeroes, and gives its pages back.
    pub fn clear(&self, offset: usize, length: usize) -> io::Result<()> {
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: takes numbers only.
        check(unsafe { libc::fallocate(self.file.as_raw_fd(), how, offset as i64, length as i64) })?;
        Ok(())
    }

    /// Maps a part.
    pub fn map(&self, offset: usize, length: usize) -> io::Result<Mapping> {
        let mapping = map(std::ptr::null_mut(), length, libc::MAP_SHARED | libc::MAP_NORESERVE, self.file.as_raw_fd(), offset)?;
        mapping.leave_out();
        Ok(mapping)
    }

    /// Maps it from its beginning so that what is at `inner` comes to lie at a multiple of [`LARGEST`].
    pub fn map_aligned(&self, length: usize, inner: usize) -> io::Result<Mapping> {
        let address = aligned(length, inner)?;
        let how = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let mapping = map(address as *mut libc::c_void, length, how, self.file.as_raw_fd(), 0)?;
        mapping.leave_out();
        Ok(mapping)
    }

    /// Maps a part over memory of this process.
    ///
    /// # Safety
    /// Whatever lies there is gone afterwards: the part must hold the same bytes.
    pub unsafe fn map_over(&self, address: usize, offset: usize, length: usize) -> io::Result<()> {
        let how = libc::MAP_SHARED | libc::MAP_FIXED;
        map(address as *mut libc::c_void, length, how, self.file.as_raw_fd(), offset).map(|mapping| {
            mapping.leave();
        })
    }
}

fn map(address: *mut libc::c_void, length: usize, how: i32, descriptor: i32, offset: usize) -> io::Result<Mapping> {
    // SAFETY: without MAP_FIXED this overwrites nothing; with it the caller has promised.
    let mapped =
        unsafe { libc::mmap(address, length, libc::PROT_READ | libc::PROT_WRITE, how, descriptor, offset as libc::off_t) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(Mapping { address: mapped as usize, length })
}

/// A core dump of this process has these bytes after all, which lie in a mapping of a job's memory.
pub(crate) fn take_in(address: usize, length: usize) {
    let start = address / PAGE * PAGE;
    // SAFETY: whole pages of a mapping, of which only that is changed.
    unsafe { libc::madvise(start as *mut libc::c_void, address + length - start, libc::MADV_DODUMP) };
}

/// The largest alignment that objects may have, and that of rank 0's heap wherever it is mapped.
pub const LARGEST: usize = 1 << 30;

/// The address of so many reserved bytes, of which that at `inner`, a multiple of the page's size, has a multiple of [`LARGEST`]. The caller
/// maps over them.
fn aligned(length: usize, inner: usize) -> io::Result<usize> {
    let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let room = map(std::ptr::null_mut(), length + LARGEST, how, -1, 0)?.leave();
    let address = (room + inner).next_multiple_of(LARGEST) - inner;
    let (before, after) = (address - room, room + LARGEST - address);
    // SAFETY: both ends are of the mapping just made.
    unsafe {
        if before > 0 {
            libc::munmap(room as *mut libc::c_void, before);
        }
        if after > 0 {
            libc::munmap((address + length) as *mut libc::c_void, after);
        }
    }
    Ok(address)
}

impl Mapping {
    /// Memory of this process, and of its children after a fork, as that of a job is; `inner` as in
    /// [`Memory::map_aligned`].
    pub fn anonymous(length: usize, inner: usize) -> io::Result<Mapping> {
        let address = aligned(length, inner)?;
        let how = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let mapping = map(address as *mut libc::c_void, length, how, -1, 0)?;
        mapping.leave_out();
        Ok(mapping)
    }

    /// Memory of this process alone.
    pub fn anonymous_private(length: usize) -> io::Result<Mapping> {
        map(std::ptr::null_mut(), length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// A core dump of this process has nothing of it. It would have all ranks' heaps, and to dump a page makes it exist.
    fn leave_out(&self) {
        // SAFETY: a mapping of ours, of which only that is changed.
        unsafe { libc::madvise(self.address as *mut libc::c_void, self.length, libc::MADV_DONTDUMP) };
    }

    /// Where it begins.
    pub fn address(&self) -> usize {
        self.address
    }

    /// It stays for the rest of the process's life.
    pub fn leave(self) -> usize {
        std::mem::ManuallyDrop::new(self).address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours, and a caller that drops it has no address in it any more.
        unsafe { libc::munmap(self.address as *mut libc::c_void, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags of the mapping at this address (proc_pid_smaps(5)).
    fn flags(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let from = maps.find(&format!("{address:08x}-")).expect("mapped");
        let line = maps[from..].lines().find(|line| line.starts_with("VmFlags:")).unwrap();
        format!("{line} ")
    }

    #[test]
    fn a_dump_has_no_heaps_but_what_was_allocated() {
        let memory = Memory::create(4 << 20).unwrap();
        let mapping = memory.map_aligned(4 << 20, 2 << 20).unwrap();
        assert!(flags(mapping.address()).contains(" dd "));
        take_in(mapping.address() + (1 << 20) + 64, 100);
        assert!(flags(mapping.address()).contains(" dd ") && !flags(mapping.address() + (1 << 20)).contains(" dd "));
    }
}
