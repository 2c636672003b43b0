//! What the numbers of processes and users mean to this process: those that the kernel tells may be another namespace's.

use core::sync::atomic::{AtomicBool, Ordering};
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
