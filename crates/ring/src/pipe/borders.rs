//! In which ring a receiver's next bytes lie: the borders at which the sender changed to another one.

use super::{class_of, distance, switch_of, Pipe, Trouble, POSITION};
use shunt_segment::area::{CLASSES, RING_SIZE};
use shunt_segment::sync::Ordering::{Acquire, Relaxed};

impl Pipe<'_> {
    /// The class of ring that holds the bytes at `position`, and how many of the `waiting` ones lie in it.
    ///
    /// Each change between the newest that we are known to have passed and the one that `word` tells of has a border; the
    /// first that lies before us counts. Behind the last of them lies the ring of `word`.
    #[inline(always)]
    pub(super) fn readable(&self, position: u64, word: u64, waiting: usize) -> Result<(usize, usize), Trouble> {
        let mut class = class_of(word);
        let mut available = waiting;
        let mut number = self.own.receive.switch.load(Relaxed) & 7;
        while number != switch_of(word) {
            number = (number + 1) & 7;
            let border = self.peer.borders[number as usize].load(Acquire);
            let ahead = distance(position, border & POSITION) as usize;
            if switch_of(border) == number && 0 < ahead && ahead < waiting {
                class = class_of(border);
                available = ahead;
                break;
            }
        }
        if class >= CLASSES || available > RING_SIZE[class] as usize {
            return Err(Trouble::Violation);
        }
        Ok((class, available))
    }

    /// Remembers that all bytes from our position on lie in the class that `word` tells, if they do: then the border
    /// need not be read again.
    #[inline(always)]
    pub(crate) fn note_switch(&self, word: u64, passed: bool) {
        let number = switch_of(word);
        if passed && self.own.receive.switch.load(Relaxed) != number {
            self.own.receive.switch.store(number, Relaxed);
        }
    }

    /// Remembers which changes of class lie behind us. Numbers of changes come again after eight: a receiver that never did so
    /// would look for the wrong ones.
    pub(super) fn note_passed(&self) {
        let receive = &self.own.receive;
        let (word, _) = self.look();
        let position = receive.position.load(Relaxed) & POSITION;
        let known = receive.switch.load(Relaxed) & 7;
        let mut number = known;
        while number != switch_of(word) {
            let next = (number + 1) & 7;
            let border = self.peer.borders[next as usize].load(Acquire);
            let ahead = distance(position, border & POSITION);
            if switch_of(border) != next || (0 < ahead && ahead < 1 << 47) {
                break;
            }
            number = next;
        }
        if number != known {
            receive.switch.store(number, Relaxed);
        }
    }
}
