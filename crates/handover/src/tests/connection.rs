//! A listener and both ends of a connection in this process.
//!
//! What is handed over is all that the table has, so tests that have connections run one after another.

use core::sync::atomic::Ordering;
use shunt_config::Options;
use shunt_link::users::{self, Users};
use shunt_rendezvous::other_hosts::Outcome;
use shunt_rendezvous::reconnect::{server, shared_server};
use shunt_rendezvous::{accept, close, connect, listen, opening};
use shunt_stream::socket::Socket;
use shunt_stream::waiting::holding::{self, Ends};
use shunt_sys::libc::{AF_INET, SOCK_CLOEXEC, SOCK_STREAM};
use shunt_sys::{calls, clock};
use shunt_table::global;
use shunt_table::sockaddr::{bound_address, Encoded};
use shunt_table::table::{self, Word};
use shunt_table::upcalls::operations::{self, Operations};
use std::sync::{Mutex, MutexGuard, Once};

static OPERATIONS: Operations = Operations { release, to_kernel: |_| Ok(()), to_kernel_as: |_, _| {}, user_changed: || {} };
static USERS: Users = Users { connections: |_| 0, deferred: accept::deferred::channels_of, shut: |_| {}, offers_end };
static ENDS: Ends = Ends { socket: |socket, fd| close::end(socket, fd, false), set: |_| {}, sleeps: |_, _| {} };

fn offers_end(index: usize) {
    server::forget(index);
    shared_server::forget(index);
}

fn release(word: Word, fd: i32) {
    if let Some(socket) = word.object::<Socket>() {
        socket.hold.await_ringers();
        if socket.references.fetch_sub(1, Ordering::SeqCst) == 1 && !holding::linger(socket, fd) {
            close::end(socket, fd, true);
        }
    }
}

fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        operations::fill(&OPERATIONS);
        users::fill(&USERS);
        holding::fill(&ENDS);
        clock::start();
        shunt_sys::processor::find_vectors();
        // SAFETY: tests that enter sockets come here first; null says that there may be several threads.
        unsafe { global::set(Options::default(), core::ptr::null_mut()) };
        shunt_table::process::user::start();
        global::set_ready();
    });
}

/// A connection and its listener, by their descriptors.
pub struct Connection {
    pub listener: i32,
    pub client: i32,
    pub server: i32,
    _alone: MutexGuard<'static, ()>,
}

impl Connection {
    pub fn new() -> Connection {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        start();
        let socket = || {
            let fd = calls::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0).expect("a socket");
            opening::opened(fd, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            (fd, object(fd))
        };
        let (listener, listening) = socket();
        let any = Encoded::new(AF_INET, &shunt_segment::address::Address::v4([127, 0, 0, 1], 0));
        calls::bind(listener, any.pointer(), any.length).expect("a free port");
        listen::prepare(listener, listening, 4).expect("a rendezvous");
        calls::listen(listener, 4).expect("a bound socket");
        listen::opened(listener, listening);
        let (client, connecting) = socket();
        assert!(matches!(connect::connect(client, connecting, bound_address(listener)), Outcome::Connected));
        let none = core::ptr::null_mut();
        // SAFETY: no address is asked for.
        let server = unsafe { accept::accept(listener, listening, none, none.cast(), SOCK_CLOEXEC) }.expect("a client") as i32;
        Connection { listener, client, server, _alone: alone }
    }
}

/// The engine's object of a descriptor.
pub fn object(fd: i32) -> &'static Socket {
    table::get(fd).object().expect("a socket of the engine's")
}

/// close(2).
pub fn close(fd: i32) {
    operations::closing(fd);
    let _ = calls::close(fd);
}

impl Drop for Connection {
    fn drop(&mut self) {
        [self.client, self.server, self.listener].into_iter().for_each(close);
    }
}
