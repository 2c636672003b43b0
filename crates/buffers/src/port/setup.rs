//! The link of a port in shared memory: its memory, its socket, and how a side waits.

use super::link::Link;
use super::stream::Stream;
use super::timing::Timing;
use super::{Error, Port, QUOTA};
use crate::costs::Costs;
use crate::policy::Policy;
use core::sync::atomic::{fence, AtomicU32, Ordering};
use shunt_region::pull::Pull;
use shunt_region::{Account, Attached, Audience, Limit, Pool, Violation};
use shunt_ring::{bell, Pipe, Window};
use shunt_segment::area::{window_offset, CHANNEL_PAGES, CLASSES, LINK_SIZE, PAGE};
use shunt_segment::channel::{arm, ChannelPage};
use shunt_sys::{calls, libc, mapping, memory_file, Errno};
use std::collections::VecDeque;
use std::sync::Arc;

const SIZE: usize = LINK_SIZE + PAGE;
/// Bytes on the socket.
const LINK: u8 = b'L';
const POOL: u8 = b'P';
const TRUSTED: u8 = b'T';
/// Looks before a side sleeps.
const LOOKS: u32 = 4_000;
/// Looks after which another process may have the processor: what this one waits for may be that one's to do.
const YIELD: u32 = 64;
/// Looks for tickets, all in vain, after which the socket is asked whether the peer has ended: a program may wait for a region by nothing
/// but such looks.
const ENDED: u32 = 64;
/// Pools that a peer can offer.
const POOLS: usize = 16;
/// Bytes of the socket that are taken at a time: an honest peer rings once for each time that this side sleeps.
const BELLS: u32 = 64;
/// Messages of one side that can be pulled at a time, a line each.
pub(super) const PULLS: usize = 8;
const SEALS: i32 = memory_file::SIZE_SEALS;

/// A peer's pool, with what it takes to pass it on.
pub(super) struct Foreign {
    pub(super) attached: Arc<Attached>,
    trusted: bool,
    /// The port that it was passed on by, and its number there.
    pub(super) passed: Option<(u64, u32)>,
}

/// Closed when it is dropped.
pub(super) struct Descriptor(pub(super) i32);

impl Descriptor {
    /// A program's, from now on the port's: not that of a program that this process becomes, whose peer would wait for a port that is no more.
    fn given(fd: i32) -> Descriptor {
        let _ = calls::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize);
        Descriptor(fd)
    }

    /// Its number; another owner closes it.
    pub(super) fn release(self) -> i32 {
        let fd = self.0;
        core::mem::forget(self);
        fd
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let _ = calls::close(self.0);
    }
}

pub(super) struct Shared {
    pub(super) fd: i32,
    base: *mut u8,
    pub(super) side: usize,
    windows: [Window; 4],
    /// What came with the socket's bytes: descriptor, and whether the pool is one for trusted peers.
    pools: VecDeque<(i32, bool)>,
    came: usize,
    gone: bool,
    /// Looks for tickets in vain, while there are loans.
    vain: u32,
    /// The program says that the peer could change this process anyway ([`super::Port::trust`]).
    pub(super) trusts: bool,
    part: ([u8; 8], usize),
}

// SAFETY: memory of its own, and shared memory reached through atomics and pipes.
unsafe impl Send for Shared {}

#[repr(C, align(8))]
struct Control {
    length: usize,
    level: i32,
    kind: i32,
    descriptor: i32,
}

fn pass(fd: i32, byte: u8, descriptor: i32) -> Result<(), Errno> {
    let mut control = Control { length: 20, level: libc::SOL_SOCKET, kind: libc::SCM_RIGHTS, descriptor };
    let mut vector = libc::iovec { iov_base: (&raw const byte).cast_mut().cast(), iov_len: 1 };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&mut vector, 1);
    (message.msg_control, message.msg_controllen) = ((&raw mut control).cast(), size_of::<Control>());
    calls::sendmsg(fd, &message, libc::MSG_NOSIGNAL).map(|_| ())
}

/// One look in vain, by a side that does not sleep yet.
fn look(looks: &mut u32) {
    *looks += 1;
    core::hint::spin_loop();
    if (*looks).is_multiple_of(YIELD) {
        calls::sched_yield();
    }
}

/// Looks by [`look`] before each look is a nap.
const PATIENT: u32 = 16 * LOOKS;
/// Nanoseconds of the longest nap.
const LONGEST: i64 = 10_000_000;

/// How many nanoseconds a side sleeps that has looked in vain so often, in a wait that need not end.
fn nap(looks: u32) -> Option<i64> {
    let naps = looks.checked_sub(PATIENT)?;
    Some((50_000 * (1 + i64::from(naps))).min(LONGEST))
}

/// In the place of a descriptor: one was sent, and this process has no number left for it.
const NO_NUMBER: i32 = -2;

/// One byte, and the descriptor that came with it; -1: none, or [`NO_NUMBER`].
fn get(fd: i32, flags: i32) -> Result<Option<(u8, i32)>, Errno> {
    let mut byte = 0u8;
    let mut control = Control { length: 0, level: 0, kind: 0, descriptor: -1 };
    let mut vector = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&mut vector, 1);
    // Room for one descriptor: the kernel keeps no more of them.
    (message.msg_control, message.msg_controllen) = ((&raw mut control).cast(), 20);
    let count = calls::recvmsg(fd, &mut message, flags | libc::MSG_CMSG_CLOEXEC)?;
    let came = message.msg_controllen >= 20 && control.kind == libc::SCM_RIGHTS;
    let none = if message.msg_flags & libc::MSG_CTRUNC != 0 { NO_NUMBER } else { -1 };
    Ok((count == 1).then_some((byte, if came { control.descriptor } else { none })))
}

impl Port {
    /// Makes the link, and hands it to the process that has the other end of the AF_UNIX stream `fd`, which becomes the port's.
    /// That one calls [`Port::accept`].
    ///
    /// # Errors
    /// [`Error::System`], [`Error::Limit`].
    pub fn connect(fd: i32) -> Result<Port, Error> {
        let socket = Descriptor::given(fd);
        let memory = calls::memfd_create(b"shunt-port\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)?;
        let made = calls::give_size(memory, SIZE)
            .and_then(|()| calls::fcntl(memory, libc::F_ADD_SEALS, SEALS as usize))
            .and_then(|_| mapping::shared(memory, SIZE));
        let sent = made.and_then(|base| {
            let link = Shared::at(socket.release(), base, 0);
            for channel in 0..2 {
                for side in &link.page(channel).sides {
                    side.transmit.class_limit.store(CLASSES as u32 - 1, Ordering::Relaxed);
                }
            }
            pass(fd, LINK, memory).map(|()| link)
        });
        let _ = calls::close(memory);
        Port::of(Link::Shared(sent?))
    }

    /// The other end of [`Port::connect`].
    ///
    /// # Errors
    /// [`Error::System`], [`Error::Gone`], [`Error::Violation`], [`Error::Limit`].
    pub fn accept(fd: i32) -> Result<Port, Error> {
        let socket = Descriptor::given(fd);
        let (byte, memory) = get(fd, 0)?.ok_or(Error::Gone)?;
        if memory == NO_NUMBER {
            return Err(Limit::Descriptors.into());
        }
        if byte != LINK || memory < 0 {
            let _ = calls::close(memory);
            return Err(Violation::Record.into());
        }
        let sound = memory_file::sealed(memory, SEALS).is_ok_and(|(size, _)| size == SIZE);
        let base = if sound { mapping::shared(memory, SIZE).map_err(Limit::of) } else { Err(Limit::Unsealed) };
        let _ = calls::close(memory);
        let base = base?;
        Port::of(Link::Shared(Shared::at(socket.release(), base, 1)))
    }

    /// Two ports of this process, joined.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::Limit`].
    pub fn pair() -> Result<(Port, Port), Error> {
        let mut fds = [-1; 2];
        calls::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr())?;
        let there = Descriptor(fds[1]);
        let here = Port::connect(fds[0])?;
        Ok((here, Port::accept(there.release())?))
    }

    /// A port that copies through a connection.
    pub(super) fn copying(stream: Stream) -> Result<Port, Error> {
        Port::of(Link::Stream(stream))
    }

    fn of(link: Link) -> Result<Port, Error> {
        hear_of_forks();
        Ok(Port {
            link,
            beside: None,
            account: Account::new(QUOTA)?,
            id: PORTS.fetch_add(1, Ordering::Relaxed),
            forks: forks(),
            hosts: Vec::new(),
            numbers: Vec::new(),
            passed: 0,
            forwards: Vec::new(),
            finished: Vec::new(),
            forwarded: 0,
            attached: Vec::new(),
            outputs: Vec::new(),
            policy: Policy::new(&Costs::USUAL),
            timing: Timing::new(&Costs::USUAL),
            costs: None,
            serial: 0,
            pulls: [u64::MAX; PULLS],
            next: None,
            copied: [0; 64],
            largest: super::LARGEST,
            swapping: super::swapping::Swapping::default(),
        })
    }

    /// Its socket: for a set of poll, to hear of the peer's end, and by which tests play a peer.
    pub fn descriptor(&self) -> i32 {
        self.link.fd()
    }
}

/// Ports of this process, counted.
static PORTS: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

/// Forks that led to this process, since it or a process before it had a port.
static FORKS: AtomicU32 = AtomicU32::new(0);

pub(super) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

impl Port {
    pub(super) fn forks_now(&self) -> u32 {
        forks()
    }

    /// A child's copy of a port is its parent's: positions in the rings are moved by one of them.
    ///
    /// # Errors
    /// [`Limit::Forked`].
    pub(super) fn own(&self) -> Result<(), Limit> {
        match self.forks == self.forks_now() {
            true => Ok(()),
            false => Err(Limit::Forked),
        }
    }
}

/// Children of fork(3) get private copies of pools before they go on. Those of the bare system call do not: their writes fault as
/// this process's do, where writing is taken away, and are seen where it is not.
pub(super) fn hear_of_forks() {
    extern "C" {
        fn pthread_atfork(
            before: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> i32;
    }
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
        shunt_region::registry::forked();
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: a function that calls nothing but the kernel.
        let _ = unsafe { pthread_atfork(None, None, Some(in_child)) };
    });
}

/// What a hostile peer can do, for tests.
#[doc(hidden)]
impl Port {
    pub fn put_raw(&mut self, channel: usize, bytes: &[u8]) -> Result<(), Error> {
        match self.link.is_shared() {
            true => self.link.put(channel & 1, bytes),
            false => self.link.message(bytes, &[]),
        }
    }

    pub fn scribble(&mut self, at: usize, value: u64) {
        let Ok(link) = self.link.shared() else { return };
        // SAFETY: a word of the link, rings and positions included.
        unsafe { (*link.base.add(at % SIZE / 8 * 8).cast::<core::sync::atomic::AtomicU64>()).store(value, Ordering::SeqCst) };
    }

    pub fn lent_so_often(&mut self, loans: u32) {
        self.account.as_after(loans);
    }

    pub fn pass_raw(&mut self, byte: u8, descriptor: i32) -> Result<(), Error> {
        Ok(pass(self.link.fd(), byte, descriptor)?)
    }
}

impl Shared {
    fn at(fd: i32, base: *mut u8, side: usize) -> Shared {
        let windows = [const { Window::new() }; 4];
        for (number, window) in windows.iter().enumerate() {
            // SAFETY: the windows lie in the link.
            window.set(unsafe { base.add(window_offset(number / 2, number % 2)) });
        }
        Shared {
            fd,
            base,
            side,
            windows,
            pools: VecDeque::new(),
            came: 0,
            gone: false,
            vain: 0,
            trusts: false,
            part: ([0; 8], 0),
        }
    }

    fn page(&self, channel: usize) -> &ChannelPage {
        // SAFETY: inside the link, which lasts as long as this; all of it atomic.
        unsafe { &*self.base.add(CHANNEL_PAGES + channel * PAGE).cast() }
    }

    fn pipe(&self, channel: usize, sender: usize) -> Pipe<'_> {
        let sides = &self.page(channel).sides;
        Pipe {
            own: &sides[self.side],
            peer: &sides[1 - self.side],
            link: self.base,
            channel,
            sender,
            window: &self.windows[2 * channel + sender],
        }
    }

    /// The word of pull `serial` that `side` sends, and the number of the one there whose system's buffer is complete.
    pub(super) fn pull(&self, side: usize, serial: u16) -> (&'static Pull, &'static AtomicU32) {
        // SAFETY: in the link's last page; atomic. Callers keep neither beyond the link.
        unsafe {
            let at = self.base.add(LINK_SIZE + 128 * (PULLS * side + serial as usize % PULLS));
            (&*at.cast(), &*at.add(64).cast())
        }
    }

    pub(super) fn pass_pool(&self, pool: &Pool) -> Result<(), Error> {
        let trusted = pool.audience() == Audience::Trusted;
        if trusted && !self.trusts {
            return Err(Limit::Untrusted.into());
        }
        match pass(self.fd, if trusted { TRUSTED } else { POOL }, pool.descriptor()) {
            // It has ended, which whatever waits for it hears. What it has sent is still received, into regions of this pool too.
            Err(Errno(libc::EPIPE | libc::ECONNRESET)) => Ok(()),
            passed => Ok(passed?),
        }
    }

    /// Passes a third process's pool on.
    pub(super) fn pass_foreign(&self, pool: &Foreign) -> Result<(), Error> {
        if pool.trusted && !self.trusts {
            return Err(Limit::Untrusted.into());
        }
        pass(self.fd, if pool.trusted { TRUSTED } else { POOL }, pool.attached.descriptor()).map_err(Error::System)
    }

    /// Waits for the next pool of the peer's, and maps it.
    pub(super) fn next_pool(&mut self) -> Result<Foreign, Error> {
        let mut looks = 0;
        loop {
            self.drain()?;
            if let Some((fd, trusted)) = self.pools.pop_front() {
                // One that can shrink under its reader is mapped only if its owner could do worse to this process.
                let audience = if trusted { Audience::Trusted } else { Audience::Anyone };
                let attached = match trusted && !self.trusts {
                    _ if fd < 0 => Err(Limit::Descriptors),
                    true => Err(Limit::Untrusted),
                    false => Attached::map(fd, audience),
                };
                return match attached {
                    Ok(attached) => {
                        let _ = calls::close(fd);
                        Ok(Foreign { attached: Arc::new(attached), trusted, passed: None })
                    }
                    Err(limit) => {
                        // The next one has another number; and there may be memory for this one later.
                        self.pools.push_front((fd, trusted));
                        Err(limit.into())
                    }
                };
            }
            if self.came >= POOLS {
                return Err(Violation::Pool.into());
            }
            // It was passed before what refers to it.
            if looks > 0 {
                return Err(Violation::Pool.into());
            }
            looks += 1;
        }
    }

    /// Takes what has come on the socket, as far as that ends: a peer that goes on ringing is served again when this side sleeps next.
    fn drain(&mut self) -> Result<(), Error> {
        for _ in 0..BELLS {
            match get(self.fd, libc::MSG_DONTWAIT) {
                Ok(Some((byte, fd))) if byte == POOL || byte == TRUSTED => {
                    self.came += 1;
                    if fd == -1 || self.came > POOLS {
                        if fd >= 0 {
                            let _ = calls::close(fd);
                        }
                        return Err(Violation::Pool.into());
                    }
                    self.pools.push_back((fd, byte == TRUSTED));
                }
                Ok(Some((_, fd))) => {
                    if fd >= 0 {
                        let _ = calls::close(fd);
                    }
                }
                Ok(None) | Err(Errno(libc::ECONNRESET)) => {
                    self.gone = true;
                    return Ok(());
                }
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// One look in vain. After some it sleeps for a moment on the socket, where a peer's end shows.
    pub(super) fn idle(&self, looks: &mut u32) -> Result<(), Error> {
        look(looks);
        match (*looks).is_multiple_of(LOOKS) && self.hung_up(50_000) {
            true => Err(Error::Gone),
            false => Ok(()),
        }
    }

    /// One look in vain for what an honest peer does at once: a peer that does not do it costs this one no processor.
    pub(super) fn idle_longer(&self, looks: &mut u32) -> Result<(), Error> {
        match nap(*looks) {
            None => self.idle(looks),
            Some(nanoseconds) => {
                *looks = looks.saturating_add(1);
                match self.hung_up(nanoseconds) {
                    true => Err(Error::Gone),
                    false => Ok(()),
                }
            }
        }
    }

    /// Whether the peer has ended, or does within so many nanoseconds.
    pub(super) fn hung_up(&self, nanoseconds: i64) -> bool {
        calls::poll_one(self.fd, 0, nanoseconds).unwrap_or(0) & (libc::POLLHUP | libc::POLLERR) != 0
    }

    /// Puts all of `bytes` into the ring of `channel`, waiting for room.
    pub(super) fn put(&self, channel: usize, bytes: &[u8]) -> Result<(), Error> {
        let pipe = self.pipe(channel, self.side);
        let (mut sent, mut looks) = (0, 0);
        while sent < bytes.len() {
            // SAFETY: inside `bytes`; one thread sends.
            let count = unsafe { pipe.send(bytes.as_ptr().add(sent), bytes.len() - sent) };
            sent += count;
            if count == 0 {
                self.idle(&mut looks)?;
            } else {
                looks = 0;
                // The sleeper relies on this fence.
                fence(Ordering::SeqCst);
                if channel == 0 && bell::must_ring(&pipe.peer.wait, arm::IN) {
                    let _ = calls::send_byte(self.fd, 0, 0);
                }
            }
        }
        Ok(())
    }

    /// Takes `target.len()` bytes out of the ring of `channel`, waiting for them. What a process sent before it died is delivered.
    pub(super) fn take(&mut self, channel: usize, target: &mut [u8]) -> Result<(), Error> {
        let (mut taken, mut looks) = (0, 0u32);
        while taken < target.len() {
            let gone = self.gone;
            let pipe = self.pipe(channel, 1 - self.side);
            // SAFETY: inside `target`; one thread receives.
            let count = unsafe { pipe.receive(target.as_mut_ptr().add(taken), target.len() - taken) };
            let count = count.map_err(|_| Violation::Record)?;
            taken += count;
            if count > 0 {
                looks = 0;
                continue;
            }
            if gone {
                return Err(Error::Gone);
            }
            look(&mut looks);
            if looks > LOOKS {
                looks = 0;
                bell::arm(&pipe.own.wait, arm::IN);
                let waits = pipe.look().1 > 0;
                if !waits {
                    let _ = calls::poll_one(self.fd, libc::POLLIN, -1);
                }
                bell::disarm(&self.pipe(channel, 1 - self.side).own.wait, arm::IN);
                self.drain()?;
            }
        }
        Ok(())
    }

    /// Whether the peer has taken all that was put into the ring of messages.
    pub(super) fn is_taken(&self) -> bool {
        self.pipe(0, self.side).unacknowledged() == 0
    }

    /// Whether bytes of messages wait.
    pub(super) fn waits(&self) -> bool {
        self.pipe(0, 1 - self.side).look().1 > 0
    }

    /// A ticket that came back, if one has. `lent`: there is something that the peer has to give back, so its end matters. What it gave
    /// back before it died is delivered.
    pub(super) fn ticket(&mut self, lent: bool) -> Result<Option<u64>, Error> {
        let gone = self.gone;
        let ticket = self.ticket_now()?;
        if ticket.is_some() || !lent {
            self.vain = 0;
            return Ok(ticket);
        }
        if gone {
            return Err(Error::Gone);
        }
        self.vain += 1;
        if self.vain < ENDED {
            return Ok(None);
        }
        self.vain = 0;
        self.gone = self.hung_up(0);
        match self.gone {
            true => self.ticket(lent),
            false => Ok(None),
        }
    }

    fn ticket_now(&mut self) -> Result<Option<u64>, Error> {
        let pipe = self.pipe(1, 1 - self.side);
        let (mut bytes, had) = self.part;
        // SAFETY: inside the array; one thread receives.
        let count = unsafe { pipe.receive(bytes.as_mut_ptr().add(had), 8 - had) }.map_err(|_| Violation::Record)?;
        if had + count < 8 {
            self.part = (bytes, had + count);
            return Ok(None);
        }
        self.part = ([0; 8], 0);
        Ok(Some(u64::from_le_bytes(bytes)))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for (fd, _) in self.pools.iter().filter(|pool| pool.0 >= 0) {
            let _ = calls::close(*fd);
        }
        let _ = calls::munmap(self.base, SIZE);
        let _ = calls::close(self.fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_goes_on_becomes_sleep() {
        assert_eq!((nap(0), nap(PATIENT - 1)), (None, None));
        let naps: Vec<i64> = (PATIENT..PATIENT + 1000).map(|looks| nap(looks).unwrap()).collect();
        assert!(naps.is_sorted() && naps[0] == 50_000 && naps[999] == LONGEST);
        assert_eq!(nap(u32::MAX), Some(LONGEST));
    }
}
