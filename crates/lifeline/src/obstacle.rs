//! Why a stream cannot go back to the TCP connection beside it now.

use core::sync::atomic::Ordering;
use shunt_rendezvous::exchange;
use shunt_segment::channel::cut::Why;
use shunt_segment::channel::{life, state, word};
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::watchers;
use shunt_sys::{calls, libc};
use shunt_table::private;

/// The first that there is. By a thread that has both of the stream's locks, and whose process changes nothing else of it.
pub(crate) fn of(socket: &Socket) -> Option<Why> {
    const ENDED: u32 = state::DONE | state::PEER_GONE | state::RESET_DUE | state::PIPE_DUE | state::SHUT_RD | state::END_NOTED;
    let states = [socket.own(), socket.peer()].map(|side| side.receive.state.load(Ordering::Acquire));
    let words = socket.incoming().look().0 | socket.outgoing().announced();
    let sides = [socket.own(), socket.peer()];
    let is_lent = || {
        socket.has(flag::ZERO_COPY | flag::ERROR_QUEUE) || sides.iter().any(|side| side.receive.held.load(Ordering::Acquire) != 0)
    };
    if socket.has(flag::SHARED | flag::DISOWNED) || (states[0] | states[1]) & state::SHARED != 0 {
        Some(Why::Shared)
    } else if socket.has(flag::UNACCEPTED) || socket.page().head.state.load(Ordering::Acquire) != life::ACCEPTED {
        Some(Why::Unaccepted)
    } else if socket.has(flag::HUNG_UP | flag::SHUT_RD)
        || (states[0] | states[1]) & ENDED != 0
        || words & (word::FIN | word::CLOSED | word::RST) != 0
    {
        Some(Why::Ended)
    } else if socket.has(flag::ASYNC) || states[0] & state::OWNED != 0 {
        Some(Why::Signalled)
    } else if socket.has(flag::TIMESTAMPS) {
        Some(Why::Stamped)
    } else if is_lent() {
        Some(Why::Lent)
    } else if sides.iter().any(|side| side.urgent.load(Ordering::Acquire) != 0) {
        Some(Why::Urgent)
    } else if socket.peek_offset.load(Ordering::Relaxed) >= 0 {
        Some(Why::Peeking)
    } else if exchange::stay_for_good() {
        Some(Why::Filtered)
    } else if !watchers::can_follow(socket) {
        Some(Why::Watched)
    } else {
        of_connection(socket.private_fd.load(Ordering::Relaxed))
    }
}

/// The same, of the TCP connection: it is to be empty and whole, and there is to be a number for what stays of the stream.
fn of_connection(connection: i32) -> Option<Why> {
    if calls::poll_one(connection, libc::POLLIN | libc::POLLRDHUP, 0) != Ok(0) {
        return Some(Why::NoTcp);
    }
    match private::duplicate(connection) {
        Ok(number) => {
            let _ = calls::close(number);
            None
        }
        Err(_) => Some(Why::NoDescriptors),
    }
}
