//! Taking bytes out of a ring, or looking at them.

use super::{distance, Pipe, Trouble, CHUNK, KNOWN_CLASS, KNOWN_SHIFT, POSITION};
use crate::short::Attempt;
use shunt_segment::area::{ring_offset, REFERRED};
use shunt_segment::sync::Ordering::{Acquire, Relaxed, Release};
use shunt_sys::thread;

impl Pipe<'_> {
    /// The peer's word, and how many bytes wait. The caller looks at the flags when no byte is left.
    #[inline(always)]
    pub fn look(&self) -> (u64, usize) {
        let word = self.peer.post.word.load(Acquire);
        let position = self.own.receive.position.load(Relaxed);
        (word, distance(position, word & POSITION) as usize)
    }

    /// Takes up to `length` bytes into `target`; gives their number, 0 when none wait.
    ///
    /// Bytes that were announced when we last looked are taken without looking again: a sender that is ahead keeps its
    /// line to itself. Bytes whose target faults stay; 0 bytes may mean a fault ([`thread::take_fault`]).
    ///
    /// # Safety
    /// The caller holds the side's receiving lock. `target` may be any address that is not ours.
    #[inline(always)]
    pub unsafe fn receive(&self, target: *mut u8, length: usize) -> Result<usize, Trouble> {
        // SAFETY: passed on.
        unsafe {
            match self.receive_short::<false>(target, length) {
                Attempt::Moved(taken) => Ok(taken),
                _ => self.receive_ring(target, length, self.own.receive.class.load(Relaxed), true),
            }
        }
    }

    /// As [`Pipe::receive`], for a caller who knows that `length` bytes wait, and that the peer's urgent byte is none of
    /// them.
    ///
    /// # Safety
    /// As for [`Pipe::receive`].
    pub unsafe fn receive_within(&self, target: *mut u8, length: usize) -> Result<usize, Trouble> {
        let known = self.own.receive.class.load(Relaxed);
        // SAFETY: passed on.
        unsafe { self.receive_ring(target, length, known, false) }
    }

    /// Leaves out the byte that is next, if one waits; the caller holds the side's receiving lock.
    pub fn skip(&self) {
        if self.look().1 > 0 {
            self.pass(1);
        }
    }

    #[inline(never)]
    unsafe fn receive_ring(
        &self,
        mut target: *mut u8,
        length: usize,
        mut known: u32,
        heed_marks: bool,
    ) -> Result<usize, Trouble> {
        let mut left = length;
        while left > 0 {
            let position = self.own.receive.position.load(Relaxed) & POSITION;
            if known >> KNOWN_SHIFT == 0 {
                let (word, waiting) = self.look();
                if waiting == 0 || (heed_marks && self.peer.urgent.load(Acquire) != 0) {
                    break;
                }
                if let Some(from) = self.beside(word, waiting) {
                    let part = waiting.min(left);
                    // SAFETY: part fits the caller's buffer, and from + waiting <= INLINE.
                    if !unsafe { self.get_inline(from, target, part) } {
                        if left == length {
                            thread::note_fault();
                        }
                        break;
                    }
                    self.note_switch(word, true);
                    self.consume(part, 0);
                    target = target.wrapping_add(part);
                    left -= part;
                    continue;
                }
                let (class, available) = self.readable(position, word, waiting)?;
                self.note_switch(word, available == waiting);
                known = (available as u32) << KNOWN_SHIFT | class as u32;
            }
            let Some(ring) = self.ring((known & KNOWN_CLASS) as usize) else {
                if left == length {
                    return Err(Trouble::Unmapped);
                }
                // The caller may map it, or copy from elsewhere, and come for the rest.
                match (known & KNOWN_CLASS) as usize {
                    REFERRED => self.own.receive.class.store(known, Relaxed),
                    _ => self.window.ask(),
                }
                break;
            };
            // The bound is checked again because the word lies in shared memory from one call to the next.
            let available = ((known >> KNOWN_SHIFT) as usize).min(ring.size as usize);
            let part = available.min(left).min(CHUNK);
            // SAFETY: part fits the caller's buffer and the ring.
            if !unsafe { ring.get(position, target, part) } {
                if left == length {
                    thread::note_fault();
                }
                // What is known was perhaps only now learnt, and is not yet noted: it will be learnt again.
                break;
            }
            target = target.wrapping_add(part);
            known -= (part as u32) << KNOWN_SHIFT;
            self.consume(part, known);
            left -= part;
        }
        Ok(length - left)
    }

    /// Copies up to `length` waiting bytes, `skip` bytes from the front, without taking them (MSG_PEEK). 0 bytes may mean
    /// a fault ([`thread::take_fault`]).
    ///
    /// # Safety
    /// As for [`Pipe::receive`].
    pub unsafe fn peek(&self, mut skip: usize, mut target: *mut u8, length: usize) -> Result<usize, Trouble> {
        let (word, waiting) = self.look();
        let mut position = self.own.receive.position.load(Relaxed) & POSITION;
        let mut waiting = waiting;
        let mut left = length;
        if let Some(from) = self.beside(word, waiting) {
            let part = waiting.saturating_sub(skip).min(length);
            // SAFETY: part fits the caller's buffer; with bytes left, from + skip + part <= INLINE.
            if part > 0 && !unsafe { self.get_inline(from + skip, target, part) } {
                thread::note_fault();
                return Ok(0);
            }
            return Ok(part);
        }
        while left > 0 && waiting > 0 {
            let (class, available) = self.readable(position, word, waiting)?;
            if skip >= available {
                skip -= available;
                position = position.wrapping_add(available as u64) & POSITION;
                waiting -= available;
                continue;
            }
            let Some(ring) = self.ring(class) else {
                if left == length {
                    return Err(Trouble::Unmapped);
                }
                if class != REFERRED {
                    self.window.ask();
                }
                break;
            };
            let available = available.min(ring.size as usize);
            let jump = skip.min(available);
            let part = (available - jump).min(left);
            // SAFETY: part fits the caller's buffer and the ring.
            if !unsafe { ring.get(position.wrapping_add(jump as u64), target, part) } {
                if left == length {
                    thread::note_fault();
                }
                break;
            }
            target = target.wrapping_add(part);
            skip -= jump;
            left -= part;
            position = position.wrapping_add((jump + part) as u64) & POSITION;
            waiting -= jump + part;
        }
        Ok(length - left)
    }

    /// Gives `part` bytes of space back, and remembers what is known of those behind them. The Release pairs with the
    /// Acquire in [`Pipe::refresh_ack`]. What is known goes first: a receiver that is killed in between leaves too
    /// little of it, which does no harm.
    #[inline(always)]
    pub(crate) fn consume(&self, part: usize, known: u32) {
        let receive = &self.own.receive;
        receive.class.store(known, Relaxed);
        receive.position.store(receive.position.load(Relaxed).wrapping_add(part as u64), Release);
    }

    /// Where the next bytes to receive lie in the link's file, behind `skip` of them: offset and length, in one piece. For
    /// a process that cannot map their window.
    pub fn next_in_file(&self, skip: usize) -> Result<(usize, usize), Trouble> {
        let (word, waiting) = self.look();
        if waiting <= skip {
            return Ok((0, 0));
        }
        let position = (self.own.receive.position.load(Relaxed) + skip as u64) & POSITION;
        let (class, available) = self.readable(position, word, waiting - skip)?;
        let at = position as usize & (Self::size(class) - 1);
        Ok((ring_offset(self.channel, self.sender, class) + at, available.min(Self::size(class) - at)))
    }

    /// Takes `length` of the bytes that [`Pipe::peek`] gave or [`Pipe::next_in_file`] told of; the caller holds the side's
    /// receiving lock.
    pub fn pass(&self, length: usize) {
        self.consume(length, 0);
        self.note_passed();
    }
}
