//! Options of listeners, and what accepted sockets have of them.

use crate::accept::{self, deferred};
use crate::options::kinds::INHERITED;
use crate::options::tcp::{note_given, note_set};
use crate::options::{defer, defer_for, multipath};
use core::sync::atomic::Ordering;
use shunt_stream::options::effects::apply;
use shunt_stream::options::limits;
use shunt_stream::options::option_probe::OptionProbe;
use shunt_stream::socket::option_history;
use shunt_stream::socket::stored::LONGEST;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, c_int, socklen_t, IPPROTO_TCP, SOL_SOCKET};
use shunt_sys::{calls, clock};
use shunt_table::global::SETUP;
use shunt_table::table;

/// The same for a socket that listens already: clients that wait to be accepted keep what they found (see [`option_history`]).
///
/// # Safety
/// `data` may be any address that is not ours.
pub unsafe fn note_set_on_listener(fd: i32, listener: &Socket, level: c_int, name: c_int, data: *const u8, length: socklen_t) {
    let Some(_setup) = SETUP.lock() else { return };
    let now = clock::ticks();
    if accept::someone_waits(listener) {
        option_history::before_change(listener, now);
    }
    // SAFETY: passed on.
    unsafe { note_given(fd, listener, level, name, data, length) };
    deferred::rest(listener);
    if listener.has(flag::LISTENER_SHARED) {
        tell(listener, now);
        // Others may have set something at the same time, and the time that they told is lost.
        read_back(fd, listener);
    }
}

/// All who share a listener share its rendezvous. How fast that may send, which it never does, tells them when an option of the
/// listener was last set, in ticks.
fn tell(listener: &Socket, time: u64) {
    let rendezvous = listener.private_fd.load(Ordering::Acquire);
    let length = size_of::<u64>() as socklen_t;
    let _ = calls::setsockopt(rendezvous, SOL_SOCKET, libc::SO_MAX_PACING_RATE, (&raw const time).cast(), length);
    listener.listening.options_time.store(time, Ordering::Relaxed);
}

/// What was told last; 0: nothing.
fn told(listener: &Socket) -> u64 {
    let (mut time, mut length) = (0u64, size_of::<u64>() as socklen_t);
    let rendezvous = listener.private_fd.load(Ordering::Acquire);
    match calls::getsockopt(rendezvous, SOL_SOCKET, libc::SO_MAX_PACING_RATE, (&raw mut time).cast(), &mut length) {
        Ok(()) if time != u64::MAX => time,
        _ => 0,
    }
}

/// Options that another process has set on a listener that it has, too, are this one's from then on. Under the set-up lock.
pub fn follow(listener: &Socket) {
    if !listener.has(flag::LISTENER_SHARED) {
        return;
    }
    let time = told(listener);
    if time == listener.listening.options_time.load(Ordering::Relaxed) {
        return;
    }
    let is_it = |fd: &i32| table::get(*fd).object::<Socket>().is_some_and(|socket| core::ptr::eq(socket, listener));
    let Some(fd) = table::programs().find(is_it) else { return };
    option_history::before_change(listener, time);
    listener.listening.options_time.store(time, Ordering::Relaxed);
    read_back(fd, listener);
}

fn read_back(fd: i32, listener: &Socket) {
    // The kernel does not tell no time at all from no limit.
    for entry in listener.stored.all().filter(|entry| !limits::is_kept_no_time(entry)) {
        note_set(fd, listener, entry.level, entry.name);
    }
    learn(fd, listener);
    deferred::rest(listener);
}

/// A listener came by exec or in a message: what was set on it is what it has otherwise than a fresh socket.
pub fn take_up(fd: i32, listener: &Socket) {
    listener.listening.options_time.store(told(listener), Ordering::Relaxed);
    if calls::getsockopt_int(fd, SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_MPTCP) {
        listener.protocol.store(libc::IPPROTO_MPTCP, Ordering::Relaxed);
    }
    learn(fd, listener);
}

fn learn(fd: i32, listener: &Socket) {
    defer_for(listener, calls::getsockopt_int(fd, IPPROTO_TCP, libc::TCP_DEFER_ACCEPT).unwrap_or(0));
    let Ok(fresh) = OptionProbe::fresh(listener) else { return };
    for (level, name) in INHERITED {
        let mut data = [0u8; LONGEST];
        let mut length = LONGEST as socklen_t;
        let known = calls::getsockopt(fd, level, name, data.as_mut_ptr().cast(), &mut length).is_ok();
        if known && fresh.read(level, name).is_ok_and(|(usual, size)| usual[..size] != data[..(length as usize).min(LONGEST)]) {
            note_set(fd, listener, level, name);
        }
    }
}

/// TCP_NOTSENT_LOWAT of the socket behind an MPTCP listener (`mptcp_subflow_create_socket`), and of what that accepts.
const UNLIMITED: [u8; 4] = u32::MAX.to_ne_bytes();

/// An accepted socket begins with the options that the listener had when its client connected, at `time` (in ticks).
/// Under the set-up lock.
pub fn inherit(listener: &Socket, accepted: &Socket, time: u64) {
    follow(listener);
    let earlier = option_history::at(listener, time);
    let list = earlier.unwrap_or(&listener.stored);
    if multipath::is(listener) {
        accepted.stored.store(IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &UNLIMITED);
    }
    if list.is_empty() {
        return;
    }
    let copy = &accepted.stored;
    copy.follow(list);
    if multipath::is(listener) {
        copy.retain(multipath::is_inherited);
        copy.store(IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &UNLIMITED);
    }
    // The copy's priority is none (sk_clone_lock), whatever IP_TOS says; the queue of TCP_FASTOPEN is the listener's alone.
    if copy.find(SOL_SOCKET, libc::SO_PRIORITY).is_some() || copy.find(libc::IPPROTO_IP, libc::IP_TOS).is_some() {
        copy.store(SOL_SOCKET, libc::SO_PRIORITY, &[0; 4]);
    }
    if copy.find(IPPROTO_TCP, libc::TCP_FASTOPEN).is_some() {
        copy.store(IPPROTO_TCP, libc::TCP_FASTOPEN, &[0; 4]);
    }
    for entry in copy.all() {
        // Timeouts are inherited with the rest (sk_clone_lock copies the socket).
        apply(accepted, entry.level, entry.name, entry.bytes());
        defer(accepted, entry.level, entry.name, entry.bytes());
    }
}
