//! Control messages that recvmsg(2) gives on a TCP socket: time stamps, TCP_INQ, and what the error queue holds.

use crate::error_queue;
use crate::socket::{flag, Socket};
use crate::waiting::wake;
use core::sync::atomic::Ordering;
use shunt_sys::libc::{self, c_int, cmsghdr, msghdr, timespec, timeval, SOL_SOCKET};
use shunt_sys::{user, Errno, Result};

/// Bits of [`Socket::control`]: which messages the program asked for.
pub mod ask {
    /// SO_TIMESTAMP or SO_TIMESTAMPNS.
    pub const TIME: u32 = 1;
    /// Of the two the one in nanoseconds.
    pub const TIME_NS: u32 = 2;
    /// SO_TIMESTAMPING with SOF_TIMESTAMPING_SOFTWARE.
    pub const TIMESTAMPING: u32 = 4;
    /// TCP_INQ.
    pub const INQ: u32 = 8;
    /// The numbers of the options with 64 bits of time everywhere (SO_TIMESTAMP_NEW and so on) were used.
    pub const NEW: u32 = 16;
    /// Some time is to be told.
    pub const ANY_TIME: u32 = TIME | TIMESTAMPING;
}

const SO_TIMESTAMP_NEW: c_int = 63;
const SO_TIMESTAMPNS_NEW: c_int = 64;
const SO_TIMESTAMPING_NEW: c_int = 65;
const TCP_INQ: c_int = 36;
const SOF_TIMESTAMPING_SOFTWARE: c_int = 1 << 4;
const IPV6_RECVERR: c_int = 25;

/// An option that asks for control messages was set to `value`.
pub fn note(socket: &Socket, level: c_int, name: c_int, value: c_int) {
    let on = value != 0;
    let (set, cleared) = match (level, name) {
        (SOL_SOCKET, libc::SO_TIMESTAMP) if on => (ask::TIME, ask::TIME_NS | ask::NEW),
        (SOL_SOCKET, libc::SO_TIMESTAMPNS) if on => (ask::TIME | ask::TIME_NS, ask::NEW),
        (SOL_SOCKET, SO_TIMESTAMP_NEW) if on => (ask::TIME | ask::NEW, ask::TIME_NS),
        (SOL_SOCKET, SO_TIMESTAMPNS_NEW) if on => (ask::TIME | ask::TIME_NS | ask::NEW, 0),
        (SOL_SOCKET, libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS | SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW) => {
            (0, ask::TIME | ask::TIME_NS)
        }
        (SOL_SOCKET, libc::SO_TIMESTAMPING) if value & SOF_TIMESTAMPING_SOFTWARE != 0 => (ask::TIMESTAMPING, ask::NEW),
        (SOL_SOCKET, SO_TIMESTAMPING_NEW) if value & SOF_TIMESTAMPING_SOFTWARE != 0 => (ask::TIMESTAMPING | ask::NEW, 0),
        (SOL_SOCKET, libc::SO_TIMESTAMPING | SO_TIMESTAMPING_NEW) => (0, ask::TIMESTAMPING),
        (libc::IPPROTO_TCP, TCP_INQ) if on => (ask::INQ, 0),
        (libc::IPPROTO_TCP, TCP_INQ) => (0, ask::INQ),
        _ => return,
    };
    socket.control.fetch_and(!cleared, Ordering::Relaxed);
    socket.control.fetch_or(set, Ordering::Relaxed);
}

/// The socket has become a stream, or an option of [`note`] has changed: the peer is told whether to note the time at
/// which it rings, and each of its messages is to ring.
pub fn announce(socket: &Socket, fd: i32) {
    let timed = socket.control.load(Ordering::Relaxed) & ask::ANY_TIME != 0;
    socket.own().asks_time.store(timed as u32, Ordering::Release);
    if timed {
        socket.set(flag::TIMESTAMPS);
        wake::arm_for_signals(socket, fd);
    } else {
        socket.clear(flag::TIMESTAMPS);
    }
}

/// Another owner of the side changed such an option, and has announced it.
pub fn follow(socket: &Socket) {
    if socket.control.load(Ordering::Relaxed) & ask::ANY_TIME != 0 {
        socket.set(flag::TIMESTAMPS);
    } else {
        socket.clear(flag::TIMESTAMPS);
    }
}

/// Writes control messages into a header's buffer.
pub struct Writer<'a> {
    message: &'a mut msghdr,
    room: usize,
    used: usize,
}

impl<'a> Writer<'a> {
    /// For a header whose buffer is the caller's.
    pub fn new(message: &'a mut msghdr) -> Writer<'a> {
        let room = if message.msg_control.is_null() { 0 } else { message.msg_controllen };
        Writer { message, room, used: 0 }
    }

    /// Adds a message (put_cmsg): what has no room is cut off, and MSG_CTRUNC says so.
    ///
    /// # Safety
    /// The header's control buffer is writable.
    pub unsafe fn put(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        const HEADER: usize = core::mem::size_of::<cmsghdr>();
        let left = self.room - self.used;
        let length = HEADER + data.len();
        if left < HEADER {
            self.message.msg_flags |= libc::MSG_CTRUNC;
            return;
        }
        let kept = length.min(left);
        if kept < length {
            self.message.msg_flags |= libc::MSG_CTRUNC;
        }
        let header = cmsghdr { cmsg_len: kept, cmsg_level: level, cmsg_type: kind };
        // SAFETY: `left` bytes of the buffer are free, and `kept` is no more.
        unsafe {
            // A message that faults is left out (put_cmsg's callers do not look).
            let at = self.message.msg_control.cast::<u8>().wrapping_add(self.used);
            let told = user::write(at.cast(), header);
            if told.and(user::copy_all(data.as_ptr(), at.wrapping_add(HEADER), kept - HEADER)).is_err() {
                return;
            }
        }
        self.used += ((kept + 7) & !7).min(left);
    }

    /// The header's fields, when all is written.
    pub fn finish(self) {
        self.message.msg_controllen = self.used;
    }
}

fn words<const N: usize>(list: [i64; N]) -> [[u8; 8]; N] {
    list.map(i64::to_ne_bytes)
}

/// What comes with bytes that were received (tcp_recv_timestamp, TCP_CM_INQ).
///
/// # Safety
/// As for [`Writer::put`].
pub unsafe fn with_bytes(socket: &Socket, got: usize, writer: &mut Writer) {
    let asked = socket.control.load(Ordering::Relaxed);
    let at = socket.peer().rung_at.load(Ordering::Acquire);
    let (seconds, ns) = ((at / 1_000_000_000) as i64, (at % 1_000_000_000) as i64);
    let new = asked & ask::NEW != 0;
    // SAFETY: passed on.
    unsafe {
        if asked & ask::TIME != 0 && at != 0 && got > 0 {
            let (name, fraction) = match (asked & ask::TIME_NS != 0, new) {
                (true, false) => (libc::SO_TIMESTAMPNS, ns),
                (true, true) => (SO_TIMESTAMPNS_NEW, ns),
                (false, false) => (libc::SO_TIMESTAMP, ns / 1000),
                (false, true) => (SO_TIMESTAMP_NEW, ns / 1000),
            };
            const _: () = assert!(size_of::<timeval>() == 16 && size_of::<timespec>() == 16);
            writer.put(SOL_SOCKET, name, words([seconds, fraction]).as_flattened());
        }
        if asked & ask::TIMESTAMPING != 0 && at != 0 && got > 0 {
            let name = if new { SO_TIMESTAMPING_NEW } else { libc::SO_TIMESTAMPING };
            writer.put(SOL_SOCKET, name, words([seconds, ns, 0, 0, 0, 0]).as_flattened());
        }
        if asked & ask::INQ != 0 {
            let (_, waiting) = socket.incoming().look();
            // Behind the peer's end one more byte than there is tells the program to read on (tcp_inq_hint).
            let hint = if waiting == 0 && crate::waiting::readiness::ended(socket) { 1 } else { waiting };
            writer.put(libc::IPPROTO_TCP, TCP_INQ, &(hint as c_int).to_ne_bytes());
        }
    }
}

/// recvmsg with MSG_ERRQUEUE (ip_recv_error): the extended error, and room for the address of an offender, of whom there
/// is none.
///
/// # Safety
/// As for [`Writer::put`].
pub unsafe fn from_error_queue(socket: &Socket, message: &mut msghdr) -> Result<isize> {
    let error = error_queue::take(socket).ok_or(Errno(libc::EAGAIN))?;
    let v4 = socket.family.load(Ordering::Relaxed) == libc::AF_INET;
    let mut data = [0u8; 16 + 28];
    // SAFETY: the structure is 16 plain bytes.
    data[..16].copy_from_slice(&unsafe { core::mem::transmute::<libc::sock_extended_err, [u8; 16]>(error) });
    let (level, kind, length) =
        if v4 { (libc::IPPROTO_IP, libc::IP_RECVERR, 16 + 16) } else { (libc::IPPROTO_IPV6, IPV6_RECVERR, 16 + 28) };
    message.msg_flags = libc::MSG_ERRQUEUE;
    message.msg_namelen = 0;
    let mut writer = Writer::new(message);
    // SAFETY: passed on.
    unsafe { writer.put(level, kind, &data[..length]) };
    writer.finish();
    Ok(0)
}
