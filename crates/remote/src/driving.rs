//! What threads of the program do for streams to other hosts: they drive while they are awake.

use super::batching;
use super::local_station::{driven, local, LocalStation};
use super::marks::{mark, owe, wake_keeper};
use super::pump::{attend, Rings};
use super::stream_words::{self, flag};
use super::switch_to_tcp;
use core::sync::atomic::{fence, Ordering};
use shunt_ring::bell;
use shunt_segment::channel::{arm, Wait};
use shunt_station::Stream;
use shunt_stream::progress::{Posting, Progress, Watch};
use shunt_stream::socket::Socket;
use shunt_sys::clock;

/// Whether another stream than this one is to be looked after.
fn is_another_marked(local: &LocalStation, stream: Stream) -> bool {
    let common = local.common();
    let marks =
        |row: usize| [&common.dirty[row], &common.owed[row], &common.narrow[row]].map(|word| word.load(Ordering::Relaxed));
    let others = |row: usize| marks(row).into_iter().fold(0, |all, word| all | word);
    let own = |row: usize| if row == (stream % stream_words::STREAMS) as usize / 64 { 1 << (stream % 64) } else { 0_u64 };
    (0..common.dirty.len()).fold(0, |all, row| all | others(row) & !own(row)) != 0
}

/// The station's lock, by a moment at the latest.
pub fn lock(local: &LocalStation, deadline: u64) -> Option<shunt_station::Driver<'_>> {
    loop {
        if let Some(driver) = local.station.lock() {
            return Some(driver);
        }
        if clock::monotonic_ns() >= deadline {
            return None;
        }
    }
}

/// Rounds of one turn: peers that send without end are looked at again by the next.
const ROUNDS: u32 = 8;

/// Sends what was marked, takes what came and does what that leaves to do. Nothing stays marked without being looked after, unless the
/// driving thread has what it waits for: then at most until its next turn, or the keeper's. True: there is more, of which no sleeper
/// may hear.
fn rounds(local: &LocalStation, driver: &mut shunt_station::Driver<'_>, mut posting: Option<&mut Posting>) -> bool {
    batching::none_is(local);
    attend(local, driver);
    for _ in 0..ROUNDS {
        let mut pump = Rings::into(local, posting.as_deref_mut());
        let progress = driver.drive(clock::monotonic_ns(), &mut pump);
        pump.settle();
        if progress.early {
            return false;
        }
        attend(local, driver);
        if !progress.more {
            return false;
        }
    }
    true
}

/// Drives, if no other thread does. Gives when to drive again; `None`: another thread drives, and looks once more.
pub fn turn(local: &LocalStation, mut posting: Option<&mut Posting>) -> Option<u64> {
    loop {
        let mut driver = local.station.try_lock()?;
        let more = rounds(local, &mut driver, posting.as_deref_mut());
        if !driver.leave() {
            return Some(if more { 0 } else { local.station.deadline().unwrap_or(u64::MAX) });
        }
    }
}

/// The near side sent, or took, or ended: the pump goes on, at once or with the turn that follows ([`batching`]), without a look at
/// what has come. False: it is not this process's station that has the stream, and its keeper is to be rung.
#[cold]
#[inline(never)]
pub fn kick(socket: &Socket) -> bool {
    let Some(local) = driven() else { return false };
    let Some(stream) = local.stream_of(socket) else { return false };
    let now = clock::monotonic_ns();
    if batching::is_first(local, now) {
        if let Some(driver) = local.station.lock_if_free() {
            give(local, driver, stream, now);
            return true;
        }
        mark(local, stream);
    } else {
        // Before the look whether it may wait: a holder of the lock that has looked says that none is held, or meets the mark.
        mark(local, stream);
        if batching::may_wait(local, now) {
            return true;
        }
    }
    // Behind the mark, so that the holder of the lock meets it when it looks once more.
    let Some(driver) = local.station.try_lock() else { return true };
    give(local, driver, stream, now);
    true
}

/// Sends what the stream's near side has given, and what others have whose streams are marked. What else is to be done for the stream
/// is done behind that.
#[inline(always)]
fn give(local: &'static LocalStation, mut driver: shunt_station::Driver<'_>, stream: Stream, now: u64) {
    let mut pump = Rings::of(local);
    if is_another_marked(local, stream) {
        owe(local, stream);
        attend(local, &mut driver);
    } else {
        pump.send_first(&mut driver, stream, now);
        owe(local, stream);
    }
    driver.push(now, &mut pump);
    attend(local, &mut driver);
    if driver.is_busy() {
        driver.push(now, &mut pump); // room that was granted, or bytes behind which an end was said
    }
    match driver.leave() {
        true => work(local, None),
        false => see_to_the_clock(local, local.station.deadline().unwrap_or(u64::MAX)),
    }
}

/// The program holds bytes back until `until` at most ([`shunt_stream::corked`]): by then the keeper is to look. False: as for [`kick`].
#[cold]
pub fn hold_back(socket: &Socket, until: u64) -> bool {
    let Some(local) = driven().filter(|local| local.stream_of(socket).is_some()) else { return false };
    let sooner = |known: u64| (known == 0 || known > until).then_some(until);
    // What was noted before is looked at with this, which is in the ring already. Pairs with the keeper's swap.
    if local.common().held_back.fetch_update(Ordering::SeqCst, Ordering::SeqCst, sooner).is_ok() {
        fence(Ordering::SeqCst);
        see_to_the_clock(local, until);
    }
    true
}

/// A thread of the program that waits awake.
pub fn drive() {
    drive_into(None);
}

/// As [`drive`], by a call whose buffer takes what comes next.
pub fn drive_into(posting: Option<&mut Posting>) {
    if let Some(local) = driven() {
        work(local, posting);
    }
}

#[cold]
#[inline(never)]
fn work(local: &LocalStation, posting: Option<&mut Posting>) {
    if let Some(deadline) = turn(local, posting) {
        see_to_the_clock(local, deadline);
    }
}

/// The keeper must not sleep far beyond the moment when the engine is to be driven, nor while a peer waits for room that the program may make
/// without a word. While threads of the program drive, it looks at the clock often enough.
#[inline]
fn see_to_the_clock(local: &LocalStation, deadline: u64) {
    let sleeps_until = local.common().sleeps_until.load(Ordering::Acquire);
    if sleeps_until == 0 {
        return; // it is awake
    }
    let late = sleeps_until.saturating_sub(deadline) > SLACK;
    let narrow = local.common().narrow.iter().any(|row| row.load(Ordering::Relaxed) != 0);
    if (late || narrow) && sleeps_until - clock::monotonic_ns().min(sleeps_until) > SLACK && (late || narrow_unheard(local)) {
        wake_keeper(local);
    }
}

/// Whether a program may make room for a peer that waits for it, and ring no bell: neither the keeper nor another
/// sleeper has asked for that since the program rang last.
#[cold]
fn narrow_unheard(local: &LocalStation) -> bool {
    (0..).zip(&local.common().narrow).any(|(row, word)| {
        let word = word.load(Ordering::Relaxed);
        (0..64).filter(|bit| word & 1 << bit != 0).any(|bit| {
            let (base, _, channel) = local.place(row * 64 + bit);
            !bell::is_armed(&shunt_link::page(base, channel).sides[1].wait, arm::OUT)
        })
    })
}

/// How much later than the engine asks the keeper may look (ns).
pub const SLACK: u64 = 8_000_000;

/// A thread of the program is about to announce that it sleeps, by a call whose buffer takes what comes next ([`shunt_stream::progress::watch_into`]).
#[inline(always)]
pub fn watch_into(posting: Option<&mut Posting>) -> Option<Watch<'_>> {
    match driven() {
        Some(local) => begin(local, posting),
        None => Some(Watch::default()),
    }
}

#[cold]
#[inline(never)]
fn begin<'p>(local: &'static LocalStation, mut posting: Option<&'p mut Posting>) -> Option<Watch<'p>> {
    // A thread that gives something from now on is the first, or has marked it where it is seen here.
    batching::none_is(local);
    if is_due(local) {
        work(local, posting.as_deref_mut());
        if posting.as_ref().is_some_and(|posting| posting.taken > 0) {
            return None;
        }
    }
    // Made only if it is armed: what it takes back when it goes would be another sleeper's arming.
    if local.station.arm() {
        let place = core::ptr::from_ref(local).cast();
        return Some(Watch::new(&PROGRESS, place, local.station.poll_fd(), posting));
    }
    // What the look has found and taken in wakes no sleeper any more, and may be for others.
    work(local, posting);
    None
}

/// Whether anything but what comes is to be seen to before a sleep: what comes ends the sleep at once, or keeps the endpoint
/// from being armed.
fn is_due(local: &LocalStation) -> bool {
    let common = local.common();
    common.is_any_marked(Ordering::Relaxed)
        || common.narrow.iter().any(|row| row.load(Ordering::Relaxed) != 0)
        || local.station.owes()
        || local.station.deadline().is_some_and(|deadline| deadline <= clock::monotonic_ns())
}

fn watched(watch: &Watch<'_>) -> Option<&'static LocalStation> {
    // SAFETY: null, or a station, as `begin` made it; stations are never unmapped.
    unsafe { watch.station.cast::<LocalStation>().as_ref() }
}

fn watch_stream(watch: &mut Watch<'_>, socket: &Socket, conditions: u32) {
    let local = watched(watch).filter(|_| socket.has(shunt_stream::socket::flag::REMOTE));
    if let Some(stream) = local.and_then(|local| local.stream_of(socket)) {
        let wait: *const Wait = &socket.own().wait;
        // SAFETY: links of a station are never unmapped.
        watch.armed = Some((stream, unsafe { &*wait }, conditions));
    }
}

fn unwatch(watch: &mut Watch<'_>) {
    if let Some(local) = watched(watch) {
        if let Some((stream, wait, conditions)) = watch.armed {
            if bell::take_back(wait, conditions) {
                have_rung(local, stream, flag::RING);
            }
        }
        local.station.disarm();
        work(local, watch.posting.take());
    }
}

/// What is asked of this room by those below.
pub const PROGRESS: Progress = Progress {
    inside: None,
    is_driven: || driven().is_some(),
    drive: drive_into,
    kick,
    hold_back,
    ring,
    watch: |posting, _| watch_into(posting),
    watch_stream,
    unwatch,
    leave: switch_to_tcp::leave,
    // The keeper drives, and the stream stays here.
    for_kernel: |_| {},
};

/// A sleeper of the near side is to be woken, by the keeper, which alone can; by an urgent byte if that is asked for.
#[cold]
fn ring(far: &Socket, urgent: bool) {
    have_far_rung(far, if urgent { flag::RING_URGENT } else { flag::RING });
}

fn have_far_rung(far: &Socket, how: u64) {
    let Some(local) = local() else { return };
    if let Some(stream) = local.stream_of(far) {
        have_rung(local, stream, how);
    }
}

#[cold]
fn have_rung(local: &LocalStation, stream: Stream, how: u64) {
    stream_words::raise(&local.station, stream, how);
    mark(local, stream);
    // One call for all of them: the keeper takes it back before it looks.
    if local.common().called.swap(1, Ordering::SeqCst) == 0 {
        wake_keeper(local);
    }
}
