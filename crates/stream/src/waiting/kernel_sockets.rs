//! Waiting for sockets that only the kernel has: TCP connections whose other end is a program without shunt, here or elsewhere.
//!
//! The program's own call would sleep at once, and a wake-up costs more than most answers take. So a call looks first, by a call that
//! does not wait, for as long as that has paid for this thread ([`super::spin`]: the same budget and the same account as in memory), and
//! then sleeps by the program's own.
//!
//! ```text
//! recv, read and their like    the same, with MSG_DONTWAIT          poll, select, epoll: with a limit of 0, in the crate `poll`
//! ```
//!
//! Waits for several sockets look only where answers come one at a time ([`gathers`]): where the threads of both ends always have work, a sleep brings
//! several at once, and looks would take them singly.
//!
//! What is known of such a socket is kept in its word of the table, or in its object where it has one. Nothing depends on that but for
//! whether a call looks: another process may have changed the open file, so that is asked once more before the first wait.

use super::spin::{self, Spin};
use super::until::{until, Look, Source};
use super::WAITING;
use crate::socket::{flag, Socket};
use core::sync::atomic::{AtomicU32, Ordering};
use shunt_sys::cancel::{self, bit};
use shunt_sys::libc::{self, timeval, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_OOB, MSG_WAITALL};
use shunt_sys::{calls, thread, Errno, Result};
use shunt_table::process::kernel_only;
use shunt_table::table::{Kind, Word};
use shunt_table::{global, table};

/// It is a TCP socket.
const TCP: u32 = 1 << 0;
/// How calls wait for it has been asked.
const KNOWN: u32 = 1 << 1;
/// A call that would sleep may look instead.
const LOOKS: u32 = 1 << 2;
/// SO_RCVTIMEO is set: a handler ends each call, also with SA_RESTART.
const TIMED: u32 = 1 << 3;
/// Above these the state of options, of which [`LOOKS`] and [`TIMED`] tell.
const OPTIONS_SHIFT: u32 = 8;
/// Above that, in the word of a number, its life: a number that was closed and is another file's has another.
const LIFE_SHIFT: u32 = 24;

static LIVES: AtomicU32 = AtomicU32::new(0);
/// Counts changes of options. A duplicate of a socket has another number, and the same options.
static OPTIONS: AtomicU32 = AtomicU32::new(0);

/// [`KNOWN`], by the options as they are now.
fn known_by_now() -> u32 {
    KNOWN | (OPTIONS.load(Ordering::Acquire) & 0xffff) << OPTIONS_SHIFT
}

/// An option has been set by which calls wait longer or shorter, at `level`.
#[inline]
pub fn option_set(fd: i32, level: i32, name: i32) {
    if level == libc::SOL_SOCKET && matches!(name, libc::SO_RCVLOWAT | libc::SO_RCVTIMEO | SO_RCVTIMEO_NEW) {
        OPTIONS.fetch_add(1, Ordering::Release);
        changed(fd);
    }
}

/// The same with 64-bit times on all machines (asm-generic/socket.h).
const SO_RCVTIMEO_NEW: i32 = 66;

/// A call with a limit of time looks for this part of it at most: so much later than on Linux it may end.
const PART_OF_LIMIT: u64 = 64;

/// What a call gives.
pub enum Answer {
    /// A result of ours.
    Done(Result<isize>),
    /// The program's own call's, with errno set.
    Raw(isize),
}

/// Whether calls look at all.
#[inline]
fn is_on() -> bool {
    global::options().looks_at_kernel_sockets()
}

/// accept(2) gave `fd`, a TCP connection that the kernel has; `nonblocking`: by SOCK_NONBLOCK.
pub fn accepted(fd: i32, nonblocking: bool) {
    if is_on() {
        enter(fd, if nonblocking { TCP | KNOWN } else { TCP });
    }
}

/// Notes something of a foreign number of which nothing was known.
fn enter(fd: i32, known: u32) {
    let word = table::get(fd);
    if word.kind() == Kind::Foreign && word.noted() == 0 {
        let life = LIVES.fetch_add(1, Ordering::Relaxed);
        table::note(fd, word, u64::from(life) << LIFE_SHIFT | u64::from(known));
    }
}

/// The open file's flags have been changed: what is known of it is asked anew.
#[inline]
pub fn changed(fd: i32) {
    let seat = Seat::at(fd);
    if seat.known & KNOWN != 0 {
        seat.note(fd, seat.known & TCP);
    }
}

/// Whether it is a TCP socket that only the kernel has.
#[inline]
pub fn is(fd: i32) -> bool {
    Seat::at(fd).known & TCP != 0
}

/// Whether a call on `fd` goes to the kernel as it is; `receives`: it is one for sockets alone.
#[inline(always)]
pub fn are_no_concern(fd: i32, receives: bool) -> bool {
    let word = table::get(fd);
    if word.noted() != 0 {
        return word.noted() as u32 & (KNOWN | LOOKS) == KNOWN;
    }
    match word.kind() {
        Kind::Foreign => !receives || !is_on(),
        Kind::Tcp => {
            let rests = |socket: &Socket| socket.looks.load(Ordering::Relaxed) & (KNOWN | LOOKS) == KNOWN || !is_on();
            word.object::<Socket>().is_none_or(|socket| socket.has(flag::KERNEL) && rests(socket))
        }
        Kind::Datagram => false,
        _ => true,
    }
}

/// A number and what it stands for.
#[derive(Clone, Copy)]
struct Seat {
    word: Word,
    /// Of its object, if it has one.
    generation: u32,
    known: u32,
}

impl Seat {
    #[inline]
    fn at(fd: i32) -> Seat {
        let word = table::get(fd);
        match (word.noted(), word.kind()) {
            (0, Kind::Tcp) => match word.object::<Socket>().filter(|socket| socket.has(flag::KERNEL)) {
                Some(socket) => Seat {
                    word,
                    generation: socket.generation.load(Ordering::Acquire),
                    known: TCP | socket.looks.load(Ordering::Relaxed),
                },
                None => Seat { word, generation: 0, known: 0 },
            },
            (noted, _) => Seat { word, generation: 0, known: noted as u32 & ((1 << LIFE_SHIFT) - 1) },
        }
    }

    /// Whether the number still stands for the same: another thread may have closed it.
    #[inline(always)]
    fn stands(&self, fd: i32) -> bool {
        let word = table::get(fd);
        let same = |socket: &Socket| socket.generation.load(Ordering::Acquire) == self.generation;
        word == self.word && (word.noted() != 0 || word.object::<Socket>().is_none_or(same))
    }

    /// Whether it is known how calls wait for it.
    #[inline(always)]
    fn is_known(&self) -> bool {
        self.known & !(LOOKS | TIMED | TCP) == known_by_now()
    }

    /// Notes what is known by now.
    fn note(self, fd: i32, known: u32) {
        match self.word.noted() {
            0 => {
                if let Some(socket) = self.word.object::<Socket>() {
                    socket.looks.store(known, Ordering::Relaxed);
                }
            }
            noted => table::note(fd, self.word, noted >> LIFE_SHIFT << LIFE_SHIFT | u64::from(known)),
        }
    }
}

/// Asks what `fd` is, and how calls wait for it.
#[cold]
fn ask(fd: i32) -> Seat {
    let mut seat = Seat::at(fd);
    if seat.known == 0 {
        if seat.word.kind() != Kind::Foreign {
            return seat;
        }
        let tcp = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP);
        enter(fd, if tcp { TCP } else { KNOWN });
        seat = Seat::at(fd);
    }
    if seat.known & TCP != 0 {
        let known = known_by_now(); // before it is asked
        let how = if waits(fd) { how_it_waits(fd) } else { 0 };
        seat.note(fd, TCP | known | how);
        seat = Seat::at(fd);
    }
    seat
}

/// Whether a call on the open file waits, and no signal is sent for what comes meanwhile: the kernel sends none while a call sleeps
/// (`sk_wait_data`).
fn waits(fd: i32) -> bool {
    calls::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & (libc::O_NONBLOCK | libc::O_ASYNC) == 0)
}

fn how_it_waits(fd: i32) -> u32 {
    // One that waits for more than a byte would get less by a call that does not wait.
    if calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT) != Ok(1) {
        return 0;
    }
    let mut limit = timeval { tv_sec: 0, tv_usec: 0 };
    let mut length = core::mem::size_of::<timeval>() as u32;
    if calls::getsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw mut limit).cast(), &mut length).is_err() {
        return 0;
    }
    let limit = (limit.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(limit.tv_usec as u64 * 1000);
    match limit {
        0 => LOOKS,
        // The kernel counts it from the sleep on.
        short if short / PART_OF_LIMIT < global::options().spin_ns => 0,
        _ => LOOKS | TIMED,
    }
}

/// recv(2) and its like, by `own`, the call that the program made with `flags`. `look` is the same with the flags that it is given, as a
/// call for sockets.
pub fn receive(fd: i32, flags: i32, mut look: impl FnMut(i32) -> Result<usize>, own: impl FnOnce() -> isize) -> Answer {
    let began = thread::handled();
    if flags & (MSG_DONTWAIT | MSG_ERRQUEUE | MSG_OOB) != 0 || !is_on() {
        return Answer::Raw(own());
    }
    if !promises() {
        return Answer::Raw(spin::rest(own));
    }
    let mut seat = Seat::at(fd);
    if !seat.is_known() {
        seat = ask(fd);
    }
    if seat.known & LOOKS == 0 {
        return Answer::Raw(own());
    }
    // One that waits for all of its bytes would take some: it is only told that there are any.
    let mut look = || match flags & MSG_WAITALL {
        0 => match look(flags | MSG_DONTWAIT) {
            Err(Errno(libc::EAGAIN)) => Look::Nothing,
            // Closed past us, and another file's; or the word of a filter, which may let the program's own call pass.
            Err(Errno(libc::ENOTSOCK | libc::EPERM | libc::EACCES | libc::ENOSYS)) => Look::Sleep,
            result => Look::Found(Answer::Done(result.map(|got| got as isize))),
        },
        _ => match calls::poll_one(fd, libc::POLLIN, 0) {
            Ok(0) => Look::Nothing,
            _ => Look::Sleep,
        },
    };
    match look() {
        Look::Found(answer) => return answer,
        Look::Sleep => return Answer::Raw(own()),
        Look::Nothing if !waits(fd) => {
            changed(fd);
            return Answer::Raw(own());
        }
        Look::Nothing => {}
    }
    let closed = || (!seat.stands(fd)).then_some(Answer::Done(Err(Errno(libc::EBADF))));
    let looks = || match closed() {
        Some(answer) => Look::Found(answer),
        None => look(),
    };
    let own = || closed().unwrap_or_else(|| Answer::Raw(own()));
    let end = When { limit: None, began, restartable: seat.known & TIMED == 0 };
    wait(end, looks, own).unwrap_or(Answer::Done(Err(Errno(libc::EINTR))))
}

/// Whether a call that finds nothing is to look ([`wait`]); else it rests ([`spin::rest`]). A process that keeps to the kernel makes no
/// call that the program does not make.
#[inline]
pub fn promises() -> bool {
    spin::promising() && is_on() && !kernel_only::keeps() && !WAITING.crowd.rests()
}

/// More threads want to run than there are processors: found by yields that took long ([`spin`]), and believed by all threads of the
/// process. Each of fifty threads would find it out for itself, again and again, at the cost of the others.
pub(super) struct Crowd {
    /// Waits of this process that are still to rest.
    left: AtomicU32,
    /// How many do after the next long yield.
    step: AtomicU32,
}

/// Waits that rest after the first long yield, and after many.
const FEWEST: u32 = 16;
const MOST: u32 = 1 << 14;

impl Crowd {
    pub(super) const fn new() -> Crowd {
        Crowd { left: AtomicU32::new(0), step: AtomicU32::new(0) }
    }

    /// Whether a wait rests, which is counted. Threads that do so at once may count one.
    #[inline]
    fn rests(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// A yield among looks took long.
    #[cold]
    fn yielded_long(&self) {
        let step = (self.step.load(Ordering::Relaxed) * 2).clamp(FEWEST, MOST);
        self.step.store(step, Ordering::Relaxed);
        self.left.store(step, Ordering::Relaxed);
    }

    /// Looks ended without.
    #[inline]
    fn found_room(&self) {
        let step = self.step.load(Ordering::Relaxed);
        if step > 0 {
            self.step.store(step - step / 8 - 1, Ordering::Relaxed);
        }
    }
}

/// Of the waits of a thread for several sockets, the part that may bring several answers at once, in 1/256.
const MOST_GATHER: u32 = 64;
/// Weight of the last wait in that average: one of so many.
const GATHER_OVER: u32 = 16;

/// Notes that a wait for several sockets ended with `answers`.
///
/// Where a sleep brings several, looks would take them one by one, with a call for each, and the peer would get requests singly, too. That
/// costs both more than the wake-up.
#[inline]
pub fn gathers(answers: isize) {
    if answers > 0 {
        // SAFETY: the calling thread's own block.
        let gathered = unsafe { &mut (*thread::block()).gathered };
        *gathered = *gathered - *gathered / GATHER_OVER + if answers > 1 { 256 / GATHER_OVER } else { 0 };
    }
}

/// Whether a wait for several sockets that finds nothing is to look: as [`promises`], and answers do not come several at a time.
#[inline]
pub fn promises_one() -> bool {
    // SAFETY: the calling thread's own block.
    unsafe { (*thread::block()).gathered <= MOST_GATHER && promises() }
}

/// What ends a wait.
#[derive(Clone, Copy)]
pub struct When {
    /// The program's limit of time, in ns.
    pub limit: Option<u64>,
    /// [`thread::handled`] when the call began.
    pub began: u64,
    /// Handlers with SA_RESTART do not end it.
    pub restartable: bool,
}

/// Waits: looks while that pays, and then sleeps by `own`, the program's call, which is also made when a look says that it will not
/// sleep. `None`: a handler ended the call while it looked.
#[inline(always)]
pub fn wait<T>(when: When, look: impl FnMut() -> Look<T>, own: impl FnOnce() -> T) -> Option<T> {
    let result = until(&mut Waiting { when, look, own: Some(own) });
    // SAFETY: the calling thread's own block.
    match unsafe { (*thread::block()).spin_penalty } {
        0 => WAITING.crowd.found_room(),
        _ => WAITING.crowd.yielded_long(),
    }
    result
}

struct Waiting<L, O> {
    when: When,
    look: L,
    own: Option<O>,
}

impl<T, L: FnMut() -> Look<T>, O: FnOnce() -> T> Source for Waiting<L, O> {
    type Outcome = Option<T>;
    type Slept = Option<T>;

    fn begin(&mut self) -> Spin {
        // Where the peer waits is not known.
        let spin = spin::begin(0).by_calls();
        match self.when.limit {
            Some(limit) => spin.at_most(limit / PART_OF_LIMIT),
            None => spin,
        }
    }

    fn look(&mut self, _: &Spin) -> Look<Option<T>> {
        // The end of the looks, which sees to either.
        if cancel::noted() & bit::PENDING != 0 || thread::handled() != self.when.began {
            return Look::Sleep;
        }
        match (self.look)() {
            Look::Found(found) => Look::Found(Some(found)),
            Look::Nothing => Look::Nothing,
            Look::Sleep => Look::Sleep,
        }
    }

    fn sleep(&mut self, _: &Spin) -> Option<T> {
        if thread::interrupted_since(self.when.began, self.when.restartable) {
            return None;
        }
        self.own.take().map(|own| own())
    }

    fn woken(&mut self, slept: Option<T>) -> Option<Option<T>> {
        Some(slept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered() -> u32 {
        // SAFETY: the calling thread's own block.
        unsafe { (*thread::block()).gathered }
    }

    #[test]
    fn answers_that_come_together_end_the_looks_and_single_ones_begin_them() {
        (0..3).for_each(|_| gathers(7));
        assert!(gathered() <= MOST_GATHER, "a few are a coincidence");
        (0..100).for_each(|_| gathers(2));
        assert!(gathered() > MOST_GATHER);
        let full = gathered();
        gathers(0);
        gathers(-1);
        assert_eq!(gathered(), full, "no answer says nothing");
        (0..100).for_each(|_| gathers(1));
        assert!(gathered() <= MOST_GATHER);
    }

    #[test]
    fn one_in_eight_is_not_many() {
        for wait in 0..1000 {
            gathers(if wait % 8 == 0 { 2 } else { 1 });
        }
        assert!(gathered() <= MOST_GATHER);
    }

    #[test]
    fn each_long_yield_rests_twice_as_long_and_room_shortens_that() {
        let crowd = Crowd::new();
        let resting = || (0..2 * MOST).take_while(|_| crowd.rests()).count() as u32;
        let after_long = || {
            crowd.yielded_long();
            resting()
        };
        assert_eq!(resting(), 0);
        let rests: Vec<u32> = (0..12).map(|_| after_long()).collect();
        assert_eq!((&rests[..3], rests[11]), (&[16, 32, 64][..], MOST));
        (0..200).for_each(|_| crowd.found_room());
        assert_eq!(after_long(), FEWEST);
    }
}
