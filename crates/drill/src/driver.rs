//! The thread that drives taken connections while the program is elsewhere.

use crate::drill::lock;

/// Until the process ends.
pub fn drive() {
    while let Some(mut drill) = lock() {
        let (wait, way) = drill.work();
        drop(drill);
        let mut set = libc::pollfd { fd: way, events: libc::POLLIN, revents: 0 };
        let time = libc::timespec { tv_sec: 0, tv_nsec: wait.min(1_000_000) as i64 };
        // SAFETY: one entry, and a time; by the system call, as ppoll(2) of the process is this library's.
        unsafe { libc::syscall(libc::SYS_ppoll, &raw mut set, 1, &raw const time, std::ptr::null::<u8>(), 8) };
    }
}
