//! What poll(2) tells of a stream.

use crate::socket::Socket;
use crate::waiting::readiness::{end_shows, is_enough, observe};
use crate::{error_queue, mark, send_pacing};
use shunt_segment::channel::{state, word};
use shunt_sys::libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM};

/// What holds of a connection that another owner of the side has dissolved: it is closed, and neither half was shut
/// (tcp_disconnect).
#[cold]
fn dissolved(own: u32) -> i16 {
    let error = if own & (state::RESET_DUE | state::PIPE_DUE) != 0 { POLLERR } else { 0 };
    POLLOUT | POLLWRNORM | POLLHUP | error
}

/// Those of the events of poll(2) in `asked` that hold now.
#[inline]
pub fn events(socket: &Socket, asked: i16) -> i16 {
    crate::options::owners::catch_up(socket);
    let incoming = socket.incoming();
    let (peer, waiting) = incoming.look();
    let own_state = observe(socket, peer);
    let done = own_state & state::DONE != 0;
    if own_state & state::DISSOLVED != 0 {
        return dissolved(own_state) & asked;
    }
    let end = done || end_shows(socket, peer, own_state, waiting);
    let no_receive = end || own_state & state::SHUT_RD != 0;
    let no_send = done || socket.outgoing().announced() & word::FIN != 0;
    let mut events = 0;
    if no_receive {
        events |= POLLIN | POLLRDNORM | POLLRDHUP;
        if no_send {
            events |= POLLHUP;
        }
    } else if is_enough(socket, waiting) {
        events |= POLLIN | POLLRDNORM;
    }
    if no_send {
        events |= POLLOUT | POLLWRNORM;
    } else if asked & (POLLOUT | POLLWRNORM) != 0 {
        let (free, size) = socket.outgoing().writable();
        if free * 3 >= size || send_pacing::can_grow(socket) {
            events |= POLLOUT | POLLWRNORM;
        }
    }
    if own_state & (state::RESET_DUE | state::PIPE_DUE) != 0 || error_queue::pending(socket) {
        events |= POLLERR;
    }
    if mark::pending(socket) {
        events |= POLLPRI;
    }
    events & asked
}
