//! Room in a direction as the kernel would count it: what SO_SNDBUF and SO_RCVBUF say, and SIOCOUTQ.
//!
//! A ring is both buffers in one: the sender's of bytes that were not acknowledged, and the receiver's. TCP acknowledges
//! what its window took, read or not, so the first so many unread bytes count as delivered.

use crate::socket::Socket;
use core::sync::atomic::Ordering;

/// Window that Linux offers with the default SO_RCVBUF of 131,072 (tcp_rmem, tcp_adv_win_scale).
const WINDOW: usize = 64 << 10;

/// Bytes that the peer's kernel would hold for it.
fn window(socket: &Socket) -> usize {
    match socket.peer().receive_buffer.load(Ordering::Relaxed) {
        0 => WINDOW,
        set => set as usize / 2,
    }
}

/// Bytes sent that TCP would not have acknowledged: those beyond the peer's window (SIOCOUTQ, SIOCOUTQNSD).
pub fn unacknowledged(socket: &Socket) -> usize {
    (socket.outgoing().unacknowledged() as usize).saturating_sub(window(socket))
}
