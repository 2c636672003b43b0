//! Processes that fork: a child that goes its way ends nothing of its parent's, and a parent's end is heard of while its child lives.

mod common;

use common::*;
use shunt_rpc::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Runs `act` in a child, without any of the test's own ends; its status.
fn in_child(act: impl FnOnce()) -> i32 {
    // SAFETY: the child runs `act` and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        // SAFETY: it ends at once.
        unsafe { libc::_exit(result.is_err().into()) };
    }
    let mut status = 0;
    // SAFETY: room for a status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

fn addresses(test: &str) -> [Address; 2] {
    [name(test), "sunrpc+tcp://127.0.0.1:0".parse().unwrap()]
}

#[test]
fn a_child_that_drops_a_client_leaves_it_to_its_parent() {
    for at in addresses("drops-client") {
        let server = Server::bind(&at, ServerOptions::default()).unwrap().spawn(Test::default).unwrap();
        let client = client(server.address());
        assert_eq!(client.call::<_, i32>(ADD, &(1, 2)).unwrap(), 3);
        let mut client = Some(client);
        assert_eq!(in_child(|| drop(client.take())), 0, "{at}");
        let client = client.unwrap();
        for round in 0..100 {
            assert_eq!(client.call::<_, i32>(ADD, &(round, 2)).unwrap(), round + 2, "{at}");
        }
    }
}

#[test]
fn a_child_that_drops_or_waits_for_a_call_leaves_it_to_its_parent() {
    for at in addresses("drops-call") {
        let server = Server::bind(&at, ServerOptions::default()).unwrap().spawn(Test::default).unwrap();
        let client = client(server.address());
        // The second has not begun when the child takes it back.
        let slow = client.begin::<_, bool>(SLEEP, &100u32).unwrap();
        let mut waits = Some(client.begin::<_, i32>(ADD, &(1, 2)).unwrap());
        assert_eq!(in_child(|| drop(waits.take())), 0, "{at}");
        let said = in_child(|| {
            let error = waits.take().unwrap().wait().unwrap_err();
            assert_eq!(error.kind(), Kind::Forked);
            client.progress();
            assert_eq!(client.call::<_, i32>(ADD, &(1, 2)).unwrap_err().kind(), Kind::Forked);
        });
        assert_eq!(said, 0, "{at}");
        assert_eq!(waits.unwrap().wait().unwrap(), 3, "{at}");
        assert!(!slow.wait().unwrap(), "{at}");
    }
}

#[test]
fn a_child_that_drops_a_server_leaves_it_to_its_parent() {
    for at in addresses("drops-server") {
        let server = Server::bind(&at, ServerOptions::default()).unwrap().spawn(Test::default).unwrap();
        let client = client(server.address());
        let mut server = Some(server);
        assert_eq!(in_child(|| drop(server.take())), 0, "{at}");
        for round in 0..100 {
            assert_eq!(client.call::<_, i32>(ADD, &(round, 2)).unwrap(), round + 2, "{at}");
        }
    }
}

/// What a server does that is a process of its own: it listens, and when it is told to it has a child that does nothing.
fn be_a_server(at: &Address, told: &UnixStream) -> ! {
    let server = Server::bind(at, ServerOptions::default()).unwrap().spawn(Test::default).unwrap();
    (&*told).write_all(format!("{}\n", server.address()).as_bytes()).unwrap();
    (&*told).read_exact(&mut [0]).unwrap();
    // SAFETY: both sleep until they are killed.
    unsafe {
        let idle = libc::fork();
        if idle > 0 {
            (&*told).write_all(format!("{idle}\n").as_bytes()).unwrap();
        }
        loop {
            libc::pause();
        }
    }
}

#[test]
fn the_end_of_a_server_is_heard_of_though_its_child_lives() {
    for at in addresses("outlived") {
        let (ours, theirs) = UnixStream::pair().unwrap();
        // SAFETY: the child serves until it is killed.
        let process = unsafe { libc::fork() };
        if process == 0 {
            be_a_server(&at, &theirs);
        }
        let mut lines = BufReader::new(&ours).lines().map(Result::unwrap);
        let address: Address = lines.next().unwrap().parse().unwrap();
        let client = client(&address);
        client.call::<_, ()>(NULL, &()).unwrap();
        (&ours).write_all(&[1]).unwrap();
        let idle: i32 = lines.next().unwrap().parse().unwrap();
        let call = client.begin::<_, bool>(SLEEP, &60_000u32).unwrap();
        // SAFETY: processes of this test.
        let kill = |process: i32| unsafe { libc::kill(process, libc::SIGKILL) };
        kill(process);
        let limit = Instant::now() + Duration::from_secs(30);
        while !call.is_done() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        let done = call.is_done();
        // SAFETY: the child of this test.
        unsafe { libc::waitpid(process, std::ptr::null_mut(), 0) };
        kill(idle);
        assert!(done, "{at}: nothing is heard of the server's end");
        assert_eq!(call.wait().unwrap_err().kind(), Kind::Lost, "{at}");
    }
}
