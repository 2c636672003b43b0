//! Options that wake the threads that wait: where they are set, the kernel looks again whether there is anything to tell.

use core::sync::atomic::Ordering;
use shunt_stream::events;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::watchers::Change;
use shunt_stream::waiting::{bells, wake_pollers};
use shunt_sys::libc::{self, c_int, IPPROTO_TCP, POLLIN, POLLOUT, SOL_SOCKET};

/// An option of a stream was set. It is an edge, too, where there was something to tell before.
pub(super) fn wake(socket: &Socket, fd: i32, level: c_int, name: c_int) {
    match (level, name) {
        // tcp_set_rcvlowat: what is there may be enough now.
        (SOL_SOCKET, libc::SO_RCVLOWAT) if events::events(socket, POLLIN) & POLLIN != 0 => {
            socket.connected.enough.fetch_add(1, Ordering::Relaxed);
        }
        // sock_set_sndbuf, tcp_sock_set_notsent_lowat: there may be space.
        (SOL_SOCKET, libc::SO_SNDBUF) | (IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT)
            if events::events(socket, POLLOUT) & POLLOUT != 0 =>
        {
            socket.own().transmit.blocked.fetch_add(1, Ordering::AcqRel);
            if socket.has(flag::SHARED) {
                bells::poke(socket, fd);
            }
        }
        _ => return,
    }
    wake_pollers::all();
    shunt_stream::waiting::watchers::changed(socket, Change::Ready);
}
