//! Descriptors in messages: what a receiver takes for a sender's own addition, and what the program is told of the rest.

use super::connection::object;
use super::*;
use crate::inherit::{Appended, Received};
use crate::rights::{narrow, widen, Wider};
use core::sync::atomic::Ordering;
use libc::{cmsghdr, iovec, msghdr};
use shunt_segment::name::Hello;
use shunt_table::sockaddr::abstract_name;

#[test]
fn files_and_sockets_of_the_program_are_the_program_s() {
    let _connection = Connection::new();
    let [one, other] = pair(libc::SOCK_STREAM);
    let file = calls::memfd_create(b"shunt-link\0", libc::MFD_CLOEXEC).unwrap();
    let mut appended = Appended::new();
    for fd in [one, file, -1] {
        assert!(!appended.take(fd));
        assert!(appended.serve(fd, Received::Taken), "it may be used as it is");
        assert_eq!(table::get(fd).kind(), Kind::Foreign);
    }
    drop(appended);
    for fd in [one, other, file] {
        calls::close(fd).unwrap();
    }
}

#[test]
fn a_companion_whose_link_did_not_come_cannot_be_used() {
    let _connection = Connection::new();
    let address = shunt_segment::address::Address::v4([127, 0, 0, 1], 7);
    let hello = Hello {
        version: shunt_segment::VERSION,
        nonce: u64::from(calls::getpid()) << 32 | 0x51,
        sequence: 1,
        channel: 2,
        link_follows: 0,
        generation: 3,
        client: address,
        server: address,
    };
    let companion = calls::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).unwrap();
    let (name, length) = abstract_name(hello.encode().as_slice());
    calls::bind(companion, (&raw const name).cast(), length).unwrap();
    assert!(!Appended::new().serve(companion, Received::Taken));
    assert_eq!(table::get(companion).kind(), Kind::Foreign);
    calls::close(companion).unwrap();
}

#[test]
fn a_stream_that_comes_back_to_its_process_is_one_more_number_of_it() {
    let connection = Connection::new();
    let socket = object(connection.client);
    let before = (socket.references.load(Ordering::Relaxed), socket.own().owners.load(Ordering::Relaxed));
    let index = socket.connected.link_index.load(Ordering::Relaxed) as usize;
    let segment = calls::fcntl(shunt_link::descriptor_unlocked(index), libc::F_DUPFD_CLOEXEC, 0).unwrap();
    let came = calls::fcntl(connection.client, libc::F_DUPFD_CLOEXEC, 0).unwrap();
    socket.own().owners.fetch_add(1, Ordering::Relaxed); // the message
    let mut appended = Appended::new();
    assert!(appended.take(segment), "the sender's addition");
    assert!(appended.serve(came, Received::Taken));
    assert!(core::ptr::eq(object(came), socket));
    assert_eq!(
        (socket.references.load(Ordering::Relaxed), socket.own().owners.load(Ordering::Relaxed)),
        (before.0 + 1, before.1)
    );
    drop(appended);
    connection::close(came);
    assert_eq!(socket.references.load(Ordering::Relaxed), before.0);
}

#[test]
fn a_rendezvous_that_no_listener_came_with_is_closed() {
    let connection = Connection::new();
    let own = object(connection.listener).private_fd.load(Ordering::Relaxed);
    let copy = calls::fcntl(own, libc::F_DUPFD_CLOEXEC, 0).unwrap();
    let mut appended = Appended::new();
    assert!(appended.take(copy), "it is private from now on");
    assert!(!appended.take(connection.server), "an accepted companion has its listener's name, too");
    drop(appended);
    assert!(is_open(own));
}

#[test]
fn a_segment_of_another_kind_is_taken_out_and_closed() {
    let _connection = Connection::new();
    let words = [shunt_segment::link::MAGIC, u64::MAX, 0x5eed, 1];
    let segment = calls::memfd_create(b"x\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING).unwrap();
    calls::ftruncate(segment, shunt_segment::area::LINK_SIZE as i64).unwrap();
    calls::pwrite(segment, words.as_ptr().cast(), 32, 0).unwrap();
    calls::fcntl(segment, libc::F_ADD_SEALS, (libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL) as usize).unwrap();
    let mut appended = Appended::new();
    assert!(appended.take(segment), "no program sends such a file");
    drop(appended);
    let _setup = shunt_table::global::SETUP.lock().unwrap();
    assert!(shunt_link::by_name(0x5eed, 1).is_none());
}

/// What a receiver with so much room for control messages is told of one with credentials and these descriptors: flags, and each message's
/// kind with its length, and how many descriptors it has got.
fn told(ours: bool, room: usize, passed: &[i32]) -> (i32, usize, Vec<(i32, usize)>, usize) {
    let line = pair(libc::SOCK_DGRAM);
    calls::setsockopt_int(line[1], libc::SOL_SOCKET, libc::SO_PASSCRED, 1).unwrap();
    let mut control = [0u64; 16];
    // SAFETY: room for a header and the descriptors.
    unsafe {
        let header = control.as_mut_ptr().cast::<cmsghdr>();
        let length = libc::CMSG_LEN((passed.len() * 4) as u32) as usize;
        header.write(cmsghdr { cmsg_len: length, cmsg_level: libc::SOL_SOCKET, cmsg_type: libc::SCM_RIGHTS });
        core::ptr::copy_nonoverlapping(passed.as_ptr(), header.add(1).cast(), passed.len());
    }
    let mut byte = 7u8;
    let mut vector = iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: msghdr = unsafe { core::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&mut vector, 1);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = 16 + passed.len() * 4;
    calls::sendmsg(line[0], &message, 0).unwrap();

    let mut into = [0xaau8; 256];
    let mut given = message;
    (given.msg_control, given.msg_controllen) = (into.as_mut_ptr().cast(), room);
    let mut more = Box::new(Wider::new());
    let mut got = given;
    if ours && widen(line[1], &mut got, &mut more) {
        calls::recvmsg(line[1], &mut got, libc::MSG_CMSG_CLOEXEC).unwrap();
        // SAFETY: what the kernel has filled, and the room that was given.
        unsafe { narrow(&mut got, &mut given, 0) };
    } else {
        calls::recvmsg(line[1], &mut given, libc::MSG_CMSG_CLOEXEC).unwrap();
    }
    assert!(into[given.msg_controllen..].iter().skip(room.saturating_sub(given.msg_controllen)).all(|byte| *byte == 0xaa));
    let (mut at, mut messages, mut descriptors) = (0, Vec::new(), 0);
    while at + 16 <= given.msg_controllen {
        // SAFETY: a header lies in the room.
        let header = unsafe { into.as_ptr().add(at).cast::<cmsghdr>().read_unaligned() };
        messages.push((header.cmsg_type, header.cmsg_len));
        if header.cmsg_type == libc::SCM_RIGHTS {
            for place in (at + 16..at + header.cmsg_len).step_by(4) {
                let fd = i32::from_ne_bytes(*into[place..].first_chunk().unwrap());
                calls::close(fd).expect("an open descriptor");
                descriptors += 1;
            }
        }
        at += header.cmsg_len.next_multiple_of(8);
    }
    line.into_iter().for_each(|fd| calls::close(fd).unwrap());
    (given.msg_flags & libc::MSG_CTRUNC, given.msg_controllen, messages, descriptors)
}

#[test]
fn a_program_s_control_messages_are_cut_as_the_kernel_cuts_them() {
    let _connection = Connection::new();
    let probe = pair(libc::SOCK_STREAM);
    for count in 1..=3 {
        for room in 0..96 {
            let passed = &[probe[0], probe[1], probe[0]][..count];
            assert_eq!(told(true, room, passed), told(false, room, passed), "{count} descriptors, room for {room} bytes");
        }
    }
    probe.into_iter().for_each(|fd| calls::close(fd).unwrap());
}
