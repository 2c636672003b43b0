//! Connecting again: what an earlier connection left serves the next one, which has nothing of it.

use super::*;
use crate::reconnect::server;
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_segment::address::Address;
use shunt_sys::calls;
use shunt_table::global::SETUP;

/// The link and the channel of a stream.
fn place(stream: &Fd) -> (u32, usize) {
    (stream.object().connected.link_index.load(Ordering::Relaxed), stream.object().channel())
}

/// A connection that came and went in good order, the client first.
fn come_and_go(listener: &Fd) -> (u32, usize) {
    let (client, server) = World::Engine.connection_to(listener);
    let was = place(&client);
    client.close();
    server.close();
    was
}

/// A client that has offered its connection in memory, and the place and name of the connection before. Where another test takes a new client
/// in, the numbers held back for that are lent at this moment, and no pair is kept: then the next connection is a new one.
fn offered(listener: &Fd) -> (Fd, (u32, usize), Address) {
    for _ in 0..100 {
        let (client, server) = World::Engine.connection_to(listener);
        let (was, name) = (place(&client), client.name().unwrap());
        client.close();
        server.close();
        let client = World::Engine.tcp();
        client.connect(&listener.name().unwrap()).unwrap();
        if server::waiting(listener.object()) {
            return (client, was, name);
        }
        listener.accept().unwrap().close();
    }
    panic!("pairs are never kept");
}

#[test]
fn the_next_connection_is_an_offer_on_the_same_channel() {
    start();
    let listener = World::Engine.listener();
    let (client, was, _) = offered(&listener);
    assert_eq!(place(&client), was);
    let server = listener.accept().unwrap();
    client.send(b"again").unwrap();
    assert_eq!(server.receive().unwrap(), "again");
}

#[test]
fn the_port_of_the_pair_stays() {
    start();
    let listener = World::Engine.listener();
    let (client, _, name) = offered(&listener);
    assert_eq!(client.name(), Ok(name));
    assert_eq!(listener.accept().unwrap().peer(), Ok(name));
}

#[test]
fn a_hundred_connections_need_one_link() {
    start();
    let listener = World::Engine.listener();
    let first = come_and_go(&listener).0;
    assert!((0..100).all(|_| come_and_go(&listener).0 == first));
    let _setup = SETUP.lock().unwrap();
    assert_eq!(link::at(first as usize).live, 0);
}

/// Each member's pairs serve the connections that the kernel would give to that member.
#[test]
fn the_members_of_a_group_are_offered_pairs() {
    start();
    let member = |at: &Address| {
        let listener = World::Engine.tcp();
        listener.set(SOL_SOCKET, libc::SO_REUSEPORT, 1).unwrap();
        listener.bind(at).unwrap();
        listener.listen(8).unwrap();
        listener
    };
    let first = member(&loopback(0));
    let members = [member(&first.name().unwrap()), first];
    let (mut links, mut offers) = ([0u64; 2], 0);
    for _ in 0..200 {
        let client = World::Engine.tcp();
        client.connect(&members[0].name().unwrap()).unwrap();
        let at = members.iter().position(Fd::is_readable).expect("a member has it");
        offers += u32::from(server::waiting(members[at].object()));
        links[at] |= 1 << place(&client).0;
        let server = members[at].accept().unwrap();
        client.close();
        server.close();
    }
    assert!(links.iter().all(|links| *links != 0), "each had some");
    assert!(offers >= 100, "{offers} of 200 came by memory");
}

#[test]
fn nothing_that_was_left_unread_is_the_next_connection_s() {
    same(|world| {
        let listener = world.listener();
        let (client, server) = world.connection_to(&listener);
        client.send(b"never read").unwrap();
        server.send(b"nor this").unwrap();
        client.close();
        server.close();
        let (client, server) = world.connection_to(&listener);
        client.send(b"new").unwrap();
        (server.receive(), error(client.receive_with(libc::MSG_DONTWAIT)))
    });
}

#[test]
fn no_option_is_the_next_connection_s() {
    same(|world| {
        let listener = world.listener();
        let set = |end: &Fd| {
            end.set(IPPROTO_TCP, libc::TCP_NODELAY, 1).unwrap();
            end.set(SOL_SOCKET, libc::SO_KEEPALIVE, 1).unwrap();
            end.set(SOL_SOCKET, libc::SO_RCVLOWAT, 7).unwrap();
            end.set(SOL_SOCKET, libc::SO_OOBINLINE, 1).unwrap();
        };
        let told = |end: &Fd| {
            let tcp = end.get(IPPROTO_TCP, libc::TCP_NODELAY);
            [libc::SO_KEEPALIVE, libc::SO_RCVLOWAT, libc::SO_OOBINLINE]
                .map(|name| end.get(SOL_SOCKET, name))
                .map(Some)
                .into_iter()
                .chain([Some(tcp)])
                .collect::<Vec<_>>()
        };
        let (client, server) = world.connection_to(&listener);
        [&client, &server].into_iter().for_each(set);
        client.close();
        server.close();
        let (client, server) = world.connection_to(&listener);
        (told(&client), told(&server))
    });
}

#[test]
fn a_stream_that_was_shut_is_followed_by_a_whole_one() {
    same(|world| {
        let listener = world.listener();
        let (client, server) = world.connection_to(&listener);
        client.shut(libc::SHUT_RDWR).unwrap();
        server.shut(libc::SHUT_WR).unwrap();
        client.close();
        server.close();
        let (client, server) = world.connection_to(&listener);
        client.send(b"to").unwrap();
        server.send(b"fro").unwrap();
        (client.receive(), server.receive(), client.peer() == server.name())
    });
}

#[test]
fn a_reset_is_told_to_no_later_connection() {
    same(|world| {
        let listener = world.listener();
        let (client, server) = world.connection_to(&listener);
        client.reset();
        let told = error(server.receive());
        server.close();
        let (client, server) = world.connection_to(&listener);
        client.send(b"whole").unwrap();
        (told, server.receive(), server.get(SOL_SOCKET, libc::SO_ERROR), client.get(SOL_SOCKET, libc::SO_ERROR))
    });
}

#[test]
fn the_next_client_blocks_as_it_was_made() {
    start();
    let listener = World::Engine.listener();
    for flags in [0, libc::SOCK_NONBLOCK, 0] {
        let client = World::Engine.socket(AF_INET, flags);
        let result = client.connect(&listener.name().unwrap());
        assert_eq!(result.is_err(), flags != 0);
        assert_eq!(client.is_nonblocking(), flags != 0);
        let server = listener.accept().unwrap();
        assert!(!server.is_nonblocking());
        client.close();
        server.close();
    }
}

/// Five clients that have connected and sent their number, all of them in memory.
fn five_offers(listener: &Fd) -> Vec<Fd> {
    let rendezvous = listener.object().private_fd.load(Ordering::Relaxed);
    for _ in 0..20 {
        let pairs: Vec<_> = (0..5).map(|_| World::Engine.connection_to(listener)).collect();
        drop(pairs);
        let clients: Vec<_> = (0..5)
            .map(|number: u8| {
                let client = World::Engine.tcp();
                client.connect(&listener.name().unwrap()).unwrap();
                client.send(&[b'a' + number]).unwrap();
                client
            })
            .collect();
        // A process keeps so many pairs and no more, and other tests keep theirs: then a client comes through the kernel, as the next ones may.
        if calls::poll_one(rendezvous, libc::POLLIN, 0) == Ok(0) {
            return clients;
        }
        clients.iter().for_each(|_| drop(listener.accept().unwrap()));
    }
    panic!("pairs are never kept");
}

#[test]
fn offers_are_accepted_in_their_order() {
    start();
    let listener = World::Engine.listener();
    let clients = five_offers(&listener);
    assert!(server::waiting(listener.object()));
    for (number, client) in clients.iter().enumerate() {
        let server = listener.accept().unwrap();
        assert_eq!((server.receive().unwrap().as_bytes(), server.peer()), (&[b'a' + number as u8][..], client.name()));
    }
}

#[test]
fn an_offer_is_what_poll_tells_of() {
    start();
    let listener = World::Engine.listener();
    come_and_go(&listener);
    assert!(!listener.is_readable());
    let _client = offered(&listener);
    assert!(listener.is_readable());
    let _server = listener.accept().unwrap();
    assert!(!listener.is_readable(), "it was taken");
}

#[test]
fn an_offer_wakes_an_acceptor_that_sleeps() {
    start();
    let listener = World::Engine.listener();
    come_and_go(&listener);
    let there = listener.name().unwrap();
    let acceptor = std::thread::spawn(move || listener.accept().and_then(|server| server.receive()));
    std::thread::sleep(std::time::Duration::from_millis(15));
    let client = World::Engine.tcp();
    client.connect(&there).unwrap();
    client.send(b"wake up").unwrap();
    assert_eq!(acceptor.join().unwrap().unwrap(), "wake up");
}

#[test]
fn a_listener_that_closes_resets_what_was_offered() {
    start();
    let listener = World::Engine.listener();
    let (client, ..) = offered(&listener);
    listener.close();
    assert_eq!(error(client.receive()), libc::ECONNRESET);
}

#[test]
fn an_offer_whose_client_has_gone_is_a_connection_that_has_ended() {
    same(|world| {
        let listener = world.listener();
        let (client, server) = world.connection_to(&listener);
        client.close();
        server.close();
        let client = world.tcp();
        client.connect(&listener.name().unwrap()).unwrap();
        client.send(b"short").unwrap();
        client.close();
        let server = listener.accept().unwrap();
        (server.receive(), server.receive())
    });
}

#[test]
fn a_client_that_is_bound_takes_no_pair_of_another_address() {
    start();
    let listener = World::Engine.listener();
    come_and_go(&listener);
    let client = World::Engine.tcp();
    client.bind(&loopback(0)).unwrap();
    let bound = client.name();
    client.connect(&listener.name().unwrap()).unwrap();
    assert_eq!((client.name(), client.kind()), (bound, Kind::Stream));
    assert!(!server::waiting(listener.object()), "it comes through the rendezvous");
    assert_eq!(listener.accept().unwrap().peer(), bound);
}

#[test]
fn another_address_of_the_listener_s_is_another_pair() {
    start();
    let listener = World::Engine.tcp();
    listener.listen(8).unwrap();
    let port = listener.name().unwrap().port;
    let there = [loopback(port), Address::v4([127, 0, 0, 2], port)];
    for _ in 0..2 {
        for address in there {
            let client = World::Engine.tcp();
            client.connect(&address).unwrap();
            let server = listener.accept().unwrap();
            assert_eq!((client.peer(), server.name()), (Ok(address), Ok(address)));
        }
    }
}
