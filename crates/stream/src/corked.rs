//! TCP_CORK and MSG_MORE: pieces are gathered, and the peer sees them when the last one comes, the cork comes out, a segment is
//! full, the stream ends, or 200 ms have passed (`tcp_push` in net/ipv4/tcp.c; the time is that of the probe timer, tcp_timer.c).
//!
//! They lie in the ring, unannounced ([`Pipe::hold`]). The sender may never call again, so the time is the receiver's affair:
//! a thread that is about to sleep, or finds nothing, looks for bytes that are held back, and this process sleeps no longer than they are
//! ([`deadlines`]). A thread that sleeps already must find out. If the peer has held bytes back before, it has gone to sleep for no more
//! than 200 ms, and said so ([`channel::arm::LOOKS`]): it looks before they are due, and if nothing came sleeps on without end. A sleeper
//! that has not, or looks no more, is rung for the first of the bytes, and only for that.
//!
//! ```text
//! receiver                          sender
//!   armed |= IN, LOOKS                put the bytes, say until when
//!   (fence)                           fence
//!   held back? sleep until then       armed has LOOKS? rely on it; IN alone? ring
//!   else sleep for 200 ms
//!   armed &= !LOOKS
//!   (fence)
//!   held back? sleep until then
//!   else sleep
//! ```
//!
//! [`Pipe::hold`]: shunt_ring::Pipe::hold
//! [`channel::arm::LOOKS`]: shunt_segment::channel::arm::LOOKS

use crate::socket::{flag, Socket};
use crate::waiting::wake;
use crate::waiting::watchers::Change;
use crate::{deadlines, flush_relays};
use core::sync::atomic::{fence, Ordering};
use shunt_ring::bell;
use shunt_segment::channel::arm;
use shunt_sys::clock;
use shunt_sys::libc::{self, MSG_MORE};

/// How long Linux holds back, in ns: the least retransmission timeout.
const LIMIT: u64 = 200_000_000;

/// How long the acknowledgement of what went before may take, which has the rest follow: the least delay of one (TCP_DELACK_MIN). A peer
/// that answers delays them, so that they ride along.
const DELAY: u64 = 40_000_000;

/// TCP_CORK was set. Taken out, it leaves what is held to [`push`], or the next send.
pub fn set(socket: &Socket, on: bool) {
    socket.corked.store(on as u32, Ordering::Relaxed);
    if on {
        socket.set(flag::CORKED);
    }
}

fn is_corked(socket: &Socket) -> bool {
    socket.corked.load(Ordering::Relaxed) != 0
}

/// Whether a send with `flags` is one of a row, or the one behind pieces that are held back.
#[inline(always)]
pub(super) fn concerns(socket: &Socket, flags: i32) -> bool {
    flags & MSG_MORE != 0 || socket.has(flag::CORKED)
}

/// Whether a send with `flags` may be held back. Not where the receiver has no eye for it: where each message is signalled, or its
/// time told, where a program without shunt has the stream, or no program yet. To another host the keeper has an eye for it.
pub(super) fn holds(socket: &Socket, flags: i32) -> bool {
    let carried = || socket.page().carriages.iter().any(|carriage| carriage.any());
    (flags & MSG_MORE != 0 || is_corked(socket))
        && flags & libc::MSG_OOB == 0
        && !socket.has(flag::FAR | flag::UNACCEPTED)
        && (socket.has(flag::REMOTE) || !wake::peer_is_signalled(socket))
        && socket.peer().asks_time.load(Ordering::Relaxed) == 0
        && !carried()
}

/// What a peer is to hear of a send.
pub(super) enum News {
    /// Nothing: more is held back than before.
    None,
    /// Bytes are held back from now on.
    Held,
    /// The same, and they are due before a sleeper that looks by itself ([`shunt_segment::channel::arm::LOOKS`]) may have looked.
    HeldBriefly,
    /// Bytes were announced.
    Announced,
    /// The same, and others are held back behind them.
    AnnouncedAndHeld,
}

/// What there was before a send.
pub(super) struct Before {
    word: u64,
    held: bool,
    /// The peer has not received all that was announced.
    unread: bool,
    /// The peer, which has sent before, has sent nothing since it received that.
    unanswered: bool,
}

pub(super) fn before(socket: &Socket) -> Before {
    let pipe = socket.outgoing();
    let (word, held) = (pipe.own.post.word.load(Ordering::Relaxed), pipe.held());
    Before { word, held: held > 0, unread: pipe.unacknowledged() > held as u64, unanswered: pipe.is_unanswered() }
}

/// Behind a send under the sending lock: pushes what is not to be held back. `hold`: [`holds`], and there was room for all.
pub(super) fn settle(socket: &Socket, before: Before, hold: bool) -> News {
    let pipe = socket.outgoing();
    let announced = || pipe.own.post.word.load(Ordering::Relaxed) != before.word;
    let (limit, news) = match before.unanswered && !is_corked(socket) {
        true => (DELAY, News::HeldBriefly),
        false => (LIMIT, News::Held),
    };
    let leave = || pipe.leave_held(clock::monotonic_ns() + limit);
    // With MSG_MORE alone the acknowledgement of what went before has the rest follow (tcp_data_snd_check).
    let hold = hold && (is_corked(socket) || !announced() && !before.unread);
    if !hold || pipe.held() == 0 {
        pipe.push();
        if !is_corked(socket) {
            socket.clear(flag::CORKED);
        }
        return if announced() { News::Announced } else { News::None };
    }
    socket.set(flag::CORKED);
    if announced() || !before.held {
        leave();
        fence(Ordering::SeqCst);
        return if announced() { News::AnnouncedAndHeld } else { news };
    }
    pipe.leave_held(pipe.own.wait.held_until.load(Ordering::Relaxed));
    fence(Ordering::SeqCst);
    if announced() {
        // The receiver has taken what was held before, and may have gone to sleep before it could see that there is more.
        leave();
        return news;
    }
    News::None
}

/// The cork came out, or TCP_NODELAY was set: what is held back is announced.
pub fn push(socket: &Socket, fd: i32) {
    // A handler that jumps out of this has the receiver take it.
    let Ok(held) = socket.lock_send() else { return };
    let any = socket.outgoing().held() > 0 && !flush_relays::owed(socket);
    if any {
        socket.outgoing().push();
    }
    if !is_corked(socket) {
        socket.clear(flag::CORKED);
    }
    drop(held);
    if any {
        wake::notify(socket, fd, arm::IN);
    }
}

/// A peer that sleeps is to find out when what is held back is due, unless it looks anyway, and in time.
#[cold]
pub(super) fn warn(socket: &Socket, fd: i32, briefly: bool) {
    if warn_keeper(socket) {
        return;
    }
    if briefly || !bell::looks(&socket.peer().wait) {
        wake::ring_if_asked(socket, fd, arm::IN, 0);
    }
}

/// To another host the keeper is to look when what is held back is due: what is announced wakes a peer, which looks, but no keeper.
/// False: it is rung for what was sent, or there is none.
pub(super) fn warn_keeper(socket: &Socket) -> bool {
    socket.has(flag::REMOTE) && crate::progress::hold_back(socket, socket.own().wait.held_until.load(Ordering::Relaxed))
}

/// Whether the peer has ever held bytes back: a receiver who goes to sleep is to look soon, and be spared the bell.
#[inline]
pub fn expected(socket: &Socket) -> bool {
    socket.peer().wait.held_until.load(Ordering::Relaxed) != 0
}

/// Announces a sleep for `conditions` ([`bell::arm`]), and has this process look again when what is held back is due. True: the
/// barrier is.
#[inline]
pub fn arm(socket: &Socket, conditions: u32) -> bool {
    let wait = &socket.own().wait;
    // Another process's sleeper may have been rung, and not be awake yet: it would not look. Nor does a keeper by this clock.
    let (due, looks) = match expected(socket) && !socket.has(flag::SHARED | flag::FAR) {
        true => bell::arm_to_look(wait, conditions),
        false => (bell::arm(wait, conditions), bell::looks(wait)),
    };
    if looks {
        ask(socket, clock::monotonic_ns() + LIMIT);
    }
    look(socket);
    due
}

/// Where a receiver finds nothing: if the peer holds something back, this process looks again when it is due.
#[inline(always)]
pub fn look(socket: &Socket) {
    if socket.peer().wait.held.load(Ordering::Relaxed) != 0 {
        note(socket);
    }
}

#[cold]
#[inline(never)]
fn note(socket: &Socket) {
    if let Some(until) = socket.incoming().held_until() {
        ask(socket, clamped(until, clock::monotonic_ns()));
    }
}

/// Until when the peer holds bytes back, if it does.
pub fn due(socket: &Socket, now: u64) -> Option<u64> {
    socket.incoming().held_until().map(|until| clamped(until, now))
}

/// A time that is further off than any is another clock's, or a hostile peer's. `now` may have been read before the bytes were held.
fn clamped(until: u64, now: u64) -> u64 {
    match until.saturating_sub(now) > LIMIT && until.saturating_sub(clock::monotonic_ns()) > LIMIT {
        true => now,
        false => until,
    }
}

/// This process is to look at `time`.
fn ask(socket: &Socket, time: u64) {
    let asked = |before: u32| Some((before | ASKED).wrapping_add(ASKED + 1));
    let _ = socket.awaits_held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, asked);
    deadlines::look_at(time);
}

/// Of [`Socket::awaits_held`]: this process is to look. What is above counts how often that was said.
const ASKED: u32 = 1;

/// It is `now`: takes what is due. Gives when to look again, and whether there are bytes of which no bell told.
pub(super) fn keep(socket: &Socket, now: u64) -> (u64, bool) {
    let asked = socket.awaits_held.load(Ordering::SeqCst);
    if asked & ASKED == 0 {
        return (u64::MAX, false);
    }
    bell::looked(&socket.own().wait);
    if let Some(until) = due(socket, now).filter(|until| *until > now) {
        return (until, false);
    }
    take(socket);
    // Another process that has this side may have taken them. Threads that sleep wake by themselves, at the same time.
    let came = socket.incoming().look().1 > 0;
    if came {
        crate::waiting::watchers::changed(socket, Change::Ready);
    }
    // Said again meanwhile: there may be more.
    let done = socket.awaits_held.compare_exchange(asked, asked & !ASKED, Ordering::SeqCst, Ordering::Relaxed).is_ok();
    (if done { u64::MAX } else { now }, came)
}

/// The peer is gone, or its time has come: what it held back is there.
pub fn take(socket: &Socket) {
    socket.incoming().take_held();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_read_before_the_bytes_were_held_has_none_taken_early() {
        let held_at = clock::monotonic_ns();
        assert_eq!(clamped(held_at + LIMIT, held_at - LIMIT), held_at + LIMIT);
        assert_eq!(clamped(u64::MAX, held_at), held_at);
    }
}
