//! Steps of a fork that concern streams, listeners and this crate's own state; the order of all steps is in [`super::life`].

use super::PROCESS;
use core::sync::atomic::{AtomicI32, Ordering};
use shunt_epoll as epoll;
use shunt_rendezvous::listen::promise;
use shunt_stream::socket::{flag, stream, Socket};
use shunt_sys::{calls, dispatch, libc, section, thread};
use shunt_table::global::SETUP;
use shunt_table::process::{identity, kernel_only};
use shunt_table::table::{self, Kind};
use shunt_table::{global, private};

const MEMBARRIER_REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;

/// The kernel registers no child for its parent's barriers.
pub(crate) fn register_barriers() {
    if kernel_only::confined() {
        return;
    }
    let ok = calls::membarrier(MEMBARRIER_REGISTER_GLOBAL_EXPEDITED, 0, 0).is_ok();
    global::set_barriers(ok);
}

/// Streams and sets are shared, no stream is half given away, and the set-up lock is held across the fork, so that the child sees links, ports
/// and slabs whole; handlers wait as long.
pub(super) fn take_locks() {
    let carrying = shunt_lifeline::to_share().or_else(shunt_rendezvous::exchange::before_fork);
    loop {
        share_streams();
        epoll::share();
        match SETUP.lock() {
            Some(_) if any_unshared() || epoll::any_unshared() => {} // one that came in between
            Some(held) => {
                core::mem::forget(held);
                break;
            }
            None => {
                section::enter();
                break;
            }
        }
    }
    shunt_rendezvous::exchange::keep_for_fork(carrying);
}

/// From now on calls on the process's streams take the locks in shared memory too. Without the set-up lock: a thread that
/// holds a stream's may wait for that one, to map a window.
fn share_streams() {
    for fd in table::programs() {
        if let Some(socket) = shunt_stream::socket::stream(fd) {
            socket.share();
            shunt_stream::references::keep::on_sharing(socket);
        }
    }
}

fn any_unshared() -> bool {
    table::programs().any(|fd| stream(fd).is_some_and(|socket| !socket.has(flag::SHARED)))
}

/// The set-up lock alone: a fork of ours gives nothing a second owner.
pub(super) fn take_setup() {
    match SETUP.lock() {
        Some(held) => core::mem::forget(held),
        None => section::enter(),
    }
}

/// The parent's set-up lock is free again.
pub(super) fn give_setup() {
    SETUP.reset();
    section::leave();
}

/// The child's set-up lock is free: its parent's thread held it for this.
pub(super) fn free_setup() {
    SETUP.reset();
}

/// Each stream has one owner more, and no TCP socket is this process's alone.
pub(super) fn count_owners() {
    for fd in table::programs() {
        let word = table::get(fd);
        let Some(socket) = word.object::<Socket>() else { continue };
        match word.kind() {
            // Descriptors that share a socket count once.
            Kind::Stream if !socket.has(flag::COUNTED) => {
                socket.set(flag::COUNTED);
                socket.set(flag::SHARED);
                socket.own().owners.fetch_add(1, Ordering::AcqRel);
                socket.own().join(thread::process());
            }
            Kind::Tcp => socket.set(flag::PLAIN),
            _ => {}
        }
    }
}

/// Listeners of this process are others' as well from now on.
pub(super) fn share_listeners() {
    let mut listeners = false;
    for fd in table::programs() {
        let word = table::get(fd);
        let socket = match (word.kind(), word.object::<Socket>()) {
            (Kind::Listener, Some(socket)) => socket,
            (Kind::Tcp, Some(socket)) => {
                promise::make(fd, socket);
                continue;
            }
            _ => continue,
        };
        if socket.listening.defers.load(Ordering::Relaxed) != 0 {
            socket.listening.only_forked.store(0, Ordering::Relaxed); // the child gets bells that its sets do not hear
        } else if !socket.has(flag::LISTENER_SHARED) {
            socket.listening.only_forked.store(1, Ordering::Relaxed);
        }
        socket.set(flag::LISTENER_SHARED);
        listeners = true;
    }
    if listeners {
        shunt_rendezvous::listen::forward::before_sharing();
        shunt_rendezvous::listen::sharing::before_fork();
    }
}

/// What [`count_owners`] noted is not for the next fork.
pub(super) fn uncount() {
    for fd in table::programs() {
        if let Some(socket) = table::get(fd).object::<Socket>() {
            socket.clear(flag::COUNTED);
        }
    }
}

/// There is no second owner after all.
pub(super) fn take_owners_back() {
    for fd in table::programs() {
        if let Some(socket) = stream(fd).filter(|socket| socket.has(flag::COUNTED)) {
            socket.clear(flag::COUNTED);
            socket.own().owners.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// As [`super::fork_failed`], when [`super::after_fork_parent`] has been called already.
pub fn fork_had_failed() {
    let Some(_setup) = SETUP.lock() else { return };
    for fd in table::programs() {
        if let Some(socket) = stream(fd).filter(|socket| socket.has(flag::SHARED) && !socket.has(flag::COUNTED)) {
            socket.set(flag::COUNTED);
            let owners = &socket.own().owners;
            let _ = owners.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count > 1).then(|| count - 1));
        }
    }
    uncount();
}

/// What carriers have for the parent is the parent's.
pub(super) fn carriers() {
    let strange = identity::numbers_are_strange();
    shunt_rendezvous::carriers::all().for_each(|carrier| (carrier.forked)(strange));
}

/// A parent that cannot be named is in another namespace (pid_namespaces(7)).
pub(super) fn look_for_parent() {
    // SAFETY: a plain call.
    if !kernel_only::confined() && unsafe { shunt_sys::syscall!(libc::SYS_getppid) } == 0 {
        identity::note_strange();
    }
}

/// Where a filter allows the program's own calls alone, this makes no other.
pub(super) fn begin_ending() {
    if !kernel_only::confined() {
        super::ending::begin();
    }
}

/// The child is an owner of its streams; locks among threads are free.
pub(super) fn join_streams() {
    for fd in table::programs() {
        if let Some(socket) = stream(fd) {
            socket.forget_holders();
            socket.own().join(thread::process());
        }
    }
}

/// The child of a fork of ours has nothing of the program's.
pub(super) fn empty_table() {
    for fd in table::numbers() {
        table::take(fd);
    }
}

/// The kernel gives it to no child; a thread that was without has one that is without.
pub(super) fn arm_dispatch() {
    if dispatch::armed() {
        dispatch::arm();
    }
}

/// In a child that is to become another program: the private end of a pipe at which its parent waits for that; -1: none.
pub fn awaited() -> &'static AtomicI32 {
    &PROCESS.awaited
}

/// The children of a child are not waited for.
pub(super) fn forget_awaited() {
    private::close(PROCESS.awaited.swap(-1, Ordering::Relaxed));
}
