//! Offering a connection in memory: the client's and the server's half of a link's queue.
//!
//! ```text
//! client                                     server
//!   place the channel, count += 1              take the channel, count += 1
//!   FENCE                                      nothing waits? say that all bells are off
//!   were all bells that it rang taken off?     FENCE
//!     ring += 1, one byte on the bell          still nothing? take them off. Else say that they are not
//! ```
//!
//! So the bell is readable whenever an offer waits, which is what poll(2) on a listener means; and a client rings nothing
//! while a bell that it rang before is there, unless the server wants to hear of each ([`ring_each`]). How long bells stay is
//! the server's affair: a busy one that takes them off before it sleeps hears of hardly any. A thread that reports a listener as
//! ready looks into the queue.

use shunt_segment::offers::Offers;
use shunt_segment::sync::{fence, Ordering};
use shunt_segment::CHANNELS;

/// Bells that an honest client has on the line at most.
const MOST_BELLS: u32 = CHANNELS as u32 * 2;

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
    let rung = offers.published.rung.load(Ordering::Relaxed);
    let there = rung.wrapping_sub(offers.taken.bells.load(Ordering::Relaxed));
    if (1..=MOST_BELLS).contains(&there) && offers.taken.each.load(Ordering::Relaxed) == 0 {
        return Offered::Quiet;
    }
    offers.published.rung.store(rung.wrapping_add(1), Ordering::Release);
    Offered::Ring
}

/// The bell that [`publish`] asked for could not be rung: a count of bells that are not on the line would keep the next ones
/// silent.
pub fn rang_nothing(offers: &Offers) {
    let rung = offers.published.rung.load(Ordering::Relaxed);
    offers.published.rung.store(rung.wrapping_sub(1), Ordering::Release);
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

/// The server is done with the oldest offer.
pub fn take(offers: &Offers) {
    let count = offers.taken.count.load(Ordering::Relaxed).wrapping_add(1);
    offers.taken.count.store(count, Ordering::Release);
}

/// The number of bells that the server may take off now, because they were rung for offers that wait no longer. It says with
/// [`took_bells`] how many it found.
pub fn spent_bells(offers: &Offers) -> u32 {
    let rung = offers.published.rung.load(Ordering::Acquire);
    let before = offers.taken.bells.load(Ordering::Relaxed);
    let waiting = || offers.published.count.load(Ordering::Acquire).wrapping_sub(offers.taken.count.load(Ordering::Relaxed));
    let each = offers.taken.each.load(Ordering::Relaxed) != 0;
    if rung == before || (waiting() != 0 && !each) {
        return 0;
    }
    // Said before the last look: an offer that this does not see rings.
    offers.taken.bells.store(rung, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let spent = rung.wrapping_sub(before);
    let spent = match waiting() {
        0 => Some(spent),
        // Where each offer rings, the line must not fill up while the queue never empties: one stays for each that waits.
        waiting if each && waiting <= CHANNELS as u32 => spent.checked_sub(waiting),
        _ => Some(0),
    };
    // A client that lies about its bells: one at a time, and not for ever.
    let spent = spent.map_or(0, |spent| if spent <= MOST_BELLS { spent } else { 1 });
    offers.taken.bells.store(before.wrapping_add(spent), Ordering::Relaxed);
    spent
}

/// Whether a bell that is heard now is one that was counted: it is counted first.
pub fn counted(offers: &Offers) -> bool {
    offers.published.rung.load(Ordering::Acquire) != offers.taken.bells.load(Ordering::Relaxed)
}

/// Of `spent` bells the server found `found`: the others are to come.
pub fn took_bells(offers: &Offers, spent: u32, found: u32) {
    let late = spent.saturating_sub(found);
    offers.taken.bells.store(offers.taken.bells.load(Ordering::Relaxed).wrapping_sub(late), Ordering::Relaxed);
}

/// The server accepts up to `backlog` waiting offers from now on; 0: it stops, and a client that saw that has not offered, or
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

/// Whether the server has asked for a bell for each offer.
pub fn rings_each(offers: &Offers) -> bool {
    offers.taken.each.load(Ordering::Relaxed) != 0
}

/// The server begins with a queue that was another's, or that was not served for a while.
pub fn begin(offers: &Offers, backlog: u32) {
    offers.taken.count.store(offers.published.count.load(Ordering::Acquire), Ordering::Relaxed);
    offers.taken.bells.store(offers.published.rung.load(Ordering::Relaxed), Ordering::Relaxed);
    offers.taken.each.store(0, Ordering::Relaxed);
    set_backlog(offers, backlog);
}
