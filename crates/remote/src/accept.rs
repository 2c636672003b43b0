//! accept from another host: a TCP connection that a reservation waits for becomes a stream.

use super::connect::{begin, companion, give_up, seat};
use super::local_station::{self, local, LocalStation};
use super::message::{token_bytes, Message};
use super::stream_life::Event;
use super::{driving, reachability, settling, stream_words};
use core::sync::atomic::Ordering;
use shunt_config::Hosts;
use shunt_rendezvous::shown;
use shunt_segment::address::Address;
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_station::{Discovery, FourTuple, Station, Stream, LISTENERS};
use shunt_stream::socket;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, MSG_DONTWAIT, MSG_NOSIGNAL};
use shunt_sys::{calls, clock, sleeping, Errno, Result};
use shunt_table::global::SETUP;
use shunt_table::process::status_page;
use shunt_table::table;
use shunt_table::table::Kind;

/// How long to wait for the lock (ns): the driving thread needs microseconds, unless the kernel takes its processor away.
const PATIENCE: u64 = 20_000_000;
/// How long `listen` waits for the keeper, which answers for the listener (ns), and between two looks.
const HEARD_WITHIN: u64 = 200_000_000;
/// How long for another station's keeper to give the query socket's name up (ns).
const MOVED_WITHIN: u64 = 20_000_000;
const LOOK: i64 = 200_000;

/// The socket `fd`, with this inode, is about to listen at `address`, or does: if other hosts can reach it, this process has a
/// station that answers for it.
pub fn listens(fd: i32, inode: u64, address: &Address) {
    listens_within(fd, inode, address, None);
}

/// As [`listens`]; the agent, where a station is to be made by it, is waited for so long (ms) if that is said.
fn listens_within(fd: i32, inode: u64, address: &Address, patience: Option<i64>) {
    if address.port == 0 || address.is_loopback() {
        return;
    }
    if reachability::is_homeless() {
        return status_page::count(Reason::NoStation);
    }
    let Some(device) = reachability::device_for_listener(fd, address, patience) else { return };
    let local = match settling::settle(&device, false) {
        Ok(local) => local,
        Err(reason) => {
            reachability::note_homeless();
            return status_page::count(reason);
        }
    };
    open_gates(local);
    if local.station.listeners().count() >= LISTENERS {
        return;
    }
    if let Ok(query) = query(inode) {
        let told = Message::Listening(inode, *address).send(local.control.load(Ordering::Relaxed), &[query]);
        let _ = calls::close(query);
        let until = clock::monotonic_ns() + HEARD_WITHIN;
        // The keeper alone writes down who listens: the station may be another user's, in whose memory this process does nothing.
        while told.is_ok() && !local.hears(inode) && clock::monotonic_ns() < until {
            let _ = sleeping::nap(LOOK);
        }
    }
}

/// The listener's query socket. Without one no connection to this listener would ever be a stream.
///
/// Errors: as [`Station::query socket`].
fn query(inode: u64) -> Result<i32> {
    let until = clock::monotonic_ns() + MOVED_WITHIN;
    loop {
        match Station::query(inode) {
            // The name is another station's until its keeper has heard that the listener moves.
            Err(Errno(libc::EADDRINUSE)) if clock::monotonic_ns() < until => {
                let _ = sleeping::nap(LOOK);
            }
            other => return other,
        }
    }
}

/// The gates' ports are bound before `listen` returns: the question of a client that connects at once waits in a queue, and does
/// not meet a port without a socket.
fn open_gates(local: &LocalStation) {
    for family in 0..2 {
        let gates = &local.common().gates;
        if gates.fetch_or(1 << family, Ordering::Relaxed) & 1 << family != 0 {
            continue;
        }
        let sent = Discovery::bind(family == 1).and_then(|fd| {
            let sent = Message::Discovery(family).send(local.control.load(Ordering::Relaxed), &[fd]);
            let _ = calls::close(fd);
            sent
        });
        if sent.is_err() {
            gates.fetch_and(!(1 << family), Ordering::Relaxed); // another user's: the next listener tries again
        }
    }
}

/// The listener with `inode` is closed, by the last process that had it as far as is known.
pub fn listens_no_longer(inode: u64) {
    if local().is_some() {
        for local in local_station::local_stations() {
            let _ = Message::NoQuerySocket(inode).send(local.control.load(Ordering::Relaxed), &[]);
        }
    }
}

/// The kernel gave the connection `fd` from `client`: true if it is a stream now.
#[inline(always)]
pub fn accepted(fd: i32, listening: i32, listener: &Socket, flags: i32) -> bool {
    match local() {
        Some(local) => claim(local, fd, listening, listener, flags),
        None => {
            unheard(fd, listening, listener);
            false
        }
    }
}

/// There was no agent when this process began to listen; if one runs by now the next clients are to find the listener. One that several
/// processes accept from is left to TCP: the station of one would get the streams of all.
#[cold]
#[inline(never)]
fn unheard(fd: i32, listening: i32, listener: &Socket) {
    let hosts = &shunt_table::global::options().hosts;
    if !can_move(listener) || listener.has(flag::LISTENER_SHARED) || *hosts == Hosts::None || !is_time_to_move() {
        return;
    }
    match shunt_table::sockaddr::peer_address(fd) {
        Some(client) if !client.is_loopback() => move_ear(listening, listener),
        // A server whose clients of this host come by the kernel asks for their addresses now and then, not for each.
        _ => local_station::move_next().store(clock::monotonic_ns() + LOOK_AGAIN, Ordering::Relaxed),
    }
}

/// Between two tries to be heard by another station (ns).
const MOVE_AGAIN: u64 = 1_000_000_000;
/// How long clients are not looked at behind one of this host (ns).
const LOOK_AGAIN: u64 = 10_000_000;

fn is_time_to_move() -> bool {
    clock::monotonic_ns() >= local_station::move_next().load(Ordering::Relaxed)
}

/// No client can ask for a listener without a known inode: it takes no other one's turn, and its clients are not looked at.
fn can_move(listener: &Socket) -> bool {
    listener.listening.inode.load(Ordering::Relaxed) != 0
}

/// How long the agent is waited for then, in an accept that does not block (ms).
const AWAKE_WITHIN: i64 = 2;

/// The listener is heard at no station of this process's, or that is of no use any more, because the agent was started again: the next
/// clients are to find it.
#[cold]
fn move_ear(listening: i32, listener: &Socket) {
    let inode = listener.listening.inode.load(Ordering::Relaxed);
    if !is_time_to_move() {
        return;
    }
    local_station::move_next().store(clock::monotonic_ns() + MOVE_AGAIN, Ordering::Relaxed);
    let nonblocking = calls::fcntl(listening, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0);
    listens_within(listening, inode, &shunt_table::sockaddr::bound_address(listening), nonblocking.then_some(AWAKE_WITHIN));
}

#[cold]
#[inline(never)]
fn claim(local: &'static LocalStation, fd: i32, listening: i32, listener: &Socket, flags: i32) -> bool {
    let (Some(client), server) = (shunt_table::sockaddr::peer_address(fd), shunt_table::sockaddr::bound_address(fd)) else {
        return false;
    };
    if client.is_loopback() || !reachability::holds(&client.ip) || !table::fits(fd) || !local.is_own() {
        return false;
    }
    local.look_after_address(&server);
    // An older station goes on hearing what this process listened for before it got one of its own.
    let hears = |local: &LocalStation| !local.station.is_over() && local.hears(listener.listening.inode.load(Ordering::Relaxed));
    if can_move(listener) && !hears(local) && !local_station::local_stations().any(hears) {
        move_ear(listening, listener);
    }
    // OPEN left before the connection was made: it is here, or it comes too late.
    driving::drive();
    let Some(mut driver) = driving::lock(local, clock::monotonic_ns() + PATIENCE) else { return false };
    // Any process may have made the reservation: the connection itself says whether it belongs to it.
    let shown = shown::look(fd, if client.as_v4().is_some() { 40 } else { 60 });
    let claimed = driver.claim(&FourTuple { client, server }, shown.segment, shown.made);
    drop(driver);
    driving::drive(); // others may have left to us what they had to do
    let Some((stream, token)) = claimed else { return false };
    if stream >= stream_words::STREAMS || !local.has_room() {
        return refuse(local, stream);
    }
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    let family = listener.family.load(Ordering::Relaxed);
    let shadow = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3).unwrap_or(-1);
    if shadow < 0 {
        return refuse(local, stream);
    }
    let pair = companion(local, stream, &server, &client, nonblocking);
    let socket = socket::allocate(family);
    let (Ok([near, far]), Some(socket)) = (pair, socket) else {
        let _ = calls::close(shadow);
        return refuse(local, stream);
    };
    let bytes = token_bytes(&token);
    let sent = calls::sendto(shadow, bytes.as_ptr().cast(), 16, MSG_DONTWAIT | MSG_NOSIGNAL, core::ptr::null(), 0);
    if sent != Ok(16) {
        // The connection is gone already: the program finds that by itself.
        for fd in [near, far, shadow] {
            let _ = calls::close(fd);
        }
        socket::free(socket);
        return refuse(local, stream);
    }
    let _ = calls::fcntl(shadow, libc::F_SETFL, (libc::O_RDWR | libc::O_NONBLOCK) as usize);
    let _ = calls::dup3(near, fd, if flags & libc::SOCK_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 });
    let _ = calls::close(near);
    if let Some(_setup) = SETUP.lock() {
        seat(local, stream, socket, nonblocking);
    }
    shunt_rendezvous::listen::options::inherit(listener, socket, u64::MAX); // the kernel has made it just now
    shunt_rendezvous::options::connected(socket, fd, true);
    shunt_table::table::enter(fd, Kind::Stream, socket);
    let (_, _, channel) = local.place(stream);
    status_page::note(fd, kind::STREAM, Reason::OtherHost, Some(channel));
    begin(local, stream, far, shadow, Event::Accepted);
    true
}

/// There is no room for the stream: its client goes on by TCP, where no token comes.
fn refuse(local: &LocalStation, stream: Stream) -> bool {
    give_up(local, stream);
    false
}
