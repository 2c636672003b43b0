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

use crate::address::Channel;
use crate::area::{Area, Bytes};
use crate::error::SendError;
use crate::message::Arrival;
use crate::shared::Memory;
use crate::{Counters, Drop as Reason, Endpoint, Ticket};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use shunt_sys::Errno;
use shunt_wire::endpoint::Update;

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
    /// An import by frames. For devices.
    pub fn emulated(channel: Channel, key: Key, size: u32) -> Import {
        Import { channel, key, size, rights: Rights::Write, base: core::ptr::null_mut() }
    }

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

    /// Takes an export back: what the peer writes after this reaches nobody. The bytes stay as they are.
    fn unexport(&mut self, key: Key);

    /// Whether updates of the export that ask for it put a notification on the receive queue. At first they do not.
    fn notify(&mut self, key: Key, on: bool);

    /// Takes up what the peer of `channel` exported under `key`, `size` bytes.
    ///
    /// # Errors
    /// [`DirectError`]. `NoResource`: not here yet.
    fn import(&mut self, channel: Channel, key: Key, size: u32) -> Result<Import, DirectError>;

    /// Deliberate update: writes `bytes` at `offset` of the imported memory, and asks for a notification if `notify`.
    /// Where it is emulated it leaves with the next `flush`, in as many frames as it takes.
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
        (inside && may).then(|| (Area::new(area.offset + update.offset as u32, length), flags & NOTIFY != 0))
    }
}

/// What a receiving device does with a frame of kind update: `payload` is all of it, in memory that only this side writes.
/// True: a notification is on the receive queue.
pub fn apply(memory: &Memory, channel: Channel, payload: &[u8], notify: bool) -> bool {
    let counters = memory.counters();
    let parsed = Update::parse(payload).and_then(|update| {
        let data = &payload[Update::HEADER..];
        Exports::of(memory).target(channel, update, data.len() as u32).map(|(area, wanted)| (update, data, area, wanted))
    });
    let Some((update, data, area, wanted)) = parsed.filter(|(_, data, area, _)| memory.segment().write(*area, data)) else {
        counters.drop(Reason::Export);
        return false;
    };
    Counters::add(&counters.updates, 1);
    if !(notify && wanted) {
        return false;
    }
    let (key, offset, length) = (Key(update.key), update.offset as u32, data.len() as u32);
    let mut arrival = Arrival::empty();
    arrival.fill_notification(channel, Notification { key, offset, length });
    let _ = area;
    let queued = memory.receive_queue().put(&arrival).is_ok();
    if !queued {
        counters.drop(Reason::QueueFull);
    }
    queued
}

impl Arrival {
    /// Fills in a notification. For devices.
    pub fn fill_notification(&mut self, channel: Channel, notification: Notification) {
        (self.channel, self.length, self.kind, self.count) = (channel.0, Notification::SIZE as u32, 1, 0);
        self.head[..Notification::SIZE].copy_from_slice(&notification.to_bytes());
    }

    /// What it says, if it is a notification.
    pub fn notification(&self) -> Option<Notification> {
        (self.kind == 1).then(|| Notification::from_bytes(&self.head)).flatten()
    }
}
