//! accept: two queues, one answer. Shunt clients come through the rendezvous or offer their connections in memory,
//! everyone else comes through TCP.

pub(crate) mod acceptors;
mod arrival;
pub mod deferred;
pub mod owner;
mod patience;
mod sleep;
mod wait;

pub use arrival::{arrive, of_this_host, plausible, Arrival, Shipment};
pub use sleep::{forget as forget_set, forked};
pub use wait::{leaves_bells, queues, ready, someone_waits, told};

use crate::listen;
use crate::listen::sharing;
use crate::reconnect::{server, shared_server};
use acceptors::ACCEPTORS;
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_link::companion_cache;
use shunt_ring::claim;
use shunt_segment::address::Address;
use shunt_segment::channel::state;
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::kernel_sockets;
use shunt_sys::libc::{self, pollfd, sockaddr as c_sockaddr, socklen_t};
use shunt_sys::{calls, processor, thread, Errno, Result};
use shunt_table::process::status_page;
use shunt_table::sockaddr::Encoded;
use shunt_table::table::Kind;
use shunt_table::{global, table};

/// A client is not taken: it sees its connection end.
pub fn send_away(companion: i32, why: Reason) {
    status_page::count(why);
    ACCEPTORS.sent_away.fetch_add(1, Ordering::Relaxed);
    let _ = calls::close(companion);
}

/// accept4(2) on a listener. `flags` are SOCK_NONBLOCK and SOCK_CLOEXEC.
///
/// # Safety
/// `address` and `length` are null or valid as the manual page asks.
pub unsafe fn accept(fd: i32, listener: &Socket, address: *mut c_sockaddr, length: *mut socklen_t, flags: i32) -> Result<isize> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let blocking = !listener.has(flag::LISTENER_NONBLOCK);
    let began = thread::handled();
    let (mut deadline, mut alone) = (None, false);
    // Where clients offer in memory, that is looked at first, and the kernel asked only if nothing comes, or in every
    // eighth call, so that its clients do not starve.
    let turn = listener.listening.accepts.fetch_add(1, Ordering::Relaxed);
    let (mut told, sent_away) = (blocking && wait::was_told(), ACCEPTORS.sent_away.load(Ordering::Relaxed));
    let mut ask = !blocking || !server::are_usual(listener) || turn % 8 == 7 || deferred::concern(listener);
    loop {
        let found = if alone && !deferred::concern(listener) {
            // SAFETY: passed on.
            unsafe { queues_first(fd, listener, address, length, flags) }
        } else if ask {
            // SAFETY: passed on.
            unsafe { once(fd, listener, address, length, flags, turn) }
        } else {
            // SAFETY: passed on.
            in_memory(listener, flags).and_then(|accepted| unsafe { accepted.tell(listener, address, length) })
        };
        let asked = core::mem::replace(&mut ask, true);
        match found {
            Err(Errno(libc::EAGAIN)) if asked && shared_server::comes(listener) => {}
            // A program that poll told of a client that was none serves others in this thread: it must not be made to wait for
            // the next.
            Err(Errno(libc::EAGAIN))
                if asked && core::mem::take(&mut told) && ACCEPTORS.sent_away.load(Ordering::Relaxed) != sent_away =>
            {
                return Err(Errno(libc::ECONNABORTED));
            }
            Err(Errno(libc::EAGAIN)) if !listen::nonblocking(listener) => {
                alone = wait::wait(fd, listener, &mut deadline, began)?;
            }
            Err(Errno(libc::EAGAIN)) if !asked => {} // another process made it non-blocking
            other => {
                shunt_table::process::kernel_only::carry();
                return other;
            }
        }
    }
}

/// Tries all queues once for a thread that was woken alone: the client that woke it is no other thread's ([`sleep`]).
unsafe fn queues_first(
    fd: i32,
    listener: &Socket,
    address: *mut c_sockaddr,
    length: *mut socklen_t,
    flags: i32,
) -> Result<isize> {
    // SAFETY: passed on.
    let tell = |accepted: Accepted| unsafe { accepted.tell(listener, address, length) };
    match from_rendezvous(listener, flags) {
        // SAFETY: passed on.
        Err(Errno(libc::EAGAIN)) => match unsafe { from_kernel(fd, listener, address, length, flags, false) } {
            Err(Errno(libc::EAGAIN)) => in_memory(listener, flags).and_then(tell),
            other => other,
        },
        found => found.and_then(tell),
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
    if listener.has(flag::LISTENER_SHARED) && nobody(fd, listener) {
        link::drop_owed();
        return Err(nobody_came(fd, listener));
    }
    // SAFETY: passed on.
    unsafe {
        if turn % 8 == 7 && anyone(listener.hold.number(fd)) {
            match from_kernel(fd, listener, address, length, flags, true) {
                Err(Errno(libc::EAGAIN)) => from_shunt(listener, address, length, flags, turn),
                other => other,
            }
        } else {
            // The kernel has the last word: it says EMFILE before it looks whether a client waits.
            match from_shunt(listener, address, length, flags, turn) {
                Err(Errno(libc::EAGAIN)) => from_kernel(fd, listener, address, length, flags, false),
                other => other,
            }
        }
    }
}

/// Whether one look at all queues of a listener that others have, too, finds no client, nor anything to hear about. Such a look is what most
/// of a herd come to that a client has woken.
pub fn nobody(fd: i32, listener: &Socket) -> bool {
    let [rendezvous, bells] = queues(listener);
    let ask = |fd: i32, events: i16| pollfd { fd, events, revents: 0 };
    let mut set =
        [ask(rendezvous, libc::POLLIN | libc::POLLRDHUP), ask(listener.hold.number(fd), libc::POLLIN), ask(bells, libc::POLLIN)];
    let mut zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    !(deferred::holds_any() || server::waiting(listener) || shared_server::any(listener))
        && calls::ppoll(set.as_mut_ptr(), set.len(), &mut zero, core::ptr::null(), calls::KERNEL_SIGSET) == Ok(0)
}

/// Whether there is anything to accept from, or to hear about, `queue`. accept(2) makes a socket and a file before it looks, and
/// throws them away when no client waits: five times as expensive.
pub(super) fn anyone(queue: i32) -> bool {
    calls::poll_one(queue, libc::POLLIN, 0) != Ok(0)
}

/// `somebody`: whether the queue was found to have something.
unsafe fn from_kernel(
    fd: i32,
    listener: &Socket,
    address: *mut c_sockaddr,
    length: *mut socklen_t,
    flags: i32,
    somebody: bool,
) -> Result<isize> {
    // A program without shunt that shares the listener may have made it blocking again.
    if !somebody && listener.has(flag::LISTENER_SHARED) && !anyone(listener.hold.number(fd)) {
        return Err(nobody_came(fd, listener));
    }
    let accepted = calls::accept4(listener.hold.number(fd), address, length, flags)?;
    table::take(accepted);
    if crate::carriers::accepted(accepted, listener.hold.number(fd), listener, flags) {
        return Ok(accepted as isize);
    }
    kernel_sockets::accepted(accepted, flags & libc::SOCK_NONBLOCK != 0);
    status_page::note(accepted, kind::TCP, Reason::AcceptedFromKernel, None);
    Ok(accepted as isize)
}

/// What accept(2) says when no client waits: EMFILE, where there is no number for one that might come.
fn nobody_came(fd: i32, listener: &Socket) -> Errno {
    // A number is the first thing that accept(2) wants, before it finds that this is no socket. Another thread could have given this one's
    // number to a socket since.
    let no_socket = listener.listening.bells_fd.load(Ordering::Relaxed);
    if no_socket >= 0 && global::single_threaded() {
        return match calls::accept4(no_socket, core::ptr::null_mut(), core::ptr::null_mut(), 0) {
            Err(Errno(libc::EMFILE)) => Errno(libc::EMFILE),
            _ => Errno(libc::EAGAIN),
        };
    }
    match calls::fcntl(listener.hold.number(fd), libc::F_DUPFD_CLOEXEC, 0) {
        Ok(number) => {
            let _ = calls::close(number);
            Errno(libc::EAGAIN)
        }
        Err(Errno(libc::EMFILE | libc::EINVAL)) => Errno(libc::EMFILE),
        Err(_) => Errno(libc::EAGAIN),
    }
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
        from_rendezvous(listener, flags).or_else(|_| in_memory(listener, flags))
    } else {
        in_memory(listener, flags).or_else(|_| from_rendezvous(listener, flags))
    }?;
    // SAFETY: passed on.
    unsafe { accepted.tell(listener, address, length) }
}

/// What clients offer to this process alone, or bid for.
fn in_memory(listener: &Socket, flags: i32) -> Result<Accepted> {
    server::accept(listener, flags).or_else(|error| match error {
        Errno(libc::EAGAIN) => shared_server::accept(listener, flags),
        error => Err(error),
    })
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
            shunt_table::upcalls::operations::closing(self.companion);
            let _ = calls::close(self.companion);
            return Err(error);
        }
        Ok(self.companion as isize)
    }
}

/// A client that waits in one of shunt's own queues, and its address, for the process that carries it elsewhere.
pub fn waiting(listener: &Socket) -> Option<(i32, Address)> {
    let flags = libc::SOCK_CLOEXEC;
    // Clients offer in memory first, and come through the rendezvous when they have nothing left to offer.
    let accepted = deferred::evict(listener, flags)
        .or_else(|_| server::accept(listener, flags))
        .or_else(|_| from_rendezvous(listener, flags))
        .ok()?;
    Some((accepted.companion, accepted.client))
}

/// The next client of the rendezvous that can be welcomed. Errors: EAGAIN: there is none; EMFILE and the like.
pub fn from_rendezvous(listener: &Socket, flags: i32) -> Result<Accepted> {
    loop {
        let (arrival, _setup) = arrive(listener, flags, None)?;
        match welcome(&arrival, listener, flags & libc::SOCK_NONBLOCK != 0) {
            Ok(accepted) => {
                companion_cache::forget(arrival.index, arrival.channel); // of an earlier companion
                if listener.has(flag::LISTENER_SHARED) {
                    shared_server::arrived(arrival.index, listener);
                }
                return Ok(accepted);
            }
            Err(reason) => send_away(arrival.companion, reason),
        }
    }
}

/// The listener closes: clients in the rendezvous' queue see a reset, as TCP gives it. The kernel would only hang up, and a
/// client that sends without waiting would not notice. Where other processes may accept from the listener, the queue stays
/// theirs.
pub fn refuse_waiting(listener: &Socket) {
    deferred::listener_ends(listener);
    if listener.has(flag::LISTENER_SHARED) || listener.private_fd.load(Ordering::Relaxed) < 0 {
        return;
    }
    while let Ok(accepted) = from_rendezvous(listener, libc::SOCK_CLOEXEC) {
        if let Some(socket) = shunt_stream::socket::stream(accepted.companion) {
            socket.set(flag::LINGER_RESET);
        }
        shunt_table::upcalls::operations::closing(accepted.companion);
        let _ = calls::close(accepted.companion);
    }
}

/// Makes a client that arrived a stream. Under the set-up lock.
pub fn welcome(arrival: &Arrival, listener: &Socket, nonblocking: bool) -> core::result::Result<Accepted, Reason> {
    let &Arrival { companion, client, server, index, channel, generation } = arrival;
    let link = *link::at(index);
    if !claim::accept(&link::page(link.base, channel).head, generation) {
        return Err(Reason::ClientLeft);
    }
    let accepted = Accepted { companion, client, server, index, channel };
    seat(&accepted, link.base, listener, nonblocking)?;
    Ok(accepted)
}

/// An accepted connection gets its socket. Under the set-up lock.
pub fn seat(accepted: &Accepted, base: *mut u8, listener: &Socket, nonblocking: bool) -> core::result::Result<(), Reason> {
    if !link::at(accepted.index).count() {
        return Err(Reason::BadSegment);
    }
    let family = listener.family.load(Ordering::Relaxed);
    let socket = socket::allocate_locked(family).ok_or(Reason::NoMemory)?;
    sharing::count_client();
    let side = &link::page(base, accepted.channel).sides[1];
    side.pid.store(thread::process(), Ordering::Relaxed);
    side.owners.store(1, Ordering::Relaxed);
    if listener.listening.at_address.load(Ordering::Relaxed) != 0 {
        side.receive.state.fetch_or(state::AT_ADDRESS, Ordering::Relaxed);
    }
    side.address_family.store(family as u32, Ordering::Relaxed);
    side.transmit.class_limit.store(crate::attach::class_limit(), Ordering::Relaxed);
    side.wait.processor.store(processor::number() + 1, Ordering::Relaxed);
    ACCEPTORS.client.store(link::page(base, accepted.channel).sides[0].wait.processor.load(Ordering::Relaxed), Ordering::Relaxed);
    socket.attach(base, accepted.channel, 1);
    socket.set_addresses(&accepted.client, &accepted.server); // what was found plausible
    socket.connected.link_index.store(accepted.index as u32, Ordering::Relaxed);
    shunt_stream::tap::connected(socket);
    link::enter(accepted.index);
    if nonblocking {
        socket.set(flag::NONBLOCK);
    }
    if link::header(base).client.barrier.load(Ordering::Acquire) == 0 || !global::barriers() {
        socket.set(flag::FENCE);
    }
    let began = link::page(base, accepted.channel).head.began.load(Ordering::Relaxed);
    listen::options::inherit(listener, socket, began);
    crate::options::connected(socket, accepted.companion, true);
    shunt_table::table::enter(accepted.companion, Kind::Stream, socket);
    status_page::note(accepted.companion, kind::STREAM, Reason::Accelerated, Some(accepted.channel));
    Ok(())
}
