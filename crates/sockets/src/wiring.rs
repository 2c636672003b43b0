//! Fills in, at start-up, what the rooms below let the rooms above them do.

use crate::descriptor;
use crate::epoll::{self, Set};
use crate::handover::{carried, waiting};
use crate::link::users::{self, Users};
use crate::operations::{self, Operations};
use crate::process::forks::{self, Forks};
use crate::process::{self, user_change};
use crate::rendezvous::{deferred, offered, other_hosts, taking};
use crate::socket::Socket;
use crate::table::{self, Kind};
use crate::waiting::holding::{self, Ends, Lingerer};
use crate::waiting::watchers;
use crate::{datagram, remote};
use shunt_sys::{calls, libc};

static OPERATIONS: Operations =
    Operations { release: descriptor::release, to_kernel: carried::to_kernel, to_kernel_as, user_changed: user_change::changed };

static USERS: Users = Users { connections, deferred: deferred::channels_of, shut, offers_end };

static ENDS: Ends = Ends {
    socket: |socket, fd| crate::rendezvous::close::end(socket, fd, false),
    set: |head| epoll::end(Set::of_head(head)),
    sleeps: |head, asleep| Set::of_head(head).sleeps(asleep),
};

static FORKS: Forks = Forks {
    before: process::before_fork,
    parent: process::after_fork_parent,
    child: process::after_fork_child,
    failed: process::fork_failed,
    before_own: process::before_own_fork,
    parent_of_own: process::after_own_fork_parent,
    child_of_own: process::after_own_fork_child,
};

/// The first step of the ladder: nothing of the program's is entered yet.
pub fn fill() {
    operations::fill(&OPERATIONS);
    users::fill(&USERS);
    holding::fill(&ENDS);
    forks::fill(&FORKS);
    watchers::fill(&epoll::SOCKETS);
    datagram::watchers::fill(&epoll::DATAGRAMS);
    other_hosts::fill(&remote::OTHER_HOSTS);
}

fn to_kernel_as(fd: i32, user: u32) {
    let word = table::get(fd);
    if let (Kind::Listener, Some(listener)) = (word.kind(), word.object::<Socket>()) {
        waiting::leave_to_kernel(fd, listener, user);
    }
}

fn offers_end(index: usize) {
    offered::forget(index);
    taking::forget(index);
}

fn connections(base: *mut u8) -> u64 {
    let streams = (0..table::high_water()).filter_map(|fd| {
        let word = table::get(fd);
        match (word.kind(), holding::lingerer(word)) {
            (Kind::Stream, _) => word.object::<Socket>(),
            // A call in another thread still waits for it.
            (_, Some(Lingerer::Socket(socket))) => Some(socket),
            _ => None,
        }
    });
    streams.filter(|socket| socket.link() == base).fold(0, |channels, socket| channels | 1 << socket.channel())
}

fn shut(base: *mut u8) {
    for fd in 0..table::high_water() {
        if crate::socket::stream(fd).is_some_and(|socket| socket.link() == base) {
            let _ = calls::shutdown(fd, libc::SHUT_RDWR);
        }
    }
}
