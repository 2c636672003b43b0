//! Streams both of whose sides are in one process: side 0, the near half, is the program's, and side 1, the far half, belongs to what carries the bytes on, to
//! another host or to a peer that has only a kernel.
//!
//! It owns how such a stream begins: its channel, its companion, and the near half under a socket of the program's. It refuses to know where bytes go.
#![no_std]
// A place's address is a link's: see `shunt_link`.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_rendezvous::attach;
use shunt_segment::address::Address;
use shunt_segment::channel::{arm, life};
use shunt_segment::name::Hello;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};
use shunt_sys::{calls, Result};
use shunt_table::{global, sockaddr};

/// Where a stream is: where its link lies, the link's index, the channel.
pub type Place = (*mut u8, usize, usize);

/// The companion of a stream.
pub struct Companion {
    /// Near end and far end.
    pub ends: [i32; 2],
    /// Which of those that had the channel the stream is.
    pub generation: u32,
}

/// Makes the channel ready, of no more than these classes of rings in each direction, and a companion. `own` and `peer`: the addresses of the two ends.
///
/// # Errors
/// EMFILE and the like.
pub fn companion(
    (base, _, channel): Place,
    classes: [u32; 2],
    own: &Address,
    peer: &Address,
    nonblocking: bool,
) -> Result<Companion> {
    let mut ends = [-1; 2];
    calls::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.as_mut_ptr())?;
    let page = link::page(base, channel);
    page.head.owes.iter().for_each(|owes| owes.store(0, Ordering::Relaxed));
    for ((side, carriage), class) in page.sides.iter().zip(&page.carriages).zip(classes) {
        carriage.clear();
        side.clear();
        side.owners.store(1, Ordering::Relaxed);
        side.transmit.class_limit.store(class, Ordering::Relaxed);
    }
    // Each message rings, or drives what carries it on.
    page.sides[1].wait.armed.store(arm::ALWAYS, Ordering::Relaxed);
    let generation = shunt_ring::claim::renew(&page.head);
    attach::describe(page, own, peer);
    page.head.state.store(life::ACCEPTED, Ordering::Release);
    let header = link::header(base);
    let hello = Hello {
        version: shunt_segment::VERSION,
        nonce: header.nonce.load(Ordering::Relaxed),
        sequence: header.sequence.load(Ordering::Relaxed),
        channel: channel as u16,
        link_follows: 0,
        generation,
        client: *own,
        server: *peer,
    };
    let (name, length) = sockaddr::abstract_name(hello.encode().as_slice());
    // Tools, and programs to which the descriptor is handed, find the stream by it.
    let _ = calls::bind(ends[0], (&raw const name).cast(), length);
    if !nonblocking {
        let _ = calls::fcntl(ends[0], libc::F_SETFL, libc::O_RDWR as usize);
    }
    Ok(Companion { ends, generation })
}

/// The socket becomes the near half. Under the set-up lock.
pub fn seat((base, index, channel): Place, socket: &'static Socket, nonblocking: bool) {
    let side = &link::page(base, channel).sides[0];
    side.pid.store(shunt_sys::thread::process(), Ordering::Relaxed);
    side.address_family.store(shunt_rendezvous::options::multipath::shape(socket), Ordering::Relaxed);
    socket.attach(base, channel, 0);
    socket.connected.link_index.store(index as u32, Ordering::Relaxed);
    socket.set(flag::REMOTE);
    if link::header(base).server.barrier.load(Ordering::Acquire) == 0 || !global::barriers() {
        socket.set(flag::FENCE);
    }
    if nonblocking {
        socket.set(flag::NONBLOCK);
    }
    link::enter(index);
}
