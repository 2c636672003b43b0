//! Whose a datagram socket is: descriptors, forks, programs that follow by exec or spawn, and its end.

use super::route::Routes;
use super::COMMON;
use super::{adopt, all, flag, fork_sharing, inbox_table, options, pin, slab, Datagram};
use crate::local::requeue;
use core::sync::atomic::Ordering;
use shunt_sys::{calls, libc};
use shunt_table::process::status_page;
use shunt_table::table;

/// A descriptor of the socket is closed.
pub fn release(socket: &'static Datagram, fd: i32) {
    if socket.references.fetch_sub(1, Ordering::AcqRel) != 1 {
        return;
    }
    super::watchers::forget(socket, fd);
    leaves(socket);
    COMMON.changes.fetch_add(1, Ordering::SeqCst);
    if let Some(_held) = socket.lock_send() {
        // SAFETY: the lock is held.
        unsafe { (*socket.routes.get()).clear() };
    }
    crate::local::released(socket);
    socket.generation.fetch_add(1, Ordering::Release);
    inbox_table::drop_own(socket);
    slab::free(socket);
}

/// This process receives no more. The last owner says so; a killed one is told by the pipe.
fn leaves(socket: &'static Datagram) {
    crate::local::owners::leave(socket);
    if let Some(inbox) = socket.inbox() {
        if inbox.header().owners.fetch_sub(1, Ordering::SeqCst) <= 1 {
            inbox.retire();
        }
    }
}

/// The process ends, and with it the first or another descriptor of `socket`.
pub fn process_ends(socket: &'static Datagram) {
    if socket.references.swap(0, Ordering::AcqRel) > 0 {
        leaves(socket);
    }
}

/// Sockets that get an inbox at a fork: more would cost a server with thousands too much.
const AT_FORK: usize = 16;

/// Before a fork, without the set-up lock: a socket that may serve gets its inbox now, because later the children could not be told
/// its other owners of it. What lies in the ring of a pair goes to the kernel: the child may become another program, and by
/// then the parent sends on.
pub fn prepare_fork() {
    let mut made = 0;
    all(|fd, socket| {
        if socket.is_local() && socket.has_waiting() {
            socket.pin(pin::FORKED);
            requeue::put_back(fd, socket);
        }
        if socket.has(flag::BOUND) && !socket.has(flag::SHARED) && socket.inbox().is_none() && made < AT_FORK {
            // Where descriptors are few they are the program's.
            if socket.pins.load(Ordering::Relaxed) == 0 && calls::soft_limit(libc::RLIMIT_NOFILE) >= 512 {
                inbox_table::make(fd, socket);
                made += 1;
            }
        }
    });
}

/// Before a fork: each socket is about to have one owner more.
pub fn before_fork() {
    let mut fork = 0;
    all(|_, socket| {
        if fork == 0 {
            fork = fork_sharing::before_fork();
        }
        socket.forks.fetch_or(fork, Ordering::Relaxed);
        if !socket.watchers.is_empty() {
            socket.watched_at.fetch_or(fork, Ordering::Relaxed);
            socket.pin(pin::FORK); // others may sleep in the set from now on
        }
        if !socket.has(flag::COUNTED) {
            socket.flags.fetch_or(flag::COUNTED | flag::SHARED, Ordering::Relaxed);
            if socket.is_local() {
                crate::local::owners::before_fork(socket);
            }
            if let Some(inbox) = socket.inbox() {
                inbox.header().owners.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
}

/// After it, in the parent; `failed`: there is no child.
pub fn after_fork(failed: bool) {
    fork_sharing::after_fork();
    uncount(failed);
}

fn uncount(failed: bool) {
    all(|_, socket| {
        if socket.has(flag::COUNTED) {
            socket.flags.fetch_and(!flag::COUNTED, Ordering::Relaxed);
            if failed {
                crate::local::owners::uncount(socket);
            }
            if let (true, Some(inbox)) = (failed, socket.inbox()) {
                inbox.header().owners.fetch_sub(1, Ordering::SeqCst);
            }
        }
    });
}

/// After it, in the child: inboxes of others are looked for anew.
pub fn forked() {
    uncount(false);
    fork_sharing::forked();
    all(|_, socket| {
        socket.sending.store(0, Ordering::Relaxed);
        socket.forks.store(fork_sharing::FOR_EVER, Ordering::Relaxed); // the parent has it
        socket.watched_at.store(0, Ordering::Relaxed);
        crate::local::forked(socket);
        // SAFETY: the child has one thread.
        unsafe {
            (*socket.routes.get()).before_kernel();
            *socket.routes.get() = Routes::new();
        }
        // Sets hold pins of the parent's; what they watch was pinned before the fork. So is the one with which an inbox was made.
        socket.cold.store(0, Ordering::Relaxed);
        socket.flags.fetch_and(!flag::BORN_SHUT, Ordering::Relaxed);
        // The parent's pins are counted in the gate once; ours go with our own copy of the word. What the fork itself
        // pinned is the parent's to take back.
        let pinned = socket.pins.fetch_and(!pin::FORK, Ordering::Relaxed) & !pin::FORK != 0;
        match socket.inbox() {
            Some(inbox) if pinned => inbox.pin(),
            _ => {
                socket.flags.fetch_and(!flag::GATE_PINNED, Ordering::Relaxed);
            }
        }
    });
    if super::any_kind() {
        inbox_table::forked();
    }
}

/// The process has become another user: it may use none of the inboxes that it has as user `before`. Its own may be known to
/// processes of that one; root's could look into them anyway.
pub fn user_changed(before: u32) {
    all(|_, socket| {
        if before != 0 && socket.inbox().is_some() {
            if socket.is_local() {
                options::plain(socket, pin::ELSEWHERE);
            }
            socket.pin(pin::ELSEWHERE);
        }
        if let Some(_held) = socket.lock_send() {
            // SAFETY: the lock is held.
            unsafe { (*socket.routes.get()).clear() };
        }
        crate::local::released(socket);
    });
    inbox_table::forget_others();
}

/// A filter is about to forbid the calls that an inbox takes (bells, visitors, a look at flags that others may have changed): the socket at
/// `fd`, which is plain by now, is the kernel's alone, unless something waits that only memory has. Its gate stays pinned.
pub fn let_go(fd: i32, socket: &'static Datagram) {
    if socket.is_local() {
        requeue::put_back(fd, socket);
    }
    if !socket.has_waiting() && super::watchers::leave(socket) {
        table::take(fd);
        status_page::forget(fd);
    }
}

/// Before an exec or a spawn: descriptors that another program will have are the kernel's from now on.
pub fn before_exec(keeps: &dyn Fn(i32) -> bool) {
    all(|fd, socket| {
        if keeps(fd) {
            fork_sharing::goes_along();
            adopt::before_handing(fd, socket);
            if let Some(_held) = socket.lock_send() {
                // SAFETY: the lock is held.
                unsafe { (*socket.routes.get()).before_kernel() };
            }
        }
    });
}
