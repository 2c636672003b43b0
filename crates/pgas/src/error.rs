//! What can go wrong, as one sentence each.

use crate::layout::cause;
use std::fmt;

/// Why a job ends before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// A rank was killed by a signal.
    Signal {
        /// The rank.
        rank: usize,
        /// The signal's number.
        signal: i32,
    },
    /// A rank exited with a status that is not 0.
    Status {
        /// The rank.
        rank: usize,
        /// Its status.
        status: i32,
    },
    /// A rank ended with status 0 and without having finalized.
    Left {
        /// The rank.
        rank: usize,
    },
    /// A rank asked for it.
    Asked {
        /// The rank.
        rank: usize,
        /// The status that it asked for.
        status: i32,
    },
    /// A rank finalized, and others wait for it in a barrier.
    Early {
        /// The rank.
        rank: usize,
    },
    /// The launcher, which is none of ours, has gone.
    Gone,
    /// The launcher was told to end by this signal.
    Launcher {
        /// The signal's number.
        signal: i32,
    },
}

impl Ended {
    pub(crate) fn from_words(kind: u32, rank: u32, code: i32) -> Ended {
        let rank = rank as usize;
        match kind {
            cause::SIGNAL => Ended::Signal { rank, signal: code },
            cause::STATUS => Ended::Status { rank, status: code },
            cause::ASKED => Ended::Asked { rank, status: code },
            cause::LAUNCHER => Ended::Launcher { signal: code },
            cause::EARLY => Ended::Early { rank },
            cause::GONE => Ended::Gone,
            _ => Ended::Left { rank },
        }
    }

    pub(crate) fn words(self) -> (u32, u32, i32) {
        match self {
            Ended::Signal { rank, signal } => (cause::SIGNAL, rank as u32, signal),
            Ended::Status { rank, status } => (cause::STATUS, rank as u32, status),
            Ended::Left { rank } => (cause::LEFT, rank as u32, 0),
            Ended::Asked { rank, status } => (cause::ASKED, rank as u32, status),
            Ended::Launcher { signal } => (cause::LAUNCHER, 0, signal),
            Ended::Early { rank } => (cause::EARLY, rank as u32, 0),
            Ended::Gone => (cause::GONE, 0, 0),
        }
    }

    /// The exit status of the job.
    pub fn status(self) -> i32 {
        match self {
            Ended::Signal { signal, .. } | Ended::Launcher { signal } => 128 + signal,
            Ended::Status { status, .. } | Ended::Asked { status, .. } => status,
            Ended::Left { .. } | Ended::Early { .. } | Ended::Gone => 1,
        }
    }
}

/// The name of a signal, as far as programs die of it.
fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGHUP => " (SIGHUP)",
        libc::SIGINT => " (SIGINT)",
        libc::SIGQUIT => " (SIGQUIT)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGTRAP => " (SIGTRAP)",
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGKILL => " (SIGKILL)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGPIPE => " (SIGPIPE)",
        libc::SIGALRM => " (SIGALRM)",
        libc::SIGTERM => " (SIGTERM)",
        libc::SIGUSR1 => " (SIGUSR1)",
        libc::SIGUSR2 => " (SIGUSR2)",
        libc::SIGXCPU => " (SIGXCPU)",
        _ => "",
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Ended::Signal { rank, signal } => write!(f, "rank {rank} was killed by signal {signal}{}", signal_name(signal)),
            Ended::Status { rank, status } => write!(f, "rank {rank} exited with status {status}"),
            Ended::Left { rank } => write!(f, "rank {rank} ended without having finalized"),
            Ended::Early { rank } => write!(f, "rank {rank} finalized while others wait for it in a barrier"),
            Ended::Gone => write!(f, "the launcher of this job has gone"),
            Ended::Asked { rank, status } => write!(f, "rank {rank} ended the job with status {status}"),
            Ended::Launcher { signal } => write!(f, "the launcher got signal {signal}{}", signal_name(signal)),
        }
    }
}

/// What an operation may answer instead of its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// No such rank.
    Rank {
        /// The rank that was named.
        rank: i64,
        /// How many there are.
        ranks: usize,
    },
    /// No such member of a team.
    Member {
        /// The member that was named.
        number: i64,
        /// How many there are.
        members: usize,
    },
    /// The bytes are not all in symmetric memory.
    Address {
        /// The rank whose memory was meant.
        rank: usize,
        /// The address in this process.
        address: usize,
        /// How many bytes.
        length: usize,
        /// Where the own heap begins, and its size.
        heap: (usize, usize),
        /// Where the own static data begins, and its size.
        data: (usize, usize),
        /// Offset and size of the heap's last object before it, if there is one.
        object: Option<(usize, usize)>,
    },
    /// More elements than a symmetric array has from that one on.
    Elements {
        /// The rank whose memory was meant.
        rank: usize,
        /// Where the first element would lie in its heap.
        offset: i64,
        /// How many elements.
        count: usize,
        /// How many there are.
        room: usize,
    },
    /// A wait for a value of another rank, which would have to be asked for it again and again.
    Other {
        /// That rank.
        rank: usize,
        /// The one that would wait.
        me: usize,
    },
    /// An atomic operation on an address that is no multiple of the operand's size.
    Alignment {
        /// The rank whose memory was meant.
        rank: usize,
        /// The address in this process.
        address: usize,
        /// The operand's size.
        size: usize,
    },
    /// The symmetric heap has no room.
    Full {
        /// Bytes that were asked for.
        bytes: usize,
        /// The heap's size.
        heap: usize,
    },
    /// The job ends.
    Ended(Ended),
    /// More groups than there is room for.
    Groups {
        /// How many there may be.
        room: usize,
    },
    /// The job's memory could not be mapped or is not as it must be.
    Setup(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Rank { ranks: 0, .. } => write!(f, "there are no ranks before the start and after the end"),
            Error::Rank { rank, ranks } => write!(f, "there is no rank {rank} among {ranks}"),
            Error::Member { number, members } => write!(f, "there is no rank {number} among the {members} of the context's team"),
            Error::Address { rank, address, length, heap, data, object } => {
                let inside = address.wrapping_sub(heap.0);
                if inside < heap.1 {
                    write!(
                        f,
                        "{length} bytes at {address:#x} for rank {rank} are not allocated (offset {inside} of a heap of {} bytes",
                        heap.1
                    )?;
                    return match object {
                        Some((start, bytes)) => write!(f, "; the last object before that is {bytes} bytes at offset {start})"),
                        None => write!(f, "; no object is before that)"),
                    };
                }
                write!(f, "{length} bytes at {address:#x} for rank {rank} are not in symmetric memory (")?;
                // As far before or behind it as it is long, an address is probably a wrong one of it.
                let near = |(begin, bytes): (usize, usize)| {
                    let offset = address.wrapping_sub(begin) as i64;
                    (bytes > 0 && offset.unsigned_abs() as usize <= bytes.saturating_mul(2)).then_some(offset)
                };
                match (near(*heap), near(*data)) {
                    (Some(offset), _) => write!(f, "offset {offset} of a heap of {} bytes)", heap.1),
                    (None, Some(offset)) => write!(f, "offset {offset} of {} bytes of static data)", data.1),
                    (None, None) => {
                        write!(f, "neither in the heap, {:#x} to {:#x}, nor in static data", heap.0, heap.0 + heap.1)?;
                        match data.1 {
                            0 => write!(f, ", of which the program has none)"),
                            _ => write!(f, ", {:#x} to {:#x})", data.0, data.0 + data.1),
                        }
                    }
                }
            }
            Error::Elements { rank, offset, count, room } => {
                write!(f, "{count} elements at offset {offset} of the heap of rank {rank}: the array has {room} from there on")
            }
            Error::Other { rank, me } => write!(f, "rank {me} cannot wait for a value of rank {rank}, only for its own"),
            Error::Alignment { rank, address, size } => {
                write!(f, "an atomic operation of {size} bytes at {address:#x} for rank {rank} is not aligned")
            }
            Error::Full { bytes, heap } => write!(f, "no room for {bytes} bytes in a symmetric heap of {heap}"),
            Error::Ended(cause) => write!(f, "{cause}"),
            Error::Groups { room } => write!(f, "there are {room} teams and active sets already"),
            Error::Setup(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for Error {}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;
