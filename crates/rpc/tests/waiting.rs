//! Ways to wait: descriptors, futures, sleeping sides, servers that come later; and a child that has its parent's client.

mod common;

use common::*;
use shunt_rpc::*;
use std::future::Future;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::time::Duration;

fn sleep_on(client: &Client) -> bool {
    let Some(pause) = client.arm() else { return true };
    let mut poll = libc::pollfd { fd: client.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let milliseconds = pause.as_millis().min(10_000) as i32;
    // SAFETY: one entry.
    let readable = unsafe { libc::poll(&mut poll, 1, milliseconds) } == 1;
    client.disarm();
    readable
}

#[test]
fn one_descriptor_tells_of_answers_and_of_the_end() {
    for at in [name("descriptor"), "udp:127.0.0.1:0".parse().unwrap()] {
        let server = Server::bind(&at, ServerOptions::default()).unwrap().spawn(Test::default).unwrap();
        let client = client(server.address());
        let calls: Vec<_> = (0..20).map(|_| client.begin::<_, bool>(SLEEP, &2u32).unwrap()).collect();
        client.progress();
        while !calls.iter().all(Pending::is_done) {
            sleep_on(&client);
            client.progress();
        }
        drop(calls);
        let call = client.begin::<_, bool>(SLEEP, &50u32).unwrap();
        drop(server);
        while !call.is_done() {
            sleep_on(&client);
            client.progress();
        }
        // It served the call before it went, or did not.
        if let Err(error) = call.wait() {
            assert_eq!(error.kind(), Kind::Lost);
        }
    }
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn calls_are_futures() {
    let server = server("futures", ServerOptions::default());
    let client = client(server.address());
    let woken = Arc::new(Count(AtomicUsize::new(0)));
    let waker = woken.clone().into();
    let mut context = Context::from_waker(&waker);
    for round in 0..50 {
        let both = async {
            let first = client.begin::<_, bool>(SLEEP, &1u32)?;
            let second = client.begin::<_, i32>(ADD, &(round, 1))?;
            Ok::<_, Error>((first.await?, second.await?))
        };
        let mut both = pin!(both);
        let before = woken.0.load(SeqCst);
        let result = loop {
            match both.as_mut().poll(&mut context) {
                Poll::Ready(result) => break result,
                Poll::Pending => {
                    let so_far = woken.0.load(SeqCst);
                    while woken.0.load(SeqCst) == so_far {
                        sleep_on(&client);
                        client.progress();
                    }
                }
            }
        };
        assert_eq!(result.unwrap(), (false, round + 1));
        assert!(woken.0.load(SeqCst) > before);
    }
    assert_eq!(client.outstanding(), 0);
}

#[test]
fn sides_that_sleep_are_woken() {
    let server = server("asleep", ServerOptions { threads: 2, ..ServerOptions::default() });
    let clients: Vec<Client> = (0..6).map(|_| client(server.address())).collect();
    for round in 0..20 {
        for client in &clients {
            assert_eq!(client.call::<_, i32>(ADD, &(round, 1)).unwrap(), round + 1);
        }
        // Longer than either looks.
        std::thread::sleep(Duration::from_millis(2));
        // Longer than the caller looks.
        assert!(!clients[round as usize % 6].call::<_, bool>(SLEEP, &2u32).unwrap());
    }
}

/// What is begun together is not sent before its end, and then all of it is; what is waited for meanwhile goes.
#[test]
fn calls_leave_together() {
    for at in ["udp:127.0.0.1:0", "sunrpc+tcp://127.0.0.1:0"] {
        let server = Server::bind(&at.parse().unwrap(), ServerOptions::default()).unwrap().spawn(Test::default).unwrap();
        let (caller, other) = (client(server.address()), client(server.address()));
        let calls: Vec<_> = caller.together(|| {
            let calls = (0..8).map(|_| caller.begin::<_, u32>(COUNT, &()).unwrap()).collect();
            caller.tell(COUNT, &()).unwrap();
            assert_eq!(other.call::<_, u32>(COUNT, &()).unwrap(), 1, "{at}");
            calls
        });
        calls.into_iter().zip(2..).for_each(|(call, count)| assert_eq!(call.wait().unwrap(), count, "{at}"));
        caller.together(|| assert_eq!(caller.call::<_, i32>(ADD, &(1, 2)).unwrap(), 3));
        assert_eq!(caller.call::<_, u32>(COUNT, &()).unwrap(), 11, "{at}");
    }
}

#[test]
fn a_caller_may_start_first() {
    let address = name("later");
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| client(&address).call::<_, i32>(ADD, &(1, 2)).unwrap());
        std::thread::sleep(Duration::from_millis(30));
        let server = Server::bind(&address, ServerOptions::default()).unwrap();
        let taken = Server::bind(&address, ServerOptions::default());
        assert_eq!(taken.err().map(|error| error.kind()), Some(std::io::ErrorKind::AddrInUse));
        let _server = server.spawn(Test::default).unwrap();
        assert_eq!(caller.join().unwrap(), 3);
    });
    let impatient = Options { patience: Duration::from_millis(20), ..Options::default() };
    let error = Client::connect(&address, PROGRAM, 1..=1, impatient).unwrap_err();
    assert_eq!((error.kind(), error.ran()), (Kind::Unreachable, Ran::No), "{error}");
    let stranger = Options { server_user: Some(12_345), ..Options::default() };
    let _server = Server::bind(&address, ServerOptions::default()).unwrap().spawn(Test::default).unwrap();
    let error = Client::connect(&address, PROGRAM, 1..=1, stranger).unwrap_err();
    assert_eq!((error.kind(), error.side()), (Kind::Denied, Side::Caller), "{error}");
}

#[test]
fn a_forked_child_is_refused_and_its_parent_goes_on() {
    let server = server("fork", ServerOptions::default());
    let client = client(server.address());
    client.call::<_, ()>(NULL, &()).unwrap();
    // SAFETY: the child calls, and ends without running anything of the parent's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = matches!(client.call::<_, ()>(NULL, &()), Err(error) if error.kind() == Kind::Forked);
        // SAFETY: nothing of the parent's is to be run.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    client.call::<_, ()>(NULL, &()).unwrap();
    let mut status = 0;
    // SAFETY: our child, and room for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    client.call::<_, ()>(NULL, &()).unwrap();
}
