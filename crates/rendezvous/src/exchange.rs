//! A stream of this very process whose numbers become those of a socket of the kernel's, with all that its calls, its sets and its forks
//! see of that: by a relay ([`Exchange::carrying`]'s other users), or by its own TCP connection ([`leave`]).
//!
//! Its epoll sets go on watching it, and calls that sleep on it go on there ([`shunt_stream`]'s `carried`).

use crate::{close, options};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::watchers::Change;
use shunt_stream::waiting::{holding, watchers};
use shunt_stream::{beside, progress};
use shunt_sys::section::{self, Section};
use shunt_sys::{calls, clock, libc};
use shunt_table::global::{Guard, Mutex, SETUP};
use shunt_table::private::Pending;
use shunt_table::process::status_page;
use shunt_table::table;
use shunt_table::table::Kind;

/// The kernel's connection that is offered for a stream: its holder is asked in two steps.
pub trait Given {
    /// Why the kernel carries it from now on.
    fn reason(&self) -> Reason;
    /// Its descriptor. `None`: nothing was given after all.
    fn take(self) -> Option<i32>;
}

/// How far this process is with changing the carrier of streams.
struct Exchange {
    /// One at a time: what two threads give to the kernel at once, each by a ring of its own, is often the same. Taken before all other locks.
    carrying: Mutex,
    /// Calls that change what a stream is or has, and a thread that would leave one and waits for them: each says so before it looks for the other.
    changing: AtomicU32,
    leaving: AtomicBool,
    /// The process may not make the calls by which a stream is left.
    stays: AtomicBool,
    /// A fork holds it. Written under the set-up lock, so that forks of our own, which do not, find it clear.
    forking: AtomicBool,
}

static EXCHANGE: Exchange = Exchange {
    carrying: Mutex::new(),
    changing: AtomicU32::new(0),
    leaving: AtomicBool::new(false),
    stays: AtomicBool::new(false),
    forking: AtomicBool::new(false),
};

/// How long such calls, of which each takes microseconds, are waited for (ns).
const CHANGED_WITHIN: u64 = 1_000_000;

/// Before fork, and before the set-up lock is taken for it: the child finds no stream to another host half given away.
pub fn before_fork() -> Option<Guard<'static>> {
    progress::is_driven().then(alone).flatten()
}

/// The fork keeps that until [`after_fork`]. Under the set-up lock.
pub fn keep_for_fork(held: Option<Guard<'static>>) {
    if let Some(held) = held {
        core::mem::forget(held);
        EXCHANGE.forking.store(true, Ordering::Relaxed);
    }
}

/// After it, in either process, before the set-up lock is let go.
pub fn after_fork() {
    if EXCHANGE.forking.swap(false, Ordering::Relaxed) {
        EXCHANGE.carrying.reset();
        section::leave();
    }
}

/// In the child after fork.
pub fn forked() {
    after_fork();
    EXCHANGE.carrying.reset();
    EXCHANGE.changing.store(0, Ordering::Relaxed);
    EXCHANGE.leaving.store(false, Ordering::Relaxed);
}

/// The object of a kernel's socket without numbers yet, which takes the place of `socket`.
pub fn kernels_like(socket: &Socket) -> Option<&'static Socket> {
    let next = shunt_stream::socket::allocate(socket.family.load(Ordering::Relaxed))?;
    next.references.store(0, Ordering::Relaxed);
    next.set(flag::KERNEL);
    if socket.has(flag::NONBLOCK) {
        next.set(flag::NONBLOCK);
    }
    Some(next)
}

/// The numbers of the stream, which is set aside and which no set watches, become those of the kernel's socket `end`.
pub fn change_over(socket: &'static Socket, next: &'static Socket, end: i32, reason: Reason) {
    for number in table::numbers() {
        if table::get(number).object::<Socket>().is_some_and(|other| core::ptr::eq(other, socket)) {
            socket.hold.before_closers(|| {
                if !shunt_stream::socket::is_of(number, socket) {
                    return; // a thread closes it
                }
                let close_on_exec = crate::attach::closes_on_exec(number);
                let _ = calls::dup3(end, number, if close_on_exec { libc::O_CLOEXEC } else { 0 });
                if shunt_stream::socket::replace(number, socket, Kind::Tcp, next) {
                    status_page::show(number, kind::TCP, reason);
                }
            });
        }
    }
    status_page::count(reason);
}

/// No number is left of a socket of the kernel's that was a stream, perhaps: no call looks at that any more.
pub fn ended(next: &Socket) {
    if next.connected.stands_for.load(Ordering::Relaxed).is_null() {
        return;
    }
    let stream = next.connected.stands_for.swap(core::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or in a slab that is never unmapped; kept for this.
    let Some(stream) = (unsafe { stream.as_ref::<'static>() }) else { return };
    if next.connected.stands_in.load(Ordering::Relaxed) == shunt_sys::thread::process() {
        crate::close::finish(stream, stream.hold.number(-1), false);
        holding::given_up(stream);
    }
}

/// No other thread gives a stream away meanwhile. `None`: a handler that interrupted the same.
pub fn alone() -> Option<Guard<'static>> {
    EXCHANGE.carrying.lock()
}

/// No stream is left from now on: a filter refuses what that needs. By the thread that is [`alone`].
pub fn stay() {
    EXCHANGE.stays.store(true, Ordering::Release);
}

/// Whether none is.
pub fn stay_for_good() -> bool {
    EXCHANGE.stays.load(Ordering::Acquire)
}

/// See [`stays`].
pub struct Stays {
    _as_long: AsLong,
    _section: Section,
}

enum AsLong {
    Counted(Counted),
    Alone { _guard: Guard<'static> },
}

struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        EXCHANGE.changing.fetch_sub(1, Ordering::Release);
    }
}

/// As long as this is kept `fd` stays what it is, if it is a stream that may become the kernel's at any time ([`leave`]): what a call changes
/// of it is noted before that, or it finds the kernel's. To be asked before the call looks at the table. Such calls do not wait for one another.
#[inline]
pub fn stays(fd: i32) -> Option<Stays> {
    let socket = shunt_stream::socket::stream(fd).filter(|socket| socket.has(flag::REMOTE | flag::LIFELINE))?;
    let stays = begin_change();
    // One that has moved to the TCP connection beside it is that first.
    let has_moved = stays.is_some() && beside::has_moved_before_sending(socket);
    if has_moved {
        drop(stays);
        beside::leave(socket, fd, false);
        return None;
    }
    stays
}

#[cold]
fn begin_change() -> Option<Stays> {
    let section = Section::begin();
    EXCHANGE.changing.fetch_add(1, Ordering::SeqCst);
    let counted = Counted;
    let as_long = if EXCHANGE.leaving.load(Ordering::SeqCst) {
        drop(counted);
        AsLong::Alone { _guard: alone()? }
    } else {
        AsLong::Counted(counted)
    };
    Some(Stays { _as_long: as_long, _section: section })
}

/// For a call that makes another thing of a stream to another host: no thread gives it away meanwhile, nor changes it.
pub fn exclusively() -> impl Drop {
    struct Exclusively(Option<Unchanging>, Option<Guard<'static>>);
    impl Drop for Exclusively {
        fn drop(&mut self) {
            drop((self.0.take(), self.1.take())); // in this order
        }
    }
    let alone = alone();
    Exclusively(alone.as_ref().and_then(|_| Unchanging::begin()), alone)
}

/// No call changes what a stream is or has.
pub struct Unchanging;

impl Unchanging {
    /// By the thread that is [`alone`]. `None`: one is at work for long.
    pub fn begin() -> Option<Unchanging> {
        EXCHANGE.leaving.store(true, Ordering::SeqCst);
        let unchanging = Unchanging;
        let mut until = 0;
        while EXCHANGE.changing.load(Ordering::SeqCst) != 0 {
            let now = clock::monotonic_ns();
            until = if until == 0 { now + CHANGED_WITHIN } else { until };
            if now >= until {
                return None;
            }
            calls::sched_yield();
        }
        Some(unchanging)
    }
}

impl Drop for Unchanging {
    fn drop(&mut self) {
        EXCHANGE.leaving.store(false, Ordering::SeqCst);
    }
}

/// The stream at `fd` becomes the kernel's connection that `ask` gives, which has all of its bytes, before and behind. That is asked under
/// both of the stream's locks, behind which no thread finds room or bytes in its rings, and no fork sees it before it is the kernel's. False: nothing was
/// given, and nothing has happened.
pub fn leave<G: Given>(fd: i32, socket: &Socket, ask: impl FnOnce() -> Option<G>) -> bool {
    // SAFETY: sockets live in slabs that are never unmapped.
    let socket: &'static Socket = unsafe { &*core::ptr::from_ref(socket) };
    let Some(_carrying) = EXCHANGE.carrying.lock() else { return false };
    let Some(_unchanging) = Unchanging::begin() else { return false };
    if stay_for_good() || !shunt_stream::socket::is_of(fd, socket) || !socket.hold.is_own() || !watchers::can_follow(socket) {
        return false; // another thread was first, or the kernel cannot watch it as it is watched
    }
    let Some(next) = kernels_like(socket) else { return false };
    if holding::set_aside(socket, fd).is_err() {
        shunt_stream::socket::free(next);
        return false;
    }
    watchers::changed(socket, Change::Replacing);
    next.connected.stands_for.store(core::ptr::from_ref(socket).cast_mut(), Ordering::Relaxed);
    next.connected.stands_in.store(shunt_sys::thread::process(), Ordering::Relaxed);
    next.references.store(1, Ordering::Relaxed); // ours: another thread may close all numbers at once
    let Some(end) = taken(fd, socket, next, ask) else {
        shunt_stream::socket::free(next);
        watchers::changed(socket, Change::Replaced);
        holding::put_back(socket);
        return false;
    };
    holding::carried(socket, next, end.0);
    watchers::follow(socket, next);
    if next.references.fetch_sub(1, Ordering::SeqCst) == 1 && !holding::linger(next, end.0) {
        close::end(next, end.0, false);
    }
    true
}

/// The step of [`leave`] that no other thread sees half done.
fn taken<G: Given>(fd: i32, socket: &'static Socket, next: &'static Socket, ask: impl FnOnce() -> Option<G>) -> Option<Pending> {
    let (Ok(_receiving), Ok(_sending)) = socket.lock_both_settled() else { return None };
    let given = ask()?; // the keeper may take its time, for which only a thread waits that uses the stream, or would fork
    let _setup = SETUP.lock()?;
    if socket.has(flag::SHARED) {
        return None;
    }
    let reason = given.reason();
    let end = Pending(given.take()?);
    // What the keeper needed of it is what the program asked for.
    let _ = calls::setsockopt_int(end.0, libc::SOL_SOCKET, libc::SO_OOBINLINE, i32::from(socket.has(flag::OOB_INLINE)));
    let _ = calls::setsockopt_int(end.0, libc::IPPROTO_TCP, libc::TCP_NODELAY, 0);
    like(socket, socket.hold.number(fd), end.0); // another thread may have closed the number
    holding::left(socket);
    change_over(socket, next, end.0, reason);
    if socket.has(flag::SHUT_RD) {
        let _ = calls::shutdown(end.0, libc::SHUT_RD); // by a thread that had the companion still
    }
    Some(end)
}

/// The kernel's socket `program` gets the options and flags of the stream at `stream`.
pub fn like(socket: &Socket, stream: i32, program: i32) {
    options::give_to(program, socket);
    let flags = calls::fcntl(stream, libc::F_GETFL, 0).unwrap_or(0) & (libc::O_NONBLOCK | libc::O_ASYNC);
    let _ = calls::fcntl(program, libc::F_SETFL, (libc::O_RDWR | flags) as usize);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_left_when_nobody_changes_it() {
        let (one, other) = (begin_change().unwrap(), begin_change().unwrap());
        assert!(matches!((&one._as_long, &other._as_long), (AsLong::Counted(_), AsLong::Counted(_))), "they wait for nobody");
        assert!(Unchanging::begin().is_none());
        drop(one);
        assert!(Unchanging::begin().is_none());
        drop(other);
        let leaving = Unchanging::begin().expect("all are done");
        assert!(matches!(begin_change().unwrap()._as_long, AsLong::Alone { .. }), "behind who leaves one");
        drop(leaving);
        assert!(matches!(begin_change().unwrap()._as_long, AsLong::Counted(_)));
        assert_eq!(EXCHANGE.changing.load(Ordering::Relaxed), 0);
    }
}
