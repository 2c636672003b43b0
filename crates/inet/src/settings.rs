//! What the caller decides, and what the kernel's socket told.

use crate::sequence::Seq;
use shunt_path::{Law, Nanoseconds, MILLISECOND};

/// What an engine does about loss and disorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Repeats the oldest packet once, has ten packets under way at the most (RFC 6928), so that no control of congestion is
    /// owed, and leaves everything else to the kernel.
    GiveBack,
    /// Puts packets in order, finds losses (RFC 8985) and repeats them, under this control of congestion.
    Own(Law),
    /// As `Own`, for messages that go to and fro. A gap in a stream, in which ten packets came and no byte was sent, is the kernel's.
    Exchanges(Law),
}

/// Settings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// See there.
    pub recovery: Recovery,
    /// A packet that is not full waits while others are not acknowledged (RFC 1122, 4.2.3.4): without TCP_NODELAY.
    pub nagle: bool,
    /// Full packets in one that the device cuts up; 1 where it does not.
    pub run: u32,
    /// Least retransmission time-out. RFC 6298 says a second, and Linux 200 ms.
    pub least_timeout: Nanoseconds,
    /// Time-outs in a row after which the connection is left to the kernel.
    pub timeouts: u32,
    /// Size of the caller's ring for what is received.
    pub ring: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            recovery: Recovery::GiveBack,
            nagle: false,
            run: 1,
            least_timeout: 200 * MILLISECOND,
            timeouts: 2,
            ring: 256 << 10,
        }
    }
}

/// A clock of time stamps: `value` at `at`, and one more each millisecond (RFC 7323, section 5.4; Linux's).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// TSval at `at`.
    pub value: u32,
    /// The caller's time.
    pub at: Nanoseconds,
}

impl Clock {
    /// TSval of a segment that leaves at `now`.
    #[inline]
    pub fn value(&self, now: Nanoseconds) -> u32 {
        self.value.wrapping_add((now.saturating_sub(self.at) / MILLISECOND) as u32)
    }
}

/// The state of an established connection, as it goes from the kernel's socket to an engine and back (tcp(7), TCP_REPAIR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Oldest byte that is not acknowledged (SND.UNA). Where the kernel's send queue is empty, TCP_QUEUE_SEQ of TCP_SEND_QUEUE is both.
    pub unacknowledged: Seq,
    /// The place behind the last byte that was sent (SND.NXT). What lies between is given back by send(2) into TCP_SEND_QUEUE.
    pub sent: Seq,
    /// The byte that is expected (RCV.NXT).
    pub expected: Seq,
    /// Bytes of a full packet, its time stamps not counted (what is left of TCP_MAXSEG).
    pub segment: u32,
    /// TCP_REPAIR_WINDOW: the segment that told the window, the window in bytes, the largest ever.
    pub window_told: Seq,
    /// See above.
    pub window: u32,
    /// See above.
    pub largest_window: u32,
    /// TCP_REPAIR_WINDOW: room that was promised, from this place.
    pub promised: u32,
    /// See above.
    pub promised_from: Seq,
    /// Scale of the peer's windows, and of ours (TCPI_OPT_WSCALE).
    pub scale: u8,
    /// See above.
    pub own_scale: u8,
    /// Whether the peer understands selective acknowledgements (TCPI_OPT_SACK).
    pub selective: bool,
    /// Time stamps, if both sides use them (TCPI_OPT_TIMESTAMPS): our clock (TCP_TIMESTAMP), and the last that was heard of the peer's, if any was.
    pub timestamps: Option<(Clock, Option<u32>)>,
    /// Smoothed round-trip time and its variation, 0 if there is none.
    pub round_trip: (Nanoseconds, Nanoseconds),
}
