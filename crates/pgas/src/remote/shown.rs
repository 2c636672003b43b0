//! A host's memory as its keeper sees it: each place that a peer names is checked here, whatever the peer has checked.

use super::wire::{Operation, Request, Signal};
use crate::atomic;
use crate::group;
use crate::layout::{state, GroupHead, Header, Layout, Member, RankBlock, ROUNDS};
use crate::memory::{Mapping, Memory};
use crate::wait;
use crate::world::DATA;
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// The memory of a job on this host, mapped.
pub(crate) struct Shown {
    memory: Memory,
    mapping: Mapping,
    layout: Layout,
    /// The first rank of this host, and how many it has.
    first: usize,
    ranks: usize,
    /// Static data of all ranks, once one has come that has any.
    data: Option<(Mapping, usize)>,
}

/// What was asked for, done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Done {
    /// There is nothing to tell.
    Nothing,
    /// The value before.
    Value(u64),
    /// Bytes, in the buffer that was given.
    Bytes(usize),
}

/// Bytes from one place on, as one processor copies them: words in one piece, since others look at them meanwhile.
///
/// # Safety
/// Both must be mapped for so many bytes.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: by the caller.
    unsafe {
        match bytes {
            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            _ => std::ptr::copy(from, to, bytes),
        }
    }
}

impl Shown {
    /// Of a job's memory whose header is written.
    ///
    /// # Errors
    /// If it cannot be mapped.
    pub fn new(memory: Memory, layout: Layout, first: usize, ranks: usize) -> io::Result<Shown> {
        let mapping = memory.map(0, layout.data())?;
        Ok(Shown { memory, mapping, layout, first, ranks, data: None })
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping begins with a header; what changes is atomic.
        unsafe { &*(self.mapping.address() as *const Header) }
    }

    fn block(&self, rank: usize) -> &RankBlock {
        // SAFETY: callers name ranks of the job, whose blocks the mapping has; all is atomic.
        unsafe { &*((self.mapping.address() + self.layout.block(rank)) as *const RankBlock) }
    }

    fn locals(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.ranks
    }

    /// Bytes of static data that each rank has; those of the first rank that says so, here or there.
    pub fn data_bytes(&self, said: u64) -> u64 {
        match self.header().data_bytes.compare_exchange(0, said, AcqRel, Acquire) {
            Ok(_) => said,
            Err(known) => known,
        }
    }

    /// Where so many bytes lie, and whose they are; none if they are not all one rank's of this host.
    pub fn find(&mut self, place: u64, length: u64) -> Option<(usize, usize)> {
        let (base, stride, offset) = match place & DATA {
            0 => (self.mapping.address() + self.layout.heaps(), self.layout.heap_bytes, place),
            _ => {
                let (mapping, stride) = self.data()?;
                (mapping, stride, place ^ DATA)
            }
        };
        let rank = usize::try_from(offset / stride as u64).ok()?;
        let fits = length <= stride as u64 - offset % stride as u64 && self.locals().contains(&rank);
        fits.then_some((rank, base + offset as usize))
    }

    fn data(&mut self) -> Option<(usize, usize)> {
        if self.data.is_none() {
            let bytes = self.header().data_bytes.load(Acquire) as usize;
            // The ranks have grown the memory by the same before they tell anybody that they have come.
            let all = self.layout.ranks.checked_mul(bytes).filter(|all| *all > 0)?;
            self.memory.grow(self.layout.data() + all).ok()?;
            self.data = Some((self.memory.map(self.layout.data(), all).ok()?, bytes));
        }
        self.data.as_ref().map(|(mapping, bytes)| (mapping.address(), *bytes))
    }

    /// To be called after a store: wakes the rank if it sleeps for those bytes.
    fn stored(&self, rank: usize, place: u64, bytes: u64) {
        std::sync::atomic::fence(SeqCst);
        let block = self.block(rank);
        if block.asleep.load(Relaxed) != 0 {
            let (from, to) = (block.waits_from.load(Relaxed), block.waits_to.load(Relaxed));
            if place < to && from < place.saturating_add(bytes) {
                wait::rouse(block);
            }
        }
    }

    /// To be called after a store to a flag of the job's own: wakes all that sleep.
    fn flagged(&self) {
        std::sync::atomic::fence(SeqCst);
        for rank in self.locals() {
            if self.block(rank).asleep.load(Relaxed) != 0 {
                wait::rouse(self.block(rank));
            }
        }
    }

    /// Bytes that a peer's store or get means.
    pub fn slice(&mut self, place: u64, length: u64) -> Option<&mut [u8]> {
        let (_, at) = self.find(place, length)?;
        // SAFETY: `find` has checked that they are mapped, for as long as `self` lives. Ranks may read and write them meanwhile, as they do
        // with each other's memory all the time: the engine copies to or from the slice once, and decides nothing by what it finds there.
        Some(unsafe { std::slice::from_raw_parts_mut(at as *mut u8, length as usize) })
    }

    /// Does what a peer asks for; `data` came with it, and what is got goes to `out`. None: it is refused, and nothing was done.
    pub fn serve(&mut self, request: &Request, data: &[u8], out: &mut [u8]) -> Option<Done> {
        match *request {
            Request::Put { place } => self.put(place, data)?,
            Request::PutSignal { place, signal } => {
                let (rank, _) = self.find(place, data.len() as u64)?;
                let word = self.word(signal.place, true)?;
                // A signal for another rank would be a put and an atomic operation.
                if word.0 != rank {
                    return None;
                }
                self.put(place, data)?;
                self.signal(signal)?;
            }
            Request::Scatter { place, step, size } => {
                let count = elements(data.len(), size)?;
                let (rank, at) = self.find(place, reach(count, step, size)?)?;
                for (number, element) in data.chunks_exact(size as usize).enumerate() {
                    // SAFETY: the last element's end is within what `find` has checked.
                    unsafe { copy(element.as_ptr(), (at + number * step as usize) as *mut u8, element.len()) };
                }
                self.stored(rank, place, reach(count, step, size)?);
            }
            Request::Get { place, length, .. } => {
                let (_, at) = self.find(place, length)?;
                let to = out.get_mut(..length as usize)?;
                // SAFETY: checked by `find`; the buffer has the length.
                unsafe { copy(at as *const u8, to.as_mut_ptr(), to.len()) };
                return Some(Done::Bytes(length as usize));
            }
            Request::Gather { place, step, size, count, .. } => {
                let bytes = count.checked_mul(size).filter(|bytes| size > 0 && *bytes <= out.len() as u64)?;
                let (_, at) = self.find(place, reach(count, step, size)?)?;
                for (number, to) in out[..bytes as usize].chunks_exact_mut(size as usize).enumerate() {
                    // SAFETY: as in `Scatter`.
                    unsafe { copy((at + number * step as usize) as *const u8, to.as_mut_ptr(), to.len()) };
                }
                return Some(Done::Bytes(bytes as usize));
            }
            Request::Atomic { place, operation, wide, value, expected, .. } => {
                return self.atomic(place, operation, wide, value, expected).map(Done::Value);
            }
            Request::Fence { .. } => {}
            Request::Stored { signal, .. } => {
                if let Some(signal) = signal {
                    self.signal(signal)?;
                }
            }
            Request::Arrive { key, round, number, .. } => {
                let slot = self.slot(key)?;
                let flag = self.head(slot).arrived.get(usize::try_from(round).ok()?).filter(|_| round < ROUNDS as u64)?;
                flag.store(u32::try_from(number).ok()?, SeqCst);
                self.flagged();
            }
            Request::Tell { key, index, at, word } => {
                let slot = self.slot(key)?;
                let index = usize::try_from(index).ok().filter(|index| *index < self.layout.ranks)?;
                let at = usize::try_from(at).ok()?;
                let member =
                    self.mapping.address() + self.layout.group(slot) + size_of::<GroupHead>() + index * size_of::<Member>();
                // SAFETY: a slot has room for as many members as there are ranks; all is atomic.
                unsafe { &*(member as *const Member) }.told.get(at)?.store(word, Release);
            }
            Request::Unlock { place, .. } => {
                let (_, at) = self.word(place, true)?;
                // SAFETY: `word` has checked it.
                unsafe { crate::lock::pass_on(at) };
                self.flagged();
            }
            Request::Count { rank, bytes } => {
                let rank = usize::try_from(rank).ok().filter(|rank| self.locals().contains(rank))?;
                self.block(rank).stored_bytes.fetch_add(bytes, AcqRel);
                self.flagged();
            }
        }
        Some(Done::Nothing)
    }

    fn put(&mut self, place: u64, data: &[u8]) -> Option<()> {
        let (rank, at) = self.find(place, data.len() as u64)?;
        // SAFETY: checked by `find`.
        unsafe { copy(data.as_ptr(), at as *mut u8, data.len()) };
        self.stored(rank, place, data.len() as u64);
        Some(())
    }

    /// After bytes that were stored in bulk.
    pub fn arrived(&mut self, place: u64, length: u64) {
        if let Some((rank, _)) = self.find(place, length) {
            self.stored(rank, place, length);
        }
    }

    fn word(&mut self, place: u64, wide: bool) -> Option<(usize, usize)> {
        let size = if wide { 8 } else { 4 };
        self.find(place, size).filter(|(_, at)| (*at as u64).is_multiple_of(size))
    }

    fn signal(&mut self, signal: Signal) -> Option<()> {
        let operation = if signal.adds { Operation::Add } else { Operation::Swap };
        self.atomic(signal.place, operation, true, signal.value, 0).map(|_| ())
    }

    fn atomic(&mut self, place: u64, operation: Operation, wide: bool, value: u64, expected: u64) -> Option<u64> {
        /// # Safety
        /// `at` is an aligned word of mapped memory.
        unsafe fn apply<T: atomic::Word>(at: usize, operation: Operation, value: u64, expected: u64) -> u64 {
            let value = T::from_bits(value);
            // SAFETY: by the caller.
            let before = unsafe {
                match operation {
                    Operation::Load => atomic::load(at),
                    Operation::Swap => atomic::swap(at, value),
                    Operation::Add => atomic::fetch_add(at, value),
                    Operation::And => atomic::fetch_and(at, value),
                    Operation::Or => atomic::fetch_or(at, value),
                    Operation::Xor => atomic::fetch_xor(at, value),
                    Operation::CompareSwap => atomic::compare_swap(at, T::from_bits(expected), value),
                }
            };
            before.bits()
        }
        let (rank, at) = self.word(place, wide)?;
        // SAFETY: `word` has checked it.
        let before = unsafe {
            match wide {
                true => apply::<u64>(at, operation, value, expected),
                false => apply::<u32>(at, operation, value, expected),
            }
        };
        if operation != Operation::Load {
            self.stored(rank, place, if wide { 8 } else { 4 });
        }
        Some(before)
    }

    fn head(&self, slot: usize) -> &GroupHead {
        debug_assert!(slot < self.layout.groups());
        // SAFETY: the layout has so many slots; all is atomic.
        unsafe { &*((self.mapping.address() + self.layout.group(slot)) as *const GroupHead) }
    }

    /// The slot of a group, taken for it if its members here have not come yet.
    fn slot(&self, key: u64) -> Option<usize> {
        let used = (self.header().groups_used.load(Acquire) as usize).min(self.layout.groups());
        if let Some(slot) = (0..used).find(|slot| key != 0 && self.head(*slot).key.load(Acquire) == key) {
            return Some(slot);
        }
        // A group that has no member here, or that is no group, would take slots from others.
        if key >> 63 == 0 || !group::members(key, self.layout.ranks).iter().any(|rank| self.locals().contains(rank)) {
            return None;
        }
        let lock = &self.header().groups_lock;
        while lock.compare_exchange(0, u32::MAX, AcqRel, Relaxed).is_err() {
            if self.header().state.load(Acquire) == state::ENDED {
                return None;
            }
            std::thread::yield_now();
        }
        let found = group::find_slot(self.header(), self.layout.groups(), key, |slot| &self.head(slot).key);
        lock.store(0, Release);
        self.flagged();
        found
    }
}

fn elements(bytes: usize, size: u64) -> Option<u64> {
    (size > 0 && (bytes as u64).is_multiple_of(size)).then(|| bytes as u64 / size)
}

/// Bytes from the first element's beginning to the last one's end.
fn reach(count: u64, step: u64, size: u64) -> Option<u64> {
    match count {
        0 => Some(0),
        _ => (count - 1).checked_mul(step)?.checked_add(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::HUGE;
    use proptest::prelude::*;

    /// Ranks 1 and 2 of four live here; the heaps of the others are watched.
    fn shown() -> Shown {
        let layout = Layout::new(4, HUGE);
        let memory = crate::launch::create(&layout, false).unwrap();
        let shown = Shown::new(memory, layout, 1, 2).unwrap();
        shown.header().data_bytes.store(8192, Release);
        shown
    }

    fn place() -> impl Strategy<Value = u64> {
        let near = (0u64..5, prop_oneof![0u64..64, (HUGE as u64 - 64)..(HUGE as u64 + 64)]);
        let of_data = (0u64..5, 0u64..8300).prop_map(|(rank, offset)| DATA | (rank * 8192 + offset));
        prop_oneof![3 => near.prop_map(|(rank, offset)| rank * HUGE as u64 + offset), 3 => of_data, 1 => any::<u64>()]
    }

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0u64..80, 1 => any::<u64>()]
    }

    proptest! {
        /// Whatever a peer asks for, it is refused or ends within the heap or the data of one rank that lives here.
        #[test]
        fn nothing_leaves_a_rank_of_this_host(
            handler in 0u8..15,
            words in prop::collection::vec(prop_oneof![place(), number()], 0..6),
            data in prop::collection::vec(1u8..=255, 0..100),
        ) {
            let mut shown = shown();
            let Some(request) = Request::decode(handler, &words) else { return Ok(()) };
            let mut out = [0; 128];
            let _ = shown.serve(&request, &data, &mut out);
            let base = shown.mapping.address() + shown.layout.heaps();
            let (data, _) = shown.data().unwrap();
            for rank in [0, 3] {
                for (at, bytes) in [(base + rank * HUGE, 256), (base + (rank + 1) * HUGE - 256, 256), (data + rank * 8192, 8192)] {
                    // SAFETY: mapped.
                    let memory = unsafe { std::slice::from_raw_parts(at as *const u8, bytes) };
                    prop_assert!(memory.iter().all(|byte| *byte == 0), "{:?}", request);
                }
            }
        }

        #[test]
        fn places_are_of_one_rank(at in place(), length in number()) {
            let mut shown = shown();
            if let Some((rank, address)) = shown.find(at, length) {
                prop_assert!((1..3).contains(&rank));
                let stride = if at & DATA == 0 { HUGE as u64 } else { 8192 };
                let offset = at & !DATA;
                prop_assert_eq!(offset / stride, rank as u64);
                prop_assert!(offset % stride + length <= stride);
                prop_assert!(address > 0);
            }
        }
    }

    #[test]
    fn what_is_asked_is_done() {
        let mut shown = shown();
        let mut out = [0; 64];
        let at = HUGE as u64 + 64;
        let mut serve = |request: Request, data: &[u8]| shown.serve(&request, data, &mut out).map(|done| (done, out));
        assert!(serve(Request::Put { place: at }, &[1; 16]).is_some());
        assert!(serve(Request::Scatter { place: at, step: 4, size: 2 }, &[7; 8]).is_some());
        let (done, bytes) = serve(Request::Get { place: at, length: 16, token: 1 }, &[]).unwrap();
        assert_eq!((done, &bytes[..16]), (Done::Bytes(16), &[7, 7, 1, 1, 7, 7, 1, 1, 7, 7, 1, 1, 7, 7, 1, 1][..]));
        let (done, bytes) = serve(Request::Gather { place: at, step: 4, size: 1, count: 4, token: 1 }, &[]).unwrap();
        assert_eq!((done, &bytes[..4]), (Done::Bytes(4), &[7; 4][..]));
        let add = |value, wide| Request::Atomic { place: at + 64, operation: Operation::Add, wide, value, expected: 0, token: 1 };
        assert_eq!(serve(add(u64::MAX, false), &[]).unwrap().0, Done::Value(0));
        assert_eq!(serve(add(1, true), &[]).unwrap().0, Done::Value(u64::from(u32::MAX)));
        assert_eq!(serve(add(0, true), &[]).unwrap().0, Done::Value(1 << 32));
        let unaligned = Request::Atomic { place: at + 4, operation: Operation::Add, wide: true, value: 1, expected: 0, token: 1 };
        assert!(serve(unaligned, &[]).is_none());
    }
}
