//! FILEs that hooks know by their address, in lists that grow and whose memory is never given back.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use shunt_sys::{calls, mapping};

/// FILEs in a part of a list.
const PART: usize = 1024;

/// A FILE.
pub struct Slot {
    stream: AtomicPtr<c_void>,
    /// Its descriptor plus one; 0: unused.
    fd: AtomicI32,
    /// The shell at its other end, if popen made it.
    child: AtomicI32,
}

impl Slot {
    const fn unused() -> Slot {
        Slot { stream: AtomicPtr::new(core::ptr::null_mut()), fd: AtomicI32::new(0), child: AtomicI32::new(0) }
    }

    /// The descriptor.
    pub fn fd(&self) -> c_int {
        self.fd.load(Ordering::Acquire) - 1
    }

    /// The FILE; null until [`List::enter`].
    pub fn stream(&self) -> *mut c_void {
        self.stream.load(Ordering::Acquire)
    }

    /// What [`List::enter`] was given.
    pub fn child(&self) -> c_int {
        self.child.load(Ordering::Acquire)
    }
}

/// A part of a list. All-zero is an empty one.
struct Part {
    slots: [Slot; PART],
    next: AtomicPtr<Part>,
}

impl Part {
    fn next(&self) -> Option<&'static Part> {
        // SAFETY: null, or a part that is never unmapped.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// The part behind this one, made if there is none. `None`: no memory.
    fn next_or_new(&self) -> Option<&'static Part> {
        if let Some(next) = self.next() {
            return Some(next);
        }
        let made = mapping::reserve(core::mem::size_of::<Part>()).ok()?.cast::<Part>();
        if self.next.compare_exchange(core::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // Another thread was first.
            let _ = calls::munmap(made.cast(), core::mem::size_of::<Part>());
        }
        self.next()
    }
}

/// A list of FILEs.
pub struct List {
    first: Part,
    count: AtomicU32,
}

impl List {
    /// An empty one.
    pub const fn new() -> List {
        let slots = [const { Slot::unused() }; PART];
        List { first: Part { slots, next: AtomicPtr::new(core::ptr::null_mut()) }, count: AtomicU32::new(0) }
    }

    /// A slot for `fd`, of which no other thread hears before [`List::enter`]. `None`: no memory.
    pub fn reserve(&'static self, fd: c_int) -> Option<&'static Slot> {
        let mut part = &self.first;
        loop {
            let free = |slot: &&Slot| slot.fd.compare_exchange(0, fd + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            if let Some(slot) = part.slots.iter().find(free) {
                return Some(slot);
            }
            part = part.next_or_new()?;
        }
    }

    /// The slot's FILE is `stream`, and the process at its other end, if there is one, is `child`.
    pub fn enter(&self, slot: &Slot, stream: *mut c_void, child: c_int) {
        slot.child.store(child, Ordering::Relaxed);
        slot.stream.store(stream, Ordering::Release);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// No thread uses a slot that was only reserved.
    pub fn forsake(&self, slot: &Slot) {
        slot.fd.store(0, Ordering::Release);
    }

    /// The slot's FILE goes.
    pub fn leave(&self, slot: &Slot) {
        slot.stream.store(core::ptr::null_mut(), Ordering::Release);
        self.forsake(slot);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// All that have a FILE.
    pub fn entered(&'static self) -> impl Iterator<Item = &'static Slot> + Clone {
        let some = self.count.load(Ordering::Relaxed) > 0;
        let parts = core::iter::successors(some.then_some(&self.first), |part| part.next());
        parts.flat_map(|part| part.slots.iter()).filter(|slot| !slot.stream().is_null())
    }

    /// That of `stream`.
    pub fn find(&'static self, stream: *mut c_void) -> Option<&'static Slot> {
        self.entered().find(|slot| slot.stream() == stream)
    }
}

impl Default for List {
    fn default() -> List {
        List::new()
    }
}

#[cfg(test)]
#[path = "tests/files.rs"]
mod tests;
