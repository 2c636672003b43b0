//! Streams to other network namespaces of one host, of programs that have a directory in common.
//!
//! This crate makes connections, and has no part in them afterwards: what it makes are channels of links between two processes, as on one
//! namespace. It knows nothing of other hosts.
//!
//! ```text
//! directory   whether there is one, and what killed processes left in it      name    of one connection     served    where servers listen
//! mark        the sizes of segments by which a SYN shows that its connection has a name
//! messages    what is said by AF_UNIX, and by TCP      waiting   for both      kernel    what it tells of the TCP connection
//! helper      hostd, which introduces ends that no name leads to      held      descriptors of handshakes that are under way
//! own         what this process calls itself           known     which servers claim connections, which clients answer
//! connect     the client's half                        accept    the server's
//! pair        what an earlier connection left              way       how packets leave
//! again       connects with it                             announced accepts with it
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
mod again;
mod announced;
mod connect;
mod directory;
mod held;
mod helper;
mod kernel;
mod known;
mod mark;
mod messages;
mod name;
mod own;
mod pair;
mod path;
mod served;
#[cfg(test)]
mod tests;
mod waiting;
mod way;

pub use directory::stop;
use shunt_rendezvous::carriers::Carrier;

/// What connect and accept ask of this crate, and what it hears of the process's life.
pub const OTHER_NAMESPACES: Carrier = Carrier {
    connect: connect::connect,
    listens: served::listens,
    listens_no_longer: served::listens_no_longer,
    accepted: accept::accepted,
    sharing: |_| shunt_lifeline::settle(),
    moved: |from, to| {
        shunt_lifeline::ends::moved(from, to);
        held::moved(from, to);
        served::moved(from, to);
    },
    forked: |_| forget(),
    forget,
    left_namespace: served::left_namespace,
    is_driving: || false,
    user_changed: held::user_changed,
    ending: || {
        directory::ending();
        served::ending();
    },
};

/// In the child after fork: another process has another name; the names in the directory are the parent's to remove, and its handshakes its own.
fn forget() {
    own::forget();
    shunt_lifeline::ends::forked();
    held::forget();
    directory::forget();
    served::forget();
}
