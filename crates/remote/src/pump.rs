//! The pump: side 1 of a stream's channel, moved by the holder of the station's lock.
//!
//! Bytes of the near ring stay there until the peer has them: how many were given to the engine stands in a word beside
//! ([`stream_words::SENT`]), and the ring's own position is that of the acknowledged ones. Positions of rings are those of streams: an
//! urgent byte is told first, by its position, and then sent in its place.

use super::local_station::LocalStation;
use super::marks;
use super::posting::Receive;
use super::stream_life::{self, Event};
use super::stream_words::{self, flag, mode};
use core::sync::atomic::Ordering;
use shunt_am::Data;
use shunt_epoll as epoll;
use shunt_segment::area::RING_SIZE;
use shunt_segment::channel::{arm, release, state, urgent as mark, word};
use shunt_station::{Driver, Opening, Pump, Stream};
use shunt_stream::progress::Posting;
use shunt_stream::urgent;
use shunt_stream::waiting::wake;
use shunt_sys::clock;

/// The largest ring of these links: the last one that lies in the base.
pub const CLASS: usize = 3;

/// Bytes that a peer may send before the program has read any.
pub const WINDOW: u64 = RING_SIZE[CLASS] as u64;

/// Bytes that a client may send by the engine before BEGUN: beside what came by TCP ([`super::tcp_fallback`]) they fit the
/// rings.
pub const FIRST: u64 = WINDOW / 2;

/// The pump of this process, and the buffer of the driving thread, if it waits with one.
pub struct Rings<'a>(pub &'a LocalStation, Option<&'a mut Posting>);

impl<'a> Rings<'a> {
    pub fn of(local: &'a LocalStation) -> Self {
        Rings(local, None)
    }

    /// The pump of a turn by a thread that waits, perhaps with a buffer.
    pub fn into(local: &'a LocalStation, posting: Option<&'a mut Posting>) -> Self {
        Rings(local, posting)
    }

    /// What came for the driving thread is in its buffer, or in the ring: at the end of its turn, and before anything else is told.
    pub fn settle(&mut self) {
        if let Some(posting) = &mut self.1 {
            posting.settle(self.0);
        }
    }

    fn active(&self, stream: Stream) -> bool {
        stream < stream_words::STREAMS
            && stream_words::flags(&self.0.station, stream) & (flag::ACTIVE | flag::OVER) == flag::ACTIVE
    }

    pub fn add(&self, stream: Stream, which: usize, count: u64) {
        let value = stream_words::get(&self.0.station, stream, which);
        stream_words::set(&self.0.station, stream, which, value + count);
    }

    fn way(&self, stream: Stream) -> u64 {
        stream_words::way(&self.0.station, stream)
    }

    fn is_fast(&self, stream: Stream) -> bool {
        self.active(stream) && self.way(stream) == mode::FAST
    }

    /// What came is answered with a reset.
    pub fn refuse(&self, stream: Stream) {
        stream_life::happens(&self.0.station, stream, Event::Refused);
        marks::mark(self.0, stream);
    }

    /// Whether the program still takes bytes; if not, they are refused.
    pub fn takes(&self, stream: Stream) -> bool {
        marks::owe(self.0, stream);
        let closed = self.0.far(stream).incoming().look().0 & word::CLOSED != 0;
        if closed || stream_words::flags(&self.0.station, stream) & (flag::NEAR_GONE | flag::RESET_IN) != 0 {
            self.refuse(stream);
            return false;
        }
        true
    }

    /// The peer sends no more.
    pub fn ended(&self, stream: Stream) {
        if stream_life::happens(&self.0.station, stream, Event::PeerEnded) {
            self.0.far(stream).outgoing().end(word::FIN);
            self.tell(stream, arm::IN);
            marks::mark(self.0, stream);
        }
    }

    /// The engine is of no use any more: the keeper goes on over the shadow.
    pub fn to_tcp(&self, stream: Stream, why: Event) {
        if stream_life::happens(&self.0.station, stream, why) {
            self.is_narrow(stream, false);
            marks::mark(self.0, stream);
        }
    }

    /// A server that has all the bytes before those that BEGIN spoke of goes on with the engine's. Room for the first of
    /// them was granted with the token.
    pub fn begin_if_there(&self, stream: Stream) {
        let station = &self.0.station;
        let (begins, received) = (
            stream_words::get(station, stream, stream_words::BEGIN_AT),
            stream_words::get(station, stream, stream_words::RECEIVED),
        );
        let Some(position) = begins.checked_sub(1).filter(|_| self.way(stream) == mode::CLAIMED) else { return };
        if received == position {
            stream_words::set(station, stream, stream_words::IN_BASE, position);
            stream_words::set(station, stream, stream_words::GRANTED, position + FIRST);
            stream_life::happens(station, stream, Event::BeginReached);
        } else if received > position {
            self.refuse(stream);
        }
    }

    /// Wakes the sleepers of the near side for `conditions`.
    pub fn tell(&self, stream: Stream, conditions: u32) {
        let far = self.0.far(stream);
        match self.0.near(stream) {
            Some(near) if epoll::hears_by_itself(near, far, conditions) => {}
            _ => wake::notify(far, self.0.far_fd(stream), conditions),
        }
    }

    /// The peer, or all ways to it, ended both directions.
    pub fn broken(&self, stream: Stream) {
        if !stream_life::happens(&self.0.station, stream, Event::PeerReset) {
            return;
        }
        let out = self.0.far(stream).outgoing();
        let announced = out.announced();
        let late = if announced & word::FIN != 0 { word::LATE } else { 0 };
        out.end(word::RST | word::FIN | word::CLOSED | late);
        self.tell(stream, arm::IN);
        self.tell(stream, arm::OUT);
        marks::mark(self.0, stream);
    }
}

impl Pump for Rings<'_> {
    fn bytes(&mut self, stream: Stream, data: Data<'_>) {
        if !self.active(stream) {
            return;
        }
        match self.way(stream) {
            mode::FAST => {}
            // No room was granted for them.
            mode::BEGINNING | mode::CLAIMED => return self.refuse(stream),
            _ => return,
        }
        if stream_words::flags(&self.0.station, stream) & flag::COUNTS != 0 {
            self.answered(stream);
        }
        if !self.takes(stream) {
            return;
        }
        let far = self.0.far(stream);
        let (length, posted) = (data.len(), self.1.as_mut().map_or(0, |posting| posting.take(self.0, stream, &data)));
        if posted == length {
            return self.add(stream, stream_words::RECEIVED, length as u64);
        }
        self.settle();
        if data.as_slice().is_none() {
            far.outgoing().choose_ring(length - posted);
        }
        let (mut done, mut skip) = (posted, posted);
        data.each(&mut |mut at, mut left| {
            let passed = skip.min(left);
            (at, left, skip) = (at.wrapping_add(passed), left - passed, skip - passed);
            while left > 0 {
                // SAFETY: memory of ours, or of the device; the station's lock is this side's sending lock.
                let put = unsafe { far.outgoing().send(at, left) };
                if put == 0 {
                    return false;
                }
                (at, left, done) = (at.wrapping_add(put), left - put, done + put);
            }
            true
        });
        self.add(stream, stream_words::RECEIVED, done as u64);
        if done < length {
            // More than was granted, or a program that wrote over its own ring.
            self.refuse(stream);
        }
        self.tell(stream, arm::IN);
    }

    fn taken(&mut self, driver: &mut Driver<'_>) {
        self.settle();
        attend(self.0, driver);
    }

    fn is_content(&self) -> bool {
        self.1.as_ref().is_some_and(|posting| posting.is_content())
    }

    fn finished(&mut self, stream: Stream) {
        self.settle();
        if self.is_fast(stream) {
            self.ended(stream);
        }
    }

    fn reset(&mut self, stream: Stream) {
        self.settle();
        match self.way(stream) {
            mode::FAST if self.active(stream) => self.broken(stream),
            // The client goes on by TCP.
            mode::CLAIMED if self.active(stream) => self.to_tcp(stream, Event::EngineReset),
            // What becomes of the connection is seen there.
            _ => {}
        }
    }

    fn begin(&mut self, stream: Stream, position: u64) {
        let station = &self.0.station;
        if !self.active(stream) || self.way(stream) != mode::CLAIMED {
            return;
        }
        stream_words::set(station, stream, stream_words::BEGIN_AT, position + 1);
        self.begin_if_there(stream);
        marks::mark(self.0, stream);
    }

    fn begun(&mut self, stream: Stream) {
        if self.active(stream) && self.way(stream) == mode::BEGINNING {
            stream_life::happens(&self.0.station, stream, Event::Begun);
            marks::mark(self.0, stream);
        }
    }

    fn leave(&mut self, stream: Stream) {
        self.settle();
        if self.is_fast(stream) {
            self.to_tcp(stream, Event::LeaveCame);
        }
    }

    fn stays(&mut self, stream: Stream) {
        stream_life::happens(&self.0.station, stream, Event::LeaveReturned);
        marks::mark(self.0, stream);
    }

    fn urgent(&mut self, stream: Stream, position: u64, _byte: u8) {
        self.settle();
        let base = stream_words::get(&self.0.station, stream, stream_words::IN_BASE);
        if self.is_fast(stream)
            && position.saturating_add(base) == stream_words::get(&self.0.station, stream, stream_words::RECEIVED)
        {
            let far = self.0.far(stream);
            urgent::mark(far);
            wake::ring_urgent(far, self.0.far_fd(stream));
        }
    }

    fn acknowledged(&mut self, stream: Stream, upto: u64) {
        // Before BEGUN a server that has given up acknowledges what it does not keep.
        if !self.is_fast(stream) {
            return;
        }
        let station = &self.0.station;
        let upto = upto.saturating_add(stream_words::get(station, stream, stream_words::OUT_BASE));
        let (known, sent) = (
            stream_words::get(station, stream, stream_words::ACKNOWLEDGED),
            stream_words::get(station, stream, stream_words::SENT),
        );
        if upto <= known || upto > sent {
            return;
        }
        self.count(stream, upto - known);
        stream_words::set(station, stream, stream_words::ACKNOWLEDGED, upto);
        self.0.far(stream).incoming().pass((upto - known) as usize);
        self.tell(stream, arm::OUT);
        marks::owe(self.0, stream);
    }

    fn writable(&mut self, driver: &mut Driver<'_>, stream: Stream) {
        self.settle();
        self.service(driver, stream);
    }

    fn lost(&mut self, stream: Stream) {
        self.settle();
        if !self.active(stream) {
            return;
        }
        stream_life::happens(&self.0.station, stream, Event::PathLost);
        if self.way(stream) == mode::RESUMING {
            self.is_narrow(stream, false);
            marks::mark(self.0, stream);
        }
    }
}

impl Rings<'_> {
    /// Sends what waits where nothing else is to be said or done before it; [`Rings::service`] follows.
    #[inline(always)]
    pub fn send_first(&mut self, driver: &mut Driver<'_>, stream: Stream, now: u64) {
        if stream >= stream_words::STREAMS
            || stream_words::flags(&self.0.station, stream) != flag::ACTIVE
            || self.way(stream) != mode::FAST
        {
            return;
        }
        let (near_word, waiting) = self.0.far(stream).incoming().look();
        if near_word & (word::FIN | word::CLOSED | word::RST) == 0 {
            self.send(driver, stream, waiting, now);
        }
    }

    /// Does for a stream what is to be done: sends what waits, grants room, says and concludes ends.
    pub fn service(&mut self, driver: &mut Driver<'_>, stream: Stream) {
        let station = &self.0.station;
        let now = clock::monotonic_ns();
        let flags = stream_words::flags(station, stream);
        if flags & flag::GIVEN_UP != 0 {
            return self.settle_given_up(driver, stream, now);
        }
        if !self.active(stream) {
            return;
        }
        let no_more = flags & (flag::FIN_IN | flag::RESET_IN | flag::RESET_OUT) != 0;
        if no_more {
            self.is_narrow(stream, false);
        }
        if !matches!(self.way(stream), mode::FAST | mode::BEGINNING) {
            // The keeper's business.
            if self.0.far_fd(stream) < 0 {
                marks::wake_keeper(self.0);
            }
            return;
        }
        if flags & flag::CATCH_UP != 0 {
            stream_words::lower(station, stream, flag::CATCH_UP);
            let [_, acknowledged, _] = driver.positions(stream);
            self.acknowledged(stream, acknowledged);
        }
        let quits = flags & (flag::COUNTS | flag::QUITS) != 0 && self.quits(driver, stream, now);
        if quits {
            if !no_more {
                self.grant(driver, stream);
            }
        } else if flags & (flag::RESET_IN | flag::RESET_OUT) == 0 && self.say_begin(driver, stream, now) {
            let far = self.0.far(stream);
            let (near_word, waiting) = far.incoming().look();
            let goes = self.way(stream) == mode::FAST || stream_words::get(station, stream, stream_words::OUT_BASE) == 0;
            if self.is_to_be_reset(stream, near_word) {
                // What was said before arrives before it, as far as there is room.
                let goes = goes && flags & flag::FIN_OUT == 0;
                let all = goes && self.send(driver, stream, waiting, now);
                if goes && !all {
                    let nothing = stream_words::get(station, stream, stream_words::SENT)
                        == stream_words::get(station, stream, stream_words::OUT_BASE);
                    // What came for a program that had closed is no reason to lose what that said before.
                    let closed = near_word & word::CLOSED != 0 || flags & flag::NEAR_GONE != 0;
                    if nothing && (closed || stream_words::flags(station, stream) & flag::REFUSED == 0) {
                        return; // the first room is on its way to us, as TCP's is before anything is sent
                    }
                }
                if all && near_word & word::LATE != 0 && driver.finish(now, stream) {
                    stream_life::happens(station, stream, Event::EndSaid);
                }
                if driver.reset(now, stream) {
                    stream_life::happens(station, stream, Event::ResetSaid);
                    self.close_near(stream, word::RST | word::FIN | word::CLOSED);
                }
            } else if goes {
                let all = self.send(driver, stream, waiting, now);
                let ended = near_word & (word::FIN | word::CLOSED) != 0 || flags & flag::NEAR_GONE != 0;
                if all && ended && flags & flag::FIN_OUT == 0 && driver.finish(now, stream) {
                    stream_life::happens(station, stream, Event::EndSaid);
                }
                if self.way(stream) == mode::FAST && !no_more {
                    self.grant(driver, stream);
                }
            }
        }
        self.conclude(stream);
    }

    /// Whether the program, or what it left unread, ends the stream with a reset.
    pub fn is_to_be_reset(&self, stream: Stream, near_word: u64) -> bool {
        let flags = stream_words::flags(&self.0.station, stream);
        if near_word & word::RST != 0 || flags & flag::REFUSED != 0 {
            return true;
        }
        if flags & flag::NEAR_GONE == 0 || near_word & word::CLOSED != 0 {
            return false;
        }
        // It ended without a word, as one that is killed: with bytes unread, or with SO_LINGER set to 0, before both directions ended.
        let far = self.0.far(stream);
        let lingers = far.peer().receive.state.load(Ordering::Acquire) & state::LINGER_RESET != 0;
        let (_, waiting) = far.incoming().look();
        let both = near_word & word::FIN != 0 && far.outgoing().announced() & word::FIN != 0 && waiting == 0;
        !both && (lingers || far.outgoing().unacknowledged() > 0)
    }

    /// Grants the peer the room that the program has made.
    fn grant(&mut self, driver: &mut Driver<'_>, stream: Stream) {
        let station = &self.0.station;
        let received = stream_words::get(station, stream, stream_words::RECEIVED);
        let unread = self.0.far(stream).outgoing().unacknowledged();
        let limit = received - unread.min(received) + WINDOW;
        let mut granted = stream_words::get(station, stream, stream_words::GRANTED);
        if limit >= granted + WINDOW / 4 {
            granted = limit;
            stream_words::set(station, stream, stream_words::GRANTED, limit);
            driver.grant(stream, limit - stream_words::get(station, stream, stream_words::IN_BASE));
        }
        self.is_narrow(stream, granted < received + WINDOW / 2);
    }

    /// Says what the peer must know before anything else; false: that is not said yet.
    fn say_begin(&mut self, driver: &mut Driver<'_>, stream: Stream, now: u64) -> bool {
        let station = &self.0.station;
        let flags = stream_words::flags(station, stream);
        if flags & flag::BIND_DUE != 0 {
            match station.opening(stream) {
                Opening::Pending => return false,
                Opening::Opened => driver.bind(stream, self),
                // Lost: the server's record will tell how it goes on.
                Opening::Refused(_) => {}
            }
            stream_words::lower(station, stream, flag::BIND_DUE);
        }
        if flags & flag::BEGIN_DUE != 0 {
            let said = match self.way(stream) {
                mode::BEGINNING => driver.begin(now, stream, stream_words::get(station, stream, stream_words::OUT_BASE)),
                _ => driver.begun(now, stream),
            };
            if !said {
                return false;
            }
            stream_words::lower(station, stream, flag::BEGIN_DUE);
        }
        true
    }

    /// Notes whether the peer may soon send no more, and would.
    fn is_narrow(&self, stream: Stream, narrow: bool) {
        let (word, bit) = (&self.0.common().narrow[stream as usize / 64], 1 << (stream % 64));
        if narrow != (word.load(Ordering::Relaxed) & bit != 0) {
            if narrow {
                word.fetch_or(bit, Ordering::Relaxed);
            } else {
                word.fetch_and(!bit, Ordering::Relaxed);
            }
        }
    }

    /// Gives the engine what waits in the near ring; true: everything.
    fn send(&mut self, driver: &mut Driver<'_>, stream: Stream, waiting: usize, now: u64) -> bool {
        let station = &self.0.station;
        let far = self.0.far(stream);
        let (sent, acknowledged) = (
            stream_words::get(station, stream, stream_words::SENT),
            stream_words::get(station, stream, stream_words::ACKNOWLEDGED),
        );
        let under_way = (sent - acknowledged) as usize;
        let mut left = waiting.saturating_sub(under_way);
        let mut skip = under_way;
        while left > 0 {
            let marked = far.peer().urgent.load(Ordering::Acquire);
            let mut most = left;
            if marked & mark::VALID != 0 && marked != stream_words::get(station, stream, stream_words::MARK) {
                let ahead = (marked & word::POSITION).wrapping_sub(sent + (skip - under_way) as u64) & word::POSITION;
                if ahead == 0 {
                    if !driver.urgent(now, stream, 0) {
                        return false;
                    }
                    stream_words::set(station, stream, stream_words::MARK, marked);
                } else if ahead < left as u64 {
                    most = ahead as usize;
                }
            }
            let mut at = skip;
            let taken = driver.send(now, stream, most, &mut |room: &mut [u8]| {
                let mut done = 0;
                while done < room.len() {
                    // SAFETY: room of ours; the station's lock is this side's receiving lock.
                    match unsafe { far.incoming().peek(at, room[done..].as_mut_ptr(), room.len() - done) } {
                        Ok(got) if got > 0 => {
                            done += got;
                            at += got;
                        }
                        _ => return false,
                    }
                }
                true
            });
            self.add(stream, stream_words::SENT, taken as u64);
            skip += taken;
            left -= taken;
            if taken < most {
                return false;
            }
        }
        true
    }

    /// Ends the side that the near one sees.
    pub fn close_near(&self, stream: Stream, bits: u64) {
        self.0.far(stream).outgoing().end(bits);
        self.tell(stream, arm::IN);
        self.tell(stream, arm::OUT);
    }

    /// Lets go of the stream when both ends have been said and heard, and the near side is closed.
    pub fn conclude(&self, stream: Stream) {
        let station = &self.0.station;
        let flags = stream_words::flags(station, stream);
        let both = flag::FIN_OUT | flag::FIN_IN;
        let said = flags & both == both
            && stream_words::get(station, stream, stream_words::SENT)
                == stream_words::get(station, stream, stream_words::ACKNOWLEDGED);
        let over = said || flags & (flag::RESET_OUT | flag::RESET_IN) != 0;
        let (base, _, channel) = self.0.place(stream);
        let closed = shunt_link::page(base, channel).sides[0].released.load(Ordering::Acquire) != release::NOT;
        if over && (closed || flags & flag::NEAR_GONE != 0) {
            // Its number is free when the keeper has closed its descriptors: else those would be taken for the next one's.
            stream_life::happens(station, stream, Event::Concluded);
            marks::wake_keeper(self.0);
        }
    }

    /// A stream whose client gave up is released when the station knows what became of it.
    fn settle_given_up(&mut self, driver: &mut Driver<'_>, stream: Stream, now: u64) {
        if self.0.station.opening(stream) != Opening::Pending {
            stream_life::happens(&self.0.station, stream, Event::GivenUpKnown);
            driver.release(now, stream);
        }
    }
}

/// Looks after all streams that are marked.
pub fn attend(local: &LocalStation, driver: &mut Driver<'_>) {
    let mut pump = Rings::of(local);
    for row in 0..stream_words::STREAMS / 64 {
        let common = local.common();
        let [dirty, owed] = [&common.dirty[row as usize], &common.owed[row as usize]];
        let mut bits = owed.load(Ordering::Relaxed) | common.narrow[row as usize].load(Ordering::Relaxed);
        if dirty.load(Ordering::Relaxed) != 0 {
            bits |= dirty.swap(0, Ordering::AcqRel);
        }
        if bits == 0 {
            continue;
        }
        owed.store(0, Ordering::Relaxed);
        while bits != 0 {
            pump.service(driver, row * 64 + bits.trailing_zeros());
            bits &= bits - 1;
        }
    }
}
