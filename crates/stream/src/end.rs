//! The ends of a stream that are not a close: shutdown, bytes that no receiver can take any more, a peer that writes nonsense.

use crate::beside;
use crate::life::{self, Event};
use crate::socket::{flag, Socket};
use crate::tap;
use crate::waiting::bells::end_companion;
use crate::waiting::watchers::Change;
use crate::waiting::{bells, holding, readiness, wake};
use core::sync::atomic::Ordering;
use shunt_segment::channel::{arm, state, word};
use shunt_sys::{calls, clock, libc, Errno, Result};

/// The peer wrote nonsense into shared memory: this connection is reset.
#[cold]
pub fn distrust(socket: &Socket) -> Errno {
    life::happens(socket.own(), Event::Distrusted);
    let held = socket.lock_send();
    socket.outgoing().end(word::RST | word::FIN | word::CLOSED);
    drop(held);
    Errno(libc::ECONNRESET)
}

/// The peer has shut down both directions and keeps its descriptor: its kernel would reset the connection for these bytes, on both sides
/// (tcp_rcv_state_process in FIN_WAIT, after RFC 1122). They are taken and lost; here EPIPE follows, there ECONNRESET.
#[cold]
pub(super) fn refuse_for(socket: &Socket, fd: i32) -> Result<()> {
    reset(socket, fd, Event::Refused)
}

/// The peer has taken nothing for as long as TCP_USER_TIMEOUT allows (`tcp_write_err`): here ETIMEDOUT follows, there ECONNRESET.
#[cold]
pub(super) fn time_out(socket: &Socket, fd: i32) {
    let _ = reset(socket, fd, Event::TimedOut);
}

/// The TCP connection that stays beside the stream was reset: both sides get ECONNRESET, each as it notices.
#[cold]
pub fn reset_from_outside(socket: &Socket, fd: i32) -> Result<()> {
    reset(socket, fd, Event::PeerReset)
}

/// This side resets the connection; its own next call gets what `event` leaves.
fn reset(socket: &Socket, fd: i32, event: Event) -> Result<()> {
    let held = socket.lock_send()?;
    if beside::has_moved_before_sending(socket) {
        return Ok(()); // its end is TCP's
    }
    socket.outgoing().end(word::RST | word::FIN | word::CLOSED);
    drop(held);
    life::happens(socket.own(), event);
    wake::notify(socket, fd, arm::IN);
    tell_own_sleepers(socket, fd);
    Ok(())
}

/// The connection is over by what this thread did last, and no bell tells others of this side: sets are told, and the threads
/// that sleep on the companion.
#[cold]
pub(super) fn tell_own_sleepers(socket: &Socket, fd: i32) {
    crate::waiting::watchers::changed(socket, Change::Ready);
    wake_own_sleepers(socket, fd);
}

/// A thread that sleeps on the companion, in whatever call, finds that it reads as ended.
#[cold]
fn wake_own_sleepers(socket: &Socket, fd: i32) {
    if !socket.alone() {
        end_companion(socket, fd);
    }
}

/// The same of a stream that another thread has just left to the kernel, which has the other directions' state as well.
#[cold]
fn shutdown_left(socket: &Socket, fd: i32, how: i32) -> Result<isize> {
    while !socket.hold.is_carried() && !beside::leave(socket, fd, false) {
        calls::sched_yield();
    }
    calls::shutdown(holding::end(socket, fd), how).map(|()| 0)
}

/// Tells the peer that the last owner has closed. `ended`: both directions had ended before. The caller holds both locks.
pub fn announce_end(socket: &Socket, ended: bool) {
    if beside::has_moved_before_sending(socket) {
        return; // TCP tells
    }
    let (_, unread) = socket.incoming().look();
    // Once both directions have ended there is nothing left to reset (tcp_close, TCP_CLOSE).
    // Another owner may have asked for it.
    let asked = socket.own().receive.state.load(Ordering::Relaxed) & state::LINGER_RESET != 0;
    // A relay leaves before it ends: one that is there still was killed, with bytes that no side can find.
    let lost = || socket.has(flag::SHARED) && socket.carriage().any();
    let lingers = socket.has(flag::LINGER_RESET) || (asked && socket.has(flag::SHARED)) || lost();
    let broken = socket.own().transmit.broken.load(Ordering::Relaxed) != 0;
    let reset = broken || (!ended && (unread > 0 || lingers));
    // A reset that was announced already stays what it was.
    let announced = socket.outgoing().announced();
    let late = if announced & word::FIN != 0 && announced & word::RST == 0 { word::LATE } else { 0 };
    socket.outgoing().end(word::FIN | word::CLOSED | if reset { word::RST | late } else { 0 });
    tap::ended(socket);
    wake::stamp_if_asked(socket);
}

/// shutdown(2).
pub fn shutdown(socket: &Socket, fd: i32, how: i32) -> Result<isize> {
    if !(0..=2).contains(&how) {
        return Err(Errno(libc::EINVAL));
    }
    // inet_shutdown wakes every thread that polls, whatever changes.
    socket.connected.changes.fetch_add(1, Ordering::Relaxed);
    socket.connected.changed_at.store(clock::ticks(), Ordering::Relaxed);
    if beside::leave(socket, fd, false) {
        return shutdown_left(socket, fd, how);
    }
    readiness::ask_if_refused(socket, fd);
    if readiness::closed(socket) {
        return Err(Errno(libc::ENOTCONN));
    }
    if how != libc::SHUT_WR {
        socket.set(flag::SHUT_RD);
        life::happens(socket.own(), Event::ReadShut);
    }
    if how != libc::SHUT_RD {
        if readiness::ended(socket) {
            socket.connected.end_told.store(1, Ordering::Relaxed); // tcp_fin has told of the half
        }
        let held = socket.lock_send()?;
        if beside::has_moved_before_sending(socket) || socket.has(flag::SHARED) && socket.hold.is_left() {
            drop(held);
            return shutdown_left(socket, fd, how);
        }
        socket.outgoing().end(word::FIN);
        drop(held);
        tap::ended(socket);
        wake::notify(socket, fd, arm::IN);
        if wake::peer_is_signalled(socket) {
            wake::ring(socket, fd); // an end signals twice (tcp_fin, tcp_data_queue)
        }
        crate::waiting::wake_pollers::all();
        // With the peer's end before ours all is over, and no bell comes any more that would tell others who have this side.
        if socket.has(flag::SHARED) {
            match socket.incoming().look().0 & word::FIN {
                0 => bells::poke(socket, fd),
                _ => tell_own_sleepers(socket, fd),
            }
        }
    }
    // Our own sleepers must notice as well. Only the peer can ring our bell, so the companion's receiving half is shut
    // down for good: it reads as ended from now on, and waits for space poll instead (`wake::sleep`).
    if how != libc::SHUT_WR {
        let _ = calls::shutdown(fd, libc::SHUT_RD);
    }
    crate::waiting::watchers::changed(socket, Change::Ready);
    Ok(0)
}
