//! What threads of the program do for streams to other hosts: they drive while they are awake.

use super::home::{home, Home};
use super::message::Message;
use super::pump::Rings;
use super::words::{self, flag};
use crate::socket::Socket;
use core::sync::atomic::Ordering;
use shunt_station::Stream;
use shunt_sys::clock;

/// A stream is to be looked after by who holds the lock.
pub fn mark(home: &Home, stream: Stream) {
    home.common().dirty[(stream % words::STREAMS) as usize / 64].fetch_or(1 << (stream % 64), Ordering::AcqRel);
}

/// The station's lock, by a moment at the latest.
pub fn lock(home: &Home, deadline: u64) -> Option<shunt_station::Driver<'_>> {
    loop {
        if let Some(driver) = home.station.lock() {
            return Some(driver);
        }
        if clock::monotonic_ns() >= deadline {
            return None;
        }
    }
}

/// Looks after all streams that are marked.
pub fn attend(home: &Home, driver: &mut shunt_station::Driver<'_>) {
    let mut pump = Rings(home);
    for row in 0..words::STREAMS / 64 {
        let [dirty, narrow] = [&home.common().dirty[row as usize], &home.common().narrow[row as usize]];
        if dirty.load(Ordering::Relaxed) | narrow.load(Ordering::Relaxed) == 0 {
            continue;
        }
        let mut bits = dirty.swap(0, Ordering::AcqRel) | narrow.load(Ordering::Relaxed);
        while bits != 0 {
            pump.service(driver, row * 64 + bits.trailing_zeros());
            bits &= bits - 1;
        }
    }
}

/// Rounds of one turn: peers that send without end are looked at again by the next.
const ROUNDS: u32 = 8;

/// Takes what came and does what that leaves to do, until nothing more comes. Nothing stays marked that nobody looks after.
fn rounds(home: &Home, driver: &mut shunt_station::Driver<'_>) {
    for _ in 0..ROUNDS {
        let progress = driver.drive(clock::monotonic_ns(), &mut Rings(home));
        attend(home, driver);
        if !progress.moved {
            break;
        }
    }
}

/// Drives, if nobody else does. Gives when somebody is to drive again; `None`: somebody else drives, and looks once more.
pub fn turn(home: &Home) -> Option<u64> {
    loop {
        let mut driver = home.station.try_lock()?;
        rounds(home, &mut driver);
        if !driver.leave() {
            return Some(home.station.deadline().unwrap_or(u64::MAX));
        }
    }
}

/// The near side sent, or took, or ended: the pump goes on.
#[cold]
#[inline(never)]
pub fn kick(socket: &Socket) {
    let Some(home) = home() else { return };
    if let Some(stream) = home.stream_of(socket) {
        mark(home, stream);
        if let Some(mut driver) = home.station.try_lock() {
            attend(home, &mut driver);
            rounds(home, &mut driver);
            if !driver.leave() {
                return see_to_the_clock(home);
            }
        } else {
            return;
        }
        work(home);
    }
}

/// A thread of the program that waits awake: costs a look at one word where there are no other hosts.
#[inline(always)]
pub fn drive() {
    if let Some(home) = home() {
        work(home);
    }
}

#[cold]
#[inline(never)]
fn work(home: &Home) {
    if turn(home).is_some() {
        see_to_the_clock(home);
    }
}

/// The keeper must not sleep beyond the engine's next deadline.
fn see_to_the_clock(home: &Home) {
    if let Some(deadline) = home.station.deadline() {
        if deadline < home.common().sleeps_until.load(Ordering::Acquire) {
            wake_keeper(home);
        }
    }
}

/// What a thread of the program that sleeps polls beside what it waits for: frames wake it without a detour through the
/// keeper. That one takes the watch over from threads that sleep long, or were killed.
#[derive(Default)]
pub struct Watch(Option<&'static Home>);

/// A thread of the program is about to sleep, and has announced for what: it drives once more, and looks once more if it
/// gets nothing from here.
#[inline(always)]
pub fn watch() -> Option<Watch> {
    match home() {
        Some(home) => begin(home),
        None => Some(Watch(None)),
    }
}

#[cold]
#[inline(never)]
fn begin(home: &'static Home) -> Option<Watch> {
    work(home);
    home.station.arm().then_some(Watch(Some(home)))
}

impl Watch {
    /// To be polled for POLLIN; -1: there are no other hosts.
    #[inline(always)]
    pub fn descriptor(&self) -> i32 {
        self.0.map_or(-1, |home| home.station.poll_fd())
    }
}

impl Drop for Watch {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(home) = self.0 {
            home.station.disarm();
            work(home);
        }
    }
}

/// Wakes the keeper.
pub fn wake_keeper(home: &Home) {
    let _ = Message::Wake.send(home.control.load(Ordering::Relaxed), &[]);
}

/// A sleeper of the near side is to be woken, by the keeper, which alone can.
#[cold]
pub fn ring_near(far: &Socket) {
    let Some(home) = home() else { return };
    if let Some(stream) = home.stream_of(far) {
        words::raise(&home.station, stream, flag::RING);
        mark(home, stream);
        wake_keeper(home);
    }
}
