//! A link that this command writes to: what it asks of the ends of connections.
use std::fs::File;
use std::mem::offset_of;

use rustix::fs::SealFlags;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use shunt_segment::area::{CHANNEL_PAGES, PAGE};
use shunt_segment::channel::ChannelPage;
use shunt_segment::link::{LinkHeader, MAGIC, PLAIN_PEERS, STATIONS};
use shunt_segment::sync::Ordering;
use shunt_segment::{CHANNELS, VERSION};

/// Bytes of a link that are mapped: its header and the pages of its channels.
const MAPPED: usize = CHANNEL_PAGES + CHANNELS * PAGE;

/// Its header and the pages of its channels.
pub struct SharedLink {
    base: *mut u8,
}

impl SharedLink {
    /// Of a file that may be written; `None`: it is no link of this version, or one of streams to other hosts.
    pub fn new(file: &File) -> Option<SharedLink> {
        // Without the seal its owner could end this process by making it smaller.
        let seals = rustix::fs::fcntl_get_seals(file).ok()?;
        if !seals.contains(SealFlags::SHRINK) || file.metadata().ok()?.len() < MAPPED as u64 {
            return None;
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping disturbs nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), MAPPED, access, MapFlags::SHARED, file, 0) }.ok()?.cast();
        let mapped = SharedLink { base };
        let header = mapped.header();
        let known = header.magic.load(Ordering::Relaxed) == MAGIC
            && header.version.load(Ordering::Relaxed) == VERSION
            && !matches!(header.lent.load(Ordering::Relaxed), STATIONS | PLAIN_PEERS);
        known.then_some(mapped)
    }

    /// The header.
    pub fn header(&self) -> &LinkHeader {
        // SAFETY: mapped, and all of it are atomics.
        unsafe { &*self.base.cast::<LinkHeader>() }
    }

    /// The pages, with the numbers of their channels.
    pub fn pages(&self) -> impl Iterator<Item = (usize, &ChannelPage)> {
        // SAFETY: as above.
        (0..CHANNELS).map(|channel| (channel, unsafe { &*self.base.add(CHANNEL_PAGES + channel * PAGE).cast::<ChannelPage>() }))
    }
}

impl Drop for SharedLink {
    fn drop(&mut self) {
        // SAFETY: nothing refers to it any more.
        let _ = unsafe { munmap(self.base.cast(), MAPPED) };
    }
}

const _: () = assert!(offset_of!(ChannelPage, head) == 0);
