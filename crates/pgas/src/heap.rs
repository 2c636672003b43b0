//! Which parts of the symmetric heap are taken. Every rank computes it by itself: equal calls in an equal order give equal
//! offsets. The lists lie in private memory, so a put astray does not break them.

use std::collections::BTreeMap;

/// Every object begins at a multiple of this: a cache line, so that objects of different use do not share one.
pub const ALIGNMENT: usize = 64;

/// First fit by offset.
#[derive(Debug, Clone)]
pub struct Heap {
    /// Free parts: offset and length. No two touch.
    free: BTreeMap<usize, usize>,
    /// Taken parts: offset, and length as it was rounded.
    taken: BTreeMap<usize, (usize, usize)>,
}

impl Heap {
    /// All of it is free.
    pub fn new(bytes: usize) -> Heap {
        let mut free = BTreeMap::new();
        if bytes > 0 {
            free.insert(0, bytes);
        }
        Heap { free, taken: BTreeMap::new() }
    }

    /// The offset of so many bytes at a multiple of `alignment`, a power of two; none if there is no room, or if it is 0 bytes.
    pub fn take(&mut self, bytes: usize, alignment: usize) -> Option<usize> {
        let alignment = alignment.max(ALIGNMENT);
        if bytes == 0 || !alignment.is_power_of_two() {
            return None;
        }
        let length = bytes.checked_next_multiple_of(ALIGNMENT)?;
        let fits = |(&start, &room): (&usize, &usize)| {
            let at = start.checked_next_multiple_of(alignment)?;
            let end = at.checked_add(length)?;
            (end <= start + room).then_some((start, room, at))
        };
        let (start, room, at) = self.free.iter().find_map(fits)?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if at + length < start + room {
            self.free.insert(at + length, start + room - at - length);
        }
        self.taken.insert(at, (length, bytes));
        Some(at)
    }

    /// The size that was asked for, of the object that begins there.
    pub fn size(&self, offset: usize) -> Option<usize> {
        self.taken.get(&offset).map(|(_, bytes)| *bytes)
    }

    /// Whether the bytes are all of one object.
    pub fn has(&self, offset: usize, length: usize) -> bool {
        self.before(offset).is_some_and(|(start, bytes)| length <= bytes && offset - start <= bytes - length)
    }

    /// Offset and size of the last object that begins there or before.
    pub fn before(&self, offset: usize) -> Option<(usize, usize)> {
        self.taken.range(..=offset).next_back().map(|(&start, &(_, bytes))| (start, bytes))
    }

    /// Gives an object back; false if none begins there.
    pub fn give(&mut self, offset: usize) -> bool {
        let Some((mut length, _)) = self.taken.remove(&offset) else { return false };
        let mut start = offset;
        if let Some(after) = self.free.remove(&(start + length)) {
            length += after;
        }
        if let Some((&before, &room)) = self.free.range(..start).next_back() {
            if before + room == start {
                start = before;
                length += room;
            }
        }
        self.free.insert(start, length);
        true
    }

    /// Another place for the object that begins there, of so many bytes: beside it, or where there is no room for both over it, so that the bytes of
    /// both may overlap. None, and no change, if there is no room.
    pub fn exchange(&mut self, offset: usize, bytes: usize) -> Option<usize> {
        self.size(offset)?;
        if let Some(at) = self.take(bytes, 1) {
            self.give(offset);
            return Some(at);
        }
        let mut without = self.clone();
        let at = without.give(offset).then(|| without.take(bytes, 1))??;
        *self = without;
        Some(at)
    }

    /// Bytes that are free, in however many parts.
    pub fn room(&self) -> usize {
        self.free.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_given_back_joins_its_neighbours() {
        let mut heap = Heap::new(1024);
        let parts: Vec<_> = (0..4).map(|_| heap.take(256, 1).unwrap()).collect();
        assert_eq!(parts, [0, 256, 512, 768]);
        assert_eq!(heap.take(1, 1), None);
        for part in [1, 3, 2, 0] {
            assert!(heap.give(parts[part]));
        }
        assert_eq!(heap.take(1024, 1), Some(0));
        assert!(!heap.give(64));
        assert_eq!(heap.take(0, 1), None);
        assert_eq!(heap.take(usize::MAX, 1), None);
    }

    #[test]
    fn an_object_may_grow_over_itself() {
        let mut heap = Heap::new(1024);
        let (first, second) = (heap.take(64, 1).unwrap(), heap.take(64, 1).unwrap());
        assert_eq!(heap.exchange(first, 960), None);
        assert_eq!((heap.size(first), heap.exchange(first, 128)), (Some(64), Some(128)));
        assert!(heap.give(second));
        assert_eq!((heap.exchange(128, 1024), heap.exchange(128, 64), heap.room()), (Some(0), None, 0));
    }

    proptest! {
        #[test]
        fn objects_never_overlap(steps in proptest::collection::vec((any::<bool>(), 1usize..5000, 0u32..13), 1..200)) {
            let mut heap = Heap::new(1 << 16);
            let mut live: Vec<(usize, usize)> = Vec::new();
            for (take, size, shift) in steps {
                if take || live.is_empty() {
                    if let Some(at) = heap.take(size, 1 << shift) {
                        prop_assert_eq!(at % (1 << shift), 0);
                        prop_assert!(at + size <= 1 << 16);
                        prop_assert!(live.iter().all(|&(start, length)| at + size <= start || start + length <= at));
                        live.push((at, size));
                    }
                } else {
                    let (at, length) = live.swap_remove(size % live.len());
                    prop_assert_eq!(heap.size(at), Some(length));
                    prop_assert!(heap.give(at));
                }
            }
            for (at, _) in live {
                heap.give(at);
            }
            prop_assert_eq!(heap.room(), 1 << 16);
            prop_assert_eq!(heap.take(1 << 16, 1), Some(0));
        }
    }
}
