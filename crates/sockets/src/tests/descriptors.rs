//! close, dup and close_range, and private numbers that are in the program's way.

use super::*;
use crate::descriptor::{close_range, duplicated, fcntl, make_room};
use crate::process::moved;
use core::sync::atomic::Ordering;
use shunt_stream::socket::flag;

/// A number far above what other tests have, with room behind it.
fn far() -> i32 {
    calls::soft_limit(libc::RLIMIT_NOFILE).min(table::LIMIT as u64) as i32 - 40
}

#[test]
fn the_last_number_of_a_socket_ends_it_and_no_other_does() {
    let _alone = alone();
    let (fd, socket) = tcp();
    let life = socket.generation.load(Ordering::Relaxed);
    let copy = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0).unwrap();
    duplicated(fd, copy);
    assert_eq!((socket.references.load(Ordering::Relaxed), table::get(copy).kind()), (2, Kind::Tcp));
    assert!(!socket.has(flag::CLOSE_ON_EXEC_KNOWN), "two numbers may differ in that");
    close(fd);
    assert_eq!((socket.references.load(Ordering::Relaxed), socket.generation.load(Ordering::Relaxed)), (1, life));
    close(copy);
    assert_eq!(socket.generation.load(Ordering::Relaxed), life + 1, "its object serves another socket");
}

#[test]
fn a_duplicate_of_a_file_is_a_file_whatever_the_number_was() {
    let _alone = alone();
    let (fd, socket) = tcp();
    let file = calls::memfd_create(b"x\0", libc::MFD_CLOEXEC).unwrap();
    duplicated(file, fd);
    assert_eq!(table::get(fd).kind(), Kind::Foreign);
    table::enter(fd, Kind::Tcp, socket);
    close(fd);
    calls::close(file).unwrap();
}

#[test]
fn a_private_number_moves_out_of_the_program_s_way_and_its_keeper_hears() {
    let _alone = alone();
    let (fd, socket) = tcp();
    let kept = private::keep(calls::memfd_create(b"x\0", libc::MFD_CLOEXEC).unwrap()).unwrap();
    let inode = calls::status_of(kept).unwrap().st_ino;
    socket.private_fd.store(kept, Ordering::Relaxed);
    make_room(kept).unwrap();
    let now = socket.private_fd.load(Ordering::Relaxed);
    assert!(now != kept && calls::status_of(now).unwrap().st_ino == inode);
    assert_eq!([kept, now].map(|fd| table::get(fd).kind()), [Kind::Foreign, Kind::Private]);
    calls::close(kept).unwrap(); // as dup2 does
    assert_eq!(make_room(fd), Ok(()));
    assert_eq!(table::get(fd).kind(), Kind::Tcp, "what is the program's stays");
    close(fd);
    assert!(!is_open(now), "the socket's private number goes with it");
}

#[test]
fn each_number_that_a_listener_keeps_follows() {
    let _alone = alone();
    let (fd, socket) = tcp();
    let places = [&socket.private_fd, &socket.listening.bells_fd, &socket.listening.timer_fd, &socket.listening.accepting_fd];
    for (turn, place) in places.iter().enumerate() {
        let (from, to) = (800_000 + turn as i32, 900_000 + turn as i32);
        place.store(from, Ordering::Relaxed);
        moved(from + 100, to);
        assert_eq!(place.load(Ordering::Relaxed), from, "another number");
        moved(from, to);
        assert_eq!(place.swap(-1, Ordering::Relaxed), to, "place {turn}");
    }
    close(fd);
}

#[test]
fn a_range_is_closed_but_for_private_numbers() {
    let _alone = alone();
    let (fd, _) = tcp();
    let base = far();
    let numbers = [base, base + 1, base + 2];
    for number in numbers {
        calls::dup3(fd, number, libc::O_CLOEXEC).unwrap();
        duplicated(fd, number);
    }
    table::take(numbers[1]);
    table::set_private(numbers[1]);
    assert_eq!(close_range(base as u32, base as u32 + 10, 0), Ok(0));
    assert_eq!(numbers.map(is_open), [false, true, false]);
    assert_eq!(numbers.map(|number| table::get(number).kind()), [Kind::Foreign, Kind::Private, Kind::Foreign]);
    private::close(numbers[1]);
    close(fd);
}

#[test]
fn a_range_that_is_none_is_refused_as_on_the_kernel() {
    let _alone = alone();
    for (first, last, flags) in
        [(9, 8, 0), (7_000, 7_001, 1), (7_000, 7_001, u32::MAX), (7_001, 7_000, libc::CLOSE_RANGE_CLOEXEC)]
    {
        assert_eq!(close_range(first, last, flags), calls::close_range(first, last, flags).map(|()| 0));
    }
    assert_eq!(close_range(7_000, 7_001, 0), Ok(0));
}

#[test]
fn a_range_that_is_closed_on_exec_stays_open_until_then() {
    let _alone = alone();
    let (fd, socket) = tcp();
    let copy = far() + 12;
    calls::dup3(fd, copy, 0).unwrap();
    duplicated(fd, copy);
    socket.set(flag::CLOSE_ON_EXEC_KNOWN);
    assert_eq!(close_range(copy as u32, copy as u32 + 10, libc::CLOSE_RANGE_CLOEXEC), Ok(0));
    assert_eq!(calls::fcntl(copy, libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
    assert!(!socket.has(flag::CLOSE_ON_EXEC_KNOWN) && table::get(copy).kind() == Kind::Tcp);
    close(copy);
    close(fd);
}

#[test]
fn a_flag_that_the_program_sets_is_the_kernel_s_and_ours() {
    let _alone = alone();
    let (fd, socket) = tcp();
    for flags in [libc::O_NONBLOCK, 0, libc::O_NONBLOCK | libc::O_APPEND] {
        assert!(matches!(fcntl(fd, Kind::Tcp, socket, libc::F_SETFL, flags as usize), Some(Ok(_))));
        assert_eq!(socket.has(flag::NONBLOCK), flags & libc::O_NONBLOCK != 0);
        assert_eq!(calls::fcntl(fd, libc::F_GETFL, 0).map(|told| told & (libc::O_NONBLOCK | libc::O_APPEND)), Ok(flags));
    }
    assert!(!socket.has(flag::UNTOUCHED), "no other socket gets an open file that was changed so");
    close(fd);
}
