//! What lies where in a job's memory. Shared with processes of the same version alone: [`VERSION`] is checked.
//!
//! One cache line has one writer where it matters: a rank's sleep word, a member's flags, a group's counter.

use crate::trace::ring_bytes;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// The first word of a job's memory.
pub const MAGIC: u64 = u64::from_le_bytes(*b"shuntgas");
/// Of this layout.
pub const VERSION: u32 = 8;
/// Ranks that a job may have: an index of a group's member takes ten bits.
pub const RANKS: usize = 1024;
/// Groups that may exist at one time: teams, ...
const TEAMS: usize = 256;
/// ... and active sets, of which a program may use each there is; it never says when one is over. More ranks than 64 do not get more.
const SETS: usize = 64 * 64;
/// Address space that the heaps of a job may take: processes have twice that.
const SPACE: usize = 1 << 46;
/// Rounds of a barrier by flags: two to this power members.
pub const ROUNDS: usize = 10;
/// Heaps begin and end at multiples of this, so that huge pages fit.
pub const HUGE: usize = 2 << 20;
/// The size of a page.
pub const PAGE: usize = 4096;

/// Values of [`Header::state`].
pub mod state {
    /// The job runs.
    pub const RUNNING: u32 = 0;
    /// It ends; the cause is in the header.
    pub const ENDED: u32 = 1;
}

/// Values of [`Header::cause`].
pub mod cause {
    /// A rank was killed by a signal; `code` is the signal.
    pub const SIGNAL: u32 = 1;
    /// A rank exited with a status that is not 0; `code` is the status.
    pub const STATUS: u32 = 2;
    /// A rank ended with status 0 and had not finalized.
    pub const LEFT: u32 = 3;
    /// A rank asked for the end of the job; `code` is the status.
    pub const ASKED: u32 = 4;
    /// The launcher was told to end; `code` is the signal.
    pub const LAUNCHER: u32 = 5;
    /// A rank finalized while others wait for it.
    pub const EARLY: u32 = 6;
    /// The launcher, which is none of ours, has gone.
    pub const GONE: u32 = 7;
}

/// Values of [`RankBlock::state`].
pub mod rank_state {
    /// No process has taken this rank.
    pub const FREE: u32 = 0;
    /// A process has it and runs.
    pub const JOINED: u32 = 1;
    /// The process needs no other any more.
    pub const FINALIZED: u32 = 2;
    /// A process has it, and has not started yet to be a rank.
    pub const TAKEN: u32 = 3;
}

/// At offset 0.
#[repr(C, align(64))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// How many ranks there are.
    pub ranks: u32,
    /// Bytes of one heap, and the stride between heaps.
    pub heap_bytes: u64,
    /// More ranks than processors: waiting does not spin.
    pub crowded: u32,
    /// Records of each rank's ring; 0 if the job is not traced.
    pub trace: u32,
    /// Bytes of the program's static data that each rank shares; 0 until the first has come.
    pub data_bytes: AtomicU64,
    /// See [`state`].
    pub state: AtomicU32,
    /// See [`cause`].
    pub cause: AtomicU32,
    /// The rank that the cause names.
    pub cause_rank: AtomicU32,
    /// See [`cause`].
    pub cause_code: AtomicI32,
    /// Held while a group is looked for; the owner's rank plus one.
    pub groups_lock: AtomicU32,
    /// Marks that were given to groups.
    pub marks: AtomicU32,
    /// Slots of groups that have ever been taken: those behind are free.
    pub groups_used: AtomicU32,
    /// The first rank of this host.
    pub first: u32,
    /// How many ranks this host has.
    pub local: u32,
}

/// One for each rank, from offset [`PAGE`] on.
#[repr(C, align(256))]
pub struct RankBlock {
    /// The process.
    pub process: AtomicU32,
    /// See [`rank_state`].
    pub state: AtomicU32,
    /// Sum over the program's layout: ranks of one job run one program.
    pub program: AtomicU64,
    /// 1 once it has no connection to another launcher any more.
    pub left: AtomicU32,
    pad: [u32; 11],
    /// 1 while a thread of this rank sleeps, or is about to: the futex.
    pub asleep: AtomicU32,
    /// What memory it waits for, as numbers of [`crate::World::place`]: begin and end. Other puts do not wake it.
    pub waits_from: AtomicU64,
    /// See `waits_from`.
    pub waits_to: AtomicU64,
    /// What it waits for, for those who look: 0 nothing, 1 a value, 2 a barrier, 3 a lock.
    pub waits_for: AtomicU32,
    /// Bytes that others have stored here and counted.
    pub stored_bytes: AtomicU64,
    /// What it waits on, plus one: a value's place, a group's slot, a lock's place; 0 if that is not known.
    pub waits_on: AtomicU64,
    /// Since when, in nanoseconds of CLOCK_MONOTONIC.
    pub waits_since: AtomicU64,
    /// The lock that it took last and has not given back: its place, plus one.
    pub holds: AtomicU64,
}

/// The state that the members of a group share; [`Layout::groups`] of them follow the blocks.
#[repr(C, align(64))]
pub struct GroupHead {
    /// Start, stride, size and what tells groups of equal members apart; 0 if this one is free.
    pub key: AtomicU64,
    /// Members that have left.
    pub left: AtomicU32,
    pad: [u32; 13],
    /// The last barrier whose sleepers were woken; of a group of several hosts, barriers that are over: the futex.
    pub turn: AtomicU32,
    /// Members that sleep on `turn`, or are about to.
    pub sleepers: AtomicU32,
    /// Of a group of several hosts: members of this one that have arrived at the barrier.
    pub count: AtomicU32,
    pad2: [u32; 13],
    /// Of a group of several hosts, by round: the number of the last barrier in which the host of that round has arrived.
    pub arrived: [AtomicU32; 15],
    /// Barriers of several hosts that this one has begun.
    pub crossings: AtomicU32,
}

/// One for each possible member of a group.
#[repr(C, align(64))]
pub struct Member {
    /// By round: the number of the last barrier in which the partner of that round has arrived.
    pub flags: [AtomicU32; 16],
    /// What the member tells the others.
    pub told: [AtomicU64; 4],
    /// Barriers that this member has begun.
    pub number: AtomicU32,
    /// The processor on which it began the last one.
    pub processor: AtomicU32,
}

/// Offsets in the memory of a job of so many ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// How many ranks there are.
    pub ranks: usize,
    /// Bytes of one heap.
    pub heap_bytes: usize,
    /// Records of each rank's ring; 0 if the job is not traced.
    pub trace: usize,
}

const fn up(value: usize, to: usize) -> usize {
    value.div_ceil(to) * to
}

impl Layout {
    /// `heap` is rounded up.
    ///
    /// # Panics
    /// Where [`Layout::fitting`] fails.
    pub fn new(ranks: usize, heap: usize) -> Layout {
        Layout::fitting(ranks, heap).expect("heaps that fit")
    }

    /// The same, of any size.
    ///
    /// # Errors
    /// A sentence, if a process has no address space for so many heaps.
    pub fn fitting(ranks: usize, heap: usize) -> Result<Layout, String> {
        match heap.max(1).checked_next_multiple_of(HUGE) {
            Some(bytes) if bytes.checked_mul(ranks.max(1)).is_some_and(|all| all <= SPACE) => {
                Ok(Layout { ranks, heap_bytes: bytes, trace: 0 })
            }
            _ => Err(format!(
                "no process has address space for {ranks} symmetric heaps of {} MiB each (SHMEM_SYMMETRIC_SIZE)",
                heap >> 20
            )),
        }
    }

    /// How many groups there may be at one time.
    pub fn groups(&self) -> usize {
        TEAMS + (self.ranks * self.ranks).min(SETS)
    }

    /// The same with rings of so many records.
    pub fn traced(self, records: usize) -> Layout {
        Layout { trace: records, ..self }
    }

    /// Of the table of hosts, in the header's page: words.
    pub const HOSTS: usize = 256;

    /// Of a rank's block.
    pub fn block(&self, rank: usize) -> usize {
        PAGE + rank * size_of::<RankBlock>()
    }

    /// From one group to the next.
    pub fn group_stride(&self) -> usize {
        size_of::<GroupHead>() + self.ranks * size_of::<Member>()
    }

    /// Of a group's head; its members follow.
    pub fn group(&self, slot: usize) -> usize {
        up(self.block(self.ranks), PAGE) + slot * self.group_stride()
    }

    /// Of a rank's ring, behind the groups; all are empty if the job is not traced.
    pub fn ring(&self, rank: usize) -> usize {
        up(self.group(self.groups()), PAGE) + rank * up(ring_bytes(self.trace), PAGE)
    }

    /// Of rank 0's heap; the others follow at the stride `heap_bytes`.
    pub fn heaps(&self) -> usize {
        up(self.ring(self.ranks), HUGE)
    }

    /// Behind the heaps: rank 0's static data; the others follow at the stride of its size.
    pub fn data(&self) -> usize {
        self.heaps() + self.ranks * self.heap_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap() {
        for ranks in [1, 2, 3, 64, RANKS] {
            let layout = Layout::new(ranks, 1);
            assert_eq!(layout.ring(0), layout.ring(ranks));
            let traced = layout.traced(100);
            let end = layout.group(layout.groups());
            assert_eq!(traced.group(traced.groups()), end);
            assert!(traced.ring(0) >= end && traced.ring(1) >= traced.ring(0) + ring_bytes(100));
            assert!(traced.heaps() >= traced.ring(ranks - 1) + ring_bytes(100));
            assert!(size_of::<Header>() <= Layout::HOSTS && Layout::HOSTS + 8 * crate::remote::hosts::TABLE <= PAGE);
            assert!(layout.group(0) >= layout.block(ranks - 1) + size_of::<RankBlock>());
            assert!(layout.heaps() >= layout.group(layout.groups() - 1) + layout.group_stride());
            assert_eq!(layout.heaps() % HUGE, 0);
            assert_eq!(layout.data() - layout.heaps(), ranks * HUGE);
        }
    }
    #[test]
    fn heaps_that_no_process_can_map_are_refused() {
        for (ranks, heap) in
            [(1, usize::MAX), (3, 6_148_914_691_236_517_888), (2, SPACE), (RANKS, SPACE / RANKS + 1), (0, SPACE + 1)]
        {
            let why = Layout::fitting(ranks, heap).unwrap_err();
            assert!(why.contains(&format!("{ranks} symmetric heaps")), "{why}");
        }
        assert_eq!(Layout::fitting(RANKS, SPACE / RANKS).unwrap().data(), Layout::new(RANKS, SPACE / RANKS).heaps() + SPACE);
    }
}
