//! Driving: what the holder of the lock does.

use core::sync::atomic::Ordering::Relaxed;
use shunt_am::{Engine, Nanoseconds};
use shunt_endpoint::{Channel, Endpoint};

use crate::control::{handler, Open, UNCLAIMED};
use crate::device_adapter::{DeviceAdapter, Inner, Rest};
use crate::handlers::Handlers;
use crate::memory::{flag, load2, peer_state, state, Count, Entry, Shared};
use crate::table::Loan;
use crate::{lock, FourTuple, Mark, Peer, Progress, Pump, Refusal, Station, Stream, Token, PEERS};

/// Frames taken in one turn: acknowledgements and sends get theirs after so many.
const BATCH: usize = 64;
/// Packets that may be lost before a path counts as one that loses some: a beginning's, until the window is found.
const LOST_AT_FIRST: u64 = 32_000;
/// When a device that was full is asked again.
const AGAIN: Nanoseconds = 200_000;

/// The right to drive. Given back when it is dropped; [`Driver::leave`] tells whether to take it again.
pub struct Driver<'s> {
    pub(crate) station: &'s Station,
    pub(crate) shared: &'s Shared,
    pub(crate) inner: &'s mut Inner,
    pub(crate) engine: &'s mut Engine<'static>,
    /// Frames came from these peers since blocked streams were looked at.
    pub(crate) heard: u64,
}

/// Engine and line of a driver, borrowed apart.
macro_rules! adapter {
    ($driver:expr) => {
        DeviceAdapter { shared: $driver.shared, device: &mut $driver.inner.device, gone: &mut $driver.inner.gone }
    };
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        self.finish_turn();
        lock::give(&self.shared.lock.0);
        shunt_sys::section::leave();
    }
}

impl<'s> Driver<'s> {
    /// Tells the device of what was sent. What it does not take now stays due, for all processes of the station.
    #[inline]
    fn flush(&mut self) {
        if self.shared.unflushed.load(Relaxed) != 0 {
            let left = !self.inner.device.flush().unwrap_or(true);
            self.shared.unflushed.store(left.into(), Relaxed);
        }
    }

    /// What is due before the lock is given back.
    pub(crate) fn finish_turn(&mut self) {
        self.flush();
        let soon = self.shared.unflushed.load(Relaxed) != 0 || self.engine.is_busy();
        let left_over = soon || self.inner.was_early || self.inner.gone != 0;
        if self.station.left_over.load(Relaxed) != left_over {
            self.station.left_over.store(left_over, Relaxed);
        }
        let deadline = self.due();
        if self.shared.deadline.0.load(Relaxed) != deadline {
            self.shared.deadline.0.store(deadline, Relaxed);
        }
    }

    /// Gives the lock back. True: another thread tried to take it meanwhile, so drive once more.
    #[must_use]
    #[inline(always)]
    pub fn leave(mut self) -> bool {
        self.finish_turn();
        lock::give(&self.shared.lock.0);
        let again = lock::take_mark(&self.shared.again.0);
        core::mem::forget(self);
        shunt_sys::section::leave();
        again
    }

    /// When a thread is to drive again; the largest number: none is.
    #[inline(always)]
    fn due(&self) -> Nanoseconds {
        let mut due = self.engine.deadline().unwrap_or(Nanoseconds::MAX);
        if self.shared.unflushed.load(Relaxed) != 0 || self.engine.is_busy() {
            due = due.min(self.shared.now.load(Relaxed) + AGAIN);
        }
        if self.shared.has_chores.load(Relaxed) != 0 {
            due = due.min(self.shared.chores_at.load(Relaxed));
        }
        due
    }

    /// The time, never before what another driver named.
    #[inline]
    pub(crate) fn time(&self, now: Nanoseconds) -> Nanoseconds {
        let known = self.shared.now.load(Relaxed);
        if now > known {
            self.shared.now.store(now, Relaxed);
        }
        now.max(known)
    }

    /// Takes what has arrived, runs timers, sends what may be sent.
    pub fn drive(&mut self, now: Nanoseconds, pump: &mut dyn Pump) -> Progress {
        let now = self.time(now);
        if !self.station.is_keeper() {
            self.shared.driven_at.store(now, Relaxed);
        }
        if !self.shared.untold.is_empty() {
            self.tell_lost(pump);
        }
        let mut taken = 0;
        while taken < BATCH && self.inner.device.receive(&mut self.inner.arrival) {
            self.take_arrival(now, pump);
            taken += 1;
        }
        if (1..BATCH).contains(&taken) && pump.is_content() && self.may_end_early() {
            self.inner.was_early = true;
            return Progress { moved: true, more: false, early: true, deadline: None };
        }
        self.inner.was_early = false;
        if taken > 0 {
            pump.taken(self);
        }
        if taken > 0 || !self.shared.wants.is_empty() {
            self.send_wanted(now);
        }
        if self.heard != 0 {
            self.resume(pump);
        }
        if self.engine.is_busy() || self.engine.deadline().is_some_and(|at| at <= now) {
            let mut handlers = Handlers { shared: self.shared, pump, now };
            self.engine.transmit(now, &mut adapter!(self), &mut handlers);
        }
        self.flush();
        while self.inner.gone != 0 {
            let peer = self.inner.gone.trailing_zeros();
            self.inner.gone &= self.inner.gone - 1;
            let mut handlers = Handlers { shared: self.shared, pump, now };
            let _ = self.engine.disconnect(now, peer, &mut adapter!(self), &mut handlers);
            self.inner.gone &= !(1 << peer);
        }
        if self.shared.has_chores.load(Relaxed) != 0 && now >= self.shared.chores_at.load(Relaxed) {
            self.chores(now, pump);
        }
        if self.shared.arm_again.load(Relaxed) != 0 {
            self.arm_for_others();
        }
        // What the arming has found is no other sleeper's to wake up for any more.
        let more = taken == BATCH || self.shared.arm_again.load(Relaxed) != 0;
        Progress { moved: taken > 0, more, early: false, deadline: Some(self.due()).filter(|at| *at != Nanoseconds::MAX) }
    }

    /// Whether only acknowledgements and clocks would be seen to: a reader that has its bytes usually answers, and they go with
    /// that.
    #[inline]
    fn may_end_early(&self) -> bool {
        !self.inner.was_early
            && self.inner.gone == 0
            && self.shared.sleepers.load(Relaxed) == 0
            && self.shared.wants.is_empty()
            && self.shared.blocked.is_empty()
    }

    /// Whether [`Driver::push`] has something to send, or to write down.
    #[inline(always)]
    pub fn is_busy(&self) -> bool {
        self.engine.is_busy()
    }

    /// Sends what may be sent, without a look at what has arrived: for a caller that has just given bytes.
    #[inline]
    pub fn push(&mut self, now: Nanoseconds, pump: &mut dyn Pump) {
        // What was given to the device leaves before anything is written down about it.
        self.flush();
        let now = self.time(now);
        if !self.station.is_keeper() {
            self.shared.driven_at.store(now, Relaxed);
        }
        if self.engine.is_busy() || self.engine.deadline().is_some_and(|at| at <= now) {
            let mut handlers = Handlers { shared: self.shared, pump, now };
            self.engine.transmit(now, &mut adapter!(self), &mut handlers);
        }
        self.inner.was_early = false;
    }

    #[inline]
    fn take_arrival(&mut self, now: Nanoseconds, pump: &mut dyn Pump) {
        let Inner { device, arrival, scratch, gone, .. } = &mut *self.inner;
        if let Some(peer) = self.shared.by_registry(arrival.channel()) {
            self.heard |= 1 << (peer % 64);
            let mut handlers = Handlers { shared: self.shared, pump, now };
            let segment = device.segment();
            let mut adapter = DeviceAdapter { shared: self.shared, device, gone };
            let (head, length) = (arrival.head(), arrival.len());
            if length <= head.len() {
                self.engine.receive(now, peer, head, &mut adapter, &mut handlers);
            } else if self.engine.config().checked != 0 && shunt_am::frame::is_bulk(head, length) {
                let rest = Rest { arrival, segment };
                self.engine.receive_split(now, peer, head, &rest, &mut adapter, &mut handlers);
            } else {
                // Into private memory once; what is judged there cannot change.
                let length = length.min(scratch.len());
                let copied = arrival.copy_to(&segment, 0, &mut scratch[..length]);
                self.engine.receive(now, peer, &scratch[..copied], &mut adapter, &mut handlers);
            }
        } else {
            self.shared.count(Count::Dropped);
        }
        self.inner.device.release(&mut self.inner.arrival);
    }

    /// Streams that waited for room, or for packets, may go on.
    fn resume(&mut self, pump: &mut dyn Pump) {
        let heard = core::mem::take(&mut self.heard);
        let shared = self.shared;
        for stream in shared.blocked.iter() {
            let Some(entry) = shared.entry(stream) else { continue };
            if heard & 1 << (entry.peer.load(Relaxed) % 64) != 0 {
                shared.blocked.remove(stream);
                if entry.state() == state::LIVE {
                    pump.writable(self, stream);
                }
            }
        }
    }

    fn tell_lost(&mut self, pump: &mut dyn Pump) {
        for stream in self.shared.untold.iter() {
            self.shared.untold.remove(stream);
            pump.lost(stream);
        }
    }

    /// Others sleep on the endpoint whose arming one who woke took back.
    fn arm_for_others(&mut self) {
        self.shared.arm_again.store(0, Relaxed);
        if self.shared.sleepers.load(Relaxed) > 0 && !self.inner.device.arm() {
            self.shared.arm_again.store(1, Relaxed);
        }
    }

    /// A request on a stream's channel; false: not now.
    fn tell(&mut self, now: Nanoseconds, entry: &Entry, handler: u8, words: &[u64]) -> bool {
        let (peer, channel) = (entry.peer.load(Relaxed), entry.channel.load(Relaxed) as u16);
        self.engine.request(now, peer, channel, handler, words, &[], &mut adapter!(self)).is_ok()
    }

    /// Sends the station's own messages that are due, as far as there is room.
    fn send_wanted(&mut self, now: Nanoseconds) {
        let shared = self.shared;
        for stream in shared.wants.iter() {
            let Some(entry) = shared.entry(stream) else { continue };
            if !self.engine.is_up(entry.peer.load(Relaxed)) {
                continue;
            }
            let generation = entry.generation.load(Relaxed);
            let words = [u64::from(generation)];
            if entry.has(flag::WANT_OPEN) {
                let open = Open { generation, token: entry.token(), four: entry.four(), mark: entry.mark() };
                let (peer, channel) = (entry.peer.load(Relaxed), entry.channel.load(Relaxed) as u16);
                let renewed = self.engine.renew(peer, channel, generation).is_ok();
                if !renewed || !self.tell(now, entry, handler::OPEN, &open.words()) {
                    continue;
                }
                entry.take(flag::WANT_OPEN);
                entry.put(flag::OPEN_SENT);
            }
            if entry.has(flag::WANT_CANCEL) {
                if !self.tell(now, entry, handler::CANCEL, &words) {
                    continue;
                }
                entry.take(flag::WANT_CANCEL);
                entry.put(flag::CANCELLING);
            }
            if entry.has(flag::WANT_RESET) {
                if !self.tell(now, entry, handler::RESET, &words) {
                    continue;
                }
                entry.take(flag::WANT_RESET);
                entry.put(flag::RESET_SENT);
            }
            if entry.has(flag::WANT_CLOSE) {
                let words = [u64::from(generation), UNCLAIMED];
                let said = if entry.has(flag::UNCLAIMED) { 2 } else { 1 };
                if !self.tell(now, entry, handler::CLOSE, &words[..said]) {
                    continue;
                }
                entry.take(flag::WANT_CLOSE);
                entry.put(flag::CLOSE_SENT);
                if entry.has(flag::CLOSE_RECEIVED) {
                    shared.free(stream, entry);
                }
            }
            shared.wants.remove(stream);
        }
    }

    /// Lends a stream to the peer for a connection that is to be made and will show `mark`, with a token of its own
    /// ([`Driver::token`]).
    ///
    /// # Errors
    /// `Full`, `Lost`.
    pub fn open(&mut self, now: Nanoseconds, peer: Peer, four: &FourTuple, mark: Mark) -> Result<Stream, Refusal> {
        let now = self.time(now);
        let shared = self.shared;
        let record = shared.peer(peer).filter(|record| {
            record.state.load(Relaxed) == peer_state::OPEN && record.was_up.load(Relaxed) != crate::memory::LOST
        });
        let record = record.ok_or(Refusal::Lost)?;
        let channel = shared.free_channel(record).ok_or(Refusal::Full)?;
        let loan = Loan {
            peer,
            channel,
            generation: (shared.draw() as u32).max(1),
            four,
            token: [shared.draw(), shared.draw()],
            mark,
            state: state::OPENING,
            flags: flag::OURS | flag::WANT_OPEN,
        };
        let (stream, _) = shared.lend(now, &loan).ok_or(Refusal::Full)?;
        shared.wants.insert(stream);
        shared.count(Count::Opened);
        if !self.engine.is_up(peer) {
            // It is being set up.
            let _ = self.engine.connect(now, peer, &mut adapter!(self));
        }
        self.send_wanted(now);
        Ok(stream)
    }

    /// A mark for a connection by an interface whose largest segment has so many bytes.
    pub fn mark(&mut self, largest: u16) -> Mark {
        Mark::below(largest, self.shared.draw())
    }

    /// The token of a stream that was opened or claimed.
    pub fn token(&self, stream: Stream) -> Token {
        self.shared.entry(stream).map_or([0; 2], Entry::token)
    }

    /// A client gives up before it has seen the token. [`Station::opening`] tells what became of it: `Cancelled`, and the stream
    /// may be released; or `Opened`: too late, the token is on its way.
    pub fn cancel(&mut self, now: Nanoseconds, stream: Stream) {
        let now = self.time(now);
        let Some(entry) = self.shared.entry(stream).filter(|entry| entry.has(flag::OURS)) else { return };
        match entry.state() {
            state::OPENING if !entry.has(flag::OPEN_SENT) => self.shared.refuse(stream, entry, Refusal::Cancelled),
            state::OPENING | state::OPENED if !entry.has(flag::CANCELLING) => {
                self.shared.want(stream, entry, flag::WANT_CANCEL);
                self.send_wanted(now);
            }
            _ => {}
        }
    }

    /// The reservation for the connection with these addresses, if there is one, which is not younger than the connection (`made`:
    /// when that was there at the latest), and the largest segment that the connection's SYN named (0: unknown) is its mark: it is
    /// the caller's now. One whose mark is not shown is given back, and its client told, which asks no more for a time.
    pub fn claim(&mut self, four: &FourTuple, segment: u32, made: Nanoseconds) -> Option<(Stream, Token)> {
        let (stream, entry) = self.shared.reservation(four).filter(|(_, entry)| entry.since.load(Relaxed) <= made)?;
        if !entry.mark().is_shown_by(segment) {
            entry.put(flag::UNCLAIMED);
            self.shared.release(stream, entry);
            let now = self.shared.now.load(Relaxed);
            self.send_wanted(now);
            return None;
        }
        self.shared.waiting.remove(stream);
        entry.owner.store(shunt_sys::thread::process(), Relaxed);
        entry.put(flag::CLAIMED);
        entry.state.store(state::CLAIMED, Relaxed);
        Some((stream, entry.token()))
    }

    /// Whether the next stream that is lent has a number below `limit`.
    pub fn lends_below(&self, limit: Stream) -> bool {
        self.shared.next().is_some_and(|stream| stream < limit)
    }

    /// From now on the pump is told of the stream: at once, what has come before. Nothing more comes before room is granted.
    pub fn bind(&mut self, stream: Stream, pump: &mut dyn Pump) {
        let Some(entry) = self.shared.entry(stream) else { return };
        match entry.state() {
            state::OPENED | state::CLAIMED => {
                entry.state.store(state::LIVE, Relaxed);
                if let Some(position) = entry.begins.load(Relaxed).checked_sub(1) {
                    pump.begin(stream, position);
                }
                if entry.has(flag::RESET) {
                    pump.reset(stream);
                } else if entry.has(flag::FINISHED) {
                    pump.finished(stream);
                }
            }
            state::LOST => pump.lost(stream),
            _ => {}
        }
    }

    /// A stream that may send.
    #[inline]
    fn live(&self, stream: Stream) -> Option<(&'s Entry, u32, u16)> {
        let entry = self.shared.entry(stream).filter(|entry| entry.state() == state::LIVE && !entry.has(flag::RESET_SENT))?;
        Some((entry, entry.peer.load(Relaxed), entry.channel.load(Relaxed) as u16))
    }

    /// Sends up to `length` bytes, which `fill` copies, in order, into all of the slices it is given (false: they cannot be
    /// read). Gives how many were taken; if fewer, [`Pump::writable`] says when to go on.
    #[inline]
    pub fn send(&mut self, now: Nanoseconds, stream: Stream, length: usize, fill: &mut dyn FnMut(&mut [u8]) -> bool) -> usize {
        let now = self.time(now);
        let Some((_, peer, channel)) = self.live(stream) else { return 0 };
        let sent = self.engine.send_with(now, peer, channel, length, fill, &mut adapter!(self)).unwrap_or(0);
        if sent < length {
            self.shared.blocked.insert(stream);
        }
        sent
    }

    /// Bytes that the peer has room for now.
    pub fn room(&self, stream: Stream) -> u64 {
        self.live(stream).map_or(0, |(_, peer, channel)| self.engine.room(peer, channel))
    }

    /// The peer may send bytes up to `limit`, counted from the stream's beginning. Never taken back.
    #[inline]
    pub fn grant(&mut self, stream: Stream, limit: u64) {
        let Some((_, peer, channel)) = self.live(stream) else { return };
        let (_, received) = self.engine.positions(peer, channel);
        // Said when a quarter of it is news.
        let _ = self.engine.grant(peer, channel, limit, limit.saturating_sub(received) / 4);
    }

    /// A message of the caller's on a stream; false, and the pump will hear when: not now.
    fn tell_of(&mut self, now: Nanoseconds, stream: Stream, handler: u8, more: &[u64]) -> bool {
        let now = self.time(now);
        // What no caller wants any more counts as said.
        let Some((entry, ..)) = self.live(stream) else { return true };
        let mut words = [u64::from(entry.generation.load(Relaxed)), 0, 0];
        words[1..=more.len()].copy_from_slice(more);
        let told = self.tell(now, entry, handler, &words[..=more.len()]);
        if !told {
            self.shared.blocked.insert(stream);
        }
        told
    }

    /// No more bytes will be sent. False: not now, see [`Pump::writable`].
    pub fn finish(&mut self, now: Nanoseconds, stream: Stream) -> bool {
        self.tell_of(now, stream, handler::FIN, &[])
    }

    /// The client's first `position` bytes go by TCP, and those that are sent from now on are the ones behind. False: not now.
    pub fn begin(&mut self, now: Nanoseconds, stream: Stream, position: u64) -> bool {
        self.tell_of(now, stream, handler::BEGIN, &[position])
    }

    /// The server has all of the bytes that the client's [`Driver::begin`] spoke of. False: not now.
    pub fn begun(&mut self, now: Nanoseconds, stream: Stream) -> bool {
        self.tell_of(now, stream, handler::BEGUN, &[])
    }

    /// Nothing more of the stream is said here: it goes on by TCP, behind what the peer says there that it has ([`Pump::leave`] at the peer, or
    /// [`Pump::stays`] here). False: not now.
    pub fn say_leave(&mut self, now: Nanoseconds, stream: Stream) -> bool {
        self.tell_of(now, stream, handler::LEAVE, &[])
    }

    /// The stream's number and words stay the caller's until [`Driver::release`], whatever becomes of its channel.
    pub fn keep(&mut self, stream: Stream) {
        if let Some(entry) = self.shared.entry(stream).filter(|entry| entry.state() != state::FREE) {
            entry.put(flag::KEPT);
        }
    }

    /// Nothing more is wanted of the channel of a stream that is kept: the connection goes on elsewhere.
    pub fn abandon(&mut self, now: Nanoseconds, stream: Stream) {
        let now = self.time(now);
        if let Some(entry) = self.shared.entry(stream).filter(|entry| entry.has(flag::KEPT) && entry.state() != state::LOST) {
            self.shared.release(stream, entry);
            self.send_wanted(now);
        }
    }

    /// Ends both directions. False: not now, see [`Pump::writable`].
    pub fn reset(&mut self, now: Nanoseconds, stream: Stream) -> bool {
        let told = self.tell_of(now, stream, handler::RESET, &[]);
        if let Some(entry) = self.shared.entry(stream).filter(|_| told) {
            entry.put(flag::RESET_SENT);
        }
        told
    }

    /// Sends an urgent byte, which stands behind what was sent so far. False: not now, see [`Pump::writable`]; as long as the
    /// peer has never granted room, too, because its program has not got the stream.
    pub fn urgent(&mut self, now: Nanoseconds, stream: Stream, byte: u8) -> bool {
        let Some((_, peer, channel)) = self.live(stream) else { return true };
        let (sent, _) = self.engine.positions(peer, channel);
        if sent == 0 && self.engine.room(peer, channel) == 0 {
            self.shared.blocked.insert(stream);
            return false;
        }
        self.tell_of(now, stream, handler::URGENT, &[sent, byte.into()])
    }

    /// Whether the path of a stream's bytes is one that loses packets: more than one in a thousand was sent again.
    pub fn is_lossy(&mut self, stream: Stream) -> bool {
        let Some((_, peer, _)) = self.live(stream) else { return true };
        self.engine.status(peer).is_none_or(|status| {
            let (sent, again) = (status.counters.frames_sent, status.counters.retransmissions);
            again * 1000 > sent + LOST_AT_FIRST
        })
    }

    /// What the engine knows of a peer: round trip, windows, counts.
    pub fn status(&mut self, peer: Peer) -> Option<shunt_am::Status> {
        self.engine.status(peer)
    }

    /// Any message to a peer: for tests of what it makes of that.
    #[cfg(any(test, feature = "std"))]
    pub fn say(&mut self, now: Nanoseconds, peer: Peer, channel: u16, handler: u8, words: &[u64]) -> bool {
        self.engine.request(now, peer, channel, handler, words, &[], &mut adapter!(self)).is_ok()
    }

    /// Which use of its channel a stream is: for tests.
    #[cfg(any(test, feature = "std"))]
    pub fn generation(&self, stream: Stream) -> u32 {
        self.shared.entry(stream).map_or(0, |entry| entry.generation.load(Relaxed))
    }

    /// Bytes of the stream sent, acknowledged, received.
    pub fn positions(&self, stream: Stream) -> [u64; 3] {
        let Some((_, peer, channel)) = self.live(stream) else { return [0; 3] };
        let (sent, received) = self.engine.positions(peer, channel);
        [sent, self.engine.acknowledged(peer, channel), received]
    }

    /// Nothing more is wanted of the stream, in whatever state it is; the pump hears no more of it. What was sent arrives.
    pub fn release(&mut self, now: Nanoseconds, stream: Stream) {
        let now = self.time(now);
        if let Some(entry) = self.shared.entry(stream) {
            entry.take(flag::KEPT);
            self.shared.release(stream, entry);
            self.send_wanted(now);
        }
    }

    /// As [`Driver::release`], of a stream that was opened, by a client that makes the connection without its mark: the server
    /// may find the reservation with that connection before it hears of this.
    pub fn release_unmarked(&mut self, now: Nanoseconds, stream: Stream) {
        if let Some(entry) = self.shared.entry(stream).filter(|entry| entry.has(flag::OURS)) {
            entry.put(flag::UNMARKED);
        }
        self.release(now, stream);
    }

    /// Begins to set up the connection to a peer.
    pub(crate) fn connect(&mut self, now: Nanoseconds, peer: Peer) {
        let _ = self.engine.connect(now, peer, &mut adapter!(self));
    }

    /// Forgets a peer.
    pub(crate) fn drop_peer(&mut self, number: u32) {
        let Some(peer) = self.shared.peer(number) else { return };
        if peer.state.swap(peer_state::FREE, Relaxed) == peer_state::OPEN {
            let channel = Channel(peer.channel.load(Relaxed));
            if let Some(place) = self.shared.by_registry.get(channel.index()) {
                place.store(0, Relaxed);
            }
            self.inner.device.close(channel);
        }
    }

    /// After a driver died with the lock: what it guards may be half-done, so all connections begin anew. Streams that had
    /// bytes under way go on where their rings say.
    #[cold]
    pub(crate) fn recover(station: &Station, shared: &Shared, inner: &mut Inner) {
        shared.count(Count::Recovered);
        for set in [&shared.used, &shared.waiting, &shared.wants, &shared.blocked] {
            set.clear();
        }
        for (number, entry) in (0..).zip(&shared.streams) {
            match entry.state() {
                state::FREE => {}
                _ => shared.used.insert(number),
            }
        }
        for number in 0..PEERS {
            shared.lose(number, None);
            let Some(peer) = shared.peer(number) else { continue };
            peer.by_channel.iter().for_each(|place| place.store(0, Relaxed));
            peer.streams.store(0, Relaxed);
            peer.state.store(peer_state::FREE, Relaxed);
        }
        for (stream, entry) in (0..).zip(&shared.streams) {
            // One whose peer was half-written.
            if shared.peer(entry.peer.load(Relaxed)).is_none() && entry.state() != state::FREE {
                shared.free(stream, entry);
            }
        }
        shared.by_registry.iter().for_each(|place| place.store(0, Relaxed));
        shared.contacts.iter().for_each(|contact| contact.port.store(0, Relaxed));
        inner.device.recover();
        inner.device.close_all();
        station.format();
    }

    pub(crate) fn identity(&self) -> [u64; 2] {
        load2(&self.shared.identity)
    }
}
