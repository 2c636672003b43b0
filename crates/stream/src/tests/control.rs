//! Control messages, as the kernel's TCP lays them out in buffers of all sizes.

use super::*;
use crate::control::{self, ask, Writer};
use core::sync::atomic::Ordering::Relaxed;
use shunt_sys::libc::{cmsghdr, iovec, msghdr, IPPROTO_TCP, SOL_SOCKET, SO_TIMESTAMP, SO_TIMESTAMPING, SO_TIMESTAMPNS};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Once;

const TCP_INQ: i32 = 36;
const SOF_TIMESTAMPING_SOFTWARE: i32 = 1 << 4;

/// What a program finds in its buffer: level, type and length of each message, how much was written, and whether something was cut off.
type Found = (Vec<(i32, i32, usize)>, usize, bool);

fn found(buffer: &[u64], message: &msghdr) -> Found {
    let (mut messages, mut at, end) = (vec![], 0, message.msg_controllen);
    while at + size_of::<cmsghdr>() <= end {
        // SAFETY: inside the buffer, which is aligned for it.
        let header = unsafe { &*buffer.as_ptr().byte_add(at).cast::<cmsghdr>() };
        messages.push((header.cmsg_level, header.cmsg_type, header.cmsg_len));
        at += (header.cmsg_len + 7) & !7;
    }
    (messages, end, message.msg_flags & libc::MSG_CTRUNC != 0)
}

fn header(buffer: &mut [u64], room: usize) -> msghdr {
    // SAFETY: zeros are a header without anything.
    let mut message: msghdr = unsafe { core::mem::zeroed() };
    message.msg_control = buffer.as_mut_ptr().cast();
    message.msg_controllen = room;
    message
}

/// What our writer gives for three bytes of which one is taken, with these options.
fn ours(options: &[(i32, i32, i32)], room: usize) -> Found {
    let Pair { near, far } = &Pair::new();
    for (level, name, value) in options {
        control::note(far.socket, *level, *name, *value);
    }
    near.send(b"abc", 0).unwrap();
    assert_eq!(far.text(1, 0).unwrap(), "a");
    near.socket.own().rung_at.store(1_700_000_000_123_456_789, Relaxed);
    let mut buffer = [0u64; 32];
    let mut message = header(&mut buffer, room);
    let mut writer = Writer::new(&mut message);
    // SAFETY: the buffer is larger than the room.
    unsafe { control::with_bytes(far.socket, 1, &mut writer) };
    writer.finish();
    found(&buffer, &message)
}

/// The same by the kernel, which notes no time of packets until some socket of the machine has asked for it, and a while behind that.
fn kernels(options: &[(i32, i32, i32)], room: usize) -> Found {
    static STAMPED: Once = Once::new();
    STAMPED.call_once(|| {
        let asks = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        shunt_sys::calls::setsockopt_int(asks.as_raw_fd(), SOL_SOCKET, SO_TIMESTAMP, 1).unwrap();
        core::mem::forget(asks);
        while kernels_at_once(&[MICROS], 200).0.is_empty() {
            std::thread::yield_now();
        }
    });
    kernels_at_once(options, room)
}

fn kernels_at_once(options: &[(i32, i32, i32)], room: usize) -> Found {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    for (level, name, value) in options {
        shunt_sys::calls::setsockopt_int(far.as_raw_fd(), *level, *name, *value).unwrap();
    }
    near.write_all(b"abc").unwrap();
    while shunt_sys::calls::bytes_waiting(far.as_raw_fd()).unwrap() < 3 {
        std::thread::yield_now();
    }
    let (mut buffer, mut byte) = ([0u64; 32], [0u8; 1]);
    let mut piece = iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut message = header(&mut buffer, room);
    (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
    // SAFETY: a header of ours.
    assert_eq!(unsafe { libc::recvmsg(far.as_raw_fd(), &raw mut message, 0) }, 1);
    found(&buffer, &message)
}

const INQ: (i32, i32, i32) = (IPPROTO_TCP, TCP_INQ, 1);
const MICROS: (i32, i32, i32) = (SOL_SOCKET, SO_TIMESTAMP, 1);
const NANOS: (i32, i32, i32) = (SOL_SOCKET, SO_TIMESTAMPNS, 1);
const STAMPING: (i32, i32, i32) = (SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE);

#[test]
fn messages_in_buffers_of_all_sizes() {
    for options in [&[INQ][..], &[MICROS, INQ]] {
        for room in 0..=72 {
            assert_eq!(ours(options, room), kernels(options, room), "{options:?} in {room} bytes");
        }
    }
}

#[test]
fn the_last_kind_of_time_counts() {
    for options in [&[MICROS][..], &[NANOS], &[MICROS, NANOS], &[NANOS, MICROS], &[NANOS, (SOL_SOCKET, SO_TIMESTAMP, 0)]] {
        assert_eq!(ours(options, 200), kernels(options, 200), "{options:?}");
    }
}

#[test]
fn numbers_of_the_longer_times_are_told_by_the_options_that_asked() {
    for (old, new) in [(SO_TIMESTAMP, 63), (SO_TIMESTAMPNS, 64)] {
        for options in [[(SOL_SOCKET, old, 1), (SOL_SOCKET, new, 1)], [(SOL_SOCKET, new, 1), (SOL_SOCKET, old, 1)]] {
            assert_eq!(ours(&options, 200), kernels(&options, 200), "{options:?}");
        }
    }
}

#[test]
fn other_options_ask_for_nothing() {
    let Pair { far, .. } = &Pair::new();
    control::note(far.socket, SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    control::note(far.socket, IPPROTO_TCP, SO_TIMESTAMP, 1);
    control::note(far.socket, SOL_SOCKET, SO_TIMESTAMPING, 1); // SOF_TIMESTAMPING_TX_HARDWARE alone
    assert_eq!(far.socket.control.load(Relaxed), 0);
}

#[test]
fn time_is_asked_of_the_peer_as_long_as_somebody_wants_it() {
    let Pair { near, far } = &Pair::new();
    let (level, name, value) = STAMPING;
    control::note(far.socket, level, name, value);
    control::announce(far.socket, far.fd);
    assert_eq!(near.socket.peer().asks_time.load(Relaxed), 1);
    control::note(far.socket, level, name, 0);
    control::announce(far.socket, far.fd);
    assert_eq!(near.socket.peer().asks_time.load(Relaxed), 0);
}

#[test]
fn how_much_waits_is_asked_of_nobody() {
    let Pair { near, far } = &Pair::new();
    control::note(far.socket, IPPROTO_TCP, TCP_INQ, 1);
    control::announce(far.socket, far.fd);
    assert_eq!(near.socket.peer().asks_time.load(Relaxed), 0);
    assert_eq!(far.socket.control.load(Relaxed) & ask::ANY_TIME, 0);
}

#[test]
fn an_error_queue_that_is_empty_says_eagain() {
    let Pair { near, .. } = &Pair::new();
    let mut buffer = [0u64; 32];
    let mut message = header(&mut buffer, 200);
    // SAFETY: the buffer is larger than the room.
    assert_eq!(unsafe { control::from_error_queue(near.socket, &mut message) }, Err(EAGAIN));
}
