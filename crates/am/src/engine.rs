//! The engine: what a program or a socket layer calls.

use crate::config::{Config, Nanoseconds};
use crate::connection::Side;
use crate::dispatch::{Body, Dispatch, Link, Refused};
use crate::frame::{Hello, FULL, MESSAGE, SHORT, WORDS};
use crate::memory::{Layout, Memory, MemoryError};
use crate::outgoing::{Fill, Get, Source, Store};
use crate::state::{Counters, MAGIC};

/// The engine, over memory that the caller gave.
///
/// Several processes may have the same memory mapped: each makes its own `Engine` with [`Engine::attach`] while it holds
/// the lock that the caller keeps beside it. Nothing in the memory depends on where it is mapped.
pub struct Engine<'m> {
    memory: Memory<'m>,
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Up: messages may be sent.
    pub up: bool,
    /// `connect` was called, and the peer has not answered.
    pub connecting: bool,
    /// The peer's random number: another one is another life of it.
    pub epoch: u64,
    /// Requests that the peer takes now.
    pub credit: u32,
    /// Requests taken that are not answered, or whose answers are not acknowledged.
    pub owed: u32,
    /// Packets that wait to be sent, that are under way, that are to be sent again.
    pub queued: u32,
    /// See `queued`.
    pub in_flight: u32,
    /// See `queued`.
    pub lost: u32,
    /// Packets that wait for earlier ones of their channel.
    pub held: u32,
    /// Packets that may be under way by the congestion control, and by what both sides keep.
    pub congestion_window: u32,
    /// See `congestion_window`.
    pub largest_window: u32,
    /// Time between two packets; 0: not paced.
    pub pace: Nanoseconds,
    /// After so long without a sign packets under way count as lost.
    pub timeout: Nanoseconds,
    /// Smoothed round-trip time; 0: not measured.
    pub round_trip: Nanoseconds,
    /// Its mean deviation.
    pub variation: Nanoseconds,
    /// Counts.
    pub counters: Counters,
}

/// What one side of a connection tells the other: opaque, 40 bytes. It holds the name from which the
/// tokens of frames follow, so it is to travel by
/// a way that third parties cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer(pub [u8; Hello::SIZE]);

impl<'m> Engine<'m> {
    /// Makes an engine in `memory`, which has at least [`Config::words`] words, all 0. `secret` is random and this engine's
    /// alone.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn format(memory: &'m mut [u64], config: &Config, secret: [u64; 2]) -> Result<Self, MemoryError> {
        config.validate().map_err(MemoryError::Config)?;
        if memory.len() < config.words() {
            return Err(MemoryError::Small);
        }
        memory[0] = MAGIC;
        let shape = bytemuck::cast_slice_mut::<u64, u8>(memory);
        shape[8..8 + size_of::<Config>()].copy_from_slice(bytemuck::bytes_of(config));
        let mut engine = Self { memory: Memory::attach(memory)? };
        let shared = &mut *engine.memory.shared;
        shared.secret = secret;
        shared.deadline = Nanoseconds::MAX;
        shared.drawn = 0;
        shared.epoch = shunt_secret::siphash(secret, &[0]).max(1);
        for peer in 0..config.peers {
            if let Some(mut side) = engine.memory.side(peer) {
                side.blank();
                side.peer.deadline = Nanoseconds::MAX;
            }
        }
        Ok(engine)
    }

    /// The engine that lies in `memory`.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn attach(memory: &'m mut [u64]) -> Result<Self, MemoryError> {
        Ok(Self { memory: Memory::attach(memory)? })
    }

    /// The same, of one that is known to have this layout.
    ///
    /// # Errors
    /// [`MemoryError`]: it has another one.
    #[inline]
    pub fn attach_as(memory: &'m mut [u64], layout: &Layout) -> Result<Self, MemoryError> {
        Ok(Self { memory: Memory::attach_as(memory, layout)? })
    }

    /// Whether the memory still holds an engine of this layout: others may have written there since it was attached.
    #[must_use]
    #[inline(always)]
    pub fn is_still(&self, layout: &Layout) -> bool {
        layout.is_of(self.memory.shared)
    }

    /// The shape that it was made with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.memory.shared.config
    }

    /// Most data of a request or reply with eight words. With fewer words there is room for eight bytes more each.
    #[must_use]
    pub fn medium_maximum(&self) -> usize {
        let header = if self.config().reliable != 0 { SHORT } else { FULL };
        self.config().frame as usize - header - MESSAGE - WORDS * 8
    }

    fn side(&mut self, peer: u32) -> Result<Side<'_>, Refused> {
        self.memory.side(peer).ok_or(Refused::Argument)
    }

    /// Begins to set up the connection to a peer; nothing happens if it is up or on its way.
    ///
    /// # Errors
    /// `Argument`: no such peer.
    pub fn connect(&mut self, now: Nanoseconds, peer: u32, link: &mut dyn Link) -> Result<(), Refused> {
        self.side(peer)?.connect(now, link);
        Ok(())
    }

    /// What to tell a peer so that it can [`Engine::adopt`] a connection. Asked again, the answer is the same until it is used.
    ///
    /// # Errors
    /// `Argument`: no such peer.
    pub fn offer(&mut self, peer: u32) -> Result<Offer, Refused> {
        Ok(Offer(self.side(peer)?.offer().emit()))
    }

    /// Sets up the connection from the peer's offer, after ours was given to it. One that was up is lost.
    ///
    /// # Errors
    /// `Argument`: no such peer, no offer was made, or the peer's is none, or of another kind of device.
    pub fn adopt(&mut self, now: Nanoseconds, peer: u32, offer: &Offer, dispatch: &mut dyn Dispatch) -> Result<(), Refused> {
        let hello = Hello::parse(&offer.0).map_err(|_| Refused::Argument)?;
        self.side(peer)?.adopt(now, hello, dispatch)
    }

    /// Ends a connection, and tells the peer so, once. What was not acknowledged may or may not have arrived.
    ///
    /// # Errors
    /// `Argument`: no such peer.
    pub fn disconnect(
        &mut self,
        now: Nanoseconds,
        peer: u32,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) -> Result<(), Refused> {
        self.side(peer)?.disconnect(now, link, dispatch);
        Ok(())
    }

    /// One frame from a peer. Its handlers run now; acknowledgements wait for [`Engine::transmit`].
    #[inline(always)]
    pub fn receive<L: Link + ?Sized, D: Dispatch + ?Sized>(
        &mut self,
        now: Nanoseconds,
        peer: u32,
        frame: &[u8],
        mut link: &mut L,
        mut dispatch: &mut D,
    ) {
        if !self.receive_straight(now, peer, frame, link, dispatch) {
            self.receive_in_general(now, peer, frame, &mut link, &mut dispatch);
        }
    }

    /// The straight way alone; false: nothing was done.
    #[inline(always)]
    pub(crate) fn receive_straight<L: Link + ?Sized, D: Dispatch + ?Sized>(
        &mut self,
        now: Nanoseconds,
        peer: u32,
        frame: &[u8],
        link: &mut L,
        dispatch: &mut D,
    ) -> bool {
        self.memory.receive_straight(now, peer, frame, link, dispatch)
    }

    #[inline(never)]
    pub(crate) fn receive_in_general(
        &mut self,
        now: Nanoseconds,
        peer: u32,
        frame: &[u8],
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) {
        if let Some(mut side) = self.memory.side(peer) {
            if !side.receive_lone(now, frame, link, dispatch) {
                side.receive(now, frame, None, link, dispatch);
            }
        }
    }

    /// As [`Engine::receive`], for a frame whose end still lies in a device's buffer: one bulk message
    /// ([`crate::frame::is_bulk`] tells), of a device that loses nothing or that checks frames.
    pub fn receive_split(
        &mut self,
        now: Nanoseconds,
        peer: u32,
        frame: &[u8],
        rest: &dyn Body,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) {
        if let Some(mut side) = self.memory.side(peer) {
            side.receive(now, frame, Some(rest), link, dispatch);
        }
    }

    /// Whether [`Engine::transmit`] has something to do at once.
    #[must_use]
    #[inline]
    pub fn is_busy(&self) -> bool {
        let shared = &*self.memory.shared;
        shared.busy[0] != 0 || shared.config.peers > 64 && self.is_another_busy()
    }

    /// The same of peers behind the first 64.
    #[cold]
    fn is_another_busy(&self) -> bool {
        let shared = &*self.memory.shared;
        let words = (shared.config.peers as usize).div_ceil(64);
        shared.busy[..words].iter().any(|&word| word != 0)
    }

    /// Sends what may be sent, and does what timers ask for. To be called after frames were received, when the deadline has
    /// passed, and when the device has room again.
    pub fn transmit(&mut self, now: Nanoseconds, link: &mut dyn Link, dispatch: &mut dyn Dispatch) {
        let words = (self.memory.shared.config.peers as usize).div_ceil(64);
        // Peers take turns at being first, so that one that fills the device does not starve the others.
        let turn = self.memory.shared.turn as usize % words;
        self.memory.shared.turn = self.memory.shared.turn.wrapping_add(1);
        for at in (turn..words).chain(0..turn) {
            let mut busy = core::mem::take(&mut self.memory.shared.busy[at]);
            while busy != 0 {
                let peer = at * 64 + busy.trailing_zeros() as usize;
                busy &= busy - 1;
                if let Some(mut side) = self.memory.side(peer as u32) {
                    side.pump(now, link, dispatch);
                }
            }
        }
        if now >= self.memory.shared.deadline {
            self.fire(now, link, dispatch);
        }
    }

    fn fire(&mut self, now: Nanoseconds, link: &mut dyn Link, dispatch: &mut dyn Dispatch) {
        self.memory.shared.deadline = Nanoseconds::MAX;
        let mut next = Nanoseconds::MAX;
        for index in 0..self.memory.shared.config.peers {
            if self.memory.peer(index).is_some_and(|peer| peer.deadline <= now) {
                if let Some(mut side) = self.memory.side(index) {
                    side.fire(now, link, dispatch);
                }
            }
            next = next.min(self.memory.peer(index).map_or(Nanoseconds::MAX, |peer| peer.deadline));
        }
        self.memory.shared.deadline = next;
    }

    /// When [`Engine::transmit`] is to be called at the latest; `None`: no timer runs.
    #[must_use]
    #[inline]
    pub fn deadline(&self) -> Option<Nanoseconds> {
        Some(self.memory.shared.deadline).filter(|&at| at != Nanoseconds::MAX)
    }

    /// Whether that time has come.
    #[must_use]
    #[inline]
    pub fn is_due(&self, now: Nanoseconds) -> bool {
        self.memory.shared.deadline <= now
    }

    /// Sends a request: at most eight words and [`Engine::medium_maximum`] bytes of data. On an ordered channel its handler
    /// runs after what was sent there before; on channel 0 whenever it arrives.
    ///
    /// # Errors
    /// [`Refused`]; nothing was sent then.
    #[inline]
    pub fn request<L: Link + ?Sized>(
        &mut self,
        now: Nanoseconds,
        peer: u32,
        channel: u16,
        handler: u8,
        words: &[u64],
        data: &[u8],
        mut link: &mut L,
    ) -> Result<(), Refused> {
        if channel == 0 && data.is_empty() {
            if let Some(record) = self.memory.peer_mut(peer) {
                if record.request_straight(peer, handler, words, link) {
                    return Ok(());
                }
            }
        }
        self.request_in_general(now, peer, channel, handler, words, data, &mut link)
    }

    #[inline(never)]
    fn request_in_general(
        &mut self,
        now: Nanoseconds,
        peer: u32,
        channel: u16,
        handler: u8,
        words: &[u64],
        data: &[u8],
        link: &mut dyn Link,
    ) -> Result<(), Refused> {
        self.side(peer)?.request(now, channel, handler, words, data, link)
    }

    /// Sends bytes on an ordered channel: as many as the peer has room for and packets take; gives their number.
    ///
    /// # Errors
    /// [`Refused`]; nothing was sent then.
    pub fn send(
        &mut self,
        now: Nanoseconds,
        peer: u32,
        channel: u16,
        bytes: &[u8],
        link: &mut dyn Link,
    ) -> Result<usize, Refused> {
        self.side(peer)?.send(now, channel, bytes.len(), Some(bytes), &mut |_| false, link)
    }

    /// As [`Engine::send`], of `length` bytes that `fill` copies into packets, in order: memory that may fault, say. When
    /// it answers false nothing more is taken.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn send_with(
        &mut self,
        now: Nanoseconds,
        peer: u32,
        channel: u16,
        length: usize,
        fill: Fill<'_>,
        link: &mut dyn Link,
    ) -> Result<usize, Refused> {
        self.side(peer)?.send(now, channel, length, None, fill, link)
    }

    /// Bytes that [`Engine::send`] would be let send now by the peer.
    #[must_use]
    pub fn room(&self, peer: u32, channel: u16) -> u64 {
        self.memory.channel(peer, channel).map_or(0, |channel| channel.limit.saturating_sub(channel.sent))
    }

    /// Bytes sent and received on an ordered channel since the connection came up.
    #[must_use]
    pub fn positions(&self, peer: u32, channel: u16) -> (u64, u64) {
        self.memory.channel(peer, channel).map_or((0, 0), |channel| (channel.sent, channel.received))
    }

    /// Packets of an ordered channel that are not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self, peer: u32, channel: u16) -> u32 {
        self.memory.channel(peer, channel).map_or(0, |channel| channel.queued)
    }

    /// Bytes of an ordered channel that the peer has, in order.
    #[must_use]
    pub fn acknowledged(&self, peer: u32, channel: u16) -> u64 {
        self.memory.channel(peer, channel).map_or(0, |channel| channel.acknowledged)
    }

    /// Begins another use of an ordered channel, in which both directions count their bytes from 0 and no room is granted.
    /// Both sides do so: one when it sends the request that says so, on that channel, after everything of the old use; the
    /// other in that request's handler, when it has sent all that it ever will of the old use and the asking side has
    /// received that. Room is granted by the asking side only after it knows that the request was handled. `generation`
    /// is another one than the last.
    ///
    /// # Errors
    /// `Argument`, `NotConnected`.
    pub fn renew(&mut self, peer: u32, channel: u16, generation: u32) -> Result<(), Refused> {
        self.side(peer)?.renew(channel, generation)
    }

    /// Lets the peer send up to `limit` bytes on the channel, counted since the connection came up. It is told when `step`
    /// bytes are new to it, or when it has none left; on the next packet, or by one of its own.
    ///
    /// # Errors
    /// `Argument`, `NotConnected`.
    pub fn grant(&mut self, peer: u32, channel: u16, limit: u64, step: u64) -> Result<(), Refused> {
        self.side(peer)?.grant(channel, limit, step)
    }

    /// Goes on with a store whose first `done` bytes are on their way: from the beginning with `done` 0, and again after each
    /// poll until the answer is true. Another store to the same peer waits for that. The bytes may be reused when it is.
    ///
    /// # Errors
    /// [`Refused`]; `NoCredit` when only the end is missing.
    pub fn store(
        &mut self,
        now: Nanoseconds,
        peer: u32,
        store: &Store<'_>,
        bytes: &[u8],
        done: &mut usize,
        link: &mut dyn Link,
    ) -> Result<bool, Refused> {
        self.side(peer)?.store(now, store, &mut Source::Bytes(bytes), done, link)
    }

    /// As [`Engine::store`], of `length` bytes that `copy` writes into packets: those from an offset on, as many as the slice takes. For
    /// memory that others write meanwhile, which is to be copied in a way of the caller's.
    ///
    /// # Errors
    /// As [`Engine::store`].
    pub fn store_with(
        &mut self,
        now: Nanoseconds,
        peer: u32,
        store: &Store<'_>,
        length: usize,
        copy: &mut dyn FnMut(usize, &mut [u8]),
        done: &mut usize,
        link: &mut dyn Link,
    ) -> Result<bool, Refused> {
        self.side(peer)?.store(now, store, &mut Source::Copied(length, copy), done, link)
    }

    /// Asks for bytes of the peer's segment. The handler runs as that of a reply, when all have arrived; `returned` if the
    /// peer's segment or ours is smaller.
    ///
    /// # Errors
    /// [`Refused`]; `NoRoom` too when eight gets are under way.
    pub fn get(&mut self, now: Nanoseconds, peer: u32, get: &Get<'_>, link: &mut dyn Link) -> Result<(), Refused> {
        self.side(peer)?.get(now, get, link)
    }

    /// A caller waits for this peer, or no longer: while one does, its silence for the declared time ends the connection even
    /// if nothing is under way.
    ///
    /// # Errors
    /// `Argument`: no such peer.
    pub fn watch(&mut self, now: Nanoseconds, peer: u32, watched: bool) -> Result<(), Refused> {
        let mut side = self.side(peer)?;
        side.peer.watched = u32::from(watched);
        // At its end, too: a timer of a wait that is over would end the connection when this side next looks, however late that is.
        side.schedule(now);
        Ok(())
    }

    /// What is known of a connection.
    #[must_use]
    pub fn status(&mut self, peer: u32) -> Option<Status> {
        let side = self.memory.side(peer)?;
        let peer = &*side.peer;
        Some(Status {
            up: side.is_up(),
            connecting: side.is_connecting(),
            epoch: peer.remote.epoch,
            credit: peer.limit.wrapping_sub(peer.requests_sent).min(crate::config::MAXIMUM_WINDOW),
            owed: peer.replies_owed,
            queued: side.queued(),
            in_flight: peer.in_flight,
            lost: peer.lost,
            held: peer.held_count,
            congestion_window: peer.congestion.packets(),
            largest_window: peer.window,
            pace: peer.congestion.interval(peer.round_trip.estimate()),
            timeout: side.timeout(),
            round_trip: peer.round_trip.smoothed,
            variation: peer.round_trip.variation,
            counters: peer.counters,
        })
    }

    /// Whether the connection is up. Cheap.
    #[must_use]
    #[inline]
    pub fn is_up(&self, peer: u32) -> bool {
        self.memory.peer(peer).is_some_and(|peer| peer.life == crate::state::life::UP)
    }

    /// A number that changes when the peer has taken something of ours, or given something that we asked for: packets that are no
    /// longer kept for it, bytes of gets.
    #[must_use]
    pub fn taken(&mut self, peer: u32) -> u64 {
        self.memory.side(peer).map_or(0, |side| {
            let fetched = side.peer.asked.iter().fold(side.peer.fetch_name, |sum, fetch| sum.wrapping_add(fetch.done));
            fetched.wrapping_add(side.peer.oldest).wrapping_sub(side.queued().into())
        })
    }

    /// Whether everything sent to the peer is acknowledged (over a device that loses nothing: has left).
    #[must_use]
    pub fn is_idle(&mut self, peer: u32) -> bool {
        self.memory.side(peer).is_none_or(|side| {
            side.queued() == 0 && side.peer.next_sequence == side.peer.oldest && side.peer.room_due == crate::state::NONE
        })
    }
}
