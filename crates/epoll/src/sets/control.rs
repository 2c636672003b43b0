//! epoll_ctl(2): what the program adds, changes and removes.
//!
//! Mistakes are looked for in the kernel's order (`do_epoll_ctl` in fs/eventpoll.c), so that several at once give its
//! errno.

use super::arming::rouse;
use super::entry::{free_entry, new_entry, other, place, term, Entry};
use super::list::address;
use super::set::{activate, attach, detach, enqueue, find, find_any, Set, SETS};
use super::{datagrams, order, ERR, ET, EXCLUSIVE, HUP, IN, OUT, RDHUP, TAG, TAG_MASK};
use core::sync::atomic::{AtomicI32, Ordering};
use shunt_inbox::datagram::Datagram;
use shunt_rendezvous::accept;
use shunt_rendezvous::accept::deferred;
use shunt_rendezvous::reconnect::server;
use shunt_stream::socket::Socket;
use shunt_stream::waiting::kernel_sockets;
use shunt_sys::libc::epoll_event;
use shunt_sys::{calls, libc, user, Errno, Result};
use shunt_table::table::Kind;
use shunt_table::{private, table};

/// What may stand beside EPOLLEXCLUSIVE.
const WITH_EXCLUSIVE: u32 = IN | OUT | ERR | HUP | libc::EPOLLWAKEUP as u32 | ET | EXCLUSIVE;

/// A listener's other queues join the kernel's set with its TCP socket: of clients that come by them nothing else would tell. Bells are
/// an epoll set, which cannot be exclusive; they matter to a process only that accepts alone.
pub(super) fn add_queues(epfd: i32, entry: &Entry, listener: &Socket, mut event: epoll_event) -> Result<()> {
    let queues = accept::queues(listener);
    for (index, (queue, own)) in queues.into_iter().zip(&entry.queues).enumerate() {
        if queue >= 0 {
            add_queue(epfd, queue, own, event).inspect_err(|_| {
                queues[..index].iter().zip(&entry.queues).for_each(|(earlier, own)| remove_queue(epfd, *earlier, own));
            })?;
        }
        event.events &= !(libc::EPOLLEXCLUSIVE as u32);
    }
    Ok(())
}

/// The kernel tells entries of one open file apart by number, so where several duplicates of the listener are in the set, all
/// but the first have duplicates of its queues as well.
fn add_queue(epfd: i32, queue: i32, own: &AtomicI32, mut event: epoll_event) -> Result<()> {
    match calls::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, queue, &mut event) {
        Err(Errno(libc::EEXIST)) => {
            let another = calls::fcntl(queue, libc::F_DUPFD_CLOEXEC, private::lowest() as usize)?;
            table::set_private(another);
            own.store(another, Ordering::Relaxed);
            let added = calls::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, another, &mut event);
            added.inspect_err(|_| private::close(own.swap(-1, Ordering::Relaxed)))
        }
        Err(Errno(libc::EBADF)) => Ok(()), // another thread has just retired it
        added => added,
    }
}

fn remove_queue(epfd: i32, queue: i32, own: &AtomicI32) {
    let known = own.swap(-1, Ordering::Relaxed);
    let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, if known >= 0 { known } else { queue }, core::ptr::null_mut());
    private::close(known);
}

/// They leave it.
pub(super) fn remove_queues(epfd: i32, entry: &Entry, listener: &Socket) {
    accept::queues(listener).into_iter().zip(&entry.queues).for_each(|(queue, own)| remove_queue(epfd, queue, own));
}

/// The first of them, the rendezvous, goes on speaking, in the program's own words, for as long as others have it; the others leave.
pub(super) fn leave_queues(epfd: i32, entry: &Entry, listener: &Socket) {
    for (place, (queue, own)) in accept::queues(listener).into_iter().zip(&entry.queues).enumerate() {
        let known = own.load(Ordering::Relaxed);
        match place {
            0 => datagrams::leave_to_kernel(epfd, entry, if known >= 0 { known } else { queue }),
            _ => remove_queue(epfd, queue, own),
        }
        private::close(own.swap(-1, Ordering::Relaxed));
    }
}

/// They follow what the kernel is told of the TCP socket.
pub(super) fn change_queues(epfd: i32, entry: &Entry, listener: &Socket, mut event: epoll_event) {
    for (queue, own) in accept::queues(listener).into_iter().zip(&entry.queues) {
        let known = own.load(Ordering::Relaxed);
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, if known >= 0 { known } else { queue }, &mut event);
        event.events &= !(libc::EPOLLEXCLUSIVE as u32);
    }
}

/// What the kernel's set holds for an entry.
pub(super) fn kernel_event(entry: &Entry, kind: Kind) -> epoll_event {
    let wanted = entry.wanted();
    let events = match kind {
        Kind::Stream if wanted & EXCLUSIVE != 0 => IN | ET | wanted & (EXCLUSIVE | libc::EPOLLWAKEUP as u32),
        Kind::Stream => {
            let space = if entry.has(term::POKED) { OUT } else { 0 };
            IN | RDHUP | ET | space | wanted & libc::EPOLLWAKEUP as u32
        }
        _ => wanted,
    };
    // Where other processes have the set, the kernel's word on a datagram socket is the program's own.
    let own = entry.datagram().is_some() && entry.set().is_some_and(|set| set.joint.load(Ordering::Relaxed) != 0);
    let data = if own { &entry.terms().data } else { &entry.tag };
    epoll_event { events, u64: data.load(Ordering::Relaxed) }
}

/// Changes what the kernel's set holds for an entry: what holds is an edge then. EPOLLEXCLUSIVE forbids changes: such an entry
/// leaves the set, and joins it again; not by another number than the one that was added, which may be closed beside a duplicate: it would
/// join a second time, and the program's own registration of that number would be refused.
pub(super) fn change(epfd: i32, entry: &Entry, fd: i32, mut event: epoll_event) -> bool {
    let mut operation = libc::EPOLL_CTL_MOD;
    if event.events & EXCLUSIVE != 0 && entry.datagram().is_none() {
        if entry.fd.load(Ordering::Relaxed) != fd {
            return false;
        }
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
        operation = libc::EPOLL_CTL_ADD;
    }
    calls::epoll_ctl(epfd, operation, fd, &mut event).is_ok()
}

/// Whether the kernel's set holds what the program asked for, and so speaks for the entry; of datagrams in an inbox it
/// does not know.
pub(super) fn kernel_side(entry: &Entry) -> bool {
    entry.datagram().is_some() || other(entry) || entry.socket().is_some_and(|socket| socket.kind() != Kind::Stream)
}

/// epoll_ctl(2) on a set that the table knows. `None`: nothing of ours is concerned, the kernel shall do it.
///
/// # Safety
/// `event` may be any address that is not ours.
pub unsafe fn control(set: &'static Set, epfd: i32, operation: i32, fd: i32, event: *const epoll_event) -> Option<Result<isize>> {
    let _stays = shunt_rendezvous::exchange::stays(fd);
    let word = table::get(fd);
    let kind = word.kind();
    // DEL does not look at the event, which may be anything.
    let given = operation != libc::EPOLL_CTL_DEL;
    // SAFETY: any bytes are an event; the address is the program's.
    let wanted = if given { unsafe { user::read(event) }.ok() } else { Some(epoll_event { events: 0, u64: 0 }) };
    // Foreign descriptors are the kernel's, unless their data could be taken for a tag of ours.
    let alias = wanted.is_some_and(|e| e.u64 & TAG_MASK == TAG);
    let mut ours = matches!(kind, Kind::Stream | Kind::Listener | Kind::Tcp | Kind::Epoll | Kind::Private);
    if let Some(socket) = word.object::<Datagram>() {
        // Where other processes have the set, it is the kernel's alone to say.
        let waiting = shunt_inbox::datagram::events(socket) != 0; // in memory, where the kernel's set does not see it
        let joint = set.joint.load(Ordering::Relaxed) != 0;
        // One that joined when the set was joint has no entry.
        ours = find(set, fd).is_some() || (operation == libc::EPOLL_CTL_ADD && (!joint || waiting));
        if joint && operation == libc::EPOLL_CTL_ADD {
            socket.pin(shunt_inbox::datagram::pin::SET);
        }
    }
    if kind == Kind::Tcp && set.shared.load(Ordering::Relaxed) {
        // Connected through the kernel it stays the kernel's, which then tells all processes that have the set.
        ours = find(set, fd).is_some() || (operation == libc::EPOLL_CTL_ADD && !shunt_table::sockaddr::is_connected(fd));
    }
    let joins = alias && operation == libc::EPOLL_CTL_ADD;
    if !ours && !joins && (set.others.is_empty() || find(set, fd).is_none()) {
        return None;
    }
    let Some(wanted) = wanted else { return Some(Err(Errno(libc::EFAULT))) };
    if kind == Kind::Private {
        return Some(Err(Errno(libc::EBADF)));
    }
    let itself = word.object::<Set>().is_some_and(|inner| core::ptr::eq(inner, set));
    let known = matches!(operation, libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL);
    let exclusive = wanted.events & EXCLUSIVE != 0;
    let misused = operation == libc::EPOLL_CTL_MOD || kind == Kind::Epoll || wanted.events & !WITH_EXCLUSIVE != 0;
    if itself || !known || (exclusive && misused) {
        return Some(Err(Errno(libc::EINVAL)));
    }
    if let (libc::EPOLL_CTL_ADD, Some(socket)) = (operation, word.object::<Socket>()) {
        shunt_rendezvous::socket_cache::spoil(socket);
    }
    if operation != libc::EPOLL_CTL_DEL && wanted.events & ET != 0 && matches!(kind, Kind::Listener | Kind::Tcp | Kind::Epoll) {
        server::watched_by_edges(word.object::<Socket>());
    }
    let changed = change_entry(set, epfd, operation, fd, kind, wanted);
    if let (Kind::Listener, Some(listener)) = (kind, word.object::<Socket>()) {
        if operation == libc::EPOLL_CTL_ADD {
            server::take_left_bells(listener);
        } else if wanted.events & IN == 0 {
            deferred::leave_to_others(listener);
        }
    }
    Some(changed)
}

fn change_entry(set: &'static Set, epfd: i32, operation: i32, fd: i32, kind: Kind, wanted: epoll_event) -> Result<isize> {
    let _watchers = SETS.watchers.lock().ok_or(Errno(libc::EINTR))?;
    let _held = set.lock.lock().ok_or(Errno(libc::EINTR))?;
    match operation {
        libc::EPOLL_CTL_ADD => add(set, epfd, fd, kind, wanted),
        libc::EPOLL_CTL_MOD => modify(set, epfd, fd, kind, wanted),
        _ => remove(set, epfd, fd, kind),
    }
}

fn ask(entry: &'static Entry, wanted: epoll_event) {
    let terms = entry.terms();
    terms.events.store(wanted.events, Ordering::Relaxed);
    terms.data.store(wanted.u64, Ordering::Relaxed);
    terms.flags.store(term::FRESH, Ordering::Release);
    entry.noticed.store(0, Ordering::Relaxed);
}

fn add(set: &'static Set, epfd: i32, fd: i32, kind: Kind, wanted: epoll_event) -> Result<isize> {
    if let Some(entry) = find_any(set, fd) {
        if !entry.has(term::DORMANT) {
            return Err(Errno(libc::EEXIST));
        }
        if kind == Kind::Stream && wanted.events & EXCLUSIVE == 0 {
            ask(entry, wanted);
            appear(set, epfd, entry);
            return Ok(0);
        }
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
        detach(set, entry);
    }
    let word = table::get(fd);
    let Some(entry) = new_entry() else { return Err(Errno(libc::ENOMEM)) };
    ask(entry, wanted);
    entry.fd.store(fd, Ordering::Relaxed);
    let mut event = kernel_event(entry, kind);
    if let Err(error) = calls::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, fd, &mut event) {
        free_entry(entry);
        return Err(error);
    }
    if let (Kind::Listener, Some(socket)) = (kind, word.object::<Socket>()) {
        if let Err(error) = add_queues(epfd, entry, socket, event) {
            let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
            free_entry(entry);
            return Err(Errno(if error.0 == libc::ENOSPC { libc::ENOSPC } else { libc::ENOMEM }));
        }
    }
    entry.socket.store(word.object::<Socket>().map_or(core::ptr::null_mut(), address), Ordering::Relaxed);
    entry.inner.store(word.object::<Set>().map_or(core::ptr::null_mut(), address), Ordering::Release);
    entry.datagram.store(word.object::<Datagram>().map_or(core::ptr::null_mut(), address), Ordering::Release);
    attach(set, entry);
    appear(set, epfd, entry);
    Ok(0)
}

/// What an entry asks for is new: it is looked at, by the threads that sleep in the set and know nothing of it.
fn appear(set: &'static Set, epfd: i32, entry: &'static Entry) {
    if entry.datagram().is_some() {
        if datagrams::appeared(set, entry) {
            rouse(set, epfd, entry);
        }
        return;
    }
    if let Some(inner) = entry.inner() {
        datagrams::watched_from_outside(inner);
    }
    if kernel_side(entry) {
        return;
    }
    if entry.wanted() & EXCLUSIVE != 0 {
        set.exclusive.store(true, Ordering::Relaxed);
    }
    activate(set, entry);
    order::ask(set, entry);
    if set.count.load(Ordering::Relaxed) == 2 {
        // The first one has company now.
        set.entries.iter().for_each(|entry| order::ask(set, entry));
    }
    set.note_change();
    if set.is_awaited() {
        rouse(set, epfd, entry);
    }
}

fn modify(set: &'static Set, epfd: i32, fd: i32, kind: Kind, wanted: epoll_event) -> Result<isize> {
    let Some(entry) = find(set, fd) else { return Err(Errno(libc::ENOENT)) };
    if entry.wanted() & EXCLUSIVE != 0 {
        return Err(Errno(libc::EINVAL)); // epoll_ctl(2): only with EPOLL_CTL_ADD
    }
    ask(entry, wanted);
    if kind != Kind::Stream {
        let mut event = kernel_event(entry, kind);
        calls::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, fd, &mut event)?;
        if let (Kind::Listener, Some(socket)) = (kind, table::get(fd).object::<Socket>()) {
            change_queues(epfd, entry, socket, event);
        }
    }
    appear(set, epfd, entry);
    Ok(0)
}

fn remove(set: &'static Set, epfd: i32, fd: i32, kind: Kind) -> Result<isize> {
    let Some(entry) = find(set, fd) else { return Err(Errno(libc::ENOENT)) };
    // Where other processes have the set, the kernel's must tell them; and an EPOLLEXCLUSIVE one would go on taking the one wake-up.
    if kind == Kind::Stream && !set.shared.load(Ordering::Relaxed) && entry.wanted() & EXCLUSIVE == 0 {
        entry.terms().flags.store(term::DORMANT, Ordering::Relaxed);
        enqueue(set, entry, place::NONE);
        return Ok(0);
    }
    let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
    if let (Kind::Listener, Some(socket)) = (kind, table::get(fd).object::<Socket>()) {
        remove_queues(epfd, entry, socket);
    }
    entry.terms().generation.fetch_add(1, Ordering::Relaxed);
    detach(set, entry);
    Ok(0)
}

/// The program has added the foreign descriptor `fd` to the kernel's set.
///
/// # Safety
/// As for epoll_ctl(2).
pub unsafe fn added(set: &Set, fd: i32, event: *const epoll_event) {
    foreign(set, libc::EPOLL_CTL_ADD);
    if kernel_sockets::is(fd) {
        set.tcp.store(true, Ordering::Relaxed);
    }
    // SAFETY: the program's event, which the kernel has read.
    if unsafe { user::read(event) }.is_ok_and(|event| event.events & EXCLUSIVE != 0) {
        set.exclusive.store(true, Ordering::Relaxed);
    }
}

/// A foreign descriptor joined (or left) the kernel's set.
pub fn foreign(set: &Set, operation: i32) {
    let change = |count: u32| match operation {
        libc::EPOLL_CTL_ADD => Some(count + 1),
        libc::EPOLL_CTL_DEL => count.checked_sub(1),
        _ => None,
    };
    let _ = set.foreign.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
}
