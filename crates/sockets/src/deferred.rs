//! TCP_DEFER_ACCEPT: clients that have connected and sent nothing are not accepted yet (tcp(7)).
//!
//! On Linux the hand-shake of such a client stays unfinished until bytes or an end come, or until the time is over
//! (tcp_check_req, reqsk_timer_handler). Here a listener that defers takes clients off its queues into the list below, their
//! channels still offered, and accept gives out those of them that have something. Their companions and a timer lie beside
//! the clients' bells, so whoever waits for the listener, in whatever call, is woken for them.
//!
//! The list is a process's own. One that shares its listener puts back what it holds before it leaves accept with a connection,
//! since others may be idle while it is busy; so does every process before it shares a listener, or closes a shared one.

use crate::accept::{self, Accepted, Arrival};
use crate::global::{Guard, Shared, SETUP};
use crate::socket::{flag, Socket};
use crate::{kept, link, listen, offered, parcel, private, table, wait};
use core::sync::atomic::{AtomicU32, Ordering};
use shunt_ring::tally::Tally;
use shunt_ring::{bell, offers};
use shunt_segment::address::Address;
use shunt_segment::channel::{arm, life, word, ChannelPage, BELL, STAMP_POSITION};
use shunt_segment::CHANNELS;
use shunt_sys::libc::{self, epoll_event, timespec};
use shunt_sys::{calls, clock, Errno, Result};

/// Clients that a process defers at most, or an eighth of its descriptors, as each costs one; further ones are accepted as if
/// nothing had been asked for.
const MOST: usize = 1024;
/// The same for a listener that others have, too: each of them might have to be put back.
const MOST_SHARED: usize = 32;
/// Clients that are put back with each connection that a listener that does not block gives: it takes some microseconds each.
const PUT_BACK: usize = 16;
/// What the timer is known under beside the bells; places in the list are their number plus one.
const TIMER: u64 = u64::MAX;

/// A client that was taken off its queue.
#[derive(Clone, Copy)]
struct Waiting {
    /// The address of the listener's object.
    listener: usize,
    /// Its companion, private; -1: the pair that was kept.
    companion: i32,
    index: usize,
    channel: usize,
    generation: u32,
    client: Address,
    server: Address,
    /// Counts the clients of the list.
    number: u64,
    /// Something had come by the time it was taken.
    early: bool,
    /// Its end of the companion is closed.
    gone: bool,
    /// When it is accepted whatever it did, CLOCK_MONOTONIC in ns.
    until: u64,
}

static LIST: Shared<[Option<Waiting>; MOST]> = Shared::new([const { None }; MOST]);
static COUNT: AtomicU32 = AtomicU32::new(0);
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The list. Under the set-up lock.
fn list() -> &'static mut [Option<Waiting>; MOST] {
    // SAFETY: callers hold the set-up lock.
    unsafe { &mut *LIST.get() }
}

fn identity(listener: &Socket) -> usize {
    listener as *const Socket as usize
}

/// The places of a listener's clients.
fn places(listener: &Socket) -> impl Iterator<Item = usize> {
    let listener = identity(listener);
    (0..MOST).filter(move |&place| list()[place].is_some_and(|waiting| waiting.listener == listener))
}

impl Waiting {
    fn page(&self) -> &'static ChannelPage {
        link::page(link::at(self.index).base, self.channel)
    }

    fn descriptor(&self) -> i32 {
        match self.companion {
            -1 => kept::get(self.index, self.channel).map_or(-1, |kept| kept.descriptor()),
            own => own,
        }
    }

    /// Whether it is still the client that it was, and not reset before it sent anything: no such client is ever accepted.
    fn holds(&self) -> bool {
        let head = &self.page().head;
        let said = self.page().sides[0].post.word.load(Ordering::Acquire);
        head.state.load(Ordering::Acquire) == life::OFFERED
            && head.generation.load(Ordering::Relaxed) == self.generation
            && (said & word::RST == 0 || said & word::POSITION != 0)
    }

    /// Whether bytes or an end have come.
    fn has_something(&self) -> bool {
        self.gone || self.early || said_something(self.page())
    }

    /// For how long there has been something, in ticks; those of which that is not known come in the order of connecting.
    fn age(&self, now: u64) -> u64 {
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

/// Whether the client of a channel has sent bytes or an end. One that was reset before is not accepted at all.
fn said_something(page: &ChannelPage) -> bool {
    let said = page.sides[0].post.word.load(Ordering::Acquire);
    said & word::POSITION != 0 || (said & (word::FIN | word::CLOSED) != 0 && said & word::RST == 0)
}

/// The program set TCP_DEFER_ACCEPT, which reads back as `seconds`.
pub(crate) fn set(socket: &Socket, seconds: i32) {
    let seconds = seconds.max(0) as u32;
    if seconds != 0 && socket.defers.load(Ordering::Relaxed) == 0 {
        socket.defers_since.store(clock::monotonic_ns(), Ordering::Relaxed);
    }
    socket.defers.store(seconds, Ordering::Release);
}

/// Whether the listener's clients have to be looked at here.
#[inline(always)]
pub(crate) fn concern(listener: &Socket) -> bool {
    listener.defers.load(Ordering::Relaxed) != 0 || COUNT.load(Ordering::Relaxed) != 0
}

/// Whether the listener has clients in the list.
pub(crate) fn any(listener: &Socket) -> bool {
    COUNT.load(Ordering::Relaxed) != 0 && SETUP.try_lock().is_some_and(|_setup| places(listener).next().is_some())
}

/// accept of a listener that defers. EAGAIN: no client has sent anything.
pub(crate) fn accept(listener: &Socket, flags: i32) -> Result<Accepted> {
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    while has_room(listener) {
        let Ok((arrival, setup)) = accept::arrive(listener, flags, None) else { break };
        // The usual case: nobody waits here, and it has sent something already.
        let page = link::page(link::at(arrival.index).base, arrival.channel);
        if COUNT.load(Ordering::Relaxed) == 0 && said_something(page) {
            if let Ok(accepted) = accept::welcome(&arrival, listener, nonblocking) {
                kept::forget(arrival.index, arrival.channel); // of an earlier companion
                return Ok(accepted);
            }
            let _ = calls::close(arrival.companion);
            continue;
        }
        take(listener, arrival, &setup);
    }
    let mut setup = SETUP.lock().ok_or(Errno(libc::EAGAIN))?;
    if let Some(accepted) = usual_offer(listener, flags, &setup)? {
        return Ok(accepted);
    }
    take_offers(listener, &setup);
    if listener.has(flag::LISTENER_SHARED) {
        if let Some(place) = first(listener, &setup) {
            if places(listener).count() <= PUT_BACK + 1 || !listen::nonblocking(listener) {
                put_back(listener, Some(place));
                // Signals that came meanwhile are heard before there is a client in hand: a handler may end the process,
                // as uWSGI's does in a worker that has none.
                drop(setup);
                setup = SETUP.lock().ok_or(Errno(libc::EAGAIN))?;
            }
        }
    }
    while let Some(place) = first(listener, &setup) {
        match give(place, listener, flags, &setup) {
            Ok(accepted) => return Ok(accepted),
            Err(Some(error)) => return Err(error),
            Err(None) => {}
        }
    }
    drop(setup);
    if has_room(listener) {
        return Err(Errno(libc::EAGAIN));
    }
    offered::accept(listener, flags).or_else(|_| accept::from_rendezvous(listener, flags))
}

/// Whether accept would give a client. For those who wait in poll or in a set, whose locks they may hold: where another thread
/// is busy with clients at this moment, yes.
pub(crate) fn ready(listener: &Socket) -> bool {
    loop {
        let Some(setup) = SETUP.try_lock() else { return true };
        if !has_room(listener) {
            break;
        }
        let Ok((arrival, setup)) = accept::arrive(listener, libc::SOCK_CLOEXEC, Some(setup)) else { break };
        take(listener, arrival, &setup);
    }
    let Some(setup) = SETUP.try_lock() else { return true };
    take_offers(listener, &setup);
    if first(listener, &setup).is_some() {
        return true;
    }
    if has_room(listener) {
        return false;
    }
    let rendezvous = listener.private_fd.load(Ordering::Acquire);
    offered::waiting(listener) || calls::poll_one(rendezvous, libc::POLLIN, 0).is_ok_and(|events| events != 0)
}

/// Any client of the list, whatever it did: the listener goes elsewhere.
pub(crate) fn evict(listener: &Socket, flags: i32) -> Result<Accepted> {
    let setup = SETUP.lock().ok_or(Errno(libc::EAGAIN))?;
    while let Some(place) = places(listener).next() {
        match give(place, listener, flags, &setup) {
            Err(None) => {}
            other => return other.map_err(|error| error.unwrap_or(Errno(libc::EAGAIN))),
        }
    }
    Err(Errno(libc::EAGAIN))
}

fn has_room(listener: &Socket) -> bool {
    let count = COUNT.load(Ordering::Relaxed) as usize;
    let most = if listener.has(flag::LISTENER_SHARED) { MOST_SHARED } else { MOST };
    count < most && (count as u64) < calls::soft_limit(libc::RLIMIT_NOFILE) / 8
}

/// A client from the rendezvous joins the list.
fn take(listener: &Socket, arrival: Arrival, _setup: &Guard) {
    kept::forget(arrival.index, arrival.channel); // of an earlier companion
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

/// A client that cannot go where other processes would accept it waits here, due at once. Under the set-up lock.
pub(crate) fn keep(listener: &Socket, arrival: Arrival, setup: &Guard) {
    if !has_room(listener) {
        let _ = calls::close(arrival.companion);
        return;
    }
    take(listener, arrival, setup);
    first(listener, setup); // sets the timer
}

/// The oldest offer of a client, where nobody waits in the list, and it has sent something already.
fn usual_offer(listener: &Socket, flags: i32, _setup: &Guard) -> Result<Option<Accepted>> {
    if COUNT.load(Ordering::Relaxed) != 0 || !offered::waiting(listener) {
        return Ok(None);
    }
    for (header, index) in offered::places(listener) {
        let base = link::at(index).base;
        let Some(channel) = offers::oldest(&header.offers).filter(|&channel| said_something(link::page(base, channel))) else {
            continue;
        };
        let taken = offered::take(index, base, channel, listener, flags);
        if let Err(Some(error)) = taken {
            return Err(error); // no descriptor for it: it waits
        }
        let spent = offers::take(&header.offers);
        if spent > 0 {
            offered::silence(index, spent);
        }
        if let Ok(accepted) = taken {
            return Ok(Some(accepted));
        }
    }
    Ok(None)
}

/// What clients offer in memory joins the list.
fn take_offers(listener: &Socket, _setup: &Guard) {
    if !offered::waiting(listener) {
        return;
    }
    for (header, index) in offered::places(listener) {
        for _ in 0..CHANNELS {
            let Some(channel) = offers::oldest(&header.offers).filter(|_| has_room(listener)) else { break };
            let page = link::page(link::at(index).base, channel);
            let offered = page.head.state.load(Ordering::Acquire) == life::OFFERED;
            if let (true, Some((_, client, server))) = (offered, offered::honest(index, page, channel, listener)) {
                let generation = page.head.generation.load(Ordering::Relaxed);
                join(listener, Arrival { companion: -1, client, server, index, channel, generation });
            }
            let spent = offers::take(&header.offers);
            if spent > 0 {
                offered::silence(index, spent);
            }
        }
    }
}

/// A client joins the list: its first bytes ring. Where nothing could be heard of it, it is due at once.
fn join(listener: &Socket, Arrival { companion, client, server, index, channel, generation }: Arrival) {
    let Some(place) = (0..MOST).find(|&place| list()[place].is_none()) else { return };
    let page = link::page(link::at(index).base, channel);
    let now = clock::monotonic_ns();
    // When it connected is the client's word: it gains nothing by it but to be accepted early.
    let began = page.head.began.load(Ordering::Relaxed).min(now);
    let deferred = began >= listener.defers_since.load(Ordering::Relaxed);
    let time = if deferred { listener.defers.load(Ordering::Relaxed) as u64 * 1_000_000_000 } else { 0 };
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) as u64;
    let until = began + time;
    let mut waiting = Waiting {
        listener: identity(listener),
        companion,
        index,
        channel,
        generation,
        client,
        server,
        number,
        early: false,
        gone: false,
        until,
    };
    let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: place as u64 + 1 };
    let bells = listener.bells_fd.load(Ordering::Relaxed);
    if calls::epoll_ctl(bells, libc::EPOLL_CTL_ADD, waiting.descriptor(), &mut event).is_err() || !timer(listener) {
        waiting.until = now;
    }
    link::enter(index);
    bell::ask_for_stamps(&page.sides[1].wait);
    listen_to(&waiting);
    waiting.early = waiting.has_something() || waiting.until <= now;
    list()[place] = Some(waiting);
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Arms for the client's first bytes.
fn listen_to(waiting: &Waiting) {
    if bell::arm(&waiting.page().sides[1].wait, arm::IN) {
        wait::barrier();
    }
}

/// The timer exists.
fn timer(listener: &Socket) -> bool {
    if listener.timer_fd.load(Ordering::Relaxed) >= 0 {
        return true;
    }
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    let Ok(made) = calls::timerfd_create(libc::CLOCK_MONOTONIC, flags).and_then(private::keep) else { return false };
    let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: TIMER };
    if calls::epoll_ctl(listener.bells_fd.load(Ordering::Relaxed), libc::EPOLL_CTL_ADD, made, &mut event).is_err() {
        private::close(made);
        return false;
    }
    listener.timer_fd.store(made, Ordering::Relaxed);
    listener.timer_at.store(0, Ordering::Relaxed);
    true
}

/// The client that is accepted next. The timer is set for the one that is due first.
fn first(listener: &Socket, _setup: &Guard) -> Option<usize> {
    hear(listener);
    let defers = listener.defers.load(Ordering::Relaxed) != 0;
    let (ticks, now) = (clock::ticks(), clock::monotonic_ns());
    let mut found = None;
    let mut next = u64::MAX;
    for place in places(listener) {
        let Some(waiting) = list()[place] else { continue };
        if !waiting.holds() {
            drop_client(place);
            continue;
        }
        let due = waiting.until <= now || !defers;
        if due || waiting.has_something() {
            let age = waiting.age(ticks);
            if found.is_none_or(|(_, oldest)| age > oldest) {
                found = Some((place, age));
            }
        }
        // Of bytes that had come before, and of the option that was taken back, no bell tells: a timer that is over does.
        if waiting.early || !defers {
            next = 1;
        } else if due || !waiting.has_something() {
            next = next.min(waiting.until);
        }
    }
    let (timer, at) = (listener.timer_fd.load(Ordering::Relaxed), if next == u64::MAX { 0 } else { next });
    if timer >= 0 && listener.timer_at.swap(at, Ordering::Relaxed) != at {
        let none = timespec { tv_sec: 0, tv_nsec: 0 };
        let at = timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as i64 };
        let when = libc::itimerspec { it_interval: none, it_value: at };
        let _ = calls::timerfd_settime(timer, libc::TFD_TIMER_ABSTIME, &when, core::ptr::null_mut());
    }
    found.map(|(place, _)| place)
}

/// Hears which clients have gone, and takes bells off that tell nothing.
fn hear(listener: &Socket) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut batch = [epoll_event { events: 0, u64: 0 }; 64];
    let none = timespec { tv_sec: 0, tv_nsec: 0 };
    let bells = listener.bells_fd.load(Ordering::Relaxed);
    let got = calls::epoll_pwait2(bells, batch.as_mut_ptr(), 64, &none, core::ptr::null(), calls::KERNEL_SIGSET).unwrap_or(0);
    for event in &batch[..got] {
        let (flags, place) = (event.events as i32, event.u64.wrapping_sub(1) as usize);
        let Some(Some(waiting)) = list().get_mut(place).filter(|_| event.u64 != TIMER) else { continue };
        if flags & (libc::EPOLLHUP | libc::EPOLLERR) != 0 {
            waiting.gone = true;
        } else if !waiting.has_something() {
            let mut bytes = [0u8; 64];
            let (fd, start) = (waiting.descriptor(), bytes.as_mut_ptr().cast());
            let take = |most: usize, flags: i32| {
                calls::recvfrom(fd, start, most, libc::MSG_DONTWAIT | flags, core::ptr::null_mut(), core::ptr::null_mut())
            };
            // What is no bell is left to the connection (see `foreign`).
            let looked = take(64, libc::MSG_PEEK);
            let taken = match looked {
                Ok(count) if bytes[..count].iter().any(|byte| *byte != BELL) => {
                    waiting.early = true;
                    continue;
                }
                Ok(count) => take(count, 0),
                error => error,
            };
            match taken {
                Ok(0) => waiting.gone = true,
                Ok(count) => {
                    let [client, server] = &waiting.page().sides;
                    waiting.early |= !Tally::new(client, server).took(count as u32);
                }
                Err(_) => {}
            }
            listen_to(waiting);
        }
    }
}

/// Gives the client at `place` out. `Err(None)`: it has gone.
fn give(place: usize, listener: &Socket, flags: i32, _setup: &Guard) -> core::result::Result<Accepted, Option<Errno>> {
    let waiting = list()[place].ok_or(None)?;
    let duplicate = if flags & libc::SOCK_CLOEXEC != 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    let companion = calls::fcntl(waiting.descriptor(), duplicate, 0)
        .map_err(|error| Some(if error.0 == libc::EINVAL { Errno(libc::EMFILE) } else { error }))?;
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    match kept::get(waiting.index, waiting.channel) {
        Some(kept) => {
            kept.set_nonblocking(nonblocking);
            kept.client = waiting.client;
        }
        None => {
            let wanted = libc::O_RDWR | if nonblocking { libc::O_NONBLOCK } else { 0 };
            let _ = calls::fcntl(companion, libc::F_SETFL, wanted as usize);
        }
    }
    let Waiting { index, channel, generation, client, server, .. } = waiting;
    match accept::welcome(&Arrival { companion, client, server, index, channel, generation }, listener, nonblocking) {
        Ok(accepted) => {
            leave(place);
            Ok(accepted)
        }
        Err(_) => {
            let _ = calls::close(companion);
            drop_client(place);
            Err(None)
        }
    }
}

/// Takes a client off the list; a pair that is kept stays.
fn leave(place: usize) {
    let Some(waiting) = list()[place].take() else { return };
    COUNT.fetch_sub(1, Ordering::Relaxed);
    let fd = waiting.descriptor();
    if let Some(bells) = bells_of(waiting.listener) {
        let _ = calls::epoll_ctl(bells, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
    }
    private::close(waiting.companion);
    let live = &mut link::at(waiting.index).live;
    *live = live.saturating_sub(1);
}

fn bells_of(listener: usize) -> Option<i32> {
    // SAFETY: the address of a slab object, which is never unmapped.
    let bells = unsafe { (*(listener as *const Socket)).bells_fd.load(Ordering::Relaxed) };
    (bells >= 0).then_some(bells)
}

/// The client at `place` is refused: it sees a reset, if it is still there.
fn drop_client(place: usize) {
    let Some(waiting) = list()[place] else { return };
    leave(place);
    let page = waiting.page();
    let same = page.head.generation.load(Ordering::Relaxed) == waiting.generation;
    let state = &page.head.state;
    if same && state.compare_exchange(life::OFFERED, life::ACCEPTED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        offered::refuse(page);
    }
    kept::forget(waiting.index, waiting.channel);
}

/// Puts the listener's clients back where any process may take them, as far as there is room. Under the set-up lock.
pub(crate) fn to_rendezvous(listener: &Socket) {
    put_back(listener, None);
}

/// The same for all but the client at `stays`.
fn put_back(listener: &Socket, stays: Option<usize>) {
    for place in places(listener) {
        let Some(waiting) = list()[place].filter(|_| Some(place) != stays) else { continue };
        if waiting.holds() && parcel::post(waiting.index, waiting.channel, waiting.descriptor(), listener).is_err() {
            return;
        }
        leave(place);
        kept::forget(waiting.index, waiting.channel);
    }
}

/// The listener is about to close or to listen no longer.
pub(crate) fn listener_ends(listener: &Socket) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let Some(_setup) = SETUP.lock() else { return };
    if listener.has(flag::LISTENER_SHARED) {
        to_rendezvous(listener);
    }
    for place in places(listener) {
        drop_client(place);
    }
}

/// In the child after fork: what could not be put back is the parent's. Bells and companions of ours must not be heard by
/// the parent, nor its own by us.
pub(crate) fn forked() {
    for place in list().iter_mut() {
        if let Some(waiting) = place.take() {
            private::close(waiting.companion);
            let live = &mut link::at(waiting.index).live;
            *live = live.saturating_sub(1);
        }
    }
    COUNT.store(0, Ordering::Relaxed);
    for fd in 0..table::high_water() {
        let Some(listener) = table::get(fd).socket().filter(|socket| socket.defers.load(Ordering::Relaxed) != 0) else {
            continue;
        };
        let bells = listener.bells_fd.load(Ordering::Relaxed);
        private::close(listener.timer_fd.swap(-1, Ordering::Relaxed));
        if bells >= 0 {
            if let Ok(fresh) = calls::epoll_create1(libc::EPOLL_CLOEXEC) {
                let _ = calls::dup3(fresh, bells, libc::O_CLOEXEC);
                let _ = calls::close(fresh);
            }
        }
    }
}

/// A private descriptor got another number, and still has the old one. Under the set-up lock.
pub(crate) fn moved(from: i32, to: i32) {
    for (place, entry) in list().iter_mut().enumerate() {
        let Some(waiting) = entry else { continue };
        if waiting.companion == from {
            waiting.companion = to;
        }
        if waiting.descriptor() == to {
            if let Some(bells) = bells_of(waiting.listener) {
                let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: place as u64 + 1 };
                let _ = calls::epoll_ctl(bells, libc::EPOLL_CTL_DEL, from, core::ptr::null_mut());
                let _ = calls::epoll_ctl(bells, libc::EPOLL_CTL_ADD, to, &mut event);
            }
        }
    }
}
