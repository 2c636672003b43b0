//! Why a connection goes through the kernel: every fall-back has a name.

macro_rules! reasons {
    ($($name:ident = $code:literal, $word:literal, $text:literal;)*) => {
        /// Why a socket is, or is not, accelerated.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Reason { $(#[doc = $text] $name = $code),* }

        impl Reason {
            /// All reasons, in the order of their codes.
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            /// Reads a code from shared memory.
            pub fn from_code(code: u8) -> Option<Reason> {
                match code { $($code => Some(Reason::$name),)* _ => None }
            }

            /// The reason's short name, as tools and counters print it.
            pub fn word(self) -> &'static str {
                match self { $(Reason::$name => $word),* }
            }

            /// The reason as a sentence.
            pub fn text(self) -> &'static str {
                match self { $(Reason::$name => $text),* }
            }
        }
    };
}

reasons! {
    Unknown = 0, "unknown", "No decision was needed yet.";
    Accelerated = 1, "accelerated", "Carried by shared memory.";
    Unconnected = 2, "unconnected", "A TCP socket that is neither connected nor listening.";
    Listening = 3, "listening", "Listens for shunt clients and for everyone else.";
    SwitchedOff = 4, "switched-off", "The option accelerate is off.";
    PortNotListed = 5, "port-not-listed", "The option ports does not list this server port.";
    NotLocal = 6, "not-local", "The peer's address is not an address of this network namespace.";
    NoListener = 7, "no-listener", "No TCP socket listens at that address and port.";
    PeerPlain = 8, "peer-plain", "The server at that port does not run under shunt, or may not answer for it there (`no-unix`).";
    PeerNotOwner = 9, "peer-not-owner", "Whoever answered for that port does not own it.";
    BacklogFull = 10, "backlog-full", "The server's queue of connections to accept is full.";
    AcceptedFromKernel = 11, "accepted-from-kernel", "The client came through kernel TCP.";
    NoMemory = 12, "no-memory", "No memory, address space or file size left for a shared segment.";
    NoDescriptors = 13, "no-descriptors", "No descriptor left for a shared segment or its companion.";
    NoDiagnosis = 14, "no-sock-diag", "The kernel does not tell who owns a port (sock_diag), or how a peer is reached (rtnetlink): no sockets of AF_NETLINK (RestrictAddressFamilies= of a unit).";
    NoPort = 15, "no-port", "No local port could be reserved.";
    Refused = 16, "refused", "The companion could not be connected.";
    UnsupportedSocket = 17, "unsupported-socket", "A kind of socket or option that shared memory cannot serve.";
    VersionMismatch = 18, "version-mismatch", "The peer runs another version of shunt.";
    BadSegment = 19, "bad-segment", "The peer's segment was not sealed or had another shape.";
    PeerNotMember = 20, "peer-unknown", "The peer's user is not visible in this user namespace.";
    TableFull = 21, "table-full", "The descriptor's number or the count of sockets is beyond shunt's tables.";
    NotTcp = 22, "not-tcp", "Not a TCP stream socket.";
    Inherited = 23, "inherited", "Opened before this program started, by one that shunt does not know.";
    ListenerNameTaken = 24, "name-taken", "The rendezvous name of this listener could not be bound.";
    Datagrams = 25, "datagrams", "UDP: the kernel carries it until its receiver is seen to spin.";
    DatagramsPinned = 26, "datagrams-kernel", "UDP that the kernel must see: options, O_ASYNC, an epoll set or socket that other processes have.";
    Carried = 27, "carried", "Handed to a program without shunt, or handed on by a process that has become another user: a process of shunt's carries its bytes.";
    NotCarried = 28, "not-carried", "Handed to a program without shunt, and no process could be made to carry its bytes.";
    ForeignBytes = 29, "foreign-bytes", "A program wrote past the library: the connection was reset, as its bytes had no place.";
    ListenerHandedOver = 30, "listener-handed-over", "Handed to a program without shunt, or given O_ASYNC: from then on clients come through the kernel.";
    IoUring = 31, "io-uring", "The process uses an io_uring for sockets, or has one whose operations shunt cannot see.";
    OutsideArea = 32, "outside-area", "The peer is another host, which the option hosts does not name, or which the program's device for other hosts does not reach.";
    NoStation = 33, "no-station", "This process could not set up what it needs for other hosts.";
    PeerHostPlain = 34, "peer-host-plain", "Nobody answers on the peer's host: no shunt there, or a firewall between.";
    PeerHostRefused = 35, "peer-host-refused", "The peer's host runs shunt, but not the server at that port, or it has no room.";
    TooSlow = 36, "too-slow", "The peer's host did not answer within the time that connect allows.";
    StreamsFull = 37, "streams-full", "No room for another stream to other hosts in this process.";
    OtherHost = 38, "other-host", "Carried by active messages to another host.";
    PathLost = 39, "path-lost", "The way to the other host was lost while connecting: the kernel carries it.";
    Local = 40, "unix", "AF_UNIX: the kernel carries it until its receiver is seen to spin.";
    LocalPinned = 41, "unix-kernel", "AF_UNIX that the kernel must see: credentials, O_ASYNC, an end or a set that other processes have.";
    ForeignReads = 42, "foreign-reads", "This program read past the library, and got doorbells for bytes of the connection.";
    UserChanged = 43, "user-changed", "A process that shares the segment became another user: the connection got a fresh segment, or where that keeps happening the kernel carries it. Of a listener: two users came to have it, and it became the kernel's.";
    SocketOfOther = 44, "other-user", "Another user than the one who listens made this socket: clients cannot tell the answer from a stranger's.";
    ClientLeft = 45, "client-left", "The client gave up, or went another way, before it was accepted.";
    RawTrapped = 46, "raw-trapped", "System calls by this program's own instructions are trapped, and done by the library.";
    RawNotTrapped = 47, "raw-not-trapped", "System calls by this program's own instructions cannot be trapped: the kernel, a filter, the order in memory or a Go library forbids it.";
    RawInstructions = 48, "raw-instructions", "Instructions of this program or a library of its could make calls on connections, and cannot be trapped, so it keeps to the kernel. With --raw off it does not.";
    SystemCallFilter = 49, "seccomp", "A filter of system calls (seccomp) refuses what the library needs: the program keeps to the kernel, and what it had is carried.";
    Bulk = 50, "bulk", "A stream to another host that sent much: its TCP connection carries it from there on.";
    NoUnix = 51, "no-unix", "This process may not make AF_UNIX sockets (seccomp, RestrictAddressFamilies= of a unit), by which programs under shunt meet.";
    Near = 52, "near", "Carried by shared memory to another network namespace of this host.";
    NearUnclaimed = 53, "near-unclaimed", "No server claimed the connection in the shared directory (option near), or at hostd, in time: it does not run under shunt, has another directory, accepts late, or sees another address of this client and hostd is not there.";
    NearUnknown = 54, "near-unknown", "The client showed that it waits in a shared directory, and nobody waits for its address in this one: another directory, an address that was translated where no hostd is, or it waits no longer.";
    NearTaken = 55, "near-taken", "Another process has the name of this connection's address in the shared directory: two networks with equal subnets, or a killed process that left it.";
    NearTranslated = 56, "near-translated", "The server that claimed the connection has another address than the one that was connected to: it was translated on the way, and hostd (shunt hostd) was not asked.";
    NearQuota = 57, "near-quota", "This process has as many segments of other network namespaces as it takes, or hostd as many claims of this user or network.";
    NearRefused = 58, "near-refused", "The other end in the shared directory did not go through with it: another version of shunt, no room, or no proof that it has the connection.";
    ByReference = 59, "by-reference", "A send with MSG_ZEROCOPY stayed in its memory until it was received: one copy was made.";
    CopiedNoPool = 60, "copied-no-pool", "A send with MSG_ZEROCOPY was copied: its bytes lie in no pool or file that the program has shown to the peer (SHUNT_SO_POOL, SHUNT_SO_FILE).";
    CopiedPeer = 61, "copied-peer", "A send with MSG_ZEROCOPY was copied: the peer may not open this process's pool or file, or has no room for it (another user, another PID namespace, no /proc, a limit).";
    CopiedBusy = 62, "copied-busy", "A send with MSG_ZEROCOPY was copied: as much was under way by reference as can be, the pool was new, or the connection is shared, gathered or captured.";
    Taken = 63, "taken", "Carried at user level to a peer that has only a kernel (option inet).";
    GivenBack = 64, "given-back", "Was carried at user level (option inet), and is the kernel's again, for a reason that was not told.";
    InetNoAgent = 65, "inet-no-agent", "No agent that takes connections (shunt agent --take) runs for the interface by which the peer is reached, or it does not answer.";
    InetQueue = 66, "inet-queue", "No queue of the interface is free for this process, or none for its user (shunt agent --trust USER).";
    InetFull = 67, "inet-full", "This process carries as many connections at user level as it can.";
    InetSlow = 68, "inet-slow", "The connection was not there when connect returned.";
    InetKind = 69, "inet-kind", "Not carried at user level (option inet): it is no connected TCP socket of the agent's network namespace.";
    InetEnded = 70, "inet-ended", "Not carried at user level (option inet): the peer has ended it already.";
    InetUnacknowledged = 71, "inet-unacknowledged", "Not carried at user level (option inet): something was sent and is not acknowledged.";
    InetUnread = 72, "inet-unread", "Not carried at user level (option inet): more waits to be read than there is room for.";
    InetUrgent = 73, "inet-urgent", "Not carried at user level (option inet): urgent bytes, or SO_OOBINLINE.";
    InetFilter = 74, "inet-filter", "Not carried at user level (option inet): the program has a filter at the socket.";
    InetMultipath = 75, "inet-mptcp", "Not carried at user level (option inet): Multipath TCP.";
    InetSigned = 76, "inet-signed", "Not carried at user level (option inet): TCP_MD5SIG or TCP_AO.";
    InetLayered = 77, "inet-ulp", "Not carried at user level (option inet): another protocol lies upon it, such as kernel TLS.";
    InetCongestion = 78, "inet-ecn", "Not carried at user level (option inet): ECN was agreed upon.";
    InetMicroseconds = 79, "inet-usec-timestamps", "Not carried at user level (option inet): time stamps in microseconds.";
    InetOptions = 80, "inet-options", "Not carried at user level (option inet): options of IP, a mark, an interface of its own, a least number of hops, a pace, time stamps, SO_PEEK_OFF, SO_ZEROCOPY, TCP_INQ.";
    InetRoute = 81, "inet-route", "Not carried at user level (option inet): the way to the peer is not by the agent's interface.";
    InetNeighbour = 82, "inet-neighbour", "Not carried at user level (option inet): the next hop is not known.";
    InetDiscipline = 83, "inet-qdisc", "Not carried at user level (option inet): a queueing discipline decides what leaves.";
    InetAccounted = 84, "inet-cgroup", "Not carried at user level (option inet): programs of the process's control group see what comes or leaves.";
    InetTracking = 85, "inet-conntrack", "Not carried at user level (option inet): connection tracking has it, and cannot be told to let it be.";
    InetTranslated = 86, "inet-nat", "Not carried at user level (option inet): its addresses are translated.";
    InetSteering = 87, "inet-steering", "Not carried at user level (option inet): frames cannot be steered: the interface has several receive queues (ethtool -L NAME combined 1).";
    InetLimit = 88, "inet-limit", "Not carried at user level (option inet): the user has as many as the agent allows.";
    InetGuard = 89, "inet-guard", "Not carried at user level (option inet): the process that gives back what a killed agent leaves is not there.";
    InetKernel = 90, "inet-kernel", "Not carried at user level (option inet): the kernel refused a step.";
    InetPolicy = 91, "inet-policy", "Not carried at user level (option inet): there are policies of IPsec, or routes depend on more than the destination.";
    InetShort = 92, "inet-short", "Not carried at user level (option inet): connections with this server have ended, or have become the kernel's, after a few messages, or none is known (auto).";
    InetCrowd = 93, "inet-crowd", "Not carried at user level (option inet): many threads of this process sleep at a time, and each frame would wake them all.";
    Cut = 94, "cut", "Was carried by shared memory to another network namespace of this host, and is on its TCP connection again, as an administrator asked (shunt cut).";
    InetCounted = 95, "inet-counted", "Not carried at user level (option inet): rules of netfilter, or connection tracking, count or limit packets (shunt agent --despite-rules takes it).";
    CopiedQuota = 96, "copied-quota", "A send with MSG_ZEROCOPY was copied: as much was under way by reference as the program lets be (SHUNT_SO_QUOTA).";
    Lent = 97, "lent", "A plain send was received from the memory that the program has shown while the call lasted (SHUNT_SO_OUTPUT): one copy was made.";
    TakenBack = 98, "taken-back", "A plain send lent its bytes (SHUNT_SO_OUTPUT), and its receiver did not come in time: what it had not taken was copied.";
    GivenBackIdle = 99, "given-back-idle", "Was carried at user level (option inet), and is the kernel's again: nothing moved for ten seconds.";
    GivenBackBulk = 100, "given-back-bulk", "Was carried at user level (option inet), and is the kernel's again: it moved much at a time, which the kernel does better.";
    GivenBackLoss = 101, "given-back-loss", "Was carried at user level (option inet), and is the kernel's again: packets were lost, overtook each other, or were marked as in a jam.";
    GivenBackOdd = 102, "given-back-odd", "Was carried at user level (option inet), and is the kernel's again: the peer sent what user level leaves to the kernel (urgent bytes, a SYN, odd options).";
    GivenBackEnded = 103, "given-back-ended", "Was carried at user level (option inet), and is the kernel's again: either end has ended it, or its direction of it, or the program sent an urgent byte.";
    GivenBackSilent = 104, "given-back-silent", "Was carried at user level (option inet), and is the kernel's again: the program computed, or was stopped, while packets waited for it.";
    GivenBackChanged = 105, "given-back-changed", "Was carried at user level (option inet), and is the kernel's again: the route, its longest packet, rules, policies or a queueing discipline are others now, or could not be read.";
    GivenBackShared = 106, "given-back-shared", "Was carried at user level (option inet), and is the kernel's again: others have it, too, or something came past it (a message with a descriptor, io_uring, POSIX AIO, a filter of system calls, another holder of the socket, an odd packet, ss -K).";
    GivenBackAgent = 107, "given-back-agent", "Was carried at user level (option inet), and is the kernel's again: the agent ended.";
    GivenBackFork = 108, "given-back-fork", "Was carried at user level (option inet), and is the kernel's again: the program forked, or started another (Redis does for each snapshot and each rewrite of its log), which would have what only this process can drive.";
    GivenBackCrowd = 109, "given-back-crowd", "Was carried at user level (option inet), and is the kernel's again: many threads of this process sleep at a time, and each frame would wake them all.";
    GivenBackOption = 110, "given-back-option", "Was carried at user level (option inet), and is the kernel's again: the program asked for what only the kernel gives (O_ASYNC, SO_ZEROCOPY, time stamps and their like).";
}

/// Zeros know no reason.
impl Default for Reason {
    fn default() -> Reason {
        Reason::Unknown
    }
}

impl Reason {
    /// Why an agent takes no connection, by its own number for that, from 1 on.
    pub fn of_decline(number: u32) -> Reason {
        // Of those that came later, whose codes do not follow.
        if number == 24 {
            return Reason::InetCounted;
        }
        let last = Reason::InetPolicy as u32 - Reason::InetKind as u32;
        u8::try_from(number.wrapping_sub(1))
            .ok()
            .filter(|number| u32::from(*number) <= last)
            .and_then(|number| Reason::from_code(Reason::InetKind as u8 + number))
            .unwrap_or(Reason::InetKernel)
    }

    /// Why a connection that was taken is the kernel's again, by the number that its driver, or its agent, has for that, from 1 on.
    pub fn of_return(number: u8) -> Reason {
        let last = Reason::GivenBackAgent as u8 - Reason::GivenBackIdle as u8;
        let number = number.wrapping_sub(1);
        let code = if number <= last { Reason::GivenBackIdle as u8 + number } else { Reason::GivenBack as u8 };
        Reason::from_code(code).unwrap_or(Reason::GivenBack)
    }

    /// Whether a connection was taken, and is the kernel's again.
    pub fn is_given_back(self) -> bool {
        self == Reason::GivenBack || (Reason::GivenBackIdle as u8..=Reason::GivenBackOption as u8).contains(&(self as u8))
    }

    /// Whether such a one that did not last says that others of its server will not. What becomes of the whole process, but that it computes for long, or of what is around it, says nothing.
    pub fn is_of_its_server(self) -> bool {
        self == Reason::GivenBack || (Reason::GivenBackIdle as u8..=Reason::GivenBackSilent as u8).contains(&(self as u8))
    }

    /// Whether the kernel carries a connection for this reason that could otherwise be in memory.
    pub fn is_fall_back(self) -> bool {
        use Reason::*;
        let carried = matches!(self, Accelerated | Near | OtherHost | Taken | Listening | RawTrapped);
        // No connection, not one of TCP, or nothing that the kernel carries instead.
        let none = matches!(self, Unknown | Unconnected | NotTcp | Datagrams | Local | ClientLeft | ForeignReads | ForeignBytes);
        // Of single sends.
        let sends = matches!(self, ByReference | CopiedNoPool | CopiedPeer | CopiedBusy | CopiedQuota | Lent | TakenBack);
        !carried && !none && !sends
    }
}

/// Number of codes that counters keep room for.
pub const COUNTERS: usize = 128;

const _: () = assert!(Reason::ALL.len() <= COUNTERS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_reasons_agree() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_code(*reason as u8), Some(*reason));
            assert!(reason.text().ends_with('.'));
        }
        assert_eq!(Reason::from_code(255), None);
    }

    #[test]
    fn what_was_given_back_has_a_name_and_some_of_it_says_something_of_its_server() {
        let all: Vec<Reason> = Reason::ALL.iter().copied().filter(|reason| reason.is_given_back()).collect();
        assert!(all.len() == 13 && all.iter().all(|reason| reason.word().starts_with("given-back")));
        let of_servers: Vec<Reason> = all.iter().copied().filter(|reason| reason.is_of_its_server()).collect();
        use Reason::*;
        assert_eq!(
            of_servers,
            [GivenBack, GivenBackIdle, GivenBackBulk, GivenBackLoss, GivenBackOdd, GivenBackEnded, GivenBackSilent]
        );
        let of_numbers = (0..=11).map(Reason::of_return);
        assert!(of_numbers.eq(all[..10].iter().copied().chain([GivenBack; 2])));
    }
}
