//! Memory of the program's that is a file already, shown to the peer of a plain socket: what `shm_open` and memfd_create made, and the program
//! has mapped.
//!
//! ```no_run
//! # use shunt_buffers::sockets;
//! # fn main() -> Result<(), shunt_buffers::port::Error> {
//! # let (socket, start, length) = (0, std::ptr::null(), 1 << 20);
//! // SAFETY: the mapping stays until `shown` is dropped.
//! let shown = unsafe { sockets::show_memory(start, length, socket)? };
//! // send(socket, start, length, MSG_ZEROCOPY) copies nothing from now on
//! # drop(shown);
//! # Ok(()) }
//! ```

use super::{error, setsockopt, LEVEL};
use crate::port::Error;
use core::ffi::c_int;
use shunt_region::Limit;
use shunt_sys::{libc, Errno};
use std::fs::{self, File, Metadata, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::{Arc, Mutex, TryLockError, Weak};

/// `SHUNT_SO_FILE`.
const FILE: c_int = 7;

/// `struct shunt_so_file`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Asked {
    address: u64,
    descriptor: c_int,
    reserved: c_int,
    length: u64,
    offset: u64,
}

/// Memory that the peer of a socket sees. Dropped: what is sent from there is copied from then on; what is under way the peer receives all the same.
#[derive(Debug)]
#[must_use = "memory that is not shown is copied"]
pub struct ShownMemory {
    socket: RawFd,
    asked: Asked,
    /// Open as long as the peer may look for it.
    _file: Arc<File>,
}

impl Drop for ShownMemory {
    fn drop(&mut self) {
        let hidden = Asked { descriptor: -1, ..self.asked };
        // It fails where the socket was closed before, which hides all.
        let _ = set(self.socket, &hidden);
    }
}

fn set(socket: RawFd, asked: &Asked) -> Result<(), Errno> {
    // SAFETY: the structure and its size.
    match unsafe { setsockopt(socket, LEVEL, FILE, (&raw const *asked).cast(), size_of::<Asked>() as u32) } {
        0 => Ok(()),
        _ => Err(error()),
    }
}

/// Files of what is shown, by device and number.
static OPEN: Mutex<Vec<(u64, u64, Weak<File>)>> = Mutex::new(Vec::new());

/// What a line of proc(5)'s `maps` says.
#[derive(PartialEq, Eq, Debug)]
struct Mapping {
    start: usize,
    end: usize,
    is_shared: bool,
    /// Where in the file it begins.
    offset: usize,
    /// Of the file.
    device: u64,
    inode: u64,
    path: String,
}

fn of_line(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let mut word = || words.next();
    let number = |text: &str| usize::from_str_radix(text, 16).ok();
    let (start, end) = word()?.split_once('-')?;
    let rights = word()?;
    let offset = number(word()?)?;
    let (major, minor) = word()?.split_once(':')?;
    let device = libc::makedev(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = word()?.parse().ok()?;
    let path = word().unwrap_or("").trim().to_owned();
    Some(Mapping { start: number(start)?, end: number(end)?, is_shared: rights.ends_with('s'), offset, device, inode, path })
}

impl Mapping {
    /// That of which these bytes are part. What changes is private (a copy of the file's pages), and no file's.
    fn around(address: usize, length: usize) -> Option<Mapping> {
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        let found = maps.lines().filter_map(of_line).find(|mapping| (mapping.start..mapping.end).contains(&address))?;
        (found.is_shared && found.inode != 0 && length <= found.end - address).then_some(found)
    }

    /// Its file, opened once for all sockets that it is shown to: by its descriptor the library knows that it is the same one, and the places that a
    /// process has for files are few. Where another thread looks, or did when this process was forked, it is opened once more.
    fn shared_file(&self) -> Option<Arc<File>> {
        let mut open = match OPEN.try_lock() {
            Ok(open) => open,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.file().map(Arc::new),
        };
        open.retain(|known| known.2.strong_count() > 0);
        let known = open.iter().find(|known| (known.0, known.1) == (self.device, self.inode)).and_then(|known| known.2.upgrade());
        known.or_else(|| {
            let file = Arc::new(self.file()?);
            open.push((self.device, self.inode, Arc::downgrade(&file)));
            Some(file)
        })
    }

    /// Its file, opened once more: by a descriptor that the process has, or by its name.
    fn file(&self) -> Option<File> {
        let is_it = |found: &Metadata| found.is_file() && (found.dev(), found.ino()) == (self.device, self.inode);
        let open = |path: &str| {
            let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path).ok()?;
            is_it(&file.metadata().ok()?).then_some(file)
        };
        let descriptors = fs::read_dir("/proc/self/fd").ok()?.flatten();
        let named = descriptors.filter_map(|entry| {
            let path = format!("/proc/self/fd/{}", entry.file_name().to_str()?);
            // No other file is asked what it is: one of a server that hangs would never answer.
            let is_named_so = fs::read_link(&path).ok()?.to_str() == Some(&self.path);
            (is_named_so && is_it(&fs::metadata(&path).ok()?)).then_some(path)
        });
        let again = |path: String| OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok();
        let known = named.filter_map(again).next();
        known.or_else(|| if self.path.starts_with("/dev/shm/") { open(&self.path) } else { None })
    }
}

/// Lets the peer of `socket`, a connected stream, see the file of memory that these bytes are mapped of, all of it, until what it gives is dropped: `send`
/// with MSG_ZEROCOPY, on a socket with SO_ZEROCOPY, leaves pieces of 32 KiB and more of them where they are, and the peer's plain `recv` copies
/// them from there. They are not to be written before the error queue says that they are complete. `SHUNT_SO_FILE` of `shunt_socket.h` says what
/// becomes of a file that gets shorter, and which byte of it is locked.
///
/// # Errors
/// [`Limit::Private`]: they lie in no shared mapping of such a file, one that this process has open, or finds by its name. [`Limit::Apart`]: no
/// library carries this program's sockets, and the kernel copies. [`Error::System`]: ENOTCONN; EBUSY, the peer sees two already; EPROTO, a file of
/// another file system.
///
/// # Safety
/// The bytes stay mapped as they are until what it gives is dropped: the peer reads the file, so other memory at their address would not be what it
/// receives.
pub unsafe fn show_memory(start: *const u8, length: usize, socket: RawFd) -> Result<ShownMemory, Error> {
    let address = start as usize;
    let mapping = Mapping::around(address, length).ok_or(Limit::Private)?;
    let file = mapping.shared_file().ok_or(Limit::Private)?;
    let offset = (mapping.offset + (address - mapping.start)) as u64;
    let asked = Asked { address: address as u64, descriptor: file.as_raw_fd(), reserved: 0, length: length as u64, offset };
    match set(socket, &asked) {
        Ok(()) => Ok(ShownMemory { socket, asked, _file: file }),
        Err(Errno(libc::ENOPROTOOPT | libc::EOPNOTSUPP)) => Err(Limit::Apart.into()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_sys::{calls, mapping};

    fn memfd(pages: usize) -> i32 {
        let fd = calls::memfd_create(b"a name\0", libc::MFD_CLOEXEC).unwrap();
        calls::ftruncate(fd, (pages * 4096) as i64).unwrap();
        fd
    }

    #[test]
    fn lines_tell_what_is_mapped() {
        let line = "7f2b1a000000-7f2b1a010000 rw-s 00002000 00:01 4711                      /memfd:a name (deleted)";
        let found = of_line(line).unwrap();
        assert_eq!((found.start, found.end, found.is_shared), (0x7f2b_1a00_0000, 0x7f2b_1a01_0000, true));
        assert_eq!((found.offset, found.device, found.inode), (0x2000, 1, 4711));
        assert_eq!(found.path, "/memfd:a name (deleted)");
        assert_eq!(of_line("7f0000000000-7f0000001000 rw-p 00000000 00:00 0 ").unwrap().path, "");
        assert_eq!(of_line("nonsense"), None);
    }

    #[test]
    fn a_mapping_leads_to_its_file() {
        let fd = memfd(8);
        let base = mapping::shared_part(fd, 8192, 4 * 4096).unwrap() as usize;
        let found = Mapping::around(base + 100, 4 * 4096 - 100).unwrap();
        assert_eq!((found.start, found.offset), (base, 8192));
        let file = found.file().unwrap();
        assert_eq!(file.metadata().unwrap().ino(), calls::status_of(fd).unwrap().st_ino);
        assert!(Mapping::around(base, 5 * 4096).is_none(), "longer than it is mapped");
        // Private pages are no file's.
        let own = mapping::private_to_read(fd, 4096).unwrap() as usize;
        assert!(Mapping::around(own, 1).is_none());
        let local = 5u8;
        assert!(Mapping::around((&raw const local) as usize, 1).is_none());
    }

    #[test]
    fn one_that_is_shown_again_is_the_same_as_long_as_it_is_shown() {
        let fds = [memfd(2), memfd(2)];
        let around = |fd: i32, page: usize| {
            let base = mapping::shared_part(fd, page * 4096, 4096).unwrap() as usize;
            Mapping::around(base, 4096).unwrap()
        };
        let (first, second, other) = (around(fds[0], 0), around(fds[0], 1), around(fds[1], 0));
        let file = first.shared_file().unwrap();
        let again = second.shared_file().unwrap();
        assert!(Arc::ptr_eq(&file, &again) && !Arc::ptr_eq(&file, &other.shared_file().unwrap()));
        let number = file.as_raw_fd();
        drop((file, again));
        assert!(calls::fcntl(number, libc::F_GETFD, 0).is_err() || calls::status_of(number).unwrap().st_ino != first.inode);
        let held = OPEN.lock().unwrap();
        assert!(first.shared_file().is_some(), "a child of a fork at that moment has no thread that lets go of the list");
        drop(held);
        assert!(first.shared_file().is_some());
    }

    #[test]
    fn one_that_was_closed_is_found_by_its_name_alone() {
        let name = format!("/dev/shm/shunt-memory-{}", std::process::id());
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&name).unwrap();
        file.set_len(4096).unwrap();
        let base = mapping::shared_part(file.as_raw_fd(), 0, 4096).unwrap() as usize;
        drop(file);
        assert!(Mapping::around(base, 4096).unwrap().file().is_some());
        fs::remove_file(&name).unwrap();
        assert!(Mapping::around(base, 4096).unwrap().file().is_none());
    }
}
