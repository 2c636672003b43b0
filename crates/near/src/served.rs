//! Servers show in the directory where they listen, so that a client waits for a claim where one may come: a connection to any other address costs a look at a
//! name, and never shows a mark. What is shown proves nothing, and a wrong one costs a client the wait.

use crate::directory;
use crate::known::servers;
use crate::path::{Identity, Path, SERVED};
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use shunt_segment::address::Address;
use shunt_sys::libc::{self, AT_FDCWD, O_CLOEXEC, O_RDONLY};
use shunt_sys::{calls, Errno};
use shunt_table::global::{LockedCell, SETUP};
use shunt_table::private::{self, Pending};
use shunt_table::sockaddr;

/// Addresses that a process shows at a time.
const MOST: usize = 64;
/// Addresses of one family that a listener at all of them is shown at.
const OF_ONE: usize = 16;
/// How often it is looked whether the address of a connection that was accepted is shown (ns): a child, a program that inherited its listener, and a member of
/// a group whose first member ended find out so.
const TENDED: u64 = 1_000_000_000;
/// How long it is believed that nobody serves an address (ns): of a burst of connections one looks.
const UNSERVED: u64 = 20_000_000;

/// One address that is shown, for the listener with this inode.
#[derive(Clone, Copy)]
struct Entry {
    inode: u64,
    address: Address,
    identity: Identity,
}

struct Served {
    /// Under the set-up lock.
    entries: LockedCell<[Option<Entry>; MOST]>,
    /// The socket that has each name, while this process lives; -1: none. It takes nothing from anybody.
    sockets: [AtomicI32; MOST],
    tended: AtomicU64,
}

static SERVED_HERE: Served =
    Served { entries: LockedCell::new([None; MOST]), sockets: [const { AtomicI32::new(-1) }; MOST], tended: AtomicU64::new(0) };

/// Whether a server shows in the directory that it listens at `server`.
pub fn is_served(directory: &[u8], server: &Address, now: u64) -> bool {
    if servers(|servers| servers.is_unserved(server, now)) {
        return false;
    }
    let is_served = Path::of_kind(directory, SERVED, server).identity().is_some();
    if !is_served {
        servers(|servers| servers.unserved(server, now + UNSERVED));
    }
    is_served
}

/// The listener `fd` is about to listen at `bound`, or does.
pub fn listens(fd: i32, inode: u64, bound: &Address) {
    let Some(directory) = directory::here().filter(|_| bound.port != 0 && bound.scope == 0) else { return };
    if !bound.is_unspecified() {
        return show(directory, inode, bound);
    }
    each_v4(fd, |ip| show(directory, inode, &Address::v4(ip, bound.port)));
    if bound.as_v4().is_none() {
        each_v6(|ip| show(directory, inode, &Address::v6(ip, bound.port)));
    }
}

/// A connection was accepted: if that was not looked at lately, its address is shown from now on.
pub fn tend(directory: &[u8], fd: i32, inode: u64, now: u64) {
    let last = SERVED_HERE.tended.load(Ordering::Relaxed);
    let is_mine = || SERVED_HERE.tended.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if now.saturating_sub(last) < TENDED || !is_mine() {
        return;
    }
    let bound = sockaddr::bound_address(fd);
    if bound.scope == 0 {
        show(directory, inode, &bound);
    }
}

/// Shows one address, unless another process does, as in networks with equal addresses, or in groups of listeners.
fn show(directory: &[u8], inode: u64, address: &Address) {
    if address.is_loopback() {
        return;
    }
    // Where this thread has the lock already it is not had twice.
    let _setup = SETUP.lock();
    // SAFETY: under the set-up lock.
    let entries = unsafe { &mut *SERVED_HERE.entries.get() };
    let path = Path::of_kind(directory, SERVED, address);
    let here = path.identity();
    let is_it = |entry: &Entry| entry.address.ip == address.ip && entry.address.port == address.port;
    if let Some(place) = entries.iter().position(|entry| entry.as_ref().is_some_and(is_it)) {
        if entries[place].is_some_and(|entry| here.is_some_and(|found| found.is_same_file(&entry.identity))) {
            return;
        }
        // Another process has removed it.
        forget_at(entries, place);
    }
    let Some(place) = entries.iter().position(Option::is_none) else { return };
    // One that a killed process left.
    if let Some(left) = here.filter(|_| path.connect().err() == Some(Errno(libc::ECONNREFUSED))) {
        path.remove_exactly(&left);
    }
    let Some(socket) = named(&path) else { return };
    if let (Some(identity), Ok(kept)) = (path.identity(), private::keep(socket.take())) {
        SERVED_HERE.sockets[place].store(kept, Ordering::Relaxed);
        entries[place] = Some(Entry { inode, address: *address, identity });
    }
}

/// A socket that has the name, and takes no message. One of datagrams: the question whether it lives puts nothing into a queue.
fn named(path: &Path) -> Option<Pending> {
    let socket = Pending(calls::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).ok()?);
    calls::shutdown(socket.0, libc::SHUT_RD).ok();
    let (name, length) = path.socket_address();
    calls::bind(socket.0, (&raw const name).cast(), length).ok()?;
    Some(socket)
}

fn forget_at(entries: &mut [Option<Entry>; MOST], place: usize) {
    entries[place] = None;
    private::close_at(&SERVED_HERE.sockets[place]);
}

/// Removes those that are meant. Under the set-up lock.
fn withdraw(meant: impl Fn(&Entry) -> bool) {
    // SAFETY: under the set-up lock.
    let entries = unsafe { &mut *SERVED_HERE.entries.get() };
    for place in 0..MOST {
        let Some(entry) = entries[place].filter(&meant) else { continue };
        if let Some(directory) = directory::named() {
            Path::of_kind(directory, SERVED, &entry.address).remove_exactly(&entry.identity);
        }
        forget_at(entries, place);
    }
}

/// The listener is closed, by the last process that has it as far as is known.
pub fn listens_no_longer(inode: u64) {
    let _setup = SETUP.lock();
    withdraw(|entry| entry.inode == inode);
}

/// The process ends.
pub fn ending() {
    if let Some(_setup) = SETUP.try_lock() {
        withdraw(|_| true);
    }
}

/// In the child after fork: they are the parent's, and end with it.
pub fn forget() {
    // SAFETY: the child of a fork has one thread, and forks hold the set-up lock.
    unsafe { *SERVED_HERE.entries.get() = [None; MOST] };
    SERVED_HERE.sockets.iter().for_each(private::close_at);
    SERVED_HERE.tended.store(0, Ordering::Relaxed);
}

/// The process is in another network namespace. Under the set-up lock.
pub fn left_namespace() {
    withdraw(|_| true);
}

/// The program wanted the number of one.
pub fn moved(from: i32, to: i32) {
    SERVED_HERE.sockets.iter().for_each(|socket| private::renumber(socket, from, to));
}

/// The IPv4 addresses of this network namespace (SIOCGIFCONF, netdevice(7)); `fd`: any of its IP sockets.
fn each_v4(fd: i32, mut found: impl FnMut([u8; 4])) {
    const SIOCGIFCONF: u64 = 0x8912;
    const ENTRY: usize = 40; // struct ifreq
    const IP: usize = 20; // in it, behind the name: that of a sockaddr_in
    #[repr(C)]
    struct Configuration {
        length: i32,
        entries: *mut u8,
    }
    let mut entries = [0u64; OF_ONE * ENTRY / 8];
    let mut asked = Configuration { length: (OF_ONE * ENTRY) as i32, entries: entries.as_mut_ptr().cast() };
    if calls::ioctl(fd, SIOCGIFCONF, &raw mut asked as usize).is_err() {
        return;
    }
    let words = (asked.length.max(0) as usize / ENTRY).min(OF_ONE) * ENTRY / 8;
    for entry in entries[..words].chunks_exact(ENTRY / 8) {
        // Bytes 16 to 24 of the entry: family, port, address.
        let [_, _, _, _, ip @ ..] = entry[IP / 8].to_ne_bytes();
        found(ip);
    }
}

/// Its IPv6 addresses of global scope (/proc/net/if_inet6).
fn each_v6(mut found: impl FnMut([u8; 16])) {
    let path = c"/proc/self/net/if_inet6";
    let Ok(fd) = calls::openat(AT_FDCWD, path.as_ptr().cast(), O_RDONLY | O_CLOEXEC, 0) else { return };
    let fd = Pending(fd);
    let mut text = [0u8; 2048];
    let Ok(length) = calls::read(fd.0, text.as_mut_ptr().cast(), text.len()) else { return };
    let lines = text[..length].split(|byte| *byte == b'\n').filter_map(global_v6);
    lines.take(OF_ONE).for_each(&mut found);
}

/// The address in a line, if its scope is global: address, index, length of the prefix, scope, flags, name.
fn global_v6(line: &[u8]) -> Option<[u8; 16]> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (digits, scope) = (fields.next().filter(|digits| digits.len() == 32)?, fields.nth(2)?);
    let mut ip = [0; 16];
    for (byte, digits) in ip.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    (scope == b"00").then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_s_table() {
        let line = b"fd770000000000000000000000000001 02 40 00 80     left0";
        let mut ip = [0; 16];
        (ip[0], ip[1], ip[15]) = (0xfd, 0x77, 1);
        assert_eq!(global_v6(line), Some(ip));
        assert_eq!(global_v6(b"fe80000000000000000000fffe000001 02 40 20 80     left0"), None);
        assert_eq!(global_v6(b""), None);
    }

    #[test]
    fn addresses_of_this_namespace() {
        let fd = calls::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).expect("a socket");
        let fd = Pending(fd);
        let mut all = Vec::new();
        each_v4(fd.0, |ip| all.push(ip));
        assert!(all.contains(&[127, 0, 0, 1]), "{all:?}");
    }

    #[test]
    fn a_name_lives_as_long_as_its_socket_and_hears_nothing() {
        let directory = std::env::temp_dir().join(format!("near-served-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        let path = Path::of_kind(directory.to_str().expect("text").as_bytes(), SERVED, &Address::v4([10, 0, 0, 2], 80));
        let socket = named(&path).expect("a name");
        assert!(named(&path).is_none(), "another process's");
        assert_ne!(path.connect(), Err(Errno(libc::ECONNREFUSED)));
        let stranger = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
        let file = std::fs::read_dir(&directory).expect("it").next().expect("one").expect("it").path();
        assert!(stranger.send_to(b"x", &file).is_err());
        drop(socket);
        assert_eq!(path.connect(), Err(Errno(libc::ECONNREFUSED)));
        std::fs::remove_dir_all(&directory).expect("it");
    }
}
