//! The contenders: each has an end that sends and an end that receives.

mod iceoryx;
mod kernel;
mod ours;
mod ucx;

use std::os::unix::net::UnixStream;

use crate::place::Place;
use crate::Failure;

/// The end that sends.
pub trait Send {
    /// Writes a message of so many bytes, all `filling`, to where it is sent from. Waits until there is such a place.
    fn write(&mut self, size: usize, filling: u8) -> Result<(), Failure>;
    /// Sends what was written.
    fn send(&mut self, size: usize) -> Result<(), Failure>;
    /// Does what is to be done while the receiver is waited for.
    fn progress(&mut self) -> Result<(), Failure>;
}

/// The end that receives.
pub trait Receive {
    /// Waits for a message of so many bytes and hands it to `read`, where it lies if it can be read there.
    fn receive(&mut self, size: usize, read: Reader<'_>) -> Result<(), Failure>;
}

pub type Reader<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Failure>;

/// A way to pass messages.
pub struct Peer {
    pub name: &'static str,
    pub about: &'static str,
    /// For both ends.
    pub environment: &'static [(&'static str, &'static str)],
    /// Ends talk by the stream until both are made.
    pub sender: fn(&Place, &mut UnixStream) -> Result<Box<dyn Send>, Failure>,
    pub receiver: fn(&Place, &mut UnixStream) -> Result<Box<dyn Receive>, Failure>,
}

/// The others are compared with this one.
pub const OURS: usize = 0;
pub const FIRST_OF_OTHERS: usize = 3;
pub const ALL: [Peer; 8] = [
    Peer {
        name: "weak-move",
        about: "shunt-buffers, emulated weak move",
        environment: &[],
        sender: ours::moving,
        receiver: ours::reading,
    },
    Peer {
        name: "share",
        about: "shunt-buffers, emulated share",
        environment: &[],
        sender: ours::sharing,
        receiver: ours::reading,
    },
    Peer {
        name: "copy",
        about: "shunt-buffers, copy through rings",
        environment: &[],
        sender: ours::copying,
        receiver: ours::taking,
    },
    Peer {
        name: "iceoryx2",
        about: "iceoryx2, loaned samples, both poll",
        environment: &[],
        sender: iceoryx::sender,
        receiver: iceoryx::receiver,
    },
    Peer {
        name: "ucx-rendezvous",
        about: "UCX tags, rendezvous (process_vm_readv)",
        environment: &[
            ("UCX_TLS", "shm,self"),
            ("UCX_RNDV_THRESH", "1024"),
            ("UCX_LOG_LEVEL", "fatal"),
            ("UCX_WARN_UNUSED_ENV_VARS", "n"),
        ],
        sender: ucx::sender,
        receiver: ucx::receiver,
    },
    Peer {
        name: "ucx-eager",
        about: "UCX tags, copied through shared memory",
        environment: &[
            ("UCX_TLS", "shm,self"),
            ("UCX_RNDV_THRESH", "inf"),
            ("UCX_LOG_LEVEL", "fatal"),
            ("UCX_WARN_UNUSED_ENV_VARS", "n"),
        ],
        sender: ucx::sender,
        receiver: ucx::receiver,
    },
    Peer {
        name: "unix",
        about: "kernel, AF_UNIX stream, both poll",
        environment: &[],
        sender: kernel::unix_sender,
        receiver: kernel::unix_receiver,
    },
    Peer {
        name: "tcp",
        about: "kernel, TCP, both poll",
        environment: &[],
        sender: kernel::tcp_sender,
        receiver: kernel::tcp_receiver,
    },
];
