//! Whether other processes still have this one's listeners by a fork: then connections cannot be offered in memory.
//!
//! Many servers fork and accept alone all the same: the child becomes another program, or saves a snapshot, or goes on as a
//! daemon when its parent has ended. So before each fork of a process that listens a socket pair is made, of which the parent
//! gets one end and the child the other, beside all ends that they have already. An end hangs up when no process is left on the
//! other side of that fork: each process there has ended, in whatever way, or become another program, or closed its listeners. A
//! process all of whose ends have hung up has its listeners alone, and its children's word is not needed for it.
//!
//! A listener that goes another way (to the next program, in a message) is out of sight for good. A byte that is never read tells
//! that to all relatives before.
//!
//! A server that forks for each connection would be alone, and not, in turns: it stays one of several, at last without such pairs. All functions but [`moved`] are called under the set-up lock.

use crate::listen;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use shunt_link::fd_reserve;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, SOCK_CLOEXEC, SOCK_STREAM};
use shunt_sys::{calls, clock, Errno};
use shunt_table::table::Kind;
use shunt_table::{private, table};

/// Forks whose other side may live, at most: a server with more children than this has them for good.
const MOST: usize = 8;

/// A process that may have fewer descriptors needs them itself.
const FEW: u64 = 256;

/// What is known of other processes that have our listeners.
struct Sharing {
    ends: [AtomicI32; MOST],
    /// The two ends of a fork that is being made, the parent's first.
    next: [AtomicI32; 2],
    /// A process of which no end tells may have a listener of ours.
    for_good: AtomicBool,
    /// When it was asked last whether relatives live, in ticks.
    asked: AtomicU64,
    /// Connections that were accepted since the last fork.
    clients: AtomicU32,
    /// Forks in a row between which there were hardly any.
    in_vain: AtomicU32,
}

static SHARING: Sharing = Sharing {
    ends: [const { AtomicI32::new(-1) }; MOST],
    next: [const { AtomicI32::new(-1) }; 2],
    for_good: AtomicBool::new(false),
    asked: AtomicU64::new(0),
    clients: AtomicU32::new(0),
    in_vain: AtomicU32::new(0),
};

/// So many forks, with so few connections each: a server that forks for each connection. To have its listener alone in between is worth
/// nothing, as each client would have to send its link anew.
const FOR_EACH: u32 = 8;
/// After so many it will always do so, and needs not ask who of its children lives.
const ALWAYS: u32 = 64;
const HARDLY_ANY: u32 = 8;
/// After so many connections without a fork it has become another kind of server.
const MANY: u32 = 64;

/// How often that is asked, in ticks (some 10 ms).
const ASK_EVERY: u64 = 25_000_000;

/// What an end tells of the other side.
#[derive(PartialEq, Eq)]
enum Side {
    Lives,
    Gone,
    /// A listener went where it cannot be seen.
    Told,
}

fn look(end: i32) -> Side {
    let mut byte = 0u8;
    let (room, none) = ((&raw mut byte).cast(), core::ptr::null_mut());
    match calls::recvfrom(end, room, 1, MSG_DONTWAIT | MSG_PEEK, none, core::ptr::null_mut()) {
        Ok(0) | Err(Errno(libc::ECONNRESET)) => Side::Gone,
        Err(Errno(libc::EAGAIN)) => Side::Lives,
        _ => Side::Told,
    }
}

/// Closes the ends of relatives that have gone. True: none is left.
fn nobody_left() -> bool {
    let mut none = true;
    for place in &SHARING.ends {
        let end = place.load(Ordering::Relaxed);
        if end < 0 {
            continue;
        }
        match look(end) {
            Side::Gone => private::close(place.swap(-1, Ordering::Relaxed)),
            Side::Lives => none = false,
            Side::Told => SHARING.for_good.store(true, Ordering::Relaxed),
        }
    }
    none && !SHARING.for_good.load(Ordering::Relaxed)
}

/// A connection was accepted, in whatever way.
pub fn count_client() {
    SHARING.clients.store(SHARING.clients.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
}

/// A process that listens is about to fork.
pub fn before_fork() {
    match SHARING.clients.swap(0, Ordering::Relaxed) {
        0 => {}
        1..=HARDLY_ANY => SHARING.in_vain.store(SHARING.in_vain.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed),
        _ => SHARING.in_vain.store(0, Ordering::Relaxed),
    }
    if SHARING.in_vain.load(Ordering::Relaxed) >= ALWAYS {
        SHARING.for_good.store(true, Ordering::Relaxed);
    }
    if SHARING.for_good.load(Ordering::Relaxed) {
        return;
    }
    nobody_left();
    let free = SHARING.ends.iter().any(|place| place.load(Ordering::Relaxed) < 0);
    let mut pair = [-1; 2];
    if !free
        || !fd_reserve::is_whole()
        || private::are_short()
        || calls::soft_limit(libc::RLIMIT_NOFILE) < FEW
        || calls::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.as_mut_ptr()).is_err()
    {
        SHARING.for_good.store(true, Ordering::Relaxed);
        return;
    }
    for (place, fd) in SHARING.next.iter().zip(pair) {
        let kept = private::keep(fd).unwrap_or(-1);
        // Not one of the program's numbers.
        if kept < private::lowest() {
            SHARING.for_good.store(true, Ordering::Relaxed);
        }
        place.store(kept, Ordering::Relaxed);
    }
}

/// The fork has been made, or has failed: end `own` of the new pair is this process's, the other is not. `None`: neither is.
pub fn after_fork(own: Option<usize>) {
    if own == Some(1) && SHARING.in_vain.load(Ordering::Relaxed) != 0 {
        SHARING.in_vain.store(0, Ordering::Relaxed); // the child is a server of its own
    }
    for (number, place) in SHARING.next.iter().enumerate().filter(|(_, place)| place.load(Ordering::Relaxed) >= 0) {
        let end = place.swap(-1, Ordering::Relaxed);
        let free = SHARING.ends.iter().find(|place| place.load(Ordering::Relaxed) < 0);
        match free.filter(|_| own == Some(number)) {
            Some(place) => place.store(end, Ordering::Relaxed),
            None => private::close(end),
        }
    }
}

/// A process that no fork of ours makes is about to have a listener of this one's: what others know of it ends here.
pub fn out_of_sight(listener: &Socket) {
    listener.set(flag::LISTENER_SHARED);
    listener.listening.only_forked.store(0, Ordering::Relaxed);
    SHARING.for_good.store(true, Ordering::Relaxed);
    for place in &SHARING.ends {
        let end = place.load(Ordering::Relaxed);
        if end >= 0 {
            let byte = 1u8;
            let (start, nobody) = ((&raw const byte).cast(), core::ptr::null());
            let _ = calls::sendto(end, start, 1, MSG_DONTWAIT | MSG_NOSIGNAL, nobody, 0);
        }
    }
}

/// A listener of this process was closed: without another one it is no process's relative any more.
pub fn listener_closed() {
    if SHARING.ends.iter().all(|place| place.load(Ordering::Relaxed) < 0) {
        return;
    }
    let listens = |fd: i32| matches!(table::get(fd).kind(), Kind::Listener);
    if !table::programs().any(listens) {
        for place in &SHARING.ends {
            private::close(place.swap(-1, Ordering::Relaxed));
        }
    }
}

/// A client has come through the rendezvous of a listener that was shared by forks: if no other process is left that has it, it
/// is shared no longer.
pub fn look_around(listener: &Socket) {
    if !listener.has(flag::LISTENER_SHARED)
        || listener.listening.only_forked.load(Ordering::Relaxed) == 0
        || SHARING.for_good.load(Ordering::Relaxed)
        || (SHARING.in_vain.load(Ordering::Relaxed) >= FOR_EACH && SHARING.clients.load(Ordering::Relaxed) < MANY)
    {
        return;
    }
    let now = clock::ticks();
    if now.wrapping_sub(SHARING.asked.load(Ordering::Relaxed)) < ASK_EVERY {
        return;
    }
    SHARING.asked.store(now, Ordering::Relaxed);
    let rendezvous = listener.private_fd.load(Ordering::Relaxed);
    let open = |fd: i32| calls::poll_one(fd, libc::POLLRDHUP, 0) == Ok(0);
    if rendezvous < 0 || !nobody_left() || !open(rendezvous) {
        return;
    }
    // Another process may have changed it meanwhile.
    let nonblocking = listen::nonblocking(listener);
    listen::set_nonblocking(listener, nonblocking);
    super::options::follow(listener);
    listener.listening.only_forked.store(0, Ordering::Relaxed);
    listener.clear(flag::LISTENER_SHARED);
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    for place in SHARING.ends.iter().chain(&SHARING.next) {
        private::renumber(place, from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_tells_whether_the_other_side_lives_or_a_listener_went_out_of_sight() {
        let mut pair = [-1; 2];
        calls::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.as_mut_ptr()).unwrap();
        assert!(look(pair[0]) == Side::Lives);
        calls::send_byte(pair[1], 1, 0).unwrap();
        assert!(look(pair[0]) == Side::Told && look(pair[0]) == Side::Told, "the byte stays for all relatives");
        calls::close(pair[1]).unwrap();
        assert!(look(pair[0]) == Side::Told, "an end does not take back what was told");
        calls::close(pair[0]).unwrap();
        calls::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.as_mut_ptr()).unwrap();
        calls::close(pair[1]).unwrap();
        assert!(look(pair[0]) == Side::Gone);
        calls::close(pair[0]).unwrap();
    }
}
