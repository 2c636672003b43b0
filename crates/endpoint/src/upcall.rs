//! Upcalls: U-Net section 3.1. "The receive queue is non-empty" and "the receive queue is almost full" call a function;
//! all messages pending are consumed in one upcall, and a process disables upcalls cheaply to form sections that are atomic
//! with respect to reception.
//!
//! What makes the call is the program's choice: a signal ([`request_signal`]: SIGIO of the endpoint's descriptor), a
//! thread that sleeps on the descriptor, or a loop. Each calls [`Gate::deliver`].

use crate::{Arrival, Endpoint};
use core::sync::atomic::{compiler_fence, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use shunt_sys::{calls, libc, Result};

/// When to call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Something waits.
    NonEmpty,
    /// So many waits, in hundredths of the queue, that the next may be lost.
    AlmostFull(u32),
}

impl Condition {
    /// Whether it holds.
    pub fn holds(self, endpoint: &mut (impl Endpoint + ?Sized)) -> bool {
        match self {
            Condition::NonEmpty => true,
            Condition::AlmostFull(hundredths) => {
                let backlog = endpoint.backlog();
                backlog.waiting as u64 * 100 >= backlog.capacity as u64 * hundredths as u64
            }
        }
    }
}

const DISABLED: u32 = 1;
const RUNNING: u32 = 2;
const MISSED: u32 = 4;

/// Whether upcalls may run. One thread's: its handler interrupts it, and nobody else.
#[derive(Debug, Default)]
pub struct Gate(AtomicU32);

impl Gate {
    /// An open gate.
    pub const fn new() -> Gate {
        Gate(AtomicU32::new(0))
    }

    /// No upcalls from here on: two instructions, no system call.
    #[inline(always)]
    pub fn disable(&self) {
        self.0.store(self.0.load(Relaxed) | DISABLED, Relaxed);
        compiler_fence(SeqCst);
    }

    /// Upcalls again. True: one was held back meanwhile, and is to be made up for by [`Gate::deliver`].
    #[inline(always)]
    #[must_use]
    pub fn enable(&self) -> bool {
        compiler_fence(SeqCst);
        // A handler between these two would run to its end: it sees an open gate or leaves its mark in the old word, which
        // the exchange gives.
        self.0.fetch_and(!(DISABLED | MISSED), Relaxed) & MISSED != 0
    }

    /// The upcall: if the gate is open and the condition holds, gives every pending message to `handler`, and releases it.
    /// `handler` may send. Gives the number of messages; 0 too when the gate is shut, which is remembered.
    pub fn deliver<E: Endpoint + ?Sized>(
        &self,
        endpoint: &mut E,
        condition: Condition,
        mut handler: impl FnMut(&mut E, &Arrival),
    ) -> usize {
        if self.0.load(Relaxed) & (DISABLED | RUNNING) != 0 {
            self.0.fetch_or(MISSED, Relaxed);
            return 0;
        }
        if !condition.holds(endpoint) {
            return 0;
        }
        self.0.fetch_or(RUNNING, Relaxed);
        let (mut arrival, mut count) = (Arrival::empty(), 0);
        loop {
            while endpoint.receive(&mut arrival) {
                handler(endpoint, &arrival);
                endpoint.release(&mut arrival);
                count += 1;
            }
            // An upcall that came inside the handler found the gate shut: its messages are taken here.
            if self.0.fetch_and(!MISSED, Relaxed) & MISSED == 0 {
                break;
            }
        }
        self.0.fetch_and(!RUNNING, Relaxed);
        count
    }
}

/// Asks for `signal` to thread `thread` whenever the endpoint's descriptor becomes readable: after [`Endpoint::arm`], and on
/// some devices at other times too. The handler is the program's; between sleeps it must arm again.
///
/// # Errors
/// What fcntl(2) answers: F_SETOWN_EX, F_SETSIG, O_ASYNC.
pub fn request_signal(endpoint: &(impl Endpoint + ?Sized), thread: u32, signal: i32) -> Result<()> {
    const F_SETSIG: i32 = 10;
    const F_SETOWN_EX: i32 = 15;
    let descriptor = endpoint.descriptor();
    // struct f_owner_ex: F_OWNER_TID, and the thread.
    let owner = [0i32, thread as i32];
    calls::fcntl(descriptor, F_SETOWN_EX, owner.as_ptr() as usize)?;
    calls::fcntl(descriptor, F_SETSIG, signal as usize)?;
    let flags = calls::fcntl(descriptor, libc::F_GETFL, 0)?;
    calls::fcntl(descriptor, libc::F_SETFL, (flags | libc::O_ASYNC) as usize).map(|_| ())
}
