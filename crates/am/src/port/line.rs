//! An endpoint as the engine sees it: a taker of frames, and buffers that frames end in.

use crate::dispatch::{Body, Link};
use shunt_endpoint::{
    Address, Arrival, Body as MessageBody, Channel, Endpoint, Message, OpenError, Segment, SendError, Tags, INLINE,
};

/// An endpoint, and which of its channels belongs to which peer.
pub(super) struct Line<E> {
    pub endpoint: E,
    channels: Vec<Channel>,
    /// By the channel's place in the endpoint's registry.
    peers: Vec<Option<u32>>,
    most: u32,
    needs_flush: bool,
    unflushed: bool,
    gone: Vec<u32>,
}

impl<E: Endpoint> Line<E> {
    pub fn new(endpoint: E, most: u32) -> Self {
        let needs_flush = endpoint.capabilities().needs_flush;
        Self { endpoint, channels: vec![], peers: vec![], most, needs_flush, unflushed: false, gone: vec![] }
    }

    pub fn open(&mut self, remote: &Address, tags: Tags) -> Result<u32, OpenError> {
        let peer = self.channels.len() as u32;
        if peer >= self.most {
            return Err(OpenError::Full);
        }
        let channel = self.endpoint.open(remote, tags)?;
        self.channels.push(channel);
        let index = channel.index();
        if self.peers.len() <= index {
            self.peers.resize(index + 1, None);
        }
        self.peers[index] = Some(peer);
        Ok(peer)
    }

    #[inline]
    pub fn peer_of(&self, channel: Channel) -> Option<u32> {
        let peer = self.peers.get(channel.index()).copied().flatten()?;
        (self.channels[peer as usize] == channel).then_some(peer)
    }

    #[inline]
    fn put(&mut self, message: &Message<'_>) -> Result<shunt_endpoint::Ticket, SendError> {
        let result = self.endpoint.send(message);
        if result == Err(SendError::NoResource) && self.needs_flush {
            let _ = self.endpoint.flush();
            return self.endpoint.send(message);
        }
        result
    }

    #[inline]
    pub fn flush(&mut self) {
        if self.unflushed {
            self.unflushed = !self.endpoint.flush().unwrap_or(true);
        }
    }

    /// Whether the device still holds messages back that it took: it had no room to pass them on.
    pub fn is_unflushed(&self) -> bool {
        self.unflushed
    }

    /// Peers that the device says are gone, each once.
    #[inline]
    pub fn gone(&mut self) -> Option<u32> {
        self.gone.pop()
    }
}

impl<E: Endpoint> Link for Line<E> {
    #[inline]
    fn send(&mut self, peer: u32, head: &[u8], body: &[u8]) -> bool {
        let Some(&channel) = self.channels.get(peer as usize) else { return false };
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
            Ok(_) => {
                self.unflushed = self.needs_flush;
                true
            }
            Err(SendError::Peer | SendError::Channel) => {
                if !self.gone.contains(&peer) {
                    self.gone.push(peer);
                }
                false
            }
            Err(_) => false,
        }
    }
}

/// What of an arrival lies in the device's buffer: its sender may still write there, so it is copied once, to where it belongs.
pub(super) struct Rest<'a> {
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
