//! Two hosts with a station each, a gate, and programs that check what they are given.
#![allow(dead_code)] // each test uses its part

use shunt_am::{Data, Nanoseconds};
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_endpoint::shared::Shape;
use shunt_endpoint::wrapper::fault::{Fault, Faults};
use shunt_segment::address::Address;
use shunt_station::*;
use shunt_testkit::hosts;
use std::collections::HashMap;
use std::net::IpAddr;

pub const MICROSECOND: Nanoseconds = 1_000;
pub const MILLISECOND: Nanoseconds = 1_000_000;
pub const SECOND: Nanoseconds = 1_000_000_000;
/// The port of the server's listener, and the listener's inode.
pub const PORT: u16 = 8080;
/// What the connections of these tests show.
pub const MARK: Mark = Mark(1449);
pub const INODE: u64 = 4_000_000_007;

/// What a program has of one stream.
#[derive(Default)]
pub struct Flow {
    pub received: Vec<u8>,
    pub acknowledged: u64,
    pub finished: u32,
    pub resets: u32,
    pub lost: u32,
    pub urgent: Vec<(u64, u8)>,
    /// What it wants to send, and how much of it is sent.
    pub sending: Vec<u8>,
    pub sent: usize,
    pub finish: bool,
    pub finish_sent: bool,
    /// Room that it grants beyond what it has.
    pub window: u64,
}

/// A program.
#[derive(Default)]
pub struct Program {
    pub flows: HashMap<Stream, Flow>,
    pub now: Nanoseconds,
    /// Bytes are all that it waits for, so a turn that brings some may end early.
    pub content: bool,
    heard: bool,
}

impl Program {
    /// Sends what it can.
    pub fn push(&mut self, driver: &mut Driver<'_>, stream: Stream) {
        let Some(flow) = self.flows.get_mut(&stream) else { return };
        let left = flow.sending.len() - flow.sent;
        if left > 0 {
            let (bytes, mut at) = (&flow.sending, flow.sent);
            let mut fill = |into: &mut [u8]| {
                into.copy_from_slice(&bytes[at..at + into.len()]);
                at += into.len();
                true
            };
            flow.sent += driver.send(self.now, stream, left, &mut fill);
        }
        if flow.finish && !flow.finish_sent && flow.sent == flow.sending.len() {
            flow.finish_sent = driver.finish(self.now, stream);
        }
    }

    pub fn flow(&mut self, stream: Stream) -> &mut Flow {
        self.flows.get_mut(&stream).expect("a stream")
    }
}

impl Pump for Program {
    fn bytes(&mut self, stream: Stream, data: Data<'_>) {
        let flow = self.flows.get_mut(&stream).expect("bytes of a stream that is bound");
        assert_eq!(flow.finished, 0, "bytes behind the end");
        self.heard = true;
        let from = flow.received.len();
        flow.received.resize(from + data.len(), 0);
        assert!(data.copy_to(0, &mut flow.received[from..]));
    }
    fn is_content(&self) -> bool {
        self.content && self.heard
    }
    fn finished(&mut self, stream: Stream) {
        self.flow(stream).finished += 1;
    }
    fn reset(&mut self, stream: Stream) {
        self.flow(stream).resets += 1;
    }
    fn begin(&mut self, _: Stream, _: u64) {}
    fn begun(&mut self, _: Stream) {}
    fn urgent(&mut self, stream: Stream, position: u64, byte: u8) {
        let flow = self.flow(stream);
        assert_eq!(flow.received.len() as u64, position, "in its place");
        flow.urgent.push((position, byte));
    }
    fn acknowledged(&mut self, stream: Stream, upto: u64) {
        let flow = self.flow(stream);
        assert!(upto >= flow.acknowledged && upto <= flow.sent as u64);
        flow.acknowledged = upto;
    }
    fn writable(&mut self, driver: &mut Driver<'_>, stream: Stream) {
        self.push(driver, stream);
    }
    fn lost(&mut self, stream: Stream) {
        self.flow(stream).lost += 1;
    }
}

/// A host with its station.
pub struct Side {
    pub station: Station,
    pub program: Program,
    pub address: Address,
    pub query: i32,
}

/// Both, and the server's gate.
pub struct World {
    pub sides: [Side; 2],
    pub gate: Discovery,
    pub hosts: [hosts::Host; 2],
    pub now: Nanoseconds,
}

pub fn address(host: &hosts::Host, port: u16) -> Address {
    match host.addresses[0] {
        IpAddr::V4(ip) => Address::v4(ip.octets(), port),
        IpAddr::V6(ip) => Address::v6(ip.octets(), port),
    }
}

/// A station over UDP behind faults, if there are any.
pub fn udp_station(at: &Address, faults: Option<Faults>, now: Nanoseconds) -> Station {
    let Some(faults) = faults else {
        return Station::make(Choice::Udp { local: *at, mtu: 1500 }, now).expect("a station");
    };
    let shape = Shape { segment: 256 * 2048, ..Shape::SMALL };
    let udp = Udp::bind(&ipv4(at.as_v4().expect("IPv4"), 0), Options { shape, ..Options::default() }).expect("an endpoint");
    let checked = faults.corrupt == 0;
    Station::make(Choice::Other { endpoint: Box::new(Fault::new(udp, faults)), checked }, now).expect("a station")
}

impl World {
    /// Two hosts over UDP; `None`, with a sentence, where that is not allowed.
    pub fn new(faults: Option<Faults>) -> Option<World> {
        let hosts = match hosts::pair(hosts::Joint::default()) {
            Ok(hosts) => hosts,
            Err(sentence) => {
                eprintln!("skipped: {sentence}");
                return None;
            }
        };
        let now = SECOND;
        let make = |number: usize| {
            let faults = faults.map(|faults| Faults { seed: faults.seed + number as u64, ..faults });
            let at = address(&hosts[number], 0);
            Side {
                station: hosts[number].enter(|| udp_station(&at, faults, now)),
                program: Program::default(),
                address: at,
                query: -1,
            }
        };
        let sides = [make(0), make(1)];
        let gate = hosts[1].enter(|| Discovery::open(false).expect("the gate"));
        let mut world = World { sides, gate, hosts, now };
        world.listen();
        Some(world)
    }

    pub fn listen(&mut self) {
        let bound = Address { port: PORT, ..self.sides[1].address };
        let station = &self.sides[1].station;
        station.listen(INODE, &bound).expect("room for a listener");
        self.sides[1].query = self.hosts[1].enter(|| Station::query(INODE).expect("a query socket"));
    }

    pub fn four(&self, port: u16) -> FourTuple {
        FourTuple { client: Address { port, ..self.sides[0].address }, server: Address { port: PORT, ..self.sides[1].address } }
    }

    /// One turn of one side: grants, sends, drives.
    pub fn turn(&mut self, number: usize) -> Progress {
        self.now += 20 * MICROSECOND;
        let Side { station, program, .. } = &mut self.sides[number];
        program.now = self.now;
        let mut driver = station.lock().expect("the lock");
        let streams: Vec<Stream> = program.flows.keys().copied().collect();
        for stream in streams {
            let flow = program.flow(stream);
            let limit = flow.received.len() as u64 + flow.window;
            driver.grant(stream, limit);
            program.push(&mut driver, stream);
        }
        let progress = driver.drive(self.now, program);
        // A mark may be there from a look while somebody else had the lock; each turn is one anyway.
        let _ = driver.leave();
        progress
    }

    pub fn turns(&mut self) {
        self.turn(0);
        self.turn(1);
    }

    /// Goes on until the condition holds. Time passes by itself only when nothing is under way: then up to the next timer.
    pub fn until(&mut self, limit: Nanoseconds, what: &str, mut condition: impl FnMut(&mut World) -> bool) {
        let end = self.now + limit;
        let mut quiet = 0;
        while !condition(self) {
            assert!(self.now < end, "{what}: not within {limit} ns of virtual time{}", self.describe());
            let moved = self.turn(0).moved | self.turn(1).moved;
            quiet = if moved { 0 } else { quiet + 1 };
            // Frames that are held back come after so many looks; those of the kernel's network at once, or when it gets to it.
            if quiet > 14 && !waits(&[self.sides[0].station.poll_fd(), self.sides[1].station.poll_fd()], 10) {
                let next = self.sides.iter().filter_map(|side| side.station.deadline()).min();
                self.now = self.now.max(next.unwrap_or(end)).min(end);
                quiet = 0;
            }
        }
    }

    /// For people.
    pub fn describe(&mut self) -> String {
        let mut text = String::new();
        for side in &mut self.sides {
            let deadline = side.station.deadline();
            let mut driver = side.station.lock().expect("the lock");
            for (stream, flow) in &side.program.flows {
                let Flow { received, acknowledged, finished, sending, sent, finish_sent, .. } = flow;
                let (received, all, positions) = (received.len(), sending.len(), driver.positions(*stream));
                text += &format!(
                    "\n{stream}: received {received}, end {finished}, sent {sent} of {all}, end {finish_sent}, acknowledged \
                     {acknowledged}, engine {positions:?}, room {}",
                    driver.room(*stream)
                );
            }
            text += &format!("\n deadline {deadline:?} {:?}", driver.status(0));
        }
        text
    }

    /// Asks, and gives what came of it.
    pub fn ask(&mut self, port: u16) -> Answer {
        let four = self.four(port);
        let station = &self.sides[0].station;
        let (now, program) = (self.now, &mut Program::default());
        let mut inquiry = self.hosts[0].enter(|| Inquiry::begin(station, &four, now, program).expect("an inquiry"));
        loop {
            match inquiry.step(&self.sides[0].station, self.now) {
                Answer::Pending => {}
                answer => return answer,
            }
            let ready = waits(&[inquiry.descriptor(), self.gate.descriptor(), self.sides[1].query], 1000);
            self.now = if ready { self.now + 100 * MICROSECOND } else { self.now.max(inquiry.deadline()) };
            self.gate.serve(self.now, &mut |_, _| true, &mut |four| (four.server.port == PORT).then_some(INODE));
            if self.sides[1].query >= 0 {
                let Side { station, program, query, .. } = &mut self.sides[1];
                station.lock().expect("the lock").hear(self.now, *query, program);
            }
            self.gate.serve(self.now, &mut |_, _| true, &mut |_| None);
        }
    }

    pub fn peer(&mut self) -> Peer {
        if let Some(Ok(peer)) = self.sides[0].station.known(&self.four(1), self.now) {
            return peer;
        }
        match self.ask(1) {
            Answer::Peer(peer) => peer,
            other => panic!("no peer: {other:?}"),
        }
    }

    /// Opens a stream at the client's side, and waits for what becomes of it.
    pub fn open(&mut self, port: u16) -> (Stream, Opening) {
        let peer = self.peer();
        let four = self.four(port);
        let stream = self.sides[0].station.lock().expect("the lock").open(self.now, peer, &four, MARK).expect("a stream");
        let mut opening = Opening::Pending;
        self.until(20 * SECOND, "an answer to OPEN", |world| {
            opening = world.sides[0].station.opening(stream);
            opening != Opening::Pending
        });
        (stream, opening)
    }

    /// A stream between both, bound, with so much room each way.
    pub fn connect(&mut self, port: u16, window: u64) -> [Stream; 2] {
        let (client, opening) = self.open(port);
        assert_eq!(opening, Opening::Opened);
        let four = self.four(port);
        let token = self.sides[0].station.lock().expect("the lock").token(client);
        let (server, found) =
            self.sides[1].station.lock().expect("the lock").claim(&four, MARK.0.into(), self.now).expect("a reservation");
        assert_eq!(found, token);
        for (side, stream) in self.sides.iter_mut().zip([client, server]) {
            side.program.flows.insert(stream, Flow { window, ..Flow::default() });
            side.station.lock().expect("the lock").bind(stream, &mut side.program);
        }
        [client, server]
    }
}

/// Whether one of them becomes readable in the time that a busy machine may need for what is on its way.
pub fn waits(descriptors: &[i32], milliseconds: i32) -> bool {
    let mut set: Vec<libc::pollfd> =
        descriptors.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: as many structures as are named.
    unsafe { libc::poll(set.as_mut_ptr(), set.len() as u64, milliseconds) > 0 }
}

/// Bytes that are nowhere like others.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}
