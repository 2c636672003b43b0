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

use shunt_segment::channel::references::{at, place, Record};
use shunt_segment::channel::word::POSITION;
use shunt_segment::sync::{fence, Ordering};

/// A record of this connection: its word, and the position of its first byte. One that is written meanwhile is none.
pub fn read(record: &Record, generation: u64) -> Option<(u64, u64)> {
    let start = record.at.load(Ordering::Acquire);
    // Acquire, too: of a word that says that bytes are in the link, and before the second look.
    let word = record.place.load(Ordering::Acquire);
    let is_whole = record.at.load(Ordering::Relaxed) == start;
    (is_whole && start >> at::GENERATION_SHIFT == generation).then_some((word, start & POSITION))
}

/// Writes a record of which nothing waits, and which is none of the connection's meanwhile: a receiver in the middle of another one must not take the old
/// position with the new length. It stays none if this process is killed in between.
pub fn write(record: &Record, generation: u64, position: u64, word: u64) {
    // Of a connection that is far away.
    record.at.store((generation ^ (1 << 15)) << at::GENERATION_SHIFT, Ordering::Relaxed);
    record.place.store(word, Ordering::Release); // behind that
    record.at.store(position | generation << at::GENERATION_SHIFT, Ordering::Release);
}

/// Takes the bytes of the record back whose word is `word`: all that was not taken is in the link. The caller holds the sending lock.
///
/// What was put into the link is seen by a receiver that sees the word ([`seen`] pairs). The fence orders the word before whatever the program
/// writes next; a locked instruction, since writes past the caches are in no order with plain ones.
pub fn take_back(record: &Record, word: u64) {
    record.place.swap(word | place::KEPT, Ordering::AcqRel);
    fence(Ordering::Release);
}

/// The bytes of the record can neither be lent any longer nor put into the link: what a receiver copies from now on is nonsense. As [`take_back`].
pub fn lose(record: &Record) {
    record.place.swap(0, Ordering::AcqRel);
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
