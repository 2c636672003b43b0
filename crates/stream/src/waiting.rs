//! What a stream is ready for, and what wakes the calls that wait for that.
//!
//! ```text
//! until        the loop of all calls that wait              spin: for how long to look
//! readiness    conditions of a stream
//! wake         the peer, by a bell          bells: that were rung           bypass: bytes on a companion that are none
//! wake_pollers     threads of this process that sleep in poll                 owner: those that are signalled (O_ASYNC)
//! wake_receivers   threads that sleep in recv, where a connection becomes the kernel's
//! holding      calls on a socket whose last descriptor another thread closes
//! watchers     sets around a socket         signals: what a handler leaves of a call
//! kernel_sockets   waiting for those that only the kernel has
//! ```

pub mod bells;
pub mod bypass;
pub mod holding;
pub mod kernel_sockets;
pub mod owner;
pub mod readiness;
pub mod signals;
pub mod spin;
pub mod until;
pub mod wake;
pub mod wake_pollers;
mod wake_receivers;
pub mod watchers;

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use shunt_table::global::Mutex;

/// What the waiting threads of a process share.
pub(crate) struct Waiting {
    /// What the crates above do when the last waiting call ends a socket or a set; null: nothing yet.
    ends: AtomicPtr<holding::Ends>,
    /// What sets do of which a socket is a member; null: there is none.
    watchers: AtomicPtr<watchers::Watchers>,
    /// For threads for which what this side's own threads do can be news.
    news: wake_pollers::Sleepers,
    /// For threads that are to hear only that a stream has become the kernel's: one that is woken finds what has been closed meanwhile.
    carried: wake_pollers::Sleepers,
    /// What the program installed as handlers is changed by one thread after the other, and not while a fork copies it.
    handlers: Mutex,
    /// Ticks of a spin, and a mark that the clock's rate was exact.
    spin: AtomicU64,
    /// Memory that the kernel counts for one bell; 0: not measured yet.
    of_one_bell: AtomicU32,
    /// Whether waits for the kernel's sockets find a processor to look on.
    crowd: kernel_sockets::Crowd,
}

pub(crate) static WAITING: Waiting = Waiting {
    ends: AtomicPtr::new(core::ptr::null_mut()),
    watchers: AtomicPtr::new(core::ptr::null_mut()),
    news: wake_pollers::Sleepers::new(),
    carried: wake_pollers::Sleepers::new(),
    handlers: Mutex::new(),
    spin: AtomicU64::new(0),
    of_one_bell: AtomicU32::new(0),
    crowd: kernel_sockets::Crowd::new(),
};
