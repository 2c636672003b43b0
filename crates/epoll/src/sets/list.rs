//! Doubly linked lists through the entries themselves: joining, leaving and turning over cost the same however many
//! entries there are.

use super::entry::Entry;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The two lists that an entry can be in at the same time.
pub(super) const OF_SET: usize = 0;
pub(super) const OF_QUEUE: usize = 1;

/// An entry's place in one list.
pub(super) struct Link {
    next: AtomicPtr<Entry>,
    previous: AtomicPtr<Entry>,
}

/// A list of entries, linked by [`Entry::links`]`[WHICH]`. Its user holds the set's lock.
pub(super) struct List<const WHICH: usize> {
    head: AtomicPtr<Entry>,
    tail: AtomicPtr<Entry>,
}

fn reference(pointer: &AtomicPtr<Entry>) -> Option<&'static Entry> {
    // SAFETY: links are null or entries, which live in slabs that are never unmapped.
    unsafe { pointer.load(Ordering::Acquire).as_ref() }
}

/// The address that lists keep of a slab object.
pub(super) fn address<T>(object: &'static T) -> *mut T {
    object as *const T as *mut T
}

impl<const WHICH: usize> List<WHICH> {
    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire).is_null()
    }

    pub(super) fn first(&self) -> Option<&'static Entry> {
        reference(&self.head)
    }

    pub(super) fn last(&self) -> Option<&'static Entry> {
        reference(&self.tail)
    }

    pub(super) fn after(&self, entry: &'static Entry) -> Option<&'static Entry> {
        reference(&entry.links[WHICH].next)
    }

    /// All entries; the one that was given last may leave the list meanwhile.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'static Entry> + '_ {
        let mut at = self.first();
        core::iter::from_fn(move || {
            let entry = at?;
            at = self.after(entry);
            Some(entry)
        })
    }

    pub(super) fn append(&self, entry: &'static Entry) {
        let last = self.tail.load(Ordering::Relaxed);
        entry.links[WHICH].next.store(core::ptr::null_mut(), Ordering::Relaxed);
        entry.links[WHICH].previous.store(last, Ordering::Relaxed);
        match reference(&self.tail) {
            Some(last) => last.links[WHICH].next.store(address(entry), Ordering::Release),
            None => self.head.store(address(entry), Ordering::Release),
        }
        self.tail.store(address(entry), Ordering::Release);
    }

    pub(super) fn remove(&self, entry: &'static Entry) {
        let link = &entry.links[WHICH];
        let (next, previous) = (link.next.load(Ordering::Relaxed), link.previous.load(Ordering::Relaxed));
        match reference(&link.previous) {
            Some(before) => before.links[WHICH].next.store(next, Ordering::Release),
            None => self.head.store(next, Ordering::Release),
        }
        match reference(&link.next) {
            Some(behind) => behind.links[WHICH].previous.store(previous, Ordering::Release),
            None => self.tail.store(previous, Ordering::Release),
        }
    }

    pub(super) fn clear(&self) {
        self.head.store(core::ptr::null_mut(), Ordering::Relaxed);
        self.tail.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
}
