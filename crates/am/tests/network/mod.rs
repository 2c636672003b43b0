//! Hosts and a network at virtual time: engines on both ends of links that lose, double, reorder, change and delay frames.
#![allow(dead_code)] // each test uses its part

pub mod reno;

use reno::Reno;
use shunt_am::{Config, Data, Dispatch, Engine, Event, Link, Message, Nanoseconds, Reason, Replier};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

pub const MICROSECOND: Nanoseconds = 1_000;
pub const MILLISECOND: Nanoseconds = 1_000_000;
pub const SECOND: Nanoseconds = 1_000_000_000;

/// Handlers of the test program.
pub const COUNT: u8 = 1;
pub const ECHO: u8 = 2;
pub const ANSWER: u8 = 3;
pub const STORED: u8 = 4;
pub const FETCHED: u8 = 5;
pub const UNKNOWN: u8 = 99;

/// A small generator (splitmix64): tests must not depend on anything but their seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True with so many chances in 10,000.
    pub fn chance(&mut self, of_ten_thousand: u32) -> bool {
        self.below(10_000) < u64::from(of_ten_thousand)
    }
}

/// What a link does to frames; chances in 10,000.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub loss: u32,
    pub duplication: u32,
    pub corruption: u32,
    pub delay: Nanoseconds,
    /// Up to so much more for each frame: what makes them overtake each other.
    pub jitter: Nanoseconds,
    /// Nanoseconds a byte; 0: none. Frames queue for it.
    pub byte_time: Nanoseconds,
    /// Frames that may queue at the bottleneck.
    pub queue: usize,
    /// The device refuses frames now and then.
    pub refusal: u32,
    /// Bytes of the longest frame that arrives.
    pub longest: usize,
}

impl Faults {
    pub const NONE: Self = Self {
        loss: 0,
        duplication: 0,
        corruption: 0,
        delay: 20 * MICROSECOND,
        jitter: 0,
        byte_time: 0,
        queue: usize::MAX,
        refusal: 0,
        longest: usize::MAX,
    };
}

/// What a program saw.
#[derive(Default)]
pub struct Program {
    /// Runs of COUNT and ECHO, by the number in the first word.
    pub ran: HashMap<u64, u32>,
    pub answered: HashMap<u64, u32>,
    pub returned: HashMap<u64, u32>,
    /// Ordered requests, by channel.
    pub ordered: BTreeMap<u16, Vec<u64>>,
    /// Bytes, by channel.
    pub streams: BTreeMap<u16, Vec<u8>>,
    pub stored: Vec<(u64, u64, u64)>,
    pub fetched: Vec<(u64, u64, u64)>,
    pub segment: Vec<u8>,
    pub events: Vec<(Nanoseconds, u32, Event)>,
    pub now: Nanoseconds,
    /// It knows that its peers live.
    pub vouches: bool,
}

impl Dispatch for Program {
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        let name = message.words.first().copied().unwrap_or(0);
        match message.handler {
            COUNT => *self.ran.entry(name).or_default() += 1,
            ECHO => {
                *self.ran.entry(name).or_default() += 1;
                replier.reply(ANSWER, message.words, message.data).unwrap();
            }
            STORED if message.bulk.is_some() => {
                let (offset, length) = message.bulk.unwrap();
                self.stored.push((name, offset, length));
                *self.ran.entry(name).or_default() += 1;
                replier.reply(ANSWER, message.words, &[]).unwrap();
            }
            _ => replier.refuse(),
        }
        if message.channel != 0 {
            self.ordered.entry(message.channel).or_default().push(name);
        }
    }

    fn reply(&mut self, message: Message<'_>) {
        let name = message.words.first().copied().unwrap_or(0);
        match (message.handler, message.bulk) {
            (FETCHED, Some((offset, length))) => self.fetched.push((name, offset, length)),
            _ => *self.answered.entry(name).or_default() += 1,
        }
    }

    fn returned(&mut self, message: Message<'_>) {
        *self.returned.entry(message.words.first().copied().unwrap_or(0)).or_default() += 1;
    }

    fn stream(&mut self, _peer: u32, channel: u16, data: Data<'_>) {
        let stream = self.streams.entry(channel).or_default();
        let from = stream.len();
        stream.resize(from + data.len(), 0);
        assert!(data.copy_to(0, &mut stream[from..]));
    }

    fn segment(&mut self, _peer: u32) -> &mut [u8] {
        &mut self.segment
    }

    fn vouches(&mut self, _peer: u32) -> bool {
        self.vouches
    }

    fn event(&mut self, peer: u32, event: Event) {
        self.events.push((self.now, peer, event));
    }
}

/// A host: an engine's memory and its program. Peers are numbered as hosts are.
pub struct Host {
    pub memory: Vec<u64>,
    pub program: Program,
    /// Runs; if not, frames to it are lost.
    pub alive: bool,
    /// Runs, but is not scheduled.
    pub stalled: bool,
    pub backlog: Vec<(u32, Vec<u8>)>,
}

/// Where an engine's frames go during one call.
pub struct Wires<'w> {
    pub from: usize,
    pub sent: &'w mut Vec<(usize, usize, Vec<u8>)>,
    pub dice: &'w mut Dice,
    pub refusal: u32,
}

impl Link for Wires<'_> {
    fn send(&mut self, peer: u32, head: &[u8], body: &[u8]) -> bool {
        assert!(head.len() <= 112);
        if self.dice.chance(self.refusal) {
            return false;
        }
        self.sent.push((self.from, peer as usize, [head, body].concat()));
        true
    }
}

/// The sender of a flow beside the engines' from host 0 to host 1, and its receiver, as senders and receivers of frames.
const BESIDE: usize = 1 << 20;
/// Ethernet, IPv4 and UDP around a frame; TCP's header is a little longer than UDP's, and counted in its packets.
const AROUND: usize = 28 + 38;

type Flight = Reverse<(Nanoseconds, u64, usize, usize, Vec<u8>)>;

/// All of it.
pub struct World {
    pub now: Nanoseconds,
    pub hosts: Vec<Host>,
    pub faults: Faults,
    pub dice: Dice,
    pub config: Config,
    pub frames: u64,
    pub bytes: u64,
    /// A flow beside those of the engines, from host 0 to host 1.
    pub beside: Option<Reno>,
    flights: BinaryHeap<Flight>,
    busy_until: HashMap<(usize, usize), Nanoseconds>,
    sent: Vec<(usize, usize, Vec<u8>)>,
    order: u64,
    lives: u64,
}

impl World {
    pub fn new(hosts: usize, config: Config, faults: Faults, seed: u64) -> Self {
        let mut world = Self {
            now: SECOND,
            hosts: vec![],
            faults,
            dice: Dice(seed),
            config: Config { peers: hosts as u32, ..config },
            frames: 0,
            bytes: 0,
            beside: None,
            flights: BinaryHeap::new(),
            busy_until: HashMap::new(),
            sent: vec![],
            order: 0,
            lives: 0,
        };
        for _ in 0..hosts {
            let memory = world.new_memory();
            let program = Program { segment: vec![0; 1 << 20], ..Program::default() };
            world.hosts.push(Host { memory, program, alive: true, stalled: false, backlog: vec![] });
        }
        world
    }

    fn new_memory(&mut self) -> Vec<u64> {
        let mut memory = vec![0; self.config.words()];
        self.lives += 1;
        let secret = [self.lives, self.dice.next()];
        Engine::format(&mut memory, &self.config, secret).unwrap();
        memory
    }

    /// A host loses all that it knew.
    pub fn restart(&mut self, host: usize) {
        self.hosts[host].memory = self.new_memory();
        self.hosts[host].program.segment.fill(0);
        self.hosts[host].alive = true;
        self.hosts[host].backlog.clear();
    }

    /// Makes calls at a host.
    pub fn at<T>(&mut self, host: usize, act: impl FnOnce(&mut Engine<'_>, Nanoseconds, &mut Wires<'_>, &mut Program) -> T) -> T {
        let now = self.now;
        let record = &mut self.hosts[host];
        record.program.now = now;
        let mut engine = Engine::attach(&mut record.memory).unwrap();
        let mut wires = Wires { from: host, sent: &mut self.sent, dice: &mut self.dice, refusal: self.faults.refusal };
        let result = act(&mut engine, now, &mut wires, &mut record.program);
        self.launch();
        result
    }

    /// Asks a host's engine something.
    pub fn ask<T>(&mut self, host: usize, question: impl FnOnce(&mut Engine<'_>) -> T) -> T {
        question(&mut Engine::attach(&mut self.hosts[host].memory).unwrap())
    }

    fn launch(&mut self) {
        for (from, to, frame) in std::mem::take(&mut self.sent) {
            self.frames += 1;
            self.bytes += frame.len() as u64;
            let faults = self.faults;
            let mut leaves = self.now;
            if faults.byte_time > 0 {
                let busy = self.busy_until.entry((from % BESIDE, to % BESIDE)).or_insert(0);
                let takes = faults.byte_time * (frame.len() + AROUND) as u64;
                if *busy > self.now + takes * faults.queue as u64 {
                    continue;
                }
                *busy = (*busy).max(self.now) + takes;
                leaves = *busy;
            }
            if self.dice.chance(faults.loss) || frame.len() > faults.longest {
                continue;
            }
            let copies = 1 + u32::from(self.dice.chance(faults.duplication));
            for _ in 0..copies {
                let mut frame = frame.clone();
                if self.dice.chance(faults.corruption) {
                    for _ in 0..1 + self.dice.below(3) {
                        let bit = self.dice.below(frame.len() as u64 * 8) as usize;
                        frame[bit / 8] ^= 1 << (bit % 8);
                    }
                }
                let arrives = leaves + faults.delay + self.dice.below(faults.jitter + 1);
                self.order += 1;
                self.flights.push(Reverse((arrives, self.order, from, to, frame)));
            }
        }
    }

    /// The flow beside sends what it may.
    fn pour(&mut self) {
        let now = self.now;
        if let Some(beside) = &mut self.beside {
            while let Some(number) = beside.send(now) {
                let mut packet = vec![0; beside.packet - AROUND];
                packet[..8].copy_from_slice(&number.to_le_bytes());
                self.sent.push((BESIDE, BESIDE + 1, packet));
            }
        }
        self.launch();
    }

    /// A packet of the flow beside has arrived, or an acknowledgement of one.
    fn arrived_beside(&mut self, to: usize, packet: &[u8]) {
        let Some(beside) = &mut self.beside else { return };
        if to == BESIDE {
            beside.acknowledged(self.now, u64::from_le_bytes(packet[..8].try_into().unwrap()));
        } else {
            beside.delivered += 1;
            self.sent.push((BESIDE + 1, BESIDE, packet[..8].to_vec()));
        }
        self.pour();
    }

    fn poll(&mut self, host: usize) {
        self.at(host, |engine, now, wires, program| engine.transmit(now, wires, program));
    }

    /// Goes on to the next thing that happens, if it is not after `until`. False: nothing is left before that.
    pub fn step(&mut self, until: Nanoseconds) -> bool {
        let mut next = self.flights.peek().map(|Reverse(flight)| flight.0);
        let mut timer = None;
        for host in 0..self.hosts.len() {
            if !self.hosts[host].alive || self.hosts[host].stalled {
                continue;
            }
            let engine = Engine::attach(&mut self.hosts[host].memory).unwrap();
            // A device that refused is asked again a little later.
            let busy = engine.is_busy().then_some(self.now + 10 * MICROSECOND);
            if let Some(at) = [engine.deadline(), busy].into_iter().flatten().min() {
                if next.is_none_or(|next| at < next) {
                    next = Some(at);
                    timer = Some(host);
                }
            }
        }
        if let Some(at) = self.beside.as_ref().and_then(|beside| beside.timer).filter(|&at| next.is_none_or(|next| at < next)) {
            next = Some(at);
            timer = Some(BESIDE);
        }
        let Some(next) = next.filter(|&at| at <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(next);
        match timer {
            Some(BESIDE) => {
                let now = self.now;
                self.beside.iter_mut().for_each(|beside| beside.time_out(now));
                self.pour();
            }
            Some(host) => self.poll(host),
            None => {
                let Reverse((_, _, from, to, frame)) = self.flights.pop().unwrap();
                if to >= BESIDE {
                    self.arrived_beside(to, &frame);
                    return true;
                }
                let host = &mut self.hosts[to];
                if host.stalled {
                    // Its device's queue.
                    if host.backlog.len() < 256 {
                        host.backlog.push((from as u32, frame));
                    }
                } else if host.alive {
                    self.at(to, |engine, now, wires, program| engine.receive(now, from as u32, &frame, wires, program));
                    self.poll(to);
                }
            }
        }
        true
    }

    /// Runs a stalled host again.
    pub fn resume(&mut self, host: usize) {
        self.hosts[host].stalled = false;
        for (from, frame) in std::mem::take(&mut self.hosts[host].backlog) {
            self.at(host, |engine, now, wires, program| engine.receive(now, from, &frame, wires, program));
        }
        self.poll(host);
    }

    pub fn run_until(&mut self, until: Nanoseconds) {
        while self.step(until) {}
    }

    /// Runs until the condition holds; false if it does not within `limit`.
    pub fn run_while(&mut self, limit: Nanoseconds, mut condition: impl FnMut(&mut Self) -> bool) -> bool {
        let until = self.now + limit;
        while condition(self) {
            if !self.step(until) {
                return !condition(self);
            }
        }
        true
    }

    pub fn connect(&mut self, from: usize, to: usize) {
        self.at(from, |engine, now, wires, _| engine.connect(now, to as u32, wires).unwrap());
        let up = |world: &mut Self, a: usize, b: usize| world.ask(a, |engine| engine.is_up(b as u32));
        assert!(
            self.run_while(60 * SECOND, |world| !up(world, from, to)),
            "no connection: {:?}",
            self.hosts[from].program.events
        );
    }

    /// Begins the flow beside, with packets of so many bytes in all.
    pub fn begin_beside(&mut self, packet: usize) {
        self.beside = Some(Reno::new(packet));
        self.pour();
    }

    pub fn ups(&self, host: usize) -> usize {
        self.hosts[host].program.events.iter().filter(|(_, _, event)| *event == Event::Up).count()
    }

    pub fn losses(&self, host: usize) -> Vec<(Nanoseconds, Reason)> {
        let lost = |&(at, _, event): &(Nanoseconds, u32, Event)| match event {
            Event::Lost(reason) => Some((at, reason)),
            Event::Up => None,
        };
        self.hosts[host].program.events.iter().filter_map(lost).collect()
    }
}
