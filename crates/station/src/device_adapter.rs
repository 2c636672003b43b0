//! The endpoint as the engine sees it, and the rest of a frame in the endpoint's buffer.

use core::sync::atomic::Ordering::Relaxed;
use shunt_am::{Body, Link};
use shunt_endpoint::{Arrival, Body as MessageBody, Channel, Endpoint, Message, Segment, SendError, INLINE};

use crate::device::Device;
use crate::memory::Shared;

/// What of a station is private to a process, and used under the lock.
pub(crate) struct Inner {
    pub device: Device,
    pub arrival: Arrival,
    /// A frame whose parts lie in several places, in one.
    pub scratch: [u8; SCRATCH],
    /// Peers that the device says are gone.
    pub gone: u64,
    /// The last turn ended early: this one is not to.
    pub was_early: bool,
}

/// Bytes of the largest frame that a station uses.
pub(crate) const SCRATCH: usize = 4096;

/// Where the engine's frames go.
pub(crate) struct DeviceAdapter<'a> {
    pub shared: &'a Shared,
    pub device: &'a mut Device,
    pub gone: &'a mut u64,
}

impl DeviceAdapter<'_> {
    #[inline]
    fn put(&mut self, message: &Message<'_>) -> Result<(), SendError> {
        match self.device.send(message) {
            Err(SendError::NoResource) => {
                let _ = self.device.flush();
                self.device.send(message).map(drop)
            }
            result => result.map(drop),
        }
    }
}

impl Link for DeviceAdapter<'_> {
    #[inline]
    fn send(&mut self, peer: u32, head: &[u8], body: &[u8]) -> bool {
        let Some(entry) = self.shared.peer(peer) else { return false };
        let channel = Channel(entry.channel.load(Relaxed));
        let length = head.len() + body.len();
        let result = if body.is_empty() {
            self.put(&Message::small(channel, head))
        } else if length <= INLINE {
            // In the descriptor as a whole.
            let mut small = [0; INLINE];
            small[..head.len()].copy_from_slice(head);
            small[head.len()..length].copy_from_slice(body);
            self.put(&Message::small(channel, &small[..length]))
        } else {
            self.put(&Message { channel, head, body: MessageBody::Bytes(body.into()) })
        };
        match result {
            Ok(()) => {
                self.shared.unflushed.store(1, Relaxed);
                true
            }
            Err(SendError::Peer | SendError::Channel | SendError::Device(_)) => {
                *self.gone |= 1 << (peer % 64);
                false
            }
            // The way takes shorter frames than it did: this one is lost on it, as behind the next switch.
            Err(SendError::TooLarge) => true,
            Err(_) => false,
        }
    }
}

/// What of an arrival lies in the device's buffer: copied once, to where it belongs.
pub(crate) struct Rest<'a> {
    pub arrival: &'a Arrival,
    pub segment: Segment,
}

impl Body for Rest<'_> {
    fn len(&self) -> usize {
        self.arrival.len() - self.arrival.head().len()
    }

    fn copy_to(&self, from: usize, into: &mut [u8]) -> bool {
        self.arrival.copy_to(&self.segment, self.arrival.head().len() + from, into) == into.len()
    }

    fn each(&self, show: &mut dyn FnMut(*const u8, usize) -> bool) {
        let pieces = self.arrival.areas_from(INLINE);
        let _ = pieces
            .map_while(|area| self.segment.pointer(area).map(|at| (at, area.length as usize)))
            .all(|(at, length)| show(at, length));
    }
}
