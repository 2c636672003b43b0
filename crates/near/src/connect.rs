//! The client's half: a name, a connection of the kernel's that shows the mark, and the handshake with the server that claims it.

use crate::held::Held;
use crate::kernel::{is_gone, is_unwritten, round_trip};
use crate::known::{servers, Server};
use crate::mark::Kind;
use crate::messages::{word, Claim, First, Proof, Ready, Token, CLAIM, COMMITTED, GO, LINK, NOT_NOW, TAKEN, UNKNOWN_LINK};
use crate::name::Name;
use crate::own::{drawn, token};
use crate::pair::Pair;
use crate::waiting::{
    await_any, await_others, beside, hear, hear_no_more, hear_until, keep_beside, look_for_proof, say, take_proof, Heard, Looked,
};
use crate::way::way;
use crate::{directory, helper, served};
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
use shunt_segment::meeting::Request;
use shunt_segment::name::Hello;
use shunt_segment::reason::Reason;
use shunt_stream::socket::introduced::Introduction;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, sockaddr_un, MSG_DONTWAIT, MSG_NOSIGNAL, POLLOUT, SOCK_CLOEXEC, SOCK_NONBLOCK};
use shunt_sys::{calls, clock, Errno, Result};
use shunt_table::global::{self, SETUP};
use shunt_table::process::kernel_only;
use shunt_table::sockaddr::Encoded;
use shunt_table::{fd_passing, sockaddr};

/// How long a server is waited for that may claim the connection (ns): in calls that wait and in those that do not; where it has claimed one lately, and
/// where nothing is known of it. Longer than two ticks of the kernel's clock: so long a server may take a name for older than the connection that is not.
const PATIENCE: [[u64; 2]; 2] = [[50_000_000, 20_000_000], [20_000_000, 20_000_000]];
/// How long the claim is waited for of a server to which the connection is announced (ns): a tick longer than the server claims one. To give up sooner would leave a
/// connection to the program that another process of the same address may announce as its own.
const ANNOUNCED: u64 = 30_000_000;
/// How long a call that does not wait waits for the TCP connection (ns), where nothing is known of the server: it takes some 50 us on one host, and
/// what takes longer is far.
const NEAR_BY: u64 = 1_000_000;
/// How long the words of a server are waited for, all of them together, once it has claimed the connection (ns).
const WORDS: u64 = 200_000_000;
/// So many may ask at a time, and in all: one is the server, others are strangers.
const ASKING: usize = 4;
const ASKED: u32 = 16;

/// Connects `fd` to `server`, which may be in another network namespace of this host.
pub fn connect(fd: i32, socket: &'static Socket, server: &Address) -> core::result::Result<Outcome, Reason> {
    let directory = directory::here().ok_or(Reason::NotLocal)?;
    let now = clock::monotonic_ns();
    let known = servers(|servers| servers.of(server, now));
    let has_helper = helper::may_lead_here(server) && helper::is_there(directory, now);
    let is_of_another_host = matches!(&global::options().hosts, Hosts::Listed(subnets) if subnets.contains(&server.ip));
    let said = options::largest_segment(socket);
    if server.scope != 0 || is_of_another_host || said != 0 || kernel_only::keeps() {
        return Err(Reason::NotLocal);
    }
    let is_known = known == Server::Claims;
    if let Some(pair) = is_known.then(|| Pair::take(socket, server, now)).flatten() {
        return Ok(again(fd, socket, server, directory, pair));
    }
    // One that has claimed connections and shows itself nowhere was met by the helper.
    let is_served = (is_known && !has_helper) || served::is_served(directory, server, now);
    if !(is_served || has_helper) {
        return Err(Reason::NotLocal);
    }
    if known == Server::Silent {
        return Err(Reason::NearUnclaimed);
    }
    if bound_port::is_not_to_be_bound(fd) {
        return Err(Reason::NotLocal);
    }
    directory::look_through(directory, now);
    let way = way(server, now).ok_or(Reason::NotLocal)?;
    let random = drawn();
    let (named, introduced) = way.mark(Kind::Named, random).zip(way.mark(Kind::Introduced, random)).ok_or(Reason::NotLocal)?;
    socket_cache::spoil(socket);
    let Some(client) = bound_port::settle(fd, socket, &way.source) else { return Ok(Outcome::Kernel(Reason::NoPort)) };
    let name = match is_served.then(|| Name::bind(directory, &client, now)) {
        Some(Ok(name)) => Some(name),
        _ if has_helper => None,
        Some(Err(Reason::NotLocal)) | None => return Err(Reason::NotLocal),
        Some(Err(reason)) => return Ok(Outcome::Kernel(reason)),
    };
    let mark = if name.is_some() { named } else { introduced };
    let nonblocking = calls::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0);
    let patience = PATIENCE[usize::from(nonblocking)][usize::from(known != Server::Claims)];
    let near_by = if known == Server::Claims { patience } else { NEAR_BY };
    let mut attempt = Attempt { fd, socket, server, client, directory, name, mark, nonblocking, patience, near_by, is_known };
    let outcome = attempt.make();
    let now = clock::monotonic_ns();
    servers(|servers| match &outcome {
        Outcome::Connected => servers.claims(server, now),
        // That hostd is not there says nothing of the server.
        Outcome::Done(Ok(_), Reason::NotLocal) => {}
        Outcome::Done(Ok(_), _) => servers.failed(server, now),
        _ => {}
    });
    Ok(outcome)
}

/// Connects with what an earlier connection left.
fn again(fd: i32, socket: &'static Socket, server: &Address, directory: &'static [u8], pair: Pair) -> Outcome {
    socket_cache::spoil(socket);
    let nonblocking = socket.has(flag::NONBLOCK);
    let patience = ANNOUNCED;
    let (client, mark) = (Address::default(), pair.mark);
    let name = None;
    let mut attempt =
        Attempt { fd, socket, server, client, directory, name, mark, nonblocking, patience, near_by: patience, is_known: true };
    let outcome = attempt.make_again(pair);
    if matches!(outcome, Outcome::Connected) {
        servers(|servers| {
            servers.claims(server, clock::monotonic_ns());
            servers.taken(server);
        });
    }
    outcome
}

/// One connection in the making.
pub(crate) struct Attempt<'a> {
    pub(crate) fd: i32,
    pub(crate) socket: &'static Socket,
    pub(crate) server: &'a Address,
    pub(crate) client: Address,
    pub(crate) directory: &'static [u8],
    /// `None`: the helper is asked, or the connection is announced.
    pub(crate) name: Option<Name>,
    pub(crate) mark: u16,
    pub(crate) nonblocking: bool,
    pub(crate) patience: u64,
    pub(crate) near_by: u64,
    /// The server has claimed a connection lately.
    pub(crate) is_known: bool,
}

/// What a wait for claims came to.
enum Asked {
    /// This server claims the connection, over this AF_UNIX connection.
    By(Held, Claim),
    /// The server has written a proof for another process, which has taken the name's place; it was taken off.
    Astray,
    /// Nobody did in time, or the program's bytes came, which no server sends that will claim it.
    Nobody,
}

/// What a claim came to.
enum Handed {
    Connected,
    /// The server has no part in the connection, nor will: it goes on by TCP, as whole as it was.
    Refused(Reason),
    /// A proof may come yet: no word of the connection can be believed.
    Unclear,
}

/// What came of a server that claimed the connection.
enum Came {
    /// The proof, which was taken off.
    Proof(Proof),
    UnknownLink,
    Nothing,
    Unclear,
}

impl Attempt<'_> {
    fn address(&self) -> Encoded {
        Encoded::new(self.socket.family.load(Ordering::Relaxed), self.server)
    }

    fn make(&mut self) -> Outcome {
        let connected = self.connect_with_mark();
        match connected {
            Ok(()) => {}
            Err(Errno(libc::EINPROGRESS | libc::EINTR | libc::EAGAIN)) => {
                servers(|servers| servers.is_far(self.server, clock::monotonic_ns()));
                // A second SYN from the same port meets what the first one has made at the server, whose kernel resets both (RFC 9293, 3.10.7.4: it is in the
                // window). So where the port stays the first one goes on; the name stays for as long as it may be claimed by, and nobody listens there.
                // So it does where the helper would be asked: it introduces nobody to a connection that it was not shown.
                if self.name.is_none() || bound_port::stays(self.fd, self.socket) {
                    self.name.iter_mut().for_each(Name::is_shown);
                    return Outcome::Done(connected.map(|()| 0), Reason::NearUnclaimed);
                }
                // A SYN that is sent again would show the mark when nobody has the name.
                return self.start_over(connected, Reason::NearUnclaimed);
            }
            Err(error) => return Outcome::Done(Err(error), Reason::NearUnclaimed),
        }
        self.name.iter_mut().for_each(Name::is_shown);
        let until = clock::monotonic_ns() + self.patience;
        let asked = match &self.name {
            Some(name) => self.await_claim(name, until),
            None => match self.meet(until) {
                Ok(asked) => asked,
                // The server may have met another one, which hostd has taken for this: its proof is not the program's to read.
                Err(alone) if alone.is_doubtful || (alone.is_shown && self.is_proved()) => {
                    return self.start_over(Ok(()), Reason::NearRefused)
                }
                Err(alone) => return Outcome::Done(Ok(0), alone.reason),
            },
        };
        let reason = match asked {
            Asked::By(from, claim) => match self.hand_over(&from, &claim) {
                Handed::Connected => return Outcome::Connected,
                Handed::Refused(reason) => reason,
                Handed::Unclear => return self.start_over(Ok(()), Reason::NearRefused),
            },
            Asked::Astray => Reason::NearRefused,
            Asked::Nobody => Reason::NearUnclaimed,
        };
        // A server that met another process at the name, or by hostd, would write a proof into the connection, which the program would read.
        match self.name.as_ref().map_or_else(|| !self.is_proved(), Name::is_untouched) {
            true => Outcome::Done(Ok(0), reason),
            false => self.start_over(Ok(()), Reason::NearRefused),
        }
    }

    /// The kernel's connection, whose SYN alone shows the mark.
    pub(crate) fn connect_with_mark(&self) -> Result<()> {
        let address = self.address();
        let began = clock::monotonic_ns();
        let _ = calls::setsockopt_int(self.fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, i32::from(self.mark));
        let connected = calls::connect(self.fd, address.pointer(), address.length);
        let _ = calls::setsockopt_int(self.fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, 0);
        if connected == Err(Errno(libc::EINPROGRESS)) && self.nonblocking {
            return self.await_connected(began + self.near_by);
        }
        connected
    }

    /// Whether a server has written a proof into the connection, for another process that has shown itself as its client, or has ended it, as nothing came of
    /// the proof. It is taken off.
    fn is_proved(&self) -> bool {
        let is_proved = matches!(look_for_proof(self.fd), Looked::First(First::Proof(_)));
        if is_proved {
            take_proof(self.fd);
        }
        is_proved || is_gone(self.fd)
    }

    /// Lets the helper introduce the server, and hears its claim. Errors: why nobody was met.
    fn meet(&self, deadline: u64) -> core::result::Result<Asked, helper::Alone> {
        // On one host the kernel's handshake takes some 50 us.
        if !self.is_known && round_trip(self.fd).is_none_or(|time| time > NEAR_BY) {
            servers(|servers| servers.is_far(self.server, clock::monotonic_ns()));
            return Err(Reason::NearUnclaimed.into());
        }
        // What another thread writes while the numbers are read goes into a connection under repair.
        let Some(_introduction) = Introduction::begin(self.fd, self.socket) else { return Err(Reason::NearRefused.into()) };
        let met = helper::meet(self.directory, self.fd, Request::Client, deadline).map_err(|alone| match alone.reason {
            Reason::NearUnknown => helper::Alone { reason: Reason::NearUnclaimed, ..alone },
            _ => alone,
        })?;
        let mut bytes = [0u8; CLAIM + 1];
        // A server that has come this far is awake.
        Ok(match hear_until(met.unix.fd(), &mut bytes, deadline.max(clock::monotonic_ns() + self.near_by)) {
            Heard::Bytes(got, None) => match self.claim(&bytes[..got]) {
                Some(claim) => Asked::By(met.unix, claim),
                None => Asked::Nobody,
            },
            _ => Asked::Nobody,
        })
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

    /// Ends the connection, of which `known` is all that is known, and makes another one without the mark, from the same port. Where the program waits no
    /// longer for the first, it does not wait for the second.
    pub(crate) fn start_over(&self, known: Result<()>, reason: Reason) -> Outcome {
        // What another thread wrote now would go with the connection.
        let _introduction = Introduction::begin(self.fd, self.socket);
        let nowhere = [0u64; 2]; // AF_UNSPEC
        let given_up = known.err().filter(|_| !self.nonblocking);
        if calls::connect(self.fd, nowhere.as_ptr().cast(), 16).is_err() {
            return Outcome::Done(Err(known.err().unwrap_or(Errno(libc::ECONNRESET))), reason);
        }
        if let Err(error) = self.bind_again() {
            return Outcome::Done(Err(error), reason);
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

    /// A port that the kernel chose at the program's bind is given up when the connection ends, though getsockname(2) names it still, and the program may have
    /// asked for it. One that was bound for the connection was seen by nobody.
    fn bind_again(&self) -> Result<()> {
        if !self.socket.has(flag::BOUND) {
            return Ok(());
        }
        let own = Encoded::new(self.socket.family.load(Ordering::Relaxed), &self.client);
        match calls::bind(self.fd, own.pointer(), own.length) {
            Err(Errno(libc::EINVAL)) => Ok(()), // it has its port: the program's choice
            bound => bound,
        }
    }

    /// Waits for the server that claims this connection, among others that may ask.
    fn await_claim(&self, name: &Name, deadline: u64) -> Asked {
        let mut asking: [Option<Held>; ASKING] = [const { None }; ASKING];
        let (mut asked, mut has_a_piece) = (0, false);
        loop {
            let listener = if asked < ASKED { name.listener() } else { -1 };
            let number = |place: usize| asking[place].as_ref().map_or(-1, Held::fd);
            let all = [self.fd, listener, number(0), number(1), number(2), number(3)];
            let told = if has_a_piece { await_others(all, deadline) } else { await_any(all, deadline) };
            if told[0] != 0 {
                match look_for_proof(self.fd) {
                    Looked::First(First::Proof(_)) => {
                        take_proof(self.fd);
                        return Asked::Astray;
                    }
                    Looked::First(First::Part) => {}
                    Looked::Piece => has_a_piece = true,
                    _ => return Asked::Nobody,
                }
            }
            for place in 0..ASKING {
                if told[2 + place] == 0 {
                    continue;
                }
                let Some(from) = asking[place].take() else { continue };
                let mut bytes = [0u8; CLAIM + 1];
                match hear(from.fd(), &mut bytes) {
                    Heard::Bytes(got, None) => {
                        if let Some(claim) = self.claim(&bytes[..got]) {
                            return Asked::By(from, claim);
                        }
                    }
                    Heard::Nothing => asking[place] = Some(from),
                    Heard::Bytes(..) | Heard::NoDescriptors | Heard::End => {}
                }
            }
            if clock::monotonic_ns() >= deadline {
                return Asked::Nobody;
            }
            if told[1] != 0 {
                let none = core::ptr::null_mut();
                let accept = || calls::accept4(name.listener(), none, core::ptr::null_mut(), SOCK_CLOEXEC | SOCK_NONBLOCK);
                match Held::new(accept) {
                    Ok(from) => {
                        let place = asking.iter().position(Option::is_none).unwrap_or(asked as usize % ASKING);
                        asking[place] = Some(from);
                        asked += 1;
                    }
                    Err(Errno(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED)) => {}
                    Err(_) => return Asked::Nobody,
                }
            }
        }
    }

    /// The claim to this connection; others' are none.
    fn claim(&self, bytes: &[u8]) -> Option<Claim> {
        let claim = Claim::decode(bytes)?;
        let same = |one: &Address, other: &Address| one.ip == other.ip && one.port == other.port;
        // What hostd has found by its numbers may come from another address at the server.
        ((self.name.is_none() || same(&claim.client, &self.client)) && claim.mark == self.mark).then_some(claim)
    }

    /// Gives a channel to the server that claims the connection, if that is what it says.
    fn hand_over(&mut self, from: &Held, claim: &Claim) -> Handed {
        if claim.version == NOT_NOW {
            return Handed::Refused(Reason::NearUnclaimed);
        }
        if claim.version != shunt_segment::VERSION {
            return Handed::Refused(Reason::VersionMismatch);
        }
        if self.name.is_some() && (claim.server.ip, claim.server.port) != (self.server.ip, self.server.port) {
            return Handed::Refused(Reason::NearTranslated);
        }
        let Some(token) = token() else { return Handed::Refused(Reason::NearRefused) };
        let deadline = clock::monotonic_ns() + WORDS;
        // From here on bytes come that are not the program's: a thread of its that is told of the connection waits until it is known whose it is.
        let introduction = Introduction::begin(self.fd, self.socket);
        if introduction.is_none() || !is_unwritten(self.fd) {
            return Handed::Refused(Reason::NearRefused);
        }
        // Another one with a new link, if the server has dropped the one that it had.
        for _ in 0..2 {
            let handing = match self.offer(claim) {
                Ok(handing) => handing,
                Err(reason) => return Handed::Refused(reason),
            };
            if !say(from.fd(), &handing.ready(token).encode()) {
                self.withdraw(&handing);
                return Handed::Refused(Reason::NearRefused);
            }
            match self.await_proof(from.fd(), &token, deadline) {
                Came::Proof(proof) => return self.settle(from, handing, &proof, deadline),
                Came::UnknownLink => self.withdraw(&handing),
                Came::Nothing => {
                    self.withdraw(&handing);
                    return Handed::Refused(Reason::NearRefused);
                }
                Came::Unclear => {
                    self.withdraw(&handing);
                    return Handed::Unclear;
                }
            }
        }
        Handed::Refused(Reason::NearRefused)
    }

    /// A channel for the server, called by the addresses that it sees: others than this end's, where they are translated.
    fn offer(&self, claim: &Claim) -> core::result::Result<Handing, Reason> {
        let _setup = SETUP.lock().ok_or(Reason::Unknown)?;
        let (offer, is_new) = peers::offer(claim.server_id).map_err(|error| match error.0 {
            libc::EMFILE | libc::ENFILE => Reason::NoDescriptors,
            _ => Reason::NoMemory,
        })?;
        // It has no connection yet, and is not to be dropped meanwhile.
        link::enter(offer.index);
        let page = link::page(offer.link.base, offer.channel);
        attach::describe(page, &claim.client, &claim.server);
        attach::introduce(page, self.socket);
        page.sides[1].owners.store(0, Ordering::Relaxed); // the server enters itself, once
        let hello = Hello {
            version: shunt_segment::VERSION,
            nonce: offer.link.nonce,
            sequence: offer.link.sequence,
            channel: offer.channel as u16,
            link_follows: 0,
            generation: page.head.generation.load(Ordering::Relaxed),
            client: claim.client,
            server: claim.server,
        };
        page.head.state.store(life::OFFERED, Ordering::Release);
        Ok(Handing { offer, hello, is_new, server_id: claim.server_id })
    }

    /// What the server does with the answer: it says that its proof comes by the TCP connection, or none will.
    fn await_proof(&self, from: i32, token: &Token, mut deadline: u64) -> Came {
        let (mut is_committed, mut hears, mut is_late, mut has_a_piece) = (false, from, false, false);
        loop {
            // Before the AF_UNIX connection: a server commits itself first, so the word of a proof that is seen there is here.
            let looked = look_for_proof(self.fd);
            if hears >= 0 {
                match self.hear_word(hears) {
                    Some(COMMITTED) if !is_committed => is_committed = true,
                    Some(UNKNOWN_LINK) if !is_committed => return Came::UnknownLink,
                    None => {}
                    // It has ended, or says what nobody asked.
                    _ => hears = -1,
                }
            }
            match looked {
                Looked::First(First::Proof(proof)) if is_committed && proof.token == *token => {
                    take_proof(self.fd);
                    return match is_late {
                        false => Came::Proof(proof),
                        true if self.name.is_none() => Came::Unclear,
                        true => Came::Nothing,
                    };
                }
                // Another process's, which has taken the name's place, or was taken for this one.
                Looked::First(First::Proof(_)) => {
                    take_proof(self.fd);
                    return Came::Unclear;
                }
                Looked::First(First::Part) if hears >= 0 || is_committed => {}
                Looked::Piece if hears >= 0 || is_committed => has_a_piece = true,
                // The program's bytes, the connection's end, or the server's, which had not said that it proves anything.
                _ => return Came::Nothing,
            }
            if clock::monotonic_ns() >= deadline {
                if is_committed {
                    return Came::Unclear;
                }
                let mut byte = [0u8; 1];
                match hear_no_more(from, &mut byte) {
                    // Its proof is taken off, and no more: this end of the AF_UNIX connection is of no use any more.
                    Heard::Bytes(1, None) if byte[0] == COMMITTED => {
                        (is_committed, hears, is_late) = (true, -1, true);
                        deadline += WORDS;
                    }
                    _ => return Came::Nothing,
                }
            }
            let _ = if has_a_piece { await_others([self.fd, hears], deadline) } else { await_any([self.fd, hears], deadline) };
        }
    }

    /// A word of the server's; `None`: nothing yet. 0: none will come.
    fn hear_word(&self, from: i32) -> Option<u8> {
        let mut byte = [0u8; 1];
        match hear(from, &mut byte) {
            Heard::Bytes(1, None) => Some(byte[0]),
            Heard::Nothing => None,
            _ => Some(0),
        }
    }

    /// The channel is nobody's any more, nor is its link lent again.
    fn withdraw(&self, handing: &Handing) {
        let held = SETUP.lock();
        let Offer { index, channel, link } = &handing.offer;
        let page = link::page(link.base, *channel);
        offered::take_back(&page.head);
        page.head.state.store(life::FREE, Ordering::Release);
        for side in &page.sides {
            side.released.store(release::CLOSED, Ordering::Release);
        }
        if held.is_some() {
            peers::abandon(*index);
            link::leave(*index, *channel, true, false);
        }
    }

    /// Nothing comes of a connection that was proved. Which of those that hostd introduced is false a server does not know, and resets it.
    fn fails(&self, handing: &Handing, reason: Reason) -> Handed {
        self.withdraw(handing);
        match self.name {
            Some(_) => Handed::Refused(reason),
            None => Handed::Unclear,
        }
    }

    /// The server has the TCP connection. If nobody stands between it and the AF_UNIX connection, that takes the socket's numbers.
    fn settle(&mut self, from: &Held, handing: Handing, proof: &Proof, deadline: u64) -> Handed {
        if !is_direct(from.fd(), proof, &handing.hello) || !self.send_link(from.fd(), &handing, proof, deadline) {
            return self.fails(&handing, Reason::NearRefused);
        }
        let Ok(kept) = beside(self.fd) else {
            return self.fails(&handing, Reason::NoDescriptors);
        };
        if !self.nonblocking {
            let _ = calls::fcntl(from.fd(), libc::F_SETFL, libc::O_RDWR as usize);
        }
        let Some(_setup) = SETUP.lock() else {
            return self.fails(&handing, Reason::Unknown);
        };
        // What was written into the TCP connection is there to be read.
        if !is_unwritten(self.fd) {
            self.withdraw(&handing);
            return Handed::Refused(Reason::NearRefused);
        }
        // The server takes the offer back when it waits no longer; what is accepted it waits for.
        let Offer { index, channel, link } = handing.offer;
        let is_offered = offered::accept(&link::page(link.base, channel).head, handing.hello.generation);
        if !is_offered || !say(from.fd(), &word(GO, &proof.secret)) {
            return self.fails(&handing, Reason::NearRefused);
        }
        self.name.iter_mut().for_each(Name::is_over);
        peers::proved(index);
        let Hello { client, server, .. } = handing.hello;
        // Of a translation that gives ports of its own nobody can tell which one the next connection will have.
        let process = if client.port == self.client.port { handing.server_id } else { 0 };
        let announces = servers(|servers| {
            servers.claimed_by(self.server, process, (Address { port: 0, ..client }, server));
            servers.process(self.server).is_some()
        });
        link::header(link.base).announces.store(announces.into(), Ordering::Relaxed);
        self.take_up((index, channel), link.base, from.fd(), kept);
        Handed::Connected
    }

    /// The AF_UNIX connection takes the socket's numbers. `kept`: stays beside. Under the set-up lock.
    pub(crate) fn take_up(&self, (index, channel): (usize, usize), base: *mut u8, unix: i32, kept: Held) {
        let setting = Setting { fd: self.fd, socket: self.socket, nonblocking: self.nonblocking, bound: self.client };
        attach::settle(&setting, base, index, channel);
        self.socket.set_addresses(&self.client, self.server);
        link::let_go(index);
        link::note(index, channel, 0, 0);
        attach::replace(self.fd, unix, self.socket, channel, Reason::Near);
        // A server that has answered and ended at once has ended the TCP connection as well.
        let is_whole = is_unwritten(kept.fd()) || is_gone(kept.fd());
        keep_beside(kept, self.socket);
        options::connected(self.socket, self.fd, true);
        // Another thread wrote between the look and the change: a reset that both see, and no bytes that neither does.
        if !is_whole {
            let _ = shunt_stream::reset_from_outside(self.socket, self.fd);
        }
    }

    /// Sends the link, if the server does not have it. False: the server did not take it.
    fn send_link(&self, to: i32, handing: &Handing, proof: &Proof, deadline: u64) -> bool {
        if !handing.is_new {
            return true;
        }
        let sent = fd_passing::send_with(to, &word(LINK, &proof.secret), &[handing.offer.link.fd], MSG_DONTWAIT | MSG_NOSIGNAL);
        let mut byte = [0u8; 1];
        sent.is_ok() && matches!(hear_until(to, &mut byte, deadline), Heard::Bytes(1, None) if byte[0] == TAKEN)
    }
}

/// A channel, for the server of one claim.
struct Handing {
    offer: Offer,
    hello: Hello,
    is_new: bool,
    server_id: u64,
}

impl Handing {
    fn ready(&self, token: Token) -> Ready {
        let Hello { nonce, sequence, channel, generation, .. } = self.hello;
        Ready { token, nonce, sequence, channel, generation, is_new: self.is_new }
    }
}

/// Whether the AF_UNIX connection is the server's own, as the kernel has told it, and is called by this connection's name: a process between the two would have
/// another one at either end.
fn is_direct(fd: i32, proof: &Proof, hello: &Hello) -> bool {
    let mut name = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
    let mut length = core::mem::size_of::<sockaddr_un>() as libc::socklen_t;
    if calls::getpeername(fd, (&raw mut name).cast(), &mut length).is_err() {
        return false;
    }
    let (wanted, wanted_length) = sockaddr::abstract_name(hello.encode_for_server().as_slice());
    length == wanted_length
        && name.sun_path == wanted.sun_path
        && calls::status_of(fd).is_ok_and(|status| status.st_ino & u64::from(u32::MAX) == proof.peer)
}
