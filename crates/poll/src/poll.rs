//! poll(2) over accelerated and kernel descriptors together.
//!
//! Streams are looked at in memory; the kernel is asked about the others. Before sleeping, streams are armed and their
//! companions stand in for them in the kernel's set; a listener stands for its two queues.
//!
//! ```text
//! look     what memory tells          foreign    what the kernel is asked          peers     whether they are gone
//! wait     the wait                   sleep      arms and sleeps                   asleep    its account
//! ```

mod asleep;
mod foreign;
mod look;
mod peers;
mod sleep;
mod wait;

pub use peers::due_for_check;
pub use sleep::prepare;

use crate::asking::Question;
use core::sync::atomic::Ordering;
use look::is_kept;
use shunt_inbox::datagram;
use shunt_inbox::datagram::Datagram;
use shunt_rendezvous::accept::deferred;
use shunt_stream::progress;
use shunt_stream::socket::Socket;
use shunt_stream::waiting::until::until;
use shunt_stream::waiting::{kernel_sockets, spin};
use shunt_sys::libc::{self, pollfd, sigset_t, POLLERR, POLLHUP, POLLIN, POLLOUT};
use shunt_sys::{calls, clock, thread, Result};
use shunt_table::table;
use shunt_table::table::{Kind, Word};
use wait::Waiting;

/// A set that is asked about.
pub struct Query<'a> {
    /// The program's entries.
    pub entries: &'a mut [pollfd],
    /// In CLOCK_MONOTONIC ns; `u64::MAX`: none; 0: do not wait.
    pub deadline: u64,
    /// Signal mask during the sleep; null: unchanged.
    pub mask: *const sigset_t,
    /// By which the call is known ([`shunt_table::memory::leased`]).
    frame: usize,
    /// The kernel has to be asked about some.
    foreign: bool,
    /// Some of these are the kernel's own, or sets: what it knows of them belongs in each answer.
    strange: bool,
    /// What it is asked ([`crate::asking`]).
    question: Question,
    /// It has said something in this call, which the answer is to tell.
    told: bool,
    /// What another thread closes during the call is ready for all that was asked (select: POLLIN_SET and its like in
    /// fs/select.c hold EPOLLNVAL); else it is POLLNVAL.
    forgiving: bool,
    /// The call has slept.
    slept: bool,
}

/// Whether any entry is one that only we understand. Asked of each set that a thread polls.
pub fn concerns_us(entries: &[pollfd]) -> bool {
    polls_only(|| entries.iter().copied());
    entries.iter().any(|e| {
        let word = table::get(e.fd);
        !word.is_plain() && only_we_understand(word)
    })
}

/// This thread polls `entries`, and no listener but those among them.
#[inline(always)]
pub fn polls_only<I: Iterator<Item = pollfd>>(entries: impl Fn() -> I) {
    deferred::polls_only(|listener| {
        let asks = |entry: pollfd| {
            entry.events & (POLLIN | libc::POLLRDNORM) != 0
                && table::get(entry.fd).object::<Socket>().is_some_and(|socket| core::ptr::eq(socket, listener))
        };
        entries().any(asks)
    });
}

/// Whether only we understand what `fd` is ready for.
pub fn understood(fd: i32) -> bool {
    only_we_understand(table::get(fd))
}

#[inline(always)]
fn only_we_understand(word: Word) -> bool {
    matches!(word.kind(), Kind::Stream | Kind::Listener | Kind::Epoll | Kind::Datagram)
}

/// A deadline from a relative timeout; negative or absent: none; zero stays zero.
pub fn deadline(timeout_ns: Option<u64>) -> u64 {
    match timeout_ns {
        None => u64::MAX,
        Some(0) => 0,
        Some(ns) => clock::monotonic_ns().saturating_add(ns).max(1),
    }
}

const NO_ENTRY: pollfd = pollfd { fd: -1, events: 0, revents: 0 };
const ALWAYS: i16 = POLLERR | POLLHUP;

impl<'a> Query<'a> {
    /// A question of poll's.
    pub fn new(entries: &'a mut [pollfd], deadline: u64, mask: *const sigset_t, frame: usize) -> Query<'a> {
        let question = Question::new();
        let (foreign, strange, told, forgiving, slept) = (false, false, false, false, false);
        Query { entries, deadline, mask, frame, foreign, strange, question, told, forgiving, slept }
    }

    /// A question of select's.
    pub fn forgiving(entries: &'a mut [pollfd], deadline: u64, mask: *const sigset_t, frame: usize) -> Query<'a> {
        Query { forgiving: true, ..Query::new(entries, deadline, mask, frame) }
    }

    /// poll(2): the number of entries with events.
    pub fn poll(&mut self) -> Result<isize> {
        self.poll_since(thread::handled())
    }

    /// The same, of a call that began at `began` ([`thread::handled`]).
    pub fn poll_since(&mut self, began: u64) -> Result<isize> {
        let mut peer_processor = 0;
        for entry in self.entries.iter() {
            match table::get(entry.fd).kind() {
                Kind::Stream => {
                    if let Some(s) = shunt_stream::socket::stream(entry.fd) {
                        peer_processor = s.peer().wait.processor.load(Ordering::Relaxed);
                        spin::show_processor(&s.own().wait);
                    }
                }
                _ if entry.fd >= 0 => {
                    self.foreign = true;
                    self.strange |= !is_kept(entry);
                    self.question.add(entry.fd, entry.events);
                }
                _ => {}
            }
        }
        progress::drive();
        let ready = self.first_look()?;
        if ready > 0 || self.deadline == 0 {
            if (ready == 0 && self.check_peers()) || (ready > 0 && (self.check_half_ended() || self.check_now_and_then())) {
                return self.look();
            }
            if ready == 0 {
                self.take_signals()?;
            }
            return Ok(ready);
        }
        self.take_signals()?;
        let only_kernel_tells = peer_processor == 0 && self.entries.iter().any(|entry| kernel_sockets::is(entry.fd));
        until(&mut Waiting { query: self, began, peer_processor, only_kernel_tells })
    }

    /// Calls `each` for the datagram sockets that are asked for input.
    fn datagrams(&mut self, each: impl Fn(i32, &'static datagram::Datagram, &mut i16)) {
        for entry in self.entries.iter_mut().filter(|entry| entry.events & (POLLIN | libc::POLLRDNORM) != 0) {
            if let Some(socket) = shunt_table::table::find::<Datagram>(entry.fd) {
                each(entry.fd, socket, &mut entry.revents);
            }
        }
    }

    /// A signal that waits for this very mask ends the call before anything else comes, also one that does not wait
    /// (`do_poll` in fs/select.c).
    fn take_signals(&self) -> Result<()> {
        if !self.mask.is_null() {
            let mut zero = spin::ZERO;
            calls::ppoll(core::ptr::null_mut(), 0, &mut zero, self.mask, calls::KERNEL_SIGSET)?;
        }
        Ok(())
    }

    fn expired(&self) -> bool {
        self.deadline != u64::MAX && clock::monotonic_ns() >= self.deadline
    }
}

fn asks_for_space(events: i16) -> bool {
    events & (POLLOUT | libc::POLLWRNORM) != 0
}
