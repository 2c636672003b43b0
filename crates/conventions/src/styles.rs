//! The rules by which handlers are installed: signal(3) and its kin as sigaction(2), and what the kernel is given in place of a handler.

use core::ffi::c_int;
use shunt_calls::libc::{SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_SIGINFO, SIG_IGN};

/// The rules by which a plain handler is installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// signal(3): the handler stays, its signal is blocked meanwhile, calls are restarted.
    Bsd,
    /// sysv_signal(3): one shot.
    SystemV,
    /// sigset(3).
    Plain,
}

/// A flag of Linux that says what is so without it.
const SA_INTERRUPT: c_int = 0x2000_0000;

impl Style {
    /// The flags of a handler for the signal whose bit is `bit`, and the signals that are blocked while it runs. `interrupting`: those
    /// whose handlers interrupt calls, because siginterrupt(3) said so.
    pub const fn action(self, bit: u64, interrupting: u64) -> (c_int, u64) {
        match self {
            Style::Bsd if interrupting & bit == 0 => (SA_RESTART, bit),
            Style::Bsd => (0, bit),
            Style::SystemV => (SA_RESETHAND | SA_NODEFER | SA_INTERRUPT, 0),
            Style::Plain => (0, 0),
        }
    }
}

/// The flags with which our entry stands before `handler`, which the program installs with `flags`. `tells_calls`: it is that of SIGSYS,
/// and calls are told by it.
pub const fn of_entry(flags: c_int, handler: usize, tells_calls: bool) -> c_int {
    if tells_calls {
        // A call of the program's is done in it, on the program's stack and with its mask.
        return SA_SIGINFO | SA_NODEFER;
    }
    if handler <= SIG_IGN {
        // Nobody's handler: nothing but our own look at a fault.
        return SA_SIGINFO | SA_RESTART | SA_ONSTACK | SA_NODEFER;
    }
    // Resetting is ours to do: it must not remove our entry.
    (flags | SA_SIGINFO) & !SA_RESETHAND
}

/// Flags that the kernel knows, and tells again (UAPI_SA_FLAGS of linux/signal_types.h, sigaction(2)).
const KNOWN_FLAGS: u32 = 0xdc00_0807;

/// Set in the flags when a restorer is given.
pub const SA_RESTORER: u64 = 0x0400_0000;

/// What the program is told of flags with which it installed an action.
pub const fn told(flags: c_int) -> u32 {
    // The C library always gives a restorer.
    flags as u32 & KNOWN_FLAGS | SA_RESTORER as u32
}

#[cfg(test)]
#[path = "tests/styles.rs"]
mod tests;
