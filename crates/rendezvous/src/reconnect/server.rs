//! Accepting what clients offer in memory: the server's half of [`crate::reconnect::client`].
//!
//! Only a process that alone accepts from its listener takes offers: an offer names a companion that this process holds.
//! Before a fork, an exec that keeps the listener, or a message that passes it on, offers end, and connections go through
//! the rendezvous, which processes can share; those that wait move there ([`crate::listen::forward`]).

use crate::accept;
use crate::accept::Accepted;
use crate::reconnect::shared_server;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use shunt_link as link;
use shunt_link::companion_cache;
use shunt_ring::{claim, offers};
use shunt_segment::address::Address;
use shunt_segment::channel::{release, word, ChannelPage};
use shunt_segment::link::LinkHeader;
use shunt_segment::reason::Reason;
use shunt_segment::CHANNELS;
use shunt_stream::socket::flag::Bits;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, epoll_event, MSG_DONTWAIT};
use shunt_sys::{calls, Errno, Result};
use shunt_table::table::Kind;
use shunt_table::{global, private, table};

/// Clients' links through which a process accepts in memory at most.
pub(crate) const MOST: usize = 64;

/// A link through which clients connect in memory. Read without a lock: a link's address range stays readable for ever.
pub(crate) struct Place {
    /// Null: unused.
    header: AtomicPtr<LinkHeader>,
    index: AtomicU32,
    /// The listener, by its rendezvous.
    rendezvous: AtomicI32,
}

/// Where clients may come by memory alone.
struct Offers {
    places: [Place; MOST],
    /// Places that were ever used are the first so many: a server of few clients looks at few in each accept.
    used: AtomicUsize,
    /// Edge-triggered sets around sets: all listeners are to hear of each client.
    each: AtomicBool,
}

static OFFERS: Offers =
    Offers { places: [const { Place::empty() }; MOST], used: AtomicUsize::new(0), each: AtomicBool::new(false) };

impl Place {
    pub(crate) const fn empty() -> Place {
        Place { header: AtomicPtr::new(core::ptr::null_mut()), index: AtomicU32::new(0), rendezvous: AtomicI32::new(-1) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.header.load(Ordering::Relaxed).is_null()
    }

    /// Whether link `index` is there.
    pub(crate) fn is_of(&self, index: usize) -> bool {
        !self.is_empty() && self.index.load(Ordering::Relaxed) as usize == index
    }

    /// Link `index` comes there, for the listener with this rendezvous.
    pub(crate) fn fill(&self, index: usize, rendezvous: i32) {
        self.index.store(index as u32, Ordering::Relaxed);
        self.rendezvous.store(rendezvous, Ordering::Relaxed);
        self.header.store(link::at(index).base.cast(), Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        self.header.store(core::ptr::null_mut(), Ordering::Release);
    }

    /// The rendezvous got another number.
    pub(crate) fn renumber(&self, from: i32, to: i32) {
        shunt_table::private::renumber(&self.rendezvous, from, to);
    }

    /// The link there, if it is one of the listener's with this rendezvous: its header and index.
    pub(crate) fn link(&self, rendezvous: i32) -> Option<(&'static LinkHeader, usize)> {
        if self.rendezvous.load(Ordering::Relaxed) != rendezvous {
            return None;
        }
        // SAFETY: null, or the first byte of a link's range, which is never unmapped.
        let header = unsafe { self.header.load(Ordering::Acquire).as_ref() }?;
        Some((header, self.index.load(Ordering::Relaxed) as usize))
    }
}

fn used() -> &'static [Place] {
    &OFFERS.places[..OFFERS.used.load(Ordering::Acquire).min(MOST)]
}

/// The links that may hold offers for `listener`: their headers and indices.
pub fn places(listener: &Socket) -> impl Iterator<Item = (&'static LinkHeader, usize)> {
    let rendezvous = listener.private_fd.load(Ordering::Relaxed);
    used().iter().filter_map(move |place| place.link(rendezvous))
}

/// Link `index` goes, or offers nothing any more. Under the set-up lock.
pub fn forget(index: usize) {
    OFFERS.places.iter().filter(|place| place.is_of(index)).for_each(Place::clear);
}

/// In the child after fork: offers are the parent's to accept.
pub fn forked() {
    OFFERS.places.iter().for_each(Place::clear);
}

/// A rendezvous or a bell got another number; it has both at this moment. Under the set-up lock.
pub fn moved(from: i32, to: i32) {
    OFFERS.places.iter().for_each(|place| place.renumber(from, to));
    for fd in table::numbers() {
        let word = table::get(fd);
        let (Kind::Listener, Some(listener)) = (word.kind(), word.object::<Socket>()) else { continue };
        if places(listener).any(|(_, index)| link::at(index).bell == to) {
            // A set knows what it watches by its number: by another one it could not be taken out.
            let bells = listener.listening.bells_fd.load(Ordering::Relaxed);
            let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            if calls::epoll_ctl(bells, libc::EPOLL_CTL_DEL, from, core::ptr::null_mut()).is_ok() {
                let _ = calls::epoll_ctl(bells, libc::EPOLL_CTL_ADD, to, &mut event);
            }
        }
    }
}

/// The bells of a listener's clients as one descriptor: readable when one of them is.
pub fn bells() -> Result<i32> {
    calls::epoll_create1(libc::EPOLL_CLOEXEC).and_then(private::keep)
}

/// A client sent the bell of link `index`: from now on it may offer. Takes the descriptor over. Under the set-up lock.
pub fn begin(index: usize, bell: i32, listener: &Socket) {
    let bells = listener.listening.bells_fd.load(Ordering::Relaxed);
    let fits = calls::getsockopt_int(bell, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_UNIX)
        && calls::getsockopt_int(bell, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(0);
    if !fits || bells < 0 || listener.has(flag::LISTENER_SHARED) || private::are_short() {
        let _ = calls::close(bell);
        return;
    }
    let Ok(bell) = private::keep(bell) else { return };
    let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    let backlog = listener.listening.backlog.load(Ordering::Relaxed).saturating_add(1);
    let number = OFFERS.places.iter().position(Place::is_empty);
    let (Some(number), Ok(())) = (number, calls::epoll_ctl(bells, libc::EPOLL_CTL_ADD, bell, &mut event)) else {
        private::close(bell);
        return;
    };
    let link = link::at(index);
    link.bell = bell;
    let queue = &link::header(link.base).offers;
    offers::begin(queue, backlog);
    if is_watched_by_edges(listener) {
        offers::ring_each(queue);
    }
    OFFERS.places[number].fill(index, link.rendezvous);
    OFFERS.used.fetch_max(number + 1, Ordering::Release);
    listener.listening.offering.store(1, Ordering::Release);
}

/// The client of link `index` may offer again, as its listener is this process's alone again. Under the set-up lock.
pub fn resume(index: usize, listener: &Socket) {
    let backlog = listener.listening.backlog.load(Ordering::Relaxed).saturating_add(1);
    let bells = listener.listening.bells_fd.load(Ordering::Relaxed);
    for (header, _) in places(listener).filter(|(_, place)| *place == index) {
        let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        if let Ok(()) | Err(Errno(libc::EEXIST)) = calls::epoll_ctl(bells, libc::EPOLL_CTL_ADD, link::at(index).bell, &mut event)
        {
            offers::set_backlog(&header.offers, backlog);
        }
    }
}

/// Others are about to have the listener, and its bells are not theirs to take off: what was left on the line, or a client that
/// goes, would have the bells' descriptor readable for them for ever. A bell stays watched while an offer waits that could not
/// be moved. Under the set-up lock.
pub fn unwatch_bells(listener: &Socket) {
    for (header, index) in places(listener) {
        unwatch(listener, header, index);
    }
}

fn unwatch(listener: &Socket, header: &LinkHeader, index: usize) {
    silence_spent(header, index);
    if offers::waiting(&header.offers) == 0 {
        let bells = listener.listening.bells_fd.load(Ordering::Relaxed);
        let _ = calls::epoll_ctl(bells, libc::EPOLL_CTL_DEL, link::at(index).bell, core::ptr::null_mut());
    }
}

/// An offer of link `index` was taken. Under the set-up lock.
pub fn taken(listener: &Socket, header: &LinkHeader, index: usize) {
    if listener.has(flag::LISTENER_SHARED) {
        unwatch(listener, header, index);
    } else {
        silence_spent(header, index);
    }
}

/// Whether clients connect in memory, as far as is known, so that hardly any comes another way.
pub fn are_usual(listener: &Socket) -> bool {
    (listener.listening.offering.load(Ordering::Relaxed) != 0 && !listener.has(flag::LISTENER_SHARED))
        || shared_server::are_usual(listener)
}

/// Whether some client's offer waits. Takes no lock.
pub fn waiting(listener: &Socket) -> bool {
    listener.listening.offering.load(Ordering::Acquire) != 0
        && places(listener).any(|(header, _)| offers::waiting(&header.offers) > 0)
}

/// Takes off bells whose offers have been accepted, so that the bells' descriptor says what is true.
pub fn take_spent_bells(listener: &Socket) {
    let Some(_setup) = global::SETUP.try_lock() else { return };
    for (header, index) in places(listener) {
        if offers::waiting(&header.offers) > 0 {
            continue;
        }
        if !silence_spent(header, index) {
            silence_nonsense(header, index);
        }
    }
}

/// Takes off what no offer rang for, and notices that the client is gone. A client that offers at this moment counts its bell
/// before it rings: that one stays.
fn silence_nonsense(header: &LinkHeader, index: usize) {
    let (mut byte, none) = (0u8, core::ptr::null_mut());
    let looked = calls::recvfrom(
        link::at(index).bell,
        (&raw mut byte).cast(),
        1,
        MSG_DONTWAIT | libc::MSG_PEEK,
        none,
        core::ptr::null_mut(),
    );
    if looked != Err(Errno(libc::EAGAIN)) && !(looked == Ok(1) && offers::counted(&header.offers)) {
        silence(index, 0);
    }
}

/// The same for bells alone that accept left where they are ([`accept::leaves_bells`]): before it sleeps, and behind the listener's
/// way into a set, since sets around that would take them for clients. Not under the set-up lock.
pub fn take_left_bells(listener: &Socket) {
    if places(listener).any(|(header, _)| offers::counted(&header.offers)) {
        let Some(_setup) = global::SETUP.lock() else { return };
        for (header, index) in places(listener) {
            silence_spent(header, index);
        }
    }
}

/// Whether an edge-triggered set may watch the listener.
pub fn is_watched_by_edges(listener: &Socket) -> bool {
    listener.has(flag::LISTENER_EDGES) || OFFERS.each.load(Ordering::Relaxed)
}

/// An edge-triggered set is about to watch `listener`, or (`None`) a set that may hold listeners: an offer is an edge whether
/// or not others wait (sk_data_ready). Not under the set-up lock.
pub fn watched_by_edges(listener: Option<&Socket>) {
    let known = match listener {
        Some(listener) => {
            listener.listening.flags.fetch_or(flag::LISTENER_EDGES.bits(), Ordering::SeqCst) & flag::LISTENER_EDGES.bits() != 0
        }
        None => OFFERS.each.swap(true, Ordering::SeqCst),
    };
    if known {
        return;
    }
    let Some(_setup) = global::SETUP.lock() else { return };
    let rendezvous = listener.map(|listener| listener.private_fd.load(Ordering::Relaxed));
    for place in &OFFERS.places {
        // SAFETY: null, or a link's header that is in use: links go under this lock.
        let header = unsafe { place.header.load(Ordering::Acquire).as_ref() };
        if let Some(header) = header.filter(|_| rendezvous.is_none_or(|one| one == place.rendezvous.load(Ordering::Relaxed))) {
            offers::ring_each(&header.offers);
        }
    }
}

/// Accepts an offer. EAGAIN: none waits.
pub fn accept(listener: &Socket, flags: i32) -> Result<Accepted> {
    if !waiting(listener) {
        return Err(Errno(libc::EAGAIN));
    }
    let _setup = global::SETUP.lock().ok_or(Errno(libc::EAGAIN))?;
    // Another client each time, so that none starves the others.
    let used = used();
    let turn = listener.listening.accepts.load(Ordering::Relaxed) as usize % used.len().max(1);
    let rendezvous = listener.private_fd.load(Ordering::Relaxed);
    let leave_bells = accept::leaves_bells(listener) && !listener.has(flag::LISTENER_SHARED);
    for place in used[turn..].iter().chain(&used[..turn]) {
        let Some((header, index)) = place.link(rendezvous) else { continue };
        let base = link::at(index).base;
        // An honest client has no more waiting, whatever its count says.
        for _ in 0..CHANNELS {
            let Some(channel) = offers::oldest(&header.offers) else { break };
            let result = take(index, base, channel, listener, flags);
            if let Err(Some(error)) = result {
                return Err(error); // no descriptor for it: it waits
            }
            offers::take(&header.offers);
            // Where each offer rings, bells that are left would fill the line.
            if !leave_bells || offers::rings_each(&header.offers) {
                taken(listener, header, index);
            }
            if let Ok(accepted) = result {
                return Ok(accepted);
            }
        }
    }
    Err(Errno(libc::EAGAIN))
}

/// What can be accepted in memory.
pub struct Offer {
    /// The companion that the connection gets.
    pub kept: &'static mut companion_cache::Kept,
    /// The client's address.
    pub client: Address,
    /// And the one that it has connected to.
    pub server: Address,
    /// Of the channel's offer.
    pub generation: u32,
}

/// What `channel` offers, if that can be accepted. Else it is refused.
pub fn honest(index: usize, page: &ChannelPage, channel: usize, listener: &Socket) -> Option<Offer> {
    // Taken back, and lent to a connection with a companion of its own meanwhile: not what was offered.
    let generation = claim::on_kept(&page.head)?;
    let Some(kept) = companion_cache::get(index, channel) else {
        refuse(page);
        return None;
    };
    let (client, server) = shunt_stream::socket::of_channel(page);
    if accept::plausible(&client, &server, listener).is_err() {
        shunt_table::process::status_page::count(Reason::NotLocal);
        refuse(page);
        companion_cache::forget(index, channel);
        return None;
    }
    Some(Offer { kept, client, server, generation })
}

/// `Err(None)`: the offer was nonsense, or its client has gone.
pub fn take(
    index: usize,
    base: *mut u8,
    channel: usize,
    listener: &Socket,
    flags: i32,
) -> core::result::Result<Accepted, Option<Errno>> {
    let page = link::page(base, channel);
    let Some(Offer { kept, client, server, generation }) = honest(index, page, channel, listener) else { return Err(None) };
    let duplicate = if flags & libc::SOCK_CLOEXEC != 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    let companion = calls::fcntl(kept.descriptor(), duplicate, 0)
        .map_err(|error| Some(if error.0 == libc::EINVAL { Errno(libc::EMFILE) } else { error }))?;
    if !claim::accept(&page.head, generation) {
        let _ = calls::close(companion);
        return Err(None); // taken back
    }
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    kept.set_nonblocking(nonblocking);
    kept.client = client;
    let accepted = Accepted { companion, client, server, index, channel };
    match accept::seat(&accepted, base, listener, nonblocking) {
        Ok(()) => Ok(accepted),
        Err(reason) => {
            shunt_table::process::status_page::count(reason);
            let _ = calls::close(companion);
            refuse(page);
            companion_cache::forget(index, channel);
            Err(None)
        }
    }
}

/// The client sees a reset.
pub fn refuse(page: &ChannelPage) {
    let side = &page.sides[1];
    side.post.word.store(word::FIN | word::CLOSED | word::RST, Ordering::Release);
    side.released.store(release::CLOSED, Ordering::Release);
}

/// Takes off the bells of offers that wait no longer. False: there are none.
fn silence_spent(header: &LinkHeader, index: usize) -> bool {
    let spent = offers::spent_bells(&header.offers);
    if spent > 0 {
        silence(index, spent);
    }
    spent > 0
}

/// Takes `spent` bells off, or (0) a byte that is none. A bell whose client is gone, or that does what no bell does, is taken out.
fn silence(index: usize, spent: u32) {
    let link = link::at(index);
    let mut bytes = [0u8; 64];
    let room = (spent as usize).clamp(1, bytes.len());
    match calls::recvfrom(link.bell, bytes.as_mut_ptr().cast(), room, MSG_DONTWAIT, core::ptr::null_mut(), core::ptr::null_mut())
    {
        Ok(0) => link::client_left(index),
        Ok(n) => offers::took_bells(&link::header(link.base).offers, spent, n as u32),
        Err(Errno(libc::EAGAIN | libc::EINTR)) => offers::took_bells(&link::header(link.base).offers, spent, 0),
        Err(_) => link::client_left(index),
    }
}

/// The listener takes no offers any more. False: some wait, which have to be accepted first. Under the set-up lock.
pub fn cease(listener: &Socket) -> bool {
    for (header, _) in places(listener) {
        offers::set_backlog(&header.offers, 0);
    }
    if places(listener).any(|(header, _)| offers::waiting(&header.offers) > 0) {
        return false;
    }
    for (_, index) in places(listener) {
        link::end_offers(index);
    }
    true
}

/// The listener closes: clients that were not accepted see a reset, as TCP gives it.
pub fn retire(listener: &Socket) {
    if listener.listening.offering.load(Ordering::Acquire) != 0 {
        if let Some(_setup) = global::SETUP.lock() {
            for (header, index) in places(listener) {
                let queue = &header.offers;
                offers::set_backlog(queue, 0);
                for _ in 0..CHANNELS {
                    let Some(channel) = offers::oldest(queue) else { break };
                    let page = link::page(link::at(index).base, channel);
                    if claim::on_kept(&page.head).is_some_and(|generation| claim::accept(&page.head, generation)) {
                        refuse(page);
                        companion_cache::forget(index, channel);
                    }
                    offers::take(queue);
                }
                link::end_offers(index);
            }
        }
    }
    shared_server::retire(listener);
    private::close_at(&listener.listening.bells_fd);
    private::close_at(&listener.listening.timer_fd);
    accept::forget_set(listener);
}
