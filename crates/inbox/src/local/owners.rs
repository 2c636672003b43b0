//! How many processes own an end. Only one that has an end alone uses shared memory: it knows of all that is sent and
//! received there. A server that accepts in one process and serves in another is alone again once the first has closed.
//!
//! The count is a word in memory that children of fork share: a *card*, taken at the first fork. A process that is killed
//! stays counted, and the end the kernel's.

use crate::datagram::{flag, options, pin, Datagram, COMMON};
use core::sync::atomic::{AtomicU32, Ordering};
use shunt_sys::{calls, libc, mapping};

/// Cards of one family of processes.
const CARDS: usize = 4096;

fn cards() -> Option<&'static [AtomicU32]> {
    let mut first = COMMON.cards.load(Ordering::Acquire);
    if first.is_null() {
        let made = mapping::reserve_for_children(CARDS * core::mem::size_of::<AtomicU32>()).ok()?.cast::<AtomicU32>();
        // Under the set-up lock, as every fork is.
        first = made;
        COMMON.cards.store(made, Ordering::Release);
    }
    // SAFETY: so many words, never unmapped; zeros are valid.
    Some(unsafe { core::slice::from_raw_parts(first, CARDS) })
}

fn card(socket: &Datagram) -> Option<&'static AtomicU32> {
    // SAFETY: null or one of the cards.
    unsafe { socket.local.card.load(Ordering::Acquire).as_ref() }
}

fn take_card(socket: &Datagram) -> Option<&'static AtomicU32> {
    let free = |card: &&AtomicU32| card.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let card = cards()?.iter().find(free)?;
    socket.local.card.store(card as *const AtomicU32 as *mut AtomicU32, Ordering::Release);
    Some(card)
}

/// Before a fork: from now on the kernel carries everything, until only one process has the end.
pub fn before_fork(socket: &'static Datagram) {
    socket.pin(pin::FORKED);
    socket.local.use_kernel();
    super::apart(socket);
    match card(socket).or_else(|| take_card(socket)) {
        Some(card) => {
            card.fetch_add(1, Ordering::AcqRel);
        }
        None => options::plain(socket, pin::ELSEWHERE),
    }
}

/// The fork failed, or this process has the end no longer.
pub fn uncount(socket: &Datagram) {
    if let Some(card) = card(socket) {
        let _ = card.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    }
}

/// All others that had it since forks are gone, however they ended.
pub fn only(socket: &Datagram) {
    if let Some(card) = card(socket) {
        card.store(1, Ordering::Release);
    }
}

/// This process has the end no longer.
pub fn leave(socket: &'static Datagram) {
    if socket.is_local() {
        // The gate counts a pin of this process, which would never be taken off.
        socket.take_off(flag::GATE_PINNED);
        uncount(socket);
    }
}

/// Before an exec of this process: what closes then is the others' alone. (Should it fail, this process goes on through
/// the kernel.)
pub fn before_exec() {
    crate::datagram::all(|fd, socket| {
        let closes = calls::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & libc::FD_CLOEXEC != 0);
        if closes && socket.is_local() && socket.has(flag::SHARED) && socket.references.load(Ordering::Relaxed) == 1 {
            options::plain(socket, pin::ELSEWHERE);
            leave(socket);
            socket.local.card.store(core::ptr::null_mut(), Ordering::Release);
        }
    });
}

/// Whether this process alone has the end. Finds out when it is so again.
#[inline(always)]
pub fn alone(fd: i32, socket: &'static Datagram) -> bool {
    !socket.has(flag::SHARED) || again(fd, socket)
}

#[cold]
fn again(fd: i32, socket: &'static Datagram) -> bool {
    if card(socket).is_none_or(|card| card.load(Ordering::Acquire) != 1) {
        return false;
    }
    // The other may have changed the open file's flags, and sent.
    socket.set_nonblocking(calls::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) & libc::O_NONBLOCK != 0);
    socket.local.use_kernel();
    if let Some(_held) = socket.lock_send() {
        // SAFETY: the lock is held.
        unsafe { (*socket.local.peer_inbox.get()).tell(true) };
    }
    socket.flags.fetch_and(!flag::SHARED, Ordering::AcqRel);
    socket.unpin(pin::FORKED);
    true
}
