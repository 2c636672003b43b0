//! Private flags of a socket, in three words: a stream's, those of the descriptor whatever it is, and a listener's.
//!
//! A stream's are plain integers, as its calls test many of them at once. The others have a type of their own, so that no mask mixes words.

use super::Socket;
use core::ops::BitOr;
use core::sync::atomic::AtomicU32;

/// Flags of one word.
pub trait Bits: Copy {
    /// The word in which they are.
    fn word(socket: &Socket) -> &AtomicU32;
    /// The flags in it.
    fn bits(self) -> u32;
}

impl Bits for u32 {
    #[inline(always)]
    fn word(socket: &Socket) -> &AtomicU32 {
        &socket.flags
    }
    #[inline(always)]
    fn bits(self) -> u32 {
        self
    }
}

/// Flags of the descriptor, which it has before it is a stream or a listener.
#[derive(Clone, Copy)]
pub struct Descriptor(u32);

/// Flags of a listener.
#[derive(Clone, Copy)]
pub struct Listener(u32);

impl Bits for Descriptor {
    fn word(socket: &Socket) -> &AtomicU32 {
        &socket.descriptor_flags
    }
    fn bits(self) -> u32 {
        self.0
    }
}

impl Bits for Listener {
    fn word(socket: &Socket) -> &AtomicU32 {
        &socket.listening.flags
    }
    fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for Descriptor {
    type Output = Descriptor;
    fn bitor(self, other: Descriptor) -> Descriptor {
        Descriptor(self.0 | other.0)
    }
}

/// Forked, or passed on: other processes may own the same side.
pub const SHARED: u32 = 1 << 0;
/// Senders must fence before they look at the peer's armed word.
pub const FENCE: u32 = 1 << 1;
/// A non-blocking connect was answered with EINPROGRESS; the next connect gives 0.
pub const CONNECTING: u32 = 1 << 2;
/// SO_LINGER with a time of zero: close resets.
pub const LINGER_RESET: u32 = 1 << 3;
/// O_NONBLOCK, as far as this process knows. The kernel's flag on the companion is what all owners share.
pub const NONBLOCK: u32 = 1 << 4;
/// TCP_CORK is on, or bytes are held back ([`crate::corked`]).
pub const CORKED: u32 = 1 << 5;
/// SO_OOBINLINE.
pub const OOB_INLINE: u32 = 1 << 6;
/// O_ASYNC: the kernel signals the owner when a bell arrives, so the socket is always armed.
pub const ASYNC: u32 = 1 << 7;
/// The companion's other end is closed: known from the kernel, whatever shared memory says.
pub const HUNG_UP: u32 = 1 << 8;
/// This process has shut down its receiving half.
pub const SHUT_RD: u32 = 1 << 9;
/// Receives are more than taking bytes: SO_RCVLOWAT or SO_PEEK_OFF is set.
pub const SLOW_RECEIVE: u32 = 1 << 10;
/// Times of arrival are asked for: each message is to ring.
pub const TIMESTAMPS: u32 = 1 << 11;
/// SO_ZEROCOPY.
pub const ZERO_COPY: u32 = 1 << 12;
/// The companion's open file was changed for good (its owner, half of it shut): it cannot serve another connection.
pub const NOT_REUSABLE: u32 = 1 << 13;
/// A stream to another host, in a process of its station's family: it is moved by the thread that waits (`shunt_remote`).
pub const REMOTE: u32 = 1 << 14;
/// The pump's side of such a stream.
pub const FAR: u32 = 1 << 15;
/// The process has ceased to be an owner of the side: it is about to exec a program that will not have it.
pub const DISOWNED: u32 = 1 << 16;
/// A relay of the side did not answer for so long that none is asked any more ([`crate::flush_relays`]).
pub const RELAY_TIMED_OUT: u32 = 1 << 17;
/// Connected through the rendezvous, and by what was last known not accepted: its server may refuse it without a word.
pub const UNACCEPTED: u32 = 1 << 18;
/// SO_ZEROCOPY is or was set: completions may wait in the error queue, which outlives the option.
pub const ERROR_QUEUE: u32 = 1 << 19;
/// What is received is noted for a tool ([`crate::tap`]).
pub const TAPPED: u32 = 1 << 20;
/// Its private descriptor is a TCP connection whose end is the stream's ([`crate::beside`]).
pub const LIFELINE: u32 = 1 << 21;
/// That has ended, when it was looked at last.
pub const LIFELINE_ENDED: u32 = 1 << 22;
/// The kernel has told of its end, and the stream was not looked at since.
pub const LIFELINE_TOLD: u32 = 1 << 23;
/// It is to go back to that connection ([`crate::beside`]), or has.
pub const CUT: u32 = 1 << 24;
/// Streams that may become the kernel's before any call.
pub const MAY_LEAVE: u32 = REMOTE | CUT;

/// The program bound an address.
pub const BOUND: Descriptor = Descriptor(1 << 0);
/// Only the kernel can connect it: another process may have the same socket, or it was shut down before it was connected.
pub const PLAIN: Descriptor = Descriptor(1 << 1);
/// The kernel connects it: no further attempt at a rendezvous.
pub const KERNEL: Descriptor = Descriptor(1 << 2);
/// Not a stream yet, and the program set an owner, a signal or O_ASYNC, which the companion is to have.
pub const OWNED: Descriptor = Descriptor(1 << 3);
/// A TCP socket of which the kernel holds nothing but what socket(2) made.
pub const UNTOUCHED: Descriptor = Descriptor(1 << 4);
/// FD_CLOEXEC is what socket(2) was given ([`CLOSE_ON_EXEC`]); the only descriptor is the first one.
pub const CLOSE_ON_EXEC_KNOWN: Descriptor = Descriptor(1 << 5);
/// See [`CLOSE_ON_EXEC_KNOWN`].
pub const CLOSE_ON_EXEC: Descriptor = Descriptor(1 << 6);
/// Only the kernel can connect or listen: the program set an option by which it decides what comes through, or passed the socket to
/// another process before it listened.
pub const FILTERED: Descriptor = Descriptor(1 << 7);
/// Counted for the fork that is happening now.
pub const COUNTED: Descriptor = Descriptor(1 << 8);
/// The process ends, and so did this.
pub const ENDED: Descriptor = Descriptor(1 << 9);

/// A listener whose descriptor the program made non-blocking.
pub const LISTENER_NONBLOCK: Listener = Listener(1 << 0);
/// A listener that was shared with other processes: links must always be sent.
pub const LISTENER_SHARED: Listener = Listener(1 << 1);
/// Another program got the socket, or this one did, with its rendezvous and before it listened.
pub const LISTENER_HANDED: Listener = Listener(1 << 3);
/// A listener that an edge-triggered set watches: each client is to be heard.
pub const LISTENER_EDGES: Listener = Listener(1 << 2);
