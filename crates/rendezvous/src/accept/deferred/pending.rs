//! The clients that this process has taken off its listeners' queues, and that are not accepted yet.

use super::next_ready;
use crate::accept::Arrival;
use crate::listen::forward;
use crate::reconnect::server;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use shunt_link as link;
use shunt_link::companion_cache;
use shunt_ring::{bell, claim};
use shunt_segment::address::Address;
use shunt_segment::channel::{arm, word, ChannelPage, STAMP_POSITION};
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::wake;
use shunt_sys::libc::{self, epoll_event};
use shunt_sys::{calls, clock};
use shunt_table::global::{Guard, LockedCell};
use shunt_table::{private, table};

/// Clients that a process defers at most, or an eighth of its descriptors, as each costs one; further ones are accepted as if
/// nothing had been asked for.
const MOST: usize = 1024;

/// The same for a listener that others have, too: each of them might have to be put back.
const MOST_SHARED: usize = 32;

/// A client that was taken off its queue.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    /// The address of the listener's object.
    pub(super) listener: usize,
    /// Its companion, private; -1: the pair that was kept.
    pub(super) companion: i32,
    pub(super) index: usize,
    pub(super) channel: usize,
    pub(super) generation: u32,
    pub(super) client: Address,
    pub(super) server: Address,
    /// Counts the clients of the list.
    pub(super) number: u64,
    /// Something had come by the time it was taken.
    pub(super) early: bool,
    /// Its companion lies beside the clients' bells.
    watched: bool,
    /// And is readable there, as no bell tells of its first bytes.
    shown: bool,
    /// Its end of the companion is closed.
    pub(super) gone: bool,
    /// When it is accepted whatever it did, CLOCK_MONOTONIC in ns.
    pub(super) until: u64,
}

impl Waiting {
    pub(super) fn page(&self) -> &'static ChannelPage {
        link::page(link::at(self.index).base, self.channel)
    }

    pub(super) fn descriptor(&self) -> i32 {
        match self.companion {
            -1 => companion_cache::get(self.index, self.channel).map_or(-1, |kept| kept.descriptor()),
            own => own,
        }
    }

    /// Whether it is still the client that it was, and not reset before it sent anything: no such client is ever accepted.
    pub(super) fn holds(&self) -> bool {
        let said = self.page().sides[0].post.word.load(Ordering::Acquire);
        claim::is_offered(&self.page().head, self.generation) && (said & word::RST == 0 || said & word::POSITION != 0)
    }

    /// Whether bytes or an end have come.
    pub(super) fn has_something(&self) -> bool {
        self.gone || self.early || said_something(self.page())
    }

    /// For how long there has been something, in ticks; those of which that is not known come in the order of connecting.
    pub(super) fn age(&self, now: u64) -> u64 {
        let stamp = self.page().sides[0].stamp.load(Ordering::Acquire);
        if self.early {
            return u64::MAX - self.number;
        }
        match stamp {
            0 => 0,
            stamp => (now << STAMP_POSITION).wrapping_sub(stamp >> STAMP_POSITION << STAMP_POSITION) >> STAMP_POSITION,
        }
    }
}

/// The clients that wait for a deferred accept, and what is remembered of the latest.
pub(super) struct Deferred {
    pub(super) list: LockedCell<[Option<Waiting>; MOST]>,
    /// No less than there are in the list, at every moment. Where it is 0 the list is not read, whose many pages a process that forks
    /// would touch, and its child, for nothing.
    pub(super) count: AtomicU32,
    pub(super) number: AtomicU32,
    /// The thread that looked last, in poll or select, at a listener whose clients it may have taken off; 0: none.
    pub(super) poller: AtomicU32,
    /// The link through which a client came last.
    pub(super) latest: AtomicUsize,
    /// On which processor that client waited, plus one.
    pub(super) processor: AtomicU32,
}

pub(super) static DEFERRED: Deferred = Deferred {
    list: LockedCell::new([const { None }; MOST]),
    count: AtomicU32::new(0),
    number: AtomicU32::new(0),
    poller: AtomicU32::new(0),
    latest: AtomicUsize::new(0),
    processor: AtomicU32::new(0),
};

/// The list. Under the set-up lock.
pub(super) fn list() -> &'static mut [Option<Waiting>; MOST] {
    // SAFETY: callers hold the set-up lock.
    unsafe { &mut *DEFERRED.list.get() }
}

fn identity(listener: &Socket) -> usize {
    listener as *const Socket as usize
}

/// The places of a listener's clients.
pub(super) fn places(listener: &Socket) -> impl Iterator<Item = usize> {
    let listener = identity(listener);
    let places = if DEFERRED.count.load(Ordering::Relaxed) == 0 { 0 } else { MOST };
    (0..places).filter(move |&place| list()[place].is_some_and(|waiting| waiting.listener == listener))
}

/// The listener of each client. Under the set-up lock.
pub(super) fn listeners() -> impl Iterator<Item = &'static Socket> {
    // SAFETY: the address of a slab object, which is never unmapped.
    (0..MOST).filter_map(|place| list()[place]).map(|waiting| unsafe { &*(waiting.listener as *const Socket) })
}

/// Whether the client of a channel has sent bytes or an end. One that was reset before is not accepted at all.
pub(super) fn said_something(page: &ChannelPage) -> bool {
    let said = page.sides[0].post.word.load(Ordering::Acquire);
    said & word::POSITION != 0 || (said & (word::FIN | word::CLOSED) != 0 && said & word::RST == 0)
}

pub(super) fn has_room(listener: &Socket) -> bool {
    let count = DEFERRED.count.load(Ordering::Relaxed) as usize;
    let most = if listener.has(flag::LISTENER_SHARED) { MOST_SHARED } else { MOST };
    // The first needs no question: it is what every accept would ask.
    count == 0 || count < most && (count as u64) < calls::soft_limit(libc::RLIMIT_NOFILE) / 8
}

/// A client from the rendezvous joins the list.
pub(super) fn take(listener: &Socket, arrival: Arrival, _setup: &Guard) {
    companion_cache::forget(arrival.index, arrival.channel); // of an earlier companion
    let companion = match calls::fcntl(arrival.companion, libc::F_DUPFD_CLOEXEC, private::lowest() as usize) {
        Ok(moved) => {
            let _ = calls::close(arrival.companion);
            moved
        }
        Err(_) => arrival.companion, // no other number is left
    };
    table::set_private(companion);
    join(listener, Arrival { companion, ..arrival });
}

/// A client joins the list: its first bytes ring. Where nothing could be heard of it, it is due at once.
pub(super) fn join(listener: &Socket, Arrival { companion, client, server, index, channel, generation }: Arrival) {
    let Some(place) = (0..MOST).find(|&place| list()[place].is_none()) else { return };
    let page = link::page(link::at(index).base, channel);
    let (now, ticks) = (clock::monotonic_ns(), clock::ticks());
    // When it connected is the client's word: it gains nothing by it but to be accepted early.
    let began = page.head.began.load(Ordering::Relaxed).min(ticks);
    let deferred = began >= listener.listening.defers_since.load(Ordering::Relaxed);
    let time = if deferred { listener.listening.defers.load(Ordering::Relaxed) as u64 * 1_000_000_000 } else { 0 };
    let number = DEFERRED.number.fetch_add(1, Ordering::Relaxed) as u64;
    let until = now.saturating_sub(clock::ns_passed(ticks - began)) + time;
    let mut waiting = Waiting {
        listener: identity(listener),
        companion,
        index,
        channel,
        generation,
        client,
        server,
        number,
        early: said_something(page),
        watched: false,
        shown: false,
        gone: false,
        until,
    };
    let timed = next_ready::timer(listener);
    // One that has something is given next: no bell needs to be heard of it.
    if !waiting.early || !timed {
        let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: place as u64 + 1 };
        let bells = listener.listening.bells_fd.load(Ordering::Relaxed);
        waiting.watched = calls::epoll_ctl(bells, libc::EPOLL_CTL_ADD, waiting.descriptor(), &mut event).is_ok();
        if !waiting.watched || !timed {
            waiting.until = now;
        }
    }
    link::enter(index);
    bell::ask_for_stamps(&page.sides[1].wait);
    if waiting.watched {
        listen_to(&waiting);
        waiting.early = waiting.has_something();
    }
    waiting.early |= waiting.until <= now;
    DEFERRED.count.fetch_add(1, Ordering::SeqCst);
    list()[place] = Some(waiting);
}

/// The client at `place` is ready, and no thread gives it now: one that waits for the listener hears of it by its companion,
/// which is always writable, if no bell tells.
pub(super) fn show(place: usize) {
    let Some(waiting) = list()[place].as_mut().filter(|waiting| waiting.early && !waiting.shown) else { return };
    let Some(bells) = bells_of(waiting.listener) else { return };
    let change = if waiting.watched { libc::EPOLL_CTL_MOD } else { libc::EPOLL_CTL_ADD };
    let mut event = epoll_event { events: (libc::EPOLLIN | libc::EPOLLOUT) as u32, u64: place as u64 + 1 };
    waiting.shown = calls::epoll_ctl(bells, change, waiting.descriptor(), &mut event).is_ok();
    waiting.watched |= waiting.shown;
    if !waiting.shown {
        // SAFETY: the address of a slab object, which is never unmapped.
        next_ready::set_timer(unsafe { &*(waiting.listener as *const Socket) }, 1);
    }
}

/// Arms for the client's first bytes.
pub(super) fn listen_to(waiting: &Waiting) {
    if bell::arm(&waiting.page().sides[1].wait, arm::IN) {
        wake::barrier();
    }
}

/// Takes a client off the list; a pair that is kept stays.
pub(super) fn leave(place: usize) {
    let Some(waiting) = list()[place].take() else { return };
    DEFERRED.count.fetch_sub(1, Ordering::SeqCst);
    let fd = waiting.descriptor();
    if let Some(bells) = bells_of(waiting.listener).filter(|_| waiting.watched) {
        let _ = calls::epoll_ctl(bells, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
    }
    private::close(waiting.companion);
    let live = &mut link::at(waiting.index).live;
    *live = live.saturating_sub(1);
    // SAFETY: as in `bells_of`.
    rest(unsafe { &*(waiting.listener as *const Socket) });
}

/// No thread looks at the timer of a listener that does not defer, when no client of its is left. Under the set-up lock.
pub fn rest(listener: &Socket) {
    if listener.listening.defers.load(Ordering::SeqCst) == 0 && places(listener).next().is_none() {
        next_ready::set_timer(listener, 0);
    }
}

fn bells_of(listener: usize) -> Option<i32> {
    // SAFETY: the address of a slab object, which is never unmapped.
    let bells = unsafe { (*(listener as *const Socket)).listening.bells_fd.load(Ordering::Relaxed) };
    (bells >= 0).then_some(bells)
}

/// The client at `place` is refused: it sees a reset, if it is still there.
pub(super) fn drop_client(place: usize) {
    let Some(waiting) = list()[place] else { return };
    leave(place);
    let page = waiting.page();
    if claim::accept(&page.head, waiting.generation) {
        server::refuse(page);
    }
    companion_cache::forget(waiting.index, waiting.channel);
}

/// The channels of link `index` whose clients are in the list, one bit each. Under the set-up lock.
pub fn channels_of(index: usize) -> u64 {
    if DEFERRED.count.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    let waiting = list().iter().flatten().filter(|waiting| waiting.index == index);
    waiting.fold(0, |channels, waiting| channels | 1 << waiting.channel)
}

/// Puts the listener's clients back where any process may take them, as far as there is room. Under the set-up lock.
pub fn to_rendezvous(listener: &Socket) {
    put_back(listener, None);
}

/// The same for all but the client at `stays`.
pub(super) fn put_back(listener: &Socket, stays: Option<usize>) {
    for place in places(listener) {
        let Some(waiting) = list()[place].filter(|_| Some(place) != stays) else { continue };
        let Waiting { index, channel, generation, .. } = waiting;
        if waiting.holds() && forward::post(index, channel, generation, waiting.descriptor(), listener).is_err() {
            return;
        }
        leave(place);
        companion_cache::forget(waiting.index, waiting.channel);
    }
}

/// In the child after fork: what could not be put back is the parent's. Bells and companions of ours must not be heard by
/// the parent, nor its own by us.
pub fn forked() {
    if DEFERRED.count.swap(0, Ordering::Relaxed) != 0 {
        for place in list().iter_mut() {
            if let Some(waiting) = place.take() {
                private::close(waiting.companion);
                let live = &mut link::at(waiting.index).live;
                *live = live.saturating_sub(1);
            }
        }
    }
    for fd in table::programs() {
        // One that defers no longer may have clients, and a timer, yet.
        let defers = |socket: &&Socket| {
            socket.listening.defers.load(Ordering::Relaxed) != 0 || socket.listening.timer_fd.load(Ordering::Relaxed) >= 0
        };
        let Some(listener) = table::get(fd).object::<Socket>().filter(|socket| defers(&&**socket)) else { continue };
        let bells = listener.listening.bells_fd.load(Ordering::Relaxed);
        private::close(listener.listening.timer_fd.swap(-1, Ordering::Relaxed));
        if bells >= 0 {
            if let Ok(fresh) = calls::epoll_create1(libc::EPOLL_CLOEXEC) {
                let _ = calls::dup3(fresh, bells, libc::O_CLOEXEC);
                let _ = calls::close(fresh);
            }
        }
    }
}

/// A private descriptor got another number, and still has the old one. Under the set-up lock.
pub fn moved(from: i32, to: i32) {
    if DEFERRED.count.load(Ordering::Relaxed) == 0 {
        return;
    }
    for (place, entry) in list().iter_mut().enumerate() {
        let Some(waiting) = entry else { continue };
        if waiting.companion == from {
            waiting.companion = to;
        }
        if waiting.descriptor() == to {
            if let Some(bells) = bells_of(waiting.listener).filter(|_| waiting.watched) {
                let shown = if waiting.shown { libc::EPOLLOUT } else { 0 };
                let mut event = epoll_event { events: (libc::EPOLLIN | shown) as u32, u64: place as u64 + 1 };
                let _ = calls::epoll_ctl(bells, libc::EPOLL_CTL_DEL, from, core::ptr::null_mut());
                let _ = calls::epoll_ctl(bells, libc::EPOLL_CTL_ADD, to, &mut event);
            }
        }
    }
}
