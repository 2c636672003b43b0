//! What messages have cost, by their lengths: the choice between copying and its alternative goes to what was cheaper lately.
//!
//! Measured costs of operations say where the two cross for buffers in caches. Whether a buffer is in a cache, and whether its reader is
//! quick, shows in nothing but the time that messages take. So now and then two messages in a row are timed, one by each way: often at
//! first, less often the longer the one stays ahead, and often again when its time has changed.

/// The alternative to copying, of which each has lengths of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Against {
    /// Pulling, for a call that may wait; until the receiver has all.
    Waiting = 0,
    /// TCOW of small pages, for a call that returns at once; the sender's own time.
    Tcow = 1,
    /// TCOW of huge pages.
    HugeTcow = 2,
}

/// One message, by its way: to be timed or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// By the alternative; else copied.
    pub other: bool,
    /// [`Learned::note`] is to hear what it took.
    pub timed: bool,
}

/// Lengths are told apart by powers of two, up to 16 MiB.
const LENGTHS: usize = 25;
/// Messages between two that are timed, at first and at most.
const OFTEN: u16 = 4;
const SELDOM: u16 = 256;
/// A time counts for so much of what is remembered.
const PART: f32 = 0.25;
/// What is so much cheaper stays ahead; else both are timed often.
const CLEARLY: f32 = 1.1;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Nanoseconds, copied and by the other way; 0: not known.
    costs: [f32; 2],
    /// Messages until the next that is timed; the one after it is timed, too, by the other way.
    left: u16,
    period: u16,
    /// What is chosen while nothing is known, and what is ahead since.
    ahead: bool,
    /// The second of the two that are timed comes next.
    second: bool,
}

/// What is known.
#[derive(Clone, Debug)]
pub struct Learned([[Entry; LENGTHS]; 3]);

fn class(length: usize) -> usize {
    (length.max(1).ilog2() as usize).min(LENGTHS - 1)
}

impl Learned {
    /// Nothing. `prior` says which is likely ahead.
    pub fn new(prior: impl Fn(Against, usize) -> bool) -> Learned {
        let entry = |against, class| {
            let ahead = prior(against, 3usize << class >> 1);
            Entry { costs: [0.0; 2], left: 0, period: OFTEN, ahead, second: false }
        };
        Learned(
            [Against::Waiting, Against::Tcow, Against::HugeTcow]
                .map(|against| core::array::from_fn(|class| entry(against, class))),
        )
    }

    /// The way of the next message of so many bytes.
    pub fn next(&mut self, against: Against, length: usize) -> Turn {
        let entry = &mut self.0[against as usize][class(length)];
        if entry.second {
            entry.second = false;
            return Turn { other: !entry.ahead, timed: true };
        }
        if entry.left == 0 {
            entry.left = entry.period;
            entry.second = true;
            return Turn { other: entry.ahead, timed: true };
        }
        entry.left -= 1;
        Turn { other: entry.ahead, timed: false }
    }

    /// What copying such a message takes; 0: that is not known.
    pub fn copied(&self, against: Against, length: usize) -> f32 {
        self.0[against as usize][class(length)].costs[0]
    }

    /// What a message that was to be timed took.
    pub fn note(&mut self, against: Against, length: usize, other: bool, nanoseconds: f32) {
        let entry = &mut self.0[against as usize][class(length)];
        let known = &mut entry.costs[other as usize];
        // An interruption is milliseconds, and no message's.
        let took = if *known > 0.0 { nanoseconds.min(*known * 2.0) } else { nanoseconds };
        *known = if *known > 0.0 { *known + (took - *known) * PART } else { took };
        let [copied, alternative] = entry.costs;
        if copied == 0.0 || alternative == 0.0 {
            return;
        }
        entry.ahead = alternative < copied;
        // A time that is off, by which the cheaper way would be cheaper all the same, says nothing: times on a machine in use are often off, and
        // each message that goes the dearer way to be timed costs more.
        let rival = entry.costs[!other as usize];
        let doubtful = if other == entry.ahead { nanoseconds * CLEARLY > rival } else { nanoseconds < rival * CLEARLY };
        if doubtful || alternative.max(copied) < alternative.min(copied) * CLEARLY {
            entry.period = OFTEN;
        } else if other != entry.ahead {
            entry.period = (entry.period * 2).min(SELDOM);
        }
        entry.left = entry.left.min(entry.period);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `count` messages that take what `cost` says; gives how many went by the cheaper way.
    fn right(learned: &mut Learned, count: usize, cost: impl Fn(bool) -> f32) -> usize {
        let mut right = 0;
        for _ in 0..count {
            let turn = learned.next(Against::Waiting, 70_000);
            right += (cost(turn.other) <= cost(!turn.other)) as usize;
            if turn.timed {
                learned.note(Against::Waiting, 70_000, turn.other, cost(turn.other));
            }
        }
        right
    }

    #[test]
    fn the_cheaper_way_is_taken_whatever_was_expected_and_again_when_it_changes() {
        for expected in [false, true] {
            let mut learned = Learned::new(|_, _| expected);
            let copying = |other: bool| if other { 5_000.0 } else { 3_000.0 };
            let first = right(&mut learned, 40, copying);
            assert!(first >= 30, "{first} of 40");
            assert!(right(&mut learned, 2_000, copying) >= 1_970);
            let alternative = |other: bool| if other { 5_000.0 } else { 30_000.0 };
            let later = right(&mut learned, 2_000, alternative);
            assert!(later >= 1_500, "{later} of 2000");
        }
    }

    /// Every other time is twice as long as the one before, of which neither is as long as the dearer way takes.
    #[test]
    fn what_is_clearly_dearer_is_seldom_tried_however_much_times_vary() {
        let (mut learned, mut turns, mut tried) = (Learned::new(|_, _| false), 0, 0);
        for _ in 0..2_000 {
            let turn = learned.next(Against::Waiting, 70_000);
            tried += turn.other as usize;
            if turn.timed {
                turns += 1;
                let noise = if turns / 2 % 2 == 0 { 1.0 } else { 2.0 };
                learned.note(Against::Waiting, 70_000, turn.other, noise * if turn.other { 12_000.0 } else { 3_000.0 });
            }
        }
        assert!(tried <= 20, "{tried} of 2000");
    }

    #[test]
    fn an_interruption_changes_nothing() {
        let mut learned = Learned::new(|_, _| true);
        let copying = |other: bool| if other { 5_000.0 } else { 3_000.0 };
        right(&mut learned, 100, copying);
        learned.note(Against::Waiting, 70_000, false, 4_000_000.0);
        assert!(!learned.next(Against::Waiting, 70_000).other || right(&mut learned, 20, copying) >= 14);
        assert!(right(&mut learned, 200, copying) >= 180);
    }
}
