//! A thread that says of the others that they live, while they run procedures.
//!
//! A thread that runs a procedure answers nothing, not even what asks for a sign of life; between hosts such a silence is how a death is
//! known. So for each of its callers a word goes over the socket of the binding, each second, until the thread looks again. A process that
//! is stopped has no thread that would say so.

use super::stop::{eventfd, ring, Stop};
use super::worker::Shared;
use crate::clock::now;
use crate::forks;
use crate::readable::readable;
use crate::rendezvous::{send_some, Socket, BUSY};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::Duration;

/// How long a thread does not look at its callers until they are told, and how often. Callers wait for three times as long.
const PULSE: Duration = Duration::from_secs(1);
/// What is long enough for any sleep.
const LONG: Duration = Duration::from_secs(3600);

/// What the keeper knows of a thread.
#[derive(Default)]
pub(super) struct Pulse {
    /// When the thread last looked at all its callers; 0: it sleeps on them.
    looked: AtomicU64,
    /// Sockets of its callers on other hosts.
    sockets: Mutex<Vec<RawFd>>,
}

impl Pulse {
    pub(super) fn sleep(&self) {
        self.looked.store(0, Ordering::SeqCst);
    }

    pub(super) fn wake(&self, time: u64, keeper: &Keeper) {
        self.looked.store(time, Ordering::SeqCst);
        keeper.wake();
    }

    #[inline(always)]
    pub(super) fn look(&self, time: u64) {
        self.looked.store(time, Ordering::Relaxed);
    }

    pub(super) fn greet(&self, socket: &Socket) {
        self.sockets.lock().expect("no panic while it is held").push(socket.as_raw_fd());
    }

    /// Before the socket is closed: its number may be another descriptor's then.
    pub(super) fn part(&self, socket: &Socket) {
        self.sockets.lock().expect("no panic while it is held").retain(|&one| one != socket.as_raw_fd());
    }

    fn sleeps(&self) -> bool {
        self.looked.load(Ordering::SeqCst) == 0
    }

    fn tell(&self, time: u64) {
        let looked = self.looked.load(Ordering::SeqCst);
        if looked != 0 && time > looked + PULSE.as_nanos() as u64 {
            let sockets = self.sockets.lock().expect("no panic while it is held");
            // To a caller that takes nothing it is said no more.
            sockets.iter().for_each(|&socket| drop(send_some(socket, &BUSY.to_le_bytes())));
        }
    }
}

/// Looks after the pulses of threads. While all of them sleep, so does it.
pub(super) struct Keeper {
    asleep: AtomicBool,
    bell: OwnedFd,
}

impl Keeper {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { asleep: AtomicBool::new(false), bell: eventfd()? })
    }

    fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            ring(&self.bell);
        }
    }

    /// Until the server is stopped.
    pub(super) fn keep(&self, threads: &[Shared], stop: &Stop) {
        let forks = forks::number();
        let all_sleep = || threads.iter().all(|thread| thread.pulse.sleeps());
        while !stop.stopped.load(Ordering::SeqCst) && forks == forks::number() {
            self.asleep.store(true, Ordering::SeqCst);
            // A thread that woke before it saw that is seen here.
            if all_sleep() {
                readable(&[stop.bell.as_fd(), self.bell.as_fd()], LONG);
            }
            self.asleep.store(false, Ordering::SeqCst);
            readable(&[stop.bell.as_fd()], PULSE);
            let mut rings = [0u8; 8];
            // SAFETY: room for eight bytes.
            unsafe { libc::read(self.bell.as_raw_fd(), rings.as_mut_ptr().cast(), 8) };
            let time = now();
            threads.iter().for_each(|thread| thread.pulse.tell(time));
        }
    }
}
