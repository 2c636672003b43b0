//! The straight way of small messages means what the general one does: the same frames leave the same memory, the same calls of
//! handlers and the same frames in return, whichever way they take.

use shunt_am::{Config, Dispatch, Engine, Event, Link, Message, Replier};
use shunt_testkit::Random;

#[derive(Default)]
struct Wire(Vec<Vec<u8>>);

impl Link for Wire {
    fn send(&mut self, _peer: u32, head: &[u8], body: &[u8]) -> bool {
        self.0.push([head, body].concat());
        true
    }
}

/// Notes everything; answers handler 1, refuses handler 2.
#[derive(Default, PartialEq, Debug)]
struct Notes(Vec<String>);

impl Dispatch for Notes {
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        self.0.push(format!("request {} {:?} {:?}", message.handler, message.words, message.data));
        match message.handler {
            1 => replier.reply(3, message.words, message.data).expect("as long as what came"),
            2 => replier.refuse(),
            _ => {}
        }
    }
    fn reply(&mut self, message: Message<'_>) {
        self.0.push(format!("reply {} {:?} {:?}", message.handler, message.words, message.data));
    }
    fn returned(&mut self, message: Message<'_>) {
        self.0.push(format!("returned {} {:?}", message.handler, message.words));
    }
    fn event(&mut self, _: u32, event: Event) {
        self.0.push(format!("{event:?}"));
    }
}

/// One engine's memory, what its program heard, and what it sent.
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

    /// A frame whose first byte lies on a word, or one behind it: words cannot be seen in place there, so it takes the general
    /// way.
    fn receive(&mut self, now: u64, frame: &[u8], straight: bool) {
        let mut space = vec![0u64; frame.len() / 8 + 2];
        let shift = usize::from(!straight);
        let bytes = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut space)[shift..][..frame.len()];
        bytes.copy_from_slice(frame);
        let bytes: &[u8] = bytes;
        self.with(|engine, wire, notes| engine.receive(now, 0, bytes, wire, notes));
    }
}

#[test]
fn both_ways_mean_the_same() {
    let config = Config { replies: 8, ..Config::reliable(1, 4096) };
    for seed in 0..100 {
        let mut random = Random::seeded(seed);
        let mut far = End::new(&config, 7);
        let mut near = [End::new(&config, 8), End::new(&config, 8)];
        far.with(|engine, wire, _| engine.connect(1, 0, wire)).expect("a peer");
        let mut taken = 0;
        for now in 2..300 {
            for frame in core::mem::take(&mut far.wire.0) {
                // Now and then one is damaged, cut off, or lost; not those that set up the connection, which nobody repeats here.
                let mut frame = frame;
                match if taken > 20 { random.below(40) } else { 40 } {
                    0 => frame.clear(),
                    1 => frame.truncate(random.below(frame.len() as u64 + 1) as usize),
                    2 if !frame.is_empty() => {
                        let at = random.below(frame.len().min(32) as u64) as usize;
                        frame[at] ^= 1 << random.below(8);
                    }
                    _ => {}
                }
                near[0].receive(now, &frame, true);
                near[1].receive(now, &frame, false);
                taken += 1;
            }
            for near in &mut near {
                near.with(|engine, wire, notes| engine.transmit(now, wire, notes));
            }
            assert_eq!(near[0].wire.0, near[1].wire.0, "seed {seed}, {now}");
            assert_eq!(near[0].notes, near[1].notes, "seed {seed}, {now}");
            assert!(near[0].memory == near[1].memory, "seed {seed}, {now}: other memory");
            let [answers, _] = near.each_mut().map(|near| core::mem::take(&mut near.wire.0));
            for frame in answers {
                far.receive(now, &frame, random.below(2) == 0);
            }
            // Requests of any kind, straight ones mostly; sometimes the other way round.
            let words: Vec<u64> = (0..random.below(7)).map(|_| random.word()).collect();
            let data = vec![9; if random.below(4) == 0 { random.below(100) as usize } else { 0 }];
            let handler = random.below(4) as u8;
            let _ = far.with(|engine, wire, _| engine.request(now, 0, 0, handler, &words, &data, wire));
            if random.below(5) == 0 {
                let sent =
                    near.each_mut().map(|near| near.with(|engine, wire, _| engine.request(now, 0, 0, 1, &words, &[], wire)));
                assert_eq!(sent[0], sent[1]);
            }
            far.with(|engine, wire, notes| engine.transmit(now, wire, notes));
        }
        assert!(near[0].notes.0.iter().any(|note| note.starts_with("request")), "seed {seed}: nothing was asked");
    }
}
