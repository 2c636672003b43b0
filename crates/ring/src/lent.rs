//! Bytes that are lent for as long as a send lasts, and how they are taken back: one word that both ends look at.
//!
//! ```text
//! sender                                                    receiver
//!   word (LENT), position: the bytes lie in its memory        copies them from there
//!   copies what was not taken into the link                   looks whether the word is the same
//!   word | KEPT; returns, and its program writes anew         it is not: copies again, from the link
//! ```
//!
//! A receiver that finds the word unchanged behind its copy has read nothing that was written after it changed; so the sender waits for
//! no answer, and a receiver that sleeps or is stopped in the middle of a copy holds no sender up.

use shunt_segment::channel::references::{place, Record};
use shunt_segment::sync::{fence, Ordering};

/// Takes the bytes of the record back whose word is `word`: all that was not taken is in the link. The caller holds the sending lock.
///
/// What was put into the link is seen by a receiver that sees the word ([`seen`] pairs). The fence orders the word before whatever the program
/// writes next; a locked instruction, since writes past the caches are in no order with plain ones.
pub fn take_back(record: &Record, word: u64) {
    record.place.swap(word | place::KEPT, Ordering::AcqRel);
    fence(Ordering::Release);
}

/// What a receiver finds that has copied bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// They are what was sent.
    Unchanged,
    /// They may be others: those that were sent are in the link.
    TakenBack,
    /// No honest sender's word.
    Nonsense,
}

/// Looks whether the word of the record is still `word`, behind a copy of its bytes and before they are said to be taken. The fence pairs with
/// that of [`take_back`].
pub fn seen(record: &Record, word: u64) -> Seen {
    fence(Ordering::Acquire);
    match record.place.load(Ordering::Acquire) {
        now if now == word => Seen::Unchanged,
        now if now == word | place::KEPT => Seen::TakenBack,
        _ => Seen::Nonsense,
    }
}
