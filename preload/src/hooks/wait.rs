//! poll, select, epoll.

use crate::errno::answer;
use crate::{cancel, real, received};
use core::ffi::c_int;
use shunt_calls::libc::{self, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use shunt_epoll as epoll;
use shunt_epoll::Set;
use shunt_inbox::datagram;
use shunt_inbox::datagram::Datagram;
use shunt_poll::in_kernel::poll as poll_in_kernel;
use shunt_poll::poll::Query;
use shunt_poll::{fast_path, poll, select as selecting};
use shunt_sys::{thread, user};
use shunt_table::limits;
use shunt_table::poll_set::Entries;
use shunt_table::table::Kind;
use shunt_table::{global, table};

/// poll(2) and ppoll(2). `None`: nothing of ours is in the set, or the set or the mask faults: the kernel's to answer.
#[inline(always)]
pub(crate) unsafe fn poll_any(set: *mut pollfd, count: nfds_t, limit: Option<u64>, mask: *const sigset_t) -> Option<c_int> {
    // SAFETY: the program's pointers, which may fault.
    unsafe {
        // More than descriptors can be open is EINVAL, whatever lies behind the pointer: the kernel says so.
        if count == 0 || !limits::takes(count) {
            return None;
        }
        let began = thread::handled();
        if count == 1 && mask.is_null() && fast_path::poll(set, limit) {
            return Some(1);
        }
        let mut entries = Entries::new(count as usize);
        if !entries.read(set) || !poll::concerns_us(entries.slice()) || !readable_mask(mask) {
            return None;
        }
        let frame = entries.frame();
        let result = Query::new(entries.slice(), poll::deadline(limit), mask, frame).poll_since(began);
        Some(answer(entries.write(set).and(result)) as c_int)
    }
}

/// Whether the kernel would not find EFAULT in a signal mask.
pub(crate) unsafe fn readable_mask(mask: *const sigset_t) -> bool {
    // SAFETY: the program's pointer, which may fault.
    mask.is_null() || unsafe { user::read(mask.cast::<u64>()) }.is_ok()
}

/// A relative time in ns; `None`: it makes no sense or faults, for the kernel to say.
pub(crate) unsafe fn duration(time: *const timespec) -> Option<Option<u64>> {
    if time.is_null() {
        return Some(None);
    }
    // SAFETY: the program's pointer, which may fault.
    match unsafe { user::read(time) } {
        Ok(t) if t.tv_sec >= 0 && (0..1_000_000_000).contains(&t.tv_nsec) => {
            Some(Some((t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec as u64)))
        }
        _ => None,
    }
}

/// Writes the time that is left until `deadline`.
unsafe fn write_left(time: *mut timeval, deadline: u64) {
    let left = if deadline == 0 { 0 } else { deadline.saturating_sub(shunt_sys::clock::monotonic_ns()) };
    let left = timeval { tv_sec: (left / 1_000_000_000) as i64, tv_usec: (left % 1_000_000_000 / 1000) as i64 };
    // SAFETY: the program's pointer, which may fault.
    let _ = unsafe { user::write(time, left) };
}

/// poll on a set in which nothing is ours, by the program's call.
unsafe fn in_kernel(set: *mut pollfd, count: nfds_t, limit: Option<u64>, kernel: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program's pointer, which may fault.
    let answer = unsafe { poll_in_kernel(set, count as usize, limit, received::guarded(|| kernel() as isize)) };
    received::settle(answer) as c_int
}

fn milliseconds(timeout: c_int) -> Option<u64> {
    (timeout >= 0).then_some(timeout as u64 * 1_000_000)
}

hook! {
    fn poll(set: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        cancel::point();
        match poll_any(set, count, milliseconds(timeout), core::ptr::null()) {
            Some(result) => result,
            None => in_kernel(set, count, milliseconds(timeout), || real::poll(set, count, timeout)),
        }
    }
    fn __poll(set: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        cancel::point();
        poll(set, count, timeout)
    }
    fn __poll_chk(set: *mut pollfd, count: nfds_t, timeout: c_int, room: usize) -> c_int {
        cancel::point();
        if room / core::mem::size_of::<pollfd>() < count as usize {
            return real::__poll_chk(set, count, timeout, room);
        }
        poll(set, count, timeout)
    }
    fn ppoll(set: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        cancel::point();
        let Some(limit) = duration(timeout) else { return real::ppoll(set, count, timeout, mask) };
        match poll_any(set, count, limit, mask) {
            Some(result) => result,
            None if mask.is_null() => in_kernel(set, count, limit, || real::ppoll(set, count, timeout, mask)),
            None => real::ppoll(set, count, timeout, mask),
        }
    }
    fn __ppoll_chk(set: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: usize) -> c_int {
        cancel::point();
        if room / core::mem::size_of::<pollfd>() < count as usize {
            return real::__ppoll_chk(set, count, timeout, mask, room);
        }
        ppoll(set, count, timeout, mask)
    }
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int {
        cancel::point();
        let mut sets = selecting::Sets::new([read.cast(), write.cast(), except.cast()]);
        if !sets.read(count) {
            return real::select(count, read, write, except, timeout);
        }
        let limit = if timeout.is_null() {
            None
        } else {
            match user::read(timeout) {
                Ok(t) if t.tv_sec >= 0 && t.tv_usec >= 0 => {
                    Some((t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_usec as u64 * 1000))
                }
                _ => return real::select(count, read, write, except, timeout),
            }
        };
        let deadline = poll::deadline(limit);
        if !sets.concern_us() {
            // Linux writes the time that is left back, and does not know of the looks.
            let kernel = || {
                if limit.is_some_and(|ns| ns > 0) {
                    write_left(timeout, deadline);
                }
                real::select(count, read, write, except, timeout) as isize
            };
            return received::settle(sets.wait_in_kernel(limit, received::guarded(kernel))) as c_int;
        }
        let result = selecting::select(&mut sets, deadline, core::ptr::null());
        // Linux writes the time that is left back, and forgives a fault.
        if limit.is_some() {
            write_left(timeout, deadline);
        }
        answer(result) as c_int
    }
    fn __select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int {
        cancel::point();
        select(count, read, write, except, timeout)
    }
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        cancel::point();
        let mut sets = selecting::Sets::new([read.cast(), write.cast(), except.cast()]);
        match duration(timeout) {
            Some(limit) if sets.read(count) && sets.concern_us() && readable_mask(mask) => {
                answer(selecting::select(&mut sets, poll::deadline(limit), mask)) as c_int
            }
            _ => real::pselect(count, read, write, except, timeout, mask),
        }
    }
    fn epoll_create(size: c_int) -> c_int {
        let fd = real::epoll_create(size);
        new_set(fd)
    }
    fn epoll_create1(flags: c_int) -> c_int {
        let fd = real::epoll_create1(flags);
        new_set(fd)
    }
    fn epoll_ctl(epfd: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        let mut set = table::get(epfd).object::<Set>();
        if set.is_none() && table::get(epfd).kind() == Kind::Foreign && matches!(table::get(fd).kind(), Kind::Stream | Kind::Listener) {
            // A set made by a call that we do not see, if it is one: then the kernel does not know the descriptor in it.
            use shunt_sys::calls;
            use shunt_sys::Errno;
            match calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut()) {
                Ok(_) | Err(Errno(libc::ENOENT)) => {}
                Err(_) => return real::epoll_ctl(epfd, operation, fd, event),
            }
            epoll::created(epfd);
            set = table::get(epfd).object::<Set>();
        }
        if let Some(set) = set {
            if let Some(result) = epoll::control(set, epfd, operation, fd, event) {
                return answer(result) as c_int;
            }
            let result = real::epoll_ctl(epfd, operation, fd, event);
            match operation {
                _ if result != 0 => {}
                libc::EPOLL_CTL_ADD => epoll::added(set, fd, event),
                _ => epoll::foreign(set, operation),
            }
            return result;
        }
        if let (libc::EPOLL_CTL_ADD, Some(socket)) = (operation, shunt_table::table::find::<Datagram>(fd)) {
            socket.pin(datagram::pin::SET); // a set of which we know nothing
        }
        real::epoll_ctl(epfd, operation, fd, event)
    }
    fn epoll_wait(epfd: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int {
        cancel::point();
        match table::get(epfd).object::<Set>() {
            Some(set) => wait_in(set, epfd, events, count, milliseconds(timeout), core::ptr::null(), || {
                real::epoll_wait(epfd, events, count, timeout)
            }),
            None => real::epoll_wait(epfd, events, count, timeout),
        }
    }
    fn epoll_pwait(epfd: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t) -> c_int {
        cancel::point();
        match table::get(epfd).object::<Set>() {
            Some(set) => wait_in(set, epfd, events, count, milliseconds(timeout), mask, || {
                real::epoll_pwait(epfd, events, count, timeout, mask)
            }),
            None => real::epoll_pwait(epfd, events, count, timeout, mask),
        }
    }
    fn epoll_pwait2(epfd: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        cancel::point();
        match (table::get(epfd).object::<Set>(), duration(timeout)) {
            (Some(set), Some(limit)) => wait_in(set, epfd, events, count, limit, mask, || {
                real::epoll_pwait2(epfd, events, count, timeout, mask)
            }),
            _ => real::epoll_pwait2(epfd, events, count, timeout, mask),
        }
    }
}

/// Waits in a set of ours, or in the kernel's if it holds nothing of ours (which another thread may change meanwhile).
unsafe fn wait_in(
    set: &'static epoll::Set,
    epfd: c_int,
    events: *mut epoll_event,
    count: c_int,
    limit: Option<u64>,
    mask: *const sigset_t,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's array.
    unsafe {
        let in_kernel = epoll::is_all_in_kernel(set) || !readable_mask(mask);
        let began = thread::handled();
        if !in_kernel && mask.is_null() && epoll::wait_swiftly(set, epfd, events, count, limit) {
            return 1;
        }
        let deadline = poll::deadline(limit);
        if in_kernel {
            let got = match limit {
                Some(0) => epoll::look_in_kernel(set, epfd, events, kernel),
                _ if mask.is_null() => match epoll::spin_in_kernel(set, epfd, events, count, limit, began, kernel) {
                    Ok(got) => got,
                    Err(error) => return answer(Err(error)) as c_int,
                },
                _ => epoll::wait_in_kernel(set, epfd, events, !readable_mask(mask), kernel),
            };
            if let Some(got) = got {
                return got;
            }
        }
        answer(epoll::wait(set, epfd, events, count, deadline, mask, began)) as c_int
    }
}

fn new_set(fd: c_int) -> c_int {
    if fd >= 0 && global::ready() && global::options().accelerate {
        table::take(fd);
        epoll::created(fd);
    }
    fd
}
