//! Ports in flight: each is bound for as long as it is lent, and no server is kept from one.

use super::*;
use crate::ports::{forked, give_back, shared, take};
use std::net::TcpListener;

/// Whether the kernel gives the port to a socket that binds it, with or without SO_REUSEADDR.
fn binds(port: u16, beside: bool) -> bool {
    let fd = calls::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).unwrap();
    calls::setsockopt_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, beside.into()).unwrap();
    let mut address = [0u8; 16];
    address[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    address[2..4].copy_from_slice(&port.to_be_bytes());
    let bound = calls::bind(fd, address.as_ptr().cast(), 16).is_ok();
    calls::close(fd).unwrap();
    bound
}

#[test]
fn a_port_that_is_lent_is_no_other_socket_s() {
    let _room = Room::enter();
    let port = take(1).unwrap();
    assert!(!binds(port, false));
    assert!(binds(port, true), "a server that reuses addresses is not kept away");
    assert!(TcpListener::bind(("127.0.0.1", port)).is_ok(), "as the standard library's does");
    give_back(port);
    assert!(!binds(port, false), "it rests, and is reserved");
}

#[test]
fn more_ports_than_one_pair_of_sockets_holds_stay_reserved() {
    let _room = Room::enter();
    let ports: Vec<_> = (0..230).map(|_| take(1).unwrap()).collect();
    let distinct: HashSet<_> = ports.iter().collect();
    assert_eq!(distinct.len(), ports.len(), "no port is lent twice");
    assert!(!ports.iter().any(|port| binds(*port, false)));
    ports.into_iter().for_each(give_back);
}

#[test]
fn the_port_that_was_given_back_first_is_lent_first_and_some_rest() {
    let _room = Room::enter();
    forked(); // an empty list, as a child's
    let ports: Vec<_> = (0..6).map(|_| take(1).unwrap()).collect();
    ports.iter().for_each(|port| give_back(*port));
    assert_eq!([take(1).unwrap(), take(1).unwrap()], ports[..2]);
    assert!(!ports.contains(&take(1).unwrap()), "four rest, as long as the kernel has others");
    forked();
}

#[test]
fn no_port_is_lent_for_a_connection_to_itself() {
    let _room = Room::enter();
    forked();
    let ports: Vec<_> = (0..6).map(|_| take(1).unwrap()).collect();
    ports.iter().for_each(|port| give_back(*port));
    assert_eq!(take(ports[0]).unwrap(), ports[1]);
    assert_eq!(take(1).unwrap(), ports[2]);
    forked();
}

#[test]
fn a_port_that_the_program_bound_too_is_lent_no_more() {
    let _room = Room::enter();
    forked();
    let ports: Vec<_> = (0..7).map(|_| take(1).unwrap()).collect();
    ports.iter().for_each(|port| give_back(*port));
    assert!(!shared::is_shared(ports[0]));
    shared::share(ports[0]);
    assert!(shared::any() && shared::is_shared(ports[0]) && !shared::is_shared(ports[1]));
    assert_eq!(take(1).unwrap(), ports[1]);
    forked();
}

#[test]
fn a_child_lends_none_of_its_parent_s_ports() {
    let _room = Room::enter();
    let ports: Vec<_> = (0..8).map(|_| take(1).unwrap()).collect();
    ports.iter().for_each(|port| give_back(*port));
    forked();
    let own: Vec<_> = (0..8).map(|_| take(1).unwrap()).collect();
    assert!(!own.iter().any(|port| ports.contains(port)));
    assert!(!ports.iter().any(|port| binds(*port, false)), "connections that it inherited use them");
}

#[test]
fn a_connection_s_port_comes_back_when_both_ends_are_over() {
    use shunt_segment::channel::release;
    let mut room = Room::enter();
    forked();
    let offer = room.offer(0x7fff_2001);
    let port = take(1).unwrap();
    crate::note(offer.index, offer.channel, port, 1);
    let sides = &page(offer.link.base, offer.channel).sides;
    sides[0].released.store(release::CLOSED, Ordering::Relaxed);
    crate::leave(offer.index, offer.channel, false, false);
    let lent: Vec<_> = (0..8).map(|_| take(1).unwrap()).collect();
    assert!(!lent.contains(&port), "its server has not let go");
    sides[1].released.store(release::CLOSED, Ordering::Relaxed);
    assert_eq!(room.offer(0x7fff_2001).channel, offer.channel);
    lent.into_iter().for_each(give_back);
    assert_eq!(take(1).unwrap(), port);
    forked();
}
