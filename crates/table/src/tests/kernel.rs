//! What the kernel tells of sockets and processes, and descriptors that come in messages.

use super::*;
use crate::fd_passing::{creator, receive, receive_with, send_with, ALL, MOST};
use crate::global::SETUP;
use crate::procfs::{numbers, status, target, Path};
use crate::{diag, route};
use shunt_segment::address::Address;
use std::os::fd::AsRawFd;

#[test]
fn more_descriptors_than_two_programs_send_are_all_closed() {
    let line = pair();
    let probes = [pair(), pair(), pair()];
    // A sender of ours sends no more than two: this message is built by hand.
    #[repr(C)]
    struct Control {
        length: usize,
        level: i32,
        kind: i32,
        descriptors: [i32; 4],
    }
    let mut control = Control {
        length: 16 + 4 * 3,
        level: libc::SOL_SOCKET,
        kind: libc::SCM_RIGHTS,
        descriptors: [probes[0][0], probes[1][0], probes[2][0], 0],
    };
    let all = ALL;
    let mut byte = libc::iovec { iov_base: (&raw const all).cast_mut().cast(), iov_len: 1 };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&mut byte, 1);
    (message.msg_control, message.msg_controllen) = ((&raw mut control).cast(), 16 + 4 * 3);
    calls::sendmsg(line[0], &message, 0).unwrap();
    probes.iter().for_each(|probe| calls::close(probe[0]).unwrap());
    assert!(probes.iter().all(|probe| !is_hung_up(probe[1])), "they are under way");
    assert_eq!(receive(line[1], 0), Ok([-1; MOST]));
    assert!(probes.iter().all(|probe| hangs_up(probe[1])));
    line.into_iter().chain(probes.map(|probe| probe[1])).for_each(|fd| calls::close(fd).unwrap());
}

#[test]
fn bytes_of_a_message_that_find_no_room_are_left_for_the_next_look() {
    let line = pair();
    send_with(line[0], b"abcdef", &[line[1]], 0).unwrap();
    let mut room = [0u8; 4];
    let (count, sent) = receive_with(line[1], &mut room, 0).unwrap();
    assert_eq!((count, &room), (4, b"abcd"));
    assert!(sent[0] >= 0 && sent[1] == -1);
    assert_eq!(receive_with(line[1], &mut room, 0), Ok((2, [-1; MOST])));
    line.into_iter().chain([sent[0]]).for_each(|fd| calls::close(fd).unwrap());
}

#[test]
fn the_maker_of_a_connection_is_told_whatever_it_does_next() {
    let line = pair();
    let told = creator(line[0]).unwrap();
    assert_eq!((told.pid as u32, told.uid), (calls::getpid(), calls::geteuid()));
    assert!(creator(-1).is_err());
    line.into_iter().for_each(|fd| calls::close(fd).unwrap());
}

#[test]
fn a_connection_is_taken_while_it_lives_and_held_while_a_process_has_its_end() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let there = crate::sockaddr::bound_address(listener.as_raw_fd());
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let here = crate::sockaddr::bound_address(client.as_raw_fd());
    let (server, _) = listener.accept().unwrap();
    let asked = |own: &Address, other: &Address| {
        let _setup = SETUP.lock().unwrap();
        (diag::is_held(own, other), diag::is_taken(own, other))
    };
    assert_eq!(asked(&here, &there), (Ok(true), true));
    assert_eq!(asked(&there, &here), (Ok(true), true));
    let nobody = Address { port: here.port ^ 1, ..here };
    assert_eq!(asked(&there, &nobody), (Ok(false), false), "a listener is no connection");
    drop(client);
    drop(server);
    // A child that another test starts has copies of all descriptors until its exec.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while asked(&here, &there) != (Ok(false), false) {
        assert!(std::time::Instant::now() < until, "what waits for late segments is no process's");
        std::thread::yield_now();
    }
}

#[test]
fn the_kernel_counts_the_clients_that_wait_at_a_name() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    let name = format!("shunt-waiting-{}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let waiting = || {
        let _setup = SETUP.lock().unwrap();
        diag::unix_waiting(listener.as_raw_fd())
    };
    assert_eq!(waiting(), Ok(0));
    let _clients = [(); 3].map(|()| UnixStream::connect_addr(&listener.local_addr().unwrap()).unwrap());
    assert_eq!(waiting(), Ok(3));
    let _server = listener.accept().unwrap();
    assert_eq!(waiting(), Ok(2));
    let _setup = SETUP.lock().unwrap();
    assert_eq!(diag::unix_peer(listener.as_raw_fd()), Err(Errno(libc::ENOTCONN)));
}

#[test]
fn the_receiver_of_a_datagram_is_found_by_both_addresses() {
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let there = crate::sockaddr::bound_address(receiver.as_raw_fd());
    let sender = Address::v4([127, 0, 0, 1], 1);
    let inode = calls::status_of(receiver.as_raw_fd()).unwrap().st_ino as u32;
    let asked = |to: &Address| {
        let _setup = SETUP.lock().unwrap();
        diag::receiver(&sender, to).map(|owner| owner.map(|owner| (owner.inode, owner.uid)))
    };
    assert_eq!(asked(&there), Ok(Some((inode, calls::geteuid()))));
    receiver.connect("127.0.0.1:9").unwrap();
    assert_eq!(asked(&there), Ok(None), "it takes from another sender alone");
}

#[test]
fn a_local_address_is_its_own_source() {
    let _setup = SETUP.lock().unwrap();
    let source = |ip: [u8; 4]| route::local_source(&Address::v4(ip, 80)).unwrap().map(|address| address.as_v4().unwrap());
    assert_eq!(source([127, 0, 0, 1]), Some([127, 0, 0, 1]));
    assert!(source([127, 9, 8, 7]).is_some());
    assert_eq!(route::local_source(&Address::v4([192, 0, 2, 1], 80)).unwrap_or(None), None);
}

#[test]
fn a_thread_s_state_is_found_behind_any_name() {
    let (tell, told) = std::sync::mpsc::channel();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: PR_SET_NAME reads a string.
        let set = unsafe { shunt_sys::syscall!(libc::SYS_prctl, libc::PR_SET_NAME, c") Z 1 (x) T".as_ptr()) };
        assert_eq!(set, 0);
        tell.send(shunt_sys::thread::id()).unwrap();
        let _ = wait.recv();
    });
    let number = told.recv().unwrap();
    let state = status(number, 0, |state| state.to_owned()).unwrap();
    assert!(["S", "R", "D"].contains(&state.as_str()), "{state}");
    drop(done);
    thread.join().unwrap();
    assert!(status(0, 0, |_| ()).is_none());
}

#[test]
fn a_directory_of_numbers_is_listed_until_one_suffices() {
    let probe = pair();
    let path = Path::new(format_args!("/proc/self/fd\0"));
    let mut seen = Vec::new();
    numbers(&path, |fd| {
        seen.push(fd as i32);
        false
    })
    .unwrap();
    assert!(probe.iter().all(|fd| seen.contains(fd)));
    let mut count = 0;
    numbers(&path, |_| {
        count += 1;
        count == 2
    })
    .unwrap();
    assert_eq!(count, 2);
    let mut room = [0; 64];
    assert!(target(&Path::new(format_args!("/proc/self/fd/{}\0", probe[0])), &mut room).starts_with(b"socket:["));
    assert!(target(&Path::new(format_args!("/proc/self/fd/x\0")), &mut room).is_empty());
    assert!(numbers(&Path::new(format_args!("/proc/no\0")), |_| true).is_err());
    probe.into_iter().for_each(|fd| calls::close(fd).unwrap());
}
