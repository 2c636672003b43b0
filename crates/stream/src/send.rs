//! Sending: any flags, any number of buffers, with waiting.

use super::carried::Rest;
use super::end::{refuse_for, tell_own_sleepers};
use super::put::{put, put_lent, put_pieces};
use super::{distrust, ends_for_signals, UNDER_WAY};
use crate::fast_path::Declined;
use crate::life::{self, Event};
use crate::options::limits;
use crate::sleep;
use crate::socket::{flag, Socket};
use crate::waiting::readiness::{observe, take_error};
use crate::waiting::wake::nonblocking;
use crate::waiting::{readiness, wake};
use crate::{error_queue, fast_path, send_pacing, stalled, window};
use core::sync::atomic::Ordering;
use shunt_segment::channel::{arm, state, word};
use shunt_sys::libc::{self, iovec, MSG_DONTWAIT, MSG_NOSIGNAL, SIGPIPE};
use shunt_sys::{calls, section, thread, Errno, Result};
use shunt_table::global;
use shunt_table::memory::pieces::{self, Pieces};

/// Sends that are more than putting bytes.
const SPECIAL: i32 = libc::MSG_OOB | libc::MSG_ZEROCOPY | libc::MSG_FASTOPEN;

/// What Linux takes at most of one send to a peer that has closed: after so much it looks at what came in meanwhile
/// (`sk_flush_backlog` in net/ipv4/tcp.c), finds the reset, and gives the count so far.
const LOST: usize = 512 << 10;

/// Bytes from which on a send takes long enough for a signal to come in the middle.
const LONG: usize = 1024;

/// send(2) from one buffer.
///
/// # Safety
/// As for [`crate::receive()`].
#[inline(never)]
pub unsafe fn send(socket: &Socket, fd: i32, data: *const u8, length: usize, flags: i32) -> Result<isize> {
    if socket.has(flag::FENCE | flag::UNACCEPTED | flag::MAY_LEAVE) {
        before_send(socket, fd);
    }
    if !global::single_threaded() {
        // SAFETY: passed on.
        match unsafe { fast_path::send::<false, false>(socket, fd, data, length, flags) } {
            Ok(sent) => return Ok(sent),
            Err(Declined::InSection | Declined::NotLeanInSection) => section::leave(),
            Err(Declined::Unusual) => {}
        }
    }
    let open = is_open(socket);
    let piece = iovec { iov_base: data.cast_mut().cast(), iov_len: length };
    if flags & SPECIAL != 0 && (length as isize) >= 0 {
        // SAFETY: passed on.
        return unsafe { send_special(socket, fd, &Pieces::one(&piece), flags) };
    }
    if open && (length as isize) > 0 {
        // A short copy takes no time in which a signal could come; no call moves more than MAX_RW_COUNT.
        let (length, began) = if length > LONG { (length.min(pieces::MOST), thread::handled()) } else { (length, 0) };
        if length >= send_pacing::LARGE {
            if socket.connected.loans.lending.wanted.load(Ordering::Relaxed) != 0 {
                // SAFETY: passed on.
                let sent = unsafe { put_lent(socket, fd, &Pieces::one(&piece), flags)? };
                if sent == length {
                    return Ok(sent as isize);
                }
                if sent > 0 {
                    // SAFETY: passed on.
                    return unsafe { send_pieces(socket, fd, &Pieces::one(&piece), sent, flags, began) };
                }
            }
            send_pacing::begin(socket, fd, length, flags);
        }
        // SAFETY: passed on.
        let sent = unsafe { put(socket, fd, data, length, flags)? };
        if sent >= send_pacing::LARGE {
            socket.connected.restraint.forget();
        }
        if sent == length {
            return Ok(sent as isize);
        }
        let began = if length > LONG { began } else { thread::handled() };
        // SAFETY: `sent < length`.
        return unsafe { send_pieces(socket, fd, &Pieces::one(&piece), sent, flags, began) };
    }
    if (length as isize) < 0 {
        return Err(Errno(libc::EFAULT)); // no such range (access_ok)
    }
    // SAFETY: passed on.
    unsafe { send_pieces(socket, fd, &Pieces::one(&piece), 0, flags, thread::handled()) }
}

/// Whether neither end has ended anything.
#[inline(always)]
fn is_open(socket: &Socket) -> bool {
    const ENDED: u32 = state::DONE | state::PEER_GONE | state::RESET_DUE | state::PIPE_DUE;
    socket.own().receive.state.load(Ordering::Relaxed) & ENDED == 0
        && socket.peer().post.word.load(Ordering::Relaxed) & (word::FIN | word::CLOSED | word::RST) == 0
}

#[cold]
fn before_send(socket: &Socket, fd: i32) {
    if socket.has(flag::FENCE) {
        wake::reconsider_fence(socket);
    }
    if socket.has(flag::UNACCEPTED) {
        readiness::while_unaccepted(socket, fd);
    }
    if socket.has(flag::MAY_LEAVE) {
        crate::progress::leave_to_send(socket, fd);
    }
}

/// send from several buffers, in one step as long as there is room: while it waits, others may send.
///
/// # Safety
/// The pieces are the caller's buffers.
pub unsafe fn send_vector(socket: &Socket, fd: i32, pieces: &Pieces, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    unsafe {
        if socket.has(flag::UNACCEPTED) {
            readiness::while_unaccepted(socket, fd);
        }
        if flags & SPECIAL != 0 {
            return send_special(socket, fd, pieces, flags);
        }
        let (began, mut sent) = (thread::handled(), 0);
        if pieces.length() >= send_pacing::LARGE {
            if socket.connected.loans.lending.wanted.load(Ordering::Relaxed) != 0 && is_open(socket) {
                sent = put_lent(socket, fd, pieces, flags)?;
                if sent == pieces.length() {
                    return Ok(sent as isize);
                }
            }
            send_pacing::begin(socket, fd, pieces.length(), flags);
        }
        send_pieces(socket, fd, pieces, sent, flags, began)
    }
}

/// send with MSG_OOB, MSG_ZEROCOPY or both; MSG_FASTOPEN asks for a connection, and there is one.
#[cold]
unsafe fn send_special(socket: &Socket, fd: i32, pieces: &Pieces, flags: i32) -> Result<isize> {
    if flags & libc::MSG_FASTOPEN != 0 {
        return Err(Errno(libc::EISCONN));
    }
    let quiet = flags & !SPECIAL;
    let length = pieces.length();
    let zero_copy = flags & libc::MSG_ZEROCOPY != 0 && socket.has(flag::ZERO_COPY);
    let loans = &socket.connected.loans;
    let (referred, copied) = (loans.referred.load(Ordering::Relaxed), loans.copied.load(Ordering::Relaxed));
    let alike = quiet | if zero_copy { libc::MSG_ZEROCOPY } else { 0 };
    // SAFETY: passed on.
    let sent = unsafe {
        if flags & libc::MSG_OOB == 0 || length == 0 {
            send_pieces(socket, fd, pieces, 0, alike, thread::handled())?
        } else {
            // All but the last byte are ordinary, the last one is urgent.
            let ordinary = pieces.without_last();
            let mut sent = 0;
            if length > 1 {
                sent = send_pieces(socket, fd, &ordinary, 0, quiet, thread::handled())?;
            }
            if sent as usize == length - 1 {
                match send_pieces(socket, fd, pieces, length - 1, quiet | libc::MSG_OOB, thread::handled()) {
                    Ok(all) => all,
                    Err(_) if sent > 0 => sent,
                    Err(error) => return Err(error),
                }
            } else {
                sent
            }
        }
    };
    if sent > 0 && zero_copy {
        // Of other threads' sends at the same moment it may be that they went by reference: then this one is complete with them.
        let whole = loans.referred.load(Ordering::Relaxed) != referred && loans.copied.load(Ordering::Relaxed) == copied;
        match loans.referred.load(Ordering::Relaxed) != referred {
            true => error_queue::begun(socket, !whole),
            false => error_queue::completed(socket),
        }
    }
    Ok(sent)
}

/// The general case of send: what is left behind byte `done` of the pieces, with waiting. `began` is
/// [`thread::handled`] when the call began.
#[inline(never)]
unsafe fn send_pieces(socket: &Socket, fd: i32, pieces: &Pieces, mut done: usize, flags: i32, mut began: u64) -> Result<isize> {
    let length = pieces.length();
    crate::options::owners::catch_up(socket);
    let timeout = socket.send_timeout.load(Ordering::Relaxed);
    let flags = flags | if timeout == limits::AT_ONCE { MSG_DONTWAIT } else { 0 };
    let mut deadline = if timeout == 0 { u64::MAX } else { 0 };
    let mut hasty = None;
    let mut counted = false;
    let rest = |done, deadline, began| {
        let flags = flags & !(UNDER_WAY | libc::MSG_ZEROCOPY);
        Rest { socket, fd, pieces, done, enough: length, flags, deadline, began }
    };
    loop {
        if socket.has(flag::MAY_LEAVE) {
            crate::progress::leave_to_send(socket, fd);
        }
        if socket.hold.is_carried() {
            return rest(done, deadline, began).send();
        }
        let peer = socket.peer().post.word.load(Ordering::Acquire);
        let own_state = observe(socket, peer);
        let shut = socket.outgoing().announced() & word::FIN != 0;
        if shut || own_state & (state::DONE | state::RESET_DUE | state::PIPE_DUE) != 0 {
            if done > 0 {
                return Ok(done as isize);
            }
            return Err(match take_error(socket) {
                Some(error) if error != libc::EPIPE => Errno(error),
                _ => broken_pipe(flags),
            });
        }
        // Nothing is sent, so nothing is answered by a peer that has closed: its RST is for bytes.
        if length == 0 {
            return Ok(0);
        }
        if peer & word::CLOSED != 0 || own_state & state::PEER_GONE != 0 {
            // The peer closed both directions: its kernel would answer these bytes with RST, so they are taken and
            // lost, and the connection is over (EPIPE from now on).
            life::happens(socket.own(), Event::SentBehindClose);
            tell_own_sleepers(socket, fd);
            return Ok((length - done).min(LOST).saturating_add(done) as isize);
        }
        if peer & word::FIN != 0 && socket.peer().receive.state.load(Ordering::Acquire) & state::SHUT_RD != 0 {
            refuse_for(socket, fd)?;
            return Ok((length - done).min(LOST).saturating_add(done) as isize);
        }
        // SAFETY: `done < length`.
        let sent = match unsafe { put_pieces(socket, fd, pieces, done, flags) } {
            Ok(sent) => sent,
            Err(_) if done > 0 => return Ok(done as isize),
            Err(error) => return Err(error),
        };
        done += sent;
        if sent > 0 {
            socket.connected.restraint.forget();
        }
        if done == length {
            return Ok(done as isize);
        }
        if sent > 0 {
            counted = false;
            continue;
        }
        if socket.outgoing().window.is_held() {
            if send_pacing::ends(socket, fd, length, flags) {
                return if done > 0 { Ok(done as isize) } else { Err(Errno(libc::EAGAIN)) };
            }
            if socket.hold.is_carried() {
                return rest(done, deadline, began).send();
            }
            continue;
        }
        match window::provided_for_sending(socket) {
            Ok(true) => continue,
            Ok(false) => {}
            Err(_) => return Err(distrust(socket)),
        }
        // Counted before the last look, as SOCK_NOSPACE is set before the queue of acknowledgements is worked off: another thread
        // that waits for an edge, and was woken for room made since the first look, has found nothing new and sleeps again.
        if !core::mem::replace(&mut counted, true) {
            socket.own().transmit.blocked.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        stalled::note(socket, fd);
        // Asked once: a call that waits goes on when O_NONBLOCK is set meanwhile.
        if *hasty.get_or_insert_with(|| nonblocking(socket, fd, flags)) {
            wake::check_peer(socket, fd);
            if socket.own().receive.state.load(Ordering::Relaxed) & (state::DONE | state::PEER_GONE) != 0 {
                continue;
            }
            return if done > 0 { Ok(done as isize) } else { Err(Errno(libc::EAGAIN)) };
        }
        if deadline == 0 {
            deadline = limits::deadline(timeout);
        }
        // Space that is there to a look and not to a send is a hostile peer's work: its death must end the wait for it.
        wake::check_peer(socket, fd);
        if let Err(error) = sleep::wait(socket, fd, arm::OUT, ends_for_signals(deadline, flags, done), began) {
            return if done > 0 { Ok(done as isize) } else { Err(error) };
        }
        if socket.hold.is_carried() {
            return rest(done, deadline, began).send();
        }
        counted = false;
        if done == 0 && timeout == 0 && thread::restarted(began) != began {
            // The kernel begins the call anew after the handler: O_NONBLOCK may have been set meanwhile.
            began = thread::restarted(began);
            hasty = None;
        }
    }
}

fn broken_pipe(flags: i32) -> Errno {
    if flags & MSG_NOSIGNAL == 0 {
        let _ = calls::tkill(shunt_sys::thread::id() as i32, SIGPIPE);
    }
    Errno(libc::EPIPE)
}
