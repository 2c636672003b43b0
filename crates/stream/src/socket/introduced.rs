//! Sockets that a thread is making streams of while others may use them: the kernel's TCP connection is there, and what vouches for the other end comes by it.
//! A call with data of another thread's would take that, or write behind the last look at the connection: it waits for what comes of it, some 50 us.

use super::{calling, Socket};
use core::sync::atomic::Ordering;
use shunt_sys::{calls, clock, libc, thread};
use shunt_table::global::SETUP;
use shunt_table::table;
use shunt_table::table::{Kind, Word};

/// How long is waited at most (ns): longer than an introduction takes in which its other end is stopped. One that is older was left by a handler that jumped out.
const PATIENCE: u64 = 500_000_000;
/// How long a thread looks before it sleeps (ns), and how long it sleeps.
const AWAKE: u64 = 100_000;
const ASLEEP: i64 = 200_000;

/// One, until this is dropped.
pub struct Introduction {
    socket: &'static Socket,
    fd: i32,
}

impl Introduction {
    /// The calling thread begins to make a stream of `socket` at `fd`. `None`: another thread is in a call with data on it ([`calling`]).
    pub fn begin(fd: i32, socket: &'static Socket) -> Option<Introduction> {
        socket.connected.introducer.store(thread::id(), Ordering::Relaxed);
        socket.connected.introduced_in.store(thread::process(), Ordering::Relaxed);
        numbers(fd, socket).for_each(|number| _ = table::introduce(number, socket));
        let introduction = Introduction { socket, fd };
        calling::are_over(socket).then_some(introduction)
    }
}

impl Drop for Introduction {
    fn drop(&mut self) {
        numbers(self.fd, self.socket).for_each(|number| table::introduced_no_more(number, self.socket));
    }
}

/// The numbers that the socket may have.
fn numbers(fd: i32, socket: &Socket) -> core::ops::Range<i32> {
    match socket.references.load(Ordering::Relaxed) {
        0 | 1 => fd..fd + 1,
        _ => 0..table::high_water(),
    }
}

/// The stream behind `fd`, of which `word` did not say what it will be.
#[cold]
#[inline(never)]
pub(super) fn look_again(fd: i32, word: Word) -> Option<&'static Socket> {
    if !word.is_introduced() {
        word.settle_pipe();
        return None;
    }
    // SAFETY: sockets alone are introduced.
    let socket: &'static Socket = unsafe { word.known() };
    // The holder of the set-up lock would wait for a thread that needs it.
    let is_in_the_way = || socket.connected.introducer.load(Ordering::Relaxed) == thread::id() || SETUP.is_mine();
    let began = clock::monotonic_ns();
    while table::get(fd) == word {
        let waited = clock::monotonic_ns() - began;
        if is_in_the_way() {
            return None;
        }
        // In a child of fork it stays what it is: the stream is its parent's.
        if waited > PATIENCE || socket.connected.introduced_in.load(Ordering::Relaxed) != thread::process() {
            table::introduced_no_more(fd, socket);
            return None;
        }
        if waited < AWAKE {
            calls::sched_yield();
        } else {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: ASLEEP };
            let _ = calls::ppoll(core::ptr::null_mut(), 0, &mut time, core::ptr::null(), calls::KERNEL_SIGSET);
        }
    }
    let word = table::get(fd);
    // SAFETY: as in `stream`.
    word.is(Kind::Stream).then(|| unsafe { word.known() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{allocate, stream};
    use std::sync::atomic::AtomicBool;

    /// Far above all descriptors.
    const HIGH: i32 = 710_000;

    fn is(fd: i32, socket: &'static Socket) -> bool {
        stream(fd).is_some_and(|there| core::ptr::eq(there, socket))
    }

    /// What another thread's call finds, if `work` is done while it looks.
    fn found_meanwhile(fd: i32, socket: &'static Socket, work: impl FnOnce()) -> bool {
        let has_looked = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let found = is(fd, socket);
                has_looked.store(true, Ordering::Release);
                found
            });
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(!has_looked.load(Ordering::Acquire), "it waits");
            work();
            other.join().expect("no panic")
        })
    }

    #[test]
    fn others_wait_for_what_becomes_of_it() {
        let socket = allocate(shunt_sys::libc::AF_INET).expect("a socket");
        table::enter(HIGH, Kind::Tcp, socket);
        let introduction = Introduction::begin(HIGH, socket).expect("no call");
        assert!(!is(HIGH, socket), "the introducer does not wait for itself");
        assert!(table::find::<Socket>(HIGH).is_some() && table::get(HIGH).kind() == Kind::Tcp && table::get(HIGH).is_plain());
        assert!(found_meanwhile(HIGH, socket, || table::enter(HIGH, Kind::Stream, socket)));
        drop(introduction);
        assert!(is(HIGH, socket));
        table::enter(HIGH, Kind::Tcp, socket);
        let introduction = Introduction::begin(HIGH, socket).expect("no call");
        assert!(!found_meanwhile(HIGH, socket, || drop(introduction)), "nothing came of it");
        // One that a handler left by a jump.
        core::mem::forget(Introduction::begin(HIGH, socket).expect("no call"));
        std::thread::scope(|scope| assert!(!scope.spawn(|| is(HIGH, socket)).join().expect("no panic")));
        assert!(!table::get(HIGH).is_introduced());
        // In a child.
        core::mem::forget(Introduction::begin(HIGH, socket).expect("no call"));
        socket.connected.introduced_in.store(1, Ordering::Relaxed);
        socket.connected.introducer.store(1, Ordering::Relaxed);
        let began = clock::monotonic_ns();
        assert!(!is(HIGH, socket) && clock::monotonic_ns() - began < PATIENCE);
        assert!(!table::get(HIGH).is_introduced());
        table::take(HIGH);
    }
}
