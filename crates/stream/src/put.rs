//! Putting bytes, without waiting.

use super::distrust;
use super::end::tell_own_sleepers;
use crate::corked::News;
use crate::references::emulated::{self, Loan, Outcome};
use crate::references::lend::{self, Way};
use crate::socket::{flag, Socket};
use crate::waiting::readiness::has_ended;
use crate::waiting::readiness::observe;
use crate::waiting::wake;
use crate::{corked, flush_relays, urgent, window};
use core::sync::atomic::Ordering;
use shunt_ring::{bell, SHORT};
use shunt_segment::channel::{arm, state, word};
use shunt_sys::libc::{self, iovec};
use shunt_sys::{thread, Errno, Result};
use shunt_table::memory::pieces::Pieces;

/// One attempt to put bytes, without waiting; 0 also after shutdown(SHUT_WR).
#[inline(always)]
pub(super) unsafe fn put(socket: &Socket, fd: i32, data: *const u8, length: usize, flags: i32) -> Result<usize> {
    if corked::concerns(socket, flags) {
        let piece = iovec { iov_base: data.cast_mut().cast(), iov_len: length };
        // SAFETY: passed on.
        return unsafe { put_gathered(socket, fd, &Pieces::one(&piece), 0, flags) };
    }
    let held = socket.lock_send()?;
    if socket.outgoing().announced() & word::FIN != 0 || flush_relays::owed(socket) {
        return Ok(0);
    }
    // SAFETY: promised by the caller; the lock is held.
    let mut sent = unsafe { socket.outgoing().send(data, length) };
    if sent < length {
        let piece = iovec { iov_base: data.cast_mut().cast(), iov_len: length };
        // SAFETY: as above.
        sent = unsafe { put_rest::<false>(socket, &Pieces::one(&piece), sent) };
    } else if socket.outgoing().window.is_wanted() {
        // There was room, but the stream would be better off in a larger ring. What is refused stays so.
        let _ = window::provided_for_sending(socket);
    }
    if sent == 0 {
        drop(held);
        return put_nothing(socket);
    }
    drop(held);
    put_done(socket, fd, sent);
    Ok(sent)
}

/// Sends pieces of which some lie in memory that the peer was shown, and lends those meanwhile, where that is likely to be worth it ([`emulated`]): in one
/// step, with what is before and behind them, as far as there is room. Gives how many bytes are sent; 0 also where nothing is lent.
///
/// # Safety
/// The pieces are the caller's buffers.
#[cold]
#[inline(never)]
pub(super) unsafe fn put_lent(socket: &Socket, fd: i32, pieces: &Pieces, flags: i32) -> Result<usize> {
    match emulated::begin(socket, pieces, flags) {
        // SAFETY: passed on.
        Some(loan) => unsafe { put_loan(socket, fd, pieces, &loan, flags) },
        None => Ok(0),
    }
}

/// The step of [`put_lent`]. The peer may fall asleep before it, or end: it looks again.
pub(super) unsafe fn put_loan(socket: &Socket, fd: i32, pieces: &Pieces, loan: &Loan, flags: i32) -> Result<usize> {
    let held = socket.lock_send()?;
    if socket.outgoing().announced() & word::FIN != 0 || flush_relays::owed(socket) || lend::is_for_copies(socket, flags) {
        return Ok(0);
    }
    let mut done = 0;
    if let (Some((data, _)), 1..) = (pieces.from(0, usize::MAX).next(), loan.head) {
        let head = iovec { iov_base: data.cast(), iov_len: loan.head };
        // SAFETY: passed on; the lock is held.
        done = unsafe { put_all::<false>(socket, &Pieces::one(&head), 0) };
    }
    if done == loan.head {
        // SAFETY: as above.
        match unsafe { emulated::send(socket, loan) } {
            Outcome::Sent(sent) => done += sent,
            Outcome::Lost => {
                drop(held);
                let error = distrust(socket);
                wake::notify(socket, fd, arm::IN | arm::OUT);
                tell_own_sleepers(socket, fd);
                return Err(error);
            }
        }
        if done > 0 {
            // SAFETY: as above.
            done = unsafe { put_all::<false>(socket, pieces, done) };
        }
    }
    drop(held);
    if done > 0 {
        put_done(socket, fd, done);
    }
    if done < pieces.length() {
        thread::take_fault(); // what was put before is the answer; of none the next attempt tells
    }
    Ok(done)
}

/// [`put`] and [`put_pieces`] of what may be held back, or comes behind what was.
#[cold]
#[inline(never)]
unsafe fn put_gathered(socket: &Socket, fd: i32, pieces: &Pieces, done: usize, flags: i32) -> Result<usize> {
    let held = socket.lock_send()?;
    if socket.outgoing().announced() & word::FIN != 0 || flush_relays::owed(socket) {
        return Ok(0);
    }
    // SAFETY: the caller's buffers; the lock is held.
    let (sent, news) = unsafe { gather(socket, pieces, done, flags) };
    drop(held);
    tell(socket, fd, sent, news);
    if sent == 0 {
        return put_nothing(socket);
    }
    Ok(sent)
}

/// Puts what fits of the pieces behind byte `done`, and holds back what is to be. The caller holds the sending lock.
unsafe fn gather(socket: &Socket, pieces: &Pieces, done: usize, flags: i32) -> (usize, News) {
    let (before, hold) = (corked::before(socket), corked::holds(socket, flags));
    // SAFETY: passed on.
    let now = unsafe {
        match hold {
            true => put_all::<true>(socket, pieces, done),
            false => put_all::<false>(socket, pieces, done),
        }
    };
    (now - done, corked::settle(socket, before, hold && now == pieces.length()))
}

/// The peer hears of `sent` bytes what there is to hear.
fn tell(socket: &Socket, fd: i32, sent: usize, news: News) {
    match news {
        News::None => {}
        News::Held => corked::warn(socket, fd, false),
        News::HeldBriefly => corked::warn(socket, fd, true),
        News::Announced => put_done(socket, fd, sent),
        News::AnnouncedAndHeld => {
            put_done(socket, fd, sent);
            corked::warn_keeper(socket);
        }
    }
}

/// Sends what `source` gives of up to `most` bytes at `data`, asked under the sending lock, if there is room for all of
/// them now; `None`, and nothing asked, where there is not or the connection is not open in this direction. Gives the
/// number, and whether `source` gave `most`.
///
/// # Safety
/// `source` writes up to `most` bytes to `data`.
pub unsafe fn put_from(
    socket: &Socket,
    fd: i32,
    data: *mut u8,
    most: usize,
    flags: i32,
    source: impl FnOnce() -> Result<usize>,
) -> Option<Result<(usize, bool)>> {
    if socket.has(flag::FENCE) {
        wake::reconsider_fence(socket);
    }
    crate::options::owners::catch_up(socket);
    let held = match socket.lock_send() {
        Ok(held) => held,
        Err(error) => return Some(Err(error)),
    };
    let pipe = socket.outgoing();
    let peer = socket.peer().post.word.load(Ordering::Acquire);
    let ended = state::DONE | state::PEER_GONE | state::RESET_DUE | state::PIPE_DUE;
    if observe(socket, peer) & ended != 0
        || peer & (word::CLOSED | word::RST) != 0
        || (peer & word::FIN != 0 && socket.peer().receive.state.load(Ordering::Acquire) & state::SHUT_RD != 0)
        || pipe.announced() & word::FIN != 0
        || flush_relays::owed(socket)
        || pipe.writable().0 < most
    {
        return None;
    }
    let got = match source() {
        Err(Errno(libc::EOPNOTSUPP)) => return None,
        Err(error) => return Some(Err(error)),
        Ok(got) => got,
    };
    let piece = iovec { iov_base: data.cast(), iov_len: got };
    let pieces = Pieces::one(&piece);
    // SAFETY: the caller's buffer; the lock is held.
    let (sent, news) = unsafe {
        match corked::concerns(socket, flags) {
            true => gather(socket, &pieces, 0, flags),
            false => (put_all::<false>(socket, &pieces, 0), News::Announced),
        }
    };
    drop(held);
    if sent > 0 {
        tell(socket, fd, sent, news);
    }
    if sent < got {
        // Room was there. Under the lock it goes away by a peer that takes its acknowledgements back, or by an SO_SNDBUF
        // that another thread makes smaller in this moment; bytes are missing then, which no reader may overlook.
        return Some(Err(distrust(socket)));
    }
    Some(Ok((sent, sent == most)))
}

/// Lets `source` write up to `most` bytes of its own straight into the ring ([`shunt_ring::Pipe::fill`]), if at least `least` have
/// room there; gives their number. `None`, and nothing asked: [`put`] is to be used.
///
/// # Safety
/// `source` writes nowhere but into the pieces that it gets, and does not wait.
pub(super) unsafe fn put_filled(
    socket: &Socket,
    fd: i32,
    least: usize,
    most: usize,
    source: impl FnOnce(shunt_ring::pipe::Space) -> usize,
) -> Option<usize> {
    if socket.has(flag::FENCE) {
        wake::reconsider_fence(socket);
    }
    let held = socket.lock_send().ok()?;
    let pipe = socket.outgoing();
    if has_ended(socket) {
        return None;
    }
    let before = corked::concerns(socket, 0).then(|| corked::before(socket));
    let hold = before.is_some() && corked::holds(socket, 0);
    let mut room = 0;
    let noting = |space: shunt_ring::pipe::Space| {
        room = space[0].1 + space[1].1;
        source(space)
    };
    // SAFETY: the lock is held; promised by the caller.
    let filled = unsafe { pipe.fill(least, most, hold, noting)? };
    let news = match before {
        Some(before) if filled > 0 => corked::settle(socket, before, hold && room == most),
        _ => News::Announced,
    };
    drop(held);
    if filled > 0 {
        socket.connected.restraint.forget();
        tell(socket, fd, filled, news);
    }
    Some(filled)
}

/// Why nothing was put: a fault, a peer that acknowledges what was never sent, or no room.
#[cold]
fn put_nothing(socket: &Socket) -> Result<usize> {
    if thread::take_fault() {
        return Err(Errno(libc::EFAULT));
    }
    let held = socket.lock_send()?;
    let deceived = socket.outgoing().deceived();
    drop(held);
    if deceived {
        return Err(distrust(socket));
    }
    Ok(0)
}

/// Wakes the threads that wait for the `sent` bytes that were put.
#[inline(always)]
fn put_done(socket: &Socket, fd: i32, sent: usize) {
    // To another host, of a station of this process: no reader of the ring needs a bell, and the pump is here.
    let pumped =
        socket.flags.load(Ordering::Relaxed) & (flag::REMOTE | flag::SHARED) == flag::REMOTE && crate::progress::kick(socket);
    if !pumped {
        wake::notify_after(socket, fd, arm::IN, sent);
    }
    if socket.outgoing().announced() as usize & (wake::look_after(sent) - 1) < sent {
        wake::check_peer_of_sender(socket, fd);
        if sent <= SHORT {
            socket.outgoing().take_time(sent); // of longer ones the ring takes it
        }
    }
}

/// Puts what fits of the pieces behind byte `done`; gives the new `done`. With `HOLD` full segments alone are announced. The caller
/// holds the sending lock.
unsafe fn put_all<const HOLD: bool>(socket: &Socket, pieces: &Pieces, done: usize) -> usize {
    // SAFETY: passed on.
    unsafe { put_rest::<HOLD>(socket, pieces, put_once::<HOLD>(socket, pieces, done)) }
}

/// One attempt of [`put_all`].
unsafe fn put_once<const HOLD: bool>(socket: &Socket, pieces: &Pieces, before: usize) -> usize {
    let mut done = before;
    for (data, length) in pieces.from(done, usize::MAX) {
        // SAFETY: the caller's buffer; the lock is held.
        let part = unsafe {
            match HOLD {
                true => socket.outgoing().hold(data, length),
                false => socket.outgoing().send(data, length),
            }
        };
        if part == 0 && done > before {
            thread::take_fault(); // what was put before is the answer
        }
        done += part;
        if part < length {
            break;
        }
    }
    done
}

/// Goes on after [`put_once`] as long as a window has to be mapped for it: the lock is kept, so that no other thread's
/// bytes come in between.
unsafe fn put_rest<const HOLD: bool>(socket: &Socket, pieces: &Pieces, mut done: usize) -> usize {
    while done < pieces.length() && window::provided_for_sending(socket) == Ok(true) {
        // SAFETY: passed on.
        done = unsafe { put_once::<HOLD>(socket, pieces, done) };
    }
    done
}

/// As [`put`], from byte `done` of the pieces on; with MSG_OOB the one byte that is left is marked.
pub(super) unsafe fn put_pieces(socket: &Socket, fd: i32, pieces: &Pieces, done: usize, flags: i32) -> Result<usize> {
    if flags & libc::MSG_OOB == 0 && corked::concerns(socket, flags) {
        // SAFETY: passed on.
        return unsafe { put_gathered(socket, fd, pieces, done, flags) };
    }
    if flags & libc::MSG_ZEROCOPY != 0 {
        // SAFETY: passed on.
        match unsafe { lend::next(socket, pieces, done, flags)? } {
            Way::Copied => {}
            Way::Nothing => return Ok(0),
            Way::Referred(sent) => {
                put_done(socket, fd, sent);
                return Ok(sent);
            }
            Way::FirstCopied(first) => {
                // SAFETY: passed on.
                return unsafe { put_pieces(socket, fd, &Pieces::one(&first), 0, flags & !libc::MSG_ZEROCOPY) };
            }
        }
    }
    let held = socket.lock_send()?;
    let pipe = socket.outgoing();
    if pipe.announced() & word::FIN != 0 || flush_relays::owed(socket) {
        return Ok(0);
    }
    let marked = (flags & libc::MSG_OOB != 0).then(|| urgent::mark(socket));
    // SAFETY: the caller's buffers; the lock is held.
    let sent = unsafe { put_all::<false>(socket, pieces, done) } - done;
    if let (Some(before), 0) = (marked, sent) {
        urgent::unmark(socket, before);
    }
    drop(held);
    if sent == 0 {
        return put_nothing(socket);
    }
    if marked.is_some() && socket.peer().receive.state.load(Ordering::Acquire) & state::OWNED != 0 {
        bell::must_ring(&socket.peer().wait, arm::IN);
        wake::ring_urgent(socket, fd);
        if wake::peer_is_signalled(socket) {
            wake::ring(socket, fd); // for the byte beside the announcement (tcp_urg, tcp_data_queue)
        }
        return Ok(sent);
    }
    put_done(socket, fd, sent);
    Ok(sent)
}
