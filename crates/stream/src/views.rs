//! Bytes that the receiver's program takes where they lie, and gives back when it has done with them (`SHUNT_SO_VIEW`, `SHUNT_SO_GIVE_BACK`).
//!
//! For the stream they are received at once: positions, looks and ends know nothing of it. But as long as the program has them they are not
//! released: their sender's completions wait ([`shunt_ring::Pipe::released`]), and so does the record that tells of them. One word says
//! so, the position of the oldest byte in use; what is given back before that waits with it, as completions are told in order.
//!
//! ```text
//! receiver                                              sender
//!   held = position of the oldest byte; then position     position, then held: not complete
//!   ... reads in place ...
//!   held = the next oldest, or none; rings if asked       complete
//! ```
//!
//! The word is of one process. One that ends, or gives the side up, takes it back; of one that was killed while others go on with the side they do.
//! Where a side has several owners all is copied ([`crate::references::keep`]), so no second one ever wants the word.

mod list;

pub use list::forked;

use crate::references::borrow::{self, Where};
use crate::socket::{flag, numbers_of, Socket};
use crate::{tap, urgent};
use core::sync::atomic::Ordering;
use shunt_region::files::Place::Memory;
use shunt_segment::channel::word;
use shunt_sys::{libc, thread, Errno, Result};
use shunt_table::process::identity;

/// What the next bytes of a stream are for a receiver that wants them where they lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// They are the program's until it gives them back by their number.
    InPlace {
        /// The first of them, in a mapping that can be read and not written.
        address: usize,
        /// How many.
        length: usize,
        /// Never another's in this process.
        number: u64,
    },
    /// So many are to be received by a copy before it is worth asking again; 0: none wait.
    Copied(usize),
}

/// Takes up to `most` of the next bytes, if they lie in a pool of the peer's. Never waits.
///
/// Errors: EOPNOTSUPP: none ever does, of a stream from another host or one that goes on elsewhere; EINTR: a handler interrupted this thread
/// in the stream; ECONNRESET: the peer wrote nonsense.
pub fn next(socket: &Socket, fd: i32, most: usize) -> Result<Next> {
    if socket.has(flag::MAY_LEAVE | flag::FAR) || socket.hold.is_carried() {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let held = socket.lock_receive()?;
    let before_mark = urgent::before_mark(socket, true);
    let most = most.min(before_mark);
    let pipe = socket.incoming();
    let found = match pipe.referred(0) {
        Ok(None) => pipe.before_referred().map(|count| Err(count.min(before_mark))),
        Ok(Some(_)) if most == 0 => Ok(Err(0)),
        Ok(Some((position, available))) => borrow::find(socket, position, available).map(|piece| match piece.place {
            // What is lent is the sender's again when its call returns.
            Where::Pool { place: Memory(at), view } if piece.lent.is_none() && !socket.has(flag::SHARED) => {
                Ok((position, at, piece.length.min(most), view))
            }
            _ => Err(piece.length.min(before_mark)),
        }),
        Err(trouble) => Err(trouble),
    };
    let (position, address, length, view) = match found {
        Ok(Ok(found)) => found,
        Ok(Err(count)) => return Ok(Next::Copied(count)),
        Err(_) => {
            drop(held);
            return Err(crate::distrust(socket));
        }
    };
    let Some(number) = list::enter(socket, position, view) else { return Ok(Next::Copied(length)) };
    say_oldest(socket);
    pipe.pass(length);
    socket.connected.loans.looks.earn(length);
    if socket.has(flag::TAPPED) {
        // SAFETY: a fault of the source is an answer.
        unsafe { tap::received(socket, 0, address as *const u8, length) };
    }
    let offset = socket.peek_offset.load(Ordering::Relaxed);
    if offset >= 0 {
        socket.peek_offset.store(offset.saturating_sub(length as i32).max(0), Ordering::Relaxed);
    }
    drop(held);
    crate::taken(socket, fd);
    Ok(Next::InPlace { address, length, number })
}

/// Writes what this process's list says; the caller holds the receiving lock.
fn say_oldest(socket: &Socket) {
    let position = socket.own().receive.position.load(Ordering::Relaxed) & word::POSITION;
    socket.incoming().hold_from(list::oldest(socket, position), thread::process());
}

/// The program has done with bytes that [`next`] gave it. `fd` is one by which it knows the stream, or any number where that has been closed.
///
/// Errors: EINVAL: it has none of this number, or has given them back; EINTR as [`next`], and it still has them.
pub fn give_back(fd: i32, number: u64) -> Result<()> {
    let none = Errno(libc::EINVAL);
    let Some(socket) = list::stream_of(number).map_err(|()| none)? else {
        return if list::leave(number) { Ok(()) } else { Err(none) };
    };
    let held = socket.lock_receive_settled()?;
    // Ended meanwhile, under this lock, the object may be another stream's: whose it is says the list.
    let goes_on = list::stream_of(number).map_err(|()| none)?.is_some();
    if !list::leave(number) {
        return Err(none);
    }
    if goes_on {
        say_oldest(socket);
        socket.connected.loans.ended.store(1, Ordering::Relaxed);
    }
    drop(held);
    if goes_on {
        let known = if crate::socket::is_of(fd, socket) { Some(fd) } else { numbers_of(socket).next() };
        known.into_iter().for_each(|fd| crate::space_came_free(socket, fd));
    }
    Ok(())
}

/// This process gives the side up: what it has of it is given back, as far as the peer sees. The caller holds both locks, or is the only thread.
pub fn part(socket: &Socket) {
    if list::part(socket) && is_holder(socket, thread::process()) {
        socket.incoming().hold_from(None, 0);
    }
}

fn is_holder(socket: &Socket, process: u32) -> bool {
    let receive = &socket.own().receive;
    receive.held.load(Ordering::Relaxed) != 0 && receive.holder.load(Ordering::Relaxed) == process
}

/// A process that has taken the side up is no more what this process was before an exec, which has given nothing back.
pub fn taken_up(socket: &Socket, fd: i32) {
    if is_holder(socket, thread::process()) {
        socket.incoming().hold_from(None, 0);
        socket.connected.loans.ended.store(1, Ordering::Relaxed);
        crate::space_came_free(socket, fd);
    }
}

/// An owner of a side that others own looks whether the one that has bytes in use was killed.
#[cold]
pub fn stand_in(socket: &Socket) {
    let receive = &socket.own().receive;
    let holder = receive.holder.load(Ordering::Relaxed);
    if receive.held.load(Ordering::Relaxed) == 0 || holder == thread::process() || identity::may_live(holder) {
        return;
    }
    let Ok(_held) = socket.lock_receive_settled() else { return };
    if is_holder(socket, holder) {
        socket.incoming().hold_from(None, 0);
        socket.connected.loans.ended.store(1, Ordering::Relaxed);
    }
}
