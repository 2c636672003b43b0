//! The pools of this process, found by address: by the handler of faults, and by calls that have the kernel write.

use crate::limit::Limit;
use crate::pool::Control;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Pools of a process at most.
pub const POOLS: usize = 64;

static TABLE: [AtomicPtr<Control>; POOLS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; POOLS];

/// # Errors
/// [`Limit::Pools`].
pub(crate) fn add(control: *mut Control) -> Result<(), Limit> {
    let null = core::ptr::null_mut();
    let free = |slot: &&AtomicPtr<Control>| slot.compare_exchange(null, control, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    TABLE.iter().find(free).map(|_| ()).ok_or(Limit::Pools)
}

pub(crate) fn remove(control: *mut Control) {
    for slot in &TABLE {
        let _ = slot.compare_exchange(control, core::ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// The pool whose units hold `address`. It stays while its owner keeps it, which does not give it up while using it.
pub(crate) fn find(address: usize) -> Option<&'static Control> {
    TABLE.iter().find_map(|slot| {
        // SAFETY: taken from the table before it is freed.
        let control = unsafe { slot.load(Ordering::Acquire).as_ref() }?;
        control.unit_at(address).map(|_| control)
    })
}

/// Whether any pool is made of these bytes in part: the look that a call makes for each buffer that the kernel is to fill.
pub fn touches(address: usize, length: usize) -> bool {
    TABLE.iter().any(|slot| {
        // SAFETY: as in `find`.
        let control = unsafe { slot.load(Ordering::Acquire).as_ref() };
        control.is_some_and(|control| {
            let units = control.units();
            (address as u64) < units.end as u64 && address.saturating_add(length) > units.start
        })
    })
}

/// In a child, after fork(2) and before the program goes on: its pools become private copies, as the rest of its memory is; the
/// handles are the parent's.
///
/// The child sees what the parent's pools hold, and goes on seeing it where neither writes. It can change nothing that the parent
/// has lent to others.
pub fn forked() {
    crate::told::forked();
    for slot in &TABLE {
        let control = slot.swap(core::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: this process's copy of what was in the table.
        if let Some(control) = unsafe { control.as_ref() } {
            control.forked();
        }
    }
}
