//! The kernel's half of a set: asking it, and sorting what it says.

use super::arming::kicked;
use super::control::{change, change_queues, kernel_event};
use super::entry::{place, tagged, term, Entry};
use super::events::{find, take};
use super::frames::{self, FRAMES};
use super::list::address;
use super::scan::{deliver, Answer};
use super::set::{activate, enqueue, Set};
use super::{order, ERR, HUP, MODES, ONESHOT, TAG, TAG_MASK};
use core::sync::atomic::Ordering;
use shunt_rendezvous::accept::deferred;
use shunt_rendezvous::{accept, listen};
use shunt_stream::corked;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::{bypass, readiness, spin};
use shunt_sys::libc::{self, epoll_event, sigset_t, timespec};
use shunt_sys::section::Section;
use shunt_sys::{calls, clock, sleeping, user, Errno, Result};
use shunt_table::table;
use shunt_table::table::Kind;

const NO_EVENT: epoll_event = epoll_event { events: 0, u64: 0 };
const BATCH: usize = 64;

/// Asks the kernel's set, for `timeout` ns (`None`: for ever), and sorts what it says. The program's array holds the
/// kernel's words first: a second question would be answered with level-triggered events again. A sleep gives EINTR when a
/// handler ran since `began` ([`shunt_sys::thread::handled`]).
pub(super) fn ask_kernel(
    set: &'static Set,
    epfd: i32,
    answer: &mut Answer,
    timeout: Option<u64>,
    mask: *const sigset_t,
    began: u64,
) -> Result<()> {
    let room = answer.room - answer.count;
    if room == 0 || answer.fault {
        return Ok(());
    }
    let time = timeout.map(|ns| timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
    let pointer = time.as_ref().map_or(core::ptr::null(), |t| t as *const timespec);
    let free = answer.start.wrapping_add(answer.count);
    let room = room as i32;
    // No handler that jumps comes between the answer and its sorting; to one that ends a sleep [`super::arming::recall`] sees.
    let _section = (timeout == Some(0)).then(Section::begin);
    let asked = match timeout {
        Some(0) => calls::epoll_pwait2(set.number(epfd), free, room, pointer, mask, calls::KERNEL_SIGSET),
        _ => sleeping::epoll_pwait2(set.number(epfd), free, room, pointer, mask, began),
    };
    let mut got = match asked {
        Err(Errno(libc::EFAULT)) => {
            answer.fault = true;
            return Ok(());
        }
        got => got?,
    };
    // The queue alone has filled the array: behind it there may be the program's own events, which a call that does not wait is to tell.
    for _ in 0..frames::MEMBERS.len() {
        // SAFETY: the kernel wrote `got` events there.
        if got < room as usize || !unsafe { frames::are_all(set, free, got) } {
            break;
        }
        answer.frames = true;
        got =
            calls::epoll_pwait2(set.number(epfd), free, room, &spin::ZERO, core::ptr::null(), calls::KERNEL_SIGSET).unwrap_or(0);
    }
    set.last_kernel.store(clock::ticks(), Ordering::Relaxed);
    if got == 0 {
        return Ok(());
    }
    // SAFETY: the kernel wrote `got` events there.
    unsafe { sort(set, free, got, answer) }
}

/// Sorts `count` events of the kernel's at `events`: streams are looked at, ours get the program's data back, others pass
/// as they are. They may lie in the answer's own array, from its end on: no event gives more than one.
///
/// # Safety
/// `events` holds `count` events.
pub(super) unsafe fn sort(set: &'static Set, events: *const epoll_event, count: usize, answer: &mut Answer) -> Result<()> {
    let _held = set.lock.lock().ok_or(Errno(libc::EINTR))?;
    let mut batch = [NO_EVENT; BATCH];
    let mut at = 0;
    while at < count {
        let part = (count - at).min(BATCH);
        let size = part * core::mem::size_of::<epoll_event>();
        // SAFETY: the caller's array; what was answered so far lies before it.
        unsafe { user::copy_all(events.wrapping_add(at).cast(), batch.as_mut_ptr().cast(), size)? };
        // Events of foreign descriptors keep their places among those of streams.
        let mixed = batch[..part].iter().any(|event| event.u64 & TAG_MASK != TAG);
        // Those whose times of arrival are known are put into order by the look that follows, among others that had no bell.
        let timed = !mixed && order::all_known(set, batch[..part].iter().map(|event| event.u64));
        for event in &batch[..part] {
            sort_one(set, event.events, event.u64, Sorting { mixed, timed }, answer);
        }
        at += part;
    }
    Ok(())
}

/// Whether another process was faster: its client woke all that wait for the listener.
fn calls_in_vain(entry: &Entry) -> bool {
    let listener = entry.socket().filter(|listener| listener.has(flag::LISTENER_SHARED));
    listener.zip(entry.descriptor()).is_some_and(|(listener, fd)| accept::nobody(fd, listener))
}

/// Whether it was a rendezvous that spoke, only because it refuses clients from now on: it leaves the set. Those that had come
/// before are heard by their bells.
fn rendezvous_left(set: &Set, entry: &Entry) -> bool {
    let Some(listener) = entry.socket().filter(|listener| listen::refuses(listener)) else { return false };
    let own = entry.queues[0].load(Ordering::Relaxed);
    let rendezvous = if own >= 0 { own } else { listener.private_fd.load(Ordering::Relaxed) };
    if let Some(epfd) = set.descriptor() {
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, rendezvous, core::ptr::null_mut());
    }
    entry.descriptor().is_some_and(|fd| calls::poll_one(fd, libc::POLLIN, 0) == Ok(0)) && !deferred::any_ready(listener)
}

/// How a batch of the kernel's is sorted.
#[derive(Clone, Copy)]
struct Sorting {
    /// It names foreign descriptors.
    mixed: bool,
    /// It names streams only, and of all of them it is known when their bytes came.
    timed: bool,
}

fn sort_one(set: &'static Set, flags: u32, data: u64, how: Sorting, answer: &mut Answer) {
    if data & TAG_MASK != TAG {
        answer.push(flags, data);
        return;
    }
    // None: removed meanwhile, or registered by another process after a fork; or the queue's.
    let Some(entry) = tagged(data).filter(|e| e.set.load(Ordering::Acquire) == address(set) && e.valid()) else {
        answer.frames |= data == FRAMES;
        return;
    };
    match entry.socket().map(|s| s.kind()) {
        Some(Kind::Stream) => {
            if !hear(set, entry, flags) {
                return;
            }
            let mut finding = find(entry);
            if breaks_off(entry, finding.events == 0) {
                finding = find(entry);
            }
            if finding.events == 0 {
                entry.socket().into_iter().for_each(corked::look);
                return;
            }
            if how.mixed && !answer.full() {
                if !answer.names(entry) {
                    deliver(set, entry, &finding, answer);
                }
            } else if entry.queue.load(Ordering::Relaxed) != place::READY {
                enqueue(set, entry, if how.timed { place::WATCHED } else { place::READY });
            }
        }
        None if entry.inner().is_some() => {
            // Whether the inner set has events is seen in memory, or is the kernel's to say.
            entry.heard.store(true, Ordering::Relaxed);
            activate(set, entry);
            // What does not hold at all was armed again by that look.
            if entry.wanted() & ONESHOT != 0 && find(entry).events == 0 && entry.heard.load(Ordering::Relaxed) {
                rearm(set, entry);
            }
        }
        None if entry.datagram().is_some() => of_datagrams(set, entry, flags, answer),
        Some(Kind::Listener) if flags & (ERR | HUP) == 0 && calls_in_vain(entry) => rearm(set, entry),
        Some(Kind::Listener) if rendezvous_left(set, entry) => {}
        _ => {
            // A bell whose offer has been accepted is no event.
            let listener = entry.socket().filter(|s| s.kind() == Kind::Listener);
            let spent = |listener| entry.descriptor().is_some_and(|fd| !accept::ready(fd, listener));
            if flags & (ERR | HUP) == 0 && listener.is_some_and(spent) {
                rearm(set, entry);
                return;
            }
            // A listener's queues may all have spoken: one event is enough.
            let silent = entry.wanted() & ONESHOT != 0
                && entry.terms().flags.fetch_or(term::DISABLED, Ordering::Relaxed) & term::DISABLED != 0;
            if !silent && !answer.names(entry) {
                answer.push(flags, entry.terms().data.load(Ordering::Relaxed));
            }
        }
    }
}

/// The kernel has disabled a one-shot registration of a listener, or of an inner set, for an event of which the program hears nothing:
/// Linux disables only for what it tells (ep_send_events). Which of the listener's queues spoke is not known.
pub(super) fn rearm(set: &Set, entry: &Entry) {
    if entry.wanted() & ONESHOT == 0 || entry.has(term::DISABLED) {
        return;
    }
    let Some(epfd) = set.descriptor() else { return };
    let fd = entry.fd.load(Ordering::Relaxed);
    if let Some(inner) = entry.inner() {
        if table::get(fd).object::<Set>().is_some_and(|set| core::ptr::eq(set, inner)) {
            change(epfd, entry, fd, kernel_event(entry, Kind::Epoll));
        }
    }
    let Some(listener) = entry.socket() else { return };
    let event = kernel_event(entry, Kind::Listener);
    // The number may be another file's by now.
    if table::get(fd).object::<Socket>().is_some_and(|socket| core::ptr::eq(socket, listener)) {
        change(epfd, entry, fd, event);
    }
    change_queues(epfd, entry, listener, event);
}

/// What the kernel says of a datagram socket, and what lies in its inbox.
fn of_datagrams(set: &'static Set, entry: &'static Entry, flags: u32, answer: &mut Answer) {
    kicked(set, entry);
    activate(set, entry);
    let wanted = entry.wanted();
    let finding = find(entry);
    let mut flags = flags;
    if let (true, Some(socket), Some(fd)) = (flags & HUP != 0, entry.datagram(), entry.descriptor()) {
        flags |= shunt_inbox::local::error(fd, socket) as u16 as u32;
    }
    let events = flags & (wanted & !MODES | ERR | HUP) | finding.events;
    if events == 0 {
        return;
    }
    let data = entry.terms().data.load(Ordering::Relaxed);
    if answer.names(entry) {
        answer.widen(events, data);
    } else if take(entry, &finding) || wanted & ONESHOT == 0 {
        answer.push(events, data);
    }
}

/// Whether what was heard of a stream was no bell, so that its connection is over; `silent`: there is nothing else to tell.
fn breaks_off(entry: &'static Entry, silent: bool) -> bool {
    let (Some(socket), Some(fd)) = (entry.socket(), entry.descriptor()) else { return false };
    if silent {
        bypass::look(socket, fd)
    } else {
        bypass::look_at_count(socket, fd)
    }
}

/// A stream's bell, or the end of its companion. True if the stream is to be looked at.
fn hear(set: &'static Set, entry: &'static Entry, flags: u32) -> bool {
    if let (true, Some(socket)) = (flags & (ERR | HUP) != 0, entry.socket()) {
        readiness::note_if_gone(socket, entry.fd.load(Ordering::Relaxed));
    }
    kicked(set, entry);
    activate(set, entry);
    entry.queue.load(Ordering::Relaxed) != place::NONE
}

/// Hears the bells in a set that holds nothing but streams. Under the set's lock.
pub(super) fn harvest(set: &'static Set, epfd: i32) {
    let mut batch = [NO_EVENT; BATCH];
    loop {
        let none = timespec { tv_sec: 0, tv_nsec: 0 };
        let events = batch.as_mut_ptr();
        let got = calls::epoll_pwait2(epfd, events, BATCH as i32, &none, core::ptr::null(), calls::KERNEL_SIGSET).unwrap_or(0);
        let mut kicked = false;
        for event in &batch[..got] {
            let (flags, data) = (event.events, event.u64);
            if let Some(entry) = tagged(data).filter(|e| e.set.load(Ordering::Acquire) == address(set)) {
                kicked |= entry.kicked.load(Ordering::Relaxed);
                hear(set, entry, flags);
                breaks_off(entry, find(entry).events == 0); // the edge is gone with this
            }
        }
        // A kick that is taken back makes an edge of a bell that stays.
        if got < BATCH && !kicked {
            return;
        }
    }
}
