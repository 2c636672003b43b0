//! recv, recvfrom, recvmsg, read on a datagram socket.
//!
//! The inbox comes first, because a sender leaves it for the kernel only when it is empty; the kernel's queue is looked at
//! every 20 us of receiving, when the gate opens after a sleep, and before sleeping. The sleep itself is the program's own
//! call.

pub use super::send::Answer;
use super::{cmsg_recv, flag, fork_sharing, inbox_table, send, Datagram};
use core::sync::atomic::Ordering;
use shunt_ring::inbox::{Details, Front, Inbox};
use shunt_segment::address::Address;
use shunt_stream::control::Writer;
use shunt_stream::waiting::spin::{self, Spin};
use shunt_stream::waiting::until::{until, Look, Source};
use shunt_sys::libc::{self, iovec, msghdr, MSG_DONTWAIT};
use shunt_sys::{calls, cancel, clock, thread, Errno, Result};
use shunt_table::sockaddr::Encoded;

/// Ticks between two looks at the kernel's queue while datagrams come through the inbox (about 20 us).
const ASK_EVERY: u64 = 50_000;

/// recvmsg(2); `kernel` is the call as the program made it.
///
/// # Safety
/// As recvmsg(2).
#[inline]
pub unsafe fn receive(
    fd: i32,
    socket: &'static Datagram,
    message: &mut msghdr,
    flags: i32,
    kernel: impl FnOnce() -> isize,
) -> Answer {
    if fork_sharing::watching() {
        fork_sharing::look();
    }
    let inbox = match socket.inbox() {
        Some(inbox) if flags & libc::MSG_ERRQUEUE == 0 && sound(message) => inbox,
        Some(_) => return Answer::Raw(kernel()),
        None => match first_inbox(fd, socket, flags) {
            Some(inbox) => inbox,
            None if socket.nonblocking(fd, flags) => return Answer::Raw(count(socket, kernel())),
            None => {
                let entered = super::before_sleep(socket);
                let got = cancel::guarded(kernel).unwrap_or(-1);
                super::after_sleep(socket, entered);
                return Answer::Raw(count(socket, got));
            }
        },
    };
    let began = thread::handled();
    let mut kernel = Some(kernel);
    // The datagram before which the kernel's queue was seen empty.
    let mut asked_before = u64::MAX;
    loop {
        if let Some(front) = inbox.front() {
            let now = clock::ticks();
            let asks =
                now.wrapping_sub(socket.asked.load(Ordering::Relaxed)) > ASK_EVERY || socket.turn.load(Ordering::Relaxed) != 0;
            let due = asks && kernels_turn(fd, socket, &inbox, &front, now);
            // An error comes before everything that waits (`__skb_try_recv_datagram` after `sock_error`).
            let due = due || send::has_error(fd, socket);
            if due && asked_before != front.position() {
                asked_before = front.position();
                inbox_table::visitors(socket, now);
                // SAFETY: the program's message.
                if let Some(result) = unsafe { take_from_kernel(fd, socket, &inbox, message, flags, now) } {
                    return Answer::Done(result);
                }
            }
            // SAFETY: the program's message.
            if let Some(result) = unsafe { deliver(fd, socket, &inbox, &front, message, flags) } {
                return Answer::Done(result.map(|got| got as isize));
            }
            inbox.straighten(&front);
            continue;
        }
        if socket.nonblocking(fd, flags) {
            let now = clock::ticks();
            inbox_table::visitors(socket, now);
            inbox.open();
            // SAFETY: the program's message.
            return match unsafe { ask_kernel(fd, socket, &inbox, message, flags, now) } {
                Some(result) => Answer::Done(result),
                None if inbox.front().is_some() => continue,
                None => Answer::Done(Err(Errno(libc::EAGAIN))),
            };
        }
        // SAFETY: the program's message, for as long as the call.
        match until(&mut Datagrams { fd, socket, inbox: &inbox, message, flags, kernel: &mut kernel, began, spins_since: None }) {
            Some(answer) => return answer,
            None => continue,
        }
    }
}

/// What a receive on a datagram socket waits for.
struct Datagrams<'a, K> {
    fd: i32,
    socket: &'static Datagram,
    inbox: &'a Inbox,
    message: &'a mut msghdr,
    flags: i32,
    /// The call as the program made it, until it is made.
    kernel: &'a mut Option<K>,
    began: u64,
    /// When the gate was opened for looks, in ticks.
    spins_since: Option<u64>,
}

impl<K> Datagrams<'_, K> {
    /// Before the first look: opens the gate. False: looks are of no use.
    fn open(&mut self) -> bool {
        let opened = self.inbox.open();
        self.spins_since = opened.then(clock::ticks);
        opened
    }

    /// The call's answer, if the kernel has one.
    fn ask_kernel(&mut self, now: u64) -> Option<Answer> {
        // SAFETY: the program's message.
        let asked = unsafe { ask_kernel(self.fd, self.socket, self.inbox, self.message, self.flags, now) };
        asked.map(Answer::Done)
    }

    fn looked(&mut self) {
        if let Some(begun) = self.spins_since.take() {
            spun(self.socket, begun);
        }
    }
}

impl<K: FnOnce() -> isize> Source for Datagrams<'_, K> {
    /// `None`: the inbox holds something.
    type Outcome = Option<Answer>;
    type Slept = Option<Answer>;

    fn begin(&mut self) -> Spin {
        let spin = spin::begin(self.socket.peer_processor.load(Ordering::Relaxed));
        // On one processor the kernel hands over best: it wakes a sleeper at once.
        match spin.same_processor || rests(self.socket) {
            true => spin.at_once(),
            false => spin,
        }
    }

    #[inline(always)]
    fn look(&mut self, spin: &Spin) -> Look<Option<Answer>> {
        if self.spins_since.is_none() {
            if !self.open() {
                return Look::Sleep;
            }
            // Senders that used the kernel wait for this: its queue is empty. Others have the kernel alone.
            if self.inbox.is_behind() || self.socket.has(flag::INET) {
                if let Some(answer) = self.ask_kernel(clock::ticks()) {
                    return Look::Found(Some(answer));
                }
            }
        }
        if self.inbox.front().is_some() {
            self.looked();
            return Look::Found(None);
        }
        let seldom = if self.socket.has(flag::INET) { 7 } else { 0x1ff };
        if spin.rounds() & seldom == seldom {
            let now = clock::ticks();
            inbox_table::visitors(self.socket, now);
            if let Some(answer) = self.ask_kernel(now) {
                self.looked();
                return Look::Found(Some(answer));
            }
        }
        Look::Nothing
    }

    fn sleep(&mut self, _: &Spin) -> Option<Answer> {
        self.looked();
        let entered = super::before_sleep(self.socket);
        let slept = if self.inbox.front().is_some() {
            None
        } else if thread::interrupted_since(self.began, true) {
            Some(Answer::Done(Err(Errno(libc::EINTR))))
        } else {
            self.kernel.take().map(|kernel| Answer::Raw(cancel::guarded(kernel).unwrap_or(-1)))
        };
        super::after_sleep(self.socket, entered);
        slept
    }

    fn woken(&mut self, slept: Option<Answer>) -> Option<Option<Answer>> {
        Some(match slept {
            Some(Answer::Raw(got)) => Some(Answer::Raw(count(self.socket, got))),
            other => other,
        })
    }
}

/// Whether a datagram lies in the inbox, or comes there within about as long as an answer takes that is on its way. `None`: looking is of no
/// use: the kernel's queue is due to be looked at, the peer is on this processor, or waits are long.
#[inline]
pub fn comes(socket: &'static Datagram) -> Option<bool> {
    let inbox = socket.inbox().filter(|_| !fork_sharing::watching())?;
    if inbox.front().is_some() {
        return Some(true);
    }
    let asked = socket.asked.load(Ordering::Relaxed);
    if clock::ticks().wrapping_sub(asked) > ASK_EVERY || rests(socket) || !inbox.open() || inbox.is_behind() {
        return None;
    }
    spin::comes_to(socket.peer_processor.load(Ordering::Relaxed), || inbox.front().is_some())
}

/// A wait that lasts this long in ticks (about 0.4 ms) gave the processor to others by a yield.
const LONG_WAIT: u64 = 1_000_000;
/// Waits that then sleep at once, at least and at most.
const LEAST_REST: u32 = 256;
const MOST_REST: u32 = 1 << 14;

/// Whether this wait is to sleep at once: the kernel wakes a sleeper ahead of those that compute, which a yield does not.
#[inline]
fn rests(socket: &Datagram) -> bool {
    let left = socket.resting.load(Ordering::Relaxed);
    if left != 0 {
        socket.resting.store(left - 1, Ordering::Relaxed);
    }
    left != 0
}

/// Takes note of a wait that span since `begun`.
#[inline]
fn spun(socket: &Datagram, begun: u64) {
    let rest = socket.rest.load(Ordering::Relaxed);
    if clock::ticks().wrapping_sub(begun) > LONG_WAIT {
        let rest = (2 * rest).clamp(LEAST_REST, MOST_REST);
        socket.rest.store(rest, Ordering::Relaxed);
        socket.resting.store(rest, Ordering::Relaxed);
    } else if rest != 0 {
        socket.rest.store(rest - rest.div_ceil(64), Ordering::Relaxed);
    }
}

/// A message header that the kernel would not refuse.
#[inline]
fn sound(message: &msghdr) -> bool {
    message.msg_iovlen <= 1024 && (message.msg_iovlen == 0 || message.msg_iov as usize >= 4096)
}

/// Whether this call makes the inbox: datagrams come, and the thread would spin for the next one.
#[inline]
pub fn first_inbox(fd: i32, socket: &'static Datagram, flags: i32) -> Option<Inbox> {
    if !socket.worthwhile() || flags & libc::MSG_ERRQUEUE != 0 {
        return None;
    }
    // A thread that asks without waiting, about a socket in no set, asks again and again.
    if !socket.is_eager() && !socket.nonblocking(fd, flags) && !spin::begin(0).more() {
        return None;
    }
    inbox_table::make(fd, socket);
    socket.inbox()
}

/// Counts what came through the kernel.
#[inline]
pub fn count(socket: &Datagram, got: isize) -> isize {
    if socket.turn.load(Ordering::Relaxed) != 0 {
        socket.turn.store(0, Ordering::Relaxed); // what is first there now is another one
    }
    let received = socket.received.load(Ordering::Relaxed);
    if got >= 0 && received < super::ENOUGH {
        socket.received.store(received + 1, Ordering::Relaxed);
    }
    got
}

/// Whether the kernel's queue has its turn before `front`: what is first there came earlier, or is an error.
#[cold]
pub(super) fn kernels_turn(fd: i32, socket: &Datagram, inbox: &Inbox, front: &Front, now: u64) -> bool {
    const SEEN: u64 = 1 << 32;
    let mut turn = socket.turn.load(Ordering::Relaxed);
    if turn == 0 {
        let look = inbox.begin_look();
        match calls::poll_one(fd, libc::POLLIN, 0) {
            Ok(0) => {
                socket.asked.store(now, Ordering::Relaxed);
                inbox.note_drained(look);
                inbox_table::visitors(socket, now);
                return false;
            }
            Ok(events) if events & libc::POLLERR == 0 => {}
            _ => return true,
        }
        turn = SEEN | kernels_moment(fd) as u64;
        socket.turn.store(turn, Ordering::Relaxed);
    }
    // Before the barrier ours come first, as their senders know, but for datagrams of others that waited long before.
    let margin = if inbox.may_yield(front) { 0 } else { 10 };
    let kernels = front.moment.wrapping_sub(turn as u32) as i32 > margin;
    if kernels {
        socket.turn.store(0, Ordering::Relaxed);
    }
    kernels
}

/// When the first datagram in the kernel's queue came there, in CLOCK_REALTIME's nanoseconds.
///
/// A socket that was once asked for its time stamp (SIOCGSTAMPNS, as `inbox_table::make` does) keeps that of the last datagram
/// that any thread received or peeked at; one with SO_TIMESTAMP tells it in a control message instead, the first one of all
/// (`sock_recv_cmsgs`).
fn kernels_stamp(fd: i32) -> Option<u64> {
    let mut control = [0u64; 16];
    // SAFETY: all-zero is a valid header.
    let mut message: msghdr = unsafe { core::mem::zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = core::mem::size_of_val(&control);
    let _ = calls::recvmsg(fd, &mut message, libc::MSG_PEEK | MSG_DONTWAIT);
    if message.msg_controllen >= 32 && control[1] as i32 == libc::SOL_SOCKET {
        let seconds = control[2].wrapping_mul(1_000_000_000);
        match (control[1] >> 32) as i32 {
            // Rather too late than too early: see `kernels_moment`.
            libc::SO_TIMESTAMP | 63 => return Some(seconds.wrapping_add(control[3].wrapping_mul(1000).wrapping_add(999))),
            libc::SO_TIMESTAMPNS | 64 => return Some(seconds.wrapping_add(control[3])),
            _ => {}
        }
    }
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    calls::ioctl(fd, SIOCGSTAMPNS, (&mut at as *mut libc::timespec) as usize).ok()?;
    Some((at.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(at.tv_nsec as u64))
}

/// The same in units of [`Front::moment`].
fn kernels_moment(fd: i32) -> u32 {
    let Some(stamp) = kernels_stamp(fd) else { return (clock::ticks() >> 8) as u32 };
    // Both clocks at once, or nearly. The counter is read last: an error makes the kernel's datagram seem younger by less
    // than its sender's call took.
    let (mut time, mut now) = (0, 0);
    for _ in 0..8 {
        let begun = clock::ticks();
        time = clock::realtime_ns();
        now = clock::ticks();
        if now.wrapping_sub(begun) < AT_ONCE {
            break;
        }
    }
    (now.wrapping_sub(clock::ticks_passed(time.saturating_sub(stamp))) >> 8) as u32
}

/// A look at the clock takes less in ticks, unless something came in between.
const AT_ONCE: u64 = 1_500;

/// SIOCGSTAMPNS_OLD of asm-generic/sockios.h.
pub(super) const SIOCGSTAMPNS: u64 = 0x8907;

/// Looks at the kernel's queue and errors without waiting, with nothing in the inbox: the call's result, or `None` if there
/// is nothing, or something came into the inbox that may have been sent before.
unsafe fn ask_kernel(
    fd: i32,
    socket: &Datagram,
    inbox: &Inbox,
    message: &mut msghdr,
    flags: i32,
    now: u64,
) -> Option<Result<isize>> {
    // Where nobody sends by memory there is nothing to compare with.
    if (super::is_shared() || !socket.has(flag::INET)) && inbox.may_take() {
        let look = inbox.begin_look();
        match calls::poll_one(fd, libc::POLLIN, 0) {
            Ok(0) => {
                socket.asked.store(now, Ordering::Relaxed);
                inbox.note_drained(look);
                return None;
            }
            Ok(events) if events & libc::POLLERR == 0 && inbox.front().is_some() => {
                socket.asked.store(0, Ordering::Relaxed); // which of them is older is asked next
                return None;
            }
            _ => {}
        }
    }
    // SAFETY: passed on.
    unsafe { take_from_kernel(fd, socket, inbox, message, flags, now) }
}

/// Takes what is first in the kernel's queue, or an error.
unsafe fn take_from_kernel(
    fd: i32,
    socket: &Datagram,
    inbox: &Inbox,
    message: &mut msghdr,
    flags: i32,
    now: u64,
) -> Option<Result<isize>> {
    socket.asked.store(now, Ordering::Relaxed);
    socket.turn.store(0, Ordering::Relaxed); // what is first there then is another one
    let look = inbox.begin_look();
    match calls::recvmsg(fd, message, flags | MSG_DONTWAIT) {
        Err(Errno(libc::EAGAIN)) => {
            inbox.note_drained(look);
            None
        }
        other => {
            socket.asked.store(0, Ordering::Relaxed); // there may be more
            Some(other.map(|got| got as isize))
        }
    }
}

/// Gives the datagram to the program; `None`: another receiver took it.
#[inline(always)]
unsafe fn deliver(
    fd: i32,
    socket: &Datagram,
    inbox: &Inbox,
    front: &Front,
    message: &mut msghdr,
    flags: i32,
) -> Option<Result<usize>> {
    let pieces: &[iovec] = if message.msg_iovlen == 0 {
        &[]
    } else {
        // SAFETY: the program's vector, see `sound`.
        unsafe { core::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) }
    };
    // SAFETY: the program's buffers.
    let copied = unsafe { inbox.copy(front, pieces.iter().map(|piece| (piece.iov_base.cast::<u8>(), piece.iov_len))) };
    let asks = inbox.asks();
    let details = if asks != 0 { inbox.details(front) } else { Details::default() };
    let ours = if flags & libc::MSG_PEEK != 0 { inbox.still(front) } else { inbox.take(front) };
    if !ours {
        return None;
    }
    socket.peer_processor.store(front.source.processor as u32, Ordering::Relaxed);
    let Some(copied) = copied else {
        return Some(Err(Errno(libc::EFAULT))); // the datagram is lost, as in the kernel
    };
    let truncated = copied < front.length;
    if !message.msg_name.is_null() {
        let source = &front.source;
        let mut address = Address { ip: source.ip, port: source.port, scope: source.scope };
        if !source.v6 {
            address = Address::v4([source.ip[12], source.ip[13], source.ip[14], source.ip[15]], source.port);
        }
        let encoded = Encoded::new(socket.family.load(Ordering::Relaxed), &address);
        // SAFETY: the program's buffer of msg_namelen bytes, which may fault.
        if let Err(error) = unsafe { encoded.write(message.msg_name.cast(), &mut message.msg_namelen) } {
            return Some(Err(error));
        }
    }
    message.msg_flags = (flags & libc::MSG_CMSG_CLOEXEC) | if truncated { libc::MSG_TRUNC } else { 0 };
    if asks == 0 {
        message.msg_controllen = 0;
    } else {
        let mut writer = Writer::new(message);
        // SAFETY: the program's buffer.
        unsafe { cmsg_recv::tell(fd, socket, asks, &front.source, &details, &mut writer) };
        writer.finish();
    }
    Some(Ok(if flags & libc::MSG_TRUNC != 0 { front.length } else { copied }))
}
