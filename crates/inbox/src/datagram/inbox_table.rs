//! Inboxes: making one's own, handing it to visitors, taking up those of others.
//!
//! A receiver listens at a name made of its socket's inode and sends each process that connects there two descriptors: the memfd,
//! and the read end of a pipe whose other end only the socket's owners hold.

use super::COMMON;
use super::{cmsg_recv, flag, Datagram};
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_ring::inbox::Inbox;
use shunt_segment::inbox::{self, gate, InboxHeader, RING, RING_LEAST, RING_MOST};
use shunt_segment::name;
use shunt_segment::reason::Reason;
use shunt_sys::libc::{self, AF_UNIX, F_ADD_SEALS, MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};
use shunt_sys::{calls, mapping, memory_file, Errno, Result};
use shunt_table::global::{LockedCell, SETUP};
use shunt_table::process::identity;
use shunt_table::{diag, fd_passing, private, sockaddr};

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Ticks between two looks for visitors (about a millisecond).
const VISITORS_EVERY: u64 = 2_500_000;

/// Bytes of payload that the largest ring is for: beyond, the ring limits what waits.
const MOST_LIMIT: u32 = (RING_MOST - RING) as u32;

/// Makes the inbox of `socket`. Failing leaves plain UDP.
pub fn make(fd: i32, socket: &'static Datagram) {
    let Some(_setup) = SETUP.lock() else { return };
    if socket.inbox().is_some() {
        return;
    }
    if try_make(fd, socket).is_ok() {
        (super::is_shared() || socket.is_local()).then(|| socket.note(Reason::Accelerated));
    } else {
        close_all(socket);
        // Not again: what failed once (descriptors, memory, the name) would cost a datagram's time each time.
        socket.pin(super::pin::ELSEWHERE);
    }
}

fn try_make(fd: i32, socket: &'static Datagram) -> Result<()> {
    let status = calls::status_of(fd)?;
    let limit = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)? as u32;
    let size = (limit as usize + RING).next_power_of_two().clamp(RING_LEAST, RING_MOST);
    let keep = |slot: usize, fd: Result<i32>| -> Result<i32> {
        let fd = private::keep(fd?)?;
        socket.private[slot].store(fd, Ordering::Relaxed);
        Ok(fd)
    };
    if calls::soft_limit(libc::RLIMIT_FSIZE) < (RING + size) as u64 {
        return Err(Errno(libc::EFBIG)); // ftruncate would raise SIGXFSZ
    }
    // From now on the socket keeps the time at which its datagrams came: see `receive::kernels_moment`. ENOENT as yet.
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let _ = calls::ioctl(fd, super::receive::SIOCGSTAMPNS, (&mut at as *mut libc::timespec) as usize);
    let memfd = keep(0, calls::memfd_create(inbox::NAME, libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING))?;
    calls::ftruncate(memfd, (RING + size) as i64)?;
    calls::fcntl(memfd, F_ADD_SEALS, SEALS as usize)?;
    let listener = keep(1, calls::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))?;
    let (address, length) = sockaddr::abstract_name(name::inbox(status.st_ino).as_slice());
    // One that looks for what plain peers send, and shares nothing, is found by no sender.
    if super::is_shared() || socket.is_local() {
        calls::bind(listener, (&address as *const libc::sockaddr_un).cast(), length)?;
        calls::listen(listener, 64)?;
    }
    let pipe = pipe()?;
    let read = keep(2, Ok(pipe[0]));
    let write = keep(3, Ok(pipe[1]));
    read?;
    write?;
    let base = map(memfd, RING + size)?;
    // SAFETY: fresh zeroed memory of this size.
    let header = unsafe { &*base.cast::<InboxHeader>() };
    header.version.store(shunt_segment::VERSION, Ordering::Relaxed);
    header.size.store(size as u32, Ordering::Relaxed);
    header.inode.store(status.st_ino, Ordering::Relaxed);
    header.pid.store(calls::getpid(), Ordering::Relaxed);
    header.limit.store(limit.min(MOST_LIMIT), Ordering::Relaxed);
    header.owners.store(1, Ordering::Relaxed);
    header.shareable.store(shareable(fd) as u32, Ordering::Relaxed);
    header.asks.store(cmsg_recv::asked(fd, socket), Ordering::Relaxed);
    header.magic.store(inbox::MAGIC, Ordering::Release);
    if socket.flags.load(Ordering::Relaxed) & flag::SHARED != 0 {
        // Other processes own the socket, which know nothing of this inbox: if this process closes it, they go on.
        header.gate.store(gate::PIN, Ordering::Relaxed);
    }
    socket.size.store(size as u32, Ordering::Relaxed);
    socket.flags.fetch_or(flag::BORN_SHUT, Ordering::SeqCst);
    header.gate.fetch_add(gate::PIN, Ordering::SeqCst);
    socket.base.store(base, Ordering::SeqCst);
    socket.let_in(); // unless a thread sleeps that does not know of it: the gate stays shut until then
    add_own(socket, status.st_ino, base, size as u32);
    Ok(())
}

pub(super) fn pipe() -> Result<[i32; 2]> {
    let mut ends = [-1i32; 2];
    // SAFETY: pipe2 fills two descriptors in.
    shunt_sys::check(unsafe { shunt_sys::syscall!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
    Ok(ends)
}

/// Whether another socket may take the port's datagrams over at any time.
fn shareable(fd: i32) -> bool {
    let set = |name| calls::getsockopt_int(fd, libc::SOL_SOCKET, name).unwrap_or(1) != 0;
    set(libc::SO_REUSEADDR) || set(libc::SO_REUSEPORT)
}

/// An option that senders heed was set: SO_RCVBUF, SO_REUSEADDR, SO_REUSEPORT, and what asks for control messages.
pub fn refresh(fd: i32, socket: &Datagram) {
    if let Some(inbox) = socket.inbox() {
        let header = inbox.header();
        if let Ok(limit) = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF) {
            header.limit.store((limit as u32).min(MOST_LIMIT), Ordering::Relaxed);
        }
        header.shareable.store(shareable(fd) as u32, Ordering::Relaxed);
        header.asks.store(cmsg_recv::asked(fd, socket), Ordering::SeqCst);
    }
}

fn close_all(socket: &Datagram) {
    for fd in &socket.private {
        private::close(fd.swap(-1, Ordering::AcqRel));
    }
}

/// Lets the visitors in, at most once in a millisecond.
#[inline]
pub fn visitors(socket: &Datagram, now: u64) {
    if now.wrapping_sub(socket.visited.load(Ordering::Relaxed)) > VISITORS_EVERY {
        welcome(socket, now);
    }
}

#[cold]
fn welcome(socket: &Datagram, now: u64) {
    socket.visited.store(now, Ordering::Relaxed);
    let listener = socket.private[1].load(Ordering::Acquire);
    if listener < 0 {
        return;
    }
    for _ in 0..8 {
        let accepted = calls::accept4(listener, core::ptr::null_mut(), core::ptr::null_mut(), SOCK_CLOEXEC | SOCK_NONBLOCK);
        let Ok(visitor) = accepted else { return };
        if is_ours(visitor).is_some() {
            let (memfd, pipe) = (socket.private[0].load(Ordering::Acquire), socket.private[2].load(Ordering::Acquire));
            if memfd >= 0 && pipe >= 0 {
                let _ = fd_passing::send(visitor, &[memfd, pipe], MSG_DONTWAIT | MSG_NOSIGNAL);
            }
        }
        let _ = calls::close(visitor);
    }
}

/// The process at the other end, if it is one of our own user and visible here.
fn is_ours(fd: i32) -> Option<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut length = core::mem::size_of::<libc::ucred>() as libc::socklen_t;
    calls::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&mut peer as *mut libc::ucred).cast(), &mut length).ok()?;
    let same = identity::is_same_user(peer.uid, calls::geteuid());
    (same && peer.pid > 0).then_some(peer.pid as u32)
}

// ---- what this process knows

/// An inbox that datagrams of this process may go to.
struct Known {
    inode: u64,
    base: *mut u8,
    size: u32,
    /// Hangs up with the last owner; -1 for a socket of this process alone.
    pipe: i32,
    /// The connection over which it is to come, else -1.
    pending: i32,
    /// Routes that use it.
    users: u32,
    /// The port of its socket, when a route has led there.
    port: u16,
    /// It belongs to a socket of this process.
    own: bool,
    /// No new routes.
    gone: bool,
}

const MOST: usize = 256;
const NOTHING: Known =
    Known { inode: 0, base: core::ptr::null_mut(), size: 0, pipe: -1, pending: -1, users: 0, port: 0, own: false, gone: false };

/// Inboxes, as the process has them.
pub(crate) struct Boxes {
    /// Under the set-up lock.
    known: LockedCell<[Known; MOST]>,
    /// Ranges that an inbox lay in; late readers see zeros there. Under the set-up lock.
    blanks: LockedCell<[(usize, usize); 64]>,
    /// Ports of inboxes that routes have led to, by their lower bits.
    ports: [AtomicU64; 16],
}

impl Boxes {
    pub(super) const fn new() -> Boxes {
        Boxes {
            known: LockedCell::new([const { NOTHING }; MOST]),
            blanks: LockedCell::new([(0, 0); 64]),
            ports: [const { AtomicU64::new(0) }; 16],
        }
    }
}

fn known() -> &'static mut [Known; MOST] {
    // SAFETY: the set-up lock is held, as every function that calls this requires.
    unsafe { &mut *COMMON.boxes.known.get() }
}

fn map(fd: i32, size: usize) -> Result<*mut u8> {
    // SAFETY: the set-up lock is held.
    for blank in unsafe { &mut *COMMON.boxes.blanks.get() } {
        if blank.1 == size {
            let base = blank.0 as *mut u8;
            // SAFETY: a blank range; late readers accept any bytes.
            unsafe { mapping::shared_over(base, fd, size)? };
            *blank = (0, 0);
            return Ok(base);
        }
    }
    mapping::shared(fd, size)
}

fn unmap(base: *mut u8, size: usize) {
    // SAFETY: late readers accept zeros.
    let blanked = unsafe { mapping::blank(base, size) }.is_ok();
    // SAFETY: the set-up lock is held.
    if let (true, Some(free)) = (blanked, unsafe { &mut *COMMON.boxes.blanks.get() }.iter_mut().find(|blank| blank.1 == 0)) {
        *free = (base as usize, size);
    }
}

fn clear(entry: &mut Known) {
    private::close(entry.pipe);
    private::close(entry.pending);
    if !entry.base.is_null() {
        unmap(entry.base, RING + entry.size as usize);
    }
    *entry = NOTHING;
}

fn add_own(socket: &Datagram, inode: u64, base: *mut u8, size: u32) {
    // Shared with children, the socket may live on in them; the pipe is looked at then.
    let pipe = calls::fcntl(socket.private[2].load(Ordering::Relaxed), libc::F_DUPFD_CLOEXEC, 3).and_then(private::keep);
    if let Some(free) = known().iter_mut().find(|entry| entry.inode == 0) {
        *free = Known { inode, base, size, pipe: pipe.unwrap_or(-1), own: true, ..NOTHING };
    } else {
        private::close(pipe.unwrap_or(-1));
    }
}

/// The socket's last descriptor in this process is closed.
pub fn drop_own(socket: &'static Datagram) {
    let Some(_setup) = SETUP.lock() else { return };
    close_all(socket);
    let base = socket.base.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if base.is_null() {
        return;
    }
    match known().iter_mut().find(|entry| entry.base == base) {
        Some(entry) if entry.users > 0 => {
            entry.gone = true;
        }
        Some(entry) => clear(entry),
        None => unmap(base, RING + socket.size.load(Ordering::Relaxed) as usize),
    }
}

/// What a route needs of an inbox.
#[derive(Clone, Copy)]
pub struct Address {
    /// Index among those that are known.
    pub index: usize,
    /// The inbox.
    pub inbox: Inbox,
}

/// The inbox of the socket `owner`, as far as this process has it; otherwise asks for it, and says whether it may come.
/// The set-up lock is held.
pub fn find(owner: diag::Owner, port: u16) -> (Option<Address>, bool) {
    let inode = owner.inode as u64;
    let entries = known();
    if let Some(index) = entries.iter().position(|entry| entry.inode == inode && !entry.gone) {
        if entries[index].pending >= 0 && !received(&mut entries[index]) {
            return (None, entries[index].pending >= 0);
        }
        entries[index].port = port;
        COMMON.boxes.ports[port as usize / 64 % COMMON.boxes.ports.len()].fetch_or(1 << (port % 64), Ordering::SeqCst);
        return (take(index), false);
    }
    (None, identity::is_same_user(owner.uid, calls::geteuid()) && ask_for(inode))
}

fn take(index: usize) -> Option<Address> {
    let entry = &mut known()[index];
    // SAFETY: mapped with this size.
    let inbox = unsafe { Inbox::new(entry.base, entry.size) };
    if inbox.is_retired() {
        entry.gone = true;
        if entry.users == 0 && !entry.own {
            clear(entry);
        }
        return None;
    }
    entry.users += 1;
    Some(Address { index, inbox })
}

/// A datagram to `port` went through the kernel from a socket that has no route there: those of the process that have
/// one must not overtake it.
#[inline]
pub fn passed_by(port: u16) {
    if COMMON.boxes.ports[port as usize / 64 % COMMON.boxes.ports.len()].load(Ordering::SeqCst) & 1 << (port % 64) != 0 {
        mark(|known| known == port);
    }
}

/// The same, where it is not known to which port it went.
#[cold]
pub fn all_passed_by() {
    mark(|_| true);
}

#[cold]
fn mark(passed: impl Fn(u16) -> bool) {
    let Some(_setup) = SETUP.lock() else { return };
    for entry in known().iter().filter(|entry| passed(entry.port) && !entry.base.is_null() && !entry.gone) {
        // SAFETY: mapped with this size.
        unsafe { Inbox::new(entry.base, entry.size) }.after_kernel();
    }
}

/// A route goes. The set-up lock is held.
pub fn give_back(index: usize) {
    let entry = &mut known()[index];
    entry.users = entry.users.saturating_sub(1);
    if entry.users == 0 && entry.gone {
        clear(entry);
    }
}

/// Whether the inbox's owners still live, as the pipe tells.
pub fn lives(index: usize) -> bool {
    // SAFETY: a route refers to the entry, so it is not cleared; the descriptor changes only by `moved`.
    let pipe = unsafe { (*COMMON.boxes.known.get())[index].pipe };
    pipe < 0 || calls::poll_one(pipe, 0, 0).is_ok_and(|events| events & (libc::POLLHUP | libc::POLLERR) == 0)
}

fn ask_for(inode: u64) -> bool {
    let Some(free) = known().iter_mut().find(|entry| entry.inode == 0) else {
        sweep();
        return false;
    };
    let asked = (|| {
        let fd = calls::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)?;
        let fd = private::keep(fd)?;
        let (address, length) = sockaddr::abstract_name(name::inbox(inode).as_slice());
        if let Err(error) = calls::connect(fd, (&address as *const libc::sockaddr_un).cast(), length) {
            private::close(fd);
            return Err(error);
        }
        Ok(fd)
    })();
    if let Ok(fd) = asked {
        *free = Known { inode, pending: fd, ..NOTHING };
    }
    asked.is_ok()
}

/// Room for others: what is unused goes.
fn sweep() {
    for entry in known().iter_mut() {
        if entry.inode != 0 && entry.users == 0 && !entry.own {
            clear(entry);
        }
    }
}

/// Whether the inbox has come over the pending connection. An entry that will never come is cleared.
fn received(entry: &mut Known) -> bool {
    let fd = entry.pending;
    match take_up(fd, entry.inode) {
        Ok(None) => return false,
        Ok(Some((base, size, pipe))) => {
            entry.base = base;
            entry.size = size;
            entry.pipe = pipe;
            entry.pending = -1;
            private::close(fd);
            return true;
        }
        Err(_) => clear(entry),
    }
    false
}

fn take_up(fd: i32, inode: u64) -> Result<Option<(*mut u8, u32, i32)>> {
    let refused = Errno(libc::EPROTO);
    let [memfd, pipe] = match fd_passing::receive(fd, MSG_DONTWAIT) {
        Ok([memfd, pipe]) if memfd >= 0 => [memfd, pipe],
        Ok(_) => return Err(refused),
        Err(Errno(libc::EAGAIN | libc::EINTR)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mapped = (|| {
        let peer = is_ours(fd).ok_or(refused)?;
        let size = check(memfd)?;
        let base = map(memfd, RING + size)?;
        // SAFETY: sealed, and of this size.
        let header = unsafe { &*base.cast::<InboxHeader>() };
        let good = header.magic.load(Ordering::Acquire) == inbox::MAGIC
            && header.version.load(Ordering::Relaxed) == shunt_segment::VERSION
            && header.inode.load(Ordering::Relaxed) == inode
            && header.size.load(Ordering::Relaxed) as usize == size
            // The maker calls itself what we call it: thread ids mean the same to both.
            && header.pid.load(Ordering::Relaxed) == peer;
        if !good {
            unmap(base, RING + size);
            return Err(refused);
        }
        Ok((base, size as u32))
    })();
    let _ = calls::close(memfd);
    match (mapped, (pipe >= 0).then_some(pipe)) {
        (Ok((base, size)), Some(pipe)) => match private::keep(pipe) {
            Ok(pipe) => Ok(Some((base, size, pipe))),
            Err(error) => {
                unmap(base, RING + size as usize);
                Err(error)
            }
        },
        (mapped, pipe) => {
            if let Some(pipe) = pipe {
                let _ = calls::close(pipe);
            }
            if let Ok((base, size)) = mapped {
                unmap(base, RING + size as usize);
            }
            Err(refused)
        }
    }
}

/// Whether `fd` is an inbox that cannot fault us; gives the size of its ring.
pub(crate) fn check(fd: i32) -> Result<usize> {
    let (size, seals) = memory_file::sealed(fd, SEALS)?;
    let size = size.wrapping_sub(RING);
    let write_sealed = seals & memory_file::WRITE_SEALS != 0;
    let shaped = size.is_power_of_two() && (RING_LEAST..=RING_MOST).contains(&size);
    if write_sealed || !shaped {
        return Err(Errno(libc::EPROTO));
    }
    Ok(size)
}

/// Maps the inbox behind `memfd`, which was checked, as that of `socket`, and gives it the descriptor.
pub(super) fn map_for(socket: &Datagram, memfd: i32) -> Result<Inbox> {
    let size = check(memfd)?;
    let _setup = SETUP.lock().ok_or(Errno(libc::EDEADLK))?;
    let base = map(memfd, RING + size)?;
    socket.private[0].store(memfd, Ordering::Release);
    socket.size.store(size as u32, Ordering::Relaxed);
    socket.base.store(base, Ordering::SeqCst);
    // SAFETY: just mapped with this size, and sealed against shrinking.
    Ok(unsafe { Inbox::new(base, size as u32) })
}

/// Others' inboxes have been given back by all routes, or are when their sends end: they are looked for anew.
pub fn forget_others() {
    let Some(_setup) = SETUP.lock() else { return };
    for entry in known().iter_mut().filter(|entry| entry.inode != 0 && !entry.own) {
        entry.gone = true;
        if entry.users == 0 {
            clear(entry);
        }
    }
}

/// In the child after fork: others' inboxes are the parent's; our own stay what they are.
pub fn forked() {
    for entry in known().iter_mut() {
        if entry.inode != 0 && (!entry.own || entry.gone) {
            clear(entry);
        } else if entry.users != 0 {
            entry.users = 0; // an unused page stays the parent's
        }
    }
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    let Some(_setup) = SETUP.lock() else { return };
    for entry in known().iter_mut() {
        for fd in [&mut entry.pipe, &mut entry.pending] {
            if *fd == from {
                *fd = to;
            }
        }
    }
}
