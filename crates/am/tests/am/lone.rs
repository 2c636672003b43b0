//! The short way of a lone packet means what the general one does: the same frames of a stream leave the same memory, the same bytes and
//! the same frames in return, whichever way they take.

use shunt_am::{Body, Config, Data, Dispatch, Engine, Event, Link, Message, Replier};
use shunt_testkit::Random;

#[derive(Default)]
struct Wire {
    frames: Vec<Vec<u8>>,
    full: bool,
}

impl Link for Wire {
    fn send(&mut self, _peer: u32, head: &[u8], body: &[u8]) -> bool {
        if !self.full {
            self.frames.push([head, body].concat());
        }
        !self.full
    }
}

/// Notes everything.
#[derive(Default, PartialEq, Debug)]
struct Notes(Vec<String>);

impl Dispatch for Notes {
    fn request(&mut self, _: Message<'_>, replier: Replier<'_>) {
        replier.refuse();
    }
    fn reply(&mut self, _: Message<'_>) {}
    fn stream(&mut self, peer: u32, channel: u16, data: Data<'_>) {
        let mut bytes = vec![0; data.len()];
        assert!(data.copy_to(0, &mut bytes));
        self.0.push(format!("{peer} {channel} {bytes:?}"));
    }
    fn acknowledged(&mut self, peer: u32, channel: u16, upto: u64) {
        self.0.push(format!("{peer} {channel} has {upto}"));
    }
    fn event(&mut self, _: u32, event: Event) {
        self.0.push(format!("{event:?}"));
    }
}

/// The end of a frame that lies elsewhere, and has no bytes: such a frame is not looked at for the short way.
struct Nothing;

impl Body for Nothing {
    fn len(&self) -> usize {
        0
    }
    fn copy_to(&self, _: usize, into: &mut [u8]) -> bool {
        into.is_empty()
    }
    fn each(&self, _: &mut dyn FnMut(*const u8, usize) -> bool) {}
}

struct End {
    memory: Vec<u64>,
    notes: Notes,
    wire: Wire,
}

impl End {
    fn new(config: &Config, secret: u64) -> End {
        let mut memory = vec![0; config.words()];
        Engine::format(&mut memory, config, [secret, 2]).expect("a shape");
        End { memory, notes: Notes::default(), wire: Wire::default() }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Engine<'_>, &mut Wire, &mut Notes) -> T) -> T {
        act(&mut Engine::attach(&mut self.memory).expect("an engine"), &mut self.wire, &mut self.notes)
    }

    fn receive(&mut self, now: u64, frame: &[u8], short: bool) {
        let bulk = shunt_am::frame::is_bulk(frame, frame.len());
        self.with(|engine, wire, notes| match short || !bulk {
            true => engine.receive(now, 0, frame, wire, notes),
            false => engine.receive_split(now, 0, frame, &Nothing, wire, notes),
        });
    }
}

#[test]
fn both_ways_mean_the_same() {
    let config =
        Config { checked: 1, channels: 2, window: 16, replies: 2, held: 4, acknowledge_every: 3, ..Config::lossy(1, 1400) };
    let (mut brought, mut sent_back) = (0, 0);
    for seed in 0..200 {
        let mut random = Random::seeded(seed);
        let mut far = End::new(&config, 7);
        let mut near = [End::new(&config, 8), End::new(&config, 8)];
        far.with(|engine, wire, _| engine.connect(1, 0, wire)).expect("a peer");
        let (mut taken, mut now) = (0, 1_000);
        let mut late: Vec<Vec<u8>> = Vec::new();
        for _ in 0..300 {
            now += random.below(40) * 1_000;
            let mut frames = core::mem::take(&mut far.wire.frames);
            frames.append(&mut late);
            for mut frame in frames {
                // Now and then one is damaged, cut off, lost, late or doubled; not those that set up the connection.
                match if taken > 20 { random.below(60) } else { 60 } {
                    0 => continue,
                    1 => frame.truncate(random.below(frame.len() as u64 + 1) as usize),
                    2 if !frame.is_empty() => {
                        let at = random.below(frame.len().min(56) as u64) as usize;
                        frame[at] ^= 1 << random.below(8);
                    }
                    3 => {
                        late.push(frame);
                        continue;
                    }
                    4 => late.push(frame.clone()),
                    _ => {}
                }
                near[0].receive(now, &frame, true);
                near[1].receive(now, &frame, false);
                taken += 1;
            }
            if random.below(3) > 0 {
                near.iter_mut().for_each(|near| near.with(|engine, wire, notes| engine.transmit(now, wire, notes)));
            }
            assert!(near[0].wire.frames == near[1].wire.frames, "seed {seed}, {now}");
            near.iter_mut().for_each(|near| near.notes.0.sort()); // what was acknowledged is told before the bytes, or behind them
            assert_eq!(near[0].notes, near[1].notes, "seed {seed}, {now}");
            assert!(near[0].memory == near[1].memory, "seed {seed}, {now}: other memory");
            let [answers, _] = near.each_mut().map(|near| core::mem::take(&mut near.wire.frames));
            for frame in answers {
                if random.below(40) > 0 || taken <= 20 {
                    far.receive(now, &frame, random.below(2) == 0);
                }
            }
            let bytes = vec![random.below(256) as u8; 1 + random.below(300) as usize];
            let channel = 1 + random.below(2) as u16;
            far.wire.full = random.below(20) == 0;
            let _ = far.with(|engine, wire, _| engine.send(now, 0, channel, &bytes, wire));
            far.wire.full = false;
            if random.below(3) > 0 {
                let full = random.below(20) == 0;
                let sent = near.each_mut().map(|near| {
                    near.wire.full = full;
                    let sent = near.with(|engine, wire, _| engine.send(now, 0, channel, &bytes, wire));
                    near.wire.full = false;
                    sent
                });
                assert_eq!(sent[0], sent[1]);
                sent_back += usize::from(sent[0].is_ok());
            }
            for channel in 1..3 {
                let received = far.with(|engine, _, _| engine.positions(0, channel).1);
                let _ = far.with(|engine, _, _| engine.grant(0, channel, received + 600, 200));
                for near in &mut near {
                    let received = near.with(|engine, _, _| engine.positions(0, channel).1);
                    let _ = near.with(|engine, _, _| engine.grant(0, channel, received + 600, 200));
                }
            }
            if random.below(4) > 0 {
                far.with(|engine, wire, notes| engine.transmit(now, wire, notes));
            }
        }
        brought += near[0].notes.0.iter().filter(|note| note.contains('[')).count();
    }
    assert!(brought > 1_000 && sent_back > 1_000, "{brought} {sent_back}");
}
