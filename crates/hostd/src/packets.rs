//! Packets with descriptors over AF_UNIX (unix(7)).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use shunt_sys::{calls, Errno};

/// Bytes of a control message's head; descriptors follow.
const HEAD: usize = size_of::<libc::cmsghdr>();
/// Packets of no bytes that are taken from a connection that ends: its end looks the same.
const EMPTY: usize = 8;

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

/// Takes a packet: its length, and the descriptor that came along if there was exactly one. There is room for one: the kernel drops those beyond, which is
/// not close(2), in which the holder of a file system of its own (FUSE) may have its say.
///
/// Errors: EAGAIN: there is none. A length of 0 is the end.
pub fn receive(from: BorrowedFd, room: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut control = [0u64; HEAD / 8 + 1];
    let mut vector = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), HEAD + size_of::<i32>());
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC;
    let got = calls::recvmsg(from.as_raw_fd(), &raw mut message, flags)?;
    let is_one = control[..2] == [(HEAD + size_of::<i32>()) as u64, kind()];
    // SAFETY: the kernel has made this number for this process, and nobody else knows it.
    let first = is_one.then(|| unsafe { OwnedFd::from_raw_fd(control[HEAD / 8] as u32 as i32) });
    if let Some(first) = &first {
        will_not_linger(first.as_fd());
    }
    Ok((got, first.filter(|_| message.msg_flags & libc::MSG_CTRUNC == 0)))
}

/// Whether the other end has closed the connection, and nothing lies in it any more.
pub fn has_gone(from: BorrowedFd) -> bool {
    let mut room = 0u8;
    let mut vector = libc::iovec { iov_base: (&raw mut room).cast(), iov_len: 1 };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
    calls::recvmsg(from.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT | libc::MSG_PEEK) == Ok(0)
}

/// Takes what is still there, and lets nothing more come: what a connection has in it when it is closed the kernel closes, as it is.
pub fn drain(from: BorrowedFd) {
    let _ = calls::shutdown(from.as_raw_fd(), libc::SHUT_RD);
    let (mut room, mut empty) = ([0; 1], 0);
    while empty < EMPTY {
        match receive(from, &mut room) {
            Ok((0, None)) => empty += 1,
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// SO_LINGER with a time would hold the last close(2) of a socket up for as long: a socket that has it loses it. Ends that are honest do not.
fn will_not_linger(socket: BorrowedFd) {
    let fd = socket.as_raw_fd();
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut length = size_of_val(&linger) as u32;
    let told = calls::getsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw mut linger).cast(), &mut length);
    if told.is_ok() && linger.l_onoff != 0 && linger.l_linger != 0 {
        linger = libc::linger { l_onoff: 0, l_linger: 0 };
        let _ = calls::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn an_end_that_has_gone_is_seen() {
        let [one, other] = pair();
        assert!(!has_gone(other.as_fd()));
        assert!(send(one.as_fd(), b"last", None));
        drop(one);
        assert!(!has_gone(other.as_fd()), "its last packet, which stays where it is");
        assert!(matches!(receive(other.as_fd(), &mut [0; 8]), Ok((4, None))));
        assert!(has_gone(other.as_fd()));
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

    /// What a stranger has put behind its first packet is not the kernel's to close.
    #[test]
    fn what_is_left_in_a_connection_is_taken() {
        let [one, other] = pair();
        let [kept, its] = pair();
        for bytes in [&b"x"[..], b"", b"", b"yy"] {
            assert!(send(one.as_fd(), bytes, Some(its.as_fd())));
        }
        drop(its);
        drain(other.as_fd());
        assert!(matches!(receive(kept.as_fd(), &mut [0; 4]), Ok((0, None))), "one of them is open");
        assert!(!send(one.as_fd(), b"z", None), "no more comes");
    }

    /// Sockets with bytes that nobody takes and a time to linger, of which no other descriptor is left.
    #[test]
    fn no_close_takes_long() {
        use std::io::Write;
        let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let [one, other] = pair();
        let mut client = std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        client.set_nonblocking(true).expect("it");
        while client.write(&[0; 65_536]).is_ok() {}
        let linger = libc::linger { l_onoff: 1, l_linger: 20 };
        let (length, level) = (size_of_val(&linger) as u32, libc::SOL_SOCKET);
        calls::setsockopt(client.as_raw_fd(), level, libc::SO_LINGER, (&raw const linger).cast(), length).expect("an option");
        assert!(send(one.as_fd(), b"x", Some(client.as_fd())));
        // With this one in its queue the last close is the receiver's.
        let began = std::time::Instant::now();
        let got = receive(other.as_fd(), &mut [0; 4]).expect("it");
        drop((client, got));
        assert!(began.elapsed() < std::time::Duration::from_secs(10));
    }
}
