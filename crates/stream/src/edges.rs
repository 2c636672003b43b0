//! Edges of a stream, for what watches it (epoll(7), EPOLLET).

use crate::error_queue;
use crate::socket::Socket;
use crate::waiting::readiness;
use core::sync::atomic::Ordering;
use shunt_segment::channel::{state, word};
use shunt_sys::libc;

/// Events that the arrival of bytes can be (the key that `sock_def_readable` wakes with).
const ARRIVALS: u32 = (libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLRDNORM | libc::EPOLLRDBAND) as u32;

/// So many bits hold [`state::DONE`], [`state::PEER_GONE`] and [`state::SHUT_RD`].
const ENDS: u32 = 8;
const _: () = assert!((state::DONE | state::PEER_GONE | state::SHUT_RD) >> ENDS == 0);

/// Changes with everything that is an edge for one that watches the stream and asks for `wanted`, but for space. The second: with what the peer does.
pub fn signature(socket: &Socket, wanted: u32) -> (u64, u64) {
    let peer = socket.peer();
    let mut ends = socket.own().receive.state.load(Ordering::Acquire) & (state::DONE | state::PEER_GONE | state::SHUT_RD);
    let (mut word, waiting) = socket.incoming().look();
    // Behind its end the peer's close is no news: TCP has sent the segment that tells of both (tcp_close_state).
    word &= !word::CLOSED;
    if !readiness::end_shows(socket, word, ends, waiting) {
        word &= !word::FIN;
        ends &= !state::PEER_GONE;
    }
    if word & word::RST != 0 {
        ends &= state::SHUT_RD; // a reset was the last news
    }
    let changes = socket.connected.changes.load(Ordering::Relaxed).wrapping_add(error_queue::completions(socket));
    let enough = if wanted & ARRIVALS != 0 { socket.connected.enough.load(Ordering::Relaxed) << ENDS } else { 0 };
    let own = (ends as u64 | enough as u64 | (changes as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let news = match wanted & ARRIVALS {
        0 => word & (word::FIN | word::RST),
        _ => word.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ peer.urgent.load(Ordering::Acquire).wrapping_mul(0xff51_afd7_ed55_8ccd),
    };
    (news ^ own, news)
}
