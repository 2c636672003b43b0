//! What a process tells of its regions to a process that may inspect it: how often each limit made an output a copy.
//!
//! The counts lie in a memfd of this name, which the process has open and no other: `shunt why` finds it there and reads it.

use crate::limit::Limit;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use shunt_sys::{calls, libc, mapping};

/// The memfd's name.
pub const NAME: &str = "shunt-regions";
/// First word: "shuntlim".
pub const MAGIC: u64 = u64::from_le_bytes(*b"shuntlim");
/// Counts there is room for.
pub const COUNTS: usize = 64;

/// What the memfd holds. A limit's count is at its code; codes of another version are other limits, so the number of limits is
/// told, too.
#[repr(C)]
#[derive(Debug)]
pub struct Told {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// The process that counts. A child of fork(2) has its parent's open, and does not count in it.
    pub pid: AtomicU32,
    /// Limits of this version.
    pub limits: AtomicU32,
    /// By code.
    pub counts: [AtomicU64; COUNTS],
}

static OURS: AtomicPtr<Told> = AtomicPtr::new(core::ptr::null_mut());
/// No descriptor, or no memory: nothing is told, and it is not tried again for each message.
const FAILED: *mut Told = core::ptr::without_provenance_mut(8);

const _: () = assert!(Limit::ALL.len() <= COUNTS);

/// An output was copied for this reason.
pub fn note(limit: Limit) {
    let mut told = OURS.load(Ordering::Acquire);
    if told.is_null() {
        told = begin();
    }
    if told != FAILED {
        // SAFETY: mapped for good.
        unsafe { (*told).counts[limit as usize].fetch_add(1, Ordering::Relaxed) };
    }
}

/// [`note`] of what happens seldom: where telling failed for want of a descriptor or of memory it is tried again.
pub(crate) fn note_seldom(limit: Limit) {
    let _ = OURS.compare_exchange(FAILED, core::ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    note(limit);
}

#[cold]
fn begin() -> *mut Told {
    let made = made();
    let new = made.map_or(FAILED, |(told, _)| told);
    match (OURS.compare_exchange(core::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire), made) {
        (Ok(_), _) => new,
        // Another thread was faster: its counts are those that count, and those that a tool finds. The memory is lost once.
        (Err(other), made) => {
            let _ = made.map(|(_, fd)| calls::close(fd));
            other
        }
    }
}

fn made() -> Option<(*mut Told, i32)> {
    let fd = calls::memfd_create(b"shunt-regions\0", libc::MFD_CLOEXEC).ok()?;
    let size = size_of::<Told>();
    let Ok(base) = calls::give_size(fd, size).and_then(|()| mapping::shared(fd, size)) else {
        let _ = calls::close(fd);
        return None;
    };
    let told = base.cast::<Told>();
    // SAFETY: fresh memory, as large; zeros are valid.
    unsafe {
        (*told).pid.store(calls::getpid(), Ordering::Relaxed);
        (*told).limits.store(Limit::ALL.len() as u32, Ordering::Relaxed);
        (*told).magic.store(MAGIC, Ordering::Release);
    }
    Some((told, fd))
}

/// In a child, after fork(2): it counts for itself.
pub(crate) fn forked() {
    OURS.store(core::ptr::null_mut(), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_told() {
        note(Limit::Quota);
        note(Limit::Quota);
        // SAFETY: made by the first.
        let told = unsafe { &*OURS.load(Ordering::Acquire) };
        assert_eq!(told.counts[Limit::Quota as usize].load(Ordering::Relaxed), 2);
        assert_eq!(told.pid.load(Ordering::Relaxed), std::process::id());
    }

    #[test]
    fn a_thread_that_begins_late_leaves_nothing_to_be_found() {
        // Not what the other test counts, at the same time.
        note(Limit::Loans);
        assert_eq!(begin(), OURS.load(Ordering::Acquire));
        let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
        assert_eq!(files.filter(|file| file.to_string_lossy().contains(NAME)).count(), 1);
    }
}
