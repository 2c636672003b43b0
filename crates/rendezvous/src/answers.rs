//! What the kernel has answered lately about ports: bursts of connections to one server ask once.

use core::sync::atomic::{AtomicU32, Ordering};
use shunt_segment::address::Address;
use shunt_sys::clock;
use shunt_table::diag;
use shunt_table::global::LockedCell;

/// How long an answer of the kernel about a port is believed: a burst of connections asks once.
const BELIEVE_NS: u64 = 20_000_000;

/// How long a port is known to be a SO_REUSEPORT group's. Looking for its members again and again, each time by a few questions, would find
/// but one of them now and then, to which all connections would go for as long as that is believed.
const GROUP_NS: u64 = 1_000_000_000;

const ANSWERS: usize = 16;

/// The names that the kernel tells come in pieces of no more than this, in words.
const PIECE: usize = 2048;

/// What is believed of a port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// One listener has it.
    Alone,
    /// No process answered at the owner's rendezvous: a plain server.
    Plain,
    /// The kernel is to be asked for each connection which member of a group gets it.
    Group,
    /// The address is none of this host's.
    Elsewhere,
}

impl Found {
    /// How long that is believed, in ticks.
    pub(crate) fn lasts(self) -> u64 {
        clock::ticks_for_ns(if self == Found::Group { GROUP_NS } else { BELIEVE_NS })
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub server: Address,
    pub source: Address,
    pub owner: diag::Owner,
    pub found: Found,
    /// In ticks; 0: unused.
    pub until: u64,
}

const NO_ANSWER: Answer = Answer {
    server: Address { ip: [0; 16], port: 0, scope: 0 },
    source: Address { ip: [0; 16], port: 0, scope: 0 },
    owner: diag::Owner { inode: 0, uid: 0 },
    found: Found::Alone,
    until: 0,
};

/// What this process knows of its own connecting.
struct Connecting {
    /// Under the set-up lock.
    answers: LockedCell<[Answer; ANSWERS]>,
    /// Connections with a lent port for which the kernel was asked who listens. Under the set-up lock.
    walked: AtomicU32,
    /// Connects that the program has begun.
    begun: AtomicU32,
    /// The link, plus one, of a bid of which the server's program was told and that was withdrawn. Under the set-up lock.
    on_its_way: AtomicU32,
    /// Room for a piece of the names that the kernel tells. Under the set-up lock.
    piece: LockedCell<[u32; PIECE]>,
}

static CONNECTING: Connecting = Connecting {
    answers: LockedCell::new([NO_ANSWER; ANSWERS]),
    walked: AtomicU32::new(0),
    begun: AtomicU32::new(0),
    on_its_way: AtomicU32::new(0),
    piece: LockedCell::new([0; PIECE]),
};

pub(crate) fn remembered(server: &Address, now: u64) -> Option<&'static mut Answer> {
    // SAFETY: the set-up lock is held.
    let answers = unsafe { &mut *CONNECTING.answers.get() };
    // The counter begins anew when a machine wakes: no answer is from the future.
    answers.iter_mut().find(|a| a.until > now && a.until <= now + a.found.lasts() && a.server == *server)
}

pub(crate) fn remember(answer: Answer) {
    // SAFETY: the set-up lock is held.
    let answers = unsafe { &mut *CONNECTING.answers.get() };
    // Whatever seems to be from the future is from before the counter began anew, and would never be the oldest.
    let slot = answers.iter_mut().min_by_key(|a| if a.until > answer.until { 0 } else { a.until }).expect("never empty");
    *slot = answer;
}

/// The listeners may have changed: this process listens at another port, or lives in another network namespace. Under the set-up
/// lock.
pub fn forget_answers() {
    // SAFETY: the set-up lock is held.
    let answers = unsafe { &mut *CONNECTING.answers.get() };
    answers.iter_mut().for_each(|answer| answer.until = 0);
}

/// The program connects a socket: to a listener of this process perhaps, which it may poll next.
#[inline]
pub fn begins() {
    CONNECTING.begun.fetch_add(1, Ordering::Relaxed);
}

/// How many connects the program has begun.
#[inline]
pub fn begun() -> u32 {
    CONNECTING.begun.load(Ordering::Relaxed)
}

/// Steps of the walk through the ports so far; one more from now on. Under the set-up lock.
pub(crate) fn step() -> u32 {
    let walked = CONNECTING.walked.load(Ordering::Relaxed);
    CONNECTING.walked.store(walked.wrapping_add(1), Ordering::Relaxed);
    walked
}

/// The link of a bid that was withdrawn when the server's program had been told of it, plus one; 0: there is none. Under the set-up lock.
pub(crate) fn bid_on_its_way() -> &'static AtomicU32 {
    &CONNECTING.on_its_way
}

/// Room for a piece of the names that the kernel tells. Under the set-up lock.
pub(crate) fn piece() -> &'static LockedCell<[u32; PIECE]> {
    &CONNECTING.piece
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_is_believed_from_before_the_counter_began_anew() {
        let _setup = shunt_table::global::SETUP.lock().unwrap(); // other tests connect
        let lasts = clock::ticks_for_ns(BELIEVE_NS);
        let at = |port| Address::v4([127, 0, 0, 1], port);
        let old = 1 << 50;
        for port in 1..=ANSWERS as u16 {
            remember(Answer { server: at(port), until: old + port as u64 + lasts, ..NO_ANSWER });
        }
        assert!(remembered(&at(3), old + 3).is_some());
        assert!(remembered(&at(3), old + 4 + lasts).is_none(), "too old");
        assert!(remembered(&at(3), 1000).is_none(), "from before");
        let group = Answer { server: at(200), found: Found::Group, until: 1000 + Found::Group.lasts(), ..NO_ANSWER };
        remember(group);
        assert!(remembered(&at(200), 1000 + 2 * lasts).is_some(), "a group stays one");
        for port in [101, 102] {
            remember(Answer { server: at(port), until: 1000 + lasts, ..NO_ANSWER });
        }
        assert!([101, 102].iter().all(|&port| remembered(&at(port), 1001).is_some()));
        forget_answers();
    }
}
