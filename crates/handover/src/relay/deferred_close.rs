//! The relay's copies of programs' ends are closed without a sleep.
//!
//! Where a program has set SO_LINGER, the process that closes the last copy of its end sleeps until the other end has acknowledged
//! everything: the relay, for bytes that it alone would take. Whether its copy is the last the kernel does not tell. But only the last
//! close lingers, and a process that ends never does (`inet_release` in the kernel). So a child has copies of its own until the
//! relay's are closed, and then ends.

use super::connection::RelayedConnection;
use super::{copy, exit};
use shunt_sys::libc::{self, AF_UNIX, SOCK_CLOEXEC, SOCK_STREAM};
use shunt_sys::{calls, process};

/// When to try once more where no child could be made, at first and at most, in ns.
const AGAIN: u64 = 500_000;
const SELDOM: u64 = 32_000_000;

/// Closes the copies that connections are done with. When to look again, in CLOCK_MONOTONIC ns; `pause` is for the next call.
pub fn part(connections: &mut [RelayedConnection], now: u64, pause: &mut u64) -> u64 {
    if !connections.iter().any(RelayedConnection::parts) {
        *pause = 0;
        return u64::MAX;
    }
    if let Some(witness) = Witness::new() {
        connections.iter_mut().for_each(RelayedConnection::let_go);
        witness.dismiss();
        return u64::MAX;
    }
    // No process and no descriptor is left: those go whose close does not sleep, unless bytes are written at this very moment.
    connections.iter_mut().filter(|connection| connection.parts_at_once()).for_each(RelayedConnection::let_go);
    if connections.iter().any(RelayedConnection::parts) {
        *pause = (*pause * 2).clamp(AGAIN, SELDOM);
        now + *pause
    } else {
        u64::MAX
    }
}

/// Whether to close `fd` as its last copy would take until its other end has read.
pub fn would_sleep(fd: i32) -> bool {
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut length = core::mem::size_of::<libc::linger>() as libc::socklen_t;
    let asked = calls::getsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw mut linger).cast(), &mut length);
    asked.is_ok() && linger.l_onoff != 0 && linger.l_linger != 0 && calls::bytes_unread(fd).unwrap_or(0) > 0
}

/// A child that has all descriptors of this process until it is dismissed.
struct Witness {
    child: i32,
    gate: i32,
}

impl Witness {
    fn new() -> Option<Witness> {
        let mut gate = [-1; 2];
        calls::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate.as_mut_ptr()).ok()?;
        let child = copy();
        if child == 0 {
            let _ = calls::close(gate[0]);
            let mut byte = 0u8;
            // Ends when the relay has closed its end of the gate, or is gone.
            let _ = calls::recvfrom(gate[1], (&raw mut byte).cast(), 1, 0, core::ptr::null_mut(), core::ptr::null_mut());
            exit(0);
        }
        let _ = calls::close(gate[1]);
        if child < 0 {
            let _ = calls::close(gate[0]);
            return None;
        }
        Some(Witness { child: child as i32, gate: gate[0] })
    }

    fn dismiss(self) {
        // One that was stopped would not see the gate close.
        let _ = calls::kill(self.child, libc::SIGKILL);
        let _ = calls::close(self.gate);
        process::reap(self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_close_sleeps_where_it_lingers_over_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _far = listener.accept().unwrap();
        let linger = |seconds| {
            let value = libc::linger { l_onoff: 1, l_linger: seconds };
            let size = core::mem::size_of::<libc::linger>() as libc::socklen_t;
            calls::setsockopt(near.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const value).cast(), size).unwrap();
        };
        linger(600);
        assert!(!would_sleep(near.as_raw_fd()), "nothing is under way");
        near.set_nonblocking(true).unwrap();
        while (&near).write(&[7; 65536]).is_ok() {}
        assert!(would_sleep(near.as_raw_fd()));
        linger(0);
        assert!(!would_sleep(near.as_raw_fd()), "it resets");
    }
}
