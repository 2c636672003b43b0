//! Ports over connections that two programs have anyway: by reference on one host, by copies elsewhere.

mod common;

use common::{pool, UNIT};
use shunt_buffers::costs::Costs;
use shunt_buffers::port::{Error, Port, AT_ONCE};
use shunt_buffers::record::{Kind, Record};
use shunt_buffers::Semantics;
use shunt_region::{Limit, Reference};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;

fn tcp() -> (i32, i32) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here.into_raw_fd(), listener.accept().unwrap().0.into_raw_fd())
}

fn unix() -> (i32, i32) {
    let (here, there) = UnixStream::pair().unwrap();
    (here.into_raw_fd(), there.into_raw_fd())
}

type Made = fn(i32) -> Result<Port, Error>;

fn agreed((here, there): (i32, i32), [one, two]: [Made; 2]) -> (Port, Port) {
    let other = std::thread::spawn(move || two(there).unwrap());
    (one(here).unwrap(), other.join().unwrap())
}

const BOTH: [Made; 2] = [Port::over, Port::over];

#[test]
fn two_processes_of_a_host_share_whatever_carries_their_connection() {
    for connection in [unix as fn() -> (i32, i32), tcp] {
        for round in 0..8u8 {
            // Which one is the host is by chance.
            let (mut here, mut there) = agreed(connection(), BOTH);
            assert!(here.shares() && there.shares());
            let pool = pool();
            here.set_costs(Costs::USUAL);
            here.offer(&pool).unwrap();
            let mut region = pool.allocate(3 * UNIT).unwrap();
            region.bytes_mut().fill(round);
            let ticket = here.send_region(region, 3 * UNIT, Semantics::EMULATED_WEAK_MOVE).unwrap();
            let message = there.receive_reference().unwrap();
            assert!(message.in_place().is_some() && message.to_vec() == [round; 3 * UNIT]);
            assert!(!here.completed(ticket).unwrap());
            there.give_back(message).unwrap();
            assert!(here.completed(ticket).unwrap());
            drop(here);
            assert_eq!(there.next_length(), Err(Error::Gone));
        }
    }
}

/// Every call, of which each says what it says where memory is shared.
fn all_calls(mut here: Port, mut there: Port) {
    assert!(!here.shares() && !there.shares());
    let (pool, own) = (pool(), pool_of_there());
    here.offer(&pool).unwrap();
    there.offer(&own).unwrap();
    here.trust();
    here.set_quota(1 << 20).unwrap();
    assert!(!there.has_message());

    assert_eq!(here.send(b"", false), Ok(AT_ONCE));
    assert_eq!(there.receive(&mut []), Ok(0));
    assert_eq!(here.send(b"short", true), Ok(AT_ONCE));
    assert_eq!(there.next_length(), Ok(5));
    assert!(there.has_message());
    assert_eq!(there.receive(&mut [0; 2]), Err(Error::Length(5)));
    let mut bytes = [0; 8];
    assert_eq!((there.receive(&mut bytes), &bytes[..5]), (Ok(5), &b"short"[..]));
    assert!(!there.has_message());

    // More than any buffer of a connection has room for: the other side reads meanwhile.
    let long = 32 * UNIT;
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; long];
        assert_eq!(there.receive(&mut bytes), Ok(long));
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        let shared = there.receive_reference().unwrap();
        assert!(shared.in_place().is_none() && shared.semantics() == Semantics::EMULATED_SHARE);
        assert_eq!((shared.length(), shared.to_vec()[long - 2]), (long - 1, (long - 2) as u8));
        there.give_back(shared).unwrap();
        let (region, length) = there.receive_region(Semantics::EMULATED_MOVE).unwrap();
        assert_eq!((length, region.bytes()[long - 1]), (long, (long - 1) as u8));
        there
    });
    let mut region = pool.allocate(long).unwrap();
    region.bytes_mut().iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    assert_eq!(here.send(region.bytes(), true), Ok(AT_ONCE));
    assert_eq!(here.send_shared(&region, long - 1, Semantics::EMULATED_SHARE), Ok(AT_ONCE));
    assert_eq!(here.send_region(region, long, Semantics::MOVE), Ok(AT_ONCE));
    assert!(here.completed(AT_ONCE).unwrap());
    assert_eq!((here.copied(Limit::Apart), here.lent()), (3, (0, 0)));
    assert_eq!(pool.free(), 64, "nothing is kept");
    let mut there = reader.join().unwrap();

    // What came by reference is passed on as a copy.
    let (mut first, mut middle) = Port::pair().unwrap();
    first.set_costs(Costs::USUAL);
    first.offer(&own).unwrap();
    let region = own.allocate(UNIT).unwrap();
    first.send_region(region, UNIT, Semantics::EMULATED_WEAK_MOVE).unwrap();
    let message = middle.receive_reference().unwrap();
    assert!(message.in_place().is_some());
    here.forward(message, &mut middle).unwrap();
    assert_eq!((here.settle(&mut middle), there.next_length()), (Ok(0), Ok(UNIT)));
    assert_eq!(here.copied(Limit::Apart), 4);
    let message = there.receive_reference().unwrap();
    there.give_back(message).unwrap();

    drop(here);
    assert_eq!(there.next_length(), Err(Error::Gone));
    assert!(matches!(there.send(&vec![1; 32 * UNIT], false).and_then(|_| there.send(b"x", false)), Err(Error::Gone)));
}

fn pool_of_there() -> shunt_region::Pool {
    pool()
}

#[test]
fn a_connection_without_shared_memory_has_every_call() {
    for connection in [unix as fn() -> (i32, i32), tcp] {
        for ends in [[Port::over_copying as Made, Port::over], [Port::over, Port::over_copying]] {
            for _ in 0..2 {
                let (here, there) = agreed(connection(), ends);
                all_calls(here, there);
            }
        }
    }
}

/// Another network namespace has other abstract addresses, as another host has.
#[test]
fn processes_of_two_hosts_copy() {
    let (here, there) = unix();
    let other = std::thread::spawn(move || {
        // SAFETY: concerns this thread alone.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            println!("no namespaces here: {}", std::io::Error::last_os_error());
            return Port::over_copying(there).unwrap();
        }
        Port::over(there).unwrap()
    });
    let here = Port::over(here).unwrap();
    all_calls(here, other.join().unwrap());
}

#[test]
fn a_nonblocking_connection_is_waited_for() {
    let (here, there) = unix();
    for fd in [here, there] {
        // SAFETY: a descriptor of this test's.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    }
    let (here, there) = agreed((here, there), [Port::over, Port::over_copying]);
    all_calls(here, there);
}

#[test]
fn what_is_no_connected_stream_is_refused() {
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    let codes = [datagrams.into_raw_fd(), silent.into_raw_fd(), reader.into_raw_fd(), -1].map(|fd| match Port::over(fd) {
        Err(Error::System(errno)) => errno.0,
        other => panic!("{:?}", other.err()),
    });
    assert_eq!(codes, [libc::EPROTOTYPE, libc::ENOTCONN, libc::ENOTSOCK, libc::EBADF]);
}

#[test]
fn a_peer_that_refers_to_memory_where_none_is_shared_is_refused() {
    for kind in [Kind::Region, Kind::Pull, Kind::Forwarded] {
        let (mut here, mut there) = agreed(unix(), [Port::over_copying, Port::over]);
        let reference = Reference { offset: 0, length: 4096, generation: 0, pool: 0, ticket: 1 };
        let record = Record { kind, semantics: Semantics::EMULATED_SHARE, serial: 1, reference, source: 0 };
        here.put_raw(0, &record.to_bytes()).unwrap();
        assert!(matches!(there.receive_reference(), Err(Error::Violation(_))), "{kind:?}");
    }
}

#[test]
fn who_speaks_first_of_something_else_is_refused() {
    let (here, there) = UnixStream::pair().unwrap();
    (&there).write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: something\r\n\r\n").unwrap();
    assert!(matches!(Port::over(here.into_raw_fd()), Err(Error::Violation(_))));
}
