//! The TCP connection that stays beside a stream to another network namespace: nothing is sent on it, so all that happens to it is its end. One that comes from
//! outside (`ss -K`, a filter that resets, the network that goes) ends the stream.
//!
//! The kernel is asked whether any has ended, in one call for all of them, by a thread that is about to sleep or finds nothing, some forty times a second at most;
//! sleeping threads wake for it. What moves bytes asks nothing. A peer that closes, exits or is killed ends its TCP connection, too, and says so otherwise, or
//! the kernel does: so an end is believed at the second look. Where processes share a side, or did, the last one that has the stream need not have the
//! TCP connection any more, and its end says nothing.

use crate::cut;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use shunt_segment::channel::{state, word};
use shunt_stream::deadlines::{self, NEVER};
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::{readiness, wake};
use shunt_stream::{beside, reset_from_outside as reset};
use shunt_sys::libc::{self, epoll_event};
use shunt_sys::{calls, clock};
use shunt_table::{private, table};

/// Between two looks (ns).
const EVERY: u64 = 25_000_000;

struct Lifelines {
    /// The kernel's set of them; -1: none was made.
    set: AtomicI32,
    /// How many streams have one.
    live: AtomicU32,
    /// One has ended, whose stream was not looked at for the second time.
    suspected: AtomicBool,
}

static LIFELINES: Lifelines = Lifelines { set: AtomicI32::new(-1), live: AtomicU32::new(0), suspected: AtomicBool::new(false) };

/// What the kernel tells with a connection's end: whose it is, and of which of its lives. Sockets are never unmapped, and a connection that a child has, too,
/// may end behind the stream.
fn ticket(socket: &Socket) -> u64 {
    let generation = u64::from(socket.generation.load(Ordering::Relaxed));
    core::ptr::from_ref(socket) as u64 & ADDRESS | generation << ADDRESS.count_ones()
}

/// Bits of a pointer of a program's.
const ADDRESS: u64 = (1 << 48) - 1;

/// The stream's private descriptor is its TCP connection, from now on. Where the kernel has no room its end is not noticed.
pub fn begin(socket: &Socket) {
    let connection = socket.private_fd.load(Ordering::Relaxed);
    let Some(set) = set().filter(|_| connection >= 0) else { return };
    let mut event = epoll_event { events: (libc::EPOLLRDHUP | libc::EPOLLET) as u32, u64: ticket(socket) };
    if calls::epoll_ctl(set, libc::EPOLL_CTL_ADD, connection, &mut event).is_ok() {
        socket.set(flag::LIFELINE);
        LIFELINES.live.fetch_add(1, Ordering::Relaxed);
        deadlines::lifelines().fetch_min(clock::monotonic_ns() + EVERY, Ordering::Relaxed);
    }
}

fn set() -> Option<i32> {
    let known = LIFELINES.set.load(Ordering::Acquire);
    if known >= 0 {
        return Some(known);
    }
    let made = calls::epoll_create1(libc::EPOLL_CLOEXEC).and_then(private::keep).ok()?;
    match LIFELINES.set.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(made),
        Err(other) => {
            private::close(made);
            Some(other)
        }
    }
}

/// Whether any stream has one.
pub fn any() -> bool {
    LIFELINES.live.load(Ordering::Relaxed) != 0
}

/// The stream ends, or goes on by the connection, and its private descriptor is about to be closed, or the program's.
pub fn end(socket: &Socket) {
    if socket.has(flag::LIFELINE) {
        cut::forget(socket);
        let (set, connection) = (LIFELINES.set.load(Ordering::Acquire), socket.private_fd.load(Ordering::Relaxed));
        if beside::has_moved(socket) {
            // The program's descriptors keep it open.
            let _ = calls::epoll_ctl(set, libc::EPOLL_CTL_DEL, connection, core::ptr::null_mut());
        }
        socket.clear(flag::LIFELINE | flag::LIFELINE_TOLD);
        let one_less = |live: u32| live.checked_sub(1);
        let _ = LIFELINES.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    }
}

/// Looks, if that is due. True: a stream has ended.
#[cold]
pub(crate) fn keep() -> bool {
    let (due, now) = (deadlines::lifelines().load(Ordering::Relaxed), clock::monotonic_ns());
    if now < due {
        return false;
    }
    let again = if any() { now + cut::every().unwrap_or(EVERY) } else { NEVER };
    if deadlines::lifelines().compare_exchange(due, again, Ordering::Relaxed, Ordering::Relaxed).is_err() || again == NEVER {
        return false;
    }
    cut::look_for_requests(now);
    let mut events = [epoll_event { events: 0, u64: 0 }; 64];
    let set = LIFELINES.set.load(Ordering::Acquire);
    let told = calls::epoll_pwait(set, events.as_mut_ptr(), events.len() as i32, 0, core::ptr::null(), calls::KERNEL_SIGSET);
    let told = told.unwrap_or(0);
    for event in &events[..told] {
        let told_of = event.u64;
        // SAFETY: it was made of a socket by `ticket`, and sockets are never unmapped.
        let socket = unsafe { &*((told_of & ADDRESS) as *const Socket) };
        if socket.has(flag::LIFELINE) && ticket(socket) == told_of {
            socket.set(flag::LIFELINE_TOLD);
        }
    }
    (told > 0 || LIFELINES.suspected.load(Ordering::Relaxed)) && look_through()
}

/// Each stream of whose TCP connection's end the kernel has told is noted at first, and ended the next time.
fn look_through() -> bool {
    LIFELINES.suspected.store(false, Ordering::Relaxed);
    let mut any = false;
    for fd in table::numbers() {
        let Some(socket) = shunt_stream::socket::stream(fd).filter(|socket| socket.has(flag::LIFELINE_TOLD)) else { continue };
        const ENDED: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLRDHUP;
        let connection = socket.private_fd.load(Ordering::Relaxed);
        let has_ended = calls::poll_one(connection, libc::POLLRDHUP, 0).is_ok_and(|told| told & ENDED != 0);
        if !has_ended || beside::has_moved(socket) || is_shared(socket) || is_over(socket, fd) {
            socket.clear(flag::LIFELINE_TOLD);
            continue;
        }
        if !socket.has(flag::LIFELINE_ENDED) {
            socket.set(flag::LIFELINE_ENDED);
            LIFELINES.suspected.store(true, Ordering::Relaxed);
            continue;
        }
        // Where a handler has interrupted a send of this thread's, the next look does it.
        match reset(socket, fd) {
            Ok(()) => {
                socket.clear(flag::LIFELINE_TOLD);
                any = true;
            }
            Err(_) => LIFELINES.suspected.store(true, Ordering::Relaxed),
        }
    }
    any
}

/// Whether several processes have, or had, one of the sides.
fn is_shared(socket: &Socket) -> bool {
    let sides = [socket.own(), socket.peer()];
    socket.has(flag::SHARED) || sides.iter().any(|side| side.receive.state.load(Ordering::Relaxed) & state::SHARED != 0)
}

/// Whether the stream is over already, or its peer is: then that says how it ends.
fn is_over(socket: &Socket, fd: i32) -> bool {
    const OVER: u32 = state::DONE | state::PEER_GONE | state::RESET_DUE | state::PIPE_DUE;
    wake::ask_peer(socket, fd);
    readiness::closed(socket)
        || socket.incoming().look().0 & word::CLOSED != 0
        || socket.own().receive.state.load(Ordering::Relaxed) & OVER != 0
        || socket.has(flag::HUNG_UP)
}

/// In the child after fork: the kernel's set is the parent's, and the streams are shared.
pub fn forked() {
    private::close(LIFELINES.set.swap(-1, Ordering::Relaxed));
    // Their ends take nothing from what the child counts of its own.
    for socket in table::numbers().filter_map(shunt_stream::socket::stream) {
        socket.clear(flag::LIFELINE | flag::LIFELINE_ENDED | flag::LIFELINE_TOLD | flag::CUT);
    }
    cut::forked();
    LIFELINES.live.store(0, Ordering::Relaxed);
    deadlines::lifelines().store(NEVER, Ordering::Relaxed);
    LIFELINES.suspected.store(false, Ordering::Relaxed);
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    private::renumber(&LIFELINES.set, from, to);
}
