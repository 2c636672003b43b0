//! Clients that wait in the rendezvous of a listener that becomes the kernel's: relays take them to its queue.
//!
//! Each takes two numbers here until its relay has it, so they go in batches: the numbers of one serve the next.

use crate::relay::RelayTask;
use crate::{kernel_pair, relay};
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_link::{companion_cache, fd_reserve};
use shunt_rendezvous::listen::sharing;
use shunt_rendezvous::{accept, carriers, listen};
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::{calls, libc};
use shunt_table::global::SETUP;
use shunt_table::process::helper::ALL_SIGNALS;
use shunt_table::process::{helper, status_page, user};
use shunt_table::upcalls::forks;

/// Clients that one relay takes.
const AT_ONCE: usize = 256;

/// As [`carry`], by a process of `user`'s, since as that user this one may not see what the clients share with their server. It has
/// nothing of this process's memory of connections, and a user other than this one's cannot look into it (it is not dumpable,
/// prctl(2)). True: no client waits any more.
pub fn carry_as(user: u32, fd: i32, listener: &Socket) -> bool {
    if user::is_own(user) {
        carry(fd, listener);
        return true;
    }
    let mut mask = 0u64;
    // A handler in the copy would be the program's code.
    let _ = calls::sigprocmask(libc::SIG_SETMASK, &ALL_SIGNALS, &mut mask, 8);
    forks::before_own();
    let child = helper::copy();
    if child == 0 {
        forks::child_of_own();
        carriers::all().for_each(|carrier| (carrier.forget)());
        companion_cache::none_any_more();
        if let Some(_setup) = SETUP.lock() {
            link::forget_all();
        }
        // SAFETY: plain integers.
        if unsafe { shunt_sys::syscall!(libc::SYS_setresuid, user, user, user) } != 0 {
            helper::exit(1);
        }
        user::is_now(user);
        listener.listening.claimed.store(1, Ordering::Relaxed);
        carry(fd, listener);
        helper::exit(0);
    }
    forks::parent_of_own();
    let carried = child > 0 && helper::waited(child as i32);
    let _ = calls::sigprocmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut(), 8);
    carried
}

struct Batch {
    tasks: [RelayTask; AT_ONCE],
    count: usize,
}

/// All of them. The rendezvous of `listener`, which is at `fd`, lets no client in any more.
pub(super) fn carry(fd: i32, listener: &Socket) {
    let mut batch = Batch { tasks: [RelayTask { stream: -1, relay: -1, program: -1, process: 0 }; AT_ONCE], count: 0 };
    loop {
        match accept::waiting(listener) {
            Some((stream, client)) => batch.add(fd, listener, stream, &client),
            None if batch.count == 0 => return,
            None => batch.send(), // perhaps no number was left to accept
        }
    }
}

impl Batch {
    fn add(&mut self, fd: i32, listener: &Socket, stream: i32, client: &Address) {
        if self.count == AT_ONCE {
            self.send();
        }
        let family = listener.family.load(Ordering::Relaxed);
        let join = || kernel_pair::to_listener(fd, family, client);
        let joined = join().or_else(|_| {
            self.send(); // perhaps no number was left to connect
            join()
        });
        let Ok(relay) = joined else { return close(stream) };
        self.tasks[self.count] = RelayTask { stream, relay, program: -1, process: 0 };
        self.count += 1;
    }

    /// To a relay of their own. Where none can be made they see their connections end.
    fn send(&mut self) {
        let batch = &self.tasks[..core::mem::take(&mut self.count)];
        if batch.is_empty() {
            return;
        }
        fd_reserve::lend();
        if let Ok(relay) = relay::fork(batch) {
            relay.begin();
        }
        for item in batch {
            let _ = calls::close(item.relay);
            close(item.stream);
        }
        fd_reserve::fill();
    }
}

fn close(stream: i32) {
    shunt_table::upcalls::operations::closing(stream);
    let _ = calls::close(stream);
}

/// The listener, of which two users' processes have the rendezvous, becomes the kernel's. Clients that wait there are carried to the
/// kernel's queue by processes of the user whose they are, which may have other connections in their links; and this process has the
/// rendezvous no more.
#[cold]
pub fn leave_to_kernel(fd: i32, listener: &'static Socket, whose: u32) {
    if let Some(_setup) = SETUP.lock() {
        link::not_sole(); // ends offers in memory
        listener.set(flag::LISTENER_SHARED);
        listener.listening.only_forked.store(0, Ordering::Relaxed);
    }
    let _ = calls::shutdown(listener.private_fd.load(Ordering::Acquire), libc::SHUT_RD);
    if !carry_as(whose, fd, listener) {
        status_page::count(Reason::NotCarried); // no process could be made: they see their connections end
    }
    listen::retire(listener, Reason::UserChanged);
}

/// The listener at `fd` becomes the kernel's alone; clients that wait in the rendezvous are carried to its queue.
pub fn give_listener(fd: i32, listener: &'static Socket) {
    let rendezvous = listener.private_fd.load(Ordering::Acquire);
    if rendezvous >= 0 {
        if let Some(_setup) = SETUP.lock() {
            link::not_sole(); // ends offers in memory
            sharing::out_of_sight(listener);
        }
        let _ = calls::shutdown(rendezvous, libc::SHUT_RD);
        // The kernel refuses new connections now, and gives those that it had taken.
        carry(fd, listener);
        status_page::count(Reason::ListenerHandedOver);
    }
    if !listen::nonblocking(listener) {
        let flags = calls::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
        let _ = calls::fcntl(fd, libc::F_SETFL, (flags & !libc::O_NONBLOCK) as usize);
    }
}
