//! send, sendto, sendmsg, write on a datagram socket.

use super::cmsg_send::{self, Wishes};
use super::{flag, inbox_table, Datagram};
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_link::patience::Waited;
use shunt_ring::inbox::{Details, Inbox, Posted, Source};
use shunt_ring::lock;
use shunt_segment::address::Address;
use shunt_segment::inbox::ask;
use shunt_sys::libc::{self, iovec, msghdr};
use shunt_sys::{calls, cancel, clock, process, thread, Errno, Result};
use shunt_table::sockaddr;

/// What a call gives: our answer, or the result of the C library's own function.
pub enum Answer {
    /// Ours.
    Done(Result<isize>),
    /// Its, with errno set.
    Raw(isize),
}

/// Flags with which shared memory does what the kernel would do.
const KNOWN_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CONFIRM;

/// Most buffers of a vector (UIO_MAXIOV).
const MOST_PIECES: usize = 1024;

/// The longest payload of UDP over IPv4.
const LONGEST: usize = 65507;

/// sendmsg(2); `kernel` is the call as the program made it.
///
/// # Safety
/// As sendmsg(2).
#[inline]
pub unsafe fn send(fd: i32, socket: &'static Datagram, message: &msghdr, flags: i32, kernel: impl FnOnce() -> isize) -> Answer {
    let mut missed = Missed::Nothing;
    // SAFETY: passed on.
    if let Some(sent) = unsafe { post(fd, socket, message, flags, &mut missed) } {
        return Answer::Done(sent.map(|sent| sent as isize));
    }
    let unbound = socket.is_eager() && socket.inbox().is_none();
    let result = kernel();
    if result >= 0 && (flags & libc::MSG_MORE != 0) != socket.has(flag::UNFINISHED) {
        socket.flags.fetch_xor(flag::UNFINISHED, Ordering::Relaxed);
    }
    socket.through_kernel.fetch_or(USED | UNCHECKED, Ordering::Relaxed);
    match missed {
        Missed::Nothing => {}
        Missed::Inbox(inbox) => inbox.after_kernel(),
        Missed::Port(port) => inbox_table::passed_by(port),
        Missed::Any => inbox_table::all_passed_by(),
    }
    if unbound && result >= 0 {
        super::begin_eagerly(fd, socket); // the first datagram gave the socket its port
    }
    Answer::Raw(result)
}

/// What a datagram that goes through the kernel passes by.
enum Missed {
    Nothing,
    /// Its receiver's inbox.
    Inbox(Inbox),
    /// Whatever inboxes other sockets of the process know at this port.
    Port(u16),
    /// Not known: only the kernel understands where it goes.
    Any,
}

/// A call that the kernel alone understands sends on `socket`: no datagram that comes before or after overtakes what it sends.
pub fn through_kernel(socket: &'static Datagram, kernel: impl FnOnce() -> isize) -> isize {
    if let Some(_held) = socket.lock_send() {
        // SAFETY: the lock is held.
        unsafe { (*socket.routes.get()).inboxes() }.for_each(keep_before);
    }
    let result = cancel::guarded(kernel).unwrap_or(-1);
    socket.through_kernel.fetch_or(USED | UNCHECKED, Ordering::Relaxed);
    inbox_table::all_passed_by();
    result
}

/// What lies in `inbox` comes before what is sent through the kernel from now on.
fn keep_before(inbox: Inbox) {
    if inbox.before_kernel() {
        let_drain(&inbox);
    }
}

/// Puts the datagram into its receiver's inbox. `None`: the kernel's.
#[inline]
unsafe fn post(fd: i32, socket: &'static Datagram, message: &msghdr, flags: i32, missed: &mut Missed) -> Option<Result<usize>> {
    if !super::is_shared() {
        return None;
    }
    let Some(held) = socket.lock_send() else {
        socket.interrupted.store(1, Ordering::Relaxed);
        return None;
    };
    // SAFETY: the lock is held.
    let routes = unsafe { &mut *socket.routes.get() };
    if socket.interrupted.load(Ordering::Relaxed) != 0 {
        socket.interrupted.store(0, Ordering::Relaxed);
        routes.after_kernel();
    }
    // SAFETY: as sendmsg(2).
    let destination = unsafe { destination(fd, socket, message) };
    let v6 = destination.is_some_and(|destination| destination.as_v4().is_none());
    // SAFETY: as sendmsg(2).
    let wishes = if message.msg_controllen == 0 { Some(Wishes::default()) } else { unsafe { cmsg_send::read(message, v6) } };
    let (destination, wishes) = (destination.filter(|_| wishes.is_some()), wishes.unwrap_or_default());
    let found = destination.and_then(|destination| routes.place(&destination, &wishes).inbox(fd, socket));
    if let (Some(destination), Some((inbox, source))) = (destination, found) {
        let route = routes.place(&destination, &wishes);
        let plain = flags & !KNOWN_FLAGS != 0 || socket.has(flag::SEND_PLAIN | flag::UNFINISHED);
        if let (Some(source), false) = (source, plain || (source.is_some() && has_error(fd, socket))) {
            let details = details(fd, socket, &inbox, &destination, &wishes, route.interface);
            // SAFETY: passed on.
            match details.map_or((Posted::Kernel, 0), |details| unsafe { put(&inbox, source, details, message) }) {
                (Posted::Done, length) if !inbox.seems_crowded() => return Some(Ok(length)),
                (Posted::Done | Posted::Dropped, length) => {
                    drop(held);
                    pace(&inbox);
                    return Some(Ok(length));
                }
                (Posted::Fault, _) => return Some(Err(Errno(libc::EFAULT))),
                (Posted::Retired, _) => route.lose(),
                (Posted::Kernel, _) => {}
            }
        }
        *missed = Missed::Inbox(inbox);
    } else if let Some(destination) = destination {
        *missed = Missed::Port(destination.port);
    } else {
        *missed = Missed::Any;
        routes.inboxes().for_each(keep_before);
    }
    drop(held);
    if let Some((inbox, _)) = found {
        keep_before(inbox);
    }
    None
}

/// What the datagram tells beside its bytes and source; `None`: what the receiver asks for cannot be told.
#[inline(always)]
fn details(fd: i32, socket: &Datagram, inbox: &Inbox, to: &Address, wishes: &Wishes, interface: u32) -> Option<Details> {
    let asks = inbox.asks();
    if socket.has(flag::SHARED) && asks != 0 {
        socket.outgoing.forget(); // another process that has the socket may have set them
    }
    let (ttl, tos) = socket.outgoing.get(fd, socket, to.as_v4().is_none());
    let informed = asks & (ask::INFO | ask::INFO6) != 0;
    if informed && interface == 0 {
        return None;
    }
    Some(Details {
        to: to.ip,
        ttl: wishes.ttl.unwrap_or(ttl),
        tos: wishes.tos.unwrap_or(tos),
        segment: wishes.segment.map_or(socket.segment.load(Ordering::Relaxed) as u16, |size| size),
        interface: if informed { interface } else { 0 },
        moment: (clock::ticks() >> 8) as u32,
        stamp: if asks & ask::TIME != 0 { clock::realtime_ns() } else { 0 },
    })
}

/// Segments of one datagram that every kernel takes (UDP_MAX_SEGMENTS).
const MOST_SEGMENTS: usize = 64;

/// Writes the datagram, and gives its length.
#[inline]
unsafe fn put(inbox: &Inbox, mut source: Source, mut details: Details, message: &msghdr) -> (Posted, usize) {
    // SAFETY: as sendmsg(2).
    let Some(length) = (unsafe { length(message) }) else { return (Posted::Kernel, 0) };
    if details.segment != 0 {
        let size = details.segment as usize;
        if length <= size {
            details.segment = 0;
        } else if inbox.asks() & ask::JOINED == 0 || length > MOST_SEGMENTS * size {
            return (Posted::Kernel, 0); // cut up on its way, or refused
        }
    }
    // SAFETY: the calling thread's own block.
    source.processor = unsafe { (*thread::block()).processor } as u16;
    // SAFETY: the program's vector.
    let pieces = unsafe { pieces(message) }.iter().map(|piece| (piece.iov_base.cast_const().cast::<u8>(), piece.iov_len));
    let mut patience = Patience::of(*inbox);
    // SAFETY: the pieces are the program's.
    let posted = unsafe { inbox.post(thread::id(), &source, &details, pieces, length, |owner| patience.wait(owner)) };
    (posted, length)
}

/// Many datagrams wait, or this one was dropped: its sender goes on about as slowly as one that calls the kernel, so a
/// receiver that keeps up with the kernel loses nothing here.
#[cold]
fn pace(inbox: &Inbox) {
    let begun = clock::ticks();
    while clock::ticks().wrapping_sub(begun) < KERNELS_PACE && inbox.is_crowded() {
        core::hint::spin_loop();
    }
}

/// What the kernel takes for a datagram, at least, in ticks (about 0.6 us).
const KERNELS_PACE: u64 = 1_500;

/// Where the datagram goes.
#[inline]
unsafe fn destination(fd: i32, socket: &Datagram, message: &msghdr) -> Option<Address> {
    if message.msg_name.is_null() {
        return socket.peer(fd);
    }
    // SAFETY: as sendmsg(2).
    let (family, address) = unsafe { sockaddr::read(message.msg_name.cast(), message.msg_namelen) }?;
    (family == socket.family.load(Ordering::Relaxed)).then_some(address)
}

unsafe fn pieces(message: &msghdr) -> &[iovec] {
    if message.msg_iovlen == 0 {
        return &[];
    }
    // SAFETY: the program's vector; its length was checked by `length`.
    unsafe { core::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) }
}

/// Bytes of all buffers; `None`: the kernel's to refuse.
#[inline]
unsafe fn length(message: &msghdr) -> Option<usize> {
    if message.msg_iovlen > MOST_PIECES || (message.msg_iovlen > 0 && (message.msg_iov as usize) < 4096) {
        return None;
    }
    let mut total = 0usize;
    // SAFETY: checked above.
    for piece in unsafe { pieces(message) } {
        if piece.iov_len > LONGEST || (piece.iov_len > 0 && (piece.iov_base as usize) < 4096) {
            return None;
        }
        total += piece.iov_len;
    }
    (total <= LONGEST).then_some(total)
}

/// Bits of [`Datagram::through_kernel`]: some datagram went there, and errors that it brought have not been looked for since.
const USED: u32 = 1;
const UNCHECKED: u32 = 2;

impl Datagram {
    /// Whether datagrams went through the kernel since errors were last looked for.
    pub fn may_have_error(&self) -> bool {
        self.through_kernel.load(Ordering::Relaxed) & UNCHECKED != 0
    }
}

/// Whether an earlier datagram brought an error: that is this call's result.
#[inline]
pub(super) fn has_error(fd: i32, socket: &Datagram) -> bool {
    if socket.through_kernel.load(Ordering::Relaxed) & UNCHECKED == 0 {
        return false;
    }
    let found = calls::poll_one(fd, 0, 0).is_ok_and(|events| events & (libc::POLLERR | libc::POLLHUP) != 0);
    if !found {
        socket.through_kernel.fetch_and(!UNCHECKED, Ordering::Relaxed);
    }
    found
}

/// A datagram that goes through the kernel must not overtake those in the inbox. A receiver takes those first; only one
/// that has just looked there, and now looks at the kernel's queue, could do otherwise: it gets the time to finish.
fn let_drain(inbox: &Inbox) {
    let begun = clock::ticks();
    while !inbox.is_drained() && clock::ticks().wrapping_sub(begun) < LONGEST_DRAIN {
        core::hint::spin_loop();
    }
}

/// About 2 us in ticks.
const LONGEST_DRAIN: u64 = 5_000;

/// While another sender holds the inbox: it copies one datagram. A dead one leaves an inbox that is not used again.
pub struct Patience {
    /// Whose lock is waited for.
    inbox: Inbox,
    /// For how long so far.
    waited: Waited,
}

/// Holders never sleep: one that holds the lock this long, in ns, is dead, whatever its number says.
const LONGEST_HOLD: u64 = 2_000_000_000;

impl Patience {
    /// For the senders' lock of that inbox.
    pub fn of(inbox: Inbox) -> Patience {
        Patience { inbox, waited: Waited::default() }
    }

    #[cold]
    /// Thread `owner` has the lock: looks for a moment, and lets it go on where it needs the processor; a dead owner is found out.
    pub fn wait(&mut self, owner: u32) {
        let word = &self.inbox.header().lock;
        for _ in 0..64 {
            core::hint::spin_loop();
            if word.load(Ordering::Relaxed) != owner {
                return;
            }
        }
        if process::thread_has_ended(owner) || self.waited.look() > LONGEST_HOLD {
            self.inbox.retire();
            lock::revoke(word, owner);
        } else {
            calls::sched_yield();
        }
    }
}

/// The peer of a connected socket, as one word for "unknown" and the address.
pub struct Peer {
    known: AtomicU64,
    words: [AtomicU64; 3],
}

impl Peer {
    /// Unknown.
    pub fn forget(&self) {
        self.known.store(0, Ordering::Release);
    }
}

impl Datagram {
    /// The connected peer, asked of the kernel once.
    #[inline]
    fn peer(&self, fd: i32) -> Option<Address> {
        let peer = &self.peer;
        // Another process that has the socket may connect it anew.
        let known = if self.has(flag::SHARED) { 0 } else { peer.known.load(Ordering::Acquire) };
        match known {
            1 => {
                let words = [peer.words[0].load(Ordering::Relaxed), peer.words[1].load(Ordering::Relaxed)];
                Some(Address::from_words(words, peer.words[2].load(Ordering::Relaxed) as u16, 0))
            }
            2 => None,
            _ => self.learn_peer(fd),
        }
    }

    /// Under the lock for sending.
    #[cold]
    fn learn_peer(&self, fd: i32) -> Option<Address> {
        let mut bytes = [0u64; 4];
        let mut length = 28;
        if calls::getpeername(fd, bytes.as_mut_ptr().cast(), &mut length).is_err() {
            self.peer.known.store(2, Ordering::Release);
            return None;
        }
        // SAFETY: the kernel filled `length` bytes.
        let (_, address) = unsafe { sockaddr::read(bytes.as_ptr().cast(), length) }?;
        let words = address.words();
        self.peer.words[0].store(words[0], Ordering::Relaxed);
        self.peer.words[1].store(words[1], Ordering::Relaxed);
        self.peer.words[2].store(address.port as u64, Ordering::Relaxed);
        self.peer.known.store(1, Ordering::Release);
        Some(address)
    }
}
