//! The directory: whether there is one, the names of connections in it, and what killed processes left there.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_sys::libc::{self, sockaddr_un, socklen_t, AF_UNIX, AT_FDCWD, O_CLOEXEC, O_DIRECTORY, O_PATH, O_RDONLY};
use shunt_sys::{calls, clock, Errno, Result};
use shunt_table::global::{self, LockedCell, SETUP};
use shunt_table::private::Pending;

/// What a name begins with; the address and the port follow, in hexadecimal digits.
const PREFIX: &[u8] = b"near-";
/// Bytes of a name.
const NAME: usize = PREFIX.len() + 32 + 1 + 4;
/// How long it is believed that the directory is there, or is not (ns), and between two looks through it.
const BELIEVED: u64 = 1_000_000_000;
/// How long a name stays whose connection nobody has claimed (ns): longer than a server claims one, with the ticks of the kernel's clock.
const STAYS: u64 = 200_000_000;
/// How old a name is that nobody listens at, when any process may remove it (s).
const LEFT: i64 = 1;
/// Names that one process has stay, at most.
const MOST: usize = 64;
/// Pieces of the directory's list that are read in one look, each of some 60 names: a directory that was filled up costs no more.
const MOST_LOOKS: u32 = 16;
/// Servers that may ask at a name at a time: one does, and others that lie.
const BACKLOG: i32 = 4;

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

/// Names that stay for a while: the connection's address, and since when (ns).
struct Names {
    entries: [(Address, u64); MOST],
    count: usize,
}

impl Names {
    const NONE: Names = Names { entries: [(Address { ip: [0; 16], port: 0, scope: 0 }, 0); MOST], count: 0 };

    /// Removes those that need not stay.
    fn settle(&mut self, directory: &[u8], now: u64) {
        let mut at = 0;
        while at < self.count {
            let (address, since) = self.entries[at];
            if now.saturating_sub(since) < STAYS {
                at += 1;
                continue;
            }
            remove(&Path::of(directory, &address));
            self.count -= 1;
            self.entries[at] = self.entries[self.count];
        }
    }
}

/// The path of a name, or of the directory, with the 0 behind it.
struct Path {
    bytes: [u8; 108],
    length: usize,
}

impl Path {
    fn new(parts: &[&[u8]]) -> Path {
        let mut path = Path { bytes: [0; 108], length: 0 };
        for byte in parts.iter().flat_map(|part| part.iter()).take(path.bytes.len() - 1) {
            path.bytes[path.length] = *byte;
            path.length += 1;
        }
        path
    }

    fn of(directory: &[u8], address: &Address) -> Path {
        Path::new(&[directory, b"/", &name(address)])
    }

    fn pointer(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    fn socket_address(&self) -> (sockaddr_un, socklen_t) {
        let mut address = sockaddr_un { sun_family: AF_UNIX as u16, sun_path: [0; 108] };
        for (to, from) in address.sun_path.iter_mut().zip(self.bytes) {
            *to = from as libc::c_char;
        }
        (address, core::mem::size_of::<sockaddr_un>() as socklen_t)
    }
}

/// The name of a connection from `address`.
fn name(address: &Address) -> [u8; NAME] {
    let mut name = [b'-'; NAME];
    name[..PREFIX.len()].copy_from_slice(PREFIX);
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

fn remove(path: &Path) {
    let _ = calls::unlinkat(AT_FDCWD, path.pointer(), 0);
}

/// The directory, where it is one.
pub fn here() -> Option<&'static [u8]> {
    let directory = global::options().near.directory().filter(|_| !DIRECTORY.is_barred.load(Ordering::Relaxed))?;
    let now = clock::monotonic_ns();
    if now >= DIRECTORY.until.load(Ordering::Relaxed) {
        let found = calls::openat(AT_FDCWD, Path::new(&[directory]).pointer(), O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
        DIRECTORY.is_there.store(found.is_ok(), Ordering::Relaxed);
        if let Ok(fd) = found {
            let _ = calls::close(fd);
        }
        DIRECTORY.until.store(now + BELIEVED, Ordering::Relaxed);
    }
    DIRECTORY.is_there.load(Ordering::Relaxed).then_some(directory)
}

/// A name that a connection of this process has, and the socket that listens at it.
pub struct Name {
    directory: &'static [u8],
    address: Address,
    listener: Pending,
    /// The name is to stay: a connection may be waiting somewhere that shows the mark.
    stays: bool,
}

impl Name {
    /// Binds the name of a connection from `address`.
    ///
    /// Errors: NearTaken: another process has it; NotLocal: this process can bind none there.
    pub fn bind(directory: &'static [u8], address: &Address, now: u64) -> core::result::Result<Name, Reason> {
        if let Some(_setup) = SETUP.lock() {
            // SAFETY: under the set-up lock.
            let names = unsafe { &mut *DIRECTORY.names.get() };
            names.settle(directory, now);
            if names.count == MOST {
                return Err(Reason::NearQuota);
            }
        }
        let unix = calls::socket(AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
        let listener =
            Pending(unix.map_err(|error| shunt_rendezvous::attach::forbidden(error).unwrap_or(Reason::NoDescriptors))?);
        let path = Path::of(directory, address);
        let (name, length) = path.socket_address();
        match calls::bind(listener.0, (&raw const name).cast(), length) {
            Ok(()) => {}
            Err(Errno(libc::EADDRINUSE)) => {
                look_through(directory, now);
                return Err(Reason::NearTaken);
            }
            Err(_) => return Err(Reason::NotLocal),
        }
        let name = Name { directory, address: *address, listener, stays: false };
        // Whom the directory lets in may ask, whatever the mask of this process.
        calls::fchmodat(AT_FDCWD, path.pointer(), 0o666)
            .and_then(|()| calls::listen(name.listener.0, BACKLOG))
            .map_err(|_| Reason::NotLocal)?;
        Ok(name)
    }

    /// The socket that listens.
    pub fn listener(&self) -> i32 {
        self.listener.0
    }

    /// A connection shows the mark from now on, and may be accepted at any time.
    pub fn is_shown(&mut self) {
        self.stays = true;
    }

    /// No connection with the mark waits for a server any more.
    pub fn is_over(&mut self) {
        self.stays = false;
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if self.stays {
            if let Some(_setup) = SETUP.lock() {
                // SAFETY: under the set-up lock.
                let names = unsafe { &mut *DIRECTORY.names.get() };
                if let Some(place) = names.entries.get_mut(names.count) {
                    *place = (self.address, clock::monotonic_ns());
                    names.count += 1;
                    return;
                }
            }
        }
        remove(&Path::of(self.directory, &self.address));
    }
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
    if DIRECTORY.is_barred.load(Ordering::Relaxed) {
        return;
    }
    let Some(directory) = global::options().near.directory() else { return };
    if let Some(_setup) = SETUP.try_lock() {
        // SAFETY: under the set-up lock.
        unsafe { (*DIRECTORY.names.get()).settle(directory, u64::MAX) };
    }
}

/// Connects to the name of a client at `address`.
///
/// Errors: ENOENT and ECONNREFUSED: there is none; others of connect(2) and socket(2).
pub fn ask(directory: &[u8], address: &Address) -> Result<Pending> {
    connect_to(&Path::of(directory, address))
}

fn connect_to(path: &Path) -> Result<Pending> {
    let unix = Pending(calls::socket(AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)?);
    let (name, length) = path.socket_address();
    calls::connect(unix.0, (&raw const name).cast(), length)?;
    Ok(unix)
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
        if name.len() == NAME && name.starts_with(PREFIX) {
            found(name);
        }
        entries = &entries[length..];
    }
}

fn remove_if_left(directory: &[u8], name: &[u8]) {
    let path = Path::new(&[directory, b"/", name]);
    // SAFETY: all-zero is a valid stat.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    calls::clock_gettime(libc::CLOCK_REALTIME, &mut now);
    let found = calls::fstatat(AT_FDCWD, path.pointer(), &mut status, libc::AT_SYMLINK_NOFOLLOW);
    let is_old = found.is_ok() && now.tv_sec - status.st_mtime > LEFT;
    if is_old && status.st_mode & libc::S_IFMT == libc::S_IFSOCK && connect_to(&path).err() == Some(Errno(libc::ECONNREFUSED)) {
        remove(&path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_addresses() {
        let name = name(&Address::v4([172, 30, 0, 3], 0xbeef));
        assert_eq!(&name, b"near-00000000000000000000ffffac1e0003-beef");
        let longest = [b'x'; shunt_config::NEAR_LONGEST];
        assert_eq!(Path::of(&longest, &Address::default()).length, longest.len() + 1 + NAME);
    }

    #[test]
    fn a_name_is_one_connection_s_and_stays_when_it_was_shown() {
        let directory: &'static str =
            Box::leak(std::env::temp_dir().join(format!("near-{}", std::process::id())).display().to_string().into());
        std::fs::create_dir(directory).expect("a directory");
        let left = || std::fs::read_dir(directory).expect("it").count();
        let path = directory.as_bytes();
        let address = Address::v4([172, 30, 0, 3], 5);
        let first = Name::bind(path, &address, 1).expect("a name");
        assert_eq!(Name::bind(path, &address, 1).err(), Some(Reason::NearTaken));
        assert!(ask(path, &address).is_ok());
        drop(first);
        assert_eq!((left(), ask(path, &address).err()), (0, Some(Errno(libc::ENOENT))));
        let mut shown = Name::bind(path, &address, 1).expect("a name");
        shown.is_shown();
        drop(shown);
        assert_eq!((left(), ask(path, &address).err()), (1, Some(Errno(libc::ECONNREFUSED))));
        assert_eq!(Name::bind(path, &address, clock::monotonic_ns()).err(), Some(Reason::NearTaken));
        assert!(Name::bind(path, &address, clock::monotonic_ns() + STAYS).is_ok(), "later it is free");
        assert_eq!(left(), 0);
        assert_eq!(Name::bind(b"/nowhere/near", &address, 1).err(), Some(Reason::NotLocal));
        std::fs::remove_dir(directory).expect("it is empty");
    }

    #[test]
    fn what_is_no_entry_of_a_directory_is_not_read() {
        let mut found = 0;
        let mut entry = [0u8; 72];
        entry[16] = 72;
        entry[19..19 + NAME].copy_from_slice(&name(&Address::default()));
        each_name(&entry, |_| found += 1);
        assert_eq!(found, 1);
        for length in [0, 18, 19, 73, 255] {
            entry[16] = length;
            each_name(&entry, |_| found += 1);
        }
        assert_eq!(found, 1);
    }
}
