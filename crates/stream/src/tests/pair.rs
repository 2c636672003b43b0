//! A connection between two threads of one process, for tests: no listener, no other process, no intercepted call.
//!
//! ```text
//! Pair { near, far }     the two sides of one channel of a link of this process's, and a companion between them
//! End                    what a program can do with one of them, by the calls that the preload library makes
//! ```

use crate::socket::{self, flag, Socket};
use crate::waiting::{readiness, wake};
use core::sync::atomic::Ordering;
use shunt_config::Options;
use shunt_link as link;
use shunt_segment::address::Address;
use shunt_segment::area::RING_SIZE;
use shunt_segment::channel::life;
use shunt_sys::libc::{self, iovec, AF_UNIX, SOCK_CLOEXEC, SOCK_STREAM};
use shunt_sys::{calls, clock, thread, Result};
use shunt_table::global::{self, SETUP};
use shunt_table::memory::pieces::Pieces;
use shunt_table::table::{self, Kind};
use std::sync::Once;

/// The engine's state is the process's, and is made once.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        clock::start();
        shunt_sys::processor::find_vectors();
        // SAFETY: nothing of the engine is used before; null says that there may be several threads.
        unsafe { global::set(Options::default(), core::ptr::null_mut()) };
        shunt_table::process::user::start();
        global::set_ready();
    });
}

/// One side of a connection.
#[derive(Clone, Copy)]
pub struct End {
    /// The companion's descriptor.
    pub fd: i32,
    /// The socket's object.
    pub socket: &'static Socket,
}

/// Both sides.
pub struct Pair {
    /// The client's.
    pub near: End,
    /// The server's.
    pub far: End,
}

/// The addresses that both sides tell.
pub fn addresses() -> (Address, Address) {
    (Address::v4([127, 0, 0, 1], 40_000), Address::v4([127, 0, 0, 1], 80))
}

impl Pair {
    /// A fresh connection, blocking at both ends.
    pub fn new() -> Pair {
        start();
        let mut ends = [-1; 2];
        calls::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.as_mut_ptr()).expect("a pair of sockets");
        let setup = SETUP.lock().expect("no handler interrupts a test");
        let offer = link::offer(1).expect("a channel");
        let page = link::page(offer.link.base, offer.channel);
        page.head.owes.iter().for_each(|owes| owes.store(0, Ordering::Relaxed));
        for (side, carriage) in page.sides.iter().zip(&page.carriages) {
            carriage.clear();
            side.clear();
            side.transmit.class_limit.store(RING_SIZE.len() as u32 - 1, Ordering::Relaxed);
            side.owners.store(1, Ordering::Relaxed);
            side.pid.store(thread::process(), Ordering::Relaxed);
            side.address_family.store(libc::AF_INET as u32, Ordering::Relaxed);
        }
        shunt_ring::claim::renew(&page.head);
        page.head.state.store(life::ACCEPTED, Ordering::Release);
        let [near, far] = [0, 1].map(|side| {
            let socket = socket::allocate_locked(libc::AF_INET).expect("an object");
            socket.attach(offer.link.base, offer.channel, side);
            let (client, server) = addresses();
            socket.set_addresses(&client, &server);
            socket.connected.link_index.store(offer.index as u32, Ordering::Relaxed);
            socket.set(flag::FENCE); // no process is registered for barriers
            link::enter(offer.index);
            table::enter(ends[side], Kind::Stream, socket);
            End { fd: ends[side], socket }
        });
        drop(setup);
        Pair { near, far }
    }
}

impl Pair {
    /// The near end's next large plain send lends its bytes, if they lie in what it has shown: it asks for that, was answered, saw its peer on another
    /// processor, and took nothing back lately.
    pub fn is_to_lend(&self) {
        let lending = &self.near.socket.connected.loans.lending;
        lending.wanted.store(1, Ordering::Relaxed);
        lending.heard.store(u64::MAX, Ordering::Relaxed);
        lending.skipped.store(0, Ordering::Relaxed);
        for (end, processor) in [(self.near, 1), (self.far, 2)] {
            end.socket.own().wait.processor.store(processor, Ordering::Relaxed);
        }
    }
}

impl Default for Pair {
    fn default() -> Pair {
        Pair::new()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for end in [self.near, self.far] {
            crate::pools::release(&end.socket.connected.loans.views);
            // One that a test has closed may be another test's by now.
            if socket::is_of(end.fd, end.socket) {
                table::take(end.fd);
                let _ = calls::close(end.fd);
            }
        }
    }
}

impl End {
    /// send(2).
    pub fn send(&self, bytes: &[u8], flags: i32) -> Result<usize> {
        // SAFETY: a slice.
        unsafe { crate::send(self.socket, self.fd, bytes.as_ptr(), bytes.len(), flags) }.map(|count| count as usize)
    }

    /// sendmsg(2) with several buffers.
    pub fn send_all(&self, buffers: &[&[u8]], flags: i32) -> Result<usize> {
        let vector: Vec<iovec> =
            buffers.iter().map(|bytes| iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }).collect();
        // SAFETY: slices.
        unsafe { crate::send_vector(self.socket, self.fd, &pieces(&vector), flags) }.map(|count| count as usize)
    }

    /// recv(2).
    pub fn receive(&self, into: &mut [u8], flags: i32) -> Result<usize> {
        // SAFETY: a slice.
        let got = unsafe { crate::receive(self.socket, self.fd, into.as_mut_ptr(), into.len(), flags) };
        got.map(|count| count as usize)
    }

    /// recv(2), as text.
    pub fn text(&self, most: usize, flags: i32) -> Result<String> {
        let mut bytes = vec![0; most];
        self.receive(&mut bytes, flags).map(|count| String::from_utf8_lossy(&bytes[..count]).into_owned())
    }

    /// recvmsg(2) with several buffers of these sizes.
    pub fn receive_all(&self, sizes: &[usize], flags: i32) -> Result<Vec<Vec<u8>>> {
        let mut buffers: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0; *size]).collect();
        let vector: Vec<iovec> =
            buffers.iter_mut().map(|bytes| iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }).collect();
        // SAFETY: slices.
        let mut left = unsafe { crate::receive_pieces(self.socket, self.fd, &pieces(&vector), flags)? } as usize;
        for bytes in &mut buffers {
            let here = left.min(bytes.len());
            bytes.truncate(here);
            left -= here;
        }
        Ok(buffers)
    }

    /// shutdown(2).
    pub fn shut(&self, how: i32) -> Result<isize> {
        crate::shutdown(self.socket, self.fd, how)
    }

    /// What poll(2) says of it, asked for these events and those that it always tells.
    pub fn events(&self, asked: i16) -> i16 {
        crate::events::events(self.socket, asked | libc::POLLERR | libc::POLLHUP)
    }

    /// O_NONBLOCK.
    pub fn set_nonblocking(&self) {
        let flags = calls::fcntl(self.fd, libc::F_GETFL, 0).expect("flags");
        calls::fcntl(self.fd, libc::F_SETFL, (flags | libc::O_NONBLOCK) as usize).expect("a socket takes it");
        self.socket.set(flag::NONBLOCK);
    }

    /// close(2), as far as the peer sees it: what [`crate::socket`]'s owner above does more is for this process. `reset`: with SO_LINGER
    /// of no time.
    pub fn close(&self, reset: bool) {
        table::take(self.fd);
        if reset {
            self.socket.set(flag::LINGER_RESET);
        }
        crate::announce_end(self.socket, readiness::closed(self.socket));
        wake::notify(self.socket, self.fd, shunt_segment::channel::arm::IN | shunt_segment::channel::arm::OUT);
        calls::close(self.fd).expect("an open descriptor");
    }

    /// SO_ERROR.
    pub fn take_error(&self) -> Option<i32> {
        self.events(0); // what has come of the peer is looked at first
        readiness::take_error(self.socket)
    }
}

/// The buffers as calls have them.
pub(crate) fn pieces(vector: &[iovec]) -> Pieces<'_> {
    // SAFETY: as many entries as the slice has.
    unsafe { Pieces::new(vector.as_ptr(), vector.len()) }.expect("few buffers")
}
