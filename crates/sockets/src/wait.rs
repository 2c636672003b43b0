//! Waiting on one stream: spin, arm, check again, sleep on the companion; and ringing the peer's bell.

use crate::holding::Asleep;
use crate::readiness;
use crate::socket::{flag, Socket};
use crate::{global, link, spin, stamp, table};
use core::sync::atomic::{fence, Ordering};
use shunt_ring::bell;
use shunt_segment::channel::{arm, state, style};
use shunt_sys::libc::{self, timespec, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK};
use shunt_sys::{calls, clock, thread, Errno, Result};

const MEMBARRIER_GLOBAL_EXPEDITED: i32 = 1 << 1;

/// Ticks between questions to the kernel whether a silent peer still lives (about 20 us while spinning).
const CHECK_EVERY: u64 = 50_000;
/// The same, where bytes came since the last question (less than a millisecond).
const CHECK_EVERY_IF_HEARD: u64 = 2_000_000;

/// After publishing something: wakes the peer if it sleeps for `conditions`.
#[inline(always)]
pub fn notify(socket: &Socket, fd: i32, conditions: u32) {
    if socket.has(flag::FENCE) {
        fence(Ordering::SeqCst);
    }
    if conditions & arm::IN != 0 && bell::wants_stamp(&socket.peer().wait) {
        stamp::arrived(socket);
    }
    if bell::must_ring(&socket.peer().wait, conditions) {
        ring(socket, fd);
    }
}

/// More bytes were announced: the peer sees these if it is awake; a sleeping one is woken with the last piece, or when
/// this thread waits for anything.
#[cold]
pub fn cork(fd: i32) {
    uncork();
    // SAFETY: the calling thread's own block.
    unsafe { (*thread::block()).corked = fd as u32 + 1 };
}

/// Wakes the peer that [`cork`] left asleep.
pub fn uncork() {
    // SAFETY: the calling thread's own block.
    let corked = unsafe { core::mem::take(&mut (*thread::block()).corked) };
    if corked != 0 {
        if let Some(socket) = table::stream(corked as i32 - 1) {
            notify(socket, corked as i32 - 1, arm::IN);
        }
    }
}

/// One byte on the companion makes the peer's descriptor readable.
#[cold]
#[inline(never)]
pub fn ring(socket: &Socket, fd: i32) {
    if socket.has(flag::REMOTE) {
        return crate::remote::kick(socket);
    }
    if fd < 0 && socket.has(flag::FAR) {
        return crate::remote::ring_near(socket);
    }
    // Who sends and never waits is believed to be where it connected.
    let (here, shown) = (clock::processor() + 1, &socket.own().wait.processor);
    if shown.load(Ordering::Relaxed) != here {
        shown.store(here, Ordering::Relaxed);
    }
    socket.own().transmit.rung.fetch_add(1, Ordering::Relaxed);
    if socket.peer().asks_time.load(Ordering::Relaxed) != 0 {
        socket.own().rung_at.store(clock::realtime_ns(), Ordering::Release);
    }
    let byte = 1u8;
    let fd = socket.hold.number(fd);
    let _ = calls::sendto(fd, (&byte as *const u8).cast(), 1, MSG_DONTWAIT | MSG_NOSIGNAL, core::ptr::null(), 0);
}

/// Sleeps in a row after which the peer is asked to fence, and waits awake in a row after which no longer.
const OFTEN_ASLEEP: u32 = 4;
const OFTEN_AWAKE: u32 = 64;

/// Announces that this side sleeps for `conditions`; true if the caller must execute [`barrier`] before it checks
/// again.
pub fn announce(socket: &Socket, conditions: u32) -> bool {
    let wait = &socket.own().wait;
    let due = bell::arm(wait, conditions);
    if due {
        socket.spins.store(0, Ordering::Relaxed);
        if socket.sleeps.fetch_add(1, Ordering::Relaxed) >= OFTEN_ASLEEP {
            bell::agree_on_fences(wait, barrier);
        }
    }
    due
}

/// Bytes were taken, and each message rings: the bells are taken as well. Where times of arrival are asked for, the next
/// message must ring, although nobody sleeps.
#[cold]
pub fn arm_for_signals(socket: &Socket, fd: i32) {
    drain(socket, fd);
    if socket.has(flag::TIMED) && announce(socket, arm::IN) {
        barrier();
    }
}

/// Whether the peer wants a bell with each message, to be signalled.
#[inline]
pub fn peer_is_signalled(socket: &Socket) -> bool {
    socket.peer().wait.armed.load(Ordering::Relaxed) & arm::ALWAYS != 0
}

/// O_ASYNC: each message must ring, although nobody sleeps: the kernel turns the bell into SIGIO.
pub fn ring_always(socket: &Socket, on: bool) {
    bell::ask_always(&socket.own().wait, on);
    barrier();
}

/// As [`ring`], by an urgent byte: the kernel makes SIGURG of it for the companion's owner.
#[cold]
pub fn ring_urgent(socket: &Socket, fd: i32) {
    if socket.has(flag::REMOTE | flag::FAR) {
        return ring(socket, fd);
    }
    socket.own().transmit.rung.fetch_add(1, Ordering::Relaxed);
    let byte = 1u8;
    let flags = MSG_DONTWAIT | MSG_NOSIGNAL | libc::MSG_OOB;
    if calls::sendto(socket.hold.number(fd), (&raw const byte).cast(), 1, flags, core::ptr::null(), 0).is_err() {
        // Before Linux 5.15 such sockets have no urgent bytes.
        socket.own().transmit.rung.fetch_sub(1, Ordering::Relaxed);
        ring(socket, fd);
    }
}

/// A wait ended awake.
#[inline]
pub fn stayed_awake(socket: &Socket) {
    let spins = socket.spins.load(Ordering::Relaxed) + 1;
    socket.spins.store(spins, Ordering::Relaxed);
    if spins == OFTEN_AWAKE {
        socket.sleeps.store(0, Ordering::Relaxed);
        if socket.own().wait.armed.load(Ordering::Relaxed) & arm::FENCE != 0 {
            bell::ask_for_fences(&socket.own().wait, false);
        }
    }
}

/// The sleeper's half of the asymmetric fence: see `shunt_ring::bell`.
pub fn barrier() {
    fence(Ordering::SeqCst);
    if global::BARRIERS.load(Ordering::Relaxed) != 0 {
        let _ = calls::membarrier(MEMBARRIER_GLOBAL_EXPEDITED, 0, 0);
    }
}

/// Before sleeping: takes bells off that were rung for earlier waits, once other sleepers of this side have heard them.
/// `mine`: see [`crate::holding::Hold::let_others_hear`]. False: look again before sleeping.
pub fn take_heard(socket: &Socket, fd: i32, mine: impl Fn(u32) -> u32) -> bool {
    if socket.peer().transmit.rung.load(Ordering::Relaxed) == socket.own().receive.taken.load(Ordering::Relaxed) {
        return true;
    }
    if socket.has(flag::SHARED) && socket.own().wait.sleepers.load(Ordering::Relaxed) > 1 {
        // Other processes' sleepers are not counted by turns.
        let pause = timespec { tv_sec: 0, tv_nsec: 20_000 };
        let _ = calls::nanosleep(&pause, core::ptr::null_mut());
    }
    socket.hold.let_others_hear(mine, || drain(socket, fd))
}

/// Takes doorbells that were rung for earlier waits off the companion, so that the next one wakes.
pub fn drain(socket: &Socket, fd: i32) {
    let rung = socket.peer().transmit.rung.load(Ordering::Relaxed);
    if rung != socket.own().receive.taken.load(Ordering::Relaxed) {
        take_bells(socket, fd);
    }
}

#[cold]
fn take_bells(socket: &Socket, fd: i32) {
    let mut bytes = [0u8; 64];
    let fd = socket.hold.number(fd);
    match calls::recvfrom(fd, bytes.as_mut_ptr().cast(), 64, MSG_DONTWAIT, core::ptr::null_mut(), core::ptr::null_mut()) {
        Ok(0) => read_as_ended(socket),
        Ok(n) => {
            socket.own().receive.taken.fetch_add(n as u32, Ordering::Relaxed);
        }
        Err(Errno(libc::EAGAIN | libc::EINTR)) => {}
        Err(_) => readiness::note_gone(socket),
    }
}

/// Asks the kernel whether the peer's end still exists; at most every 20 us, or every millisecond while bytes come.
pub fn check_peer(socket: &Socket, fd: i32) {
    let now = clock::ticks();
    let since = now.wrapping_sub(socket.last_check.load(Ordering::Relaxed));
    if since < CHECK_EVERY {
        return;
    }
    // A program that waits in a set is told by it, and one that has just received need not ask at each end of its bytes.
    let received = socket.own().receive.position.load(Ordering::Relaxed) as u32;
    let heard = received != socket.received_at_check.load(Ordering::Relaxed);
    if heard && since < CHECK_EVERY_IF_HEARD {
        return;
    }
    socket.last_check.store(now, Ordering::Relaxed);
    socket.received_at_check.store(received, Ordering::Relaxed);
    if socket.has(flag::FENCE) {
        reconsider_fence(socket);
    }
    if let Ok(events) = calls::poll_one(socket.hold.number(fd), 0, 0) {
        if events & (libc::POLLHUP | libc::POLLERR) != 0 {
            readiness::note_gone(socket);
        }
    }
}

/// A first connection begins before the peer has said that it issues barriers.
pub fn reconsider_fence(socket: &Socket) {
    let header = link::header(socket.link());
    let peer = if socket.side() == 0 { &header.server } else { &header.client };
    if peer.barrier.load(Ordering::Acquire) == 1 && global::BARRIERS.load(Ordering::Relaxed) == 1 {
        socket.clear(flag::FENCE);
    }
}

/// Waits until `conditions` may hold. `deadline` in CLOCK_MONOTONIC ns, `u64::MAX`: none.
///
/// Errors: EAGAIN at the deadline; EINTR as recv(2) gives it (the kernel restarts the sleep when the handler was
/// installed with SA_RESTART and there is no deadline, exactly as for a TCP socket); EBADF when the socket had been
/// closed before. When another thread closes it now, the caller goes on ([`crate::holding`]). `began` is [`thread::handled`] when the call began: a handler that ran since, in the middle of a
/// copy or a spin, interrupts it as well.
#[inline(never)]
pub fn wait(socket: &Socket, fd: i32, conditions: u32, deadline: u64, began: u64) -> Result<()> {
    let generation = socket.generation.load(Ordering::Acquire);
    let own = &socket.own().wait;
    if socket.has(flag::FENCE) {
        reconsider_fence(socket);
    }
    let mut spin = spin::begin(socket.peer().wait.processor.load(Ordering::Relaxed));
    spin::show_processor(own);
    // The kernel signals nobody while the call is asleep: a spinning one would be signalled (sk_wait_data).
    while !socket.has(flag::ASYNC) && spin.more() {
        if readiness::any(socket, conditions) {
            spin.end();
            stayed_awake(socket);
            return Ok(());
        }
        if socket.has(flag::REMOTE) {
            crate::remote::drive();
        }
        if spin.rounds() & 0xfff == 0xfff {
            check_peer(socket, fd);
        }
    }
    set_style(socket, style::SLEEP);
    // Before the account: a handler that closes it has run since, and keeps the thread from sleeping.
    let looked = thread::handled();
    let mut asleep = Asleep::new(socket);
    // SAFETY: the account stays here, and ends below.
    let beside = unsafe {
        if conditions & arm::OUT != 0 {
            asleep.begin_for_space()
        } else {
            asleep.begin();
            -1
        }
    };
    let result = if socket.hold.is_open(socket) {
        match take_heard(socket, fd, |turn| asleep.waits(turn)) {
            true => sleep(socket, [socket.hold.number(fd), beside], conditions, deadline, [began, looked]),
            false => Ok(()),
        }
    } else {
        Err(Errno(libc::EBADF))
    };
    // SAFETY: begun above.
    unsafe { asleep.end() };
    spin.end();
    if result.is_ok() && socket.generation.load(Ordering::Acquire) != generation {
        return Err(Errno(libc::EBADF));
    }
    result
}

/// Tells tools how this side waits; written only when it changes, because the peer reads the line after each send.
pub fn set_style(socket: &Socket, style: u32) {
    let shown = &socket.own().wait.style;
    if shown.load(Ordering::Relaxed) != style {
        shown.store(style, Ordering::Relaxed);
    }
}

/// Sleeps on the companion, the first of `fds`, and beside the second, if there is one ([`crate::nudge`]).
fn sleep(socket: &Socket, fds: [i32; 2], conditions: u32, deadline: u64, [began, looked]: [u64; 2]) -> Result<()> {
    let [fd, beside] = fds;
    if socket.own().receive.state.load(Ordering::Relaxed) & state::SHUT_RD != 0 {
        // The companion reads as ended: no bell can wake us.
        check_peer(socket, fd);
        return match calls::nap(50_000) {
            Err(Errno(libc::EINTR)) => thread::resume(began, looked, deadline == u64::MAX),
            other => other,
        };
    }
    if announce(socket, conditions & readiness::CONDITIONS) {
        barrier();
    }
    let watch = if socket.has(flag::REMOTE) { crate::remote::watch() } else { Some(crate::remote::Watch::default()) };
    let Some(watch) = watch else { return Ok(()) };
    if readiness::any(socket, conditions) {
        return Ok(());
    }
    if thread::interrupted_since(began, deadline == u64::MAX) {
        return Err(Errno(libc::EINTR));
    }
    if deadline == u64::MAX {
        let slept = if beside < 0 && watch.descriptor() < 0 {
            sleep_for_ever(socket, fd, conditions, looked)
        } else {
            sleep_in_poll(socket, [fd, beside, watch.descriptor()], -1, looked)
        };
        return match slept {
            Err(Errno(libc::EINTR)) => thread::resume(began, looked, true),
            other => other,
        };
    }
    match deadline.saturating_sub(clock::monotonic_ns()) {
        0 => Err(Errno(libc::EAGAIN)),
        left => sleep_in_poll(socket, [fd, beside, watch.descriptor()], left as i64, looked),
    }
}

fn sleep_in_poll(socket: &Socket, fds: [i32; 3], timeout_ns: i64, looked: u64) -> Result<()> {
    let events = poll_companion(fds, timeout_ns, looked)?;
    if events & (libc::POLLHUP | libc::POLLERR) != 0 {
        readiness::note_gone(socket);
    }
    Ok(())
}

/// Sleeps in poll on the companion; `timeout_ns` negative: for ever. `looked`: see [`shunt_sys::raw::sleep6`].
fn poll_companion(fds: [i32; 3], timeout_ns: i64, looked: u64) -> Result<i16> {
    let mut set = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // Those that are not there are negative, and passed over.
    let count = fds.iter().rposition(|fd| *fd >= 0).map_or(0, |last| last + 1);
    let mut time = timespec { tv_sec: timeout_ns / 1_000_000_000, tv_nsec: timeout_ns % 1_000_000_000 };
    let time = if timeout_ns < 0 { core::ptr::null_mut() } else { &mut time };
    calls::ppoll_sleeping(set.as_mut_ptr(), count, time, core::ptr::null(), looked)?;
    Ok(set[0].revents)
}

/// Sleeps in recv on the companion, so that one system call waits and takes. Alone, the sleeper takes the doorbell with
/// it; others may sleep on it too, so then it only looks.
fn sleep_for_ever(socket: &Socket, fd: i32, conditions: u32, looked: u64) -> Result<()> {
    let alone = socket.alone();
    let mut bytes = [0u8; 64];
    let flags = if alone { 0 } else { MSG_PEEK };
    let room = if alone { 64 } else { 1 };
    match calls::recvfrom_sleeping(fd, bytes.as_mut_ptr().cast(), room, flags, looked) {
        Ok(0) => {
            read_as_ended(socket);
            if !readiness::any(socket, conditions) {
                // A companion that reads as ended cannot be slept on; should memory say otherwise, look now and then.
                return calls::nap(1_000_000);
            }
        }
        Ok(n) if alone => {
            socket.own().receive.taken.fetch_add(n as u32, Ordering::Relaxed);
        }
        Ok(_) => yield_to_other_sleepers(socket),
        // Somebody made the open file non-blocking: sleep in poll instead.
        Err(Errno(libc::EAGAIN)) => sleep_in_poll(socket, [fd, -1, -1], -1, looked)?,
        Err(Errno(error @ (libc::EINTR | libc::ECANCELED))) => return Err(Errno(error)),
        Err(_) => readiness::note_gone(socket),
    }
    Ok(())
}

/// The companion reads as ended: the peer is gone, unless we shut its receiving half down ourselves.
fn read_as_ended(socket: &Socket) {
    if socket.own().receive.state.load(Ordering::Relaxed) & state::SHUT_RD == 0 {
        readiness::note_gone(socket);
    }
}

/// One bell may have been for another sleeper of this side: it must see the byte before we take it away.
fn yield_to_other_sleepers(socket: &Socket) {
    if socket.own().wait.sleepers.load(Ordering::Relaxed) > 1 && readiness::any(socket, arm::IN | arm::OUT) {
        let pause = timespec { tv_sec: 0, tv_nsec: 20_000 };
        let _ = calls::nanosleep(&pause, core::ptr::null_mut());
    }
}

/// Whether a call on the socket must not wait. Where other processes share the open file, they may have changed its
/// flag: then the kernel is asked, before waiting and before refusing to.
#[inline(always)]
pub fn nonblocking(socket: &Socket, fd: i32, flags: i32) -> bool {
    if flags & MSG_DONTWAIT != 0 {
        return true;
    }
    if socket.has(flag::SHARED) {
        let flags = calls::fcntl(socket.hold.number(fd), libc::F_GETFL, 0).unwrap_or(0);
        return flags & libc::O_NONBLOCK != 0;
    }
    socket.has(flag::NONBLOCK)
}
