//! AF_UNIX streams and packets: the kernel's own sockets, with an inbox in shared memory beside each end that is awake.
//!
//! An end is a [`Datagram`] of the family AF_UNIX: inbox, gate, pins, membership in sets, forks are the same
//! ([`crate::datagram`]). What differs is the order, which is exact: the ring always comes before the kernel's queue. A
//! sender writes to the ring only when the kernel's queue holds nothing of its own (SIOCOUTQ), and a receiver looks at the
//! kernel's queue only with the gate shut and the ring empty.
//!
//! ```text
//! mod       entering sockets and pairs      peer_inbox  the peer's inbox, and whether it may be used now
//! send      send and its forms              receive  recv and its forms
//! owners    how many processes have an end  ends     resets, sizes of queues
//! back      what another program is to find in the kernel's queue
//! ```

pub mod end_of_stream;
pub mod owners;
pub mod peer_inbox;
pub mod receive;
pub mod requeue;
pub mod send;

use crate::datagram;
use crate::datagram::{flag, options, pin, Datagram};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use peer_inbox::PeerInbox;
use shunt_config::Unix;
use shunt_stream::options::limits;
use shunt_sys::calls;
use shunt_sys::libc::{self, c_int};
use shunt_table::global;
use shunt_table::global::{LockedCell, SETUP};

/// Values of [`Local::shape`].
pub mod shape {
    /// SOCK_STREAM.
    pub const STREAM: u32 = 1;
    /// SOCK_SEQPACKET.
    pub const PACKETS: u32 = 2;
}

/// What an AF_UNIX socket has besides.
pub struct Local {
    /// See [`shape`].
    shape: AtomicU32,
    /// Counts before and behind each use of the kernel for sending.
    uses: AtomicU32,
    /// The count at which the kernel's queue was last known to hold nothing of ours.
    clean: AtomicU32,
    /// What senders had said of the kernel's queue when it was last found empty ([`shunt_ring::inbox::Inbox::news`]).
    seen: AtomicU64,
    /// The processor of the peer, plus one; 0: unknown.
    processor: AtomicU32,
    /// ECONNRESET was told: 1.
    told: AtomicU32,
    /// How many processes own it, in memory that children share; null: this one.
    card: AtomicPtr<AtomicU32>,
    /// The peer's inbox. Under the lock for sending.
    peer_inbox: LockedCell<PeerInbox>,
}

impl Local {
    /// A fresh one's.
    pub fn reset(&self) {
        for word in [&self.shape, &self.uses, &self.clean, &self.processor, &self.told] {
            word.store(0, Ordering::Relaxed);
        }
        self.seen.store(0, Ordering::Relaxed);
        self.card.store(core::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: no other thread uses the object.
        unsafe { *self.peer_inbox.get() = PeerInbox::new() };
    }

    /// Whether it carries packets.
    #[inline(always)]
    pub fn packets(&self) -> bool {
        self.shape.load(Ordering::Relaxed) == shape::PACKETS
    }

    /// The kernel's queue may hold bytes of ours from now on, as far as this process knows.
    #[inline]
    fn use_kernel(&self) {
        self.uses.fetch_add(1, Ordering::SeqCst);
    }
}

/// Whether AF_UNIX is ours at all.
pub fn enabled() -> bool {
    global::ready() && global::options().accelerate && global::options().unix != Unix::Off
}

/// The shape of a socket of this kind, if it is one of ours.
fn shape_of(domain: c_int, kind: c_int) -> Option<u32> {
    match (domain, kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)) {
        (libc::AF_UNIX, libc::SOCK_STREAM) => Some(shape::STREAM),
        (libc::AF_UNIX, libc::SOCK_SEQPACKET) => Some(shape::PACKETS),
        _ => None,
    }
}

fn enter(fd: i32, shape: u32, nonblocking: bool) -> Option<&'static Datagram> {
    if shunt_table::process::kernel_only::keeps() || shunt_table::process::uring::before_connect() {
        return None; // its operations would pass by the ring
    }
    let socket = datagram::enter(fd, libc::AF_UNIX, nonblocking)?;
    socket.local.shape.store(shape, Ordering::Relaxed);
    Some(socket)
}

/// socket(2) gave `fd`.
pub fn created(fd: i32, domain: c_int, kind: c_int) {
    if let (true, Some(shape)) = (enabled(), shape_of(domain, kind)) {
        enter(fd, shape, kind & libc::SOCK_NONBLOCK != 0);
    }
}

/// socketpair(2) gave these.
pub fn paired(ends: [i32; 2], domain: c_int, kind: c_int) {
    if let (true, Some(shape)) = (enabled(), shape_of(domain, kind)) {
        for fd in ends {
            if let Some(socket) = enter(fd, shape, kind & libc::SOCK_NONBLOCK != 0) {
                connected(fd, socket);
            }
        }
    }
}

/// accept(2) on `listener` gave `fd`.
pub fn accepted(listener: &Datagram, fd: i32, flags: c_int) {
    let shape = listener.local.shape.load(Ordering::Relaxed);
    if let (true, Some(socket)) = (shape != 0, enter(fd, shape, flags & libc::SOCK_NONBLOCK != 0)) {
        // SO_PASSCRED and its like come with the listener (`unix_stream_connect`).
        if listener.has(flag::CREDENTIALS) || listener.pins.load(Ordering::Relaxed) & pin::OPTION != 0 {
            options::plain(socket, pin::OPTION);
        }
        connected(fd, socket);
    }
}

/// `fd` is an end that another program had.
pub fn inherited(fd: i32, nonblocking: bool) -> Option<&'static Datagram> {
    let kind = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_TYPE).ok()?;
    let socket = enter(fd, shape_of(libc::AF_UNIX, kind)?, nonblocking)?;
    let credentials = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_PASSCRED).unwrap_or(0) != 0;
    let flags = flag::CONNECTED | if credentials { flag::CREDENTIALS } else { 0 };
    socket.flags.fetch_or(flags, Ordering::Relaxed);
    Some(socket)
}

/// The socket has a peer.
pub fn connected(fd: i32, socket: &'static Datagram) {
    socket.flags.fetch_or(flag::CONNECTED, Ordering::Relaxed);
    datagram::begin_eagerly(fd, socket);
}

/// Options that change nothing of what an inbox does. All others pin, unless they are switched off.
const HARMLESS: &[c_int] = &[
    libc::SO_RCVBUF,
    libc::SO_RCVBUFFORCE,
    libc::SO_RCVTIMEO,
    libc::SO_SNDTIMEO,
    libc::SO_KEEPALIVE,
    libc::SO_LINGER,
    libc::SO_REUSEADDR,
    libc::SO_REUSEPORT,
    libc::SO_BROADCAST,
    libc::SO_PRIORITY,
    libc::SO_OOBINLINE,
    libc::SO_DEBUG,
    RECEIVE_LIMIT_NEW,
    67, // SO_SNDTIMEO_NEW
];

/// The kernel has set an option of `socket` to the `length` bytes at `data`: whether a call that reads has no time at all.
///
/// # Safety
/// `data` may be any address that is not ours.
pub unsafe fn limit_set(socket: &Datagram, level: c_int, name: c_int, data: *const u8, length: libc::socklen_t) {
    if level == libc::SOL_SOCKET && matches!(name, libc::SO_RCVTIMEO | RECEIVE_LIMIT_NEW) {
        // SAFETY: passed on.
        if unsafe { limits::is_no_time(level, name, data, length) } {
            socket.flags.fetch_or(flag::NO_TIME, Ordering::Relaxed);
        } else {
            socket.flags.fetch_and(!flag::NO_TIME, Ordering::Relaxed);
        }
    }
}

/// SO_RCVTIMEO_NEW.
const RECEIVE_LIMIT_NEW: c_int = 66;

/// The kernel has set an option of `socket`, whose value begins with `value`.
pub fn option_set(socket: &'static Datagram, level: c_int, name: c_int, value: c_int) {
    if level != libc::SOL_SOCKET || HARMLESS.contains(&name) {
        return;
    }
    match name {
        libc::SO_SNDBUF | libc::SO_SNDBUFFORCE => {
            if let Some(_held) = socket.lock_send() {
                // SAFETY: the lock is held.
                unsafe { (*socket.local.peer_inbox.get()).forget_limit() };
            }
        }
        libc::SO_PASSCRED if value == 0 => {
            socket.flags.fetch_and(!flag::CREDENTIALS, Ordering::Relaxed);
        }
        libc::SO_RCVLOWAT if value <= 1 => {}
        libc::SO_PEEK_OFF if value < 0 => {}
        _ => {
            if name == libc::SO_PASSCRED {
                socket.flags.fetch_or(flag::CREDENTIALS, Ordering::Relaxed);
            }
            options::plain(socket, pin::OPTION);
        }
    }
}

/// From now on other processes may send on the socket, which say nothing of it in the peer's inbox. Callers may hold the set-up lock,
/// for which a thread may wait that holds the one for sending: then the peer looks at the kernel's queue less often than it could.
pub fn apart(socket: &'static Datagram) {
    if let Some(_held) = socket.try_lock_send() {
        // SAFETY: the lock is held.
        unsafe { (*socket.local.peer_inbox.get()).tell(false) };
    }
}

/// Whether memory knows all that can be known of an end: its peer says what it does with the kernel's socket, and did nothing since the kernel's
/// queue was last found empty. A socket without a peer has nothing to say but in the kernel.
#[inline]
pub fn is_settled(socket: &Datagram) -> bool {
    let Some(inbox) = socket.inbox() else { return !socket.has(flag::CONNECTED) };
    inbox.news().is_some_and(|news| news == socket.local.seen.load(Ordering::Relaxed))
}

/// The program shuts an end by `kernel`: the peer is told to look there.
pub fn shut<T>(socket: &'static Datagram, kernel: impl FnOnce() -> T) -> T {
    send::aside(socket, kernel)
}

/// The last descriptor of this process is closed.
pub fn released(socket: &'static Datagram) {
    if !socket.is_local() {
        return;
    }
    if let Some(_held) = socket.lock_send() {
        // SAFETY: the lock is held.
        let peer = unsafe { &mut *socket.local.peer_inbox.get() };
        if let (Some(_setup), true) = (SETUP.lock(), peer.is_found()) {
            peer.give_back();
        }
    }
}

/// In the child after a fork: inboxes of others are looked for anew.
pub fn forked(socket: &'static Datagram) {
    if socket.is_local() {
        socket.local.use_kernel();
        // SAFETY: the child has one thread.
        unsafe { *socket.local.peer_inbox.get() = PeerInbox::new() };
    }
}

/// What poll(2) says of an end whose peer was closed with bytes of ours unread in its ring.
#[cold]
pub fn error(fd: i32, socket: &'static Datagram) -> i16 {
    if socket.is_local() && end_of_stream::reset(fd, socket, false) {
        libc::POLLERR
    } else {
        0
    }
}

/// The AF_UNIX socket behind `fd`.
#[inline(always)]
pub fn socket(fd: i32) -> Option<&'static Datagram> {
    shunt_table::table::find::<Datagram>(fd).filter(|socket| socket.is_local())
}
