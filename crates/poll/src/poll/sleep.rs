//! Arms the entries, and sleeps in the kernel's poll: by companions, by queues of listeners, and beside what tells of other hosts.

use super::asleep::Asleep;
use super::foreign::{Part, QUEUES};
use super::{asks_for_space, Query, NO_ENTRY};
use core::sync::atomic::Ordering;
use shunt_epoll as epoll;
use shunt_epoll::Set;
use shunt_segment::channel::{arm, style};
use shunt_stream::progress::{self, Sleeper};
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::{bells, readiness, wake};
use shunt_stream::{deadlines, due, error_queue, sleep};
use shunt_sys::libc::{self, pollfd, timespec, POLLERR, POLLHUP, POLLIN};
use shunt_sys::sleeper::{counted, Open};
use shunt_sys::{clock, sleeping, thread, Errno, Result};
use shunt_table::memory::scratch::Scratch;
use shunt_table::table;

impl Query<'_> {
    /// Arms everything and sleeps; true when the deadline passed.
    pub(super) fn sleep(&mut self, began: u64) -> Result<bool> {
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
                due |= epoll::arm_all(set);
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
