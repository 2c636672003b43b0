//! poll and select on descriptors of which only the kernel knows, TCP connections among them.
//!
//! The program's own call would sleep at once; so it is made with a limit of 0 first, as long as that pays
//! ([`shunt_stream::waiting::kernel_sockets`]).

use shunt_stream::waiting::kernel_sockets::{self, gathers, promises_one, Answer, When};
use shunt_stream::waiting::spin;
use shunt_stream::waiting::until::Look;
use shunt_sys::libc::{self, pollfd};
use shunt_sys::{calls, thread, user, Errno};

/// With more entries than this, a look costs as much as a sleep.
const MOST: usize = 64;

/// poll(2) on `count` entries at `set`, of which none is ours, by `own`, the program's call.
///
/// # Safety
/// `set` may be any address that is not ours.
pub unsafe fn poll(set: *mut pollfd, count: usize, limit: Option<u64>, own: impl FnOnce() -> isize) -> Answer {
    // SAFETY: the program's entries, which may fault.
    let fd = |at: usize| unsafe { user::read(&raw const (*set.wrapping_add(at)).fd) }.unwrap_or(-1);
    wait((0..count).map(fd), limit, || look_at(set, count), own)
}

/// select(2), which waits for `entries`, by `own`: a look tells whether it would sleep.
pub fn select(entries: &mut [pollfd], limit: Option<u64>, own: impl FnOnce() -> isize) -> Answer {
    let (set, count) = (entries.as_mut_ptr(), entries.len());
    let look = || match look_at(set, count) {
        Look::Nothing => Look::Nothing,
        _ => Look::Sleep,
    };
    wait(entries.iter().map(|entry| entry.fd), limit, look, own)
}

fn look_at(set: *mut pollfd, count: usize) -> Look<Answer> {
    match calls::ppoll(set, count, &mut spin::ZERO.clone(), core::ptr::null(), calls::KERNEL_SIGSET) {
        Ok(0) | Err(Errno(libc::EINTR)) => Look::Nothing,
        Ok(ready) => Look::Found(Answer::Done(Ok(ready as isize))),
        Err(_) => Look::Sleep,
    }
}

fn wait(
    mut fds: impl ExactSizeIterator<Item = i32>,
    limit: Option<u64>,
    mut look: impl FnMut() -> Look<Answer>,
    own: impl FnOnce() -> isize,
) -> Answer {
    let began = thread::handled();
    if limit == Some(0) || fds.len() > MOST || !fds.any(kernel_sockets::is) {
        return Answer::Raw(own());
    }
    let answer = if promises_one() {
        match look() {
            Look::Found(answer) => answer,
            Look::Sleep => Answer::Raw(own()),
            Look::Nothing => {
                let end = When { limit, began, restartable: false };
                kernel_sockets::wait(end, look, || Answer::Raw(own())).unwrap_or(Answer::Done(Err(Errno(libc::EINTR))))
            }
        }
    } else {
        Answer::Raw(spin::rest(own))
    };
    if let Answer::Raw(ready) | Answer::Done(Ok(ready)) = answer {
        gathers(ready);
    }
    answer
}
