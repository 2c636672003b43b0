//! The options as the preload library uses them: parsed, checked, in its own units.
use crate::hosts::Hosts;
use crate::near::Near;
use crate::ports::Ports;

/// What the preload library writes to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// Nothing.
    Off,
    /// One line for each connection that falls back to the kernel, with the reason.
    Fallbacks,
    /// One line for each connection, accelerated or not.
    All,
}

/// Which datagrams travel through shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Udp {
    /// None: UDP is the kernel's.
    Off,
    /// Those to receivers that spin.
    On,
    /// Those to all receivers, from the first one on and whenever they do not sleep.
    Eager,
}

/// Which AF_UNIX streams and packets travel through shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unix {
    /// None: AF_UNIX is the kernel's.
    Off,
    /// Those to receivers that spin.
    On,
    /// Those to all receivers, from the first one on and whenever they do not sleep.
    Eager,
}

/// What becomes of system calls that the program makes by instructions of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raw {
    /// They are the kernel's, and meet what it knows of accelerated connections.
    Off,
    /// They are trapped.
    Trap,
    /// They are trapped where code that is loaded could make some that meet connections.
    Auto,
}

/// The options of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether connections are accelerated at all.
    pub accelerate: bool,
    /// Largest ring per direction, in bytes: a power of two from 4 KiB to 4 MiB.
    pub ring: u32,
    /// Longest time a waiting thread spins before it sleeps, in nanoseconds: at most 10 ms, 0 never spins.
    pub spin_ns: u64,
    /// Whether it also spins where it waits for TCP connections that the kernel has.
    pub spin_on_kernel: bool,
    /// Server ports that may be accelerated.
    pub ports: Ports,
    /// Other hosts to which connections may be accelerated.
    pub hosts: Hosts,
    /// Server ports whose connections with plain peers are carried at user level.
    pub inet: Ports,
    /// Nobody named those ports: servers are tried, and have their connections carried so where that has paid.
    pub inet_unasked: bool,
    /// A means of tests, of no row in the table: connections are given back after turns that are drawn from this seed; 0: they are not.
    pub inet_seed: u32,
    /// Where programs in different network namespaces of this host meet.
    pub near: Near,
    /// Bytes that a stream to another host sends ahead of its reader before it is left to TCP; 0: it is not.
    pub bulk: u64,
    /// Which datagrams travel through shared memory.
    pub udp: Udp,
    /// Which AF_UNIX streams and packets travel through shared memory.
    pub unix: Unix,
    /// What is written to standard error.
    pub log: Log,
    /// Whether the program may set up io_uring, whose operations shunt cannot see.
    pub io_uring_allowed: bool,
    /// System calls by the program's own instructions.
    pub raw: Raw,
}

impl Options {
    /// The defaults, as a constant, for the time before the environment is read.
    pub const fn default_const() -> Options {
        Options {
            accelerate: true,
            ring: 4 << 20,
            spin_ns: 50_000,
            spin_on_kernel: true,
            ports: Ports::ALL,
            hosts: Hosts::Auto,
            inet: Ports::NONE,
            inet_unasked: false,
            inet_seed: 0,
            near: Near::AUTO,
            bulk: 4 << 20,
            udp: Udp::Off,
            unix: Unix::Off,
            log: Log::Off,
            io_uring_allowed: false,
            raw: Raw::Auto,
        }
    }

    /// Whether threads look at TCP sockets of the kernel before they sleep on them.
    pub const fn looks_at_kernel_sockets(&self) -> bool {
        self.accelerate && self.spin_on_kernel && self.spin_ns > 0
    }
}

impl Default for Options {
    fn default() -> Options {
        Options::default_const()
    }
}
