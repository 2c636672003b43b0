//! sendfile(2) to a stream: the file's pages are read straight into memory that is sent at once.
//!
//! Nothing that reads under the sending lock waits for a device. Of most files the kernel is asked for what is in memory alone; it knows no such
//! question of files that lie in memory as a whole (tmpfs, memfd), which are read as they are.

use crate as stream;
use crate::socket::{flag, Socket};
use crate::waiting::holding;
use crate::{carried, send_pacing, splice};
use shunt_pipes::kept_pipes::Scratch;
use shunt_pipes::mapped_files;
use shunt_ring::pipe::Space;
use shunt_sys::libc::{self, iovec, MSG_NOSIGNAL};
use shunt_sys::{calls, memory_file, thread, user, Errno, Result};
use shunt_table::memory::pieces::MOST;

/// Bytes moved per step by [`send_file`]: few enough for a reader to copy out while the next ones are copied in.
const STEP: usize = Scratch::SIZE;

/// As [`STEP`], straight into a ring, by a thread that turns to many streams: its readers have others' bytes to take meanwhile.
const STEP_OF_MANY: usize = 128 << 10;

/// Room for fewer bytes is not worth a call of its own.
const LEAST: usize = 4 << 10;

/// How a file is read without waiting.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// What is in memory (RWF_NOWAIT).
    Cached,
    /// All of it is in memory.
    Plain,
    /// It is not: by way of a buffer.
    None,
}

/// Reads what a file has at `offset` in memory into free space of a ring, without waiting; gives the number of bytes, 0 for none,
/// whatever the reason.
fn fill(space: Space, from: i32, offset: i64, way: &mut Way) -> usize {
    const NOWAIT: i32 = 8;
    let pieces = space.map(|(data, length)| iovec { iov_base: data.cast(), iov_len: length });
    let read = |flags| {
        // SAFETY: a plain system call; the offset's high half is not looked at where a word has 64 bits.
        shunt_sys::check(unsafe { shunt_sys::syscall!(libc::SYS_preadv2, from, pieces.as_ptr(), 2, offset, 0, flags) })
    };
    let mut got = match way {
        Way::Cached => read(NOWAIT),
        Way::Plain => read(0),
        Way::None => return 0,
    };
    if *way == Way::Cached && got == Err(Errno(libc::EOPNOTSUPP)) {
        // Pages of tmpfs may have been swapped out, as those of the ring may.
        *way = if memory_file::size(from).is_ok() { Way::Plain } else { Way::None };
        if *way == Way::Plain {
            mapped_files::enter(from);
            got = read(0);
        }
    }
    got.unwrap_or(0)
}

/// Whether the kernel can splice from a file that has no size: a device or a file of /proc may be readable, and not that.
#[cold]
fn check_splices(from: i32, offset: i64) -> Result<()> {
    if calls::status_of(from).map_or(true, |status| status.st_size > 0) {
        return Ok(());
    }
    splice::check_source(from, offset)
}

/// sendfile(2) to a stream: the file's pages are read straight into memory that is sent at once.
///
/// # Safety
/// `offset` is null or valid.
pub unsafe fn send_file(socket: &Socket, fd: i32, from: i32, offset: *mut i64, count: usize) -> Result<isize> {
    // With no offset the file's own position moves, and only by what was really sent.
    // SAFETY: null, or the program's.
    let given = if offset.is_null() { None } else { Some(unsafe { user::read(offset)? }) };
    // SAFETY: passed on.
    let (result, at) = match unsafe { send_file_from(socket, fd, from, given, count) } {
        Ok((sent, at)) => (Ok(sent), Some(at)),
        Err(error) => (Err(error), given),
    };
    if let (Some(_), Some(at)) = (given, at) {
        // SAFETY: the program's. It is written whatever came of the call (sendfile64).
        unsafe { user::write(offset, at)? };
    }
    result
}

/// sendfile(2) from `given`, or the file's own position: how many bytes went, and where the next one lies.
unsafe fn send_file_from(socket: &Socket, fd: i32, from: i32, given: Option<i64>, count: usize) -> Result<(isize, i64)> {
    // Of whole pages: a file may have been opened with O_DIRECT.
    let mut buffer = Scratch::default();
    let mut done = 0usize;
    // In do_sendfile's order: open for reading; a source that can be read at an offset, which a socket or a pipe cannot; of
    // files, not of a directory.
    match calls::pread(from, core::ptr::from_mut(&mut buffer).cast(), 0, 0) {
        Err(Errno(libc::ESPIPE)) if given.is_some() => return Err(Errno(libc::ESPIPE)),
        Err(Errno(libc::ESPIPE | libc::EISDIR)) => return Err(Errno(libc::EINVAL)),
        Err(error @ Errno(libc::EBADF)) => return Err(error),
        _ => {}
    }
    let start = match given {
        Some(at) if at < 0 => return Err(Errno(libc::EINVAL)),
        Some(at) => at,
        // SAFETY: a plain system call.
        None => match shunt_sys::check(unsafe { shunt_sys::syscall!(libc::SYS_lseek, from, 0, libc::SEEK_CUR) }) {
            Err(Errno(libc::ESPIPE)) => return Err(Errno(libc::EINVAL)),
            other => other? as i64,
        },
    };
    if (count as isize) < 0 {
        return Err(Errno(libc::EINVAL));
    }
    let count = count.min(MOST);
    let many = count > STEP && thread::is_one_of_many(core::ptr::from_ref(socket).addr());
    let step = if many { STEP_OF_MANY } else { STEP };
    let mut failure = None;
    let mut way = Way::Cached;
    let mut mapped = mapped_files::get(from);
    while done < count {
        if socket.has(flag::MAY_LEAVE) {
            crate::progress::leave_to_send(socket, fd);
        }
        if socket.hold.is_carried() {
            let mut at = start + done as i64;
            let further = [holding::end(socket, fd) as usize, from as usize, (&raw mut at) as usize, count - done, 0, 0];
            done = carried::further(done, libc::SYS_sendfile, further)? as usize;
            break;
        }
        if let Some(file) = mapped.take() {
            let (data, length) = file.bytes(start + done as i64, count - done);
            // SAFETY: a mapping that stays meanwhile; what is gone of it is a fault.
            match unsafe { stream::send(socket, fd, data, length, if done > 0 { MSG_NOSIGNAL | stream::UNDER_WAY } else { 0 }) } {
                Ok(sent) if length > 0 && sent as usize == length => {
                    done += length;
                    continue; // to the file's end
                }
                _ if length == 0 => {}
                Ok(sent) => {
                    done += sent as usize;
                    break;
                }
                Err(Errno(libc::EFAULT)) => {}
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let wanted = (count - done).min(step);
        // SAFETY: the kernel writes into the pieces alone.
        let filled = unsafe {
            stream::put_filled(socket, fd, wanted.min(LEAST), wanted, |space| fill(space, from, start + done as i64, &mut way))
        };
        match filled {
            Some(0) => {}
            Some(filled) => {
                done += filled;
                continue;
            }
            None if send_pacing::holds_back(socket, fd, 0) => {
                failure = Some(Errno(libc::EAGAIN));
                break;
            }
            None => {}
        }
        if done == 0 {
            check_splices(from, start)?;
        }
        let part = (count - done).min(STEP);
        let data = match buffer.get() {
            Ok(data) => data,
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        let got = match calls::pread(from, data.cast(), part, start + done as i64) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        // SAFETY: `got` bytes were read.
        match unsafe { stream::send(socket, fd, data, got, if done > 0 { MSG_NOSIGNAL | stream::UNDER_WAY } else { 0 }) } {
            Ok(sent) => {
                done += sent as usize;
                if (sent as usize) < got {
                    break;
                }
            }
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    if done == 0 {
        if let Some(error) = failure {
            return Err(error);
        }
    }
    let next = start + done as i64;
    if given.is_none() {
        // SAFETY: a plain system call.
        let _ = unsafe { shunt_sys::syscall!(libc::SYS_lseek, from, next, libc::SEEK_SET) };
    }
    Ok((done as isize, next))
}
