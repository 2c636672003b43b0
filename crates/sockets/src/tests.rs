//! The top of the engine: its tables and lists, and what calls on any descriptor do.

mod descriptors;
mod lists;
mod numbers;
mod users;

use crate::wiring;
use shunt_config::Options;
use shunt_rendezvous::opening;
use shunt_stream::socket::Socket;
use shunt_sys::{calls, clock, libc};
use shunt_table::table::{self, Kind};
use shunt_table::{global, private};
use std::sync::{Mutex, MutexGuard, Once};

/// The engine's state is the process's, and is made once. Tests that fork, or go through all descriptors, run one after another.
fn alone() -> MutexGuard<'static, ()> {
    static STARTED: Once = Once::new();
    static ALONE: Mutex<()> = Mutex::new(());
    STARTED.call_once(|| {
        wiring::fill();
        clock::start();
        // SAFETY: tests that enter sockets come here first; null says that there may be several threads.
        unsafe { global::set(Options::default(), core::ptr::null_mut()) };
        shunt_table::process::user::start();
        global::set_ready();
    });
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A TCP socket of the program's.
fn tcp() -> (i32, &'static Socket) {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let fd = calls::socket(libc::AF_INET, kind, 0).expect("a socket");
    opening::opened(fd, libc::AF_INET, kind, 0);
    (fd, table::get(fd).object().expect("the engine's socket"))
}

/// close(2).
fn close(fd: i32) {
    shunt_table::upcalls::operations::closing(fd);
    calls::close(fd).expect("an open descriptor");
}

/// Whether a number is open.
fn is_open(fd: i32) -> bool {
    calls::fcntl(fd, libc::F_GETFD, 0).is_ok()
}
