//! Direct access for real: an export is a memfd of its own, mapped in the exporter's segment in place of the area, and
//! handed to the peer by the socket. What may not be written is sealed (F_SEAL_FUTURE_WRITE) before it is handed over.

use super::channel::{pair, set_pair, word};
use super::control::{self, Hello};
use super::lane::Lane;
use super::Shm;
use crate::direct::{DirectAccess, DirectError, Exports, Import, Key, Notification, Rights};
use crate::shared::{is_safe_to_map, SEALS};
use crate::{Area, Bytes, Channel, Counters, Drop as Reason, SendError, Tag, Ticket};
use shunt_sys::{calls, libc, mapping, Errno};

/// Offers and imports of an endpoint.
pub(super) const IMPORTS: usize = 32;
/// Of one peer.
const OF_A_PEER: usize = 8;

/// What a peer has offered, and perhaps was imported.
#[derive(Clone, Copy)]
pub(super) struct Offer {
    channel: u32,
    key: u64,
    size: u32,
    rights: u32,
    fd: i32,
    base: *mut u8,
}

impl Offer {
    pub(super) const NONE: Offer = Offer { channel: 0, key: 0, size: 0, rights: 0, fd: -1, base: core::ptr::null_mut() };

    fn forget(&mut self) {
        if !self.base.is_null() {
            let _ = calls::munmap(self.base, self.size as usize);
        }
        if self.fd >= 0 {
            let _ = calls::close(self.fd);
        }
        *self = Offer::NONE;
    }
}

impl Shm {
    /// Keeps what a peer offers until it is imported.
    pub(super) fn offered(&mut self, hello: Hello, fd: i32) {
        let found = self.memory.registry().by_tag(Tag(hello.tag));
        let known = found.filter(|(_, entry)| entry.address() == control::address(hello.from));
        let size = hello.detail as u32;
        let refusal = match known {
            None => Some(Reason::Tag),
            Some((channel, _)) => {
                let of_it = self.offers.iter().filter(|offer| offer.key != 0 && offer.channel == channel.0);
                let twice = self.offers.iter().any(|offer| offer.key == hello.key);
                if of_it.count() >= OF_A_PEER || twice || hello.key == 0 {
                    Some(Reason::QueueFull)
                } else if size == 0 || size > 1 << 30 || !is_safe_to_map(fd, size as usize) {
                    Some(Reason::Violation)
                } else {
                    None
                }
            }
        };
        let place = self.offers.iter_mut().find(|offer| offer.key == 0);
        match (refusal, known, place) {
            (None, Some((channel, _)), Some(place)) => {
                let rights = (hello.detail >> 32) as u32;
                *place = Offer { channel: channel.0, key: hello.key, size, rights, fd, base: core::ptr::null_mut() };
            }
            (reason, ..) => {
                let _ = calls::close(fd);
                self.memory.counters().drop(reason.unwrap_or(Reason::QueueFull));
            }
        }
    }

    /// Forgets what came by a channel, and takes back what was exported by it.
    pub(super) fn close_direct(&mut self, channel: Channel) {
        self.offers.iter_mut().filter(|offer| offer.key != 0 && offer.channel == channel.0).for_each(Offer::forget);
        let exports = Exports::of(&self.memory);
        exports.of_channel(channel).filter_map(|key| exports.remove(key)).for_each(|area| self.take_back(area));
    }

    pub(super) fn drop_direct(&mut self) {
        self.offers.iter_mut().filter(|offer| offer.key != 0).for_each(Offer::forget);
    }

    /// Maps `fd` over an area of the segment, with the bytes that are there now.
    fn exchange(&self, area: Area, fd: i32, offset: usize) -> Result<(), Errno> {
        let target = self.memory.segment().pointer(area).ok_or(Errno(libc::EINVAL))?;
        let length = area.length as usize;
        let copy = mapping::shared_part(fd, offset, length)?;
        // SAFETY: both are mapped in full length; the area is whole pages of the segment, without references to them.
        unsafe {
            core::ptr::copy_nonoverlapping(target, copy, length);
            let exchanged = mapping::shared_part_over(target, fd, offset, length);
            let _ = calls::munmap(copy, length);
            exchanged.map(|_| ())
        }
    }

    fn make_export(&self, area: Area, rights: Rights) -> Result<i32, Errno> {
        let fd = calls::memfd_create(b"shunt-export\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)?;
        const F_SEAL_FUTURE_WRITE: i32 = 0x10;
        let seals = if rights == Rights::Write { SEALS } else { SEALS | F_SEAL_FUTURE_WRITE };
        let made = calls::ftruncate(fd, area.length as i64)
            .and_then(|()| self.exchange(area, fd, 0))
            .and_then(|()| calls::fcntl(fd, libc::F_ADD_SEALS, seals as usize));
        match made {
            Ok(_) => Ok(fd),
            Err(error) => {
                let _ = calls::close(fd);
                Err(error)
            }
        }
    }

    /// The segment's own memory is in the area again.
    fn take_back(&self, area: Area) {
        let _ = self.exchange(area, self.memory.fd(), self.memory.segment_offset() + area.offset as usize);
    }

    /// Reads a notification from a slot; `None` if it is for nothing that this channel may write, or the owner does not want it.
    pub(super) fn heed(&self, channel: Channel, lane: Lane, slot: u32) -> Option<Notification> {
        let mut bytes = [0u8; Notification::SIZE];
        // SAFETY: a slot has more bytes than that.
        unsafe { core::ptr::copy_nonoverlapping(lane.bytes(slot), bytes.as_mut_ptr(), bytes.len()) };
        let notification = Notification::from_bytes(&bytes)?;
        let update = shunt_wire::endpoint::Update { key: notification.key.0, offset: notification.offset as u64 };
        match Exports::of(&self.memory).target(channel, update, notification.length) {
            Some((_, wanted)) => {
                Counters::add(&self.memory.counters().updates, 1);
                wanted.then_some(notification)
            }
            None => {
                self.memory.counters().drop(Reason::Export);
                None
            }
        }
    }

    /// Puts a notification into the lane.
    fn announce_update(&mut self, channel: Channel, notification: Notification) -> Result<(), SendError> {
        let entry = self.memory.registry().get(channel).ok_or(SendError::Channel)?;
        let out = self.mapped(channel.index()).filter(|mapped| mapped.channel == channel.0).map(|mapped| mapped.out);
        let Some(out) = out.filter(|out| !out.is_null()) else { return Err(self.refuse(channel)) };
        // SAFETY: mapped until the channel is closed.
        let lane = unsafe { Lane::at(out) };
        match Shm::has_room(entry, lane, 1, 0) {
            Some(true) => {}
            Some(false) => return Err(self.refuse(channel)),
            None => return Err(SendError::Peer),
        }
        let (slot, byte) = pair(&entry.device[word::TAIL]);
        let bytes = notification.to_bytes();
        // SAFETY: a slot has more bytes than that.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), lane.bytes(slot), bytes.len()) };
        lane.announce_notice(slot, bytes.len() as u32);
        set_pair(&entry.device[word::TAIL], slot.wrapping_add(1), byte);
        self.wake(entry, lane);
        Ok(())
    }
}

impl DirectAccess for Shm {
    fn export(&mut self, channel: Channel, area: Area, rights: Rights) -> Result<Key, DirectError> {
        let entry = self.memory.registry().get(channel).ok_or(DirectError::Channel)?;
        let peer = control::number(&entry.address()).ok_or(DirectError::Channel)?;
        let tag = entry.tags().send.0;
        let key = Key(Tag::random().map_err(DirectError::System)?.0);
        Exports::of(&self.memory).insert(&self.memory, channel, key, area, rights)?;
        let undone = |error: DirectError| {
            Exports::of(&self.memory).remove(key);
            Err(error)
        };
        let fd = match self.make_export(area, rights) {
            Ok(fd) => fd,
            Err(error) => return undone(DirectError::System(error)),
        };
        let detail = area.length as u64 | (rights as u64) << 32;
        let offered = control::greet(self.socket, peer, &Hello::offer(self.number, tag, key.0, detail), fd);
        let _ = calls::close(fd);
        match offered {
            Ok(()) => Ok(key),
            Err(error) => {
                self.take_back(area);
                undone(if error == Errno(libc::EAGAIN) { DirectError::NoResource } else { DirectError::System(error) })
            }
        }
    }

    fn unexport(&mut self, key: Key) {
        if let Some(area) = Exports::of(&self.memory).remove(key) {
            self.take_back(area);
        }
    }

    fn notify(&mut self, key: Key, on: bool) {
        Exports::of(&self.memory).notify(key, on);
    }

    fn import(&mut self, channel: Channel, key: Key, size: u32) -> Result<Import, DirectError> {
        self.memory.registry().get(channel).ok_or(DirectError::Channel)?;
        self.listen();
        let found = self.offers.iter_mut().find(|offer| offer.key == key.0 && key.0 != 0 && offer.channel == channel.0);
        let Some(offer) = found else { return Err(DirectError::NoResource) };
        if offer.size != size {
            return Err(DirectError::Area);
        }
        let rights = if offer.rights == Rights::Write as u32 { Rights::Write } else { Rights::Read };
        if offer.base.is_null() {
            let protection = if rights == Rights::Write { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
            let null = core::ptr::null_mut();
            // SAFETY: a fresh mapping disturbs nothing.
            let mapped = unsafe { calls::mmap(null, size as usize, protection, libc::MAP_SHARED, offer.fd, 0) };
            offer.base = mapped.map_err(DirectError::System)?;
        }
        Ok(Import { channel, key, size, rights, base: offer.base })
    }

    fn update(&mut self, import: &Import, offset: u32, bytes: Bytes<'_>, notify: bool) -> Result<Ticket, SendError> {
        // The handle is looked up again: its memory may have gone with its channel.
        let offer = self.offers.iter().find(|offer| offer.key == import.key.0 && offer.channel == import.channel.0);
        let offer = offer.filter(|offer| offer.key != 0 && !offer.base.is_null()).ok_or(SendError::Channel)?;
        let inside = offset as usize + bytes.len() <= offer.size as usize;
        if !inside || offer.rights != Rights::Write as u32 {
            return Err(SendError::Area);
        }
        // SAFETY: inside the mapping, which is writable.
        if !unsafe { bytes.copy_to(0, offer.base.add(offset as usize), bytes.len()) } {
            return Err(SendError::Fault);
        }
        if notify {
            let notification = Notification { key: import.key, offset, length: bytes.len() as u32 };
            self.announce_update(import.channel, notification)?;
        }
        Ok(self.count_sent(bytes.len()))
    }
}
