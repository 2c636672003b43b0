//! What /proc says of processes (proc(5)): directories of numbers, links, the beginnings of files.

use core::fmt::Write;
use shunt_sys::libc::{self, AT_FDCWD, O_CLOEXEC, O_DIRECTORY, O_RDONLY};
use shunt_sys::mapping::Room;
use shunt_sys::{calls, check, syscall, Result};

/// A path under /proc.
pub struct Path {
    bytes: [u8; 64],
    length: usize,
}

impl Path {
    /// Of at most 63 bytes, and a NUL that `text` ends with.
    pub fn new(text: core::fmt::Arguments<'_>) -> Path {
        let mut path = Path { bytes: [0; 64], length: 0 };
        let _ = path.write_fmt(text);
        path
    }
    /// What it says, without a NUL behind it unless `text` had one.
    pub fn said(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// For system calls.
    pub fn pointer(&self) -> *const u8 {
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
pub fn numbers(path: &Path, mut each: impl FnMut(u32) -> bool) -> Result<()> {
    const SIZE: usize = 4096;
    let directory = calls::openat(AT_FDCWD, path.pointer(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)?;
    let mut room = match Room::new(SIZE) {
        Ok(room) => room,
        Err(error) => {
            let _ = calls::close(directory);
            return Err(error);
        }
    };
    let listed = 'all: loop {
        // SAFETY: room for so many bytes.
        let got = match check(unsafe { syscall!(libc::SYS_getdents64, directory, room.start(), SIZE) }) {
            Ok(0) => break Ok(()),
            Ok(got) => got,
            Err(error) => break Err(error),
        };
        let bytes = &room.bytes()[..got];
        let mut at = 0;
        // linux_dirent64: inode, offset, length (at 16), type, name (at 19).
        while let Some(length) = bytes.get(at + 16..at + 18).map(|b| u16::from_ne_bytes([b[0], b[1]]) as usize) {
            let name = bytes.get(at + 19..at + length).unwrap_or(&[]);
            let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
            if let Some(number) = core::str::from_utf8(name).ok().and_then(|text| text.parse().ok()) {
                if each(number) {
                    break 'all Ok(());
                }
            }
            at += length.max(19);
        }
    };
    let _ = calls::close(directory);
    listed
}

/// What the symbolic link at `path` says; empty if it cannot be read.
pub fn target<'a>(path: &Path, room: &'a mut [u8; 64]) -> &'a [u8] {
    // SAFETY: room for 64 bytes.
    let got = unsafe { syscall!(libc::SYS_readlinkat, AT_FDCWD, path.pointer(), room.as_mut_ptr(), room.len()) };
    &room[..got.max(0) as usize]
}

/// When a process was started, in clock ticks since boot: field 22 of /proc/PID/stat (proc(5)). `None`: there is none, or it
/// is hidden.
pub fn started(process: u32) -> Option<u64> {
    status(process, 19, |text| text.parse().ok())?
}

/// How a file begins.
pub fn text<'a>(path: &Path, room: &'a mut [u8; 512]) -> Result<&'a [u8]> {
    let fd = calls::openat(AT_FDCWD, path.pointer(), O_RDONLY | O_CLOEXEC, 0)?;
    let got = calls::read(fd, room.as_mut_ptr().cast(), room.len());
    let _ = calls::close(fd);
    Ok(&room[..got?])
}

/// What `read` makes of a field of /proc/PID/stat, counted from the third, which is the state. `None`: there is no such
/// process or thread, or it is hidden.
pub fn status<T>(process: u32, field: usize, read: impl FnOnce(&str) -> T) -> Option<T> {
    let mut room = [0u8; 512];
    let text = text(&Path::new(format_args!("/proc/{process}/stat\0")), &mut room).ok()?;
    // The name, field 2, may hold anything but ends with the last parenthesis.
    let behind = text.iter().rposition(|byte| *byte == b')')? + 2;
    core::str::from_utf8(text.get(behind..)?).ok()?.split(' ').nth(field).map(read)
}
