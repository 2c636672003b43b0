//! Before an exec into a program without shunt: each stream that stays open becomes, under its own numbers, an end of a kernel connection
//! that a relay has the other end of, and each listener the kernel's alone. If the exec fails, all is undone.

use crate::inherit::kept_over_exec;
use crate::kernel_pair;
use crate::relay::{self, Relay, RelayTask};
use crate::waiting::give_listener;
use core::sync::atomic::Ordering;
use shunt_rendezvous::exchange::like;
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket::Socket;
use shunt_stream::waiting::holding;
use shunt_sys::libc::{self, FD_CLOEXEC, F_GETFL, F_SETFL};
use shunt_sys::{calls, mapping, Result};
use shunt_table::private::Pending;
use shunt_table::process::status_page;
use shunt_table::table::Kind;
use shunt_table::{private, table};

/// Descriptors that one hand-over moves at most.
const MOST: usize = 4096;

/// A hand-over that has been made; the exec follows.
pub struct HandOver {
    relay: Option<Relay>,
    /// The numbers under which the program finds the kernel's sockets. Their streams are set aside.
    moved: List<i32>,
}

/// A list in memory of its own.
struct List<T: Copy> {
    start: *mut T,
    count: usize,
}

impl<T: Copy> List<T> {
    fn new() -> Result<List<T>> {
        Ok(List { start: mapping::reserve(MOST * core::mem::size_of::<T>())?.cast(), count: 0 })
    }
    fn push(&mut self, item: T) -> bool {
        if self.count == MOST {
            return false;
        }
        // SAFETY: within the reserved memory.
        unsafe { self.start.add(self.count).write(item) };
        self.count += 1;
        true
    }
    fn all(&self) -> &[T] {
        // SAFETY: `count` entries were written.
        unsafe { core::slice::from_raw_parts(self.start, self.count) }
    }
}

impl<T: Copy> Drop for List<T> {
    fn drop(&mut self) {
        let _ = calls::munmap(self.start.cast(), MOST * core::mem::size_of::<T>());
    }
}

/// Before an exec into a program without shunt. `None`: it keeps nothing of ours.
pub fn before_exec() -> Option<HandOver> {
    let ours = |fd: &i32| matches!(table::get(*fd).kind(), Kind::Stream | Kind::Listener) && kept_over_exec(*fd);
    table::numbers().find(ours)?;
    let _alone = shunt_rendezvous::exchange::alone();
    let mut tasks = List::<RelayTask>::new().ok()?;
    let mut moved = List::<i32>::new().ok()?;
    let process = calls::getpid();
    for fd in table::numbers().filter(ours) {
        let word = table::get(fd);
        let Some(socket) = word.object::<Socket>() else { continue };
        match word.kind() {
            Kind::Listener => give_listener(fd, socket),
            _ if (0..fd).any(|earlier| ours(&earlier) && shunt_stream::socket::is_of(earlier, socket)) => {} // a duplicate goes with the first
            _ => {
                if let Ok((program, relay)) = kernel_pair::pair(socket) {
                    let program = private::keep(program).unwrap_or(-1);
                    let item = RelayTask { stream: fd, relay, program, process };
                    if program >= 0 && tasks.count < relay::MOST && tasks.push(item) {
                        continue;
                    }
                    private::close(program);
                    let _ = calls::close(relay);
                }
            }
        }
    }
    let forked = if tasks.count > 0 { relay::fork(tasks.all()).ok() } else { None };
    for fd in table::numbers().filter(ours) {
        if table::get(fd).kind() != Kind::Stream {
            continue;
        }
        let Some(socket) = shunt_stream::socket::stream(fd) else { continue };
        let item = tasks.all().iter().find(|item| shunt_stream::socket::is_of(item.stream, socket)).filter(|_| forked.is_some());
        replace(fd, socket, item.map_or(-1, |item| item.program), &mut moved);
    }
    for item in tasks.all() {
        let _ = calls::close(item.relay);
        private::close(item.program);
    }
    Some(HandOver { relay: forked, moved })
}

/// `program` (or, if there is none, a dead socket) takes the place of the companion at `number`.
fn replace(number: i32, socket: &'static Socket, program: i32, moved: &mut List<i32>) {
    if holding::set_aside(socket, number).is_err() {
        let _ = calls::fcntl(number, libc::F_SETFD, FD_CLOEXEC as usize); // better none than one that lies
        return;
    }
    let fresh = if program >= 0 { None } else { kernel_pair::dead(socket.family.load(Ordering::Relaxed)).ok().map(Pending) };
    let new = fresh.as_ref().map_or(program, |pending| pending.0);
    if new < 0 {
        let _ = calls::fcntl(number, libc::F_SETFD, FD_CLOEXEC as usize);
        return;
    }
    like(socket, socket.hold.number(number), new);
    let _ = calls::dup3(new, number, 0);
    moved.push(number);
    status_page::note(number, kind::TCP, if program >= 0 { Reason::Carried } else { Reason::NotCarried }, None);
}

impl HandOver {
    /// The exec failed: every number is what it was.
    pub fn undo(self) {
        for &number in self.moved.all() {
            if let Some(socket) = shunt_stream::socket::stream(number) {
                let _ = calls::dup3(socket.hold.number(number), number, 0);
                status_page::note(number, kind::STREAM, Reason::Accelerated, Some(socket.channel()));
            }
        }
        table::numbers().filter_map(shunt_stream::socket::stream).for_each(holding::put_back);
        for fd in table::numbers() {
            let word = table::get(fd);
            if let (Kind::Listener, Some(_)) = (word.kind(), word.object::<Socket>()) {
                let flags = calls::fcntl(fd, F_GETFL, 0).unwrap_or(0);
                let _ = calls::fcntl(fd, F_SETFL, (flags | libc::O_NONBLOCK) as usize);
            }
        }
        if let Some(relay) = self.relay {
            relay.give_up();
        }
    }
}
