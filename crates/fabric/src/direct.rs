//! Direct access by frames: each says where its bytes go, and the receiving endpoint checks and copies.

use crate::Fabric;
use shunt_endpoint::direct::{DirectAccess, DirectError, Exports, Import, Key, Rights};
use shunt_endpoint::{Area, Body, Bytes, Channel, Endpoint, Gather, Message, SendError, Tag, Ticket};
use shunt_wire::endpoint::{Kind, Update};

impl DirectAccess for Fabric {
    fn export(&mut self, channel: Channel, area: Area, rights: Rights) -> Result<Key, DirectError> {
        if rights != Rights::Write {
            return Err(DirectError::Unsupported);
        }
        let key = Key(Tag::random().map_err(DirectError::System)?.0);
        Exports::of(self.memory()).insert(self.memory(), channel, key, area, rights).map(|()| key)
    }

    fn unexport(&mut self, key: Key) {
        Exports::of(self.memory()).remove(key);
    }

    fn notify(&mut self, key: Key, on: bool) {
        Exports::of(self.memory()).notify(key, on);
    }

    fn import(&mut self, channel: Channel, key: Key, size: u32) -> Result<Import, DirectError> {
        self.memory().registry().get(channel).ok_or(DirectError::Channel)?;
        Ok(Import::emulated(channel, key, size))
    }

    fn update(&mut self, import: &Import, offset: u32, bytes: Bytes<'_>, notify: bool) -> Result<Ticket, SendError> {
        if !import.contains(offset, bytes.len()) {
            return Err(SendError::Area);
        }
        let most = self.capabilities.largest as usize - Update::HEADER;
        let mut done = 0;
        loop {
            let length = (bytes.len() - done).min(most);
            let last = done + length == bytes.len();
            let mut head = [0; Update::HEADER];
            Update { key: import.key.0, offset: (offset as usize + done) as u64 }.emit(&mut head);
            // SAFETY: part of what the caller named.
            let part = unsafe { Bytes::named(bytes.address().wrapping_add(done), length) };
            let message = Message { channel: import.channel, head: &head, body: Body::Bytes(part) };
            let gather = Gather::of(&message, self.memory().segment(), &self.capabilities)?;
            let kind = if last && notify { Kind::UpdateNotify } else { Kind::Update };
            let (sending, mut means) = self.sending();
            match sending.put(&mut means, import.channel, &gather, kind) {
                Err(SendError::NoResource) if self.flush()? => continue,
                Err(error) => return Err(error),
                Ok(ticket) if last => return Ok(ticket),
                Ok(_) => done += length,
            }
        }
    }
}
