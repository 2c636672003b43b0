//! Epoll sets that watch a socket: what they hear of it from the rooms below them.
//!
//! A socket has the head of a list whose entries belong to the room of sets, which fills the table in at start-up. A socket that no set
//! watches costs a look at that head.

use super::WAITING;
use crate::socket::parts::Head;
use crate::socket::Socket;
use core::sync::atomic::{AtomicPtr, Ordering};

impl Head {
    /// Whether no set watches.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed).is_null()
    }

    /// As a fresh socket's.
    pub fn clear(&self) {
        self.0.store(core::ptr::null_mut(), Ordering::Relaxed);
    }

    /// As the room of sets sees it, the only one that enters anything.
    #[inline(always)]
    pub fn entries<T>(&self) -> &AtomicPtr<T> {
        // SAFETY: pointers to sized types are alike, and all entries are of one type.
        unsafe { &*(&raw const self.0).cast::<AtomicPtr<T>>() }
    }
}

/// What became of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// This process did something to the stream that changes what it is ready for, and of which no bell tells.
    Ready,
    /// A call took bells of the stream off its companion. With them the kernel forgets what sets have not heard yet: they look at
    /// the stream in memory from now on.
    BellsTaken,
    /// It began to listen: its rendezvous joins the sets.
    BecameListener,
    /// It ceases to listen: its other queues leave the sets.
    CeasedToListen,
    /// Its rendezvous is about to be closed: it leaves the sets, which other processes may share.
    RendezvousGoes,
    /// The open file behind its descriptors is about to be replaced by another: it leaves the kernel's sets.
    Replacing,
    /// The other is in its place, and joins them.
    Replaced,
}

/// What the room of sets does.
pub struct Watchers {
    /// Something became of a socket that is watched.
    pub changed: fn(&Socket, Change),
    /// See [`forget`].
    pub forget: fn(&'static Socket, i32) -> bool,
    /// See [`follow`].
    pub follow: fn(&'static Socket, &'static Socket),
    /// See [`can_follow`].
    pub can_follow: fn(&Socket) -> bool,
}

/// Fills the table in, before there is a set.
pub fn fill(watchers: &'static Watchers) {
    WAITING.watchers.store(core::ptr::from_ref(watchers).cast_mut(), Ordering::Release);
}

/// What watches the socket, if any set does.
#[inline]
fn of(socket: &Socket) -> Option<&'static Watchers> {
    if socket.watchers.is_empty() {
        return None;
    }
    // SAFETY: null, or the static that `fill` was given.
    unsafe { WAITING.watchers.load(Ordering::Acquire).as_ref() }
}

/// Something became of the socket.
#[inline]
pub fn changed(socket: &Socket, change: Change) {
    if let Some(watchers) = of(socket) {
        (watchers.changed)(socket, change);
    }
}

/// The last descriptor of this process for `socket` closes: it leaves all sets. True: the kernel's too.
pub fn forget(socket: &'static Socket, fd: i32) -> bool {
    of(socket).is_none_or(|watchers| (watchers.forget)(socket, fd))
}

/// A socket of the kernel took the place of a stream: the entries are that one's from now on.
pub fn follow(socket: &'static Socket, next: &'static Socket) {
    if let Some(watchers) = of(socket) {
        (watchers.follow)(socket, next);
    }
}

/// Whether each set that watches the stream can watch a socket of the kernel in its place.
pub fn can_follow(socket: &Socket) -> bool {
    of(socket).is_none_or(|watchers| (watchers.can_follow)(socket))
}
