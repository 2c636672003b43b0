//! accept: two queues, one answer. Shunt clients come through the rendezvous or offer their connections in memory,
//! everyone else comes through TCP.

use crate::global::{self, Guard, SETUP};
use crate::holding::Asleep;
use crate::sockaddr::Encoded;
use crate::socket::{self, flag, Socket};
use crate::table::{self, Kind};
use crate::{
    claimed, deferred, descriptor, kept, link, listen, offered, options, parcel, passing, relatives, report, reserve, route, spin,
};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shunt_segment::address::Address;
use shunt_segment::name::{Hello, FOLLOWS_PARCEL};
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_sys::libc::{self, pollfd, sockaddr as c_sockaddr, sockaddr_un, socklen_t};
use shunt_sys::{calls, clock, thread, Errno, Result};

/// accept4(2) on a listener. `flags` are SOCK_NONBLOCK and SOCK_CLOEXEC.
///
/// # Safety
/// `address` and `length` are null or valid as the manual page asks.
pub unsafe fn accept(fd: i32, listener: &Socket, address: *mut c_sockaddr, length: *mut socklen_t, flags: i32) -> Result<isize> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let blocking = !listener.has(flag::LISTENER_NONBLOCK);
    if blocking && listener.has(flag::LISTENER_SHARED) {
        if let Some(_setup) = SETUP.lock() {
            options::follow(listener);
        }
    }
    let timeout = listener.receive_timeout.load(Ordering::Relaxed);
    let began = thread::handled();
    let deadline = if timeout == 0 { u64::MAX } else { clock::monotonic_ns() + timeout };
    // Where clients offer in memory, that is looked at first, and the kernel asked only if nothing comes, or in every
    // eighth call, so that its clients do not starve.
    let turn = listener.accepts.fetch_add(1, Ordering::Relaxed);
    let mut ask = !blocking || listener.offering.load(Ordering::Relaxed) == 0 || turn % 8 == 7 || deferred::concern(listener);
    loop {
        let found = if ask {
            // SAFETY: passed on.
            unsafe { once(fd, listener, address, length, flags, turn) }
        } else {
            // SAFETY: passed on.
            offered::accept(listener, flags).and_then(|accepted| unsafe { accepted.tell(listener, address, length) })
        };
        let asked = core::mem::replace(&mut ask, true);
        match found {
            Err(Errno(libc::EAGAIN)) if !listen::nonblocking(listener) => wait(fd, listener, deadline, began)?,
            Err(Errno(libc::EAGAIN)) if !asked => {} // another process made it non-blocking
            other => return other,
        }
    }
}

/// Tries both queues once, the kernel's first in every eighth call so that neither starves.
unsafe fn once(
    fd: i32,
    listener: &Socket,
    address: *mut c_sockaddr,
    length: *mut socklen_t,
    flags: i32,
    turn: u32,
) -> Result<isize> {
    // SAFETY: passed on.
    unsafe {
        if turn % 8 == 7 {
            match from_kernel(fd, listener, address, length, flags) {
                Err(Errno(libc::EAGAIN)) => from_shunt(listener, address, length, flags, turn),
                other => other,
            }
        } else {
            match from_shunt(listener, address, length, flags, turn) {
                Err(Errno(libc::EAGAIN)) => from_kernel(fd, listener, address, length, flags),
                other => other,
            }
        }
    }
}

unsafe fn from_kernel(fd: i32, listener: &Socket, address: *mut c_sockaddr, length: *mut socklen_t, flags: i32) -> Result<isize> {
    // A program without shunt that shares the listener may have made it blocking again.
    if listener.has(flag::LISTENER_SHARED) && calls::poll_one(listener.hold.number(fd), libc::POLLIN, 0)? == 0 {
        return Err(Errno(libc::EAGAIN));
    }
    let accepted = calls::accept4(listener.hold.number(fd), address, length, flags)?;
    table::take(accepted);
    if crate::remote::accepted(accepted, listener.hold.number(fd), listener, flags) {
        return Ok(accepted as isize);
    }
    report::note(accepted, kind::TCP, Reason::AcceptedFromKernel, None);
    Ok(accepted as isize)
}

/// Shunt's own queues: offers in memory, and the rendezvous, which comes first in every fourth call.
unsafe fn from_shunt(
    listener: &Socket,
    address: *mut c_sockaddr,
    length: *mut socklen_t,
    flags: i32,
    turn: u32,
) -> Result<isize> {
    let accepted = if deferred::concern(listener) {
        deferred::accept(listener, flags)
    } else if turn % 4 == 3 {
        from_rendezvous(listener, flags).or_else(|_| offered::accept(listener, flags))
    } else {
        offered::accept(listener, flags).or_else(|_| from_rendezvous(listener, flags))
    }?;
    // SAFETY: passed on.
    unsafe { accepted.tell(listener, address, length) }
}

/// A connection that was accepted.
pub struct Accepted {
    /// Its descriptor.
    pub companion: i32,
    /// Where it comes from.
    pub client: Address,
    /// Where it connected to.
    pub server: Address,
    /// Its link.
    pub index: usize,
    /// Its channel.
    pub channel: usize,
}

impl Accepted {
    /// Tells the program where the connection comes from; gives the descriptor. Where that faults the connection is lost,
    /// as on Linux.
    unsafe fn tell(&self, listener: &Socket, address: *mut c_sockaddr, length: *mut socklen_t) -> Result<isize> {
        let told = Encoded::new(listener.family.load(Ordering::Relaxed), &self.client);
        // SAFETY: passed on.
        let told = if address.is_null() { Ok(()) } else { unsafe { told.write(address, length) } };
        if let Err(error) = told {
            descriptor::closing(self.companion);
            let _ = calls::close(self.companion);
            return Err(error);
        }
        Ok(self.companion as isize)
    }
}

/// A client that waits in one of shunt's own queues, and its address, for whoever carries it elsewhere.
pub(crate) fn waiting(listener: &Socket) -> Option<(i32, Address)> {
    let flags = libc::SOCK_CLOEXEC;
    let accepted = deferred::evict(listener, flags)
        .or_else(|_| from_rendezvous(listener, flags))
        .or_else(|_| offered::accept(listener, flags))
        .ok()?;
    Some((accepted.companion, accepted.client))
}

pub(crate) fn from_rendezvous(listener: &Socket, flags: i32) -> Result<Accepted> {
    loop {
        let (arrival, _setup) = arrive(listener, flags, None)?;
        match welcome(&arrival, listener, flags & libc::SOCK_NONBLOCK != 0) {
            Ok(accepted) => {
                kept::forget(arrival.index, arrival.channel); // of an earlier companion
                return Ok(accepted);
            }
            Err(reason) => {
                report::count(reason);
                let _ = calls::close(arrival.companion);
            }
        }
    }
}

/// A client that came through the rendezvous; its channel is still offered.
pub(crate) struct Arrival {
    pub companion: i32,
    pub client: Address,
    pub server: Address,
    pub index: usize,
    pub channel: usize,
    pub generation: u32,
}

/// The next client in the rendezvous; the set-up lock is held from then on. `flags`: what its companion is to be. `held`: the
/// lock, of a caller who must not wait for it; then clients that are not honest end the look.
pub(crate) fn arrive(listener: &Socket, flags: i32, mut held: Option<Guard<'static>>) -> Result<(Arrival, Guard<'static>)> {
    let rendezvous = listener.private_fd.load(Ordering::Acquire);
    if rendezvous < 0 {
        return Err(Errno(libc::EAGAIN)); // it has stopped listening: the kernel says so
    }
    loop {
        let mut peer = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
        let mut peer_length = core::mem::size_of::<sockaddr_un>() as socklen_t;
        let companion = match calls::accept4(rendezvous, (&mut peer as *mut sockaddr_un).cast(), &mut peer_length, flags) {
            // Another process may have given the listener to a program without shunt: then it is the kernel's alone.
            Err(Errno(error @ (libc::EAGAIN | libc::EINVAL))) => {
                if error == libc::EINVAL {
                    listener.set(flag::LISTENER_SHARED); // somebody took it without a word of ours (pidfd_getfd)
                }
                if held.is_none() {
                    listen::retired(listener);
                    link::drop_owed();
                }
                return Err(Errno(libc::EAGAIN));
            }
            other => other?,
        };
        let quick = held.is_some();
        // SAFETY: sun_path is plain bytes.
        let name = unsafe { core::slice::from_raw_parts(peer.sun_path.as_ptr().cast::<u8>(), 108) };
        let name = name.get(1..(peer_length as usize).saturating_sub(2).min(108)).unwrap_or(&[]);
        match introduce(companion, name, listener, flags, held.take()) {
            Ok(arrived) => return Ok(arrived),
            Err(reason) => {
                report::count(reason);
                if matches!(reason, Reason::NoMemory | Reason::NoDescriptors) {
                    listen::is_short(listener);
                }
                // Not an honest shunt client, or we are short of memory: it sees its connection end.
                let _ = calls::close(companion);
                if quick {
                    return Err(Errno(libc::EAGAIN));
                }
            }
        }
    }
}

/// The listener closes: clients in the rendezvous' queue see a reset, as TCP gives it. The kernel would only hang up, and
/// who sends without waiting would not notice. Where other processes may accept from the listener, the queue stays theirs.
pub fn refuse_waiting(listener: &Socket) {
    deferred::listener_ends(listener);
    if listener.has(flag::LISTENER_SHARED) || listener.private_fd.load(Ordering::Relaxed) < 0 {
        return;
    }
    while let Ok(accepted) = from_rendezvous(listener, libc::SOCK_CLOEXEC) {
        if let Some(socket) = table::stream(accepted.companion) {
            socket.set(flag::LINGER_RESET);
        }
        crate::descriptor::closing(accepted.companion);
        let _ = calls::close(accepted.companion);
    }
}

/// Makes a client that arrived a stream. Under the set-up lock.
pub(crate) fn welcome(arrival: &Arrival, listener: &Socket, nonblocking: bool) -> core::result::Result<Accepted, Reason> {
    let &Arrival { companion, client, server, index, channel, generation } = arrival;
    let link = *link::at(index);
    if !link::accept_channel(&link, channel, generation) {
        return Err(Reason::BadSegment);
    }
    let accepted = Accepted { companion, client, server, index, channel };
    seat(&accepted, link.base, listener, nonblocking)?;
    Ok(accepted)
}

/// Learns who a companion is that the rendezvous gave; the set-up lock is held from then on.
fn introduce(
    companion: i32,
    name: &[u8],
    listener: &Socket,
    flags: i32,
    held: Option<Guard<'static>>,
) -> core::result::Result<(Arrival, Guard<'static>), Reason> {
    let hello = Hello::decode(name).ok_or(Reason::VersionMismatch)?;
    if !table::fits(companion) {
        return Err(Reason::TableFull);
    }
    let quick = held.is_some();
    let setup = match held {
        Some(held) => held,
        None => SETUP.lock().ok_or(Reason::Unknown)?,
    };
    relatives::look_around(listener);
    plausible(&hello.client, &hello.server, listener)?;
    let sender = passing::creator(companion).map_err(|_| Reason::Refused)?;
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    // The link's descriptor follows the connection at once. Where the link is known, its message is taken off without it: a
    // descriptor that is not wanted costs as much to install and to close as the rest of the message. The lock keeps the link.
    let known = hello.link_follows == 1
        && link::known(hello.nonce, hello.sequence, (sender.pid as u32, sender.uid))
            .is_some_and(|(_, link)| settled(&link, listener))
        && passing::discard(companion);
    // What comes with a client that is new takes numbers.
    let new = hello.link_follows != 0 && !known;
    if new {
        reserve::lend();
    }
    let setup = Some(setup).filter(|_| quick || known);
    let arrived = receive(companion, hello, listener, sender, nonblocking, known, setup);
    if new {
        reserve::fill();
    }
    arrived
}

/// The link of a companion that said who it is.
fn receive(
    companion: i32,
    hello: Hello,
    listener: &Socket,
    sender: libc::ucred,
    nonblocking: bool,
    known: bool,
    setup: Option<Guard<'static>>,
) -> core::result::Result<(Arrival, Guard<'static>), Reason> {
    let Shipment { client, sent } = match hello.link_follows {
        FOLLOWS_PARCEL => parcel::open(companion, sender, nonblocking).ok_or(Reason::BadSegment)?,
        1 if !known => Shipment { client: sender, sent: receive_link(companion, sender.uid)? },
        _ => Shipment { client: sender, sent: [-1; passing::MOST] },
    };
    let client = (client.pid as u32, client.uid);
    let setup = match setup {
        Some(setup) => setup,
        None => SETUP.lock().ok_or(Reason::Unknown)?,
    };
    let (index, _) = find_link(&hello, client, sent, listener)?;
    let channel = hello.channel as usize;
    let Hello { client, server, generation, .. } = hello;
    Ok((Arrival { companion, client, server, index, channel, generation }, setup))
}

/// What came with a connection.
pub struct Shipment {
    /// Who made the connection, as the kernel knows.
    pub client: libc::ucred,
    /// The link's descriptor and its bell's; -1: not sent.
    pub sent: [i32; passing::MOST],
}

/// Whether a link that is known needs nothing of what its client sends along. It does when the listener has become this process's
/// alone: the client may offer from now on.
fn settled(link: &link::Link, listener: &Socket) -> bool {
    listener.has(flag::LISTENER_SHARED) || link::header(link.base).sole.load(Ordering::Relaxed) == 1
}

/// The link that a hello names: known, or just `sent` with its bell. Under the set-up lock.
fn find_link(
    hello: &Hello,
    client: (u32, u32),
    sent: [i32; passing::MOST],
    listener: &Socket,
) -> core::result::Result<(usize, link::Link), Reason> {
    let [segment, bell] = sent;
    let discard = |fd: i32| {
        if fd >= 0 {
            let _ = calls::close(fd);
        }
    };
    if let Some(found) = link::known(hello.nonce, hello.sequence, client) {
        discard(segment);
        let (index, link) = found;
        if hello.link_follows != 1 || settled(&link, listener) {
            discard(bell);
            return Ok(found);
        }
        if link.bell >= 0 {
            discard(bell);
            offered::resume(index, listener);
        } else if bell >= 0 {
            offered::begin(index, bell, listener);
        }
        link::header(link.base).sole.store(1, Ordering::Release);
        return Ok(found);
    }
    let rendezvous = listener.private_fd.load(Ordering::Relaxed);
    // A listener that was taken out of another process comes with that one's links.
    let segment = if hello.link_follows == 0 { link::named(hello.nonce, hello.sequence, client) } else { segment };
    let adopted = if segment < 0 {
        Err(Reason::BadSegment)
    } else {
        link::adopt(segment, hello.nonce, hello.sequence, client, rendezvous).map_err(|error| match error.0 {
            libc::ENOMEM => Reason::NoMemory,
            libc::EMFILE | libc::ENFILE => Reason::NoDescriptors,
            _ => Reason::BadSegment,
        })
    };
    match adopted {
        Ok((index, link)) => {
            let sole = !listener.has(flag::LISTENER_SHARED);
            if sole && bell >= 0 {
                offered::begin(index, bell, listener);
            } else {
                discard(bell);
            }
            link::header(link.base).sole.store(sole as u32, Ordering::Release);
            Ok((index, link))
        }
        Err(reason) => {
            discard(bell);
            Err(reason)
        }
    }
}

/// The processor of the client that was accepted last, plus one; 0: unknown.
static CLIENT: AtomicU32 = AtomicU32::new(0);

/// An accepted connection gets its socket. Under the set-up lock.
pub fn seat(accepted: &Accepted, base: *mut u8, listener: &Socket, nonblocking: bool) -> core::result::Result<(), Reason> {
    let family = listener.family.load(Ordering::Relaxed);
    let socket = socket::allocate_locked(family).ok_or(Reason::NoMemory)?;
    let side = &link::page(base, accepted.channel).sides[1];
    side.pid.store(thread::process(), Ordering::Relaxed);
    side.owners.store(1, Ordering::Relaxed);
    side.address_family.store(family as u32, Ordering::Relaxed);
    side.transmit.class_limit.store(crate::connect::class_limit(), Ordering::Relaxed);
    side.wait.processor.store(clock::processor() + 1, Ordering::Relaxed);
    CLIENT.store(link::page(base, accepted.channel).sides[0].wait.processor.load(Ordering::Relaxed), Ordering::Relaxed);
    socket.attach(base, accepted.channel, 1);
    socket.set_addresses(&accepted.client, &accepted.server); // what was found plausible
    socket.link_index.store(accepted.index as u32, Ordering::Relaxed);
    link::enter(accepted.index);
    if nonblocking {
        socket.set(flag::NONBLOCK);
    }
    if link::header(base).client.barrier.load(Ordering::Acquire) == 0 || global::BARRIERS.load(Ordering::Relaxed) == 0 {
        socket.set(flag::FENCE);
    }
    let began = link::page(base, accepted.channel).head.began.load(Ordering::Relaxed);
    crate::options::inherit(listener, socket, began);
    crate::options::connected(socket, accepted.companion, true);
    table::set_socket(accepted.companion, Kind::Stream, socket);
    report::note(accepted.companion, kind::STREAM, Reason::Accelerated, Some(accepted.channel));
    Ok(())
}

/// A client says where it comes from, and programs decide by that whom to trust: it can only come from this host, and
/// to the port that it connected to.
/// Called under the set-up lock.
pub fn plausible(client: &Address, server: &Address, listener: &Socket) -> core::result::Result<(), Reason> {
    if server.port as u32 != listener.port.load(Ordering::Relaxed) {
        return Err(Reason::BadSegment);
    }
    let namespace = listener.namespace.load(Ordering::Relaxed);
    if [client, server].into_iter().all(|address| route::is_local_in(namespace, address)) {
        Ok(())
    } else {
        Err(Reason::NotLocal)
    }
}

/// Whether an address is one of this host's. Called under the set-up lock.
pub(crate) fn of_this_host(address: &Address) -> bool {
    route::is_local_in(0, address)
}

/// The descriptors that the client sends right after connecting: the link's, and its bell's if there is one. It may be a moment away, if the client was preempted
/// between the two; how long that may hold accept up depends on who it is ([`patience`]).
fn receive_link(companion: i32, uid: u32) -> core::result::Result<[i32; passing::MOST], Reason> {
    match passing::receive(companion, libc::MSG_DONTWAIT) {
        Ok(sent) => return Ok(sent),
        Err(Errno(libc::EAGAIN)) => {}
        Err(Errno(libc::EMFILE)) => return Err(Reason::NoDescriptors),
        Err(_) => return Err(Reason::BadSegment),
    }
    let _ = calls::poll_one(companion, libc::POLLIN, patience(uid) as i64);
    passing::receive(companion, libc::MSG_DONTWAIT).map_err(|error| {
        if error == Errno(libc::EMFILE) {
            return Reason::NoDescriptors;
        }
        OFFENDED.store((uid as u64) << 32 | (clock::monotonic_ns() / 1_000_000_000) & 0xffff_ffff, Ordering::Relaxed);
        Reason::BadSegment
    })
}

/// The last user whose client never sent what it announced, and when (in seconds).
static OFFENDED: AtomicU64 = AtomicU64::new(0);

/// How long accept waits for a client of user `uid`, in ns. Our own user and root could stop this process anyway.
/// Another user gets a while once; who abused that gets nothing for a minute.
fn patience(uid: u32) -> u64 {
    if uid == calls::geteuid() || uid == 0 {
        return 1_000_000_000;
    }
    let (offender, when) = {
        let word = OFFENDED.load(Ordering::Relaxed);
        ((word >> 32) as u32, word as u32 as u64)
    };
    let recent = when != 0 && clock::monotonic_ns() / 1_000_000_000 < when + 60;
    if recent && offender == uid {
        0
    } else {
        200_000_000
    }
}

/// Waits until one of the queues has a connection. A listener that another thread closes meanwhile goes on listening.
fn wait(fd: i32, listener: &Socket, deadline: u64, began: u64) -> Result<()> {
    link::drop_owed();
    // Before the account: a handler that closes it has run since, and keeps the thread from sleeping.
    let looked = thread::handled();
    let mut asleep = Asleep::new(listener);
    // SAFETY: the account stays here, and ends below.
    unsafe { asleep.begin() };
    let result = if listener.hold.is_open(listener) {
        wait_open(listener.hold.number(fd), listener, deadline, [began, looked])
    } else {
        Err(Errno(libc::EBADF))
    };
    // SAFETY: begun above.
    unsafe { asleep.end() };
    result
}

fn wait_open(fd: i32, listener: &Socket, deadline: u64, [began, looked]: [u64; 2]) -> Result<()> {
    let [rendezvous, bells] = queues(listener);
    let mut set = [bells, rendezvous, fd].map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 });
    // Connections come in bursts: a few looks cost less than a sleep and a wake-up. A client on this very processor makes
    // several when it is let, where a sleeper would be woken for each.
    let mut budget = spin::begin(CLIENT.load(Ordering::Relaxed));
    while budget.more() {
        if offered::waiting(listener) {
            budget.end();
            return Ok(());
        }
        let offered = listener.offering.load(Ordering::Relaxed) != 0;
        let asked = !offered || budget.rounds() & 0x3f == 0x3f;
        if asked
            && calls::ppoll(set.as_mut_ptr(), set.len(), &mut spin::ZERO.clone(), core::ptr::null(), calls::KERNEL_SIGSET)? > 0
        {
            budget.end();
            return settle(listener, &set);
        }
        if !offered && !budget.same_processor {
            calls::sched_yield();
        }
    }
    if thread::interrupted_since(began, deadline == u64::MAX) {
        return Err(Errno(libc::EINTR)); // a handler ran while we looked
    }
    let mut time;
    let mut pointer = core::ptr::null_mut();
    if deadline != u64::MAX {
        let left = deadline.saturating_sub(clock::monotonic_ns());
        time = libc::timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        pointer = &mut time;
    }
    let ready = claimed::during(bells, || calls::ppoll_sleeping(set.as_mut_ptr(), set.len(), pointer, core::ptr::null(), looked));
    budget.end();
    match ready {
        // A handler that was installed past us is not counted: which one ran is unknown.
        Err(Errno(libc::EINTR)) if thread::handled() == looked && deadline == u64::MAX && crate::signals::all_restart() => Ok(()),
        Err(Errno(libc::EINTR)) => thread::resume(began, looked, deadline == u64::MAX),
        Err(error) => Err(error),
        Ok(0) => Err(Errno(libc::EAGAIN)),
        Ok(_) => settle(listener, &set),
    }
}

/// Whether a client may wait in one of shunt's own queues.
pub fn someone_waits(listener: &Socket) -> bool {
    if deferred::any(listener) {
        return true;
    }
    let rendezvous = listener.private_fd.load(Ordering::Acquire);
    offered::waiting(listener) || calls::poll_one(rendezvous, libc::POLLIN, 0).is_ok_and(|events| events != 0)
}

/// The kernel says that a queue is readable: if only bells are, they are taken off.
fn settle(listener: &Socket, set: &[pollfd; 3]) -> Result<()> {
    if set[0].revents != 0 && !offered::waiting(listener) {
        offered::take_spent_bells(listener);
    }
    Ok(())
}

/// The descriptors that stand for a listener beside its TCP socket, in poll and epoll: the rendezvous, and clients' bells.
pub fn queues(listener: &Socket) -> [i32; 2] {
    [listener.private_fd.load(Ordering::Acquire), listener.bells_fd.load(Ordering::Acquire)]
}

/// Whether a listener that the kernel reports as readable has a connection to accept: a bell may be readable although its
/// offer has been taken.
pub fn ready(fd: i32, listener: &Socket) -> bool {
    if deferred::concern(listener) {
        return deferred::ready(listener) || calls::poll_one(fd, libc::POLLIN, 0) != Ok(0);
    }
    if listener.offering.load(Ordering::Acquire) == 0 || offered::waiting(listener) {
        return true;
    }
    let ready = |queue: i32| calls::poll_one(queue, libc::POLLIN, 0) != Ok(0);
    if ready(fd) || ready(listener.private_fd.load(Ordering::Acquire)) {
        return true;
    }
    offered::take_spent_bells(listener);
    offered::waiting(listener)
}
