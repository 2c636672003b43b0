//! The life of the process, as lists: what is done at each of its moments, one line and one reason a step. A step may rely on those above it.

use super::fork;
use shunt_epoll as epoll;
use shunt_inbox::datagram;
use shunt_link::{self as link, ports};
use shunt_pipes::kept_pipes;
use shunt_rendezvous::accept::deferred;
use shunt_rendezvous::listen::sharing;
use shunt_rendezvous::reconnect::{server, shared_server};
use shunt_rendezvous::{accept, accept_fd, carriers, exchange, socket_cache};
use shunt_stream::waiting::{holding, signals, wake_pollers};
use shunt_stream::{pools, views};
use shunt_sys::{section, thread};
use shunt_table::process::{split_fd_tables, status_page};
use shunt_table::{diag, route};

/// What is done.
pub(crate) type Step = fn();

/// Does all of a moment.
pub(crate) fn run(steps: &[Step]) {
    for step in steps {
        step();
    }
}

/// Before fork, in the parent: everything that the child inherits is about to have two owners.
pub(super) const BEFORE_FORK: [Step; 10] = [
    carriers::sharing::<true>, // what only this process can drive is the kernel's: it takes locks of its own, so first
    kept_pipes::settle_all,    // the child has the kernel's pipes
    datagram::prepare_fork,    // makes inboxes, for which it takes locks that come before the set-up lock
    fork::take_locks,          // from here on the thread is alone with links, ports, slabs and the table
    datagram::before_fork,     // counts owners of inboxes
    epoll::before_fork,        // a set that both have needs an entry of its own for each
    socket_cache::spoil_all,   // the child would have the same open file as an idle spare
    fork::count_owners,        // of streams: before listeners, whose clients may be streams of this process
    fork::share_listeners,     // clients are told to use the rendezvous, where both can accept
    signals::before_fork,      // last, as its lock is that of the program's own calls
];

/// After it, in the parent. The next fork, of another thread, finds nothing that counts for this one.
pub(super) const PARENT: [Step; 7] = [
    kept_pipes::settle_all,          // those of other threads that came in between are the child's as well
    signals::after_fork,             // taken last
    fork::uncount,                   // under the set-up lock still
    || datagram::after_fork(false),  // its witness is the child's now
    || sharing::after_fork(Some(0)), // this end of the new pair is the parent's
    exchange::after_fork,            // streams may be given away again
    fork::give_setup,                // and connections made
];

/// After it, in the parent, where there is no child: there is no second owner after all.
pub(super) const FAILED: [Step; 6] = [
    fork::take_owners_back,        // before the lock is free, as another fork counts anew
    || datagram::after_fork(true), // the witness has no child that could hang up
    || sharing::after_fork(None),  // nor has the pair
    signals::after_fork,           // as behind a fork that was made
    exchange::after_fork,          // as there
    fork::give_setup,              // as there
];

/// After fork, in the child: one thread, its own identity, nothing lent by it.
pub(super) const CHILD: [Step; 35] = [
    fork::free_setup,                // all that follow may take it
    kept_pipes::forked,              // before any step looks at the table: what lies in memory is the parent's to give
    || sharing::after_fork(Some(1)), // the child's end, before anything else could close it
    fork::forget_awaited,            // a private number that is free for what follows
    thread::forget_id,               // locks are taken by thread numbers from here on
    fork::begin_ending,              // and the process ends by its own
    fork::look_for_parent,           // before any room compares numbers of processes
    fork::carriers,                  // which a station's lock does
    fork::join_streams,              // the child is an owner before it could close any
    fork::uncount,                   // its own forks count anew
    split_fd_tables::forked,         // no thread with other descriptors exists here
    holding::forked,                 // no thread waits here, so what lingers ends
    accept_fd::forked,               // nor sleeps in accept
    wake_pollers::forked,            // nor in poll
    pools::forked,                   // nor looks for pools of peers'
    views::forked,                   // nor gives bytes of them back
    exchange::forked,                // nor gives a stream away
    epoll::forked,                   // sets are the parent's as well: behind what lingers in them
    fork::register_barriers,         // before a peer could rely on them
    link::forked,                    // inherited links lend no channel: before any thread connects
    server::forked,                  // offers in them are the parent's to accept
    shared_server::forked,           // and so are pairs
    deferred::forked,                // and clients that wait for their first bytes
    accept::forked,                  // sets for sleeping in accept are the parent's
    shunt_handover::inherit::forked, // the thread whose turn it was is the parent's
    socket_cache::forked,            // idle spares are the parent's
    ports::forked,                   // so are reserved ports
    diag::forked,                    // and what the kernel was asked on shared sockets
    route::forked,                   // of addresses as well
    datagram::forked,                // inboxes of others are looked for anew
    status_page::forked,             // the first note makes a page of the child's own
    section::forked,                 // signals that waited are the parent's
    fork::arm_dispatch,              // calls past the library are seen again
    signals::after_fork,             // the table of handlers is whole
    section::leave,                  // last: handlers run from here on
];

/// Before a fork of ours, whose child takes nothing of the program's: nothing gets a second owner.
pub(super) const BEFORE_OWN_FORK: [Step; 3] = [
    kept_pipes::settle_all, // the child closes the kernel's
    fork::take_setup,       // the child sees links and slabs whole
    signals::before_fork,   // and the table of handlers
];

/// After it, in the parent, whether it failed or not.
pub(super) const PARENT_OF_OWN: [Step; 2] = [
    signals::after_fork, // taken last
    fork::give_setup,    // taken first
];

/// After it, in the child, before what each child does ([`CHILD`]).
pub(super) const CHILD_OF_OWN: [Step; 3] = [
    kept_pipes::forked,  // as in [`CHILD`]
    status_page::forked, // what tools see of the parent is mapped here still, and stays as it is
    fork::empty_table,   // so that no step of `CHILD` finds anything of the program's
];
