//! A peer that sends whatever it likes: no panic, no handler run without credit, no more than bounded work and memory.

use crate::network::*;
use proptest::prelude::*;
use shunt_am::{Config, Engine};

/// The body that proptest and the fuzzer share: `input` is cut into frames, of which some begin with a header that fits.
fn frames_of_a_hostile_peer(input: &[u8], reliable: bool) {
    let config =
        Config { window: 16, replies: 4, held: 8, ..if reliable { Config::reliable(1, 512) } else { Config::lossy(1, 512) } };
    // The engine checks no integrity words here: a hostile peer knows how to make them.
    let config = Config { checked: 1, ..config };
    let mut world = World::new(2, config, Faults::NONE, 5);
    world.connect(0, 1);
    world.run_until(world.now + SECOND);
    // What host 1 sends is known, so its token for host 0 is.
    let mut tap = vec![];
    world.at(1, |engine, now, _, _| {
        struct Tap<'t>(&'t mut Vec<u8>);
        impl shunt_am::Link for Tap<'_> {
            fn send(&mut self, _: u32, head: &[u8], body: &[u8]) -> bool {
                *self.0 = [head, body].concat();
                true
            }
        }
        engine.request(now, 0, 0, ECHO, &[1], &[], &mut Tap(&mut tap)).unwrap();
    });
    let mut handled = 0;
    let mut rest = input;
    while let Some((&length, behind)) = rest.split_first() {
        let (bytes, behind) = behind.split_at(behind.len().min(usize::from(length)));
        rest = behind;
        // Half of the frames get a header of the live connection, some numbers of which the input decides.
        let mut frame = bytes.to_vec();
        if length % 2 == 0 {
            let keep = if reliable { 16 } else { 40 };
            let mut whole = tap[..keep].to_vec();
            for (at, byte) in bytes.iter().take(3).enumerate() {
                let numbers = [2usize, 16, 36];
                let spot = numbers[at] % keep;
                whole[spot] = whole[spot].wrapping_add(byte % 8);
            }
            if !reliable && bytes.len() > 3 {
                whole[0] = 0x20 | [2, 2, 2, 3, 5][usize::from(bytes[3]) % 5];
            }
            whole.extend_from_slice(bytes.get(4..).unwrap_or_default());
            frame = whole;
        }
        let before = world.frames;
        world.at(0, |engine, now, wires, program| {
            engine.receive(now, 1, &frame, wires, program);
            engine.transmit(now, wires, program);
        });
        // Replies, an acknowledgement, an answer to a hello: never more frames than credit allows.
        assert!(world.frames - before <= u64::from(config.window) + 3);
        handled += 1;
    }
    let status = world.ask(0, |engine| engine.status(1)).unwrap();
    assert!(status.owed <= config.replies);
    assert!(status.held <= config.held);
    assert!(status.counters.handled <= handled * 64 + 64);
    // Time goes on without trouble.
    world.hosts[1].alive = false;
    world.run_until(world.now + 60 * SECOND);
    let _ = Engine::attach(&mut world.hosts[0].memory).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn random_frames(input in prop::collection::vec(any::<u8>(), 0..3000), reliable in any::<bool>()) {
        frames_of_a_hostile_peer(&input, reliable);
    }

    /// Frames whose messages look like messages.
    #[test]
    fn almost_frames(
        messages in prop::collection::vec((1u8..9, any::<u8>(), 0u8..12, 0u8..3, 0u8..40, any::<[u8; 4]>()), 1..60),
        reliable in any::<bool>(),
    ) {
        let mut input = vec![];
        for (task, handler, words, flags, length, head) in messages {
            let mut frame = head.to_vec();
            frame.extend([task, handler, words, flags, length, 0, 0, 0]);
            frame.extend((0..usize::from(words) * 8 + usize::from(length)).map(|at| if at % 8 == 0 { head[at % 4] } else { 0 }));
            frame.truncate(254);
            input.push(frame.len() as u8 & !1);
            input.extend(&frame[..frame.len() & !1]);
        }
        frames_of_a_hostile_peer(&input, reliable);
    }
}
