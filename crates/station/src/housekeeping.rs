//! What is looked after a few times in a second, while there is something that may be left over.

use core::sync::atomic::Ordering::Relaxed;
use shunt_am::{config::MILLISECOND, Nanoseconds};
use shunt_sys::process;

use crate::device_adapter::DeviceAdapter;
use crate::handlers::Handlers;
use crate::memory::{flag, peer_state, state, Count};
use crate::{expired, Driver, Peer, Pump, PEERS};

/// Between two looks.
const PAUSE: Nanoseconds = 250 * MILLISECOND;
/// A question without an answer, a peer that does not come up: forgotten after so long.
const PATIENCE: Nanoseconds = 5_000 * MILLISECOND;
/// A reservation whose connection waits in a listener's queue: a server may be busy for so long.
const RESERVATION: Nanoseconds = 30_000 * MILLISECOND;
/// Streams that a process opened and does not bind are looked after for so long.
const ORPHAN: Nanoseconds = 10_000 * MILLISECOND;

impl Driver<'_> {
    pub(crate) fn chores(&mut self, now: Nanoseconds, pump: &mut dyn Pump) {
        let shared = self.shared;
        let mut more = false;
        for stream in shared.used.iter() {
            let Some(entry) = shared.entry(stream) else { continue };
            let age = now.saturating_sub(entry.since.load(Relaxed));
            match entry.state() {
                // Half-made: its maker died before it wrote the state.
                state::FREE => shared.used.remove(stream),
                state::RESERVED if age > RESERVATION => {
                    shared.count(Count::Expired);
                    entry.put(flag::UNCLAIMED);
                    shared.spend(entry, expired::NOT_MADE);
                    shared.release(stream, entry);
                    more = true;
                }
                state::RESERVED => more = true,
                state::OPENING | state::OPENED | state::REFUSED | state::CLAIMED => {
                    if age > ORPHAN && process::has_ended(entry.owner.load(Relaxed)) {
                        shared.release(stream, entry);
                    }
                    more = true;
                }
                // The answer to what was cancelled or closed comes, or the path is lost.
                state::CLOSING if !entry.has(flag::CLOSE_SENT | flag::CANCELLING) => shared.wants.insert(stream),
                _ => {}
            }
        }
        for number in 0..PEERS {
            more |= self.look_after(now, number, pump);
        }
        self.shared.has_chores.store(more.into(), Relaxed);
        self.shared.chores_at.store(now + PAUSE, Relaxed);
    }

    /// True: there is something to look after.
    fn look_after(&mut self, now: Nanoseconds, number: Peer, pump: &mut dyn Pump) -> bool {
        let Some(peer) = self.shared.peer(number) else { return false };
        let age = now.saturating_sub(peer.since.load(Relaxed));
        match peer.state.load(Relaxed) {
            peer_state::FREE => return false,
            peer_state::ASKING if age <= PATIENCE => return true,
            peer_state::OPEN if self.engine.is_up(number) => return false,
            peer_state::OPEN => {
                let dead = peer.was_up.load(Relaxed) != 0 || age > PATIENCE;
                if !dead || peer.streams.load(Relaxed) != 0 {
                    return true;
                }
            }
            _ => {}
        }
        self.disconnect(now, number, pump);
        false
    }

    /// Ends the connection to a peer, and forgets it.
    pub(crate) fn disconnect(&mut self, now: Nanoseconds, number: Peer, pump: &mut dyn Pump) {
        let mut adapter = DeviceAdapter { shared: self.shared, device: &mut self.inner.device, gone: &mut self.inner.gone };
        let _ = self.engine.disconnect(now, number, &mut adapter, &mut Handlers { shared: self.shared, pump, now });
        self.drop_peer(number);
    }
}
