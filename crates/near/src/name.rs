//! A name: the socket of the file system at which the client of one connection waits for its server. A process that may write into the directory may replace names of
//! its own, and a name's user, the directory's, and root any: so each end looks at what the name *is*, and when that changed last, which no process can set.

use crate::directory;
use crate::held::Held;
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_sys::libc::{self, sockaddr_un, socklen_t, AF_UNIX, AT_FDCWD, AT_SYMLINK_NOFOLLOW, O_CLOEXEC};
use shunt_sys::{calls, Errno, Result};
use shunt_table::private::Pending;
use shunt_table::procfs;

/// What a name begins with; the address and the port follow, in hexadecimal digits.
pub const PREFIX: &[u8] = b"near-";
/// What it begins with while it is removed.
pub const REMOVED: &[u8] = b"gone-";
/// Bytes of a name.
pub const NAME: usize = PREFIX.len() + 32 + 1 + 4;
/// Servers that may ask at a name at a time: one does, and others that lie.
const BACKLOG: i32 = 4;
/// How often a server asks where the queue is full of others.
const TRIES: u32 = 3;

/// The name of a connection from `address`.
pub fn name(address: &Address) -> [u8; NAME] {
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

    /// When it changed.
    pub fn changed(&self) -> i64 {
        self.changed
    }
}

/// The path of a name, or of the directory, with the 0 behind it.
pub struct Path {
    bytes: [u8; 108],
    length: usize,
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

    /// As system calls take it.
    pub fn pointer(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    fn socket_address(&self) -> (sockaddr_un, socklen_t) {
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
        let is_it =
            |path: &Path| path.identity().is_some_and(|found| (found.device, found.inode) == (identity.device, identity.inode));
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
    fn open_to_all(&self) -> Result<()> {
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

/// A name that a connection of this process has, and the socket that listens at it.
pub struct Name {
    directory: &'static [u8],
    address: Address,
    identity: Identity,
    listener: Held,
    /// The name is to stay: a connection may be waiting somewhere that shows the mark.
    stays: bool,
}

impl Name {
    /// Binds the name of a connection from `address`.
    ///
    /// Errors: NearTaken: another process has it, or took it; NearQuota: too many names of this process stay; NotLocal: this process can bind none there.
    pub fn bind(directory: &'static [u8], address: &Address, now: u64) -> core::result::Result<Name, Reason> {
        directory::settle(directory, now)?;
        let socket = || calls::socket(AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
        let listener =
            Held::new(socket).map_err(|error| shunt_rendezvous::attach::forbidden(error).unwrap_or(Reason::NoDescriptors))?;
        let path = Path::of(directory, address);
        let (name, length) = path.socket_address();
        match calls::bind(listener.fd, (&raw const name).cast(), length) {
            Ok(()) => {}
            Err(Errno(libc::EADDRINUSE)) => {
                directory::look_through(directory, now);
                return Err(Reason::NearTaken);
            }
            Err(_) => return Err(Reason::NotLocal),
        }
        // What is there is not this process's to remove unless it is what was bound; nobody listens there, so others remove that.
        let opened = path.open_to_all().and_then(|()| calls::listen(listener.fd, BACKLOG));
        let identity = path.identity().filter(|_| opened.is_ok()).ok_or(Reason::NearTaken)?;
        Ok(Name { directory, address: *address, identity, listener, stays: false })
    }

    /// The socket that listens.
    pub fn listener(&self) -> i32 {
        self.listener.fd
    }

    /// A connection shows the mark from now on, and may be accepted at any time.
    pub fn is_shown(&mut self) {
        self.stays = true;
    }

    /// No connection with the mark waits for a server any more.
    pub fn is_over(&mut self) {
        self.stays = false;
    }

    /// Nobody else has had the name since it was bound, nor could a server have met another process at it.
    pub fn is_untouched(&self) -> bool {
        Path::of(self.directory, &self.address).identity() == Some(self.identity)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if self.stays && directory::stays(&self.address, &self.identity) {
            return;
        }
        // While it listens, who removes names that were left leaves it alone.
        let path = Path::of(self.directory, &self.address);
        if path.identity().is_some_and(|found| found.inode == self.identity.inode) {
            path.remove();
        }
    }
}

/// Connects to the name of a client at `address`, which was there at `connected` (CLOCK_REALTIME, ns), and unchanged since.
///
/// Errors: NearUnknown: there is none such; NoDescriptors, NoUnix.
pub fn ask(directory: &[u8], address: &Address, connected: i64) -> core::result::Result<Held, Reason> {
    let path = Path::of(directory, address);
    let found = path.identity().filter(|identity| identity.changed <= connected).ok_or(Reason::NearUnknown)?;
    let socket = || calls::socket(AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
    let unix = Held::new(socket).map_err(|error| shunt_rendezvous::attach::forbidden(error).unwrap_or(Reason::NoDescriptors))?;
    let (name, length) = path.socket_address();
    let mut tries = 1..TRIES;
    loop {
        match calls::connect(unix.fd, (&raw const name).cast(), length) {
            Err(Errno(libc::EAGAIN)) if tries.next().is_some() => calls::sched_yield(),
            connected => break connected.map_err(|_| Reason::NearUnknown)?,
        }
    }
    match path.identity() == Some(found) {
        true => Ok(unix),
        false => Err(Reason::NearUnknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
    use std::path::PathBuf;

    struct Directory(&'static str);

    impl Directory {
        fn new(label: &str) -> Directory {
            let path: PathBuf = std::env::temp_dir().join(format!("near-{label}-{}", std::process::id()));
            std::fs::create_dir(&path).expect("a directory");
            Directory(Box::leak(path.display().to_string().into()))
        }

        fn bytes(&self) -> &'static [u8] {
            self.0.as_bytes()
        }

        fn file(&self, address: &Address) -> PathBuf {
            PathBuf::from(self.0).join(std::str::from_utf8(&name(address)).expect("text"))
        }

        fn left(&self) -> usize {
            std::fs::read_dir(self.0).expect("it").count()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(self.0);
        }
    }

    fn client(port: u16) -> Address {
        Address::v4([172, 30, 0, 3], port)
    }

    const LATER: i64 = i64::MAX;

    #[test]
    fn names_are_addresses() {
        assert_eq!(&name(&client(0xbeef)), b"near-00000000000000000000ffffac1e0003-beef");
        let longest = [b'x'; shunt_config::NEAR_LONGEST];
        assert_eq!(Path::of(&longest, &Address::default()).length, longest.len() + 1 + NAME);
    }

    #[test]
    fn a_name_is_one_connection_s_and_stays_when_it_was_shown() {
        let directory = Directory::new("one");
        let (path, address) = (directory.bytes(), client(5));
        let first = Name::bind(path, &address, 1).expect("a name");
        assert_eq!(Name::bind(path, &address, 1).err(), Some(Reason::NearTaken));
        assert!(ask(path, &address, LATER).is_ok() && first.is_untouched());
        drop(first);
        assert_eq!((directory.left(), ask(path, &address, LATER).err()), (0, Some(Reason::NearUnknown)));
        let mut shown = Name::bind(path, &address, 1).expect("a name");
        shown.is_shown();
        drop(shown);
        assert_eq!((directory.left(), ask(path, &address, LATER).err()), (1, Some(Reason::NearUnknown)));
        let now = shunt_sys::clock::monotonic_ns();
        assert_eq!(Name::bind(path, &address, now).err(), Some(Reason::NearTaken));
        assert!(Name::bind(path, &address, now + directory::STAYS).is_ok(), "later it is free");
        assert_eq!(directory.left(), 0);
        assert_eq!(Name::bind(b"/nowhere/near", &address, 1).err(), Some(Reason::NotLocal));
    }

    /// A link in a name's place: what it leads to keeps its mode, and nobody connects to it.
    #[test]
    fn no_link_is_followed() {
        let directory = Directory::new("links");
        let (path, address) = (directory.bytes(), client(6));
        let elsewhere = PathBuf::from(directory.0).join("elsewhere");
        let listener = std::os::unix::net::UnixListener::bind(&elsewhere).expect("a socket");
        listener.set_nonblocking(true).expect("it");
        std::fs::set_permissions(&elsewhere, std::fs::Permissions::from_mode(0o600)).expect("its mode");
        symlink(&elsewhere, directory.file(&address)).expect("a link");
        assert!(Path::of(path, &address).open_to_all().is_err());
        assert_eq!(std::fs::metadata(&elsewhere).expect("it").mode() & 0o777, 0o600);
        assert_eq!(ask(path, &address, LATER).err(), Some(Reason::NearUnknown));
        assert!(listener.accept().is_err(), "nobody came");
        // Nor is a hard link one's own name.
        std::fs::remove_file(directory.file(&address)).expect("the link");
        std::fs::hard_link(&elsewhere, directory.file(&address)).expect("a link");
        assert_eq!(ask(path, &address, LATER).err(), Some(Reason::NearUnknown));
    }

    #[test]
    fn a_name_that_is_younger_than_the_connection_or_was_touched_is_none() {
        let directory = Directory::new("young");
        let (path, address) = (directory.bytes(), client(7));
        let own = Name::bind(path, &address, 1).expect("a name");
        let changed = own.identity.changed();
        assert!(ask(path, &address, changed).is_ok());
        assert_eq!(ask(path, &address, changed - 1).err(), Some(Reason::NearUnknown));
        // Taken away and put back: it is the same file, and has changed.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let aside = PathBuf::from(directory.0).join("aside");
        std::fs::rename(directory.file(&address), &aside).expect("it");
        std::fs::rename(&aside, directory.file(&address)).expect("it");
        assert!(!own.is_untouched());
        assert_eq!(ask(path, &address, changed).err(), Some(Reason::NearUnknown));
    }

    #[test]
    fn what_others_have_put_in_its_place_is_not_removed() {
        let directory = Directory::new("place");
        let (path, address) = (directory.bytes(), client(8));
        let own = Name::bind(path, &address, 1).expect("a name");
        let identity = own.identity;
        let aside = PathBuf::from(directory.0).join("aside");
        std::fs::rename(directory.file(&address), &aside).expect("it");
        let other = std::os::unix::net::UnixListener::bind(directory.file(&address)).expect("another's");
        drop(own);
        assert!(directory.file(&address).exists(), "another's name");
        Path::of(path, &address).remove_exactly(&identity);
        assert!(directory.file(&address).exists());
        drop(other);
        let others = Path::of(path, &address).identity().expect("it is there");
        Path::of(path, &address).remove_exactly(&others);
        assert_eq!(directory.left(), 1, "what was put aside");
    }

    #[test]
    fn a_full_queue_is_not_waited_for() {
        let directory = Directory::new("full");
        let (path, address) = (directory.bytes(), client(9));
        let _own = Name::bind(path, &address, 1).expect("a name");
        let held: Vec<Held> = (0..64).map_while(|_| ask(path, &address, LATER).ok()).collect();
        assert!((1..64).contains(&held.len()), "{}", held.len());
        assert_eq!(ask(path, &address, LATER).err(), Some(Reason::NearUnknown));
    }
}
