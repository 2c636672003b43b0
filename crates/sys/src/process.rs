//! Whether processes and threads have ended.
//!
//! A number tells little: a process that was killed keeps its own until its parent has waited for it, which may be never.

use crate::{calls, check, syscall, Errno};
use libc::{iovec, ESRCH, POLLIN};

/// Whether process `pid` has ended, waited for or not: a descriptor of it would be readable (pidfd_open(2)). In doubt it lives.
pub fn has_ended(pid: u32) -> bool {
    let descriptor = match calls::pidfd_open(pid as i32, 0) {
        Ok(descriptor) => descriptor,
        Err(Errno(ESRCH)) => return true,
        // No descriptor is left, or a filter forbids the call.
        Err(_) => return calls::kill(pid as i32, 0) == Err(Errno(ESRCH)),
    };
    let ended = calls::poll_one(descriptor, POLLIN, 0).is_ok_and(|events| events & POLLIN != 0);
    let _ = calls::close(descriptor);
    ended
}

/// Whether thread `thread` has ended, waited for or not: it has no memory any more (mm_access in kernel/fork.c: ESRCH, whatever
/// else this process may know). It costs no descriptor, needs no /proc, and no right.
pub fn thread_has_ended(thread: u32) -> bool {
    calls::tkill(thread as i32, 0) == Err(Errno(ESRCH)) || {
        let mut byte = 0u8;
        let here = iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let there = iovec { iov_base: core::ptr::null_mut(), iov_len: 1 };
        calls::process_vm_readv(thread as i32, &here, 1, &there, 1, 0) == Err(Errno(ESRCH))
    }
}

/// Waits until `child` has ended, whatever the signal that it would tell of it with (`__WALL`). Its status, as wait4(2) gives it;
/// `None`: it is no child of this process.
pub fn reap(child: i32) -> Option<i32> {
    let mut status = 0i32;
    loop {
        // SAFETY: the status is ours.
        match check(unsafe { syscall!(libc::SYS_wait4, child, &raw mut status, libc::__WALL, 0) }) {
            Err(Errno(libc::EINTR)) => {}
            waited => return waited.ok().map(|_| status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_waited_for_once() {
        let mut child = std::process::Command::new("false").spawn().unwrap();
        assert_eq!((reap(child.id() as i32), reap(child.id() as i32)), (Some(1 << 8), None));
        assert!(child.wait().is_err());
    }

    #[test]
    fn who_has_ended_and_who_lives() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        assert!(!has_ended(pid) && !thread_has_ended(pid));
        assert_eq!(calls::kill(pid as i32, libc::SIGSTOP), Ok(()));
        assert!(!has_ended(pid) && !thread_has_ended(pid));
        let descriptor = calls::pidfd_open(pid as i32, 0).unwrap();
        child.kill().unwrap();
        calls::poll_one(descriptor, POLLIN, -1).unwrap();
        // It has not been waited for.
        assert_eq!(calls::kill(pid as i32, 0), Ok(()));
        assert!(has_ended(pid) && thread_has_ended(pid));
        child.wait().unwrap();
        assert!(has_ended(pid) && thread_has_ended(pid));
        let _ = calls::close(descriptor);
    }

    #[test]
    fn a_thread_is_not_its_process() {
        let (number, own) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            number.send(crate::thread::id()).unwrap();
            let _ = ended.recv();
        });
        let own = own.recv().unwrap();
        assert!(!thread_has_ended(own));
        drop(end);
        thread.join().unwrap();
        // The kernel takes the number a moment after it has let the joiner go.
        while calls::tkill(own as i32, 0).is_ok() {
            calls::sched_yield();
        }
        assert!(thread_has_ended(own) && !has_ended(std::process::id()));
    }
}
