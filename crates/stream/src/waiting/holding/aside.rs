//! A stream whose numbers become another file's, one by one, and perhaps its own again, while other threads ring and wait by them.
//!
//! A thread that closes a number takes it off the table first, and then waits for those who ring by it. Here the table goes on to
//! say *stream* until each number is another file's, so the stream is set aside before: it lingers for the caller, and all use its
//! private duplicate.

use super::{leave, Lingerer, WAITER};
use crate::socket::{flag, Socket};
use crate::waiting::{wake_pollers, wake_receivers};
use core::sync::atomic::Ordering;
use shunt_sys::Result;
use shunt_table::{private, table};

/// What became of a stream's numbers.
pub(super) mod state {
    /// They are its own.
    pub(in crate::waiting::holding) const OWN: u32 = 0;
    /// They may be another file's.
    pub(in crate::waiting::holding) const ASIDE: u32 = 1;
    /// They are for good, and only the object is left to give back.
    pub(in crate::waiting::holding) const DISSOLVED: u32 = 2;
    /// The same, and that file is the kernel's end of the same connection: calls go on there.
    pub(in crate::waiting::holding) const CARRIED: u32 = 3;
    /// They are about to be that, and nothing goes by the rings any more.
    pub(in crate::waiting::holding) const LEFT: u32 = 4;
}

/// The numbers of `socket`, of which `fd` is one, are about to be another file's; no thread rings or waits by them behind this. To
/// be followed by [`dissolved`] or [`put_back`]. By one thread at a time.
///
/// Errors: no descriptor is left.
pub fn set_aside(socket: &'static Socket, fd: i32) -> Result<()> {
    let hold = &socket.hold;
    if hold.state.load(Ordering::Relaxed) != state::OWN {
        return Ok(());
    }
    hold.enter(WAITER);
    if let Err(error) = hold.take_private_number(fd, Lingerer::Socket(socket)) {
        leave(Lingerer::Socket(socket), WAITER);
        return Err(error);
    }
    hold.state.store(state::ASIDE, Ordering::Release);
    hold.await_ringers();
    Ok(())
}

/// The connection was dissolved, or is another process's: its object is given back when no call waits.
pub fn dissolved(socket: &'static Socket) {
    socket.hold.state.store(state::DISSOLVED, Ordering::SeqCst);
    leave(Lingerer::Socket(socket), WAITER);
}

/// The numbers are those of the kernel's end, `next`, and will stay so: calls that sleep on the stream wake, and go on there, by a duplicate
/// of `end` that is theirs. To be followed by [`given_up`].
pub fn carried(socket: &'static Socket, next: &Socket, end: i32) {
    if let Ok(kept) = private::duplicate(end) {
        table::set_lingering(kept, Lingerer::Socket(socket).word());
        socket.hold.end.store(kept, Ordering::Release);
    }
    socket.hold.state.store(state::CARRIED, Ordering::SeqCst);
    wake_pollers::carried();
    wake_receivers::all(&socket.hold, next);
}

/// The stream, which was set aside, is about to be [`carried`], and its rings have no owner: from now on no send finds room there. The
/// caller holds both locks.
pub fn left(socket: &Socket) {
    socket.hold.state.store(state::LEFT, Ordering::SeqCst);
    socket.set(flag::SHARED); // those who look closer see the state
}

/// As [`dissolved`], of a stream that was [`carried`].
pub fn given_up(socket: &'static Socket) {
    leave(Lingerer::Socket(socket), WAITER);
}

/// The numbers are the stream's again, if it was set aside.
pub fn put_back(socket: &'static Socket) {
    let hold = &socket.hold;
    if hold.state.compare_exchange(state::ASIDE, state::OWN, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    // Unless the last was closed meanwhile: then it lingers, as any other.
    if socket.references.load(Ordering::SeqCst) > 0 {
        let number = hold.forget_private_number();
        if socket.references.load(Ordering::SeqCst) == 0 {
            hold.number.store(number, Ordering::SeqCst); // closed between: the thread that closed has seen that it lingers
        } else {
            hold.await_ringers();
            wake_pollers::all();
            shunt_table::private::close(number);
        }
    }
    leave(Lingerer::Socket(socket), WAITER);
}
