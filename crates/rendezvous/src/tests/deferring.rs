//! TCP_DEFER_ACCEPT: clients that have said nothing are not accepted yet (tcp(7)).

use super::*;

/// A listener that defers, and does not block.
fn deferring(world: World) -> Fd {
    let listener = world.listener();
    listener.set(IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 60).unwrap();
    listener.set_nonblocking(true);
    listener
}

fn client_of(listener: &Fd) -> Fd {
    let client = listener.world.tcp();
    client.connect(&listener.name().unwrap()).unwrap();
    client.expect_stream();
    client
}

#[test]
fn a_client_is_accepted_when_it_has_said_something() {
    same(|world| {
        let listener = deferring(world);
        let client = client_of(&listener);
        let silent = (error(listener.accept()), listener.is_readable());
        client.send(b"hello").unwrap();
        let readable = listener.is_readable();
        let server = listener.accept().unwrap();
        server.expect_stream();
        (silent, readable, server.receive(), server.peer() == client.name())
    });
}

#[test]
fn the_client_that_speaks_first_is_accepted_first() {
    same(|world| {
        let listener = deferring(world);
        let clients = [client_of(&listener), client_of(&listener), client_of(&listener)];
        let _ = listener.accept(); // looks at all of them
        for number in [2, 0] {
            clients[number].send(&[b'0' + number as u8]).unwrap();
        }
        let accepted = [0, 1].map(|_| listener.accept().unwrap().receive());
        (accepted, error(listener.accept()))
    });
}

#[test]
fn an_end_is_something_too() {
    same(|world| {
        let listener = deferring(world);
        let client = client_of(&listener);
        let before = error(listener.accept());
        client.shut(libc::SHUT_WR).unwrap();
        let server = listener.accept().unwrap();
        (before, server.receive())
    });
}

#[test]
fn a_client_that_resets_in_silence_is_never_accepted() {
    same(|world| {
        let listener = deferring(world);
        client_of(&listener).reset();
        (error(listener.accept()), listener.is_readable())
    });
}

#[test]
fn a_listener_that_closes_resets_its_silent_clients() {
    start();
    let listener = deferring(World::Engine);
    let client = client_of(&listener);
    assert_eq!(error(listener.accept()), libc::EAGAIN);
    listener.close();
    assert_eq!(error(client.receive()), libc::ECONNRESET);
}

#[test]
fn a_client_that_waited_in_silence_is_accepted_once_nothing_is_deferred() {
    start();
    let listener = deferring(World::Engine);
    let client = client_of(&listener);
    assert_eq!(error(listener.accept()), libc::EAGAIN);
    listener.set(IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 0).unwrap();
    assert_eq!(listener.accept().unwrap().peer(), client.name());
}

#[test]
fn the_option_reads_back_as_the_kernel_rounds_it() {
    same(|world| {
        let listener = world.listener();
        [0, 1, 2, 3, 5, 60, 100_000, -1].map(|seconds| {
            let set = listener.set(IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds);
            (set, listener.get(IPPROTO_TCP, libc::TCP_DEFER_ACCEPT))
        })
    });
}

#[test]
fn a_client_that_connects_again_is_deferred_as_well() {
    start();
    let listener = World::Engine.listener();
    let (client, server) = World::Engine.connection_to(&listener);
    client.close();
    server.close();
    listener.set(IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 60).unwrap();
    listener.set_nonblocking(true);
    let client = client_of(&listener);
    assert_eq!(error(listener.accept()), libc::EAGAIN);
    client.send(b"now").unwrap();
    assert_eq!(listener.accept().unwrap().receive().unwrap(), "now");
}

#[test]
fn a_listener_that_blocks_sleeps_until_a_client_speaks() {
    start();
    let listener = deferring(World::Engine);
    listener.set_nonblocking(false);
    let clients = [client_of(&listener), client_of(&listener)];
    let acceptor = std::thread::spawn(move || listener.accept().and_then(|server| server.receive()));
    std::thread::sleep(std::time::Duration::from_millis(15));
    clients[1].send(b"the second").unwrap();
    assert_eq!(acceptor.join().unwrap().unwrap(), "the second");
}
