//! getsockopt and setsockopt of accelerated sockets.
//!
//! The companion is an AF_UNIX socket and knows no TCP options, so they are kept here. The kernel stays the judge of
//! what is valid: a new value is first given to a TCP socket (see [`crate::judge`]) and read back, so errors, clamping and doubling
//! (SO_SNDBUF) are its own.

use crate::global::SETUP;
use crate::judge::{Judge, LONGEST};
use crate::socket::{flag, Socket};
use crate::{control, earlier, information, readiness};
use core::sync::atomic::Ordering;
use shunt_segment::channel::state;
use shunt_segment::settings::Setting;
use shunt_sys::libc::{self, c_int, socklen_t, IPPROTO_TCP, SOL_SOCKET};
use shunt_sys::{calls, user, Errno, Result};

const MOST: usize = 64;

#[derive(Clone, Copy)]
struct Entry {
    level: c_int,
    name: c_int,
    length: u8,
    data: [u8; LONGEST],
}

impl Entry {
    fn bytes(&self) -> &[u8] {
        &self.data[..self.length as usize]
    }
}

/// Options that a program set on a socket, in the order of setting.
#[derive(Clone, Copy)]
pub struct Stored {
    count: usize,
    entries: [Entry; MOST],
}

impl Stored {
    /// None set.
    pub const fn new() -> Stored {
        Stored { count: 0, entries: [Entry { level: 0, name: 0, length: 0, data: [0; LONGEST] }; MOST] }
    }

    /// Forgets them all. What is not looked at is not touched: most sockets have few.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Becomes the same as `other`.
    fn follow(&mut self, other: &Stored) {
        self.entries[..other.count].copy_from_slice(&other.entries[..other.count]);
        self.count = other.count;
    }

    fn find(&self, level: c_int, name: c_int) -> Option<&Entry> {
        self.entries[..self.count].iter().find(|e| e.level == level && e.name == name)
    }

    fn store(&mut self, level: c_int, name: c_int, bytes: &[u8]) {
        let length = bytes.len().min(LONGEST);
        let index = match self.entries[..self.count].iter().position(|e| e.level == level && e.name == name) {
            Some(index) => index,
            None => {
                let index = self.count;
                self.count = (index + 1).min(MOST);
                index
            }
        };
        // More different options than any program sets are not kept.
        let Some(entry) = self.entries.get_mut(index) else { return };
        (entry.level, entry.name, entry.length) = (level, name, length as u8);
        entry.data[..length].copy_from_slice(&bytes[..length]);
    }
}

impl Default for Stored {
    fn default() -> Self {
        Stored::new()
    }
}

#[allow(clippy::mut_from_ref)]
fn stored(socket: &Socket) -> &mut Stored {
    // SAFETY: plain bytes of this process; threads that set options of one socket at the same time can only mix up
    // their own values.
    unsafe { &mut *socket.stored.get() }
}

/// Options of which the kernel thinks the same whatever the state of the socket, and which servers set on each connection:
/// they need no judge that is connected.
fn is_simple(level: c_int, name: c_int) -> bool {
    match level {
        SOL_SOCKET => matches!(
            name,
            libc::SO_RCVTIMEO | libc::SO_SNDTIMEO | libc::SO_SNDBUF | libc::SO_RCVBUF | libc::SO_LINGER | libc::SO_OOBINLINE
        ),
        IPPROTO_TCP => matches!(
            name,
            libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT | libc::TCP_USER_TIMEOUT | libc::TCP_NOTSENT_LOWAT
        ),
        libc::IPPROTO_IP => name == libc::IP_TOS,
        _ => false,
    }
}

/// A judge with the options that the program set on the stream.
fn judge(socket: &Socket) -> Result<Judge> {
    Judge::new(socket, |fd| {
        let list = stored(socket);
        for entry in list.entries[..list.count].iter().filter(|entry| !defers(entry)) {
            give(fd, entry);
        }
    })
}

/// Options that change nothing of what TCP_INFO tells of a fresh connection.
fn leaves_information(entry: &Entry) -> bool {
    match entry.level {
        SOL_SOCKET => matches!(
            entry.name,
            libc::SO_RCVTIMEO
                | libc::SO_SNDTIMEO
                | libc::SO_LINGER
                | libc::SO_OOBINLINE
                | libc::SO_KEEPALIVE
                | libc::SO_REUSEADDR
                | libc::SO_REUSEPORT
        ),
        IPPROTO_TCP => matches!(
            entry.name,
            libc::TCP_NODELAY
                | libc::TCP_CORK
                | libc::TCP_QUICKACK
                | libc::TCP_KEEPIDLE
                | libc::TCP_KEEPINTVL
                | libc::TCP_KEEPCNT
                | libc::TCP_USER_TIMEOUT
        ),
        libc::IPPROTO_IP => entry.name == libc::IP_TOS,
        libc::IPPROTO_IPV6 => entry.name == libc::IPV6_V6ONLY,
        _ => false,
    }
}

/// Options that would keep a judge from connecting at once.
fn defers(entry: &Entry) -> bool {
    matches!((entry.level, entry.name), (IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) | (SOL_SOCKET, libc::SO_BINDTODEVICE))
}

/// Sets an option of a TCP socket to what is kept of it.
fn give(fd: i32, entry: &Entry) {
    let mut data = entry.data;
    if entry.level == SOL_SOCKET && matches!(entry.name, libc::SO_SNDBUF | libc::SO_RCVBUF) {
        let half = integer(&data) / 2; // the kernel doubles what it is given
        data[..4].copy_from_slice(&half.to_ne_bytes());
    }
    let _ = calls::setsockopt(fd, entry.level, entry.name, data.as_ptr().cast(), entry.length as socklen_t);
}

/// A program set an option of a TCP socket that is not connected yet, and the kernel agreed: remembers what came of it.
pub fn note_set(fd: i32, socket: &Socket, level: c_int, name: c_int) {
    let mut data = [0u8; LONGEST];
    let mut length = LONGEST as socklen_t;
    if calls::getsockopt(fd, level, name, data.as_mut_ptr().cast(), &mut length).is_ok() {
        let bytes = &data[..(length as usize).min(LONGEST)];
        stored(socket).store(level, name, bytes);
        apply(socket, level, name, bytes);
    }
    for &(level, name) in changed_with(level, name) {
        let list = stored(socket);
        if list.find(level, name).is_some() {
            if let Ok(value) = calls::getsockopt_int(fd, level, name) {
                list.store(level, name, &value.to_ne_bytes());
            }
        }
    }
}

/// Options that the kernel sets to something else when this one is set: IP_TOS says what SO_PRIORITY is, and of the kinds of
/// time stamps there is one.
fn changed_with(level: c_int, name: c_int) -> &'static [(c_int, c_int)] {
    const STAMPS: [(c_int, c_int); 4] =
        [(SOL_SOCKET, libc::SO_TIMESTAMP), (SOL_SOCKET, libc::SO_TIMESTAMPNS), (SOL_SOCKET, 63), (SOL_SOCKET, 64)];
    match (level, name) {
        (libc::IPPROTO_IP, libc::IP_TOS) => &[(SOL_SOCKET, libc::SO_PRIORITY)],
        option if STAMPS.contains(&option) => &STAMPS,
        _ => &[],
    }
}

/// The TCP socket `fd` is about to be replaced: reads back what its options really are.
pub fn carry_over(fd: i32, socket: &Socket) {
    let list = stored(socket);
    for entry in &mut list.entries[..list.count] {
        let mut length = LONGEST as socklen_t;
        let mut data = [0u8; LONGEST];
        if calls::getsockopt(fd, entry.level, entry.name, data.as_mut_ptr().cast(), &mut length).is_ok() {
            entry.length = (length as usize).min(LONGEST) as u8;
            entry.data = data;
        }
    }
}

/// The way back: a fresh TCP socket gets what the program had set on the stream.
pub fn give_back(fd: i32, socket: &Socket, next: &Socket) {
    give_to(fd, socket);
    stored(next).follow(stored(socket));
}

/// A TCP socket of the kernel gets what the program had set on the stream.
pub fn give_to(fd: i32, socket: &Socket) {
    catch_up(socket);
    let list = stored(socket);
    for entry in &list.entries[..list.count] {
        give(fd, entry);
    }
}

/// The program asked a TCP socket for an option that must not change when it becomes a stream.
pub fn note_get(fd: i32, socket: &Socket, level: c_int, name: c_int) {
    if (level, name) == (SOL_SOCKET, libc::SO_COOKIE) {
        note_set(fd, socket, level, name);
    }
}

/// The same for a socket that listens already: clients that wait to be accepted keep what they found (see [`earlier`]).
pub fn note_set_on_listener(fd: i32, listener: &Socket, level: c_int, name: c_int) {
    let Some(_setup) = SETUP.lock() else { return };
    if crate::accept::someone_waits(listener) {
        earlier::before_change(listener, stored(listener));
    }
    note_set(fd, listener, level, name);
}

/// A TCP socket that is bound to an IPv6 address of its own is for IPv6 only (inet6_bind), and so is what becomes of it.
pub fn note_six_only(fd: i32, socket: &Socket) {
    let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
    if socket.family.load(Ordering::Relaxed) == libc::AF_INET6 && calls::getsockopt_int(fd, level, name) == Ok(1) {
        note_set(fd, socket, level, name);
    }
}

/// Options that accepted sockets have from their listener, beside those of time stamps.
const INHERITED: [(c_int, c_int); 26] = [
    (SOL_SOCKET, libc::SO_KEEPALIVE),
    (SOL_SOCKET, libc::SO_LINGER),
    (SOL_SOCKET, libc::SO_RCVTIMEO),
    (SOL_SOCKET, libc::SO_SNDTIMEO),
    (SOL_SOCKET, libc::SO_RCVLOWAT),
    (SOL_SOCKET, libc::SO_OOBINLINE),
    (SOL_SOCKET, libc::SO_SNDBUF),
    (SOL_SOCKET, libc::SO_RCVBUF),
    (SOL_SOCKET, libc::SO_PRIORITY),
    (SOL_SOCKET, libc::SO_MARK),
    (SOL_SOCKET, libc::SO_BUSY_POLL),
    (SOL_SOCKET, libc::SO_TIMESTAMP),
    (SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (SOL_SOCKET, libc::SO_ZEROCOPY),
    (IPPROTO_TCP, libc::TCP_NODELAY),
    (IPPROTO_TCP, libc::TCP_CORK),
    (IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (IPPROTO_TCP, libc::TCP_KEEPCNT),
    (IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
    (IPPROTO_TCP, libc::TCP_CONGESTION),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
];

/// A listener came by exec or in a message: what was set on it is what it has otherwise than a fresh socket.
pub fn learn(fd: i32, listener: &Socket) {
    crate::deferred::set(listener, calls::getsockopt_int(fd, IPPROTO_TCP, libc::TCP_DEFER_ACCEPT).unwrap_or(0));
    let Ok(fresh) = Judge::fresh(listener) else { return };
    for (level, name) in INHERITED {
        let mut data = [0u8; LONGEST];
        let mut length = LONGEST as socklen_t;
        let known = calls::getsockopt(fd, level, name, data.as_mut_ptr().cast(), &mut length).is_ok();
        if known && fresh.read(level, name).is_ok_and(|(usual, size)| usual[..size] != data[..(length as usize).min(LONGEST)]) {
            note_set(fd, listener, level, name);
        }
    }
}

/// An accepted socket begins with the options that the listener had when its client connected, at `time` (CLOCK_MONOTONIC, ns).
/// Under the set-up lock.
pub fn inherit(listener: &Socket, accepted: &Socket, time: u64) {
    let earlier = earlier::at(listener, time);
    let list = earlier.as_ref().unwrap_or(stored(listener));
    if list.count == 0 {
        return;
    }
    let copy = stored(accepted);
    copy.follow(list);
    // The copy's priority is none (sk_clone_lock), whatever IP_TOS says; the queue of TCP_FASTOPEN is the listener's alone.
    if copy.find(SOL_SOCKET, libc::SO_PRIORITY).is_some() || copy.find(libc::IPPROTO_IP, libc::IP_TOS).is_some() {
        copy.store(SOL_SOCKET, libc::SO_PRIORITY, &[0; 4]);
    }
    if copy.find(IPPROTO_TCP, libc::TCP_FASTOPEN).is_some() {
        copy.store(IPPROTO_TCP, libc::TCP_FASTOPEN, &[0; 4]);
    }
    for entry in list.entries[..list.count].iter() {
        // Timeouts are inherited with the rest (sk_clone_lock copies the socket).
        apply(accepted, entry.level, entry.name, &entry.data[..entry.length as usize]);
    }
}

fn integer(bytes: &[u8]) -> c_int {
    match bytes.first_chunk::<4>() {
        Some(four) => c_int::from_ne_bytes(*four),
        None => bytes.first().copied().unwrap_or(0) as c_int,
    }
}

fn timeval_ns(bytes: &[u8]) -> u64 {
    let (Some(seconds), Some(micros)) = (bytes.first_chunk::<8>(), bytes.get(8..16)) else { return 0 };
    let seconds = i64::from_ne_bytes(*seconds);
    let micros = i64::from_ne_bytes(micros.try_into().unwrap_or([0; 8]));
    if seconds < 0 {
        return 0;
    }
    (seconds as u64).saturating_mul(1_000_000_000).saturating_add(micros as u64 * 1000)
}

/// Options that change what we do.
fn apply(socket: &Socket, level: c_int, name: c_int, bytes: &[u8]) {
    control::note(socket, level, name, integer(bytes));
    if (level, name) == (IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) {
        crate::deferred::set(socket, integer(bytes));
    }
    if level != SOL_SOCKET {
        return;
    }
    match name {
        libc::SO_PEEK_OFF => {
            socket.peek_offset.store(integer(bytes), Ordering::Relaxed);
            careful(socket);
        }
        libc::SO_ZEROCOPY => {
            if integer(bytes) != 0 {
                socket.set(flag::ZERO_COPY);
            } else {
                socket.clear(flag::ZERO_COPY);
            }
        }
        libc::SO_RCVTIMEO => socket.receive_timeout.store(timeval_ns(bytes), Ordering::Relaxed),
        libc::SO_SNDTIMEO => socket.send_timeout.store(timeval_ns(bytes), Ordering::Relaxed),
        libc::SO_OOBINLINE => {
            if integer(bytes) != 0 {
                socket.set(flag::OOB_INLINE);
            } else {
                socket.clear(flag::OOB_INLINE);
            }
        }
        libc::SO_RCVLOWAT => {
            socket.low_water.store(integer(bytes).max(1) as u32, Ordering::Relaxed);
            careful(socket);
        }
        libc::SO_LINGER if bytes.len() >= 8 => {
            if integer(bytes) != 0 && integer(&bytes[4..]) == 0 {
                socket.set(flag::LINGER_RESET);
            } else {
                socket.clear(flag::LINGER_RESET);
            }
        }
        _ => {}
    }
}

fn careful(socket: &Socket) {
    if socket.low_water.load(Ordering::Relaxed) > 1 || socket.peek_offset.load(Ordering::Relaxed) >= 0 {
        socket.set(flag::CAREFUL);
    } else {
        socket.clear(flag::CAREFUL);
    }
}

/// Options that its peer or the ring has to know are told: the socket has become a stream at `fd` (`fresh`), or one has
/// changed.
pub fn connected(socket: &Socket, fd: i32, fresh: bool) {
    if socket.control.load(Ordering::Relaxed) != 0 {
        control::announce(socket, fd);
    }
    if fresh && socket.has(flag::LINGER_RESET) {
        tell_linger(socket);
    }
    if let Some(entry) = stored(socket).find(SOL_SOCKET, libc::SO_RCVBUF) {
        let set = integer(&entry.data) as u32;
        // A window that was offered is not taken back.
        if fresh || set > socket.own().receive_buffer.load(Ordering::Relaxed).max(131_072) {
            socket.own().receive_buffer.store(set, Ordering::Relaxed);
        }
    }
    if let Some(entry) = stored(socket).find(SOL_SOCKET, libc::SO_SNDBUF) {
        socket.own().transmit.send_buffer.store(integer(&entry.data) as u32, Ordering::Relaxed);
    }
    if !fresh {
        publish(socket);
    } else if stored(socket).count > 0 {
        write_down(socket);
    }
}

/// What the program set on a stream is the open file's, so other owners of the side are told: forked children, the next program
/// image, whoever gets the socket in a message.
fn publish(socket: &Socket) {
    if let Ok(_held) = socket.lock_send() {
        write_down(socket);
    }
}

/// As [`publish`]; nobody else can write now.
fn write_down(socket: &Socket) {
    let list = stored(socket);
    let settings = list.entries[..list.count].iter().map(|entry| Setting {
        level: entry.level,
        name: entry.name,
        length: entry.length as usize,
        data: entry.data,
    });
    socket.settings_seen.store(socket.settings().publish(settings), Ordering::Relaxed);
}

/// Before a call on a stream that other processes may own as well: what they set holds for this one.
#[inline(always)]
pub fn catch_up(socket: &Socket) {
    if socket.has(flag::SHARED)
        && socket.settings().version.load(Ordering::Relaxed) != socket.settings_seen.load(Ordering::Relaxed)
    {
        take_over(socket);
    }
}

#[cold]
#[inline(never)]
fn take_over(socket: &Socket) {
    let before = socket.settings_seen.load(Ordering::Relaxed);
    let Some((version, copied)) = socket.settings().copy() else { return };
    // One thread does it; the others go on.
    if socket.settings_seen.compare_exchange(before, version, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    let list = stored(socket);
    for Setting { level, name, length, data } in copied.iter() {
        let bytes = &data[..length];
        if list.find(level, name).is_some_and(|entry| entry.bytes() == bytes) {
            continue;
        }
        list.store(level, name, bytes);
        apply(socket, level, name, bytes);
        let on = integer(bytes) != 0;
        if (level, name) == (IPPROTO_TCP, libc::TCP_CORK) && on {
            socket.set(flag::CORKED);
        } else if (level, name) == (IPPROTO_TCP, libc::TCP_CORK) {
            socket.clear(flag::CORKED);
        }
    }
    control::follow(socket);
}

/// Options of a TCP socket by which the kernel decides what comes through.
pub fn only_the_kernel_can(level: c_int, name: c_int) -> bool {
    match level {
        SOL_SOCKET => matches!(name, libc::SO_ATTACH_FILTER | libc::SO_ATTACH_BPF | libc::SO_BINDTODEVICE | SO_BINDTOIFINDEX),
        IPPROTO_TCP => matches!(name, libc::TCP_ULP | libc::TCP_REPAIR | libc::TCP_MD5SIG | TCP_AO_ADD_KEY),
        _ => false,
    }
}

const SO_BINDTOIFINDEX: c_int = 62;
const TCP_AO_ADD_KEY: c_int = 38;

/// Other owners of the side may be the last to close.
fn tell_linger(socket: &Socket) {
    let state = &socket.own().receive.state;
    if socket.has(flag::LINGER_RESET) {
        state.fetch_or(state::LINGER_RESET, Ordering::AcqRel);
    } else {
        state.fetch_and(!state::LINGER_RESET, Ordering::AcqRel);
    }
}

/// setsockopt(2) on the stream `fd`.
///
/// # Safety
/// `data` holds `length` readable bytes.
pub unsafe fn set(socket: &Socket, fd: i32, level: c_int, name: c_int, data: *const u8, length: socklen_t) -> Result<isize> {
    catch_up(socket);
    let switch = matches!((level, name), (IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK) | (SOL_SOCKET, libc::SO_KEEPALIVE));
    if switch && (length as i32) >= 4 {
        // Set on each connection, or around each response, and nothing to judge: any integer is on or off.
        // SAFETY: passed on.
        let on = unsafe { user::read(data.cast::<c_int>())? } != 0;
        stored(socket).store(level, name, &(on as c_int).to_ne_bytes());
        publish(socket);
        if (level, name) == (IPPROTO_TCP, libc::TCP_CORK) {
            if on {
                socket.set(flag::CORKED);
            } else {
                socket.clear(flag::CORKED);
                crate::wait::uncork();
            }
        }
        return Ok(0);
    }
    if (level, name) == (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) && socket.family.load(Ordering::Relaxed) == libc::AF_INET6 {
        return Err(Errno(libc::EINVAL)); // a judge is not bound, and would allow it
    }
    match (level, name) {
        // What these do, only the kernel's own connection can: they are refused with errors that Linux has for them.
        (IPPROTO_TCP, libc::TCP_ULP) => return Err(Errno(libc::ENOENT)),
        (IPPROTO_TCP, libc::TCP_REPAIR) => return Err(Errno(libc::EPERM)),
        (SOL_SOCKET, libc::SO_ATTACH_FILTER | libc::SO_ATTACH_BPF) => return Err(Errno(libc::ENOMEM)),
        _ => {}
    }
    let judge = if is_simple(level, name) { Judge::fresh(socket)? } else { judge(socket)? };
    judge.set(level, name, data, length)?;
    if let Ok((mut bytes, length)) = judge.read(level, name) {
        if (level, name) == (SOL_SOCKET, libc::SO_LINGER) && integer(&bytes) == 0 {
            // Switching off leaves the time as it was; a judge that was never on does not know it.
            if let Some(entry) = stored(socket).find(level, name) {
                bytes[4..8].copy_from_slice(&entry.data[4..8]);
            }
        }
        stored(socket).store(level, name, &bytes[..length]);
        apply(socket, level, name, &bytes[..length]);
        for &(level, name) in changed_with(level, name) {
            if let (true, Ok((bytes, length))) = (stored(socket).find(level, name).is_some(), judge.read(level, name)) {
                stored(socket).store(level, name, &bytes[..length]);
            }
        }
        if (level, name) == (SOL_SOCKET, libc::SO_LINGER) {
            tell_linger(socket);
        }
        connected(socket, fd, false);
    }
    Ok(0)
}

/// bind(2) on a stream: never succeeds, and the kernel says why. A judge is connected, as the stream is.
pub fn refuse_bind(socket: &Socket, address: *const libc::sockaddr, length: socklen_t) -> Result<isize> {
    judge(socket)?.bind(address, length)?;
    Err(Errno(libc::EINVAL)) // it was not connected after all
}

/// getsockopt(2) on a stream.
///
/// # Safety
/// Pointers as the manual page asks.
pub unsafe fn get(socket: &Socket, fd: i32, level: c_int, name: c_int, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    // SAFETY: any address may be the program's.
    unsafe { user::read(length)? };
    catch_up(socket);
    // SAFETY: passed on.
    unsafe {
        let family = socket.family.load(Ordering::Relaxed);
        match (level, name) {
            (SOL_SOCKET, libc::SO_TYPE) => tell(libc::SOCK_STREAM, data, length),
            (SOL_SOCKET, libc::SO_DOMAIN) => tell(family, data, length),
            (SOL_SOCKET, libc::SO_PROTOCOL) => tell(IPPROTO_TCP, data, length),
            (SOL_SOCKET, libc::SO_ACCEPTCONN) => tell(0, data, length),
            (SOL_SOCKET, libc::SO_ERROR) => tell(pending_error(socket), data, length),
            (SOL_SOCKET, libc::SO_PEEK_OFF) => tell(socket.peek_offset.load(Ordering::Relaxed), data, length),
            (SOL_SOCKET, libc::SO_PEERCRED) => tell_bytes(&ucred_unknown(), data, length),
            (IPPROTO_TCP, libc::TCP_INFO) => info(socket, data, length),
            (SOL_SOCKET, SO_PEERNAME) => peer_name(socket, fd, data, length),
            (SOL_SOCKET, libc::SO_COOKIE) if stored(socket).find(level, name).is_none() => cookie(socket, fd, data, length),
            _ => {
                let kept = if (level, name) == (IPPROTO_TCP, libc::TCP_MAXSEG) { None } else { stored(socket).find(level, name) };
                if let Some(entry) = kept {
                    return tell_bytes(&entry.data[..entry.length as usize], data, length);
                }
                // A judge is bound, which says v6 only, and has dropped a segment of its own.
                let fresh = matches!((level, name), (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) | (SOL_SOCKET, SO_MEMINFO));
                let judge = if fresh { Judge::fresh(socket)? } else { judge(socket)? };
                judge.get(level, name, data, length)?;
                Ok(0)
            }
        }
    }
}

/// SO_PEERCRED of a TCP socket: nobody.
fn ucred_unknown() -> [u8; 12] {
    let mut bytes = [0xffu8; 12];
    bytes[..4].copy_from_slice(&[0; 4]);
    bytes
}

fn pending_error(socket: &Socket) -> c_int {
    let (peer, _) = socket.incoming().look();
    readiness::observe(socket, peer);
    readiness::take_error(socket).unwrap_or(0)
}

unsafe fn tell(value: c_int, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    // SAFETY: passed on.
    unsafe { tell_bytes(&value.to_ne_bytes(), data, length) }
}

unsafe fn tell_bytes(bytes: &[u8], data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    // SAFETY: promised by the caller of `get`.
    unsafe {
        let room = user::read(length)?;
        if (room as i32) < 0 {
            return Err(Errno(libc::EINVAL));
        }
        let room = (room as usize).min(bytes.len());
        user::copy_all(bytes.as_ptr(), data, room)?;
        user::write(length, room as socklen_t)?;
    }
    Ok(0)
}

/// TCP_INFO: a judge's, with what is true of the stream in its place.
unsafe fn info(socket: &Socket, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    let family = socket.family.load(Ordering::Relaxed);
    let list = stored(socket);
    let usual = list.entries[..list.count].iter().all(leaves_information);
    let (known, segment, mut bytes) = match information::remembered(family).filter(|_| usual) {
        Some(answer) => answer,
        None => {
            let mut bytes = [0u8; information::SIZE];
            let mut known = information::SIZE as socklen_t;
            let judge = judge(socket)?;
            judge.get(IPPROTO_TCP, libc::TCP_INFO, bytes.as_mut_ptr(), &mut known)?;
            let segment = judge.read(IPPROTO_TCP, libc::TCP_MAXSEG).map_or(0, |(bytes, _)| integer(&bytes).max(0) as u64);
            let answer = (known as usize, segment, bytes);
            if usual {
                information::remember(family, answer);
            }
            answer
        }
    };
    information::fill(socket, &mut bytes, segment);
    // SAFETY: passed on.
    unsafe { tell_bytes(&bytes[..known.min(information::SIZE)], data, length) }
}

/// The companion's cookie, which no other socket has at the same time, and the number of the connection that it serves:
/// companions serve several, one after the other.
unsafe fn cookie(socket: &Socket, fd: i32, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    let mut bytes = [0u8; 8];
    let mut size = 8;
    // SAFETY: passed on.
    unsafe {
        if user::read(length)? < size {
            return Err(Errno(libc::EINVAL));
        }
        calls::getsockopt(fd, SOL_SOCKET, libc::SO_COOKIE, bytes.as_mut_ptr().cast(), &mut size)?;
        let generation = socket.page().head.generation.load(Ordering::Relaxed) as u64;
        tell_bytes(&(u64::from_ne_bytes(bytes) ^ generation << 40).to_ne_bytes(), data, length)
    }
}

const SO_MEMINFO: c_int = 55;
const SO_PEERNAME: c_int = 28;

/// SO_PEERNAME: exactly as many bytes of the address as asked for (sk_getsockopt).
unsafe fn peer_name(socket: &Socket, fd: i32, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    let mut address = [0u64; 16];
    let mut size = 128;
    // SAFETY: the address fits; the rest is passed on.
    unsafe {
        crate::names::remote(socket, fd, address.as_mut_ptr().cast(), &mut size)?;
        let asked = user::read(length)?;
        if (asked as i32) < 0 || asked > size {
            return Err(Errno(libc::EINVAL));
        }
        let bytes = core::slice::from_raw_parts(address.as_ptr().cast::<u8>(), size as usize);
        tell_bytes(&bytes[..asked as usize], data, length)
    }
}
