//! Which of the deferred clients is accepted next, and what wakes the threads that wait for it: the clients' bells, and a timer.
//!
//! To set a timer costs some microseconds on a virtual machine, and an interrupt when it is over. So it is set for a client that
//! becomes due, not for one that has something already, and one that is too early is left: it is looked at when it is over.

use super::pending::{drop_client, list, listen_to, places, show, DEFERRED};
use core::sync::atomic::Ordering;
use shunt_ring::tally::Tally;
use shunt_segment::channel::BELL;
use shunt_stream::socket::Socket;
use shunt_sys::libc::{self, epoll_event, timespec};
use shunt_sys::{calls, clock};
use shunt_table::global::Guard;
use shunt_table::private;

/// What the timer is known under beside the bells; places in the list are their number plus one.
pub(super) const TIMER: u64 = u64::MAX;

/// The timer exists.
pub(super) fn timer(listener: &Socket) -> bool {
    if listener.listening.timer_fd.load(Ordering::Relaxed) >= 0 {
        return true;
    }
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    let Ok(made) = calls::timerfd_create(libc::CLOCK_MONOTONIC, flags).and_then(private::keep) else { return false };
    let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: TIMER };
    if calls::epoll_ctl(listener.listening.bells_fd.load(Ordering::Relaxed), libc::EPOLL_CTL_ADD, made, &mut event).is_err() {
        private::close(made);
        return false;
    }
    listener.listening.timer_fd.store(made, Ordering::Relaxed);
    listener.listening.timer_at.store(0, Ordering::Relaxed);
    true
}

/// The client that is accepted next. The timer is set for the one that is due first, and a thread that waits for the listener is
/// woken.
pub(super) fn first(listener: &Socket, setup: &Guard) -> Option<usize> {
    let found = next(listener, setup);
    if let Some(place) = found {
        show(place);
    }
    found
}

/// The same, for a caller that gives that client at once: no thread is woken for it.
pub(super) fn next(listener: &Socket, _setup: &Guard) -> Option<usize> {
    hear(listener);
    let defers = listener.listening.defers.load(Ordering::SeqCst) != 0;
    let (ticks, now) = (clock::ticks(), clock::monotonic_ns());
    let mut found: Option<(usize, u64)> = None;
    let mut next = u64::MAX;
    for place in places(listener) {
        let Some(waiting) = list()[place] else { continue };
        if !waiting.holds() {
            drop_client(place);
            continue;
        }
        let due = waiting.until <= now || !defers;
        if due || waiting.has_something() {
            let age = waiting.age(ticks);
            match found {
                Some((_, oldest)) if age <= oldest => show(place),
                _ => {
                    found.into_iter().for_each(|(other, _)| show(other));
                    found = Some((place, age));
                }
            }
        }
        // Of the option that was taken back no bell tells: a timer that is over does.
        if !defers {
            next = 1;
        } else if due || !waiting.has_something() {
            next = next.min(waiting.until);
        }
    }
    let (set, at) = (listener.listening.timer_at.load(Ordering::Relaxed), if next == u64::MAX { 0 } else { next });
    let is_over = set != 0 && set <= now;
    if set != at && (is_over || at != 0 && (set == 0 || at < set)) {
        set_timer(listener, at);
    }
    found.map(|(place, _)| place)
}

/// Sets the timer, CLOCK_MONOTONIC in ns; 0: it rests.
pub(super) fn set_timer(listener: &Socket, at: u64) {
    let timer = listener.listening.timer_fd.load(Ordering::Relaxed);
    if timer >= 0 && listener.listening.timer_at.swap(at, Ordering::Relaxed) != at {
        let none = timespec { tv_sec: 0, tv_nsec: 0 };
        let at = timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as i64 };
        let when = libc::itimerspec { it_interval: none, it_value: at };
        let _ = calls::timerfd_settime(timer, libc::TFD_TIMER_ABSTIME, &when, core::ptr::null_mut());
    }
}

/// Hears which clients have gone, and takes bells off that tell nothing.
fn hear(listener: &Socket) {
    if DEFERRED.count.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut batch = [epoll_event { events: 0, u64: 0 }; 64];
    let none = timespec { tv_sec: 0, tv_nsec: 0 };
    let bells = listener.listening.bells_fd.load(Ordering::Relaxed);
    let got = calls::epoll_pwait2(bells, batch.as_mut_ptr(), 64, &none, core::ptr::null(), calls::KERNEL_SIGSET).unwrap_or(0);
    for event in &batch[..got] {
        let (flags, place) = (event.events as i32, event.u64.wrapping_sub(1) as usize);
        let Some(Some(waiting)) = list().get_mut(place).filter(|_| event.u64 != TIMER) else { continue };
        if flags & (libc::EPOLLHUP | libc::EPOLLERR) != 0 {
            waiting.gone = true;
        } else if !waiting.has_something() {
            let mut bytes = [0u8; 64];
            let (fd, start) = (waiting.descriptor(), bytes.as_mut_ptr().cast());
            let take = |most: usize, flags: i32| {
                calls::recvfrom(fd, start, most, libc::MSG_DONTWAIT | flags, core::ptr::null_mut(), core::ptr::null_mut())
            };
            // What is no bell is left to the connection (see `foreign`).
            let looked = take(64, libc::MSG_PEEK);
            let taken = match looked {
                Ok(count) if bytes[..count].iter().any(|byte| *byte != BELL) => {
                    waiting.early = true;
                    continue;
                }
                Ok(count) => take(count, 0),
                error => error,
            };
            match taken {
                Ok(0) => waiting.gone = true,
                Ok(count) => {
                    let [client, server] = &waiting.page().sides;
                    waiting.early |= !Tally::new(client, server).took(count as u32);
                }
                Err(_) => {}
            }
            listen_to(waiting);
        }
    }
}
