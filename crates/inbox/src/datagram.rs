//! Datagram sockets: the kernel's own, with an inbox in shared memory beside them while their receiver is awake.
//!
//! The inbox and its gate are `shunt_ring::inbox`. A receiver that is about to sleep shuts the gate, so everything that
//! sleeps, signals or does not know of us finds plain UDP. Whatever an inbox cannot serve *pins* the gate: see [`pin`].
//!
//! ```text
//! datagram     the private object               inbox_table  inboxes: making, handing over, taking up
//! receive      recv and its forms               send         send and its forms
//! route        the inbox of a destination       options      what they do, and which pin
//! cmsg_recv    control messages of recvmsg      cmsg_send    control messages of sendmsg
//! sleep        sleeping, spinning               epoll        membership in epoll sets
//! owners       forks, exec, the end             fork_sharing what children still have
//! adopt        inboxes of an earlier program
//! ```

pub mod adopt;
pub mod cmsg_recv;
pub mod cmsg_send;
pub mod epoll;
pub mod flag;
pub mod fork_sharing;
pub mod inbox_table;
mod locks;
pub mod options;
mod owners;
pub mod pin;
pub mod receive;
pub mod route;
pub mod send;
mod slab;
mod sleep;
pub mod watchers;

pub use owners::{after_fork, before_exec, before_fork, forked, let_go, prepare_fork, process_ends, release, user_changed};
pub use sleep::{after_sleep, before_sleep, before_spin, begin_eagerly, reopen, Sleeper};

use crate::local::Local;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use route::Routes;
use shunt_config::{Udp, Unix};
use shunt_ring::inbox::Inbox;
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket::parts::Head;
use shunt_sys::libc::{self, POLLIN, POLLRDNORM};
use shunt_sys::{calls, clock, thread};
use shunt_table::global::LockedCell;
use shunt_table::memory::slab::Slab;
use shunt_table::process::{kernel_only, split_fd_tables, status_page};
use shunt_table::table::Kind;
use shunt_table::{global, table};
use watchers::Watchers;

/// What sockets of this kind have in common.
pub(crate) struct Common {
    /// Objects that no socket uses.
    slab: Slab<Datagram>,
    /// What sets of the crate above do; null: there is none.
    watchers: AtomicPtr<Watchers>,
    /// Changes with each bind, connect and close of a datagram socket in this process: no route is believed beyond.
    changes: AtomicU32,
    /// Counts of owners of AF_UNIX ends, in memory that children share ([`crate::local`]); null: none yet.
    pub(crate) cards: AtomicPtr<AtomicU32>,
    /// Forks whose children share sockets.
    witnesses: fork_sharing::Witnesses,
    /// Inboxes, as the process has them.
    boxes: inbox_table::Boxes,
}

pub(crate) static COMMON: Common = Common {
    slab: Slab::new(),
    watchers: AtomicPtr::new(core::ptr::null_mut()),
    changes: AtomicU32::new(0),
    cards: AtomicPtr::new(core::ptr::null_mut()),
    witnesses: fork_sharing::Witnesses::new(),
    boxes: inbox_table::Boxes::new(),
};

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
    outgoing: cmsg_send::Outgoing,
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
    pub watchers: Head,
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
    pub peer: send::Peer,
    routes: LockedCell<Routes>,
    next_free: AtomicPtr<Datagram>,
}

/// Datagrams through the kernel before an inbox is worth its making.
const ENOUGH: u32 = 16;

/// Whether UDP is ours at all.
pub fn enabled() -> bool {
    global::ready() && global::options().accelerate && (is_shared() || sleep::looks_for_plain_peers())
}

/// Whether it goes through shared memory on this host.
#[inline]
fn is_shared() -> bool {
    global::options().udp != Udp::Off
}

/// Whether sockets of any kind are treated as datagram sockets.
fn any_kind() -> bool {
    enabled() || crate::local::enabled()
}

/// Enters a fresh UDP socket.
pub fn created(fd: i32, family: i32, nonblocking: bool) {
    enter(fd, family, nonblocking);
}

/// Enters a fresh socket that may have an inbox.
pub fn enter(fd: i32, family: i32, nonblocking: bool) -> Option<&'static Datagram> {
    if !table::fits(fd) || split_fd_tables::are_split() || kernel_only::confined() {
        return None;
    }
    let socket = slab::allocate(family)?;
    if nonblocking {
        socket.flags.store(flag::NONBLOCK, Ordering::Relaxed);
    }
    shunt_table::table::enter(fd, Kind::Datagram, socket);
    if split_fd_tables::withdraw(fd) {
        return None;
    }
    let (kind, reason) = socket.row();
    status_page::note(fd, kind, reason, None);
    if kernel_only::keeps() {
        options::plain(socket, pin::ELSEWHERE);
    }
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
        // SAFETY: `inbox_table::make` stores the size before the base; the range stays mapped.
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
            crate::local::end_of_stream::has_waiting(self)
        } else {
            events(self) != 0
        }
    }

    /// Whether it is an AF_UNIX socket that keeps packets apart.
    pub fn has_packets(&self) -> bool {
        self.is_local() && self.local.packets()
    }

    /// Whether its inbox exists from the beginning, and is open whenever no receiver sleeps.
    pub fn is_eager(&self) -> bool {
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
    /// Whether flag `bit` ([`flag`]) is set.
    pub fn has(&self, bit: u32) -> bool {
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

    /// The kernel may from now on choose another receiver for a datagram: senders shall ask it.
    pub fn changed(&self) {
        COMMON.changes.fetch_add(1, Ordering::SeqCst);
        if let Some(inbox) = self.inbox() {
            inbox.header().epoch.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Whether a call must not wait.
    pub fn nonblocking(&self, fd: i32, flags: i32) -> bool {
        if flags & libc::MSG_DONTWAIT != 0 {
            return true;
        }
        if self.has(flag::SHARED) {
            return calls::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) & libc::O_NONBLOCK != 0;
        }
        self.has(flag::NONBLOCK)
    }
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
    socket.find_plain_peers(fd);
    begin_eagerly(fd, socket);
}

/// What poll(2) would say of datagrams in the inbox; the kernel says the rest.
#[inline]
pub fn events(socket: &Datagram) -> i16 {
    match socket.inbox() {
        Some(inbox) if inbox.front().is_some() && (inbox.is_open() || stays(inbox)) => POLLIN | POLLRDNORM,
        _ => 0,
    }
}

/// See [`Inbox::stays`].
#[cold]
fn stays(inbox: Inbox) -> bool {
    let mut patience = send::Patience::of(inbox);
    inbox.stays(thread::id(), |owner| patience.wait(owner))
}

/// FIONREAD: the size of the next datagram, if it lies in the inbox.
pub fn next_size(fd: i32, socket: &Datagram) -> Option<usize> {
    let inbox = socket.inbox()?;
    let front = inbox.front()?;
    let kernels = receive::kernels_turn(fd, socket, &inbox, &front, clock::ticks());
    (!kernels).then_some(front.length)
}

/// Calls `each` for every datagram socket of the process.
pub fn all(mut each: impl FnMut(i32, &'static Datagram)) {
    if !any_kind() {
        return;
    }
    for fd in table::programs() {
        if let Some(socket) = shunt_table::table::find::<Datagram>(fd) {
            each(fd, socket);
        }
    }
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    all(|_, socket| {
        for fd in &socket.private {
            shunt_table::private::renumber(fd, from, to);
        }
    });
    inbox_table::moved(from, to);
    fork_sharing::moved(from, to);
}

/// What a descriptor is, where kinds are told apart.
pub fn is(fd: i32) -> bool {
    table::get(fd).kind() == Kind::Datagram
}
