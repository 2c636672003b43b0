//! Other hosts: what connect, listen and accept ask of the room that knows how to reach them, which fills the table in at start-up.

use core::sync::atomic::{AtomicPtr, Ordering};
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_stream::socket::Socket;

/// What connect came to.
pub enum Outcome {
    /// The socket is an accelerated stream now.
    Connected,
    /// The kernel shall connect; the reason is to be noted if that succeeds or is in progress.
    Kernel(Reason),
    /// The kernel has connected, or tried to, with this result; it carries the connection for this reason.
    Done(shunt_sys::Result<isize>, Reason),
}

/// What is asked.
pub struct OtherHosts {
    /// Connects the socket to an address of another host.
    pub connect: fn(i32, &'static Socket, &Address) -> Outcome,
    /// See [`listens`].
    pub listens: fn(i32, u64, &Address),
    /// See [`listens_no_longer`].
    pub listens_no_longer: fn(u64),
    /// See [`accepted`].
    pub accepted: fn(i32, i32, &Socket, i32) -> bool,
}

static OTHER_HOSTS: AtomicPtr<OtherHosts> = AtomicPtr::new(core::ptr::null_mut());

/// Fills the table in, before the program connects or listens.
pub fn fill(other_hosts: &'static OtherHosts) {
    OTHER_HOSTS.store(core::ptr::from_ref(other_hosts).cast_mut(), Ordering::Release);
}

fn other_hosts() -> Option<&'static OtherHosts> {
    // SAFETY: null, or the static that `fill` was given.
    unsafe { OTHER_HOSTS.load(Ordering::Acquire).as_ref() }
}

/// Connects `fd` to `server`, an address of another host.
pub(super) fn connect(fd: i32, socket: &'static Socket, server: &Address) -> Outcome {
    other_hosts().map_or(Outcome::Kernel(Reason::NotLocal), |hosts| (hosts.connect)(fd, socket, server))
}

/// The socket `fd`, with this inode, is about to listen at `address`, or does.
pub(super) fn listens(fd: i32, inode: u64, address: &Address) {
    if let Some(hosts) = other_hosts() {
        (hosts.listens)(fd, inode, address);
    }
}

/// The listener with `inode` is closed, by the last process that had it as far as is known.
pub(super) fn listens_no_longer(inode: u64) {
    if let Some(hosts) = other_hosts() {
        (hosts.listens_no_longer)(inode);
    }
}

/// The kernel gave the connection `fd` to the listener at `listening`, to be made with these flags of accept4(2): true if it is a stream now.
pub(super) fn accepted(fd: i32, listening: i32, listener: &Socket, flags: i32) -> bool {
    other_hosts().is_some_and(|hosts| (hosts.accepted)(fd, listening, listener, flags))
}
