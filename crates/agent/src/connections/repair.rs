//! A connection out of the kernel's socket (tcp(7), TCP_REPAIR).
//!
//! The socket gets a filter that drops every segment *before* its state is read: one that the kernel acknowledged after that would be lost, and
//! one that the filter drops is sent again. Then it is put into repair, in which it sends nothing, read, told that the peer's window is closed,
//! and taken out of repair:
//!
//! | while it is taken | the socket |
//! |---|---|
//! | repair | off: its holders have the powers over it that every program has |
//! | segments | the filter drops them |
//! | bytes to be read | none: they are the escrow's; a call waits |
//! | bytes that another holder writes, its shutdown(2) | wait for the peer's window, and are sent behind the others at the give-back |
//! | what it sends by itself | at most acknowledgements and probes with old numbers, which the peer answers and passes over |
//!
//! A segment that another processor had let past the filter when that was attached may be taken by the socket still: its bytes are found there at the
//! give-back ([`super::restore`]), and the agent is told of them by epoll(7).

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use shunt_inet::{Clock, Seq, State};
use shunt_sys::calls;
use shunt_xdp::escrow::{Escrow, Ring, Statement};
use shunt_xdp::packet::ETHERNET;
use shunt_xdp::protocol::Decline;

use super::eligible::{option, standing, Info, SELECTIVE, TIMESTAMPS};
use super::kept::Kept;

pub(super) const OFF: i32 = 0;
pub(super) const ON: i32 = 1;
/// Without the probe by which the peer is told where things stand.
pub(super) const OFF_SILENTLY: i32 = -1;
pub(super) const QUEUE_NONE: i32 = 0;
pub(super) const QUEUE_RECEIVE: i32 = 1;
pub(super) const QUEUE_SEND: i32 = 2;

/// A state of TCP (`include/net/tcp_states.h`).
pub(super) const CLOSED: u8 = 7;

/// Bytes that time stamps take in a header.
const STAMPS: u32 = 12;

/// `struct tcp_repair_window`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Window {
    pub told: u32,
    pub window: u32,
    pub largest: u32,
    pub promised: u32,
    pub promised_from: u32,
}

impl Window {
    fn of(fd: RawFd) -> Result<Window, i32> {
        let mut window = Window::default();
        let mut size = size_of_val(&window) as u32;
        calls::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW, (&raw mut window).cast(), &mut size)
            .map(|()| window)
            .map_err(|errno| errno.0)
    }

    pub(super) fn tell(&self, fd: RawFd) -> Result<(), i32> {
        let size = size_of_val(self) as u32;
        calls::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW, (&raw const *self).cast(), size)
            .map_err(|errno| errno.0)
    }

    /// The peer takes nothing.
    pub(super) fn closed(self) -> Window {
        Window { window: 0, ..self }
    }
}

pub(super) fn set(fd: RawFd, name: i32, value: i32) -> Result<(), i32> {
    calls::setsockopt_int(fd, libc::IPPROTO_TCP, name, value).map_err(|errno| errno.0)
}

pub(super) fn set_socket(fd: RawFd, name: i32, value: i32) {
    let _ = calls::setsockopt_int(fd, libc::SOL_SOCKET, name, value);
}

pub(super) fn get(fd: RawFd, name: i32) -> Result<i32, i32> {
    option(fd, libc::IPPROTO_TCP, name)
}

/// From now on no segment gets into the socket.
pub fn shut(socket: BorrowedFd<'_>) -> Result<(), i32> {
    let mut nothing = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &mut nothing };
    let (value, size) = ((&raw const program).cast(), size_of_val(&program) as u32);
    calls::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, size).map_err(|errno| errno.0)
}

/// Undoes [`shut`].
pub fn unshut(socket: BorrowedFd<'_>) {
    set_socket(socket.as_raw_fd(), libc::SO_DETACH_FILTER, 0);
}

/// Reads the connection out of a socket that is shut, into the escrow. On failure it is to be given back, by [`super::restore::Held::restore`].
///
/// `frame`: bytes of the longest packet that can be sent.
pub fn read_out(socket: BorrowedFd<'_>, kept: &Kept, escrow: &Escrow, frame: u32, now: u64) -> Result<(), Decline> {
    let fd = socket.as_raw_fd();
    kept.silence(fd);
    set(fd, libc::TCP_REPAIR, ON).map_err(|_| Decline::Kernel)?;
    let (statement, window) = read(fd, kept, escrow, frame, now)?;
    // From here on it is as if it had been driven already, for the process that gives it back.
    escrow.open(&statement);
    window.closed().tell(fd).map_err(|_| Decline::Kernel)?;
    leave(fd, kept, OFF_SILENTLY).map_err(|_| Decline::Ended)?;
    let unread = statement.bytes().2;
    let left = drain(fd, unread);
    if left > 0 {
        // Another holder has read these, the first of them, just now.
        escrow.open(&Statement { unread: statement.unread.plus(left), ..statement });
    }
    // Something has slipped past the filter, or another holder has written.
    standing(fd, &Info::of(fd).map_err(|_| Decline::Kernel)?)?;
    match calls::bytes_waiting(fd) {
        Ok(0) => Ok(()),
        _ => Err(Decline::Unacknowledged),
    }
}

/// Takes so many bytes from the socket, which are elsewhere now; tells how many were not there.
fn drain(fd: RawFd, mut bytes: u32) -> u32 {
    while bytes > 0 {
        let (flags, no) = (libc::MSG_TRUNC | libc::MSG_DONTWAIT, std::ptr::null_mut());
        // MSG_TRUNC: nothing is copied (tcp(7)).
        match calls::recvfrom(fd, std::ptr::null_mut(), bytes as usize, flags, no, std::ptr::null_mut()) {
            Ok(count) if count > 0 => bytes -= (count as u32).min(bytes),
            _ => break,
        }
    }
    bytes
}

/// Undoes what was done to a socket whose connection was not read out.
pub fn unwind(socket: BorrowedFd<'_>, kept: &Kept) {
    let fd = socket.as_raw_fd();
    unshut(socket);
    if get(fd, libc::TCP_REPAIR) == Ok(ON) {
        let _ = leave(fd, kept, OFF_SILENTLY);
    }
    kept.settle(fd);
}

/// Ends the repair. Every holder of the descriptor had its powers until now: a socket that is connected to another, perhaps without a handshake, is
/// dissolved.
pub(super) fn leave(fd: RawFd, kept: &Kept, how: i32) -> Result<(), i32> {
    let left = end(fd, how);
    kept.allow_reuse(fd);
    if !kept.has_names(fd) && !is_closed(fd) {
        let nobody = [0u8; 16];
        let _ = calls::connect(fd, nobody.as_ptr().cast(), 16);
        return Err(libc::ENOTCONN);
    }
    left
}

/// Switches repair off. In a socket that listens that is refused, and one that was made to listen in repair keeps its powers, at a port that may be
/// another's: so what listens is dissolved first, as often as its holder makes it listen again in between.
pub(super) fn end(fd: RawFd, how: i32) -> Result<(), i32> {
    /// Either's next call is as likely to come first: more than a few are wasted on a holder of privilege alone, which needs no such way.
    const ATTEMPTS: u32 = 100_000;
    let mut ended = set(fd, libc::TCP_REPAIR, how);
    for _ in 0..ATTEMPTS {
        if ended.is_ok() || get(fd, libc::TCP_REPAIR) != Ok(ON) {
            break;
        }
        let nobody = [0u8; 16];
        let _ = calls::connect(fd, nobody.as_ptr().cast(), 16);
        ended = set(fd, libc::TCP_REPAIR, how);
    }
    ended
}

/// Whether it has no connection.
pub(super) fn is_closed(fd: RawFd) -> bool {
    Info::of(fd).is_ok_and(|info| info.state == CLOSED)
}

fn read(fd: RawFd, kept: &Kept, escrow: &Escrow, frame: u32, now: u64) -> Result<(Statement, Window), Decline> {
    let kernel = |_| Decline::Kernel;
    // A segment may have come between the look and the filter.
    let info = Info::of(fd).map_err(kernel)?;
    standing(fd, &info)?;
    set(fd, libc::TCP_REPAIR_QUEUE, QUEUE_SEND).map_err(kernel)?;
    let sent = Seq(get(fd, libc::TCP_QUEUE_SEQ).map_err(kernel)? as u32);
    set(fd, libc::TCP_REPAIR_QUEUE, QUEUE_RECEIVE).map_err(kernel)?;
    let expected = Seq(get(fd, libc::TCP_QUEUE_SEQ).map_err(kernel)? as u32);
    let window = Window::of(fd).map_err(kernel)?;
    let waiting = calls::bytes_waiting(fd).map_err(|_| Decline::Kernel)?;
    if waiting > escrow.sizes().1 {
        return Err(Decline::Unread);
    }
    let unread = Seq(expected.0.wrapping_sub(waiting));
    if waiting > 0 {
        let mut bytes = vec![0; waiting as usize];
        if peek(fd, &mut bytes) != Ok(bytes.len()) {
            return Err(Decline::Urgent);
        }
        escrow.put(Ring::Receive, unread, &bytes);
    }
    let timestamps = if info.options & TIMESTAMPS != 0 {
        let value = get(fd, libc::TCP_TIMESTAMP).map_err(kernel)? as u32;
        Some((Clock { value, at: now }, None))
    } else {
        None
    };
    set(fd, libc::TCP_REPAIR_QUEUE, QUEUE_NONE).map_err(kernel)?;
    let headers = if kept.names[1].decoded().is_some_and(|(address, _)| address.is_ipv4()) { 40 } else { 60 };
    let mut segment = info.segment;
    if timestamps.is_none() {
        // A socket that was given back once says less, by what time stamps take, and sends that much more than it says.
        let whole = (get(fd, libc::TCP_MAXSEG).map_err(kernel)? as u32).min(info.path.saturating_sub(headers));
        segment = whole.clamp(segment, segment + STAMPS);
    }
    // Segments with bytes have no other options.
    let fits = frame.saturating_sub(ETHERNET as u32 + headers + if timestamps.is_some() { STAMPS } else { 0 });
    let state = State {
        unacknowledged: sent,
        sent,
        expected,
        segment: segment.min(fits),
        window_told: Seq(window.told),
        window: window.window,
        largest_window: window.largest.max(window.window),
        promised: window.promised,
        promised_from: Seq(window.promised_from),
        scale: info.scales.0,
        own_scale: info.scales.1,
        selective: info.options & SELECTIVE != 0,
        timestamps,
        round_trip: (u64::from(info.round_trip.0) * 1000, u64::from(info.round_trip.1) * 1000),
    };
    Ok((Statement { state, written: sent, unread }, window))
}

/// A look at the queue that was chosen, in repair. Without MSG_PEEK: EPERM.
pub(super) fn peek(fd: RawFd, bytes: &mut [u8]) -> Result<usize, i32> {
    let (flags, no) = (libc::MSG_PEEK | libc::MSG_DONTWAIT, std::ptr::null_mut());
    calls::recvfrom(fd, bytes.as_mut_ptr().cast(), bytes.len(), flags, no, std::ptr::null_mut()).map_err(|errno| errno.0)
}
