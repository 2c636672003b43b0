//! A thread of a server: it looks at the callers that were busy lately, and sleeps on the others.

mod callers;
mod hall;

use super::caller::Caller;
use super::keeper::{Keeper, Pulse};
use super::serving::Serving;
use super::stop::{eventfd, Stop};
use super::Options;
use crate::address::Address;
use crate::clock::{nanos, now};
use crate::forks;
use crate::service::{Interface, Service};
use crate::trace::{Journal, Watchers};
pub(super) use callers::Guest;
pub(super) use hall::Hall;
use hall::GREETING;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Rounds over the busy callers in which nothing came, between two looks at the clock; with something, so many times as many.
const LOOKS: u32 = 1024;
const CROWD: u32 = 4;
/// How often a thread that is busy looks at its sleeping callers and at the sockets.
const GLANCE: u64 = 50_000;

/// What threads know of each other.
pub(super) struct Shared {
    callers: AtomicUsize,
    /// Bytes of windows that lie in this process's memory.
    mirrored: AtomicU64,
    bell: OwnedFd,
    pub(super) pulse: Pulse,
}

impl Shared {
    pub(super) fn new() -> io::Result<Self> {
        let (callers, mirrored, pulse) = (AtomicUsize::new(0), AtomicU64::new(0), Pulse::default());
        Ok(Self { callers, mirrored, bell: eventfd()?, pulse })
    }
}

/// What an event of the epoll set is about: in its upper byte.
mod token {
    pub const LISTENER: u64 = 1 << 56;
    pub const BELL: u64 = 2 << 56;
    pub const STOP: u64 = 3 << 56;
    pub const GREETING: u64 = 4 << 56;
    pub const SOCKET: u64 = 5 << 56;
    pub const END: u64 = 6 << 56;
    pub const TELLING: u64 = 7 << 56;
    pub const WATCHER: u64 = 8 << 56;
    pub const KIND: u64 = 0xff << 56;
}

pub(super) struct Worker<'a, S> {
    number: usize,
    address: &'a Address,
    options: &'a Options,
    stop: &'a Stop,
    shared: &'a [Shared],
    inlet: Receiver<Guest>,
    service: S,
    interfaces: Vec<Interface>,
    watchers: &'a Watchers,
    keeper: &'a Keeper,
    journal: Journal<'a>,
    epoll: OwnedFd,
    /// Boxed: they go to and fro between the two, and are some kilobytes.
    #[allow(clippy::vec_box)]
    active: Vec<Box<Caller>>,
    sleeping: HashMap<u64, Box<Caller>>,
    /// Which of the active ones is looked at.
    at: usize,
    serial: u64,
}

impl<'a, S: Service> Worker<'a, S> {
    pub(super) fn new(
        number: usize,
        (address, options): (&'a Address, &'a Options),
        stop: &'a Stop,
        (shared, watchers, keeper): (&'a [Shared], &'a Watchers, &'a Keeper),
        inlet: Receiver<Guest>,
        service: S,
    ) -> io::Result<Self> {
        // SAFETY: a number.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and of no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let interfaces = service.interfaces();
        let (active, sleeping) = (vec![], HashMap::new());
        let journal = Journal::new(watchers, number);
        let worker = Self {
            number,
            address,
            options,
            stop,
            shared,
            inlet,
            service,
            interfaces,
            watchers,
            keeper,
            journal,
            epoll,
            active,
            sleeping,
            at: 0,
            serial: 0,
        };
        worker.watch(stop.bell.as_raw_fd(), token::STOP, libc::EPOLLIN)?;
        worker.watch(shared[number].bell.as_raw_fd(), token::BELL, libc::EPOLLIN)?;
        Ok(worker)
    }

    fn control(&self, operation: i32, descriptor: RawFd, token: u64, events: i32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: descriptors of ours, and an event.
        if unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, descriptor, &mut event) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn watch(&self, descriptor: RawFd, token: u64, events: i32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, token, events)
    }

    /// A descriptor is watched no more: closing it is not enough where a child of this process has it, too.
    fn forget(&self, socket: &impl AsRawFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, socket.as_raw_fd(), 0, 0);
    }

    pub(super) fn run(&mut self, mut hall: Option<Hall<'_>>) {
        if let Some(hall) = &hall {
            if self.watch(hall.listener.as_fd().as_raw_fd(), token::LISTENER, libc::EPOLLIN).is_err() {
                return;
            }
        }
        let mut glanced = 0;
        let forks = forks::number();
        while !self.stop.stopped.load(Ordering::Relaxed) && forks == forks::number() {
            if self.active.is_empty() {
                self.journal.tell(now());
                let pause = self.pause(hall.as_ref());
                self.shared[self.number].pulse.sleep();
                self.events(&mut hall, pause);
                self.shared[self.number].pulse.wake(now(), self.keeper);
                continue;
            }
            // A procedure that panics ends the looks, and nothing else: its call was answered on the way. The next look begins at the caller
            // behind, so that one whose calls all panic keeps no other waiting.
            if catch_unwind(AssertUnwindSafe(|| self.looks())).is_err() {
                let next = (self.at + 1).min(self.active.len());
                self.active.rotate_left(next);
            }
            // Here and not at each look: a pause is as long as a third of a call.
            std::hint::spin_loop();
            let time = now();
            self.shared[self.number].pulse.look(time);
            if time >= glanced + GLANCE {
                glanced = time;
                self.journal.tell(time);
                self.events(&mut hall, Some(Duration::ZERO));
                self.put_to_sleep(time);
            }
        }
    }

    /// Looks at the busy callers until a glance at the clock is due.
    #[inline(always)]
    fn looks(&mut self) {
        let watched = self.journal.wants != 0;
        self.active.iter_mut().for_each(|caller| caller.state.straight = caller.state.direct && !watched);
        let mut rounds = 0;
        while rounds < LOOKS * CROWD {
            rounds += if self.look() { 1 } else { CROWD };
        }
    }

    /// One look at each busy caller.
    #[inline(always)]
    fn look(&mut self) -> bool {
        let mut came = false;
        for at in 0..self.active.len() {
            self.at = at;
            let caller = &mut self.active[at];
            let (service, interfaces, journal) = (&mut self.service, &self.interfaces, &mut self.journal);
            let mut serving = Serving { service, interfaces, caller: &mut caller.state, journal };
            if caller.end.poll(&mut serving) > 0 {
                caller.busy = 0;
                came = true;
            }
        }
        came
    }

    /// Callers that had nothing for a while are slept on; those that ended are let go.
    fn put_to_sleep(&mut self, time: u64) {
        let spin = nanos(self.options.spin);
        let mut at = 0;
        while at < self.active.len() {
            let caller = &mut self.active[at];
            if caller.state.over {
                let caller = self.active.swap_remove(at);
                self.part(caller);
                continue;
            }
            if caller.busy == 0 {
                caller.busy = time;
            }
            if time - caller.busy < spin {
                at += 1;
                continue;
            }
            match caller.end.arm() {
                Some(pause) if !pause.is_zero() => {
                    let mut caller = self.active.swap_remove(at);
                    caller.wake_at = time.saturating_add(pause.as_nanos().min(u128::from(u64::MAX)) as u64);
                    let (descriptor, token) = (caller.end.endpoint_descriptor(), token::END | caller.serial);
                    let events = libc::EPOLLIN | libc::EPOLLONESHOT;
                    if self.control(libc::EPOLL_CTL_MOD, descriptor, token, events).is_err() {
                        self.part(caller);
                        continue;
                    }
                    self.sleeping.insert(caller.serial, caller);
                }
                Some(_) => {
                    caller.end.disarm();
                    at += 1;
                }
                None => at += 1,
            }
        }
    }

    fn wake(&mut self, serial: u64) {
        if let Some(mut caller) = self.sleeping.remove(&serial) {
            caller.end.disarm();
            caller.busy = 0;
            self.active.push(caller);
        }
    }

    /// How long to sleep: until the first timer of a caller, or the end of a greeting.
    fn pause(&self, hall: Option<&Hall<'_>>) -> Option<Duration> {
        let timers = self.sleeping.values().map(|caller| caller.wake_at).filter(|&at| at != u64::MAX);
        let greetings = hall.into_iter().flat_map(|hall| hall.greetings.values()).map(|greeting| greeting.since + GREETING);
        let tellings = hall.into_iter().flat_map(|hall| hall.tellings.values()).map(|telling| telling.since + GREETING);
        let rests = hall.and_then(|hall| hall.rests_until);
        let first = timers.chain(greetings).chain(tellings).chain(rests).chain(self.journal.due()).min()?;
        Some(Duration::from_nanos(first.saturating_sub(now())))
    }

    fn events(&mut self, hall: &mut Option<Hall<'_>>, pause: Option<Duration>) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let pause = pause.map_or(-1, |pause| pause.as_nanos().div_ceil(1_000_000).min(60_000) as i32);
        // SAFETY: room for 64 events.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), 64, pause) };
        for event in &events[..count.max(0) as usize] {
            let (kind, serial) = (event.u64 & token::KIND, event.u64 & !token::KIND);
            match kind {
                token::LISTENER => self.accept(hall),
                token::GREETING => self.greet(hall, serial),
                token::BELL => self.take_guests(),
                token::END => self.wake(serial),
                token::SOCKET => self.look_after(serial),
                token::TELLING => self.go_on_telling(hall, serial),
                token::WATCHER => self.watchers.look_after(),
                _ => {}
            }
        }
        let timed = |hall: &Hall<'_>| !hall.greetings.is_empty() || !hall.tellings.is_empty() || hall.rests_until.is_some();
        let time = if pause != 0 || hall.as_ref().is_some_and(timed) { now() } else { return };
        let due: Vec<u64> = self.sleeping.values().filter(|one| one.wake_at <= time).map(|one| one.serial).collect();
        due.into_iter().for_each(|serial| self.wake(serial));
        if let Some(hall) = hall {
            self.tidy(hall, time);
        }
    }

    /// Something happened at a caller's socket: it ended. What it sent before is still served.
    fn look_after(&mut self, serial: u64) {
        self.wake(serial);
        if let Some(caller) = self.active.iter_mut().find(|caller| caller.serial == serial) {
            if caller.state.hear() {
                caller.state.over = true;
            }
        }
    }
}
