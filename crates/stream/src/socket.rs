//! The private half of a socket: one object per open file description and process.
//!
//! Descriptors made by dup share it (`references` counts them); a forked child has its own copy, as it has its own
//! copy of all private memory. What the owners on one side must agree on lives in the shared half
//! (`shunt_segment::channel`).

pub mod calling;
mod connected;
pub mod flag;
pub mod introduced;
mod listening;
mod names;
mod numbers;
pub mod option_history;
pub mod parts;
mod slab;
pub mod stored;

pub use connected::Connected;
use flag::Bits;
pub use listening::Listening;
pub use names::of_channel;
pub use numbers::{is_of, numbers_of, replace, stream, stream_beside_pipes};
pub use slab::{allocate, allocate_locked, free};

use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use parts::{BellListener, Head, Hold};
use shunt_ring::tally::Tally;
use shunt_ring::{Pipe, Window};
use shunt_segment::address::Address;
use shunt_segment::area::{CHANNEL_PAGES, PAGE};
use shunt_segment::channel::{Carriage, ChannelPage, Side};
use shunt_segment::settings::Settings;
use shunt_table::table::Kind;
use stored::Stored;

/// A socket. The first line is what each send and receive reads.
#[repr(C, align(64))]
pub struct Socket {
    link: AtomicPtr<u8>,
    own: AtomicPtr<Side>,
    peer: AtomicPtr<Side>,
    channel: AtomicU32,
    side: AtomicU32,
    /// A stream's private flags ([`flag`]).
    pub flags: AtomicU32,
    /// Counts the lives of this object.
    pub generation: AtomicU32,
    /// When the companion was last asked whether the peer lives, in ticks.
    pub last_check: AtomicU64,
    pub(crate) sending: AtomicU32,
    pub(crate) receiving: AtomicU32,
    /// A thread was told that the peer's end has not come yet, as too much is unread ([`crate::waiting::readiness::end_shows`]): 1.
    pub end_behind: AtomicU32,
    /// TCP_CORK is on: 1.
    pub corked: AtomicU32,
    /// Whether this process looks for bytes that the peer holds back ([`crate::corked`]).
    pub awaits_held: AtomicU32,

    /// Where this process has the largest rings: of the direction it sends in, and of the other.
    windows: [Window; 2],
    /// SO_RCVTIMEO in ns, 0: none.
    pub receive_timeout: AtomicU64,
    /// SO_SNDTIMEO in ns, 0: none.
    pub send_timeout: AtomicU64,
    /// Private flags of the descriptor ([`flag::Descriptor`]).
    pub(crate) descriptor_flags: AtomicU32,
    /// Descriptors of this process that refer to it.
    pub references: AtomicU32,
    /// Calls that wait for it, and its descriptor if it has none of the program's any more.
    pub hold: Hold,
    /// How this process hears bells where others have the side, too.
    pub bell_listener: BellListener,
    /// What it is: TCP until a rendezvous makes it a listener or a stream ([`Kind`]).
    kind: AtomicU32,
    /// AF_INET or AF_INET6.
    pub family: AtomicI32,
    /// IPPROTO_MPTCP if the program asked for that, and 0 for TCP. See `shunt_rendezvous::options::multipath`.
    pub protocol: AtomicI32,
    /// A private descriptor: a listener's rendezvous, or a client's bound TCP socket that keeps the port. -1: none.
    pub private_fd: AtomicI32,
    /// The number of the spare whose open file it is; 0: none (`shunt_rendezvous::socket_cache`).
    pub spare: AtomicU32,
    /// Of a dissolved connection: the port that the kernel tells of the socket in its place, and above it the connection's
    /// (`shunt_rendezvous::options::names`). 0: none.
    pub left_port: AtomicU32,
    /// First entry of the epoll sets that watch it.
    pub watchers: Head,
    /// While only the kernel has it: how calls wait for it ([`crate::waiting::kernel_sockets`]). 0: not known.
    pub looks: AtomicU32,
    /// SO_RCVLOWAT.
    pub low_water: AtomicU32,
    /// SO_PEEK_OFF; negative: none.
    pub peek_offset: AtomicI32,
    /// Control messages that the program asked for ([`crate::control::ask`]).
    pub control: AtomicU32,
    /// Options that the program set.
    pub stored: Stored,
    /// What a listener has besides.
    pub listening: Listening,
    /// What a stream has besides.
    pub connected: Connected,
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

    /// The relays of the side.
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

    /// The bells that this side rings.
    pub fn outgoing_bells(&self) -> Tally<'static> {
        Tally::new(self.own(), self.peer())
    }

    /// The bells that the peer rings.
    pub fn incoming_bells(&self) -> Tally<'static> {
        Tally::new(self.peer(), self.own())
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
        self.end_behind.store(0, Ordering::Relaxed);
        self.connected.end_told.store(0, Ordering::Relaxed);
        self.corked.store(0, Ordering::Relaxed);
        self.awaits_held.store(0, Ordering::Relaxed);
        self.connected.stalled.forget();
        self.connected.restraint.reset();
        self.connected.tapped.store(0, Ordering::Relaxed);
        self.connected.tapped_sent.store(0, Ordering::Relaxed);
        self.connected.settings_seen.store(0, Ordering::Relaxed);
        self.connected.missed.store(0, Ordering::Relaxed);
        self.connected.astray.store(0, Ordering::Relaxed);
        self.link.store(link, Ordering::Relaxed);
        self.channel.store(channel as u32, Ordering::Relaxed);
        self.side.store(side as u32, Ordering::Relaxed);
        self.connected.names.set(&names::of_channel(self.page()));
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
        self.listening.claimed.store(0, Ordering::Relaxed);
        self.kind.store(Kind::Listener as u32, Ordering::Release);
    }

    /// The socket listens no longer.
    pub fn set_plain(&self) {
        self.kind.store(Kind::Tcp as u32, Ordering::Release);
    }

    /// Whether private flag `bit` is set.
    #[inline(always)]
    pub fn has<B: Bits>(&self, bit: B) -> bool {
        B::word(self).load(Ordering::Relaxed) & bit.bits() != 0
    }

    /// Sets a private flag.
    pub fn set<B: Bits>(&self, bit: B) {
        B::word(self).fetch_or(bit.bits(), Ordering::Relaxed);
    }

    /// Clears a private flag.
    pub fn clear<B: Bits>(&self, bit: B) {
        B::word(self).fetch_and(!bit.bits(), Ordering::Relaxed);
    }

    /// Clears a private flag; whether it was set.
    pub fn take<B: Bits>(&self, bit: B) -> bool {
        B::word(self).fetch_and(!bit.bits(), Ordering::Relaxed) & bit.bits() != 0
    }

    /// Counts another descriptor, unless there is none any more. The caller holds the set-up lock, without which no object
    /// is given back, and has found this one in the table under it.
    pub fn retain(&self) -> bool {
        self.references.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |count| (count > 0).then(|| count + 1)).is_ok()
    }

    /// Both addresses: (client, server).
    pub fn addresses(&self) -> (Address, Address) {
        self.connected.names.get()
    }

    /// Both addresses are known better than from the channel.
    pub fn set_addresses(&self, client: &Address, server: &Address) {
        self.connected.names.set(&(*client, *server));
    }
}
