//! A large stream in its program's hands: the shadow takes the companion's place, and its bytes are the kernel's alone.
//!
//! The keeper could carry them between ring and shadow for ever, at the price of one more process on each host. So once such a
//! stream goes by TCP ([`super::bulk`]) its program asks for the shadow, by a call that finds both rings empty:
//!
//! ```text
//! program                                          keeper
//!   both locks; rings empty?
//!   LEAVE stream [a socket] ─────────────────────►   under the station's lock: by TCP, open, rings empty?
//!   ◄──────────────────────────────── [shadow] ──    moves nothing any more
//!   ═══ TOOK, over the socket that came along ═══►   closes its own copy
//!   shadow under the program's numbers; when the last of them is closed,
//!   the companion is ────────────────── hang-up ─►   the stream is over
//! ```
//!
//! If no answer comes in time, or not with a descriptor, the program says STAY, or nothing before it closes that socket, and nothing has happened.
//! A stopped keeper stops no program: a question that finds no room is not asked. For [`PATIENCE`] in each
//! second until then the rings are kept short so that they empty: the sender has no room but in an empty ring, and the keeper
//! brings something only into an empty one, and not at once. A stream that several processes have is the keeper's.
//!
//! The stream's object and channel stay as they are until the program has closed its last number: calls of other threads that
//! began before may look at them late.

use super::local_station::{driven, LocalStation};
use super::message::Message;
use super::stream_words::{self, flag as stream_flag, mode};
use core::sync::atomic::{fence, AtomicU64, Ordering};
use shunt_rendezvous::exchange;
use shunt_segment::channel::{state, word, Side};
use shunt_segment::reason::Reason;
use shunt_station::Stream;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL, POLLIN, SOCK_CLOEXEC, SOCK_SEQPACKET};
use shunt_sys::{calls, clock, Errno};
use shunt_table::fd_passing;

/// How long the rings are kept short (ns).
pub const PATIENCE: u64 = 50_000_000;
/// If the program has not left the stream by then, how long they are not (ns): twice as long each time, and at most so long.
pub const BETWEEN: u64 = 1_000_000_000;
pub const AT_MOST: u64 = 60_000_000_000;
/// How long the keeper has to answer (ns).
const ANSWER: u64 = 20_000_000;
/// If it has not, it is not asked for so long: twice as long each time, and at most so long (ns).
const SILENT: [u64; 2] = [100_000_000, 60_000_000_000];
/// After a question in vain the next one (ns): while the rings are kept short, and later.
const AGAIN: [u64; 2] = [500_000, 100_000_000];
/// The limits of a ring of which one byte is to be filled, and only when it is empty: SO_SNDBUF, SO_RCVBUF.
const SHORT: [u32; 2] = [1, 2];

/// Until when the keeper is not asked, and how long that is; 0: it answered.
struct Silence {
    until: AtomicU64,
    pause: AtomicU64,
}

static SILENCE: Silence = Silence { until: AtomicU64::new(0), pause: AtomicU64::new(0) };

impl Silence {
    fn answered(&self) {
        self.pause.store(0, Ordering::Relaxed);
    }

    /// A keeper that is stopped, or has no processor, is not asked for each stream, and again and again.
    fn unanswered(&self, now: u64) {
        let pause = (2 * self.pause.load(Ordering::Relaxed)).clamp(SILENT[0], SILENT[1]);
        self.pause.store(pause, Ordering::Relaxed);
        self.until.store(now + pause, Ordering::Relaxed);
    }
}

/// Notes that the program is to leave the stream, or no longer is.
pub fn mark(local: &LocalStation, stream: Stream, leaving: bool) {
    let (row, bit) = (&local.common().leaving[stream as usize / 64], 1 << (stream % 64));
    if leaving {
        row.fetch_or(bit, Ordering::AcqRel);
    } else {
        row.fetch_and(!bit, Ordering::AcqRel);
    }
}

/// Whether the program is to leave the stream.
pub fn is_marked(local: &LocalStation, stream: Stream) -> bool {
    local.common().leaving[stream as usize / 64].load(Ordering::Relaxed) & 1 << (stream % 64) != 0
}

/// Before a call looks at a stream to another host: leaves it, if it is to be left and can be now. True: it has become the kernel's, where the
/// call goes on.
#[inline(always)]
pub fn leave(socket: &Socket, fd: i32) -> bool {
    match driven() {
        Some(local) if local.common().leaving.iter().any(|row| row.load(Ordering::Relaxed) != 0) => {
            leave_if_due(local, socket, fd)
        }
        _ => false,
    }
}

#[cold]
#[inline(never)]
fn leave_if_due(local: &'static LocalStation, socket: &Socket, fd: i32) -> bool {
    let Some(stream) = local.stream_of(socket).filter(|stream| is_marked(local, *stream)) else { return false };
    if !is_one_process_s(socket) {
        return false;
    }
    let now = clock::monotonic_ns();
    if !is_empty(socket) {
        shorten(local, socket, stream, now);
        return false;
    }
    let unasked =
        now < stream_words::get(&local.station, stream, stream_words::ASK_AT) || now < SILENCE.until.load(Ordering::Relaxed);
    if unasked || !is_open(local, stream) || shunt_rendezvous::exchange::stay_for_good() {
        return false;
    }
    let left = shunt_rendezvous::exchange::leave(fd, socket, || {
        (is_one_process_s(socket) && is_empty(socket)).then(|| ask(local, stream)).flatten()
    });
    if !left {
        let short = now < stream_words::get(&local.station, stream, stream_words::SHORT_UNTIL);
        stream_words::set(&local.station, stream, stream_words::ASK_AT, clock::monotonic_ns() + AGAIN[usize::from(!short)]);
    }
    left
}

/// No other process has it, none hears signals of it, and it has not ended in any direction.
fn is_one_process_s(socket: &Socket) -> bool {
    let unusual =
        flag::SHARED | flag::ASYNC | flag::TIMESTAMPS | flag::ZERO_COPY | flag::HUNG_UP | flag::SHUT_RD | flag::DISOWNED;
    let ended = state::DONE | state::PEER_GONE | state::RESET_DUE | state::PIPE_DUE | state::SHUT_RD | state::SHARED;
    let over = word::FIN | word::CLOSED | word::RST;
    socket.flags.load(Ordering::Relaxed) & (unusual | flag::REMOTE) == flag::REMOTE
        && socket.own().receive.state.load(Ordering::Acquire) & (ended | state::OWNED) == 0
        && (socket.incoming().look().0 | socket.outgoing().announced()) & over == 0
}

/// It goes by TCP, and the keeper knows of no end: what the keeper looks at, too, before it agrees.
pub fn is_open(local: &LocalStation, stream: Stream) -> bool {
    use stream_flag::{ACTIVE, FIN_IN, FIN_OUT, NEAR_GONE, OVER, REFUSED, RESET_IN, RESET_OUT};
    let ends = FIN_IN | FIN_OUT | RESET_IN | RESET_OUT | NEAR_GONE | REFUSED | OVER;
    stream_words::flags(&local.station, stream) & (ACTIVE | ends) == ACTIVE
        && stream_words::way(&local.station, stream) == mode::TCP
}

/// Nothing stands in its rings, and no byte that was held back.
pub fn is_empty(socket: &Socket) -> bool {
    socket.outgoing().unacknowledged() == 0 && socket.outgoing().held() == 0 && socket.incoming().look().1 == 0
}

/// The ring in which the program sends gets no room but when it is empty, for a while. Under the sending lock, where all that a send
/// was promised has been put.
fn shorten(local: &LocalStation, socket: &Socket, stream: Stream, now: u64) {
    if now >= stream_words::get(&local.station, stream, stream_words::SHORT_UNTIL) {
        return lengthen(local, stream, socket.own(), socket.peer());
    }
    let Some(_held) = socket.try_lock_send() else { return };
    let limits = [&socket.own().transmit.send_buffer, &socket.peer().receive_buffer];
    let now = limits.map(|limit| limit.load(Ordering::Relaxed));
    if now == SHORT {
        return;
    }
    let noted = stream_words::get(&local.station, stream, stream_words::LIMITS);
    // The program may have set one of them since they were shortened: the other is noted already.
    let before = |which: usize, noted: u32| u64::from(if now[which] == SHORT[which] { noted } else { now[which] });
    stream_words::set(
        &local.station,
        stream,
        stream_words::LIMITS,
        before(1, (noted >> 32) as u32) << 32 | before(0, noted as u32),
    );
    for (at, limit) in limits.into_iter().enumerate() {
        // What the program sets in this moment stays, and is noted next time.
        let _ = limit.compare_exchange(now[at], SHORT[at], Ordering::Release, Ordering::Relaxed);
    }
    fence(Ordering::SeqCst);
    if stream_words::get(&local.station, stream, stream_words::SHORT_UNTIL) == 0 {
        lengthen(local, stream, socket.own(), socket.peer()); // the keeper, which has just ended it, may not have seen this
    }
}

/// The ring has the room that it had.
pub fn lengthen(local: &LocalStation, stream: Stream, near: &Side, far: &Side) {
    for (limit, short, shift) in [(&near.transmit.send_buffer, SHORT[0], 0), (&far.receive_buffer, SHORT[1], 32)] {
        // Unless the program has set another since. A thread that finds it short finds what it was, too: that is noted before.
        if limit.load(Ordering::Acquire) == short {
            let before = (stream_words::get(&local.station, stream, stream_words::LIMITS) >> shift) as u32;
            let _ = limit.compare_exchange(short, before, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// What the program says to a shadow that it was given.
const TOOK: u8 = 1;
const STAY: u8 = 0;

/// A shadow that the keeper has given, and takes back unless it hears that the program has [`take`](exchange::Given::take)n it.
pub struct Given {
    shadow: i32,
    over: i32,
}

impl exchange::Given for Given {
    fn reason(&self) -> Reason {
        Reason::Bulk
    }

    /// It is the program's alone; `None`: the keeper could not be told.
    fn take(mut self) -> Option<i32> {
        // There is room: nothing was said there before.
        calls::send_byte(self.over, TOOK, MSG_DONTWAIT | MSG_NOSIGNAL).ok()?;
        let _ = calls::close(core::mem::replace(&mut self.over, -1));
        Some(core::mem::replace(&mut self.shadow, -1))
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if self.over >= 0 {
            // Said as well, as a process that was made past the library may have the socket, too.
            let _ = calls::send_byte(self.over, STAY, MSG_DONTWAIT | MSG_NOSIGNAL);
            let _ = calls::close(self.over);
        }
        if self.shadow >= 0 {
            let _ = calls::close(self.shadow);
        }
    }
}

/// What the program has said to the shadow that it was given over the other end of `over`: whether it has taken it. `None`: nothing yet.
pub fn verdict(over: i32) -> Option<bool> {
    let mut said = STAY;
    match calls::recvfrom(over, (&raw mut said).cast(), 1, MSG_DONTWAIT, core::ptr::null_mut(), core::ptr::null_mut()) {
        Err(Errno(libc::EAGAIN | libc::EINTR)) => None,
        got => Some(got == Ok(1) && said == TOOK),
    }
}

/// Asks the keeper for the shadow. The caller holds both locks.
fn ask(local: &LocalStation, stream: Stream) -> Option<Given> {
    let mut pair = [-1; 2];
    calls::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.as_mut_ptr()).ok()?;
    let control = local.control.load(Ordering::Relaxed);
    let asked = Message::Leave(stream).send(control, &pair[1..]);
    let _ = calls::close(pair[1]);
    let mut given = Given { shadow: -1, over: pair[0] };
    asked.ok()?;
    let until = clock::monotonic_ns() + ANSWER;
    loop {
        match fd_passing::receive(given.over, MSG_DONTWAIT) {
            Ok([shadow, _]) if shadow >= 0 => {
                SILENCE.answered();
                given.shadow = shadow;
                return Some(given);
            }
            Err(Errno(libc::EAGAIN | libc::EINTR)) => {
                let now = clock::monotonic_ns();
                if now >= until {
                    SILENCE.unanswered(now);
                    return None;
                }
                let _ = calls::poll_one(given.over, POLLIN, (until - now) as i64);
            }
            _ => {
                SILENCE.answered();
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_rendezvous::exchange::Given as _;

    /// A shadow that was given, and where its verdict is heard.
    fn given() -> (Given, i32) {
        let mut pair = [-1; 2];
        calls::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.as_mut_ptr()).unwrap();
        let mut shadow = [-1; 2];
        calls::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, shadow.as_mut_ptr()).unwrap();
        calls::close(shadow[1]).unwrap();
        (Given { shadow: shadow[0], over: pair[0] }, pair[1])
    }

    #[test]
    fn the_keeper_hears_what_became_of_the_shadow() {
        let (taken, over) = given();
        assert_eq!(verdict(over), None);
        calls::close(taken.take().unwrap()).unwrap();
        assert_eq!(verdict(over), Some(true));
        calls::close(over).unwrap();

        let (refused, over) = given();
        drop(refused);
        assert_eq!(verdict(over), Some(false));
        calls::close(over).unwrap();

        let (killed, over) = given();
        calls::close(killed.over).unwrap();
        calls::close(killed.shadow).unwrap();
        core::mem::forget(killed);
        assert_eq!(verdict(over), Some(false), "a hang-up without a word");
        calls::close(over).unwrap();

        let (unheard, over) = given();
        calls::close(over).unwrap();
        assert_eq!(unheard.take(), None, "nobody gives it up");
    }
}
