//! Packets with descriptors over AF_UNIX (unix(7)).

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use shunt_sys::{calls, Errno};

/// Bytes of a control message's head; descriptors follow.
const HEAD: usize = size_of::<libc::cmsghdr>();
/// Descriptors that are looked for in one packet: as many as the room takes, so that none stays open that is not known.
const MOST: usize = 12;

/// Sends a packet, with a descriptor or without. False: the other end is gone, or takes nothing.
pub fn send(over: BorrowedFd, bytes: &[u8], descriptor: Option<BorrowedFd>) -> bool {
    let mut control: [u64; HEAD / 8 + 1];
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
    if let Some(descriptor) = descriptor {
        control = [(HEAD + 4) as u64, kind(), u64::from(descriptor.as_raw_fd() as u32)];
        (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
    }
    let sent = calls::sendmsg(over.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    sent == Ok(bytes.len())
}

/// SOL_SOCKET and SCM_RIGHTS, as they lie in a control message.
fn kind() -> u64 {
    libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32
}

/// Takes a packet: its length, and the descriptor that came along if there was exactly one; others are closed.
///
/// Errors: EAGAIN: there is none. A length of 0 is the end.
pub fn receive(from: BorrowedFd, room: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut control = [0u64; HEAD / 8 + MOST / 2];
    let mut vector = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC;
    let got = calls::recvmsg(from.as_raw_fd(), &raw mut message, flags)?;
    let length = (message.msg_controllen.min(control[0] as usize)).saturating_sub(HEAD) / 4;
    let count = if control[1] == kind() { length.min(MOST) } else { 0 };
    let number = |i: usize| (control[HEAD / 8 + i / 2] >> (32 * (i % 2))) as u32 as i32;
    // SAFETY: the kernel has made these numbers for this process, and nobody else knows them.
    let mut all = (0..count).map(|i| unsafe { OwnedFd::from_raw_fd(number(i)) });
    let first = all.next();
    let is_one = all.count() == 0 && message.msg_flags & libc::MSG_CTRUNC == 0;
    Ok((got, first.filter(|_| is_one)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn pair() -> [OwnedFd; 2] {
        let mut pair = [-1; 2];
        calls::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr()).expect("a pair");
        // SAFETY: both are new.
        pair.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Ends of such packets that are open in this process.
    fn open() -> usize {
        let all = std::fs::read_dir("/proc/self/fd").expect("it").flatten();
        let is_packets = |fd: i32| calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_SEQPACKET);
        all.filter(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()).is_some_and(is_packets)).count()
    }

    #[test]
    fn a_packet_has_one_descriptor_or_none() {
        let [one, other] = pair();
        let file = std::fs::File::open("/dev/null").expect("it");
        let mut room = [0u8; 16];
        assert!(send(one.as_fd(), b"plain", None));
        assert!(matches!(receive(other.as_fd(), &mut room), Ok((5, None))));
        assert!(send(one.as_fd(), b"more", Some(file.as_fd())));
        let Ok((4, Some(got))) = receive(other.as_fd(), &mut room) else { panic!("a descriptor") };
        let inode = |fd: i32| calls::status_of(fd).expect("it").st_ino;
        assert_eq!(inode(got.as_raw_fd()), inode(file.as_raw_fd()));
        assert!(send(one.as_fd(), &[7; 40], None));
        assert!(matches!(receive(other.as_fd(), &mut room), Ok((40, None))), "longer than the room");
        assert!(matches!(receive(other.as_fd(), &mut room), Err(Errno(libc::EAGAIN))));
        drop(one);
        assert!(matches!(receive(other.as_fd(), &mut room), Ok((0, None))));
        assert!(!send(other.as_fd(), b"x", None));
    }

    /// As a hostile process sends them; by python, which packs what it is told.
    #[test]
    fn too_many_descriptors_are_all_closed() {
        let before = open();
        for count in [2, 3, 11, 12, 13, 40, 253] {
            let [one, other] = pair();
            let code = "import socket,sys\n\
                s = socket.socket(fileno=0, family=socket.AF_UNIX, type=socket.SOCK_SEQPACKET)\n\
                socket.send_fds(s, [b'x'], [0] * int(sys.argv[1]))";
            let mut command = std::process::Command::new("python3");
            command.args(["-c", code, &count.to_string()]).stdin(one);
            assert!(command.status().expect("python3").success());
            drop(command);
            let mut room = [0u8; 16];
            assert!(matches!(receive(other.as_fd(), &mut room), Ok((1, None))), "{count}");
        }
        assert!(open() <= before + 2, "another test's pair");
    }
}
