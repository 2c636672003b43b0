//! A connection back into its socket (tcp(7), TCP_REPAIR).
//!
//! connect(2) to no address dissolves the connection without a word; its numbers are set while there is none, and connect(2) to the peer makes it
//! established at once. Options are refused once bytes were put; windows are judged against the numbers behind them. Hence the order of `rebuild`.
//!
//! **All or nothing.** Bytes that never left are written as the program would write them, while the peer's window is said to be closed; so whatever step
//! fails, nothing has left, and all of it can be done again. The window is told last.
//!
//! All that a socket has stays: its number, its options, its place in `ss`. What the kernel had learned of the path is gone; it begins with
//! ten packets.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use shunt_inet::{Seq, State};
use shunt_sys::{calls, Errno};
use shunt_xdp::escrow::{Escrow, Ring, Statement};

use super::eligible::{option, Info};
use super::kept::Kept;
use super::repair::{
    end, get, is_closed, leave, peek, set, unshut, unwind, Window, CLOSED, OFF, OFF_SILENTLY, ON, QUEUE_NONE, QUEUE_RECEIVE,
    QUEUE_SEND,
};

/// Why a connection is not in its socket again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The step.
    pub step: &'static str,
    /// What the kernel said to it.
    pub errno: i32,
}

impl Refused {
    /// Whether a later attempt may do better: there is no way to the peer now, the address is away, or memory is short.
    pub fn is_passing(&self) -> bool {
        use libc::{EADDRNOTAVAIL, EAGAIN, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENOBUFS, ENOMEM};
        // A route says that there is none (ip-route(8), `blackhole` and `prohibit`): EINVAL and EACCES.
        let is_forbidden = self.step == "connect" && [libc::EINVAL, libc::EACCES].contains(&self.errno);
        is_forbidden || [ENETUNREACH, EHOSTUNREACH, ENETDOWN, EADDRNOTAVAIL, ENOBUFS, ENOMEM, EAGAIN].contains(&self.errno)
    }
}

/// What became of the socket itself meanwhile, by other holders of it and by segments that had been past the filter.
#[derive(Default)]
struct Beside {
    /// The place behind all that came to it, and those bytes that are there still.
    received: Option<(Seq, Vec<u8>)>,
    /// Bytes that others wrote.
    written: Vec<u8>,
    /// shutdown(2), or the peer's end: of reading, of writing.
    ended: [bool; 2],
}

/// States of TCP (`include/net/tcp_states.h`).
const ESTABLISHED: u8 = 1;
/// In these the peer has ended; in those this side has.
const ENDED_THERE: [u8; 3] = [8, 9, 11];
const ENDED_HERE: [u8; 4] = [4, 5, 9, 11];

/// A connection that was taken, as far as it is needed to give it back.
pub struct Held {
    /// The socket.
    pub socket: OwnedFd,
    /// Where its state is.
    pub escrow: Escrow,
    /// What it is given again.
    pub kept: Kept,
    beside: Option<Beside>,
    begun: bool,
    inherited: bool,
}

impl Held {
    /// Of a socket that is the kernel's still.
    pub fn new(socket: OwnedFd, escrow: Escrow, kept: Kept) -> Held {
        Held { socket, escrow, kept, beside: None, begun: false, inherited: false }
    }

    /// Another process may have been killed while it gave the connection back: to be called once before [`Held::restore`] goes on with that.
    pub fn take_over(&mut self) {
        self.inherited = true;
        if self.escrow.is_begun() {
            (self.begun, self.beside) = (true, Some(Beside::default()));
        }
    }

    /// Writes the connection back, as the escrow's last statement has it, with all bytes of the rings. The socket goes on by itself when this
    /// returns, but for segments that are steered elsewhere still. One that was not taken yet is as it was before, and one that was given
    /// back stays.
    ///
    /// # Errors
    /// The step that was refused. If that [passes](Refused::is_passing) the socket sends and hears nothing still, for another attempt; else, or if
    /// this was to be the last one, it is closed, as after a reset.
    pub fn restore(&mut self, is_last: bool) -> Result<(), Refused> {
        if self.escrow.is_restored() {
            return Ok(());
        }
        if !self.escrow.is_open() {
            unwind(self.socket.as_fd(), &self.kept);
            self.escrow.mark_restored();
            return Ok(());
        }
        let (fd, now) = (self.socket.as_raw_fd(), super::now_ns());
        // By its driver, which hands on what comes meanwhile.
        let is_asked = self.escrow.is_closed() && !self.begun && !self.inherited;
        let statement = self.escrow.close();
        let written = if self.begun && !has_filter(fd) {
            finish(fd, &self.kept, OFF).map_err(Refused::of)
        } else if !statement.is_sound(self.escrow.sizes()) {
            // Its own process could make it so.
            let _ = set(fd, libc::TCP_REPAIR, ON);
            Err(Refused { step: "believe the escrow", errno: libc::EINVAL })
        } else if !self.is_there() {
            // What the socket is now is its holder's affair; the peer hears of the end.
            reset(&self.kept, &statement, now);
            if get(fd, libc::TCP_REPAIR) == Ok(ON) {
                // It was changed in the moment of the reading.
                let _ = leave(fd, &self.kept, OFF_SILENTLY);
            }
            unshut(self.socket.as_fd());
            self.kept.settle(fd);
            self.escrow.mark_restored();
            return Err(Refused { step: "find the connection", errno: libc::ENOTCONN });
        } else {
            self.write_back(&statement, is_asked, now).map_err(Refused::of)
        };
        match written {
            // Nobody has repair's powers while it waits.
            Err(refused) if refused.is_passing() && !is_last && leave(fd, &self.kept, OFF_SILENTLY).is_ok() => return written,
            // What is left is a socket without a connection: calls on it tell of its end.
            Err(_) => dissolve(self.socket.as_fd(), &self.kept),
            Ok(()) => {}
        }
        self.escrow.mark_restored();
        written
    }

    /// Whether the socket has the connection still that was taken, or none because an attempt to give it back came so far. Another holder may
    /// have dissolved it, or the kernel, for a reset that had been past the filter.
    fn is_there(&self) -> bool {
        let fd = self.socket.as_raw_fd();
        let is_alive = |state| state == ESTABLISHED || ENDED_THERE.contains(&state) || ENDED_HERE.contains(&state);
        Info::of(fd).is_ok_and(|info| (self.begun && info.state == CLOSED) || (is_alive(info.state) && self.kept.has_names(fd)))
    }

    fn write_back(&mut self, statement: &Statement, is_asked: bool, now: u64) -> Step {
        let fd = self.socket.as_raw_fd();
        set(fd, libc::TCP_REPAIR, ON).map_err(at("begin the repair"))?;
        if self.beside.is_none() {
            self.beside = Some(Beside::of(fd)?);
        }
        // Another process that goes on with this must not take for others' bytes what is put from here on.
        self.begun = true;
        self.escrow.mark_begun();
        let Some(beside) = &self.beside else { return Ok(()) };
        rebuild(fd, &mut self.kept, &self.escrow, statement, beside, now)?;
        window_of(&statement.state).tell(fd).map_err(at("set windows"))?;
        // Before the repair ends, so that what answers its probe is not dropped.
        unshut(self.socket.as_fd());
        finish(fd, &self.kept, if is_plain(statement, beside, is_asked) { OFF_SILENTLY } else { OFF })?;
        for (ended, how) in beside.ended.into_iter().zip([libc::SHUT_RD, libc::SHUT_WR]) {
            if ended {
                let _ = calls::shutdown(fd, how);
            }
        }
        Ok(())
    }
}

impl Refused {
    fn of((step, errno): (&'static str, i32)) -> Refused {
        Refused { step, errno }
    }
}

impl Beside {
    /// Of a socket in repair.
    fn of(fd: RawFd) -> Result<Beside, (&'static str, i32)> {
        let state = Info::of(fd).map_err(at("look"))?.state;
        let has = |call: fn(i32) -> Result<u32, Errno>| call(fd).map_err(|errno| ("count bytes", errno.0));
        let (waits, unsent) = (has(calls::bytes_waiting)?, has(calls::bytes_unread)?);
        let mut beside = Beside::default();
        set(fd, libc::TCP_REPAIR_QUEUE, QUEUE_RECEIVE).map_err(at("choose a queue"))?;
        let end = get(fd, libc::TCP_QUEUE_SEQ).map_err(at("number a queue"))? as u32;
        // The peer's end has a number.
        let end = Seq(end.wrapping_sub(u32::from(ENDED_THERE.contains(&state))));
        beside.received = Some((end, if waits > 0 { look(fd, waits)? } else { Vec::new() }));
        let unsent = unsent.saturating_sub(u32::from(ENDED_HERE.contains(&state)));
        if unsent > 0 {
            set(fd, libc::TCP_REPAIR_QUEUE, QUEUE_SEND).map_err(at("choose a queue"))?;
            beside.written = look(fd, unsent)?;
        }
        let events = calls::poll_one(fd, libc::POLLRDHUP, 0).unwrap_or(0);
        beside.ended = [events & libc::POLLRDHUP != 0, ENDED_HERE.contains(&state)];
        Ok(beside)
    }

    /// Those bytes that the engine has not received, and the place behind them.
    fn behind(&self, expected: Seq) -> (&[u8], Seq) {
        match &self.received {
            Some((end, bytes)) if end.after(expected) => {
                // Where fewer are there than are missing, another holder has read the first.
                let missing = (end.since(expected) as usize).min(bytes.len());
                (&bytes[bytes.len() - missing..], *end)
            }
            _ => (&[], expected),
        }
    }
}

fn look(fd: RawFd, length: u32) -> Result<Vec<u8>, (&'static str, i32)> {
    let mut bytes = vec![0; length as usize];
    let count = peek(fd, &mut bytes).map_err(at("look at a queue"))?;
    bytes.truncate(count);
    Ok(bytes)
}

/// SO_GET_FILTER tells how many instructions there are.
fn has_filter(fd: RawFd) -> bool {
    let mut count = 0;
    let asked = calls::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, std::ptr::null_mut(), &mut count);
    asked.is_err() || count != 0
}

/// Whether the peer knows where things stand, and this side how the peer does: nothing is to be acknowledged, either window takes two full segments,
/// and no acknowledgement is lost, as nothing is under way or the driver lives. Then the probe that ends a repair, which no kernel without one would
/// send, is left out.
fn is_plain(statement: &Statement, beside: &Beside, is_asked: bool) -> bool {
    let state = &statement.state;
    let (more, expected) = beside.behind(state.expected);
    let promised = state.promised_from.plus(state.promised);
    (is_asked || statement.bytes().0 == 0)
        && more.is_empty()
        && expected == state.expected
        && state.promised_from == state.expected
        && promised.since(state.expected).min(state.window) >= 2 * state.segment
}

/// The last steps: the socket goes on.
fn finish(fd: RawFd, kept: &Kept, how: i32) -> Step {
    leave(fd, kept, how).map_err(at("end the repair"))?;
    if get(fd, libc::TCP_CORK) == Ok(0) {
        // Whatever waits for the window leaves now.
        let _ = set(fd, libc::TCP_CORK, 0);
    }
    kept.settle(fd);
    Ok(())
}

fn dissolve(socket: BorrowedFd<'_>, kept: &Kept) {
    let fd = socket.as_raw_fd();
    // In repair silently; what a holder has made of it meanwhile with a reset.
    let nobody = [0u8; 16];
    let _ = calls::connect(fd, nobody.as_ptr().cast(), 16);
    let _ = end(fd, OFF_SILENTLY);
    if !is_closed(fd) {
        let _ = calls::connect(fd, nobody.as_ptr().cast(), 16);
    }
    unshut(socket);
    kept.settle(fd);
}

/// Tells the peer by a reset that the connection is no more: that of a socket made for it, since it must have the right numbers.
fn reset(kept: &Kept, statement: &Statement, now: u64) {
    let family = i32::from(u16::from_ne_bytes([kept.names[0].bytes[0], kept.names[0].bytes[1]]));
    let Ok(fd) = calls::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) else { return };
    // SAFETY: made above, ours.
    let _socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let state = &statement.state;
    let made = set(fd, libc::TCP_REPAIR, ON)
        .map_err(at("begin the repair"))
        .and_then(|()| connect(fd, kept, state.sent, state.expected, ETHERNET_SEGMENT))
        .and_then(|()| agree(fd, ETHERNET_SEGMENT, state, now));
    if made.is_ok() {
        let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
        let (value, size) = ((&raw const at_once).cast(), size_of_val(&at_once) as u32);
        let _ = calls::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value, size);
        let _ = set(fd, libc::TCP_REPAIR, OFF_SILENTLY);
    }
}

/// Of a segment that says no more than that a connection ended.
const ETHERNET_SEGMENT: i32 = 1460;

type Step = Result<(), (&'static str, i32)>;

fn at(step: &'static str) -> impl Fn(i32) -> (&'static str, i32) {
    move |errno| (step, errno)
}

fn call(step: &'static str) -> impl Fn(Errno) -> (&'static str, i32) {
    move |errno| (step, errno.0)
}

/// All but the windows: the socket is in repair, and neither sends nor hears.
fn rebuild(fd: RawFd, kept: &mut Kept, escrow: &Escrow, statement: &Statement, beside: &Beside, now: u64) -> Step {
    let state = &statement.state;
    let (held, sent, unread) = statement.bytes();
    let (more, end) = beside.behind(state.expected);
    let unsent = (held - sent) as usize + beside.written.len();
    // In repair: the largest packet that the peer takes, time stamps included.
    let segment = get(fd, libc::TCP_MAXSEG).map_err(at("ask for the largest segment"))?;
    // In repair this dissolves the connection without a reset; it leaves ECONNABORTED behind, which is not the program's.
    let nobody = [0u8; 16];
    calls::connect(fd, nobody.as_ptr().cast(), 16).map_err(call("dissolve"))?;
    let _ = option(fd, libc::SOL_SOCKET, libc::SO_ERROR);
    connect(fd, kept, state.unacknowledged, Seq(end.0.wrapping_sub(unread + more.len() as u32)), segment)?;
    agree(fd, segment, state, now)?;
    kept.make_room(fd, held + beside.written.len() as u32, unread + more.len() as u32);
    let mut bytes = vec![0; held.max(unread) as usize];
    escrow.get(Ring::Receive, statement.unread, &mut bytes[..unread as usize]);
    put(fd, QUEUE_RECEIVE, &bytes[..unread as usize])?;
    put(fd, QUEUE_RECEIVE, more)?;
    escrow.get(Ring::Send, state.unacknowledged, &mut bytes[..held as usize]);
    put(fd, QUEUE_SEND, &bytes[..sent as usize])?;
    set(fd, libc::TCP_REPAIR_QUEUE, QUEUE_NONE).map_err(at("choose a queue"))?;
    if unsent > 0 {
        window_of(state).closed().tell(fd).map_err(at("set windows"))?;
        leave(fd, kept, OFF_SILENTLY).map_err(at("pause the repair"))?;
        write(fd, &bytes[sent as usize..held as usize])?;
        write(fd, &beside.written)?;
        set(fd, libc::TCP_REPAIR, ON).map_err(at("go on with the repair"))?;
    }
    Ok(())
}

/// Established, with these numbers, and packets of at most `segment` bytes: what is agreed upon afterwards changes the size of none, and
/// without a word it were 536 for good.
fn connect(fd: RawFd, kept: &Kept, send: Seq, receive: Seq, segment: i32) -> Step {
    for (queue, first) in [(QUEUE_SEND, send), (QUEUE_RECEIVE, receive)] {
        set(fd, libc::TCP_REPAIR_QUEUE, queue).map_err(at("choose a queue"))?;
        set(fd, libc::TCP_QUEUE_SEQ, first.0 as i32).map_err(at("number a queue"))?;
    }
    let [ours, theirs] = &kept.names;
    // A socket that the program has bound keeps its port, and says EINVAL.
    match calls::bind(fd, ours.bytes.as_ptr().cast(), ours.length) {
        Ok(()) | Err(Errno(libc::EINVAL)) => {}
        Err(errno) => return Err(("bind", errno.0)),
    }
    let _ = set(fd, libc::TCP_MAXSEG, segment);
    let connected = calls::connect(fd, theirs.bytes.as_ptr().cast(), theirs.length).map_err(call("connect"));
    let _ = set(fd, libc::TCP_MAXSEG, 0); // for connections that the program makes of the socket later
    connected
}

/// The options that were agreed upon when the connection was made, and the clock.
fn agree(fd: RawFd, segment: i32, state: &State, now: u64) -> Step {
    const SEGMENT: u32 = 2;
    const SCALE: u32 = 3;
    const SELECTIVE_PERMITTED: u32 = 4;
    const CLOCK: u32 = 8;
    let mut all = vec![[SEGMENT, segment as u32]];
    // Scales of 0 both ways: either none was agreed upon, or that is what it means.
    if state.scale != 0 || state.own_scale != 0 {
        all.push([SCALE, u32::from(state.scale) | u32::from(state.own_scale) << 16]);
    }
    all.extend(state.selective.then_some([SELECTIVE_PERMITTED, 0]));
    all.extend(state.timestamps.is_some().then_some([CLOCK, 0]));
    let size = size_of_val(all.as_slice()) as u32;
    calls::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR_OPTIONS, all.as_ptr().cast(), size).map_err(call("set options"))?;
    let Some((clock, _)) = state.timestamps else { return Ok(()) };
    // The lowest bit says that the clock counts microseconds; rounded up, it does not run back.
    let value = clock.value(now).wrapping_add(1) & !1;
    set(fd, libc::TCP_TIMESTAMP, value as i32).map_err(at("set the clock"))
}

fn window_of(state: &State) -> Window {
    Window {
        told: state.window_told.0,
        window: state.window,
        largest: state.largest_window,
        promised: state.promised,
        promised_from: state.promised_from.0,
    }
}

fn put(fd: RawFd, queue: i32, bytes: &[u8]) -> Step {
    if bytes.is_empty() {
        return Ok(());
    }
    set(fd, libc::TCP_REPAIR_QUEUE, queue).map_err(at("choose a queue"))?;
    write(fd, bytes)
}

fn write(fd: RawFd, bytes: &[u8]) -> Step {
    let mut rest = bytes;
    while !rest.is_empty() {
        let piece = &rest[..rest.len().min(16 << 10)];
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let count = calls::sendto(fd, piece.as_ptr().cast(), piece.len(), flags, std::ptr::null(), 0);
        rest = &rest[count.map_err(call("fill a queue"))?..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::super::eligible::Name;
    use super::super::{repair, trial};
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A connection of loopback that was read out with six bytes unread, and its peer.
    struct Pair {
        ours: TcpStream,
        theirs: TcpStream,
        held: Held,
    }

    impl Pair {
        fn new() -> Pair {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut theirs, _) = listener.accept().unwrap();
            for stream in [&ours, &theirs] {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
            }
            theirs.write_all(b"unread").unwrap();
            let fd = ours.as_raw_fd();
            wait(fd, 6);
            let names = [Name::of(fd, libc::getsockname), Name::of(fd, libc::getpeername)].map(Result::unwrap);
            let kept = Kept::of(ours.as_fd(), names);
            let escrow = Escrow::create(1 << 16, 1 << 16).unwrap();
            repair::shut(ours.as_fd()).unwrap();
            repair::read_out(ours.as_fd(), &kept, &escrow, 1514, shunt_sys::clock::monotonic_ns()).unwrap();
            let held = Held::new(ours.try_clone().unwrap().into(), escrow, kept);
            Pair { ours, theirs, held }
        }

        /// The program writes these, and none leaves.
        fn write(&self, bytes: &[u8]) {
            let Statement { state, written, unread } = self.held.escrow.statement();
            self.held.escrow.put(Ring::Send, written, bytes);
            assert!(self.held.escrow.publish(&Statement { state, written: written.plus(bytes.len() as u32), unread }));
        }

        /// Both hear what they should, and each other.
        fn check(mut self, ours: &[u8], theirs: &[u8]) {
            let mut heard = vec![0; ours.len()];
            self.ours.read_exact(&mut heard).unwrap();
            assert_eq!(String::from_utf8_lossy(&heard), String::from_utf8_lossy(ours));
            self.ours.write_all(b"!").unwrap();
            let mut heard = vec![0; theirs.len() + 1];
            self.theirs.read_exact(&mut heard).unwrap();
            assert!(heard.split_last() == Some((&b'!', theirs)));
            self.theirs.write_all(b"?").unwrap();
            self.ours.read_exact(&mut heard[..1]).unwrap();
            assert_eq!(heard[0], b'?');
        }
    }

    fn wait(fd: RawFd, bytes: u32) {
        let until = Instant::now() + PATIENCE;
        while calls::bytes_waiting(fd) != Ok(bytes) {
            assert!(Instant::now() < until);
        }
    }

    /// In a network namespace of its own; nothing where this is not allowed.
    fn alone(test: impl FnOnce() + Send + 'static) {
        let work = move || {
            // SAFETY: concerns this thread alone, which ends.
            let is_alone = unsafe { libc::geteuid() == 0 && libc::unshare(libc::CLONE_NEWNET) == 0 };
            if is_alone && trial::raise_loopback().is_ok() {
                test();
            }
        };
        std::thread::spawn(work).join().unwrap();
    }

    /// A processor that had let a segment past the filter takes it behind the reading, and acknowledges it.
    #[test]
    fn what_slips_past_the_filter_is_not_lost() {
        alone(|| {
            let mut pair = Pair::new();
            unshut(pair.ours.as_fd());
            pair.theirs.write_all(b", slipped").unwrap();
            wait(pair.ours.as_raw_fd(), 9);
            repair::shut(pair.ours.as_fd()).unwrap();
            pair.held.restore(true).unwrap();
            pair.check(b"unread, slipped", b"");
        });
    }

    /// As above, and another holder of the descriptor reads it before the connection goes back: the peer goes on behind it.
    #[test]
    fn what_slips_past_the_filter_and_is_read_is_not_waited_for() {
        alone(|| {
            let mut pair = Pair::new();
            unshut(pair.ours.as_fd());
            pair.theirs.write_all(b"slipped").unwrap();
            pair.ours.read_exact(&mut [0; 7]).unwrap();
            repair::shut(pair.ours.as_fd()).unwrap();
            pair.held.restore(true).unwrap();
            pair.check(b"unread", b"");
        });
    }

    #[test]
    fn an_end_that_slips_past_the_filter_is_not_lost() {
        alone(|| {
            let mut pair = Pair::new();
            unshut(pair.ours.as_fd());
            pair.theirs.write_all(b", slipped").unwrap();
            pair.theirs.shutdown(Shutdown::Write).unwrap();
            let events = calls::poll_one(pair.ours.as_raw_fd(), libc::POLLRDHUP, PATIENCE.as_nanos() as i64);
            assert!(events.is_ok_and(|events| events & libc::POLLRDHUP != 0));
            repair::shut(pair.ours.as_fd()).unwrap();
            pair.write(b"answer");
            pair.held.restore(true).unwrap();
            let mut heard = Vec::new();
            pair.ours.read_to_end(&mut heard).unwrap();
            assert_eq!(heard, b"unread, slipped");
            let mut heard = [0; 6];
            pair.theirs.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"answer");
        });
    }

    /// Whatever step is refused for lack of memory, all is done again, and no byte leaves twice; also by the guard, for an agent that was killed there.
    #[test]
    fn an_attempt_that_came_half_way_is_repeated() {
        for (by_guard, told) in [(false, false), (true, false), (true, true)] {
            let test = move || {
                let mut pair = Pair::new();
                let said: Vec<u8> = (0..40_000).map(|byte| (byte * 7) as u8).collect();
                pair.write(&said);
                let fd = pair.ours.as_raw_fd();
                let now = shunt_sys::clock::monotonic_ns();
                let statement = pair.held.escrow.close();
                set(fd, libc::TCP_REPAIR, ON).unwrap();
                let beside = Beside::of(fd).unwrap();
                pair.held.escrow.mark_begun();
                rebuild(fd, &mut pair.held.kept, &pair.held.escrow, &statement, &beside, now).unwrap();
                if told {
                    window_of(&statement.state).tell(fd).unwrap();
                    unshut(pair.ours.as_fd());
                } else {
                    set(fd, libc::TCP_REPAIR, OFF_SILENTLY).unwrap();
                }
                if by_guard {
                    pair.held.take_over();
                } else {
                    (pair.held.begun, pair.held.beside) = (true, Some(beside));
                }
                pair.held.restore(true).unwrap();
                pair.check(b"unread", &said);
            };
            alone(test);
        }
    }

    #[test]
    fn lack_of_memory_passes() {
        for errno in [libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN] {
            assert!(Refused { step: "fill a queue", errno }.is_passing());
        }
        assert!(!Refused { step: "connect", errno: libc::EPERM }.is_passing());
    }
}
