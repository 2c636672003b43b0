//! The life of the process: start-up, fork, and moving private descriptors.
//!
//! ```text
//! ending       it ends by itself            confinement: it gives up files and descriptors
//! namespace    it goes into another network namespace                 apart: a thread or child has descriptors of its own
//! report       what tools see of it              user: it becomes another user      users: what its family knows of that
//! ```

pub mod apart;
pub mod confinement;
pub mod ending;
pub mod namespace;
pub mod report;
pub mod user;
pub mod users;

use crate::global::{self, SETUP};
use crate::handover::carried;
use crate::rendezvous::{diag, ports, route};
use crate::socket::flag;
use crate::table::{self, Kind, Lingerer};
use crate::{epoll, link};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use shunt_options::Options;
use shunt_sys::libc;
use shunt_sys::{calls, clock, dispatch, section, thread};

const MEMBARRIER_REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;

/// The start-up ladder, called once by the preload library's constructor. Until it is done, calls go to the kernel.
///
/// # Safety
/// No other thread exists; `single_threaded` is null or libc's `__libc_single_threaded`.
pub unsafe fn start(options: Options, single_threaded: *mut u8, inherited: Option<&[u8]>) {
    clock::start();
    shunt_sys::user::find_width();
    crate::process::ending::begin();
    // SAFETY: passed on.
    unsafe { global::set(options, single_threaded) };
    new_nonce();
    register_barriers();
    crate::process::user::start();
    if options.accelerate {
        report::start();
        crate::handover::receiver::start();
        users::start();
        if let Some(list) = inherited {
            crate::handover::inherit::take_up(list);
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
    crate::datagram::prepare_fork();
    let carrying = carried::before_fork();
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
    carried::keep_for_fork(carrying);
    crate::datagram::before_fork();
    epoll::before_fork();
    crate::rendezvous::spare::spoil_all();
    let mut listeners = false;
    for fd in table::programs() {
        let word = table::get(fd);
        let Some(socket) = word.socket() else { continue };
        match word.kind() {
            // Descriptors that share a socket count once.
            Kind::Stream if !socket.has(flag::COUNTED) => {
                socket.set(flag::COUNTED | flag::SHARED);
                socket.own().owners.fetch_add(1, Ordering::AcqRel);
                socket.own().join(thread::process());
            }
            Kind::Listener => {
                if socket.defers.load(Ordering::Relaxed) != 0 {
                    socket.only_forked.store(0, Ordering::Relaxed); // the child gets bells that its sets do not hear
                } else if !socket.has(flag::LISTENER_SHARED) {
                    socket.only_forked.store(1, Ordering::Relaxed);
                }
                socket.set(flag::LISTENER_SHARED);
                listeners = true;
            }
            Kind::Tcp => socket.set(flag::PLAIN),
            _ => {}
        }
    }
    if listeners {
        crate::rendezvous::parcel::before_sharing();
        crate::rendezvous::relatives::before_fork();
    }
    crate::waiting::signals::before_fork();
}

/// From now on calls on the process's streams take the locks in shared memory too. Without the set-up lock: a thread that
/// holds a stream's may wait for that one, to map a window.
fn share_streams() {
    for fd in table::programs() {
        if let Some(socket) = table::stream(fd) {
            socket.share();
        }
    }
}

fn any_unshared() -> bool {
    table::programs().any(|fd| table::stream(fd).is_some_and(|socket| !socket.has(flag::SHARED)))
}

fn uncount() {
    for fd in table::programs() {
        if let Some(socket) = table::get(fd).socket() {
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
    crate::waiting::signals::before_fork();
}

/// After it, in the parent, whether it failed or not.
pub fn after_own_fork_parent() {
    crate::waiting::signals::after_fork();
    SETUP.reset();
    section::leave();
}

/// After it, in the child: its table is empty.
pub fn after_own_fork_child() {
    // What tools see of the parent is still mapped here, and stays as it is.
    report::forked();
    for fd in 0..table::high_water() {
        table::take(fd);
    }
    after_fork_child();
}

/// After fork, in the parent. The next fork, of another thread, finds nothing that counts for this one.
pub fn after_fork_parent() {
    crate::waiting::signals::after_fork();
    uncount();
    crate::datagram::after_fork(false);
    crate::rendezvous::relatives::after_fork(Some(0));
    carried::after_fork();
    SETUP.reset();
    section::leave();
}

/// The fork failed: there is no second owner after all.
pub fn fork_failed() {
    for fd in table::programs() {
        let word = table::get(fd);
        if let (Kind::Stream, Some(socket)) = (word.kind(), word.socket()) {
            if socket.has(flag::COUNTED) {
                socket.clear(flag::COUNTED);
                socket.own().owners.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
    crate::datagram::after_fork(true);
    crate::rendezvous::relatives::after_fork(None);
    crate::waiting::signals::after_fork();
    carried::after_fork();
    SETUP.reset();
    section::leave();
}

/// As [`fork_failed`], when [`after_fork_parent`] has been called already.
pub fn fork_had_failed() {
    let Some(_setup) = SETUP.lock() else { return };
    for fd in table::programs() {
        if let Some(socket) = table::stream(fd).filter(|socket| socket.has(flag::SHARED) && !socket.has(flag::COUNTED)) {
            socket.set(flag::COUNTED);
            let owners = &socket.own().owners;
            let _ = owners.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count > 1).then(|| count - 1));
        }
    }
    uncount();
}

/// The numbers of this process's relatives mean others here: it was made in a PID namespace of its own.
static STRANGE: AtomicBool = AtomicBool::new(false);

/// Whether the numbers of this process's relatives say nothing here.
pub fn numbers_are_strange() -> bool {
    STRANGE.load(Ordering::Relaxed)
}

/// Whether process `pid`, an owner of one of our sockets, may live. In doubt it does.
pub fn may_live(pid: u32) -> bool {
    numbers_are_strange() || !shunt_sys::process::has_ended(pid)
}

/// After fork, in the child: one thread, its own identity, nothing lent by us.
pub fn after_fork_child() {
    SETUP.reset();
    crate::rendezvous::relatives::after_fork(Some(1));
    // Nobody waits for the children of a child.
    crate::private::close(AWAITED.swap(-1, Ordering::Relaxed));
    thread::forget_id();
    // Where a filter allows the program's own calls alone, this makes no other.
    let confined = crate::handover::untold::confined();
    if !confined {
        crate::process::ending::begin();
    }
    // A parent that cannot be named is in another namespace (pid_namespaces(7)).
    // SAFETY: a plain call.
    if !confined && unsafe { shunt_sys::syscall!(libc::SYS_getppid) } == 0 {
        STRANGE.store(true, Ordering::Relaxed);
    }
    crate::remote::forked(STRANGE.load(Ordering::Relaxed));
    for fd in table::programs() {
        if let Some(socket) = table::stream(fd) {
            socket.forget_holders();
            socket.own().join(thread::process());
        }
    }
    uncount();
    crate::process::apart::forked();
    crate::waiting::holding::forked();
    crate::rendezvous::claimed::forked();
    crate::waiting::nudge::forked();
    carried::forked();
    epoll::forked();
    if !confined {
        new_nonce();
        register_barriers();
    }
    link::forked();
    crate::handover::inherit::forked();
    crate::rendezvous::spare::forked();
    ports::forked();
    diag::forked();
    route::forked();
    crate::datagram::forked();
    report::forked();
    section::forked();
    // The kernel gives it to no child; a thread that was without has one that is without.
    if dispatch::armed() {
        dispatch::arm();
    }
    crate::waiting::signals::after_fork();
    section::leave();
}

/// In a child that is to become another program: the private end of a pipe at which its parent waits for that; -1: none.
pub static AWAITED: AtomicI32 = AtomicI32::new(-1);

/// A private descriptor got another number: whoever keeps it must know.
pub fn moved(from: i32, to: i32) {
    crate::waiting::holding::moved(from, to);
    crate::waiting::nudge::moved(from, to);
    for fd in 0..table::high_water() {
        let word = table::get(fd);
        // One without descriptors of the program's is kept by calls that wait for it.
        let lingering = match word.lingerer() {
            Some(Lingerer::Socket(socket)) => Some(socket),
            _ => None,
        };
        if let Some(socket) = word.socket().or(lingering) {
            renumber(&socket.private_fd, from, to);
            renumber(&socket.bells_fd, from, to);
            renumber(&socket.timer_fd, from, to);
            renumber(&socket.accepting_fd, from, to);
            socket.ear.moved(from, to);
        }
    }
    if let Some(_setup) = SETUP.lock() {
        link::moved(from, to);
        ports::moved(from, to);
        crate::rendezvous::held::moved(from, to);
        crate::rendezvous::offered::moved(from, to);
        crate::rendezvous::taking::moved(from, to);
        crate::rendezvous::deferred::moved(from, to);
        crate::rendezvous::spare::moved(from, to);
    }
    epoll::moved(from, to);
    crate::datagram::moved(from, to);
    diag::moved(from, to);
    route::moved(from, to);
    crate::remote::moved(from, to);
    report::moved(from, to);
    crate::rendezvous::reserve::moved(from, to);
    crate::rendezvous::claimed::moved(from, to);
    crate::rendezvous::relatives::moved(from, to);
    renumber(&AWAITED, from, to);
    // Who sleeps in poll does so by the old number, which is still ours at this moment.
    crate::waiting::nudge::all();
}

/// Replaces a kept descriptor's number.
pub(crate) fn renumber(slot: &AtomicI32, from: i32, to: i32) {
    let _ = slot.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
}

/// Whether this user namespace maps every user, so that uids from the kernel are unambiguous.
pub fn sees_all_users() -> bool {
    let Ok(fd) = calls::openat(libc::AT_FDCWD, c"/proc/self/uid_map".as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC, 0) else {
        return false;
    };
    let mut text = [0u8; 128];
    let got = calls::read(fd, text.as_mut_ptr().cast(), text.len()).unwrap_or(0);
    let _ = calls::close(fd);
    let mut words = text[..got].split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
    words.next() == Some(b"0") && words.next() == Some(b"0") && words.next() == Some(b"4294967295")
}
