//! Clients that wait in the rendezvous of a listener that becomes the kernel's: carriers take them to its queue.
//!
//! Each takes two numbers here until its carrier has it, so they go in batches: the numbers of one serve the next.

use crate::handover::carrier::{self, Cargo};
use crate::handover::plain;
use crate::rendezvous::{accept, reserve};
use crate::socket::Socket;
use core::sync::atomic::Ordering;
use shunt_segment::address::Address;
use shunt_sys::calls;

/// Clients that one carrier takes.
const AT_ONCE: usize = 256;

struct Batch {
    cargo: [Cargo; AT_ONCE],
    count: usize,
}

/// All of them. The rendezvous of `listener`, which is at `fd`, lets nobody in any more.
pub(super) fn carry(fd: i32, listener: &Socket) {
    let mut batch = Batch { cargo: [Cargo { stream: -1, carrier: -1, program: -1, process: 0 }; AT_ONCE], count: 0 };
    loop {
        match accept::waiting(listener) {
            Some((stream, client)) => batch.add(fd, listener, stream, &client),
            None if batch.count == 0 => return,
            None => batch.send(), // perhaps no number was left to accept
        }
    }
}

impl Batch {
    fn add(&mut self, fd: i32, listener: &Socket, stream: i32, client: &Address) {
        if self.count == AT_ONCE {
            self.send();
        }
        let family = listener.family.load(Ordering::Relaxed);
        let join = || plain::to_listener(fd, family, client);
        let joined = join().or_else(|_| {
            self.send(); // perhaps no number was left to connect
            join()
        });
        let Ok(carrier) = joined else { return close(stream) };
        self.cargo[self.count] = Cargo { stream, carrier, program: -1, process: 0 };
        self.count += 1;
    }

    /// To a carrier of their own. Where none can be made they see their connections end.
    fn send(&mut self) {
        let batch = &self.cargo[..core::mem::take(&mut self.count)];
        if batch.is_empty() {
            return;
        }
        reserve::lend();
        if let Ok(carrier) = carrier::fork(batch) {
            carrier.begin();
        }
        for item in batch {
            let _ = calls::close(item.carrier);
            close(item.stream);
        }
        reserve::fill();
    }
}

fn close(stream: i32) {
    crate::descriptor::closing(stream);
    let _ = calls::close(stream);
}
