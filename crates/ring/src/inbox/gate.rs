//! The gate that receivers shut before they sleep in the kernel.

use super::Inbox;
use core::sync::atomic::Ordering;
use shunt_segment::inbox::gate;

impl Inbox {
    /// Opens the gate, unless a receiver sleeps or it is retired. True: senders may write.
    #[inline]
    pub fn open(&self) -> bool {
        let gate = &self.header().gate;
        match gate.load(Ordering::Relaxed) {
            gate::OPEN => true,
            0 => gate.compare_exchange(0, gate::OPEN, Ordering::SeqCst, Ordering::Relaxed).is_ok(),
            _ => false,
        }
    }

    /// Shuts the gate for a sleeper; the caller looks at [`Inbox::front`] once more before it sleeps.
    pub fn enter(&self) {
        let gate = &self.header().gate;
        let _ = gate.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |now| {
            Some((now & !gate::OPEN) + if now & gate::SLEEPERS == gate::SLEEPERS { 0 } else { 1 })
        });
    }

    /// The sleeper is awake again.
    pub fn leave(&self) {
        let gate = &self.header().gate;
        let _ = gate.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |now| (now & gate::SLEEPERS != 0).then(|| now - 1));
    }

    /// Shuts the gate for a receiver that needs the kernel to see each datagram.
    pub fn pin(&self) {
        let gate = &self.header().gate;
        let _ = gate.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |now| {
            Some((now & !gate::OPEN) + if now & gate::PINS == gate::PINS { 0 } else { gate::PIN })
        });
    }

    /// Takes one pin back.
    pub fn unpin(&self) {
        let gate = &self.header().gate;
        let _ = gate.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |now| (now & gate::PINS != 0).then(|| now - gate::PIN));
    }

    /// Shuts the gate for good.
    pub fn retire(&self) {
        let gate = &self.header().gate;
        let _ = gate.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |now| Some((now & !gate::OPEN) | gate::RETIRED));
    }

    /// Whether it is shut for good.
    pub fn is_retired(&self) -> bool {
        self.header().gate.load(Ordering::Relaxed) & gate::RETIRED != 0
    }
}
