//! The keeper: a process that holds what must outlive a stream's program, and drives when no thread of the program does.
//!
//! It alone holds the far ends of companions, so a hang-up there says that no process has the near one any more, however they
//! ended; and its own death is a hang-up at all of them. It holds the shadow connections, whose hang-up says that the peer's
//! keeper, or its host, is gone. It never reads a byte of the program's but from the rings.

use super::askers::Askers;
use super::local_station::LocalStation;
use super::message::Message;
use super::pump::{Rings, WINDOW};
use super::stream_life::{self, Event};
use super::stream_words::{self, flag, mode};
use super::tcp_fallback::{Shadow, BEFORE};
use super::{batching, driving, marks, station_owner, switch_to_tcp};
use core::sync::atomic::{fence, Ordering};
use shunt_segment::address::Address;
use shunt_segment::channel::{arm, life, release};
use shunt_station::{Discovery, Station, Stream, LISTENERS};
use shunt_stream::corked;
use shunt_stream::waiting::{bypass, wake};
use shunt_sys::libc::{
    self, epoll_event, EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLL_CTL_ADD, EPOLL_CTL_DEL, MSG_DONTWAIT,
};
use shunt_sys::{calls, clock, Errno};
use shunt_table::process::helper;
use shunt_table::{diag, fd_passing};

const STREAMS: usize = stream_words::STREAMS as usize;

/// While threads of the program drive, the keeper leaves the endpoint to them, and looks at the clock so often (ns).
const TICK: u64 = 2_000_000;
/// A thread of the program that has driven so recently does nothing else (ns): the pause becomes longer, up to [`driving::SLACK`].
const HOT: u64 = 100_000;
/// A peer's keeper that let go of the shadow may have said the end by messages that are still on their way (ns).
const GRACE: u64 = 500_000_000;
/// How long the peer of a program that has closed may take to close, too, when it has everything (tcp_fin_timeout, ns).
const ORPHAN: u64 = 60_000_000_000;
/// How long it may take nothing of what is left (ns). TCP's probes go on for some minutes, too.
const STALLED: u64 = 240_000_000_000;
/// The same where the other host is not heard of any more, by frames or by TCP (ns): as long as eight retransmissions of Linux's TCP take, which is what
/// a connection without a program gets there (tcp_orphan_retries in tcp(7)).
const VANISHED: u64 = 100_000_000_000;

/// What an event is about, in the upper half of its data.
mod about {
    pub const CONTROL: u64 = 0;
    pub const ENDPOINT: u64 = 1;
    pub const GATE: u64 = 2;
    pub const QUERY: u64 = 3;
    pub const NEAR: u64 = 4;
    pub const SHADOW: u64 = 5;
    pub const VERDICT: u64 = 6;
}

/// A stream whose program has closed it.
#[derive(Clone, Copy)]
struct Orphan {
    /// When to look (ns); 0: its program has it.
    look_at: u64,
    /// Bytes that the peer had at the last look, plus one, and since when.
    had: u64,
    since: u64,
    /// It had everything.
    whole: bool,
}

impl Orphan {
    const NONE: Orphan = Orphan { look_at: 0, had: 0, since: 0, whole: false };

    /// Whether its peer is given more time: as long as bytes go, and once more when they are gone.
    fn may_go_on(&mut self, station: &Station, stream: Stream, now: u64) -> bool {
        let (sent, had) = (
            stream_words::get(station, stream, stream_words::SENT),
            stream_words::get(station, stream, stream_words::ACKNOWLEDGED),
        );
        let whole = stream_words::flags(station, stream) & flag::FIN_OUT != 0 && sent == had;
        let most = if stream_words::way(station, stream) == mode::RESUMING { VANISHED } else { STALLED };
        self.judge(had, whole, most, now)
    }

    /// As long as bytes go, or none have gone for less than `most`; where it is `whole`, for one look more.
    fn judge(&mut self, had: u64, whole: bool, most: u64, now: u64) -> bool {
        if whole && self.whole {
            return false;
        }
        if self.had != had + 1 {
            // At the first look it is not known whether any have gone since it was closed.
            let since = if self.had == 0 { self.since } else { now };
            (self.had, self.since) = (had + 1, since);
        }
        (self.whole, self.look_at) = (whole, now + ORPHAN);
        whole || now - self.since < most
    }

    /// Its program has closed it.
    fn closed(now: u64) -> Orphan {
        Orphan { look_at: now + ORPHAN, since: now, ..Orphan::NONE }
    }
}

struct Keeper {
    local: &'static LocalStation,
    control: i32,
    epoll: i32,
    shadows: [Shadow; STREAMS],
    /// Over which a program is to say whether it has taken the shadow that it was given; -1: it has said so, or was given none.
    verdicts: [i32; STREAMS],
    /// When a stream's shadow ended, or its program closed (ns); 0: neither.
    ends_at: [u64; STREAMS],
    orphans: [Orphan; STREAMS],
    kept: usize,
    /// A stream came for which there were no descriptors: it is to be released.
    lost: bool,
    queries: [(u64, i32); LISTENERS],
    gates: [Option<Discovery>; 2],
    askers: Askers,
    watching: bool,
    /// How long it sleeps while others drive (ns).
    tick: u64,
    holds: batching::Watcher,
    /// The last sleep ended by an event.
    woken: bool,
    /// When what programs hold back is due (ns).
    held_until: u64,
}

/// Keeps, until no process needs it.
pub fn run(local: &'static LocalStation, control: i32) -> ! {
    let Ok(epoll) = calls::epoll_create1(libc::EPOLL_CLOEXEC) else { helper::exit(1) };
    let mut keeper = Keeper {
        local,
        control,
        epoll,
        shadows: [const { Shadow::NONE }; STREAMS],
        verdicts: [-1; STREAMS],
        ends_at: [0; STREAMS],
        orphans: [Orphan::NONE; STREAMS],
        lost: false,
        kept: 0,
        queries: [(0, -1); LISTENERS],
        gates: [None, None],
        askers: Askers::NONE,
        watching: false,
        tick: TICK,
        holds: batching::Watcher::new(),
        woken: true,
        held_until: u64::MAX,
    };
    keeper.watch(control, EPOLLIN as u32, about::CONTROL, 0);
    while keeper.control >= 0 || keeper.kept > 0 {
        keeper.round();
    }
    helper::exit(0)
}

impl Keeper {
    fn watch(&self, fd: i32, events: u32, about: u64, which: u32) -> bool {
        let mut event = epoll_event { events, u64: about << 32 | u64::from(which) };
        calls::epoll_ctl(self.epoll, EPOLL_CTL_ADD, fd, &mut event).is_ok()
    }

    fn forget(&self, fd: i32) {
        let _ = calls::epoll_ctl(self.epoll, EPOLL_CTL_DEL, fd, core::ptr::null_mut());
    }

    fn round(&mut self) {
        let local = self.local;
        let common = local.common();
        let began = clock::monotonic_ns();
        let driven = local.station.driven_at();
        // What only the keeper can do comes with an event; all else is the program's, as long as it drives.
        let mut others = driven != 0 && began.saturating_sub(driven) < TICK;
        // A program that drives all the time is disturbed rarely.
        let hot = others && !self.woken && began.saturating_sub(driven) < HOT;
        self.tick = if hot { (2 * self.tick).min(driving::SLACK) } else { TICK };
        if self.holds.is_due(local) {
            self.tick = batching::TICK;
        }
        self.release_held(began);
        let mut until = began + self.tick;
        let mut ready = true;
        if self.holds.finds(local, began) || !others || self.woken {
            match driving::turn(local, None) {
                Some(deadline) if !others => until = deadline,
                Some(_) => {}
                // A thread drives at this moment, and looks once more: to wait awake might keep the processor from it.
                None => others = true,
            }
        }
        common.called.store(0, Ordering::SeqCst);
        let again = self.tend().min(self.after_turn());
        if self.control < 0 && self.kept == 0 {
            return; // nothing would wake it
        }
        if !others {
            ready = self.arm();
        }
        if others == self.watching {
            self.watching = !others;
            if self.watching {
                self.watch(local.station.poll_fd(), EPOLLIN as u32, about::ENDPOINT, 0);
            } else {
                self.forget(local.station.poll_fd());
            }
        }
        until = until.min(self.next_end()).min(again).min(self.held_until);
        common.sleeps_until.store(until, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let look = !others && {
            // Marks, and deadlines that came in between.
            let due = local.station.deadline().is_some_and(|deadline| deadline < until);
            let marked = common.is_any_marked(Ordering::SeqCst);
            let held = common.held_back.load(Ordering::SeqCst) != 0;
            !ready || due || marked || held || !local.station.arm()
        };
        let left = if look { 0 } else { until.saturating_sub(clock::monotonic_ns()) };
        let time = libc::timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        let time = if until == u64::MAX && !look { core::ptr::null() } else { &raw const time };
        let mut events = [epoll_event { events: 0, u64: 0 }; 32];
        let got = calls::epoll_pwait2(self.epoll, events.as_mut_ptr(), 32, time, core::ptr::null(), calls::KERNEL_SIGSET);
        common.sleeps_until.store(0, Ordering::SeqCst);
        let armed = self.watching && !look;
        if armed {
            local.station.disarm();
        }
        let got = got.unwrap_or(0);
        // The thread that takes the arming back drives: others may have relied on it.
        self.woken = got > 0 || armed;
        for event in &events[..got] {
            let (events, data) = (event.events, event.u64);
            self.happened(events, data >> 32, data as u32);
        }
        self.ends(clock::monotonic_ns());
    }

    /// Announces what programs have held back for as long as they may ([`corked`]), and finds out when the next is due.
    fn release_held(&mut self, now: u64) {
        let noted = self.local.common().held_back.swap(0, Ordering::SeqCst) != 0;
        if !noted && now < self.held_until {
            return;
        }
        fence(Ordering::SeqCst); // what is noted was held back before
        self.held_until = u64::MAX;
        for stream in 0..stream_words::STREAMS {
            if stream_words::flags(&self.local.station, stream) & (flag::ACTIVE | flag::OVER) != flag::ACTIVE {
                continue;
            }
            match corked::due(self.local.far(stream), now) {
                Some(until) if until > now => self.held_until = self.held_until.min(until),
                Some(_) => {
                    corked::take(self.local.far(stream));
                    marks::mark(self.local, stream);
                }
                None => {}
            }
        }
    }

    /// Before sleeping: near sides ring for bytes always, and for space when their peers wait for it. False: something is to
    /// be done at once.
    fn arm(&self) -> bool {
        let (mut due, mut ready) = (false, true);
        let each = |look: &mut dyn FnMut(Stream)| {
            for stream in (0..stream_words::STREAMS).filter(|stream| self.local.far_fd(*stream) >= 0) {
                if stream_words::flags(&self.local.station, stream) & (flag::ACTIVE | flag::OVER) == flag::ACTIVE {
                    look(stream);
                }
            }
        };
        each(&mut |stream| {
            if self.narrow(stream) || self.holds_back(stream) {
                due |= wake::announce(self.local.far(stream), arm::OUT);
            }
        });
        if due {
            wake::barrier();
        }
        each(&mut |stream| {
            let far = self.local.far(stream);
            let unread = far.outgoing().unacknowledged();
            let before = self.holds_back(stream) && unread < BEFORE;
            if before || (self.narrow(stream) && unread * 2 <= WINDOW) {
                marks::mark(self.local, stream);
                ready = false;
            }
        });
        ready
    }

    /// Whether the peer may soon send no more, and is granted room when the program has read: before BEGUN, while a lost path is
    /// settled, and behind an end none is granted.
    fn narrow(&self, stream: Stream) -> bool {
        let station = &self.local.station;
        let over = stream_words::flags(station, stream) & (flag::FIN_IN | flag::RESET_IN | flag::RESET_OUT) != 0;
        !over
            && matches!(stream_words::way(station, stream), mode::FAST | mode::TCP)
            && stream_words::get(station, stream, stream_words::GRANTED)
                < stream_words::get(station, stream, stream_words::RECEIVED) + WINDOW / 2
    }

    /// Whether bytes wait in the shadow for a server's program to read those before.
    fn holds_back(&self, stream: Stream) -> bool {
        let station = &self.local.station;
        let reset = stream_words::flags(station, stream) & (flag::RESET_IN | flag::RESET_OUT) != 0;
        !reset && self.shadows[stream as usize].ready && stream_words::way(station, stream) == mode::CLAIMED
    }

    fn happened(&mut self, events: u32, what: u64, which: u32) {
        match what {
            about::CONTROL => self.told(),
            about::GATE => {
                if let Some(gate) = self.gates[which as usize & 1].as_mut() {
                    // The port is that of all interfaces: a host that is not in the area, by any of them, gets no answer.
                    let (now, askers) = (clock::monotonic_ns(), &mut self.askers);
                    let mut knows = |asker: &Address, proved: bool| askers.knows(asker, proved, now);
                    gate.serve(now, &mut knows, &mut |four| {
                        let _setup = shunt_table::global::SETUP.lock()?;
                        diag::listener(&four.client, &four.server).ok().flatten().map(|owner| u64::from(owner.inode))
                    });
                }
            }
            about::QUERY => {
                let (_, query) = self.queries[which as usize % LISTENERS];
                if let (true, Some(mut driver)) = (query >= 0, self.local.station.lock()) {
                    driver.hear(clock::monotonic_ns(), query, &mut Rings::of(self.local));
                }
            }
            about::NEAR => self.near(events, which % stream_words::STREAMS),
            about::VERDICT => self.hear_verdict(which % stream_words::STREAMS),
            about::SHADOW => self.shadows[(which % stream_words::STREAMS) as usize].happened(),
            _ => {}
        }
    }

    fn told(&mut self) {
        for _ in 0..64 {
            match Message::receive(self.control) {
                Ok((Message::Stream(stream), [far, shadow])) if stream < stream_words::STREAMS => self.keep(stream, far, shadow),
                Ok((Message::Listening(inode, address), [query, _])) if query >= 0 => self.hear(inode, &address, query),
                Ok((Message::NoQuerySocket(inode), _)) => self.deafen(inode),
                Ok((Message::Discovery(family), [socket, _])) if socket >= 0 => self.open_gate(family == 1, socket),
                Ok((Message::User(user, group), [-1, _])) => {
                    let now = station_owner::become_user(user, group);
                    if now != 0 {
                        self.local.station.is_not_roots();
                    }
                    self.local.common().keeper_user.store(u64::from(now) + 1, Ordering::Release);
                }
                Ok((Message::Leave(stream), [program, _])) if program >= 0 && stream < stream_words::STREAMS => {
                    self.leave(stream, program);
                }
                Ok((_, descriptors)) => descriptors.into_iter().filter(|fd| *fd >= 0).for_each(|fd| {
                    let _ = calls::close(fd);
                }),
                Err(Errno(libc::EAGAIN | libc::EINTR)) => return,
                Err(Errno(libc::EPROTO)) => {}
                Err(_) => {
                    // No process of the family is left: listeners are gone, too.
                    let _ = calls::close(core::mem::replace(&mut self.control, -1));
                    for k in 0..LISTENERS {
                        let (inode, _) = self.queries[k];
                        self.deafen(inode);
                    }
                    self.gates = [None, None];
                    return;
                }
            }
        }
    }

    /// The program that waits at `program` gets the shadow, if that holds all there is: from then on the keeper does nothing but wait for the
    /// companion's end.
    fn leave(&mut self, stream: Stream, program: i32) {
        // Watched before it can say anything: what the program says of the shadow is heard before what it does next.
        if self.watch(program, (EPOLLIN | EPOLLRDHUP) as u32, about::VERDICT, stream) && self.gives(stream, program) {
            self.verdicts[stream as usize] = program;
        } else {
            self.forget(program);
            let _ = calls::close(program);
        }
    }

    fn gives(&mut self, stream: Stream, program: i32) -> bool {
        let Some(_driver) = self.local.station.lock() else { return false };
        let shadow = &mut self.shadows[stream as usize];
        if self.verdicts[stream as usize] >= 0
            || !switch_to_tcp::is_marked(self.local, stream)
            || !shadow.may_be_left(self.local, stream)
            || fd_passing::send(program, &[shadow.fd], MSG_DONTWAIT | libc::MSG_NOSIGNAL).is_err()
        {
            return false;
        }
        shadow.look_at = u64::MAX; // nothing is to be done until the program has said whether it has it
        let fd = shadow.fd;
        self.forget(fd);
        stream_life::happens(&self.local.station, stream, Event::Lent);
        switch_to_tcp::mark(self.local, stream, false);
        true
    }

    /// The program has the shadow, and the connection ends when it closes it; or it has not.
    fn hear_verdict(&mut self, stream: Stream) {
        let over = self.verdicts[stream as usize];
        let Some(took) = (over >= 0).then(|| switch_to_tcp::verdict(over)).flatten() else { return };
        let _ = calls::close(core::mem::replace(&mut self.verdicts[stream as usize], -1));
        if took {
            let _ = calls::close(core::mem::replace(&mut self.shadows[stream as usize].fd, -1));
        } else {
            self.stay(stream);
        }
    }

    /// It has not got it.
    fn stay(&mut self, stream: Stream) {
        if !stream_life::happens(&self.local.station, stream, Event::LentInVain) {
            return;
        }
        switch_to_tcp::mark(self.local, stream, true);
        let shadow = &mut self.shadows[stream as usize];
        shadow.happened();
        let fd = shadow.fd;
        self.watch_shadow(fd, stream);
        marks::mark(self.local, stream);
    }

    /// By edges: a shadow that was full, or whose bytes found no room, is not asked about again and again.
    fn watch_shadow(&self, shadow: i32, stream: Stream) {
        self.watch(shadow, (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) as u32, about::SHADOW, stream);
    }

    fn set_far(&self, stream: Stream, fd: i32) {
        // SAFETY: the keeper's one thread.
        unsafe { (*self.local.far_fds.get())[stream as usize] = fd };
    }

    fn keep(&mut self, stream: Stream, far: i32, shadow: i32) {
        self.drop_stream(stream);
        self.orphans[stream as usize] = Orphan::NONE;
        if far < 0 || shadow < 0 {
            // No descriptor was left for it. Without the far end the program finds its companion hung up.
            for fd in [far, shadow].into_iter().filter(|fd| *fd >= 0) {
                let _ = calls::close(fd);
            }
            stream_life::happens(&self.local.station, stream, Event::NoDescriptor);
            self.lost = true;
            return;
        }
        self.set_far(stream, far);
        self.shadows[stream as usize] = Shadow::new(shadow, clock::monotonic_ns());
        self.ends_at[stream as usize] = 0;
        self.kept += 1;
        self.watch(far, (EPOLLIN | EPOLLRDHUP) as u32, about::NEAR, stream);
        self.watch_shadow(shadow, stream);
        marks::mark(self.local, stream);
    }

    /// Closes what is kept of a stream. A shadow of a stream that was reset is reset, too.
    fn drop_stream(&mut self, stream: Stream) {
        switch_to_tcp::mark(self.local, stream, false);
        let verdict = core::mem::replace(&mut self.verdicts[stream as usize], -1);
        if verdict >= 0 {
            let _ = calls::close(verdict);
        }
        let far = self.local.far_fd(stream);
        let kept = core::mem::replace(&mut self.shadows[stream as usize], Shadow::NONE);
        let shadow = kept.fd;
        if far < 0 && shadow < 0 {
            return;
        }
        self.kept -= 1;
        if shadow >= 0 {
            kept.say_ended(self.local, stream);
            if stream_words::flags(&self.local.station, stream) & (flag::RESET_OUT | flag::RESET_IN) != 0 {
                helper::dies_by_reset(shadow, true);
            }
            let _ = calls::close(shadow);
        }
        if far >= 0 {
            self.set_far(stream, -1);
            let _ = calls::close(far);
        }
    }

    fn hear(&mut self, inode: u64, address: &Address, query: i32) {
        let place = self.queries.iter().position(|(_, fd)| *fd < 0);
        let Some(place) = place.filter(|_| self.local.station.listen(inode, address).is_ok()) else {
            let _ = calls::close(query);
            return;
        };
        self.queries[place] = (inode, query);
        self.watch(query, EPOLLIN as u32, about::QUERY, place as u32);
    }

    fn open_gate(&mut self, version_6: bool, socket: i32) {
        let gate = &mut self.gates[usize::from(version_6)];
        *gate = Discovery::of(socket).ok();
        if let Some(gate) = gate {
            let fd = gate.descriptor();
            self.watch(fd, EPOLLIN as u32, about::GATE, u32::from(version_6));
        }
    }

    fn deafen(&mut self, inode: u64) {
        for place in self.queries.iter_mut().filter(|(known, fd)| *known == inode && *fd >= 0) {
            let _ = calls::close(core::mem::replace(&mut place.1, -1));
        }
        self.local.station.unlisten(inode);
    }

    /// Bells of the near side, or its end.
    fn near(&mut self, events: u32, stream: Stream) {
        let fd = self.local.far_fd(stream);
        let mut bytes = [0u8; 256];
        let got = calls::recvfrom(fd, bytes.as_mut_ptr().cast(), 256, MSG_DONTWAIT, core::ptr::null_mut(), core::ptr::null_mut());
        let far = self.local.far(stream);
        if got.is_ok_and(|got| bypass::past(far, &bytes[..got])) {
            bypass::say_why(far);
            Rings::of(self.local).refuse(stream);
        }
        // A program that is none of the station's says only that it holds bytes back, and one that was killed nothing.
        self.held_until = 0;
        let ended =
            events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP) as u32 != 0 && matches!(got, Ok(0) | Err(Errno(libc::ECONNRESET)));
        // Half of it is shut when the program shuts its receiving half: only the hang-up of both says that it is closed.
        if ended && events & (EPOLLHUP | EPOLLERR) as u32 != 0 {
            corked::take(far);
            stream_life::happens(&self.local.station, stream, Event::ProgramGone);
            self.forget(fd);
            self.hear_verdict(stream);
            // What becomes of the connection is the kernel's and the program's then.
            if stream_life::happens(&self.local.station, stream, Event::LentAndClosed) {
                return;
            }
            self.orphans[stream as usize] = Orphan::closed(clock::monotonic_ns());
        }
        // Behind all that it is for: another thread may drive at once.
        marks::mark(self.local, stream);
    }

    fn end_by(&mut self, stream: Stream, when: u64) {
        let place = &mut self.ends_at[stream as usize];
        *place = if *place == 0 { when } else { when.min(*place) };
    }

    /// Looks after the streams whose bytes go by TCP, or may have to. When it is to be done again, if nothing happens.
    fn tend(&mut self) -> u64 {
        let local = self.local;
        let now = clock::monotonic_ns();
        let due = |stream: Stream, shadow: &Shadow| {
            shadow.fd >= 0
                && (shadow.ready
                    || shadow.look_at <= now
                    || !matches!(stream_words::way(&local.station, stream), mode::FAST | mode::BEGINNING))
        };
        let all = || 0..stream_words::STREAMS;
        if all().any(|stream| due(stream, &self.shadows[stream as usize])) {
            let Some(mut driver) = local.station.lock() else { return now + driving::SLACK };
            for stream in all() {
                let shadow = &mut self.shadows[stream as usize];
                // The peer's keeper has let go, or the connection was reset: if the stream has not ended when the messages
                // that are on their way have come, it never will.
                if !due(stream, shadow) {
                    continue;
                }
                if shadow.tend(local, &mut driver, stream, now) {
                    self.end_by(stream, now + GRACE);
                }
            }
        }
        self.shadows.iter().filter(|shadow| shadow.fd >= 0).map(|shadow| shadow.look_at).min().unwrap_or(u64::MAX)
    }

    fn next_end(&self) -> u64 {
        let orphans = self.orphans.iter().map(|orphan| orphan.look_at);
        self.ends_at.iter().copied().chain(orphans).filter(|at| *at != 0).min().unwrap_or(u64::MAX)
    }

    fn ends(&mut self, now: u64) {
        for stream in 0..stream_words::STREAMS {
            let [at, alone] = [self.ends_at[stream as usize], self.orphans[stream as usize].look_at];
            if (at == 0 || at > now) && (alone == 0 || alone > now) {
                continue;
            }
            let Some(driver) = self.local.station.lock() else {
                // A stopped process may hold it for long.
                let place = if alone != 0 && alone <= now {
                    &mut self.orphans[stream as usize].look_at
                } else {
                    &mut self.ends_at[stream as usize]
                };
                *place = now + driving::SLACK;
                continue;
            };
            if (at == 0 || at > now) && self.orphans[stream as usize].may_go_on(&self.local.station, stream, now) {
                continue;
            }
            self.ends_at[stream as usize] = 0;
            self.orphans[stream as usize] = Orphan::NONE;
            let flags = stream_words::flags(&self.local.station, stream);
            if flags & (flag::ACTIVE | flag::OVER) == flag::ACTIVE {
                // A program that has read and been told everything does not notice; another one is reset.
                let both = flag::FIN_IN | flag::FIN_OUT;
                if !stream_life::happens(&self.local.station, stream, Event::LeftToKernel)
                    && (flags & both != both || flags & flag::NEAR_GONE != 0)
                {
                    Rings::of(self.local).broken(stream);
                }
            }
            drop(driver);
            marks::mark(self.local, stream);
        }
    }

    /// What the driving thread left for the keeper: sleepers to ring, streams that are over. When to look again, if nothing happens.
    fn after_turn(&mut self) -> u64 {
        let mut again = u64::MAX;
        let lost = core::mem::take(&mut self.lost);
        for stream in 0..stream_words::STREAMS {
            if self.local.far_fd(stream) < 0 && !lost {
                continue;
            }
            let flags = stream_words::flags(&self.local.station, stream);
            if flags & flag::RING_URGENT != 0 && self.local.far_fd(stream) >= 0 {
                stream_words::lower(&self.local.station, stream, flag::RING_URGENT);
                wake::ring_urgent(self.local.far(stream), self.local.far_fd(stream));
            }
            if flags & flag::RING != 0 && self.local.far_fd(stream) >= 0 {
                stream_words::lower(&self.local.station, stream, flag::RING);
                wake::ring(self.local.far(stream), self.local.far_fd(stream));
            }
            if flags & flag::OVER != 0 {
                let Some(mut driver) = self.local.station.lock() else {
                    again = clock::monotonic_ns() + TICK;
                    self.lost = lost;
                    continue;
                };
                self.drop_stream(stream);
                stream_life::happens(&self.local.station, stream, Event::Released);
                let (base, _, channel) = self.local.place(stream);
                let page = shunt_link::page(base, channel);
                if flags & flag::NEAR_GONE != 0 || page.sides[0].released.load(Ordering::Acquire) != release::NOT {
                    // Neither side has a process: a tool that looks at the link is to see no connection.
                    page.head.state.store(life::FREE, Ordering::Release);
                }
                if shunt_link::header(base).retired.load(Ordering::SeqCst) & 1 << channel != 0 {
                    // A process that is not to see what goes there has its rings mapped.
                    self.local.station.retire(stream);
                }
                driver.release(clock::monotonic_ns(), stream);
            }
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds after it was closed until it ends, where the peer has `had(second)` bytes by then.
    fn ends_after(had: impl Fn(u64) -> u64, whole: bool, most: u64) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        let mut orphan = Orphan::closed(7 * SECOND);
        loop {
            let now = orphan.look_at;
            let passed = now / SECOND - 7;
            if !orphan.judge(had(passed), whole, most, now) {
                return passed;
            }
        }
    }

    #[test]
    fn a_closed_stream_ends_within_bounds() {
        assert_eq!(ends_after(|_| 5, true, STALLED), 120);
        assert_eq!(ends_after(|_| 5, false, VANISHED), 120);
        assert_eq!(ends_after(|_| 5, false, STALLED), 240);
        // Bytes still go in the first ten minutes.
        assert_eq!(ends_after(|passed| passed.min(600), false, STALLED), 840);
    }
}
