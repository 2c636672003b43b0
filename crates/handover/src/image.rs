//! Whether a program that is about to be started can take this library.
//!
//! The dynamic loader takes a library from the environment into programs of its own kind that gain no rights by being
//! started (ld.so(8), "Secure-execution mode"). In doubt the answer is no: then the program gets descriptors that the
//! kernel alone serves, which is right for every program.

use shunt_sys::libc::{self, c_char};
use shunt_sys::mapping::Room;
use shunt_sys::{calls, user, Errno, Result};

/// Files that are looked at: a script's interpreter may be a script, and the kernel follows five (exec_binprm).
const FILES: usize = 6;
/// Headers of an image that are looked at, in bytes; they lie at its beginning in all images that linkers make.
const HEAD: usize = 4096;
const ELF_MACHINE: u16 = 62; // EM_X86_64
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const X_OK: i32 = 1;

/// What a start of a program would come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// The program will take the library.
    Shunt,
    /// The program will run without.
    Plain,
    /// There is no such program, or it cannot be executed.
    Fails,
}

/// Judges the program at `path`, relative to `directory` (AT_FDCWD, or for fexecve(3) the program's own descriptor and an
/// empty path). A FIFO is no program and must not hold us: files are opened without waiting.
///
/// # Safety
/// `path` is null, a C string, or any address that is not ours: one that faults is the kernel's to refuse.
pub unsafe fn judge(directory: i32, path: *const c_char) -> Start {
    // A process that runs with other rights than its user has, passes this state on: the loader would not take the library.
    if ids_differ() {
        return Start::Plain;
    }
    // SAFETY: promised by the caller.
    let first = if path.is_null() { Ok(0) } else { unsafe { user::read(path) } };
    let Ok(first) = first else { return Start::Fails };
    let empty = first == 0;
    let opened = if empty {
        calls::fcntl(directory, libc::F_DUPFD_CLOEXEC, 3)
    } else {
        // A process that may not ask (ENOSYS, or EPERM by a filter) finds out by the start itself.
        // SAFETY: as above.
        if !matches!(unsafe { access(directory, path, X_OK) }, Ok(_) | Err(Errno(libc::ENOSYS | libc::EPERM))) {
            return Start::Fails;
        }
        calls::openat(directory, path.cast(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK, 0)
    };
    let Ok(mut file) = opened else { return Start::Plain };
    // execvp(3) goes on behind a directory of the program's name, as behind all that is no regular file (EACCES).
    if !calls::status_of(file).is_ok_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG) {
        let _ = calls::close(file);
        return Start::Fails;
    }
    let Ok(mut room) = Room::new(HEAD) else {
        let _ = calls::close(file);
        return Start::Plain;
    };
    for _ in 0..FILES {
        let got = calls::pread(file, room.start().cast(), HEAD, 0).unwrap_or(0);
        let head = &mut room.bytes()[..got];
        if !head.starts_with(b"#!") {
            let start = if head.starts_with(b"\x7fELF") { of_elf(file, head) } else { shell() };
            let _ = calls::close(file);
            return start;
        }
        let _ = calls::close(file);
        let Some(interpreter) = interpreter(head) else { return Start::Plain };
        // SAFETY: ends with a NUL.
        match calls::openat(libc::AT_FDCWD, interpreter.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK, 0) {
            Ok(next) => file = next,
            Err(_) => return Start::Plain,
        }
    }
    let _ = calls::close(file);
    Start::Plain
}

/// execvp(3) gives a text without `#!` to the shell; execve(2) refuses it.
fn shell() -> Start {
    let Ok(file) =
        calls::openat(libc::AT_FDCWD, c"/bin/sh".as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK, 0)
    else {
        return Start::Plain;
    };
    let start = match Room::new(HEAD) {
        Ok(mut room) => {
            let got = calls::pread(file, room.start().cast(), HEAD, 0).unwrap_or(0);
            of_elf(file, &room.bytes()[..got])
        }
        Err(_) => Start::Plain,
    };
    let _ = calls::close(file);
    start
}

unsafe fn access(directory: i32, path: *const c_char, mode: i32) -> Result<usize> {
    // SAFETY: the kernel checks the pointer.
    shunt_sys::check(unsafe { shunt_sys::syscall!(libc::SYS_faccessat2, directory, path, mode, libc::AT_EACCESS) })
}

fn ids_differ() -> bool {
    let id = |number| {
        // SAFETY: these calls take no arguments and cannot fail.
        unsafe { shunt_sys::raw::call6(number, 0, 0, 0, 0, 0, 0) }
    };
    id(libc::SYS_getuid) != id(libc::SYS_geteuid) || id(libc::SYS_getgid) != id(libc::SYS_getegid)
}

/// The interpreter's path, as the kernel cuts it out (fs/binfmt_script.c), with a NUL behind it.
fn interpreter(head: &mut [u8]) -> Option<&[u8]> {
    let line = head.iter().position(|byte| *byte == b'\n').unwrap_or(head.len().min(255));
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = 2 + head[2..line].iter().position(|byte| !blank(byte))?;
    let length = head[start..line].iter().position(blank).unwrap_or(line - start);
    let end = start + length;
    *head.get_mut(end)? = 0;
    (length > 0).then_some(&head[start..=end])
}

fn of_elf(file: i32, head: &[u8]) -> Start {
    if gains_rights(file) {
        return Start::Plain;
    }
    let short = |at: usize| head.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let word = |at: usize| head.get(at..at + 8).and_then(|b| b.first_chunk::<8>()).map(|b| u64::from_le_bytes(*b) as usize);
    // Class 64, little-endian.
    if head.get(4..6) != Some(&[2, 1]) || short(18) != Some(ELF_MACHINE) {
        return Start::Plain;
    }
    let (Some(table), Some(size), Some(count)) = (word(32), short(54), short(56)) else { return Start::Plain };
    let mut loader = false;
    for i in 0..count as usize {
        let at = table.saturating_add(i * size as usize);
        let Some(kind) = head.get(at..at.saturating_add(4)).and_then(|b| b.first_chunk::<4>()).map(|b| u32::from_le_bytes(*b))
        else {
            return Start::Plain;
        };
        let (Some(offset), Some(length)) = (word(at + 8), word(at + 32)) else { return Start::Plain };
        let mut content = [0u8; 1024];
        let room = length.min(content.len());
        match kind {
            PT_INTERP => {
                let got = calls::pread(file, content.as_mut_ptr().cast(), room, offset as i64).unwrap_or(0);
                loader = content[..got].windows(8).any(|part| part == b"ld-linux");
            }
            PT_NOTE => {
                let got = calls::pread(file, content.as_mut_ptr().cast(), room, offset as i64).unwrap_or(0);
                if is_go(&content[..got]) {
                    return Start::Plain;
                }
            }
            _ => {}
        }
    }
    if loader {
        Start::Shunt
    } else {
        Start::Plain
    }
}

/// The Go linker's note (name "Go", type 4): Go enters the kernel without the C library.
pub fn is_go(mut notes: &[u8]) -> bool {
    while let Some((header, rest)) = notes.split_first_chunk::<12>() {
        let field = |i: usize| u32::from_le_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]]) as usize;
        let (name, description) = (field(0), field(4));
        if field(8) == 4 && rest.starts_with(b"Go\0") {
            return true;
        }
        let Some(next) = rest.get(name.next_multiple_of(4).saturating_add(description.next_multiple_of(4))..) else { break };
        notes = next;
    }
    false
}

/// Set-user-ID, set-group-ID, file capabilities. (Root gains nothing by capabilities, yet in doubt it is no.)
fn gains_rights(file: i32) -> bool {
    let Ok(status) = calls::status_of(file) else { return true };
    let user = status.st_mode & libc::S_ISUID != 0 && status.st_uid != calls::geteuid();
    // SAFETY: no arguments.
    let group = unsafe { shunt_sys::syscall!(libc::SYS_getegid) } as u32;
    let group = status.st_mode & libc::S_ISGID != 0 && status.st_mode & libc::S_IXGRP != 0 && status.st_gid != group;
    let mut capabilities = [0u8; 64];
    // SAFETY: the name ends with a NUL; room for 64 bytes.
    let capable = calls::geteuid() != 0
        && unsafe {
            shunt_sys::syscall!(libc::SYS_fgetxattr, file, c"security.capability".as_ptr(), capabilities.as_mut_ptr(), 64)
        } >= 0;
    user || group || capable
}

/// Finds `file` as execvp(3) does, in `search` (the value of PATH), and judges what it finds. `room` takes the path.
///
/// # Safety
/// `file` is a C string.
pub unsafe fn judge_in_path(file: *const c_char, search: Option<&[u8]>) -> Start {
    // SAFETY: promised by the caller.
    let name = unsafe { core::ffi::CStr::from_ptr(file) }.to_bytes();
    if name.contains(&b'/') || name.is_empty() {
        // SAFETY: as above.
        return unsafe { judge(libc::AT_FDCWD, file) };
    }
    let Ok(mut room) = Room::new(libc::PATH_MAX as usize) else { return Start::Plain };
    let room = room.bytes();
    for directory in search.unwrap_or(b"/bin:/usr/bin").split(|byte| *byte == b':') {
        let slash = usize::from(!directory.is_empty());
        let length = directory.len() + slash + name.len();
        if length >= room.len() {
            continue;
        }
        room[..directory.len()].copy_from_slice(directory);
        if slash == 1 {
            room[directory.len()] = b'/';
        }
        room[directory.len() + slash..length].copy_from_slice(name);
        room[length] = 0;
        // SAFETY: ends with a NUL.
        match unsafe { judge(libc::AT_FDCWD, room.as_ptr().cast()) } {
            Start::Fails => {}
            found => return found,
        }
    }
    Start::Fails
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> Start {
        let path = std::ffi::CString::new(path).unwrap();
        // SAFETY: a C string.
        unsafe { judge(libc::AT_FDCWD, path.as_ptr()) }
    }

    #[test]
    fn this_test_takes_the_library_and_others_do_not() {
        assert_eq!(of(std::env::current_exe().unwrap().to_str().unwrap()), Start::Shunt);
        assert_eq!(of("/no/such/program"), Start::Fails);
        assert_eq!(of("/etc/passwd"), Start::Fails);
    }

    #[test]
    fn scripts_are_their_interpreters() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("shunt-image-{}", std::process::id()));
        for (text, expected) in [
            ("#!/bin/sh\n", Start::Shunt),
            ("#! /bin/sh -e\nexit", Start::Shunt),
            ("#!", Start::Plain),
            ("#!\n", Start::Plain),
            ("#!/no/such\n", Start::Plain),
            ("exit 0\n", Start::Shunt),
            ("\x7fELF\x02\x01", Start::Plain),
        ] {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            assert_eq!(of(path.to_str().unwrap()), expected, "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn damaged_headers_are_refused() {
        let whole = std::fs::read("/bin/true").unwrap();
        let file = std::fs::File::open("/bin/true").unwrap();
        use std::os::fd::AsRawFd;
        assert_eq!(of_elf(file.as_raw_fd(), &whole[..HEAD.min(whole.len())]), Start::Shunt);
        for position in 4..64 {
            for byte in [0, 0x7f, 0xff] {
                let mut damaged = whole[..HEAD.min(whole.len())].to_vec();
                damaged[position] = byte;
                of_elf(file.as_raw_fd(), &damaged);
            }
        }
        for length in 0..200 {
            of_elf(file.as_raw_fd(), &whole[..length]);
        }
    }

    #[test]
    fn notes_of_the_go_linker() {
        assert!(is_go(b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd"));
        assert!(!is_go(b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0abcd"));
        assert!(is_go(b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0abcd\x04\0\0\0\0\0\0\0\x04\0\0\0Go\0\0"));
        assert!(!is_go(&[0xff; 40]));
    }
}
