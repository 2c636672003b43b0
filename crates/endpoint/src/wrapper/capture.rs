//! Writes what an endpoint sends and receives as a pcapng file, which Wireshark and tcpdump open.
//!
//! Each message becomes an IPv4 or IPv6 packet with a UDP header, whatever the device: the endpoint's own addresses where
//! it has such, 127.0.0.1 and 127.0.0.2 and port [`PORT`] where it has none. The payload is the frame as it would travel
//! between hosts. Updates of the peer's memory are written where they are sent; of those that come, the ones that notify, with
//! the bytes as they are then.

use super::pass_on;
use crate::gather::Gather;
use crate::{
    Address, Area, Arrival, Bytes, Channel, DirectAccess, DirectError, Endpoint, Family, Import, Key, Message, OpenError, Rights,
    SendError, Tags, Ticket,
};
use shunt_pcapng::block::{self, Direction, Interface, Packet};
use shunt_sys::clock;
use shunt_wire::endpoint::{Kind, Repr, Update, HEADER};
use std::io::{self, Write};

/// The port of packets that have none: "sh".
pub const PORT: u16 = 0x7368;

/// An endpoint whose messages are written to `file`.
pub struct Capture<E, W> {
    inner: E,
    file: W,
    channels: Vec<(Channel, Address, Tags)>,
    exports: Vec<(Key, Area)>,
    /// What the file answered first that was no success; nothing is written after that.
    failure: Option<io::Error>,
}

impl<E: Endpoint, W: Write> Capture<E, W> {
    /// Wraps `inner`, and writes the file's beginning.
    ///
    /// # Errors
    /// What the file answers.
    pub fn new(inner: E, mut file: W) -> io::Result<Capture<E, W>> {
        let mut bytes = Vec::new();
        block::section(&mut bytes);
        let name = inner.capabilities().device;
        block::interface(&mut bytes, &Interface { link: block::RAW, longest: 0, name, description: "messages of an endpoint" });
        file.write_all(&bytes)?;
        Ok(Capture { inner, file, channels: Vec::new(), exports: Vec::new(), failure: None })
    }

    /// Ends the capture; gives the file.
    ///
    /// # Errors
    /// What the file answered first that was no success.
    pub fn finish(mut self) -> io::Result<W> {
        match self.failure {
            Some(error) => Err(error),
            None => self.file.flush().map(|()| self.file),
        }
    }

    fn write(&mut self, channel: Channel, direction: Direction, kind: Kind, message: &[u8]) {
        let Some((_, remote, tags)) = self.channels.iter().find(|(known, ..)| *known == channel) else { return };
        let own = self.inner.address();
        let (from, to, tag) = match direction {
            Direction::Out => (Party::of(&own, 1), Party::of(remote, 2), tags.send),
            Direction::In => (Party::of(remote, 2), Party::of(&own, 1), tags.receive),
        };
        let mut payload = vec![0; HEADER];
        Repr { kind, tag: tag.0, length: message.len() as u32 }.emit(&mut payload);
        payload.extend_from_slice(message);
        let packet = packet(from, to, &payload);
        let (mut bytes, time, length) = (Vec::new(), clock::realtime_ns(), packet.len() as u32);
        let parts = &[&packet[..]][..];
        block::packet(&mut bytes, &Packet { interface: 0, time, length, parts, direction: Some(direction), comment: None });
        if self.failure.is_none() {
            self.failure = self.file.write_all(&bytes).err();
        }
    }
}

impl<E: Endpoint, W: Write> Capture<E, W> {
    /// Writes an update in as many frames as it would take.
    fn write_update(&mut self, channel: Channel, direction: Direction, update: Update, bytes: &[u8], notify: bool) {
        let most = self.inner.capabilities().largest as usize - Update::HEADER;
        let mut done = 0;
        loop {
            let part = &bytes[done..][..most.min(bytes.len() - done)];
            let mut payload = vec![0; Update::HEADER];
            Update { offset: update.offset + done as u64, ..update }.emit(&mut payload);
            payload.extend_from_slice(part);
            done += part.len();
            let last = done == bytes.len();
            self.write(channel, direction, if last && notify { Kind::UpdateNotify } else { Kind::Update }, &payload);
            if last {
                break;
            }
        }
    }
}

/// One end of a packet.
enum Party {
    V4([u8; 4], u16),
    V6([u8; 16], u16),
}

impl Party {
    fn of(address: &Address, number: u8) -> Party {
        let bytes = address.bytes();
        let port = || u16::from_be_bytes([bytes[2], bytes[3]]);
        match (address.is(Family::Udp), bytes.len()) {
            (true, 16) => Party::V4([bytes[4], bytes[5], bytes[6], bytes[7]], port()),
            (true, 28) => Party::V6(bytes[8..24].try_into().unwrap_or_default(), port()),
            _ => Party::V4([127, 0, 0, number], PORT),
        }
    }
}

/// A packet with both headers. The UDP checksum is left out, which IPv4 allows (RFC 768), and computed for IPv6 (RFC 8200).
fn packet(from: Party, to: Party, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()).min(0xffff) as u16;
    let mut udp = Vec::new();
    let (source, target, mut packet) = match (from, to) {
        (Party::V6(one, source), Party::V6(two, target)) => {
            let mut header = vec![0x60, 0, 0, 0];
            header.extend_from_slice(&length.to_be_bytes());
            header.extend_from_slice(&[17, 64]);
            header.extend_from_slice(&one);
            header.extend_from_slice(&two);
            (source, target, header)
        }
        (one, two) => {
            let v4 = |party| match party {
                Party::V4(address, port) => (address, port),
                Party::V6(_, port) => ([127, 0, 0, 9], port),
            };
            let ((one, source), (two, target)) = (v4(one), v4(two));
            let mut header = vec![0x45, 0];
            header.extend_from_slice(&length.saturating_add(20).to_be_bytes());
            header.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
            header.extend_from_slice(&one);
            header.extend_from_slice(&two);
            let sum = checksum(&header, 0);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            (source, target, header)
        }
    };
    for word in [source, target, length, 0] {
        udp.extend_from_slice(&word.to_be_bytes());
    }
    udp.extend_from_slice(payload);
    if packet.len() == 40 {
        let pseudo = checksum_part(&packet[8..40]) + length as u32 + 17;
        let sum = checksum(&udp, pseudo);
        udp[6..8].copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
    }
    packet.extend_from_slice(&udp);
    packet
}

fn checksum_part(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| (pair[0] as u32) << 8 | pair.get(1).copied().unwrap_or(0) as u32).sum()
}

/// RFC 1071.
fn checksum(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start + checksum_part(bytes);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

impl<E: Endpoint, W: Write> Endpoint for Capture<E, W> {
    pass_on!(capabilities segment address new_tag flush injected post release backlog descriptor arm disarm counters);

    fn open(&mut self, remote: &Address, tags: Tags) -> Result<Channel, OpenError> {
        let channel = self.inner.open(remote, tags)?;
        self.channels.push((channel, *remote, tags));
        Ok(channel)
    }

    fn close(&mut self, channel: Channel) {
        self.inner.close(channel);
        self.channels.retain(|(known, ..)| *known != channel);
    }

    fn send(&mut self, message: &Message<'_>) -> Result<Ticket, SendError> {
        let ticket = self.inner.send(message)?;
        if let Ok(gather) = Gather::of(message, self.inner.segment(), self.inner.capabilities()) {
            let mut bytes = vec![0; gather.len()];
            // SAFETY: as long as the message.
            if unsafe { gather.copy_to(0, bytes.as_mut_ptr(), bytes.len()) } {
                self.write(message.channel, Direction::Out, Kind::Message, &bytes);
            }
        }
        Ok(ticket)
    }

    fn receive(&mut self, arrival: &mut Arrival) -> bool {
        if !self.inner.receive(arrival) {
            return false;
        }
        if let Some(notification) = arrival.notification() {
            let export = self.exports.iter().find(|(key, _)| *key == notification.key);
            let mut bytes = vec![0; notification.length as usize];
            let written = export.map(|(_, area)| area.without(notification.offset));
            if written.is_some_and(|area| self.inner.segment().read(area, &mut bytes)) {
                let update = Update { key: notification.key.0, offset: notification.offset.into() };
                self.write_update(arrival.channel(), Direction::In, update, &bytes, true);
            }
            return true;
        }
        let mut bytes = vec![0; arrival.len()];
        let length = arrival.copy_to(&self.inner.segment(), 0, &mut bytes);
        self.write(arrival.channel(), Direction::In, Kind::Message, &bytes[..length]);
        true
    }
}

impl<E: DirectAccess, W: Write> DirectAccess for Capture<E, W> {
    pass_on!(notify import);

    fn export(&mut self, channel: Channel, area: Area, rights: Rights) -> Result<Key, DirectError> {
        let key = self.inner.export(channel, area, rights)?;
        self.exports.push((key, area));
        Ok(key)
    }

    fn unexport(&mut self, key: Key) {
        self.inner.unexport(key);
        self.exports.retain(|(known, _)| *known != key);
    }

    fn update(&mut self, import: &Import, offset: u32, bytes: Bytes<'_>, notify: bool) -> Result<Ticket, SendError> {
        let ticket = self.inner.update(import, offset, bytes, notify)?;
        let mut copy = vec![0; bytes.len()];
        // SAFETY: as many bytes as there are.
        if unsafe { bytes.copy_to(0, copy.as_mut_ptr(), copy.len()) } {
            let update = Update { key: import.key.0, offset: offset.into() };
            self.write_update(import.channel, Direction::Out, update, &copy, notify);
        }
        Ok(ticket)
    }
}
