//! What the numbers of processes and users mean to this process: those that the kernel tells may be another namespace's.

use super::users::Told;
use super::PROCESS;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use shunt_sys::{calls, libc};

/// What the numbers of this process and its user are, and what they mean.
pub(super) struct Identity {
    /// The numbers of this process's relatives mean others here: it was made in a PID namespace of its own.
    strange: AtomicBool,
    /// Threads may live in different network namespaces.
    differ: AtomicBool,
    /// See [`overflow_user`], plus one; 0: not asked yet.
    overflow: AtomicU32,
    /// The user under whom the process has what it shares.
    pub(super) user: AtomicU32,
    /// The effective user, under whom connections are made.
    pub(super) effective: AtomicU32,
    /// Splits of the descriptor table that have happened, or are tried just now ([`super::split_fd_tables`]).
    pub(super) splits: AtomicU32,
    /// What the processes of a family tell each other of their users ([`super::users`]); null: nothing any more.
    pub(super) told: AtomicPtr<Told>,
    /// Changes of the user since which this process cannot read what others tell.
    pub(super) own_changes: AtomicU64,
}

impl Identity {
    pub(super) const fn new() -> Identity {
        Identity {
            strange: AtomicBool::new(false),
            differ: AtomicBool::new(false),
            overflow: AtomicU32::new(0),
            user: AtomicU32::new(0),
            effective: AtomicU32::new(0),
            splits: AtomicU32::new(0),
            told: AtomicPtr::new(core::ptr::null_mut()),
            own_changes: AtomicU64::new(0),
        }
    }
}

/// Whether the numbers of this process's relatives say nothing here.
pub fn numbers_are_strange() -> bool {
    PROCESS.identity.strange.load(Ordering::Relaxed)
}

/// Whether process `pid`, an owner of one of our sockets, may live. In doubt it does.
pub fn may_live(pid: u32) -> bool {
    numbers_are_strange() || !shunt_sys::process::has_ended(pid)
}

/// In the child after a fork: its parent cannot be named here (pid_namespaces(7)).
pub fn note_strange() {
    PROCESS.identity.strange.store(true, Ordering::Relaxed);
}

/// Whether this user namespace maps every user, so that uids from the kernel are unambiguous.
pub fn sees_all_users() -> bool {
    let Ok(fd) = calls::openat(libc::AT_FDCWD, c"/proc/self/uid_map".as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC, 0) else {
        return false;
    };
    let mut text = [0u8; 128];
    let got = calls::read(fd, text.as_mut_ptr().cast(), text.len()).unwrap_or(0);
    let _ = calls::close(fd);
    let mut words = text[..got].split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
    words.next() == Some(b"0") && words.next() == Some(b"0") && words.next() == Some(b"4294967295")
}

/// Whether threads of this process may live in different namespaces: then new connections are the kernel's.
pub fn namespaces_differ() -> bool {
    PROCESS.identity.differ.load(Ordering::Relaxed)
}

/// They do from now on.
pub fn note_differing_namespaces() {
    PROCESS.identity.differ.store(true, Ordering::Relaxed);
}

/// The user number by which the kernel tells of every user that has none in this user namespace (user_namespaces(7)); as a rule 65534.
fn overflow_user() -> u32 {
    let known = PROCESS.identity.overflow.load(Ordering::Relaxed);
    if known != 0 {
        return known - 1;
    }
    let read = || {
        let path = c"/proc/sys/kernel/overflowuid".as_ptr().cast();
        let fd = calls::openat(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0).ok()?;
        let mut text = [0u8; 16];
        let got = calls::read(fd, text.as_mut_ptr().cast(), text.len()).unwrap_or(0);
        let _ = calls::close(fd);
        core::str::from_utf8(&text[..got]).ok()?.trim().parse().ok()
    };
    let user: u32 = read().unwrap_or(65534);
    PROCESS.identity.overflow.store(user.wrapping_add(1), Ordering::Relaxed);
    user
}

/// Whether two user numbers from the kernel are for sure one user's. In a user namespace that does not map all users one number stands for
/// all that are not mapped, and may be mapped to a user as well: it proves nothing, to this process or to others.
pub fn is_same_user(one: u32, other: u32) -> bool {
    one == other && !may_be_anybody(one)
}

/// Whether a user number from the kernel may stand for any user.
pub fn may_be_anybody(user: u32) -> bool {
    user == overflow_user() && !sees_all_users()
}
