//! The options as the preload library uses them: parsed, checked, in its own units.
use crate::error::{OptionError, Problem, Source};
use crate::hosts::Hosts;
use crate::ports::Ports;
use crate::table::{Entry, Reader, TABLE};
use crate::values::{choice, size, time};

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
    /// Server ports that may be accelerated.
    pub ports: Ports,
    /// Other hosts to which connections may be accelerated.
    pub hosts: Hosts,
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

const RING_LEAST: u64 = 4 << 10;
const RING_MOST: u64 = 4 << 20;
const BULK_LEAST: u64 = 64;
const BULK_MOST: u64 = 1 << 30;
const SPIN_MOST_NS: u64 = 10_000_000;

impl Options {
    /// The defaults, as a constant, for the time before the environment is read.
    pub const fn default_const() -> Options {
        Options {
            accelerate: true,
            ring: 4 << 20,
            spin_ns: 50_000,
            ports: Ports::ALL,
            hosts: Hosts::Auto,
            bulk: 4 << 20,
            udp: Udp::Off,
            unix: Unix::Off,
            log: Log::Off,
            io_uring_allowed: false,
            raw: Raw::Auto,
        }
    }

    /// The defaults, changed by the variables that `lookup` finds. An empty variable counts as unset, as in shells.
    ///
    /// # Errors
    /// The first variable, in the order of [`TABLE`], whose value cannot be used.
    pub fn from_environment<'a>(lookup: impl Fn(&str) -> Option<&'a [u8]>) -> Result<Options, OptionError<'a>> {
        let mut options = Options::default_const();
        for entry in TABLE.iter().filter(|entry| entry.reader == Reader::Library) {
            if let Some(value) = lookup(entry.variable).filter(|value| !value.is_empty()) {
                options.set(entry, Source::Variable, value)?;
            }
        }
        Ok(options)
    }

    /// Checks `value` and stores it in the field that belongs to `entry`. On an error nothing is changed.
    ///
    /// # Errors
    /// What is wrong with `value`, which was found in `source`.
    pub fn set<'a>(&mut self, entry: &'static Entry, source: Source, value: &'a [u8]) -> Result<(), OptionError<'a>> {
        (entry.set)(self, value).map_err(|problem| OptionError { entry, source, value, problem })
    }
}

impl Default for Options {
    fn default() -> Options {
        Options::default_const()
    }
}

// One setter per row of the table.

pub(crate) fn set_accelerate(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.accelerate = choice(value, &[("on", true), ("off", false), ("1", true), ("0", false)])?;
    Ok(())
}

pub(crate) fn set_ring(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    match size(value)? {
        bytes @ RING_LEAST..=RING_MOST => {
            options.ring = (bytes as u32).next_power_of_two();
            Ok(())
        }
        _ => Err(Problem::OutOfRange),
    }
}

pub(crate) fn set_spin(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    match time(value)? {
        nanoseconds @ 0..=SPIN_MOST_NS => {
            options.spin_ns = nanoseconds;
            Ok(())
        }
        _ => Err(Problem::OutOfRange),
    }
}

pub(crate) fn set_ports(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.ports = Ports::parse(value)?;
    Ok(())
}

pub(crate) fn set_hosts(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.hosts = Hosts::parse(value)?;
    Ok(())
}

pub(crate) fn set_bulk(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    match size(value)? {
        bytes @ (0 | BULK_LEAST..=BULK_MOST) => {
            options.bulk = bytes;
            Ok(())
        }
        _ => Err(Problem::OutOfRange),
    }
}

pub(crate) fn set_udp(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.udp = choice(value, &[("off", Udp::Off), ("on", Udp::On), ("eager", Udp::Eager)])?;
    Ok(())
}

pub(crate) fn set_unix(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.unix = choice(value, &[("off", Unix::Off), ("on", Unix::On), ("eager", Unix::Eager)])?;
    Ok(())
}

pub(crate) fn set_log(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.log = choice(value, &[("off", Log::Off), ("fallbacks", Log::Fallbacks), ("all", Log::All)])?;
    Ok(())
}

pub(crate) fn set_io_uring(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.io_uring_allowed = choice(value, &[("deny", false), ("allow", true)])?;
    Ok(())
}

pub(crate) fn set_raw(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.raw = choice(value, &[("off", Raw::Off), ("trap", Raw::Trap), ("auto", Raw::Auto)])?;
    Ok(())
}

/// The library's path is used by the command, which keeps it itself; here it only must not be empty.
pub(crate) fn set_library(_: &mut Options, value: &[u8]) -> Result<(), Problem> {
    match value {
        [] => Err(Problem::Malformed),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
