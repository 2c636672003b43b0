//! Listeners whose server forks for each connection a process that becomes another user.
//!
//! Each such process retires the link that it has, so each connection needs another one, for which it costs more than the
//! kernel's connection does. After a few in a row the listener is left to the kernel, and tried again much later.

/// Links retired one after another, before the listener is left to the kernel.
const ENOUGH: u32 = 4;
/// A link in which more connections were made than this before it was retired has paid.
const PAID: u32 = 8;
/// Connections through the kernel, before a link is tried again.
const PATIENCE: u32 = 1000;
/// Listeners that are remembered.
const MOST: usize = 16;

#[derive(Clone, Copy)]
struct Forking {
    /// Its inode; 0: an unused entry.
    listener: u32,
    retired: u32,
    /// Whether no link was made since the last was retired.
    owed: bool,
    /// Connections left to the kernel so far.
    left: u32,
}

/// Those that retired a link of late.
pub(crate) struct Known {
    all: [Forking; MOST],
    next: usize,
}

const UNUSED: Forking = Forking { listener: 0, retired: 0, owed: false, left: 0 };

impl Known {
    pub(crate) const NONE: Known = Known { all: [UNUSED; MOST], next: 0 };

    fn find(&mut self, listener: u32) -> Option<&mut Forking> {
        self.all.iter_mut().find(|entry| listener != 0 && entry.listener == listener)
    }

    /// A link to `listener` was retired, in which `lent` connections were made.
    pub(crate) fn retired(&mut self, listener: u32, lent: u32) {
        if self.find(listener).is_none() {
            self.all[self.next] = Forking { listener, ..UNUSED };
            self.next = (self.next + 1) % MOST;
        }
        if let Some(entry) = self.find(listener) {
            entry.retired = if lent > PAID { 0 } else { entry.retired + 1 };
            entry.owed = true;
        }
    }

    /// Whether a link to `listener` that was made just now takes the place of a retired one.
    pub(crate) fn makes_up(&mut self, listener: u32) -> bool {
        self.find(listener).is_some_and(|entry| core::mem::take(&mut entry.owed))
    }

    /// Whether this connection to `listener` is the kernel's, because links to it do not pay.
    pub(crate) fn leaves_to_kernel(&mut self, listener: u32) -> bool {
        let Some(entry) = self.find(listener).filter(|entry| entry.retired >= ENOUGH) else { return false };
        entry.left += 1;
        if entry.left > PATIENCE {
            (entry.retired, entry.left) = (ENOUGH - 1, 0);
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_whose_links_do_not_pay_is_the_kernels_for_a_while() {
        let mut known = Known::NONE;
        for _ in 1..ENOUGH {
            known.retired(7, 1);
            assert!(!known.leaves_to_kernel(7));
        }
        known.retired(7, 1);
        for _ in 0..PATIENCE {
            assert!(known.leaves_to_kernel(7));
        }
        assert!(!known.leaves_to_kernel(7), "it is tried again");
        known.retired(7, 1);
        assert!(known.leaves_to_kernel(7), "and given up after one more");
        known.retired(7, PAID + 1);
        assert!(!known.leaves_to_kernel(7), "a link that paid makes good for all before it");
        assert!(!known.leaves_to_kernel(8));
    }

    #[test]
    fn a_retired_link_is_made_up_for_once() {
        let mut known = Known::NONE;
        assert!(!known.makes_up(7));
        known.retired(7, 1);
        assert!(known.makes_up(7) && !known.makes_up(7));
    }

    #[test]
    fn the_oldest_listener_is_forgotten_first() {
        let mut known = Known::NONE;
        (1..=MOST as u32 + 1).for_each(|listener| known.retired(listener, 1));
        assert!(!known.makes_up(1) && known.makes_up(2) && known.makes_up(MOST as u32 + 1));
    }
}
