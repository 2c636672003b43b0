//! The gate of a host: which station serves a listener here?
//!
//! ```text
//! asker                       gate                       query socket of the listener's station
//!  ASK ────────────────────►   no state: a cookie of the same size
//!  ◄──────────────── COOKIE
//!  ASK, cookie ────────────►   sock_diag: the listener's inode
//!                              ASK, asker's address ──►  a peer, a tag
//!  ◄──────────────── ANSWER  ◄── ANSWER, asker's address
//! ```

use shunt_am::{siphash, Nanoseconds};
use shunt_segment::address::Address;
use shunt_segment::name;
use shunt_sys::{calls, libc, Result};

use crate::discovery_packet::{Datagram, Kind, SIZE};
use crate::sockaddr::{self, Socket, UnixName};
use crate::{FourTuple, Refusal};

/// The UDP port at which gates are.
pub const GATE: u16 = 29545;

/// Datagrams served in one call.
const BATCH: usize = 32;
/// How long a cookie is good, at least; at most twice as long.
const SLOT: Nanoseconds = 10_000_000_000;
/// Bytes between a gate and a query socket: a datagram, and the asker's address.
pub(crate) const PASSED: usize = SIZE + 20;

/// The gate of a host: a UDP socket that keepers of one user share.
pub struct Discovery {
    socket: Socket,
    inside: Socket,
    both: Socket,
    judge: Judge,
}

/// What a gate makes of a datagram: no state but a secret.
pub struct Judge {
    secret: [u64; 2],
}

/// With the asker's address behind it.
pub(crate) fn pass(datagram: &Datagram, asker: &Address) -> [u8; PASSED] {
    let mut bytes = [0; PASSED];
    bytes[..SIZE].copy_from_slice(&datagram.emit());
    bytes[SIZE..SIZE + 16].copy_from_slice(&asker.ip);
    bytes[SIZE + 16..SIZE + 18].copy_from_slice(&asker.port.to_le_bytes());
    bytes
}

/// What was passed on.
pub(crate) fn passed(bytes: &[u8]) -> Option<(Datagram, Address)> {
    let (datagram, asker) = bytes.split_at_checked(SIZE)?;
    let mut ip = [0; 16];
    ip.copy_from_slice(asker.get(..16)?);
    let port = u16::from_le_bytes([*asker.get(16)?, *asker.get(17)?]);
    (bytes.len() == PASSED && port != 0).then_some((Datagram::parse(datagram)?, Address { ip, port, scope: 0 }))
}

impl Judge {
    /// With a secret, which is random and this judge's alone.
    pub fn new(secret: [u64; 2]) -> Judge {
        Judge { secret }
    }

    fn cookie(&self, asker: &Address, nonce: [u64; 2], slot: u64) -> [u64; 2] {
        let [a, b] = asker.words();
        [0, 1].map(|half| siphash(self.secret, &[half, a, b, asker.port.into(), nonce[0], nonce[1], slot]))
    }

    /// Whether a question has a cookie that went to `asker`: it has the address.
    pub fn is_proved(&self, now: Nanoseconds, question: &Datagram, asker: &Address) -> bool {
        let slot = now / SLOT;
        let is_of = |slot| question.cookie == self.cookie(asker, question.nonce, slot);
        is_of(slot) || is_of(slot.wrapping_sub(1))
    }

    /// What to do with a datagram from `asker`: the answer, or `None` if it is to be passed to the query socket of the inode in `found`.
    /// Bounded work, no state. `listener` gives the inode of the listener that would get a connection.
    pub fn judge(
        &self,
        now: Nanoseconds,
        bytes: &[u8],
        asker: &Address,
        listener: &mut dyn FnMut(&FourTuple) -> Option<u64>,
        found: &mut Option<u64>,
    ) -> Option<Datagram> {
        let datagram = Datagram::parse(bytes).filter(|datagram| datagram.kind == Kind::Ask)?;
        if !self.is_proved(now, &datagram, asker) {
            let fresh = self.cookie(asker, datagram.nonce, now / SLOT);
            return Some(Datagram { kind: Kind::Cookie, cookie: fresh, refusal: None, ..datagram });
        }
        if datagram.four.client.ip != asker.ip {
            return Some(Datagram { kind: Kind::Answer, refusal: Some(Refusal::Source), ..datagram });
        }
        *found = listener(&datagram.four);
        match found {
            Some(_) => None,
            None => Some(Datagram { kind: Kind::Answer, refusal: Some(Refusal::NoStation), ..datagram }),
        }
    }
}

impl Discovery {
    /// Opens the gate in this network namespace, for one family.
    ///
    /// # Errors
    /// EADDRINUSE: another user's is there, and serves everybody; try again later.
    pub fn open(version_6: bool) -> Result<Discovery> {
        Discovery::bind(version_6).and_then(Discovery::of)
    }

    /// A gate's socket, bound: questions wait in its queue until a gate is made of it. The caller closes it.
    ///
    /// # Errors
    /// As [`Discovery::open`].
    pub fn bind(version_6: bool) -> Result<i32> {
        let any = if version_6 { Address::v6([0; 16], GATE) } else { Address::v4([0; 4], GATE) };
        let socket = sockaddr::udp(&any)?;
        if version_6 {
            calls::setsockopt_int(socket.0, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        calls::setsockopt_int(socket.0, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        sockaddr::with(&any, |name, length| calls::bind(socket.0, name, length))?;
        let fd = socket.0;
        core::mem::forget(socket);
        Ok(fd)
    }

    /// The gate behind a socket that [`Discovery::bind`] gave, which is closed with it.
    ///
    /// # Errors
    /// What the system answers.
    pub fn of(bound: i32) -> Result<Discovery> {
        let socket = Socket(bound);
        let inside = sockaddr::unix(None)?;
        let both = Socket(calls::epoll_create1(libc::EPOLL_CLOEXEC)?);
        for fd in [socket.0, inside.0] {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            calls::epoll_ctl(both.0, libc::EPOLL_CTL_ADD, fd, &mut event)?;
        }
        let judge = Judge::new([shunt_endpoint::Tag::random()?.0, shunt_endpoint::Tag::random()?.0]);
        Ok(Discovery { socket, inside, both, judge })
    }

    /// What is to be polled (POLLIN).
    pub fn descriptor(&self) -> i32 {
        self.both.0
    }

    /// All descriptors, to be kept open.
    pub fn descriptors(&self) -> [i32; 3] {
        [self.socket.0, self.inside.0, self.both.0]
    }

    /// A descriptor got another number.
    pub fn renumber(&mut self, from: i32, to: i32) {
        for socket in [&mut self.socket, &mut self.inside, &mut self.both] {
            if socket.0 == from {
                socket.0 = to;
            }
        }
    }

    /// Answers what waits, a bounded number. `knows` says whether an asker at an address is answered at all, and is told whether it has
    /// proved to be there: any host can send the others under any address. `listener` gives the inode of the TCP listener that would get a
    /// connection.
    pub fn serve(
        &mut self,
        now: Nanoseconds,
        knows: &mut dyn FnMut(&Address, bool) -> bool,
        listener: &mut dyn FnMut(&FourTuple) -> Option<u64>,
    ) {
        let mut bytes = [0; PASSED + 1];
        for _ in 0..BATCH {
            let Ok((length, Some(asker))) = sockaddr::receive(self.socket.0, &mut bytes) else { break };
            let Some(text) = bytes.get(..length) else { continue };
            let question = Datagram::parse(text).filter(|datagram| datagram.kind == Kind::Ask);
            if !question.is_some_and(|question| knows(&asker, self.judge.is_proved(now, &question, &asker))) {
                continue;
            }
            let mut found = None;
            if let Some(answer) = self.judge.judge(now, text, &asker, listener, &mut found) {
                sockaddr::send(self.socket.0, &answer.emit(), Some(&asker));
                continue;
            }
            let (Some(inode), Some(datagram)) = (found, Datagram::parse(text)) else { continue };
            if !sockaddr::send_unix(self.inside.0, &pass(&datagram, &asker), &UnixName::of(&name::station(inode))) {
                let answer = Datagram { kind: Kind::Answer, refusal: Some(Refusal::NoStation), ..datagram };
                sockaddr::send(self.socket.0, &answer.emit(), Some(&asker));
            }
        }
        for _ in 0..BATCH {
            let Ok((length, _)) = sockaddr::receive_unix(self.inside.0, &mut bytes) else { break };
            // Any program of this host may write here; what it can do is what it could by a socket of its own.
            if let Some((answer, asker)) = bytes.get(..length).and_then(passed).filter(|(answer, _)| answer.kind == Kind::Answer)
            {
                sockaddr::send(self.socket.0, &answer.emit(), Some(&asker));
            }
        }
    }
}
