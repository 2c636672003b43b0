//! Sets that have a queue of frames: a carrier that is none tells of frames by an edge, and one thread at a time takes them.

use super::*;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use shunt_epoll::{self as epoll, Set};
use shunt_segment::channel::arm;
use shunt_stream::progress::{self, Inside, Posting, Progress, Sleeper, Watch};
use shunt_stream::socket::{self, flag};
use shunt_sys::libc::{self, POLLIN};
use shunt_sys::{calls, clock, Result};
use shunt_table::table;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// Under what the kernel's set has the queue.
const TAG: &str = "9d3f0000000fffff";

/// What tells of frames, and what tells of the rest; -1: there is no carrier.
static QUEUE: [AtomicI32; 2] = [AtomicI32::new(-1), AtomicI32::new(-1)];
/// The carrier's lock is held, by a thread that has looked at the queue already.
static HELD: AtomicBool = AtomicBool::new(false);
static TAKEN: AtomicU32 = AtomicU32::new(0);
static BESIDE: AtomicU32 = AtomicU32::new(0);
/// The eventfd that counts with a frame which comes when a thread is about to sleep, while another holds the lock; -1: none comes.
static COMES_WITH: AtomicI32 = AtomicI32::new(-1);
/// Sleepers are to ask again so long (ns) after they have asked; 0: they need not.
static AGAIN: AtomicU64 = AtomicU64::new(0);
static ASKED: AtomicU32 = AtomicU32::new(0);
/// So many threads are awaited by those that ask for the numbers.
static TOGETHER: AtomicU32 = AtomicU32::new(0);

static FAKE: Progress = Progress {
    inside: Some(inside),
    is_driven: || QUEUE[0].load(Ordering::Relaxed) >= 0,
    drive: |_| drive(),
    kick: |_| true,
    hold_back: |_, _| true,
    ring: |_, _| {},
    watch,
    watch_stream: |_, _, _| {},
    unwatch,
    leave: |_, _| false,
    for_kernel: |_| {},
};

fn inside() -> Option<Inside> {
    let [queue, rest] = [0, 1].map(|which| QUEUE[which].load(Ordering::Relaxed));
    let less = |count: u32| count.checked_sub(1);
    if TOGETHER.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok() {
        let began = Instant::now();
        while TOGETHER.load(Ordering::Acquire) != 0 && began.elapsed() < Duration::from_micros(500) {
            std::hint::spin_loop();
        }
    }
    (queue >= 0).then_some(Inside { queue, rest, generation: 1 })
}

/// Whether that holds soon.
fn within(patience: Duration, holds: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !holds() && began.elapsed() < patience {
        thread::sleep(Duration::from_micros(200));
    }
    holds()
}

fn count(fd: i32) {
    let one = 1u64;
    calls::write(fd, (&raw const one).cast(), 8).expect("an eventfd");
}

/// By the holder of the lock.
fn take() {
    let mut frames = 0u64;
    if calls::read(QUEUE[0].load(Ordering::Relaxed), (&raw mut frames).cast(), 8).is_ok() {
        TAKEN.fetch_add(frames as u32, Ordering::Relaxed);
    }
}

fn lock(waits: bool) -> bool {
    while HELD.swap(true, Ordering::Acquire) {
        if !waits {
            return false;
        }
        thread::sleep(Duration::from_micros(200));
    }
    true
}

fn take_locked(waits: bool) {
    if lock(waits) {
        take();
        HELD.store(false, Ordering::Release);
    }
}

fn drive() {
    take_locked(false);
}

fn watch(_: Option<&mut Posting>, sleeper: Sleeper) -> Option<Watch<'_>> {
    let beside = sleeper == Sleeper::Beside;
    take_locked(!beside);
    let event = COMES_WITH.swap(-1, Ordering::Relaxed);
    if event >= 0 {
        HELD.store(true, Ordering::Relaxed);
        [QUEUE[0].load(Ordering::Relaxed), event].into_iter().for_each(count);
    }
    let descriptor = if beside { QUEUE[0].load(Ordering::Relaxed) } else { -1 };
    BESIDE.fetch_add(u32::from(beside), Ordering::Relaxed);
    ASKED.fetch_add(1, Ordering::Relaxed);
    let mut watch = Watch::new(&FAKE, core::ptr::dangling(), descriptor, None);
    if let again @ 1.. = AGAIN.load(Ordering::Relaxed) {
        watch.due = clock::monotonic_ns() + again;
    }
    Some(watch)
}

fn unwatch(watch: &mut Watch<'_>) {
    BESIDE.fetch_sub(u32::from(watch.descriptor >= 0), Ordering::Relaxed);
    take_locked(watch.heard);
}

/// The carrier, one at a time.
struct Carrier {
    _alone: MutexGuard<'static, ()>,
}

impl Carrier {
    fn begin() -> Carrier {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for number in &QUEUE {
            let fd = calls::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK).expect("an eventfd");
            // Where no other test comes.
            number.store(calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 900).expect("a number"), Ordering::Relaxed);
            calls::close(fd).expect("open");
        }
        [&TAKEN, &BESIDE, &TOGETHER].into_iter().for_each(|number| number.store(0, Ordering::Relaxed));
        progress::fill(Some(&FAKE));
        Carrier { _alone: alone }
    }

    /// A frame has come, which no thread has taken.
    fn frame(&self) {
        count(QUEUE[0].load(Ordering::Relaxed));
    }

    fn numbers(&self) -> Vec<i32> {
        let mut numbers: Vec<i32> = QUEUE.iter().map(|number| number.load(Ordering::Relaxed)).collect();
        numbers.sort_unstable();
        numbers
    }

    /// One of its descriptors gets another number, as the program wants its own.
    fn renumber(&self, which: usize) {
        let from = QUEUE[which].load(Ordering::Relaxed);
        let to = calls::fcntl(from, libc::F_DUPFD_CLOEXEC, 900).expect("a number");
        QUEUE[which].store(to, Ordering::Relaxed);
        epoll::moved(from, to);
        calls::close(from).expect("open");
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        HELD.store(false, Ordering::Relaxed);
        AGAIN.store(0, Ordering::Relaxed);
        progress::fill(None);
        QUEUE.iter().for_each(|number| _ = calls::close(number.swap(-1, Ordering::Relaxed)));
    }
}

/// By which numbers the kernel's set has the queue.
fn members(set: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{set}")).expect("a set");
    let of_queue = text.lines().filter(|line| line.contains(TAG));
    let mut numbers: Vec<i32> =
        of_queue.map(|line| line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")).collect();
    numbers.sort_unstable();
    numbers
}

/// A stream to another host in a set that has the queue, with a descriptor of the kernel's: its near end, the set and the descriptor.
fn watched(world: &World) -> (i32, i32, i32) {
    let ((near, far), set, event) = (world.pair(), world.epoll(), world.event(0));
    socket::stream(far).expect("a stream").set(flag::REMOTE);
    world.add(set, far, IN, 1).unwrap();
    world.add(set, event, IN | ET, 2).unwrap();
    let joins = || world.wait(set, 8, Some(1_000_000)) == Ok(vec![]) && !members(set).is_empty();
    assert!(within(Duration::from_secs(10), joins), "the queue joins the set");
    (near, set, event)
}

#[test]
fn a_queue_with_another_number_is_in_sets_by_that() {
    let (carrier, world) = (Carrier::begin(), World::new(true));
    let (_, set, _) = watched(&world);
    for which in [0, 1, 0] {
        assert_eq!(members(set), carrier.numbers());
        carrier.renumber(which);
    }
    assert_eq!(members(set), carrier.numbers());
    world.add(world.epoll(), set, IN, 3).unwrap();
    assert_eq!(members(set), [], "it has left");
}

#[test]
fn threads_that_join_at_once_are_in_the_set_together() {
    let (_carrier, world) = (Carrier::begin(), World::new(true));
    let (_, far) = world.pair();
    socket::stream(far).expect("a stream").set(flag::REMOTE);
    for _ in 0..200 {
        let (set, outer) = (world.epoll(), world.epoll());
        world.add(set, far, IN, 1).unwrap();
        TOGETHER.store(2, Ordering::Release);
        thread::scope(|scope| {
            (0..2).for_each(|_| _ = scope.spawn(|| world.wait(set, 8, Some(2_000_000)).unwrap()));
        });
        TOGETHER.store(0, Ordering::Release);
        world.add(outer, set, IN, 3).unwrap();
        assert_eq!(members(set), [], "it has left");
        [set, outer].into_iter().for_each(|fd| world.close(fd));
    }
}

#[test]
fn frames_take_no_place_in_a_short_answer() {
    let (carrier, world) = (Carrier::begin(), World::new(true));
    let (_, set, event) = watched(&world);
    HELD.store(true, Ordering::Relaxed);
    carrier.frame();
    count(QUEUE[1].load(Ordering::Relaxed));
    world.count(event, true).unwrap();
    let told = while_asleep(|| world.wait(set, 1, AT_ONCE), || HELD.store(false, Ordering::Release));
    assert_eq!(told, Ok(vec![(2, IN)]));
}

#[test]
fn what_a_look_has_heard_of_is_taken_before_it_ends() {
    let (carrier, world) = (Carrier::begin(), World::new(true));
    let (_, set, _) = watched(&world);
    HELD.store(true, Ordering::Relaxed);
    carrier.frame();
    let look = || (world.look(set), TAKEN.load(Ordering::Relaxed));
    assert_eq!(while_asleep(look, || HELD.store(false, Ordering::Release)), (vec![], 1));
}

#[test]
fn what_a_sleeper_has_heard_of_is_taken_before_it_leaves() {
    let (_carrier, world) = (Carrier::begin(), World::new(true));
    let (_, set, event) = watched(&world);
    COMES_WITH.store(event, Ordering::Relaxed);
    let wait = || (world.wait(set, 8, FOR_EVER), TAKEN.load(Ordering::Relaxed));
    assert_eq!(while_asleep(wait, || HELD.store(false, Ordering::Release)), (Ok(vec![(2, IN)]), 1));
}

#[test]
fn the_last_thread_that_hears_of_frames_hands_that_over() {
    let (_carrier, world) = (Carrier::begin(), World::new(true));
    let (near, set, _) = watched(&world);
    let mut heard = false;
    let told = while_asleep(
        || world.wait(set, 8, FOR_EVER).unwrap(),
        || {
            // The kernel wakes the one that came last.
            let short = while_asleep(|| world.wait(set, 8, Some(100_000_000)), || world.add(world.epoll(), set, IN, 3).unwrap());
            assert_eq!(short, Ok(vec![]));
            heard = within(Duration::from_secs(5), || BESIDE.load(Ordering::Relaxed) > 0);
            world.send(near, b"x", 0).unwrap();
        },
    );
    assert_eq!((told, heard), (vec![(1, IN)], true));
}

/// Looks at deadlines by other threads, which find no stream that asks for this one, do not take it away.
#[test]
fn a_sleeper_asks_again_when_its_carrier_is_due() {
    let (_carrier, world) = (Carrier::begin(), World::new(true));
    let ((near, far), set) = (world.pair(), world.epoll());
    socket::stream(far).expect("a stream").set(flag::REMOTE);
    world.add(set, far, IN, 1).unwrap();
    AGAIN.store(1_000_000, Ordering::Relaxed);
    let sleeps: [&(dyn Fn() -> bool + Sync); 3] = [
        &|| world.wait(set, 8, FOR_EVER) == Ok(vec![(1, IN)]),
        &|| world.poll(&[(far, POLLIN)], FOR_EVER) == (Ok(1), vec![POLLIN]),
        &|| world.receive(far, 1, 0) == Ok(1),
    ];
    for (number, sleep) in sleeps.into_iter().enumerate() {
        let again = || {
            let before = ASKED.load(Ordering::Relaxed);
            let asks = || {
                shunt_stream::due::keep();
                ASKED.load(Ordering::Relaxed).wrapping_sub(before) > 2
            };
            assert!(within(Duration::from_secs(10), asks), "sleep {number} goes on for good");
            world.send(near, b"x", 0).unwrap();
        };
        assert!(while_asleep(sleep, again), "sleep {number}");
        if number < 2 {
            world.drain(far);
        }
    }
}

/// What is done to a set in which a thread sleeps: whether that hears of frames soon, and of bytes.
fn leaves_ears(world: &World, set: i32, near: i32, what: impl FnOnce()) {
    let mut hears = false;
    let told = while_asleep(
        || world.wait(set, 8, FOR_EVER).unwrap(),
        || {
            what();
            hears = within(Duration::from_secs(5), || BESIDE.load(Ordering::Relaxed) > 0 || !members(set).is_empty());
            world.send(near, b"x", 0).unwrap();
        },
    );
    assert_eq!((told, hears), (vec![(1, IN)], true));
}

#[test]
fn a_look_from_outside_leaves_no_sleeper_deaf() {
    let (_carrier, world) = (Carrier::begin(), World::new(true));
    for nested in [false, true] {
        let (near, set, _) = watched(&world);
        let outer = world.epoll();
        leaves_ears(&world, set, near, || {
            if nested {
                world.add(outer, set, IN, 3).unwrap();
                assert_eq!(world.look(outer), []);
            }
            assert_eq!(world.events(set, POLLIN), 0);
        });
    }
}

/// The sleeper is woken by one of the streams, whichever that is.
#[test]
fn a_sleeper_hears_though_the_stream_that_it_was_to_be_woken_by_is_gone() {
    let (_carrier, world) = (Carrier::begin(), World::new(true));
    for before in [false, true] {
        let (_, gone) = world.pair();
        let other = |set| world.add(set, gone, IN, 7).unwrap();
        let ((near, far), set) = (world.pair(), world.epoll());
        socket::stream(far).expect("a stream").set(flag::REMOTE);
        before.then(|| other(set));
        world.add(set, far, IN, 1).unwrap();
        (!before).then(|| other(set));
        let joins = || world.wait(set, 8, Some(1_000_000)) == Ok(vec![]) && !members(set).is_empty();
        assert!(within(Duration::from_secs(10), joins), "the queue joins the set");
        leaves_ears(&world, set, near, || {
            world.add(world.epoll(), set, IN, 3).unwrap();
            world.close(gone);
        });
    }
}

#[test]
fn a_set_is_not_readable_for_frames() {
    let (carrier, world) = (Carrier::begin(), World::new(true));
    let (near, set, _) = watched(&world);
    HELD.store(true, Ordering::Relaxed);
    carrier.frame();
    assert_eq!(world.events(set, POLLIN), 0);
    HELD.store(false, Ordering::Relaxed);
    world.send(near, b"x", 0).unwrap();
    assert_eq!(world.events(set, POLLIN), POLLIN);
}

/// Bytes come to `far` by a thread of this process, without a bell.
fn arrives(near: i32, far: i32) -> bool {
    let [near, far] = [near, far].map(|fd| socket::stream(fd).expect("a stream"));
    let byte = 7u8;
    // SAFETY: a byte; no other thread sends.
    assert_eq!(unsafe { near.outgoing().send(&raw const byte, 1) }, 1);
    epoll::hears_by_itself(far, near, arm::IN)
}

#[test]
fn a_kick_outlives_the_stream_that_it_came_by() {
    let world = World::new(true);
    let ((near, far), (other, watched), set) = (world.pair(), world.pair(), world.epoll());
    world.add(set, far, IN, 1).unwrap();
    world.add(set, watched, IN, 2).unwrap();
    assert_eq!(world.look(set), []);
    let readable = || -> Result<i16> { calls::poll_one(set, POLLIN, 0) };
    let asleep = table::get(set).object::<Set>().expect("a set");
    // A thread that sleeps in the kernel's set, and is woken, and does not run yet.
    asleep.sleeps(true);
    epoll::arm_all(asleep);
    assert!(arrives(near, far) && arrives(other, watched));
    assert_eq!(readable(), Ok(POLLIN));
    world.close(far);
    assert_eq!(readable(), Ok(POLLIN), "it is to look at the other");
    asleep.sleeps(false);
    assert_eq!(world.look(set), [(2, IN)]);
}

#[test]
fn a_kick_that_woke_poll_leaves_the_set_quiet() {
    let world = World::new(true);
    let ((near, far), set, event) = (world.pair(), world.epoll(), world.event(0));
    world.add(set, far, IN, 1).unwrap();
    world.add(set, event, IN, 2).unwrap();
    let woken = while_asleep(|| world.poll(&[(set, POLLIN)], FOR_EVER), || assert!(arrives(near, far)));
    assert_eq!(woken, (Ok(1), vec![POLLIN]));
    world.drain(far);
    assert_eq!(world.events(set, POLLIN), 0);
}
