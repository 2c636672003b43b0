//! Time stamps: processor ticks for spinning, nanoseconds for deadlines.

mod linear;

use crate::section::Section;
use crate::{calls, filter, processor, thread};
use core::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
use linear::{Line, Rate};

pub use crate::processor::ticks;

/// Nanoseconds of CLOCK_MONOTONIC, by system call.
fn asked_ns() -> u64 {
    if filter::avoids(filter::CLOCK_GETTIME) {
        return guessed_ns();
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    calls::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The same from the counter alone, at the rate of [`leave_kernel`].
#[cold]
fn guessed_ns() -> u64 {
    let passed = ticks().wrapping_sub(CLOCK.start_ticks.load(Ordering::Relaxed));
    CLOCK.start_ns.load(Ordering::Acquire) + ((passed as u128 * CLOCK.rate.load(Ordering::Relaxed).max(1) as u128) >> 32) as u64
}

/// A filter is about to refuse the system call: the rate that the counter had until now is believed from here on.
pub fn leave_kernel() {
    let ((ticks, ns), start) = (both(), CLOCK.start_ns.load(Ordering::Acquire));
    let passed = ticks.wrapping_sub(CLOCK.start_ticks.load(Ordering::Relaxed));
    CLOCK.rate.store(linear::measured(ns.saturating_sub(start), passed).unwrap_or(GUESS), Ordering::Relaxed);
}

/// Nanoseconds of CLOCK_REALTIME, by system call.
pub fn realtime_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    calls::clock_gettime(libc::CLOCK_REALTIME, &mut time);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// All that the process keeps of its clocks.
#[repr(C, align(64))]
struct Clock {
    /// Counts the lines; 0: there is none, and the kernel is asked each time.
    turn: AtomicU32,
    /// The process in which a thread makes the next line; 0: none does. A child of fork may find its parent's.
    maker: AtomicU32,
    /// Nanoseconds for each 2^32 ticks, as last measured; 0 until calibrated.
    rate: AtomicU64,
    start_ticks: AtomicU64,
    start_ns: AtomicU64,
    /// When the calibration interval began: at the start, or anew.
    since_ticks: AtomicU64,
    since_ns: AtomicU64,
    /// Renewals in a row that found the rate far off. Written by the thread that makes the next line.
    far: AtomicU32,
    /// The line of each turn lies in the place of its number, so one that is being read stays for some turns.
    places: Places,
}

/// The places of lines have cache lines of their own.
#[repr(C, align(64))]
struct Places([Place; 4]);

static CLOCK: Clock = Clock {
    turn: AtomicU32::new(0),
    maker: AtomicU32::new(0),
    rate: AtomicU64::new(0),
    start_ticks: AtomicU64::new(0),
    start_ns: AtomicU64::new(0),
    since_ticks: AtomicU64::new(0),
    since_ns: AtomicU64::new(0),
    far: AtomicU32::new(0),
    places: Places(
        [const { Place { ticks: AtomicU64::new(0), told: AtomicU64::new(0), asked: AtomicU64::new(0), rate: AtomicU64::new(0) } };
            4],
    ),
};

/// An interval this long calibrates to better than a millionth of an hour's error in a second.
const CALIBRATION_NS: u64 = 50_000_000;

/// Over a longer interval the machine may have been asleep: the counter runs on then, and CLOCK_MONOTONIC stands still.
const STALE_NS: u64 = 2_000_000_000;

/// Nanoseconds for each 2^32 ticks at 2.5 GHz: a first guess.
const GUESS: u64 = (2 << 32) / 5;

/// Ticks that take longer than [`CALIBRATION_NS`] on processors of up to 5 GHz.
const CALIBRATION_TICKS: u64 = 250_000_000;

/// Ticks between which a system call was not held up.
const CLOSE: u64 = 5_000;

/// Both clocks at one moment, in ticks and nanoseconds: the closest of some readings, because a thread that is preempted between
/// the two would keep a wrong rate for as long as the process lives.
fn both() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..8 {
        let (before, ns) = (ticks(), asked_ns());
        let between = ticks().wrapping_sub(before);
        if between < best.0 {
            best = (between, before + between / 2, ns);
        }
        if between < CLOSE {
            break;
        }
    }
    (best.1, best.2)
}

/// Notes the start of the calibration interval. Called once at start-up.
pub fn start() {
    let (ticks, ns) = both();
    CLOCK.start_ticks.store(ticks, Ordering::Relaxed);
    CLOCK.start_ns.store(ns, Ordering::Release);
    since(ticks, ns);
}

fn since(ticks: u64, ns: u64) {
    CLOCK.since_ticks.store(ticks, Ordering::Relaxed);
    CLOCK.since_ns.store(ns, Ordering::Release);
}

/// [`Clock::start_ns`] while [`start_once`] looks at the clocks.
const STARTING: u64 = 1;

/// As [`start`], for libraries: the first call starts it.
pub fn start_once() {
    if CLOCK.start_ns.compare_exchange(0, STARTING, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        start();
    }
}

/// A [`Line`] in memory that every thread reads.
struct Place {
    ticks: AtomicU64,
    told: AtomicU64,
    asked: AtomicU64,
    rate: AtomicU64,
}

fn place(turn: u32) -> &'static Place {
    &CLOCK.places.0[turn as usize % CLOCK.places.0.len()]
}

/// The line of `turn`. `None`: the thread was held up meanwhile for as long as some lines last.
#[inline]
fn line(turn: u32) -> Option<Line> {
    let place = place(turn);
    let line = Line {
        ticks: place.ticks.load(Ordering::Relaxed),
        told: place.told.load(Ordering::Relaxed),
        asked: place.asked.load(Ordering::Relaxed),
        rate: place.rate.load(Ordering::Relaxed),
    };
    fence(Ordering::Acquire);
    (CLOCK.turn.load(Ordering::Relaxed).wrapping_sub(turn) < 2).then_some(line)
}

fn publish(line: Line, turn: u32) {
    let place = place(turn);
    place.ticks.store(line.ticks, Ordering::Relaxed);
    place.told.store(line.told, Ordering::Relaxed);
    place.asked.store(line.asked, Ordering::Relaxed);
    place.rate.store(line.rate, Ordering::Relaxed);
    CLOCK.turn.store(turn, Ordering::Release);
}

/// Nanoseconds of CLOCK_MONOTONIC: from the time stamp counter once 50 ms have passed since [`start`], before that, and where the
/// counter has no constant rate, by system call. For deadlines; the kernel's own time-out has the last word.
pub fn monotonic_ns() -> u64 {
    let turn = CLOCK.turn.load(Ordering::Acquire);
    if turn == 0 {
        return calibrate();
    }
    line(turn).and_then(|line| line.at(ticks())).unwrap_or_else(|| renew(turn))
}

#[cold]
fn calibrate() -> u64 {
    if calibrated() {
        return asked_ns();
    }
    let (ticks, now) = both();
    // 0: not started.
    let over = |since: u64| since != 0 && now.saturating_sub(since) > CALIBRATION_NS;
    if over(CLOCK.since_ns.load(Ordering::Acquire)) {
        // Alone also with the interval's beginning, which is two words.
        alone(0, || {
            let begun = CLOCK.since_ns.load(Ordering::Acquire);
            if calibrated() || !over(begun) {
                return;
            }
            let passed = ticks.wrapping_sub(CLOCK.since_ticks.load(Ordering::Relaxed));
            let rate = linear::measured(now - begun, passed).filter(|_| now - begun <= STALE_NS);
            let Some(rate) = rate else { return since(ticks, now) };
            CLOCK.rate.store(rate, Ordering::Relaxed);
            if processor::has_invariant_ticks() {
                publish(Line { ticks, told: now, asked: now, rate }, 1);
            }
        });
    }
    now
}

/// So many are no sleep: the counter's rate is another one now, and each line would be wrong for as long as it is believed.
const TOO_MANY_FAR: u32 = 3;

/// The next line, by one thread; others ask the kernel meanwhile, and go back behind nothing that the old line told.
#[cold]
fn renew(turn: u32) -> u64 {
    let mut told = asked_ns().max(line(turn).map_or(0, |old| old.told_until(ticks())));
    alone(turn, || {
        let Some(old) = line(turn) else { return };
        let (ticks, now) = both();
        let (next, measured) = old.renewed(ticks, now);
        match measured {
            Rate::Measured(rate) => {
                CLOCK.rate.store(rate, Ordering::Relaxed);
                CLOCK.far.store(0, Ordering::Relaxed);
            }
            Rate::Unknown => {}
            Rate::Far if CLOCK.far.fetch_add(1, Ordering::Relaxed) + 1 < TOO_MANY_FAR => {}
            Rate::Far => return CLOCK.turn.store(0, Ordering::Release),
        }
        publish(next, turn + 1);
        told = next.told;
    });
    told
}

/// Runs `make` if the line is `turn`'s still and no other thread of this process makes the next one.
fn alone(turn: u32, make: impl FnOnce()) {
    // No handler leaves it by longjmp.
    let _section = Section::begin();
    let (maker, own) = (CLOCK.maker.load(Ordering::Relaxed), thread::process());
    if maker == own || CLOCK.maker.compare_exchange(maker, own, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    if CLOCK.turn.load(Ordering::Acquire) == turn {
        make();
    }
    CLOCK.maker.store(0, Ordering::Release);
}

/// Whether the rate of the time stamp counter is known exactly.
pub fn calibrated() -> bool {
    CLOCK.rate.load(Ordering::Relaxed) != 0
}

/// Ticks in `ns` nanoseconds. A first guess of 2.5 GHz serves until the rate is known: it only bounds spinning.
pub fn ticks_for_ns(ns: u64) -> u64 {
    let rate = CLOCK.rate.load(Ordering::Relaxed);
    if rate == 0 {
        // Not a system call for each spin meanwhile: they were 500 ns of each round trip of a young process.
        if ticks().wrapping_sub(CLOCK.since_ticks.load(Ordering::Relaxed)) > CALIBRATION_TICKS {
            calibrate();
        }
        return ns * 5 / 2;
    }
    (((ns as u128) << 32) / rate as u128) as u64
}

/// The same for a time that has passed, at any time: the kernel is asked until the rate is known.
pub fn ticks_passed(ns: u64) -> u64 {
    (((ns as u128) << 32) / rate_so_far() as u128) as u64
}

/// Nanoseconds that `ticks` took, which have passed.
pub fn ns_passed(ticks: u64) -> u64 {
    ((ticks as u128 * rate_so_far() as u128) >> 32) as u64
}

fn rate_so_far() -> u64 {
    match CLOCK.rate.load(Ordering::Relaxed) {
        0 => {
            let lived_ns = asked_ns().saturating_sub(CLOCK.start_ns.load(Ordering::Relaxed));
            let lived = ticks().wrapping_sub(CLOCK.start_ticks.load(Ordering::Relaxed));
            linear::measured(lived_ns, lived).unwrap_or(GUESS)
        }
        rate => rate,
    }
}

#[cfg(test)]
mod tests {
    use super::linear::{Line, INTERVAL_NS};
    use core::sync::atomic::Ordering;

    #[test]
    fn the_counter_keeps_the_kernels_time() {
        super::start();
        let begin = std::time::Instant::now();
        while !super::calibrated() {
            assert!(begin.elapsed().as_secs() < 60);
            std::thread::sleep(std::time::Duration::from_millis(60));
            super::ticks_for_ns(1);
        }
        for _ in 0..100 {
            let (low, ours, high) = (super::asked_ns(), super::monotonic_ns(), super::asked_ns());
            assert!(ours + 100_000 > low && ours < high + 100_000, "{low} {ours} {high}");
        }
        // With the same clock, so not beside this.
        a_counter_that_runs_at_another_rate_is_given_up();
    }

    fn a_counter_that_runs_at_another_rate_is_given_up() {
        if !crate::processor::has_invariant_ticks() {
            return;
        }
        let rate = super::CLOCK.rate.load(Ordering::Relaxed);
        for far in 1..=super::TOO_MANY_FAR {
            let (ticks, now) = super::both();
            // Six tenths of a second ago, by a rate at which that was more than a line lasts.
            let (ticks, now) = (ticks - super::ticks_for_ns(INTERVAL_NS * 6 / 10), now - INTERVAL_NS * 6 / 10);
            let turn = super::CLOCK.turn.load(Ordering::Relaxed) + 1;
            super::publish(Line { ticks, told: now, asked: now, rate: 4 * rate }, turn);
            let (low, ours, high) = (super::asked_ns(), super::monotonic_ns(), super::asked_ns());
            assert!(ours + 100_000 > low && ours < high + 100_000, "{low} {ours} {high}");
            let next = if far < super::TOO_MANY_FAR { turn + 1 } else { 0 };
            assert_eq!(super::CLOCK.turn.load(Ordering::Relaxed), next);
            assert_eq!(super::CLOCK.rate.load(Ordering::Relaxed), rate);
        }
        let (low, ours, high) = (super::asked_ns(), super::monotonic_ns(), super::asked_ns());
        assert!(low <= ours && ours <= high);
    }
}
