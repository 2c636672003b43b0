//! Options of listeners, and what accepted sockets have of them.

use super::effects::apply;
use super::kinds::INHERITED;
use super::tcp::note_set;
use crate::earlier;
use crate::global::SETUP;
use crate::judge::{Judge, LONGEST};
use crate::socket::Socket;
use shunt_sys::calls;
use shunt_sys::libc::{self, c_int, socklen_t, IPPROTO_TCP, SOL_SOCKET};

/// The same for a socket that listens already: clients that wait to be accepted keep what they found (see [`earlier`]).
pub fn note_set_on_listener(fd: i32, listener: &Socket, level: c_int, name: c_int) {
    let Some(_setup) = SETUP.lock() else { return };
    if crate::accept::someone_waits(listener) {
        earlier::before_change(listener);
    }
    note_set(fd, listener, level, name);
}

/// A listener came by exec or in a message: what was set on it is what it has otherwise than a fresh socket.
pub fn learn(fd: i32, listener: &Socket) {
    crate::deferred::set(listener, calls::getsockopt_int(fd, IPPROTO_TCP, libc::TCP_DEFER_ACCEPT).unwrap_or(0));
    let Ok(fresh) = Judge::fresh(listener) else { return };
    for (level, name) in INHERITED {
        let mut data = [0u8; LONGEST];
        let mut length = LONGEST as socklen_t;
        let known = calls::getsockopt(fd, level, name, data.as_mut_ptr().cast(), &mut length).is_ok();
        if known && fresh.read(level, name).is_ok_and(|(usual, size)| usual[..size] != data[..(length as usize).min(LONGEST)]) {
            note_set(fd, listener, level, name);
        }
    }
}

/// An accepted socket begins with the options that the listener had when its client connected, at `time` (CLOCK_MONOTONIC, ns).
/// Under the set-up lock.
pub fn inherit(listener: &Socket, accepted: &Socket, time: u64) {
    let earlier = earlier::at(listener, time);
    let list = earlier.unwrap_or(&listener.stored);
    if list.is_empty() {
        return;
    }
    let copy = &accepted.stored;
    copy.follow(list);
    // The copy's priority is none (sk_clone_lock), whatever IP_TOS says; the queue of TCP_FASTOPEN is the listener's alone.
    if copy.find(SOL_SOCKET, libc::SO_PRIORITY).is_some() || copy.find(libc::IPPROTO_IP, libc::IP_TOS).is_some() {
        copy.store(SOL_SOCKET, libc::SO_PRIORITY, &[0; 4]);
    }
    if copy.find(IPPROTO_TCP, libc::TCP_FASTOPEN).is_some() {
        copy.store(IPPROTO_TCP, libc::TCP_FASTOPEN, &[0; 4]);
    }
    for entry in list.all() {
        // Timeouts are inherited with the rest (sk_clone_lock copies the socket).
        apply(accepted, entry.level, entry.name, entry.bytes());
    }
}
