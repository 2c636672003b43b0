//! Which channel each line has, of those that the links hold one behind the other.
//!
//! Lines are few: each has an engine, and is looked after by the thread that drives. Channels are many: that of a stream whose connection the program has as the
//! kernel's again *stands* as it is until the program closes that, since calls of other threads may look at it still, and its line is free at once.
//!
//! ```text
//! free ─► a line's ─► stands (with the far end of its companion) ─► free, when the near side has let go of it
//!            └──────────────────────────────────────────────────► free
//! ```

use core::sync::atomic::{AtomicI32, AtomicU16, AtomicU32, Ordering::Relaxed};

/// So many channels are looked at in turn whether they stand no longer, whenever one is taken.
const AT_ONCE: usize = 32;

/// A channel's state: the number of the far end of one that stands plus one, or one of these.
const FREE: i32 = 0;
const USED: i32 = -1;

/// Changed under the driver's lock. Zeros are channels that are all free.
pub struct Table<const LINES: usize, const CHANNELS: usize> {
    channels: [AtomicU16; LINES],
    /// The line of each channel, plus one.
    lines: [AtomicU16; CHANNELS],
    states: [AtomicI32; CHANNELS],
    /// Those behind were never used; the next one to be looked at; and how many stand.
    used: AtomicU32,
    next: AtomicU32,
    standing: AtomicU32,
}

impl<const LINES: usize, const CHANNELS: usize> Table<LINES, CHANNELS> {
    /// The channel of a line, or the last one that it had.
    pub fn channel_of(&self, line: usize) -> usize {
        self.channels[line].load(Relaxed).into()
    }

    /// The line of a channel, if one has it.
    pub fn line_of(&self, channel: usize) -> Option<usize> {
        usize::from(self.lines.get(channel)?.load(Relaxed)).checked_sub(1)
    }

    /// A channel for a line, where no more than `most` stand. `is_over`: the near side has let go of that one, whose far end `close` gets.
    pub fn take(&self, line: usize, most: usize, is_over: impl Fn(usize) -> bool, mut close: impl FnMut(i32)) -> Option<usize> {
        let used = self.used.load(Relaxed) as usize;
        let mut look = |from: usize, count: usize| {
            for channel in (from..from + count).map(|channel| channel % used) {
                let state = self.states[channel].load(Relaxed);
                if state > FREE && is_over(channel) {
                    close(state - 1);
                    self.states[channel].store(FREE, Relaxed);
                    self.standing.fetch_sub(1, Relaxed);
                }
            }
        };
        if used > 0 {
            let next = self.next.load(Relaxed) as usize % used;
            look(next, AT_ONCE.min(used));
            self.next.store((next + AT_ONCE) as u32, Relaxed);
        }
        let free = || {
            let may_be = self.standing.load(Relaxed) as usize <= most;
            self.states.iter().position(|state| may_be && state.load(Relaxed) == FREE)
        };
        let channel = free().or_else(|| {
            look(0, used);
            free()
        })?;
        self.used.store(used.max(channel + 1) as u32, Relaxed);
        self.states[channel].store(USED, Relaxed);
        self.channels[line].store(channel as u16, Relaxed);
        self.lines[channel].store(line as u16 + 1, Relaxed);
        Some(channel)
    }

    fn part(&self, line: usize, state: i32) {
        let channel = self.channel_of(line);
        if self.line_of(channel) == Some(line) {
            self.standing.fetch_add((state > FREE).into(), Relaxed);
            self.lines[channel].store(0, Relaxed);
            self.states[channel].store(state, Relaxed);
        }
    }

    /// The line is free, and its channel.
    pub fn free(&self, line: usize) {
        self.part(line, FREE);
    }

    /// The line is free, and its channel stands with the far end of its companion.
    pub fn stand(&self, line: usize, end: i32) {
        self.part(line, end.max(0) + 1);
    }

    /// Gives other numbers to the far ends of those that stand.
    pub fn renumber(&self, number: impl Fn(i32) -> i32) {
        for state in &self.states[..self.used.load(Relaxed) as usize] {
            let end = state.load(Relaxed);
            if end > FREE {
                state.store(number(end - 1) + 1, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn fresh() -> Table<2, 40> {
        let zeros = || AtomicU16::new(0);
        Table {
            channels: core::array::from_fn(|_| zeros()),
            lines: core::array::from_fn(|_| zeros()),
            states: core::array::from_fn(|_| AtomicI32::new(0)),
            used: AtomicU32::new(0),
            next: AtomicU32::new(0),
            standing: AtomicU32::new(0),
        }
    }

    #[test]
    fn a_line_is_free_while_its_channel_stands() {
        let places = fresh();
        let closed = RefCell::new(Vec::new());
        let take =
            |line, over: &[usize]| places.take(line, 40, |channel| over.contains(&channel), |end| closed.borrow_mut().push(end));
        for channel in 0..40 {
            assert_eq!(take(1, &[]), Some(channel));
            assert_eq!((places.channel_of(1), places.line_of(channel)), (channel, Some(1)));
            places.stand(1, 100 + channel as i32);
            assert_eq!(places.line_of(channel), None);
        }
        assert_eq!(take(0, &[]), None, "all stand");
        places.renumber(|end| if end == 107 { 7 } else { end });
        assert_eq!(take(0, &[7, 39]), Some(7));
        assert_eq!(*closed.borrow(), [139, 7]);
        places.stand(1, 5);
        assert_eq!(places.line_of(7), Some(0), "the other line has had it");
        assert_eq!(places.take(1, 37, |_| false, drop), None, "more stand than may");
        assert_eq!(take(1, &[]), Some(39));
        places.free(0);
        assert_eq!((places.line_of(7), take(0, &[])), (None, Some(7)));
    }

    /// Channels that stand and those that lines have are never one: against a table that is looked through whole.
    #[test]
    fn no_channel_is_two_streams() {
        let places = fresh();
        let (mut owners, mut held) = (vec![0u8; 40], [None; 2]);
        let mut random = 1u64;
        for step in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (line, over) = ((random >> 33) as usize % 2, (random >> 40) as usize % 40);
            match held[line] {
                None => {
                    let released = RefCell::new(Vec::new());
                    let taken = places.take(line, 40, |channel| channel == over, |end| released.borrow_mut().push(end as usize));
                    released.into_inner().into_iter().for_each(|channel| owners[channel] = 0);
                    if let Some(channel) = taken {
                        assert_eq!(owners[channel], 0, "step {step}");
                        (owners[channel], held[line]) = (1, Some(channel));
                    }
                }
                Some(channel) => {
                    match random >> 60 {
                        0..8 => {
                            places.free(line);
                            owners[channel] = 0;
                        }
                        _ => places.stand(line, channel as i32),
                    }
                    held[line] = None;
                }
            }
            (0..2).for_each(|line| assert!(held[line].is_none_or(|channel| places.line_of(channel) == Some(line))));
        }
    }
}
