//! Clients that wait when a listener is about to be shared: they are made such that any process may accept them.
//!
//! An offer in memory names a companion that one process holds. Before a fork, an exec that keeps the listener, or a message
//! that passes it on, that process connects to its own rendezvous once for each offer, as the client would have, and sends
//! the link and the companion along: a *parcel*. The process that accepts takes the companion out and goes on as with a client.
//!
//! A child of fork knows its parent's links. The next program, and the receiver of a message, knows none; so clients that wait
//! in the rendezvous, and that sent no link because this process has it, become parcels as well ([`before_handing`]). One that
//! connects at that very moment sees that `sole` is no more, and connects again ([`crate::connect`]).

use shunt_table::fd_passing;
use shunt_table::global::SETUP;
use shunt_table::process::identity;

use crate::accept;
use crate::accept::{deferred, Shipment};
use crate::listen::sharing;
use crate::reconnect::server;
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_link::companion_cache;
use shunt_ring::{claim, offers};
use shunt_segment::name::{self, Hello, FOLLOWS_PARCEL};
use shunt_segment::CHANNELS;
use shunt_stream::socket::Socket;
use shunt_sys::libc::{self, AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};
use shunt_sys::{calls, Errno, Result};
use shunt_table::table::Kind;
use shunt_table::{diag, sockaddr, table};

/// Processes that may send the same client on at one moment, and be preempted before they are done.
const TURNS: u16 = 64;

/// How long a parcel is waited for whose sender has connected, in ns.
const PATIENCE: i64 = 1_000_000_000;

/// Other processes are about to have the listeners of this one: clients are told to use the rendezvous, and what they have
/// offered moves there. Under the set-up lock.
///
/// Where its queue is full, the rest stays for this process to accept.
pub fn before_sharing() {
    link::not_sole();
    for fd in table::programs() {
        let word = table::get(fd);
        let (Kind::Listener, Some(listener)) = (word.kind(), word.object::<Socket>()) else { continue };
        deferred::to_rendezvous(listener);
        for (header, index) in server::places(listener) {
            for _ in 0..CHANNELS {
                let Some(channel) = offers::oldest(&header.offers) else { break };
                let page = link::page(link::at(index).base, channel);
                let posted = companion_cache::get(index, channel)
                    .zip(claim::on_kept(&page.head))
                    .map_or(Ok(()), |(kept, generation)| post(index, channel, generation, kept.descriptor(), listener));
                if posted.is_err() {
                    break;
                }
                companion_cache::forget(index, channel);
                offers::take(&header.offers);
            }
        }
        server::unwatch_bells(listener);
    }
}

/// A process that no fork makes is about to have `listener`. Not under the set-up lock.
pub fn before_handing(listener: &Socket) {
    let Some(setup) = SETUP.lock() else { return };
    sharing::out_of_sight(listener);
    link::not_sole();
    // A client that connects from now on sends its link.
    let waiting = match link::any_guest() {
        true => {
            let most = listener.listening.backlog.load(Ordering::Relaxed).saturating_add(1);
            diag::unix_waiting(listener.private_fd.load(Ordering::Relaxed)).unwrap_or(most)
        }
        false => 0,
    };
    drop(setup);
    for _ in 0..waiting {
        let Ok((arrival, setup)) = accept::arrive(listener, SOCK_CLOEXEC, None) else { break };
        match post(arrival.index, arrival.channel, arrival.generation, arrival.companion, listener) {
            Ok(()) => drop(calls::close(arrival.companion)),
            Err(_) => deferred::keep(listener, arrival, &setup),
        }
    }
    if let Some(_setup) = SETUP.lock() {
        before_sharing();
    }
}

/// Sends the offer of `generation` on `channel`, and its `companion`, to the listener's own rendezvous. One that is nonsense, or was
/// taken back, is dropped.
pub fn post(index: usize, channel: usize, generation: u32, companion: i32, listener: &Socket) -> Result<()> {
    let link = *link::at(index);
    let page = link::page(link.base, channel);
    if !claim::is_offered(&page.head, generation) {
        return Ok(());
    }
    let (client, server) = shunt_stream::socket::of_channel(page);
    let mut hello = Hello {
        version: shunt_segment::VERSION,
        nonce: link.nonce,
        sequence: link.sequence,
        channel: channel as u16,
        link_follows: FOLLOWS_PARCEL,
        generation,
        client,
        server,
    };
    let carrier = calls::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)?;
    let sent = (|| {
        loop {
            let (own, own_length) = sockaddr::abstract_name(hello.encode().as_slice());
            match calls::bind(carrier, (&own as *const libc::sockaddr_un).cast(), own_length) {
                // The process that sent it to us has not closed its end yet.
                Err(Errno(libc::EADDRINUSE)) if hello.link_follows < FOLLOWS_PARCEL + TURNS => hello.link_follows += 1,
                bound => break bound?,
            }
        }
        let (to, to_length) =
            sockaddr::abstract_name(name::listener(listener.listening.inode.load(Ordering::Relaxed)).as_slice());
        calls::connect(carrier, (&to as *const libc::sockaddr_un).cast(), to_length)?;
        fd_passing::send(carrier, &[link.fd, companion], MSG_DONTWAIT | MSG_NOSIGNAL)
    })();
    let _ = calls::close(carrier);
    sent
}

/// Takes a parcel that was accepted as `carrier` apart: the companion comes under that number. `nonblocking`: what its open
/// file is to be. `None`: it is not one of ours.
///
/// Only a process that could have accepted in our place may send one: of our user, or root's.
pub fn open(carrier: i32, sender: libc::ucred, nonblocking: bool) -> Option<Shipment> {
    if !identity::is_same_user(sender.uid, calls::geteuid()) && sender.uid != 0 {
        return None;
    }
    // The sender connects first, and may have been preempted since.
    let [segment, companion] = fd_passing::receive(carrier, MSG_DONTWAIT)
        .or_else(|_| calls::poll_one(carrier, libc::POLLIN, PATIENCE).and_then(|_| fd_passing::receive(carrier, MSG_DONTWAIT)))
        .ok()?;
    let discard = |fd: i32| {
        if fd >= 0 {
            let _ = calls::close(fd);
        }
    };
    let close_on_exec = calls::fcntl(carrier, libc::F_GETFD, 0).unwrap_or(0) & libc::FD_CLOEXEC != 0;
    let flags = libc::O_RDWR | if nonblocking { libc::O_NONBLOCK } else { 0 };
    let creator = fd_passing::creator(companion);
    let moved = creator
        .and_then(|_| calls::fcntl(companion, libc::F_SETFL, flags as usize))
        .and_then(|_| calls::dup3(companion, carrier, if close_on_exec { libc::O_CLOEXEC } else { 0 }));
    discard(companion);
    match (creator, moved) {
        (Ok(client), Ok(_)) => Some(Shipment { client, sent: [segment, -1], withheld: false }),
        _ => {
            discard(segment);
            None
        }
    }
}
