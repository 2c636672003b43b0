//! A listener and its clients in one process, without intercepted calls; what they are told is held against the kernel's own sockets.

mod connecting;
mod deferring;
mod dissolving;
mod hostile;
mod listening;
mod options;
mod program;
mod reconnecting;

use program::{agreed, loopback, loopback_six, same, start, Fd, World};
use shunt_segment::reason::Reason;
use shunt_sys::libc::{self, AF_INET, AF_INET6, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};
use shunt_sys::Errno;
use shunt_table::table::Kind;

/// The error of a call that failed.
#[track_caller]
fn error<T: core::fmt::Debug>(result: shunt_sys::Result<T>) -> i32 {
    result.expect_err("a failure").0
}

/// A socket at a port that its program chose, which it keeps when it listens no longer.
fn at_a_chosen_port(world: World) -> Fd {
    loop {
        let (finder, socket) = (World::Kernel.tcp(), world.tcp());
        finder.bind(&loopback(0)).unwrap();
        let free = finder.name().unwrap();
        finder.close();
        if socket.bind(&free).is_ok() {
            return socket;
        }
    }
}
