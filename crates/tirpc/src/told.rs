//! What a process tells of its handles and transports to a process that may inspect it: which are collapsed now, and how often something was not,
//! and why.
//!
//! It lies in a memfd of this name, which the process has open and no other: `shunt why` finds it there and reads it.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicU8, Ordering};

use libc::c_int;

use crate::reason::Reason;

/// The memfd's name.
pub const NAME: &str = "shunt-sunrpc";
/// First word: "shuntonc".
pub const MAGIC: u64 = u64::from_le_bytes(*b"shuntonc");
/// Reasons there is room for.
pub const COUNTS: usize = 32;
/// Descriptors that have a place; those above are counted alone.
pub const ROWS: usize = 4096;

/// Whose a collapsed descriptor is.
pub mod role {
    /// Nobody's.
    pub const NONE: u8 = 0;
    /// A client's handle.
    pub const CLIENT: u8 = 1;
    /// A server's transport.
    pub const SERVER: u8 = 2;
}

/// What the memfd holds. A reason's count is at its code; codes of another version are other reasons, so the number of reasons is told, too.
#[repr(C)]
#[derive(Debug)]
pub struct Told {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// The process that counts. A child of fork(2) has its parent's open, and does not count in it.
    pub pid: AtomicU32,
    /// Reasons of this version.
    pub reasons: AtomicU32,
    /// By code.
    pub counts: [AtomicU64; COUNTS],
    /// The last descriptor of each reason, plus one.
    pub last: [AtomicU32; COUNTS],
    /// By descriptor: a [`role`].
    pub rows: [AtomicU8; ROWS],
}

static OURS: AtomicPtr<Told> = AtomicPtr::new(core::ptr::null_mut());
/// No descriptor, or no memory: nothing is told, and it is not tried again.
const FAILED: *mut Told = core::ptr::without_provenance_mut(8);

const _: () = assert!(Reason::ALL.len() <= COUNTS);

/// A handle, transport or call over `fd` is as `reason` says.
pub fn note(reason: Reason, fd: c_int) {
    let Some(told) = ours() else { return };
    told.last[reason as usize].store(fd.wrapping_add(1) as u32, Ordering::Relaxed);
    told.counts[reason as usize].fetch_add(1, Ordering::Relaxed);
}

/// The layers over `fd` are collapsed from here on.
pub fn collapsed(fd: c_int, role: u8) {
    note(Reason::Collapsed, fd);
    row(fd, role);
}

/// They are no longer: it was destroyed, or is libtirpc's again.
pub fn ended(fd: c_int) {
    row(fd, role::NONE);
}

fn row(fd: c_int, role: u8) {
    if let (Some(told), Ok(at @ 0..ROWS)) = (ours(), usize::try_from(fd)) {
        told.rows[at].store(role, Ordering::Relaxed);
    }
}

fn ours() -> Option<&'static Told> {
    let known = OURS.load(Ordering::Acquire);
    if known == FAILED {
        return None;
    }
    // SAFETY: null, or mapped for good.
    let told = unsafe { known.as_ref() };
    match told {
        Some(told) if told.pid.load(Ordering::Relaxed) == std::process::id() => Some(told),
        // None yet, or a parent's.
        before => begin(known, before),
    }
}

#[cold]
fn begin(known: *mut Told, before: Option<&'static Told>) -> Option<&'static Told> {
    let made = made(before);
    let new = made.map_or(FAILED, |(told, _)| told);
    let now = match (OURS.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire), made) {
        (Ok(_), Some((told, _))) => {
            // SAFETY: mapped for good.
            unsafe { (*told).magic.store(MAGIC, Ordering::Release) };
            told
        }
        (Ok(_), None) => FAILED,
        // Another thread was faster: its counts are those that count, and those that a tool finds.
        (Err(other), made) => {
            if let Some((told, fd)) = made {
                // SAFETY: this function's own, which nothing else has seen.
                unsafe { (libc::munmap(told.cast(), size_of::<Told>()), libc::close(fd)) };
            }
            other
        }
    };
    // SAFETY: mapped for good.
    (now != FAILED).then(|| unsafe { &*now })
}

/// New ones, without the magic yet, and their descriptor. What the parent has collapsed is the child's, too.
fn made(parent: Option<&Told>) -> Option<(*mut Told, c_int)> {
    let size = size_of::<Told>();
    // SAFETY: a C string; the memory is new and as large as said, all zero, which is valid; it is never unmapped. Descriptors are this function's.
    unsafe {
        let fd = libc::memfd_create(c"shunt-sunrpc".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return None;
        }
        let fd = out_of_the_way(fd);
        let (protection, null) = (libc::PROT_READ | libc::PROT_WRITE, core::ptr::null_mut());
        let base = match libc::ftruncate(fd, size as libc::off_t) {
            0 => libc::mmap(null, size, protection, libc::MAP_SHARED, fd, 0),
            _ => libc::MAP_FAILED,
        };
        if base == libc::MAP_FAILED {
            libc::close(fd);
            return None;
        }
        let told = &*base.cast::<Told>();
        for (row, theirs) in told.rows.iter().zip(parent.into_iter().flat_map(|parent| &parent.rows)) {
            row.store(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        told.pid.store(std::process::id(), Ordering::Relaxed);
        told.reasons.store(Reason::ALL.len() as u32, Ordering::Relaxed);
        Some((base.cast(), fd))
    }
}

/// The descriptor under a number that the program's next ones do not come to, where there is one.
unsafe fn out_of_the_way(fd: c_int) -> c_int {
    // SAFETY: a descriptor of the caller's; room for the limit.
    unsafe {
        let mut limit: libc::rlimit = core::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        let base = if limit.rlim_cur >= 1024 { 900 } else { limit.rlim_cur * 3 / 4 };
        match libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, base as c_int) {
            moved if moved >= 0 => {
                libc::close(fd);
                moved
            }
            _ => fd,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_told() {
        collapsed(7, role::SERVER);
        collapsed(9, role::CLIENT);
        note(Reason::LongCall, 9);
        note(Reason::LongCall, 11);
        note(Reason::Missing, -1);
        ended(7);
        // Beyond the last place, and no descriptor at all.
        collapsed(ROWS as c_int, role::CLIENT);
        ended(-1);
        let told = ours().unwrap();
        let count = |reason: Reason| {
            let at = reason as usize;
            (told.counts[at].load(Ordering::Relaxed), told.last[at].load(Ordering::Relaxed))
        };
        assert_eq!(count(Reason::LongCall), (2, 12));
        assert_eq!(count(Reason::Missing), (1, 0));
        assert_eq!(count(Reason::Collapsed), (3, ROWS as u32 + 1));
        let rows: Vec<u8> = [7, 9].map(|fd: usize| told.rows[fd].load(Ordering::Relaxed)).into();
        assert_eq!(rows, [role::NONE, role::CLIENT]);
        assert_eq!(told.pid.load(Ordering::Relaxed), std::process::id());

        // SAFETY: the child tells by its status, and does nothing that another thread may have locked.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                note(Reason::Limited, 5);
                let own = ours().filter(|own| !core::ptr::eq(*own, told));
                let right = own.is_some_and(|own| {
                    own.counts[Reason::Limited as usize].load(Ordering::Relaxed) == 1
                        && own.counts[Reason::LongCall as usize].load(Ordering::Relaxed) == 0
                        && own.rows[9].load(Ordering::Relaxed) == role::CLIENT
                });
                libc::_exit(if right { 0 } else { 1 });
            }
            let mut status = -1;
            libc::waitpid(child, &mut status, 0);
            status
        };
        assert_eq!(status, 0, "a child counts for itself, and has what its parent has");
        assert_eq!(count(Reason::Limited), (0, 0));
    }

    #[test]
    fn a_thread_that_begins_late_leaves_nothing_to_be_found() {
        let ours = ours().unwrap();
        assert!(begin(core::ptr::null_mut(), None).is_some_and(|found| core::ptr::eq(found, ours)));
        let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
        assert_eq!(files.filter(|file| file.to_string_lossy().contains(NAME)).count(), 1);
    }
}
