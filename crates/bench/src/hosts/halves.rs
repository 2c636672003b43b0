//! What one host's half of a round trip costs, by the kernel's socket and taken from it: both ends in one thread, so that nobody waits and the whole of a
//! round trip is work. On a veth the sender's call does the other host's receiving too; so a half is what is left of a round trip without the other end's.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::Host;

use super::contender::{pin, time_round_trips};
use super::hand_over::Line;
use super::record::{Record, Sheet};
use super::tables::median;
use super::Plan;

/// The table.
pub const HALVES: &str = "8 B there and back, both ends in one thread: us";
/// Its row, and the column that matters.
pub const ONE: &str = "one connection";
/// See above.
pub const OWN: &str = "own half, taken / kernel";

fn send(mut stream: &TcpStream) -> Result<(), String> {
    stream.write_all(&[1; 8]).map_err(|error| error.to_string())
}

fn receive(mut stream: &TcpStream) -> Result<(), String> {
    let (mut bytes, mut read) = ([0; 8], 0);
    while read < 8 {
        match stream.read(&mut bytes[read..]) {
            Ok(0) => return Err("the other end is gone".to_string()),
            Ok(count) => read += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// All of it.
///
/// # Errors
/// A sentence.
pub fn halves(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let _agent = Agent::start(&hosts[0], plan.shunt, &["--lend", "0", "--take"])?;
    let listener = hosts[1].enter(|| TcpListener::bind((hosts[1].addresses[0], 0))).map_err(|error| error.to_string())?;
    let [kernel, taken, own] = hosts[0].enter(|| measure(&hosts[0], &listener, plan))?;
    let mut sheet = Sheet::new(HALVES, &["kernel", "one end taken", OWN], &[2]);
    sheet.put(ONE, &[kernel * 1e6, taken * 1e6, own]);
    record.add(sheet);
    Ok(())
}

fn measure(host: &Host, listener: &TcpListener, plan: &Plan<'_>) -> Result<[f64; 3], String> {
    pin(plan.cores().0);
    let server = listener.local_addr().map_err(|error| error.to_string())?;
    let mut line = Line::new(host, server)?;
    let (peer, _) = listener.accept().map_err(|error| error.to_string())?;
    peer.set_nodelay(true).and_then(|()| peer.set_nonblocking(true)).map_err(|error| error.to_string())?;
    let answer = || receive(&peer).and_then(|()| send(&peer));
    let (mut kernel, mut engine, mut halves) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.repeats {
        let one = time_round_trips(plan.time, || {
            send(&line.stream)?;
            answer()?;
            receive(&line.stream)
        })?;
        let mut taken = line.take()?;
        let other = time_round_trips(plan.time, || line.by_engine(&mut taken, answer))?;
        taken.give(&line.hands).map_err(|errno| format!("{errno:?}"))?;
        line.pass();
        kernel.push(one);
        engine.push(other);
        halves.push((other - one / 2.0) / (one / 2.0));
    }
    Ok([median(kernel), median(engine), median(halves)])
}
