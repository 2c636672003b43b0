//! A peer that writes any word at any time garbles its own connection, and nothing else: lengths stay in bounds, calls
//! return, memory of other connections is inaccessible here and stays untouched.

use crate::common::{Connection, Random};
use shunt_ring::bell;
use shunt_ring::pipe::Space;
use shunt_segment::channel::{arm, word, Side};
use shunt_segment::sync::AtomicU64;
use shunt_segment::sync::Ordering::Relaxed;
use std::sync::atomic::AtomicBool;

const LARGEST: usize = 80_000;
const GUARD: usize = 64;

/// A word that breaks more than a random one would: near the truth, at a limit, or one field changed.
fn nasty(random: &mut Random, old: u64) -> u64 {
    match random.below(8) {
        0 => random.word(),
        1 => old.wrapping_add(random.below(200_000)).wrapping_sub(100_000),
        2 => old ^ 1 << random.below(64),
        3 => old ^ 7 << word::CLASS_SHIFT,
        4 => old ^ random.below(8) << word::SWITCH_SHIFT,
        5 => (old & !(63 << word::INLINE_SHIFT)) | random.below(64) << word::INLINE_SHIFT,
        6 => [0, u64::MAX, u32::MAX as u64, word::POSITION, 1 << 47][random.below(5) as usize],
        _ => old.rotate_left(32),
    }
}

/// The words that pipes read as control, on both sides: nothing in shared memory is ours alone.
fn control(side: &Side, which: usize) -> &AtomicU64 {
    let (transmit, wait) = (&side.transmit, &side.wait);
    let words =
        [&side.post.word, &side.post.ack, &transmit.switch, &transmit.acked, &transmit.word, &side.receive.position, &wait.held];
    words.get(which).copied().unwrap_or(&side.borders[which & 7])
}

/// Back to a state in which bytes flow: a garbled connection soon refuses everything, which tests little.
fn heal(connection: &Connection, random: &mut Random) {
    connection.start_at(random.below(2) * ((1 << 48) - random.below(100_000)));
    for side in &connection.page().sides {
        side.transmit.switch.store(0, Relaxed);
        side.receive.switch.store(0, Relaxed);
        side.transmit.class_limit.store(random.below(6) as u32, Relaxed);
    }
}

fn scribble(connection: &Connection, random: &mut Random) {
    let target = match random.below(4) {
        0 => {
            let words = connection.words();
            &words[random.below(words.len() as u64) as usize]
        }
        1 => {
            let side = &connection.page().sides[random.below(2) as usize];
            let narrow = [&side.transmit.class_limit, &side.transmit.small, &side.receive.switch, &side.wait.armed];
            narrow[random.below(4) as usize].store(nasty(random, 3) as u32, Relaxed);
            return;
        }
        _ => control(&connection.page().sides[random.below(2) as usize], random.below(11) as usize),
    };
    target.store(nasty(random, target.load(Relaxed)), Relaxed);
}

/// One call of any kind on either end; checks what holds whatever the peer does.
fn call(connection: &Connection, random: &mut Random, buffer: &mut [u8]) {
    let end = random.below(2) as usize;
    let (outgoing, incoming) = (connection.outgoing(end), connection.incoming(end));
    let length = random.length(LARGEST);
    buffer[length..length + GUARD].fill(0x5a);
    let target = buffer.as_mut_ptr();
    match random.below(14) {
        // SAFETY: `buffer` holds LARGEST + GUARD bytes; garbled order within the connection is expected.
        0..=3 => assert!(unsafe { outgoing.send(target, length) } <= length),
        // SAFETY: as above.
        4..=6 => assert!(unsafe { incoming.receive(target, length) }.unwrap_or(0) <= length),
        7 => {
            let skip = random.below(5000) as usize;
            // SAFETY: as above.
            assert!(unsafe { incoming.peek(skip, target, length) }.unwrap_or(0) <= length);
        }
        8 => {
            let (free, size) = outgoing.writable();
            assert!(free <= size);
            outgoing.can_grow();
            outgoing.unacknowledged();
            incoming.look();
            bell::arm(&outgoing.own.wait, arm::IN);
            bell::must_ring(&outgoing.peer.wait, arm::IN);
        }
        // SAFETY: as above.
        9 | 10 => assert!(unsafe { outgoing.hold(target, length) } <= length),
        11 => {
            let (hold, filled) = (random.below(2) == 0, random.below(2 * LARGEST as u64) as usize);
            let noise = |space: Space| {
                for (data, piece) in space {
                    // SAFETY: the ring's own bytes.
                    unsafe { data.write_bytes(0x33, piece) };
                }
                filled
            };
            // SAFETY: the pieces alone are written.
            let filled = unsafe { outgoing.fill(random.below(5000) as usize, length, hold, noise) };
            assert!(filled.unwrap_or(0) <= length);
        }
        12 => match random.below(4) {
            0 => outgoing.push(),
            1 => outgoing.leave_held(random.word()),
            2 => outgoing.window.hold(random.below(2) == 0),
            _ => {
                incoming.held_until();
                incoming.take_held();
            }
        },
        _ => outgoing.end([word::FIN, word::CLOSED, word::RST][random.below(3) as usize]),
    }
    assert!(buffer[length..length + GUARD].iter().all(|&b| b == 0x5a), "wrote behind {length} bytes");
}

#[test]
fn words_written_between_calls_break_nothing_else() {
    let rounds = if cfg!(debug_assertions) { 300 } else { 3000 };
    let mut buffer = vec![0u8; LARGEST + GUARD];
    for seed in 1..=rounds {
        let mut random = Random(seed);
        let connection = Connection::new([5, 5]);
        let scribbles_of_8 = 1 + random.below(8);
        for number in 0..1500 {
            if number % 50 == 0 {
                heal(&connection, &mut random);
            }
            if random.below(8) < scribbles_of_8 {
                scribble(&connection, &mut random);
            }
            call(&connection, &mut random, &mut buffer);
        }
    }
}

struct End<'a>(&'a AtomicBool);
impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn words_written_during_calls_break_nothing_else() {
    let calls = if cfg!(debug_assertions) { 500_000 } else { 4_000_000 };
    let connection = Connection::new([4, 5]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also when an assertion fails: the scope waits for the other thread.
        let _end = End(&done);
        scope.spawn(|| {
            let mut random = Random(77);
            while !done.load(Relaxed) {
                scribble(&connection, &mut random);
            }
        });
        let mut random = Random(78);
        let mut buffer = vec![0u8; LARGEST + GUARD];
        for number in 0..calls {
            if number % 50 == 0 {
                heal(&connection, &mut random);
            }
            call(&connection, &mut random, &mut buffer);
        }
    });
}
