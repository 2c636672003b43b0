//! In which ring a receiver's next bytes lie: the borders at which the sender changed to another one.

use super::{class_of, distance, referred, switch_of, Pipe, Trouble, POSITION};
use shunt_segment::area::{CLASSES, REFERRED, RING_SIZE};
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
            return match class {
                REFERRED if available <= referred::MOST => Ok((class, available)),
                _ => Err(Trouble::Violation),
            };
        }
        Ok((class, available))
    }

    /// Copies bytes that this side has sent to `target`: from `position` on up to that of `word`, as many as lie in one ring and as there is room
    /// for; their number. `None`: the ring does not hold them any more. The caller keeps others from sending.
    ///
    /// # Safety
    /// `target` has room for `length` bytes.
    pub unsafe fn copy_sent(&self, position: u64, word: u64, target: *mut u8, length: usize) -> Option<usize> {
        let left = distance(position, word & POSITION) as usize;
        let (mut class, mut available) = (class_of(word), left);
        for step in 1..=8 {
            let number = (switch_of(word) + step) & 7;
            let border = self.own.borders[number as usize].load(Relaxed);
            let ahead = distance(position, border & POSITION) as usize;
            if switch_of(border) == number && 0 < ahead && ahead < left {
                (class, available) = (class_of(border), ahead);
                break;
            }
        }
        let ring = self.ring(class).filter(|ring| available <= ring.size as usize && class < CLASSES)?;
        let part = available.min(length);
        // SAFETY: promised by the caller; part fits the ring.
        unsafe { ring.get(position, target, part) }.then_some(part)
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
