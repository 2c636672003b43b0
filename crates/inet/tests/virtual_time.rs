//! Whole connections at virtual time: each byte arrives where it belongs, whatever the path does, and nothing stands still.

mod path;

use path::{Trouble, World, MICROSECOND, MILLISECOND, SEGMENT};
use proptest::prelude::*;
use shunt_inet::{header, Connection, Header, Leave, Recovery, Seq, Settings, Verdict};
use shunt_path::Law;

const MINUTE: u64 = 60_000 * MILLISECOND;

fn own(law: Law) -> Settings {
    Settings { recovery: Recovery::Own(law), ring: path::RING as u32, timeouts: 8, ..Settings::default() }
}

fn exchanges() -> Settings {
    Settings { recovery: Recovery::Exchanges(Law::Cubic), ring: path::RING as u32, ..Settings::default() }
}

fn give_back() -> Settings {
    Settings { ring: path::RING as u32, ..Settings::default() }
}

#[test]
#[cfg_attr(miri, ignore = "megabytes, of which the interpreter has no end")]
fn a_path_without_trouble_costs_a_segment_each_and_half_an_acknowledgement() {
    for settings in [give_back(), own(Law::Cubic), own(Law::NewReno)] {
        let trouble = Trouble { delay: 50 * MICROSECOND, ..Trouble::default() };
        // With Nagle's rule, as programs have it.
        let settings = Settings { nagle: true, ..settings };
        let mut world = World::new([settings; 2], [1_000_000, 0], trouble, 1);
        assert!(world.run(MINUTE), "{settings:?} at {}", world.now);
        let segments = 1_000_000 / u64::from(SEGMENT);
        assert_eq!(world.ends[0].segments, segments, "{settings:?}");
        assert!(world.ends[1].segments <= segments * 6 / 10, "{} acknowledgements", world.ends[1].segments);
    }
}

/// A message of whole packets and a part leaves at once, whatever Nagle's rule says: the part waits only for another part (Minshall's rule, Linux's).
#[test]
fn the_end_of_a_message_does_not_wait_for_its_beginning() {
    let settings = Settings { nagle: true, ..give_back() };
    let mut engine = Connection::<64>::new(&path::state(Seq(1000), Seq(5000)), (1, 2), settings, 0);
    let sent = |engine: &mut Connection<64>| -> Vec<(u32, bool)> {
        std::iter::from_fn(|| engine.outgoing(MICROSECOND)).map(|one| (one.length, one.header.flags & header::PSH != 0)).collect()
    };
    engine.offer(2 * SEGMENT + 300);
    assert_eq!(sent(&mut engine), [(SEGMENT, false), (SEGMENT, false), (300, true)]);
    // Another part waits for that one, and only for that one.
    engine.offer(2 * SEGMENT + 500);
    assert_eq!(sent(&mut engine), []);
    let acknowledgement = |place| Header { acknowledgement: Seq(place), ..acknowledging(&engine) };
    let (first, all) = (acknowledgement(1000 + SEGMENT), acknowledgement(1300 + 2 * SEGMENT));
    assert!(matches!(engine.segment(&first, 0, 2 * MICROSECOND), Verdict::Taken(_)));
    engine.offer(SEGMENT + 500);
    assert_eq!(sent(&mut engine), []);
    assert!(matches!(engine.segment(&all, 0, 3 * MICROSECOND), Verdict::Taken(_)));
    engine.offer(200);
    assert_eq!(sent(&mut engine), [(200, true)]);
}

/// What leaves at once ends with a mark, though more waits for the window.
#[test]
fn a_burst_ends_with_a_mark() {
    let mut engine = Connection::<64>::new(&path::state(Seq(1000), Seq(5000)), (1, 2), give_back(), 0);
    engine.offer(15 * SEGMENT);
    let sent: Vec<bool> =
        std::iter::from_fn(|| engine.outgoing(MICROSECOND)).map(|one| one.header.flags & header::PSH != 0).collect();
    assert_eq!(sent, [[false; 9].as_slice(), &[true]].concat());
}

/// One acknowledgement that tells of three packets behind a gap is as good as three that tell of one each.
#[test]
fn one_acknowledgement_can_tell_of_a_loss() {
    let mut engine = Connection::<64>::new(&path::state(Seq(1000), Seq(5000)), (1, 2), give_back(), 0);
    engine.offer(5 * SEGMENT);
    while engine.outgoing(MICROSECOND).is_some() {}
    for (until, again) in [(3, None), (4, Some(0))] {
        let mut blocks = header::Blocks::default();
        blocks.push(Seq(1000 + SEGMENT), Seq(1000 + until * SEGMENT));
        let header = Header { acknowledgement: Seq(1000), blocks, ..acknowledging(&engine) };
        assert!(matches!(engine.segment(&header, 0, 2 * MICROSECOND), Verdict::Taken(_)));
        assert_eq!(engine.outgoing(2 * MICROSECOND).map(|one| one.from), again);
    }
}

/// Of nine packets in a row, and of ten.
#[test]
fn a_gap_in_an_exchange_is_kept_and_one_in_a_stream_is_the_kernel_s() {
    for (before, expected) in [(9, None), (10, Some(Leave::Gap))] {
        let mut engine = Connection::<64>::new(&path::state(Seq(1000), Seq(5000)), (80, 4000), exchanges(), 0);
        engine.set_room(path::RING as u32);
        let arrives = |engine: &mut Connection<64>, number: u32| {
            let header = Header { sequence: Seq(5000 + number * SEGMENT), ..acknowledging(engine) };
            engine.segment(&header, SEGMENT, 1)
        };
        assert!((0..before).all(|number| matches!(arrives(&mut engine, number), Verdict::Taken(_))));
        let verdict = arrives(&mut engine, before + 1);
        match expected {
            Some(reason) => assert_eq!(verdict, Verdict::Leave(reason)),
            None => {
                let told = engine.outgoing(2).expect("a gap is told at once").header.blocks;
                assert_eq!(told.as_slice(), [(Seq(5000 + (before + 1) * SEGMENT), Seq(5000 + (before + 2) * SEGMENT))]);
                let Verdict::Taken(filled) = arrives(&mut engine, before) else { panic!("what was missing is taken") };
                assert_eq!(filled.wanted.ready, 2 * SEGMENT);
            }
        }
    }
}

/// What the other end says when it has nothing to say.
fn acknowledging(engine: &Connection<64>) -> Header {
    let state = engine.give_back(MICROSECOND);
    Header {
        source: 2,
        destination: 1,
        sequence: state.expected,
        acknowledgement: state.unacknowledged,
        flags: header::ACK,
        window: (path::RING >> 3) as u16,
        timestamps: Some(header::Timestamps { value: 1, echo: 77 }),
        blocks: header::Blocks::default(),
    }
}

/// What is lost is sent again, and little else: no more than twice what was lost, and a packet in two hundred.
#[test]
#[cfg_attr(miri, ignore = "megabytes, of which the interpreter has no end")]
fn losses_are_found_and_mended() {
    for law in [Law::Cubic, Law::NewReno] {
        for (lost, seed) in [(10, 1), (100, 2), (300, 3), (500, 4)] {
            let trouble = Trouble { lost, delay: 500 * MICROSECOND, spacing: 10 * MICROSECOND, ..Trouble::default() };
            let mut world = World::new([own(law); 2], [3_000_000, 0], trouble, seed);
            assert!(world.run(MINUTE), "{law:?}, {lost}: at {} with {:?}", world.now, world.ends[0].left);
            let again = world.ends[0].segments - 3_000;
            assert!(again <= 2 * world.dropped + 15, "{law:?}: {} lost of {lost}, {again} sent again", world.dropped);
        }
    }
}

/// RFC 8985's point: a lost repetition, and a lost tail, are found without a time-out. With 1 % lost and round trips of 1 ms, 1,000 messages that wait
/// for each other need hardly longer than their round trips.
#[test]
fn a_lost_tail_is_found_by_a_probe() {
    let trouble = Trouble { lost: 100, delay: 500 * MICROSECOND, ..Trouble::default() };
    let mut settings = own(Law::Cubic);
    settings.least_timeout = 20 * MILLISECOND;
    let mut world = World::new([settings; 2], [0, 0], trouble, 9);
    for _ in 0..if cfg!(miri) { 50 } else { 1_000 } {
        for end in 0..2 {
            world.ends[end].to_send += 100;
            assert!(world.run(MINUTE), "at {}, {:?} {:?}", world.now, world.ends[0].left, world.ends[1].left);
        }
    }
    assert!(world.now < 3_000 * MILLISECOND, "{} ms", world.now / MILLISECOND);
}

#[test]
#[cfg_attr(miri, ignore = "megabytes, of which the interpreter has no end")]
fn packets_that_overtake_each_other_are_not_taken_for_lost_for_long() {
    let trouble = Trouble { overtaken: 500, delay: 2 * MILLISECOND, spacing: 20 * MICROSECOND, ..Trouble::default() };
    let mut world = World::new([own(Law::Cubic); 2], [5_000_000, 0], trouble, 5);
    assert!(world.run(MINUTE));
    let again = world.ends[0].segments - 5_000;
    assert!(again < 120, "{again} of 5,000 sent again, of which none was lost");
}

#[test]
#[cfg_attr(miri, ignore = "megabytes, of which the interpreter has no end")]
fn without_selective_acknowledgements_and_time_stamps() {
    for (selective, stamps) in [(false, true), (true, false), (false, false)] {
        let trouble = Trouble { lost: 100, delay: 500 * MICROSECOND, spacing: 10 * MICROSECOND, ..Trouble::default() };
        let mut world = World::with([own(Law::NewReno); 2], [2_000_000, 500_000], trouble, 6, |state| {
            state.selective = selective;
            state.timestamps = state.timestamps.filter(|_| stamps);
        });
        assert!(
            world.run(2 * MINUTE),
            "{selective} {stamps}: at {} {:?} {:?}",
            world.now,
            world.ends[0].left,
            world.ends[1].left
        );
    }
}

/// A bottleneck with a short queue: the flow fills it, and does not lose much.
#[test]
#[cfg_attr(miri, ignore = "megabytes, of which the interpreter has no end")]
fn a_bottleneck_is_filled() {
    for law in [Law::Cubic, Law::NewReno] {
        let trouble = Trouble { delay: 500 * MICROSECOND, spacing: 50 * MICROSECOND, queue: 30, ..Trouble::default() };
        let mut world = World::new([own(law); 2], [20_000_000, 0], trouble, 7);
        assert!(world.run(MINUTE));
        let least = 20_000 * 50 * MICROSECOND;
        assert!(world.now < least * 12 / 10, "{law:?}: {} ms of {}", world.now / MILLISECOND, least / MILLISECOND);
        assert!(world.dropped < 200, "{law:?}: {} dropped", world.dropped);
    }
}

/// A reader that takes little closes the window; probes keep the connection going, even where an opened window's news is lost.
#[test]
#[cfg_attr(miri, ignore = "minutes in the interpreter")]
fn a_slow_reader_and_lost_news_of_its_window() {
    for settings in [give_back(), own(Law::Cubic)] {
        let trouble = Trouble { delay: 50 * MICROSECOND, ..Trouble::default() };
        let mut world = World::new([settings; 2], [200_000, 0], trouble, 8);
        world.ends[1].appetite = 0;
        assert!(!world.run(5_000 * MILLISECOND));
        assert_eq!((world.ends[0].left, world.ends[1].ready), (None, path::RING as u64));
        world.trouble.lost = 10_000;
        world.ends[1].appetite = u64::MAX;
        world.step();
        world.step();
        world.trouble.lost = 0;
        assert!(world.run(10 * MINUTE), "at {}", world.now);
    }
}

/// The engine that keeps in order only: a single loss is mended by its one repetition, and two of a packet go to the kernel.
#[test]
fn one_repetition_and_then_the_kernel() {
    let trouble = Trouble { delay: 50 * MICROSECOND, ..Trouble::default() };
    let kernel = own(Law::Cubic);
    let mut world = World::with([give_back(), kernel], [100, 0], trouble, 10, |state| {
        state.round_trip = (100 * MICROSECOND, 10 * MICROSECOND)
    });
    world.trouble.lost = 10_000;
    world.step();
    world.trouble.lost = 0;
    let before = world.now;
    assert!(world.run(MINUTE));
    assert!(world.now - before < 20 * MILLISECOND, "{}", world.now - before);
    world.ends[0].to_send += 100;
    world.trouble.lost = 10_000;
    assert!(!world.run(MINUTE));
    assert_eq!(world.ends[0].left, Some(Leave::Loss));
    world.trouble.lost = 0;
    world.hand_over(0, kernel);
    assert!(world.run(MINUTE));
}

/// Streams are shorter by so much than a case says.
const SHORTER: u64 = if cfg!(miri) { 64 } else { 1 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 64 }))]

    /// Taken and given back at random points, on a path with every trouble: what arrives is what was sent.
    #[test]
    fn taken_and_given_back_at_random(
        seed: u64, lost in 0u64..300, doubled in 0u64..300, overtaken in 0u64..300, delay in 10u64..3000, every in 2u64..60, sizes: [u16; 2], appetite in 500u64..100_000
    ) {
        let trouble = Trouble { lost, doubled, overtaken, delay: delay * MICROSECOND, spacing: MICROSECOND, queue: 0 };
        let (kernel, taken) = (own(Law::Cubic), if seed & 1 == 0 { give_back() } else { exchanges() });
        let mut world = World::new([taken, kernel], sizes.map(|size| u64::from(size) * 4 / SHORTER), trouble, seed);
        world.ends[0].appetite = appetite;
        world.ends[1].appetite = appetite;
        // Not more often than bytes can go there and back: each time all that is under way is sent again.
        let mut next = 0;
        while !world.done() && world.now < 20 * MINUTE {
            let alive = world.step();
            let left = world.ends[0].left.is_some();
            if left || world.now >= next {
                next = world.now + every * delay * MICROSECOND;
                let settings = if left || world.random.chance(5_000) { kernel } else { taken };
                world.hand_over(0, settings);
            }
            let other = world.ends[1].left.is_some();
            if other {
                world.hand_over(1, kernel);
            }
            prop_assert!(alive || left || other || world.done(), "stands still at {}", world.now);
        }
        prop_assert!(world.done(), "not done at {}", world.now);
    }
}
