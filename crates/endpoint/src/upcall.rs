//! Upcalls: U-Net section 3.1. "The receive queue is non-empty" and "the receive queue is almost full" call a function;
//! all messages pending are consumed in one upcall, and a process disables upcalls cheaply to form sections that are atomic
//! with respect to reception.
//!
//! What makes the call is the program's choice: a signal ([`request_signal`]: SIGIO of the endpoint's descriptor), a
//! thread that sleeps on the descriptor, or a loop. A signal handler calls [`Gate::deliver_and_arm`], the others
//! [`Gate::deliver`].

use crate::{Arrival, Endpoint};
use core::sync::atomic::{compiler_fence, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use shunt_sys::{calls, libc, Errno, Result};

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

/// Whether upcalls may run. One thread's: its handler interrupts it, and no other one.
///
/// Three words rather than bits of one, so that no read-modify-write is needed, which a handler could come into.
#[derive(Debug, Default)]
pub struct Gate {
    shut: AtomicU32,
    running: AtomicU32,
    /// An upcall found the gate shut, or another one running.
    missed: AtomicU32,
}

impl Gate {
    /// An open gate.
    pub const fn new() -> Gate {
        Gate { shut: AtomicU32::new(0), running: AtomicU32::new(0), missed: AtomicU32::new(0) }
    }

    /// No upcalls from here on: one store.
    #[inline(always)]
    pub fn disable(&self) {
        self.shut.store(1, Relaxed);
        compiler_fence(SeqCst);
    }

    /// Upcalls again: a store, a load and a branch. True: one was held back meanwhile, and is to be made up for by doing it.
    #[inline(always)]
    #[must_use]
    pub fn enable(&self) -> bool {
        compiler_fence(SeqCst);
        self.shut.store(0, Relaxed);
        // A handler that comes before this leaves its mark, one that comes after runs.
        compiler_fence(SeqCst);
        self.take_mark()
    }

    #[inline(always)]
    fn take_mark(&self) -> bool {
        let marked = self.missed.load(Relaxed) != 0;
        if marked {
            self.missed.store(0, Relaxed);
        }
        marked
    }

    /// The upcall: if the gate is open and the condition holds, gives every pending message to `handler`, and releases it.
    /// `handler` may send. Gives the number of messages; 0 too when the gate is shut, which is remembered.
    pub fn deliver<E: Endpoint + ?Sized>(
        &self,
        endpoint: &mut E,
        condition: Condition,
        handler: impl FnMut(&mut E, &Arrival),
    ) -> usize {
        let nothing_more = |_: &mut E| true;
        self.run(endpoint, |endpoint| condition.holds(endpoint), nothing_more, handler)
    }

    /// The upcall of a signal handler: all pending messages, and then the endpoint is armed for the next signal. Also arms it
    /// the first time, and makes up for what was held back.
    pub fn deliver_and_arm<E: Endpoint + ?Sized>(&self, endpoint: &mut E, handler: impl FnMut(&mut E, &Arrival)) -> usize {
        let begin = |endpoint: &mut E| {
            endpoint.disarm();
            true
        };
        self.run(endpoint, begin, |endpoint| endpoint.arm(), handler)
    }

    fn run<E: Endpoint + ?Sized>(
        &self,
        endpoint: &mut E,
        mut begin: impl FnMut(&mut E) -> bool,
        mut end: impl FnMut(&mut E) -> bool,
        mut handler: impl FnMut(&mut E, &Arrival),
    ) -> usize {
        if self.shut.load(Relaxed) != 0 || self.running.load(Relaxed) != 0 {
            self.missed.store(1, Relaxed);
            return 0;
        }
        let (mut arrival, mut count) = (Arrival::empty(), 0);
        loop {
            self.running.store(1, Relaxed);
            compiler_fence(SeqCst);
            if begin(endpoint) {
                loop {
                    while endpoint.receive(&mut arrival) {
                        handler(endpoint, &arrival);
                        endpoint.release(&mut arrival);
                        count += 1;
                    }
                    if end(endpoint) {
                        break;
                    }
                }
            }
            compiler_fence(SeqCst);
            self.running.store(0, Relaxed);
            compiler_fence(SeqCst);
            // An upcall that came meanwhile found this one running: what it was for is done here.
            if !self.take_mark() {
                return count;
            }
        }
    }
}

/// Asks for `signal` to thread `thread` whenever the endpoint's descriptor becomes readable: after [`Endpoint::arm`], and on
/// some devices at other times too. The handler is the program's, and calls [`Gate::deliver_and_arm`].
///
/// # Errors
/// EOPNOTSUPP: the device's descriptor is no socket, and the kernel would never send the signal (`shm` and `udp` have sockets;
/// for the others sleep on the descriptor in a thread). What fcntl(2) answers: F_SETOWN_EX, F_SETSIG, O_ASYNC.
pub fn request_signal(endpoint: &(impl Endpoint + ?Sized), thread: u32, signal: i32) -> Result<()> {
    const F_SETSIG: i32 = 10;
    const F_SETOWN_EX: i32 = 15;
    let descriptor = endpoint.descriptor();
    // O_ASYNC on an eventfd or an epoll is taken, and does nothing.
    calls::getsockopt_int(descriptor, libc::SOL_SOCKET, libc::SO_TYPE).map_err(|_| Errno(libc::EOPNOTSUPP))?;
    // struct f_owner_ex: F_OWNER_TID, and the thread.
    let owner = [0i32, thread as i32];
    calls::fcntl(descriptor, F_SETOWN_EX, owner.as_ptr() as usize)?;
    calls::fcntl(descriptor, F_SETSIG, signal as usize)?;
    let flags = calls::fcntl(descriptor, libc::F_GETFL, 0)?;
    calls::fcntl(descriptor, libc::F_SETFL, (flags | libc::O_ASYNC) as usize).map(|_| ())
}
