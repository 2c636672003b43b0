//! What a probe answers for every stream that was given no option that matters: asked once a process.
//!
//! A probe costs eight system calls and a connection to itself. gevent asks for SO_SNDBUF before each send of its servers'
//! answers, Erlang for IP_TOS and SO_PRIORITY before each option that it sets, others for buffers and flags once a connection.

use super::information::Model;
use super::kinds::{changed_with, leaves_information};
use super::{multipath, probe_of};
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_stream::options::effects::integer;
use shunt_stream::socket::stored::{Entry, Stored};
use shunt_stream::socket::Socket;
use shunt_sys::libc::{self, c_int, IPPROTO_IP, IPPROTO_TCP, SOL_SOCKET};
use shunt_sys::Result;

/// Integers that are the host's, or what every socket begins with; of the options that `leaves_information` only
/// those change one of them that `changed_with` names.
const NAMES: [(c_int, c_int); 13] = [
    (SOL_SOCKET, libc::SO_SNDBUF),
    (SOL_SOCKET, libc::SO_RCVBUF),
    (SOL_SOCKET, libc::SO_KEEPALIVE),
    (SOL_SOCKET, libc::SO_REUSEADDR),
    (SOL_SOCKET, libc::SO_REUSEPORT),
    (SOL_SOCKET, libc::SO_OOBINLINE),
    (SOL_SOCKET, libc::SO_PRIORITY),
    (IPPROTO_TCP, libc::TCP_NODELAY),
    (IPPROTO_TCP, libc::TCP_CORK),
    (IPPROTO_IP, libc::IP_TOS),
    (IPPROTO_IP, libc::IP_TTL),
    (IPPROTO_IP, libc::IP_RECVTTL),
    (IPPROTO_IP, libc::IP_RECVTOS),
];

/// Set beside a value that is known.
const KNOWN: u64 = 1 << 32;

/// What probes of one family have answered.
pub(super) struct Judged {
    integers: [AtomicU64; NAMES.len()],
    /// Round trips, windows and sizes.
    pub(super) model: Model,
}

static JUDGED: [Judged; 2] = [const { Judged { integers: [const { AtomicU64::new(0) }; NAMES.len()], model: Model::new() } }; 2];

/// Of the family of a socket.
pub(super) fn judged(family: c_int) -> &'static Judged {
    &JUDGED[(family == libc::AF_INET6) as usize]
}

/// The place of an option that is a constant for a socket with these options of its own.
fn place(list: &Stored, family: c_int, level: c_int, name: c_int) -> Option<&'static AtomicU64> {
    let which = NAMES.iter().position(|known| *known == (level, name))?;
    list.all().all(|entry| entry_is_other(&entry, level, name)).then(|| &judged(family).integers[which])
}

/// Whether a socket's own option leaves the asked one as it is.
fn entry_is_other(entry: &Entry, level: c_int, name: c_int) -> bool {
    let own = (entry.level, entry.name);
    leaves_information(entry) && own != (level, name) && !changed_with(own.0, own.1).contains(&(level, name))
}

/// The value of an option that is a constant for this stream; `None`: it is none. Errors: a probe's.
pub(super) fn of(socket: &Socket, level: c_int, name: c_int) -> Result<Option<c_int>> {
    let here =
        || if multipath::is(socket) { None } else { place(&socket.stored, socket.family.load(Ordering::Relaxed), level, name) };
    let Some(known) = here() else { return Ok(None) };
    let word = known.load(Ordering::Relaxed);
    if word & KNOWN != 0 {
        return Ok(Some(word as u32 as c_int));
    }
    let value = integer(&probe_of(socket)?.read(level, name)?.0);
    // Unless a thread has given it an option meanwhile.
    if here().is_some() {
        known.store(KNOWN | value as u32 as u64, Ordering::Relaxed);
    }
    Ok(Some(value))
}
