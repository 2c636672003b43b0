//! The status page as it lies in memory: a row for each descriptor number. The table of descriptors clears rows and marks those of private
//! numbers; what is written into them else, and the page's making, are [`crate::process::status_page`]'s.

use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use shunt_segment::process::{kind, row, ProcessState};
use shunt_segment::reason::Reason;
use shunt_segment::tap::Tap;

/// Where the page is.
pub(crate) struct Page {
    /// Null: there is none.
    pub(crate) state: AtomicPtr<ProcessState>,
    /// Its memfd, -1: none.
    pub(crate) fd: AtomicI32,
    /// The process that made it; 0 in a child of that one, until it makes its own; [`BEING_MADE`] while a thread of it does.
    pub(crate) owner: AtomicI32,
    /// Where what tools capture is noted; null: nowhere so far.
    pub(crate) tap: AtomicPtr<Tap>,
}

pub(crate) static PAGE: Page = Page {
    state: AtomicPtr::new(core::ptr::null_mut()),
    fd: AtomicI32::new(-1),
    owner: AtomicI32::new(0),
    tap: AtomicPtr::new(core::ptr::null_mut()),
};

/// A thread makes the page: others note nothing meanwhile.
pub(crate) const BEING_MADE: i32 = -1;

/// The page that this process has made. The owner is read first: once it is this process, so is the page, which stays mapped.
#[inline]
pub(crate) fn own() -> Option<&'static ProcessState> {
    if PAGE.owner.load(Ordering::Acquire) <= 0 {
        return None;
    }
    // SAFETY: null or mapped.
    unsafe { PAGE.state.load(Ordering::Acquire).as_ref() }
}

/// The descriptor of the state, -1: none.
pub fn descriptor() -> i32 {
    PAGE.fd.load(Ordering::Relaxed)
}

/// The receivers in the state as it is, which in a child may still be its parent's.
pub fn receivers() -> &'static [shunt_segment::sync::AtomicU64] {
    // SAFETY: null or mapped.
    unsafe { PAGE.state.load(Ordering::Acquire).as_ref() }.map_or(&[], |state| &state.header.receivers)
}

/// Where the state is mapped.
pub fn address() -> usize {
    PAGE.state.load(Ordering::Relaxed) as usize
}

/// `fd` is ours alone: not the program's affair, and not counted.
pub fn keep(fd: i32) {
    if let Some(slot) = own().and_then(|state| state.rows.get(fd as u32 as usize)) {
        slot.store(row::pack(Reason::Unknown as u8, kind::PRIVATE, 0), Ordering::Relaxed);
    }
}

/// `fd` is closed.
#[inline]
pub fn forget(fd: i32) {
    if let Some(slot) = own().and_then(|state| state.rows.get(fd as u32 as usize)) {
        if slot.load(Ordering::Relaxed) != 0 {
            slot.store(0, Ordering::Relaxed);
        }
    }
}
