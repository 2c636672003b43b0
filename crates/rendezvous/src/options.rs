//! getsockopt and setsockopt of accelerated sockets.
//!
//! The companion is an AF_UNIX socket and knows no TCP options, so they are kept here. The kernel stays the probe of
//! what is valid: a new value is first given to a TCP socket (see [`shunt_stream::options::option_probe`]) and read back, so errors, clamping and doubling
//! (SO_SNDBUF) are its own. What it takes as it is given needs no probe ([`given`]).
//!
//! ```text
//! option_probe        a TCP socket that is asked   information: TCP_INFO      names: getsockname and getpeername
//! limits       SO_RCVTIMEO, SO_SNDTIMEO          multipath: sockets of IPPROTO_MPTCP
//! ```

pub mod information;
pub mod multipath;
pub mod names;

mod constants;
mod form;
mod get;
mod given;
pub(crate) mod kinds;
pub(crate) mod tcp;
mod waking;

pub use get::get;
pub use kinds::only_the_kernel_can;
use shunt_stream::options::limits;
pub use shunt_stream::options::owners::catch_up;
pub use shunt_stream::socket::stored::Stored;
pub use tcp::{carry_over, give_back, give_to, note_get, note_given, note_six_only};

use core::sync::atomic::Ordering;
pub(crate) use given::as_given;
use kinds::{changed_with, defers, is_simple, read_as};
use shunt_stream::options::effects::{apply, integer, tell_linger};
use shunt_stream::options::option_probe::OptionProbe;
use shunt_stream::options::owners::{publish, write_down};
use shunt_stream::socket::stored::LONGEST;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::{control, corked, stalled};
use shunt_sys::libc::{self, c_int, socklen_t, IPPROTO_IP, IPPROTO_TCP, SOL_SOCKET};
use shunt_sys::{clock, user, Errno, Result};

/// A probe with the options that the program set on the stream.
fn probe_of(socket: &Socket) -> Result<OptionProbe> {
    OptionProbe::new(socket, |fd| {
        let list = &socket.stored;
        for entry in list.all().filter(|entry| !defers(entry)) {
            tcp::give(fd, &entry);
        }
    })
}

/// Options that its peer or the ring has to know are told: the socket has become a stream at `fd` (`fresh`), or one has
/// changed.
pub fn connected(socket: &Socket, fd: i32, fresh: bool) {
    if socket.control.load(Ordering::Relaxed) != 0 {
        control::announce(socket, fd);
    }
    if fresh && socket.stored.find(IPPROTO_TCP, libc::TCP_CORK).is_some_and(|entry| integer(entry.bytes()) != 0) {
        corked::set(socket, true);
    }
    if fresh && socket.has(flag::LINGER_RESET) {
        tell_linger(socket);
    }
    if let Some(entry) = socket.stored.find(SOL_SOCKET, libc::SO_RCVBUF) {
        let set = integer(&entry.data) as u32;
        // A window that was offered is not taken back.
        if fresh || set > socket.own().receive_buffer.load(Ordering::Relaxed).max(131_072) {
            socket.own().receive_buffer.store(set, Ordering::Relaxed);
        }
    }
    if let Some(limit) = send_buffer(socket) {
        socket.own().transmit.send_buffer.store(limit, Ordering::Relaxed);
    }
    if !fresh {
        publish(socket);
    } else if !socket.stored.is_empty() {
        write_down(socket);
    }
}

/// What TCP sends at once: with TCP_NOTSENT_LOWAT as much more than was asked for may lie beyond the window.
const SEGMENT: u32 = 64 << 10;

/// What SO_SNDBUF would have to be for what the program set by it and by TCP_NOTSENT_LOWAT, the smaller of both; 0: nothing limits it.
/// `None`: neither was ever set.
fn send_buffer(socket: &Socket) -> Option<u32> {
    let set = |level, name| socket.stored.find(level, name).map(|entry| integer(&entry.data) as u32);
    let (buffer, unsent) = (set(SOL_SOCKET, libc::SO_SNDBUF), set(IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT));
    let for_unsent = match unsent {
        None | Some(0 | u32::MAX) => u32::MAX,
        // A quarter of SO_SNDBUF is for the kernel's structures (`Pipe::room_for`).
        Some(unsent) => (unsent.max(SEGMENT) / 3).saturating_mul(4),
    };
    let limit = buffer.unwrap_or(u32::MAX).min(for_unsent);
    (buffer.is_some() || unsent.is_some()).then_some(if limit == u32::MAX { 0 } else { limit })
}

/// TCP_MAXSEG as the program set it; 0: it has said nothing. (A socket that was refused a connection tells something else.)
pub fn largest_segment(socket: &Socket) -> u32 {
    socket.stored.find(IPPROTO_TCP, libc::TCP_MAXSEG).map_or(0, |entry| integer(&entry.data) as u32)
}

/// setsockopt(2) on the stream `fd`.
///
/// # Safety
/// `data` holds `length` readable bytes.
pub unsafe fn set(socket: &Socket, fd: i32, level: c_int, name: c_int, data: *const u8, length: socklen_t) -> Result<isize> {
    catch_up(socket);
    let given = name;
    let name = limits::name(level, name);
    let switch = matches!((level, name), (IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK) | (SOL_SOCKET, libc::SO_KEEPALIVE));
    if switch && (length as i32) >= 4 {
        // Set on each connection, or around each response, and nothing to probe: any integer is on or off.
        // SAFETY: passed on.
        let on = unsafe { user::read(data.cast::<c_int>())? } != 0;
        socket.stored.store(level, name, &(on as c_int).to_ne_bytes());
        publish(socket);
        match (level, name) {
            (IPPROTO_TCP, libc::TCP_CORK) => {
                corked::set(socket, on);
                if !on {
                    corked::push(socket, fd);
                }
            }
            (IPPROTO_TCP, libc::TCP_NODELAY) if on => corked::push(socket, fd),
            _ => {}
        }
        return Ok(0);
    }
    if (level, name) == (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) && socket.family.load(Ordering::Relaxed) == libc::AF_INET6 {
        return Err(Errno(libc::EINVAL)); // a probe is not bound, and would allow it
    }
    if (level, name) == (libc::IPPROTO_IPV6, form::IPV6_ADDRFORM) && socket.family.load(Ordering::Relaxed) == libc::AF_INET6 {
        let six_only = socket.stored.find(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY).is_some_and(|entry| integer(&entry.data) != 0);
        // SAFETY: passed on.
        return unsafe { form::change(socket, data, length, six_only) };
    }
    match (level, name) {
        // What these do, only the kernel's own connection can: they are refused with errors that Linux has for them.
        (IPPROTO_TCP, libc::TCP_ULP) if multipath::is(socket) => {}
        (IPPROTO_TCP, libc::TCP_ULP) => return refuse(socket, level, name, data, length, libc::ENOENT),
        (IPPROTO_TCP, libc::TCP_REPAIR) => return refuse(socket, level, name, data, length, libc::EPERM),
        (SOL_SOCKET, libc::SO_ATTACH_FILTER | libc::SO_ATTACH_BPF) => {
            return refuse(socket, level, name, data, length, libc::ENOMEM)
        }
        _ => {}
    }
    // MPTCP knows no urgent data: its probe refuses this one.
    let judged = multipath::is(socket) && (level, name) == (SOL_SOCKET, libc::SO_OOBINLINE);
    // SAFETY: passed on.
    let known = if judged { None } else { unsafe { as_given(level, name, data, length)? } };
    if let Some((bytes, length)) = known {
        adopt(socket, fd, level, name, bytes, length);
        return Ok(0);
    }
    if (level, name) == (IPPROTO_IP, libc::IP_TOS) && (length as i32) >= 1 {
        // SAFETY: passed on.
        let value = unsafe {
            match length {
                1..4 => user::read(data.cast::<u8>())?.into(),
                _ => user::read(data.cast::<c_int>())?,
            }
        };
        if is_type_of_service(socket, value)? {
            return Ok(0); // SO_PRIORITY stays, too, which follows a new one (__ip_sock_set_tos)
        }
    }
    // One of MPTCP that is not connected has not fallen back, and knows less.
    let simple = is_simple(level, name) && (!multipath::is(socket) || limits::is_one(level, name));
    let probe = if simple { OptionProbe::fresh(socket)? } else { probe_of(socket)? };
    probe.set(level, given, data, length)?;
    let name = read_as(level, name);
    if let Ok((bytes, length)) = probe.read(level, name) {
        for &(level, name) in changed_with(level, name) {
            if let (true, Ok((bytes, length))) = (socket.stored.find(level, name).is_some(), probe.read(level, name)) {
                socket.stored.store(level, name, &bytes[..length]);
            }
        }
        adopt(socket, fd, level, name, bytes, length);
    }
    Ok(0)
}

/// Refuses an option with `error`, unless the kernel cannot even read it.
fn refuse(socket: &Socket, level: c_int, name: c_int, data: *const u8, length: socklen_t, error: c_int) -> Result<isize> {
    match OptionProbe::fresh(socket)?.set(level, name, data, length) {
        Err(Errno(libc::EFAULT)) => Err(Errno(libc::EFAULT)),
        _ => Err(Errno(error)),
    }
}

/// Whether IP_TOS is `value` already; its lowest two bits are TCP's (congestion). Erlang sets it again after each other option.
fn is_type_of_service(socket: &Socket, value: c_int) -> Result<bool> {
    let (level, name) = (IPPROTO_IP, libc::IP_TOS);
    let known = match socket.stored.find(level, name) {
        Some(entry) => Some(integer(entry.bytes())),
        None => constants::of(socket, level, name)?,
    };
    let is = match known {
        Some(is) => is,
        None => integer(&OptionProbe::fresh(socket)?.read(level, name)?.0),
    };
    Ok((0..=255).contains(&value) && is | 3 == value | 3)
}

/// The stream has an option from now on, of which the kernel would tell the first `length` of `bytes`.
fn adopt(socket: &Socket, fd: i32, level: c_int, name: c_int, mut bytes: [u8; LONGEST], length: usize) {
    if (level, name) == (SOL_SOCKET, libc::SO_LINGER) && integer(&bytes) == 0 {
        // Switching off leaves the time as it was; a probe that was never on does not know it.
        if let Some(entry) = socket.stored.find(level, name) {
            bytes[4..8].copy_from_slice(&entry.data[4..8]);
        }
    }
    socket.stored.store(level, name, &bytes[..length]);
    apply(socket, level, name, &bytes[..length]);
    tcp::note_lock(socket, level, name);
    if (level, name) == (SOL_SOCKET, libc::SO_LINGER) {
        tell_linger(socket);
    }
    if (level, name) == (IPPROTO_TCP, libc::TCP_USER_TIMEOUT) {
        stalled::note_if_full(socket, fd);
    }
    connected(socket, fd, false);
    waking::wake(socket, fd, level, name);
}

/// bind(2) on a stream: never succeeds, and the kernel says why. A probe is connected, as the stream is.
pub fn refuse_bind(socket: &Socket, address: *const libc::sockaddr, length: socklen_t) -> Result<isize> {
    probe_of(socket)?.bind(address, length)?;
    Err(Errno(libc::EINVAL)) // it was not connected after all
}

/// TCP_DEFER_ACCEPT, which a socket keeps until it listens: its clients are looked at from then on.
pub(crate) fn defer(socket: &Socket, level: c_int, name: c_int, bytes: &[u8]) {
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) {
        defer_for(socket, integer(bytes));
    }
}

/// The socket's TCP_DEFER_ACCEPT reads back as `seconds`.
pub(crate) fn defer_for(socket: &Socket, seconds: i32) {
    let seconds = seconds.max(0) as u32;
    if seconds != 0 && socket.listening.defers.load(Ordering::Relaxed) == 0 {
        socket.listening.defers_since.store(clock::ticks(), Ordering::Relaxed);
    }
    socket.listening.defers.store(seconds, Ordering::SeqCst);
}
