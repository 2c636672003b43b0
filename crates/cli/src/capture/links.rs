//! The links of captured processes: which connections there are, and the bit by which their ends are asked to note what they send.
use std::collections::btree_map::{BTreeMap, Entry};

use shunt_segment::channel::{arm, cut, life};
use shunt_segment::sync::Ordering;

use super::flows::Known;
use super::taps::Which;
use crate::inspect::link;
use crate::inspect::processes::{self, Descriptor, Target};
use crate::shared_link::SharedLink;

/// All that are known.
#[derive(Default)]
pub struct Links {
    links: BTreeMap<(u64, u64), Mapped>,
}

struct Mapped {
    link: SharedLink,
    /// Captured processes that have it, with the numbers by which they know themselves.
    holders: BTreeMap<u32, u32>,
}

impl Links {
    /// Finds those of a process.
    pub fn look(&mut self, pid: u32, descriptors: &[Descriptor]) {
        for descriptor in descriptors.iter().filter(|descriptor| descriptor.target == Target::Memory(link::NAME.to_owned())) {
            let Ok(memory) = processes::memory(pid, descriptor.number) else { continue };
            let mapped = match self.links.entry(memory.key) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let Some(mapped) = memory.open(true).ok().and_then(|file| SharedLink::new(&file)) else { continue };
                    entry.insert(Mapped { link: mapped, holders: BTreeMap::new() })
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
            let header = mapped.link.header();
            for (channel, page) in mapped.link.pages() {
                let is_cut = cut::is_moved(page.head.cut.load(Ordering::Relaxed));
                if is_cut || ![life::OFFERED, life::ACCEPTED].contains(&page.head.state.load(Ordering::Acquire)) {
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
            for (_, page) in mapped.link.pages() {
                for side in page.sides.iter().filter(|side| side.wait.armed.load(Ordering::Relaxed) & arm::TAP != 0) {
                    side.wait.armed.fetch_and(!arm::TAP, Ordering::SeqCst);
                }
            }
        }
    }
}
