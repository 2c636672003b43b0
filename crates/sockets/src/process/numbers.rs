//! A private descriptor moves to another number: the place that keeps it is told.

use super::PROCESS;
use shunt_epoll as epoll;
use shunt_link::{self as link, ports};
use shunt_stream::socket::Socket;
use shunt_stream::waiting::holding::{self, Lingerer};
use shunt_table::global::SETUP;
use shunt_table::private::renumber;
use shunt_table::{diag, route, table};

/// A private descriptor got another number: the place that keeps it must know.
pub fn moved(from: i32, to: i32) {
    shunt_stream::waiting::holding::moved(from, to);
    shunt_stream::waiting::wake_pollers::moved(from, to);
    shunt_stream::pools::moved(from, to);
    for fd in table::numbers() {
        let word = table::get(fd);
        // One without descriptors of the program's is kept by calls that wait for it.
        let lingering = match holding::lingerer(word) {
            Some(Lingerer::Socket(socket)) => Some(socket),
            _ => None,
        };
        if let Some(socket) = word.object::<Socket>().or(lingering) {
            renumber(&socket.private_fd, from, to);
            renumber(&socket.listening.bells_fd, from, to);
            renumber(&socket.listening.promised_fd, from, to);
            renumber(&socket.listening.timer_fd, from, to);
            renumber(&socket.listening.accepting_fd, from, to);
            socket.bell_listener.moved(from, to);
        }
    }
    if let Some(_setup) = SETUP.lock() {
        link::moved(from, to);
        ports::moved(from, to);
        shunt_rendezvous::held_ports::moved(from, to);
        shunt_rendezvous::reconnect::server::moved(from, to);
        shunt_rendezvous::reconnect::shared_server::moved(from, to);
        shunt_rendezvous::accept::deferred::moved(from, to);
        shunt_rendezvous::socket_cache::moved(from, to);
    }
    shunt_inbox::datagram::moved(from, to);
    diag::moved(from, to);
    route::moved(from, to);
    shunt_rendezvous::carriers::all().for_each(|carrier| (carrier.moved)(from, to));
    epoll::moved(from, to); // behind those by whose descriptors its sets wake
    shunt_table::process::status_page::moved(from, to);
    shunt_link::fd_reserve::moved(from, to);
    shunt_rendezvous::accept_fd::moved(from, to);
    shunt_rendezvous::listen::sharing::moved(from, to);
    renumber(&PROCESS.awaited, from, to);
    // A thread that sleeps in poll does so by the old number, which is still ours at this moment.
    shunt_stream::waiting::wake_pollers::all();
}
