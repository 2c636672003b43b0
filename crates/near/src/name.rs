//! A name: the socket of the file system at which the client of one connection waits for its server. A process that may write into the directory may replace names of
//! its own, and a name's user, the directory's, and root any: so each end looks at what the name *is*, and when that changed last, which no process can set.

use crate::directory;
use crate::held::Held;
use crate::path::{Identity, Path};
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_sys::libc::{self, AF_UNIX};
use shunt_sys::{calls, Errno};

/// Servers that may ask at a name at a time: one does, and others that lie.
const BACKLOG: i32 = 4;
/// How often a server asks where the queue is full of others.
const TRIES: u32 = 3;

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
        match calls::bind(listener.fd(), (&raw const name).cast(), length) {
            Ok(()) => {}
            Err(Errno(libc::EADDRINUSE)) => {
                directory::look_through(directory, now);
                return Err(Reason::NearTaken);
            }
            Err(_) => return Err(Reason::NotLocal),
        }
        // What is there is not this process's to remove unless it is what was bound; nobody listens there, so others remove that.
        let opened = path.open_to_all().and_then(|()| calls::listen(listener.fd(), BACKLOG));
        let identity = path.identity().filter(|_| opened.is_ok()).ok_or(Reason::NearTaken)?;
        Ok(Name { directory, address: *address, identity, listener, stays: false })
    }

    /// The socket that listens.
    pub fn listener(&self) -> i32 {
        self.listener.fd()
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
        if path.identity().is_some_and(|found| found.is_same_file(&self.identity)) {
            path.remove();
        }
    }
}

/// Connects to the name of a client at `address`, which was there at `connected` (CLOCK_REALTIME, ns), and unchanged since.
///
/// Errors: NearUnknown: there is none such; NoDescriptors, NoUnix.
pub fn ask(directory: &[u8], address: &Address, connected: i64) -> core::result::Result<Held, Reason> {
    let path = Path::of(directory, address);
    let found = path.identity().filter(|identity| identity.changed() <= connected).ok_or(Reason::NearUnknown)?;
    let socket = || calls::socket(AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
    let unix = Held::new(socket).map_err(|error| shunt_rendezvous::attach::forbidden(error).unwrap_or(Reason::NoDescriptors))?;
    let (name, length) = path.socket_address();
    let mut tries = 1..TRIES;
    loop {
        match calls::connect(unix.fd(), (&raw const name).cast(), length) {
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
    use crate::path::{name, NAME};
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
