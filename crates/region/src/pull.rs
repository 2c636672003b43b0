//! One copy by two: while a sender's call lasts the receiver copies chunks straight out of the sender's buffer, from the front, and
//! the sender copies chunks into a buffer of the system's, from the back. Each chunk is copied for good by one of them.
//!
//! ```text
//!   0        done     front             back           chunks
//!   | copied   | claimed by the receiver  |  copied, or being copied, by the sender
//! ```
//!
//! The sender never waits for the receiver: when its own copying has met the receiver's, and the receiver does not finish the
//! chunk that it has claimed, the sender revokes that and copies it itself. The word is one of shared memory, so a peer can write
//! anything there: what it says can only make the sender copy more, or the receiver get bytes that its peer could have sent.

use shunt_segment::sync::{AtomicU64, Ordering};

/// Chunks of one message at most.
pub const MOST: u16 = u16::MAX - 1;

/// The word of one message.
#[derive(Debug)]
pub struct Pull(AtomicU64);

#[derive(Clone, Copy)]
struct Marks {
    serial: u16,
    done: u16,
    front: u16,
    back: u16,
}

impl Marks {
    fn of(word: u64) -> Marks {
        Marks { serial: word as u16, done: (word >> 16) as u16, front: (word >> 32) as u16, back: (word >> 48) as u16 }
    }
    fn word(self) -> u64 {
        self.serial as u64 | (self.done as u64) << 16 | (self.front as u64) << 32 | (self.back as u64) << 48
    }
    fn sound(self, serial: u16) -> bool {
        self.serial == serial && self.done <= self.front && self.front <= self.back
    }
}

impl Pull {
    /// No message.
    pub fn new() -> Pull {
        Pull(AtomicU64::new(0))
    }

    /// Sender: message `serial` (never 0) of `chunks` chunks can be pulled.
    pub fn begin(&self, serial: u16, chunks: u16) {
        self.0.store(Marks { serial, done: 0, front: 0, back: chunks }.word(), Ordering::Release);
    }

    fn change(&self, serial: u16, change: impl Fn(Marks) -> Option<Marks>) -> Option<Marks> {
        let mut before = self.0.load(Ordering::Acquire);
        loop {
            let marks = Marks::of(before);
            let after = change(marks).filter(|_| marks.sound(serial))?;
            match self.0.compare_exchange(before, after.word(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(marks),
                Err(now) => before = now,
            }
        }
    }

    /// Receiver: the next chunk from the front, to be copied now.
    pub fn claim(&self, serial: u16) -> Option<u16> {
        let before = self.change(serial, |marks| {
            (marks.front < marks.back && marks.front == marks.done).then(|| Marks { front: marks.front + 1, ..marks })
        });
        before.map(|before| before.front)
    }

    /// Receiver: it has copied `chunk`. False: it was revoked; the sender's copy counts.
    pub fn finish(&self, serial: u16, chunk: u16) -> bool {
        self.change(serial, |marks| (marks.front == chunk + 1 && marks.done == chunk).then(|| Marks { done: chunk + 1, ..marks }))
            .is_some()
    }

    /// Sender: the next chunk from the back, to be copied now; `back` is the sender's own count of what is left.
    pub fn take(&self, serial: u16, back: &mut u16) -> bool {
        let mine = *back;
        let taken =
            self.change(serial, |marks| (marks.back == mine && marks.front < mine).then(|| Marks { back: mine - 1, ..marks }));
        if taken.is_some() {
            *back = mine - 1;
        }
        taken.is_some()
    }

    /// Sender: how far the receiver has come, claimed chunks counted; `u16::MAX`: no honest receiver's word.
    pub fn progress(&self, serial: u16) -> u16 {
        let marks = Marks::of(self.0.load(Ordering::Acquire));
        if marks.sound(serial) {
            marks.front.saturating_add(marks.done)
        } else {
            u16::MAX
        }
    }

    /// Sender: whether the receiver has finished all below `back`. A word that no honest receiver leaves: no.
    pub fn is_met(&self, serial: u16, back: u16) -> bool {
        let marks = Marks::of(self.0.load(Ordering::Acquire));
        marks.sound(serial) && marks.back == back && marks.done == back
    }

    /// Sender: what the receiver has not finished is the sender's. Gives the first such chunk: all from there on are to be in the
    /// system's buffer; where nothing can be believed, 0. After this the message is not pulled any more.
    pub fn revoke(&self, serial: u16, back: u16) -> u16 {
        let before =
            self.change(serial, |marks| (marks.back == back).then_some(Marks { front: marks.done, back: marks.done, ..marks }));
        match before {
            Some(before) => before.done,
            None => {
                self.0.store(0, Ordering::Release);
                0
            }
        }
    }

    /// Receiver: the first chunk that lies in the system's buffer, once the sender says that it is complete.
    pub fn border(&self, serial: u16) -> Option<u16> {
        let marks = Marks::of(self.0.load(Ordering::Acquire));
        marks.sound(serial).then_some(marks.back)
    }
}

/// Sender: looks at a receiver that does not go on. Its progress only grows, and so it ends: a word that a peer changes on and on is none.
#[derive(Debug, Default)]
pub struct Stall {
    seen: u16,
    looks: u32,
}

impl Stall {
    /// How many in a row, with this one, have seen no `progress` ([`Pull::progress`]).
    pub fn look(&mut self, progress: u16) -> u32 {
        if progress > self.seen && progress < u16::MAX {
            *self = Stall { seen: progress, looks: 0 };
        } else {
            self.looks += 1;
        }
        self.looks
    }
}

impl Default for Pull {
    fn default() -> Pull {
        Pull::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn both_meet_in_the_middle() {
        let pull = Pull::new();
        pull.begin(7, 4);
        let mut back = 4;
        assert_eq!((pull.claim(7), pull.claim(7), pull.take(7, &mut back)), (Some(0), None, true));
        assert!(pull.finish(7, 0) && pull.take(7, &mut back));
        assert_eq!((pull.claim(7), back), (Some(1), 2));
        assert!(!pull.take(7, &mut back) && !pull.is_met(7, back));
        assert!(pull.finish(7, 1) && pull.is_met(7, back));
        assert_eq!((pull.claim(7), pull.border(7), pull.claim(8)), (None, Some(2), None));
    }

    #[test]
    fn a_word_that_goes_to_and_fro_is_no_progress() {
        let mut stall = Stall::default();
        assert_eq!([1, 1, 3, 3, 3].map(|progress| stall.look(progress)), [0, 1, 0, 1, 2]);
        assert_eq!([0, 3, 0, 3, u16::MAX, 0].map(|progress| stall.look(progress)), [3, 4, 5, 6, 7, 8]);
        assert_eq!(stall.look(4), 0);
    }

    #[test]
    fn a_receiver_that_stalls_loses_its_chunk() {
        let pull = Pull::new();
        pull.begin(1, 2);
        let mut back = 2;
        assert_eq!(pull.claim(1), Some(0));
        assert!(pull.take(1, &mut back));
        assert_eq!(pull.revoke(1, back), 0);
        assert!(!pull.finish(1, 0));
        assert_eq!(pull.border(1), Some(0));
    }

    #[test]
    fn a_word_that_was_scribbled_on_makes_the_sender_copy_all() {
        let pull = Pull::new();
        pull.begin(1, 2);
        pull.0.store(u64::MAX, Ordering::Relaxed);
        let mut back = 2;
        assert!(!pull.take(1, &mut back) && !pull.is_met(1, back));
        assert_eq!(pull.revoke(1, back), 0);
    }
}
