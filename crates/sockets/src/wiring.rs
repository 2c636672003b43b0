//! Fills in, at start-up, what the rooms below let the rooms above them do.

use crate::process::user_change;
use crate::{descriptor, process};
use shunt_epoll as epoll;
use shunt_epoll::Set;
use shunt_handover::{convert_to_kernel, waiting};
use shunt_inbox::datagram;
use shunt_link::users;
use shunt_link::users::Users;
use shunt_rendezvous::accept::deferred;
use shunt_rendezvous::carriers::{self, Carriers};
use shunt_rendezvous::reconnect::{server, shared_server};
use shunt_stream::socket::Socket;
use shunt_stream::waiting::holding::{Ends, Lingerer};
use shunt_stream::waiting::{holding, watchers};
use shunt_sys::{calls, libc};
use shunt_table::global;
use shunt_table::table;
use shunt_table::table::Kind;
use shunt_table::upcalls::forks;
use shunt_table::upcalls::forks::Forks;
use shunt_table::upcalls::operations;
use shunt_table::upcalls::operations::Operations;

/// A table for each crate that asks one above.
struct Upcalls {
    operations: Operations,
    users: Users,
    ends: Ends,
    forks: Forks,
}

/// Asked in this order.
const CARRIERS: Carriers = &[&shunt_near::OTHER_NAMESPACES, &shunt_remote::OTHER_HOSTS];

/// The same where the option `inet` names ports: one room drives a process's queue.
const CARRIERS_WITH_PLAIN_PEERS: Carriers = &[&shunt_near::OTHER_NAMESPACES, &shunt_plain::PLAIN_PEERS];

const UPCALLS: Upcalls = Upcalls {
    operations: Operations {
        release: descriptor::release,
        to_kernel: convert_to_kernel::to_kernel,
        to_kernel_as,
        user_changed: user_change::changed,
    },
    users: Users { connections, deferred: deferred::channels_of, shut, offers_end },
    ends: Ends {
        socket: |socket, fd| shunt_rendezvous::close::end(socket, fd, false),
        set: |head| epoll::end(Set::of_head(head)),
        sleeps: |head, asleep| Set::of_head(head).sleeps(asleep),
    },
    forks: Forks {
        before: process::before_fork,
        parent: process::after_fork_parent,
        child: process::after_fork_child,
        failed: process::fork_failed,
        before_own: process::before_own_fork,
        parent_of_own: process::after_own_fork_parent,
        child_of_own: process::after_own_fork_child,
    },
};

/// The first step of the ladder: nothing of the program's is entered yet.
pub fn fill() {
    operations::fill(&UPCALLS.operations);
    users::fill(&UPCALLS.users);
    holding::fill(&UPCALLS.ends);
    forks::fill(&UPCALLS.forks);
    shunt_stream::beside::fill(&shunt_lifeline::BESIDE);
    watchers::fill(&epoll::SOCKETS);
    datagram::watchers::fill(&epoll::DATAGRAMS);
    carriers::fill(&CARRIERS);
}

/// When the options are known: those of the carriers that they ask for.
pub fn choose() {
    if !global::options().inet.is_empty() {
        carriers::fill(&CARRIERS_WITH_PLAIN_PEERS);
    }
}

fn to_kernel_as(fd: i32, user: u32) {
    let word = table::get(fd);
    if let (Kind::Listener, Some(listener)) = (word.kind(), word.object::<Socket>()) {
        waiting::leave_to_kernel(fd, listener, user);
    }
}

fn offers_end(index: usize) {
    server::forget(index);
    shared_server::forget(index);
}

fn connections(base: *mut u8) -> u64 {
    let streams = table::numbers().filter_map(|fd| {
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
    for fd in table::numbers() {
        if shunt_stream::socket::stream(fd).is_some_and(|socket| socket.link() == base) {
            let _ = calls::shutdown(fd, libc::SHUT_RDWR);
        }
    }
}
