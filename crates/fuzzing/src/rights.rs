//! A message of a peer's with any number of descriptors, where some of ours are expected: what was not announced is
//! closed.

use crate::handover::{lowest_free, started};
use crate::input::Input;
use shunt_sys::{calls, libc};
use shunt_table::fd_passing;

/// SCM_MAX_FD of the kernel.
const MOST: usize = 253;

#[repr(C, align(8))]
struct Control {
    length: usize,
    level: i32,
    kind: i32,
    descriptors: [i32; MOST],
}

pub fn run(data: &[u8]) {
    let _turn = started();
    let before = lowest_free();
    let mut input = Input(data);
    let mut pair = [-1; 2];
    calls::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr()).expect("a pair");
    let mut messages = 0;
    while let (Some(count), Some(length)) = (input.byte(), input.byte()) {
        let count = count as usize % (MOST + 1);
        let bytes = vec![length; length as usize % 4];
        let mut control =
            Control { length: 16 + 4 * count, level: libc::SOL_SOCKET, kind: libc::SCM_RIGHTS, descriptors: [pair[0]; MOST] };
        let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: all-zero is a valid msghdr.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = &mut vector;
        message.msg_iovlen = 1;
        if count > 0 {
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = (16 + 4 * count).next_multiple_of(8);
        }
        let _ = calls::sendmsg(pair[0], &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        messages += 1;
        if messages > 8 {
            break;
        }
        if let Ok(got) = fd_passing::receive(pair[1], libc::MSG_DONTWAIT) {
            for fd in got.into_iter().filter(|fd| *fd >= 0) {
                calls::close(fd).expect("an open descriptor");
            }
        }
    }
    for fd in pair {
        calls::close(fd).expect("an open descriptor");
    }
    assert_eq!(lowest_free(), before, "nothing is left open");
}
