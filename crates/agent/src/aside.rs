//! Messages whose neighbour is being looked for: they wait beside their endpoint's queue, so that those behind them, which are
//! for others, do not. A kernel does the same (arp(7), unres_qlen).

use std::collections::VecDeque;

use shunt_wire::endpoint::Kind;

use crate::client::Fate;

/// Messages that one endpoint may have here; what comes on top of them is lost, and counted.
const MOST: usize = 32;

/// One of them.
#[derive(Debug, PartialEq)]
pub struct Kept {
    /// The channel that it is for.
    pub channel: u32,
    /// What its frame is.
    pub kind: Kind,
    /// The frame's payload.
    pub bytes: Box<[u8]>,
}

/// The messages, in order.
#[derive(Default)]
pub struct Aside(VecDeque<Kept>);

impl Aside {
    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a message; false: there are too many.
    pub fn push(&mut self, message: Kept) -> bool {
        let room = self.0.len() < MOST;
        if room {
            self.0.push_back(message);
        }
        room
    }

    /// The first message that need not wait any more, and what becomes of it.
    pub fn next(&mut self, fate: impl Fn(u32) -> Fate) -> Option<(Kept, Fate)> {
        let at = self.0.iter().position(|kept| fate(kept.channel) != Fate::Waits)?;
        let kept = self.0.remove(at)?;
        let fate = fate(kept.channel);
        Some((kept, fate))
    }

    /// Takes back what [`Aside::next`] gave.
    pub fn undo(&mut self, message: Kept) {
        self.0.push_front(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that does not answer holds up no other, not even those of which nothing is known yet; and what waits is bounded.
    #[test]
    fn only_the_unknown_wait() {
        let (mut aside, mac) = (Aside::default(), [2, 0, 0, 0, 0, 1]);
        let kept = |channel: u32, byte: u8| Kept { channel, kind: Kind::Message, bytes: Box::new([byte]) };
        for (channel, byte) in [(1, 10), (2, 20), (1, 11), (3, 30)] {
            assert!(aside.push(kept(channel, byte)));
        }
        let fate = |channel: u32| match channel {
            1 => Fate::Waits,
            2 => Fate::Goes(mac),
            _ => Fate::Lost,
        };
        assert_eq!(aside.next(fate), Some((kept(2, 20), Fate::Goes(mac))));
        assert_eq!(aside.next(fate), Some((kept(3, 30), Fate::Lost)));
        assert_eq!(aside.next(fate), None);
        let known = |_: u32| Fate::Goes(mac);
        let (message, _) = aside.next(known).expect("the first");
        aside.undo(message);
        assert_eq!(aside.next(known).map(|(message, _)| message), Some(kept(1, 10)));
        assert_eq!(aside.next(known).map(|(message, _)| message), Some(kept(1, 11)));
        assert!(aside.is_empty());
        let taken = (0..2 * MOST).filter(|_| aside.push(kept(1, 0))).count();
        assert_eq!(taken, MOST);
    }
}
