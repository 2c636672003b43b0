//! A connection out of the kernel's socket and back into it (tcp(7), TCP_REPAIR).
//!
//! **Out:** the socket gets a filter that drops every segment *before* its state is read: one that the kernel acknowledged after that
//! would be lost, and one that the filter drops is sent again. Then it is put into repair, in which it sends nothing, and read.
//!
//! **Back:** connect(2) to no address dissolves the connection without a word; its numbers are set while there is none, and connect(2) to
//! the peer makes it established at once. Options are refused once bytes were put; windows are judged against the numbers behind them.
//! Hence the order of [`restore`].
//!
//! All that a socket has stays: its number, its options, its place in `ss`. What the kernel had learned of the path is gone; it begins with
//! ten packets.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use shunt_inet::{Clock, Seq, State};
use shunt_sys::{calls, Errno};
use shunt_xdp::escrow::{Escrow, Ring, Statement};
use shunt_xdp::protocol::Decline;

use super::eligible::{option, standing, Info, Name, SELECTIVE, TIMESTAMPS};

const OFF: i32 = 0;
const ON: i32 = 1;
/// Without the probe by which the peer is told where things stand.
const OFF_SILENTLY: i32 = -1;
const QUEUE_NONE: i32 = 0;
const QUEUE_RECEIVE: i32 = 1;
const QUEUE_SEND: i32 = 2;
const SO_BUF_LOCK: i32 = 72;

/// What a socket is given again beside its connection.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Kept {
    /// Both addresses: ours, the peer's.
    pub names: [Name; 2],
    /// SO_KEEPALIVE, whose probes would carry old numbers meanwhile.
    keepalive: i32,
    /// SO_REUSEADDR, which repair takes away.
    reuse: i32,
    /// Both buffers' sizes, and which of them the program has set.
    buffers: [i32; 2],
    locked: i32,
}

/// `struct tcp_repair_window`.
#[repr(C)]
struct Window {
    told: u32,
    window: u32,
    largest: u32,
    promised: u32,
    promised_from: u32,
}

fn set(fd: RawFd, name: i32, value: i32) -> Result<(), i32> {
    calls::setsockopt_int(fd, libc::IPPROTO_TCP, name, value).map_err(|errno| errno.0)
}

fn set_socket(fd: RawFd, name: i32, value: i32) {
    let _ = calls::setsockopt_int(fd, libc::SOL_SOCKET, name, value);
}

fn get(fd: RawFd, name: i32) -> Result<i32, i32> {
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

impl Kept {
    /// Of a socket that is the kernel's.
    pub fn of(socket: BorrowedFd<'_>, names: [Name; 2]) -> Kept {
        let number = |name| option(socket.as_raw_fd(), libc::SOL_SOCKET, name).unwrap_or(0);
        Kept {
            names,
            keepalive: number(libc::SO_KEEPALIVE),
            reuse: number(libc::SO_REUSEADDR),
            buffers: [libc::SO_SNDBUF, libc::SO_RCVBUF].map(number),
            locked: number(SO_BUF_LOCK),
        }
    }
}

/// Reads the connection out of a socket that is shut, into the escrow. The socket is in repair from then on, also on failure.
///
/// `frame`: bytes of the longest packet that can be sent.
pub fn read_out(socket: BorrowedFd<'_>, escrow: &Escrow, frame: u32, now: u64) -> Result<(), Decline> {
    let fd = socket.as_raw_fd();
    set(fd, libc::TCP_REPAIR, ON).map_err(|_| Decline::Kernel)?;
    set_socket(fd, libc::SO_KEEPALIVE, 0);
    read(fd, escrow, frame, now)
}

/// Undoes what was done to a socket whose connection was not read out.
pub fn unwind(socket: BorrowedFd<'_>, kept: &Kept) {
    let fd = socket.as_raw_fd();
    unshut(socket);
    if get(fd, libc::TCP_REPAIR) == Ok(ON) {
        let _ = set(fd, libc::TCP_REPAIR, OFF_SILENTLY);
        settle(fd, kept);
    }
}

fn read(fd: RawFd, escrow: &Escrow, frame: u32, now: u64) -> Result<(), Decline> {
    let kernel = |_| Decline::Kernel;
    // A segment may have come between the look and the filter.
    let info = Info::of(fd).map_err(kernel)?;
    standing(fd, &info)?;
    set(fd, libc::TCP_REPAIR_QUEUE, QUEUE_SEND).map_err(kernel)?;
    let sent = Seq(get(fd, libc::TCP_QUEUE_SEQ).map_err(kernel)? as u32);
    set(fd, libc::TCP_REPAIR_QUEUE, QUEUE_RECEIVE).map_err(kernel)?;
    let expected = Seq(get(fd, libc::TCP_QUEUE_SEQ).map_err(kernel)? as u32);
    let mut window = Window { told: 0, window: 0, largest: 0, promised: 0, promised_from: 0 };
    let mut size = size_of_val(&window) as u32;
    calls::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW, (&raw mut window).cast(), &mut size)
        .map_err(|_| Decline::Kernel)?;
    let waiting = calls::bytes_waiting(fd).map_err(|_| Decline::Kernel)?;
    if waiting > escrow.sizes().1 {
        return Err(Decline::Unread);
    }
    let unread = Seq(expected.0.wrapping_sub(waiting));
    let mut bytes = vec![0; waiting as usize];
    if waiting > 0 {
        // Without MSG_PEEK: EPERM.
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let no = std::ptr::null_mut();
        let count = calls::recvfrom(fd, bytes.as_mut_ptr().cast(), bytes.len(), flags, no, std::ptr::null_mut());
        if count != Ok(bytes.len()) {
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
    let state = State {
        unacknowledged: sent,
        sent,
        expected,
        segment: info.segment.min(frame.saturating_sub(shunt_xdp::tcp::LONGEST as u32)),
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
    escrow.open(&Statement { state, written: sent, unread });
    Ok(())
}

/// Why a connection is not in its socket again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The step.
    pub step: &'static str,
    /// What the kernel said to it.
    pub errno: i32,
}

impl Refused {
    /// Whether a later attempt may do better: there is no way to the peer now, or the address is away.
    pub fn is_passing(&self) -> bool {
        matches!(
            self.errno,
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EADDRNOTAVAIL | libc::ENOBUFS | libc::ENOMEM
        )
    }
}

/// Writes the connection back, as the escrow's last statement has it, with all bytes of the rings. The socket goes on by itself when this
/// returns, but for segments that are steered elsewhere still.
///
/// # Errors
/// The step that was refused. If that [passes](Refused::is_passing) the socket is in repair still, for another attempt; else, or if this was
/// to be the last one, it is closed, as after a reset.
pub fn restore(socket: BorrowedFd<'_>, kept: &Kept, escrow: &Escrow, now: u64, is_last: bool) -> Result<(), Refused> {
    let fd = socket.as_raw_fd();
    let statement = escrow.close();
    let written = if statement.is_sound(escrow.sizes()) {
        write_back(fd, kept, escrow, &statement, now).map_err(|(step, errno)| Refused { step, errno })
    } else {
        // Its own process could make it so.
        Err(Refused { step: "believe the escrow", errno: libc::EINVAL })
    };
    match written {
        Err(refused) if refused.is_passing() && !is_last => return written,
        // What is left is a socket without a connection: calls on it tell of its end.
        Err(_) => dissolve(socket, kept),
        Ok(()) => {}
    }
    escrow.mark_restored();
    written
}

fn dissolve(socket: BorrowedFd<'_>, kept: &Kept) {
    let fd = socket.as_raw_fd();
    let nobody = [0u8; 16];
    let _ = calls::connect(fd, nobody.as_ptr().cast(), 16);
    let _ = set(fd, libc::TCP_REPAIR, OFF_SILENTLY);
    unshut(socket);
    settle(fd, kept);
}

fn write_back(fd: RawFd, kept: &Kept, escrow: &Escrow, statement: &Statement, now: u64) -> Result<(), (&'static str, i32)> {
    let state = &statement.state;
    let (held, sent, unread) = statement.bytes();
    let at = |step| move |errno: i32| (step, errno);
    let call = |step| move |errno: Errno| (step, errno.0);
    // In repair: the largest packet that the peer takes, time stamps included.
    let clamp = get(fd, libc::TCP_MAXSEG).map_err(at("ask for the largest segment"))?;
    // In repair this dissolves the connection without a reset; it leaves ECONNABORTED behind, which is not the program's.
    let nobody = [0u8; 16];
    calls::connect(fd, nobody.as_ptr().cast(), 16).map_err(call("dissolve"))?;
    let _ = option(fd, libc::SOL_SOCKET, libc::SO_ERROR);
    for (queue, first) in [(QUEUE_SEND, state.unacknowledged), (QUEUE_RECEIVE, statement.unread)] {
        set(fd, libc::TCP_REPAIR_QUEUE, queue).map_err(at("choose a queue"))?;
        set(fd, libc::TCP_QUEUE_SEQ, first.0 as i32).map_err(at("number a queue"))?;
    }
    let [ours, theirs] = &kept.names;
    // A socket that the program has bound keeps its port, and says EINVAL.
    match calls::bind(fd, ours.bytes.as_ptr().cast(), ours.length) {
        Ok(()) | Err(Errno(libc::EINVAL)) => {}
        Err(errno) => return Err(("bind", errno.0)),
    }
    calls::connect(fd, theirs.bytes.as_ptr().cast(), theirs.length).map_err(call("connect"))?;
    options(fd, clamp, state).map_err(at("set options"))?;
    if let Some((clock, _)) = state.timestamps {
        // The lowest bit says that the clock counts microseconds; rounded up, it does not run back.
        let value = clock.value(now).wrapping_add(1) & !1;
        set(fd, libc::TCP_TIMESTAMP, value as i32).map_err(at("set the clock"))?;
    }
    // What a buffer may hold is the program's affair again behind this.
    let roomy = [(libc::SO_SNDBUFFORCE, held), (libc::SO_RCVBUFFORCE, unread)];
    for (name, bytes) in roomy.into_iter().filter(|(_, bytes)| *bytes > 0) {
        set_socket(fd, name, (2 * bytes as i32).max(256 << 10));
    }
    let mut bytes = vec![0; held.max(unread) as usize];
    put(fd, escrow, (Ring::Receive, QUEUE_RECEIVE), statement.unread, &mut bytes[..unread as usize])?;
    put(fd, escrow, (Ring::Send, QUEUE_SEND), state.unacknowledged, &mut bytes[..sent as usize])?;
    set(fd, libc::TCP_REPAIR_QUEUE, QUEUE_NONE).map_err(at("choose a queue"))?;
    let window = Window {
        told: state.window_told.0,
        window: state.window,
        largest: state.largest_window,
        promised: state.promised,
        promised_from: state.promised_from.0,
    };
    calls::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW, (&raw const window).cast(), size_of_val(&window) as u32)
        .map_err(call("set windows"))?;
    // Before the repair ends, so that what answers its probe is not dropped.
    set_socket(fd, libc::SO_DETACH_FILTER, 0);
    set(fd, libc::TCP_REPAIR, OFF).map_err(at("end the repair"))?;
    // Bytes that never left: as if the program wrote them now.
    let unsent = &mut bytes[..(held - sent) as usize];
    escrow.get(Ring::Send, state.sent, unsent);
    let mut rest = &*unsent;
    while !rest.is_empty() {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let count = calls::sendto(fd, rest.as_ptr().cast(), rest.len(), flags, std::ptr::null(), 0).map_err(call("send"))?;
        rest = &rest[count..];
    }
    settle(fd, kept);
    Ok(())
}

/// The options that were agreed upon when the connection was made.
fn options(fd: RawFd, clamp: i32, state: &State) -> Result<(), i32> {
    const SEGMENT: u32 = 2;
    const SCALE: u32 = 3;
    const SELECTIVE_PERMITTED: u32 = 4;
    const CLOCK: u32 = 8;
    let mut all = vec![[SEGMENT, clamp as u32]];
    // Scales of 0 both ways: either none was agreed upon, or that is what it means.
    if state.scale != 0 || state.own_scale != 0 {
        all.push([SCALE, u32::from(state.scale) | u32::from(state.own_scale) << 16]);
    }
    all.extend(state.selective.then_some([SELECTIVE_PERMITTED, 0]));
    all.extend(state.timestamps.is_some().then_some([CLOCK, 0]));
    let size = size_of_val(all.as_slice()) as u32;
    calls::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR_OPTIONS, all.as_ptr().cast(), size).map_err(|errno| errno.0)
}

fn put(fd: RawFd, escrow: &Escrow, (ring, queue): (Ring, i32), from: Seq, bytes: &mut [u8]) -> Result<(), (&'static str, i32)> {
    if bytes.is_empty() {
        return Ok(());
    }
    set(fd, libc::TCP_REPAIR_QUEUE, queue).map_err(|errno| ("choose a queue", errno))?;
    escrow.get(ring, from, bytes);
    let mut rest = &*bytes;
    while !rest.is_empty() {
        let piece = &rest[..rest.len().min(16 << 10)];
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let count = calls::sendto(fd, piece.as_ptr().cast(), piece.len(), flags, std::ptr::null(), 0);
        rest = &rest[count.map_err(|errno| ("fill a queue", errno.0))?..];
    }
    Ok(())
}

/// What repair and its ways have changed of a socket's options.
fn settle(fd: RawFd, kept: &Kept) {
    set_socket(fd, libc::SO_REUSEADDR, kept.reuse);
    if kept.keepalive != 0 {
        set_socket(fd, libc::SO_KEEPALIVE, 1);
    }
    for (index, (get, force)) in
        [(libc::SO_SNDBUF, libc::SO_SNDBUFFORCE), (libc::SO_RCVBUF, libc::SO_RCVBUFFORCE)].into_iter().enumerate()
    {
        let was = kept.buffers[index];
        // One that is tuned by the kernel may be as large as it has become.
        if kept.locked & 1 << index != 0 && option(fd, libc::SOL_SOCKET, get) != Ok(was) {
            set_socket(fd, force, was / 2);
        }
    }
    if option(fd, libc::SOL_SOCKET, SO_BUF_LOCK) != Ok(kept.locked) {
        set_socket(fd, SO_BUF_LOCK, kept.locked);
    }
}

/// A connection that was taken, as far as it is needed to give it back.
pub struct Held {
    /// The socket, in repair.
    pub socket: OwnedFd,
    /// Where its state is.
    pub escrow: Escrow,
    /// What it is given again.
    pub kept: Kept,
}

impl Held {
    /// Gives it back; see [`restore`]. One that was not taken yet is as it was before.
    pub fn restore(&self, is_last: bool) -> Result<(), Refused> {
        if !self.escrow.is_open() {
            unwind(self.socket.as_fd(), &self.kept);
            self.escrow.mark_restored();
            return Ok(());
        }
        restore(self.socket.as_fd(), &self.kept, &self.escrow, shunt_sys::clock::monotonic_ns(), is_last)
    }
}
