//! A stream shares a link with TCP, at virtual time: two flows in one queue that drops what does not fit.

use crate::network::*;
use shunt_am::Config;

/// Time-slices of a sender that does not have its processor all the time.
#[derive(Clone, Copy)]
struct Slices {
    on: u64,
    off: u64,
}

/// What a stream beside a flow of Reno's got, in percent of what both brought; and what both brought, in percent of the link's
/// rate.
///
/// The link carries so many megabits each second, its queue holds so many packets; `delay` is one way's.
fn share([megabits, queue]: [u64; 2], delay: u64, seconds: u64, seed: u64, slices: Option<Slices>) -> [u64; 2] {
    let faults = Faults { byte_time: 8_000 / megabits, queue: queue as usize, delay, ..Faults::NONE };
    let config = Config { checked: 1, window: 1024, held: 1024, ..Config::lossy(2, 1456) };
    let mut world = World::new(2, config, faults, seed);
    world.connect(0, 1);
    // Who begins, and how far he is then, is the seed's.
    let first = world.now + world.dice.below(200 * MILLISECOND);
    let second = first + world.dice.below(200 * MILLISECOND);
    let (ours, theirs) = if seed & 1 == 0 { (first, second) } else { (second, first) };
    let bytes = vec![7u8; 1400];
    let (settled, end) = (second + seconds * SECOND / 4, second + seconds * SECOND);
    let mut before = None;
    let mut sleeps = None;
    while world.now < end {
        if world.now >= theirs && world.beside.is_none() {
            world.begin_beside(1514);
        }
        if let Some(slices) = slices {
            let off = world.now % (slices.on + slices.off) >= slices.on;
            match (off, sleeps) {
                (true, None) => world.hosts[0].stalled = true,
                (false, Some(())) => world.resume(0),
                _ => {}
            }
            sleeps = off.then_some(());
        }
        if world.now >= ours {
            let received = received(&mut world);
            world.at(1, |engine, _, _, _| engine.grant(0, 1, received + (4 << 20), 1)).unwrap();
            if sleeps.is_none() {
                world.at(0, |engine, now, wires, _| while engine.send(now, 1, 1, &bytes, wires).is_ok_and(|sent| sent > 0) {});
            }
        }
        if before.is_none() && world.now >= settled {
            before = Some([received(&mut world), world.beside.as_ref().unwrap().delivered]);
        }
        world.step(world.now + MILLISECOND / 4);
    }
    let [ours, theirs] = before.unwrap();
    let theirs = (world.beside.as_ref().unwrap().delivered - theirs) * 1448;
    let ours = received(&mut world) - ours;
    [ours * 100 / (ours + theirs), (ours + theirs) * 8 * SECOND / 10_000 / megabits / (end - settled)]
}

fn received(world: &mut World) -> u64 {
    world.ask(1, |engine| engine.positions(0, 1).1)
}

#[test]
fn beside_one_flow_of_reno_it_gets_about_half() {
    for link in [[100, 43], [100, 173], [400, 173]] {
        for seed in 1..=2 {
            let [percent, used] = share(link, 20 * MICROSECOND, 6, seed, None);
            assert!((35..=65).contains(&percent) && used > 85, "link {link:?}, seed {seed}: {percent} % of {used} %");
        }
    }
}

/// Deadlines that are met late cost a share, because nobody else's are: with a quarter of the processor it is 12 to 38 %, by
/// figures of this test.
#[test]
fn with_half_of_a_processor_it_keeps_a_quarter_at_least() {
    let slices = Slices { on: MILLISECOND, off: MILLISECOND };
    for link in [[100, 43], [100, 173], [400, 173]] {
        let [percent, used] = share(link, 20 * MICROSECOND, 6, 1, Some(slices));
        assert!((25..=70).contains(&percent) && used > 85, "link {link:?}: {percent} % of {used} %");
    }
}
