//! connect(2) to AF_UNSPEC, and what is told of connections that have ended (tcp_disconnect, inet_getname).

use super::*;

#[test]
fn a_connection_that_is_dissolved_is_reset_for_its_peer() {
    same(|world| {
        let (_listener, client, server) = world.connection();
        client.dissolve().unwrap();
        (error(server.receive()), server.receive(), error(client.peer()))
    });
}

#[test]
fn a_dissolved_client_finds_the_error_of_its_own_reset() {
    same(|world| {
        let (_listener, client, _server) = world.connection();
        client.dissolve().unwrap();
        [client.get(SOL_SOCKET, libc::SO_ERROR), client.get(SOL_SOCKET, libc::SO_ERROR)]
    });
}

#[test]
fn a_dissolved_client_still_tells_the_port_that_it_had() {
    same(|world| {
        let (_listener, client, _server) = world.connection();
        let had = client.name().unwrap().port;
        client.dissolve().unwrap();
        let left = client.name().unwrap();
        (left.ip, left.port == had)
    });
}

#[test]
fn a_dissolved_client_connects_again() {
    same(|world| {
        let (listener, client, server) = world.connection();
        client.dissolve().unwrap();
        server.close();
        let _ = client.get(SOL_SOCKET, libc::SO_ERROR);
        client.connect(&listener.name().unwrap()).unwrap();
        client.expect_stream();
        let server = listener.accept().unwrap();
        client.send(b"second").unwrap();
        (server.receive(), server.peer() == client.name())
    });
}

#[test]
fn a_dissolved_client_that_was_bound_stays_bound() {
    same(|world| {
        let (listener, client) = (world.listener(), world.tcp());
        client.bind(&loopback(0)).unwrap();
        let bound = client.name();
        client.connect(&listener.name().unwrap()).unwrap();
        client.expect_stream();
        client.dissolve().unwrap();
        (client.name() == bound, client.bind(&loopback(0)).map_err(|error| error.0))
    });
}

#[test]
fn a_dissolved_client_keeps_a_port_that_its_program_chose() {
    same(|world| {
        let (listener, client) = (world.listener(), at_a_chosen_port(world));
        let chosen = client.name().unwrap();
        client.connect(&listener.name().unwrap()).unwrap();
        client.expect_stream();
        client.dissolve().unwrap();
        (client.name() == Ok(chosen), error(client.bind(&loopback(0))), error(world.tcp().bind(&chosen)))
    });
}

#[test]
fn a_dissolved_connection_keeps_its_options() {
    same(|world| {
        let (_listener, client, server) = world.connection();
        [&client, &server].map(|end| {
            end.set(IPPROTO_TCP, libc::TCP_NODELAY, 1).unwrap();
            end.set(SOL_SOCKET, libc::SO_RCVBUF, 20_000).unwrap();
            end.dissolve().unwrap();
            (end.get(IPPROTO_TCP, libc::TCP_NODELAY), end.get(SOL_SOCKET, libc::SO_RCVBUF))
        })
    });
}

#[test]
fn an_accepted_connection_that_is_dissolved_keeps_its_address_alone() {
    same(|world| {
        let (_listener, _client, server) = world.connection();
        let had = server.name().unwrap();
        server.dissolve().unwrap();
        let left = server.name().unwrap();
        (left.as_v4(), left.port == had.port)
    });
}

#[test]
fn a_socket_that_was_never_connected_may_be_dissolved() {
    same(|world| {
        let socket = world.tcp();
        (socket.dissolve(), socket.get(SOL_SOCKET, libc::SO_ERROR), error(socket.peer()), socket.name())
    });
}

#[test]
fn names_in_each_state_of_a_connection() {
    same(|world| {
        let (listener, client, server) = world.connection();
        let (mine, theirs) = (client.name(), listener.name());
        let told = |end: &Fd| (end.name() == mine, end.name() == theirs, end.peer().is_ok(), end.peer().err());
        let mut states = vec![(told(&client), told(&server))];
        client.shut(libc::SHUT_WR).unwrap();
        assert_eq!(server.receive().unwrap(), "");
        states.push((told(&client), told(&server)));
        server.shut(libc::SHUT_WR).unwrap();
        assert_eq!(client.receive().unwrap(), "");
        states.push((told(&client), told(&server)));
        states
    });
}

#[test]
fn a_connection_that_was_reset_has_no_peer() {
    same(|world| {
        let (_listener, client, server) = world.connection();
        let mine = server.name();
        client.reset();
        let before = error(server.receive());
        (before, error(server.peer()), server.name() == mine)
    });
}

#[test]
fn a_name_is_told_as_far_as_there_is_room() {
    same(|world| {
        let (_listener, client, server) = world.connection();
        let port = server.name().unwrap().port.to_be_bytes();
        [0u32, 1, 2, 5, 8, 15, 16, 40].map(|room| {
            let (mut bytes, mut length) = ([0xaau8; 40], room);
            client.peer_raw(bytes.as_mut_ptr().cast(), &mut length).unwrap();
            for at in (2..4).filter(|at| *at < room as usize) {
                assert_eq!(bytes[at], port[at - 2]);
                bytes[at] = 0; // ports differ from one run to the next
            }
            (length, bytes)
        })
    });
}

#[test]
fn names_that_have_nowhere_to_go_are_refused() {
    same(|world| {
        let (_listener, client, server) = world.connection();
        let nowhere = core::ptr::without_provenance_mut(8);
        let mut room = [0u64; 4];
        [&client, &server].map(|end| {
            let [mut negative, mut whole, mut nothing] = [-1i32 as u32, 16, 0];
            [
                end.name_raw(room.as_mut_ptr().cast(), &mut negative),
                end.name_raw(nowhere, &mut whole),
                end.name_raw(nowhere, &mut nothing),
                end.name_raw(room.as_mut_ptr().cast(), nowhere.cast()),
                end.peer_raw(room.as_mut_ptr().cast(), &mut negative),
                end.peer_raw(nowhere, &mut whole),
            ]
        })
    });
}
