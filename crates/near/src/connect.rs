//! The client's half: a name, a connection of the kernel's that shows the mark, the answer to the server that claims it, and its token.

use crate::claim::{self, Claim, Token, CLAIM, UNKNOWN_LINK};
use crate::directory::{self, Name};
use crate::mark;
use crate::own::drawn;
use crate::servers::{servers, Server, Way};
use crate::waiting::{await_any, keep_beside, look_for_token, receive, Looked};
use core::sync::atomic::Ordering;
use shunt_config::Hosts;
use shunt_link as link;
use shunt_link::{peers, Offer};
use shunt_rendezvous::attach::{self, Setting};
use shunt_rendezvous::carriers::Outcome;
use shunt_rendezvous::{bound_port, options, socket_cache};
use shunt_ring::claim as offered;
use shunt_segment::address::Address;
use shunt_segment::channel::{life, release};
use shunt_segment::name::Hello;
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket::Socket;
use shunt_sys::libc::{self, AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL, POLLOUT, SOCK_CLOEXEC, SOCK_NONBLOCK};
use shunt_sys::{calls, clock, Errno, Result};
use shunt_table::global::{self, SETUP};
use shunt_table::private::Pending;
use shunt_table::process::{kernel_only, status_page};
use shunt_table::sockaddr::Encoded;
use shunt_table::{fd_passing, sockaddr};

/// How long a server is waited for that may claim the connection (ns): in calls that wait and in those that do not; where it has claimed one lately, and
/// where nothing is known of it.
const PATIENCE: [[u64; 2]; 2] = [[50_000_000, 20_000_000], [20_000_000, 10_000_000]];
/// How long a call that does not wait waits for the TCP connection (ns), where nothing is known of the server: it takes some 50 us on one host, and
/// what takes longer is far.
const NEAR_BY: u64 = 1_000_000;
/// How long a token is waited for, once a server has taken the channel (ns).
const TOKEN: u64 = 200_000_000;
/// How long a server may take to say what it claims, when it has connected (ns).
const SAID: u64 = 5_000_000;

/// Connects `fd` to `server`, which may be in another network namespace of this host.
pub fn connect(fd: i32, socket: &'static Socket, server: &Address) -> core::result::Result<Outcome, Reason> {
    let directory = directory::here().ok_or(Reason::NotLocal)?;
    let now = clock::monotonic_ns();
    let is_of_another_host = matches!(&global::options().hosts, Hosts::Listed(subnets) if subnets.contains(&server.ip));
    let said = options::largest_segment(socket);
    if is_of_another_host || server.scope != 0 || said != 0 || kernel_only::keeps() || bound_port::is_not_to_be_bound(fd) {
        return Err(Reason::NotLocal);
    }
    let known = servers(|servers| servers.of(server, now));
    if known == Server::Silent {
        return Err(Reason::NearUnclaimed);
    }
    directory::look_through(directory, now);
    let way = way(server, now).ok_or(Reason::NotLocal)?;
    let mark = mark::drawn(way.segment, drawn()).ok_or(Reason::NotLocal)?;
    socket_cache::spoil(socket);
    let Some(client) = bound_port::settle(fd, socket, &way.source) else { return Ok(Outcome::Kernel(Reason::NoPort)) };
    let name = match Name::bind(directory, &client, now) {
        Ok(name) => name,
        Err(Reason::NotLocal) => return Err(Reason::NotLocal),
        Err(reason) => return Ok(Outcome::Kernel(reason)),
    };
    let nonblocking = calls::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0);
    let patience = PATIENCE[usize::from(nonblocking)][usize::from(known != Server::Claims)];
    let near_by = if known == Server::Claims { patience } else { NEAR_BY };
    let mut attempt = Attempt { fd, socket, server, client, name, mark, nonblocking, patience, near_by };
    let outcome = attempt.make();
    let now = clock::monotonic_ns();
    servers(|servers| match &outcome {
        Outcome::Connected => servers.claims(server, now),
        Outcome::Done(Ok(_), _) => servers.failed(server, now),
        _ => {}
    });
    Ok(outcome)
}

/// The way to a server: as it was a moment ago, or as a socket tells that sends nothing.
fn way(server: &Address, now: u64) -> Option<Way> {
    const IP_MTU: i32 = 14;
    const IPV6_MTU: i32 = 24;
    if let Some(known) = servers(|servers| servers.way(server, now)) {
        return Some(known);
    }
    let (family, level, option, headers) = match server.as_v4() {
        Some(_) => (libc::AF_INET, libc::IPPROTO_IP, IP_MTU, 40),
        None => (libc::AF_INET6, libc::IPPROTO_IPV6, IPV6_MTU, 60),
    };
    let probe = Pending(calls::socket(family, libc::SOCK_DGRAM | SOCK_CLOEXEC, 0).ok()?);
    let address = Encoded::new(family, server);
    calls::connect(probe.0, address.pointer(), address.length).ok()?;
    let mtu = calls::getsockopt_int(probe.0, level, option).ok()?;
    let source = Address { port: 0, ..sockaddr::bound_address(probe.0) };
    let way = Way { source, segment: u32::try_from(mtu).ok()?.checked_sub(headers)? };
    servers(|servers| servers.goes(server, way, now));
    Some(way)
}

/// One connection in the making.
struct Attempt<'a> {
    fd: i32,
    socket: &'static Socket,
    server: &'a Address,
    client: Address,
    name: Name,
    mark: u16,
    nonblocking: bool,
    patience: u64,
    near_by: u64,
}

/// What a claim came to.
enum Handed {
    Connected,
    /// The server has no part in the connection, nor will.
    Refused(Reason),
    /// It may have: no word of the connection can be believed.
    Unclear,
}

/// A channel with its companion, for the server of one claim.
struct Handing {
    offer: Offer,
    /// Ours, and the server's.
    companion: [Pending; 2],
    token: Token,
}

impl Attempt<'_> {
    fn address(&self) -> Encoded {
        Encoded::new(self.socket.family.load(Ordering::Relaxed), self.server)
    }

    fn make(&mut self) -> Outcome {
        let address = self.address();
        let began = clock::monotonic_ns();
        // Only the SYN shows it.
        let _ = calls::setsockopt_int(self.fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, i32::from(self.mark));
        let mut connected = calls::connect(self.fd, address.pointer(), address.length);
        let _ = calls::setsockopt_int(self.fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, 0);
        if connected == Err(Errno(libc::EINPROGRESS)) && self.nonblocking {
            connected = self.await_connected(began + self.near_by);
        }
        match connected {
            Ok(()) => {}
            Err(Errno(libc::EINPROGRESS | libc::EINTR | libc::EAGAIN)) => {
                // A SYN that is sent again would show the mark when nobody has the name.
                servers(|servers| servers.is_far(self.server, clock::monotonic_ns()));
                return self.start_over(connected, Reason::NearUnclaimed);
            }
            Err(error) => return Outcome::Done(Err(error), Reason::NearUnclaimed),
        }
        self.name.is_shown();
        let deadline = if self.nonblocking { began + self.patience } else { clock::monotonic_ns() + self.patience };
        while let Some(from) = self.await_server(deadline) {
            // A claim that is none is a stranger's: the server may come yet.
            let Some(claim) = self.read_claim(from.0) else { continue };
            match self.hand_over(&from, &claim) {
                Handed::Connected => return Outcome::Connected,
                Handed::Refused(reason) => return Outcome::Done(Ok(0), reason),
                Handed::Unclear => return self.start_over(Ok(()), Reason::NearRefused),
            }
        }
        Outcome::Done(Ok(0), Reason::NearUnclaimed)
    }

    /// Waits for a connection that is on its way. Errors: its own; EINPROGRESS at the deadline.
    fn await_connected(&self, deadline: u64) -> Result<()> {
        let left = |now: u64| deadline.saturating_sub(now) as i64;
        loop {
            if calls::poll_one(self.fd, POLLOUT, left(clock::monotonic_ns())).unwrap_or(0) != 0 {
                return match calls::getsockopt_int(self.fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
                    0 => Ok(()),
                    error => Err(Errno(error)),
                };
            }
            if left(clock::monotonic_ns()) == 0 {
                return Err(Errno(libc::EINPROGRESS));
            }
        }
    }

    /// Ends the connection, of which `known` is all that is known, and makes another one without the mark. Where the program waits no longer for
    /// the first, it does not wait for the second.
    fn start_over(&self, known: Result<()>, reason: Reason) -> Outcome {
        let nowhere = [0u64; 2]; // AF_UNSPEC
        let given_up = known.err().filter(|_| !self.nonblocking);
        if calls::connect(self.fd, nowhere.as_ptr().cast(), 16).is_err() {
            return Outcome::Done(Err(known.err().unwrap_or(Errno(libc::ECONNRESET))), reason);
        }
        let address = self.address();
        let connect = || calls::connect(self.fd, address.pointer(), address.length);
        let Some(error) = given_up else { return Outcome::Done(connect().map(|()| 0), reason) };
        let flags = calls::fcntl(self.fd, libc::F_GETFL, 0).unwrap_or(libc::O_RDWR);
        let _ = calls::fcntl(self.fd, libc::F_SETFL, (flags | libc::O_NONBLOCK) as usize);
        let _ = connect();
        let _ = calls::fcntl(self.fd, libc::F_SETFL, flags as usize);
        Outcome::Done(Err(error), reason)
    }

    /// The next that connects to the name; `None`: none does until the deadline, or the server has sent something, and so has no use for it.
    fn await_server(&self, deadline: u64) -> Option<Pending> {
        loop {
            let [asked, spoke] = await_any([self.name.listener(), self.fd], deadline);
            if asked != 0 {
                let none = core::ptr::null_mut();
                match calls::accept4(self.name.listener(), none, core::ptr::null_mut(), SOCK_CLOEXEC | SOCK_NONBLOCK) {
                    Ok(from) => return Some(Pending(from)),
                    Err(Errno(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED)) if clock::monotonic_ns() < deadline => {}
                    Err(_) => return None,
                }
            } else if spoke != 0 || clock::monotonic_ns() >= deadline {
                return None;
            }
        }
    }

    /// The claim to this connection that comes from there.
    fn read_claim(&self, from: i32) -> Option<Claim> {
        let mut bytes = [0u8; CLAIM + 1];
        let got = receive(from, &mut bytes, clock::monotonic_ns() + SAID)?;
        let claim = Claim::decode(&bytes[..got])?;
        let same = |one: &Address, other: &Address| one.ip == other.ip && one.port == other.port;
        (same(&claim.client, &self.client) && claim.mark == self.mark).then_some(claim)
    }

    /// Gives a channel to the server that claims the connection, if that is what it says.
    fn hand_over(&mut self, from: &Pending, claim: &Claim) -> Handed {
        if claim.version != shunt_segment::VERSION {
            return Handed::Refused(Reason::VersionMismatch);
        }
        if (claim.server.ip, claim.server.port) != (self.server.ip, self.server.port) {
            return Handed::Refused(Reason::NearTranslated);
        }
        // Another one with a new link, if the server has dropped the one that it had.
        for _ in 0..2 {
            let handing = match self.offer(claim.server_id) {
                Ok((handing, is_new)) => match self.send(from.0, &handing, is_new) {
                    Ok(()) => handing,
                    Err(_) => return self.withdraw(handing, Reason::NearRefused),
                },
                Err(reason) => return Handed::Refused(reason),
            };
            match self.await_token(from.0, &handing) {
                Came::Token => return self.settle(handing),
                Came::Nothing => return self.withdraw(handing, Reason::NearRefused),
                Came::UnknownLink => match self.withdraw(handing, Reason::NearRefused) {
                    Handed::Refused(_) => {}
                    other => return other,
                },
            }
        }
        Handed::Refused(Reason::NearRefused)
    }

    /// A channel for the server, and whether it needs its link.
    fn offer(&self, server_id: u64) -> core::result::Result<(Handing, bool), Reason> {
        let mut pair = [-1; 2];
        let made = calls::socketpair(AF_UNIX, libc::SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.as_mut_ptr());
        made.map_err(|_| Reason::NoDescriptors)?;
        let companion = pair.map(Pending);
        let _setup = SETUP.lock().ok_or(Reason::Unknown)?;
        let (offer, is_new) = peers::offer(server_id).map_err(|error| match error.0 {
            libc::EMFILE | libc::ENFILE => Reason::NoDescriptors,
            _ => Reason::NoMemory,
        })?;
        // It has no connection yet, and is not to be dropped meanwhile.
        link::enter(offer.index);
        let page = link::page(offer.link.base, offer.channel);
        attach::describe(page, &self.client, self.server);
        attach::introduce(page, self.socket);
        let hello = Hello {
            version: shunt_segment::VERSION,
            nonce: offer.link.nonce,
            sequence: offer.link.sequence,
            channel: offer.channel as u16,
            link_follows: 0,
            generation: page.head.generation.load(Ordering::Relaxed),
            client: self.client,
            server: *self.server,
        };
        let (name, length) = sockaddr::abstract_name(hello.encode().as_slice());
        let named = calls::bind(companion[0].0, (&raw const name).cast(), length);
        page.head.state.store(life::OFFERED, Ordering::Release);
        let mut token = [0; 16];
        token[..8].copy_from_slice(&drawn().to_ne_bytes());
        token[8..].copy_from_slice(&drawn().to_ne_bytes());
        let handing = Handing { offer, companion, token };
        if named.is_err() {
            self.let_go(&handing, is_new);
            return Err(Reason::Refused);
        }
        Ok((handing, is_new))
    }

    fn send(&self, to: i32, handing: &Handing, is_new: bool) -> Result<()> {
        let both = [handing.companion[1].0, handing.offer.link.fd];
        let sent = &both[..1 + usize::from(is_new)];
        fd_passing::send_with(to, &claim::answer(&handing.token), sent, MSG_DONTWAIT | MSG_NOSIGNAL)
    }

    /// What the server does with the answer: its token comes by the TCP connection, or none will.
    fn await_token(&self, from: i32, handing: &Handing) -> Came {
        let deadline = clock::monotonic_ns() + TOKEN;
        let mut from = from;
        loop {
            match look_for_token(self.fd, &handing.token) {
                Looked::Token => return Came::Token,
                Looked::Other => return Came::Nothing,
                Looked::Nothing => {}
            }
            if clock::monotonic_ns() >= deadline {
                return Came::Nothing;
            }
            let [said, _] = await_any([from, self.fd], deadline);
            if said != 0 {
                let mut byte = [0u8; 1];
                match calls::recvfrom(
                    from,
                    byte.as_mut_ptr().cast(),
                    1,
                    MSG_DONTWAIT,
                    core::ptr::null_mut(),
                    core::ptr::null_mut(),
                ) {
                    Ok(1) if byte[0] == UNKNOWN_LINK => return Came::UnknownLink,
                    Err(Errno(libc::EAGAIN | libc::EINTR)) => {}
                    // It has ended. Its token is on its way if it has taken the channel, and else it never comes.
                    _ => {
                        let page = link::page(handing.offer.link.base, handing.offer.channel);
                        if offered::is_offered(&page.head, page.head.generation.load(Ordering::Relaxed)) {
                            return Came::Nothing;
                        }
                        from = -1;
                    }
                }
            }
        }
    }

    /// No token came, or none that is one: takes the channel back, unless the server has it.
    fn withdraw(&mut self, handing: Handing, reason: Reason) -> Handed {
        let page = link::page(handing.offer.link.base, handing.offer.channel);
        let is_ours = offered::take_back(&page.head);
        self.let_go(&handing, true);
        if is_ours {
            Handed::Refused(reason)
        } else {
            Handed::Unclear
        }
    }

    /// The channel is nobody's any more. `for_good`: nor is its link lent again.
    fn let_go(&self, handing: &Handing, for_good: bool) {
        let held = SETUP.lock();
        let Offer { index, channel, link } = &handing.offer;
        let page = link::page(link.base, *channel);
        page.head.state.store(life::FREE, Ordering::Release);
        for side in &page.sides {
            side.released.store(release::CLOSED, Ordering::Release);
        }
        if held.is_some() {
            if for_good {
                peers::abandon(*index);
            }
            link::leave(*index, *channel, true, false);
        }
    }

    /// The token has come: the companion takes the socket's numbers.
    fn settle(&mut self, handing: Handing) -> Handed {
        let mut token = [0u8; 16];
        let none = core::ptr::null_mut();
        let _ = calls::recvfrom(self.fd, token.as_mut_ptr().cast(), token.len(), MSG_DONTWAIT, none, core::ptr::null_mut());
        self.name.is_over();
        let [own, _] = handing.companion;
        let Offer { index, channel, link } = handing.offer;
        if !self.nonblocking {
            let _ = calls::fcntl(own.0, libc::F_SETFL, libc::O_RDWR as usize);
        }
        let Some(_setup) = SETUP.lock() else { return Handed::Unclear };
        peers::proved(index);
        let setting = Setting { fd: self.fd, socket: self.socket, nonblocking: self.nonblocking, bound: self.client };
        attach::settle(&setting, link.base, index, channel);
        link::let_go(index);
        link::note(index, channel, 0, 0);
        keep_beside(self.fd, self.socket);
        attach::replace(self.fd, own.0, self.socket, channel);
        options::connected(self.socket, self.fd, true);
        status_page::note(self.fd, kind::STREAM, Reason::Near, Some(channel));
        Handed::Connected
    }
}

/// What became of an answer.
enum Came {
    Token,
    Nothing,
    UnknownLink,
}
