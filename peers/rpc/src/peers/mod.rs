//! The contenders: a server, and a caller that is bound to it.

mod capnp;
mod grpc;
mod iceoryx;
mod loops;
mod ours;
mod tarpc;

use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::place::Place;
use crate::Failure;

/// Calls for a turn's length, one outstanding; the p50 in nanoseconds.
pub trait Caller {
    fn turn(&mut self, length: Duration) -> Result<f64, Failure>;
}

/// A caller that is bound, or why there is none.
pub type Binding = Result<Box<dyn Caller>, Failure>;

/// A way to call.
pub struct Peer {
    pub name: &'static str,
    pub about: &'static str,
    /// Serves until the stream ends, and writes a byte to it once it can be called.
    pub serve: fn(&Place, UnixStream) -> Result<(), Failure>,
    /// The caller keeps the stream.
    pub bind: fn(&Place, UnixStream) -> Binding,
}

/// Ours is the first: the others are compared with it.
pub const ALL: [Peer; 5] = [
    Peer { name: "shunt-rpc", about: "shunt-rpc, shared memory", serve: ours::serve, bind: ours::bind },
    Peer { name: "iceoryx2", about: "iceoryx2 request-response, both poll", serve: iceoryx::serve, bind: iceoryx::bind },
    Peer { name: "tarpc", about: "tarpc, AF_UNIX, bincode", serve: tarpc::serve, bind: tarpc::bind },
    Peer { name: "capnp-rpc", about: "Cap'n Proto RPC, AF_UNIX", serve: capnp::serve, bind: capnp::bind },
    Peer { name: "tonic", about: "gRPC by tonic, AF_UNIX", serve: grpc::serve, bind: grpc::bind },
];
