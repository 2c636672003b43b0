//! What a stream is ready for: the conditions of blocking calls and the masks of poll(2), computed in memory.
//!
//! The order of checks follows tcp_poll, tcp_recvmsg and tcp_sendmsg of the kernel.

use crate::flush_relays;
use crate::life::{Event, Phase};
use crate::socket::{flag, Socket};
use crate::waiting::watchers::Change;
use crate::{beside, corked, mark};
use core::sync::atomic::Ordering;
use shunt_segment::channel::{arm, life, state, word};
use shunt_sys::calls;
use shunt_sys::libc::{self, POLLHUP};

/// A reader that waits for more than so many bytes adds them to its conditions with this shift: one that has seen them (MSG_PEEK
/// with MSG_WAITALL), or for which they do not count.
pub const SEEN_SHIFT: u32 = 8;

/// Conditions without what was added with [`SEEN_SHIFT`], as bells know them.
pub const CONDITIONS: u32 = (1 << SEEN_SHIFT) - 1;

/// Whether one of `conditions` holds now, for a blocking call.
#[inline(always)]
pub fn any(socket: &Socket, conditions: u32) -> bool {
    let (peer, waiting) = socket.incoming().look();
    let ended = peer & (word::FIN | word::CLOSED | word::RST) != 0;
    if conditions & arm::IN != 0 && (waiting > (conditions >> SEEN_SHIFT) as usize || ended) {
        return true;
    }
    slow(socket, conditions, peer)
}

#[inline(never)]
fn slow(socket: &Socket, conditions: u32, peer: u64) -> bool {
    if socket.has(flag::HUNG_UP) {
        conclude(socket);
    }
    let own_state = socket.own().receive.state.load(Ordering::Acquire);
    if own_state & (state::DONE | state::PEER_GONE | state::RESET_DUE) != 0 {
        return true;
    }
    if conditions & arm::IN != 0 && own_state & state::SHUT_RD != 0 {
        return true;
    }
    if conditions & arm::OUT != 0 {
        if peer & (word::CLOSED | word::RST) != 0 || socket.outgoing().announced() & word::FIN != 0 {
            return true;
        }
        let (free, size) = socket.outgoing().writable();
        if free * 4 >= size || socket.outgoing().can_grow() {
            return true;
        }
    }
    false
}

/// The peer's process is gone, or the last of its owners closed without a word (after a fork): what would the kernel
/// have told us? Its unread bytes make the difference between RST and FIN.
///
/// The fact itself is kept in private memory: a hostile peer can overwrite what follows from it, so it is drawn again
/// whenever the socket is looked at.
#[cold]
pub fn note_gone(socket: &Socket) {
    note_gone_after(socket, 0);
}

/// The kernel has told of an end at `fd`: of the companion's, or of the TCP socket's that had the number a moment ago, and was not connected. So it is
/// asked again. True: the peer is gone.
#[cold]
pub fn note_if_gone(socket: &Socket, fd: i32) -> bool {
    let mut events = 0;
    socket.hold.while_open(socket, fd, |fd| events = calls::poll_one(fd, 0, 0).unwrap_or(0));
    let is_gone = events & (POLLHUP | libc::POLLERR) != 0;
    if is_gone {
        note_gone(socket);
    }
    is_gone
}

/// As [`note_gone`], when `put` bytes were sent to the peer after it had gone: they are taken and lost, its kernel resets the
/// connection for them, and the next call says so.
#[cold]
pub fn note_gone_after(socket: &Socket, put: usize) {
    socket.set(flag::HUNG_UP);
    corked::take(socket);
    conclude_after(socket, put);
}

/// A listener of several processes, or of one that was exec'd, refuses those that wait without a word when it goes: the kernel
/// is asked.
pub fn ask_if_refused(socket: &Socket, fd: i32) {
    let accepted = || socket.page().head.state.load(Ordering::Acquire) == life::ACCEPTED;
    // A shutdown of our own alone is no hang-up. One of the server's as well would be, but then it has accepted before.
    let hung_up = || {
        let mut events = 0;
        socket.hold.while_open(socket, fd, |fd| events = calls::poll_one(fd, 0, 0).unwrap_or(0));
        events & POLLHUP != 0
    };
    if !accepted() && hung_up() && !accepted() {
        note_gone(socket);
    }
}

/// What comes before the first sends and receives of a client: whether its server has accepted it by now, or refused it.
#[cold]
pub fn while_unaccepted(socket: &Socket, fd: i32) {
    if socket.page().head.state.load(Ordering::Relaxed) == life::ACCEPTED {
        socket.clear(flag::UNACCEPTED);
    } else {
        ask_if_refused(socket, fd);
    }
}

/// The companion reads as ended: the peer is gone, unless we shut its receiving half down ourselves.
pub fn companion_ended(socket: &Socket) {
    if socket.own().receive.state.load(Ordering::Relaxed) & state::SHUT_RD == 0 {
        note_gone(socket);
    }
}

#[cold]
fn conclude(socket: &Socket) {
    conclude_after(socket, 0);
}

#[cold]
fn conclude_after(socket: &Socket, put: usize) {
    if beside::has_moved(socket) {
        return; // its end is TCP's
    }
    let own = socket.own();
    let peer = socket.peer().post.word.load(Ordering::Acquire);
    // Where both ends have shut down their receiving halves, the kernel thinks both are gone. Whether we have is known
    // for sure (the shared word counts only where another of our processes may have): the peer cannot feign it.
    let ours = own.receive.state.load(Ordering::Relaxed);
    let deaf = socket.has(flag::SHUT_RD) || (socket.has(flag::SHARED) && ours & state::SHUT_RD != 0);
    let shut = deaf && peer & word::FIN != 0 && socket.peer().receive.state.load(Ordering::Acquire) & state::SHUT_RD != 0;
    // A connection that is over has its error; a companion may read as ended because it is.
    if peer & word::CLOSED != 0 || shut || ours & (state::PEER_GONE | state::DONE) != 0 {
        return;
    }
    let accepted = socket.page().head.state.load(Ordering::Acquire) == life::ACCEPTED;
    // Once both directions had ended there was nothing left to reset (tcp_close, TCP_CLOSE), as in `announce_end`.
    let both_ended = peer & word::FIN != 0 && socket.outgoing().announced() & word::FIN != 0;
    let unread = !both_ended && socket.outgoing().unacknowledged() > put as u64;
    // SO_LINGER with 0 resets however the process ends.
    let lingers = !both_ended && socket.peer().receive.state.load(Ordering::Acquire) & state::LINGER_RESET != 0;
    // To another host only the keeper can vanish so: what it had not told yet is lost.
    let owing = unread || lingers || !accepted || socket.has(flag::REMOTE);
    let event = match (owing, peer & word::FIN != 0, put > 0) {
        (true, false, _) => Event::PeerVanishedOwing,
        (true, true, _) | (false, _, true) => Event::PeerVanishedLate,
        (false, _, false) => Event::PeerVanished,
    };
    crate::life::happens(own, event);
}

/// Notices a reset that the peer announced, once; gives the side's state.
#[inline(always)]
pub fn observe(socket: &Socket, peer: u64) -> u32 {
    if socket.has(flag::HUNG_UP) {
        conclude(socket);
    }
    let own = socket.own().receive.state.load(Ordering::Acquire);
    if peer & word::RST != 0 && own & state::END_NOTED == 0 {
        crate::waiting::bypass::note_reset(socket);
        let event = if peer & word::LATE != 0 { Event::PeerResetLate } else { Event::PeerReset };
        return crate::life::happens(socket.own(), event).0;
    }
    own
}

/// Whether a receive that finds nothing has nothing to wait for.
pub fn over(socket: &Socket) -> bool {
    ended(socket) || socket.own().receive.state.load(Ordering::Acquire) & state::SHUT_RD != 0
}

/// Whether the peer has ended its stream.
pub fn ended(socket: &Socket) -> bool {
    let (peer, _) = socket.incoming().look();
    peer & (word::FIN | word::CLOSED) != 0 || observe(socket, peer) & (state::DONE | state::PEER_GONE) != 0
}

/// Whether TCP's state would be CLOSE: reset, or ended in both directions.
pub fn closed(socket: &Socket) -> bool {
    let (peer, _) = socket.incoming().look();
    let own = observe(socket, peer);
    let far = peer & (word::FIN | word::CLOSED) != 0 || own & state::PEER_GONE != 0;
    own & state::DONE != 0 || (far && socket.outgoing().announced() & word::FIN != 0)
}

/// In which of TCP's states a program finds the stream.
pub fn phase(socket: &Socket) -> Phase {
    let (peer, waiting) = socket.incoming().look();
    let own = observe(socket, peer);
    let sent = socket.outgoing().announced() & word::FIN != 0;
    let got = end_shows(socket, peer, own, waiting);
    match (sent, got) {
        _ if own & state::DONE != 0 => Phase::Close,
        (true, true) => Phase::Close,
        (true, false) => Phase::FinWait2,
        (false, true) => Phase::CloseWait,
        (false, false) => Phase::Established,
    }
}

/// Whether the connection is over without the peer's having ended its stream (TCP's state CLOSE without SOCK_DONE, which
/// tcp_fin sets).
pub fn reset_before_end(socket: &Socket) -> bool {
    let (peer, _) = socket.incoming().look();
    let ended = if peer & word::RST != 0 { peer & word::LATE != 0 } else { peer & (word::FIN | word::CLOSED) != 0 };
    observe(socket, peer) & state::DONE != 0 && !ended
}

/// Whether another owner of the side has dissolved the connection.
pub fn is_dissolved(socket: &Socket) -> bool {
    socket.own().receive.state.load(Ordering::Relaxed) & state::DISSOLVED != 0
}

/// Whether the peer has reset the connection, taken note of or not.
pub fn reset(socket: &Socket) -> bool {
    let (peer, _) = socket.incoming().look();
    peer & word::RST != 0 || socket.own().receive.state.load(Ordering::Acquire) & (state::RESET_DUE | state::PIPE_DUE) != 0
}

/// Whether the end of one direction is known, and of the other only the companion could tell: the peer may have been killed
/// since.
pub fn half_ended(socket: &Socket) -> bool {
    let (peer, _) = socket.incoming().look();
    let own = socket.own().receive.state.load(Ordering::Relaxed);
    let half = peer & word::FIN != 0 || own & state::SHUT_RD != 0;
    half && peer & (word::CLOSED | word::RST) == 0 && own & (state::DONE | state::PEER_GONE) == 0
}

/// Takes a pending reset, as a failing recv does; EPIPE waits for send and SO_ERROR.
pub fn take_reset(socket: &Socket) -> Option<i32> {
    if socket.own().receive.state.load(Ordering::Acquire) & state::RESET_DUE == 0 {
        return None;
    }
    let old = socket.own().receive.state.fetch_and(!state::RESET_DUE, Ordering::AcqRel);
    (old & state::RESET_DUE != 0).then_some(error_of_reset(old))
}

fn error_of_reset(state: u32) -> i32 {
    match state & state::TIMED_OUT {
        0 => shunt_sys::libc::ECONNRESET,
        _ => shunt_sys::libc::ETIMEDOUT,
    }
}

/// A reset that was taken is there again, for the next call.
#[cold]
pub fn put_back_reset(socket: &Socket) {
    socket.own().receive.state.fetch_or(state::RESET_DUE, Ordering::AcqRel);
    crate::waiting::watchers::changed(socket, Change::Ready);
}

/// Takes a pending error, as SO_ERROR and the next failing call do: its errno.
pub fn take_error(socket: &Socket) -> Option<i32> {
    let due = state::RESET_DUE | state::PIPE_DUE;
    if socket.own().receive.state.load(Ordering::Acquire) & due == 0 {
        return None;
    }
    let old = socket.own().receive.state.fetch_and(!due, Ordering::AcqRel);
    if old & state::RESET_DUE != 0 {
        Some(error_of_reset(old))
    } else if old & state::PIPE_DUE != 0 {
        Some(shunt_sys::libc::EPIPE)
    } else {
        None
    }
}

/// Whether the peer's end shows, of which its word `peer` and the own state `own` know: TCP's FIN comes when no more is unread, of
/// `waiting` bytes, than the window takes. Reads are not concerned: they find the end when they have everything.
#[inline(always)]
pub fn end_shows(socket: &Socket, peer: u64, own: u32, waiting: usize) -> bool {
    let ended = peer & (word::FIN | word::CLOSED) != 0 || own & state::PEER_GONE != 0;
    ended && !end_is_behind(socket, waiting)
}

#[cold]
fn end_is_behind(socket: &Socket, waiting: usize) -> bool {
    let pipe = socket.incoming();
    let window = pipe.own_window();
    // What is not enough to be readable hides no end: no thread would read on. Behind what a peer that is gone has left there,
    // nonsense perhaps, its end might never come.
    if waiting <= window || !is_enough(socket, waiting) || socket.has(flag::HUNG_UP) {
        return false;
    }
    // A thread may sleep until it comes. The reader looks at the word after it has taken bytes, and without a fence.
    let known = socket.end_behind.load(Ordering::Relaxed) != 0;
    if !known && !socket.alone() && socket.end_behind.swap(1, Ordering::SeqCst) == 0 {
        crate::waiting::wake::barrier();
        return pipe.look().1 > window;
    }
    true
}

/// Bytes were taken, and a thread may wait for the end behind them.
#[cold]
pub fn end_may_come(socket: &Socket) {
    let pipe = socket.incoming();
    if pipe.look().1 <= pipe.own_window() && socket.end_behind.swap(0, Ordering::SeqCst) != 0 {
        crate::waiting::watchers::changed(socket, Change::Ready);
        crate::waiting::wake_pollers::all();
    }
}

/// Whether so many unread bytes make it readable (SO_RCVLOWAT).
#[inline(always)]
pub(crate) fn is_enough(socket: &Socket, waiting: usize) -> bool {
    waiting > 0 && waiting >= socket.low_water.load(Ordering::Relaxed) as usize + mark::withheld(socket)
}

/// Whether bytes are all that there may be to tell of the stream, and nothing of it is to be looked after.
#[inline(always)]
pub fn is_plain(socket: &Socket) -> bool {
    const UNUSUAL: u32 = flag::SHARED
        | flag::ASYNC
        | flag::HUNG_UP
        | flag::SHUT_RD
        | flag::SLOW_RECEIVE
        | flag::ERROR_QUEUE
        | flag::MAY_LEAVE
        | flag::FAR
        | flag::UNACCEPTED;
    const USUAL: u32 = state::LINGER_RESET | state::OWNED | state::CONNECTING | state::AT_ADDRESS;
    socket.peer().post.word.load(Ordering::Acquire) & (word::FIN | word::CLOSED | word::RST) == 0
        && socket.flags.load(Ordering::Relaxed) & UNUSUAL == 0
        && socket.own().receive.state.load(Ordering::Relaxed) & !USUAL == 0
        && socket.peer().urgent.load(Ordering::Acquire) == 0
}

/// Whether unread bytes wait that `word` of the peer's tells of.
#[inline(always)]
pub fn waits(socket: &Socket, word: u64) -> bool {
    (word ^ socket.own().receive.position.load(Ordering::Relaxed)) & word::POSITION != 0
}

/// Whether bytes wait, and there is nothing else to tell. In this order: what is urgent is marked before it is announced.
#[inline(always)]
pub fn bytes_alone(socket: &Socket) -> bool {
    waits(socket, socket.peer().post.word.load(Ordering::Acquire)) && is_plain(socket)
}

/// Whether a send is to look closer, for another reason than want of room: an end, or what is owed to a peer before.
pub(crate) fn has_ended(socket: &Socket) -> bool {
    let own = socket.own().receive.state.load(Ordering::Relaxed);
    let peer = socket.peer().post.word.load(Ordering::Acquire);
    own & (state::DONE | state::PEER_GONE | state::RESET_DUE | state::PIPE_DUE) != 0
        || peer & (word::CLOSED | word::RST) != 0
        || (peer & word::FIN != 0 && socket.peer().receive.state.load(Ordering::Acquire) & state::SHUT_RD != 0)
        || socket.outgoing().announced() & word::FIN != 0
        || socket.has(flag::UNACCEPTED)
        || flush_relays::owed(socket)
}
