//! The relay: a process that stands between a side of a connection and a program without shunt.
//!
//! ```text
//!   peer ══ rings ══ relay ── loopback TCP ── program (the same descriptor number)
//! ```
//!
//! A process that hands a stream to such a program forks a relay first. It owns the ring side in the giver's place, holds one
//! end of a loopback connection whose other end the program gets, and moves bytes, ends, resets and urgent bytes between
//! the two. The peer need not do anything, nor know. The relay is no child of the giver (it is forked twice, in a session of its
//! own), blocks all signals, holds no descriptor but these, and ends with the last of its connections.
//!
//! While other processes own the side as well, it keeps a second descriptor of the program's end. Then it *lends* what it
//! gives to the program: the bytes stay in the ring until the program has read them, and can be taken back; see
//! [`shunt_stream::flush_relays`].

mod connection;
mod deferred_close;
pub mod drop_inherited;

use connection::RelayedConnection;
use core::sync::atomic::Ordering;
use shunt_poll::poll::Query;
use shunt_segment::name;
use shunt_sys::libc::{self, pollfd, AF_UNIX, MSG_DONTWAIT, POLLIN, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_STREAM};
use shunt_sys::{calls, clock, mapping, thread, Errno, Result};
use shunt_table::private::Pending;
use shunt_table::process::helper::{copy, exit, waited, ALL_SIGNALS};
use shunt_table::process::status_page;
use shunt_table::upcalls::forks;
use shunt_table::{private, sockaddr};

pub use connection::RelayTask;

/// Connections that one relay takes at most.
pub const MOST: usize = 1024;

/// A relay that waits for the word to begin.
pub struct Relay {
    /// Closed: it begins. A byte: it goes away and nothing has happened.
    gate: i32,
}

/// Forks a relay for `tasks`. It waits until [`Relay::begin`], or until this process is another program or gone.
///
/// Other owners must find it from now on, so it is entered among the relays, and can be knocked at, before it runs.
///
/// Errors: EAGAIN (RLIMIT_NPROC), ENOMEM, EMFILE.
pub fn fork(tasks: &[RelayTask]) -> Result<Relay> {
    let mut id = 0u64;
    let _ = calls::getrandom((&mut id as *mut u64).cast(), 8, libc::GRND_NONBLOCK);
    let id = id | 1;
    let mut gate = [-1; 2];
    calls::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate.as_mut_ptr())?;
    let theirs = Pending(gate[1]);
    let ours = private::keep(gate[0])?;
    let knocks = match listen_for_knocks(id) {
        Ok(fd) => fd,
        Err(error) => {
            private::close(ours);
            return Err(error);
        }
    };
    let streams = || tasks.iter().filter_map(|item| shunt_stream::socket::stream(item.stream));
    let entered = streams().all(|socket| connection::enter(socket, id));
    // A handler in the copy would be the program's code.
    let mut mask = 0u64;
    let _ = calls::sigprocmask(libc::SIG_SETMASK, &ALL_SIGNALS, &mut mask, 8);
    let giver = calls::getpid();
    let mut born = false;
    if entered {
        forks::before();
        let child = copy();
        if child == 0 {
            let grandchild = copy();
            if grandchild == 0 {
                let _ = calls::close(ours);
                work(tasks, Post { gate: theirs.0, knocks: knocks.0, id, giver });
            }
            exit(i32::from(grandchild < 0));
        }
        born = child > 0 && waited(child as i32);
        if born {
            forks::parent();
        } else {
            forks::failed();
        }
    }
    let _ = calls::sigprocmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut(), 8);
    if !born {
        streams().for_each(|socket| connection::take_out(socket, id));
        // One that was born all the same, by a child that was killed, must not take the closed gate for the word to begin.
        Relay { gate: ours }.give_up();
        return Err(Errno(libc::EAGAIN));
    }
    Ok(Relay { gate: ours })
}

impl Post {
    /// Takes knocks, and looks at the gate; false: nothing was handed over.
    fn look(&mut self, connections: &[RelayedConnection], left: &drop_inherited::Left) -> bool {
        while byte_from(self.knocks).is_ok() {}
        if self.gate < 0 {
            return true;
        }
        match byte_from(self.gate) {
            Ok(GIVE_UP) => return false,
            Ok(BEGIN_BESIDE) => {}
            Err(Errno(libc::EAGAIN | libc::EINTR)) => return true,
            _ => stand_for(self.giver, connections, left),
        }
        drop_inherited::links(connections);
        let _ = calls::close(core::mem::replace(&mut self.gate, -1));
        true
    }
}

/// The next byte that waits, 0 at the end.
fn byte_from(fd: i32) -> Result<u8> {
    let mut byte = 0u8;
    let place = (&raw mut byte).cast();
    let got = calls::recvfrom(fd, place, 1, MSG_DONTWAIT, core::ptr::null_mut(), core::ptr::null_mut())?;
    Ok(if got == 0 { 0 } else { byte })
}

impl Relay {
    /// The descriptors have been handed over by other means than exec: begins, with this process as one owner among others.
    pub fn begin(self) {
        let byte = BEGIN_BESIDE;
        let _ = calls::sendto(self.gate, (&byte as *const u8).cast(), 1, libc::MSG_NOSIGNAL, core::ptr::null(), 0);
        private::close(self.gate);
    }

    /// Nothing was handed over.
    pub fn give_up(self) {
        let byte = GIVE_UP;
        let _ = calls::sendto(self.gate, (&byte as *const u8).cast(), 1, libc::MSG_NOSIGNAL, core::ptr::null(), 0);
        private::close(self.gate);
    }
}

/// Rounds that were over within so many ns, and how many of them in a row may be progress.
const QUICK: u64 = 20_000;
const MANY: u32 = 1000;

const BEGIN_BESIDE: u8 = 1;
const GIVE_UP: u8 = 2;

/// What the relay waits on besides its connections.
struct Post {
    gate: i32,
    knocks: i32,
    id: u64,
    giver: u32,
}

fn work(tasks: &[RelayTask], mut post: Post) -> ! {
    // SAFETY: a plain call.
    unsafe { shunt_sys::syscall!(libc::SYS_setsid) };
    shunt_stream::flush_relays::OWN.store(post.id, Ordering::Relaxed);
    shunt_rendezvous::carriers::all().for_each(|carrier| (carrier.forget)());
    forks::child();
    shunt_table::process::helper::name(c"shunt-relay");
    let mut room = [0; 512];
    let private = drop_inherited::private(&mut room);
    let Ok(connections) = connection::all(tasks, post.id) else { exit(1) };
    let Ok(left) = drop_inherited::table(connections) else { exit(1) };
    status_page::begin_anew();
    drop_inherited::descriptors(connections, [post.gate, post.knocks, status_page::descriptor()], private);
    drop_inherited::memory(connections, &left);
    connections.iter_mut().for_each(RelayedConnection::watch);
    run(&mut post, connections, &left);
    for connection in connections.iter_mut() {
        connection.leave(post.id);
    }
    exit(0)
}

fn listen_for_knocks(id: u64) -> Result<Pending> {
    let fd = Pending(calls::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)?);
    let (address, length) = sockaddr::abstract_name(name::relay(id).as_slice());
    calls::bind(fd.0, (&address as *const libc::sockaddr_un).cast(), length)?;
    Ok(fd)
}

fn run(post: &mut Post, connections: &mut [RelayedConnection], left: &drop_inherited::Left) {
    let room = connections.len() * 3 + 2;
    let Ok(memory) = mapping::reserve(room * core::mem::size_of::<pollfd>()) else { return };
    // SAFETY: `room` zeroed entries.
    let entries = unsafe { core::slice::from_raw_parts_mut(memory.cast::<pollfd>(), room) };
    let mut quick = 0u32;
    let mut pause = 0;
    loop {
        // In this order: a request that came before the gate was found closed came before the program could write.
        connections.iter_mut().for_each(RelayedConnection::note_requests);
        if !post.look(connections, left) {
            return;
        }
        let mut next = u64::MAX;
        let mut open = post.gate >= 0;
        let now = clock::monotonic_ns();
        for (connection, place) in connections.iter_mut().zip(entries.chunks_exact_mut(3)) {
            let wishes = if connection.is_over() { connection::NOTHING } else { connection.work(post.gate < 0, post.id, now) };
            open |= !connection.is_over();
            next = next.min(wishes.look_again);
            place[0] = pollfd { fd: if wishes.stream == 0 { -1 } else { connection.stream }, events: wishes.stream, revents: 0 };
            place[1] =
                pollfd { fd: if wishes.program == 0 { -1 } else { connection.program }, events: wishes.program, revents: 0 };
            place[2] = pollfd { fd: connection.life, events: POLLIN, revents: 0 };
        }
        if !open {
            return;
        }
        next = next.min(deferred_close::part(connections, now, &mut pause));
        entries[room - 2] = pollfd { fd: post.knocks, events: POLLIN, revents: 0 };
        entries[room - 1] = pollfd { fd: post.gate, events: POLLIN, revents: 0 };
        let deadline = if next == u64::MAX { u64::MAX } else { next.max(1) };
        let _ = Query::new(&mut *entries, deadline, core::ptr::null(), usize::MAX).poll();
        // A relay has no program to stop it: whatever is ready again and again without getting on costs a processor little.
        quick = if clock::monotonic_ns().saturating_sub(now) < QUICK { quick + 1 } else { 0 };
        if quick > MANY {
            let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let _ = calls::nanosleep(&pause, core::ptr::null_mut());
        }
    }
}

/// The giver is another program now, or gone: it owns none of its streams any more, those that it did not hand over
/// included.
fn stand_for(giver: u32, connections: &[RelayedConnection], left: &drop_inherited::Left) {
    let handed = connections.iter().filter(|connection| !connection.is_over()).map(|connection| connection.socket);
    for socket in handed.chain(left.all().iter().copied()) {
        socket.own().owners.fetch_sub(1, Ordering::AcqRel);
        socket.own().part(giver);
    }
}

/// The calling thread's process, for connections.
fn me() -> u32 {
    thread::process()
}
