//! All that a network can do to a set-up, tried.
//!
//! Two engines, and a network that never forgets: every frame that was ever sent may arrive at any moment, any number of times,
//! or never. That is loss, doubling, delay and reordering without bound. Timers are acts like any other, so time stands still.
//! What programs and their hosts do to connections (close, give up, restart, send) is limited by a number, and within it
//! each reachable state is visited; states are compared by their memory. What must hold is checked at each step, and from
//! each state (of some runs: a part of them) that both sides come to agree once the network behaves.

use super::pair_token;
use crate::frame::{Hello, Kind, Short, SHORT};
use crate::memory::Memory;
use crate::state::{life, sign, Counters};
use crate::{Config, Dispatch, Engine, Event, Link, Message, Nanoseconds, Replier};
use std::collections::{HashMap, VecDeque};

const NOW: Nanoseconds = 1_000_000_000;
const LOST_AFTER: u32 = 1000;

fn config() -> Config {
    Config { window: 8, replies: 2, held: 0, channels: 0, checked: 1, lost_after: LOST_AFTER, ..Config::lossy(1, 256) }
}

/// A side's names in a connection: its own, the other's.
type Pair = (u64, u64);

/// What a side, or the network, does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Connect,
    Insist,
    /// The program closes the connection, or gives up while it is set up.
    Close,
    /// The peer was silent for the declared time.
    Expire,
    Restart,
    Send,
    Deliver(u16),
}

#[derive(Clone)]
struct Side {
    memory: Vec<u64>,
    /// Frames that were ever sent to it, by number, in order.
    mail: Vec<u16>,
    /// Connections that came up here.
    ups: Vec<Pair>,
    lives: u64,
    /// Messages sent: each is named, and belongs to a connection; messages handled.
    sent: Vec<Pair>,
    handled: Vec<u64>,
}

#[derive(Clone)]
struct World {
    sides: [Side; 2],
    /// So many more of the acts that end connections, and messages.
    ends: u32,
    messages: u32,
    /// Nothing ended a connection but what arrived.
    calm: bool,
}

/// What a call did.
#[derive(Default)]
struct Seen {
    frames: Vec<Vec<u8>>,
    events: Vec<Event>,
    names: Vec<u64>,
}

struct Wire<'s>(&'s mut Vec<Vec<u8>>);

impl Link for Wire<'_> {
    fn send(&mut self, _peer: u32, head: &[u8], body: &[u8]) -> bool {
        self.0.push([head, body].concat());
        true
    }
}

struct Program<'s>(&'s mut Vec<Event>, &'s mut Vec<u64>);

impl Dispatch for Program<'_> {
    fn request(&mut self, message: Message<'_>, _replier: Replier<'_>) {
        self.1.push(message.words[0]);
    }
    fn reply(&mut self, _message: Message<'_>) {}
    fn event(&mut self, _peer: u32, event: Event) {
        self.0.push(event);
    }
}

impl Side {
    fn new(number: u64) -> Self {
        let mut side = Self { memory: vec![], mail: vec![], ups: vec![], lives: number, sent: vec![], handled: vec![] };
        side.restart();
        side
    }

    fn restart(&mut self) {
        self.lives += 2;
        self.memory = vec![0; config().words()];
        Engine::format(&mut self.memory, &config(), [self.lives, 7]).unwrap();
        self.still();
    }

    fn with<T>(&mut self, look: impl FnOnce(&mut crate::connection::Side<'_>) -> T) -> T {
        look(&mut Memory::attach(&mut self.memory).unwrap().side(0).unwrap())
    }

    fn life(&mut self) -> u32 {
        self.with(|side| side.peer.life)
    }

    fn pair(&mut self) -> Option<Pair> {
        self.with(|side| side.is_up().then_some((side.peer.own_name, side.peer.remote.name)))
    }

    /// Counts and times are the same in all states.
    fn still(&mut self) {
        self.with(|side| {
            side.peer.counters = Counters::default();
            side.peer.tries = 0;
            side.peer.connect_at = 0;
            side.peer.deadline = Nanoseconds::MAX;
            side.shared.deadline = Nanoseconds::MAX;
            side.shared.reset_at = 0;
            side.shared.turn = 0;
        });
    }

    fn act(&mut self, now: Nanoseconds, act: Act, frames: &[Vec<u8>]) -> Seen {
        let mut seen = Seen::default();
        let (wire, mut program) = (&mut Wire(&mut seen.frames), Program(&mut seen.events, &mut seen.names));
        match act {
            Act::Restart => self.restart(),
            Act::Insist => self.with(|side| side.insist(now, wire)),
            Act::Expire => self.with(|side| side.lose(now, crate::Reason::Silent, &mut program)),
            _ => {
                let mut engine = Engine::attach(&mut self.memory).unwrap();
                match act {
                    Act::Connect => engine.connect(now, 0, wire).unwrap(),
                    Act::Close => engine.disconnect(now, 0, wire, &mut program).unwrap(),
                    Act::Send => {
                        let name = self.lives << 32 | self.sent.len() as u64;
                        engine.request(now, 0, 0, 1, &[name], &[], wire).unwrap();
                    }
                    Act::Deliver(frame) => engine.receive(now, 0, &frames[usize::from(frame)], wire, &mut program),
                    _ => unreachable!(),
                }
            }
        }
        Engine::attach(&mut self.memory).unwrap().transmit(now, wire, &mut program);
        seen
    }
}

fn agreed(sides: &mut [Side; 2]) -> bool {
    let [a, b] = sides;
    matches!((a.pair(), b.pair()), (Some(here), Some(there)) if here == (there.1, there.0))
}

/// A frame may be answered by one of higher rank only.
fn rank(frame: &[u8]) -> u32 {
    match Short::parse(frame).unwrap().kind {
        Kind::Ask => 0,
        Kind::Answer => 1,
        Kind::Prove => 2,
        Kind::Confirm => 3,
        Kind::Bye => 4,
        Kind::Data | Kind::Acknowledge | Kind::Probe | Kind::Plain => 5,
        Kind::Reset => 6,
    }
}

struct Explorer {
    frames: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, u16>,
    /// States, and how many more acts were tried from each.
    visited: HashMap<u64, u32>,
    path: Vec<(usize, Act)>,
    /// From one state in so many it is tried whether both sides come to agree.
    settle_each: u64,
    settled: u64,
}

impl Explorer {
    fn acts(&self, world: &mut World, who: usize) -> Vec<Act> {
        let side = &mut world.sides[who];
        let state = side.life();
        let mut acts = vec![];
        match state {
            life::IDLE => acts.push(Act::Connect),
            life::CONNECTING => acts.push(Act::Insist),
            _ if side.with(|side| side.peer.sign == sign::PROVING) => acts.push(Act::Insist),
            _ => {}
        }
        acts.extend(side.mail.iter().map(|&frame| Act::Deliver(frame)));
        if world.ends > 0 {
            acts.push(Act::Restart);
            if state != life::IDLE {
                acts.extend([Act::Close, Act::Expire]);
            }
        }
        if world.messages > 0 && state == life::UP && side.with(|side| side.peer.limit != side.peer.requests_sent) {
            acts.push(Act::Send);
        }
        acts
    }

    /// One act, and what must hold after each.
    fn step(&mut self, world: &mut World, who: usize, act: Act) {
        match act {
            Act::Close | Act::Expire | Act::Restart => (world.ends, world.calm) = (world.ends - 1, false),
            Act::Send => {
                world.messages -= 1;
                let pair = world.sides[who].pair().unwrap();
                let side = &mut world.sides[who];
                side.sent.push(pair);
            }
            _ => {}
        }
        let before = agreed(&mut world.sides);
        if act == Act::Send {
            // Its name is its place.
            world.sides[who].sent.pop();
        }
        let pair = world.sides[who].pair();
        let seen = world.sides[who].act(NOW, act, &self.frames);
        if act == Act::Send {
            world.sides[who].sent.push(pair.unwrap());
        }
        world.sides[who].still();

        // An agreed connection ends only if a side ends it: no old frame does, whatever it is.
        if let Act::Deliver(frame) = act {
            let kind = Short::parse(&self.frames[usize::from(frame)]).unwrap().kind;
            if before && kind != Kind::Bye {
                assert!(agreed(&mut world.sides) && seen.events.is_empty(), "ended by {kind:?}");
            }
            // What arrives is answered by one frame, of higher rank, or none: no exchange goes on.
            assert!(seen.frames.len() <= 1, "{kind:?} was answered by {} frames", seen.frames.len());
            let delivered = rank(&self.frames[usize::from(frame)]);
            assert!(seen.frames.iter().all(|sent| rank(sent) > delivered || rank(sent) == 5), "{kind:?} was answered");
        }
        for event in &seen.events {
            match event {
                Event::Up => {
                    let side = &mut world.sides[who];
                    let (own, other) = side.pair().unwrap();
                    // A name of ours is used once.
                    assert!(side.ups.iter().all(|up| up.0 != own), "twice");
                    side.ups.push((own, other));
                    // The other side was never told that there is no such connection.
                    let token = pair_token(own, other);
                    let said = |frame: &u16| {
                        let short = Short::parse(&self.frames[usize::from(*frame)]).unwrap();
                        short.kind == Kind::Reset && short.token == token
                    };
                    assert!(!world.sides[1 - who].mail.iter().any(said), "a reset came before");
                }
                // No side hears of a loss that never was.
                Event::Lost(reason) => assert!(!world.calm, "{reason:?}"),
            }
        }
        // Each message is handled once, in the connection that it was sent in.
        for &name in &seen.names {
            let [here, there] = if who == 0 { [0, 1] } else { [1, 0] };
            assert!(!world.sides[here].handled.contains(&name), "handled twice");
            world.sides[here].handled.push(name);
            let sent = world.sides[there].sent[name as u32 as usize];
            assert_eq!(world.sides[here].pair(), Some((sent.1, sent.0)), "in another connection");
        }
        // What a side believes of the other is true.
        for at in 0..2 {
            let confirmed = world.sides[at].with(|side| side.is_up() && side.peer.sign == sign::CONFIRMED);
            if let Some((own, other)) = world.sides[at].pair().filter(|_| confirmed) {
                assert!(world.sides[1 - at].ups.contains(&(other, own)), "confirmed, and never up there");
            }
        }
        for frame in seen.frames {
            let next = self.frames.len() as u16;
            let number = *self.numbers.entry(frame.clone()).or_insert(next);
            if number == next {
                self.frames.push(frame);
            }
            let mail = &mut world.sides[1 - who].mail;
            if let Err(place) = mail.binary_search(&number) {
                mail.insert(place, number);
            }
        }
    }

    /// Whether the state is new, or was met with fewer acts left.
    fn visit(&mut self, world: &World, left: u32) -> bool {
        let mut hash = 0u64;
        let mut add = |word: u64| hash = (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash >> 29;
        for side in &world.sides {
            side.memory.iter().filter(|&&word| word != 0).for_each(|&word| add(word));
            side.mail.iter().for_each(|&frame| add(frame.into()));
            add(u64::MAX);
            side.ups.iter().chain(&side.sent).for_each(|pair| add(pair.0 ^ pair.1.rotate_left(1)));
            side.handled.iter().for_each(|&name| add(name));
            add(side.lives);
        }
        add(u64::from(world.ends) << 33 | u64::from(world.messages) << 1 | u64::from(world.calm));
        let before = self.visited.insert(hash, left);
        if before.is_some_and(|before| before >= left) {
            self.visited.insert(hash, before.unwrap_or(left));
            return false;
        }
        if before.is_none() && hash >> 32 & (self.settle_each - 1) == 0 {
            self.settle(world.clone());
        }
        true
    }

    fn explore(&mut self, world: &mut World, left: u32) {
        if !self.visit(world, left) || left == 0 {
            return;
        }
        for who in 0..2 {
            for act in self.acts(world, who) {
                let mut next = world.clone();
                self.path.push((who, act));
                self.step(&mut next, who, act);
                self.explore(&mut next, left - 1);
                self.path.pop();
            }
        }
    }

    /// What is under way is lost, and nothing after that. A side that is up is watched. After the declared time both are up in
    /// one connection, or neither is; and if a side was connecting, they are up.
    fn settle(&mut self, mut world: World) {
        self.settled += 1;
        let (mut now, end) = (NOW, NOW + 3 * u64::from(LOST_AFTER) * 1_000_000);
        let was_agreed = agreed(&mut world.sides);
        let wanted = world.sides.iter_mut().any(|side| side.life() == life::CONNECTING) || was_agreed;
        for side in &mut world.sides {
            side.with(|side| {
                side.peer.connect_at = now;
                side.peer.lost_at = now + u64::from(LOST_AFTER) * 1_000_000;
                side.peer.watched = 1;
                side.schedule(now);
            });
        }
        let mut under_way = VecDeque::new();
        while now < end {
            let deadlines = world.sides.each_mut().map(|side| side.with(|side| side.shared.deadline));
            let next = under_way.front().map_or(Nanoseconds::MAX, |&(at, ..): &(Nanoseconds, usize, Vec<u8>)| at);
            now = now.max(deadlines[0].min(deadlines[1]).min(next));
            if now >= end {
                break;
            }
            let (who, seen) = if next <= now {
                let (_, who, frame) = under_way.pop_front().unwrap();
                (who, world.sides[who].act(now, Act::Deliver(0), &[frame]))
            } else {
                let who = usize::from(deadlines[1] < deadlines[0]);
                let mut seen = Seen::default();
                let side = &mut world.sides[who];
                let mut program = Program(&mut seen.events, &mut seen.names);
                Engine::attach(&mut side.memory).unwrap().transmit(now, &mut Wire(&mut seen.frames), &mut program);
                (who, seen)
            };
            assert!(!was_agreed || seen.events.is_empty(), "an agreed connection ended: {:?}", seen.events);
            under_way.extend(seen.frames.into_iter().map(|frame| (now + 10_000, 1 - who, frame)));
        }
        let lives = world.sides.each_mut().map(Side::life);
        assert!(agreed(&mut world.sides) || lives == [life::IDLE; 2] && !wanted, "no agreement: {lives:?}");
    }
}

/// Tells how it came to what must not be.
impl Drop for Explorer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (who, act) in &self.path {
                match act {
                    Act::Deliver(frame) => {
                        let frame = &self.frames[usize::from(*frame)];
                        let short = Short::parse(frame).unwrap();
                        let name = Hello::parse(&frame[SHORT..]).map_or(0, |hello| hello.name);
                        eprintln!("{who}: {:?} to {:x} from {name:x}", short.kind, short.token);
                    }
                    other => eprintln!("{who}: {other:?}"),
                }
            }
        }
    }
}

/// So many acts from two idle engines, of them some that end connections and some messages. Gives the number of states.
fn explore(acts: u32, ends: u32, messages: u32, settle_each: u64) -> usize {
    let mut explorer =
        Explorer { frames: vec![], numbers: HashMap::new(), visited: HashMap::new(), path: vec![], settle_each, settled: 0 };
    let mut world = World { sides: [Side::new(0), Side::new(1)], ends, messages, calm: true };
    explorer.explore(&mut world, acts);
    eprintln!("{} states, {} of them settled, {} frames", explorer.visited.len(), explorer.settled, explorer.frames.len());
    explorer.visited.len()
}

fn depth(usual: u32) -> u32 {
    std::env::var("SHUNT_EXPLORE").map_or(usual, |text| text.parse().expect("a number of acts"))
}

#[test]
fn without_an_end_there_is_one_connection() {
    // All states there are: more acts lead to no other.
    let all = explore(100, 0, 0, 1);
    assert_eq!(all, explore(50, 0, 0, 1));
}

#[test]
fn one_end() {
    assert!(explore(depth(13), 1, 0, 8) > 1000);
}

#[test]
fn two_ends() {
    assert!(explore(depth(10), 2, 0, 8) > 1000);
}

#[test]
fn messages_while_it_is_set_up() {
    assert!(explore(depth(14), 0, 2, 8) > 1000);
}

#[test]
fn messages_and_an_end() {
    assert!(explore(depth(10), 1, 2, 8) > 1000);
}
