//! Making a connection in memory with whichever of several processes is ready to accept.
//!
//! ```text
//! client                                     acceptor
//!   OPEN, and the channels of idle pairs        a channel of which it has the other end?
//!   waits a moment                              claims the pair: KEPT to NOT
//!   TAKEN, and the channel?                     clears the channel for the next connection
//!    yes: connected                             OPEN to TAKEN. No longer open: gives the pair back
//!    no: OPEN to none, the kernel connects
//! ```
//!
//! An acceptor that waits in poll or in a set takes nothing: it tells its program that a client is there. It says so in the word, one
//! acceptor for each bid, and the client waits longer. If the program does not accept all the same, the client says that it is
//! on its way through the kernel (COMING) until it has arrived there: what was told stays true.
//!
//! One compare-and-swap is accept. What the client withdraws no acceptor has, so a bid never waits for an acceptor that is busy,
//! and none that was killed takes a connection with it but the one that it has accepted. An acceptor may still be about to find that
//! out when the client lends the channel anew: the side that changes the word that says that the pair is idle has it.

use shunt_segment::bid::Bid;
use shunt_segment::channel::{release, Side};
use shunt_segment::sync::Ordering;

const OPEN: u64 = 1 << 40;
const TAKEN: u64 = 2 << 40;
const COMING: u64 = 3 << 40;
const STATE: u64 = 3 << 40;
/// Beside OPEN: an acceptor has told its program.
const TOLD: u64 = 1 << 42;
const CHANNEL_SHIFT: u32 = 32;
const NUMBER: u64 = 1 << 48;
const NUMBERS: u64 = !(NUMBER - 1);

/// The client asks for one of the pairs of `channels`, one bit each. Gives the word for [`close`].
pub fn open(bid: &Bid, channels: u32, now: u64) -> u64 {
    let number = (bid.word.load(Ordering::Relaxed) & NUMBERS).wrapping_add(NUMBER);
    let word = number | OPEN | channels as u64;
    bid.began.store(now, Ordering::Relaxed);
    bid.word.store(word, Ordering::Release);
    word
}

/// Whether the bid has been taken.
pub fn is_taken(bid: &Bid, word: u64) -> bool {
    bid.word.load(Ordering::Relaxed) & !TOLD != word
}

/// Whether an acceptor's program was told of the bid, and is about to accept.
pub fn is_told(bid: &Bid) -> bool {
    bid.word.load(Ordering::Relaxed) & TOLD != 0
}

/// What became of a bid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// The pair of this channel was taken.
    Taken(usize),
    /// No acceptor has it.
    InVain,
    /// No acceptor has it, but the program of one was told: [`arrived`] follows.
    Told,
}

/// The client waits no longer.
pub fn close(bid: &Bid, word: u64) -> Closed {
    let number = word & NUMBERS;
    let withdraw = |now: u64, next: u64| bid.word.compare_exchange(now, next, Ordering::AcqRel, Ordering::Acquire);
    let now = match withdraw(word, number) {
        Ok(_) => return Closed::InVain,
        Err(now) => now,
    };
    let now = match withdraw(word | TOLD, number | COMING) {
        Ok(_) => return Closed::Told,
        Err(_) if now == word | TOLD => bid.word.load(Ordering::Acquire),
        Err(now) => now,
    };
    let channel = (now >> CHANNEL_SHIFT) as usize & 0xff;
    // An acceptor may write what it likes.
    if now & STATE == TAKEN && channel < 32 && word & 1 << channel != 0 {
        Closed::Taken(channel)
    } else {
        Closed::InVain
    }
}

/// A client that was [`Closed::Told`] has connected through the kernel, or cannot.
pub fn arrived(bid: &Bid) {
    let word = bid.word.load(Ordering::Relaxed);
    if word & STATE == COMING {
        bid.word.store(word & NUMBERS, Ordering::Release);
    }
}

/// A bid that waits: its word, which names the channels in its low half.
pub fn look(bid: &Bid) -> Option<u64> {
    let word = bid.word.load(Ordering::Acquire);
    (word & STATE == OPEN).then_some(word)
}

/// Which bid a word tells of; never 0.
pub fn number(word: u64) -> u64 {
    word & NUMBERS | 1
}

/// The acceptor is about to tell its program of the bid. False: another one has, or it waits no longer.
pub fn tell(bid: &Bid, word: u64) -> bool {
    word & TOLD == 0 && bid.word.compare_exchange(word, word | TOLD, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Whether the client of bid `number` is on its way through the kernel.
pub fn is_coming(bid: &Bid, number: u64) -> bool {
    let word = bid.word.load(Ordering::Acquire);
    word & STATE == COMING && self::number(word) == number
}

/// The acceptor takes the bid, with the pair of `channel`, which it has claimed. False: it waits no longer.
pub fn take(bid: &Bid, word: u64, channel: usize) -> bool {
    let taken = word & NUMBERS | TAKEN | (channel as u64) << CHANNEL_SHIFT;
    let exchange = |from: u64| bid.word.compare_exchange(from, taken, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    exchange(word) || (word & TOLD == 0 && exchange(word | TOLD))
}

/// Whether the acceptor has the idle pair of these `sides`, and the channel with it.
pub fn claim(sides: &[Side; 2]) -> bool {
    let kept = || sides[0].released.load(Ordering::Acquire) == release::KEPT;
    if !kept() || sides[1].released.compare_exchange(release::KEPT, release::NOT, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return false;
    }
    if !kept() {
        // Lent meanwhile to a connection that another acceptor has closed, and the client has not.
        sides[1].released.store(release::KEPT, Ordering::Release);
        return false;
    }
    true
}

/// The pair is idle again.
pub fn give_back(sides: &[Side; 2]) {
    sides[0].released.store(release::KEPT, Ordering::Relaxed);
    sides[1].released.store(release::KEPT, Ordering::Release);
}

/// The client uses a channel, which both sides have released, for something else. False: an acceptor has claimed its pair.
pub fn withhold(server: &Side) -> bool {
    server.released.compare_exchange(release::KEPT, release::CLOSED, Ordering::AcqRel, Ordering::Acquire) != Err(release::NOT)
}
