//! Passing descriptors of our own between two processes: one byte and SCM_RIGHTS over an AF_UNIX stream.

use shunt_sys::libc::{self, iovec, msghdr};
use shunt_sys::{calls, Errno, Result};

/// Descriptors in one message.
pub const MOST: usize = 2;

/// A control message of [`MOST`] descriptors, as cmsg(3) lays it out.
#[repr(C, align(8))]
struct Control {
    length: usize,
    level: i32,
    kind: i32,
    descriptors: [i32; MOST],
}

const HEADER: usize = 16;

/// The byte of a message with all that there is to send.
pub const ALL: u8 = 1;
/// The byte of a message with a link whose bell stays behind.
pub const WITHOUT_BELL: u8 = 2;

/// Sends one byte and up to [`MOST`] descriptors.
pub fn send(over: i32, descriptors: &[i32], flags: i32) -> Result<()> {
    send_with(over, &[ALL], descriptors, flags)
}

/// Sends `bytes` and up to [`MOST`] descriptors.
pub fn send_with(over: i32, bytes: &[u8], descriptors: &[i32], flags: i32) -> Result<()> {
    let count = descriptors.len().min(MOST);
    let mut control =
        Control { length: HEADER + 4 * count, level: libc::SOL_SOCKET, kind: libc::SCM_RIGHTS, descriptors: [-1; MOST] };
    control.descriptors[..count].copy_from_slice(&descriptors[..count]);
    let mut vector = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &mut vector;
    message.msg_iovlen = 1;
    if count > 0 {
        message.msg_control = (&mut control as *mut Control).cast();
        message.msg_controllen = core::mem::size_of::<Control>();
    }
    calls::sendmsg(over, &message, flags).map(|_| ())
}

/// Receives one byte and the descriptors that came along (closed on exec); -1 where there are fewer than [`MOST`].
///
/// Errors: EAGAIN; ECONNRESET when the other end has closed; EMFILE: they did not all find a number, and none is kept.
pub fn receive(over: i32, flags: i32) -> Result<[i32; MOST]> {
    receive_with(over, &mut [0u8], flags).map(|(_, descriptors)| descriptors)
}

/// As [`receive`], of a message of up to `room.len()` bytes; gives their number, too.
pub fn receive_with(over: i32, room: &mut [u8], flags: i32) -> Result<(usize, [i32; MOST])> {
    let mut control = [0u64; 8];
    let mut vector = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = core::mem::size_of_val(&control);
    let got = calls::recvmsg(over, &mut message, flags | libc::MSG_CMSG_CLOEXEC)?;
    if got == 0 {
        return Err(Errno(libc::ECONNRESET));
    }
    // The kernel had no numbers for all of them, or a hostile peer sent more than any library does.
    let cut = message.msg_flags & libc::MSG_CTRUNC != 0;
    let mut descriptors = [-1; MOST];
    let header = (control[1] as u32 as i32, (control[1] >> 32) as i32);
    if message.msg_controllen < HEADER + 4 || (control[0] as usize) < HEADER + 4 || header != (libc::SOL_SOCKET, libc::SCM_RIGHTS)
    {
        return if cut { Err(Errno(libc::EMFILE)) } else { Ok((got, descriptors)) };
    }
    let count = ((control[0] as usize).min(message.msg_controllen) - HEADER) / 4;
    for i in 0..count.min(12) {
        let fd = (control[2 + i / 2] >> (32 * (i % 2))) as u32 as i32;
        match descriptors.get_mut(i) {
            Some(place) if count <= MOST && !cut => *place = fd,
            // More than were announced is a hostile peer: none is kept.
            _ => {
                let _ = calls::close(fd);
            }
        }
    }
    if cut {
        return Err(Errno(libc::EMFILE));
    }
    Ok((got, descriptors))
}

/// Takes a message off as [`receive`] does, without its descriptors, which the kernel closes. False: there is none.
pub fn discard(over: i32) -> bool {
    let mut byte = 0u8;
    let none = core::ptr::null_mut();
    calls::recvfrom(over, (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT, none, core::ptr::null_mut()) == Ok(1)
}

/// The maker of the AF_UNIX connection that `fd` is the accepted end of (SO_PEERCRED): process and user.
pub fn creator(fd: i32) -> Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut length = core::mem::size_of::<libc::ucred>() as libc::socklen_t;
    calls::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&mut peer as *mut libc::ucred).cast(), &mut length)?;
    Ok(peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_sys::libc::{AF_UNIX, MSG_DONTWAIT, SOCK_CLOEXEC, SOCK_STREAM};

    #[test]
    fn descriptors_arrive_in_order() {
        let mut pair = [-1; 2];
        calls::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.as_mut_ptr()).unwrap();
        for sent in [&pair[..1], &pair[..2]] {
            send(pair[0], sent, MSG_DONTWAIT).unwrap();
            let got = receive(pair[1], MSG_DONTWAIT).unwrap();
            assert_eq!(got.iter().filter(|fd| **fd >= 0).count(), sent.len());
            for fd in got.into_iter().filter(|fd| *fd >= 0) {
                calls::close(fd).unwrap();
            }
        }
        assert_eq!(receive(pair[1], MSG_DONTWAIT), Err(Errno(libc::EAGAIN)));
        let mut other = [-1; 2];
        calls::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other.as_mut_ptr()).unwrap();
        send(pair[0], &other[..1], MSG_DONTWAIT).unwrap();
        calls::close(other[0]).unwrap();
        assert!(discard(pair[1]));
        assert!(!discard(pair[1]));
        assert_eq!(receive(other[1], MSG_DONTWAIT), Err(Errno(libc::ECONNRESET)), "what was discarded is closed");
        calls::close(other[1]).unwrap();
        calls::sendto(pair[0], b"x".as_ptr().cast(), 1, 0, core::ptr::null(), 0).unwrap();
        assert_eq!(receive(pair[1], MSG_DONTWAIT), Ok([-1; 2]));
        calls::close(pair[0]).unwrap();
        assert_eq!(receive(pair[1], MSG_DONTWAIT), Err(Errno(libc::ECONNRESET)));
        calls::close(pair[1]).unwrap();
    }
}
