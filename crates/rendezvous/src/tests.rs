//! A listener and its clients in one process, without intercepted calls; what they are told is held against the kernel's own sockets.

mod connecting;
mod deferring;
mod dissolving;
mod listening;
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
