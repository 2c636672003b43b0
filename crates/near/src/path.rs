//! Paths of names, and what is there: which file, and since when.

use shunt_segment::address::Address;
use shunt_sys::libc::{self, sockaddr_un, socklen_t, AF_UNIX, AT_FDCWD, AT_SYMLINK_NOFOLLOW, O_CLOEXEC};
use shunt_sys::{calls, Errno, Result};
use shunt_table::private::Pending;
use shunt_table::procfs;

/// What a name begins with; the address and the port follow, in hexadecimal digits.
pub const PREFIX: &[u8] = b"near-";
/// What the name of an address begins with at which a server listens.
pub const SERVED: &[u8] = b"serv-";
/// What it begins with while it is removed.
pub const REMOVED: &[u8] = b"gone-";
/// Bytes of a name.
pub const NAME: usize = PREFIX.len() + 32 + 1 + 4;
const _: () = assert!(PREFIX.len() == SERVED.len() && PREFIX.len() == REMOVED.len());

/// The name of a connection from `address`.
pub fn name(address: &Address) -> [u8; NAME] {
    of_kind(PREFIX, address)
}

/// A name of this kind.
fn of_kind(prefix: &[u8], address: &Address) -> [u8; NAME] {
    let mut name = [b'-'; NAME];
    name[..PREFIX.len()].copy_from_slice(prefix);
    let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
    for (i, byte) in address.ip.iter().enumerate() {
        name[PREFIX.len() + 2 * i] = digit(byte >> 4);
        name[PREFIX.len() + 2 * i + 1] = digit(*byte);
    }
    for i in 0..4 {
        name[NAME - 4 + i] = digit((address.port >> (12 - 4 * i)) as u8);
    }
    name
}

/// Which file a name is, and when the kernel says that it changed last (CLOCK_REALTIME, ns): a file that another one takes the place of, is renamed or
/// linked, has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    device: u64,
    inode: u64,
    changed: i64,
}

impl Identity {
    /// No file's.
    pub const NONE: Identity = Identity { device: 0, inode: 0, changed: 0 };

    /// Whether it is that file, changed or not. Numbers of files are used again.
    pub fn is_same_file(&self, other: &Identity) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// When it changed.
    pub fn changed(&self) -> i64 {
        self.changed
    }
}

/// The path of a name, or of the directory, with the 0 behind it.
pub struct Path {
    bytes: [u8; 108],
    pub(crate) length: usize,
}

impl Path {
    /// The parts one behind the other.
    pub fn new(parts: &[&[u8]]) -> Path {
        let mut path = Path { bytes: [0; 108], length: 0 };
        for byte in parts.iter().flat_map(|part| part.iter()).take(path.bytes.len() - 1) {
            path.bytes[path.length] = *byte;
            path.length += 1;
        }
        path
    }

    /// That of the name of a connection from `address`.
    pub fn of(directory: &[u8], address: &Address) -> Path {
        Path::new(&[directory, b"/", &name(address)])
    }

    /// That of a name of another kind.
    pub fn of_kind(directory: &[u8], prefix: &[u8], address: &Address) -> Path {
        Path::new(&[directory, b"/", &of_kind(prefix, address)])
    }

    /// As system calls take it.
    pub fn pointer(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    /// As bind(2) and connect(2) take it.
    pub fn socket_address(&self) -> (sockaddr_un, socklen_t) {
        let mut address = sockaddr_un { sun_family: AF_UNIX as u16, sun_path: [0; 108] };
        for (to, from) in address.sun_path.iter_mut().zip(self.bytes) {
            *to = from as libc::c_char;
        }
        (address, core::mem::size_of::<sockaddr_un>() as socklen_t)
    }

    /// What is there, if that is a socket; a link is not followed.
    pub fn identity(&self) -> Option<Identity> {
        // SAFETY: all-zero is a valid stat.
        let mut status: libc::stat = unsafe { core::mem::zeroed() };
        calls::fstatat(AT_FDCWD, self.pointer(), &mut status, AT_SYMLINK_NOFOLLOW).ok()?;
        let changed = status.st_ctime.saturating_mul(1_000_000_000).saturating_add(status.st_ctime_nsec);
        (status.st_mode & libc::S_IFMT == libc::S_IFSOCK && status.st_nlink == 1).then_some(Identity {
            device: status.st_dev,
            inode: status.st_ino,
            changed,
        })
    }

    /// Connects to what is there. Not held: nothing is sent.
    pub fn connect(&self) -> Result<()> {
        let unix = Pending(calls::socket(AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)?);
        let (name, length) = self.socket_address();
        calls::connect(unix.0, (&raw const name).cast(), length)
    }

    /// Removes what is there.
    pub fn remove(&self) {
        let _ = calls::unlinkat(AT_FDCWD, self.pointer(), 0);
    }

    /// Removes what is there if it is that file, also where others remove it and make it anew meanwhile: what is taken aside and is another one is put back.
    pub fn remove_exactly(&self, identity: &Identity) {
        // Numbers of files are used again; when they changed last is not.
        if self.identity() != Some(*identity) {
            return;
        }
        let is_it = |path: &Path| path.identity().is_some_and(|found| found.is_same_file(identity));
        let mut aside = Path { bytes: self.bytes, length: self.length };
        let start = self.length - NAME;
        aside.bytes[start..start + REMOVED.len()].copy_from_slice(REMOVED);
        let rename =
            |from: &Path, to: &Path| calls::renameat2(AT_FDCWD, from.pointer(), AT_FDCWD, to.pointer(), libc::RENAME_NOREPLACE);
        if rename(self, &aside).is_ok() && (is_it(&aside) || rename(&aside, self).is_err()) {
            aside.remove();
        }
    }

    /// Whom the directory lets in may connect, whatever the mask of this process. No link is followed. Where neither the kernel nor proc(5) helps, only
    /// those whom the mask allows.
    pub fn open_to_all(&self) -> Result<()> {
        const MODE: u32 = 0o666;
        match calls::fchmodat2(AT_FDCWD, self.pointer(), MODE, AT_SYMLINK_NOFOLLOW) {
            Err(Errno(libc::ENOSYS | libc::EPERM | libc::EINVAL)) => {}
            done => return done,
        }
        let found = Pending(calls::openat(AT_FDCWD, self.pointer(), libc::O_PATH | libc::O_NOFOLLOW | O_CLOEXEC, 0)?);
        if calls::status_of(found.0)?.st_mode & libc::S_IFMT != libc::S_IFSOCK {
            return Err(Errno(libc::ELOOP));
        }
        let _ = calls::fchmodat(AT_FDCWD, procfs::Path::new(format_args!("/proc/self/fd/{}\0", found.0)).pointer(), MODE);
        Ok(())
    }
}
