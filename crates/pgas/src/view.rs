//! Which rank waits for what, read from the outside: the job's memory is copied, never mapped, and nothing in it is believed.

use crate::layout::{rank_state, GroupHead, Header, Layout, RankBlock, MAGIC, PAGE, RANKS, VERSION};
use crate::wait::Waits;
use std::fmt;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

/// What a rank said before it went to sleep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Nothing: it computes, or has waited for less than a fraction of a millisecond.
    Nothing,
    /// For bytes of its heap to change; the offset, if one place was named.
    Value(Option<u64>),
    /// For these members of a group, which do not sleep in its barrier, to arrive.
    Barrier {
        /// All members.
        members: Vec<usize>,
        /// Those that are not there.
        missing: Vec<usize>,
    },
    /// For a lock, and the rank that took it.
    Lock(Option<usize>),
}

/// In place of a state.
pub const ELSEWHERE: u32 = u32::MAX;

/// One rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its process, 0 if none has come.
    pub process: u32,
    /// See [`rank_state`]; [`ELSEWHERE`] of a rank on another host, of which this memory tells nothing.
    pub state: u32,
    /// What it waits for.
    pub wait: Wait,
    /// When it began to, in nanoseconds of CLOCK_MONOTONIC.
    pub since: u64,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// The ranks of the job whose memory this is.
///
/// # Errors
/// If it cannot be read, or is no job's memory of this version.
pub fn read(file: &File) -> io::Result<Vec<Row>> {
    let mut bytes = vec![0; PAGE];
    file.read_exact_at(&mut bytes, 0)?;
    let layout = layout(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    bytes.resize(layout.block(layout.ranks), 0);
    file.read_exact_at(&mut bytes, 0)?;
    let key = |slot: usize| {
        let mut key = [0; 8];
        let at = layout.group(slot) + offset_of!(GroupHead, key);
        file.read_exact_at(&mut key, at as u64).map_or(0, |()| u64::from_le_bytes(key))
    };
    Ok(rows(&bytes, &layout, key))
}

/// What the header says, if it can be.
fn layout(bytes: &[u8]) -> Option<Layout> {
    let ranks = word(bytes, offset_of!(Header, ranks)) as u32 as usize;
    let version = word(bytes, offset_of!(Header, version)) as u32;
    let right = word(bytes, offset_of!(Header, magic)) == MAGIC && version == VERSION && (1..=RANKS).contains(&ranks);
    // Nothing behind the groups is looked at, so the heaps' size does not matter.
    right.then_some(Layout { ranks, heap_bytes: 0, trace: 0 })
}

fn rows(bytes: &[u8], layout: &Layout, key: impl Fn(usize) -> u64) -> Vec<Row> {
    let of = |rank: usize, offset: usize| word(bytes, layout.block(rank) + offset);
    let first = word(bytes, offset_of!(Header, first)) as u32 as usize;
    let local = word(bytes, offset_of!(Header, local)) as u32 as usize;
    let is_here = |rank: usize| rank.wrapping_sub(first) < local;
    let why = |rank: usize| of(rank, offset_of!(RankBlock, waits_for)) as u32;
    let on = |rank: usize| of(rank, offset_of!(RankBlock, waits_on));
    let wait = |rank: usize| match why(rank) {
        value if value == Waits::Value as u32 => Wait::Value(on(rank).checked_sub(1)),
        value if value == Waits::Lock as u32 => {
            let holds = |other: &usize| on(rank) != 0 && of(*other, offset_of!(RankBlock, holds)) == on(rank);
            Wait::Lock((0..layout.ranks).find(holds))
        }
        value if value == Waits::Barrier as u32 => {
            let slot = on(rank).checked_sub(1).filter(|slot| *slot < layout.groups() as u64);
            let members = slot.map_or(Vec::new(), |slot| crate::group::members(key(slot as usize), layout.ranks));
            let absent = |other: &usize| is_here(*other) && (why(*other) != Waits::Barrier as u32 || on(*other) != on(rank));
            Wait::Barrier { missing: members.iter().copied().filter(absent).collect(), members }
        }
        _ => Wait::Nothing,
    };
    let row = |rank| Row {
        process: of(rank, offset_of!(RankBlock, process)) as u32,
        state: if is_here(rank) { of(rank, offset_of!(RankBlock, state)) as u32 } else { ELSEWHERE },
        wait: wait(rank),
        since: of(rank, offset_of!(RankBlock, waits_since)),
    };
    (0..layout.ranks).map(row).collect()
}

fn list(ranks: &[usize]) -> String {
    match ranks {
        [] => "-".into(),
        [one] => format!("rank {one}"),
        [first, .., last] if last.checked_sub(*first) == Some(ranks.len() - 1) => format!("ranks {first} to {last}"),
        _ => format!("ranks {}", ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Nothing => write!(f, "-"),
            Wait::Value(Some(offset)) => write!(f, "a value at offset {offset:#x} of the own heap"),
            Wait::Value(None) => write!(f, "a value"),
            Wait::Barrier { members, missing } if missing.is_empty() => {
                write!(f, "barrier of {}; all of this host are there", list(members))
            }
            Wait::Barrier { members, missing } => write!(f, "barrier of {}; not there: {}", list(members), list(missing)),
            Wait::Lock(Some(rank)) => write!(f, "a lock that rank {rank} has"),
            Wait::Lock(None) => write!(f, "a lock"),
        }
    }
}

impl Row {
    /// Its state in a word.
    pub fn state(&self) -> &'static str {
        match self.state {
            rank_state::JOINED => "runs",
            rank_state::FINALIZED => "finalized",
            rank_state::TAKEN => "starts",
            ELSEWHERE => "on another host",
            _ => "none",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Group;
    use proptest::prelude::*;

    fn job(ranks: u32) -> Vec<u8> {
        let mut bytes = vec![0; PAGE + ranks as usize * size_of::<RankBlock>()];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&ranks.to_le_bytes());
        bytes[offset_of!(Header, local)..][..4].copy_from_slice(&ranks.to_le_bytes());
        bytes
    }

    fn set(bytes: &mut [u8], rank: usize, offset: usize, value: u32) {
        let at = PAGE + rank * size_of::<RankBlock>() + offset;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    #[test]
    fn those_that_are_missing_are_named() {
        let mut bytes = job(4);
        for rank in [0, 2] {
            set(&mut bytes, rank, offset_of!(RankBlock, waits_for), Waits::Barrier as u32);
            set(&mut bytes, rank, offset_of!(RankBlock, waits_on), 6);
        }
        set(&mut bytes, 1, offset_of!(RankBlock, waits_for), Waits::Lock as u32);
        set(&mut bytes, 1, offset_of!(RankBlock, waits_on), 77);
        set(&mut bytes, 3, offset_of!(RankBlock, holds), 77);
        let key = |slot| if slot == 5 { Group::key(0, 1, 4, 0) } else { 0 };
        let rows = rows(&bytes, &layout(&bytes).unwrap(), key);
        assert_eq!(rows[0].wait.to_string(), "barrier of ranks 0 to 3; not there: ranks 1, 3");
        assert_eq!(rows[1].wait.to_string(), "a lock that rank 3 has");
        assert_eq!(rows[3].wait, Wait::Nothing);
        assert_eq!(rows[3].state(), "none");
    }

    /// Nothing is said of ranks that the memory does not tell of.
    #[test]
    fn ranks_of_other_hosts_are_not_taken_for_missing() {
        let mut bytes = job(4);
        bytes[offset_of!(Header, local)..][..4].copy_from_slice(&2u32.to_le_bytes());
        for rank in [0, 1] {
            set(&mut bytes, rank, offset_of!(RankBlock, waits_for), Waits::Barrier as u32);
            set(&mut bytes, rank, offset_of!(RankBlock, waits_on), 6);
        }
        let rows = rows(&bytes, &layout(&bytes).unwrap(), |_| Group::key(0, 1, 4, 0));
        assert_eq!(rows[0].wait.to_string(), "barrier of ranks 0 to 3; all of this host are there");
        assert_eq!((rows[1].state(), rows[2].state()), ("none", "on another host"));
    }

    proptest! {
        /// Whatever is in the memory, ranks that are named exist, and there are as many rows as ranks.
        #[test]
        fn hostile_contents_name_no_rank_that_does_not_exist(
            ranks in 0u32..40,
            noise in prop::collection::vec(any::<u8>(), 0..16_000),
            keys in prop::collection::vec(any::<u64>(), 4096 + 256),
            kinds in prop::collection::vec((0u32..5, 0u32..300), 40),
        ) {
            let mut bytes = job(ranks);
            let room = bytes.len() - PAGE;
            let length = noise.len().min(room);
            bytes[PAGE..PAGE + length].copy_from_slice(&noise[..length]);
            for (rank, (kind, on)) in kinds.iter().take(ranks as usize).enumerate() {
                set(&mut bytes, rank, offset_of!(RankBlock, waits_for), *kind);
                set(&mut bytes, rank, offset_of!(RankBlock, waits_on), *on);
                set(&mut bytes, rank, offset_of!(RankBlock, waits_on) + 4, 0);
            }
            let Some(layout) = layout(&bytes) else { prop_assert!(ranks == 0); return Ok(()) };
            let rows = rows(&bytes, &layout, |slot| keys[slot]);
            prop_assert_eq!(rows.len(), ranks as usize);
            for row in rows {
                let named = match &row.wait {
                    Wait::Barrier { members, missing } => members.iter().chain(missing).copied().collect(),
                    Wait::Lock(holder) => holder.iter().copied().collect(),
                    _ => Vec::new(),
                };
                prop_assert!(named.iter().all(|rank| *rank < ranks as usize));
                prop_assert!(!row.wait.to_string().is_empty());
            }
        }
    }
}
