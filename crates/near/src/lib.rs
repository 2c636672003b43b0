//! Streams to other network namespaces of one host, of programs that have a directory in common.
//!
//! This crate makes connections, and has no part in them afterwards: what it makes are channels of links between two processes, as on one
//! namespace. It knows nothing of other hosts.
//!
//! ```text
//! directory   whether there is one; names of connections in it, and what killed processes left
//! mark        the sizes of segments by which a SYN shows that its connection has a name
//! claim       the two messages
//! own         what this process calls itself      waiting     for messages and tokens
//! servers     which servers claim connections, and which do not
//! connect     the client's half      accept   the server's
//! ```
//!
//! ```
//! // What start-up puts into the list of carriers.
//! let carrier = &shunt_near::OTHER_NAMESPACES;
//! assert!(!(carrier.is_driving)());
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]

mod accept;
mod claim;
mod connect;
mod directory;
mod mark;
mod own;
mod servers;
mod waiting;

pub use directory::stop;
use shunt_rendezvous::carriers::Carrier;

/// What connect and accept ask of this crate, and what it hears of the process's life.
pub const OTHER_NAMESPACES: Carrier = Carrier {
    connect: connect::connect,
    listens: |_, _, _| {},
    listens_no_longer: |_| {},
    accepted: accept::accepted,
    moved: |_, _| {},
    forked: |_| forget(),
    forget,
    left_namespace: || {},
    is_driving: || false,
    user_changed: || {},
    ending: directory::ending,
};

/// In the child after fork: another process has another name; the names in the directory are the parent's to remove.
fn forget() {
    own::forget();
    directory::forget();
}
