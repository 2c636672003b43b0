//! Clients that wait in the rendezvous of a listener that becomes the kernel's: carriers take them to its queue.
//!
//! Each takes two numbers here until its carrier has it, so they go in batches: the numbers of one serve the next.

use crate::global::SETUP;
use crate::handover::carrier::{self, Cargo};
use crate::handover::plain;
use crate::link;
use crate::process::{self, user};
use crate::rendezvous::{accept, kept, reserve};
use crate::socket::Socket;
use core::sync::atomic::Ordering;
use shunt_segment::address::Address;
use shunt_sys::{calls, libc};

/// Clients that one carrier takes.
const AT_ONCE: usize = 256;

/// As [`carry`], by a process of `user`'s, as whom this one may not see what the clients share with their server. It has nothing of
/// this process's memory of connections, and the user, should he not be this one's, cannot look into it (it is not dumpable,
/// prctl(2)). True: nobody waits any more.
pub(crate) fn carry_as(user: u32, fd: i32, listener: &Socket) -> bool {
    if user::is_own(user) {
        carry(fd, listener);
        return true;
    }
    const ALL_SIGNALS: u64 = u64::MAX;
    let mut mask = 0u64;
    // A handler in the copy would be the program's code.
    let _ = calls::sigprocmask(libc::SIG_SETMASK, &ALL_SIGNALS, &mut mask, 8);
    process::before_own_fork();
    let child = carrier::copy();
    if child == 0 {
        process::after_own_fork_child();
        crate::remote::forget();
        kept::none_any_more();
        if let Some(_setup) = SETUP.lock() {
            link::forget_all();
        }
        // SAFETY: plain integers.
        if unsafe { shunt_sys::syscall!(libc::SYS_setresuid, user, user, user) } != 0 {
            carrier::exit(1);
        }
        user::is_now(user);
        listener.claimed.store(1, Ordering::Relaxed);
        carry(fd, listener);
        carrier::exit(0);
    }
    process::after_own_fork_parent();
    let carried = child > 0 && carrier::waited(child as i32);
    let _ = calls::sigprocmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut(), 8);
    carried
}

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
