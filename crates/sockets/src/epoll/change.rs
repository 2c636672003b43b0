//! What happens to entries when the socket they watch becomes something else, or goes.

use super::control::{kernel_event, kick};
use super::entry::Entry;
use super::set::{activate, detach, ours, unwatch, Set, WATCHERS};
use crate::socket::Socket;
use crate::table::Kind;
use core::sync::atomic::Ordering;
use shunt_sys::{calls, libc};

/// The last descriptor of this process for `socket` closes: it leaves all sets.
pub fn forget_socket(socket: &'static Socket, fd: i32) {
    if socket.watchers.load(Ordering::Relaxed).is_null() {
        return;
    }
    let Some(_watchers) = WATCHERS.lock() else { return };
    while let Some(entry) = ours(&socket.watchers) {
        // SAFETY: null or a slab object.
        let Some(set) = (unsafe { entry.set.load(Ordering::Acquire).as_ref() }) else {
            unwatch(entry);
            continue;
        };
        let Some(_held) = set.lock.lock() else { return };
        // Other processes may keep the companion open: then the kernel would not forget it by itself. In a child of fork
        // the set is the parent's too, whose sockets stay watched when the child closes its copies (epoll(7), Q6).
        let epfd = set.fd.load(Ordering::Relaxed);
        let ours_alone = !set.inherited.load(Ordering::Relaxed);
        if ours_alone && entry.fd.load(Ordering::Relaxed) == fd {
            let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
        }
        let rendezvous = socket.private_fd.load(Ordering::Relaxed);
        if ours_alone && rendezvous >= 0 {
            let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, rendezvous, core::ptr::null_mut());
        }
        if entry.dormant.load(Ordering::Relaxed) {
            set.dormant.fetch_sub(1, Ordering::Relaxed);
        }
        detach(set, entry);
    }
}

fn each_watcher(socket: &Socket, mut act: impl FnMut(&'static Set, &'static Entry)) {
    if socket.watchers.load(Ordering::Relaxed).is_null() {
        return;
    }
    let Some(_watchers) = WATCHERS.lock() else { return };
    let mut at = ours(&socket.watchers);
    while let Some(entry) = at {
        at = ours(&entry.next_watcher);
        // SAFETY: null or a slab object.
        if let Some(set) = unsafe { entry.set.load(Ordering::Acquire).as_ref() } {
            act(set, entry);
        }
    }
}

/// A watched TCP socket began to listen: its rendezvous joins the sets.
pub fn became_listener(socket: &Socket) {
    each_watcher(socket, |set, entry| {
        let mut event = kernel_event(entry, Kind::Listener);
        let rendezvous = socket.private_fd.load(Ordering::Relaxed);
        let _ = calls::epoll_ctl(set.fd.load(Ordering::Relaxed), libc::EPOLL_CTL_ADD, rendezvous, &mut event);
    });
}

/// A watched TCP socket is about to be replaced by a companion: it leaves the kernel's sets.
pub fn before_replace(socket: &Socket) {
    each_watcher(socket, |set, entry| {
        let (epfd, fd) = (set.fd.load(Ordering::Relaxed), entry.fd.load(Ordering::Relaxed));
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
    });
}

/// The companion is in place: it joins them.
pub fn after_replace(socket: &Socket) {
    each_watcher(socket, |set, entry| {
        let mut event = kernel_event(entry, Kind::Stream);
        let (epfd, fd) = (set.fd.load(Ordering::Relaxed), entry.fd.load(Ordering::Relaxed));
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, fd, &mut event);
        if let Some(_held) = set.lock.lock() {
            entry.fresh.store(true, Ordering::Relaxed);
            activate(set, entry);
            kick(set, epfd, entry);
        }
    });
}
