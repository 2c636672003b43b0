//! How a call waits, and what wakes it.
//!
//! ```text
//! wait         spin, arm, check again, sleep on the companion         spin: for how long
//! readiness    what a stream is ready for: conditions and poll masks
//! poll         select, polled: in terms of it          swift: where one stream has bytes
//! bells        that were rung               foreign: bytes on a companion that are none
//! nudge        threads of this process that sleep in poll             owner: those that are signalled (O_ASYNC)
//! rousing      threads that sleep in recv, where a connection becomes the kernel's
//! holding      calls on a socket whose last descriptor another thread closes
//! patience     while another process holds a lock                     signals: what a handler leaves of a call
//! ```

pub mod bells;
pub mod foreign;
pub mod holding;
pub mod nudge;
pub mod owner;
pub mod readiness;
mod rousing;
pub mod signals;
pub mod spin;
pub mod wake;
pub mod watchers;
