//! Waiting on one stream: spin, arm, check again, sleep on the companion.

use crate::progress::{Posting, Watch};
use crate::socket::{flag, Socket};
use crate::waiting::bells::Listening;
use crate::waiting::holding::Asleep;
use crate::waiting::spin::Spin;
use crate::waiting::until::{until, Look, Source};
use crate::waiting::wake::{announce, barrier, check_peer, notify, reconsider_fence, stayed_awake};
use crate::waiting::{bells, holding, readiness, spin};
use crate::{beside, corked, deadlines, due};
use core::sync::atomic::Ordering;
use shunt_segment::channel::{arm, style, word};
use shunt_sys::libc::{self, timespec, MSG_PEEK};
use shunt_sys::sleeper::counted;
use shunt_sys::{clock, sleeping, stops, thread, Errno, Result};

/// How long one sleeps whom no bell can wake, in ns.
const DEAF: i64 = 50_000;

/// The same where the companion says again and again that it has ended, and memory does not.
const ENDED: i64 = 1_000_000;

/// In the place of what a call sleeps beside: it was to sleep in recv.
const IN_RECV: i32 = -2;

/// Waits until `conditions` may hold. `deadline` in CLOCK_MONOTONIC ns, `u64::MAX`: none.
///
/// Errors: EAGAIN at the deadline; EINTR as recv(2) gives it (the kernel restarts the sleep when the handler was
/// installed with SA_RESTART and there is no deadline, exactly as for a TCP socket); EBADF when the socket had been
/// closed before. Where the stream has become the kernel's ([`is_carried`](crate::socket::parts::Hold::is_carried)), the caller goes on there ([`crate`]'s `carried`). When another thread closes it now, the caller goes on ([`crate::waiting::holding`]). `began` is [`thread::handled`] when the call began: a handler that ran since, in the middle of a
/// copy or a spin, interrupts it as well.
pub fn wait(socket: &Socket, fd: i32, conditions: u32, deadline: u64, began: u64) -> Result<()> {
    wait_into(socket, fd, conditions, deadline, began, None)
}

/// As [`wait`], for a receiver whose buffer takes what comes next; it ends, too, when that holds something.
#[inline(never)]
pub fn wait_into(
    socket: &Socket,
    fd: i32,
    conditions: u32,
    deadline: u64,
    began: u64,
    posting: Option<&mut Posting>,
) -> Result<()> {
    let generation = socket.generation.load(Ordering::Acquire);
    if socket.has(flag::CUT) && beside::leave(socket, fd, false) {
        return Ok(());
    }
    if socket.has(flag::FENCE) {
        reconsider_fence(socket);
    }
    until(&mut Conditions { socket, fd, conditions, deadline, began, posting, generation })
}

/// What a call on one stream waits for.
struct Conditions<'a> {
    socket: &'a Socket,
    fd: i32,
    conditions: u32,
    deadline: u64,
    began: u64,
    posting: Option<&'a mut Posting>,
    /// The socket's life when the call began.
    generation: u32,
}

impl Source for Conditions<'_> {
    type Outcome = Result<()>;
    /// What the sleep gave; false: the thread did not come to sleep, as others were woken and have not looked.
    type Slept = (Result<()>, bool);

    fn begin(&mut self) -> Spin {
        let spin = spin::begin(self.socket.peer().wait.processor.load(Ordering::Relaxed));
        spin::show_processor(&self.socket.own().wait);
        // The kernel sends no signal while the call is asleep: a spinning one would be signalled (sk_wait_data).
        match self.socket.has(flag::ASYNC) {
            true => spin.at_once(),
            false => spin,
        }
    }

    #[inline(always)]
    fn look(&mut self, spin: &Spin) -> Look<Result<()>> {
        if self.socket.has(flag::REMOTE) {
            crate::progress::drive_into(self.posting.as_deref_mut());
        }
        if self.is_there() {
            stayed_awake(self.socket);
            return Look::Found(Ok(()));
        }
        if spin.rounds() & 0xfff == 0xfff {
            check_peer(self.socket, self.fd);
        }
        Look::Nothing
    }

    fn sleep(&mut self, _: &Spin) -> (Result<()>, bool) {
        let socket = self.socket;
        beside::drive();
        set_style(socket, style::SLEEP);
        // Before the account: a handler that closes it has run since, and keeps the thread from sleeping.
        let looked = thread::handled();
        // A sleep in recv keeps its file; one in poll has numbers.
        let in_poll = self.conditions & arm::OUT != 0
            || self.deadline != u64::MAX
            || deadlines::next() != u64::MAX
            || corked::expected(socket)
            || socket.connected.stalled.limited()
            || socket.has(flag::SHARED | flag::REMOTE);
        let account = if in_poll { Asleep::beside(socket) } else { Asleep::on(socket) };
        counted(account, |open| {
            let beside = if in_poll { open.with(|account| account.descriptor()).unwrap_or(-1) } else { IN_RECV };
            let mut heard = true;
            let result = if socket.hold.is_open(socket) {
                heard = bells::take_heard(socket, self.fd, 1);
                match heard {
                    true => {
                        let fds = [socket.hold.number(self.fd), beside];
                        sleep(socket, fds, self.conditions, self.deadline, [self.began, looked], self.posting.as_deref_mut())
                    }
                    false => Ok(()),
                }
            } else {
                Err(Errno(libc::EBADF))
            };
            if result.is_ok() && !self.is_there() {
                holding::go_on(socket);
            }
            (result, heard)
        })
    }

    /// Whatever woke it: the caller looks.
    fn woken(&mut self, (mut result, heard): (Result<()>, bool)) -> Option<Result<()>> {
        let Conditions { socket, conditions, deadline, began, .. } = *self;
        if !heard {
            let looked = thread::handled();
            result = look_again(socket, conditions, deadline, began);
            if result.is_ok() && !readiness::any(socket, conditions) {
                result = match socket.hold.let_others_go(deadline, core::ptr::null(), looked) {
                    Ok(()) | Err(Errno(libc::EINTR)) => look_again(socket, conditions, deadline, began),
                    other => other,
                };
            }
        }
        if socket.hold.is_carried() && result != Err(Errno(libc::ECANCELED)) {
            return Some(Ok(())); // also where a handler ran: the call goes on elsewhere, and finds that
        }
        if result.is_ok() && socket.generation.load(Ordering::Acquire) != self.generation {
            return Some(Err(Errno(libc::EBADF)));
        }
        Some(result)
    }
}

impl Conditions<'_> {
    /// Whether the conditions may hold, or the receiver's buffer holds something.
    #[inline(always)]
    fn is_there(&self) -> bool {
        readiness::any(self.socket, self.conditions) || self.posting.as_ref().is_some_and(|posting| posting.taken > 0)
    }
}

/// What ends a wait that did not come to sleep: nothing, if its conditions may hold.
fn look_again(socket: &Socket, conditions: u32, deadline: u64, began: u64) -> Result<()> {
    if readiness::any(socket, conditions) {
        return Ok(());
    }
    if thread::interrupted_since(began, deadline == u64::MAX) {
        return Err(Errno(libc::EINTR));
    }
    match deadline != u64::MAX && clock::monotonic_ns() >= deadline {
        true => Err(Errno(libc::EAGAIN)),
        false => Ok(()),
    }
}

/// Tells tools how this side waits; written only when it changes, because the peer reads the line after each send.
pub fn set_style(socket: &Socket, style: u32) {
    let shown = &socket.own().wait.style;
    if shown.load(Ordering::Relaxed) != style {
        shown.store(style, Ordering::Relaxed);
    }
}

/// Sleeps on the companion, the first of `fds`, and beside the second, if there is one ([`crate::waiting::wake_pollers`]).
fn sleep(
    socket: &Socket,
    fds: [i32; 2],
    conditions: u32,
    deadline: u64,
    [began, looked]: [u64; 2],
    posting: Option<&mut Posting>,
) -> Result<()> {
    let [fd, beside] = fds;
    due::keep();
    let listening = bells::listen(socket, fd, conditions & arm::OUT != 0);
    if listening.deaf {
        check_peer(socket, fd);
        return match sleeping::nap(DEAF) {
            Err(Errno(libc::EINTR)) => thread::resume(began, looked, deadline == u64::MAX),
            Ok(()) => look_again(socket, conditions, deadline, began),
            other => other,
        };
    }
    if socket.has(flag::SHARED) {
        stand_in(socket, fd);
    }
    // Before the announcement: what this thread itself brings needs no bell.
    let watch = if socket.has(flag::REMOTE) { crate::progress::watch_into(posting) } else { Some(Watch::default()) };
    let Some(mut watch) = watch else { return Ok(()) };
    if announce(socket, conditions & readiness::CONDITIONS) {
        barrier();
    }
    watch.for_stream(socket, conditions & readiness::CONDITIONS);
    let kept = deadlines::next().min(watch.due);
    if readiness::any(socket, conditions) || socket.hold.is_carried() {
        return Ok(());
    }
    if thread::interrupted_since(began, deadline == u64::MAX) {
        return Err(Errno(libc::EINTR));
    }
    if beside == IN_RECV && kept != u64::MAX {
        return Ok(()); // the next attempt sleeps in poll
    }
    let polled = Polled { companion: fd, listening, beside: [beside.max(-1), watch.descriptor], kept };
    if deadline == u64::MAX {
        let slept = if listening.listener < 0 && polled.beside == [-1; 2] && kept == u64::MAX {
            sleep_for_ever(socket, polled, conditions, looked)
        } else {
            sleep_in_poll(socket, polled, conditions, deadline, looked)
        };
        return match slept {
            Err(Errno(libc::EINTR)) => thread::resume(began, looked, true),
            other => other,
        };
    }
    match clock::monotonic_ns() >= deadline {
        true => Err(Errno(libc::EAGAIN)),
        false => sleep_in_poll(socket, polled, conditions, deadline, looked),
    }
}

/// Another process that shared the side may have been killed between what it did and the bell for it.
#[cold]
fn stand_in(socket: &Socket, fd: i32) {
    crate::views::stand_in(socket);
    crate::space_came_free(socket, fd);
    if socket.outgoing().unacknowledged() > 0 || socket.outgoing().announced() & word::FIN != 0 {
        notify(socket, fd, arm::IN);
    }
}

/// `deadline` `u64::MAX`: for ever, and through stops of the process, which end other calls (`sock_intr_errno`). `looked`: see
/// [`shunt_sys::sleeping::sleep6`].
fn sleep_in_poll(socket: &Socket, polled: Polled, conditions: u32, deadline: u64, looked: u64) -> Result<()> {
    let Polled { companion, listening, beside, kept } = polled;
    // Those that are not there are negative, and passed over.
    let mut set =
        [companion, listening.listener, beside[0], beside[1]].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    set[0].events = listening.companion;
    let count = set.iter().rposition(|entry| entry.fd >= 0).map_or(0, |last| last + 1);
    if deadline == u64::MAX {
        let left = kept.saturating_sub(clock::monotonic_ns());
        let mut time = timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        let time = if kept == u64::MAX { core::ptr::null_mut() } else { &raw mut time };
        sleeping::ppoll(set.as_mut_ptr(), count, time, core::ptr::null(), looked)?;
    } else {
        stops::ppoll_until(&mut set[..count], deadline.min(kept), core::ptr::null(), looked)?;
    }
    let events = set[0].revents;
    if events & libc::POLLIN != 0 {
        socket.hold.woken();
    }
    if events & (libc::POLLHUP | libc::POLLERR) != 0 {
        readiness::note_gone(socket);
        if !readiness::any(socket, conditions) {
            return sleeping::nap(ENDED);
        }
    }
    Ok(())
}

/// Sleeps in recv on the companion, so that one system call waits and takes. Alone, the sleeper takes the doorbell with
/// it; others may sleep on it too, so then it only looks.
fn sleep_for_ever(socket: &Socket, polled: Polled, conditions: u32, looked: u64) -> Result<()> {
    let alone = socket.alone();
    let mut bytes = [0u8; 64];
    let flags = if alone { 0 } else { MSG_PEEK };
    let room = if alone { 64 } else { 1 };
    let before = socket.incoming_bells().before();
    match sleeping::recvfrom(polled.companion, bytes.as_mut_ptr().cast(), room, flags, looked) {
        Ok(0) => {
            readiness::companion_ended(socket);
            if !readiness::any(socket, conditions) {
                // A companion that reads as ended cannot be slept on; should memory say otherwise, look now and then.
                return sleeping::nap(ENDED);
            }
        }
        Ok(n) if alone => bells::taken_alone(socket, polled.companion, &bytes[..n], before),
        Ok(_) => socket.hold.woken(),
        // Another thread made the open file non-blocking: sleep in poll instead.
        Err(Errno(libc::EAGAIN)) => sleep_in_poll(socket, polled, conditions, u64::MAX, looked)?,
        Err(Errno(error @ (libc::EINTR | libc::ECANCELED))) => return Err(Errno(error)),
        Err(_) => readiness::note_gone(socket),
    }
    Ok(())
}

/// What a sleeping call polls.
#[derive(Clone, Copy)]
struct Polled {
    companion: i32,
    listening: Listening,
    /// What may wake it beside bells; -1: nothing.
    beside: [i32; 2],
    /// [`deadlines::next`].
    kept: u64,
}
