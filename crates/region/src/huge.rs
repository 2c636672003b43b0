//! Files of 2 MiB pages without privilege: a child in a user and a mount namespace of its own makes a tmpfs with `huge=always`,
//! mounted nowhere, and a file without a name in it. The descriptor table is shared, so the file stays when the child has ended;
//! the tmpfs lives as long as the file.
//!
//! Such a file cannot be sealed: a process that has it can shrink it, and its readers fault. It is for peers that trust each
//! other.

use crate::limit::Limit;
use shunt_sys::{calls, check, libc, mapping, process, syscall};

const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;
const CLOEXEC: u32 = 1;

/// A file of `size` bytes; closed on exec.
///
/// # Errors
/// [`Limit::NoHugePages`]: no user namespaces here (`/proc/sys/user/max_user_namespaces`, a container's filter), or a kernel that
/// has no huge pages for shared memory.
pub fn file(size: usize) -> Result<i32, Limit> {
    // What the child has found: 1 + the descriptor.
    let answer = mapping::reserve_for_children(size_of::<i32>()).map_err(Limit::of)?.cast::<i32>();
    // SAFETY: plain integers.
    let (user, group) = (calls::geteuid(), calls::getegid());
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_FILES;
    // SAFETY: a child with a copy of this memory, as by fork(2); it makes system calls, and ends. It has no signal at its end, so
    // nothing that the program waits for hears of it.
    let child = unsafe { syscall!(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if child == 0 {
        // SAFETY: shared with the parent, which waits.
        unsafe {
            answer.write_volatile(made(size, user, group).map_or(0, |fd| fd + 1));
            syscall!(libc::SYS_exit_group, 0);
        }
        loop {
            core::hint::spin_loop();
        }
    }
    if let Ok(child) = check(child) {
        process::reap(child as i32);
    }
    // SAFETY: the child has ended.
    let fd = unsafe { answer.read_volatile() } - 1;
    let _ = calls::munmap(answer.cast(), size_of::<i32>());
    match fd {
        0.. => Ok(fd),
        _ => Err(Limit::NoHugePages),
    }
}

/// In the child.
fn made(size: usize, user: u32, group: u32) -> Option<i32> {
    write(b"/proc/self/setgroups\0", b"deny");
    write_map(b"/proc/self/uid_map\0", user);
    write_map(b"/proc/self/gid_map\0", group);
    let context = calls::fsopen(c"tmpfs".as_ptr().cast(), CLOEXEC).ok()?;
    let set = |key: &core::ffi::CStr, value: &core::ffi::CStr| {
        calls::fsconfig(context, FSCONFIG_SET_STRING, key.as_ptr().cast(), value.as_ptr().cast(), 0).is_ok()
    };
    // No limit of the tmpfs's own: half of the memory, as by default, can be less than what was asked for.
    let made = set(c"huge", c"always")
        && set(c"size", c"0")
        && calls::fsconfig(context, FSCONFIG_CMD_CREATE, core::ptr::null(), core::ptr::null(), 0).is_ok();
    let root = made.then(|| calls::fsmount(context, CLOEXEC, 0).ok()).flatten();
    // The table is the parent's: what is left open here stays open there.
    let _ = calls::close(context);
    let root = root?;
    let file = calls::openat(root, c".".as_ptr().cast(), libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC, 0o600);
    let _ = calls::close(root);
    let file = file.ok()?;
    if calls::give_size(file, size).is_err() {
        let _ = calls::close(file);
        return None;
    }
    Some(file)
}

fn write(path: &[u8], text: &[u8]) {
    if let Ok(fd) = calls::openat(libc::AT_FDCWD, path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC, 0) {
        let _ = calls::write(fd, text.as_ptr().cast(), text.len());
        let _ = calls::close(fd);
    }
}

/// One user, or group, that is itself: without it the tmpfs has no user to give a file to.
fn write_map(path: &[u8], id: u32) {
    let mut text = [0u8; 32];
    let mut at = 0;
    for number in [id, id] {
        at = decimal(number, &mut text, at);
        text[at] = b' ';
        at += 1;
    }
    text[at] = b'1';
    write(path, &text[..=at]);
}

pub(crate) fn decimal(number: u32, text: &mut [u8], mut at: usize) -> usize {
    let mut power = 1;
    while number / power >= 10 {
        power *= 10;
    }
    while power > 0 {
        text[at] = b'0' + (number / power % 10) as u8;
        at += 1;
        power /= 10;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_full() {
        let mut text = [0; 32];
        for number in [0, 7, 10, 65534, u32::MAX] {
            let end = decimal(number, &mut text, 0);
            assert_eq!(core::str::from_utf8(&text[..end]), Ok(number.to_string().as_str()));
        }
    }
}
