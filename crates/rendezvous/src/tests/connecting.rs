//! connect(2): what a client becomes, and what it and its server tell of each other.

use super::*;
use shunt_segment::address::Address;

#[test]
fn a_connection_between_two_sockets_of_one_process_is_in_memory() {
    start();
    let (listener, client, server) = World::Engine.connection();
    assert_eq!([listener.kind(), client.kind(), server.kind()], [Kind::Listener, Kind::Stream, Kind::Stream]);
    client.send(b"there").unwrap();
    assert_eq!(server.receive().unwrap(), "there");
    server.send(b"and back").unwrap();
    assert_eq!(client.receive().unwrap(), "and back");
}

#[test]
fn each_end_tells_the_other_s_name_as_its_peer() {
    same(|world| {
        let (listener, client, server) = world.connection();
        assert_eq!(client.peer(), listener.name());
        assert_eq!(server.peer(), client.name());
        assert_eq!(server.name(), listener.name());
    });
}

#[test]
fn a_client_that_is_not_bound_gets_a_port_and_the_address_of_its_route() {
    same(|world| {
        let (_listener, client, _server) = world.connection();
        let name = client.name().unwrap();
        (name.as_v4(), name.port != 0)
    });
}

#[test]
fn no_two_clients_have_one_port() {
    start();
    let listener = World::Engine.listener();
    let clients: Vec<_> = (0..12).map(|_| World::Engine.connection_to(&listener)).collect();
    let mut ports: Vec<_> = clients.iter().map(|(client, _)| client.name().unwrap().port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), clients.len());
}

#[test]
fn a_client_that_is_bound_keeps_its_port() {
    same(|world| {
        let (listener, client) = (world.listener(), world.tcp());
        client.bind(&loopback(0)).unwrap();
        let bound = client.name();
        client.connect(&listener.name().unwrap()).unwrap();
        let (server, told) = listener.accept_from().unwrap();
        client.expect_stream();
        assert_eq!((client.name(), server.peer()), (bound, bound));
        assert_eq!(Ok(told), bound);
    });
}

#[test]
fn a_client_comes_from_the_loopback_address_that_it_is_bound_to() {
    let told = agreed(|world| {
        let (listener, client) = (world.listener(), world.tcp());
        client.bind(&Address::v4([127, 0, 0, 77], 0)).unwrap();
        client.connect(&listener.name().unwrap()).unwrap();
        client.expect_stream();
        listener.accept_from().unwrap().1.as_v4()
    });
    assert_eq!(told, Some([127, 0, 0, 77]));
}

#[test]
fn the_port_of_a_bound_client_is_nobody_else_s() {
    same(|world| {
        let (listener, client) = (world.listener(), world.tcp());
        client.bind(&loopback(0)).unwrap();
        client.connect(&listener.name().unwrap()).unwrap();
        client.expect_stream();
        let other = world.tcp();
        error(other.bind(&client.name().unwrap()))
    });
}

#[test]
fn nobody_listens() {
    same(|world| {
        let free = world.tcp();
        free.bind(&loopback(0)).unwrap();
        let client = world.tcp();
        let refused = error(client.connect(&free.name().unwrap()));
        (refused, client.peer(), client.name().unwrap().as_v4())
    });
}

#[test]
fn a_server_without_the_library_gets_its_clients_by_tcp() {
    start();
    let plain = World::Kernel.listener();
    let client = World::Engine.tcp();
    let (result, why) = client.connect_for(&plain.name().unwrap());
    assert_eq!((result, why, client.kind()), (Ok(()), Some(Reason::PeerPlain), Kind::Tcp));
    let server = plain.accept().unwrap();
    assert_eq!((client.peer(), client.name()), (server.name(), server.peer()));
}

#[test]
fn port_0_is_left_to_the_kernel() {
    let (result, why) = {
        start();
        World::Engine.tcp().connect_for(&loopback(0))
    };
    assert_eq!((result, why), (World::Kernel.tcp().connect(&loopback(0)), Some(Reason::PortNotListed)));
}

#[test]
fn a_stream_is_connected_once() {
    same(|world| {
        let (listener, client, server) = world.connection();
        let there = listener.name().unwrap();
        (error(client.connect(&there)), error(client.connect(&loopback(1))), error(server.connect(&there)))
    });
}

#[test]
fn a_client_that_does_not_block_is_told_once_that_it_is_connected() {
    let told = agreed(|world| {
        let (listener, client) = (world.listener(), world.socket(AF_INET, libc::SOCK_NONBLOCK));
        let there = listener.name().unwrap();
        let first = client.connect(&there);
        client.expect_stream();
        (first, client.connect(&there), client.connect(&there), client.get(SOL_SOCKET, libc::SO_ERROR))
    });
    assert_eq!(told, (Err(Errno(libc::EINPROGRESS)), Ok(()), Err(Errno(libc::EISCONN)), Ok(0)));
}

#[test]
fn a_client_stays_as_it_was_made() {
    same(|world| {
        let listener = world.listener();
        [0, libc::SOCK_NONBLOCK].map(|flags| {
            let client = world.socket(AF_INET, flags);
            let _ = client.connect(&listener.name().unwrap());
            client.expect_stream();
            (client.is_nonblocking(), client.closes_on_exec())
        })
    });
}

#[test]
fn the_unspecified_address_is_the_loopback_one() {
    for (family, any) in [(AF_INET, Address::v4([0; 4], 0)), (AF_INET6, Address::v6([0; 16], 0))] {
        same(|world| {
            let listener = world.socket(family, 0);
            listener.bind(&any).unwrap();
            listener.listen(4).unwrap();
            let port = listener.name().unwrap().port;
            let client = world.socket(family, 0);
            client.connect(&Address { port, ..any }).unwrap();
            client.expect_stream();
            let (server, from) = listener.accept_from().unwrap();
            (client.peer().unwrap().ip, client.name().unwrap().ip, server.name().unwrap().ip, from.ip)
        });
    }
}

#[test]
fn ipv6_has_its_own_loopback() {
    same(|world| {
        let listener = world.socket(AF_INET6, 0);
        listener.bind(&loopback_six(0)).unwrap();
        listener.listen(4).unwrap();
        let client = world.socket(AF_INET6, 0);
        client.connect(&listener.name().unwrap()).unwrap();
        client.expect_stream();
        let server = listener.accept().unwrap();
        assert_eq!(server.peer(), client.name());
        (client.name().unwrap().ip, client.get(SOL_SOCKET, libc::SO_DOMAIN), server.get(SOL_SOCKET, libc::SO_DOMAIN))
    });
}

#[test]
fn a_listener_of_both_families_tells_ipv4_clients_mapped() {
    same(|world| {
        let listener = world.socket(AF_INET6, 0);
        listener.set(IPPROTO_IPV6, libc::IPV6_V6ONLY, 0).unwrap();
        listener.bind(&Address::v6([0; 16], 0)).unwrap();
        listener.listen(4).unwrap();
        let client = world.tcp();
        client.connect(&loopback(listener.name().unwrap().port)).unwrap();
        client.expect_stream();
        let mut length = 28;
        let mut room = [0u8; 28];
        let server = listener.accept_raw(room.as_mut_ptr().cast(), &mut length, libc::SOCK_CLOEXEC).unwrap();
        (length, room[8..24].to_vec(), server.name().unwrap().ip, client.peer().unwrap().ip)
    });
}

#[test]
fn a_socket_for_ipv6_alone_reaches_no_ipv4_listener() {
    same(|world| {
        let (listener, client) = (world.listener(), world.socket(AF_INET6, 0));
        client.set(IPPROTO_IPV6, libc::IPV6_V6ONLY, 1).unwrap();
        error(client.connect(&listener.name().unwrap()))
    });
}

#[test]
fn two_sockets_of_one_name_cannot_both_connect_to_one_server() {
    let told = agreed(|world| {
        let listener = world.listener();
        let clients = [world.tcp(), world.tcp()];
        clients.iter().for_each(|client| client.set(SOL_SOCKET, libc::SO_REUSEADDR, 1).unwrap());
        clients[0].bind(&loopback(0)).unwrap();
        clients[1].bind(&clients[0].name().unwrap()).unwrap();
        let results = clients.each_ref().map(|client| client.connect(&listener.name().unwrap()));
        clients[0].expect_stream();
        results
    });
    assert_eq!(told, [Ok(()), Err(Errno(libc::EADDRNOTAVAIL))]);
}

#[test]
fn two_sockets_of_one_name_connect_to_two_servers() {
    same(|world| {
        let listeners = [world.listener(), world.listener()];
        let clients = [world.tcp(), world.tcp()];
        clients.iter().for_each(|client| client.set(SOL_SOCKET, libc::SO_REUSEADDR, 1).unwrap());
        clients[0].bind(&loopback(0)).unwrap();
        clients[1].bind(&clients[0].name().unwrap()).unwrap();
        let results = [0, 1].map(|number| clients[number].connect(&listeners[number].name().unwrap()));
        clients.iter().for_each(Fd::expect_stream);
        results
    });
}
