//! The descriptors of sockets, as the table tells them.

use super::{introduced, Socket};
use core::sync::atomic::Ordering;
use shunt_table::table;
use shunt_table::table::{Kind, Object};

// SAFETY: sockets live in a slab that is never unmapped (`socket::slab`), and nothing else is entered under these kinds.
unsafe impl Object for Socket {
    #[inline(always)]
    fn is(kind: Kind) -> bool {
        matches!(kind, Kind::Tcp | Kind::Listener | Kind::Stream)
    }
}

/// The accelerated stream behind `fd`: the question of every data call.
#[inline(always)]
pub fn stream(fd: i32) -> Option<&'static Socket> {
    let word = table::get(fd);
    if word.is(Kind::Stream) {
        // SAFETY: sockets alone are entered under this kind.
        return Some(unsafe { word.known() });
    }
    if word.is_unsettled() {
        return introduced::look_again(fd, word);
    }
    None
}

/// As [`stream`], and a pipe that is kept in memory stays so: for splice(2) alone.
pub fn stream_beside_pipes(fd: i32) -> Option<&'static Socket> {
    match table::get(fd).kept_pipe() {
        Some(_) => None,
        None => stream(fd),
    }
}

/// Whether `fd` is a descriptor of the stream `socket`. Of one that is not yet, as long as it is being introduced ([`introduced`]): the caller may hold locks.
pub fn is_of(fd: i32, socket: &Socket) -> bool {
    let word = table::get(fd);
    // SAFETY: as above.
    word.is(Kind::Stream) && core::ptr::eq(unsafe { word.known::<Socket>() }, socket)
}

/// The program's descriptors of the stream `socket`.
pub fn numbers_of(socket: &Socket) -> impl Iterator<Item = i32> + '_ {
    table::programs().filter(move |fd| is_of(*fd, socket))
}

/// The number of one socket has become another's, which has one more. False: the program has closed it meanwhile.
pub fn replace(fd: i32, socket: &Socket, kind: Kind, next: &'static Socket) -> bool {
    next.references.fetch_add(1, Ordering::SeqCst);
    let replaced = table::replace(fd, socket, kind, next);
    if !replaced {
        next.references.fetch_sub(1, Ordering::SeqCst);
    }
    replaced
}
