//! Signal-driven input: the owner of a descriptor, its signal, and O_ASYNC (fcntl(2), socket(7)).
//!
//! All of that belongs to the open file, so it is the companion's, and the kernel sends the signals: a bell is SIGIO, with
//! the right descriptor, band, thread or group; an urgent byte is SIGURG. What is left to do here: to have the peer ring when no
//! thread sleeps, to carry over what was set before connecting, and to leave listeners that ask for signals to the kernel,
//! because their clients' connections arrive at descriptors that the program does not know.

use crate::socket::{flag, Socket};
use crate::waiting::{readiness, wake};
use core::sync::atomic::Ordering;
use shunt_segment::channel::state;
use shunt_sys::libc::{self, c_int};
use shunt_sys::{calls, syscall};
use shunt_table::table;
use shunt_table::table::Kind;

/// Commands of fcntl(2) and requests of ioctl(2) that the binding lacks.
pub const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;
/// See [`F_SETSIG`].
pub const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;
/// See [`F_SETSIG`].
pub const FIOSETOWN: u64 = 0x8901;
/// See [`F_SETSIG`].
pub const SIOCSPGRP: u64 = 0x8902;

/// O_ASYNC of a socket was set or taken back.
pub fn set_async(socket: &'static Socket, kind: Kind, on: bool) {
    if on == socket.has(flag::ASYNC) {
        return;
    }
    if !on {
        socket.clear(flag::ASYNC);
        if kind == Kind::Stream {
            wake::ring_always(socket, false);
        }
        return;
    }
    socket.set(flag::ASYNC);
    match kind {
        Kind::Stream => {
            socket.set(flag::NOT_REUSABLE);
            wake::ring_always(socket, true);
        }
        _ => socket.set(flag::OWNED),
    }
}

/// A listener is about to get O_ASYNC: it becomes the kernel's first, because those who wait already are not signalled.
pub fn before_async(_socket: &'static Socket, kind: Kind, fd: i32, on: bool) -> Kind {
    if kind != Kind::Listener || !on {
        return kind;
    }
    let _ = shunt_table::upcalls::operations::to_kernel(fd);
    table::get(fd).kind()
}

/// The descriptor's owner or signal is about to change.
pub fn changes(socket: &Socket, kind: Kind, fd: i32) {
    if kind != Kind::Stream {
        socket.set(flag::OWNED);
        return;
    }
    socket.set(flag::NOT_REUSABLE);
    urgent_bells(socket, fd);
}

/// The peer is to announce urgent data by urgent bytes, which are bells like others here.
fn urgent_bells(socket: &Socket, fd: i32) {
    if calls::setsockopt_int(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE, 1).is_ok() {
        socket.own().receive.state.fetch_or(state::OWNED, Ordering::AcqRel);
    }
}

/// struct f_owner_ex: what kind of process, and which.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Who {
    kind: c_int,
    number: c_int,
}

/// What a TCP socket was given before it was connected.
pub struct Owner {
    who: Who,
    signal: c_int,
}

impl Owner {
    /// Of the open file at `fd`.
    pub fn of(fd: i32) -> Owner {
        let mut who = Who::default();
        let _ = calls::fcntl(fd, F_GETOWN_EX, &raw mut who as usize);
        Owner { who, signal: calls::fcntl(fd, F_GETSIG, 0).unwrap_or(0) }
    }

    /// The companion at `fd` gets it.
    pub fn give(&self, socket: &'static Socket, fd: i32) {
        socket.clear(flag::OWNED);
        socket.set(flag::NOT_REUSABLE);
        let _ = calls::fcntl(fd, F_SETSIG, self.signal as usize);
        if self.who.number != 0 {
            let _ = calls::fcntl(fd, F_SETOWN_EX, &raw const self.who as usize);
            urgent_bells(socket, fd);
        }
        if socket.has(flag::ASYNC) {
            let flags = calls::fcntl(fd, libc::F_GETFL, 0).unwrap_or(libc::O_RDWR);
            let _ = calls::fcntl(fd, libc::F_SETFL, (flags | libc::O_ASYNC) as usize);
            wake::ring_always(socket, true);
            self.connected(fd);
        }
    }

    /// The signal that the connection is made (`tcp_finish_connect`), as far as it is for this process.
    fn connected(&self, fd: i32) {
        // SAFETY: all-zero is a valid siginfo_t, which is larger than the fields of signals about input.
        let mut information: libc::siginfo_t = unsafe { core::mem::zeroed() };
        let by_default = self.signal == 0;
        information.si_signo = if by_default { libc::SIGIO } else { self.signal };
        information.si_code = if by_default { SI_KERNEL } else { POLL_OUT };
        if !by_default {
            let about = About { band: (libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND) as i64, fd };
            // SAFETY: the fields of signals about input begin at 16 (asm-generic/siginfo.h).
            unsafe { (&raw mut information).cast::<u8>().add(16).cast::<About>().write(about) };
        }
        let (process, number) = (calls::getpid() as i32, information.si_signo);
        // SAFETY: plain system calls; a process may send itself any siginfo_t.
        unsafe {
            match self.who.kind {
                F_OWNER_TID => syscall!(libc::SYS_rt_tgsigqueueinfo, process, self.who.number, number, &raw const information),
                F_OWNER_PID if self.who.number == process => {
                    syscall!(libc::SYS_rt_sigqueueinfo, process, number, &raw const information)
                }
                _ => 0,
            };
        }
    }
}

/// A signal about input has come to a handler. The kernel tells of the companion: that a bell came (POLL_IN), or that its
/// other end is closed (POLL_HUP). TCP says POLL_ERR for a reset (tcp_reset), and for an end two times POLL_IN, of which the first is POLL_HUP
/// where this side had ended before (tcp_fin, tcp_data_queue). False: the handler is not to be told, because a close behind an end is nothing.
///
/// # Safety
/// The kernel's structure, in the frame of a handler.
pub unsafe fn say_cause(information: *mut libc::siginfo_t) -> bool {
    // SAFETY: as in `connected`; only signals about input have these codes and the number of a stream that asked for signals.
    unsafe {
        let code = (*information).si_code;
        if !matches!(code, POLL_IN | POLL_HUP) {
            return true;
        }
        let about = information.cast::<u8>().add(16).cast::<About>();
        let word = table::get((*about).fd);
        let Some(socket) = word.object::<Socket>().filter(|socket| word.kind() == Kind::Stream && socket.has(flag::ASYNC)) else {
            return true;
        };
        if readiness::reset(socket) {
            (*information).si_code = POLL_ERR;
            (*about).band = libc::POLLERR as i64;
            return true;
        }
        if code == POLL_HUP && socket.peer().receive.state.load(Ordering::Acquire) & state::CLOSED_LATE != 0 {
            return false;
        }
        if readiness::closed(socket) && socket.connected.end_told.swap(1, Ordering::Relaxed) == 0 {
            (*information).si_code = POLL_HUP;
            (*about).band = (libc::POLLERR | libc::POLLHUP) as i64;
        } else if code == POLL_HUP {
            (*information).si_code = POLL_IN;
            (*about).band = (libc::POLLIN | libc::POLLRDNORM) as i64;
        }
        true
    }
}

const F_OWNER_TID: c_int = 0;
const F_OWNER_PID: c_int = 1;
const SI_KERNEL: c_int = 0x80;
const POLL_IN: c_int = 1;
const POLL_OUT: c_int = 2;
const POLL_ERR: c_int = 4;
const POLL_HUP: c_int = 6;

/// siginfo_t's fields for signals about input: si_band and si_fd.
#[repr(C)]
struct About {
    band: i64,
    fd: i32,
}
