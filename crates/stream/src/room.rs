//! Room in a direction as the kernel would count it: what SO_SNDBUF and SO_RCVBUF say, and SIOCOUTQ.
//!
//! A ring is both buffers in one: the sender's of bytes that were not acknowledged, and the receiver's. TCP acknowledges
//! what its window took, read or not, so the first so many unread bytes count as delivered.

use crate::socket::Socket;

/// Bytes sent that TCP would not have acknowledged: those beyond the peer's window, and those that are held back (SIOCOUTQ,
/// SIOCOUTQNSD).
pub fn unacknowledged(socket: &Socket) -> usize {
    let pipe = socket.outgoing();
    (pipe.unacknowledged() as usize).saturating_sub(pipe.window_of_peer()).max(pipe.held())
}
