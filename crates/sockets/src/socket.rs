//! The private half of a socket: one object per open file description and process.
//!
//! Descriptors made by dup share it (`references` counts them); a forked child has its own copy, as it has its own
//! copy of all private memory. What the owners on one side must agree on lives in the shared half
//! (`shunt_segment::channel`).

use crate::bells::Ear;
use crate::global::{self, Shared, SETUP};
use crate::holding::Hold;
use crate::information::Seen;
use crate::options::Stored;
use crate::patience::Patience;
use crate::table::Kind;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use shunt_ring::{lock, Pipe, Window};
use shunt_segment::address::Address;
use shunt_segment::area::{CHANNEL_PAGES, PAGE};
use shunt_segment::channel::{Carriage, ChannelPage, Side};
use shunt_segment::settings::Settings;
use shunt_sys::section::Section;
use shunt_sys::{calls, mapping, thread, Errno};

/// Bits of [`Socket::flags`].
pub mod flag {
    /// Forked, or passed on: other processes may own the same side.
    pub const SHARED: u32 = 1 << 0;
    /// Senders must fence before they look at the peer's armed word.
    pub const FENCE: u32 = 1 << 1;
    /// A non-blocking connect was answered with EINPROGRESS; the next connect gives 0.
    pub const CONNECTING: u32 = 1 << 2;
    /// The program bound an address.
    pub const BOUND: u32 = 1 << 3;
    /// A listener whose descriptor the program made non-blocking.
    pub const LISTENER_NONBLOCK: u32 = 1 << 4;
    /// SO_LINGER with a time of zero: close resets.
    pub const LINGER_RESET: u32 = 1 << 5;
    /// A listener that was shared with other processes: links must always be sent.
    pub const LISTENER_SHARED: u32 = 1 << 6;
    /// A listener that an edge-triggered set watches: each client is to be heard.
    pub const LISTENER_EDGES: u32 = 1 << 30;
    /// Connected through the rendezvous, and by what was last known not accepted: its server may refuse it without a word.
    pub const UNACCEPTED: u32 = 1 << 31;
    /// TCP_CORK: more bytes will follow at once, so sleeping peers are not woken for each piece.
    pub const CORKED: u32 = 1 << 11;
    /// SO_OOBINLINE.
    pub const OOB_INLINE: u32 = 1 << 12;
    /// O_ASYNC: the kernel signals the owner when a bell arrives, so the socket is always armed.
    pub const ASYNC: u32 = 1 << 13;
    /// The companion's other end is closed: known from the kernel, whatever shared memory says.
    pub const HUNG_UP: u32 = 1 << 14;
    /// This process has shut down its receiving half.
    pub const SHUT_RD: u32 = 1 << 15;
    /// O_NONBLOCK, as far as this process knows. The kernel's flag on the companion is what all owners share.
    pub const NONBLOCK: u32 = 1 << 10;
    /// The companion's open file was changed for good (its owner, half of it shut): it cannot serve another connection.
    pub const SPENT: u32 = 1 << 24;
    /// A TCP socket of which the kernel holds nothing but what socket(2) made.
    pub const VIRGIN: u32 = 1 << 20;
    /// FD_CLOEXEC is what socket(2) was given ([`CLOSE_ON_EXEC`]); the only descriptor is the first one.
    pub const CLOSE_ON_EXEC_KNOWN: u32 = 1 << 21;
    /// See [`CLOSE_ON_EXEC_KNOWN`].
    pub const CLOSE_ON_EXEC: u32 = 1 << 22;
    /// The kernel connects it: no further attempt at a rendezvous.
    pub const KERNEL: u32 = 1 << 9;
    /// Only the kernel can connect it: another process may have the same socket, or it was shut down before it was connected.
    pub const PLAIN: u32 = 1 << 7;
    /// Counted for the fork that is happening now.
    pub const COUNTED: u32 = 1 << 8;
    /// Receives are more than taking bytes: SO_RCVLOWAT or SO_PEEK_OFF is set.
    pub const CAREFUL: u32 = 1 << 16;
    /// Times of arrival are asked for: each message is to ring.
    pub const TIMED: u32 = 1 << 17;
    /// SO_ZEROCOPY.
    pub const ZERO_COPY: u32 = 1 << 18;
    /// The process ends, and so did this.
    pub const ENDED: u32 = 1 << 23;
    /// The program set an option by which the kernel decides what comes through: only it can connect or listen.
    pub const FILTERED: u32 = 1 << 25;
    /// Not a stream yet, and the program set an owner, a signal or O_ASYNC, which the companion is to have.
    pub const OWNED: u32 = 1 << 19;
    /// A stream to another host, in a process of its station's family: it is moved by who waits (`crate::remote`).
    pub const REMOTE: u32 = 1 << 26;
    /// The pump's side of such a stream.
    pub const FAR: u32 = 1 << 27;
    /// The process has ceased to be an owner of the side: it is about to exec a program that will not have it.
    pub const LEFT: u32 = 1 << 28;
    /// A carrier of the side did not answer for so long that none is asked any more ([`crate::settle`]).
    pub const FORSAKEN: u32 = 1 << 29;

    /// No two flags share a bit.
    const _: () = {
        let all = [
            SHARED,
            FENCE,
            CONNECTING,
            BOUND,
            LISTENER_NONBLOCK,
            LINGER_RESET,
            LISTENER_SHARED,
            CORKED,
            OOB_INLINE,
            ASYNC,
            HUNG_UP,
            SHUT_RD,
            NONBLOCK,
            SPENT,
            VIRGIN,
            CLOSE_ON_EXEC_KNOWN,
            CLOSE_ON_EXEC,
            KERNEL,
            PLAIN,
            COUNTED,
            CAREFUL,
            TIMED,
            ZERO_COPY,
            ENDED,
            OWNED,
            FILTERED,
            LISTENER_EDGES,
            UNACCEPTED,
            REMOTE,
            FAR,
            LEFT,
            FORSAKEN,
        ];
        let (mut seen, mut at) = (0u32, 0);
        while at < all.len() {
            assert!(seen & all[at] == 0);
            seen |= all[at];
            at += 1;
        }
    };
}

/// A socket. The first line is what each send and receive reads.
#[repr(C, align(64))]
pub struct Socket {
    link: AtomicPtr<u8>,
    own: AtomicPtr<Side>,
    peer: AtomicPtr<Side>,
    channel: AtomicU32,
    side: AtomicU32,
    /// Private flags ([`flag`]).
    pub flags: AtomicU32,
    /// Counts the lives of this object.
    pub generation: AtomicU32,
    /// When the companion was last asked whether the peer lives, in ticks.
    pub last_check: AtomicU64,
    sending: AtomicU32,
    receiving: AtomicU32,

    /// Where this process has the largest rings: of the direction it sends in, and of the other.
    windows: [Window; 2],
    /// SO_RCVTIMEO in ns, 0: none.
    pub receive_timeout: AtomicU64,
    /// SO_SNDTIMEO in ns, 0: none.
    pub send_timeout: AtomicU64,
    /// Descriptors of this process that refer to it.
    pub references: AtomicU32,
    /// Calls that wait for it, and its descriptor if it has none of the program's any more.
    pub hold: Hold,
    /// How this process hears bells where others have the side, too.
    pub ear: Ear,
    /// What it is: TCP until a rendezvous makes it a listener or a stream ([`Kind`]).
    kind: AtomicU32,
    /// AF_INET or AF_INET6.
    pub family: AtomicI32,
    /// A private descriptor: a listener's rendezvous, or a client's bound TCP socket that keeps the port. -1: none.
    pub private_fd: AtomicI32,
    /// A listener's descriptor for the bells of clients (`crate::offered`). -1: none.
    pub bells_fd: AtomicI32,
    /// The number of the spare whose open file it is; 0: none (`crate::spare`).
    pub spare: AtomicU32,
    /// Of a dissolved connection: the port that the kernel tells of the socket in its place, and above it the connection's
    /// (`crate::names`). 0: none.
    pub left_port: AtomicU32,
    /// How much was received when that was asked, modulo 2^32.
    pub received_at_check: AtomicU32,
    /// A listener's backlog.
    pub backlog: AtomicU32,
    /// A listener to which clients may offer connections in memory: 1.
    pub offering: AtomicU32,
    /// TCP_DEFER_ACCEPT of a listener, in seconds; 0: off ([`crate::deferred`]).
    pub defers: AtomicU32,
    /// Since when, CLOCK_MONOTONIC in ns.
    pub defers_since: AtomicU64,
    /// Tells when a deferred client is due. -1: none.
    pub timer_fd: AtomicI32,
    /// What it is set to, CLOCK_MONOTONIC in ns; 0: nothing.
    pub timer_at: AtomicU64,
    /// Both addresses, as they were known when the stream came about: in its channel the peer may change them.
    names: Names,
    /// A listener's port.
    pub port: AtomicU32,
    /// A listener's network namespace: 0, or one that was left since ([`crate::route::leaving`]).
    pub namespace: AtomicU32,
    /// Index of the link in this process's list.
    pub link_index: AtomicU32,
    /// A listener's inode.
    pub inode: AtomicU64,
    /// First entry of the epoll sets that watch it.
    pub watchers: AtomicPtr<crate::epoll::Entry>,
    /// Counts what this process did to the stream that edge-triggered sets hear of: each shutdown wakes them.
    pub changes: AtomicU32,
    /// Calls of accept since the kernel's queue had its turn.
    pub accepts: AtomicU32,
    /// Sleeps since the last run of waits that ended awake; see `wait::announce`.
    pub sleeps: AtomicU32,
    /// Waits that ended awake since the last sleep.
    pub spins: AtomicU32,
    /// SO_RCVLOWAT.
    pub low_water: AtomicU32,
    /// SO_PEEK_OFF; negative: none.
    pub peek_offset: AtomicI32,
    /// When sending and receiving were last seen to have moved bytes.
    pub seen_sending: Seen,
    /// See [`Socket::seen_sending`].
    pub seen_receiving: Seen,
    /// Control messages that the program asked for ([`crate::control::ask`]).
    pub control: AtomicU32,
    /// Sends with MSG_ZEROCOPY so far, and how many of them the error queue has told.
    pub zero_copies: AtomicU32,
    /// See [`Socket::zero_copies`].
    pub zero_copies_reported: AtomicU32,
    /// Options that the program set.
    pub stored: Shared<Stored>,
    /// What a listener's options were earlier; null: nothing was kept.
    pub earlier: AtomicPtr<crate::earlier::History>,
    /// Which version of the side's options ([`Socket::settings`]) they are.
    pub settings_seen: AtomicU32,
    next_free: AtomicPtr<Socket>,
}

impl Socket {
    /// The side's own shared half.
    #[inline(always)]
    pub fn own(&self) -> &'static Side {
        // SAFETY: set by `attach` to a side inside a link's address range, which stays mapped (a dropped link's range
        // is blanked, not unmapped). Only streams are asked.
        unsafe { &*self.own.load(Ordering::Relaxed) }
    }

    /// The peer's shared half.
    #[inline(always)]
    pub fn peer(&self) -> &'static Side {
        // SAFETY: as for own.
        unsafe { &*self.peer.load(Ordering::Relaxed) }
    }

    /// The channel's page.
    pub fn page(&self) -> &'static ChannelPage {
        let offset = CHANNEL_PAGES + self.channel() * PAGE;
        // SAFETY: inside the link.
        unsafe { &*self.link.load(Ordering::Relaxed).add(offset).cast::<ChannelPage>() }
    }

    /// The carriers of the side.
    pub fn carriage(&self) -> &'static Carriage {
        &self.page().carriages[self.side()]
    }

    /// What the program set on the side, for all of its owners.
    #[inline(always)]
    pub fn settings(&self) -> &'static Settings {
        &self.page().settings[self.side()]
    }

    /// First byte of the link.
    pub fn link(&self) -> *mut u8 {
        self.link.load(Ordering::Relaxed)
    }

    /// Channel in the link.
    pub fn channel(&self) -> usize {
        self.channel.load(Ordering::Relaxed) as usize
    }

    /// 0: client, 1: server.
    #[inline(always)]
    pub fn side(&self) -> usize {
        self.side.load(Ordering::Relaxed) as usize & 1
    }

    /// The direction in which this side sends.
    #[inline(always)]
    pub fn outgoing(&self) -> Pipe<'static> {
        Pipe {
            own: self.own(),
            peer: self.peer(),
            link: self.link.load(Ordering::Relaxed),
            channel: self.channel.load(Ordering::Relaxed) as usize,
            sender: self.side(),
            window: self.window(0),
        }
    }

    /// The window of the direction in which this side sends (0) or receives (1).
    #[inline(always)]
    fn window(&self, direction: usize) -> &'static Window {
        // SAFETY: sockets live in slabs that are never unmapped.
        unsafe { &*(&self.windows[direction] as *const Window) }
    }

    /// The direction in which this side receives.
    #[inline(always)]
    pub fn incoming(&self) -> Pipe<'static> {
        Pipe { sender: self.side() ^ 1, window: self.window(1), ..self.outgoing() }
    }

    /// Ties the socket to a channel.
    pub fn attach(&self, link: *mut u8, channel: usize, side: usize) {
        // SAFETY: the page lies inside the link.
        let page = unsafe { link.add(CHANNEL_PAGES + channel * PAGE) }.cast::<ChannelPage>();
        // SAFETY: address computation only.
        unsafe {
            self.own.store((&raw mut (*page).sides[side]).cast(), Ordering::Relaxed);
            self.peer.store((&raw mut (*page).sides[side ^ 1]).cast(), Ordering::Relaxed);
        }
        self.windows[0].clear();
        self.windows[1].clear();
        self.sending.store(0, Ordering::Relaxed);
        self.receiving.store(0, Ordering::Relaxed);
        self.settings_seen.store(0, Ordering::Relaxed);
        self.link.store(link, Ordering::Relaxed);
        self.channel.store(channel as u32, Ordering::Relaxed);
        self.side.store(side as u32, Ordering::Relaxed);
        self.names.set(&crate::names::of_channel(self.page()));
        self.kind.store(Kind::Stream as u32, Ordering::Release);
    }

    /// What the socket is.
    pub fn kind(&self) -> Kind {
        match self.kind.load(Ordering::Acquire) {
            k if k == Kind::Stream as u32 => Kind::Stream,
            k if k == Kind::Listener as u32 => Kind::Listener,
            _ => Kind::Tcp,
        }
    }

    /// The socket listens with a rendezvous.
    pub fn set_listener(&self) {
        self.kind.store(Kind::Listener as u32, Ordering::Release);
    }

    /// The socket listens no longer.
    pub fn set_plain(&self) {
        self.kind.store(Kind::Tcp as u32, Ordering::Release);
    }

    /// Whether private flag `bit` is set.
    #[inline(always)]
    pub fn has(&self, bit: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & bit != 0
    }

    /// Sets a private flag.
    pub fn set(&self, bit: u32) {
        self.flags.fetch_or(bit, Ordering::Relaxed);
    }

    /// Clears a private flag.
    pub fn clear(&self, bit: u32) {
        self.flags.fetch_and(!bit, Ordering::Relaxed);
    }

    /// Clears a private flag; whether it was set.
    pub fn take(&self, bit: u32) -> bool {
        self.flags.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// Whether no other thread or process can use this side at the same time.
    #[inline(always)]
    pub fn alone(&self) -> bool {
        !self.has(flag::SHARED) && global::single_threaded()
    }

    /// The word of the private lock for sending; see [`Socket::lock_send`].
    #[inline(always)]
    pub fn sending(&self) -> &AtomicU32 {
        &self.sending
    }

    /// The word of the private lock for receiving.
    #[inline(always)]
    pub fn receiving(&self) -> &AtomicU32 {
        &self.receiving
    }

    /// The lock for sending on this side.
    #[inline(always)]
    pub fn lock_send(&self) -> Result<Locked, Errno> {
        if self.has(flag::SHARED) {
            crate::settle::before_send(self);
        }
        self.lock(&self.sending, &self.own().transmit.lock)
    }

    /// The lock for receiving on this side.
    #[inline(always)]
    pub fn lock_receive(&self) -> Result<Locked, Errno> {
        if self.has(flag::SHARED) {
            return self.lock_receive_shared();
        }
        self.lock_receive_settled()
    }

    fn lock_receive_shared(&self) -> Result<Locked, Errno> {
        // A carrier lends again after a while, each time a longer one: between its answer and the lock we may have slept.
        const TURNS: u32 = 16;
        let mut turn = 0;
        loop {
            crate::settle::before_receive(self);
            crate::options::catch_up(self);
            let held = self.lock_receive_settled()?;
            turn += 1;
            if turn == TURNS || !crate::settle::lent(self) {
                return Ok(held);
            }
        }
    }

    /// As [`Socket::lock_receive`], without asking carriers to settle: for carriers.
    pub fn lock_receive_settled(&self) -> Result<Locked, Errno> {
        self.lock(&self.receiving, &self.own().receive.lock)
    }

    /// Both locks, for whoever ends or shares the socket.
    pub fn lock_both(&self) -> (Result<Locked, Errno>, Result<Locked, Errno>) {
        let receiving = self.lock_receive();
        // Carriers have settled; asked now, they might wait for the lock that we hold.
        (receiving, self.lock(&self.sending, &self.own().transmit.lock))
    }

    /// As [`Socket::lock_both`], without asking carriers to settle: for a fork, which may be that of a carrier.
    pub fn lock_both_settled(&self) -> (Result<Locked, Errno>, Result<Locked, Errno>) {
        (self.lock_receive_settled(), self.lock(&self.sending, &self.own().transmit.lock))
    }

    /// Both locks against threads for a process that ends, waited for until `deadline` (CLOCK_MONOTONIC, ns); those among
    /// processes too, where there are others. `None`: a thread keeps one of them, or this very thread holds one.
    pub fn lock_both_until(&self, deadline: u64) -> Option<(Locked, Locked)> {
        let receiving = self.lock_until(&self.receiving, &self.own().receive.lock, deadline)?;
        Some((receiving, self.lock_until(&self.sending, &self.own().transmit.lock, deadline)?))
    }

    fn lock_until(&self, private: &AtomicU32, shared: &'static AtomicU32, deadline: u64) -> Option<Locked> {
        // SAFETY: sockets live in slabs that are never unmapped.
        let private = unsafe { &*(private as *const AtomicU32) };
        let section = Section::begin();
        let me = thread::id();
        let held = loop {
            if let Some(held) = lock::try_acquire(private, me) {
                break held;
            }
            if private.load(Ordering::Relaxed) == me || shunt_sys::clock::monotonic_ns() > deadline {
                return None;
            }
            calls::sched_yield();
        };
        let mut patience = Patience::default();
        let family = match self.has(flag::SHARED) {
            true => Some(lock::acquire(shared, me, false, |owner| patience.outlive(shared, owner, self.own()))?),
            false => None,
        };
        Some(Locked { _shared: family, _private: held, _section: section })
    }

    /// Counts another descriptor, unless there is none any more. The caller holds the set-up lock, without which no object
    /// is given back, and has found this one in the table under it.
    pub fn retain(&self) -> bool {
        self.references.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |count| (count > 0).then(|| count + 1)).is_ok()
    }

    /// Other processes are about to have the side, too. Threads in the middle of a copy hold the private locks only, as does
    /// who takes bells: they are waited for.
    pub fn share(&self) {
        if !self.has(flag::SHARED) {
            let held = self.lock_both_settled();
            self.set(flag::SHARED);
            drop(held);
        }
    }

    /// In the child after fork: threads that held a private lock do not exist here. (Those in shared memory are held by
    /// threads of the parent, which go on.)
    pub fn forget_holders(&self) {
        self.sending.store(0, Ordering::Relaxed);
        self.receiving.store(0, Ordering::Relaxed);
    }

    /// Threads of this process exclude each other by a private word. Only a side that several processes own needs the
    /// word in shared memory as well, which the peer could scribble on.
    #[inline(always)]
    fn lock(&self, private: &AtomicU32, shared: &'static AtomicU32) -> Result<Locked, Errno> {
        // SAFETY: sockets live in slabs that are never unmapped.
        let private = unsafe { &*(private as *const AtomicU32) };
        let interrupted = Errno(shunt_sys::libc::EINTR);
        let section = Section::begin();
        let held = lock::acquire(private, thread::id(), self.alone(), |_| calls::sched_yield()).ok_or(interrupted)?;
        if !self.has(flag::SHARED) {
            return Ok(Locked { _shared: None, _private: held, _section: section });
        }
        let mut patience = Patience::default();
        let family =
            lock::acquire(shared, thread::id(), false, |owner| patience.outlive(shared, owner, self.own())).ok_or(interrupted)?;
        Ok(Locked { _shared: Some(family), _private: held, _section: section })
    }

    /// Both addresses: (client, server).
    pub fn addresses(&self) -> (Address, Address) {
        self.names.get()
    }

    /// Both addresses are known better than from the channel.
    pub fn set_addresses(&self, client: &Address, server: &Address) {
        self.names.set(&(*client, *server));
    }
}

/// The addresses of a stream, in this process's own memory: (client, server).
#[derive(Default)]
struct Names {
    client: [AtomicU64; 2],
    server: [AtomicU64; 2],
    /// The client's port, and above it the server's.
    ports: AtomicU32,
    scope: AtomicU32,
}

impl Names {
    fn set(&self, (client, server): &(Address, Address)) {
        for (to, from) in [(&self.client, client), (&self.server, server)] {
            let [first, second] = from.words();
            to[0].store(first, Ordering::Relaxed);
            to[1].store(second, Ordering::Relaxed);
        }
        self.ports.store(client.port as u32 | (server.port as u32) << 16, Ordering::Relaxed);
        self.scope.store(server.scope, Ordering::Relaxed);
    }

    fn get(&self) -> (Address, Address) {
        let words = |pair: &[AtomicU64; 2]| [pair[0].load(Ordering::Relaxed), pair[1].load(Ordering::Relaxed)];
        let (ports, scope) = (self.ports.load(Ordering::Relaxed), self.scope.load(Ordering::Relaxed));
        (
            Address::from_words(words(&self.client), ports as u16, scope),
            Address::from_words(words(&self.server), (ports >> 16) as u16, scope),
        )
    }
}

/// One direction of one side, held: against threads, and against other processes where they share the side; and against
/// handlers of the program, which wait for the end. Fields are dropped in their order.
pub struct Locked {
    _shared: Option<lock::Held<'static>>,
    _private: lock::Held<'static>,
    _section: Section,
}

impl Locked {
    /// Other processes may go on; threads of this one, which ends, never shall.
    pub fn keep_from_threads(self) {
        let Locked { _shared: family, _private: held, _section: section } = self;
        drop(family);
        core::mem::forget(held);
        drop(section);
    }
}

static FREE: AtomicPtr<Socket> = AtomicPtr::new(core::ptr::null_mut());
const SLAB: usize = 256;

/// A fresh socket object; `None` when memory is short.
pub fn allocate(family: i32) -> Option<&'static Socket> {
    let _setup = SETUP.lock()?;
    allocate_locked(family)
}

/// The same, under the set-up lock.
pub fn allocate_locked(family: i32) -> Option<&'static Socket> {
    let mut first = FREE.load(Ordering::Relaxed);
    if first.is_null() {
        let slab = mapping::reserve(SLAB * core::mem::size_of::<Socket>()).ok()?.cast::<Socket>();
        for i in (0..SLAB).rev() {
            // SAFETY: inside the fresh slab; all-zero is a valid Socket.
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
    socket.flags.store(0, Ordering::Relaxed);
    socket.last_check.store(0, Ordering::Relaxed);
    socket.receive_timeout.store(0, Ordering::Relaxed);
    socket.send_timeout.store(0, Ordering::Relaxed);
    socket.references.store(1, Ordering::Relaxed);
    socket.hold.reset();
    socket.ear.reset();
    socket.family.store(family, Ordering::Relaxed);
    socket.kind.store(Kind::Tcp as u32, Ordering::Relaxed);
    socket.private_fd.store(-1, Ordering::Relaxed);
    socket.bells_fd.store(-1, Ordering::Relaxed);
    socket.timer_fd.store(-1, Ordering::Relaxed);
    socket.defers.store(0, Ordering::Relaxed);
    socket.spare.store(0, Ordering::Relaxed);
    socket.left_port.store(0, Ordering::Relaxed);
    socket.backlog.store(0, Ordering::Relaxed);
    socket.offering.store(0, Ordering::Relaxed);
    socket.port.store(0, Ordering::Relaxed);
    socket.namespace.store(0, Ordering::Relaxed);
    socket.link_index.store(u32::MAX, Ordering::Relaxed);
    socket.inode.store(0, Ordering::Relaxed);
    socket.watchers.store(core::ptr::null_mut(), Ordering::Relaxed);
    socket.accepts.store(0, Ordering::Relaxed);
    socket.changes.store(0, Ordering::Relaxed);
    socket.sleeps.store(0, Ordering::Relaxed);
    socket.spins.store(0, Ordering::Relaxed);
    socket.low_water.store(1, Ordering::Relaxed);
    socket.peek_offset.store(-1, Ordering::Relaxed);
    socket.seen_sending.reset();
    socket.seen_receiving.reset();
    for word in [&socket.control, &socket.zero_copies, &socket.zero_copies_reported] {
        word.store(0, Ordering::Relaxed);
    }
    crate::earlier::forget(socket);
    // SAFETY: nobody else uses the object.
    unsafe { (*socket.stored.get()).clear() };
    Some(socket)
}

/// Gives a socket object back. Its link pointers stay valid memory for late readers.
pub fn free(socket: &'static Socket) {
    socket.ear.close();
    socket.generation.fetch_add(1, Ordering::Release);
    if let Some(_setup) = SETUP.lock() {
        socket.next_free.store(FREE.load(Ordering::Relaxed), Ordering::Relaxed);
        FREE.store(socket as *const Socket as *mut Socket, Ordering::Relaxed);
    }
    // A signal handler that interrupted the holder leaves the object unused: a leak of a few hundred bytes, no harm.
}
