//! The pump: side 1 of a stream's channel, moved by whoever holds the station's lock.
//!
//! Bytes of the near ring stay there until the peer has them: how many were given to the engine stands in a word beside
//! ([`words::SENT`]), and the ring's own position is that of the acknowledged ones. Positions of rings are those of streams: an
//! urgent byte is told first, by its position, and then sent in its place.

use super::home::Home;
use super::near;
use super::words::{self, flag};
use crate::{urgent, wait};
use core::sync::atomic::Ordering;
use shunt_am::Data;
use shunt_segment::area::RING_SIZE;
use shunt_segment::channel::{arm, release, urgent as mark, word};
use shunt_station::{Driver, Opening, Pump, Stream};
use shunt_sys::clock;

/// The largest ring of these links: the last one that lies in the base.
pub const CLASS: usize = 3;

/// Bytes that a peer may send before the program has read any.
pub const WINDOW: u64 = RING_SIZE[CLASS] as u64;

/// Bytes that are copied at once from where they lie in pieces.
const PIECE: usize = 4096;

/// The pump of this process.
pub struct Rings<'a>(pub &'a Home);

impl Rings<'_> {
    fn active(&self, stream: Stream) -> bool {
        stream < words::STREAMS && words::flags(&self.0.station, stream) & (flag::ACTIVE | flag::OVER) == flag::ACTIVE
    }

    fn add(&self, stream: Stream, which: usize, count: u64) {
        let value = words::get(&self.0.station, stream, which);
        words::set(&self.0.station, stream, which, value + count);
    }

    /// Wakes whoever sleeps on the near side for `conditions`.
    fn tell(&self, stream: Stream, conditions: u32) {
        wait::notify(self.0.far(stream), self.0.far_fd(stream), conditions);
    }

    /// The peer, or the way to it, ended both directions.
    fn broken(&self, stream: Stream) {
        let station = &self.0.station;
        if words::raise(station, stream, flag::RESET_IN) & flag::RESET_IN != 0 {
            return;
        }
        let out = self.0.far(stream).outgoing();
        let announced = out.announced();
        let late = if announced & word::FIN != 0 { word::LATE } else { 0 };
        out.end(word::RST | word::FIN | word::CLOSED | late);
        self.tell(stream, arm::IN);
        self.tell(stream, arm::OUT);
        near::mark(self.0, stream);
    }
}

impl Pump for Rings<'_> {
    fn bytes(&mut self, stream: Stream, data: Data<'_>) {
        if !self.active(stream) {
            return;
        }
        let far = self.0.far(stream);
        let closed = far.incoming().look().0 & word::CLOSED != 0;
        near::mark(self.0, stream);
        if closed || words::flags(&self.0.station, stream) & (flag::NEAR_GONE | flag::RESET_IN) != 0 {
            words::raise(&self.0.station, stream, flag::REFUSED);
            return;
        }
        let length = data.len();
        let mut room = [0u8; PIECE];
        let mut done = 0;
        while done < length {
            let part = match data.as_slice() {
                Some(bytes) => &bytes[done..],
                None => {
                    let part = &mut room[..PIECE.min(length - done)];
                    if !data.copy_to(done, part) {
                        break;
                    }
                    &*part
                }
            };
            // SAFETY: plain memory of ours; the station's lock is this side's sending lock.
            let put = unsafe { far.outgoing().send(part.as_ptr(), part.len()) };
            if put == 0 {
                break;
            }
            done += put;
        }
        self.add(stream, words::RECEIVED, done as u64);
        if done < length {
            // More than was granted, or a program that wrote over its own ring.
            words::raise(&self.0.station, stream, flag::REFUSED);
        }
        self.tell(stream, arm::IN);
    }

    fn finished(&mut self, stream: Stream) {
        if self.active(stream) && words::raise(&self.0.station, stream, flag::FIN_IN) & flag::FIN_IN == 0 {
            self.0.far(stream).outgoing().end(word::FIN);
            self.tell(stream, arm::IN);
            near::mark(self.0, stream);
        }
    }

    fn reset(&mut self, stream: Stream) {
        if self.active(stream) {
            self.broken(stream);
        }
    }

    fn urgent(&mut self, stream: Stream, position: u64, _byte: u8) {
        if self.active(stream) && position == words::get(&self.0.station, stream, words::RECEIVED) {
            let far = self.0.far(stream);
            urgent::mark(far);
            self.tell(stream, arm::IN);
        }
    }

    fn acknowledged(&mut self, stream: Stream, upto: u64) {
        if !self.active(stream) {
            return;
        }
        let station = &self.0.station;
        let (known, sent) = (words::get(station, stream, words::ACKNOWLEDGED), words::get(station, stream, words::SENT));
        if upto <= known || upto > sent {
            return;
        }
        words::set(station, stream, words::ACKNOWLEDGED, upto);
        self.0.far(stream).incoming().pass((upto - known) as usize);
        self.tell(stream, arm::OUT);
        near::mark(self.0, stream);
    }

    fn writable(&mut self, driver: &mut Driver<'_>, stream: Stream) {
        self.service(driver, stream);
    }

    fn lost(&mut self, stream: Stream) {
        if self.active(stream) {
            self.broken(stream);
        }
    }
}

impl Rings<'_> {
    /// Does for a stream what is to be done: sends what waits, grants room, says and concludes ends.
    pub fn service(&mut self, driver: &mut Driver<'_>, stream: Stream) {
        let station = &self.0.station;
        let now = clock::monotonic_ns();
        let flags = words::flags(station, stream);
        if flags & flag::GIVEN_UP != 0 {
            return self.settle_given_up(driver, stream, now);
        }
        if !self.active(stream) {
            return;
        }
        let far = self.0.far(stream);
        let (near_word, waiting) = far.incoming().look();
        let gone = flags & flag::NEAR_GONE != 0;
        if flags & (flag::RESET_IN | flag::RESET_OUT) == 0 {
            let received = words::get(station, stream, words::RECEIVED);
            let unread = far.outgoing().unacknowledged();
            let reset =
                near_word & word::RST != 0 || flags & flag::REFUSED != 0 || (gone && near_word & word::CLOSED == 0 && unread > 0);
            if reset {
                if driver.reset(now, stream) {
                    words::raise(station, stream, flag::RESET_OUT);
                    self.close_near(stream, word::RST | word::FIN | word::CLOSED);
                }
            } else {
                let all = self.send(driver, stream, waiting, now);
                let ended = near_word & (word::FIN | word::CLOSED) != 0 || gone;
                if all && ended && flags & flag::FIN_OUT == 0 && driver.finish(now, stream) {
                    words::raise(station, stream, flag::FIN_OUT);
                }
                let limit = received - unread.min(received) + WINDOW;
                let mut granted = words::get(station, stream, words::GRANTED);
                if limit >= granted + WINDOW / 4 {
                    granted = limit;
                    words::set(station, stream, words::GRANTED, limit);
                    driver.grant(stream, limit);
                }
                self.note_room(stream, received, granted);
            }
        }
        self.conclude(driver, stream, now);
    }

    /// Notes whether the peer may soon send no more.
    fn note_room(&self, stream: Stream, received: u64, granted: u64) {
        let (word, bit) = (&self.0.common().narrow[stream as usize / 64], 1 << (stream % 64));
        let narrow = granted < received + WINDOW / 2;
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
        let (sent, acknowledged) = (words::get(station, stream, words::SENT), words::get(station, stream, words::ACKNOWLEDGED));
        let under_way = (sent - acknowledged) as usize;
        let mut left = waiting.saturating_sub(under_way);
        let mut skip = under_way;
        while left > 0 {
            let marked = far.peer().urgent.load(Ordering::Acquire);
            let mut most = left;
            if marked & mark::VALID != 0 && marked != words::get(station, stream, words::MARK) {
                let ahead = (marked & word::POSITION).wrapping_sub(sent + (skip - under_way) as u64) & word::POSITION;
                if ahead == 0 {
                    if !driver.urgent(now, stream, 0) {
                        return false;
                    }
                    words::set(station, stream, words::MARK, marked);
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
            self.add(stream, words::SENT, taken as u64);
            skip += taken;
            left -= taken;
            if taken < most {
                return false;
            }
        }
        true
    }

    /// Ends the side that the near one sees.
    fn close_near(&self, stream: Stream, bits: u64) {
        self.0.far(stream).outgoing().end(bits);
        self.tell(stream, arm::IN);
        self.tell(stream, arm::OUT);
    }

    /// Lets go of the stream when both ends have been said and heard, and the near side is closed.
    fn conclude(&mut self, driver: &mut Driver<'_>, stream: Stream, now: u64) {
        let station = &self.0.station;
        let flags = words::flags(station, stream);
        let both = flag::FIN_OUT | flag::FIN_IN;
        let said =
            flags & both == both && words::get(station, stream, words::SENT) == words::get(station, stream, words::ACKNOWLEDGED);
        let over = said || flags & (flag::RESET_OUT | flag::RESET_IN) != 0;
        let (base, _, channel) = self.0.place(stream);
        let closed = crate::link::page(base, channel).sides[0].released.load(Ordering::Acquire) != release::NOT;
        if over && (closed || flags & flag::NEAR_GONE != 0) {
            driver.release(now, stream);
            words::lower(station, stream, flag::ACTIVE);
            words::raise(station, stream, flag::OVER);
            near::wake_keeper(self.0);
        }
    }

    /// A stream whose client gave up is released when the station knows what became of it.
    fn settle_given_up(&mut self, driver: &mut Driver<'_>, stream: Stream, now: u64) {
        if self.0.station.opening(stream) != Opening::Pending {
            words::lower(&self.0.station, stream, flag::GIVEN_UP);
            driver.release(now, stream);
        }
    }
}
