//! The last descriptor of a socket goes: what its peer is told, and what is kept for another connection.

use crate::reconnect::{server, shared_server};
use crate::{exchange, held_ports, socket_cache};
use core::sync::atomic::{fence, Ordering};
use shunt_link as link;
use shunt_link::companion_cache;
use shunt_segment::channel::{arm, release, state, word};
use shunt_stream::socket;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::{wake, watchers};
use shunt_sys::{calls, libc, thread};
use shunt_table::global::SETUP;
use shunt_table::private;
use shunt_table::table::Kind;

/// No descriptor of the program's refers to the socket any more, and no call waits for it. `fd` is the last descriptor;
/// `whole`: its number is the program's, so that the companion behind it may be kept for another connection.
pub fn end(socket: &'static Socket, fd: i32, whole: bool) {
    let unwatched = watchers::forget(socket, fd);
    exchange::ended(socket); // of whatever kind it has become since
    match socket.kind() {
        Kind::Stream => {
            // Threads that sleep on it all the same (there was no descriptor to keep) would sleep for ever: the companion
            // lives as long as they do, so neither the peer nor they would hear of the end.
            if socket.own().wait.sleepers.load(Ordering::Relaxed) > 0 && !socket.has(flag::SHARED) {
                let _ = calls::shutdown(fd, libc::SHUT_RDWR);
                socket.set(flag::NOT_REUSABLE);
            }
            finish(socket, fd, unwatched && whole)
        }
        kind => {
            socket_cache::spoil(socket);
            if socket.listening.inode.load(Ordering::Relaxed) != 0 {
                if let Some(_setup) = SETUP.lock() {
                    held_ports::listener_closes(fd, socket);
                }
            }
            if kind == Kind::Listener {
                if !socket.has(flag::LISTENER_SHARED) {
                    crate::carriers::listens_no_longer(socket.listening.inode.load(Ordering::Relaxed));
                }
                crate::accept::refuse_waiting(socket);
            }
            server::retire(socket);
            private::close_at(&socket.private_fd);
            if kind == Kind::Listener {
                if let Some(_setup) = SETUP.lock() {
                    crate::listen::sharing::listener_closed();
                }
            }
        }
    }
    // Whatever has become of the socket since.
    private::close_at(&socket.listening.promised_fd);
    socket::free(socket);
}

/// The last descriptor of this process for a stream goes: tells the peer, unless other processes own the side too.
/// Then the kernel tells it when the last of them closes the companion. `free`: `fd` may be kept for another connection.
pub fn finish(socket: &'static Socket, fd: i32, free: bool) {
    let own = socket.own();
    let index = socket.connected.link_index.load(Ordering::Relaxed) as usize;
    let mut keep = free && keep(socket, fd, index);
    // Wait for threads that are in the middle of a copy; a signal handler that interrupted one must not.
    let ended = shunt_stream::waiting::readiness::closed(socket);
    let (receiving, sending) = socket.lock_both();
    let last = leaves(socket);
    keep &= last && !socket.has(flag::SHARED);
    if last {
        let held = socket.outgoing().held() > 0;
        let fresh = socket.outgoing().announced() & word::FIN == 0;
        shunt_stream::announce_end(socket, ended);
        let signalled = wake::peer_is_signalled(socket) && socket.outgoing().announced() & word::RST == 0;
        if fresh && signalled {
            wake::ring_by_closer(socket, fd); // beside the bell, or the hang-up: an end signals twice
        } else if signalled {
            own.receive.state.fetch_or(state::CLOSED_LATE, Ordering::AcqRel);
        }
        if (keep || held) && (fresh || !signalled) {
            // Where the companion is kept the kernel will not hang up: a thread that sleeps must hear it from us, and a peer that
            // shut its receiving half hears nothing but the kernel. And a sleeper that was not rung for bytes that were held back
            // wakes by a bell for half of what a hang-up costs.
            fence(Ordering::SeqCst);
            keep &= socket.peer().receive.state.load(Ordering::Relaxed) & state::SHUT_RD == 0;
            wake::notify_by_closer(socket, fd, arm::IN | arm::OUT);
            // A bell that no process hears: the peer's end has gone.
            keep &= !socket.has(flag::HUNG_UP);
        }
        link::about_to_release(index, socket.link(), socket.channel(), socket.side());
        own.released.store(if keep { release::KEPT } else { release::CLOSED }, Ordering::Release);
    } else if !shunt_table::global::single_threaded() {
        wake::ring_for_others(socket, fd);
    }
    shunt_stream::beside::end(socket); // under the locks, as a thread that hears of a request looks at it
    drop((receiving, sending));
    if last && socket.has(flag::REMOTE) && socket.outgoing().announced() & word::RST != 0 {
        // No bell is rung for a reset, as a reader hears the hang-up; what moves the bytes here may not.
        shunt_stream::progress::kick(socket);
    }
    if !last {
        shunt_stream::flush_relays::tell(socket);
    }
    let gone = own.receive.state.load(Ordering::Relaxed) & state::PEER_GONE != 0;
    private::close_at(&socket.private_fd);
    if let Some(_setup) = SETUP.lock() {
        held_ports::ended(socket);
        link::leave(index, socket.channel(), gone, keep);
    }
}

/// This process owns the side no longer. True: none does.
fn leaves(socket: &Socket) -> bool {
    let own = socket.own();
    shunt_stream::views::part(socket);
    let owners = own.owners.fetch_sub(1, Ordering::AcqRel);
    let me = thread::process();
    own.part(me);
    // Children that exited or were killed never said so: see whether any of them still lives.
    let alive = |pid: u32| pid != me && shunt_table::process::identity::may_live(pid);
    owners <= 1 || own.orphaned(owners - 1, alive)
}

/// The process ends: as [`finish`], for a process that needs nothing afterwards. True: no process owns the side any more. The
/// caller holds both locks, and `ended` was known before it took them.
pub fn say_end(socket: &Socket, ended: bool) -> bool {
    let last = leaves(socket);
    if last {
        shunt_stream::announce_end(socket, ended);
        socket.own().released.store(release::CLOSED, Ordering::Release);
    }
    last
}

/// Keeps a duplicate of the companion if another connection could use it: made in memory, alive, and as it was made.
fn keep(socket: &Socket, fd: i32, index: usize) -> bool {
    let own = socket.own().receive.state.load(Ordering::Relaxed);
    let spoilt = flag::SHARED | flag::NOT_REUSABLE | flag::ASYNC | flag::HUNG_UP | flag::SHUT_RD;
    if socket.has(spoilt) || socket.has(flag::BOUND) || own & (state::SHUT_RD | state::PEER_GONE) != 0 || index >= link::MOST {
        return false;
    }
    let Some(_setup) = SETUP.lock() else { return false };
    let link = link::at(index);
    if link.base.is_null() || link.inherited {
        return false;
    }
    let header = link::header(link.base);
    let usable = match header.sole.load(Ordering::Acquire) {
        _ if link.is_near() => header.announces.load(Ordering::Relaxed) != 0,
        1 => link.bell >= 0,
        _ if link.ours => link.bell >= 0 && header.bid.intended.load(Ordering::Relaxed) != 0,
        _ => shared_server::keeps(index),
    };
    usable && companion_cache::keep(index, socket.channel(), fd, socket.has(flag::NONBLOCK), socket.addresses())
}
