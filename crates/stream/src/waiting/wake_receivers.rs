//! Waking threads of this process that sleep in recv on a companion, where its bells go to another process from now on.
//!
//! They sleep beside nothing ([`crate::waiting::wake_pollers`]), because that would cost each sleep a system call. So they are looked for in proc(5)
//! and sent a signal. That happens when a connection becomes the kernel's, and is rare.

use crate::socket::parts::Hold;
use crate::socket::Socket;
use shunt_sys::libc::{self, timespec, AT_FDCWD, O_CLOEXEC, O_RDONLY};
use shunt_sys::{calls, clock, interrupt_sleep, sleeping, thread};
use shunt_table::procfs::{numbers, Path};
use shunt_table::table;

/// How long they have to wake, in ns: on a busy machine a thread may not run for long. One that a debugger stopped never does.
const LONGEST: u64 = 10_000_000_000;
/// Between two looks, in ns: the first, and the longest. A thread that cannot be roused is sent a signal for each.
const PAUSE: i64 = 100_000;
const LONGEST_PAUSE: i64 = 50_000_000;

/// Wakes all that `hold` counts as sleeping, and waits until they are awake. They sleep by the stream's private number, or by one that
/// is that of `next` by now.
pub fn all(hold: &Hold, next: &Socket) {
    let end = clock::monotonic_ns() + LONGEST;
    let mut pause = PAUSE;
    while hold.sleepers() > 0 && clock::monotonic_ns() < end {
        let on = |fd| fd == hold.number(-1) || table::get(fd).object::<Socket>().is_some_and(|there| core::ptr::eq(there, next));
        let looked = numbers(&Path::new(format_args!("/proc/self/task\0")), |task| {
            if task != thread::id() {
                if let Some(fd) = sleeps_in_recv(task, on) {
                    interrupt_sleep::thread(task, fd);
                }
            }
            false
        });
        if looked.is_err() {
            return; // there is no proc(5)
        }
        let _ = calls::nanosleep(&timespec { tv_sec: 0, tv_nsec: pause }, core::ptr::null_mut());
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// On which of those descriptors a thread sleeps in recv, by a call of this library's: the file names the call, its arguments, the
/// stack's place, and the instruction's.
fn sleeps_in_recv(task: u32, on: impl Fn(i32) -> bool) -> Option<i32> {
    let path = Path::new(format_args!("/proc/self/task/{task}/syscall\0"));
    let Ok(file) = calls::openat(AT_FDCWD, path.pointer(), O_RDONLY | O_CLOEXEC, 0) else { return None };
    let mut room = [0u8; 256];
    let got = calls::read(file, room.as_mut_ptr().cast(), room.len()).unwrap_or(0);
    let _ = calls::close(file);
    let Ok(text) = core::str::from_utf8(&room[..got]) else { return None };
    let mut words = text.split_ascii_whitespace();
    let in_recv = words.next().and_then(|word| word.parse().ok()) == Some(libc::SYS_recvfrom);
    let mut numbers = words.filter_map(|word| usize::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    let fd = numbers.next()? as i32;
    (in_recv && on(fd) && numbers.next_back().is_some_and(sleeping::is_sleep)).then_some(fd)
}
