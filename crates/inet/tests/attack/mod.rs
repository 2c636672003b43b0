//! Segments as anybody on the path might make them, and what must hold whatever they are: the engine does not panic, delivers no byte that no
//! segment had at that place, keeps within its ring, and never moves a promise back ([`attack`]); and an engine that is given back at any of them leaves the kernel where it
//! would have been without ([`compare`]). For the property test, for the fuzzer, and for Miri.

mod kernel;

use kernel::Kernel;
use shunt_inet::header::{Blocks, Timestamps, ACK};
use shunt_inet::{Clock, Connection, Header, Leave, Recovery, Seq, Settings, State, Verdict};

const RING: u32 = 4096;
const ORIGIN: Seq = Seq(u32::MAX - 2000);
const SENT: Seq = Seq(70_000);

/// What happens to an engine.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Distance of its start from the byte that is expected, length, distance of the acknowledgement from the oldest byte, window, clock.
    Segment {
        from: i32,
        length: u16,
        acknowledged: i32,
        window: u16,
        clock: Option<i32>,
        blocks: Vec<(i32, i32)>,
        flags: u8,
    },
    Offer(u32),
    Read(u16),
    Wait(u32),
}

fn state() -> State {
    State {
        unacknowledged: SENT,
        sent: SENT,
        expected: ORIGIN,
        segment: 1000,
        window_told: ORIGIN,
        window: 20_000,
        largest_window: 20_000,
        promised: RING,
        promised_from: ORIGIN,
        scale: 2,
        own_scale: 2,
        selective: true,
        timestamps: Some((Clock { value: 9, at: 0 }, Some(1000))),
        round_trip: (1_000_000, 100_000),
    }
}

/// Plays the operations against the kernel alone, and against an engine that is given back before operation `at`, or when it leaves, whose kernel goes on.
pub fn compare(operations: Vec<Operation>, at: usize) {
    /// Bytes under way when the connection is taken.
    const UNDER_WAY: u32 = 8000;
    let begin = State { sent: SENT.plus(UNDER_WAY), ..state() };
    let settings = Settings { ring: RING, ..Settings::default() };
    let mut alone = Kernel::new(&begin, ORIGIN, Vec::new(), 0);
    let mut engine = Some(Connection::<16>::new(&begin, (1, 2), settings, 0));
    let mut carried = Vec::new();
    let mut after = None;
    let (mut now, mut clock) = (0u64, 1000i64);
    for (number, operation) in operations.into_iter().enumerate() {
        if number == at {
            if let Some(engine) = engine.take() {
                after = Some(Kernel::new(&engine.give_back(now), ORIGIN, std::mem::take(&mut carried), now));
            }
        }
        let (header, length) = match operation {
            // What is sent, and told of room, is each one's own affair.
            Operation::Offer(_) | Operation::Read(_) => continue,
            Operation::Wait(time) => {
                now += u64::from(time);
                continue;
            }
            // The kernel's, in either case.
            Operation::Segment { flags, clock, .. } if flags != 0 || clock.is_none() => continue,
            Operation::Segment { from, length, acknowledged, window, clock: age, .. } => {
                let (expected, oldest) = alone.places();
                clock += i64::from(age.unwrap_or(0).clamp(0, 1000));
                let header = Header {
                    source: 2,
                    destination: 1,
                    sequence: expected.plus(from as u32),
                    acknowledgement: oldest.plus(acknowledged as u32),
                    flags: ACK,
                    window,
                    timestamps: Some(Timestamps { value: (clock + i64::from(age.unwrap_or(0).min(0))) as u32, echo: 9 }),
                    blocks: Blocks::default(),
                };
                (header, u32::from(length))
            }
        };
        alone.segment(&header, length, number as u32, now);
        if let Some(carrying) = &mut engine {
            match carrying.segment(&header, length, now) {
                Verdict::Leave(_) => {
                    // The kernel has the segment, too.
                    after = Some(Kernel::new(&carrying.give_back(now), ORIGIN, std::mem::take(&mut carried), now));
                    engine = None;
                }
                Verdict::Ignored => continue,
                Verdict::Taken(arrival) => {
                    carried.extend((0..arrival.wanted.ready).map(|_| number as u32));
                    continue;
                }
            }
        }
        if let Some(after) = &mut after {
            after.segment(&header, length, number as u32, now);
        }
    }
    let (numbers, delivered) = match (&engine, &after) {
        (Some(engine), _) => (kernel::numbers(&engine.give_back(now)), &carried),
        (None, Some(after)) => (after.numbers(), &after.delivered),
        (None, None) => return,
    };
    assert_eq!(numbers, alone.numbers());
    assert_eq!(delivered, &alone.delivered);
}

/// Plays the operations against an engine, until the connection is the kernel's.
pub fn attack(operations: Vec<Operation>, recovery: Recovery) {
    let settings = Settings { recovery, ring: RING, ..Settings::default() };
    let mut engine = Connection::<16>::new(&state(), (1, 2), settings, 0);
    let (mut now, mut clock) = (0u64, 1000i64);
    let (mut expected, mut oldest, mut offered) = (ORIGIN, SENT, 0u32);
    // Of each place in the ring: what was written there last, by a segment whose number it is.
    let mut ring: Vec<Option<(Seq, u32)>> = vec![None; RING as usize];
    let (mut ready, mut unread, mut promised) = (0u64, 0u32, ORIGIN.plus(RING));
    for (number, operation) in operations.into_iter().enumerate() {
        match operation {
            Operation::Offer(bytes) => {
                offered = offered.max(bytes);
                engine.offer(offered);
            }
            Operation::Read(bytes) => {
                unread -= unread.min(u32::from(bytes));
                engine.set_room(RING - unread);
            }
            Operation::Wait(time) => now += u64::from(time),
            Operation::Segment { from, length, acknowledged, window, clock: age, blocks, flags } => {
                let start = expected.plus(from as u32);
                let mut header = Header {
                    source: 2,
                    destination: 1,
                    sequence: start,
                    acknowledgement: oldest.plus(acknowledged as u32),
                    flags: flags | ACK,
                    window,
                    timestamps: age.map(|age| Timestamps { value: (clock + i64::from(age)) as u32, echo: 9 }),
                    blocks: Blocks::default(),
                };
                for (one, other) in blocks {
                    header.blocks.push(oldest.plus(one as u32), oldest.plus(other as u32));
                }
                let before = engine.give_back(now);
                match engine.segment(&header, u32::from(length), now) {
                    Verdict::Leave(leave) => {
                        // Nothing of it was taken: the kernel sees what it would have seen.
                        assert_eq!(engine.give_back(now), before);
                        assert!(flags != 0 || age.is_none() || leave == Leave::Gap, "{leave:?}");
                        return;
                    }
                    Verdict::Ignored => assert_eq!(engine.give_back(now).expected, before.expected),
                    Verdict::Taken(arrival) => {
                        clock = clock.max(clock + i64::from(age.unwrap_or(0).clamp(0, 1000)));
                        let wanted = arrival.wanted;
                        assert!(wanted.skip + wanted.length <= u32::from(length));
                        assert_eq!(
                            expected.plus(wanted.at),
                            start.plus(if wanted.length > 0 { wanted.skip } else { expected.plus(wanted.at).since(start) })
                        );
                        assert!(
                            u64::from(unread) + u64::from(wanted.at) + u64::from(wanted.length) <= u64::from(RING),
                            "beyond the ring: {wanted:?}"
                        );
                        for byte in 0..wanted.length {
                            let place = start.plus(wanted.skip + byte);
                            ring[(ready as usize + wanted.at as usize + byte as usize) % RING as usize] =
                                Some((place, number as u32));
                        }
                        for byte in 0..wanted.ready {
                            let (place, _) = ring[(ready as usize + byte as usize) % RING as usize].expect("a byte that came");
                            assert_eq!(place, expected.plus(byte), "delivered where it does not belong");
                        }
                        expected = expected.plus(wanted.ready);
                        ready += u64::from(wanted.ready);
                        unread += wanted.ready;
                        oldest = oldest.plus(arrival.acknowledged);
                        offered -= arrival.acknowledged;
                        engine.set_room(RING - unread);
                    }
                }
            }
        }
        let mut segments = 0;
        while let Some(outgoing) = engine.outgoing(now) {
            segments += 1;
            assert!(segments < 1000, "it never stops");
            assert!(outgoing.from + outgoing.length <= offered, "bytes that are not there");
            assert_eq!(outgoing.header.acknowledgement, expected);
            let told = expected.plus(u32::from(outgoing.header.window) << 2);
            assert!(told.since(expected) <= RING - unread, "promised more than there is room for");
            assert!(told.plus(3).after(promised) || told == promised || promised.since(told) < 4, "a promise that moved back");
            promised = promised.latest(told);
        }
        if engine.timer(now).is_err() {
            return;
        }
    }
}
