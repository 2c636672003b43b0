//! What a taken connection could leave behind in the kernel: an entry in the agent's map, a filter or repair at a socket, a program at the interface.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use shunt_testkit::hosts::Host;

/// `enum bpf_cmd`.
const MAP_GET_NEXT_KEY: i32 = 4;
const MAP_GET_FD_BY_ID: i32 = 14;
const OBJ_GET_INFO_BY_FD: i32 = 15;
/// `asm-generic/socket.h`; with no room it tells how long the filter is.
const SO_GET_FILTER: i32 = libc::SO_ATTACH_FILTER;

/// bpf(2) on words of `union bpf_attr`.
fn bpf(command: i32, words: &mut [u64; 4]) -> io::Result<i32> {
    // SAFETY: 32 bytes that outlive the call; the pointers in it are the callers'.
    match unsafe { libc::syscall(libc::SYS_bpf, command, words.as_mut_ptr(), 32) } {
        -1 => Err(io::Error::last_os_error()),
        got => Ok(got as i32),
    }
}

/// Whether the map of taken connections that this agent's process has is empty; an agent without a program has none.
pub fn map_is_empty(agent: u32) -> bool {
    let infos = fs::read_dir(format!("/proc/{agent}/fdinfo")).into_iter().flatten().flatten();
    let texts = infos.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let number = |text: String| text.lines().find_map(|line| line.strip_prefix("map_id:"))?.trim().parse::<u64>().ok();
    texts.filter_map(number).all(|id| {
        let Ok(fd) = bpf(MAP_GET_FD_BY_ID, &mut [id, 0, 0, 0]) else { return true };
        // SAFETY: made by the call, nobody else's.
        let map = unsafe { OwnedFd::from_raw_fd(fd) };
        // `struct bpf_map_info`: six words of 32 bits, then the name.
        let mut info = [0u8; 88];
        let room = map.as_raw_fd() as u64 | (info.len() as u64) << 32;
        bpf(OBJ_GET_INFO_BY_FD, &mut [room, info.as_mut_ptr() as u64, 0, 0]).expect("what a map is");
        if !info[24..40].starts_with(b"shunt_tuples\0") {
            return true;
        }
        let mut key = [0u8; 64];
        let first = bpf(MAP_GET_NEXT_KEY, &mut [map.as_raw_fd() as u64, 0, key.as_mut_ptr() as u64, 0]);
        first.is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT))
    })
}

/// Whether a program is at the host's interface.
pub fn has_program(host: &Host) -> bool {
    let output = host.command("ip").args(["link", "show", "dev", &host.interface]).output().expect("ip runs");
    String::from_utf8_lossy(&output.stdout).contains("xdp")
}

/// How many TCP connections are established on the host.
pub fn connections(host: &Host) -> usize {
    host.enter(|| {
        let table = fs::read_to_string("/proc/thread-self/net/tcp").unwrap_or_default();
        table.lines().skip(1).filter(|line| line.split_ascii_whitespace().nth(3) == Some("01")).count()
    })
}

/// TCP sockets of the process that are in repair or have a filter.
pub fn odd_sockets(process: u32) -> usize {
    // SAFETY: takes numbers.
    let held = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    if held < 0 {
        return 0;
    }
    // SAFETY: made above.
    let held = unsafe { OwnedFd::from_raw_fd(held as i32) };
    let names = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|number| is_odd(&held, *number)).count()
}

fn is_odd(process: &OwnedFd, number: i32) -> bool {
    // SAFETY: takes numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
    if fd < 0 {
        return false;
    }
    // SAFETY: made above.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let (mut repair, mut size) = (0i32, 4);
    // SAFETY: room of that size.
    let asked =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_REPAIR, (&raw mut repair).cast(), &mut size) };
    let mut instructions = 0;
    // SAFETY: no room is said to be there.
    let told =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, SO_GET_FILTER, std::ptr::null_mut(), &mut instructions) };
    asked == 0 && (repair != 0 || told == 0 && instructions != 0)
}

/// Whether a process has ended, though nobody has waited for it.
pub fn is_over(process: i32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).map_or(true, |text| text.contains(") Z "))
}
