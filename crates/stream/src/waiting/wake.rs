//! Waiting on one stream: spin, arm, check again, sleep on the companion; and ringing the peer's bell.

use crate::socket::{flag, Socket};
use crate::waiting::{bells, bypass, readiness};
use crate::{beside, corked, stamp, tap};
use core::sync::atomic::{fence, Ordering};
use shunt_link as link;
use shunt_ring::bell;
use shunt_segment::channel::{arm, word, BELL};
use shunt_sys::libc::{self, timespec, MSG_DONTWAIT};
use shunt_sys::{calls, clock, processor, sleeping, Result};
use shunt_table::global;

/// Ticks between questions to the kernel whether a silent peer still lives (about 20 us while spinning).
const CHECK_EVERY: u64 = 50_000;
/// The same, where bytes came since the last question (less than a millisecond).
const CHECK_EVERY_IF_HEARD: u64 = 2_000_000;

/// After publishing something: wakes the peer if it sleeps for `conditions`.
#[inline(always)]
pub fn notify(socket: &Socket, fd: i32, conditions: u32) {
    notify_after(socket, fd, conditions, 0);
}

/// The same, when `put` bytes were sent to the peer.
#[inline(always)]
pub fn notify_after(socket: &Socket, fd: i32, conditions: u32, put: usize) {
    if socket.has(flag::FENCE) {
        fence(Ordering::SeqCst);
    }
    if conditions & arm::IN != 0 && bell::wants_stamp(&socket.peer().wait) {
        stamp::arrived(socket);
    }
    if bell::may_ask(&socket.peer().wait, conditions) {
        ring_if_asked(socket, fd, conditions, put);
    }
}

/// Wakes the peer if it sleeps for `conditions`, when `put` bytes were sent to it.
#[cold]
#[inline(never)]
pub fn ring_if_asked(socket: &Socket, fd: i32, conditions: u32, put: usize) {
    let noted = (put > 0 && socket.peer().wait.armed.load(Ordering::Relaxed) & arm::TAP != 0).then(clock::ticks);
    if bell::due(&socket.peer().wait, conditions).is_some() {
        socket.hold.while_open(socket, fd, |fd| ring_asked(socket, fd, conditions, put));
    }
    if socket.peer().wait.armed.load(Ordering::Relaxed) & arm::CUT != 0 {
        beside::asked(socket);
    }
    if let Some(at) = noted {
        tap::sent(socket, put, at); // what was sent stays in the ring until more is: the peer need not wait for the copy
    }
}

/// The peer, if it still asks, is rung: the thread that takes its conditions rings.
fn ring_asked(socket: &Socket, fd: i32, conditions: u32, put: usize) {
    let wait = &socket.peer().wait;
    if !socket.has(flag::SHARED) {
        if bell::take(wait, conditions) {
            ring_after(socket, fd, put);
        }
    } else if let Some(due) = bell::due(wait, conditions) {
        ring_after(socket, fd, put);
        due.rung(wait);
    }
}

/// As [`notify`], by the thread that closes `fd`, which is in the table no more, and has stamped what is new.
#[cold]
pub fn notify_by_closer(socket: &Socket, fd: i32, conditions: u32) {
    ring_asked(socket, fd, conditions, 0);
}

/// A bell, whether or not the peer sleeps, by the thread that closes `fd` as for [`notify_by_closer`].
#[cold]
pub fn ring_by_closer(socket: &Socket, fd: i32) {
    ring_after(socket, fd, 0);
}

/// What was published without a bell is stamped for a peer that asks for it.
#[cold]
pub fn stamp_if_asked(socket: &Socket) {
    if bell::wants_stamp(&socket.peer().wait) {
        stamp::arrived(socket);
    }
}

/// Threads that sent, or took, just before this one closed their socket's last number `fd` in this process, find none to ring by.
#[cold]
pub fn ring_for_others(socket: &Socket, fd: i32) {
    fence(Ordering::SeqCst);
    let sent = socket.outgoing().unacknowledged() > 0 || socket.outgoing().announced() & word::FIN != 0;
    stamp_if_asked(socket);
    notify_by_closer(socket, fd, if sent { arm::IN | arm::OUT } else { arm::OUT });
}

/// One byte on the companion, a [`BELL`], makes the peer's descriptor readable.
#[cold]
pub fn ring(socket: &Socket, fd: i32) {
    socket.hold.while_open(socket, fd, |fd| ring_after(socket, fd, 0));
}

/// The same, when `put` bytes were sent to the peer, by one that keeps `fd` open. A peer that was killed in its sleep is heard of here, and perhaps nowhere
/// else: by a program that only sends.
#[cold]
#[inline(never)]
fn ring_after(socket: &Socket, fd: i32, put: usize) {
    if socket.has(flag::REMOTE) && crate::progress::kick(socket) {
        return;
    }
    if fd < 0 && socket.has(flag::FAR) {
        return crate::progress::ring(socket, false);
    }
    // A thread that sends and never waits is believed to be where it connected. The far side of a stream from another host is
    // nowhere.
    let (here, shown) = (processor::number() + 1, &socket.own().wait.processor);
    if !socket.has(flag::FAR) && shown.load(Ordering::Relaxed) != here {
        shown.store(here, Ordering::Relaxed);
    }
    if socket.peer().asks_time.load(Ordering::Relaxed) != 0 {
        socket.own().rung_at.store(clock::realtime_ns(), Ordering::Release);
    }
    let fd = socket.hold.number(fd);
    if !socket.outgoing_bells().ring(|| write_bell(fd, 0)) && is_hung_up(fd) {
        readiness::note_gone_after(socket, put);
    }
}

/// Writes a bell to the companion `fd`; false: it took none.
pub fn write_bell(fd: i32, flags: i32) -> bool {
    calls::send_byte(fd, BELL, flags).is_ok()
}

/// Sleeps in a row after which the peer is asked to fence, and waits awake in a row after which no longer.
const OFTEN_ASLEEP: u32 = 4;
const OFTEN_AWAKE: u32 = 64;

/// Announces that this side sleeps for `conditions`; true if the caller must execute [`barrier`] before it checks
/// again.
pub fn announce(socket: &Socket, conditions: u32) -> bool {
    let due = corked::arm(socket, conditions);
    socket.connected.spins.store(0, Ordering::Relaxed);
    if due && socket.connected.sleeps.fetch_add(1, Ordering::Relaxed) >= OFTEN_ASLEEP {
        bell::agree_on_fences(&socket.own().wait, barrier);
    }
    due
}

/// Bytes were taken, and each message rings: the bells are taken as well. Where times of arrival are asked for, the next message
/// must ring, although no thread sleeps.
#[cold]
pub fn arm_for_signals(socket: &Socket, fd: i32) {
    bells::relieve(socket, fd);
    if socket.has(flag::TIMESTAMPS) && announce(socket, arm::IN) {
        barrier();
    }
}

/// Whether the peer wants a bell with each message, to be signalled.
#[inline]
pub fn peer_is_signalled(socket: &Socket) -> bool {
    socket.peer().wait.armed.load(Ordering::Relaxed) & arm::ALWAYS != 0
}

/// O_ASYNC: each message must ring, although no thread sleeps: the kernel turns the bell into SIGIO.
pub fn ring_always(socket: &Socket, on: bool) {
    bell::ask_always(&socket.own().wait, on);
    barrier();
}

/// As [`ring`], by an urgent byte: the kernel makes SIGURG of it for the companion's owner.
#[cold]
pub fn ring_urgent(socket: &Socket, fd: i32) {
    if socket.has(flag::REMOTE) {
        return ring(socket, fd);
    }
    if fd < 0 && socket.has(flag::FAR) {
        return crate::progress::ring(socket, true);
    }
    socket.hold.while_open(socket, fd, |fd| {
        // Before Linux 5.15 such sockets have no urgent bytes.
        if !socket.outgoing_bells().ring_urgent(|| write_bell(socket.hold.number(fd), libc::MSG_OOB)) {
            ring_after(socket, fd, 0);
        }
    });
}

/// A wait ended awake.
#[inline]
pub fn stayed_awake(socket: &Socket) {
    let spins = socket.connected.spins.load(Ordering::Relaxed) + 1;
    socket.connected.spins.store(spins, Ordering::Relaxed);
    if spins == OFTEN_AWAKE {
        socket.connected.sleeps.store(0, Ordering::Relaxed);
        if socket.own().wait.armed.load(Ordering::Relaxed) & arm::FENCE != 0 {
            bell::ask_for_fences(&socket.own().wait, false);
        }
    }
}

/// The sleeper's half of the asymmetric fence: see `shunt_ring::bell`.
pub fn barrier() {
    fence(Ordering::SeqCst);
    if global::barriers() {
        shunt_sys::barrier::everywhere();
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
    let heard = received != socket.connected.received_at_check.load(Ordering::Relaxed);
    if heard && since < CHECK_EVERY_IF_HEARD {
        return;
    }
    socket.last_check.store(now, Ordering::Relaxed);
    socket.connected.received_at_check.store(received, Ordering::Relaxed);
    corked::look(socket);
    if socket.has(flag::FENCE) {
        reconsider_fence(socket);
    }
    ask_peer(socket, fd);
}

/// After so many bytes, a power of two, a program that sends messages of `length` bytes, and hears nothing, looks whether its peer was
/// killed. A clock is read for that, so not for each send of some KiB; a program that sends slowly hears of it after 16 of them
/// at most.
#[inline(always)]
pub const fn look_after(length: usize) -> usize {
    if length <= LEAST_LOOK / 8 {
        LEAST_LOOK
    } else if length >= MOST_LOOK / 8 {
        MOST_LOOK
    } else {
        (8 * length).next_power_of_two()
    }
}

/// What no [`look_after`] is less than.
pub const LEAST_LOOK: usize = 4 << 10;
const MOST_LOOK: usize = 64 << 10;

/// Of a peer that was killed awake, or with bytes unread, no bell tells: asks at most every millisecond.
#[cold]
pub fn check_peer_of_sender(socket: &Socket, fd: i32) {
    let now = clock::ticks();
    if now.wrapping_sub(socket.last_check.load(Ordering::Relaxed)) >= CHECK_EVERY_IF_HEARD {
        socket.last_check.store(now, Ordering::Relaxed);
        ask_peer(socket, fd);
    }
}

/// Asks the kernel at once; the same question tells of bytes for which no bell was rung.
pub fn ask_peer(socket: &Socket, fd: i32) {
    let mut events = 0;
    socket.hold.while_open(socket, fd, |fd| events = calls::poll_one(fd, libc::POLLIN, 0).unwrap_or(0));
    if events & GONE != 0 {
        readiness::note_gone(socket);
    } else if events & libc::POLLIN != 0 && !bypass::note_broken(socket) && !bells::are_counted(socket) {
        bypass::look(socket, fd);
    }
}

/// What poll says of a companion that has no other end any more.
const GONE: i16 = libc::POLLHUP | libc::POLLERR;

/// Whether the companion `fd` has no other end any more.
fn is_hung_up(fd: i32) -> bool {
    calls::poll_one(fd, 0, 0).is_ok_and(|events| events & GONE != 0)
}

/// A first connection begins before the peer has said that it issues barriers.
pub fn reconsider_fence(socket: &Socket) {
    let header = link::header(socket.link());
    let peer = if socket.side() == 0 { &header.server } else { &header.client };
    if peer.barrier.load(Ordering::Acquire) == 1 && global::barriers() {
        socket.clear(flag::FENCE);
    }
}

/// A short sleep of a call that cannot sleep as it should: `ns`, or to the call's deadline, with its signal mask. `looked`: as
/// for [`shunt_sys::sleeping::sleep6`].
///
/// Errors: EINTR after a handler, ECANCELED.
pub fn pause(ns: u64, deadline: u64, mask: *const libc::sigset_t, looked: u64) -> Result<()> {
    let left = if deadline == u64::MAX { ns } else { ns.min(deadline.saturating_sub(clock::monotonic_ns())) };
    let mut time = timespec { tv_sec: 0, tv_nsec: left as i64 };
    sleeping::ppoll(core::ptr::null_mut(), 0, &mut time, mask, looked).map(|_| ())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_sends_looks_after_few_messages_and_not_after_each() {
        for length in 1..100_000 {
            let after = look_after(length);
            assert!(after.is_power_of_two() && (LEAST_LOOK..=MOST_LOOK).contains(&after));
            assert!(after == LEAST_LOOK || after < 16 * length, "{length}: {after}");
            assert!(after == MOST_LOOK || after >= 8 * length, "{length}: {after}");
        }
    }
}
