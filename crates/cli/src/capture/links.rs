//! The links of captured processes: which connections there are, and the bit by which their ends are asked to note what they send.
use std::collections::btree_map::{BTreeMap, Entry};
use std::fs::File;
use std::mem::offset_of;

use rustix::fs::SealFlags;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use shunt_segment::area::{CHANNEL_PAGES, PAGE};
use shunt_segment::channel::{arm, life, ChannelPage};
use shunt_segment::link::{LinkHeader, MAGIC, PLAIN_PEERS, STATIONS};
use shunt_segment::sync::Ordering;
use shunt_segment::{CHANNELS, VERSION};

use super::flows::Known;
use super::taps::Which;
use crate::inspect::link;
use crate::inspect::processes::{self, Descriptor, Target};

/// Bytes of a link that are mapped: its header and the pages of its channels.
const MAPPED: usize = CHANNEL_PAGES + CHANNELS * PAGE;

/// All that are known.
#[derive(Default)]
pub struct Links {
    links: BTreeMap<(u64, u64), Mapped>,
}

struct Mapped {
    base: *mut u8,
    /// Captured processes that have it, with the numbers by which they know themselves.
    holders: BTreeMap<u32, u32>,
}

impl Mapped {
    fn new(file: &File) -> Option<Mapped> {
        // Without the seal its owner could end this process by making it smaller.
        let seals = rustix::fs::fcntl_get_seals(file).ok()?;
        if !seals.contains(SealFlags::SHRINK) || file.metadata().ok()?.len() < MAPPED as u64 {
            return None;
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping disturbs nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), MAPPED, access, MapFlags::SHARED, file, 0) }.ok()?.cast();
        let mapped = Mapped { base, holders: BTreeMap::new() };
        let header = mapped.header();
        let known = header.magic.load(Ordering::Relaxed) == MAGIC
            && header.version.load(Ordering::Relaxed) == VERSION
            && !matches!(header.lent.load(Ordering::Relaxed), STATIONS | PLAIN_PEERS);
        known.then_some(mapped)
    }

    fn header(&self) -> &LinkHeader {
        // SAFETY: mapped, and all of it are atomics.
        unsafe { &*self.base.cast::<LinkHeader>() }
    }

    fn pages(&self) -> impl Iterator<Item = (usize, &ChannelPage)> {
        // SAFETY: as above.
        (0..CHANNELS).map(|channel| (channel, unsafe { &*self.base.add(CHANNEL_PAGES + channel * PAGE).cast::<ChannelPage>() }))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nothing refers to it any more.
        let _ = unsafe { munmap(self.base.cast(), MAPPED) };
    }
}

impl Links {
    /// Finds those of a process.
    pub fn look(&mut self, pid: u32, descriptors: &[Descriptor]) {
        for descriptor in descriptors.iter().filter(|descriptor| descriptor.target == Target::Memory(link::NAME.to_owned())) {
            let Ok(memory) = processes::memory(pid, descriptor.number) else { continue };
            let mapped = match self.links.entry(memory.key) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let Some(mapped) = memory.open(true).ok().and_then(|file| Mapped::new(&file)) else { continue };
                    entry.insert(mapped)
                }
            };
            mapped.holders.entry(pid).or_insert_with(|| processes::own_number(pid));
        }
        if self.links.len() > 4096 {
            self.links.retain(|_, mapped| mapped.holders.keys().any(|pid| processes::exists(*pid)));
        }
    }

    /// Asks the ends of each connection that is `wanted` to note what they send.
    pub fn ask(&self, mut wanted: impl FnMut(&Known) -> bool) {
        for mapped in self.links.values() {
            let header = mapped.header();
            for (channel, page) in mapped.pages() {
                if ![life::OFFERED, life::ACCEPTED].contains(&page.head.state.load(Ordering::Acquire)) {
                    continue;
                }
                if page.sides.iter().all(|side| side.wait.armed.load(Ordering::Relaxed) & arm::TAP != 0) {
                    continue;
                }
                let which = Which {
                    nonce: header.nonce.load(Ordering::Relaxed),
                    sequence: header.sequence.load(Ordering::Relaxed),
                    channel: channel as u32,
                    uses: page.head.generation.load(Ordering::Relaxed),
                };
                let process = |side: usize| {
                    let own = page.sides[side].pid.load(Ordering::Relaxed);
                    let pid = mapped.holders.iter().find(|(_, number)| **number == own).map(|(pid, _)| *pid)?;
                    Some((pid, processes::program(pid)?))
                };
                let address = |words: &[shunt_segment::sync::AtomicU64; 2], shift: u32| {
                    let ports = page.head.ports.load(Ordering::Relaxed);
                    let words = [words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed)];
                    shunt_segment::address::Address::from_words(words, (ports >> shift) as u16, 0)
                };
                let ends = [address(&page.head.client, 0), address(&page.head.server, 16)];
                if wanted(&Known::new(which, ends, [process(0), process(1)])) {
                    for side in &page.sides {
                        side.wait.armed.fetch_or(arm::TAP, Ordering::SeqCst);
                    }
                }
            }
        }
    }

    /// Asks for nothing any more.
    pub fn leave(&self) {
        for mapped in self.links.values() {
            for (_, page) in mapped.pages() {
                for side in page.sides.iter().filter(|side| side.wait.armed.load(Ordering::Relaxed) & arm::TAP != 0) {
                    side.wait.armed.fetch_and(!arm::TAP, Ordering::SeqCst);
                }
            }
        }
    }
}

const _: () = assert!(offset_of!(ChannelPage, head) == 0);
