//! Messages whose neighbour is being looked for: they wait beside their endpoint's queue, so that those behind them, which are for
//! others, do not. A kernel does the same (arp(7), unres_qlen).

use std::collections::VecDeque;

use crate::client::Fate;

/// Messages that one endpoint may have here; what comes on top of them is lost, and counted.
const MOST: usize = 32;

/// The messages, in order, each with the channel that it is for.
#[derive(Default)]
pub struct Aside(VecDeque<(u32, Box<[u8]>)>);

impl Aside {
    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a message; false: there are too many.
    pub fn push(&mut self, channel: u32, message: Box<[u8]>) -> bool {
        let room = self.0.len() < MOST;
        if room {
            self.0.push_back((channel, message));
        }
        room
    }

    /// The first message that need not wait any more, and what becomes of it.
    pub fn next(&mut self, fate: impl Fn(u32) -> Fate) -> Option<(u32, Box<[u8]>, Fate)> {
        let at = self.0.iter().position(|(channel, _)| fate(*channel) != Fate::Waits)?;
        let (channel, message) = self.0.remove(at)?;
        Some((channel, message, fate(channel)))
    }

    /// Takes back what [`Aside::next`] gave.
    pub fn undo(&mut self, channel: u32, message: Box<[u8]>) {
        self.0.push_front((channel, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who does not answer holds up nobody, not even those of whom nothing is known yet; and what waits is bounded.
    #[test]
    fn only_the_unknown_wait() {
        let (mut aside, mac) = (Aside::default(), [2, 0, 0, 0, 0, 1]);
        for (channel, byte) in [(1, 10), (2, 20), (1, 11), (3, 30)] {
            assert!(aside.push(channel, Box::new([byte])));
        }
        let fate = |channel: u32| match channel {
            1 => Fate::Waits,
            2 => Fate::Goes(mac),
            _ => Fate::Lost,
        };
        assert_eq!(aside.next(fate), Some((2, [20].into(), Fate::Goes(mac))));
        assert_eq!(aside.next(fate), Some((3, [30].into(), Fate::Lost)));
        assert_eq!(aside.next(fate), None);
        let known = |_: u32| Fate::Goes(mac);
        let (channel, message, _) = aside.next(known).expect("the first");
        aside.undo(channel, message);
        assert_eq!(aside.next(known).map(|(_, message, _)| message), Some([10].into()));
        assert_eq!(aside.next(known).map(|(_, message, _)| message), Some([11].into()));
        assert!(aside.is_empty());
        let taken = (0..2 * MOST).filter(|_| aside.push(1, Box::new([]))).count();
        assert_eq!(taken, MOST);
    }
}
