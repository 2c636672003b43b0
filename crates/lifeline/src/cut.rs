//! A stream goes back to the TCP connection beside it, as an administrator asks (`shunt cut`): at both ends, with no byte in the rings.

use crate::{ends, obstacle};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shunt_link as link;
use shunt_rendezvous::exchange::{self, Unchanging};
use shunt_ring::cut as word;
use shunt_segment::channel::{arm, Head};
use shunt_segment::reason::Reason;
use shunt_stream::beside;
use shunt_stream::deadlines;
use shunt_stream::socket::{flag, numbers_of, Socket};
use shunt_sys::{calls, clock, libc};
use shunt_table::global::{Guard, SETUP};
use shunt_table::table;

/// How often sleeping threads look after a stream that is to go back (ns).
const EVERY: u64 = 1_000_000;
/// How long such streams send nothing behind bytes that were not received, and how long not behind that, however often it is asked (ns).
const WITHHELD: u64 = 100_000_000;
const BETWEEN: u64 = 500_000_000;
/// Within that time: how long one send waits for both rings to be empty (ns).
const WAITS: u64 = 2_000_000;
/// How often leaving a stream that has moved is tried in one call: another thread changes what it has, or has all numbers.
const TRIES: u32 = 64;

/// The tool reminds more often than that (ns): a request that is older is of one that was killed.
const FORGOTTEN: u64 = 2_000_000_000;

struct Requests {
    /// [`shunt_segment::link::LinkHeader::cuts`] of all links, when they were looked at last.
    counted: AtomicU32,
    /// When one was heard last, anew or again (ns).
    heard: AtomicU64,
}

static REQUESTS: Requests = Requests { counted: AtomicU32::new(0), heard: AtomicU64::new(0) };

/// How often threads that sleep are to look, while any stream is to go back.
pub(crate) fn every() -> Option<u64> {
    (beside::cutting().load(Ordering::Relaxed) != 0).then_some(EVERY)
}

/// Looks whether a tool has asked since the last look.
pub(crate) fn look_for_requests(now: u64) {
    let requests = {
        let Some(_setup) = SETUP.lock() else { return };
        let near = (0..link::count()).map(link::at).filter(|link| !link.base.is_null() && link.is_near());
        near.fold(0_u32, |all, link| all.wrapping_add(link::header(link.base).cuts.load(Ordering::Acquire)))
    };
    if REQUESTS.counted.swap(requests, Ordering::AcqRel) != requests {
        table::numbers().filter_map(shunt_stream::socket::stream).for_each(|socket| hear(socket, now));
    }
}

/// The peer's side says that a tool has asked.
pub(crate) fn asked(socket: &Socket) {
    socket.peer().wait.armed.fetch_and(!arm::CUT, Ordering::SeqCst);
    hear(socket, clock::monotonic_ns());
}

/// The stream is to go back, if it is asked: all of its calls take the general way from now on.
fn hear(socket: &Socket, now: u64) {
    if !socket.has(flag::LIFELINE) || !word::is_asked(&socket.page().head) {
        return;
    }
    let (Ok(_receiving), Ok(_sending)) = socket.lock_both_settled() else { return };
    if !socket.has(flag::LIFELINE) {
        return; // another thread has ended it
    }
    word::heard(&socket.page().head, socket.side());
    REQUESTS.heard.store(now, Ordering::Relaxed);
    if now >= beside::withheld().load(Ordering::Relaxed) + BETWEEN {
        beside::withheld().store(now + WITHHELD, Ordering::Relaxed);
    }
    if socket.has(flag::CUT) {
        return; // a further request
    }
    // Its companion serves no other connection, and its TCP connection may be the program's again, which ends as any does.
    socket.set(flag::CUT | flag::NOT_REUSABLE);
    linger(socket, false);
    beside::cutting().fetch_add(1, Ordering::Relaxed);
    deadlines::lifelines().fetch_min(now + EVERY, Ordering::Relaxed);
}

/// Whether the TCP connection ends by a reset, which leaves nothing behind: so it does while nothing is in it, and where the program asks for that.
fn linger(socket: &Socket, resets: bool) {
    let resets = resets || socket.has(flag::LINGER_RESET);
    let linger = libc::linger { l_onoff: i32::from(resets), l_linger: 0 };
    let length = core::mem::size_of::<libc::linger>() as libc::socklen_t;
    let connection = socket.private_fd.load(Ordering::Relaxed);
    let _ = calls::setsockopt(connection, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), length);
}

/// The stream has ended or gone back.
pub(crate) fn forget(socket: &Socket) {
    if socket.has(flag::CUT) {
        let one_less = |count: u32| count.checked_sub(1);
        let _ = beside::cutting().fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        linger(socket, !beside::has_moved(socket));
    }
}

/// The stream is to go back no longer: nobody asks, or an end has said why it stays. By the thread that has both locks. Otherwise it has moved.
fn stay(socket: &Socket) -> Attempt {
    if !word::thaw(&socket.page().head, socket.side()) {
        return Attempt::Moved;
    }
    forget(socket);
    socket.clear(flag::CUT);
    Attempt::Stays
}

/// Whether nobody waits for it any more. A tool that was killed takes nothing back.
fn is_forgotten(head: &Head) -> bool {
    !word::is_asked(head) || clock::monotonic_ns() >= REQUESTS.heard.load(Ordering::Relaxed).saturating_add(FORGOTTEN)
}

/// In the child after fork: its streams are shared, and stay.
pub(crate) fn forked() {
    beside::cutting().store(0, Ordering::Relaxed);
    beside::withheld().store(0, Ordering::Relaxed);
}

/// What an attempt came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    /// Both sides are at rest: nothing goes by the rings any more.
    Moved,
    /// Not yet.
    Waits,
    /// It does not go back.
    Stays,
}

/// Says that this side is at rest, if it is.
fn freeze(socket: &Socket, fd: i32) -> Attempt {
    let (head, side) = (&socket.page().head, socket.side());
    if word::has_moved(head) {
        return Attempt::Moved;
    }
    let Some(_alone) = exchange::alone() else { return Attempt::Stays };
    let Some(_unchanging) = Unchanging::begin() else { return Attempt::Waits };
    let (Ok(_receiving), Ok(_sending)) = socket.lock_both_settled() else { return Attempt::Stays };
    if !socket.has(flag::CUT) || !shunt_stream::socket::is_of(fd, socket) || !socket.hold.is_own() {
        return Attempt::Stays; // another thread was first
    }
    if is_forgotten(head) || word::is_refused(head) {
        return stay(socket);
    }
    if let Some(why) = obstacle::of(socket) {
        word::refuse(head, side, why);
        return stay(socket);
    }
    if socket.outgoing().unacknowledged() != 0 || socket.outgoing().held() != 0 {
        return Attempt::Waits;
    }
    match word::freeze(head, side) {
        true => Attempt::Moved,
        false => Attempt::Waits,
    }
}

/// See [`beside::leave`].
pub(crate) fn leave(socket: &Socket, fd: i32, sends: bool) -> bool {
    let mut until = 0;
    loop {
        match freeze(socket, fd) {
            Attempt::Moved => return go(socket, fd),
            // A program that has something to read goes on to that, which the other side waits for.
            Attempt::Waits if sends && word::have_heard(&socket.page().head) && socket.incoming().look().1 == 0 => {}
            _ => return false,
        }
        let now = clock::monotonic_ns();
        until = if until == 0 { beside::withheld().load(Ordering::Relaxed).min(now + WAITS) } else { until };
        if now >= until {
            return false;
        }
        calls::sched_yield();
    }
}

/// The stream has moved: its numbers become the TCP connection's. False: not in this call, and the next one tries again.
fn go(socket: &Socket, fd: i32) -> bool {
    for _ in 0..TRIES {
        let number = if shunt_stream::socket::is_of(fd, socket) { Some(fd) } else { numbers_of(socket).next() };
        let Some(number) = number else { break };
        if socket.hold.is_own() && exchange::leave(number, socket, || Some(Given { socket })) {
            return true;
        }
        if socket.hold.is_carried() {
            break;
        }
        calls::sched_yield();
    }
    socket.hold.is_carried()
}

/// The TCP connection.
struct Given<'a> {
    socket: &'a Socket,
}

impl exchange::Given for Given<'_> {
    fn reason(&self) -> Reason {
        Reason::Cut
    }

    fn take(self) -> Option<i32> {
        let socket = self.socket;
        ends::end(socket);
        let connection = socket.private_fd.swap(-1, Ordering::AcqRel);
        if connection < 0 {
            return None;
        }
        table::take(connection);
        word::left(&socket.page().head, socket.side());
        Some(connection)
    }
}

fn streams() -> impl Iterator<Item = (i32, &'static Socket)> {
    let to_go_back = |fd: i32| shunt_stream::socket::stream(fd).filter(|socket| socket.has(flag::CUT)).map(|socket| (fd, socket));
    table::numbers().filter_map(to_go_back)
}

/// See [`beside::drive`].
pub(crate) fn drive() {
    for (fd, socket) in streams() {
        leave(socket, fd, false);
    }
}

/// All streams are what they are for now: those that have moved are the kernel's, the others have something to send. The caller has no lock.
pub fn settle() {
    if every().is_some() {
        for (fd, socket) in streams() {
            if beside::has_moved(socket) {
                go(socket, fd);
            }
        }
    }
}

/// For one that makes other processes have this one's streams, or keeps them from leaving their rings: as long as it keeps what it gets, none moves.
/// `None`: there is none that could, or a handler has interrupted one that goes.
pub fn to_share() -> Option<Guard<'static>> {
    if !ends::any() {
        return None;
    }
    for _ in 0..TRIES {
        let alone = exchange::alone()?;
        let thawed = streams().filter(|(_, socket)| !thaw(socket)).count() == 0;
        if thawed {
            return Some(alone);
        }
        drop(alone);
        settle();
    }
    exchange::alone()
}

/// Under the lock for sending this side is at rest no longer. False: it has moved.
fn thaw(socket: &Socket) -> bool {
    match socket.lock_both_settled() {
        (Ok(_receiving), Ok(_sending)) => !beside::has_moved_before_sending(socket),
        _ => true,
    }
}
