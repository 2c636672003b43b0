//! epoll_wait(2): look, spin, arm, look again, sleep in the kernel's epoll.

use super::all_in_kernel::{has_connections, is_alone};
use super::arming::{arm_all, cool, hand_over, recall, wake};
use super::datagrams::warm_all;
use super::events::find;
use super::frames;
use super::kernel::ask_kernel;
use super::nested::rest_if_noisy;
use super::scan::{look, Answer};
use super::set::{turn, Set};
use super::{ET, KERNEL_EVERY, ONESHOT};
use core::sync::atomic::{AtomicU32, Ordering};
use shunt_rendezvous::accept;
use shunt_rendezvous::accept::deferred;
use shunt_rendezvous::reconnect::shared_server;
use shunt_stream::deadlines;
use shunt_stream::due;
use shunt_stream::progress::Sleeper;
use shunt_stream::waiting::holding::Waiter;
use shunt_stream::waiting::spin::{self, Spin};
use shunt_stream::waiting::until::{until, Look, Source};
use shunt_stream::waiting::wake_pollers::Beside;
use shunt_stream::waiting::{wake as waiting, wake_pollers};
use shunt_sys::libc::{epoll_event, sigset_t};
use shunt_sys::sleeper::{counted, Account, Open};
use shunt_sys::{calls, clock, libc, stops, thread, Errno, Result};

/// The largest array that epoll_wait(2) takes (EP_MAX_EVENTS).
pub(super) const MOST: i32 = i32::MAX / core::mem::size_of::<epoll_event>() as i32;

/// epoll_wait(2) and its forms on a set that holds entries of ours, by a call that began at `began` ([`thread::handled`]).
///
/// # Safety
/// `events` has room for `room` entries; `mask` is null or valid.
pub unsafe fn wait(
    set: &'static Set,
    epfd: i32,
    events: *mut epoll_event,
    room: i32,
    deadline: u64,
    mask: *const sigset_t,
    began: u64,
) -> Result<isize> {
    if room <= 0 || room > MOST {
        return Err(Errno(libc::EINVAL));
    }
    let mut answer = Answer::new(set, events, room as usize);
    let first = first_look(set, epfd, &mut answer, deadline);
    let result = match first {
        Ok(owed) if !answer.done() && deadline != 0 => {
            // A descriptor of the set stays open, whatever other threads close.
            counted(InSet::new(set, false), |_| {
                Waiting { set, epfd, answer: &mut answer, deadline, mask, began, owed, asked: 0 }.fill()
            })
        }
        first => first.map(drop),
    };
    frames::drive(&answer);
    hand_over(set, epfd, answer.exclusive);
    warm_all(set, deadline == 0 && answer.count == 0);
    result.and_then(|()| answer.result())
}

/// The account of a call that waits in a set.
pub(super) struct InSet {
    set: &'static Set,
    /// The call sleeps in the kernel at once.
    asleep: bool,
    waiter: Option<Waiter>,
}

impl InSet {
    /// Of a call that looks first, or sleeps in the kernel at once.
    pub(super) fn new(set: &'static Set, asleep: bool) -> InSet {
        InSet { set, asleep, waiter: None }
    }

    /// The call goes on awake, where its account says that it sleeps ([`Waiter::asleep_in`]).
    pub(super) fn wake(&mut self) {
        if let Some(waiter) = &mut self.waiter {
            waiter.wake();
        }
    }
}

impl Account for InSet {
    fn enter(&mut self) {
        self.waiter = Some(match self.asleep {
            true => Waiter::asleep_in(self.set.head()),
            false => Waiter::in_set(self.set.head()),
        });
    }

    fn leave(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            waiter.leave();
        }
    }
}

/// The account of a sleep in a set.
struct Asleep {
    set: &'static Set,
    /// What the kernel said is sorted: neither a jump nor a cancellation came before.
    sorted: bool,
    /// Those that hear what the set has, or, in the end perhaps, those that sleep beside the queue of frames, for all in the set.
    ears: &'static AtomicU32,
}

impl Account for Asleep {
    fn enter(&mut self) {
        self.set.sleeps(true);
        self.ears.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&mut self) {
        self.set.sleeps(false);
        self.ears.fetch_sub(1, Ordering::Relaxed);
        if !self.sorted {
            recall(self.set);
        }
    }

    fn about(&self) -> usize {
        core::ptr::from_ref(self.set) as usize
    }
}

/// What epoll_wait(2) waits for.
struct Waiting<'a> {
    set: &'static Set,
    epfd: i32,
    answer: &'a mut Answer,
    deadline: u64,
    mask: *const sigset_t,
    began: u64,
    /// The kernel is to be asked, too, before an answer is given ([`first_look`]).
    owed: bool,
    /// When it was asked last, before the wait.
    asked: u64,
}

impl Waiting<'_> {
    /// Waits for events.
    fn fill(&mut self) -> Result<()> {
        self.asked = self.set.last_kernel.load(Ordering::Relaxed);
        if !self.mask.is_null() {
            // A signal that waits for this very mask ends the call, unless there are events.
            ask_kernel(self.set, self.epfd, self.answer, Some(0), core::ptr::null(), thread::handled())?;
            look(self.set, self.answer)?;
            if self.answer.count > 0 {
                return Ok(());
            }
            calls::ppoll(core::ptr::null_mut(), 0, &mut spin::ZERO.clone(), self.mask, calls::KERNEL_SIGSET)?;
        }
        until(self)
    }

    fn is_late(&self) -> bool {
        self.deadline != u64::MAX && clock::monotonic_ns() >= self.deadline
    }

    /// The call returns what it found.
    fn finish(&mut self) -> Result<()> {
        if self.owed {
            pay(self.set, self.epfd, self.answer, self.asked);
        }
        Ok(())
    }

    fn try_look(&mut self, spin: &Spin) -> Result<Look<Result<()>>> {
        look(self.set, self.answer)?;
        // Of connections that the kernel has nothing else tells; other threads that wait for them are woken in its order.
        let only_kernel_tells = self.set.quiet() && has_connections(self.set) && is_alone(self.set, 1);
        let every = if only_kernel_tells { 0x3 } else { 0x3f };
        if self.answer.count == 0 && spin.rounds() & every == 0 {
            ask_kernel(self.set, self.epfd, self.answer, Some(0), core::ptr::null(), self.began)?;
            look(self.set, self.answer)?;
            if self.answer.count == 0 && self.is_late() {
                return Ok(Look::Sleep);
            }
        }
        Ok(match self.answer.done() {
            true => Look::Found(self.finish()),
            false => Look::Nothing,
        })
    }
}

impl Source for Waiting<'_> {
    type Outcome = Result<()>;
    type Slept = Result<()>;

    fn begin(&mut self) -> Spin {
        let set = self.set;
        let spin = spin::begin_expecting(peer_of(set), !set.listening.is_empty() && shared_server::bid_is_near());
        if spin.begins() {
            warm_all(set, true);
        }
        spin
    }

    #[inline(always)]
    fn look(&mut self, spin: &Spin) -> Look<Result<()>> {
        if self.set.exclusive.load(Ordering::Relaxed) {
            return Look::Sleep;
        }
        shunt_stream::progress::drive();
        self.try_look(spin).unwrap_or_else(|error| Look::Found(Err(error)))
    }

    fn sleep(&mut self, _: &Spin) -> Result<()> {
        shunt_stream::beside::drive();
        sleep(self.set, self.epfd, self.answer, self.deadline, self.mask, self.began)
    }

    fn woken(&mut self, slept: Result<()>) -> Option<Result<()>> {
        if let Err(error) = slept {
            return Some(Err(error));
        }
        if self.answer.done() || self.is_late() {
            return Some(self.finish());
        }
        rest_if_noisy(self.set, self.deadline, self.mask, self.began).err().map(Err)
    }
}

/// Asks the kernel what is owed ([`first_look`]), unless it has been asked since `asked`. What was found is told, whatever becomes of
/// that; an answer that has no room left is followed by one that begins with the kernel.
#[cold]
fn pay(set: &'static Set, epfd: i32, answer: &mut Answer, asked: u64) {
    if set.last_kernel.load(Ordering::Relaxed) != asked {
        return;
    }
    if answer.full() {
        return set.turn.store(turn::KERNEL_AT_ONCE, Ordering::Relaxed);
    }
    let _ = ask_kernel(set, epfd, answer, Some(0), core::ptr::null(), thread::handled()).and_then(|()| look(set, answer));
}

/// What there is without waiting. The kernel is asked; where all members are ours, only if it was not a moment ago. Where an answer
/// had no room for all, the next one begins with the other half of the set: neither starves. True: the question was left to the sleep
/// that was expected, and is owed where the call does not come to sleep.
fn first_look(set: &'static Set, epfd: i32, answer: &mut Answer, deadline: u64) -> Result<bool> {
    set.catch_up();
    shunt_stream::progress::drive();
    let turn = set.turn.load(Ordering::Relaxed);
    if turn == turn::STREAMS {
        look(set, answer)?;
    }
    // Events of the kernel's own descriptors belong in the same answer, and nothing but the kernel tells of them.
    let due = deadline == 0
        || turn == turn::KERNEL_AT_ONCE
        || set.foreign.load(Ordering::Relaxed) > 0
        || clock::ticks().wrapping_sub(set.last_kernel.load(Ordering::Relaxed)) > KERNEL_EVERY;
    // A thread that is about to sleep asks then, unless streams have something to say before.
    let owed = due && turn != turn::KERNEL_AT_ONCE && deadline != 0 && !spin::promising() && silent(set);
    let due = due && !owed;
    if due {
        ask_kernel(set, epfd, answer, Some(0), core::ptr::null(), thread::handled())?;
    }
    if turn != turn::STREAMS || answer.count == 0 {
        look(set, answer)?;
    }
    if due || deadline == 0 {
        shunt_stream::beside::drive();
    }
    if (due || deadline == 0) && due::keep() && answer.count == 0 {
        look(set, answer)?;
    }
    let next = match turn {
        _ if !answer.full() => turn::KERNEL,
        turn::STREAMS => turn::KERNEL_AT_ONCE,
        _ if due => turn::STREAMS,
        _ => turn::KERNEL_AT_ONCE,
    };
    if next != turn {
        set.turn.store(next, Ordering::Relaxed);
    }
    Ok(owed)
}

/// Whether no active entry has an event.
fn silent(set: &'static Set) -> bool {
    set.quiet() || set.lock.lock().is_some_and(|_held| set.active().all(|entry| find(entry).events == 0))
}

/// The processor on which a peer of the set waits, plus one; 0: unknown. It is that of the stream found ready last, or of the
/// datagram socket that is the only active entry.
fn peer_of(set: &'static Set) -> u32 {
    let mut active = set.active();
    match (active.next().and_then(|entry| entry.datagram()), active.next()) {
        (Some(socket), None) => socket.peer_processor(),
        _ => set.peer_processor.load(Ordering::Relaxed),
    }
}

/// Arms the active streams, looks once more, and sleeps in the kernel's epoll. `began`: as in `sleep::wait`.
fn sleep(set: &'static Set, epfd: i32, answer: &mut Answer, deadline: u64, mask: *const sigset_t, began: u64) -> Result<()> {
    counted(Asleep { set, sorted: false, ears: &set.silent }, |open| {
        let slept = sleep_counted(set, epfd, answer, deadline, mask, began, open);
        open.with(|account| account.sorted = slept != Err(Errno(libc::ECANCELED)));
        slept
    })
}

/// The same, by a thread that is counted as asleep.
fn sleep_counted(
    set: &'static Set,
    epfd: i32,
    answer: &mut Answer,
    deadline: u64,
    mask: *const sigset_t,
    began: u64,
    open: &Open<Asleep>,
) -> Result<()> {
    // First: what this thread brings from other hosts takes back what was announced for it ([`super::local_event`]), and need not
    // be an event, so that no thread would announce it again.
    let remote = set.remote.load(Ordering::Relaxed);
    let watch = shunt_stream::progress::watch(match remote {
        false => Sleeper::Elsewhere,
        true if frames::join(set) => Sleeper::Inside,
        true => Sleeper::Beside,
    });
    due::keep();
    if arm_all(set) {
        waiting::barrier();
    }
    let deadline = deadline.min(deadlines::next()).min(watch.as_ref().map_or(u64::MAX, |watch| watch.due));
    look(set, answer)?;
    let Some(mut watch) = watch.filter(|_| !answer.done() && set.remote.load(Ordering::Relaxed) == remote) else {
        wake(set);
        return Ok(());
    };
    if thread::interrupted_since(began, false) {
        return Err(Errno(libc::EINTR)); // a handler ran while we looked
    }
    if watch.descriptor >= 0 {
        open.with(|account| {
            set.hearing.fetch_add(1, Ordering::Relaxed);
            core::mem::replace(&mut account.ears, &set.hearing).fetch_sub(1, Ordering::Relaxed);
        });
    }
    let (listeners, longest) = listeners(set);
    let deadline = match longest {
        u64::MAX => deadline,
        longest => deadline.min(clock::monotonic_ns() + longest),
    };
    let left = || (deadline != u64::MAX).then(|| deadline.saturating_sub(clock::monotonic_ns()));
    let asked = match (watch.descriptor, listeners) {
        (-1, NO_LISTENERS) => ask_kernel(set, epfd, answer, left(), mask, began),
        (frames, _) => sleep_beside(set, epfd, frames, listeners, deadline, mask, began).and_then(|ready| match ready {
            true => ask_kernel(set, epfd, answer, Some(0), core::ptr::null(), thread::handled()),
            false => Ok(()),
        }),
    };
    if watch.drives() {
        wake(set); // what this thread brings from other hosts needs no bells
    }
    watch.heard = core::mem::take(&mut answer.frames);
    drop(watch);
    cool(set);
    asked?;
    wake(set);
    look(set, answer)
}

/// Listeners of a set from before a fork whose clients this process hears of.
const LISTENERS: usize = 4;
const NO_LISTENERS: [i32; LISTENERS] = [-1; LISTENERS];

/// Sleep limit (ns) where a new event rings no bell that differs from those already reported.
const DEAF: u64 = 1_000_000;

/// The bells of clients that this process has in its lists and that the kernel's set does not know: it has those of the process that added
/// the listener, before a fork. And for how long one may sleep by them: those of a client that an entry has told of once, and
/// that waits still, would end each sleep.
fn listeners(set: &'static Set) -> ([i32; LISTENERS], u64) {
    let (mut listeners, mut longest, mut count) = (NO_LISTENERS, u64::MAX, 0);
    if !deferred::holds_any() || !set.inherited.load(Ordering::Relaxed) {
        return (listeners, longest);
    }
    let Some(_held) = set.lock.lock() else { return (listeners, longest) };
    for entry in set.listening.iter() {
        let Some(listener) = entry.socket().filter(|listener| deferred::any(listener)) else { continue };
        if entry.wanted() & (ET | ONESHOT) != 0 && deferred::ready_ones(listener).is_some() {
            longest = DEAF;
        } else if count < LISTENERS {
            listeners[count] = accept::queues(listener)[1];
            count += 1;
        }
    }
    (listeners, longest)
}

/// The account of a sleep in poll.
struct Polling {
    beside: Option<Beside>,
}

impl Account for Polling {
    fn enter(&mut self) {
        self.beside = wake_pollers::news().begin();
    }

    fn leave(&mut self) {
        if let Some(beside) = self.beside.take() {
            beside.end();
        }
    }
}

/// Sleeps until the kernel's set has events (true), frames come from other hosts, one of `listeners` has a bell, or a number that it
/// sleeps by became another file's ([`wake_pollers`]). Stops of the process end it, as they end epoll_wait. Of a set that other threads
/// have closed meanwhile, and that has no number of ours, frames and bells alone tell.
fn sleep_beside(
    set: &'static Set,
    epfd: i32,
    frames: i32,
    listeners: [i32; LISTENERS],
    deadline: u64,
    mask: *const sigset_t,
    began: u64,
) -> Result<bool> {
    counted(Polling { beside: None }, |open| {
        let news = open.with(|account| account.beside.map_or(-1, |beside| beside.descriptor)).unwrap_or(-1);
        let number = set.number(epfd);
        // One that is not there is negative, and passed over.
        let [first, second, third, fourth] = listeners;
        let all = [number, frames, news, first, second, third, fourth];
        let mut asked = all.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        let mut slept = stops::ppoll_until(&mut asked, deadline, mask, began);
        let closed = asked[0].revents & libc::POLLNVAL != 0;
        if closed && slept.is_ok() && set.number(epfd) == number {
            slept = stops::ppoll_until(&mut asked[1..], deadline, mask, began);
        } else if slept.is_ok() && !closed && asked[0].revents == 0 {
            set.last_kernel.store(clock::ticks(), Ordering::Relaxed); // as good as a question to which there is no answer
        }
        slept.map(|_| !closed && asked[0].revents != 0)
    })
}
