//! Options that change what we do.

use super::limits;
use crate::control;
use crate::socket::{flag, Socket};
use core::sync::atomic::Ordering;
use shunt_segment::channel::state;
use shunt_sys::libc::{self, c_int, IPPROTO_TCP, SOL_SOCKET};

/// The value of an option: an int, or a byte where there are fewer (IP_TTL and its like).
pub fn integer(bytes: &[u8]) -> c_int {
    match bytes.first_chunk::<4>() {
        Some(four) => c_int::from_ne_bytes(*four),
        None => bytes.first().copied().unwrap_or(0) as c_int,
    }
}

/// Options that change what we do.
pub fn apply(socket: &Socket, level: c_int, name: c_int, bytes: &[u8]) {
    control::note(socket, level, name, integer(bytes));
    if (level, name) == (IPPROTO_TCP, libc::TCP_USER_TIMEOUT) {
        socket.connected.stalled.set(integer(bytes));
    }
    if level != SOL_SOCKET {
        return;
    }
    match name {
        libc::SO_PEEK_OFF => {
            socket.peek_offset.store(integer(bytes), Ordering::Relaxed);
            careful(socket);
        }
        libc::SO_ZEROCOPY => {
            if integer(bytes) != 0 {
                socket.set(flag::ZERO_COPY | flag::ERROR_QUEUE);
            } else {
                socket.clear(flag::ZERO_COPY);
            }
        }
        libc::SO_RCVTIMEO => socket.receive_timeout.store(limits::of(bytes), Ordering::Relaxed),
        libc::SO_SNDTIMEO => socket.send_timeout.store(limits::of(bytes), Ordering::Relaxed),
        libc::SO_OOBINLINE => {
            if integer(bytes) != 0 {
                socket.set(flag::OOB_INLINE);
            } else {
                socket.clear(flag::OOB_INLINE);
            }
        }
        libc::SO_RCVLOWAT => {
            socket.low_water.store(integer(bytes).max(1) as u32, Ordering::Relaxed);
            careful(socket);
        }
        libc::SO_LINGER if bytes.len() >= 8 => {
            if integer(bytes) != 0 && integer(&bytes[4..]) == 0 {
                socket.set(flag::LINGER_RESET);
            } else {
                socket.clear(flag::LINGER_RESET);
            }
        }
        _ => {}
    }
}

fn careful(socket: &Socket) {
    if socket.low_water.load(Ordering::Relaxed) > 1 || socket.peek_offset.load(Ordering::Relaxed) >= 0 {
        socket.set(flag::SLOW_RECEIVE);
    } else {
        socket.clear(flag::SLOW_RECEIVE);
    }
}

/// Other owners of the side may be the last to close.
pub fn tell_linger(socket: &Socket) {
    let state = &socket.own().receive.state;
    let _ = match socket.has(flag::LINGER_RESET) {
        true => state.fetch_or(state::LINGER_RESET, Ordering::AcqRel),
        false => state.fetch_and(!state::LINGER_RESET, Ordering::AcqRel),
    };
    let _ = socket.has(flag::REMOTE) && crate::progress::kick(socket); // a socket of the kernel may be the last to close
}
