//! The server's half: a connection that shows a mark is claimed at its client's name, and becomes a stream when the client hands it over.

use crate::claim::{self, Claim, Token, ANSWER, UNKNOWN_LINK};
use crate::servers::{clients, Server};
use crate::waiting::{await_any, keep_beside};
use crate::{directory, mark, own};
use shunt_link as link;
use shunt_link::peers;
use shunt_rendezvous::accept::{deferred, Accepted};
use shunt_rendezvous::shown;
use shunt_ring::claim as offered;
use shunt_segment::address::Address;
use shunt_segment::name::Hello;
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket::{self, Socket};
use shunt_sys::libc::{self, sockaddr_un, AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL};
use shunt_sys::{calls, clock, Errno};
use shunt_table::global::SETUP;
use shunt_table::private::Pending;
use shunt_table::process::{kernel_only, status_page};
use shunt_table::{fd_passing, sockaddr, table};

/// How long an answer is waited for (ns): its client waits for the claim, awake as a rule.
const ANSWERS: u64 = 20_000_000;

/// The kernel gave the connection `fd` to `listener`: true if it is a stream now.
pub fn accepted(fd: i32, _: i32, listener: &Socket, flags: i32) -> bool {
    let Some(directory) = directory::here() else { return false };
    let now = clock::monotonic_ns();
    let Some(client) = sockaddr::peer_address(fd).filter(|client| !client.is_loopback() && client.scope == 0) else {
        return false;
    };
    directory::look_through(directory, now);
    let shown = shown::look(fd, if client.as_v4().is_some() { 40 } else { 60 });
    // What is older than its client waits, by the kernel's clock, is not claimed: its name may be another connection's. Where the kernel waits for bytes
    // before it tells of a connection, none is young.
    let is_young = shown.made >= now && !deferred::concern(listener);
    if !mark::is_one(shown.segment, shown.own) || !is_young || kernel_only::keeps() || !table::fits(fd) {
        return false;
    }
    let place = Address { port: 0, ..client };
    if clients(|clients| clients.of(&place, now)) == Server::Silent {
        return false;
    }
    let server = sockaddr::bound_address(fd);
    let arriving = Arriving { fd, listener, flags, client, server, mark: shown.segment as u16 };
    let Err(reason) = arriving.claim(directory) else { return true };
    status_page::count(reason);
    if reason == Reason::NearRefused {
        clients(|clients| clients.is_far(&place, clock::monotonic_ns()));
    }
    false
}

/// A connection that shows a mark.
struct Arriving<'a> {
    fd: i32,
    listener: &'a Socket,
    flags: i32,
    client: Address,
    server: Address,
    mark: u16,
}

/// What a client hands over.
struct Handed {
    token: Token,
    companion: Pending,
    /// The link's descriptor; -1: it is to be known.
    link: Pending,
}

impl Arriving<'_> {
    fn claim(&self, directory: &[u8]) -> Result<(), Reason> {
        let client = directory::ask(directory, &self.client).map_err(|error| match error.0 {
            libc::EMFILE | libc::ENFILE => Reason::NoDescriptors,
            _ => Reason::NearUnknown,
        })?;
        let message = Claim {
            version: shunt_segment::VERSION,
            mark: self.mark,
            server_id: own::id().ok_or(Reason::Unknown)?,
            client: self.client,
            server: self.server,
        };
        let bytes = message.encode();
        let none = core::ptr::null();
        let sent = calls::sendto(client.0, bytes.as_ptr().cast(), bytes.len(), MSG_DONTWAIT | MSG_NOSIGNAL, none, 0);
        if sent != Ok(bytes.len()) {
            return Err(Reason::NearUnknown);
        }
        let who = fd_passing::creator(client.0).map_err(|_| Reason::NearUnknown)?;
        let deadline = clock::monotonic_ns() + ANSWERS;
        // Twice: the client may know a link that was dropped here.
        for _ in 0..2 {
            let handed = receive(client.0, deadline)?;
            let hello = self.hello_of(&handed.companion).ok_or(Reason::NearRefused)?;
            match self.take_up(handed, &hello, (who.pid as u32, who.uid)) {
                Err(Reason::BadSegment) => {
                    let _ = calls::send_byte(client.0, UNKNOWN_LINK, MSG_DONTWAIT | MSG_NOSIGNAL);
                }
                other => return other,
            }
        }
        Err(Reason::NearRefused)
    }

    /// What the companion's other end says of it, if that is this connection.
    fn hello_of(&self, companion: &Pending) -> Option<Hello> {
        if calls::getsockopt_int(companion.0, libc::SOL_SOCKET, libc::SO_TYPE) != Ok(libc::SOCK_STREAM) {
            return None;
        }
        let mut name = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
        let mut length = core::mem::size_of::<sockaddr_un>() as libc::socklen_t;
        calls::getpeername(companion.0, (&raw mut name).cast(), &mut length).ok()?;
        if i32::from(name.sun_family) != AF_UNIX {
            return None;
        }
        let bytes = name.sun_path.map(|byte| byte as u8);
        let hello = Hello::decode(bytes.get(1..(length as usize).checked_sub(2)?)?)?;
        let same = |one: &Address, other: &Address| one.ip == other.ip && one.port == other.port;
        (same(&hello.client, &self.client) && same(&hello.server, &self.server)).then_some(hello)
    }

    /// The connection becomes a stream. BadSegment: the link is not known here, and was not sent.
    fn take_up(&self, handed: Handed, hello: &Hello, client: (u32, u32)) -> Result<(), Reason> {
        let Handed { token, companion, link: sent } = handed;
        let _setup = SETUP.lock().ok_or(Reason::Unknown)?;
        let known = peers::known(hello.nonce, hello.sequence, client);
        let (index, found) = match known {
            Some(found) => found,
            None if sent.0 < 0 => return Err(Reason::BadSegment),
            None if !peers::has_room() => return Err(Reason::NearQuota),
            None => peers::take_in(sent.take(), hello.nonce, hello.sequence, client).map_err(|error| match error.0 {
                libc::EMFILE | libc::ENFILE => Reason::NoDescriptors,
                libc::ENOMEM => Reason::NoMemory,
                _ => Reason::NearRefused,
            })?,
        };
        let channel = usize::from(hello.channel);
        // From here on the client waits for the token.
        if !offered::accept(&link::page(found.base, channel).head, hello.generation) {
            return Err(Reason::ClientLeft);
        }
        let nothing = core::ptr::null();
        let sent = calls::sendto(self.fd, token.as_ptr().cast(), token.len(), MSG_DONTWAIT | MSG_NOSIGNAL, nothing, 0);
        if sent != Ok(token.len()) {
            return Err(Reason::ClientLeft);
        }
        let nonblocking = self.flags & libc::SOCK_NONBLOCK != 0;
        let flags = libc::O_RDWR | if nonblocking { libc::O_NONBLOCK } else { 0 };
        let _ = calls::fcntl(companion.0, libc::F_SETFL, flags as usize);
        let shadow = Pending(calls::fcntl(self.fd, libc::F_DUPFD_CLOEXEC, 3).unwrap_or(-1));
        let close_on_exec = if self.flags & libc::SOCK_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        let _ = calls::dup3(companion.0, self.fd, close_on_exec);
        let accepted = Accepted { companion: self.fd, client: self.client, server: self.server, index, channel };
        // Without memory for it the program's descriptor is a companion whose peer is told nothing: it reads as ended.
        if shunt_rendezvous::accept::seat(&accepted, found.base, self.listener, nonblocking).is_err() {
            let _ = calls::shutdown(self.fd, libc::SHUT_RDWR);
            return Ok(());
        }
        if let Some(socket) = socket::stream(self.fd) {
            keep_beside(shadow.0, socket);
        }
        status_page::note(self.fd, kind::STREAM, Reason::Near, Some(channel));
        Ok(())
    }
}

/// The client's answer.
fn receive(from: i32, deadline: u64) -> Result<Handed, Reason> {
    let mut bytes = [0u8; ANSWER + 1];
    loop {
        match fd_passing::receive_with(from, &mut bytes, MSG_DONTWAIT) {
            Ok((got, sent)) => {
                let [companion, link] = sent.map(Pending);
                let token = claim::token_of(&bytes[..got]).filter(|_| companion.0 >= 0).ok_or(Reason::NearRefused)?;
                return Ok(Handed { token, companion, link });
            }
            Err(Errno(libc::EAGAIN | libc::EINTR)) if clock::monotonic_ns() < deadline => {
                let _ = await_any([from, -1], deadline);
            }
            Err(Errno(libc::EMFILE | libc::ENFILE)) => return Err(Reason::NoDescriptors),
            // It has given up, in good order.
            Err(Errno(libc::ECONNRESET)) => return Err(Reason::ClientLeft),
            Err(_) => return Err(Reason::NearRefused),
        }
    }
}
