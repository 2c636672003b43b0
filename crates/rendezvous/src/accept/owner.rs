//! Whose a listener's connections are: one user's, under whom all processes that accept them run.

use core::sync::atomic::Ordering;
use shunt_stream::socket::Socket;
use shunt_table::process::{user, users};
use shunt_table::table;
use shunt_table::upcalls::operations;

/// The user whose its connections are, if that is known yet.
pub fn whose(listener: &Socket) -> Option<u32> {
    users::whose(listener.listening.inode.load(Ordering::Relaxed), listener.private_fd.load(Ordering::Acquire))
}

/// The listener's connections are this process's user's. Errors: another's, whom no other must see.
pub fn claim(listener: &Socket) -> Result<(), u32> {
    if listener.listening.claimed.load(Ordering::Relaxed) == 0 {
        users::claim(listener.listening.inode.load(Ordering::Relaxed), listener.private_fd.load(Ordering::Acquire), user::own())?;
        listener.listening.claimed.store(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether this process may take clients from the rendezvous of `listener`: if they are another user's, it becomes the kernel's.
/// `waits`: whether there is time for that now.
#[inline]
pub fn may_accept(listener: &Socket, waits: bool) -> bool {
    listener.listening.claimed.load(Ordering::Relaxed) != 0 || claim_to_accept(listener, waits)
}

#[cold]
fn claim_to_accept(listener: &Socket, waits: bool) -> bool {
    let Err(whose) = claim(listener) else { return true };
    let is_it = |fd: &i32| table::get(*fd).object::<Socket>().is_some_and(|socket| core::ptr::eq(socket, listener));
    if let Some(fd) = table::programs().find(is_it).filter(|_| waits) {
        operations::to_kernel_as(fd, whose);
    }
    false
}
