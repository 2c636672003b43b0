//! Carriers: what moves the bytes of a stream whose other end is not in a link that both processes map. Streams to other hosts are one,
//! those to other network namespaces of this host another, which only makes the link.
//!
//! Start-up fills in the list. Connect, listen and accept ask each carrier in turn, and each hears of the moments of the process's life
//! at which it has something to forget or to give back.

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

/// What a carrier is asked, and told.
pub struct Carrier {
    /// Connects the socket to an address that is not of this namespace. Errors: why it is not this carrier's to connect; the next one is asked.
    pub connect: fn(i32, &'static Socket, &Address) -> Result<Outcome, Reason>,
    /// The socket with this number and inode is about to listen at the address, or does.
    pub listens: fn(i32, u64, &Address),
    /// The listener with this inode is closed, by the last process that had it as far as is known.
    pub listens_no_longer: fn(u64),
    /// The kernel gave a connection to a listener: number, the listener's number, listener, flags of accept4(2). True: it is a stream now.
    pub accepted: fn(i32, i32, &Socket, i32) -> bool,
    /// Others are about to have what the process has, by a fork, an exec, a message or a descriptor that the kernel is to use by itself: streams that this process alone can
    /// drive become the kernel's, for that reason. Before any lock is taken for that.
    pub sharing: fn(Reason),
    /// A private descriptor of the carrier's, perhaps, moves to another number.
    pub moved: fn(i32, i32),
    /// In the child after fork; true: thread numbers of the parent mean nothing here, as in another namespace of processes.
    pub forked: fn(bool),
    /// In a process of ours that takes nothing of the program's: a relay, a process that waits for another user's clients.
    pub forget: fn(),
    /// The process, or a thread of it, has left its network namespace. Under the set-up lock.
    pub left_namespace: fn(),
    /// Whether the calling thread was interrupted while it moved bytes: then it cannot change what the carrier has.
    pub is_driving: fn() -> bool,
    /// The process has become another user, and may still write where it could before.
    pub user_changed: fn(),
    /// The process ends in good order.
    pub ending: fn(),
}

/// The list, in the order in which carriers are asked.
pub type Carriers = &'static [&'static Carrier];

static CARRIERS: AtomicPtr<Carriers> = AtomicPtr::new(core::ptr::null_mut());

/// Fills the list in, before the program connects or listens.
pub fn fill(carriers: &'static Carriers) {
    CARRIERS.store(core::ptr::from_ref(carriers).cast_mut(), Ordering::Release);
}

/// All of them, in the order in which they are asked.
pub fn all() -> impl Iterator<Item = &'static Carrier> {
    // SAFETY: null, or the static that `fill` was given.
    unsafe { CARRIERS.load(Ordering::Acquire).as_ref() }.copied().unwrap_or(&[]).iter().copied()
}

/// Connects `fd` to `server`, an address that is not of this host.
pub(super) fn connect(fd: i32, socket: &'static Socket, server: &Address) -> Outcome {
    let mut reason = Reason::NotLocal;
    for carrier in all() {
        match (carrier.connect)(fd, socket, server) {
            Ok(outcome) => return outcome,
            Err(Reason::NotLocal) => {}
            // One that knows the address and leaves it alone says more than those that do not know it.
            Err(known) => reason = known,
        }
    }
    Outcome::Kernel(reason)
}

/// See [`Carrier::sharing`]. `FORKS`: they are a child, or another program.
pub fn sharing<const FORKS: bool>() {
    all().for_each(|carrier| (carrier.sharing)(if FORKS { Reason::GivenBackFork } else { Reason::GivenBackShared }));
}

/// See [`Carrier::listens`].
pub(super) fn listens(fd: i32, inode: u64, address: &Address) {
    all().for_each(|carrier| (carrier.listens)(fd, inode, address));
}

/// See [`Carrier::listens_no_longer`].
pub(super) fn listens_no_longer(inode: u64) {
    all().for_each(|carrier| (carrier.listens_no_longer)(inode));
}

/// See [`Carrier::accepted`].
pub(super) fn accepted(fd: i32, listening: i32, listener: &Socket, flags: i32) -> bool {
    all().any(|carrier| (carrier.accepted)(fd, listening, listener, flags))
}
