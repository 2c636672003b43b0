//! The server's half: a connection that shows a mark is claimed at its client's name, and becomes a stream when the client has read what was written
//! into the connection for it.

use crate::announced::{self, Announced, Proved, Shown};
use crate::held::Held;
use crate::kernel::is_unread;
use crate::known::{self, clients, Server};
use crate::mark::Kind;
use crate::messages::{self, word, Claim, Proof, Ready, Token, COMMITTED, GO, LINK, READY, TAKEN, UNKNOWN_LINK, WORD};
use crate::waiting::{beside, hear_no_more, hear_until, is_word, keep_beside, say, Heard};
use crate::{directory, helper, mark, name, own, served};
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_link as link;
use shunt_link::companion_cache;
use shunt_link::peers::{self, Guest};
use shunt_rendezvous::accept::{deferred, Accepted};
use shunt_rendezvous::shown;
use shunt_ring::claim as offered;
use shunt_segment::address::Address;
use shunt_segment::channel::{life, ChannelPage};
use shunt_segment::meeting::Request;
use shunt_segment::name::Hello;
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket::{self, Socket};
use shunt_sys::libc::{self, MSG_DONTWAIT, MSG_NOSIGNAL};
use shunt_sys::{calls, clock};
use shunt_table::global::SETUP;
use shunt_table::process::{kernel_only, status_page};
use shunt_table::{diag, fd_passing, sockaddr, table};

/// How old a connection may be that is claimed (ns), by the kernel's clock: as long as its client waits at most.
const CLAIMS: u64 = 50_000_000;
/// The same of one that is announced: shorter by a tick than its client waits.
const AGAIN: u64 = 20_000_000;
/// How long each word of a client's is waited for (ns): it waits for this end, awake as a rule.
const ANSWERS: u64 = 20_000_000;
/// How long the last words of a client are waited for (ns) that hostd has introduced, or that has announced its connection: as long as it waits itself, since to give up is a reset then.
const LAST_WORDS: u64 = 200_000_000;
/// With less time than this left (ns) none is claimed: it would be given up in the middle.
const LEAST: u64 = 1_000_000;
/// How long a word is waited for that is under way (ns), whatever was waited before: then its client was stopped.
const UNDER_WAY: u64 = 20_000_000;
/// A tick of the kernel's clocks (ns), by which times of connections and of files differ.
const TICK: i64 = 10_000_000;

/// The kernel gave the connection `fd` to `listener`: true if it is a stream now.
pub fn accepted(fd: i32, _: i32, listener: &Socket, flags: i32) -> bool {
    let Some(directory) = directory::here() else { return false };
    let now = clock::monotonic_ns();
    let Some(client) = sockaddr::peer_address(fd).filter(|client| !client.is_loopback() && client.scope == 0) else {
        return false;
    };
    directory::look_through(directory, now);
    served::tend(directory, fd, listener.listening.inode.load(Ordering::Relaxed), now);
    let shown = shown::look(fd, if client.as_v4().is_some() { 40 } else { 60 });
    let Some(kind) = mark::shown(shown.segment, shown.own) else { return false };
    // What is older than its client waits, by the kernel's clock, is not claimed. Where the kernel waits for bytes before it tells of a connection, none is
    // young.
    let is_young = |answered: &u64| answered + CLAIMS >= now && !deferred::concern(listener);
    let Some(answered) = shown.answered.filter(is_young) else { return false };
    if kernel_only::keeps() {
        return false;
    }
    let left = known::may_wait(now);
    let server = sockaddr::bound_address(fd);
    let mark = shown.segment as u16;
    let mut arriving = Arriving { fd, listener, flags, client, server, mark, until: now + left, answers: ANSWERS };
    let is_late = kind == Kind::Announced && answered + AGAIN < now;
    if left < LEAST || is_late || !table::fits(fd) {
        // Its client would wait for a claim that does not come.
        match kind {
            Kind::Announced => drop(announced::find(&arriving.shown(), now)), // it is refused
            Kind::Named => {
                if let Ok(unix) = name::ask(directory, &client, connected_at(answered)) {
                    arriving.decline(&unix);
                }
            }
            Kind::Introduced => {}
        }
        return false;
    }
    let done = arriving.claim(kind, directory, answered);
    known::waited(clock::monotonic_ns().saturating_sub(now));
    match done {
        Ok(is_stream) => is_stream,
        Err(reason) => {
            status_page::count(reason);
            false
        }
    }
}

/// A time of CLOCK_MONOTONIC (ns) as files have it, at the latest.
fn connected_at(monotonic: u64) -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    calls::clock_gettime(libc::CLOCK_REALTIME, &mut now);
    let ago = clock::monotonic_ns().saturating_sub(monotonic);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec + TICK).saturating_sub(ago as i64)
}

/// A connection that shows a mark.
struct Arriving<'a> {
    fd: i32,
    listener: &'a Socket,
    flags: i32,
    client: Address,
    server: Address,
    mark: u16,
    /// How long is waited for this client at most: what is left for all of them in this second.
    until: u64,
    /// How long each of its words is waited for (ns).
    answers: u64,
}

/// A link that is not dropped while it has no connection yet.
struct Entered(usize);

impl Drop for Entered {
    fn drop(&mut self) {
        let _setup = SETUP.lock();
        link::let_go(self.0);
    }
}

impl Arriving<'_> {
    /// When the next word comes too late.
    fn deadline(&self) -> u64 {
        self.until.min(clock::monotonic_ns() + self.answers)
    }

    fn shown(&self) -> Shown {
        Shown { client: self.client, server: self.server, mark: self.mark }
    }

    /// Claims it, where its client waits by the kind of its mark, and nowhere else. False: its client is not asked.
    fn claim(&mut self, kind: Kind, directory: &[u8], answered: u64) -> Result<bool, Reason> {
        let now = clock::monotonic_ns();
        let (unix, guest, peer) = match kind {
            Kind::Announced => {
                return match announced::find(&self.shown(), self.until) {
                    Some(announced) => self.claim_announced(announced),
                    None => Ok(false),
                }
            }
            Kind::Named => {
                let unix = name::ask(directory, &self.client, connected_at(answered))?;
                let who = fd_passing::creator(unix.fd()).map_err(|_| Reason::NearUnknown)?;
                (unix, Guest { process: who.pid as u32, user: who.uid, address: self.client }, None)
            }
            Kind::Introduced if !helper::is_there(directory, now) => return Err(Reason::NearUnknown),
            Kind::Introduced => match self.meet(directory, now)? {
                Some(met) => (met.unix, Guest { process: 0, user: met.user, address: self.client }, Some(met.peer)),
                None => return Ok(false),
            },
        };
        let place = known::client(&self.client, guest.user);
        if clients(|clients| clients.of(&place, now)) == Server::Silent {
            self.decline(&unix);
            return Ok(false);
        }
        let done = self.hand_shake(unix, &guest, peer);
        let now = clock::monotonic_ns();
        match done {
            Ok(()) => clients(|clients| clients.claims(&place, now)),
            // One that had less time than it may take was not silent.
            Err(Reason::NearRefused) if now < self.until => clients(|clients| clients.failed(&place, now)),
            Err(_) => {}
        }
        done.map(|()| true)
    }

    /// Claims one that is announced in memory.
    fn claim_announced(&mut self, mut announced: Announced) -> Result<bool, Reason> {
        let now = clock::monotonic_ns();
        let place = known::client(&self.client, announced.user);
        if clients(|clients| clients.of(&place, now)) == Server::Silent {
            return Ok(false);
        }
        // Before what binds this end.
        let shadow = beside(self.fd).map_err(|_| Reason::NoDescriptors)?;
        let done = announced.prove(self.fd, now + LAST_WORDS);
        let now = clock::monotonic_ns();
        match done {
            Proved::Taken => clients(|clients| clients.claims(&place, now)),
            Proved::Left(reason) => return Err(reason),
            Proved::Doubtful(reason) => {
                clients(|clients| clients.failed(&place, now));
                self.reset();
                return Err(reason);
            }
        }
        let _setup = SETUP.lock();
        let nonblocking = self.flags & libc::SOCK_NONBLOCK != 0;
        // A client that says so of a channel that is not its own, or is no more: as in `take_up`.
        let unix = announced
            .unix(nonblocking, &self.client)
            .filter(|_| self.takes(announced.index, announced.channel, announced.generation));
        let Some(unix) = unix else {
            self.reset();
            return Ok(false);
        };
        self.replace(unix);
        if self.seats(shadow, announced.index, announced.channel) {
            announced.is_taken();
        }
        Ok(true)
    }

    /// Tells the client that it need not wait.
    fn decline(&self, unix: &Held) {
        let _ = say(unix.fd(), &self.claimed(messages::NOT_NOW, 1).encode());
    }

    fn claimed(&self, version: u32, server_id: u64) -> Claim {
        Claim { version, mark: self.mark, server_id, client: self.client, server: self.server }
    }

    /// Lets the helper introduce the client. `None`: it is not asked, as nobody came from this address lately: one that shows a mark by chance costs a wait.
    fn meet(&self, directory: &[u8], now: u64) -> Result<Option<helper::Met>, Reason> {
        let place = known::client(&self.client, u32::MAX);
        if clients(|clients| clients.of(&place, now)) == Server::Silent {
            return Ok(None);
        }
        let met = helper::meet(directory, self.fd, Request::Server, self.deadline());
        let now = clock::monotonic_ns();
        match &met {
            Ok(_) => clients(|clients| clients.claims(&place, now)),
            Err(alone) if alone.reason == Reason::NearUnknown => clients(|clients| clients.failed(&place, now)),
            Err(_) => {}
        }
        met.map(Some).map_err(|alone| if alone.reason == Reason::NotLocal { Reason::NearUnknown } else { alone.reason })
    }

    /// `peer`: the inode of the other end of the AF_UNIX connection, if that is known already.
    fn hand_shake(&mut self, unix: Held, guest: &Guest, peer: Option<u64>) -> Result<(), Reason> {
        let claim = self.claimed(shunt_segment::VERSION, own::id().ok_or(Reason::Unknown)?);
        if !say(unix.fd(), &claim.encode()) {
            return Err(Reason::NearUnknown);
        }
        let (ready, entered) = self.answer(&unix, guest)?;
        let hello = self.hello(&ready);
        let secret = own::token().ok_or(Reason::NearRefused)?;
        // Before the word that binds this end: what fails later than that is a reset.
        let shadow = beside(self.fd).map_err(|_| Reason::NoDescriptors)?;
        self.prove(&unix, &ready, &hello, &secret, peer)?;
        if peer.is_some() {
            (self.until, self.answers) = (clock::monotonic_ns() + LAST_WORDS, LAST_WORDS);
        }
        let done = self.conclude(unix, guest, &ready, entered, &secret, shadow);
        // hostd may have introduced a stranger that has the numbers alone: the proof is in the connection of another one then, whose program would read it.
        if done.is_err() && peer.is_some() {
            self.reset();
        }
        done
    }

    /// Ends the connection by a reset. The descriptor is the program's, which finds ECONNRESET.
    fn reset(&self) {
        let nowhere = [0u64; 2]; // AF_UNSPEC
        let _ = calls::connect(self.fd, nowhere.as_ptr().cast(), 16);
    }

    /// Hears the client's last words, which only the one says that has read the proof.
    fn conclude(
        &self,
        unix: Held,
        guest: &Guest,
        ready: &Ready,
        entered: Option<Entered>,
        secret: &Token,
        shadow: Held,
    ) -> Result<(), Reason> {
        let entered = match entered {
            Some(entered) => entered,
            None => take_link(&unix, ready, guest, secret, self.deadline())?,
        };
        let go = word(GO, secret);
        // No byte more: what follows is the stream's own.
        let mut room = [0u8; WORD];
        let mut heard = hear_until(unix.fd(), &mut room, self.deadline());
        if matches!(heard, Heard::Nothing) {
            if take_back(entered.0, ready) {
                return Err(Reason::NearRefused);
            }
            // The client has accepted the channel, and its word is under way.
            heard = hear_until(unix.fd(), &mut room, clock::monotonic_ns() + UNDER_WAY);
        }
        let mut is_late = false;
        if matches!(heard, Heard::Nothing) {
            heard = hear_no_more(unix.fd(), &mut room);
            is_late = true;
        }
        match heard {
            Heard::Bytes(got, None) if is_word(&room[..got], &go) => {
                self.take_up(unix, shadow, ready, entered.0, is_late);
                Ok(())
            }
            Heard::End => Err(Reason::ClientLeft),
            _ => Err(Reason::NearRefused),
        }
    }

    /// The client's answer, and the link that it names; `None`: it is new. Asked twice: the client may know a link that was dropped here.
    fn answer(&self, unix: &Held, guest: &Guest) -> Result<(Ready, Option<Entered>), Reason> {
        let deadline = self.deadline();
        for _ in 0..2 {
            let mut room = [0u8; READY + 1];
            let ready = match hear_until(unix.fd(), &mut room, deadline) {
                Heard::Bytes(got, None) => Ready::decode(&room[..got]).ok_or(Reason::NearRefused)?,
                // It has given up, in good order.
                Heard::End => return Err(Reason::ClientLeft),
                Heard::NoDescriptors => return Err(Reason::NoDescriptors),
                Heard::Nothing | Heard::Bytes(..) => return Err(Reason::NearRefused),
            };
            let _setup = SETUP.lock().ok_or(Reason::Unknown)?;
            let known = peers::known(ready.nonce, ready.sequence, guest);
            match known {
                Some((index, _)) => {
                    link::enter(index);
                    return Ok((ready, Some(Entered(index))));
                }
                None if !ready.is_new => say(unix.fd(), &[UNKNOWN_LINK]),
                None if !peers::has_room(guest) => return Err(Reason::NearQuota),
                None => return Ok((ready, None)),
            };
        }
        Err(Reason::NearRefused)
    }

    /// What the AF_UNIX connection is called from now on, for processes that inherit it.
    fn hello(&self, ready: &Ready) -> Hello {
        Hello {
            version: shunt_segment::VERSION,
            nonce: ready.nonce,
            sequence: ready.sequence,
            channel: ready.channel,
            link_follows: 0,
            generation: ready.generation,
            client: self.client,
            server: self.server,
        }
    }

    /// Writes the proof into the TCP connection. The client knows before that it comes, so that it has not gone on to use the connection.
    fn prove(&self, unix: &Held, ready: &Ready, hello: &Hello, secret: &Token, peer: Option<u64>) -> Result<(), Reason> {
        let (address, length) = sockaddr::abstract_name(hello.encode_for_server().as_slice());
        calls::bind(unix.fd(), (&raw const address).cast(), length).map_err(|_| Reason::NearRefused)?;
        let peer = match peer {
            Some(peer) => peer & u64::from(u32::MAX),
            None => {
                let _setup = SETUP.lock().ok_or(Reason::Unknown)?;
                diag::unix_peer(unix.fd()).map_err(|_| Reason::NoDiagnosis)?.into()
            }
        };
        // Bytes that the client's program has written are to be read, so they leave the connection where it is.
        if !is_unread(self.fd) {
            return Err(Reason::ClientLeft);
        }
        let proof = Proof { token: ready.token, secret: *secret, peer };
        match say(unix.fd(), &[COMMITTED]) && say(self.fd, &proof.encode()) {
            true => Ok(()),
            false => Err(Reason::ClientLeft), // no byte of it is in the connection, or that has ended
        }
    }

    /// The client has said the last word: the connection is a stream. `is_late`: one that is reset, as its word came at the very moment at which nothing more
    /// was heard.
    fn take_up(&self, unix: Held, shadow: Held, ready: &Ready, index: usize, is_late: bool) {
        let _setup = SETUP.lock();
        let channel = usize::from(ready.channel);
        let is_its_own = self.takes(index, channel, ready.generation);
        companion_cache::forget(index, channel); // of an earlier connection
        let nonblocking = self.flags & libc::SOCK_NONBLOCK != 0;
        let flags = libc::O_RDWR | if nonblocking { libc::O_NONBLOCK } else { 0 };
        let _ = calls::fcntl(unix.fd(), libc::F_SETFL, flags as usize);
        self.replace(unix.fd());
        drop(unix);
        // A client that says so of another channel: the program's descriptor is a companion whose peer is told nothing. It reads as ended.
        if is_late || !is_its_own {
            let _ = calls::shutdown(self.fd, libc::SHUT_RDWR);
        } else {
            let _ = self.seats(shadow, index, channel);
        }
    }

    fn takes(&self, index: usize, channel: usize, generation: u32) -> bool {
        takes_channel(link::page(link::at(index).base, channel), generation, &self.client, &self.server)
    }

    /// The AF_UNIX connection takes the number.
    fn replace(&self, unix: i32) {
        let close_on_exec = if self.flags & libc::SOCK_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        let _ = calls::dup3(unix, self.fd, close_on_exec);
    }

    /// It is a stream of this channel, and the TCP connection stays beside it. False, without memory for it: it reads as ended.
    fn seats(&self, shadow: Held, index: usize, channel: usize) -> bool {
        let base = link::at(index).base;
        let accepted = Accepted { companion: self.fd, client: self.client, server: self.server, index, channel };
        let nonblocking = self.flags & libc::SOCK_NONBLOCK != 0;
        if shunt_rendezvous::accept::seat(&accepted, base, self.listener, nonblocking).is_err() {
            let _ = calls::shutdown(self.fd, libc::SHUT_RDWR);
            return false;
        }
        if let Some(socket) = socket::stream(self.fd) {
            keep_beside(shadow, socket);
        }
        status_page::note(self.fd, kind::STREAM, Reason::Near, Some(channel));
        true
    }
}

/// Whether the client has accepted the channel for this very connection; then no other can have it. Several clients of one address and user look alike where
/// processes have no numbers here, and one may name another's link.
fn takes_channel(page: &ChannelPage, generation: u32, client: &Address, server: &Address) -> bool {
    let head = &page.head;
    let is = |words: &[AtomicU64; 2], address: &Address| {
        [words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed)] == address.words()
    };
    head.state.load(Ordering::Acquire) == life::ACCEPTED
        && head.generation.load(Ordering::Acquire) == generation
        && is(&head.client, client)
        && is(&head.server, server)
        && head.ports.load(Ordering::Relaxed) == u32::from(client.port) | u32::from(server.port) << 16
        && page.sides[1].owners.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Takes the offer back. False: the client has accepted it.
fn take_back(index: usize, ready: &Ready) -> bool {
    let _setup = SETUP.lock();
    offered::take_back(&link::page(link::at(index).base, usize::from(ready.channel)).head)
}

/// Takes the link that the client has made for this connection, when it has shown the secret.
fn take_link(unix: &Held, ready: &Ready, guest: &Guest, secret: &Token, deadline: u64) -> Result<Entered, Reason> {
    let mut room = [0u8; WORD + 1];
    let sent = match hear_until(unix.fd(), &mut room, deadline) {
        Heard::Bytes(got, Some(fd)) if is_word(&room[..got], &word(LINK, secret)) => fd,
        Heard::End => return Err(Reason::ClientLeft),
        Heard::NoDescriptors => return Err(Reason::NoDescriptors),
        _ => return Err(Reason::NearRefused),
    };
    let _setup = SETUP.lock().ok_or(Reason::Unknown)?;
    let (index, _) = peers::take_in(sent.take(), ready.nonce, ready.sequence, guest).map_err(|error| match error.0 {
        libc::EMFILE | libc::ENFILE => Reason::NoDescriptors,
        libc::ENOMEM => Reason::NoMemory,
        _ => Reason::NearRefused,
    })?;
    link::enter(index);
    let _ = calls::send_byte(unix.fd(), TAKEN, MSG_DONTWAIT | MSG_NOSIGNAL);
    Ok(Entered(index))
}

const _: () = assert!(messages::CLAIM != READY, "one is not taken for the other");

#[cfg(test)]
mod tests {
    use super::*;

    /// A neighbour of one address names the link of another's connection, and its channel, which both look the same in all else.
    #[test]
    fn a_channel_is_one_connection_s() {
        // SAFETY: atomics alone, for which all-zero is valid.
        let page: Box<ChannelPage> = unsafe { Box::new_zeroed().assume_init() };
        let (client, server) = (Address::v4([10, 0, 0, 2], 5000), Address::v4([10, 0, 0, 3], 80));
        let neighbour = Address { port: 5001, ..client };
        shunt_rendezvous::attach::describe(&page, &client, &server);
        page.head.generation.store(7, Ordering::Relaxed);
        page.head.state.store(life::OFFERED, Ordering::Relaxed);
        assert!(!takes_channel(&page, 7, &client, &server), "it is not accepted");
        page.head.state.store(life::ACCEPTED, Ordering::Relaxed);
        assert!(!takes_channel(&page, 6, &client, &server), "an earlier connection's");
        assert!(!takes_channel(&page, 7, &neighbour, &server), "a neighbour's");
        assert!(!takes_channel(&page, 7, &client, &Address { port: 81, ..server }), "of another listener");
        assert!(takes_channel(&page, 7, &client, &server));
        assert!(!takes_channel(&page, 7, &client, &server), "it has its socket");
    }
}
