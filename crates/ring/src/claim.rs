//! Whose a channel is that was offered: the client lends it to one connection after another, and may take an offer back, and
//! offer the channel to another connection, while the server takes it.
//!
//! ```text
//! client                                     server
//!   pair and generation of the next            which generation is offered?
//!   OFFERED                                    OFFERED to ACCEPTED
//!   takes back: OFFERED to FREE                another generation by now? then OFFERED again: it is not what was meant
//! ```
//!
//! The server has found a companion for one generation: with another's the client would speak to no process.

use shunt_segment::channel::{life, Head};
use shunt_segment::sync::Ordering;

/// The client lends the channel, which is not offered, to a connection with a companion of its own.
pub fn renew(head: &Head) -> u32 {
    let generation = head.generation.load(Ordering::Relaxed).wrapping_add(1);
    crate::cut::clear(head);
    head.pair.store(generation, Ordering::Relaxed);
    head.generation.store(generation, Ordering::Release);
    generation
}

/// The channel's generation is this one, as if it had been [`renew`]ed so often. Before it is offered.
pub fn rename(head: &Head, generation: u32) {
    head.pair.store(generation, Ordering::Relaxed);
    head.generation.store(generation, Ordering::Release);
}

/// The generation that is offered on the companion of an earlier one, if any is.
pub fn on_kept(head: &Head) -> Option<u32> {
    if head.state.load(Ordering::Acquire) != life::OFFERED {
        return None;
    }
    let generation = head.generation.load(Ordering::Acquire);
    (generation != head.pair.load(Ordering::Relaxed)).then_some(generation)
}

/// Whether `generation` is offered.
pub fn is_offered(head: &Head, generation: u32) -> bool {
    head.state.load(Ordering::Acquire) == life::OFFERED && head.generation.load(Ordering::Acquire) == generation
}

/// The server takes the offer of `generation`. False: it was taken back, or taken by another process.
pub fn accept(head: &Head, generation: u32) -> bool {
    if head.generation.load(Ordering::Acquire) != generation || !change(head, life::OFFERED, life::ACCEPTED) {
        return false;
    }
    let meant = head.generation.load(Ordering::Relaxed) == generation;
    if !meant {
        change(head, life::ACCEPTED, life::OFFERED);
    }
    meant
}

/// The client takes its offer back. False: it was accepted.
pub fn take_back(head: &Head) -> bool {
    change(head, life::OFFERED, life::FREE)
}

fn change(head: &Head, from: u32, to: u32) -> bool {
    head.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}
