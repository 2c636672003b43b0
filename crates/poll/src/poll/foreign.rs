//! What the kernel is asked: its version of the entries, and what its answers say of the program's.

use super::look::is_ours;
use super::{asks_for_space, Query, ALWAYS, NO_ENTRY};
use crate::asking;
use shunt_epoll as epoll;
use shunt_epoll::Set;
use shunt_inbox::datagram::Datagram;
use shunt_inbox::{datagram, local};
use shunt_rendezvous::accept::deferred;
use shunt_rendezvous::reconnect::shared_server;
use shunt_rendezvous::{accept, listen};
use shunt_stream::socket::Socket;
use shunt_stream::waiting::bells;
use shunt_stream::waiting::spin;
use shunt_sys::libc::{self, pollfd, POLLHUP, POLLIN};
use shunt_sys::{calls, clock, Result};
use shunt_table::memory::scratch::Scratch;
use shunt_table::table;
use shunt_table::table::Kind;

/// Sleep limit (ns) of a thread that hears no bells of a stream.
const DEAF: u64 = 1_000_000;

/// Entries of the kernel's version of a set for one of ours: a listener has three queues.
pub(super) const QUEUES: usize = 3;

/// What the kernel is asked about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All that are not streams.
    All,
    /// Those of them that are not ours.
    Strange,
}

impl Query<'_> {
    /// Asks the kernel about entries that are not streams, without waiting; gives the number that are ready.
    pub(super) fn look_foreign(&mut self, part: Part) -> Result<isize> {
        let mut scratch = Scratch::new(self.entries.len() * QUEUES, NO_ENTRY, self.frame)?;
        let count = self.fill(scratch.items(), None, part);
        let mut zero = spin::ZERO;
        calls::ppoll(scratch.items().as_mut_ptr(), count, &mut zero, core::ptr::null(), calls::KERNEL_SIGSET)?;
        // What only inboxes hold is no news of the kernel's.
        let found = scratch.items()[..count].iter().any(|answer| answer.revents != 0);
        let ready = self.merge(&scratch.items()[..count]);
        self.told |= found;
        match part {
            Part::All => self.question.was_asked(clock::ticks(), found),
            Part::Strange if found => asking::found(),
            Part::Strange => {}
        }
        Ok(ready)
    }

    /// Writes the kernel's version of `part` of the set: three entries for a listener, and what hears streams' bells if `streams`, which
    /// is lowered to how long, in ns, a thread sleeps at most for which something may come that nothing tells.
    pub(super) fn fill(&self, target: &mut [pollfd], mut streams: Option<&mut u64>, part: Part) -> usize {
        let mut count = 0;
        let mut push = |fd: i32, events: i16| {
            target[count] = pollfd { fd, events, revents: 0 };
            count += 1;
        };
        for entry in self.entries.iter() {
            let word = table::get(entry.fd);
            match (word.kind(), word.object::<Socket>(), &mut streams) {
                (Kind::Stream, Some(_), None) => push(-1, 0),
                (Kind::Stream, Some(s), Some(longest)) => {
                    let listening = bells::listen(s, entry.fd, asks_for_space(entry.events));
                    if listening.deaf {
                        **longest = DEAF;
                    }
                    push(entry.fd, listening.companion);
                    push(listening.listener, POLLIN);
                }
                (Kind::Listener, Some(_), _) if part == Part::Strange && is_ours(entry) => {
                    (0..QUEUES).for_each(|_| push(-1, 0));
                }
                (Kind::Listener, Some(s), _) => {
                    push(entry.fd, entry.events);
                    let [rendezvous, bells] = accept::queues(s);
                    let readable = entry.events & (POLLIN | libc::POLLRDNORM);
                    // One that refuses clients says so by that, and is readable.
                    push(rendezvous, if readable == 0 { 0 } else { readable | libc::POLLRDHUP });
                    push(bells, readable);
                }
                _ if part == Part::Strange && is_ours(entry) => push(-1, 0),
                _ => push(entry.fd, entry.events),
            }
        }
        count
    }

    /// Takes the kernel's answers over into the program's entries (not for streams).
    fn merge(&mut self, answers: &[pollfd]) -> isize {
        let mut ready = 0;
        let mut at = 0;
        for entry in self.entries.iter_mut() {
            let word = table::get(entry.fd);
            let Some(answer) = answers.get(at) else { break };
            at += 1;
            match word.kind() {
                Kind::Stream => continue,
                Kind::Listener => {
                    entry.revents = answer.revents;
                    // A rendezvous that refuses clients is readable for ever, until it is retired.
                    let retired =
                        |events: i16| events & libc::POLLRDHUP != 0 && word.object::<Socket>().is_some_and(listen::retired);
                    let defers = word.object::<Socket>().filter(|s| deferred::concern(s));
                    let own = (entry.events | ALWAYS) & !libc::POLLRDHUP;
                    if let (Some(s), Some([rendezvous, bells])) = (defers, answers.get(at..at + 2)) {
                        let somebody = if retired(rendezvous.revents) { 0 } else { rendezvous.revents };
                        let told = (somebody | bells.revents) & own;
                        deferred::polls();
                        if told != 0 && accept::ready(entry.fd, s) {
                            entry.revents |= told;
                        }
                    } else if let Some([rendezvous, bells]) = answers.get(at..at + 2) {
                        if rendezvous.revents != 0 && !retired(rendezvous.revents) {
                            accept::told();
                            entry.revents |= rendezvous.revents & own;
                        }
                        // A client's bell may be readable when its offer has been accepted.
                        if bells.revents != 0 && word.object::<Socket>().is_none_or(|s| accept::ready(entry.fd, s)) {
                            entry.revents |= bells.revents & (entry.events | ALWAYS);
                        }
                        let readable = entry.events & (POLLIN | libc::POLLRDNORM);
                        if entry.revents & readable != readable
                            && word.object::<Socket>().is_some_and(|s| shared_server::tell(s, false))
                        {
                            entry.revents |= readable;
                        }
                    }
                    at += 2;
                }
                Kind::Epoll => {
                    entry.revents = answer.revents;
                    if let Some(set) = word.object::<Set>() {
                        let readable = epoll::readable(set, answer.revents & (POLLIN | libc::POLLRDNORM) != 0);
                        let holds = if readable { (POLLIN | libc::POLLRDNORM) & entry.events } else { 0 };
                        entry.revents = entry.revents & !(POLLIN | libc::POLLRDNORM) | holds;
                    }
                }
                Kind::Datagram => {
                    let waiting = word.object::<Datagram>().map_or(0, datagram::events);
                    entry.revents = answer.revents | waiting & entry.events;
                    if answer.revents & POLLHUP != 0 {
                        entry.revents |= word.object::<Datagram>().map_or(0, |socket| local::error(entry.fd, socket));
                    }
                }
                _ => entry.revents = answer.revents,
            }
            if self.forgiving && self.slept && entry.revents == libc::POLLNVAL {
                entry.revents = entry.events;
            }
            ready += (entry.revents != 0) as isize;
        }
        ready
    }
}
