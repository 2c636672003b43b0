//! What an exec or a spawn would let the next program have.

use super::connection::object;
use super::*;
use crate::inherit::{self, any_ends, come_back, failed, kept_over_exec, leave, let_through, Handed, Way};
use core::sync::atomic::Ordering;
use libc::{FD_CLOEXEC, F_SETFD};

fn hand(way: &Way, ends: bool) -> Handed {
    let mut handed = Handed::empty();
    inherit::hand(way, ends, &mut handed);
    handed
}

/// The next program keeps these, and no others of the connection's.
fn keep(kept: &[i32]) {
    for fd in kept {
        calls::fcntl(*fd, F_SETFD, 0).unwrap();
    }
}

fn owners(fd: i32) -> u32 {
    object(fd).own().owners.load(Ordering::Relaxed)
}

/// The value of the variable.
fn value(handed: &Handed) -> String {
    let bytes = handed.text.with_nul().strip_prefix(b"SHUNT_INHERIT=").unwrap().strip_suffix(b"\0").unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn what_is_closed_on_exec_is_not_handed_on() {
    let connection = Connection::new();
    assert!(!Way::Exec.concerns_us() && !kept_over_exec(connection.client) && !kept_over_exec(-1));
    assert!(hand(&Way::Exec, false).text.is_empty());
    assert!(crate::before_exec().is_none(), "nor is there anything to replace for a program without the library");
    keep(&[connection.server]);
    assert!(Way::Exec.concerns_us() && kept_over_exec(connection.server));
}

#[test]
fn a_stream_s_link_is_named_and_let_through_until_the_exec_fails() {
    let connection = Connection::new();
    keep(&[connection.client]);
    let handed = hand(&Way::Exec, false);
    let named: Vec<i32> = handed.text.descriptors().collect();
    assert_eq!(value(&handed), format!("L{}", named[0]));
    assert!(!kept_over_exec(named[0]));
    let_through(&handed.text);
    assert!(kept_over_exec(named[0]));
    failed();
    assert!(!kept_over_exec(named[0]) && table::get(named[0]).kind() == Kind::Private);
}

#[test]
fn a_listener_s_rendezvous_is_named_by_a_duplicate_that_goes_with_the_hand_over() {
    let connection = Connection::new();
    keep(&[connection.listener]);
    let handed = hand(&Way::Exec, false);
    let named: Vec<i32> = handed.text.descriptors().collect();
    assert_eq!(value(&handed), format!("R{}", named[0]));
    let own = object(connection.listener).private_fd.load(Ordering::Relaxed);
    assert_ne!(named[0], own);
    assert!(calls::status_of(named[0]).unwrap().st_ino == calls::status_of(own).unwrap().st_ino);
    drop(handed);
    assert!(!is_open(named[0]) && is_open(own));
}

#[test]
fn both_ends_of_one_link_name_each_mapping_of_it() {
    let connection = Connection::new();
    keep(&[connection.client, connection.server]);
    let handed = hand(&Way::Exec, false);
    assert_eq!(handed.text.descriptors().count(), 2, "{}", value(&handed));
    assert!(!handed.text.descriptors().any(|fd| fd < shunt_table::private::lowest()));
}

#[test]
fn a_child_is_counted_as_an_owner_until_it_does_not_come_about() {
    let connection = Connection::new();
    let keeps = |fd: i32| fd == connection.client;
    let mut handed = hand(&Way::Spawn(&keeps), false);
    assert_eq!((owners(connection.client), owners(connection.server)), (2, 1));
    handed.take_back();
    assert_eq!(owners(connection.client), 1);
    handed.take_back();
    assert_eq!(owners(connection.client), 1, "taken back once");
}

#[test]
fn a_stream_under_two_numbers_is_counted_once() {
    let connection = Connection::new();
    let copy = calls::fcntl(connection.client, libc::F_DUPFD_CLOEXEC, 0).unwrap();
    object(connection.client).references.fetch_add(1, Ordering::Relaxed);
    table::enter(copy, Kind::Stream, object(connection.client));
    let keeps = |fd: i32| [copy, connection.client].contains(&fd);
    let mut handed = hand(&Way::Spawn(&keeps), false);
    assert_eq!(owners(connection.client), 2);
    assert_eq!(handed.text.descriptors().count(), 1);
    handed.take_back();
    connection::close(copy);
}

#[test]
fn an_exec_counts_no_owner_and_says_what_it_ends() {
    let connection = Connection::new();
    keep(&[connection.client]);
    let handed = hand(&Way::Exec, true);
    assert_eq!(owners(connection.client), 1, "the process stays the owner that it was");
    let text = value(&handed);
    let end = text.split(',').find(|item| item.starts_with('E')).expect("the server's end closes");
    let [_, _, first, second] = end[1..].split('.').map(|part| part.parse::<u64>().unwrap()).collect::<Vec<_>>()[..] else {
        panic!("{end}")
    };
    assert_eq!((first, second), (0, 1 << object(connection.server).channel()));
}

#[test]
fn a_stream_that_others_own_is_left_before_the_exec_and_taken_back_behind_it() {
    let connection = Connection::new();
    assert!(any_ends());
    leave();
    assert_eq!(owners(connection.server), 1, "a stream of this process's alone is not left: the exec may fail");
    object(connection.server).share();
    object(connection.server).own().owners.store(2, Ordering::Relaxed);
    leave();
    assert_eq!((owners(connection.client), owners(connection.server)), (1, 1));
    come_back();
    assert_eq!(owners(connection.server), 2);
    come_back();
    assert_eq!(owners(connection.server), 2, "once");
    object(connection.server).own().owners.store(1, Ordering::Relaxed);
    keep(&[connection.client, connection.server]);
    assert!(!any_ends());
    for fd in [connection.client, connection.server] {
        calls::fcntl(fd, F_SETFD, FD_CLOEXEC as usize).unwrap();
    }
    assert!(any_ends());
}
