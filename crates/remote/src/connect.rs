//! connect to another host: the stream is opened beside the TCP connection, which the kernel makes as always.

use super::local_station::{self, LocalStation};
use super::message::{token_bytes, Message};
use super::pump::{Rings, CLASS, FIRST};
use super::stream_life::{self, Event};
use super::stream_words;
use super::{driving, marks, reachability, refusals, settling};
use core::sync::atomic::Ordering;
use shunt_rendezvous::carriers::Outcome;
use shunt_rendezvous::{attach, bound_port, socket_cache};
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_station::{Answer, FourTuple, Inquiry, Opening, Peer, Refusal, Stream, Token};
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, pollfd, MSG_DONTWAIT, MSG_PEEK, POLLIN, POLLOUT};
use shunt_sys::{calls, clock, Errno, Result};
use shunt_table::global;
use shunt_table::global::SETUP;
use shunt_table::sockaddr::Encoded;

/// How long it may take to hear which station serves the listener (ns), the first time that this is asked: where the program
/// does not want to wait, and no agent has said that shunt is there; where it does not want to wait; where it waits anyway: until
/// the third question met silence, which is then remembered.
const ASKED: [u64; 3] = [2_000_000, 10_000_000, 120_000_000];
/// How long `connect` waits for OPENED (ns). No SYN shows the mark before: others could read it, and be the first to reserve.
const PROMPT: [u64; 3] = [10_000_000, 10_000_000, 50_000_000];
/// How long it then waits for the token (ns). What comes later finds a stream that has begun by TCP.
const TOKEN: [u64; 3] = [50_000, 100_000, 500_000];
/// Where the program allows itself less (TCP_MAXSEG), there is no room for marks below that the kernel would take.
const LEAST_SEGMENT: u32 = 600;
/// How long it may take to learn whether a reservation that was given up had been claimed (ns).
const CERTAINTY: u64 = 1_000_000_000;

/// Connects `fd` to `server`, an address of another host.
pub fn connect(fd: i32, socket: &'static Socket, server: &Address) -> core::result::Result<Outcome, Reason> {
    reachability::device(server).map(|device| connect_through(device, fd, socket, server))
}

fn connect_through(device: reachability::Device, fd: i32, socket: &'static Socket, server: &Address) -> Outcome {
    let nonblocking = calls::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0);
    let listed = matches!(global::options().hosts, shunt_config::Hosts::Listed(_));
    let kind = if nonblocking { usize::from(listed) } else { 2 };
    if reachability::was_slow(server, clock::monotonic_ns()) {
        return Outcome::Kernel(Reason::TooSlow);
    }
    if let Some(reason) = refusals::of(server) {
        return Outcome::Kernel(reason);
    }
    let said = shunt_rendezvous::options::largest_segment(socket);
    if bound_port::is_not_to_be_bound(fd) || (1..LEAST_SEGMENT).contains(&said) {
        return Outcome::Kernel(Reason::UnsupportedSocket);
    }
    let four = FourTuple { client: device.source, server: *server };
    if let Some(local) = local_station::local() {
        local.look_after_address(&device.source);
    }
    let is_known = local_station::local()
        .is_some_and(|local| !local.station.is_over() && local.station.known(&four, clock::monotonic_ns()).is_some());
    if !is_known {
        if let Err(reason) = reachability::host_runs(&device, server, nonblocking) {
            return Outcome::Kernel(reason);
        }
    }
    if reachability::is_homeless() {
        return Outcome::Kernel(Reason::NoStation);
    }
    let local = match settling::settle(&device, true) {
        Ok(local) => local,
        Err(reason) => {
            reachability::note_homeless();
            return Outcome::Kernel(reason);
        }
    };
    let peer = match ask(local, &four, clock::monotonic_ns() + ASKED[kind]) {
        Ok(peer) => peer,
        Err(reason) => {
            if reason == Reason::TooSlow {
                reachability::note_slow(server, clock::monotonic_ns());
            }
            return Outcome::Kernel(reason);
        }
    };
    // A port that is bound stays so, whatever becomes of the stream: what else may fail is asked before.
    let Some(driver) = driving::lock(local, clock::monotonic_ns() + PROMPT[2]) else { return Outcome::Kernel(Reason::TooSlow) };
    let lends = driver.lends_below(stream_words::STREAMS);
    drop(driver);
    driving::drive();
    if !lends {
        return Outcome::Kernel(Reason::StreamsFull);
    }
    if !local.has_room() {
        return Outcome::Kernel(Reason::NoDescriptors);
    }
    socket_cache::spoil(socket);
    let Some(client) = bound_port::settle(fd, socket, &device.source) else { return Outcome::Kernel(Reason::NoPort) };
    let four = FourTuple { client, server: *server };
    let Some(mut driver) = driving::lock(local, clock::monotonic_ns() + PROMPT[2]) else {
        return Outcome::Kernel(Reason::TooSlow);
    };
    if !driver.lends_below(stream_words::STREAMS) {
        return Outcome::Kernel(Reason::StreamsFull); // another thread was here meanwhile
    }
    let mark = driver.mark(if said == 0 { device.segment() } else { device.segment().min(said.min(u16::MAX.into()) as u16) });
    let opened = driver.open(clock::monotonic_ns(), peer, &four, mark);
    drop(driver);
    driving::drive(); // others may have left to us what they had to do
    let stream = match opened {
        Ok(stream) => stream,
        Err(refusal) => return Outcome::Kernel(reason(refusal)),
    };
    // A reservation that was made all the same is not claimed: the connection does not show the mark.
    match await_opening(local, stream, clock::monotonic_ns() + PROMPT[kind]) {
        Opening::Opened => {}
        Opening::Refused(refusal) => {
            give_up(local, stream);
            // A path that was lost, or a listener that moved, is asked for anew.
            if !matches!(refusal, Refusal::Lost | Refusal::Elsewhere) {
                refusals::note(server, reason(refusal), refusals::SAID);
            }
            return Outcome::Kernel(reason(refusal));
        }
        Opening::Pending => {
            match driving::lock(local, clock::monotonic_ns() + PROMPT[kind]) {
                Some(mut driver) => driver.release_unmarked(clock::monotonic_ns(), stream),
                None => leave_behind(local, stream),
            }
            driving::drive();
            refusals::note(server, Reason::TooSlow, refusals::LATE);
            return Outcome::Kernel(Reason::TooSlow);
        }
    }
    connect_by_tcp(local, stream, fd, socket, &four, kind, [said as i32, i32::from(mark.0)])
}

fn reason(refusal: Refusal) -> Reason {
    match refusal {
        Refusal::NoStation => Reason::PeerHostPlain,
        Refusal::Full => Reason::StreamsFull,
        Refusal::Elsewhere | Refusal::Source | Refusal::Cancelled | Refusal::Unclaimed => Reason::PeerHostRefused,
        Refusal::Lost => Reason::PathLost,
        Refusal::Device => Reason::OutsideArea,
    }
}

/// Drives until something happens that others may do, or for a moment.
fn pause(local: &LocalStation, beside: i32, events: i16, deadline: u64) {
    driving::drive();
    let left = deadline.saturating_sub(clock::monotonic_ns()).min(200_000);
    if left == 0 {
        return;
    }
    let armed = local.station.arm();
    let mut set = [local.station.poll_fd(), beside].map(|fd| pollfd { fd, events: POLLIN, revents: 0 });
    set[1].events = events;
    let left = if armed { left } else { 0 };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: left as i64 };
    let _ = calls::ppoll(set.as_mut_ptr(), 2, &mut time, core::ptr::null(), calls::KERNEL_SIGSET);
    if armed {
        local.station.disarm();
    }
    driving::drive();
}

/// Which station serves the listener.
fn ask(local: &LocalStation, four: &FourTuple, deadline: u64) -> core::result::Result<Peer, Reason> {
    if let Some(known) = local.station.known(four, clock::monotonic_ns()) {
        return known.map_err(reason);
    }
    let mut inquiry =
        Inquiry::begin(&local.station, four, clock::monotonic_ns(), &mut Rings::of(local)).map_err(|_| Reason::NoStation)?;
    loop {
        let now = clock::monotonic_ns();
        match inquiry.step(&local.station, now) {
            Answer::Peer(peer) => return Ok(peer),
            Answer::None(refusal) => return Err(reason(refusal)),
            Answer::Pending if now >= deadline => {
                inquiry.abandon(&local.station);
                return Err(Reason::TooSlow);
            }
            Answer::Pending => pause(local, inquiry.descriptor(), POLLIN, deadline.min(inquiry.deadline().max(now + 1))),
        }
    }
}

fn await_opening(local: &LocalStation, stream: Stream, deadline: u64) -> Opening {
    loop {
        match local.station.opening(stream) {
            Opening::Pending if clock::monotonic_ns() < deadline => pause(local, -1, 0, deadline),
            other => return other,
        }
    }
}

/// No thread waits for the stream's end any more: it is released when the station knows what became of it.
pub fn give_up(local: &LocalStation, stream: Stream) {
    match local.station.lock() {
        Some(mut driver) if local.station.opening(stream) != Opening::Pending || stream >= stream_words::STREAMS => {
            driver.release(clock::monotonic_ns(), stream);
        }
        _ => leave_behind(local, stream),
    }
    driving::drive();
}

/// The next holder of the lock releases the stream, when it is known what became of it.
fn leave_behind(local: &LocalStation, stream: Stream) {
    if stream < stream_words::STREAMS {
        stream_life::happens(&local.station, stream, Event::GivenUp);
        marks::mark(local, stream);
        marks::wake_keeper(local);
    }
}

/// Gives the reservation up, and waits until it is known whether the server had claimed it. True: it has not, nor will: no
/// token will come by TCP. False: that could not be learnt.
fn withdraw(local: &LocalStation, stream: Stream) -> bool {
    if let Opening::Refused(_) = local.station.opening(stream) {
        give_up(local, stream);
        return true;
    }
    if let Some(mut driver) = local.station.lock() {
        driver.cancel(clock::monotonic_ns(), stream);
    }
    let cancelled = matches!(await_opening(local, stream, clock::monotonic_ns() + CERTAINTY), Opening::Refused(_));
    give_up(local, stream);
    cancelled
}

/// What came by the TCP connection.
enum Came {
    Token,
    /// Nothing yet.
    Nothing,
    /// Other bytes, or its end: it is what the kernel's connections are.
    Other,
}

fn look_for_token(fd: i32, token: &Token) -> Came {
    let mut bytes = [0u8; 16];
    let got =
        calls::recvfrom(fd, bytes.as_mut_ptr().cast(), 16, MSG_PEEK | MSG_DONTWAIT, core::ptr::null_mut(), core::ptr::null_mut());
    let expected = token_bytes(token);
    match got {
        Ok(16) if bytes == expected => Came::Token,
        Ok(got) if got > 0 && got < 16 && bytes[..got] == expected[..got] => Came::Nothing,
        Err(Errno(libc::EAGAIN | libc::EINTR)) => Came::Nothing,
        _ => Came::Other,
    }
}

/// Waits for a connection that is on its way. Errors: its own; EINPROGRESS at the deadline.
fn await_connected(local: &LocalStation, fd: i32, deadline: u64) -> Result<()> {
    loop {
        if calls::poll_one(fd, POLLOUT, 0).unwrap_or(0) != 0 {
            return match calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
                0 => Ok(()),
                error => Err(Errno(error)),
            };
        }
        if clock::monotonic_ns() >= deadline {
            return Err(Errno(libc::EINPROGRESS));
        }
        pause(local, fd, POLLOUT, deadline);
    }
}

/// The kernel connects; the token that comes by this connection makes it a stream. It begins by TCP if that does not come at
/// once.
fn connect_by_tcp(
    local: &'static LocalStation,
    stream: Stream,
    fd: i32,
    socket: &'static Socket,
    four: &FourTuple,
    kind: usize,
    [said, mark]: [i32; 2],
) -> Outcome {
    let nonblocking = kind < 2;
    let address = Encoded::new(socket.family.load(Ordering::Relaxed), &four.server);
    // Only the SYN shows it.
    let _ = calls::setsockopt_int(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, mark);
    let mut connected = calls::connect(fd, address.pointer(), address.length);
    let _ = calls::setsockopt_int(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, said);
    if nonblocking && connected == Err(Errno(libc::EINPROGRESS)) {
        connected = await_connected(local, fd, clock::monotonic_ns() + ASKED[kind]);
    }
    if let Err(error) = connected {
        let certain = if matches!(error.0, libc::EINPROGRESS | libc::EINTR) {
            withdraw(local, stream)
        } else {
            give_up(local, stream);
            true
        };
        return Outcome::Done(Err(if certain { error } else { Errno(libc::ETIMEDOUT) }), Reason::TooSlow);
    }
    let Some(driver) = driving::lock(local, clock::monotonic_ns() + CERTAINTY) else {
        leave_behind(local, stream);
        return Outcome::Done(Err(Errno(libc::ETIMEDOUT)), Reason::TooSlow);
    };
    let token = driver.token(stream);
    drop(driver);
    driving::drive();
    let deadline = clock::monotonic_ns() + TOKEN[kind];
    let start = loop {
        match look_for_token(fd, &token) {
            Came::Token => break Event::ConnectedByToken,
            Came::Other => {
                // A server that accepts without shunt has written already, or the connection is over.
                give_up(local, stream);
                return Outcome::Done(Ok(0), Reason::PeerHostRefused);
            }
            Came::Nothing if clock::monotonic_ns() >= deadline => break Event::Connected,
            Came::Nothing => pause(local, fd, POLLIN, deadline),
        }
    };
    if start == Event::ConnectedByToken {
        let mut bytes = [0u8; 16];
        let _ = calls::recvfrom(fd, bytes.as_mut_ptr().cast(), 16, MSG_DONTWAIT, core::ptr::null_mut(), core::ptr::null_mut());
    }
    let shadow = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3).unwrap_or(-1);
    let made =
        if shadow < 0 { Err(Errno(libc::EMFILE)) } else { companion(local, stream, &four.client, &four.server, nonblocking) };
    let Ok([near_fd, far_fd]) = made else {
        // The other side may believe in a stream: there is none.
        match driving::lock(local, clock::monotonic_ns() + PROMPT[2]) {
            Some(mut driver) => driver.release(clock::monotonic_ns(), stream),
            None => leave_behind(local, stream),
        }
        let _ = calls::close(shadow);
        return Outcome::Done(Err(Errno(libc::ECONNRESET)), Reason::NoDescriptors);
    };
    // The kernel's own flag is the companion's from now on; the shadow is the keeper's.
    let _ = calls::fcntl(shadow, libc::F_SETFL, (libc::O_RDWR | libc::O_NONBLOCK) as usize);
    if let Some(_setup) = SETUP.lock() {
        shunt_rendezvous::options::carry_over(fd, socket);
        seat(local, stream, socket, nonblocking);
    }
    if nonblocking {
        socket.set(flag::CONNECTING);
    }
    let (_, _, channel) = local.place(stream);
    attach::replace(fd, near_fd, socket, channel, Reason::OtherHost);
    shunt_rendezvous::options::connected(socket, fd, true);
    let _ = calls::close(near_fd);
    begin(local, stream, far_fd, shadow, start);
    Outcome::Connected
}

/// The companion of a stream, near end and far end; its channel is made ready. `own` and `peer`: the addresses of the two
/// ends.
///
/// Errors: EMFILE and the like.
pub fn companion(local: &LocalStation, stream: Stream, own: &Address, peer: &Address, nonblocking: bool) -> Result<[i32; 2]> {
    // The pump always has enough room: what was granted must fit.
    let classes = [attach::class_limit().min(CLASS as u32), CLASS as u32];
    let made = shunt_halves::companion(local.place(stream), classes, own, peer, nonblocking)?;
    stream_words::set(&local.station, stream, stream_words::GENERATION, u64::from(made.generation) | 1 << 32);
    Ok(made.ends)
}

/// The socket becomes the near side of a stream. Under the set-up lock.
pub fn seat(local: &LocalStation, stream: Stream, socket: &'static Socket, nonblocking: bool) {
    shunt_halves::seat(local.place(stream), socket, nonblocking);
    local.set_near(stream, socket);
}

/// From now on bytes flow: the stream was connected, or accepted. The keeper gets the far companion and the shadow.
pub fn begin(local: &LocalStation, stream: Stream, far_fd: i32, shadow: i32, start: Event) {
    // Without the lock there is no stream: the program finds its companion hung up.
    if let Some(mut driver) = driving::lock(local, clock::monotonic_ns() + CERTAINTY) {
        driver.keep(stream);
        stream_life::happens(&local.station, stream, start);
        if start == Event::Accepted {
            driver.bind(stream, &mut Rings::of(local));
            driver.grant(stream, FIRST);
        }
        drop(driver);
        // If there is no keeper, the program finds its companion hung up, too.
        let _ = Message::Stream(stream).send(local.control.load(Ordering::Relaxed), &[far_fd, shadow]);
    } else {
        leave_behind(local, stream);
    }
    let _ = calls::close(far_fd);
    let _ = calls::close(shadow);
    marks::mark(local, stream);
    driving::drive();
}
