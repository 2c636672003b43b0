//! Functions, by the sorted table that unwinders search (.eh_frame_hdr; Linux Standard Base, core, 10.6).

use crate::Memory;
use core::ops::Range;

/// Version, and how the table's numbers are written: 4 bytes each, from the header's address on (DW_EH_PE_datarel |
/// DW_EH_PE_sdata4).
const VERSION: u8 = 1;
const FROM_HEADER: u8 = 0x3b;
const UDATA4: u8 = 0x03;
/// Before the table: the four bytes that say so, where .eh_frame lies, how many entries there are.
const HEADER: u64 = 12;
const ENTRY: u64 = 8;

/// The table of one object.
#[derive(Debug)]
pub struct Functions<'a, M: Memory + ?Sized> {
    memory: &'a M,
    at: u64,
    count: u32,
}

fn word<M: Memory + ?Sized>(memory: &M, address: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    memory.read(address, &mut bytes).then(|| u32::from_le_bytes(bytes))
}

fn from(address: u64, distance: u32) -> u64 {
    address.wrapping_add(distance as i32 as u64)
}

impl<'a, M: Memory + ?Sized> Functions<'a, M> {
    /// The table in `place`. `None`: there is none, or it is written in another way than linkers write it.
    pub fn of(memory: &'a M, place: Range<u64>) -> Option<Functions<'a, M>> {
        let mut how = [0; 4];
        let room = place.end.saturating_sub(place.start).checked_sub(HEADER)? / ENTRY;
        let read = memory.read(place.start, &mut how);
        // How .eh_frame's place is written does not matter, if only it takes 4 bytes.
        if !read || how[0] != VERSION || ![0x03, 0x0b].contains(&(how[1] & 0x0f)) || how[2] != UDATA4 || how[3] != FROM_HEADER {
            return None;
        }
        let count = word(memory, place.start + 8)?;
        (u64::from(count) <= room).then_some(Functions { memory, at: place.start, count })
    }

    /// An entry: where the function begins, and its description.
    fn entry(&self, index: u32) -> Option<(u64, u64)> {
        let at = self.at + HEADER + u64::from(index) * ENTRY;
        Some((from(self.at, word(self.memory, at)?), from(self.at, word(self.memory, at + 4)?)))
    }

    /// Where functions lie: from the beginning of the first to the end of the last.
    pub fn bounds(&self) -> Option<Range<u64>> {
        let (last, _) = self.entry(self.count.checked_sub(1)?)?;
        Some(self.entry(0)?.0..self.around(last)?.end)
    }

    /// The function around an address.
    pub fn around(&self, address: u64) -> Option<Range<u64>> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle)?.0 <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let (start, description) = self.entry(low.checked_sub(1)?)?;
        // A description: its length, its class, where the function begins and how long it is (as its class says; compilers write
        // both in 4 bytes, the first from its own place on).
        let begins_at = description.checked_add(8)?;
        let length = word(self.memory, begins_at.checked_add(4)?)?;
        let function = start..start.checked_add(length.into())?;
        (from(begins_at, word(self.memory, begins_at)?) == start && function.contains(&address)).then_some(function)
    }
}
