//! Flags of send and recv, as tcp_recvmsg and tcp_sendmsg take them.

use super::*;

#[test]
fn peek_takes_nothing() {
    let Pair { near, far } = &Pair::new();
    near.send(b"twice", 0).unwrap();
    assert_eq!(far.text(3, libc::MSG_PEEK).unwrap(), "twi");
    assert_eq!(far.text(9, libc::MSG_PEEK).unwrap(), "twice");
    assert_eq!(far.text(9, 0).unwrap(), "twice");
    assert_eq!(far.text(9, NOW | libc::MSG_PEEK), Err(EAGAIN));
}

#[test]
fn peek_sees_several_sends() {
    let Pair { near, far } = &Pair::new();
    for _ in 0..100 {
        near.send(&pattern(97), 0).unwrap();
    }
    let mut bytes = vec![0; 20_000];
    assert_eq!(far.receive(&mut bytes, libc::MSG_PEEK), Ok(9700));
    assert_eq!(bytes[97..194], pattern(97));
}

#[test]
fn truncated_bytes_are_thrown_away() {
    let Pair { near, far } = &Pair::new();
    near.send(b"abcdef", 0).unwrap();
    let mut bytes = *b"....";
    assert_eq!(far.receive(&mut bytes, libc::MSG_TRUNC), Ok(4));
    assert_eq!(&bytes, b"....", "nothing is copied (tcp(7))");
    assert_eq!(far.text(9, 0).unwrap(), "ef");
}

#[test]
fn wait_all_waits_for_all() {
    let pair = Pair::new();
    let (near, far) = (pair.near, pair.far);
    let receiver = std::thread::spawn(move || far.text(10, libc::MSG_WAITALL));
    for part in ["abc", "def", "ghij"] {
        std::thread::sleep(std::time::Duration::from_millis(5));
        near.send(part.as_bytes(), 0).unwrap();
    }
    assert_eq!(receiver.join().unwrap().unwrap(), "abcdefghij");
}

#[test]
fn wait_all_is_content_with_the_end() {
    let Pair { near, far } = &Pair::new();
    near.send(b"abc", 0).unwrap();
    near.shut(libc::SHUT_WR).unwrap();
    assert_eq!(far.text(10, libc::MSG_WAITALL).unwrap(), "abc");
}

#[test]
fn wait_all_without_waiting_takes_what_is_there() {
    let Pair { near, far } = &Pair::new();
    near.send(b"abc", 0).unwrap();
    assert_eq!(far.text(10, libc::MSG_WAITALL | NOW).unwrap(), "abc");
}

#[test]
fn a_receive_of_nothing_does_not_wait() {
    let Pair { far, near } = &Pair::new();
    near.send(b"x", 0).unwrap();
    assert_eq!(far.receive(&mut [], 0), Ok(0));
    assert_eq!(far.text(9, 0).unwrap(), "x");
}

#[test]
fn a_nonblocking_socket_does_not_wait() {
    let Pair { near, far } = &Pair::new();
    far.set_nonblocking();
    assert_eq!(far.receive(&mut [0; 9], 0), Err(EAGAIN));
    near.send(b"x", 0).unwrap();
    assert_eq!(far.text(9, 0).unwrap(), "x");
    assert_eq!(far.receive(&mut [0; 9], 0), Err(EAGAIN));
}

#[test]
fn fast_open_is_for_sockets_that_are_not_connected() {
    let Pair { near, .. } = &Pair::new();
    assert_eq!(error(near.send(b"x", libc::MSG_FASTOPEN)), libc::EISCONN);
}

#[test]
fn the_error_queue_is_empty() {
    let Pair { near, far } = &Pair::new();
    near.send(b"x", 0).unwrap();
    assert_eq!(far.receive(&mut [0; 9], libc::MSG_ERRQUEUE), Err(EAGAIN));
    assert_eq!(far.text(9, 0).unwrap(), "x");
}

#[test]
fn negative_lengths_fault() {
    let Pair { near, far } = &Pair::new();
    // SAFETY: no byte is touched of a range that cannot be.
    unsafe {
        assert_eq!(error(crate::send(near.socket, near.fd, core::ptr::dangling(), usize::MAX, 0)), libc::EFAULT);
        assert_eq!(error(crate::receive(far.socket, far.fd, core::ptr::dangling_mut(), usize::MAX, NOW)), libc::EFAULT);
    }
}
