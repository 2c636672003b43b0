//! The ground floor: the only crate that enters the kernel.
//!
//! It owns system calls as the kernel defines them (a negative return value is an errno), the one block of
//! thread-local storage that shunt uses, and time stamps. It knows nothing of sockets, rings or libc's state:
//! nothing here sets `errno`, allocates, or can be intercepted, so it is safe in a signal handler, in a child
//! after `vfork`, and before libc has initialised.
//!
//! ```
//! use shunt_sys::{calls, Errno};
//! assert_eq!(calls::close(-1), Err(Errno(libc::EBADF)));
//! ```
#![cfg_attr(not(test), no_std)]

pub mod action;
pub mod barrier;
pub mod calls;
pub mod cancel;
pub mod clock;
pub mod dispatch;
mod errno;
pub mod filter;
pub mod interrupt_sleep;
pub mod mapping;
pub mod memory_file;
pub mod process;
pub mod processor;
pub mod raw;
pub mod section;
pub mod sleeper;
pub mod sleeping;
pub mod stops;
pub mod thread;
pub mod user;

pub use errno::{check, Errno, Result};
pub use libc;
