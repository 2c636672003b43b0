//! Between hosts silence is how a death is known; and a thread that runs a procedure says nothing. Procedures that run for longer than
//! silence is borne end nothing, of their callers or of others; a process that stands still is given up.

mod common;
mod sentences;

use common::*;
use sentences::{be_the_other_side, other, told};
use shunt_rpc::xdr::Decoder;
use shunt_rpc::*;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::{Duration, Instant};

/// Longer than a silence that ends a connection.
const LONG: u32 = 6_000;

fn at() -> Address {
    "udp:127.0.0.1:0".parse().unwrap()
}

/// Tells when a procedure has begun; it runs until its time is over or it is taken back, and COUNT says how many ran.
struct Telling {
    begun: Sender<()>,
    count: u32,
}

impl Service for Telling {
    fn interfaces(&self) -> Vec<Interface> {
        vec![interface(1)]
    }
    fn call(&mut self, context: &Context<'_>, number: u16, from: Decoder<'_>, answer: &mut Answer<'_>) -> Result<(), Refusal> {
        self.count += 1;
        if number != SLEEP {
            return serve(from, answer, |()| Ok(self.count));
        }
        serve(from, answer, |milliseconds: u32| {
            self.begun.send(()).unwrap();
            let end = Instant::now() + Duration::from_millis(milliseconds.into());
            while Instant::now() < end && !context.is_cancelled() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(self.count)
        })
    }
}

/// A server of one thread, and what tells of procedures that have begun.
fn telling() -> (Running, Receiver<()>) {
    let (begun, hear) = channel();
    let make = move || Telling { begun: begun.clone(), count: 0 };
    (Server::bind(&at(), ServerOptions::default()).unwrap().spawn(make).unwrap(), hear)
}

#[test]
fn the_other_side() {
    be_the_other_side();
}

#[test]
fn a_long_procedure_ends_no_binding() {
    let (server, begun) = telling();
    let clients: Vec<Client> = (0..4).map(|_| client(server.address())).collect();
    let [long, waiting, hasty, _idle] = &clients[..] else { panic!() };
    let mut count = clients.iter().map(|client| client.call::<_, u32>(COUNT, &()).unwrap()).max().unwrap();
    let running = long.begin::<_, u32>(SLEEP, &LONG).unwrap();
    long.progress();
    begun.recv().unwrap();
    let waits = waiting.begin::<_, u32>(COUNT, &()).unwrap();
    let how = How { deadline: Some(Duration::from_millis(50)), ..How::default() };
    let error = hasty.call_with::<_, u32>(COUNT, &(), &how).unwrap_err();
    assert_eq!((error.kind(), error.ran()), (Kind::TimedOut, Ran::Maybe), "{error}");
    assert_eq!(waits.wait().unwrap(), count + 2);
    assert_eq!(running.wait().unwrap(), count + 1);
    count += 2;
    for client in &clients {
        count += 1;
        assert_eq!(client.call::<_, u32>(COUNT, &()).unwrap(), count, "what was late did not run");
        assert_eq!((client.outstanding(), client.strangers()), (0, 0));
    }
}

/// A caller that computes for as long, with answers that it has not looked at.
#[test]
fn a_caller_that_does_not_look_keeps_its_binding() {
    let server = Server::bind(&at(), ServerOptions::default()).unwrap().spawn(Test::default).unwrap();
    let client = client(server.address());
    client.call::<_, ()>(NULL, &()).unwrap();
    let calls: Vec<_> = (0..8).map(|at| client.begin::<_, i32>(ADD, &(at, 1)).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(LONG.into()));
    calls.into_iter().zip(1..).for_each(|(call, sum)| assert_eq!(call.wait().unwrap(), sum));
    client.call::<_, ()>(NULL, &()).unwrap();
}

#[test]
fn what_is_taken_back_reaches_a_procedure_that_runs() {
    let (server, begun) = telling();
    let (first, second) = (client(server.address()), client(server.address()));
    let running = first.begin::<_, u32>(SLEEP, &3_600_000u32).unwrap();
    first.progress();
    begun.recv().unwrap();
    drop(second.begin::<_, u32>(COUNT, &()).unwrap());
    drop(running);
    assert_eq!(second.call::<_, u32>(COUNT, &()).unwrap(), 2, "what was taken back before its turn did not run");
    while first.outstanding() + second.outstanding() > 0 {
        first.progress();
        second.progress();
    }
}

#[test]
fn a_server_that_stands_still_is_given_up() {
    let mut server = other(std::process::Command::new(std::env::current_exe().unwrap()), "server", &at());
    let client = client(&told(&mut server, "listens ").parse().unwrap());
    client.call::<_, ()>(NULL, &()).unwrap();
    let running = client.begin::<_, bool>(SLEEP, &3_600_000u32).unwrap();
    client.progress();
    // SAFETY: a child of ours.
    unsafe { libc::kill(server.id() as i32, libc::SIGSTOP) };
    let error = running.wait().unwrap_err();
    assert_eq!((error.kind(), error.ran()), (Kind::Lost, Ran::Maybe), "{error}");
    server.kill().unwrap();
    server.wait().unwrap();
}
