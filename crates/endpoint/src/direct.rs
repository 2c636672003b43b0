//! Direct access: the sender says where in the receiver's memory its bytes go. U-Net section 3.6, in the terms of SHRIMP
//! (section 3): *export* and *import* with rights, *deliberate update* (a transfer), *automatic update* (the same memory on
//! both sides, so a store is the transfer), *notifications*.
//!
//! On `shm` an export is memory of its own, mapped into the exporter's segment in place of the area, and handed to the
//! peer: real, and as reliable as memory. Elsewhere an update is a frame that the receiving endpoint checks and copies:
//! emulated, and as lossy as messages are.
//!
//! SHRIMP's three states of notifications: *ignore* is [`DirectAccess::notify`] off; *queue* is on, with upcalls
//! [disabled](crate::upcall::Gate::disable); *deliver* is on, with upcalls enabled.

use crate::address::{Channel, Tag};
use crate::area::{Area, Bytes};
use crate::error::SendError;
use crate::message::{Arrival, ArrivalParts, Body, Message};
use crate::shared::Memory;
use crate::{Counters, Drop as Reason, Endpoint, Ticket};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use shunt_sys::Errno;
use shunt_wire::endpoint::{Kind, Update};

/// Exports of an endpoint at most.
pub const EXPORTS: usize = 32;

/// What exports begin at and are a multiple of.
pub const GRAIN: u32 = 4096;

/// What the importer may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Rights {
    /// Read it, where the device maps it.
    Read = 1,
    /// Update it, and read it where the device maps it.
    Write = 3,
}

impl Rights {
    fn from_code(code: u32) -> Rights {
        if code == Rights::Write as u32 {
            Rights::Write
        } else {
            Rights::Read
        }
    }
}

/// The unguessable name of an export, to be told to the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key(pub u64);

/// Imported memory: a private handle.
#[derive(Clone, Copy, Debug)]
pub struct Import {
    /// The channel it was imported by.
    pub channel: Channel,
    /// Its name.
    pub key: Key,
    /// Bytes.
    pub size: u32,
    /// What may be done with it.
    pub rights: Rights,
    pub(crate) base: *mut u8,
}

// SAFETY: an address of memory that is mapped for the whole process, written without references.
unsafe impl Send for Import {}

impl Import {
    /// Where the memory is mapped here: automatic update. `None` where it is emulated. Read-only without
    /// [`Rights::Write`]. The other side reads and writes the same bytes at the same time; mapped while the endpoint lives.
    pub fn mapped(&self) -> Option<*mut u8> {
        (!self.base.is_null()).then_some(self.base)
    }

    /// Whether `length` bytes from `offset` on lie inside.
    pub fn contains(&self, offset: u32, length: usize) -> bool {
        offset as usize + length <= self.size as usize
    }
}

/// Why memory was not exported or imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectError {
    /// No such channel (any more).
    Channel,
    /// Not in the segment, not a multiple of [`GRAIN`], or already exported.
    Area,
    /// [`EXPORTS`] exports or as many imports exist.
    Full,
    /// Not here yet: the exporter's offer is on its way, or the channel is still being set up. Try again.
    NoResource,
    /// The device does not do that.
    Unsupported,
    /// What the system answered.
    System(Errno),
}

/// What a notification says: bytes were written there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notification {
    /// The export.
    pub key: Key,
    /// First byte, counted from the start of the export.
    pub offset: u32,
    /// Bytes.
    pub length: u32,
}

impl Notification {
    pub(crate) const SIZE: usize = 16;

    pub(crate) fn to_bytes(self) -> [u8; Notification::SIZE] {
        let mut bytes = [0; Notification::SIZE];
        bytes[..8].copy_from_slice(&self.key.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.offset.to_le_bytes());
        bytes[12..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Notification> {
        let bytes: &[u8; Notification::SIZE] = bytes.get(..Notification::SIZE)?.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let key = word(0) as u64 | (word(4) as u64) << 32;
        Some(Notification { key: Key(key), offset: word(8), length: word(12) })
    }
}

/// An endpoint with direct access: a strict superset of the base level.
pub trait DirectAccess: Endpoint {
    /// Lets the peer of `channel` write (and read, where it is mapped) an area of the segment; gives the name to tell it.
    ///
    /// # Errors
    /// [`DirectError`].
    fn export(&mut self, channel: Channel, area: Area, rights: Rights) -> Result<Key, DirectError>;

    /// Takes an export back: what the peer writes after this reaches no memory of ours. The bytes stay as they are.
    fn unexport(&mut self, key: Key);

    /// Whether updates of the export that ask for it put a notification on the receive queue. At first they do not.
    fn notify(&mut self, key: Key, on: bool);

    /// Takes up what the peer of `channel` exported under `key`, `size` bytes.
    ///
    /// # Errors
    /// [`DirectError`]. `NoResource`: not here yet.
    fn import(&mut self, channel: Channel, key: Key, size: u32) -> Result<Import, DirectError>;

    /// Deliberate update: writes `bytes` at `offset` of the imported memory, and asks for a notification if `notify`.
    /// Where it is emulated it leaves with the next `flush`, in as many frames as it takes: of one that is longer than the
    /// send queue, the first frames leave at once.
    ///
    /// # Errors
    /// [`SendError`]: `Area` outside the import or without the right. After `NoResource` of an emulated update its first
    /// part may have been sent: do it again from the start.
    fn update(&mut self, import: &Import, offset: u32, bytes: Bytes<'_>, notify: bool) -> Result<Ticket, SendError>;
}

/// An export, in the endpoint's shared memory.
#[repr(C)]
pub struct ExportEntry {
    key: AtomicU64,
    channel: AtomicU32,
    offset: AtomicU32,
    length: AtomicU32,
    /// [`Rights`], and [`NOTIFY`].
    flags: AtomicU32,
}

const NOTIFY: u32 = 1 << 8;

/// The exports of an endpoint. For devices.
#[derive(Clone, Copy)]
pub struct Exports<'a>(&'a [ExportEntry; EXPORTS]);

impl<'a> Exports<'a> {
    /// Those in `memory`.
    pub fn of(memory: &'a Memory) -> Exports<'a> {
        Exports(&memory.header().exports.0)
    }

    /// Notes an export.
    ///
    /// # Errors
    /// `Area`, `Full`.
    pub fn insert(&self, memory: &Memory, channel: Channel, key: Key, area: Area, rights: Rights) -> Result<(), DirectError> {
        memory.registry().get(channel).ok_or(DirectError::Channel)?;
        let aligned = area.offset.is_multiple_of(GRAIN) && area.length.is_multiple_of(GRAIN) && area.length > 0;
        let overlaps = |other: Area| (area.offset as u64) < other.end() && (other.offset as u64) < area.end();
        if !aligned || !memory.segment().contains(area) || self.iter().any(|(_, other)| overlaps(other)) {
            return Err(DirectError::Area);
        }
        let entry = self.0.iter().find(|entry| entry.key.load(Relaxed) == 0).ok_or(DirectError::Full)?;
        entry.channel.store(channel.0, Relaxed);
        entry.offset.store(area.offset, Relaxed);
        entry.length.store(area.length, Relaxed);
        entry.flags.store(rights as u32, Relaxed);
        entry.key.store(key.0, Relaxed);
        Ok(())
    }

    fn iter(&self) -> impl Iterator<Item = (&'a ExportEntry, Area)> {
        let used = self.0.iter().filter(|entry| entry.key.load(Relaxed) != 0);
        used.map(|entry| (entry, Area::new(entry.offset.load(Relaxed), entry.length.load(Relaxed))))
    }

    fn find(&self, key: Key) -> Option<(&'a ExportEntry, Area)> {
        self.iter().find(|(entry, _)| entry.key.load(Relaxed) == key.0)
    }

    /// Forgets an export; gives its area.
    pub fn remove(&self, key: Key) -> Option<Area> {
        let (entry, area) = self.find(key)?;
        entry.key.store(0, Relaxed);
        Some(area)
    }

    /// Forgets the exports of a channel: it is closed.
    pub fn forget(&self, channel: Channel) {
        self.of_channel(channel).for_each(|key| {
            self.remove(key);
        });
    }

    /// The exports of a channel: they go when it is closed.
    pub fn of_channel(&self, channel: Channel) -> impl Iterator<Item = Key> + 'a {
        let exports = Exports(self.0);
        exports
            .iter()
            .filter(move |(entry, _)| entry.channel.load(Relaxed) == channel.0)
            .map(|(entry, _)| Key(entry.key.load(Relaxed)))
    }

    /// Turns notifications on or off.
    pub fn notify(&self, key: Key, on: bool) {
        if let Some((entry, _)) = self.find(key) {
            let flags = entry.flags.load(Relaxed);
            entry.flags.store(if on { flags | NOTIFY } else { flags & !NOTIFY }, Relaxed);
        }
    }

    /// Where in the segment `length` bytes from `offset` on lie, and whether a notification is wanted, if the peer of
    /// `channel` may write there.
    pub fn target(&self, channel: Channel, update: Update, length: u32) -> Option<(Area, bool)> {
        let (entry, area) = self.find(Key(update.key)).filter(|_| update.key != 0)?;
        let flags = entry.flags.load(Relaxed);
        let inside = update.offset.checked_add(length as u64).is_some_and(|end| end <= area.length as u64);
        let may = entry.channel.load(Relaxed) == channel.0 && Rights::from_code(flags & 3) == Rights::Write;
        let offset = area.offset.checked_add(update.offset as u32).filter(|_| inside && may)?;
        Some((Area::new(offset, length), flags & NOTIFY != 0))
    }
}

/// A device whose direct access is frames: each says where its bytes go, and the receiving endpoint checks and copies.
pub trait Emulated: Endpoint {
    /// The endpoint's memory, with its exports.
    fn exporting(&self) -> &Memory;

    /// Puts a frame of some kind on the send queue, as [`Endpoint::send`] one with a message.
    ///
    /// # Errors
    /// As for [`Endpoint::send`].
    fn put_frame(&mut self, message: &Message<'_>, kind: Kind) -> Result<Ticket, SendError>;
}

impl<E: Emulated> DirectAccess for E {
    fn export(&mut self, channel: Channel, area: Area, rights: Rights) -> Result<Key, DirectError> {
        if rights != Rights::Write {
            return Err(DirectError::Unsupported);
        }
        let key = Key(Tag::random().map_err(DirectError::System)?.0);
        let memory = self.exporting();
        Exports::of(memory).insert(memory, channel, key, area, rights).map(|()| key)
    }

    fn unexport(&mut self, key: Key) {
        Exports::of(self.exporting()).remove(key);
    }

    fn notify(&mut self, key: Key, on: bool) {
        Exports::of(self.exporting()).notify(key, on);
    }

    fn import(&mut self, channel: Channel, key: Key, size: u32) -> Result<Import, DirectError> {
        self.exporting().registry().get(channel).ok_or(DirectError::Channel)?;
        Ok(Import { channel, key, size, rights: Rights::Write, base: core::ptr::null_mut() })
    }

    fn update(&mut self, import: &Import, offset: u32, bytes: Bytes<'_>, notify: bool) -> Result<Ticket, SendError> {
        if !import.contains(offset, bytes.len()) {
            return Err(SendError::Area);
        }
        let most = self.capabilities().largest as usize - Update::HEADER;
        let mut done = 0;
        loop {
            let length = (bytes.len() - done).min(most);
            let last = done + length == bytes.len();
            let mut head = [0; Update::HEADER];
            Update { key: import.key.0, offset: (offset as usize + done) as u64 }.emit(&mut head);
            // SAFETY: part of what the caller named.
            let part = unsafe { Bytes::named(bytes.address().wrapping_add(done), length) };
            let message = Message { channel: import.channel, head: &head, body: Body::Bytes(part) };
            let kind = if last && notify { Kind::UpdateNotify } else { Kind::Update };
            let put = match self.put_frame(&message, kind) {
                // Once: a device may be empty and have no resource yet.
                Err(SendError::NoResource) if self.flush()? => self.put_frame(&message, kind),
                put => put,
            };
            let ticket = put?;
            if last {
                return Ok(ticket);
            }
            done += length;
        }
    }
}

/// Boxed: what chooses its device at run time.
#[cfg(feature = "std")]
impl DirectAccess for Box<dyn DirectAccess + Send> {
    fn export(&mut self, channel: Channel, area: Area, rights: Rights) -> Result<Key, DirectError> {
        (**self).export(channel, area, rights)
    }
    fn unexport(&mut self, key: Key) {
        (**self).unexport(key)
    }
    fn notify(&mut self, key: Key, on: bool) {
        (**self).notify(key, on)
    }
    fn import(&mut self, channel: Channel, key: Key, size: u32) -> Result<Import, DirectError> {
        (**self).import(channel, key, size)
    }
    fn update(&mut self, import: &Import, offset: u32, bytes: Bytes<'_>, notify: bool) -> Result<Ticket, SendError> {
        (**self).update(import, offset, bytes, notify)
    }
}

/// What a receiving device does with a frame of kind update, in the form of an arrival whose bytes are the frame's payload:
/// checks it, and copies its data to where it belongs. Gives the notification, where one was asked for and is wanted.
///
/// Buffer and export may be the same memory. Nothing is written of a frame that does not fit.
pub fn apply(memory: &Memory, frame: &ArrivalParts<'_>, notify: bool) -> Option<Notification> {
    let counters = memory.counters();
    let Some((notification, wanted)) = write(memory, frame) else {
        counters.drop(Reason::Export);
        return None;
    };
    Counters::add(&counters.updates, 1);
    (notify && wanted).then_some(notification)
}

/// As [`apply`], with the notification put on the receive queue. For devices that are the only ones who put there.
pub fn apply_and_queue(memory: &Memory, frame: &ArrivalParts<'_>, notify: bool) {
    if let Some(notification) = apply(memory, frame, notify) {
        let mut arrival = Arrival::empty();
        arrival.fill_notification(frame.channel, notification);
        if memory.receive_queue().put(&arrival).is_err() {
            memory.counters().drop(Reason::QueueFull);
        }
    }
}

fn write(memory: &Memory, frame: &ArrivalParts<'_>) -> Option<(Notification, bool)> {
    let update = Update::parse(frame.head)?;
    let (head, segment) = (&frame.head[Update::HEADER..], memory.segment());
    let rest: u64 = frame.areas.iter().map(|area| u64::from(area.length)).sum();
    let length = frame.length.checked_sub(Update::HEADER as u32)?;
    if head.len() as u64 + rest != length.into() || !frame.areas.iter().all(|area| segment.contains(*area)) {
        return None;
    }
    let (area, wanted) = Exports::of(memory).target(frame.channel, update, length)?;
    // The first one fails if the export is not inside the segment; the others lie behind it.
    let mut written = segment.contains(area) && segment.write(area, head);
    let mut to = area.offset + head.len() as u32;
    for part in frame.areas {
        written = written && segment.copy_within(*part, to);
        to += part.length;
    }
    let notification = Notification { key: Key(update.key), offset: update.offset as u32, length };
    written.then_some((notification, wanted))
}

/// [`Arrival`]s that no program sees: an update's frame, and one that asks for a notification.
const UPDATE: u32 = 2;
const UPDATE_NOTIFY: u32 = UPDATE | 1;

impl Arrival {
    /// Fills in a notification. For devices.
    pub fn fill_notification(&mut self, channel: Channel, notification: Notification) {
        (self.channel, self.length, self.kind, self.count) = (channel.0, Notification::SIZE as u32, 1, 0);
        self.head[..Notification::SIZE].copy_from_slice(&notification.to_bytes());
    }

    /// Makes a message that was filled in the payload of an update's frame, for the receiver's device to [`apply`]. For devices
    /// whose other half puts frames on the receive queue.
    pub fn mark_update(&mut self, notify: bool) {
        self.kind = if notify { UPDATE_NOTIFY } else { UPDATE };
    }

    /// Whether it is an update's frame, and whether that asks for a notification. For devices.
    #[inline(always)]
    pub fn update(&self) -> Option<bool> {
        (self.kind & UPDATE != 0).then_some(self.kind == UPDATE_NOTIFY)
    }

    /// Takes an update's frame off the receive queue, as it were: what the program is to see of it, if anything.
    pub fn applied(&self, memory: &Memory, notify: bool) -> Option<Arrival> {
        let (channel, buffers) = (self.channel(), self.buffers());
        let frame = ArrivalParts { channel, length: self.length, head: self.head(), areas: self.areas(), buffers };
        let notification = apply(memory, &frame, notify)?;
        let mut arrival = Arrival::empty();
        arrival.fill_notification(channel, notification);
        Some(arrival)
    }

    /// What it says, if it is a notification.
    pub fn notification(&self) -> Option<Notification> {
        (self.kind == 1).then(|| Notification::from_bytes(&self.head)).flatten()
    }
}
