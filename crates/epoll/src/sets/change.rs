//! What happens to entries when the socket they watch becomes something else, or goes.

use super::arming::{arm, pass_kick_on, rouse};
use super::control::{add_queues, foreign, kernel_event, leave_queues, remove_queues};
use super::entry::{self, place, term, Entry};
use super::events::find;
use super::list::address;
use super::set::{activate, becomes_ours, detach, enqueue, unwatch, watch, watcher, Set, SETS};
use super::{datagrams, frames, order, EXCLUSIVE, MODES};
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use shunt_inbox::datagram;
use shunt_inbox::datagram::Datagram;
use shunt_rendezvous::accept::queues;
use shunt_rendezvous::listen;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::wake::barrier;
use shunt_stream::waiting::watchers::{Change, Watchers};
use shunt_sys::{calls, libc};
use shunt_table::private;
use shunt_table::table::Kind;

/// What the rooms below tell of sockets that are watched.
pub const SOCKETS: Watchers = Watchers { changed, forget: forget_socket, follow: after_dissolve, can_follow: can_watch_another };

/// The same of datagram sockets, and of forks.
pub const DATAGRAMS: datagram::watchers::Watchers =
    datagram::watchers::Watchers { forget: forget_datagram, leave: leave_datagram, children_gone: super::fork::children_gone };

fn changed(socket: &Socket, change: Change) {
    match change {
        Change::Ready => ready(socket),
        Change::BellsTaken => tell_sets(socket),
        Change::BecameListener => became_listener(socket),
        Change::CeasedToListen => ceased_to_listen(socket),
        Change::RendezvousGoes => rendezvous_goes(socket),
        Change::Replacing => before_replace(socket),
        Change::Replaced => after_replace(socket),
    }
}

/// All entries in a list of watchers leave their sets, each when `act` has seen it and its set, which is locked. False: `act`
/// says that one cannot, which stays, and so do those behind it.
fn leave_each(watchers: &AtomicPtr<Entry>, mut act: impl FnMut(&'static Set, &'static Entry) -> bool) -> bool {
    if watchers.load(Ordering::Relaxed).is_null() {
        return true;
    }
    let Some(_watchers) = SETS.watchers.lock() else { return false };
    while let Some(entry) = watcher(watchers) {
        let Some(set) = entry.set() else {
            unwatch(entry);
            continue;
        };
        let Some(_held) = set.lock.lock() else { return false };
        if !act(set, entry) {
            return false;
        }
        detach(set, entry);
    }
    true
}

/// The last descriptor of this process for `socket` closes: it leaves all sets. True: the kernel's too.
fn forget_socket(socket: &'static Socket, fd: i32) -> bool {
    let mut everywhere = true;
    let left = leave_each(socket.watchers.entries(), |set, entry| {
        // Other processes may keep the companion open: then the kernel would not forget it by itself. In a child of fork
        // the set is the parent's too, whose sockets stay watched when the child closes its copies (epoll(7), Q6).
        match (set.inherited.load(Ordering::Relaxed), set.descriptor()) {
            // The same for a socket that is not a stream, of which other processes may have a copy: the kernel goes on watching it
            // in the program's own words.
            (false, Some(epfd))
                if elsewhere(socket) && entry.wanted() & EXCLUSIVE == 0 && entry.fd.load(Ordering::Relaxed) == fd =>
            {
                everywhere = false;
                datagrams::leave_to_kernel(epfd, entry, fd);
                if socket.kind() == Kind::Listener {
                    leave_queues(epfd, entry, socket);
                }
                foreign(set, libc::EPOLL_CTL_ADD);
            }
            (false, Some(epfd)) => {
                everywhere &= entry.fd.load(Ordering::Relaxed) == fd
                    && calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut()).is_ok();
                if socket.kind() == Kind::Listener {
                    remove_queues(epfd, entry, socket);
                }
            }
            _ => everywhere = false,
        }
        true
    });
    left && everywhere
}

/// Whether it is a socket that was never connected, or a listener, which another process may have too, or a message that no process
/// has received yet.
fn elsewhere(socket: &Socket) -> bool {
    match socket.kind() {
        Kind::Tcp => socket.has(flag::PLAIN),
        Kind::Listener => socket.has(flag::LISTENER_SHARED),
        _ => false,
    }
}

/// The last descriptor of this process for a datagram socket closes: it leaves all sets. Where other processes have it
/// open, the kernel's sets go on watching it for the program (epoll(7), Q6).
fn forget_datagram(socket: &'static Datagram, fd: i32) {
    leave_each(socket.watchers.entries(), |set, entry| {
        let elsewhere = socket.flags.load(Ordering::Relaxed) & datagram::flag::SHARED != 0;
        // In a child of fork the registration is the parent's, which goes on with it.
        let elsewhere = elsewhere && !set.inherited.load(Ordering::Relaxed);
        if let (true, Some(epfd), true) = (elsewhere, set.descriptor(), entry.fd.load(Ordering::Relaxed) == fd) {
            datagrams::leave_to_kernel(epfd, entry, fd);
        }
        true
    });
}

/// A datagram socket is the kernel's alone from now on: its sets go on watching it as they watch any other descriptor. False: one of them
/// cannot, as it is another process's, too.
fn leave_datagram(socket: &'static Datagram) -> bool {
    leave_each(socket.watchers.entries(), |set, entry| {
        let own = !set.inherited.load(Ordering::Relaxed) && entry.wanted() & EXCLUSIVE == 0;
        let (true, Some(epfd), Some(fd)) = (own, set.descriptor(), entry.descriptor()) else { return false };
        datagrams::leave_to_kernel(epfd, entry, fd);
        foreign(set, libc::EPOLL_CTL_ADD);
        true
    })
}

/// `act` gets the set, a descriptor of it, and the entry.
fn each_watcher(socket: &Socket, mut act: impl FnMut(&'static Set, i32, &'static Entry)) {
    if socket.watchers.is_empty() {
        return;
    }
    let Some(_watchers) = SETS.watchers.lock() else { return };
    let mut at = watcher(socket.watchers.entries());
    while let Some(entry) = at {
        at = watcher(&entry.next_watcher);
        if let Some((set, epfd)) = entry.set().and_then(|set| Some((set, set.descriptor()?))) {
            act(set, epfd, entry);
        }
    }
}

/// A watched TCP socket began to listen: its rendezvous joins the sets.
fn became_listener(socket: &Socket) {
    each_watcher(socket, |set, epfd, entry| {
        becomes_ours(set, entry);
        if let Some(_held) = set.lock.lock() {
            enqueue(set, entry, place::LISTENING);
        }
        if add_queues(epfd, entry, socket, kernel_event(entry, Kind::Listener)).is_err() {
            listen::is_short(socket);
        }
    });
}

/// A watched listener ceases to listen: its other queues leave the sets.
fn ceased_to_listen(socket: &Socket) {
    each_watcher(socket, |set, epfd, entry| {
        if let Some(_held) = set.lock.lock() {
            enqueue(set, entry, place::NONE);
        }
        remove_queues(epfd, entry, socket);
    });
}

/// A private descriptor got another number, and still has the old one, by which the kernel's sets know it. Sets of another
/// process, too, which it goes on using, stay as they are. Behind all that keep such numbers.
pub fn moved(from: i32, to: i32) {
    frames::moved(from, to);
    let Some(_watchers) = SETS.watchers.lock() else { return };
    entry::moved(from, to, |entry| {
        let listener = entry.socket().filter(|socket| socket.kind() == Kind::Listener);
        let set = entry.set().filter(|set| !set.inherited.load(Ordering::Relaxed));
        let (Some(listener), Some(set), true) = (listener, set, entry.valid()) else { return };
        let at = |(queue, own): (i32, &AtomicI32)| match own.load(Ordering::Relaxed) {
            -1 => queue == to,
            own => own == to,
        };
        let Some(place) = queues(listener).into_iter().zip(&entry.queues).position(at) else { return };
        let (Some(_held), Some(epfd)) = (set.lock.lock(), set.descriptor()) else { return };
        let mut event = kernel_event(entry, Kind::Listener);
        if place > 0 {
            event.events &= !EXCLUSIVE; // see add_queues
        }
        if entry.has(term::DISABLED) {
            event.events &= MODES;
        }
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, from, core::ptr::null_mut());
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, to, &mut event);
    });
}

/// A listener's rendezvous is about to be closed: it leaves the sets, which other processes may share.
fn rendezvous_goes(socket: &Socket) {
    let rendezvous = socket.private_fd.load(Ordering::Relaxed);
    each_watcher(socket, |_, epfd, entry| {
        let own = entry.queues[0].swap(-1, Ordering::AcqRel);
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, if own >= 0 { own } else { rendezvous }, core::ptr::null_mut());
        private::close(own);
    });
}

/// The open file behind a watched socket's descriptors is about to be replaced by another: it leaves the kernel's sets.
fn before_replace(socket: &Socket) {
    each_watcher(socket, |_, epfd, entry| {
        let fd = entry.fd.load(Ordering::Relaxed);
        // One that the program has taken out and then closed may be another file's, which is watched.
        if !entry.has(term::DORMANT) || shunt_stream::socket::is_of(fd, socket) {
            let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
        }
    });
}

/// The companion is in place of the TCP socket: it joins them.
fn after_replace(socket: &Socket) {
    each_watcher(socket, |set, epfd, entry| {
        becomes_ours(set, entry);
        let mut event = kernel_event(entry, Kind::Stream);
        let fd = entry.fd.load(Ordering::Relaxed);
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, fd, &mut event);
        if let Some(_held) = set.lock.lock() {
            entry.terms().flags.fetch_or(term::FRESH, Ordering::Relaxed);
            activate(set, entry);
            entry.stamped.store(false, Ordering::Relaxed);
            order::ask(set, entry);
            if set.is_awaited() {
                rouse(set, epfd, entry);
            }
        }
    });
}

/// This process did something to a stream that changes what it is ready for, and of which no bell tells.
fn ready(socket: &Socket) {
    each_watcher(socket, |set, epfd, entry| {
        if let Some(_held) = set.lock.lock() {
            activate(set, entry);
            if set.is_awaited() {
                rouse(set, epfd, entry);
            }
        }
    });
}

/// A call took bells of a stream off its companion: the sets look at the stream in memory from now on, and a thread that sleeps in one
/// is woken if there is anything to tell; if not, the peer rings again.
#[cold]
fn tell_sets(socket: &Socket) {
    each_watcher(socket, |set, epfd, entry| {
        let Some(_held) = set.lock.lock() else { return };
        activate(set, entry);
        if !set.is_awaited() {
            return;
        }
        if entry.queue.load(Ordering::Relaxed) != place::NONE && arm(entry) {
            barrier();
        }
        if find(entry).events != 0 {
            rouse(set, epfd, entry);
        }
    });
}

/// Whether each set that watches the stream can watch the kernel's connection in its place: by a number that is the stream's still, as one that was
/// closed beside a duplicate may be another file's; and for this process alone, as others know nothing of its entries.
fn can_watch_another(socket: &Socket) -> bool {
    let mut can = true;
    each_watcher(socket, |set, _, entry| {
        let alone = !set.shared.load(Ordering::Relaxed) && !set.inherited.load(Ordering::Relaxed);
        can &= entry.has(term::DORMANT) || (alone && shunt_stream::socket::is_of(entry.fd.load(Ordering::Relaxed), socket));
    });
    can
}

/// A stream was dissolved, and a fresh TCP socket took its place: the entries are that one's from now on.
fn after_dissolve(socket: &'static Socket, next: &'static Socket) {
    let Some(_watchers) = SETS.watchers.lock() else { return };
    while let Some(entry) = watcher(socket.watchers.entries()) {
        let Some(set) = entry.set() else {
            unwatch(entry);
            continue;
        };
        let Some(_held) = set.lock.lock() else { return };
        if entry.has(term::DORMANT) {
            detach(set, entry); // the program had taken it out of the set
            continue;
        }
        unwatch(entry);
        enqueue(set, entry, place::NONE);
        pass_kick_on(set, entry);
        entry.socket.store(address(next), Ordering::Release);
        watch(entry);
        let mut event = kernel_event(entry, Kind::Tcp);
        if entry.has(term::DISABLED) {
            event.events &= MODES; // told once: a set around this one would hear of it again
        }
        if let Some(epfd) = set.descriptor() {
            let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, entry.fd.load(Ordering::Relaxed), &mut event);
        }
    }
}
