//! UDP: whose a datagram is. The kernel decides by both addresses; what lies in memory follows it.

use super::*;
use shunt_sys::libc::{self, AF_INET, MSG_DONTWAIT, POLLERR, SHUT_RD, SHUT_RDWR, SOL_SOCKET, SO_REUSEADDR, SO_REUSEPORT};

#[test]
fn the_source_of_each_datagram_is_told() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        let other = world.udp(AF_INET);
        for from in [near, other, near] {
            world.send_to(from, b"x", far).unwrap();
        }
        assert!(world.in_memory(far));
        [near, other, near].map(|from| world.is_from(far, from))
    });
    assert_eq!(told, [true; 3]);
}

#[test]
fn a_connected_socket_hears_its_peer_alone() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        let other = world.udp(AF_INET);
        world.connect(far, near).unwrap();
        world.send_to(near, b"peer", far).unwrap();
        assert!(world.in_memory(far));
        let strange = world.send_to(other, b"stranger", far);
        world.send_to(near, b"again", far).unwrap();
        (strange, world.all(far, 64))
    });
    assert_eq!(told, (Ok(8), vec!["peer".to_string(), "again".into()]));
}

#[test]
fn what_came_before_the_connect_is_received_whoever_sent_it() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        let other = world.udp(AF_INET);
        world.send_to(other, b"before", far).unwrap();
        world.connect(far, near).unwrap();
        world.send_to(other, b"behind", far).unwrap();
        world.send_to(near, b"peer", far).unwrap();
        world.all(far, 64)
    });
    assert_eq!(told, ["before", "peer"]);
}

#[test]
fn a_socket_without_a_peer_again_hears_all() {
    let told = alone_in_both(|world| {
        let (near, other) = world.two();
        let far = world.udp_of_a_chosen_port();
        world.connect(far, near).unwrap();
        world.send_to(other, b"no", far).unwrap();
        let peer = world.peer(far) == Some(world.port(near));
        world.disconnect(far).unwrap();
        world.send_to(other, b"yes", far).unwrap();
        (peer, world.peer(far), world.all(far, 64), world.send(far, b"x", 0))
    });
    assert_eq!(told, (true, None, vec!["yes".to_string()], Err(Errno(libc::EDESTADDRREQ))));
}

#[test]
fn a_connected_sender_needs_no_name_and_may_give_another() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        let other = world.udp(AF_INET);
        world.connect(near, far).unwrap();
        world.send(near, b"peer", 0).unwrap();
        world.send_to(near, b"other", other).unwrap();
        world.send(near, b"peer", 0).unwrap();
        assert!(world.in_memory(far) && world.in_memory(other));
        (world.all(far, 64), world.all(other, 64))
    });
    assert_eq!(told, (vec!["peer".to_string(); 2], vec!["other".to_string()]));
}

#[test]
fn a_sender_that_connects_elsewhere_sends_there() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        let other = world.udp(AF_INET);
        world.connect(near, far).unwrap();
        world.send(near, b"one", 0).unwrap();
        world.connect(near, other).unwrap();
        world.send(near, b"two", 0).unwrap();
        (world.all(far, 64), world.all(other, 64))
    });
    assert_eq!(told, (vec!["one".to_string()], vec!["two".to_string()]));
}

#[test]
fn a_socket_without_a_port_gets_one_with_its_first_datagram() {
    let told = in_both(|world| {
        let (near, far) = (world.unbound(AF_INET), world.udp(AF_INET));
        let before = world.port(near);
        world.send_to(near, b"x", far).unwrap();
        (before, world.port(near) != 0, world.is_from(far, near))
    });
    assert_eq!(told, (0, true, true));
}

#[test]
fn a_port_that_nobody_has_any_more_refuses() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        world.connect(near, far).unwrap();
        world.send(near, b"x", 0).unwrap();
        world.close(far);
        let sent = world.send(near, b"y", 0);
        let error = world.events(near, 0);
        (sent, error, world.send(near, b"z", 0), world.send(near, b"z", 0))
    });
    assert_eq!(told.0, Ok(1));
    assert_eq!((told.1, told.2), (POLLERR, Err(Errno(libc::ECONNREFUSED))));
}

#[test]
fn a_port_that_another_socket_has_by_now_is_its() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        world.send_to(near, b"old", far).unwrap();
        let port = world.port(far);
        world.close(far);
        let next = world.unbound(AF_INET);
        let bound = world.bind(next, port);
        let sent = world.send_message(near, &[b"new"], Some(port), &[], 0);
        (bound, sent, world.all(next, 64))
    });
    assert_eq!(told, (Ok(()), Ok(3), vec!["new".to_string()]));
}

#[test]
fn of_two_sockets_at_one_port_the_connected_one_hears_its_peer() {
    let told = in_both(|world| {
        let (near, other) = world.two();
        let [one, two] = [(); 2].map(|()| world.unbound(AF_INET));
        for fd in [one, two] {
            world.set(fd, SOL_SOCKET, SO_REUSEADDR, 1).unwrap();
            world.set(fd, SOL_SOCKET, SO_REUSEPORT, 1).unwrap();
        }
        world.bind(one, 0).unwrap();
        world.bind(two, world.port(one)).unwrap();
        world.connect(one, near).unwrap();
        world.connect(two, other).unwrap();
        for _ in 0..3 {
            world.send_to(near, b"near", one).unwrap();
            world.send_to(other, b"other", one).unwrap();
        }
        (world.all(one, 64), world.all(two, 64))
    });
    assert_eq!(told, (vec!["near".to_string(); 3], vec!["other".to_string(); 3]));
}

#[test]
fn a_receiver_that_is_shut_hears_what_the_kernels_does() {
    let told = in_both(|world| {
        let (near, far) = world.two();
        world.connect(far, near).unwrap();
        world.send_to(near, b"before", far).unwrap();
        let shut = world.shut(far, SHUT_RD);
        let before = world.text(far, 64, MSG_DONTWAIT);
        let nothing = world.text(far, 64, 0);
        (shut, before, nothing, world.send_to(near, b"behind", far), world.shut(far, SHUT_RDWR))
    });
    assert_eq!(told.1, Ok("before".into()));
    assert_eq!(told.2, Ok("".into()), "an end, without waiting");
}

#[test]
fn shutting_takes_a_peer() {
    let told = in_both(|world| {
        let (near, _) = world.two();
        world.shut(near, SHUT_RD)
    });
    assert_eq!(told, Err(Errno(libc::ENOTCONN)));
}

#[test]
fn a_socket_sends_to_itself() {
    let told = in_both(|world| {
        let fd = world.udp(AF_INET);
        world.connect(fd, fd).unwrap();
        world.send(fd, b"self", 0).unwrap();
        assert!(world.in_memory(fd));
        (world.is_from(fd, fd), world.text(fd, 8, MSG_DONTWAIT))
    });
    assert_eq!(told, (true, Err(Errno(libc::EAGAIN))));
}
