//! The fast path of poll(2): one stream, of which nothing but bytes is asked, is looked at for a short while before anything else
//! is done.
//!
//! What is unusual, and a wait that lasts, is the general way's ([`super::poll`]).

use crate::poll::due_for_check;
use core::sync::atomic::Ordering;
use shunt_epoll::BRIEF;
use shunt_inbox::datagram::Datagram;
use shunt_rendezvous::accept::deferred;
use shunt_stream::waiting::{readiness, spin};
use shunt_sys::libc::{pollfd, POLLIN, POLLPRI, POLLRDHUP, POLLRDNORM};
use shunt_sys::{clock, user};

/// Of a stream that has bytes and nothing else, only these hold.
const BYTES: i16 = POLLIN | POLLRDNORM;
const OTHERS: i16 = POLLPRI | POLLRDHUP;

/// Whether bytes of the stream in `entry` are there, or come in a short while, which the program's entry then says. False:
/// nothing was done. `limit`: how long the call waits at most, in ns.
///
/// # Safety
/// `entry` may be any address that is not ours.
#[inline]
pub unsafe fn poll(entry: *mut pollfd, limit: Option<u64>) -> bool {
    // SAFETY: the program's entry, which may fault.
    let Ok(given) = (unsafe { user::read(entry) }) else { return false };
    let events = given.events & BYTES;
    let Some(socket) = shunt_stream::socket::stream(given.fd).filter(|_| events != 0 && given.events & !(BYTES | OTHERS) == 0)
    else {
        return false;
    };
    spin::show_processor(&socket.own().wait);
    // Clients that this thread leaves out are for others.
    if shunt_stream::progress::is_driven() || deferred::holds_any() || !readiness::is_plain(socket) {
        return false;
    }
    // Before the first look: what comes behind it changes the word.
    let word = socket.peer().post.word.load(Ordering::Acquire);
    if readiness::bytes_alone(socket) {
        // A program that finds something in each call never comes to wait.
        if due_for_check(socket, clock::ticks(), 1) {
            return false;
        }
    } else if limit.is_some_and(|ns| ns < BRIEF) || !spin::comes(socket, word) || !readiness::bytes_alone(socket) {
        return false;
    }
    // SAFETY: as above.
    unsafe { user::write(&raw mut (*entry).revents, events) }.is_ok()
}

/// Whether `fd` is an accelerated stream, of TCP or AF_UNIX.
#[must_use]
pub fn is_stream(fd: i32) -> bool {
    shunt_stream::socket::stream(fd).is_some() || shunt_inbox::local::socket(fd).is_some()
}

/// Whether bytes of the stream `fd`, of TCP or AF_UNIX, or a datagram for it, are there, or come within about as long as an answer takes that is on its way. `None`:
/// looking for them is not for here: no stream, something unusual about it, a peer on this processor, or waits that are long.
#[inline]
pub fn bytes_come(fd: i32) -> Option<bool> {
    let Some(socket) = shunt_stream::socket::stream(fd) else { return other_comes(fd) };
    spin::show_processor(&socket.own().wait);
    if shunt_stream::progress::is_driven() || deferred::holds_any() || !readiness::is_plain(socket) {
        return None;
    }
    // Before the first look: what comes behind it changes the word.
    let word = socket.peer().post.word.load(Ordering::Acquire);
    if readiness::bytes_alone(socket) {
        return Some(true);
    }
    if !spin::promising() || spin::is_beside(socket) {
        return None;
    }
    Some(spin::comes(socket, word) && readiness::bytes_alone(socket))
}

/// The same of an AF_UNIX stream, and of datagrams.
fn other_comes(fd: i32) -> Option<bool> {
    let socket = shunt_table::table::find::<Datagram>(fd)?;
    if shunt_stream::progress::is_driven() || deferred::holds_any() {
        return None;
    }
    match socket.is_local() {
        true => shunt_inbox::local::receive::bytes_come(socket),
        false => shunt_inbox::datagram::receive::comes(socket),
    }
}
