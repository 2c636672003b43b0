//! What threads of the program do for these streams: they drive while they are awake, and poll the queue while they sleep.

use core::sync::atomic::{fence, Ordering};

use shunt_ring::bell;
use shunt_segment::channel::Wait;
use shunt_segment::reason::Reason;
use shunt_stream::corked;
use shunt_stream::progress::{Inside, Posting, Progress, Sleeper, Watch};
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::wake;
use shunt_sys::libc::epoll_event;
use shunt_sys::{calls, clock, thread};

use crate::leaving;
use crate::line::state;
use crate::local::{driven, local, Driver, Local, AGENT, STREAMS};

/// What is asked of this room by those below.
pub const PROGRESS: Progress = Progress {
    inside: Some(|| {
        local().map(|local| {
            // In this order, and again: a queue that is newer than its number is none yet.
            let [generation, queue, rest, now] =
                [&local.generation, &local.queue, &local.rest, &local.generation].map(|word| word.load(Ordering::Acquire));
            Inside { queue: if now == generation { queue } else { -1 }, rest, generation }
        })
    }),
    is_driven: || driven().is_some(),
    drive: |_| {
        if let Some(local) = driven() {
            work(local);
        }
    },
    kick,
    hold_back,
    // The far ends are this process's own.
    ring: |_, _| {},
    watch: begin,
    watch_stream,
    unwatch,
    leave: leaving::leave,
    for_kernel: leaving::one,
};

/// Between two looks at sockets of the kernel by threads that wait awake (ns): where all streams are taken, and where some are not. For how long a sleeper may not know of a deadline.
const LOOK: [u64; 2] = [1_000_000, 5_000];
const LATER: u64 = 100_000_000;

/// Drives, if no other thread does: that one looks at the marks once more.
#[cold]
#[inline(never)]
fn work(local: &'static Local) {
    loop {
        let Some(mut driver) = local.try_lock() else { return };
        driver.turn(clock::monotonic_ns());
        drop(driver);
        leaving::marked(local);
        fence(Ordering::SeqCst); // behind the lock's end, as a mark is before a look at it
        if local.marks.iter().all(|row| row.load(Ordering::Relaxed) == 0) {
            return;
        }
    }
}

impl Driver {
    fn turn(&mut self, now: u64) {
        self.answers.judge(now);
        for row in 0..self.local.marks.len() {
            if self.local.marks[row].load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = self.local.marks[row].swap(0, Ordering::AcqRel);
            while bits != 0 {
                self.pump(row * 64 + bits.trailing_zeros() as usize, now);
                bits &= bits - 1;
            }
        }
        self.frames(now);
        if now >= self.next_events {
            self.events(now);
        }
        if now >= self.due {
            self.due = u64::MAX;
            for index in 0..STREAMS {
                if !self.lines[index].has_numbers() {
                    continue; // nothing is due at it
                }
                if self.lines[index].due <= now {
                    self.pump(index, now);
                }
                self.due = self.due.min(self.lines[index].due);
            }
        }
    }

    /// Gives all connections back. What gives them back has its time from now on.
    pub fn give_all(&mut self, reason: Reason, now: u64) {
        for index in 0..STREAMS {
            self.give(index, reason, now);
            self.lines[index].since = now;
            self.pump(index, now);
        }
    }

    /// Looks at what else than frames may have ended a sleep.
    fn events(&mut self, now: u64) {
        self.next_events = now + LOOK[usize::from(self.local.returned.load(Ordering::Relaxed) != 0)];
        let mut events = [epoll_event { events: 0, u64: 0 }; 32];
        let rest = self.local.rest.load(Ordering::Relaxed);
        let got = calls::epoll_pwait(rest, events.as_mut_ptr(), 32, 0, core::ptr::null(), calls::KERNEL_SIGSET).unwrap_or(0);
        for event in &events[..got] {
            match event.u64 {
                AGENT => self.part_with_agent(now),
                line => self.pump(line as usize % STREAMS, now),
            }
        }
    }
}

/// The near side sent, or took, or ended. What it sent is published when this returns: its program may be killed, and has been told that it was sent.
#[cold]
#[inline(never)]
fn kick(socket: &Socket) -> bool {
    on_line(socket, |driver, index| {
        let now = clock::monotonic_ns();
        if driver.lines[index].copied > 0 {
            driver.frames(now); // what acknowledges that lets go what Nagle's rule, or a window, would hold back
        }
        let (was, had) = (driver.lines[index].state, driver.lines[index].copied);
        driver.pump(index, now);
        if was == state::TAKEN && driver.lines[index].state != state::TAKEN {
            // What lies in the queue is the kernel's, and the agent hands it on for a moment only.
            driver.frames(now);
        }
        let sent = driver.lines[index].copied > had;
        driver.holds_back = driver.answers.may_wait(index, thread::id(), sent, now);
    })
}

/// Does `part` for the line of a near socket, or leaves that to the holder of the lock; false: it is none of these.
fn on_line(socket: &Socket, part: impl FnOnce(&mut Driver, usize)) -> bool {
    let Some(local) = local() else { return false };
    let Some(index) = local.places.line_of(socket) else { return local.places.has(socket) };
    match local.lock() {
        Some(mut driver) => part(&mut driver, index),
        None => local.mark(index),
    }
    true
}

/// Nothing is held back here, as no thread would send it when the program does something else.
#[cold]
fn hold_back(socket: &Socket, _: u64) -> bool {
    on_line(socket, |driver, index| {
        corked::take(driver.far(index));
        driver.pump(index, clock::monotonic_ns());
    })
}

/// A thread of the program is about to announce that it sleeps.
fn begin(posting: Option<&mut Posting>, sleeper: Sleeper) -> Option<Watch<'_>> {
    let beside = sleeper == Sleeper::Beside;
    // A set that has the queue hears of the end of the agent, too, which is to be looked at without any stream.
    let Some(local) = (if beside { driven() } else { local() }) else { return Some(Watch::default()) };
    let (asleep, most) = (&local.asleep[usize::from(beside)], CROWD[usize::from(beside)]);
    if asleep.fetch_add(1, Ordering::Relaxed) >= most && sleeper != Sleeper::Awake {
        disperse(local);
    }
    work(local);
    // What the holder finds due its thread need not sleep for: it may end. So a sleeper that cannot learn of that asks again.
    let mut due = clock::monotonic_ns() + LATER;
    if let Some(mut driver) = if beside { local.try_lock() } else { local.lock() } {
        // An edge is told once, and perhaps while another thread had the lock: the next is waited for behind as many turns as the ring may hold.
        let _ = (0..8).take_while(|_| !beside && driver.frames(clock::monotonic_ns())).count();
        due = driver.due;
    }
    let place = core::ptr::from_ref(local).cast();
    let descriptor = if beside { local.sleep.load(Ordering::Relaxed) } else { -1 };
    let mut watch = Watch::new(&PROGRESS, place, descriptor, posting);
    watch.due = due;
    Some(watch)
}

/// As many threads that sleep in sets are a crowd, the first of which frames wake, and it the others; and as many beside the queue, all of which each frame
/// wakes. For how long nothing is taken then (ns).
const CROWD: [u32; 2] = [2, 12];
const DISPERSED: u64 = 10_000_000_000;

/// Gives all connections back: the kernel wakes the one thread that a packet is for.
#[cold]
fn disperse(local: &'static Local) {
    let now = clock::monotonic_ns();
    let may_have_taken = now >= local.crowded.load(Ordering::Relaxed);
    let Some(mut driver) = may_have_taken.then(|| local.lock()).flatten() else { return };
    local.crowded.store(now + DISPERSED, Ordering::Relaxed);
    driver.give_all(Reason::GivenBackCrowd, now);
    driver.frames(now); // as in `kick`
}

fn watched(watch: &Watch<'_>) -> Option<&'static Local> {
    // SAFETY: null, or what `begin` gave, which is never unmapped.
    unsafe { watch.station.cast::<Local>().as_ref() }
}

fn watch_stream(watch: &mut Watch<'_>, socket: &Socket, conditions: u32) {
    let local = watched(watch).filter(|_| socket.has(flag::REMOTE));
    if let Some(index) = local.and_then(|local| local.places.line_of(socket)) {
        let wait: *const Wait = &socket.own().wait;
        // SAFETY: links of this room are never unmapped.
        watch.armed = Some((index as u32, unsafe { &*wait }, conditions));
    }
}

fn unwatch(watch: &mut Watch<'_>) {
    let Some(local) = watched(watch) else { return };
    local.asleep[usize::from(watch.descriptor >= 0)].fetch_sub(1, Ordering::Relaxed);
    let others = watch.armed.take().filter(|(_, wait, conditions)| bell::take_back(wait, *conditions));
    if let Some(mut driver) = if watch.heard { local.lock() } else { local.try_lock() } {
        let now = clock::monotonic_ns();
        // If the line has that stream still.
        let is_its = |(index, wait, _): &(u32, &Wait, u32)| {
            local.places.near(*index as usize).is_some_and(|near| core::ptr::eq(&near.own().wait, *wait))
        };
        if let Some(index) = others.filter(is_its).map(|(index, ..)| index as usize) {
            wake::ring(driver.far(index), driver.lines[index].far.load(Ordering::Relaxed));
        }
        // Only what is no frame is asked for: frames are found by looks at their ring; by as many as in `begin` where an edge is gone.
        let has_frames = (0..if watch.heard { 8 } else { 1 }).take_while(|_| driver.frames(now)).count() > 0;
        if !has_frames || local.returned.load(Ordering::Relaxed) != 0 || local.over.load(Ordering::Relaxed) {
            driver.events(now);
        }
    }
    work(local);
}
