//! Whether a client waits to be accepted, and waiting for one.

use super::acceptors::{place, ACCEPTORS};
use super::sleep;
use crate::accept::deferred;
use crate::accept_fd;
use crate::options::multipath;
use crate::reconnect::{server, shared_server};
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_stream::options::limits;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::holding::Asleep;
use shunt_stream::waiting::spin::{self, Spin};
use shunt_stream::waiting::until::{until, Look, Source};
use shunt_sys::libc::{self, pollfd};
use shunt_sys::sleeper::counted;
use shunt_sys::{calls, clock, sleeping, stops, thread, Errno, Result};
use shunt_table::global::SETUP;

/// Whether accepting from `listener` leaves bells on the line.
pub fn leaves_bells(listener: &Socket) -> bool {
    ACCEPTORS.place.load(Ordering::Relaxed) == place::ACCEPT && listener.watchers.is_empty()
}

/// The program is told that a listener is readable: it may call accept as one that does not wait.
pub fn told() {
    ACCEPTORS.place.store(place::SETS, Ordering::Relaxed);
}

/// Whether the caller of accept was told that a client is there.
pub(super) fn was_told() -> bool {
    ACCEPTORS.place.load(Ordering::Relaxed) == place::SETS
}

/// Waits until one of the queues has a connection. A listener that another thread closes meanwhile goes on listening. Gives whether the kernel
/// may have woken this thread alone ([`sleep`]).
pub(super) fn wait(fd: i32, listener: &Socket, deadline: &mut Option<u64>, began: u64) -> Result<bool> {
    link::drop_owed();
    if listener.has(flag::LISTENER_SHARED) {
        if let Some(_setup) = SETUP.lock() {
            crate::listen::options::follow(listener);
        }
    }
    // No client was found since the last wait, though a queue may have said that it is readable each time.
    if deadline.is_some_and(|deadline| clock::monotonic_ns() >= deadline) {
        return Err(Errno(libc::EAGAIN));
    }
    let limit = if multipath::is(listener) { 0 } else { listener.receive_timeout.load(Ordering::Relaxed) };
    if deadline.is_none() && limit == limits::AT_ONCE {
        return Err(Errno(libc::EAGAIN));
    }
    let deadline = *deadline.get_or_insert_with(|| limits::deadline(limit));
    // Before the account: a handler that closes it has run since, and keeps the thread from sleeping.
    let looked = thread::handled();
    counted(Asleep::on(listener), |_| match listener.hold.is_open(listener) {
        true => until(&mut Clients::of(listener.hold.number(fd), listener, deadline, [began, looked])),
        false => Err(Errno(libc::EBADF)),
    })
}

/// What accept(2) waits for.
struct Clients<'a> {
    listener: &'a Socket,
    deadline: u64,
    began: u64,
    /// [`thread::handled`] before the call was counted as asleep.
    looked: u64,
    /// The queues: bells, rendezvous, the kernel's.
    set: [pollfd; 3],
}

/// What a sleep gave.
struct Slept {
    ready: Result<usize>,
    /// The kernel may have woken this thread alone.
    alone: bool,
}

impl<'a> Clients<'a> {
    fn of(fd: i32, listener: &'a Socket, deadline: u64, [began, looked]: [u64; 2]) -> Clients<'a> {
        let [rendezvous, bells] = queues(listener);
        if ACCEPTORS.place.load(Ordering::Relaxed) != place::ACCEPT {
            ACCEPTORS.place.store(place::ACCEPT, Ordering::Relaxed);
        }
        let set = [bells, rendezvous, fd].map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 });
        Clients { listener, deadline, began, looked, set }
    }

    /// Asks the kernel whether a queue is readable.
    fn ask(&mut self) -> Result<bool> {
        let (set, count) = (self.set.as_mut_ptr(), self.set.len());
        match calls::ppoll(set, count, &mut spin::ZERO.clone(), core::ptr::null(), calls::KERNEL_SIGSET) {
            // A signal was due. What its handler means for the call is judged before the sleep.
            Err(Errno(libc::EINTR)) => Ok(false),
            ready => ready.map(|ready| ready > 0),
        }
    }

    /// Sleeps in an epoll set of the listener's own, or in ppoll on the queues.
    fn sleep_on_queues(&mut self) -> Slept {
        let [bells, _, fd] = self.set.map(|queue| queue.fd);
        let mut alone = false;
        let ready = accept_fd::during(bells, || match self.deadline {
            u64::MAX => match sleep::set(fd, self.listener) {
                Some(own) => sleep::in_set(own, self.listener, self.looked).map(|bells| {
                    alone = true;
                    self.set[0].revents = if bells { libc::POLLIN } else { 0 };
                    1
                }),
                None => {
                    let (set, count) = (self.set.as_mut_ptr(), self.set.len());
                    sleeping::ppoll(set, count, core::ptr::null_mut(), core::ptr::null(), self.looked)
                }
            },
            deadline => stops::ppoll_until(&mut self.set, deadline, core::ptr::null(), self.looked),
        });
        Slept { ready, alone }
    }
}

impl Source for Clients<'_> {
    type Outcome = Result<bool>;
    /// An error: a handler ran meanwhile, and the thread did not sleep.
    type Slept = Result<Slept>;

    fn begin(&mut self) -> Spin {
        // Connections come in bursts: a few looks cost less than a sleep and a wake-up. A client on this very processor makes
        // several when it is let, where a sleeper would be woken for each.
        spin::begin_expecting(ACCEPTORS.client.load(Ordering::Relaxed), shared_server::bid_is_near())
    }

    fn look(&mut self, spin: &Spin) -> Look<Result<bool>> {
        if server::waiting(self.listener) || shared_server::any(self.listener) {
            return Look::Found(Ok(false));
        }
        let offered = server::are_usual(self.listener);
        if !offered || spin.rounds() & 0x3f == 0x3f {
            match self.ask() {
                Ok(false) => {}
                Ok(true) => {
                    settle(self.listener, &self.set);
                    return Look::Found(Ok(false));
                }
                Err(error) => return Look::Found(Err(error)),
            }
        }
        if !offered && !spin.same_processor {
            calls::sched_yield();
        }
        Look::Nothing
    }

    fn sleep(&mut self, _: &Spin) -> Result<Slept> {
        if thread::interrupted_since(self.began, self.deadline == u64::MAX) {
            return Err(Errno(libc::EINTR)); // a handler ran while the thread looked
        }
        server::take_left_bells(self.listener);
        Ok(self.sleep_on_queues())
    }

    fn woken(&mut self, slept: Result<Slept>) -> Option<Result<bool>> {
        let Slept { ready, alone } = match slept {
            Ok(slept) => slept,
            Err(error) => return Some(Err(error)),
        };
        let for_ever = self.deadline == u64::MAX;
        Some(match ready {
            // A handler that was installed past us is not counted: which one ran is unknown.
            Err(Errno(libc::EINTR))
                if thread::handled() == self.looked && for_ever && shunt_stream::waiting::signals::all_restart() =>
            {
                Ok(false)
            }
            Err(Errno(libc::EINTR)) => thread::resume(self.began, self.looked, for_ever).map(|()| false),
            Err(error) => Err(error),
            Ok(0) => Err(Errno(libc::EAGAIN)),
            Ok(_) => {
                settle(self.listener, &self.set);
                Ok(alone)
            }
        })
    }
}

/// Whether a client may wait in one of shunt's own queues.
pub fn someone_waits(listener: &Socket) -> bool {
    if deferred::any(listener) {
        return true;
    }
    let rendezvous = listener.private_fd.load(Ordering::Acquire);
    server::waiting(listener) || calls::poll_one(rendezvous, libc::POLLIN, 0).is_ok_and(|events| events != 0)
}

/// The kernel says that a queue is readable: if only bells are, they are taken off.
fn settle(listener: &Socket, set: &[pollfd; 3]) {
    if set[0].revents != 0 && !server::waiting(listener) {
        server::take_spent_bells(listener);
    }
}

/// The descriptors that stand for a listener beside its TCP socket, in poll and epoll: the rendezvous, and clients' bells.
pub fn queues(listener: &Socket) -> [i32; 2] {
    [listener.private_fd.load(Ordering::Acquire), listener.listening.bells_fd.load(Ordering::Acquire)]
}

/// Whether a listener that the kernel reports as readable has a connection to accept: a bell may be readable although its
/// offer has been taken.
pub fn ready(fd: i32, listener: &Socket) -> bool {
    told();
    if deferred::concern(listener) {
        return deferred::ready(listener) || super::anyone(fd);
    }
    if listener.listening.offering.load(Ordering::Acquire) == 0 || server::waiting(listener) {
        return true;
    }
    if super::anyone(fd) || super::anyone(listener.private_fd.load(Ordering::Acquire)) {
        return true;
    }
    server::take_spent_bells(listener);
    server::waiting(listener)
}
