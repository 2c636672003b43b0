//! The channels of an endpoint: found by tag when a frame arrives, by number when one is sent.

use crate::address::{Address, Channel, Tag, Tags};
use crate::error::OpenError;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A registered channel.
#[repr(C, align(128))]
pub struct ChannelEntry {
    /// Generation; odd while the channel is open.
    state: AtomicU32,
    /// The next entry of the same bucket, plus one.
    next: AtomicU32,
    receive: AtomicU64,
    send: AtomicU64,
    address: [AtomicU64; 6],
    /// For the device.
    pub device: [AtomicU64; 7],
}

impl ChannelEntry {
    /// Where its messages go.
    #[inline(always)]
    pub fn address(&self) -> Address {
        let mut words = [0; 6];
        for (word, shared) in words.iter_mut().zip(&self.address) {
            *word = shared.load(Relaxed);
        }
        Address::from_words(words)
    }

    /// Its tags.
    #[inline(always)]
    pub fn tags(&self) -> Tags {
        Tags { receive: Tag(self.receive.load(Relaxed)), send: Tag(self.send.load(Relaxed)) }
    }

    #[inline(always)]
    fn is_open(&self) -> bool {
        self.state.load(Relaxed) & 1 == 1
    }

    #[inline(always)]
    fn channel(&self, index: usize) -> Channel {
        Channel::new(index, self.state.load(Relaxed))
    }
}

/// The registry as one process sees it.
#[derive(Clone, Copy)]
pub struct Registry<'a> {
    entries: &'a [ChannelEntry],
    /// Heads of chains, each an entry's number plus one; a power of two of them.
    buckets: &'a [AtomicU32],
}

impl<'a> Registry<'a> {
    /// Bytes of the index of a registry of `channels`.
    pub(super) const fn index_size(channels: u32) -> usize {
        channels as usize * 2 * 4
    }

    /// # Safety
    /// `entries` and `buckets` point to as many zeroed or used entries, and twice as many words, mapped for the lifetime.
    pub(super) unsafe fn at(entries: *const ChannelEntry, buckets: *const AtomicU32, channels: u32) -> Registry<'a> {
        // SAFETY: the caller's; atomics accept any bytes.
        unsafe {
            Registry {
                entries: core::slice::from_raw_parts(entries, channels as usize),
                buckets: core::slice::from_raw_parts(buckets, channels as usize * 2),
            }
        }
    }

    #[inline(always)]
    fn bucket(&self, tag: Tag) -> &'a AtomicU32 {
        // Tags are random, and chosen here: no peer can make a chain long.
        &self.buckets[tag.0 as usize & (self.buckets.len() - 1)]
    }

    /// How many channels there can be.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// The open channel that was given `tag`.
    #[inline(always)]
    pub fn by_tag(&self, tag: Tag) -> Option<(Channel, &'a ChannelEntry)> {
        let mut at = self.bucket(tag).load(Relaxed) as usize;
        // A chain has no more links than there are entries, unless another owner wrote nonsense.
        for _ in 0..self.entries.len() {
            let entry = self.entries.get(at.checked_sub(1)?)?;
            if entry.receive.load(Relaxed) == tag.0 && entry.is_open() {
                return Some((entry.channel(at - 1), entry));
            }
            at = entry.next.load(Relaxed) as usize;
        }
        None
    }

    /// The entry of a channel that is still open.
    #[inline(always)]
    pub fn get(&self, channel: Channel) -> Option<&'a ChannelEntry> {
        let entry = self.entries.get(channel.index())?;
        (entry.is_open() && entry.channel(channel.index()) == channel).then_some(entry)
    }

    /// The entry at `index`, open or not.
    pub fn entry(&self, index: usize) -> Option<&'a ChannelEntry> {
        self.entries.get(index)
    }

    /// The open channels.
    pub fn iter(&self) -> impl Iterator<Item = (Channel, &'a ChannelEntry)> + 'a {
        let open = |(index, entry): (usize, &'a ChannelEntry)| entry.is_open().then(|| (entry.channel(index), entry));
        self.entries.iter().enumerate().filter_map(open)
    }

    /// Registers a channel.
    ///
    /// # Errors
    /// `Tag` if a tag is 0 or the receive tag is in use, `Full`.
    pub fn insert(&self, remote: &Address, tags: Tags) -> Result<Channel, OpenError> {
        if tags.receive.0 == 0 || tags.send.0 == 0 || self.by_tag(tags.receive).is_some() {
            return Err(OpenError::Tag);
        }
        let (index, entry) = self.entries.iter().enumerate().find(|(_, entry)| !entry.is_open()).ok_or(OpenError::Full)?;
        entry.receive.store(tags.receive.0, Relaxed);
        entry.send.store(tags.send.0, Relaxed);
        for (shared, word) in entry.address.iter().zip(remote.to_words()) {
            shared.store(word, Relaxed);
        }
        entry.device.iter().for_each(|word| word.store(0, Relaxed));
        entry.state.store(entry.state.load(Relaxed).wrapping_add(1), Relaxed);
        let bucket = self.bucket(tags.receive);
        entry.next.store(bucket.load(Relaxed), Relaxed);
        bucket.store(index as u32 + 1, Relaxed);
        Ok(entry.channel(index))
    }

    /// Forgets a channel; gives its entry, whose device words are still there.
    pub fn remove(&self, channel: Channel) -> Option<&'a ChannelEntry> {
        let entry = self.get(channel)?;
        let place = channel.index() as u32 + 1;
        let mut link = self.bucket(entry.tags().receive);
        for _ in 0..self.entries.len() {
            let at = link.load(Relaxed);
            if at == place {
                link.store(entry.next.load(Relaxed), Relaxed);
                break;
            }
            match self.entries.get((at as usize).wrapping_sub(1)) {
                Some(other) => link = &other.next,
                None => break,
            }
        }
        entry.state.store(entry.state.load(Relaxed).wrapping_add(1), Relaxed);
        Some(entry)
    }
}
