//! Bells that were rung: which threads hear them, and which one takes them off the companion.
//!
//! **What must hold:** a thread that sleeps for something that came true after it had armed is woken. The peer rings once for all
//! that are armed, and the kernel wakes all that sleep on the companion; but each looks again before it goes. Had another emptied
//! the companion by then it would sleep on, its conditions gone with the bell. So the companion is emptied only when no sleeper
//! needs what is on it any more:
//!
//! - *Processes* that share a side never empty it: one bell always stays, and each process hears the next by a *bell listener* of its
//!   own, an epoll descriptor that hears the companion's edges. No process can take another's bell away; a process that is killed
//!   takes its bell listener along.
//! - *Threads* of a process sleep on the companion itself, or on the process's bell listener. A thread that is to empty that keeps others
//!   from falling asleep meanwhile, and does so when none sleeps ([`Hold::when_all_heard`]). Else it leaves and looks again:
//!   those that sleep have been woken, and are gone soon.
//! - *Sets* hear edges, too, which the kernel forgets with the bytes. A thread that empties the companion tells them in memory
//!   ([`Change::BellsTaken`]).
//!
//! [`Hold::when_all_heard`]: crate::socket::parts::Hold::when_all_heard

use crate::socket::parts::BellListener;
use crate::socket::{flag, Socket};
use crate::waiting::watchers::Change;
use crate::waiting::{bypass, readiness, watchers};
use core::sync::atomic::{fence, Ordering};
use shunt_ring::tally::Before;
use shunt_segment::channel::state;
use shunt_sys::libc::{self, epoll_event, timespec, MSG_DONTWAIT};
use shunt_sys::{calls, Errno};
use shunt_table::private;

impl BellListener {
    /// A fresh object's.
    pub fn reset(&self) {
        self.descriptor.store(-1, Ordering::Relaxed);
        self.space.store(false, Ordering::Relaxed);
    }

    /// The epoll descriptor, made if there is none yet; -1: there is no descriptor left. A fresh one hears at once what lies
    /// on the companion, and one that is to hear of `space` from now on hears that.
    fn open(&self, socket: &Socket, fd: i32, space: bool) -> i32 {
        let listener = self.open_for_bells(socket, fd);
        // Not before a thread asks: that the peer takes a bell is space, too, and would wake one that waits for bytes.
        if listener >= 0 && space && !self.space.swap(true, Ordering::Relaxed) {
            let mut event = epoll_event { events: HEARD | libc::EPOLLOUT as u32, u64: 0 };
            let _ = calls::epoll_ctl(listener, libc::EPOLL_CTL_MOD, socket.hold.number(fd), &mut event);
        }
        listener
    }

    fn open_for_bells(&self, socket: &Socket, fd: i32) -> i32 {
        let known = self.number();
        if known >= 0 {
            return known;
        }
        let Ok(made) = calls::epoll_create1(libc::EPOLL_CLOEXEC).and_then(private::keep) else { return -1 };
        let mut event = epoll_event { events: HEARD, u64: 0 };
        if calls::epoll_ctl(made, libc::EPOLL_CTL_ADD, socket.hold.number(fd), &mut event).is_err() {
            private::close(made);
            return -1;
        }
        match self.descriptor.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(other) => {
                private::close(made);
                other
            }
        }
    }

    /// The socket ends; or this is a child after fork, whose bell listener is the parent's.
    pub fn close(&self) {
        private::close_at(&self.descriptor);
        self.space.store(false, Ordering::Relaxed);
    }

    /// A private descriptor got another number.
    pub fn moved(&self, from: i32, to: i32) {
        private::renumber(&self.descriptor, from, to);
    }

    fn number(&self) -> i32 {
        self.descriptor.load(Ordering::Acquire)
    }

    /// Takes note of all bells so far. False: nothing has come since it last did.
    fn hear(&self) -> bool {
        let none = timespec { tv_sec: 0, tv_nsec: 0 };
        let mut event = epoll_event { events: 0, u64: 0 };
        calls::epoll_pwait2(self.number(), &mut event, 1, &none, core::ptr::null(), calls::KERNEL_SIGSET) != Ok(0)
    }
}

/// What a bell listener hears of a companion.
const HEARD: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;

/// What sleepers for space in all processes that have the socket's side are to look at has changed, and no bell tells: that SO_SNDBUF is set on
/// the companion, to what it is, is an edge of POLLOUT there (`sock_setsockopt` calls `sk_write_space`).
#[cold]
pub fn poke(socket: &Socket, fd: i32) {
    socket.hold.while_open(socket, fd, |fd| {
        if let Ok(size) = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF) {
            let _ = calls::setsockopt_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, size / 2);
            // the kernel doubles it
        }
    });
}

/// What a sleeper polls to hear a socket's bells.
#[derive(Clone, Copy)]
pub struct Listening {
    /// What to poll the companion for: input, or its end alone.
    pub companion: i16,
    /// The process's bell listener, to be polled for input; -1: none.
    pub listener: i32,
    /// Neither hears bells: the sleep must be short.
    pub deaf: bool,
}

/// How to sleep for the socket; `space`: until there is some, too.
pub fn listen(socket: &Socket, fd: i32, space: bool) -> Listening {
    if socket.own().receive.state.load(Ordering::Relaxed) & state::SHUT_RD != 0 {
        // The companion reads as ended.
        return Listening { companion: 0, listener: -1, deaf: true };
    }
    if !socket.has(flag::SHARED) {
        return Listening { companion: libc::POLLIN, listener: -1, deaf: false };
    }
    let listener = socket.bell_listener.open(socket, fd, space);
    Listening { companion: 0, listener, deaf: listener < 0 }
}

/// Before sleeping, the caller being counted as asleep `mine` times: takes bells that were rung for earlier sleeps. False:
/// others have yet to hear them, and the caller is to leave, and to look again a little later.
pub fn take_heard(socket: &Socket, fd: i32, mine: u32) -> bool {
    !socket.hold.is_taking() && (!pending(socket, fd, mine) || socket.hold.when_all_heard(mine, || take(socket, fd)))
}

/// Whether there may be bells to be taken. A thread that finds others asleep asks the kernel: they are woken only if there are.
fn pending(socket: &Socket, fd: i32, mine: u32) -> bool {
    let others = socket.hold.sleepers() > mine;
    let readable = |fd: i32| !others || calls::poll_one(fd, libc::POLLIN, 0).is_ok_and(|events| events & libc::POLLIN != 0);
    if socket.has(flag::SHARED) {
        let listener = socket.bell_listener.number();
        return listener >= 0 && readable(listener);
    }
    (are_counted(socket) || socket.hold.was_woken()) && readable(socket.hold.number(fd))
}

/// Whether more were rung than taken. A bell that is on its way is counted; one of an earlier connection may not be.
pub fn are_counted(socket: &Socket) -> bool {
    socket.incoming_bells().owed() != 0
}

/// Takes all bells; the caller knows that no other thread of this process needs them.
fn take(socket: &Socket, fd: i32) {
    if socket.has(flag::SHARED) {
        // No thread takes them here, so what else has come would never be seen.
        if socket.bell_listener.hear() {
            trim(socket, fd);
            bypass::look(socket, fd);
        }
        return;
    }
    let found = {
        // A thread that shares the socket takes this lock before.
        let Ok(_held) = socket.lock_receive_settled() else { return };
        if socket.has(flag::SHARED) {
            return;
        }
        take_bells(socket, fd, 64)
    };
    found.tell(socket, fd);
}

/// Bells above which some are taken where they need not be: a long row of them would fill the companion.
const MANY: i32 = 16;

/// Takes bells off a companion that holds many, and leaves one, so that every process still finds that it is readable.
pub fn trim(socket: &Socket, fd: i32) {
    if are_many(socket) {
        trim_now(socket, fd);
    }
}

/// Whether it holds many. Bells that had not come when it was last looked at are left out: of a waker that was killed before it wrote,
/// or urgent ones, which the kernel drops.
pub fn are_many(socket: &Socket) -> bool {
    socket.incoming_bells().owed().wrapping_sub(socket.connected.astray.load(Ordering::Relaxed)) as i32 > MANY
}

#[cold]
fn trim_now(socket: &Socket, fd: i32) {
    let Ok(held) = socket.lock_receive_settled() else { return };
    let before = socket.incoming_bells().before();
    let mut waiting = Err(Errno(libc::EBADF));
    socket.hold.while_open(socket, fd, |fd| waiting = calls::bytes_waiting(fd));
    let Ok(waiting) = waiting else { return };
    socket.connected.astray.store(before.astray(waiting), Ordering::Relaxed);
    let found = if waiting > 1 { take_bells(socket, fd, (waiting as usize - 1).min(64)) } else { Found::Nothing };
    drop(held);
    if found == Found::Foreign {
        bypass::break_off(socket, fd);
    }
}

/// Bytes were taken, and each message rings (O_ASYNC): so do the bells go.
pub fn relieve(socket: &Socket, fd: i32) {
    if !socket.alone() {
        trim(socket, fd);
    } else if are_counted(socket) {
        take_bells(socket, fd, 64).tell(socket, fd);
    }
}

/// Takes the bells of a stream of which its only set has heard. False: others may need them.
pub fn silence(socket: &Socket, fd: i32) -> bool {
    let (mut silenced, mut found) = (false, Found::Nothing);
    let heard = socket.hold.when_all_heard(0, || {
        // A thread that shares the socket takes this lock before.
        let Ok(_held) = socket.lock_receive_settled() else { return };
        silenced = !socket.has(flag::SHARED);
        if silenced {
            found = take_bells(socket, fd, 64);
        }
    });
    if found == Found::Foreign {
        bypass::break_off(socket, fd);
    }
    heard && silenced && !socket.has(flag::SHARED)
}

/// A blocking receive on the companion `fd` took `bytes`, of a socket that no other thread can use; `before`: as the count of bells
/// told it then.
pub fn taken_alone(socket: &Socket, fd: i32, bytes: &[u8], before: Before) {
    note_taken(socket, bytes, 64, before).tell(socket, fd);
}

/// What was taken off a companion.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Bells,
    /// See [`crate::waiting::bypass`].
    Foreign,
}

impl Found {
    /// Tells sets that bells were taken, or ends the connection. The caller holds no lock of the socket's.
    fn tell(self, socket: &Socket, fd: i32) {
        if self == Found::Foreign {
            bypass::break_off(socket, fd);
        }
        if self != Found::Nothing {
            fence(Ordering::SeqCst); // a set that the socket joins later looks at the stream
            watchers::changed(socket, Change::BellsTaken);
        }
    }
}

fn note_taken(socket: &Socket, bytes: &[u8], most: usize, before: Before) -> Found {
    if bypass::took(socket, bytes) {
        return Found::Foreign;
    }
    if bytes.len() < most {
        bypass::emptied(socket, before);
    }
    Found::Bells
}

#[cold]
fn take_bells(socket: &Socket, fd: i32, most: usize) -> Found {
    let mut bytes = [0u8; 64];
    let (start, most, nobody) = (bytes.as_mut_ptr().cast(), most.min(bytes.len()), core::ptr::null_mut());
    let before = socket.incoming_bells().before();
    let mut taken = Err(Errno(libc::EBADF));
    // Beside a thread that closes the number its bytes may be another file's.
    socket
        .hold
        .while_open(socket, fd, |fd| taken = calls::recvfrom(fd, start, most, MSG_DONTWAIT, nobody, core::ptr::null_mut()));
    match taken {
        Ok(0) => readiness::companion_ended(socket),
        Ok(n) => return note_taken(socket, &bytes[..n], most, before),
        Err(Errno(libc::EAGAIN)) => bypass::emptied(socket, before),
        Err(Errno(libc::EINTR | libc::EBADF)) => {}
        Err(_) => readiness::note_gone(socket),
    }
    Found::Nothing
}

/// The companion reads as ended: an edge for every set of every process that has it, besides.
#[cold]
pub fn end_companion(socket: &Socket, fd: i32) {
    socket.set(flag::NOT_REUSABLE);
    socket.hold.while_open(socket, fd, |fd| {
        let _ = calls::shutdown(fd, libc::SHUT_RD);
    });
}
