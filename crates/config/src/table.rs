//! The table: one row per option. Flags, variables, help, man page and documentation follow from it.
use crate::options::Options;
use crate::problem::Problem;
use crate::setters;

/// What reads an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The preload library, inside the program.
    Library,
    /// The `shunt` command alone.
    Command,
}

/// One option.
#[derive(Debug)]
pub struct Entry {
    /// Its name: what follows the dashes of the flag.
    pub name: &'static str,
    /// The flag of `shunt run`.
    pub flag: &'static str,
    /// The environment variable. A flag is stronger than a variable.
    pub variable: &'static str,
    /// The placeholder of the value in help texts.
    pub value_name: &'static str,
    /// What a value is, with its article: completes the sentence "... is not".
    pub form: &'static str,
    /// The unit of a bare number, or empty for values that are no numbers.
    pub unit: &'static str,
    /// The value without a flag or a variable.
    pub default: &'static str,
    /// The values that are allowed.
    pub range: &'static str,
    /// A value that is accepted.
    pub example: &'static str,
    /// What the option does: sentences.
    pub help: &'static str,
    /// What reads it.
    pub reader: Reader,
    pub(crate) set: fn(&mut Options, &[u8]) -> Result<(), Problem>,
}

impl Entry {
    /// The row of this name, as it stands in configuration files.
    pub fn by_name(name: &str) -> Option<&'static Entry> {
        TABLE.iter().find(|entry| entry.name == name)
    }

    /// The row whose flag is `flag`, dashes included.
    pub fn by_flag(flag: &str) -> Option<&'static Entry> {
        TABLE.iter().find(|entry| entry.flag == flag)
    }

    /// The row whose environment variable is `variable`.
    pub fn by_variable(variable: &str) -> Option<&'static Entry> {
        TABLE.iter().find(|entry| entry.variable == variable)
    }
}

/// Every option, in the order in which help texts show them.
pub static TABLE: [Entry; 16] = [
    Entry {
        name: "accelerate",
        flag: "--accelerate",
        variable: "SHUNT_ACCELERATE",
        value_name: "on|off",
        form: "one of on, off",
        unit: "",
        default: "on",
        range: "on, off",
        example: "off",
        help: "Whether connections are accelerated. With `off` every connection goes through the kernel, as if shunt were \
               not there.",
        reader: Reader::Library,
        set: setters::set_accelerate,
    },
    Entry {
        name: "ring",
        flag: "--ring",
        variable: "SHUNT_RING",
        value_name: "SIZE",
        form: "a size",
        unit: "bytes",
        default: "4M",
        range: "4K..4M",
        example: "256K",
        help: "The largest ring of a connection, per direction; rounded up to a power of two. Larger rings carry more \
               bytes between two sleeps, and use more memory for each busy connection. Under a memory limit (cgroup) \
               of less than 1G, `shunt run` takes 1/256 of it, and at least 64K, where nothing is said.",
        reader: Reader::Library,
        set: setters::set_ring,
    },
    Entry {
        name: "spin",
        flag: "--spin",
        variable: "SHUNT_SPIN",
        value_name: "TIME",
        form: "a time",
        unit: "microseconds",
        default: "50us",
        range: "0..10ms",
        example: "100us",
        help: "The longest time a waiting thread spins before it sleeps. Spinning answers sooner and uses the processor \
               while it waits; 0 never spins.",
        reader: Reader::Library,
        set: setters::set_spin,
    },
    Entry {
        name: "spin-on-kernel",
        flag: "--spin-on-kernel",
        variable: "SHUNT_SPIN_ON_KERNEL",
        value_name: "on|off",
        form: "one of on, off",
        unit: "",
        default: "on",
        range: "on, off",
        example: "off",
        help: "Whether threads also spin where they wait for TCP connections that go through the kernel, by calls that do not \
               wait. With `off` such waits sleep at once.",
        reader: Reader::Library,
        set: setters::set_spin_on_kernel,
    },
    Entry {
        name: "ports",
        flag: "--ports",
        variable: "SHUNT_PORTS",
        value_name: "LIST",
        form: "a list of ports",
        unit: "",
        default: "all",
        range: "all, or up to 16 ports and ranges in 1..65535",
        example: "6379,8000-8999",
        help: "The server ports that may be accelerated. Connections to other ports go through the kernel.",
        reader: Reader::Library,
        set: setters::set_ports,
    },
    Entry {
        name: "hosts",
        flag: "--hosts",
        variable: "SHUNT_HOSTS",
        value_name: "none|auto|LIST",
        form: "none, auto, or a list of subnets",
        unit: "",
        default: "auto",
        range: "none, auto, or up to 8 subnets; at most /32 for IPv4, /128 for IPv6",
        example: "10.1.0.0/16,fd00:1::/64",
        help:
            "Other hosts to which connections may be accelerated, if they run shunt too. With `auto` those in subnets that are \
               directly connected by an interface for which `shunt agent` runs: where no agent runs, none. Hosts in listed \
               subnets are reached through an agent where one runs, and over UDP elsewhere.",
        reader: Reader::Library,
        set: setters::set_hosts,
    },
    Entry {
        name: "inet",
        flag: "--inet",
        variable: "SHUNT_INET",
        value_name: "off|auto|LIST",
        form: "off, auto, or a list of ports",
        unit: "",
        default: "off",
        range: "off, auto, all, or up to 16 ports and ranges in 1..65535",
        example: "6379",
        help: "Server ports whose TCP connections with other hosts are taken from the kernel and carried at user level, by a queue of the \
               interface, where `shunt agent --take` runs for it. The peer needs no shunt. Threads that receive at UDP sockets of ports that are named look before they sleep, without an agent. For long-lived connections of small messages; the \
               kernel makes and ends them, and has them back whenever anything unusual happens. With `auto` servers are learned: one whose \
               first four connections were over before 128 messages has a few tried in two seconds. With this option the \
               program has no streams to other hosts that run shunt.",
        reader: Reader::Library,
        set: setters::set_inet,
    },
    Entry {
        name: "near",
        flag: "--near",
        variable: "SHUNT_NEAR",
        value_name: "auto|off|DIRECTORY",
        form: "auto, off, or the absolute path of a directory",
        unit: "",
        default: "auto",
        range: "auto, off, or an absolute path of at most 48 bytes",
        example: "/srv/shunt/shop",
        help: "The directory in which programs of this host meet that are in different network namespaces, such as containers on one \
               bridge: it is mounted into both. Connections between them are then accelerated. `auto` is `/run/shunt` where that is a \
               directory of root or of the program's user which others cannot write to, or with the sticky bit. Addresses that the option hosts lists are other hosts'.",
        reader: Reader::Library,
        set: setters::set_near,
    },
    Entry {
        name: "bulk",
        flag: "--bulk",
        variable: "SHUNT_BULK",
        value_name: "SIZE",
        form: "a size",
        unit: "bytes",
        default: "4M",
        range: "0, or 64..1G",
        example: "64M",
        help: "How much a stream to another host sends ahead of its reader before it is left to its TCP connection, where its \
               bytes go by the kernel's UDP: TCP has more bandwidth, UDP the shorter round trips. 0: \
               never, unless the other end does.",
        reader: Reader::Library,
        set: setters::set_bulk,
    },
    Entry {
        name: "udp",
        flag: "--udp",
        variable: "SHUNT_UDP",
        value_name: "off|on|eager",
        form: "one of off, on, eager",
        unit: "",
        default: "off",
        range: "off, on, eager",
        example: "on",
        help: "Whether UDP datagrams between processes of one user may travel through shared memory. With `on` they do while \
               their receiver spins; with `eager` whenever it does not sleep, from the first datagram on.",
        reader: Reader::Library,
        set: setters::set_udp,
    },
    Entry {
        name: "unix",
        flag: "--unix",
        variable: "SHUNT_UNIX",
        value_name: "off|on|eager",
        form: "one of off, on, eager",
        unit: "",
        default: "off",
        range: "off, on, eager",
        example: "on",
        help:
            "Whether the bytes of AF_UNIX streams and socket pairs, and the packets of SOCK_SEQPACKET, between processes of one \
               user may travel through shared memory. With `on` they do while their receiver spins; with `eager` whenever it \
               does not sleep, from the first byte on.",
        reader: Reader::Library,
        set: setters::set_unix,
    },
    Entry {
        name: "log",
        flag: "--log",
        variable: "SHUNT_LOG",
        value_name: "off|fallbacks|all",
        form: "one of off, fallbacks, all",
        unit: "",
        default: "off",
        range: "off, fallbacks, all",
        example: "fallbacks",
        help: "What is written to standard error: nothing; one line for each connection that falls back to the kernel, \
               with the reason; or one line for each connection.",
        reader: Reader::Library,
        set: setters::set_log,
    },
    Entry {
        name: "io-uring",
        flag: "--io-uring",
        variable: "SHUNT_IO_URING",
        value_name: "deny|allow",
        form: "one of deny, allow",
        unit: "",
        default: "deny",
        range: "deny, allow",
        example: "allow",
        help: "Whether the program may use io_uring by syscall(2), whose operations shunt cannot see. With `deny`, \
               io_uring_setup answers ENOSYS, and programs that can use epoll instead do so. Rings of liburing work in \
               any case; sockets that they are given go through the kernel.",
        reader: Reader::Library,
        set: setters::set_io_uring,
    },
    Entry {
        name: "raw",
        flag: "--raw",
        variable: "SHUNT_RAW",
        value_name: "off|trap|auto",
        form: "one of off, trap, auto",
        unit: "",
        default: "auto",
        range: "off, trap, auto",
        example: "trap",
        help: "What becomes of system calls that the program makes by instructions of its own, past the C library. With `off` they \
               go to the kernel, which cannot serve accelerated connections: what they write resets the connection, and what they \
               read is not its bytes. With `trap` the kernel tells of each such call by a signal, and the library does it: each costs \
               a microsecond, and every other system call some nanoseconds. With `auto` that is done from the program's first socket or \
               second thread on, if there are instructions in the program or its libraries that could make a call on a connection. Where they cannot \
               be trapped, the process keeps to the kernel (reason `raw-instructions`); `shunt why` names whose they are.",
        reader: Reader::Library,
        set: setters::set_raw,
    },
    Entry {
        name: "rpc",
        flag: "--rpc",
        variable: "SHUNT_RPC",
        value_name: "off|on",
        form: "one of off, on",
        unit: "",
        default: "off",
        range: "off, on",
        example: "on",
        help: "Whether the layers of SunRPC programs of libtirpc are collapsed: with `on`, libshunt_tirpc.so is preloaded behind the library, \
               and stands before libtirpc's functions that move calls and answers over connections. Programs without libtirpc are not changed \
               by it. What is on the wire stays the same, so one end alone may have it.",
        reader: Reader::Command,
        set: setters::set_rpc,
    },
    Entry {
        name: "library",
        flag: "--library",
        variable: "SHUNT_LIBRARY",
        value_name: "PATH",
        form: "a path",
        unit: "",
        default: "libshunt.so beside the command, or in ../lib/shunt or ../lib",
        range: "a readable shared library",
        example: "/usr/lib/shunt/libshunt.so",
        help: "The preload library to use.",
        reader: Reader::Command,
        set: setters::set_library,
    },
];
