//! Offering a connection in memory: the client's and the server's half of a link's queue.
//!
//! ```text
//! client                                     server
//!   place the channel, count += 1              take the channel, count += 1
//!   FENCE                                      was it the last? note the bells rung before that
//!   had the server taken all before it?        FENCE
//!     ring += 1, one byte on the bell          still the last? take those bells off
//! ```
//!
//! So the bell is readable whenever an offer waits, which is what poll(2) on a listener means; and a client that offers
//! while others wait rings nothing, unless the server wants to hear of each ([`ring_each`]). The bell may stay readable a
//! moment longer than an offer waits: whoever reports a listener as ready looks into the queue.

use shunt_segment::offers::Offers;
use shunt_segment::sync::{fence, Ordering};
use shunt_segment::CHANNELS;

/// What came of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offered {
    /// The server knows that something waits.
    Quiet,
    /// The caller must write one byte to the bell.
    Ring,
    /// The server closed its listener at that moment: it may or may not have seen the offer.
    Closed,
}

/// Whether the server would take another offer now. For the client, the only one who publishes.
pub fn open(offers: &Offers) -> bool {
    let most = (offers.taken.backlog.load(Ordering::Acquire) as usize).min(CHANNELS);
    let waiting = offers.published.count.load(Ordering::Relaxed).wrapping_sub(offers.taken.count.load(Ordering::Acquire));
    (waiting as usize) < most
}

/// The client offers `channel`; the queue was [`open`].
pub fn publish(offers: &Offers, channel: usize) -> Offered {
    let count = offers.published.count.load(Ordering::Relaxed);
    offers.published.channels[count as usize % CHANNELS].store(channel as u32, Ordering::Relaxed);
    offers.published.count.store(count.wrapping_add(1), Ordering::Release);
    fence(Ordering::SeqCst);
    if offers.taken.backlog.load(Ordering::Relaxed) == 0 {
        return Offered::Closed;
    }
    if offers.taken.count.load(Ordering::Relaxed) != count && offers.taken.each.load(Ordering::Relaxed) == 0 {
        return Offered::Quiet;
    }
    let rung = offers.published.rung.load(Ordering::Relaxed);
    offers.published.rung.store(rung.wrapping_add(1), Ordering::Release);
    Offered::Ring
}

/// How many offers wait, as far as the client can be believed.
pub fn waiting(offers: &Offers) -> usize {
    let count = offers.published.count.load(Ordering::Acquire).wrapping_sub(offers.taken.count.load(Ordering::Relaxed));
    if count as usize <= CHANNELS {
        count as usize
    } else {
        0
    }
}

/// The channel that the oldest offer names. It stays there until [`take`].
pub fn oldest(offers: &Offers) -> Option<usize> {
    if waiting(offers) == 0 {
        return None;
    }
    let count = offers.taken.count.load(Ordering::Relaxed);
    Some(offers.published.channels[count as usize % CHANNELS].load(Ordering::Relaxed) as usize % CHANNELS)
}

/// The server is done with the oldest offer. Gives the number of bells that it may take off now, because nothing waits
/// any more; it says with [`took_bells`] how many it found.
pub fn take(offers: &Offers) -> u32 {
    let count = offers.taken.count.load(Ordering::Relaxed).wrapping_add(1);
    offers.taken.count.store(count, Ordering::Release);
    spent_bells(offers)
}

/// The number of bells that were rung for offers which wait no longer.
pub fn spent_bells(offers: &Offers) -> u32 {
    // Bells counted before the queue is seen empty were rung for offers that had been taken by then.
    let rung = offers.published.rung.load(Ordering::Acquire);
    fence(Ordering::SeqCst);
    let mut spent = rung.wrapping_sub(offers.taken.bells.load(Ordering::Relaxed));
    let count = offers.published.count.load(Ordering::Acquire);
    let waiting = count.wrapping_sub(offers.taken.count.load(Ordering::Relaxed));
    if waiting != 0 {
        // Where each offer rings, the line must not fill up while the queue never empties: one stays for each that waits.
        if offers.taken.each.load(Ordering::Relaxed) == 0 || waiting > CHANNELS as u32 {
            return 0;
        }
        spent = spent.checked_sub(waiting).filter(|&rest| rest <= CHANNELS as u32 * 2).unwrap_or(0);
    }
    if spent <= CHANNELS as u32 * 2 {
        spent
    } else {
        1 // a client that lies about its bells: one at a time, and not for ever
    }
}

/// Whether a bell that is heard now is one that was counted: it is counted first.
pub fn counted(offers: &Offers) -> bool {
    offers.published.rung.load(Ordering::Acquire) != offers.taken.bells.load(Ordering::Relaxed)
}

/// Bells that the server took off.
pub fn took_bells(offers: &Offers, count: u32) {
    offers.taken.bells.store(offers.taken.bells.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// The server accepts up to `backlog` waiting offers from now on; 0: it stops, and whoever saw that has not offered, or
/// sees [`Offered::Closed`], or its offer is seen by the caller's look at [`waiting`] afterwards.
pub fn set_backlog(offers: &Offers, backlog: u32) {
    offers.taken.backlog.store(backlog, Ordering::Release);
    fence(Ordering::SeqCst);
}

/// The server wants a bell for each offer from now on: those that see this later ring. What waits has rung as before.
pub fn ring_each(offers: &Offers) {
    offers.taken.each.store(1, Ordering::Release);
    fence(Ordering::SeqCst);
}

/// The server begins with a queue that was another's, or that nobody served for a while.
pub fn begin(offers: &Offers, backlog: u32) {
    offers.taken.count.store(offers.published.count.load(Ordering::Acquire), Ordering::Relaxed);
    offers.taken.bells.store(offers.published.rung.load(Ordering::Relaxed), Ordering::Relaxed);
    offers.taken.each.store(0, Ordering::Relaxed);
    set_backlog(offers, backlog);
}
