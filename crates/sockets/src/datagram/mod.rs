//! Datagram sockets: the kernel's own, with an inbox in shared memory beside them while their receiver is awake.
//!
//! The inbox and its gate are `shunt_ring::inbox`. A receiver that is about to sleep shuts the gate, so everything that
//! sleeps, signals or does not know of us finds plain UDP. Whatever an inbox cannot serve *pins* the gate: see [`pin`].
//!
//! ```text
//! mod       the private object            boxes    inboxes: making, handing over, taking up
//! receive   recv and its forms            send     send and its forms
//! route     whose inbox a destination is  options  what pins
//! told      control messages of recvmsg   wishes   control messages of sendmsg
//! sets      membership in epoll sets          witness  what children still have
//! ```

pub mod boxes;
pub mod options;
pub mod receive;
pub mod route;
pub mod send;
pub mod sets;
pub mod told;
pub mod wishes;
pub mod witness;

use crate::epoll::Entry;
use crate::global::{self, Shared, SETUP};
use crate::local::Local;
use crate::report;
use crate::table::{self, Kind};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use route::Routes;
use shunt_options::{Udp, Unix};
use shunt_ring::inbox::Inbox;
use shunt_ring::lock;
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_sys::libc::{self, POLLIN, POLLRDNORM};
use shunt_sys::section::Section;
use shunt_sys::{calls, clock, mapping, thread};

/// Bits of [`Datagram::flags`].
pub mod flag {
    /// O_NONBLOCK, as far as this process knows.
    pub const NONBLOCK: u32 = 1 << 0;
    /// Forked: other processes own the socket, too, and may change its flags.
    pub const SHARED: u32 = 1 << 1;
    /// Counted for the fork that is happening now.
    pub const COUNTED: u32 = 1 << 2;
    /// Sending is the kernel's.
    pub const SEND_PLAIN: u32 = 1 << 3;
    /// The kernel holds the beginning of a datagram (MSG_MORE).
    pub const UNFINISHED: u32 = 1 << 4;
    /// The inbox was made with a pin in its gate, which is still there.
    pub const BORN_SHUT: u32 = 1 << 5;
    /// The gate counts one pin for all of [`super::Datagram::pins`].
    pub const GATE_PINNED: u32 = 1 << 6;
    /// The program has bound it: others know its port, so it may serve them.
    pub const BOUND: u32 = 1 << 7;
    /// AF_UNIX: it has a peer.
    pub const CONNECTED: u32 = 1 << 8;
    /// AF_UNIX: credentials come with each message (SO_PASSCRED).
    pub const CREDENTIALS: u32 = 1 << 9;
}

/// Why a socket's datagrams come through the kernel, whoever is awake. Bits of [`Datagram::pins`].
pub mod pin {
    /// An option that asks for more than bytes and addresses.
    pub const OPTION: u32 = 1 << 0;
    /// O_ASYNC: the kernel must see each arrival.
    pub const ASYNC: u32 = 1 << 1;
    /// In an epoll set that other processes have, too, or that shares its events out.
    pub const SET: u32 = 1 << 2;
    /// A program that may not know of us has the descriptor, too.
    pub const ELSEWHERE: u32 = 1 << 3;
    /// shutdown(2).
    pub const SHUT: u32 = 1 << 4;
    /// In an epoll set that a child has since a fork: until it is gone or has exec'd.
    pub const FORK: u32 = 1 << 5;
    /// Another process owns the socket, too, since a fork (AF_UNIX).
    pub const FORKED: u32 = 1 << 6;
}

/// A UDP socket, private to the process. Descriptors made by dup share it.
#[repr(C, align(64))]
pub struct Datagram {
    base: AtomicPtr<u8>,
    size: AtomicU32,
    /// See [`flag`].
    pub flags: AtomicU32,
    /// See [`pin`].
    pub pins: AtomicU32,
    /// AF_INET or AF_INET6.
    pub family: AtomicI32,
    /// When the kernel's queue was last looked at, in ticks.
    asked: AtomicU64,
    /// When visitors were last looked for, in ticks.
    visited: AtomicU64,
    /// When what is first in the kernel's queue came there, as [`shunt_ring::inbox::Front::moment`], with a bit above;
    /// 0: nothing was seen there.
    turn: AtomicU64,
    /// What its options say of each datagram that it sends.
    outgoing: wishes::Outgoing,
    /// UDP_SEGMENT.
    segment: AtomicU32,
    /// Forks since which others may own it: bits of `witness`.
    forks: AtomicU32,
    /// Those of them at which it was in an epoll set.
    watched_at: AtomicU32,
    /// Processor of the last sender, plus one.
    peer_processor: AtomicU32,
    /// Datagrams that came through the kernel, up to [`ENOUGH`].
    received: AtomicU32,
    /// Waits that are to sleep at once, and how many there were the last time.
    resting: AtomicU32,
    rest: AtomicU32,
    /// Threads of this process that sleep in the kernel for it, whether there is an inbox or not.
    sleeping: AtomicU32,
    /// Epoll sets of this process whose threads may sleep and that watch it: see `sets`.
    cold: AtomicU32,
    /// The first entry of those sets.
    pub watchers: AtomicPtr<Entry>,
    /// 1: a handler sent while the lock for sending was held.
    interrupted: AtomicU32,
    /// Whether datagrams were sent through the kernel, and their errors: see `send`.
    through_kernel: AtomicU32,
    /// Guards the routes.
    sending: AtomicU32,
    /// Descriptors of this process that refer to it.
    pub references: AtomicU32,
    /// Lives of this object.
    pub generation: AtomicU32,
    /// The inbox's memfd, its listener, and both ends of the pipe that tells senders of the end; -1: none.
    pub private: [AtomicI32; 4],
    /// What AF_UNIX sockets have besides.
    pub local: Local,
    /// The connected peer.
    pub(crate) peer: send::Peer,
    routes: Shared<Routes>,
    next_free: AtomicPtr<Datagram>,
}

/// Datagrams through the kernel before an inbox is worth its making.
const ENOUGH: u32 = 16;

const SLAB: usize = 32;
static FREE: AtomicPtr<Datagram> = AtomicPtr::new(core::ptr::null_mut());

/// Whether UDP is ours at all.
pub fn enabled() -> bool {
    global::ready() && global::options().accelerate && global::options().udp != Udp::Off
}

/// Enters a fresh UDP socket.
pub fn created(fd: i32, family: i32, nonblocking: bool) {
    enter(fd, family, nonblocking);
}

/// Enters a fresh socket that may have an inbox.
pub(crate) fn enter(fd: i32, family: i32, nonblocking: bool) -> Option<&'static Datagram> {
    if !table::fits(fd) {
        return None;
    }
    let socket = allocate(family)?;
    if nonblocking {
        socket.flags.store(flag::NONBLOCK, Ordering::Relaxed);
    }
    table::set_datagram(fd, socket);
    let (kind, reason) = socket.row();
    report::note(fd, kind, reason, None);
    Some(socket)
}

fn allocate(family: i32) -> Option<&'static Datagram> {
    let _setup = SETUP.lock()?;
    let mut first = FREE.load(Ordering::Relaxed);
    if first.is_null() {
        let slab = mapping::reserve(SLAB * core::mem::size_of::<Datagram>()).ok()?.cast::<Datagram>();
        for i in (0..SLAB).rev() {
            // SAFETY: inside the fresh slab; all-zero is a valid Datagram.
            unsafe {
                let socket = slab.add(i);
                (*socket).next_free.store(first, Ordering::Relaxed);
                first = socket;
            }
        }
    }
    // SAFETY: a slab object that nobody uses.
    let socket = unsafe { &*first };
    FREE.store(socket.next_free.load(Ordering::Relaxed), Ordering::Relaxed);
    socket.base.store(core::ptr::null_mut(), Ordering::Relaxed);
    for word in [
        &socket.flags,
        &socket.pins,
        &socket.peer_processor,
        &socket.received,
        &socket.resting,
        &socket.rest,
        &socket.sending,
        &socket.through_kernel,
        &socket.sleeping,
        &socket.cold,
        &socket.interrupted,
        &socket.segment,
        &socket.forks,
        &socket.watched_at,
    ] {
        word.store(0, Ordering::Relaxed);
    }
    socket.asked.store(0, Ordering::Relaxed);
    socket.visited.store(0, Ordering::Relaxed);
    socket.turn.store(0, Ordering::Relaxed);
    socket.outgoing.forget();
    socket.family.store(family, Ordering::Relaxed);
    socket.references.store(1, Ordering::Relaxed);
    for fd in &socket.private {
        fd.store(-1, Ordering::Relaxed);
    }
    socket.watchers.store(core::ptr::null_mut(), Ordering::Relaxed);
    socket.peer.forget();
    socket.local.reset();
    // SAFETY: nobody else uses the object.
    unsafe { *socket.routes.get() = Routes::new() };
    Some(socket)
}

impl Datagram {
    /// The inbox, if there is one.
    #[inline(always)]
    pub fn inbox(&self) -> Option<Inbox> {
        let base = self.base.load(Ordering::SeqCst);
        if base.is_null() {
            return None;
        }
        // SAFETY: `boxes::make` stores the size before the base; the range stays mapped.
        Some(unsafe { Inbox::new(base, self.size.load(Ordering::Relaxed)) })
    }

    /// Whether it is an AF_UNIX socket: see [`crate::local`].
    #[inline(always)]
    pub fn is_local(&self) -> bool {
        self.family.load(Ordering::Relaxed) == libc::AF_UNIX
    }

    /// Whether something waits in its inbox, where the kernel does not see it.
    pub fn has_waiting(&self) -> bool {
        if self.is_local() {
            crate::local::ends::has_waiting(self)
        } else {
            events(self) != 0
        }
    }

    /// Whether it is an AF_UNIX socket that keeps packets apart.
    pub fn has_packets(&self) -> bool {
        self.is_local() && self.local.packets()
    }

    /// Whether its inbox exists from the beginning, and is open whenever nobody sleeps.
    pub(crate) fn is_eager(&self) -> bool {
        if self.is_local() {
            global::options().unix == Unix::Eager
        } else {
            global::options().udp == Udp::Eager
        }
    }

    /// Kind and reason to tell of a fresh one.
    fn row(&self) -> (u8, Reason) {
        if self.is_local() {
            (kind::LOCAL, Reason::Local)
        } else {
            (kind::DATAGRAM, Reason::Datagrams)
        }
    }

    #[inline]
    pub(crate) fn has(&self, bit: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & bit != 0
    }

    /// Notes O_NONBLOCK.
    pub fn set_nonblocking(&self, on: bool) {
        if on {
            self.flags.fetch_or(flag::NONBLOCK, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag::NONBLOCK, Ordering::Relaxed);
        }
    }

    /// From now on the kernel carries what comes, until [`Datagram::unpin`]. What waits in the inbox stays there.
    pub fn pin(&'static self, why: u32) {
        let before = self.pins.fetch_or(why, Ordering::SeqCst);
        if before == 0 {
            if let Some(inbox) = self.inbox() {
                self.flags.fetch_or(flag::GATE_PINNED, Ordering::Relaxed);
                inbox.pin();
            }
            self.note(if self.is_local() { Reason::LocalPinned } else { Reason::DatagramsPinned });
        }
    }

    /// Tells tools what carries the socket's datagrams.
    fn note(&'static self, reason: Reason) {
        for fd in 0..table::high_water() {
            if table::datagram(fd).is_some_and(|socket| core::ptr::eq(socket, self)) {
                report::note(fd, self.row().0, reason, None);
            }
        }
    }

    /// Takes a reason back.
    pub fn unpin(&self, why: u32) {
        let before = self.pins.fetch_and(!why, Ordering::SeqCst);
        if before != 0 && before & !why == 0 {
            self.take_off(flag::GATE_PINNED);
            self.let_in();
        }
    }

    /// Takes a pin off the gate, if `bit` says that it is there.
    pub(crate) fn take_off(&self, bit: u32) {
        if let (true, Some(inbox)) = (self.flags.fetch_and(!bit, Ordering::SeqCst) & bit != 0, self.inbox()) {
            inbox.unpin();
        }
    }

    /// Whether somebody began to sleep, or to pin, who knows nothing of the inbox: nobody who comes now does.
    pub(crate) fn has_strangers(&self) -> bool {
        [&self.sleeping, &self.pins, &self.cold].iter().any(|count| count.load(Ordering::SeqCst) != 0)
    }

    /// An inbox that was made while somebody slept opens when nobody does any more.
    #[inline]
    fn let_in(&self) {
        if self.has(flag::BORN_SHUT) && !self.has_strangers() {
            self.take_off(flag::BORN_SHUT);
        }
    }

    /// The kernel may from now on decide otherwise who gets a datagram: senders shall ask it.
    pub fn changed(&self) {
        route::CHANGES.fetch_add(1, Ordering::SeqCst);
        if let Some(inbox) = self.inbox() {
            inbox.header().epoch.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Whether a call must not wait.
    pub(crate) fn nonblocking(&self, fd: i32, flags: i32) -> bool {
        if flags & libc::MSG_DONTWAIT != 0 {
            return true;
        }
        if self.has(flag::SHARED) {
            return calls::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) & libc::O_NONBLOCK != 0;
        }
        self.has(flag::NONBLOCK)
    }

    /// The lock for sending, in a section; `None` in a handler that was installed past us and interrupted its holder.
    pub(crate) fn lock_send(&self) -> Option<Sending<'_>> {
        let section = Section::begin();
        let held = lock::acquire(&self.sending, thread::id(), global::single_threaded(), |_| calls::sched_yield())?;
        Some(Sending { _held: held, _section: section })
    }
}

impl Datagram {
    /// The lock for sending, if nobody holds it.
    pub(crate) fn try_lock_send(&self) -> Option<Sending<'_>> {
        let section = Section::begin();
        let held = lock::try_acquire(&self.sending, thread::id())?;
        Some(Sending { _held: held, _section: section })
    }
}

/// The lock for sending, held. Nothing under it sleeps.
pub(crate) struct Sending<'a> {
    // Released first: fields are dropped in their order.
    _held: lock::Held<'a>,
    _section: Section,
}

/// bind went through.
pub fn bound(fd: i32, socket: &'static Datagram) {
    socket.flags.fetch_or(flag::BOUND, Ordering::Relaxed);
    moved_to_address(fd, socket);
}

/// connect went through, or a first datagram gave the socket its port: its address may be another one now.
pub fn moved_to_address(fd: i32, socket: &'static Datagram) {
    if let Some(_held) = socket.lock_send() {
        socket.peer.forget();
        // SAFETY: the lock is held.
        unsafe { (*socket.routes.get()).clear() };
    }
    socket.changed();
    begin_eagerly(fd, socket);
}

/// With the option `eager` the inbox exists as soon as the socket has a port, and is open whenever nobody sleeps.
pub(crate) fn begin_eagerly(fd: i32, socket: &'static Datagram) {
    if socket.is_eager() {
        if socket.inbox().is_none() && socket.pins.load(Ordering::Relaxed) == 0 {
            boxes::make(fd, socket);
        }
        reopen(socket);
    }
}

/// After a sleep.
pub(crate) fn reopen(socket: &Datagram) {
    if socket.is_eager() {
        if let Some(inbox) = socket.inbox() {
            inbox.open();
        }
    }
}

/// What poll(2) would say of datagrams in the inbox; the kernel says the rest.
#[inline]
pub fn events(socket: &Datagram) -> i16 {
    match socket.inbox() {
        Some(inbox) if inbox.front().is_some() => POLLIN | POLLRDNORM,
        _ => 0,
    }
}

/// FIONREAD: the size of the next datagram, if it lies in the inbox.
pub fn next_size(fd: i32, socket: &Datagram) -> Option<usize> {
    let inbox = socket.inbox()?;
    let front = inbox.front()?;
    let kernels = receive::kernels_turn(fd, socket, &inbox, &front, clock::ticks());
    (!kernels).then_some(front.length)
}

/// A thread that sleeps in the kernel for a socket.
#[derive(Clone, Copy)]
pub struct Sleeper {
    /// The gate was shut for it.
    entered: bool,
    /// The life of the object: another thread may close the socket meanwhile, and the next one may get it.
    generation: u32,
}

impl Sleeper {
    /// As something that a place for events holds; never 0.
    pub fn pack(self, socket: &Datagram) -> i16 {
        (Sleeper::mark(socket, self.generation) << 2) as i16 | (self.entered as i16) << 1 | 1
    }

    /// What [`Sleeper::pack`] made, if that was for this socket as it is now.
    pub fn unpack(socket: &Datagram, packed: i16) -> Option<Sleeper> {
        let generation = socket.generation.load(Ordering::Acquire);
        let same = packed & 1 != 0 && packed as u16 >> 2 == Sleeper::mark(socket, generation);
        same.then_some(Sleeper { entered: packed & 2 != 0, generation })
    }

    /// 14 bits.
    fn mark(socket: &Datagram, generation: u32) -> u16 {
        let which = (socket as *const Datagram as usize as u64 >> 6) ^ (generation as u64) << 32;
        (which.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as u16
    }
}

/// Before a sleep: the gate shuts, until [`after_sleep`] takes this sleeper back.
pub fn before_sleep(socket: &Datagram) -> Sleeper {
    let generation = socket.generation.load(Ordering::Acquire);
    // An inbox that another thread makes meanwhile stays shut: see `boxes::make`.
    socket.sleeping.fetch_add(1, Ordering::SeqCst);
    let inbox = socket.inbox();
    if let Some(inbox) = inbox {
        if socket.is_local() {
            boxes::visitors(socket, clock::ticks()); // who comes to know it now finds it when the thread is awake
        }
        inbox.enter();
    }
    Sleeper { entered: inbox.is_some(), generation }
}

/// After it.
pub fn after_sleep(socket: &Datagram, sleeper: Sleeper) -> bool {
    if socket.generation.load(Ordering::Acquire) != sleeper.generation {
        return false;
    }
    socket.sleeping.fetch_sub(1, Ordering::SeqCst);
    if let (true, Some(inbox)) = (sleeper.entered, socket.inbox()) {
        inbox.leave();
    }
    socket.let_in();
    reopen(socket);
    true
}

/// A thread that polls is about to spin: senders may write from now on.
pub fn before_spin(fd: i32, socket: &'static Datagram) {
    if socket.inbox().is_none() && socket.worthwhile() {
        boxes::make(fd, socket);
    }
    if let Some(inbox) = socket.inbox() {
        if inbox.open() && inbox.is_behind() {
            // Senders that used the kernel wait for this.
            let look = inbox.begin_look();
            if calls::poll_one(fd, POLLIN, 0) == Ok(0) {
                socket.asked.store(clock::ticks(), Ordering::Relaxed);
                inbox.note_drained(look);
            }
        }
        boxes::visitors(socket, clock::ticks());
    }
}

impl Datagram {
    /// Whether an inbox would be made for a receiver that spins.
    pub(crate) fn worthwhile(&self) -> bool {
        if self.is_local() && !self.has(flag::CONNECTED) {
            return false;
        }
        // Where others own the socket, who know nothing of an inbox, its gate would stay shut.
        (self.is_eager() || self.received.load(Ordering::Relaxed) >= ENOUGH)
            && self.pins.load(Ordering::Relaxed) == 0
            && !self.has(flag::SHARED)
    }
}

/// A descriptor of the socket is closed.
pub fn release(socket: &'static Datagram, fd: i32) {
    if socket.references.fetch_sub(1, Ordering::AcqRel) != 1 {
        return;
    }
    crate::epoll::forget_datagram(socket, fd);
    leaves(socket);
    route::CHANGES.fetch_add(1, Ordering::SeqCst);
    if let Some(_held) = socket.lock_send() {
        // SAFETY: the lock is held.
        unsafe { (*socket.routes.get()).clear() };
    }
    crate::local::released(socket);
    socket.generation.fetch_add(1, Ordering::Release);
    boxes::drop_own(socket);
    if let Some(_setup) = SETUP.lock() {
        socket.next_free.store(FREE.load(Ordering::Relaxed), Ordering::Relaxed);
        FREE.store(socket as *const Datagram as *mut Datagram, Ordering::Relaxed);
    }
}

/// This process receives no more. The last owner says so; a killed one is told by the pipe.
fn leaves(socket: &'static Datagram) {
    crate::local::owners::leave(socket);
    if let Some(inbox) = socket.inbox() {
        if inbox.header().owners.fetch_sub(1, Ordering::SeqCst) <= 1 {
            inbox.retire();
        }
    }
}

/// The process ends, and with it the first or another descriptor of `socket`.
pub fn process_ends(socket: &'static Datagram) {
    if socket.references.swap(0, Ordering::AcqRel) > 0 {
        leaves(socket);
    }
}

/// Calls `each` for every datagram socket of the process.
pub(crate) fn all(mut each: impl FnMut(i32, &'static Datagram)) {
    if !enabled() && !crate::local::enabled() {
        return;
    }
    for fd in 0..table::high_water() {
        if let Some(socket) = table::datagram(fd) {
            each(fd, socket);
        }
    }
}

/// Sockets that get an inbox at a fork: more would cost a server with thousands too much.
const AT_FORK: usize = 16;

/// Before a fork, without the set-up lock: a socket that may serve gets its inbox now, because later nobody could tell
/// its other owners of it.
pub fn prepare_fork() {
    let mut made = 0;
    all(|fd, socket| {
        if socket.has(flag::BOUND) && !socket.has(flag::SHARED) && socket.inbox().is_none() && made < AT_FORK {
            // Where descriptors are few they are the program's.
            if socket.pins.load(Ordering::Relaxed) == 0 && calls::soft_limit(libc::RLIMIT_NOFILE) >= 512 {
                boxes::make(fd, socket);
                made += 1;
            }
        }
    });
}

/// Before a fork: each socket is about to have one owner more.
pub fn before_fork() {
    let mut fork = 0;
    all(|_, socket| {
        if fork == 0 {
            fork = witness::before_fork();
        }
        socket.forks.fetch_or(fork, Ordering::Relaxed);
        if !socket.watchers.load(Ordering::Relaxed).is_null() {
            socket.watched_at.fetch_or(fork, Ordering::Relaxed);
            socket.pin(pin::FORK); // others may sleep in the set from now on
        }
        if !socket.has(flag::COUNTED) {
            socket.flags.fetch_or(flag::COUNTED | flag::SHARED, Ordering::Relaxed);
            if socket.is_local() {
                crate::local::owners::before_fork(socket);
            }
            if let Some(inbox) = socket.inbox() {
                inbox.header().owners.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
}

/// After it, in the parent; `failed`: there is no child.
pub fn after_fork(failed: bool) {
    witness::after_fork();
    uncount(failed);
}

fn uncount(failed: bool) {
    all(|_, socket| {
        if socket.has(flag::COUNTED) {
            socket.flags.fetch_and(!flag::COUNTED, Ordering::Relaxed);
            if failed {
                crate::local::owners::uncount(socket);
            }
            if let (true, Some(inbox)) = (failed, socket.inbox()) {
                inbox.header().owners.fetch_sub(1, Ordering::SeqCst);
            }
        }
    });
}

/// After it, in the child: inboxes of others are looked for anew.
pub fn forked() {
    uncount(false);
    witness::forked();
    all(|_, socket| {
        socket.sending.store(0, Ordering::Relaxed);
        socket.forks.store(witness::FOR_EVER, Ordering::Relaxed); // the parent has it
        socket.watched_at.store(0, Ordering::Relaxed);
        crate::local::forked(socket);
        // SAFETY: the child has one thread.
        unsafe {
            (*socket.routes.get()).before_kernel();
            *socket.routes.get() = Routes::new();
        }
        // Sets hold pins of the parent's; what they watch was pinned before the fork. So is the one with which an inbox was made.
        socket.cold.store(0, Ordering::Relaxed);
        socket.flags.fetch_and(!flag::BORN_SHUT, Ordering::Relaxed);
        // The parent's pins are counted in the gate once; ours go with our own copy of the word. What the fork itself
        // pinned is the parent's to take back.
        let pinned = socket.pins.fetch_and(!pin::FORK, Ordering::Relaxed) & !pin::FORK != 0;
        match socket.inbox() {
            Some(inbox) if pinned => inbox.pin(),
            _ => {
                socket.flags.fetch_and(!flag::GATE_PINNED, Ordering::Relaxed);
            }
        }
    });
    boxes::forked();
}

/// Before an exec or a spawn: descriptors that another program will have are the kernel's from now on.
pub fn before_exec(keeps: &dyn Fn(i32) -> bool) {
    all(|fd, socket| {
        if keeps(fd) {
            witness::goes_along();
            if socket.is_local() {
                options::plain(socket, pin::ELSEWHERE);
            }
            socket.pin(pin::ELSEWHERE);
            if let Some(_held) = socket.lock_send() {
                // SAFETY: the lock is held.
                unsafe { (*socket.routes.get()).before_kernel() };
            }
        }
    });
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    all(|_, socket| {
        for fd in &socket.private {
            crate::process::renumber(fd, from, to);
        }
    });
    boxes::moved(from, to);
    witness::moved(from, to);
}

/// What a descriptor is, for those who look at kinds.
pub fn is(fd: i32) -> bool {
    table::get(fd).kind() == Kind::Datagram
}
