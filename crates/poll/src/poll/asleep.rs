//! The account of a sleep in poll: on what the calling thread is counted as asleep.

use super::asks_for_space;
use core::sync::atomic::Ordering;
use shunt_epoll::Set;
use shunt_segment::channel::Wait;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::holding::{no_longer_asleep, Waiter};
use shunt_stream::waiting::wake_pollers;
use shunt_stream::waiting::wake_pollers::Beside;
use shunt_sys::libc::{self, pollfd, POLLIN};
use shunt_sys::sleeper::Account;
use shunt_table::table;
use shunt_table::table::Kind;

/// Where a thread in poll is counted as asleep.
#[derive(Clone, Copy)]
pub(super) enum Counted {
    Set(&'static Set),
    Stream(&'static Wait),
    Nothing,
}

/// The account of a sleep in poll.
pub(super) struct Asleep<'a> {
    pub(super) entries: &'a [pollfd],
    /// Another thread may close a descriptor during the sleep: the sockets that were counted are remembered.
    pub(super) sleepers: &'a mut [Option<(Waiter, Counted)>],
    pub(super) beside: Option<Beside>,
}

impl Asleep<'_> {
    /// How often this call is counted as asleep on `socket`.
    pub(super) fn times_counted(&self, socket: &Socket) -> u32 {
        self.sleepers.iter().flatten().filter(|(waiter, _)| waiter.is_on(socket)).count() as u32
    }
}

impl Account for Asleep<'_> {
    fn enter(&mut self) {
        let told = |s: &Socket| s.has(flag::SHARED | flag::SLOW_RECEIVE | flag::ERROR_QUEUE) || s.connected.stalled.limited();
        if self.entries.iter().any(|e| shunt_stream::socket::stream(e.fd).is_some_and(|s| nudged(e.events) || told(s))) {
            self.beside = wake_pollers::news().begin();
        } else if self.entries.iter().any(|e| shunt_stream::socket::stream(e.fd).is_some()) {
            self.beside = wake_pollers::of_carried().begin();
        }
        for (entry, counted) in self.entries.iter().zip(self.sleepers.iter_mut()) {
            let word = table::get(entry.fd);
            if let Some(set) = word.object::<Set>() {
                set.sleeps(true);
                *counted = Some((Waiter::in_set(set.head()), Counted::Set(set)));
            } else if let Some(s) = word.object::<Socket>() {
                let stream = word.kind() == Kind::Stream;
                let wait = stream.then(|| &s.own().wait);
                if let Some(wait) = wait {
                    wait.sleepers.fetch_add(1, Ordering::Relaxed);
                }
                *counted = Some((Waiter::on(s), wait.map_or(Counted::Nothing, Counted::Stream)));
            }
        }
    }

    fn leave(&mut self) {
        for (waiter, counted) in self.sleepers.iter_mut().filter_map(Option::take) {
            match counted {
                Counted::Set(set) => set.sleeps(false),
                Counted::Stream(wait) => no_longer_asleep(wait),
                Counted::Nothing => {}
            }
            waiter.leave();
        }
        if let Some(beside) = self.beside.take() {
            beside.end();
        }
    }
}

/// Whether what this side's own threads do can be news for a call that asks for `events`: a `shutdown`, that there is space (an error) or,
/// once the peer has ended, POLLHUP; a receive, that the end behind the bytes has come. A call that asks for input knows already, but where
/// SO_RCVLOWAT says what is enough.
fn nudged(events: i16) -> bool {
    asks_for_space(events) || events & (POLLIN | libc::POLLRDNORM) == 0
}
