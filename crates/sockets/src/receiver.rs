//! Who will receive a message on an AF_UNIX socket: only programs under shunt can take an accelerated descriptor up.
//!
//! The kernel tells the other end's inode (sock_diag) and, in /proc, which processes have it open. All of them must run
//! under shunt for sure: each has a state (`shunt-process`) of its own, which says that it has received messages by our
//! hooks. A child between fork and exec says nothing of the kind, and may become anything.

use crate::diag;
use crate::global::Shared;
use core::fmt::Write;
use shunt_segment::process::{self as state, MAGIC};
use shunt_sys::libc::{self, AT_FDCWD, O_CLOEXEC, O_DIRECTORY, O_RDONLY};
use shunt_sys::{calls, clock, Result};

/// How long an answer is believed, in ns: a program that passes many descriptors asks once in a while.
const BELIEVE_NS: u64 = 50_000_000;

#[derive(Clone, Copy)]
struct Answer {
    inode: u32,
    until: u64,
    under_shunt: bool,
}

static LAST: Shared<Answer> = Shared::new(Answer { inode: 0, until: 0, under_shunt: false });

/// Whether every process that can receive from the other end of the AF_UNIX socket `fd` runs under shunt, for sure.
/// Called under the set-up lock.
pub fn under_shunt(fd: i32) -> bool {
    let Ok(inode) = diag::unix_peer(fd) else { return false };
    let now = clock::monotonic_ns();
    // SAFETY: the set-up lock is held.
    let last = unsafe { &mut *LAST.get() };
    if last.inode != inode || last.until < now {
        let under_shunt = holders_are_ours(inode).unwrap_or(false);
        *last = Answer { inode, until: if under_shunt { now + BELIEVE_NS } else { 0 }, under_shunt };
    }
    last.under_shunt
}

/// A path under /proc.
struct Path {
    bytes: [u8; 64],
    length: usize,
}

impl Path {
    fn new(text: core::fmt::Arguments<'_>) -> Path {
        let mut path = Path { bytes: [0; 64], length: 0 };
        let _ = path.write_fmt(text);
        path
    }
    fn pointer(&self) -> *const u8 {
        self.bytes.as_ptr()
    }
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.length + text.len();
        if end >= self.bytes.len() {
            return Err(core::fmt::Error);
        }
        self.bytes[self.length..end].copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Calls `each` with every entry of a directory whose name is a number, until it gives true.
fn numbers(path: &Path, mut each: impl FnMut(u32) -> bool) -> Result<()> {
    let directory = calls::openat(AT_FDCWD, path.pointer(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)?;
    let mut room = [0u64; 512];
    'all: loop {
        let size = core::mem::size_of_val(&room);
        // SAFETY: room for `size` bytes.
        let got = unsafe { shunt_sys::syscall!(libc::SYS_getdents64, directory, room.as_mut_ptr(), size) };
        if got <= 0 {
            break;
        }
        // SAFETY: the kernel filled `got` bytes.
        let bytes = unsafe { core::slice::from_raw_parts(room.as_ptr().cast::<u8>(), got as usize) };
        let mut at = 0;
        // linux_dirent64: inode, offset, length (at 16), type, name (at 19).
        while let Some(length) = bytes.get(at + 16..at + 18).map(|b| u16::from_ne_bytes([b[0], b[1]]) as usize) {
            let name = bytes.get(at + 19..at + length).unwrap_or(&[]);
            let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
            if let Some(number) = core::str::from_utf8(name).ok().and_then(|text| text.parse().ok()) {
                if each(number) {
                    break 'all;
                }
            }
            at += length.max(19);
        }
    }
    calls::close(directory)
}

/// Whether all processes that have the socket `inode` open run under shunt, and there is one.
fn holders_are_ours(inode: u32) -> Result<bool> {
    let wanted = Path::new(format_args!("socket:[{inode}]"));
    let wanted = &wanted.bytes[..wanted.length];
    let (mut any, mut all) = (false, true);
    numbers(&Path::new(format_args!("/proc\0")), |process| {
        let (mut holds, mut ours) = (false, false);
        // A process that may not be looked at is another user's; it can have the socket only if somebody gave it on.
        let _ = numbers(&Path::new(format_args!("/proc/{process}/fd\0")), |fd| {
            let link = Path::new(format_args!("/proc/{process}/fd/{fd}\0"));
            let mut target = [0u8; 64];
            // SAFETY: room for 64 bytes.
            let got =
                unsafe { shunt_sys::syscall!(libc::SYS_readlinkat, AT_FDCWD, link.pointer(), target.as_mut_ptr(), target.len()) };
            let target = &target[..got.max(0) as usize];
            holds |= target == wanted;
            if target.starts_with(b"/memfd:shunt-process") {
                ours |= writes_state(&link, process);
            }
            false
        });
        any |= holds;
        all &= !holds || ours;
        !all
    })?;
    Ok(any && all)
}

/// Whether the state behind `link` was written by `process` itself, and says that it receives by our hooks.
fn writes_state(link: &Path, process: u32) -> bool {
    let Ok(fd) = calls::openat(AT_FDCWD, link.pointer(), O_RDONLY | O_CLOEXEC, 0) else { return false };
    let mut words = [0u32; 6];
    let got = calls::pread(fd, words.as_mut_ptr().cast(), 24, 0);
    let _ = calls::close(fd);
    let magic = words[0] as u64 | (words[1] as u64) << 32;
    const _: () = assert!(core::mem::offset_of!(state::ProcessHeader, version) == 8);
    const _: () = assert!(core::mem::offset_of!(state::ProcessHeader, pid) == 12);
    const _: () = assert!(core::mem::offset_of!(state::ProcessHeader, receives) == 20);
    got == Ok(24) && magic == MAGIC && words[2] == shunt_segment::VERSION && words[3] == process && words[5] == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_end_is_found_and_a_process_without_state_is_none_of_ours() {
        let (near, far) = UnixStream::pair().unwrap();
        // SAFETY: plain integers.
        let mut status: libc::stat = unsafe { core::mem::zeroed() };
        calls::fstat(far.as_raw_fd(), &mut status).unwrap();
        assert_eq!(diag::unix_peer(near.as_raw_fd()), Ok(status.st_ino as u32));
        assert_eq!(holders_are_ours(status.st_ino as u32), Ok(false));
        assert!(!under_shunt(near.as_raw_fd()));
    }
}
