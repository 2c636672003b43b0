//! Calls that wait on a socket whose last descriptor another thread closes.
//!
//! In the kernel such a call holds the open file: it goes on, and the file is closed when it ends. Here a socket counts
//! the calls that wait for it ([`Hold`]). If its last descriptor closes while any do, it *lingers*: a private
//! duplicate of its descriptor takes the place of the number, which may be another file's at once. The last call to leave
//! closes that, and with it the socket.
//!
//! A thread that waits may be asleep, and must hear its bell: no other one empties the companion meanwhile
//! ([`crate::waiting::bells`]).
//!
//! A call that moved on after its wait still needs the socket (to take the bytes that it waited for), so it keeps it to
//! the end of the hook ([`release`]).

mod aside;

pub use aside::{carried, dissolved, given_up, left, put_back, set_aside};

use super::WAITING;
use crate::socket::parts::Hold;
use crate::socket::{flag, Socket};
use crate::waiting::wake_pollers::Beside;
use crate::waiting::{wake, wake_pollers};
use core::sync::atomic::{AtomicU32, Ordering};
use shunt_segment::channel::arm;
use shunt_sys::cancel::{self, bit};
use shunt_sys::section::Section;
use shunt_sys::sleeper::Account;
use shunt_sys::{calls, clock, libc, thread, Result};
use shunt_table::table::Word;
use shunt_table::{private, table};

/// What calls that wait in an epoll set have to do with: the set itself is above.
pub struct SetHead {
    /// Calls that wait in it, and its descriptor if the program has none any more.
    pub hold: Hold,
}

/// A socket or a set, for which calls wait; in the table: one without descriptors of the program's, for which they still do.
#[derive(Clone, Copy)]
pub enum Lingerer {
    /// A stream or a listener.
    Socket(&'static Socket),
    /// An epoll set.
    Set(&'static SetHead),
}

impl Lingerer {
    /// As one word, which is not 0: the address, odd for sets.
    pub fn word(self) -> usize {
        match self {
            Lingerer::Socket(socket) => socket as *const Socket as usize,
            Lingerer::Set(set) => set as *const SetHead as usize | 1,
        }
    }

    /// From such a word.
    pub fn from_word(word: usize) -> Option<Lingerer> {
        match word {
            0 => None,
            // SAFETY: words hold addresses of slab objects, and slabs are never unmapped.
            word if word & 1 == 0 => Some(Lingerer::Socket(unsafe { &*(word as *const Socket) })),
            // SAFETY: as above.
            word => Some(Lingerer::Set(unsafe { &*((word & !1) as *const SetHead) })),
        }
    }
}

/// What lingers at a private descriptor.
pub fn lingerer(word: Word) -> Option<Lingerer> {
    Lingerer::from_word(word.lingering())
}

/// What the rooms above do when no call waits any more: one table, which start-up fills in.
pub struct Ends {
    /// No descriptor of the socket is left but this one, which is not the program's, and no call waits for it.
    pub socket: fn(&'static Socket, i32),
    /// No descriptor of the set is left, and no call waits in it.
    pub set: fn(&'static SetHead),
    /// A thread sleeps in a set that other processes have, too; or no longer.
    pub sleeps: fn(&SetHead, bool),
}

/// Fills the table in, before any call waits.
pub fn fill(ends: &'static Ends) {
    WAITING.ends.store(core::ptr::from_ref(ends).cast_mut(), Ordering::Release);
}

fn ends() -> Option<&'static Ends> {
    // SAFETY: null, or the static that `fill` was given.
    unsafe { WAITING.ends.load(Ordering::Acquire).as_ref() }
}

/// How often the pause of those who could not take bells is doubled.
const DOUBLED: u32 = 8;

/// Parts of [`Hold::waiters`].
const WAITER: u64 = 1;
const ASLEEP: u64 = 1 << 32;
/// Other processes may have the set: its family counts those who sleep.
const JOINT: u64 = 1 << 63;

const NONE: i32 = -1;

impl Hold {
    /// A fresh object's. Late waiters of an earlier life still take themselves off.
    pub fn reset(&self) {
        self.number.store(NONE, Ordering::Relaxed);
        self.end.store(NONE, Ordering::Relaxed);
        self.state.store(aside::state::OWN, Ordering::Relaxed);
        self.woken.store(0, Ordering::Relaxed);
        self.passage.reset();
    }

    /// In the child after fork: no thread waits.
    pub fn forked(&self) {
        // Of a stream that another thread had set aside.
        self.number.store(NONE, Ordering::Relaxed);
        self.state.store(aside::state::OWN, Ordering::Relaxed);
        self.gate.reset();
        self.passage.reset();
        self.waiters.fetch_and(JOINT, Ordering::Relaxed);
        self.woken.store(0, Ordering::Relaxed);
    }

    /// Those who sleep in a set and are not counted by its family. To be asked before that is: a thread that changes over is in one
    /// of the two.
    pub fn asleep(&self) -> u32 {
        let counts = self.waiters.load(Ordering::SeqCst);
        if counts & JOINT != 0 {
            return 0;
        }
        (counts / ASLEEP) as u32
    }

    /// Other processes will have the set, and are to see in `family` which threads sleep in it.
    pub fn join(&self, family: &AtomicU32) {
        let mut counts = self.waiters.load(Ordering::SeqCst);
        while counts & JOINT == 0 {
            let asleep = (counts / ASLEEP) as u32;
            family.fetch_add(asleep, Ordering::SeqCst);
            match self.waiters.compare_exchange(counts, counts | JOINT, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(others) => {
                    family.fetch_sub(asleep, Ordering::SeqCst);
                    counts = others;
                }
            }
        }
    }

    /// Those who may be asleep on the socket, or are about to be.
    pub fn sleepers(&self) -> u32 {
        self.gate.sleepers()
    }

    /// Whether a thread takes bells at this moment: see [`shunt_ring::bell_consumer::BellConsumer`].
    pub fn is_taking(&self) -> bool {
        self.gate.is_taking()
    }

    /// A bell has woken the caller; the counts may not tell of it.
    pub fn woken(&self) {
        self.woken.store(1, Ordering::Relaxed);
    }

    /// Whether one did, and is not taken yet.
    pub fn was_woken(&self) -> bool {
        self.woken.load(Ordering::Relaxed) != 0
    }

    /// [`shunt_ring::bell_consumer::BellConsumer::when_all_heard`], with handlers kept away. False: others sleep, or are woken and not gone yet; the caller is to
    /// leave, to [`Hold::let_others_go`], and to look again.
    pub fn when_all_heard(&self, mine: u32, take: impl FnOnce()) -> bool {
        let _section = Section::begin();
        self.gate.when_all_heard(mine, || {
            self.woken.store(0, Ordering::Relaxed);
            self.in_vain.store(0, Ordering::Relaxed);
            take();
        })
    }

    /// Gives those a processor who were woken: 20 us at first, twice as long each time, as [`wake::pause`]. In no section, and
    /// uncounted.
    pub fn let_others_go(&self, deadline: u64, mask: *const libc::sigset_t, looked: u64) -> Result<()> {
        let round = self.in_vain.fetch_add(1, Ordering::Relaxed).min(DOUBLED);
        wake::pause(20_000 << round, deadline, mask, looked)
    }

    /// Calls `ring` with a number to ring by: `fd`, or another of the socket's if that was closed meanwhile. Where none is left, the
    /// thread that closed the last one has told the peer, or is about to. Handlers are kept away, which could close it here.
    pub fn while_open(&self, socket: &Socket, fd: i32, ring: impl FnOnce(i32)) {
        if socket.has(flag::REMOTE | flag::FAR) {
            return ring(self.number(fd)); // the keeper does, by a descriptor that no thread closes beside it
        }
        let _section = Section::begin();
        let open = || match self.number.load(Ordering::SeqCst) {
            number if number >= 0 => Some(number),
            _ if crate::socket::is_of(fd, socket) => Some(fd),
            _ => crate::socket::numbers_of(socket).next(),
        };
        self.passage.while_open(open, ring);
    }

    /// Calls `change`, which finds in the table which numbers are the socket's: a thread that takes one off it from then on closes it
    /// behind that.
    pub fn before_closers(&self, change: impl FnOnce()) {
        let _section = Section::begin();
        self.passage.while_open(|| Some(()), |()| change());
    }

    /// A descriptor was taken off the table, or the private one forgotten, and is closed next.
    pub fn await_ringers(&self) {
        self.passage.await_ringers(calls::sched_yield);
    }

    /// The process ends: no thread rings any more. False: one still did at `deadline`, CLOCK_MONOTONIC in ns.
    pub fn shut_until(&self, deadline: u64) -> bool {
        while !self.passage.shut() {
            if clock::monotonic_ns() >= deadline {
                return false;
            }
            calls::sched_yield();
        }
        true
    }

    /// The descriptor to use instead of `fd`.
    #[inline]
    pub fn number(&self, fd: i32) -> i32 {
        match self.number.load(Ordering::Acquire) {
            number if number >= 0 => number,
            _ => fd,
        }
    }

    /// Whether the socket that it belongs to is open: to be asked when [`Asleep`] counts the caller.
    pub fn is_open(&self, socket: &Socket) -> bool {
        socket.references.load(Ordering::SeqCst) > 0 || self.lingers()
    }

    /// Whether the socket's numbers are those of the kernel's end of the same connection by now, so that a call goes on there: see
    /// [`carried`].
    #[inline]
    pub fn is_carried(&self) -> bool {
        self.state.load(Ordering::SeqCst) == aside::state::CARRIED
    }

    /// Whether the socket's numbers are its own, and no thread is about to change that.
    pub fn is_own(&self) -> bool {
        self.state.load(Ordering::SeqCst) == aside::state::OWN
    }

    /// Whether it is so, or about to be, and the stream's rings have no owner any more: see [`left`].
    #[cold]
    pub fn is_left(&self) -> bool {
        matches!(self.state.load(Ordering::SeqCst), aside::state::LEFT | aside::state::CARRIED)
    }

    /// Whether no descriptor of the program's is left, and the caller's wait keeps it open.
    fn lingers(&self) -> bool {
        self.number.load(Ordering::SeqCst) != NONE
    }

    /// A private descriptor got another number.
    pub fn moved(&self, from: i32, to: i32) {
        shunt_table::private::renumber(&self.number, from, to);
        shunt_table::private::renumber(&self.end, from, to);
    }

    fn enter(&self, counts: u64) -> u64 {
        self.waiters.fetch_add(counts, Ordering::SeqCst)
    }

    /// Calls that wait, asleep or awake.
    #[inline]
    pub fn calls(&self) -> u32 {
        self.waiters()
    }

    /// Calls that wait.
    fn waiters(&self) -> u32 {
        self.waiters.load(Ordering::SeqCst) as u32
    }

    /// The last descriptor `fd` is about to close. True if calls wait: then the last of them ends `what`.
    fn linger(&self, fd: i32, what: Lingerer) -> bool {
        if self.waiters() == 0 {
            return false;
        }
        if !self.lingers() {
            if self.take_private_number(fd, what).is_err() {
                return false;
            }
            if let Lingerer::Socket(socket) = what {
                if socket.kind() == table::Kind::Stream {
                    wake::notify(socket, fd, arm::IN | arm::OUT); // for those who found no number to ring by
                }
            }
        }
        settle(what);
        true
    }

    /// A private duplicate takes the place of the number `fd`, which is another file's next.
    fn take_private_number(&self, fd: i32, what: Lingerer) -> Result<()> {
        let number = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, private::base() as usize)?;
        table::set_lingering(number, what.word());
        self.number.store(number, Ordering::SeqCst);
        // A thread that sleeps in poll does so by the number.
        wake_pollers::all();
        Ok(())
    }

    /// The program's numbers are right again. Gives the private one, to be closed when no thread rings by it.
    fn forget_private_number(&self) -> i32 {
        self.number.swap(NONE, Ordering::SeqCst)
    }
}

fn of(what: Lingerer) -> &'static Hold {
    match what {
        Lingerer::Socket(socket) => &socket.hold,
        Lingerer::Set(set) => &set.hold,
    }
}

/// Ends what lingers, if no call waits for it any more: the thread that takes its number off last does.
fn settle(what: Lingerer) {
    let hold = of(what);
    loop {
        // As a rule nothing lingers: two looks, and no write to what other threads use.
        if hold.waiters() != 0 || !hold.lingers() {
            return;
        }
        let number = hold.number.swap(NONE, Ordering::SeqCst);
        if number == NONE {
            return;
        }
        if hold.waiters() == 0 {
            hold.await_ringers();
            private::close_at(&hold.end);
            let dissolved = hold.state.load(Ordering::SeqCst) >= aside::state::DISSOLVED;
            match (what, ends()) {
                (Lingerer::Socket(socket), _) if dissolved => crate::socket::free(socket),
                (Lingerer::Socket(socket), Some(ends)) => (ends.socket)(socket, number),
                (Lingerer::Set(set), Some(ends)) => (ends.set)(set),
                (_, None) => {}
            }
            private::close(number);
            return;
        }
        // Another thread came in between: it sees that it lingers, or that it is gone.
        hold.number.store(number, Ordering::SeqCst);
    }
}

fn sleeps(set: &SetHead, asleep: bool) {
    if let Some(ends) = ends() {
        (ends.sleeps)(set, asleep);
    }
}

/// Takes off what [`Waiter::counts`] says.
fn leave(what: Lingerer, counts: u64) {
    let before = of(what).waiters.fetch_sub(counts, Ordering::SeqCst);
    if let (true, Lingerer::Set(set)) = (counts >= ASLEEP && before & JOINT != 0, what) {
        sleeps(set, false);
    }
    if counts & WAITER != 0 && before as u32 == 1 {
        settle(what);
    }
}

/// The last descriptor of a socket closes; true if calls wait for it, and it goes on for them.
pub fn linger(socket: &'static Socket, fd: i32) -> bool {
    socket.hold.linger(fd, Lingerer::Socket(socket))
}

/// The same for an epoll set.
pub fn linger_set(set: &'static SetHead, fd: i32) -> bool {
    set.hold.linger(fd, Lingerer::Set(set))
}

/// A socket or set of which only the address is known to be one (sockets and sets live in slabs).
#[derive(Clone, Copy)]
pub struct Waiter {
    what: Lingerer,
    /// What its hold counts for it.
    counts: u64,
}

impl Waiter {
    /// The calling thread begins to wait for `socket`.
    pub fn on(socket: &Socket) -> Waiter {
        // SAFETY: sockets live in slabs that are never unmapped.
        let socket: &'static Socket = unsafe { &*(socket as *const Socket) };
        socket.hold.enter(WAITER);
        socket.hold.gate.enter();
        Waiter { what: Lingerer::Socket(socket), counts: WAITER }
    }

    /// The calling thread begins to wait in `set`.
    pub fn in_set(set: &'static SetHead) -> Waiter {
        set.hold.enter(WAITER);
        Waiter { what: Lingerer::Set(set), counts: WAITER }
    }

    /// The calling thread begins to wait in `set`, asleep at once: one count says both.
    pub fn asleep_in(set: &'static SetHead) -> Waiter {
        if set.hold.enter(WAITER | ASLEEP) & JOINT != 0 {
            sleeps(set, true);
        }
        Waiter { what: Lingerer::Set(set), counts: WAITER | ASLEEP }
    }

    /// It waits on, awake.
    pub fn wake(&mut self) {
        leave(self.what, core::mem::replace(&mut self.counts, WAITER) & ASLEEP);
    }

    /// Whether it is a wait on that socket.
    pub fn is_on(&self, socket: &Socket) -> bool {
        matches!(self.what, Lingerer::Socket(on) if core::ptr::eq(on, socket))
    }

    /// It waits no longer. What lingers is kept to the end of the call.
    pub fn leave(mut self) {
        if let Lingerer::Socket(socket) = self.what {
            socket.hold.gate.leave();
        }
        if of(self.what).lingers() && keep(self.what) {
            return self.wake();
        }
        leave(self.what, self.counts);
    }
}

/// Keeps a wait's count for the call that is at work; false if the call keeps another's.
fn keep(what: Lingerer) -> bool {
    // SAFETY: the calling thread's own block.
    unsafe {
        let block = thread::block();
        if (*block).held != 0 {
            return false;
        }
        (*block).held = what.word();
    }
    cancel::note(bit::HOLDING);
    true
}

/// By which a call goes on that the program made with `fd` when the numbers were the stream's: see [`carried`]. The program may have
/// closed its own meanwhile, and have it for another file. The stream's is kept for the call, which need not have waited.
pub fn end(socket: &Socket, fd: i32) -> i32 {
    // SAFETY: sockets live in slabs that are never unmapped.
    let socket: &'static Socket = unsafe { &*core::ptr::from_ref(socket) };
    let (hold, what) = (&socket.hold, Lingerer::Socket(socket));
    if !is_kept(what) {
        let _section = Section::begin();
        // Counted before the look, as `settle` takes the number before it looks at the counts: one of the two sees the other.
        hold.enter(WAITER);
        if !(hold.lingers() && hold.is_carried() && keep(what)) {
            leave(what, WAITER);
            return fd; // it is given up, or the call keeps another's
        }
    }
    match hold.end.load(Ordering::Acquire) {
        NONE => fd,
        end => end,
    }
}

/// A wait of the call's has ended in vain, and is still counted: it waits again, and until it ends no thread ends the socket, not
/// even one that closes the number before the call is asleep once more.
pub fn go_on(socket: &Socket) {
    // SAFETY: sockets live in slabs that are never unmapped.
    let socket: &'static Socket = unsafe { &*core::ptr::from_ref(socket) };
    let what = Lingerer::Socket(socket);
    let _section = Section::begin();
    if !is_kept(what) {
        socket.hold.enter(WAITER);
        if !keep(what) {
            leave(what, WAITER);
        }
    }
}

/// Whether the call that is at work keeps it.
fn is_kept(what: Lingerer) -> bool {
    // SAFETY: the calling thread's own block.
    unsafe { (*thread::block()).held == what.word() }
}

/// The call ends: what it kept, it needs no more.
#[cold]
pub fn release() {
    cancel::forget(bit::HOLDING);
    // SAFETY: the calling thread's own block.
    let word = unsafe { core::mem::take(&mut (*thread::block()).held) };
    if let Some(what) = Lingerer::from_word(word) {
        leave(what, WAITER);
    }
}

/// In the child after fork: what lingers does so for threads of the parent.
pub fn forked() {
    cancel::forget(bit::HOLDING);
    // SAFETY: the calling thread's own block.
    unsafe { (*thread::block()).held = 0 };
    for fd in table::numbers() {
        let word = table::get(fd);
        if let Some(socket) = word.object::<Socket>() {
            socket.hold.forked();
            socket.bell_listener.close();
        } else if let Some(what) = lingerer(word) {
            if let Lingerer::Socket(socket) = what {
                socket.bell_listener.close();
            }
            private::close(fd);
        }
    }
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    if let Some(what) = lingerer(table::get(from)) {
        table::set_lingering(to, what.word());
        of(what).moved(from, to);
        of(what).await_ringers();
    }
}

/// The account of a call that sleeps on one socket; of a stream, also among those that a bell wakes.
pub struct Asleep<'a> {
    socket: &'a Socket,
    waiter: Option<Waiter>,
    /// The call sleeps in poll, or waits for space: it is to sleep beside something ([`crate::waiting::wake_pollers`]).
    wants_beside: bool,
    beside: Option<Beside>,
}

impl<'a> Asleep<'a> {
    /// Of a call that sleeps in one descriptor's own call.
    pub fn on(socket: &'a Socket) -> Asleep<'a> {
        Asleep { socket, waiter: None, wants_beside: false, beside: None }
    }

    /// Of a call that sleeps in poll, or waits for space.
    pub fn beside(socket: &'a Socket) -> Asleep<'a> {
        Asleep { wants_beside: true, ..Asleep::on(socket) }
    }

    /// What such a call is to sleep beside; -1: nothing.
    pub fn descriptor(&self) -> i32 {
        self.beside.map_or(-1, |beside| beside.descriptor)
    }
}

impl Account for Asleep<'_> {
    fn enter(&mut self) {
        self.waiter = Some(Waiter::on(self.socket));
        if self.socket.kind() == table::Kind::Stream {
            self.socket.own().wait.sleepers.fetch_add(1, Ordering::Relaxed);
        }
        if self.wants_beside {
            self.beside = wake_pollers::news().begin();
        }
    }

    fn leave(&mut self) {
        if self.socket.kind() == table::Kind::Stream {
            no_longer_asleep(&self.socket.own().wait);
        }
        if let Some(beside) = self.beside.take() {
            beside.end();
        }
        if let Some(waiter) = self.waiter.take() {
            waiter.leave();
        }
    }
}

/// One sleeper fewer; the channel may have been cleared for another connection.
pub fn no_longer_asleep(wait: &shunt_segment::channel::Wait) {
    let _ = wait.sleepers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
}
