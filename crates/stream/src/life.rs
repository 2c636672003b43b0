//! The life of a stream, as one side of it sees it: what can happen to it, and what that leaves for the calls that follow.
//!
//! A side ends by words that both sides read (FIN, CLOSED, RST: [`shunt_segment::channel::word`]) and by bits that all owners of one side share
//! ([`state`]). Whatever ends a stream otherwise than by the peer's word is a row of [`TABLE`], and comes about by [`happens`].
//! `tests/life.txt` is the graph of all that two ends can do to each other, drawn by a test that does it.

use core::sync::atomic::Ordering;
use shunt_segment::channel::{state, Side};

/// What can happen to a side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// shutdown(2) of the receiving half, by an owner.
    ReadShut,
    /// The peer reset the connection.
    PeerReset,
    /// The peer reset it, having announced its end before.
    PeerResetLate,
    /// The peer vanished, and had read all that was sent.
    PeerVanished,
    /// The peer vanished with bytes unread, without accepting, or with SO_LINGER of no time.
    PeerVanishedOwing,
    /// The same behind its own end, or while bytes were sent to it.
    PeerVanishedLate,
    /// Bytes were sent to a peer that has closed.
    SentBehindClose,
    /// Bytes were sent to a peer that has shut both halves.
    Refused,
    /// Nothing was taken for as long as TCP_USER_TIMEOUT.
    TimedOut,
    /// The peer wrote nonsense into shared memory; the call that found it has the error.
    Distrusted,
    /// The peer, or this side, wrote past its library.
    BrokenOff,
    /// A relay was killed with bytes of the stream.
    RelayLost,
    /// An owner dissolved the connection (connect to AF_UNSPEC).
    Dissolved,
}

/// What an event does to a side.
pub struct Transition {
    /// The event.
    pub event: Event,
    /// It is nothing where one of these bits is set.
    pub unless: u32,
    /// The bits that it sets.
    pub sets: u32,
    /// Why the calls that follow say what they say: the kernel's function that says so, or the design's reason.
    pub because: &'static str,
}

/// No more is sent or received, and nothing that comes of the peer is looked at.
const OVER: u32 = state::DONE | state::END_NOTED;
/// What is left for the next call: ECONNRESET, or EPIPE for a send.
const RESET: u32 = state::RESET_DUE | OVER;
const PIPE: u32 = state::PIPE_DUE | OVER;
const VANISHED: u32 = state::PEER_GONE | state::DONE;

const fn row(event: Event, unless: u32, sets: u32, because: &'static str) -> Transition {
    Transition { event, unless, sets, because }
}

/// All of them, in the order of [`Event`].
pub const TABLE: [Transition; 13] = [
    row(Event::ReadShut, 0, state::SHUT_RD, "tcp_shutdown does nothing; inet_shutdown sets RCV_SHUTDOWN"),
    row(Event::PeerReset, state::END_NOTED, RESET, "tcp_reset: ECONNRESET"),
    row(Event::PeerResetLate, state::END_NOTED, PIPE, "tcp_reset in CLOSE_WAIT: EPIPE"),
    row(Event::PeerVanished, VANISHED, state::PEER_GONE, "exit closes: tcp_close sends FIN"),
    row(Event::PeerVanishedOwing, VANISHED, state::PEER_GONE | RESET, "exit closes: tcp_close with unread bytes sends RST"),
    row(Event::PeerVanishedLate, VANISHED, state::PEER_GONE | PIPE, "the same, found in CLOSE_WAIT"),
    row(Event::SentBehindClose, 0, PIPE, "tcp_rcv_state_process answers bytes by RST, found in CLOSE_WAIT"),
    row(Event::Refused, 0, PIPE, "tcp_rcv_state_process in FIN_WAIT2 with RCV_SHUTDOWN, after RFC 1122"),
    row(Event::TimedOut, 0, state::TIMED_OUT | RESET, "tcp_write_err: ETIMEDOUT"),
    row(Event::Distrusted, 0, OVER, "memory that the peer writes is checked, never believed"),
    row(Event::BrokenOff, state::DONE, RESET, "bytes of two ways cannot be put in order"),
    row(Event::RelayLost, 0, RESET, "bytes that nobody can find"),
    row(Event::Dissolved, 0, state::DISSOLVED | RESET, "tcp_disconnect, for the other owners"),
];

/// `event` happens to a side of a stream: its state behind that, and whether the event did anything.
#[cold]
pub fn happens(side: &Side, event: Event) -> (u32, bool) {
    let Transition { unless, sets, .. } = TABLE[event as usize];
    let change = |now: u32| (now & unless == 0).then_some(now | sets);
    match side.receive.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, change) {
        Ok(before) => (before | sets, true),
        Err(now) => (now, false),
    }
}

/// In which of TCP's states a program finds a stream ([`crate::waiting::readiness::phase`], TCP_INFO): the others pass within one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// Both directions are open.
    Established = 1,
    /// This side has ended its direction.
    FinWait2 = 5,
    /// Both have, or the connection was reset.
    Close = 7,
    /// The peer has ended its direction, and all before that was received.
    CloseWait = 8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_their_events() {
        for (at, row) in TABLE.iter().enumerate() {
            assert_eq!(row.event as usize, at, "{:?}", row.event);
        }
    }

    #[test]
    fn an_end_leaves_at_most_one_error() {
        for row in &TABLE {
            let errors = row.sets & (state::RESET_DUE | state::PIPE_DUE);
            assert!(errors.count_ones() <= 1, "{:?}", row.event);
            // An error is told of a connection that is over, and what is over is not looked at again.
            assert!(errors == 0 || row.sets & OVER == OVER, "{:?}", row.event);
        }
    }
}
