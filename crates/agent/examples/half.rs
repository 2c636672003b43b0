//! Round trips of eight bytes with one end of the connection taken from the kernel, or none, and both ends in one thread.
//!
//! half taken|kernel COUNT SHUNT
//!
//! For `scripts/taken-requests`, which counts the instructions that the taken end needs, and whose the rest is.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use shunt_sys::clock::monotonic_ns;
use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::{pair, Joint};
use shunt_xdp::escrow::Escrow;
use shunt_xdp::protocol::{Connection, Decline, Kind, Sizes};
use shunt_xdp::taken::Taken;
use shunt_xdp::tcp::{Envelope, Tuple, LONGEST_FRAME};
use shunt_xdp::Xdp;

/// The end under test.
struct End {
    stream: TcpStream,
    tuple: Tuple,
    device: Xdp,
    hands: Connection,
    taken: Option<Taken>,
}

/// Eight bytes by the kernel.
fn receive(mut stream: &TcpStream) {
    let (mut bytes, mut read) = ([0; 8], 0);
    while read < 8 {
        match stream.read(&mut bytes[read..]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            count => read += count.expect("bytes"),
        }
    }
}

fn send(mut stream: &TcpStream) {
    stream.write_all(&[1; 8]).expect("sent");
}

/// Takes it, as soon as everything is acknowledged.
fn take(end: &mut End) {
    while end.taken.is_none() {
        let escrow = Escrow::create(1 << 16, 1 << 18).expect("an escrow");
        match Taken::take(&end.hands, end.stream.as_raw_fd(), end.tuple, escrow, monotonic_ns()).expect("an answer") {
            Err(Decline::Unacknowledged) => {}
            taken => end.taken = Some(taken.expect("taken")),
        }
    }
}

/// Eight bytes there and back at user level.
fn round_trip(device: &mut Xdp, taken: &mut Taken, tuple: &Tuple, buffer: &mut [u8], peer: &TcpStream) {
    let mut frames = device.frames().expect("a queue");
    let now = monotonic_ns();
    taken.offer(&[1; 8]);
    let turned = taken.turn(&mut frames, now);
    assert!(turned.is_ok(), "given back: {turned:?}, {:?}", taken.closed_by());
    receive(peer);
    send(peer);
    let mut read = 0;
    while read < 8 {
        let Some(frame) = frames.next(buffer) else { continue };
        let now = monotonic_ns();
        if let Some(envelope) = Envelope::parse(frame).filter(|envelope| envelope.tuple == *tuple) {
            taken.frame(&envelope, frame, now).expect("taken");
            read += taken.look(0, &mut [0; 8]);
            taken.consume(8);
            taken.put(&mut frames, now).expect("taken");
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, kind, count, shunt] = arguments.as_slice() else { panic!("half taken|kernel COUNT SHUNT") };
    let count: u64 = count.parse().expect("a number");
    let hosts = pair(Joint::default()).expect("two hosts");
    let _agent = Agent::start(&hosts[0], shunt, &["--lend", "0", "--take"]).expect("an agent");
    let listener = hosts[1].enter(|| TcpListener::bind((hosts[1].addresses[0], 0))).expect("a port");
    let server = listener.local_addr().expect("a name");
    let mut end = hosts[0].enter(|| {
        let mut device = Xdp::attach(&hosts[0].interface, Kind::Own, false, Sizes::default()).expect("a queue");
        device.post_all();
        let hands = device.agent().hands().expect("hands");
        let stream = TcpStream::connect(server).expect("a connection");
        let tuple = Tuple { ours: stream.local_addr().expect("a name"), theirs: server };
        End { stream, tuple, device, hands, taken: None }
    });
    let peer = listener.accept().expect("a connection").0;
    for stream in [&end.stream, &peer] {
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).expect("options");
    }
    if kind == "taken" {
        take(&mut end);
    }
    shunt_sys::clock::start_once();
    std::thread::sleep(std::time::Duration::from_millis(60)); // in which the clock is calibrated
    let mut buffer = vec![0; LONGEST_FRAME];
    let End { stream, tuple, device, taken, .. } = &mut end;
    let mut once = || match taken {
        Some(taken) => round_trip(device, taken, tuple, &mut buffer, &peer),
        None => {
            send(stream);
            receive(&peer);
            send(&peer);
            receive(stream);
        }
    };
    (0..count).for_each(|_| once());
}
