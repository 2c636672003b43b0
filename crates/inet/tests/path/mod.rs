//! Two ends and a path between them, at virtual time. What passes is what a network would see: headers are written and read again.

use shunt_inet::header::LONGEST;
use shunt_inet::{Clock, Connection, Header, Leave, Seq, Settings, State, Verdict};
use std::collections::BTreeMap;

pub const SEGMENT: u32 = 1000;
/// Whole segments, so that its end cuts none.
pub const RING: usize = 64 * SEGMENT as usize;
pub type Nanoseconds = u64;
pub const MICROSECOND: Nanoseconds = 1000;
pub const MILLISECOND: Nanoseconds = 1_000_000;

/// The byte at a place of a direction's stream.
pub fn byte(direction: usize, place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8 ^ (direction as u8 * 0x55)
}

/// Numbers that look random, always the same (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// True with this probability in 10,000.
    pub fn chance(&mut self, in_ten_thousand: u64) -> bool {
        self.next() % 10_000 < in_ten_thousand
    }
}

/// What a path does to packets, each in 10,000.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    pub lost: u64,
    pub doubled: u64,
    pub overtaken: u64,
    /// Nanoseconds that a packet takes, one way.
    pub delay: Nanoseconds,
    /// Nanoseconds between two packets of one direction.
    pub spacing: Nanoseconds,
    /// Packets that wait for the link; 0: as many as come.
    pub queue: u64,
}

/// One end: an engine, its rings, and the program behind it.
pub struct End {
    pub engine: Connection<256>,
    /// First byte of the stream that its ring holds, and bytes that the program wants to send in all.
    pub head: u64,
    pub to_send: u64,
    ring: Vec<u8>,
    filled: u64,
    /// The receiving ring, and bytes that the program took.
    inbox: Vec<u8>,
    pub ready: u64,
    pub taken: u64,
    /// Bytes that the program takes each time; 0: it does not.
    pub appetite: u64,
    pub segments: u64,
    pub left: Option<Leave>,
}

pub fn state(sent: Seq, expected: Seq) -> State {
    State {
        unacknowledged: sent,
        sent,
        expected,
        segment: SEGMENT,
        window_told: expected,
        window: RING as u32,
        largest_window: RING as u32,
        promised: RING as u32,
        promised_from: expected,
        scale: 3,
        own_scale: 3,
        selective: true,
        timestamps: Some((Clock { value: 77, at: 0 }, None)),
        round_trip: (0, 0),
    }
}

impl End {
    fn new(state: &State, settings: Settings, to_send: u64) -> End {
        End {
            engine: Connection::new(state, (1, 2), settings, 0),
            head: 0,
            to_send,
            ring: vec![0; RING],
            filled: 0,
            inbox: vec![0; RING],
            ready: 0,
            taken: 0,
            appetite: u64::MAX,
            segments: 0,
            left: None,
        }
    }
}

pub struct World {
    pub now: Nanoseconds,
    pub ends: [End; 2],
    pub random: Random,
    pub trouble: Trouble,
    /// By time and a number, so that ties have an order: to whom, and the segment.
    wire: BTreeMap<(Nanoseconds, u64), (usize, Vec<u8>)>,
    count: u64,
    free_at: [Nanoseconds; 2],
    pub dropped: u64,
}

impl World {
    pub fn new(settings: [Settings; 2], to_send: [u64; 2], trouble: Trouble, seed: u64) -> World {
        World::with(settings, to_send, trouble, seed, |_| {})
    }

    pub fn with(settings: [Settings; 2], to_send: [u64; 2], trouble: Trouble, seed: u64, change: impl Fn(&mut State)) -> World {
        // Both directions pass the end of the numbers early.
        let (one, other) = (Seq(u32::MAX - 5_000), Seq(u32::MAX - 70_000));
        let (mut here, mut there) = (state(one, other), state(other, one));
        change(&mut here);
        change(&mut there);
        World {
            now: 0,
            ends: [End::new(&here, settings[0], to_send[0]), End::new(&there, settings[1], to_send[1])],
            random: Random(seed | 1),
            trouble,
            wire: BTreeMap::new(),
            count: 0,
            free_at: [0; 2],
            dropped: 0,
        }
    }

    /// Whether all bytes of both have been taken by the programs.
    pub fn done(&self) -> bool {
        (0..2).all(|end| self.ends[1 - end].taken == self.ends[end].to_send)
    }

    /// Runs until all has arrived, somebody leaves, or the time is over. True if all has arrived.
    pub fn run(&mut self, until: Nanoseconds) -> bool {
        while !self.done() && self.now < until && self.ends.iter().all(|end| end.left.is_none()) {
            if !self.step() {
                return false;
            }
        }
        self.done()
    }

    /// Lets both do what they can, and moves to the next event. False: nothing will ever happen.
    pub fn step(&mut self) -> bool {
        for end in 0..2 {
            self.turn(end);
        }
        if self.done() {
            return true;
        }
        let mut next = self.wire.keys().next().map(|key| key.0);
        for end in &self.ends {
            if let Some(deadline) = end.engine.deadline() {
                next = Some(next.map_or(deadline, |time| time.min(deadline)));
            }
        }
        // A program that has more to read comes back for it.
        if self.ends.iter().any(|end| end.ready > end.taken && end.appetite > 0) {
            let again = self.now + MICROSECOND;
            next = Some(next.map_or(again, |time| time.min(again)));
        }
        let Some(next) = next else { return false };
        self.now = self.now.max(next);
        while let Some((&key, _)) = self.wire.iter().next() {
            if key.0 > self.now {
                break;
            }
            let (to, bytes) = self.wire.remove(&key).unwrap();
            self.arrive(to, &bytes);
        }
        true
    }

    fn turn(&mut self, index: usize) {
        let now = self.now;
        let end = &mut self.ends[index];
        if end.left.is_some() {
            return;
        }
        let taken = (end.ready - end.taken).min(end.appetite);
        for place in end.taken..end.taken + taken {
            assert_eq!(end.inbox[place as usize % RING], byte(1 - index, place), "end {index}, byte {place}");
        }
        end.taken += taken;
        end.engine.set_room(RING as u32 - (end.ready - end.taken) as u32);
        let goal = end.to_send.min(end.head + RING as u64);
        while end.filled < goal {
            end.ring[end.filled as usize % RING] = byte(index, end.filled);
            end.filled += 1;
        }
        end.engine.offer((end.filled - end.head) as u32);
        if let Err(leave) = end.engine.timer(now) {
            end.left = Some(leave);
            return;
        }
        let mut turn = 0;
        while let Some(outgoing) = self.ends[index].engine.outgoing(now) {
            let end = &mut self.ends[index];
            end.segments += 1;
            turn += 1;
            assert!(turn < 1000, "it never stops: {outgoing:?}");
            let mut bytes = vec![0; LONGEST];
            let length = outgoing.header.emit(&mut bytes);
            bytes.truncate(length);
            for offset in 0..u64::from(outgoing.length) {
                let place = end.head + u64::from(outgoing.from) + offset;
                assert!(place < end.filled);
                bytes.push(end.ring[place as usize % RING]);
            }
            self.carry(1 - index, bytes);
        }
    }

    fn carry(&mut self, to: usize, bytes: Vec<u8>) {
        let Trouble { lost, doubled, overtaken, delay, spacing, queue } = self.trouble;
        if self.random.chance(lost) || (queue > 0 && self.free_at[to].saturating_sub(self.now) > queue * spacing) {
            self.dropped += 1;
            return;
        }
        self.free_at[to] = self.free_at[to].max(self.now) + spacing;
        let mut at = self.free_at[to] + delay;
        if self.random.chance(overtaken) {
            at += self.random.next() % (delay + 1);
        }
        self.count += 1;
        assert!(self.wire.len() < 10_000, "segments without end");
        if self.random.chance(doubled) {
            self.wire.insert((at + delay / 2, self.count), (to, bytes.clone()));
            self.count += 1;
        }
        self.wire.insert((at, self.count), (to, bytes));
    }

    fn arrive(&mut self, to: usize, bytes: &[u8]) {
        let end = &mut self.ends[to];
        if end.left.is_some() {
            return;
        }
        let (header, length) = Header::parse(bytes).expect("a header that was emitted");
        let payload = &bytes[length..];
        match end.engine.segment(&header, payload.len() as u32, self.now) {
            Verdict::Ignored => {}
            Verdict::Leave(leave) => end.left = Some(leave),
            Verdict::Taken(arrival) => {
                end.head += u64::from(arrival.acknowledged);
                assert!(end.head <= end.filled);
                let wanted = arrival.wanted;
                let bytes = &payload[wanted.skip as usize..(wanted.skip + wanted.length) as usize];
                for (offset, value) in bytes.iter().enumerate() {
                    let place = end.ready + u64::from(wanted.at) + offset as u64;
                    assert!(place - end.taken < RING as u64, "beyond the ring");
                    end.inbox[place as usize % RING] = *value;
                }
                end.ready += u64::from(wanted.ready);
            }
        }
    }

    /// One end's connection is taken by another engine, with what it holds: as when it goes to the kernel and comes back.
    pub fn hand_over(&mut self, index: usize, settings: Settings) {
        let end = &mut self.ends[index];
        let state = end.engine.give_back(self.now);
        end.engine = Connection::new(&state, (1, 2), settings, self.now);
        end.left = None;
        end.engine.offer((end.filled - end.head) as u32);
    }
}
