//! Why a connection stays the kernel's.

/// Why a connection stays the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Decline {
    /// It is no connected TCP socket of this network namespace.
    Kind = 1,
    /// The peer has ended, or the connection is not established (any more).
    Ended,
    /// Something was sent and is not acknowledged: soon.
    Unacknowledged,
    /// More waits to be read than the escrow's ring holds.
    Unread,
    /// Urgent bytes, or SO_OOBINLINE.
    Urgent,
    /// The program has a filter at the socket.
    Filter,
    /// Multipath TCP.
    Multipath,
    /// TCP_MD5SIG or TCP_AO.
    Signed,
    /// Another protocol lies upon it, as kernel TLS does (TCP_ULP).
    Layered,
    /// ECN was agreed upon.
    Congestion,
    /// Time stamps in microseconds.
    Microseconds,
    /// Options of IP, a mark, an interface of its own, a least number of hops, a pace, time stamps, SO_PEEK_OFF, SO_ZEROCOPY, TCP_INQ, or repair.
    Options,
    /// The way to the peer is not by the agent's interface.
    Route,
    /// The next hop is not known now.
    Neighbour,
    /// A queueing discipline decides what leaves.
    Discipline,
    /// Programs of the process's cgroup see what comes or leaves.
    Accounted,
    /// Connection tracking has it, and cannot be told to let it be.
    Tracking,
    /// Its addresses are translated.
    Translated,
    /// Frames cannot be steered: the client has no queue, or the interface more than one.
    Steering,
    /// The user has as many as the agent allows.
    Limit,
    /// The process that gives back what a killed agent leaves is not there.
    Guard,
    /// The kernel refused a step.
    Kernel,
    /// There are policies of IPsec, or routes depend on more than the destination.
    Policy,
    /// Rules of netfilter, or connection tracking, count or limit what comes and leaves.
    Counted,
}

use Decline::*;

/// Each reason with its word, in the order of their numbers.
const WORDS: [(Decline, &str); 24] = [
    (Kind, "kind"),
    (Ended, "ended"),
    (Unacknowledged, "unacknowledged"),
    (Unread, "unread"),
    (Urgent, "urgent"),
    (Filter, "filter"),
    (Multipath, "mptcp"),
    (Signed, "signed"),
    (Layered, "ulp"),
    (Congestion, "ecn"),
    (Microseconds, "usec-timestamps"),
    (Options, "options"),
    (Route, "route"),
    (Neighbour, "neighbour"),
    (Discipline, "qdisc"),
    (Accounted, "cgroup"),
    (Tracking, "conntrack"),
    (Translated, "nat"),
    (Steering, "steering"),
    (Limit, "limit"),
    (Guard, "guard"),
    (Kernel, "kernel"),
    (Policy, "policy"),
    (Counted, "counted"),
];

impl Decline {
    /// Of a number that another process wrote.
    pub fn of(number: u32) -> Option<Decline> {
        WORDS.iter().map(|(decline, _)| *decline).find(|decline| *decline as u32 == number)
    }

    /// One word.
    pub const fn word(self) -> &'static str {
        WORDS[self as usize - 1].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_in_the_order_of_the_numbers() {
        for (number, (decline, word)) in (1..).zip(WORDS) {
            assert_eq!((Decline::of(number), decline.word()), (Some(decline), word));
        }
        assert_eq!((Decline::of(0), Decline::of(25)), (None, None));
    }
}
