//! Private numbers, and the limit above them.

use super::*;
use crate::limits;
use crate::private::*;
use crate::table::{self, Kind};
use core::sync::atomic::{AtomicI32, Ordering};

fn closes_on_exec(fd: i32) -> bool {
    calls::fcntl(fd, libc::F_GETFD, 0).unwrap() & libc::FD_CLOEXEC != 0
}

/// Whether two numbers are one file's.
fn same_file(one: i32, other: i32) -> bool {
    let inode = |fd| calls::status_of(fd).map(|status| (status.st_dev, status.st_ino));
    inode(one).is_ok() && inode(one) == inode(other)
}

#[test]
fn what_is_kept_goes_out_of_the_program_s_way() {
    let [mine, other] = pair();
    calls::fcntl(mine, libc::F_SETFD, 0).unwrap();
    let copy = calls::fcntl(mine, libc::F_DUPFD_CLOEXEC, 0).unwrap();
    let kept = keep(mine).unwrap();
    assert!(kept >= lowest() && same_file(kept, copy) && closes_on_exec(kept));
    assert_eq!(table::get(kept).kind(), Kind::Private);
    assert_eq!(keep(kept), Ok(kept), "it stays where it is");
    close(kept);
    assert_eq!(table::get(kept).kind(), Kind::Foreign);
    assert!(!is_hung_up(other));
    [copy, other].into_iter().for_each(|fd| calls::close(fd).unwrap());
}

#[test]
fn a_number_above_the_program_s_becomes_private_where_it_is() {
    let [mine, other] = pair();
    let high = calls::fcntl(mine, libc::F_DUPFD, lowest() as usize).unwrap();
    assert!(!closes_on_exec(high));
    assert_eq!(keep(high), Ok(high));
    assert!(closes_on_exec(high) && table::get(high).kind() == Kind::Private);
    close(high);
    [mine, other].into_iter().for_each(|fd| calls::close(fd).unwrap());
}

#[test]
fn a_number_that_cannot_be_kept_is_not_left_open() {
    assert_eq!(keep(-1).map_err(|error| error.0), Err(libc::EBADF));
    assert_eq!(duplicate(-1), Err(Errno(libc::EBADF)));
}

#[test]
fn one_of_ours_moves_when_the_program_wants_its_number() {
    let [mine, other] = pair();
    let kept = keep(mine).unwrap();
    let moved = evacuate(kept).unwrap();
    assert!(moved > kept && same_file(moved, kept) && table::get(moved).kind() == Kind::Private);
    let places = [AtomicI32::new(kept), AtomicI32::new(kept + 1)];
    places.iter().for_each(|place| renumber(place, kept, moved));
    assert_eq!(places.each_ref().map(|place| place.load(Ordering::Relaxed)), [moved, kept + 1]);
    close(kept);
    assert!(!is_hung_up(other));
    close(moved);
    assert!(hangs_up(other));
    calls::close(other).unwrap();
}

#[test]
fn a_place_is_closed_once() {
    let [mine, other] = pair();
    let place = AtomicI32::new(keep(mine).unwrap());
    close_at(&place);
    assert!(hangs_up(other) && place.load(Ordering::Relaxed) == -1);
    close_at(&place);
    close(-1);
    calls::close(other).unwrap();
}

#[test]
fn what_is_pending_is_closed_unless_it_is_taken() {
    let [mine, other] = pair();
    let taken = Pending(mine).take();
    assert!(!is_hung_up(other));
    drop(Pending(taken));
    assert!(hangs_up(other));
    calls::close(other).unwrap();
}

#[test]
fn poll_takes_as_many_entries_as_the_limit_of_descriptors_says() {
    let limit = calls::soft_limit(libc::RLIMIT_NOFILE);
    assert!(limits::takes(0) && limits::takes(limit));
    assert!(!limits::takes(limit + 1) && !limits::takes(u64::from(u32::MAX) + 2) && !limits::takes(u64::MAX));
    limits::limit_changed(libc::RLIMIT_STACK as i32);
    assert!(limits::takes(limit), "another limit");
    limits::limit_changed(libc::RLIMIT_NOFILE as i32);
    assert!(limits::takes(limit) && !limits::takes(limit + 1), "asked anew");
}
