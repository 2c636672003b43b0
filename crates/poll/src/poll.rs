//! poll(2) over accelerated and kernel descriptors together.
//!
//! Streams are looked at in memory; the kernel is asked about the others. Before sleeping, streams are armed and their
//! companions stand in for them in the kernel's set; a listener stands for its two queues.

use crate::asking::{self, Question};
use crate::epoll;
use crate::epoll::Set;
use core::sync::atomic::Ordering;
use shunt_inbox::datagram::Datagram;
use shunt_inbox::{datagram, local};
use shunt_rendezvous::accept::deferred;
use shunt_rendezvous::reconnect::shared_server;
use shunt_rendezvous::{accept, listen};
use shunt_segment::channel::{arm, state, style, Wait};
use shunt_stream::deadlines;
use shunt_stream::progress::{self, Sleeper};
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::holding::{no_longer_asleep, Waiter};
use shunt_stream::waiting::kernel_sockets;
use shunt_stream::waiting::spin::{self, Spin};
use shunt_stream::waiting::until::{until, Look, Source};
use shunt_stream::waiting::wake_pollers::Beside;
use shunt_stream::waiting::{bells, readiness, wake, wake_pollers};
use shunt_stream::{due, error_queue, events, sleep};
use shunt_sys::libc::{self, pollfd, sigset_t, timespec, POLLERR, POLLHUP, POLLIN, POLLOUT};
use shunt_sys::sleeper::{counted, Account, Open};
use shunt_sys::{calls, clock, sleeping, thread, Errno, Result};
use shunt_table::memory::scratch::Scratch;
use shunt_table::table;
use shunt_table::table::{Kind, Word};

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
    /// What it is asked ([`asking`]).
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

/// Whether `fd` is a datagram socket: its datagrams may lie in shared memory, or another thread may make that so.
pub fn has_inbox(fd: i32) -> bool {
    datagram::is(fd)
}

/// A deadline from a relative timeout; negative or absent: none; zero stays zero.
pub fn deadline(timeout_ns: Option<u64>) -> u64 {
    match timeout_ns {
        None => u64::MAX,
        Some(0) => 0,
        Some(ns) => clock::monotonic_ns().saturating_add(ns).max(1),
    }
}

/// Ticks between two looks for peers that were killed while something is always ready (about a millisecond), and the addition for
/// each entry.
const BETWEEN: [u64; 2] = [2_000_000, 25_000];

/// Whether it is time for such a look, in a call with `count` entries.
#[inline]
pub fn due_for_check(socket: &Socket, now: u64, count: usize) -> bool {
    let [least, each] = BETWEEN;
    now.wrapping_sub(socket.last_check.load(Ordering::Relaxed)) > least + each * count as u64
}

/// Sleep limit (ns) of a thread that hears no bells of a stream.
const DEAF: u64 = 1_000_000;

/// Entries of the kernel's version of a set for one of ours: a listener has three queues.
const QUEUES: usize = 3;

/// What the kernel is asked about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All that are not streams.
    All,
    /// Those of them that are not ours.
    Strange,
}

/// What a datagram socket or an AF_UNIX end says only of what comes to it.
const INPUT: i16 = POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLPRI;

/// Whether the kernel is asked about `entry` now and then only, while memory has an answer: a listener whose clients need no looking after,
/// or a socket that may have an inbox, of which nothing but input is asked.
fn is_ours(entry: &pollfd) -> bool {
    is_kept(entry) && !is_unsettled(entry)
}

/// The same, before it is known whether memory has an answer.
fn is_kept(entry: &pollfd) -> bool {
    let word = table::get(entry.fd);
    match word.kind() {
        Kind::Listener => word.object::<Socket>().is_some_and(|listener| !deferred::concern(listener)),
        Kind::Datagram => entry.events & !INPUT == 0,
        _ => false,
    }
}

/// Whether the kernel may know something of an AF_UNIX end that no inbox tells.
fn is_unsettled(entry: &pollfd) -> bool {
    table::get(entry.fd).object::<Datagram>().is_some_and(|socket| socket.is_local() && !local::is_settled(socket))
}

/// Where a thread in poll is counted as asleep.
#[derive(Clone, Copy)]
enum Counted {
    Set(&'static epoll::Set),
    Stream(&'static Wait),
    Nothing,
}

/// The account of a sleep in poll.
struct Asleep<'a> {
    entries: &'a [pollfd],
    /// Another thread may close a descriptor during the sleep: the sockets that were counted are remembered.
    sleepers: &'a mut [Option<(Waiter, Counted)>],
    beside: Option<Beside>,
}

impl Asleep<'_> {
    /// How often this call is counted as asleep on `socket`.
    fn times_counted(&self, socket: &Socket) -> u32 {
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
        shunt_stream::progress::drive();
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

    /// Fills in what holds now.
    fn look(&mut self) -> Result<isize> {
        let ready = self.look_at_streams();
        self.ask_beside(ready)
    }

    /// The same, before a wait. Where the kernel had nothing to say a moment ago, the question is left to the wait: it asks after some
    /// looks, and before it sleeps. Not where a signal may end the call, which comes behind all that is ready, nor in select where one of
    /// the kernel's numbers may have been closed before, which is another thing than during the call.
    fn first_look(&mut self) -> Result<isize> {
        let ready = self.look_at_streams();
        let leaves = self.foreign && self.deadline != 0 && self.mask.is_null() && !(self.forgiving && self.strange);
        if ready == 0 && leaves && !self.is_due() {
            return Ok(if self.is_strange() { 0 } else { self.look_at_inboxes() });
        }
        self.ask_beside(ready)
    }

    fn look_at_streams(&mut self) -> isize {
        let mut ready = 0;
        for entry in self.entries.iter_mut() {
            entry.revents = match shunt_stream::socket::stream(entry.fd) {
                Some(s) => events::events(s, entry.events | ALWAYS),
                None => 0,
            };
            ready += (entry.revents != 0) as isize;
        }
        ready
    }

    /// The number of entries that are ready, of which `ready` are streams.
    fn ask_beside(&mut self, ready: isize) -> Result<isize> {
        if !self.foreign {
            return Ok(ready);
        }
        if self.is_due() {
            return Ok(ready + self.look_foreign(Part::All)?);
        }
        match (ready + self.look_at_inboxes(), self.is_strange()) {
            (0, _) => self.look_foreign(Part::All),
            // Which counts what lies in inboxes once more.
            (_, true) => Ok(ready + self.look_foreign(Part::Strange)?),
            (all, false) => Ok(all),
        }
    }

    /// Whether the kernel is to be asked about some in each answer.
    fn is_strange(&self) -> bool {
        self.strange || (self.foreign && self.entries.iter().any(is_unsettled))
    }

    /// Fills in what lies in inboxes; the number of sockets.
    fn look_at_inboxes(&mut self) -> isize {
        let mut ready = 0;
        for entry in self.entries.iter_mut() {
            if let Some(socket) = shunt_table::table::find::<Datagram>(entry.fd) {
                entry.revents = datagram::events(socket) & entry.events;
                ready += (entry.revents != 0) as isize;
            }
        }
        ready
    }

    /// Whether an answer is given only after the kernel was asked about all that are not streams.
    fn is_due(&self) -> bool {
        self.deadline == 0 || self.told || self.slept || !self.question.is_quiet() || self.any_bid()
    }

    /// Whether some client bids in memory for one of the listeners.
    fn any_bid(&self) -> bool {
        let waits = |entry: &pollfd| {
            let word = table::get(entry.fd);
            word.kind() == Kind::Listener && word.object::<Socket>().is_some_and(shared_server::any)
        };
        self.foreign && shared_server::expects() && self.entries.iter().any(waits)
    }

    fn any_stream_ready(&self) -> bool {
        self.entries.iter().any(|e| match shunt_stream::socket::stream(e.fd) {
            Some(s) => events::events(s, e.events | ALWAYS) != 0,
            None => shunt_table::table::find::<Datagram>(e.fd).is_some_and(|d| datagram::events(d) & e.events != 0),
        })
    }

    /// Asks the kernel about entries that are not streams, without waiting; gives the number that are ready.
    fn look_foreign(&mut self, part: Part) -> Result<isize> {
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
    fn fill(&self, target: &mut [pollfd], mut streams: Option<&mut u64>, part: Part) -> usize {
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

    /// The same, of those that said an end and have more to say: what was found may be that end, which is nothing new. And of
    /// servers that have not accepted: they refuse without a word.
    fn check_half_ended(&self) -> bool {
        let mut gone = false;
        for entry in self.entries.iter().filter(|entry| entry.revents != 0) {
            let Some(s) = shunt_stream::socket::stream(entry.fd) else { continue };
            if s.has(flag::UNACCEPTED) {
                readiness::while_unaccepted(s, entry.fd);
            } else if readiness::half_ended(s) {
                wake::ask_peer(s, entry.fd);
            } else {
                continue;
            }
            gone |= s.own().receive.state.load(Ordering::Relaxed) & state::PEER_GONE != 0;
        }
        gone
    }

    /// The same, where a program that finds something ready in each call never comes to wait.
    fn check_now_and_then(&self) -> bool {
        let (now, count) = (clock::ticks(), self.entries.len());
        self.check_those(|s| due_for_check(s, now, count))
    }

    /// Whether some peer turns out to be gone.
    fn check_peers(&self) -> bool {
        self.check_those(|_| true)
    }

    fn check_those(&self, due: impl Fn(&Socket) -> bool) -> bool {
        let mut gone = due::keep();
        shunt_stream::beside::drive();
        for entry in self.entries.iter() {
            if let Some(s) = shunt_stream::socket::stream(entry.fd).filter(|s| due(s)) {
                wake::check_peer(s, entry.fd);
                gone |= s.own().receive.state.load(Ordering::Relaxed) & (state::PEER_GONE | state::TIMED_OUT) != 0;
            }
        }
        gone | due::keep()
    }

    /// Arms everything and sleeps; true when the deadline passed.
    fn sleep(&mut self, began: u64) -> Result<bool> {
        shunt_stream::beside::drive();
        let mut sleepers = Scratch::new(self.entries.len(), None, self.frame)?;
        let account = Asleep { entries: self.entries, sleepers: sleepers.items(), beside: None };
        let (mut result, unheard) = counted(account, |open| {
            let (due, unheard) = self.arm(open);
            let beside = || open.with(|account| account.beside.map_or(-1, |beside| beside.descriptor)).unwrap_or(-1);
            let result = if unheard.is_none() { self.sleep_armed(due, began, beside()) } else { Ok(false) };
            (result, unheard)
        });
        self.slept = true;
        if let Some(s) = unheard {
            result = match s.hold.let_others_go(self.deadline, self.mask, began) {
                Err(Errno(libc::EINTR)) if self.any_stream_ready() => Ok(false),
                paused => paused.map(|()| self.expired()),
            };
        }
        // What was closed meanwhile is the kernel's to speak of, unless its number is another's by now.
        self.foreign |= self.entries.iter().any(|e| e.fd >= 0 && shunt_stream::socket::stream(e.fd).is_none());
        result
    }

    /// Arms all entries. Whether a barrier is due, whether there are streams to other hosts, and a stream on which others were woken that have not looked.
    fn arm(&self, open: &Open<Asleep>) -> ([bool; 2], Option<&'static Socket>) {
        let (mut due, mut remote, mut unheard) = (false, false, None);
        for entry in self.entries.iter() {
            if let Some(set) = table::get(entry.fd).object::<Set>() {
                due |= epoll::arm_sleeping(set);
                remote |= set.remote.load(Ordering::Relaxed);
            } else if let Some(s) = shunt_stream::socket::stream(entry.fd) {
                if unheard.is_none() {
                    // The entries are gone through only where more than one sleeper is: with ten thousand of them that would be a
                    // hundred million looks, 60 ms.
                    let mine = match s.hold.sleepers() <= 1 {
                        true => 1,
                        false => open.with(|account| account.times_counted(s)).unwrap_or(0),
                    };
                    if !bells::take_heard(s, entry.fd, mine) {
                        unheard = Some(s);
                    }
                }
                due |= prepare(s, entry.events);
                remote |= s.has(flag::REMOTE);
            }
        }
        ([due, remote], unheard)
    }

    fn sleep_armed(&self, [due, remote]: [bool; 2], began: u64, beside: i32) -> Result<bool> {
        if due {
            wake::barrier();
        }
        due::keep();
        let Some(watch) = progress::watch(if remote { Sleeper::Beside } else { Sleeper::Elsewhere }) else { return Ok(false) };
        let kept = deadlines::next().min(watch.due);
        let any_set_ready = || self.entries.iter().any(|e| table::get(e.fd).object::<Set>().is_some_and(epoll::in_memory));
        if self.any_stream_ready() || any_set_ready() {
            return Ok(false);
        }
        if thread::interrupted_since(began, false) {
            return Err(Errno(libc::EINTR)); // a handler ran while we looked
        }
        let mut scratch = Scratch::new(self.entries.len() * QUEUES + 2, NO_ENTRY, self.frame)?;
        let mut longest = u64::MAX;
        let count = self.fill(scratch.items(), Some(&mut longest), Part::All);
        let limit = match longest {
            u64::MAX => self.deadline,
            longest => self.deadline.min(clock::monotonic_ns() + longest),
        };
        let limit = limit.min(kept);
        let mut time;
        let mut pointer = core::ptr::null_mut();
        if limit != u64::MAX {
            let left = limit.saturating_sub(clock::monotonic_ns());
            time = timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
            pointer = &mut time;
        }
        let mut all = count;
        for fd in [beside, watch.descriptor].into_iter().filter(|fd| *fd >= 0) {
            scratch.items()[all] = pollfd { fd, events: POLLIN, revents: 0 };
            all += 1;
        }
        let set = scratch.items().as_mut_ptr();
        sleeping::ppoll(set, all, pointer, self.mask, began)?;
        let mut gone = false;
        for answer in scratch.items()[..count].iter().filter(|answer| answer.revents != 0) {
            let Some(s) = shunt_stream::socket::stream(answer.fd) else { continue };
            if answer.revents & POLLIN != 0 {
                s.hold.woken();
            }
            if answer.revents & (POLLERR | POLLHUP) != 0 {
                gone |= readiness::note_if_gone(s, answer.fd);
            }
        }
        if gone && !self.any_stream_ready() {
            // Nothing that was asked for follows from the end: poll must not turn into a busy loop.
            wake::pause(1_000_000, self.deadline, self.mask, began)?;
        }
        Ok(self.expired())
    }

    fn expired(&self) -> bool {
        self.deadline != u64::MAX && clock::monotonic_ns() >= self.deadline
    }
}

/// The wait of a call that found nothing at first.
struct Waiting<'q, 'a> {
    query: &'q mut Query<'a>,
    began: u64,
    /// Where the peer of a stream among the entries waits.
    peer_processor: u32,
    /// Connections that the kernel has are among them, and no streams.
    only_kernel_tells: bool,
}

impl Waiting<'_, '_> {
    /// A look that may find something, or fail.
    fn try_look(&mut self, spin: &Spin) -> Result<Option<isize>> {
        let every = if self.only_kernel_tells { 0x3 } else { 0x3f };
        let query = &mut *self.query;
        if query.any_stream_ready() || (query.foreign && spin.rounds() & every == every && query.look_foreign(Part::All)? > 0) {
            return query.look().map(Some);
        }
        if query.any_bid() {
            let ready = query.look()?;
            if ready > 0 {
                return Ok(Some(ready));
            }
        }
        if spin.rounds() & 0xfff == 0xfff {
            query.check_peers();
        }
        Ok(None)
    }

    fn try_woken(&mut self, slept: Result<bool>) -> Result<Option<isize>> {
        let query = &mut *self.query;
        let expired = slept?;
        let ready = query.look()?;
        if ready > 0 || expired {
            return Ok(Some(ready));
        }
        for set in query.entries.iter().filter_map(|entry| table::get(entry.fd).object::<Set>()) {
            epoll::rest_if_noisy(set, query.deadline, query.mask, self.began)?;
        }
        Ok(None)
    }
}

impl Source for Waiting<'_, '_> {
    type Outcome = Result<isize>;
    /// Whether the deadline passed.
    type Slept = Result<bool>;

    fn begin(&mut self) -> Spin {
        let query = &mut *self.query;
        let soon = query.foreign && shared_server::bid_is_near();
        let spin = spin::begin_expecting(self.peer_processor, soon).among(query.entries.len());
        if spin.begins() {
            query.datagrams(|fd, socket, _| datagram::before_spin(fd, socket));
        }
        spin
    }

    #[inline(always)]
    fn look(&mut self, spin: &Spin) -> Look<Result<isize>> {
        shunt_stream::progress::drive();
        match self.try_look(spin).transpose() {
            Some(found) => Look::Found(found),
            None => Look::Nothing,
        }
    }

    fn sleep(&mut self, _: &Spin) -> Result<bool> {
        let query = &mut *self.query;
        // What was shut for an entry is kept where its events will come.
        query.datagrams(|_, socket, revents| *revents = datagram::before_sleep(socket).pack(socket));
        let slept = query.sleep(self.began);
        query.datagrams(|_, socket, revents| {
            // By number: another thread may have closed the socket, or put another one there.
            if let Some(sleeper) = datagram::Sleeper::unpack(socket, *revents) {
                datagram::after_sleep(socket, sleeper);
            }
        });
        slept
    }

    fn woken(&mut self, slept: Result<bool>) -> Option<Result<isize>> {
        self.try_woken(slept).transpose()
    }
}

/// Whether what this side's own threads do can be news for a call that asks for `events`: a `shutdown`, that there is space (an error) or,
/// once the peer has ended, POLLHUP; a receive, that the end behind the bytes has come. A call that asks for input knows already, but where
/// SO_RCVLOWAT says what is enough.
fn nudged(events: i16) -> bool {
    asks_for_space(events) || events & (POLLIN | libc::POLLRDNORM) == 0
}

fn asks_for_space(events: i16) -> bool {
    events & (POLLOUT | libc::POLLWRNORM) != 0
}

/// Before sleeping in a set: conditions armed; true if a barrier is due (one for all).
pub fn prepare(socket: &Socket, events: i16) -> bool {
    let mut conditions = arm::IN;
    // Completions of MSG_ZEROCOPY come with the room that the peer makes.
    if asks_for_space(events) || error_queue::awaits(socket) {
        conditions |= arm::OUT;
    }
    sleep::set_style(socket, style::POLL);
    wake::announce(socket, conditions)
}
