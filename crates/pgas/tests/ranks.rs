//! Jobs of several processes, through the Rust types: this program starts itself.

use shunt_pgas::launch::{run, Job, Outcome};
use shunt_pgas::{Ended, Error, World};
use std::ffi::OsString;

const BODY: &str = "SHUNT_PGAS_TEST_BODY";

/// Runs a test of this file again in each rank; there, `body` is what it does.
fn ranks(count: usize, test: &str, body: fn(&'static World)) -> Option<Outcome> {
    if std::env::var(BODY).is_ok_and(|name| name == test) {
        body(World::join().unwrap());
        // Past the harness, which has threads of its own.
        World::current().finalize().unwrap();
        std::process::exit(0);
    }
    let words = ["env".into(), format!("{BODY}={test}"), std::env::current_exe().unwrap().display().to_string()];
    let program: Vec<OsString> =
        words.into_iter().chain(["--exact".into(), test.into(), "--nocapture".into()]).map(OsString::from).collect();
    // Lines of the harness in each rank are nobody's.
    let quiet = ["sh".into(), "-c".into(), "exec \"$@\" >/dev/null".into(), "sh".into()];
    let program = quiet.into_iter().chain(program).collect();
    Some(run(&Job { ranks: count, heap: 8 << 20, program, label: false, bind: false }).unwrap())
}

fn is_fine(outcome: Option<Outcome>) {
    if let Some(outcome) = outcome {
        assert_eq!(outcome, Outcome { status: 0, cause: None });
    }
}

fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

/// A model beside it: each rank writes places of its own everywhere, all ranks know what all write.
#[test]
fn puts_and_gets_agree_with_a_model() {
    fn body(world: &'static World) {
        const LENGTH: usize = 5000;
        let array = world.alloc::<u32>(LENGTH).unwrap();
        let mut state = 4711;
        let mut model = vec![0u32; LENGTH];
        for turn in 0..60 {
            // The same numbers on all ranks; rank r does the steps that are its own, into everybody's memory.
            let (from, length) = (random(&mut state) % LENGTH, random(&mut state) % 900 + 1);
            let length = length.min(LENGTH - from);
            let owner = random(&mut state) % world.ranks();
            let values: Vec<u32> = (0..length).map(|_| random(&mut state) as u32).collect();
            model[from..from + length].copy_from_slice(&values);
            if owner == world.me() {
                for rank in 0..world.ranks() {
                    if turn % 2 == 0 {
                        array.at(rank, from).put_all(world, &values).unwrap();
                    } else {
                        values.iter().enumerate().for_each(|(at, value)| array.at(rank, from + at).put(world, *value).unwrap());
                    }
                }
            }
            world.barrier().unwrap();
            let other = (world.me() + turn) % world.ranks();
            let mut found = vec![0; LENGTH];
            array.at(other, 0).get_all(world, &mut found).unwrap();
            assert!(found == model, "turn {turn}");
            assert_eq!(array.at(other, from).get(world), Ok(model[from]));
            world.barrier().unwrap();
        }
        // What does not exist is refused, and nothing is written.
        assert!(matches!(array.at(world.ranks(), 0).put(world, 1), Err(Error::Rank { .. })));
        assert!(array.at(0, LENGTH).put(world, 1).is_err());
        assert!(array.at(0, LENGTH - 1).put_all(world, &[1, 2]).is_err());
        assert!(array.at(0, usize::MAX / 2).get(world).is_err());
    }
    for count in [1, 2, 5] {
        is_fine(ranks(count, "puts_and_gets_agree_with_a_model", body));
    }
}

#[test]
fn spread_arrays_counters_and_stores() {
    fn body(world: &'static World) {
        let ranks = world.ranks();
        let spread = world.spread::<u64>(1000, 7).unwrap();
        for index in (0..1000).filter(|index| index % ranks == world.me()) {
            spread.at(index).put(world, index as u64 * 3).unwrap();
        }
        world.all_store_sync().unwrap();
        for index in 0..1000 {
            assert_eq!(spread.at(index).get(world), Ok(index as u64 * 3));
            assert_eq!(spread.owner(index), index / 7 % ranks);
        }
        assert!(spread.at(1000).get(world).is_err());
        assert!(spread.at(6).put_all(world, &[1, 2]).is_err(), "the next block is another rank's");
        world.barrier().unwrap();

        let counter = world.alloc::<u64>(1).unwrap();
        for _ in 0..1000 {
            counter.at(0, 0).fetch_add(world, 1).unwrap();
        }
        world.barrier().unwrap();
        assert_eq!(counter.at(0, 0).get(world), Ok(1000 * ranks as u64));
        assert_eq!(world.reduce(world.me() as u64, |a, b| a + b), Ok((ranks * (ranks - 1) / 2) as u64));

        let inbox = world.alloc::<u32>(ranks).unwrap();
        for rank in 0..ranks {
            world.store(inbox.at(rank, world.me()), &[world.me() as u32 + 1]).unwrap();
        }
        world.store_sync(4 * ranks as u64).unwrap();
        (0..ranks).for_each(|from| assert_eq!(inbox.at(world.me(), from).get(world), Ok(from as u32 + 1)));
        world.free(inbox).unwrap();
    }
    for count in [1, 3, 4] {
        is_fine(ranks(count, "spread_arrays_counters_and_stores", body));
    }
}

/// Those who wait are told the rank that died, whatever they wait for, and have time to say so.
#[test]
fn a_death_is_told_to_those_who_wait() {
    fn body(world: &'static World) {
        let told = world.alloc::<u64>(1).unwrap();
        world.barrier().unwrap();
        let result = match world.me() {
            // SAFETY: ends this process, without a word.
            2 => unsafe { libc_kill() },
            0 => told.at(0, 0).wait_until(world, |value| value == 1).map(drop),
            _ => world.barrier(),
        };
        assert_eq!(result, Err(Error::Ended(Ended::Signal { rank: 2, signal: 9 })));
        std::process::exit(0);
    }
    unsafe fn libc_kill() -> ! {
        // SAFETY: signals this process alone.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        unreachable!()
    }
    let Some(outcome) = ranks(4, "a_death_is_told_to_those_who_wait", body) else { return };
    assert_eq!(outcome.status, 137);
    assert!(matches!(outcome.cause, Some((Ended::Signal { rank: 2, signal: 9 }, _))), "{outcome:?}");
}
