//! What a program asks of a kept pipe beside splice(2), and what leaves it kept: its size, its flags, tee(2).

use super::{either, reading, writing, Bytes, LARGE_BUFFER};
use shunt_sys::libc::{self, EAGAIN};
use shunt_sys::{calls, Errno, Result};

/// fcntl(2) on a kept pipe, as far as it asks about the pipe, or changes its size or flags: it stays kept. `None`: `fd` is no end of such a
/// pipe, or it is the kernel's by now, which the call is for.
pub fn control(fd: i32, command: i32, argument: usize) -> Option<Result<i32>> {
    let kept = either(fd)?;
    let ask = |_: &mut Bytes| calls::fcntl(fd, command, argument);
    match command {
        libc::F_GETFD | libc::F_SETFD | libc::F_GETFL | libc::F_GETPIPE_SZ => kept.with(ask),
        libc::F_SETFL if argument as i32 & (libc::O_DIRECT | libc::O_ASYNC) == 0 => kept.with(|bytes| {
            let done = ask(bytes)?;
            kept.note_nonblocking(argument as i32 & libc::O_NONBLOCK != 0);
            Ok(done)
        }),
        // What does not fit any more is the kernel's to refuse.
        libc::F_SETPIPE_SZ => kept.with(|bytes| match (bytes.length()..=LARGE_BUFFER).contains(&argument) {
            true => Some(bytes.resize(ask)),
            false => None,
        })?,
        _ => None,
    }
}

/// ioctl(2) with FIONBIO on a kept pipe. `None`: as for [`control`].
pub fn set_nonblocking(fd: i32, argument: usize) -> Option<Result<i32>> {
    let kept = either(fd)?;
    kept.with(|_| {
        let done = calls::ioctl(fd, libc::FIONBIO, argument)?;
        kept.note_nonblocking(calls::fcntl(fd, libc::F_GETFL, 0)? & libc::O_NONBLOCK != 0);
        Ok(done)
    })
}

/// tee(2) from one kept pipe to another, as far as nothing is to be waited for. `None`: one of them is the kernel's, or is to be.
pub fn tee(from: i32, to: i32, length: usize, flags: u32) -> Option<Result<isize>> {
    let (source, target) = (reading(from)?, writing(to)?);
    if core::ptr::eq(source.pipe, target.pipe) {
        return None;
    }
    let copy = |source: &mut Bytes, target: &mut Bytes| {
        let count = length.min(source.length()).min(target.room());
        if count == 0 {
            return None;
        }
        let room = target.back();
        if room.is_null() {
            return None;
        }
        // SAFETY: so many bytes lie in the one, and so many have room in the other; both locks are held.
        unsafe { core::ptr::copy_nonoverlapping(source.front(), room, count) };
        target.put(count);
        Some(count as isize)
    };
    // Each thread takes the locks in the same order.
    let in_order = core::ptr::from_ref(source.pipe) < core::ptr::from_ref(target.pipe);
    let copied = match in_order {
        true => source.with(|source| target.with(|target| copy(source, target))),
        false => target.with(|target| source.with(|source| copy(source, target))),
    };
    match copied?? {
        Some(copied) => Some(Ok(copied)),
        // The kernel asks either end.
        None if flags & libc::SPLICE_F_NONBLOCK != 0 || (source.is_nonblocking() && target.is_nonblocking()) => {
            Some(Err(Errno(EAGAIN)))
        }
        None => None,
    }
}
