//! What has come through the rendezvous: a client that says its link's name, and sends the link where it may not be known.

use super::acceptors::ACCEPTORS;
use super::owner;
use crate::listen;
use crate::listen::{forward, sharing};
use crate::reconnect::server;
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_link::fd_reserve;
use shunt_segment::address::Address;
use shunt_segment::name::{Hello, FOLLOWS_PARCEL};
use shunt_segment::reason::Reason;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, sockaddr_un, socklen_t};
use shunt_sys::{calls, stops, Errno, Result};
use shunt_table::global::{Guard, SETUP};
use shunt_table::process::identity;
use shunt_table::{fd_passing, route, table};

/// A client that came through the rendezvous; its channel is still offered.
pub struct Arrival {
    /// Its end of the connection.
    pub companion: i32,
    /// The client's address.
    pub client: Address,
    /// And the one that it has connected to.
    pub server: Address,
    /// Of the link.
    pub index: usize,
    /// In the link.
    pub channel: usize,
    /// Of the channel's offer.
    pub generation: u32,
}

/// The next client in the rendezvous; the set-up lock is held from then on. `flags`: what its companion is to be. `held`: the
/// lock, of a caller who must not wait for it; then clients that are not honest end the look.
pub fn arrive(listener: &Socket, flags: i32, mut held: Option<Guard<'static>>) -> Result<(Arrival, Guard<'static>)> {
    let rendezvous = listener.private_fd.load(Ordering::Acquire);
    if rendezvous < 0 {
        return Err(Errno(libc::EAGAIN)); // it has stopped listening: the kernel says so
    }
    if !owner::may_accept(listener, held.is_none()) {
        return Err(Errno(libc::EAGAIN));
    }
    loop {
        let mut peer = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
        let mut peer_length = core::mem::size_of::<sockaddr_un>() as socklen_t;
        // Where clients offer in memory hardly any comes this way.
        let accepted = if server::are_usual(listener) && !super::anyone(rendezvous) {
            Err(Errno(libc::EAGAIN))
        } else {
            calls::accept4(rendezvous, (&mut peer as *mut sockaddr_un).cast(), &mut peer_length, flags)
        };
        let companion = match accepted {
            // Another process may have given the listener to a program without shunt: then it is the kernel's alone.
            Err(Errno(error @ (libc::EAGAIN | libc::EINVAL))) => {
                if error == libc::EINVAL {
                    listener.set(flag::LISTENER_SHARED); // a process took it without a word of ours (pidfd_getfd)
                }
                if held.is_none() {
                    listen::retired(listener);
                    link::drop_owed();
                }
                return Err(Errno(libc::EAGAIN));
            }
            other => other?,
        };
        let quick = held.is_some();
        // SAFETY: sun_path is plain bytes.
        let name = unsafe { core::slice::from_raw_parts(peer.sun_path.as_ptr().cast::<u8>(), 108) };
        let name = name.get(1..(peer_length as usize).saturating_sub(2).min(108)).unwrap_or(&[]);
        match introduce(companion, name, listener, flags, held.take()) {
            Ok(arrived) => return Ok(arrived),
            Err(reason) => {
                if matches!(reason, Reason::NoMemory | Reason::NoDescriptors | Reason::SystemCallFilter) {
                    listen::is_short(listener);
                }
                // Not an honest shunt client, or we are short of memory.
                super::send_away(companion, reason);
                if quick {
                    return Err(Errno(libc::EAGAIN));
                }
            }
        }
    }
}

/// Learns who a companion is that the rendezvous gave; the set-up lock is held from then on.
fn introduce(
    companion: i32,
    name: &[u8],
    listener: &Socket,
    flags: i32,
    held: Option<Guard<'static>>,
) -> core::result::Result<(Arrival, Guard<'static>), Reason> {
    let hello = Hello::decode(name).ok_or(Reason::VersionMismatch)?;
    if !table::fits(companion) {
        return Err(Reason::TableFull);
    }
    let quick = held.is_some();
    let setup = match held {
        Some(held) => held,
        None => SETUP.lock().ok_or(Reason::Unknown)?,
    };
    sharing::look_around(listener);
    plausible(&hello.client, &hello.server, listener)?;
    let sender = fd_passing::creator(companion).map_err(|error| want(error).unwrap_or(Reason::Refused))?;
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    // The link's descriptor follows the connection at once. Where the link is known, its message is taken off without it: a
    // descriptor that is not wanted costs as much to install and to close as the rest of the message. The lock keeps the link.
    let link = link::known(hello.nonce, hello.sequence, (sender.pid as u32, sender.uid)).filter(|_| !is_anonymous(&sender));
    let settled = hello.link_follows == 1 && link.is_some_and(|(_, link)| settled(&link, listener));
    let known = settled && fd_passing::discard(companion);
    if let Some((_, link)) = link.filter(|_| known && listener.has(flag::LISTENER_SHARED)) {
        say_several(&link);
    }
    // What comes with a client that is new takes numbers.
    let new = hello.link_follows != 0 && !known;
    if new {
        fd_reserve::lend();
    }
    let setup = Some(setup).filter(|_| quick || known);
    let arrived = receive(companion, hello, listener, sender, nonblocking, known, setup);
    if new {
        fd_reserve::fill();
    }
    arrived
}

/// Whether a client has no name here: this process sees neither its process nor its user, so two such clients look alike. Its link is
/// known by the memory itself, which comes with each of its connections: nothing in the link tells it that it need not send it.
fn is_anonymous(client: &libc::ucred) -> bool {
    client.pid == 0 && identity::may_be_anybody(client.uid)
}

/// What came with a connection.
pub struct Shipment {
    /// The process that made the connection, as the kernel knows.
    pub client: libc::ucred,
    /// The link's descriptor and its bell's; -1: not sent.
    pub sent: [i32; fd_passing::MOST],
    /// The client has a bell, and kept it for a process that accepts alone.
    pub withheld: bool,
}

/// The link of a companion that said who it is.
fn receive(
    companion: i32,
    hello: Hello,
    listener: &Socket,
    sender: libc::ucred,
    nonblocking: bool,
    known: bool,
    setup: Option<Guard<'static>>,
) -> core::result::Result<(Arrival, Guard<'static>), Reason> {
    let shipment = match hello.link_follows {
        FOLLOWS_PARCEL => forward::open(companion, sender, nonblocking).ok_or(Reason::BadSegment)?,
        1 if !known => receive_link(companion, sender)?,
        _ => Shipment { client: sender, sent: [-1; fd_passing::MOST], withheld: false },
    };
    let setup = match setup {
        Some(setup) => setup,
        None => SETUP.lock().ok_or(Reason::Unknown)?,
    };
    let (index, _) = find_link(&hello, &shipment, listener)?;
    let channel = hello.channel as usize;
    let Hello { client, server, generation, .. } = hello;
    Ok((Arrival { companion, client, server, index, channel, generation }, setup))
}

/// The descriptors that the client sends right after connecting: the link's, and its bell's if there is one. It may be a moment away, if the client was preempted
/// between the two; how long that may hold accept up depends on who it is ([`super::patience`]).
fn receive_link(companion: i32, client: libc::ucred) -> core::result::Result<Shipment, Reason> {
    let receive = || {
        let mut byte = [0u8];
        let (_, sent) = fd_passing::receive_with(companion, &mut byte, libc::MSG_DONTWAIT)?;
        Ok(Shipment { client, sent, withheld: byte[0] == fd_passing::WITHOUT_BELL })
    };
    // The kernel may have no memory for the call at a moment: then nothing was taken off.
    let receive = || match receive() {
        Err(Errno(libc::ENOMEM | libc::ENOBUFS)) => receive(),
        other => other,
    };
    match receive() {
        Ok(shipment) => return Ok(shipment),
        Err(Errno(libc::EAGAIN)) => {}
        Err(Errno(libc::ECONNRESET)) => return Err(Reason::ClientLeft),
        Err(error) => return Err(want(error).unwrap_or(Reason::BadSegment)),
    }
    let _ = stops::poll_one_through(companion, libc::POLLIN, ACCEPTORS.links.of(client.uid));
    receive().map_err(|error| {
        if error.0 == libc::ECONNRESET {
            return Reason::ClientLeft;
        }
        if let Some(want) = want(error) {
            return want;
        }
        ACCEPTORS.links.failed(client.uid);
        Reason::BadSegment
    })
}

/// What this process lacks to take a client in; `None`: that is the client's fault.
fn want(error: Errno) -> Option<Reason> {
    match error.0 {
        libc::ENOMEM | libc::ENOBUFS => Some(Reason::NoMemory),
        libc::EMFILE | libc::ENFILE => Some(Reason::NoDescriptors),
        _ => error.is_refusal().then_some(Reason::SystemCallFilter),
    }
}

/// Whether a link that is known needs nothing of what its client sends along. It does when the listener has become this process's
/// alone: the client may offer from now on.
fn settled(link: &link::Link, listener: &Socket) -> bool {
    listener.has(flag::LISTENER_SHARED) || link::header(link.base).sole.load(Ordering::Relaxed) == 1
}

/// Says in a link that several processes accept: its client sends it without the bell.
fn say_several(link: &link::Link) {
    let several = &link::header(link.base).several;
    if several.load(Ordering::Relaxed) == 0 {
        several.store(1, Ordering::Release);
    }
}

/// Says in a link that this process accepts alone: its client sends nothing from now on, or, if it has `withheld` its bell, that as well.
fn say_alone(link: &link::Link, withheld: bool) {
    let header = link::header(link.base);
    header.several.store(0, Ordering::Relaxed);
    header.sole.store(!withheld as u32, Ordering::Release);
}

/// The link that a hello names: known, or just `sent` with its bell. Under the set-up lock.
fn find_link(hello: &Hello, shipment: &Shipment, listener: &Socket) -> core::result::Result<(usize, link::Link), Reason> {
    let &Shipment { client, sent: [segment, bell], withheld } = shipment;
    let anonymous = is_anonymous(&client);
    let client = (client.pid as u32, client.uid);
    let discard = |fd: i32| {
        if fd >= 0 {
            let _ = calls::close(fd);
        }
    };
    let is_proved = |link: &link::Link| !anonymous || (segment >= 0 && link::is_segment_of(link, segment));
    if let Some(found) = link::known(hello.nonce, hello.sequence, client).filter(|(_, link)| is_proved(link)) {
        discard(segment);
        let (index, link) = found;
        if hello.link_follows == 1 {
            link::retire_if_shared(link::header(link.base));
        }
        if hello.link_follows != 1 || settled(&link, listener) || anonymous {
            discard(bell);
            return Ok(found);
        }
        if link.bell >= 0 {
            discard(bell);
            server::resume(index, listener);
        } else if bell >= 0 {
            server::begin(index, bell, listener);
        }
        say_alone(&link, withheld && link.bell < 0);
        return Ok(found);
    }
    let rendezvous = listener.private_fd.load(Ordering::Relaxed);
    // A listener that was taken out of another process comes with that one's links.
    let segment = if hello.link_follows == 0 && !anonymous { link::named(hello.nonce, hello.sequence, client) } else { segment };
    let adopted = if segment < 0 {
        Err(Reason::BadSegment)
    } else {
        link::adopt(segment, hello.nonce, hello.sequence, client, rendezvous)
            .map_err(|error| want(error).unwrap_or(Reason::BadSegment))
    };
    match adopted {
        Ok((index, link)) => {
            let sole = !listener.has(flag::LISTENER_SHARED) && !anonymous;
            if sole && bell >= 0 {
                server::begin(index, bell, listener);
            } else {
                discard(bell);
            }
            if sole {
                say_alone(&link, withheld);
            } else {
                link::header(link.base).sole.store(0, Ordering::Release);
                say_several(&link);
            }
            if !link::holds_range() {
                listen::is_short(listener); // the next client would be reset
            }
            Ok((index, link))
        }
        Err(reason) => {
            discard(bell);
            Err(reason)
        }
    }
}

/// A client says where it comes from, and programs decide by that whom to trust: it can only come from this host, and
/// to the port that it connected to.
/// Called under the set-up lock.
pub fn plausible(client: &Address, server: &Address, listener: &Socket) -> core::result::Result<(), Reason> {
    if server.port as u32 != listener.listening.port.load(Ordering::Relaxed) {
        return Err(Reason::BadSegment);
    }
    let namespace = listener.listening.namespace.load(Ordering::Relaxed);
    if [client, server].into_iter().all(|address| route::is_local_in(namespace, address)) {
        Ok(())
    } else {
        Err(Reason::NotLocal)
    }
}

/// Whether an address is one of this host's. Called under the set-up lock.
pub fn of_this_host(address: &Address) -> bool {
    route::is_local_in(0, address)
}
