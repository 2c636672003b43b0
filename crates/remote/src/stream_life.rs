//! The life of a stream to another host: which way its bytes go, and how it ends.
//!
//! ```text
//!              no token                 server's record
//! PROVISIONAL ─────────► TCP ◄──────────────┐   ▲
//!      │ token            ▲ both have       │   │ record
//!      ▼                  │ said what they  │   │
//!  BEGINNING ──────────┐  │ have        RESUMING ◄── path lost, large, or never begun
//!  (client)   BEGUN    ▼  │                 ▲   ▲
//!  CLAIMED ─────────► FAST ─────────────────┘   │
//!  (server)   BEGIN                             │
//!      └────────────────────────────────────────┘
//! ```
//!
//! Whatever changes the way, or brings an end nearer, is a row of [`TABLE`], and comes about by [`happens`]. `life.txt` is the graph of all that
//! the rows allow, drawn by a test.

use super::stream_words::{self, flag, mode, FLAGS, MODE};
use core::sync::atomic::Ordering;
use shunt_station::{Station, Stream};

/// What can happen to a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(test, derive(PartialOrd, Ord))]
pub enum Event {
    /// The client has connected, and its token lay there.
    ConnectedByToken,
    /// The client has connected, and its acceptor was not there yet.
    Connected,
    /// The server has accepted, and sent the token.
    Accepted,
    /// The token has come by TCP.
    TokenCame,
    /// Something else has come by TCP in its place, or none is to come.
    NoToken,
    /// The server has all bytes that the client sent before BEGIN.
    BeginReached,
    /// BEGIN has not come in time, or an end is to be said before it.
    NotBegun,
    /// BEGUN has come.
    Begun,
    /// The engine has no path to the peer any more.
    PathLost,
    /// The engine brought a reset.
    EngineReset,
    /// This end has found the stream large.
    FoundLarge,
    /// LEAVE has come.
    LeaveCame,
    /// LEAVE has come back: the peer does not know it.
    LeaveReturned,
    /// The peer's record has come while bytes went by the engine.
    RecordCame,
    /// This end has written its record.
    RecordWritten,
    /// Each end knows what the other has.
    Agreed,
    /// The peer has ended its direction.
    PeerEnded,
    /// The peer, or the loss of all paths to it, has ended both.
    PeerReset,
    /// Bytes came that the program does not take, or that nobody was allowed to send.
    Refused,
    /// The end of this direction was given to the engine, or to TCP.
    EndSaid,
    /// A reset was.
    ResetSaid,
    /// No process has the program's descriptor any more.
    ProgramGone,
    /// The program gave up connecting.
    GivenUp,
    /// The station knows what became of a stream that was given up.
    GivenUpKnown,
    /// The program was given the shadow.
    Lent,
    /// It has not taken it.
    LentInVain,
    /// It has, and has closed it since.
    LentAndClosed,
    /// There was no descriptor left for it.
    NoDescriptor,
    /// Both ends have been said and heard, and the program has closed its own.
    Concluded,
    /// A program that is gone has sent all by TCP, and its peer takes its time: the kernel ends the connection.
    LeftToKernel,
    /// The station has released it.
    Released,
}

/// A row: what an event does to a stream that goes one of some ways.
pub struct Transition {
    /// The event.
    pub event: Event,
    /// The ways on which it does that, a bit for each.
    pub on: u64,
    /// The flags that are all set then.
    pub needs: u64,
    /// The flags of which none is.
    pub unless: u64,
    /// The way from then on, if it is another one.
    pub way: Option<u64>,
    /// Flags that it sets.
    pub raises: u64,
    /// Flags that it takes away.
    pub lowers: u64,
}

const fn on(ways: &[u64]) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while at < ways.len() {
        bits |= 1 << ways[at];
        at += 1;
    }
    bits
}

/// A stream that was never connected or accepted has no way yet.
const NEW: u64 = 0;
const ANY: u64 = u64::MAX;

const fn row(event: Event, ways: u64) -> Transition {
    Transition { event, on: ways, needs: 0, unless: 0, way: None, raises: 0, lowers: 0 }
}

impl Transition {
    fn fits(&self, way: u64, flags: u64) -> bool {
        let way = 1u64.checked_shl(way as u32).unwrap_or(0);
        self.on & way != 0 && flags & self.needs == self.needs && flags & self.unless == 0
    }

    const fn needs(self, needs: u64) -> Self {
        Transition { needs, ..self }
    }
    const fn unless(self, unless: u64) -> Self {
        Transition { unless, ..self }
    }
    const fn to(self, way: u64) -> Self {
        Transition { way: Some(way), ..self }
    }
    const fn raises(self, raises: u64) -> Self {
        Transition { raises, ..self }
    }
    const fn lowers(self, lowers: u64) -> Self {
        Transition { lowers, ..self }
    }
}

use mode::{BEGINNING, CLAIMED, FAST, PROVISIONAL, RESUMING, TCP};
use Event::*;

/// All of them: the first row that fits counts, and where none does nothing happens.
pub const TABLE: [Transition; 38] = [
    row(ConnectedByToken, on(&[NEW])).to(BEGINNING).raises(flag::ACTIVE | flag::BEGIN_DUE | flag::BIND_DUE),
    row(Connected, on(&[NEW])).to(PROVISIONAL).raises(flag::ACTIVE),
    row(Accepted, on(&[NEW])).to(CLAIMED).raises(flag::ACTIVE),
    // An end that was said by TCP, where nothing can follow it, stays there: the server hears no BEGIN.
    row(TokenCame, on(&[PROVISIONAL])).needs(flag::FIN_OUT).to(BEGINNING),
    row(TokenCame, on(&[PROVISIONAL])).to(BEGINNING).raises(flag::BEGIN_DUE | flag::BIND_DUE),
    row(NoToken, on(&[PROVISIONAL])).to(TCP),
    row(BeginReached, on(&[CLAIMED])).to(FAST).raises(flag::BEGIN_DUE),
    row(NotBegun, on(&[CLAIMED])).to(RESUMING).raises(flag::NEVER_FAST),
    row(Begun, on(&[BEGINNING])).to(FAST).raises(flag::CATCH_UP),
    // A driver that was killed may have taken a sleeper's announcement, and not rung.
    row(PathLost, on(&[FAST])).to(RESUMING).raises(flag::RING),
    row(PathLost, on(&[CLAIMED])).to(RESUMING).raises(flag::RING | flag::NEVER_FAST),
    // Whether the server has heard of BEGIN is said in its record.
    row(PathLost, ANY).raises(flag::RING),
    row(EngineReset, on(&[FAST])).unless(flag::RESET_IN).raises(flag::RESET_IN),
    // The client goes on by TCP. On the other ways what becomes of the connection is seen there.
    row(EngineReset, on(&[CLAIMED])).to(RESUMING).raises(flag::NEVER_FAST),
    row(FoundLarge, on(&[FAST])).raises(flag::QUITS | flag::LEAVE_DUE),
    row(LeaveCame, on(&[FAST])).to(RESUMING).raises(flag::BULK),
    row(LeaveReturned, ANY).raises(flag::STAYS).lowers(flag::QUITS | flag::LEAVE_DUE | flag::COUNTS),
    row(RecordCame, on(&[FAST])).needs(flag::QUITS).to(RESUMING).raises(flag::BULK),
    row(RecordCame, on(&[BEGINNING, FAST])).to(RESUMING),
    row(RecordWritten, on(&[RESUMING])).raises(flag::RECORD_OUT),
    // What was said of an end by the engine is said again by TCP, behind the bytes that are sent again.
    row(Agreed, on(&[BEGINNING, RESUMING])).to(TCP).lowers(flag::FIN_OUT),
    row(PeerEnded, ANY).unless(flag::FIN_IN).raises(flag::FIN_IN),
    row(PeerReset, ANY).unless(flag::RESET_IN).raises(flag::RESET_IN),
    row(Refused, ANY).raises(flag::REFUSED),
    row(EndSaid, ANY).unless(flag::FIN_OUT).raises(flag::FIN_OUT),
    row(ResetSaid, ANY).raises(flag::RESET_OUT),
    row(ProgramGone, ANY).raises(flag::NEAR_GONE),
    row(GivenUp, ANY).raises(flag::GIVEN_UP),
    row(GivenUpKnown, ANY).needs(flag::GIVEN_UP).lowers(flag::GIVEN_UP),
    row(Lent, on(&[TCP])).needs(flag::ACTIVE).raises(flag::LENT).lowers(flag::ACTIVE),
    row(LentInVain, on(&[TCP])).needs(flag::LENT).unless(flag::OVER).raises(flag::ACTIVE).lowers(flag::LENT),
    row(LentAndClosed, on(&[TCP])).needs(flag::LENT).raises(flag::OVER),
    row(NoDescriptor, ANY).raises(flag::RESET_OUT | flag::OVER),
    row(Concluded, ANY).needs(flag::ACTIVE | flag::FIN_IN | flag::FIN_OUT).raises(flag::OVER).lowers(flag::ACTIVE),
    row(Concluded, ANY).needs(flag::ACTIVE | flag::RESET_IN).raises(flag::OVER).lowers(flag::ACTIVE),
    row(Concluded, ANY).needs(flag::ACTIVE | flag::RESET_OUT).raises(flag::OVER).lowers(flag::ACTIVE),
    row(LeftToKernel, on(&[TCP])).needs(flag::ACTIVE | flag::NEAR_GONE | flag::FIN_OUT).raises(flag::OVER).lowers(flag::ACTIVE),
    row(Released, ANY).needs(flag::OVER).lowers(flag::OVER),
];

/// The row by which `event` changes a stream on this `way`, with these `flags`.
fn transition(event: Event, way: u64, flags: u64) -> Option<&'static Transition> {
    TABLE.iter().find(|row| row.event == event && row.fits(way, flags))
}

/// `event` happens to `stream`; true: it changes something. The way is changed by the holder of the station's lock alone, flags by anyone.
///
/// A thread without the lock that finds the flags of a new way finds the way, too; of what is made [`flag::ACTIVE`] it finds the way first.
#[cold]
pub fn happens(station: &Station, stream: Stream, event: Event) -> bool {
    let way = stream_words::way(station, stream);
    let mut row = None;
    let first = stream_words::flags(station, stream);
    if let Some(to) = transition(event, way, first).filter(|row| row.raises & flag::ACTIVE != 0).and_then(|row| row.way) {
        stream_words::set(station, stream, MODE, to);
    }
    let change = |flags: u64| {
        row = transition(event, way, flags);
        row.map(|row| flags & !row.lowers | row.raises)
    };
    if stream_words::word(station, stream, FLAGS).fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_err() {
        return false;
    }
    if let Some(to) = row.and_then(|row| row.way) {
        stream_words::set(station, stream, MODE, to);
    }
    true
}

#[cfg(test)]
#[path = "tests/stream_life.rs"]
mod tests;
