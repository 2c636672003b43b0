//! Bits of [`Datagram::flags`](super::Datagram::flags).

/// O_NONBLOCK, as far as this process knows.
pub const NONBLOCK: u32 = 1 << 0;
/// Forked: other processes own the socket, too, and may change its flags.
pub const SHARED: u32 = 1 << 1;
/// Counted for the fork that is happening now.
pub const COUNTED: u32 = 1 << 2;
/// Sending is the kernel's.
pub const SEND_PLAIN: u32 = 1 << 3;
/// The kernel holds the beginning of a datagram (MSG_MORE).
pub const UNFINISHED: u32 = 1 << 4;
/// The inbox was made with a pin in its gate, which is still there.
pub const BORN_SHUT: u32 = 1 << 5;
/// The gate counts one pin for all of [`Datagram::pins`](super::Datagram::pins).
pub const GATE_PINNED: u32 = 1 << 6;
/// The program has bound it: others know its port, so it may serve them.
pub const BOUND: u32 = 1 << 7;
/// AF_UNIX: it has a peer.
pub const CONNECTED: u32 = 1 << 8;
/// AF_UNIX: credentials come with each message (SO_PASSCRED).
pub const CREDENTIALS: u32 = 1 << 9;
/// AF_UNIX: SO_RCVTIMEO is of negative seconds, which the kernel tells as no limit.
pub const NO_TIME: u32 = 1 << 10;
/// The option `inet` names its port, or its peer's.
pub const INET: u32 = 1 << 11;
