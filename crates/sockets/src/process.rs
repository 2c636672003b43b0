//! The life of the process: start-up, fork, and moving private descriptors.
//!
//! ```text
//! ending       it ends by itself            confinement: it gives up files and descriptors
//! namespace    it goes into another network namespace                 apart: a thread or child has descriptors of its own
//! report       what tools see of it              user: it becomes another user      users: what its family knows of that
//! ```

pub mod confinement;
pub mod ending;
pub mod namespace;
pub mod user_change;

use core::sync::atomic::{AtomicI32, Ordering};
use shunt_link as link;
use shunt_link::ports;
use shunt_options::Options;
use shunt_poll::epoll;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::holding;
use shunt_stream::waiting::holding::Lingerer;
use shunt_sys::{calls, clock, dispatch, libc, section, thread};
use shunt_table::global::SETUP;
use shunt_table::private::renumber;
use shunt_table::table::Kind;
use shunt_table::{diag, global, route, table};

const MEMBARRIER_REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;

/// The start-up ladder, called once by the preload library's constructor. Until it is done, calls go to the kernel.
///
/// # Safety
/// No other thread exists; `single_threaded` is null or libc's `__libc_single_threaded`.
pub unsafe fn start(options: Options, single_threaded: *mut u8, inherited: Option<&[u8]>) {
    crate::wiring::fill();
    clock::start();
    shunt_sys::user::find_width();
    crate::process::ending::begin();
    // SAFETY: passed on.
    unsafe { global::set(options, single_threaded) };
    new_nonce();
    register_barriers();
    shunt_table::process::user::start();
    if options.accelerate {
        shunt_table::process::report::start();
        shunt_table::receiver::start();
        shunt_table::process::users::start();
        if let Some(list) = inherited {
            shunt_handover::inherit::take_up(list);
        }
    }
    global::set_ready();
}

fn new_nonce() {
    let mut nonce = 0u64;
    let got = calls::getrandom((&mut nonce as *mut u64).cast(), 8, libc::GRND_NONBLOCK);
    if got != Ok(8) {
        nonce = clock::ticks() ^ (calls::getpid() as u64) << 32;
    }
    global::NONCE.store(nonce, Ordering::Relaxed);
}

fn register_barriers() {
    let ok = calls::membarrier(MEMBARRIER_REGISTER_GLOBAL_EXPEDITED, 0, 0).is_ok();
    global::BARRIERS.store(ok as u32, Ordering::Relaxed);
}

/// Before fork, in the parent: everything that the child inherits is about to have two owners.
pub fn before_fork() {
    shunt_inbox::datagram::prepare_fork();
    let carrying = shunt_rendezvous::exchange::before_fork();
    // Held across the fork so that the child sees links, ports and slabs whole; handlers wait as long.
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
    shunt_inbox::datagram::before_fork();
    epoll::before_fork();
    shunt_rendezvous::spare::spoil_all();
    let mut listeners = false;
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
            Kind::Listener => {
                if socket.listening.defers.load(Ordering::Relaxed) != 0 {
                    socket.listening.only_forked.store(0, Ordering::Relaxed); // the child gets bells that its sets do not hear
                } else if !socket.has(flag::LISTENER_SHARED) {
                    socket.listening.only_forked.store(1, Ordering::Relaxed);
                }
                socket.set(flag::LISTENER_SHARED);
                listeners = true;
            }
            Kind::Tcp => socket.set(flag::PLAIN),
            _ => {}
        }
    }
    if listeners {
        shunt_rendezvous::parcel::before_sharing();
        shunt_rendezvous::relatives::before_fork();
    }
    shunt_stream::waiting::signals::before_fork();
}

/// From now on calls on the process's streams take the locks in shared memory too. Without the set-up lock: a thread that
/// holds a stream's may wait for that one, to map a window.
fn share_streams() {
    for fd in table::programs() {
        if let Some(socket) = shunt_stream::socket::stream(fd) {
            socket.share();
        }
    }
}

fn any_unshared() -> bool {
    table::programs().any(|fd| shunt_stream::socket::stream(fd).is_some_and(|socket| !socket.has(flag::SHARED)))
}

fn uncount() {
    for fd in table::programs() {
        if let Some(socket) = table::get(fd).object::<Socket>() {
            socket.clear(flag::COUNTED);
        }
    }
}

/// Before a fork of ours whose child takes nothing of the program's ([`after_own_fork_child`]): nothing gets a second owner.
/// The caller waits until the child has closed what it inherited.
pub fn before_own_fork() {
    match SETUP.lock() {
        Some(held) => core::mem::forget(held),
        None => section::enter(),
    }
    shunt_stream::waiting::signals::before_fork();
}

/// After it, in the parent, whether it failed or not.
pub fn after_own_fork_parent() {
    shunt_stream::waiting::signals::after_fork();
    SETUP.reset();
    section::leave();
}

/// After it, in the child: its table is empty.
pub fn after_own_fork_child() {
    // What tools see of the parent is still mapped here, and stays as it is.
    shunt_table::process::report::forked();
    for fd in 0..table::high_water() {
        table::take(fd);
    }
    after_fork_child();
}

/// After fork, in the parent. The next fork, of another thread, finds nothing that counts for this one.
pub fn after_fork_parent() {
    shunt_stream::waiting::signals::after_fork();
    uncount();
    shunt_inbox::datagram::after_fork(false);
    shunt_rendezvous::relatives::after_fork(Some(0));
    shunt_rendezvous::exchange::after_fork();
    SETUP.reset();
    section::leave();
}

/// The fork failed: there is no second owner after all.
pub fn fork_failed() {
    for fd in table::programs() {
        let word = table::get(fd);
        if let (Kind::Stream, Some(socket)) = (word.kind(), word.object::<Socket>()) {
            if socket.has(flag::COUNTED) {
                socket.clear(flag::COUNTED);
                socket.own().owners.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
    shunt_inbox::datagram::after_fork(true);
    shunt_rendezvous::relatives::after_fork(None);
    shunt_stream::waiting::signals::after_fork();
    shunt_rendezvous::exchange::after_fork();
    SETUP.reset();
    section::leave();
}

/// As [`fork_failed`], when [`after_fork_parent`] has been called already.
pub fn fork_had_failed() {
    let Some(_setup) = SETUP.lock() else { return };
    for fd in table::programs() {
        if let Some(socket) =
            shunt_stream::socket::stream(fd).filter(|socket| socket.has(flag::SHARED) && !socket.has(flag::COUNTED))
        {
            socket.set(flag::COUNTED);
            let owners = &socket.own().owners;
            let _ = owners.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count > 1).then(|| count - 1));
        }
    }
    uncount();
}

/// After fork, in the child: one thread, its own identity, nothing lent by us.
pub fn after_fork_child() {
    SETUP.reset();
    shunt_rendezvous::relatives::after_fork(Some(1));
    // Nobody waits for the children of a child.
    shunt_table::private::close(AWAITED.swap(-1, Ordering::Relaxed));
    thread::forget_id();
    // Where a filter allows the program's own calls alone, this makes no other.
    let confined = shunt_table::process::kernel_only::confined();
    if !confined {
        crate::process::ending::begin();
    }
    // A parent that cannot be named is in another namespace (pid_namespaces(7)).
    // SAFETY: a plain call.
    if !confined && unsafe { shunt_sys::syscall!(libc::SYS_getppid) } == 0 {
        shunt_table::process::identity::note_strange();
    }
    shunt_remote::forked(shunt_table::process::identity::numbers_are_strange());
    for fd in table::programs() {
        if let Some(socket) = shunt_stream::socket::stream(fd) {
            socket.forget_holders();
            socket.own().join(thread::process());
        }
    }
    uncount();
    shunt_table::process::apart::forked();
    shunt_stream::waiting::holding::forked();
    shunt_rendezvous::claimed::forked();
    shunt_stream::waiting::nudge::forked();
    shunt_rendezvous::exchange::forked();
    epoll::forked();
    if !confined {
        new_nonce();
        register_barriers();
    }
    link::forked();
    shunt_rendezvous::offered::forked();
    shunt_rendezvous::taking::forked();
    shunt_rendezvous::deferred::forked();
    shunt_rendezvous::accept::forked();
    shunt_handover::inherit::forked();
    shunt_rendezvous::spare::forked();
    ports::forked();
    diag::forked();
    route::forked();
    shunt_inbox::datagram::forked();
    shunt_table::process::report::forked();
    section::forked();
    // The kernel gives it to no child; a thread that was without has one that is without.
    if dispatch::armed() {
        dispatch::arm();
    }
    shunt_stream::waiting::signals::after_fork();
    section::leave();
}

/// In a child that is to become another program: the private end of a pipe at which its parent waits for that; -1: none.
pub static AWAITED: AtomicI32 = AtomicI32::new(-1);

/// A private descriptor got another number: whoever keeps it must know.
pub fn moved(from: i32, to: i32) {
    shunt_stream::waiting::holding::moved(from, to);
    shunt_stream::waiting::nudge::moved(from, to);
    for fd in 0..table::high_water() {
        let word = table::get(fd);
        // One without descriptors of the program's is kept by calls that wait for it.
        let lingering = match holding::lingerer(word) {
            Some(Lingerer::Socket(socket)) => Some(socket),
            _ => None,
        };
        if let Some(socket) = word.object::<Socket>().or(lingering) {
            renumber(&socket.private_fd, from, to);
            renumber(&socket.listening.bells_fd, from, to);
            renumber(&socket.listening.timer_fd, from, to);
            renumber(&socket.listening.accepting_fd, from, to);
            socket.ear.moved(from, to);
        }
    }
    if let Some(_setup) = SETUP.lock() {
        link::moved(from, to);
        ports::moved(from, to);
        shunt_rendezvous::offered::moved(from, to);
        shunt_rendezvous::taking::moved(from, to);
        shunt_rendezvous::deferred::moved(from, to);
        shunt_rendezvous::spare::moved(from, to);
    }
    epoll::moved(from, to);
    shunt_inbox::datagram::moved(from, to);
    diag::moved(from, to);
    route::moved(from, to);
    shunt_remote::moved(from, to);
    shunt_table::process::report::moved(from, to);
    shunt_link::reserve::moved(from, to);
    shunt_rendezvous::claimed::moved(from, to);
    shunt_rendezvous::relatives::moved(from, to);
    renumber(&AWAITED, from, to);
    // Who sleeps in poll does so by the old number, which is still ours at this moment.
    shunt_stream::waiting::nudge::all();
}
