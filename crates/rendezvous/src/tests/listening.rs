//! listen(2) and accept(2): what a listener tells, gives and refuses.

use super::*;
use shunt_segment::address::Address;
use shunt_segment::name;
use shunt_sys::calls;
use shunt_table::sockaddr;
use std::time::Duration;

/// A client that has connected, and waits to be accepted.
fn waiting(world: World, listener: &Fd) -> Fd {
    let client = world.tcp();
    client.connect(&listener.name().unwrap()).unwrap();
    client.expect_stream();
    client
}

#[test]
fn a_socket_that_is_not_bound_listens_at_a_port_of_the_kernel_s() {
    same(|world| {
        let listener = world.tcp();
        listener.listen(4).unwrap();
        let name = listener.name().unwrap();
        let client = world.tcp();
        client.connect(&loopback(name.port)).unwrap();
        client.expect_stream();
        (name.ip, name.port != 0, listener.get(SOL_SOCKET, libc::SO_ACCEPTCONN), listener.accept().is_ok())
    });
}

#[test]
fn a_listener_has_no_peer_and_connects_nowhere() {
    same(|world| {
        let (listener, other) = (world.listener(), world.listener());
        (
            error(listener.peer()),
            error(listener.connect(&other.name().unwrap())),
            error(listener.receive_with(libc::MSG_DONTWAIT)),
        )
    });
}

#[test]
fn a_socket_that_does_not_listen_accepts_nobody() {
    same(|world| {
        let bound = world.tcp();
        bound.bind(&loopback(0)).unwrap();
        error(bound.accept())
    });
}

#[test]
fn a_second_listen_keeps_the_clients_that_wait() {
    same(|world| {
        let listener = world.listener();
        let client = waiting(world, &listener);
        listener.listen(1).unwrap();
        let server = listener.accept().unwrap();
        assert_eq!(server.peer(), client.name());
    });
}

#[test]
fn a_listener_that_does_not_block_says_that_nobody_waits() {
    same(|world| {
        let listener = world.listener();
        listener.set_nonblocking(true);
        (error(listener.accept()), listener.is_nonblocking(), listener.is_readable())
    });
}

#[test]
fn a_listener_that_blocks_waits_for_a_client() {
    same(|world| {
        let listener = world.listener();
        let there = listener.name().unwrap();
        let client = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(15));
            let client = world.tcp();
            client.connect(&there).unwrap();
            client.send(b"late").unwrap();
            client
        });
        let server = listener.accept().unwrap();
        server.expect_stream();
        let client = client.join().unwrap();
        (server.receive(), server.peer() == client.name())
    });
}

#[test]
fn accept_gives_up_after_the_listener_s_time() {
    same(|world| {
        let listener = world.listener();
        let time = libc::timeval { tv_sec: 0, tv_usec: 20_000 };
        listener.set_raw(SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const time).cast(), 16).unwrap();
        error(listener.accept())
    });
}

#[test]
fn what_is_accepted_blocks_though_its_listener_does_not() {
    same(|world| {
        let listener = world.listener();
        listener.set_nonblocking(true);
        let flags = [0, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC];
        flags.map(|flags| {
            let _client = waiting(world, &listener);
            let server = listener.accept_with(flags).unwrap();
            server.expect_stream();
            (server.is_nonblocking(), server.closes_on_exec())
        })
    });
}

#[test]
fn accept_knows_two_flags_and_takes_nobody_with_another() {
    same(|world| {
        let listener = world.listener();
        let _client = waiting(world, &listener);
        let refused = [1, libc::SOCK_NONBLOCK | 1, i32::MIN].map(|flags| error(listener.accept_with(flags)));
        (refused, listener.accept().is_ok())
    });
}

#[test]
fn accept_tells_as_much_of_the_address_as_there_is_room_for() {
    for room in [0, 1, 3, 8, 15, 16, 17, 64] {
        same(|world| {
            let listener = world.listener();
            let client = waiting(world, &listener);
            let (mut bytes, mut length) = ([0xaau8; 64], room);
            let _server = listener.accept_raw(bytes.as_mut_ptr().cast(), &mut length, libc::SOCK_CLOEXEC).unwrap();
            let port = client.name().unwrap().port.to_be_bytes();
            // Ports differ from one run to the next.
            (2..4).filter(|&at| at < room as usize).for_each(|at| {
                assert_eq!(bytes[at], port[at - 2]);
                bytes[at] = 0;
            });
            (length, bytes)
        });
    }
}

#[test]
fn a_client_is_lost_whose_address_has_nowhere_to_go() {
    same(|world| {
        let listener = world.listener();
        let client = waiting(world, &listener);
        let nowhere = core::ptr::without_provenance_mut(8);
        let mut length = 16;
        let refused = error(listener.accept_raw(nowhere, &mut length, libc::SOCK_CLOEXEC));
        listener.set_nonblocking(true);
        (refused, error(listener.accept()), client.receive())
    });
}

#[test]
fn a_negative_length_is_refused_and_so_is_one_that_faults() {
    same(|world| {
        let listener = world.listener();
        let _clients = [waiting(world, &listener), waiting(world, &listener)];
        let (mut room, mut length) = ([0u8; 16], -1i32 as u32);
        let negative = error(listener.accept_raw(room.as_mut_ptr().cast(), &mut length, libc::SOCK_CLOEXEC));
        let nowhere = core::ptr::without_provenance_mut(8);
        (negative, error(listener.accept_raw(room.as_mut_ptr().cast(), nowhere, libc::SOCK_CLOEXEC)))
    });
}

#[test]
fn clients_are_accepted_in_the_order_in_which_they_connected() {
    same(|world| {
        let listener = world.listener();
        let clients: Vec<_> = (0..6).map(|_| waiting(world, &listener)).collect();
        for client in &clients {
            assert_eq!(listener.accept().unwrap().peer(), client.name());
        }
    });
}

#[test]
fn a_client_that_has_gone_is_accepted_with_all_that_it_sent() {
    same(|world| {
        let listener = world.listener();
        let client = waiting(world, &listener);
        client.send(b"sent and gone").unwrap();
        client.close();
        let server = listener.accept().unwrap();
        (server.receive(), server.receive())
    });
}

#[test]
fn a_listener_that_closes_resets_the_clients_that_wait() {
    let told = agreed(|world| {
        let listener = world.listener();
        let clients = [waiting(world, &listener), waiting(world, &listener)];
        clients[1].send(b"unheard").unwrap();
        listener.close();
        clients.map(|client| error(client.receive()))
    });
    assert_eq!(told, [libc::ECONNRESET; 2]);
}

#[test]
fn a_listener_that_closes_leaves_its_connections() {
    same(|world| {
        let (listener, client, server) = world.connection();
        listener.close();
        client.send(b"still here").unwrap();
        (server.receive(), server.peer() == client.name())
    });
}

#[test]
fn a_listener_that_is_shut_resets_its_clients_and_refuses_further_ones() {
    same(|world| {
        let listener = world.listener();
        let client = waiting(world, &listener);
        let there = listener.name().unwrap();
        listener.shut(libc::SHUT_RD).unwrap();
        let accepting = listener.get(SOL_SOCKET, libc::SO_ACCEPTCONN);
        (accepting, error(client.receive()), error(world.tcp().connect(&there)), error(listener.accept()))
    });
}

#[test]
fn a_listener_that_was_shut_for_sending_alone_goes_on() {
    same(|world| {
        let listener = world.listener();
        let shut = listener.shut(libc::SHUT_WR);
        let client = waiting(world, &listener);
        (shut, listener.accept().unwrap().peer() == client.name())
    });
}

#[test]
fn a_listener_that_was_shut_may_listen_again() {
    same(|world| {
        let listener = at_a_chosen_port(world);
        listener.listen(4).unwrap();
        let there = listener.name().unwrap();
        listener.shut(libc::SHUT_RDWR).unwrap();
        listener.listen(4).unwrap();
        let client = waiting(world, &listener);
        let server = listener.accept().unwrap();
        server.expect_stream();
        (listener.name() == Ok(there), server.peer() == client.name())
    });
}

#[test]
fn clients_of_the_kernel_come_through_the_same_accept() {
    start();
    let listener = World::Engine.listener();
    let there = listener.name().unwrap();
    let near = waiting(World::Engine, &listener);
    let far = World::Kernel.tcp();
    far.connect(&there).unwrap();
    let mut names = [0, 1].map(|_| listener.accept_from().unwrap().1.port);
    let mut expected = [near, far].map(|client| client.name().unwrap().port);
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn a_client_of_the_kernel_is_not_kept_waiting_by_a_crowd_in_memory() {
    start();
    let listener = World::Engine.listener();
    let far = World::Kernel.tcp();
    far.connect(&listener.name().unwrap()).unwrap();
    let _near: Vec<_> = (0..12).map(|_| waiting(World::Engine, &listener)).collect();
    let far = far.name().unwrap();
    assert!((0..8).any(|_| listener.accept_from().unwrap().1 == far), "every eighth call looks there first");
}

#[test]
fn a_full_backlog_is_left_to_the_kernel() {
    start();
    let listener = World::Engine.tcp();
    listener.bind(&loopback(0)).unwrap();
    listener.listen(2).unwrap();
    let clients: Vec<_> = (0..4).map(|_| World::Engine.socket(AF_INET, libc::SOCK_NONBLOCK)).collect();
    let there = listener.name().unwrap();
    let reasons: Vec<_> = clients.iter().map(|client| client.connect_for(&there).1).collect();
    assert_eq!(reasons, [None, None, None, Some(Reason::BacklogFull)]);
}

#[test]
fn a_listener_whose_name_is_taken_is_the_kernel_s() {
    start();
    let listener = World::Engine.tcp();
    listener.bind(&loopback(0)).unwrap();
    let inode = calls::status_of(listener.number).unwrap().st_ino;
    let squatter = calls::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).unwrap();
    let (taken, length) = sockaddr::abstract_name(name::listener(inode).as_slice());
    calls::bind(squatter, (&raw const taken).cast(), length).unwrap();
    assert_eq!(listener.listen_for(4), (Ok(()), Some(Reason::ListenerNameTaken)));
    calls::close(squatter).unwrap();
    let client = World::Engine.tcp();
    assert_eq!(client.connect_for(&listener.name().unwrap()), (Ok(()), Some(Reason::PeerPlain)));
    assert_eq!(listener.accept().unwrap().peer(), client.name());
}

#[test]
fn a_second_socket_at_one_port_listens_no_more_than_on_the_kernel() {
    same(|world| {
        let (one, other) = (world.tcp(), world.tcp());
        [&one, &other].iter().for_each(|socket| socket.set(SOL_SOCKET, libc::SO_REUSEADDR, 1).unwrap());
        one.bind(&loopback(0)).unwrap();
        other.bind(&one.name().unwrap()).unwrap();
        one.listen(4).unwrap();
        let refused = error(other.listen(4));
        let client = waiting(world, &one);
        (refused, one.accept().unwrap().peer() == client.name())
    });
}

#[test]
fn a_port_stays_taken_while_a_connection_lives_whose_listener_has_closed() {
    let told = agreed(|world| {
        let (listener, client, server) = world.connection();
        let there = listener.name().unwrap();
        listener.close();
        let early = world.tcp().bind(&there).map_err(|error| error.0);
        client.close();
        assert_eq!(server.receive().unwrap(), "");
        server.close();
        (early, world.tcp().bind(&there))
    });
    assert_eq!(told, (Err(libc::EADDRINUSE), Ok(())));
}

#[test]
fn a_specific_address_gets_its_clients_before_the_wildcard() {
    same(|world| {
        let specific = world.listener();
        let port = specific.name().unwrap().port;
        let wildcard = world.tcp();
        wildcard.set(SOL_SOCKET, libc::SO_REUSEPORT, 1).unwrap();
        // The kernel lets no listener beside one that did not allow it: the wildcard takes another address of the host.
        let refused = error(wildcard.bind(&Address::v4([0; 4], port)));
        wildcard.bind(&Address::v4([127, 0, 0, 9], port)).unwrap();
        wildcard.listen(4).unwrap();
        let client = waiting(world, &specific);
        (refused, specific.accept().unwrap().peer() == client.name(), wildcard.is_readable())
    });
}
