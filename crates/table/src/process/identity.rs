//! What the numbers of processes and users mean to this process: those that the kernel tells may be another namespace's.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use shunt_sys::{calls, libc};

/// The numbers of this process's relatives mean others here: it was made in a PID namespace of its own.
static STRANGE: AtomicBool = AtomicBool::new(false);

/// Whether the numbers of this process's relatives say nothing here.
pub fn numbers_are_strange() -> bool {
    STRANGE.load(Ordering::Relaxed)
}

/// Whether process `pid`, an owner of one of our sockets, may live. In doubt it does.
pub fn may_live(pid: u32) -> bool {
    numbers_are_strange() || !shunt_sys::process::has_ended(pid)
}

/// In the child after a fork: its parent cannot be named here (pid_namespaces(7)).
pub fn note_strange() {
    STRANGE.store(true, Ordering::Relaxed);
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

/// Threads may live in different network namespaces.
static DIFFER: AtomicBool = AtomicBool::new(false);

/// Whether threads of this process may live in different namespaces: then new connections are the kernel's.
pub fn namespaces_differ() -> bool {
    DIFFER.load(Ordering::Relaxed)
}

/// They do from now on.
pub fn note_differing_namespaces() {
    DIFFER.store(true, Ordering::Relaxed);
}

/// The user number by which the kernel tells of every user that has none in this user namespace (user_namespaces(7)); as a rule 65534.
fn overflow_user() -> u32 {
    const UNASKED: u32 = u32::MAX;
    static KNOWN: AtomicU32 = AtomicU32::new(UNASKED);
    let known = KNOWN.load(Ordering::Relaxed);
    if known != UNASKED {
        return known;
    }
    let read = || {
        let path = c"/proc/sys/kernel/overflowuid".as_ptr().cast();
        let fd = calls::openat(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0).ok()?;
        let mut text = [0u8; 16];
        let got = calls::read(fd, text.as_mut_ptr().cast(), text.len()).unwrap_or(0);
        let _ = calls::close(fd);
        core::str::from_utf8(&text[..got]).ok()?.trim().parse().ok()
    };
    let user = read().unwrap_or(65534);
    KNOWN.store(user, Ordering::Relaxed);
    user
}

/// Whether two user numbers from the kernel are for sure one user's. In a user namespace that does not map all users one number stands for
/// all that are not mapped, and may be mapped to a user as well: it proves nothing, whoever asks.
pub fn is_same_user(one: u32, other: u32) -> bool {
    one == other && !may_be_anybody(one)
}

/// Whether a user number from the kernel may stand for any user.
pub fn may_be_anybody(user: u32) -> bool {
    user == overflow_user() && !sees_all_users()
}
