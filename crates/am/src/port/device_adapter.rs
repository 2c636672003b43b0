//! An endpoint as the engine sees it: a taker of frames, and buffers that frames end in.

use crate::dispatch::{Body, Link, LINE};
use shunt_endpoint::{
    Address, Arrival, Body as MessageBody, Channel, Endpoint, Message, OpenError, Segment, SendError, Tags, INLINE,
};

/// An endpoint, and which of its channels belongs to which peer.
pub(super) struct DeviceAdapter<E> {
    pub endpoint: E,
    channels: Vec<Channel>,
    /// By the channel's place in the endpoint's registry: the channel, 0 for none, and its peer.
    peers: Vec<(u32, u32)>,
    most: u32,
    needs_flush: bool,
    unflushed: bool,
    gone: Vec<u32>,
}

impl<E: Endpoint> DeviceAdapter<E> {
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
            self.peers.resize(index + 1, (0, 0));
        }
        self.peers[index] = (channel.0, peer);
        Ok(peer)
    }

    #[inline]
    pub fn peer_of(&self, channel: Channel) -> Option<u32> {
        let &(known, peer) = self.peers.get(channel.index())?;
        (known == channel.0 && known != 0).then_some(peer)
    }

    #[inline(never)]
    fn put(&mut self, message: &Message<'_>) -> Result<shunt_endpoint::Ticket, SendError> {
        let result = self.endpoint.send(message);
        if result == Err(SendError::NoResource) && self.needs_flush {
            let _ = self.endpoint.flush();
            return self.endpoint.send(message);
        }
        result
    }

    /// What came of a message to a peer: whether it left.
    #[inline]
    fn note(&mut self, peer: u32, result: Result<shunt_endpoint::Ticket, SendError>) -> bool {
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
            // The way takes shorter frames than it did: this one is lost on it, as behind the next switch.
            Err(SendError::TooLarge) => true,
            Err(_) => false,
        }
    }

    /// What was refused for want of room goes after a flush.
    #[cold]
    fn send_words_again(
        &mut self,
        peer: u32,
        result: Result<shunt_endpoint::Ticket, SendError>,
        words: &[u64; LINE],
        count: usize,
    ) -> bool {
        match result {
            Err(SendError::NoResource) if self.needs_flush => {
                let message = Message::small(self.channels[peer as usize], bytemuck::cast_slice(&words[..count]));
                let result = self.put(&message);
                self.note(peer, result)
            }
            result => self.note(peer, result),
        }
    }

    #[inline]
    pub fn flush(&mut self) {
        if self.unflushed {
            self.flush_now();
        }
    }

    #[inline(never)]
    fn flush_now(&mut self) {
        self.unflushed = !self.endpoint.flush().unwrap_or(true);
    }

    /// Whether the device still holds messages back that it took: it had no room to pass them on.
    pub fn is_unflushed(&self) -> bool {
        self.unflushed
    }

    /// Whether the device says of any peer that it is gone.
    #[inline]
    pub fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Peers that the device says are gone, each once.
    pub fn gone(&mut self) -> Option<u32> {
        self.gone.pop()
    }
}

impl<E: Endpoint> Link for DeviceAdapter<E> {
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
        self.note(peer, result)
    }

    #[inline(always)]
    fn send_words(&mut self, peer: u32, words: &[u64; LINE], count: usize) -> bool {
        let Some(&channel) = self.channels.get(peer as usize) else { return false };
        let result = self.endpoint.send_words(channel, words, count);
        if result.is_ok() && !self.needs_flush {
            return true;
        }
        self.send_words_again(peer, result, words, count)
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
