//! Which streams are large: those are left to TCP, where the engine's device is the kernel's UDP.
//!
//! What the kernel's UDP costs for each byte is several times what TCP costs where it hands large pieces to the device; what it
//! costs for a message there and back is half of that. So 64 KiB of a stream by TCP save about as much time as one round trip by UDP
//! ([figures](../../../../docs/decisions/0050-streams-that-send-much-are-left-to-tcp.md)), and the two are counted against each other:
//!
//! ```text
//! score   + bytes that the peer took while more than 64 KiB waited in the ring behind them
//!         - 64 KiB for each answer to a sender that was not ahead
//! ```
//!
//! At the option `bulk` (4 MiB; the 64 KiB are a 64th of it) the stream goes on by TCP: what the change costs, and what it would cost if
//! nothing but round trips followed, is little against so many bytes. Requests and answers that fit the 64 KiB never get there, whatever
//! their rate; nor does a stream on a path that loses packets, where the engine has more bandwidth than TCP.
//!
//! ```text
//! the end that finds it large                               the other end
//!   sends no more by the engine; LEAVE, behind all ─────►   has all: takes no acknowledgement any more
//!   what comes is taken until then      ◄══════ record ══   [super::tcp_fallback]
//!   takes no acknowledgement any more   ══ record ══════►   each goes on by TCP behind the other's number
//! ```
//!
//! The path is there all the while, and acknowledges bytes that no side keeps. So each end takes acknowledgements only as long as
//! the other keeps what it gets: that one has sent all when it hears LEAVE, and this one has nothing under way. If both say LEAVE
//! each does at LEAVE what the other end does. An end that knows no LEAVE returns it, and the stream stays.

use super::local_station::LocalStation;
use super::pump::Rings;
use super::stream_life::{self, Event};
use super::stream_words::{self, flag, mode};
use core::sync::atomic::Ordering;
use shunt_segment::channel::{state, word};
use shunt_station::{Driver, Stream};
use shunt_table::global;

/// How many times an answer outweighs the option.
const ANSWERS: u64 = 64;
/// Acknowledgements of fewer bytes are no bulk, unless the option asks for that: the ring is not looked at.
const LEAST: u64 = 4096;

/// Bytes after which a stream is large; `None`: none is.
fn limit(local: &LocalStation) -> Option<u64> {
    Some(global::options().bulk).filter(|bulk| *bulk > 0 && local.station.is_over_udp())
}

impl Rings<'_> {
    /// The peer has taken `count` bytes more, which stand in the ring still, before those that wait behind them.
    pub(super) fn count(&self, stream: Stream, count: u64) {
        let Some(limit) = limit(self.0).filter(|_| stream_words::flags(&self.0.station, stream) & flag::STAYS == 0) else {
            return;
        };
        if count < LEAST.min(limit / ANSWERS) {
            return;
        }
        let (_, waiting) = self.0.far(stream).incoming().look();
        if (waiting as u64).saturating_sub(count) > limit / ANSWERS {
            stream_words::raise(&self.0.station, stream, flag::COUNTS);
            self.add(stream, stream_words::SCORE, count);
        }
    }

    /// Bytes came, for a stream that has a score.
    #[cold]
    pub(super) fn answered(&self, stream: Stream) {
        let (station, Some(limit)) = (&self.0.station, limit(self.0)) else { return };
        let sent = stream_words::get(station, stream, stream_words::SENT);
        let (_, waiting) = self.0.far(stream).incoming().look();
        if sent == stream_words::get(station, stream, stream_words::ANSWERED) || waiting as u64 > limit / ANSWERS {
            return; // no answer, or not to all that was sent
        }
        stream_words::set(station, stream, stream_words::ANSWERED, sent);
        let score = stream_words::get(station, stream, stream_words::SCORE).saturating_sub(limit / ANSWERS);
        stream_words::set(station, stream, stream_words::SCORE, score);
        if score == 0 {
            stream_words::lower(station, stream, flag::COUNTS);
        }
    }

    /// Whether a stream that is large is to be left to TCP, and can be. Its ends have not been said, and its program is one process that can
    /// take the connection over; what others share goes through the keeper in any case.
    pub(super) fn is_to_be_left(&self, driver: &mut Driver<'_>, stream: Stream) -> bool {
        let station = &self.0.station;
        if limit(self.0).is_none_or(|limit| stream_words::get(station, stream, stream_words::SCORE) < limit) {
            return false;
        }
        let ends = flag::FIN_IN | flag::FIN_OUT | flag::RESET_IN | flag::RESET_OUT | flag::NEAR_GONE | flag::REFUSED;
        let far = self.0.far(stream);
        let near_word = far.incoming().look().0;
        let shared = far.peer().receive.state.load(Ordering::Acquire) & (state::SHARED | state::OWNED) != 0;
        let busy = stream_words::flags(station, stream) & (ends | flag::BEGIN_DUE | flag::BIND_DUE | flag::CATCH_UP) != 0
            || near_word & (word::FIN | word::CLOSED | word::RST) != 0;
        if shared || busy || stream_words::way(station, stream) != mode::FAST || driver.is_lossy(stream) {
            stream_words::set(station, stream, stream_words::SCORE, 0); // it has to become so once more
            stream_words::lower(station, stream, flag::COUNTS);
            return false;
        }
        true
    }

    /// Says LEAVE, and nothing behind it; true: that is all there is to say.
    pub(super) fn quits(&self, driver: &mut Driver<'_>, stream: Stream, now: u64) -> bool {
        let station = &self.0.station;
        let flags = stream_words::flags(station, stream);
        if flags & (flag::COUNTS | flag::QUITS) == flag::COUNTS && self.is_to_be_left(driver, stream) {
            stream_life::happens(station, stream, Event::FoundLarge);
        }
        let flags = stream_words::flags(station, stream);
        if flags & flag::LEAVE_DUE != 0 && driver.say_leave(now, stream) {
            stream_words::lower(station, stream, flag::LEAVE_DUE);
        }
        flags & flag::QUITS != 0
    }
}
