//! Waiting for an answer: looks, then naps, until it is there, the time is over or the server is gone.

use super::Binding;
use crate::calls::State;
use crate::clock::now;
use crate::device::PEER;
use crate::error::{Error, Kind, Ran, Side};
use crate::readable::readable;
use crate::wire::{Head, Name};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Empty looks between two looks at the clock.
const LOOKS: u32 = 64;
/// Looks before the first of them: some microseconds. Awake on both sides, the answer is there before.
const FIRST: u32 = 1024;
/// How often a caller that looks asks whether its server lives.
const HEARTBEAT: u64 = 100_000;
/// How long a caller that sleeps waits at most for the end of its server: both descriptors wake it, so this guards against nothing else.
const NAP: Duration = Duration::from_secs(1);

/// Why waiting ended.
pub(super) enum Stop {
    TimedOut,
    Dead,
}

/// A call that waits.
pub(super) struct Waiting {
    looks: u32,
    crowd: u32,
    spin_until: u64,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self { looks: 0, crowd: 0, spin_until: 0 }
    }
}

impl Binding {
    /// The same without waiting, of a call that was just begun.
    pub(in crate::client) fn is_done(&mut self, name: Name) -> bool {
        !matches!(self.calls.place(name), Some(place) if matches!(place.state, State::Waiting | State::Fetching))
    }

    /// Waits for a call's answer.
    #[inline(always)]
    pub(in crate::client) fn wait(&mut self, name: Name, until: Option<u64>) -> Result<(), Error> {
        for _ in 0..FIRST {
            if self.calls.slots[usize::from(name.slot)].state == State::Done {
                return Ok(());
            }
            self.poll();
        }
        self.wait_longer(name, until)
    }

    #[inline(never)]
    fn wait_longer(&mut self, name: Name, until: Option<u64>) -> Result<(), Error> {
        let mut waiting = Waiting::new();
        // Between hosts its silence is all that tells of a death, and probes ask for a sign; here the socket tells.
        let watched = !self.calls.direct;
        if watched {
            let now = self.end.now();
            let _ = self.end.engine().watch(now, PEER, true);
        }
        let mut result = Ok(());
        while !self.is_done(name) {
            match self.step(&mut waiting, until) {
                // What the last look brought counts, also if it was late.
                Err(Stop::TimedOut) if !self.is_done(name) => {
                    self.cancel(name);
                    result = Err(self.fail(Kind::TimedOut, Side::Server, Ran::Maybe, "no answer until the deadline"));
                    break;
                }
                Ok(()) | Err(_) => {}
            }
        }
        if watched {
            let now = self.end.now();
            let _ = self.end.engine().watch(now, PEER, false);
        }
        result
    }

    /// One look, or a nap.
    pub(super) fn step(&mut self, waiting: &mut Waiting, until: Option<u64>) -> Result<(), Stop> {
        if self.dead.is_some() {
            return Err(Stop::Dead);
        }
        if self.poll() > 0 {
            waiting.looks = 0;
            waiting.spin_until = 0;
            // Even where answers to other calls come all the time, the clock is looked at.
            waiting.crowd += 1;
            if waiting.crowd < LOOKS {
                return Ok(());
            }
            waiting.crowd = 0;
        } else {
            waiting.looks += 1;
            if waiting.looks < LOOKS {
                std::hint::spin_loop();
                return Ok(());
            }
            waiting.looks = 0;
        }
        let time = now();
        if until.is_some_and(|until| time >= until) {
            return Err(Stop::TimedOut);
        }
        if time >= self.seen + HEARTBEAT {
            self.seen = time;
            self.look_after();
            if self.dead.is_some() {
                return Err(Stop::Dead);
            }
        }
        if waiting.spin_until == 0 {
            waiting.spin_until = time.saturating_add(self.spin);
        } else if time >= waiting.spin_until {
            self.nap(until.map(|until| Duration::from_nanos(until - time)));
            self.seen = 0;
        }
        Ok(())
    }

    /// Sleeps until the server answers, or ends.
    fn nap(&mut self, limit: Option<Duration>) {
        if let Some(pause) = self.end.arm() {
            let pause = pause.min(limit.unwrap_or(NAP)).min(NAP);
            if !pause.is_zero() {
                let descriptor = self.end.endpoint_descriptor();
                // SAFETY: the endpoint's, which lives as long as the end.
                let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
                match &self.calls.socket {
                    Some(socket) => readable(&[descriptor, socket.as_fd()], pause),
                    None => readable(&[descriptor], pause),
                };
            }
            self.end.disarm();
        }
        // Before the engine judges a silence: the server may have said that it is busy.
        self.look_after();
    }

    /// Takes a call back.
    pub(in crate::client) fn cancel(&mut self, name: Name) {
        if self.is_parents() || !self.calls.abandon(name) || self.dead.is_some() {
            return;
        }
        if self.calls.direct {
            self.calls.window.set_cancelled(name.slot, name.generation);
        } else {
            // By the socket it reaches a procedure that runs, too. Without room the server is not told; the answer comes all the same.
            if let Some(socket) = &self.calls.socket {
                socket.say(Head { name, code: 0, flags: 0 }.word());
            }
        }
    }
}
