//! The pools of this process, found by address: by the handler of faults, and by calls that have the kernel write.

use crate::limit::Limit;
use crate::pool::Control;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Pools of a process at most.
pub const POOLS: usize = 64;

/// A pool's place. Where its units are stands beside the pointer: a look for an address that is in no pool goes to no pool's memory, which
/// another thread may be giving up.
struct Place {
    control: AtomicPtr<Control>,
    start: AtomicUsize,
    end: AtomicUsize,
}

static TABLE: [Place; POOLS] =
    [const { Place { control: AtomicPtr::new(core::ptr::null_mut()), start: AtomicUsize::new(0), end: AtomicUsize::new(0) } };
        POOLS];

impl Place {
    /// Whether the pool's units have one of these addresses.
    fn touches(&self, address: usize, end: usize) -> bool {
        address < self.end.load(Ordering::Acquire) && end > self.start.load(Ordering::Acquire)
    }
}

/// # Errors
/// [`Limit::Pools`].
pub(crate) fn add(control: *mut Control) -> Result<(), Limit> {
    let null = core::ptr::null_mut();
    let free = |place: &&Place| place.control.compare_exchange(null, control, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let place = TABLE.iter().find(free).ok_or(Limit::Pools)?;
    // SAFETY: the caller's, alive.
    let units = unsafe { (*control).units() };
    place.start.store(units.start, Ordering::Release);
    place.end.store(units.end, Ordering::Release);
    Ok(())
}

pub(crate) fn remove(control: *mut Control) {
    if let Some(place) = TABLE.iter().find(|place| place.control.load(Ordering::Acquire) == control) {
        place.end.store(0, Ordering::Release);
        place.control.store(core::ptr::null_mut(), Ordering::Release);
    }
}

/// The pool whose units hold `address`. It stays while its owner keeps it, which does not give it up while using it.
pub(crate) fn find(address: usize) -> Option<&'static Control> {
    TABLE.iter().filter(|place| place.touches(address, address.saturating_add(1))).find_map(|place| {
        // SAFETY: taken from the table before it is freed; a thread has the address, and so the pool.
        let control = unsafe { place.control.load(Ordering::Acquire).as_ref() }?;
        control.unit_at(address).map(|_| control)
    })
}

/// Whether any pool is made of these bytes in part: the look that a call makes for each buffer that the kernel is to fill.
pub fn touches(address: usize, length: usize) -> bool {
    TABLE.iter().any(|place| place.touches(address, address.saturating_add(length)))
}

/// In a child, after fork(2) and before the program goes on: its pools become private copies, as the rest of its memory is; the
/// handles are the parent's.
///
/// The child sees what the parent's pools hold, and goes on seeing it where neither writes. It can change nothing that the parent
/// has lent to others.
pub fn forked() {
    crate::told::forked();
    for place in &TABLE {
        let control = place.control.swap(core::ptr::null_mut(), Ordering::AcqRel);
        place.end.store(0, Ordering::Release);
        // SAFETY: this process's copy of what was in the table.
        if let Some(control) = unsafe { control.as_ref() } {
            control.forked();
        }
    }
}
