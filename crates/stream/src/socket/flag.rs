//! Bits of [`super::Socket::flags`], in their order. All 32 are taken.

/// Forked, or passed on: other processes may own the same side.
pub const SHARED: u32 = 1 << 0;
/// Senders must fence before they look at the peer's armed word.
pub const FENCE: u32 = 1 << 1;
/// A non-blocking connect was answered with EINPROGRESS; the next connect gives 0.
pub const CONNECTING: u32 = 1 << 2;
/// The program bound an address.
pub const BOUND: u32 = 1 << 3;
/// A listener whose descriptor the program made non-blocking.
pub const LISTENER_NONBLOCK: u32 = 1 << 4;
/// SO_LINGER with a time of zero: close resets.
pub const LINGER_RESET: u32 = 1 << 5;
/// A listener that was shared with other processes: links must always be sent.
pub const LISTENER_SHARED: u32 = 1 << 6;
/// Only the kernel can connect it: another process may have the same socket, or it was shut down before it was connected.
pub const PLAIN: u32 = 1 << 7;
/// Counted for the fork that is happening now.
pub const COUNTED: u32 = 1 << 8;
/// The kernel connects it: no further attempt at a rendezvous.
pub const KERNEL: u32 = 1 << 9;
/// O_NONBLOCK, as far as this process knows. The kernel's flag on the companion is what all owners share.
pub const NONBLOCK: u32 = 1 << 10;
/// TCP_CORK is on, or bytes are held back ([`crate::corked`]).
pub const CORKED: u32 = 1 << 11;
/// SO_OOBINLINE.
pub const OOB_INLINE: u32 = 1 << 12;
/// O_ASYNC: the kernel signals the owner when a bell arrives, so the socket is always armed.
pub const ASYNC: u32 = 1 << 13;
/// The companion's other end is closed: known from the kernel, whatever shared memory says.
pub const HUNG_UP: u32 = 1 << 14;
/// This process has shut down its receiving half.
pub const SHUT_RD: u32 = 1 << 15;
/// Receives are more than taking bytes: SO_RCVLOWAT or SO_PEEK_OFF is set.
pub const CAREFUL: u32 = 1 << 16;
/// Times of arrival are asked for: each message is to ring.
pub const TIMED: u32 = 1 << 17;
/// SO_ZEROCOPY.
pub const ZERO_COPY: u32 = 1 << 18;
/// Not a stream yet, and the program set an owner, a signal or O_ASYNC, which the companion is to have.
pub const OWNED: u32 = 1 << 19;
/// A TCP socket of which the kernel holds nothing but what socket(2) made.
pub const VIRGIN: u32 = 1 << 20;
/// FD_CLOEXEC is what socket(2) was given ([`CLOSE_ON_EXEC`]); the only descriptor is the first one.
pub const CLOSE_ON_EXEC_KNOWN: u32 = 1 << 21;
/// See [`CLOSE_ON_EXEC_KNOWN`].
pub const CLOSE_ON_EXEC: u32 = 1 << 22;
/// The process ends, and so did this.
pub const ENDED: u32 = 1 << 23;
/// The companion's open file was changed for good (its owner, half of it shut): it cannot serve another connection.
pub const SPENT: u32 = 1 << 24;
/// Only the kernel can connect or listen: the program set an option by which it decides what comes through, or passed the socket to
/// another process before it listened.
pub const FILTERED: u32 = 1 << 25;
/// A stream to another host, in a process of its station's family: it is moved by who waits (`shunt_remote`).
pub const REMOTE: u32 = 1 << 26;
/// The pump's side of such a stream.
pub const FAR: u32 = 1 << 27;
/// The process has ceased to be an owner of the side: it is about to exec a program that will not have it.
pub const LEFT: u32 = 1 << 28;
/// A carrier of the side did not answer for so long that none is asked any more ([`crate::settle`]).
pub const FORSAKEN: u32 = 1 << 29;
/// A listener that an edge-triggered set watches: each client is to be heard.
pub const LISTENER_EDGES: u32 = 1 << 30;
/// Connected through the rendezvous, and by what was last known not accepted: its server may refuse it without a word.
pub const UNACCEPTED: u32 = 1 << 31;
