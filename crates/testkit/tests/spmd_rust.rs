//! Programs of the Rust types, on one host and on two: this program starts itself by `shunt spmd`, and each test's body is what the ranks do.

use shunt_pgas::{Error, Signal, Symmetric, Team, World};
use shunt_testkit::hosts;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

const BODY: &str = "SHUNT_TEST_BODY";

/// Runs a test of this file on 1 to 8 ranks of one host, and of two; there, `body` is what it does.
fn everywhere(test: &str, body: fn(&World)) {
    if std::env::var(BODY).is_ok_and(|name| name == test) {
        body(World::join().unwrap());
        World::current().finalize().unwrap();
        // Past the harness, which has threads of its own.
        std::process::exit(0);
    }
    let shunt = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/shunt");
    assert!(shunt.exists(), "{} is missing; run: make build", shunt.display());
    let own = std::env::current_exe().unwrap();
    let start = |job: &[&str]| {
        let mut command = Command::new(shunt.canonicalize().unwrap());
        command.arg("spmd").args(job).arg("--").arg(&own).args(["--exact", test, "--nocapture"]);
        let output = command.env(BODY, test).env("SHMEM_SYMMETRIC_SIZE", "16M").output().unwrap();
        assert!(output.status.success(), "{job:?}: {output:?}");
    };
    for ranks in ["1", "2", "3", "4", "8"] {
        start(&["-n", ranks]);
    }
    let pair = match hosts::pair(Default::default()) {
        Ok(pair) => pair,
        Err(why) => return eprintln!("SKIPPED: {why}"),
    };
    let files = pair.each_ref().map(|host| host.enter(|| File::open("/proc/thread-self/ns/net").unwrap()));
    let name = |at: usize| format!("/proc/{}/fd/{}", std::process::id(), files[at].as_raw_fd());
    for shares in [[1, 1], [2, 3]] {
        let list = format!("{}:{},{}:{}", name(0), shares[0], name(1), shares[1]);
        start(&["--rsh", "nsenter --net={host}", "--hosts", &list]);
    }
}

/// A value that tells its rank and number.
fn mixed(rank: usize, number: usize) -> u64 {
    (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number as u64).wrapping_mul(0xd134_2543_de82_ef95)
}

/// Gets of all ranks at once, short and long, whose buffers are there at the scope's end or when asked for; and puts that `sync` completes.
#[test]
fn scopes_complete_what_they_begin() {
    fn body(world: &World) {
        let (ranks, me) = (world.ranks(), world.me());
        const LONG: usize = 20_000;
        let array = world.alloc::<u64>(LONG).unwrap();
        let own: Vec<u64> = (0..LONG).map(|number| mixed(me, number)).collect();
        array.at(me, 0).put_all(world, &own).unwrap();
        world.barrier().unwrap();

        let mut words = vec![0; ranks];
        let mut long = vec![vec![0; LONG]; ranks];
        world
            .scope(|scope| {
                for (rank, word) in words.iter_mut().enumerate() {
                    scope.get(array.at(rank, 7), word)?;
                }
                let mut last = None;
                for (rank, buffer) in long.iter_mut().enumerate() {
                    last = Some(scope.get_all(array.at(rank, 0), buffer)?);
                }
                let last = last.unwrap().wait()?;
                assert!((0..LONG).all(|number| last[number] == mixed(ranks - 1, number)));
                Ok(())
            })
            .unwrap();
        for rank in 0..ranks {
            assert_eq!(words[rank], mixed(rank, 7));
            assert!((0..LONG).all(|number| long[rank][number] == mixed(rank, number)));
        }
        world.barrier().unwrap();

        // Each writes its place everywhere, and sees it there at once after `sync`.
        world
            .scope(|scope| {
                for rank in 0..ranks {
                    scope.put(array.at(rank, me), 1000 + me as u64)?;
                    scope.put_all(array.at(rank, 100 + 10 * me), &[me as u64; 10])?;
                }
                scope.sync()?;
                for rank in 0..ranks {
                    assert_eq!(array.at(rank, me).get(world), Ok(1000 + me as u64));
                    assert_eq!(array.at(rank, 109 + 10 * me).get(world), Ok(me as u64));
                }
                Ok(())
            })
            .unwrap();
        // What does not exist is refused, in a scope, too, and buffers are as they were.
        let mut word = 5;
        let refused = world.scope(|scope| scope.get(array.at(0, LONG), &mut word).map(drop));
        assert!(matches!(refused, Err(Error::Elements { rank: 0, count: 1, room: 0, .. })), "{refused:?}");
        assert!(matches!(world.scope(|scope| scope.put(array.at(ranks, 0), 1)), Err(Error::Rank { .. })));
        assert_eq!(word, 5);
    }
    everywhere("scopes_complete_what_they_begin", body);
}

/// Columns of a matrix go to rows of the next rank's, and come back.
#[test]
fn strided_elements_go_where_they_should() {
    fn body(world: &World) {
        const SIDE: usize = 60;
        let (ranks, me) = (world.ranks(), world.me());
        let next = (me + 1) % ranks;
        let matrix = world.alloc::<u32>(SIDE * SIDE).unwrap();
        let own: Vec<u32> = (0..SIDE * SIDE).map(|number| (me * 100_000 + number) as u32).collect();
        for column in 0..SIDE {
            // Every row of `own` becomes a column there.
            matrix.at(next, column).put_strided(world, SIDE, &own[column * SIDE..][..SIDE], 1).unwrap();
        }
        world.barrier().unwrap();
        let before = (me + ranks - 1) % ranks;
        let mut found = vec![0; SIDE * SIDE];
        matrix.at(me, 0).get_all(world, &mut found).unwrap();
        for (row, column) in (0..SIDE).flat_map(|row| (0..SIDE).map(move |column| (row, column))) {
            assert_eq!(found[row * SIDE + column] as usize, before * 100_000 + column * SIDE + row);
        }
        let mut sparse = [7; 3 * SIDE];
        matrix.at(next, 5).get_strided(world, SIDE, &mut sparse, 3).unwrap();
        for (at, value) in sparse.iter().enumerate() {
            let right = if at % 3 == 0 { me * 100_000 + 5 * SIDE + at / 3 } else { 7 };
            assert_eq!(*value as usize, right, "{at}");
        }
        // The last element must be there, and steps are no zeroes.
        assert!(matrix.at(next, 1).put_strided(world, SIDE * SIDE, &[1, 2], 1).is_err());
        assert!(matrix.at(next, 0).get_strided(world, 0, &mut [0; 2], 1).is_err());
        assert!(matrix.at(next, 0).put_strided(world, 1, &[0; 2], 0).is_err());
        world.barrier().unwrap();
        assert_eq!(matrix.at(me, SIDE * SIDE - 1).get(world), Ok(found[SIDE * SIDE - 1]));
    }
    everywhere("strided_elements_go_where_they_should", body);
}

/// A signal is never seen before the values, whatever their length.
#[test]
fn signals_come_after_their_values() {
    fn body(world: &World) {
        const MOST: usize = 6000;
        let (ranks, me) = (world.ranks(), world.me());
        let values = world.alloc::<u64>(MOST).unwrap();
        let words = world.alloc::<u64>(2).unwrap();
        let next = (me + 1) % ranks;
        for turn in 0..200 {
            let length = [1, 3, 100, MOST][turn % 4];
            values.at(next, 0).put_signal(world, &vec![turn as u64; length], words.at(next, 0), Signal::Add(1)).unwrap();
            words.at(me, 0).wait_until(world, |count| count > turn as u64).unwrap();
            let mut found = vec![0; length];
            values.at(me, 0).get_all(world, &mut found).unwrap();
            assert!(found.iter().all(|value| *value == turn as u64), "turn {turn}");
            world.barrier().unwrap();
        }
        values.at(next, 0).put_signal(world, &[], words.at(next, 1), Signal::Set(9)).unwrap();
        assert_eq!(words.at(me, 1).wait_until(world, |value| value != 0), Ok(9));
        assert!(values.at(next, MOST).put_signal(world, &[1], words.at(next, 1), Signal::Set(1)).is_err());
        assert!(values.at(next, 0).put_signal(world, &[1], words.at(next, 2), Signal::Set(1)).is_err());
        assert!(values.at(next, 0).put_signal(world, &[1], words.at(ranks, 1), Signal::Set(1)).is_err());
        if ranks > 1 {
            assert_eq!(words.at(next, 0).wait_until(world, |_| true), Err(Error::Other { rank: next, me }));
        }
    }
    everywhere("signals_come_after_their_values", body);
}

/// Every operation, by all ranks on one word, against what must come of it in whatever order.
#[test]
fn atomic_operations_are_atomic() {
    fn body(world: &World) {
        const TURNS: u64 = 300;
        let (ranks, me) = (world.ranks() as u64, world.me() as u64);
        let words = world.alloc::<u64>(8).unwrap();
        let small = world.alloc::<i32>(1).unwrap();
        let real = world.alloc::<f64>(2).unwrap();
        let root = world.ranks() - 1;
        let at = |number| words.at(root, number);
        // Each value that was there before is handed to one rank alone, so that all of them sum up.
        let mut before = 0;
        for _ in 0..TURNS {
            before += at(0).fetch_add(world, 1).unwrap();
            at(1).add(world, 2).unwrap();
            at(2).fetch_xor(world, 1 << me).unwrap();
            at(2).xor(world, 1 << (me + 16)).unwrap();
            small.at(root, 0).fetch_add(world, -1).unwrap();
        }
        let count = TURNS * ranks;
        assert_eq!(world.reduce(before, |a, b| a + b), Ok(count * (count - 1) / 2));
        at(3).or(world, 1 << me).unwrap();
        assert_eq!(at(3).fetch_or(world, 1 << (me + 8)).unwrap() >> me & 1, 1);
        at(4).compare_swap(world, 0, me + 1).unwrap();
        let token = at(5).swap(world, me + 1).unwrap();
        world.barrier().unwrap();
        assert_eq!(at(0).fetch(world), Ok(count));
        assert_eq!(at(1).get(world), Ok(2 * count));
        assert_eq!(at(2).get(world), Ok(0), "an even number of turns");
        assert_eq!(small.at(root, 0).get(world), Ok(-(count as i32)));
        let all = (1 << ranks) - 1;
        assert_eq!(at(3).get(world), Ok(all | all << 8));
        assert!((1..=ranks).contains(&at(4).get(world).unwrap()));
        // One rank found 0, each other one the value of another; the last one's is there.
        let last = at(5).get(world).unwrap();
        assert_eq!(world.reduce(token, |a, b| a + b), Ok(ranks * (ranks + 1) / 2 - last));
        world.barrier().unwrap();
        at(3).and(world, !(1 << me)).unwrap();
        at(3).fetch_and(world, !(1 << (me + 8))).unwrap();
        world.barrier().unwrap();
        assert_eq!(at(3).get(world), Ok(0));
        if me == 0 {
            real.at(root, 0).set(world, 1.5).unwrap();
            assert_eq!(real.at(root, 0).swap(world, 2.5), Ok(1.5));
            assert_eq!(real.at(root, 0).compare_swap(world, 2.5, -0.5), Ok(2.5));
            assert_eq!(real.at(root, 0).fetch(world), Ok(-0.5));
        }
    }
    everywhere("atomic_operations_are_atomic", body);
}

/// Elements that collectives are of.
const LENGTH: usize = 500;

/// Every collective of a team, which the caller is a member of.
fn together(world: &World, team: &Team, source: Symmetric<u64>, sums: Symmetric<u64>) {
    let me = world.me();
    let members: Vec<usize> = (0..team.size(world)).map(|index| team.rank(world, index).unwrap()).collect();
    let (size, own) = (members.len(), team.index(world));
    assert_eq!((members[own], team.place(world, me), team.rank(world, size)), (me, Some(own), None));
    team.barrier(world).unwrap();

    let root = size - 1;
    assert_eq!(team.broadcast(world, root, me as u64), Ok(members[root] as u64));
    assert!(team.broadcast(world, size, 0u64).is_err());
    let mut got = vec![0; LENGTH];
    team.broadcast_all(world, root, source, &mut got).unwrap();
    assert!((0..LENGTH).all(|number| got[number] == mixed(members[root], number)));

    assert_eq!(team.collect(world, me as u32), Ok(members.iter().map(|rank| *rank as u32).collect()));
    let different = team.collect_all(world, source, own * 3).unwrap();
    let right: Vec<u64> =
        members.iter().enumerate().flat_map(|(index, rank)| (0..index * 3).map(|at| mixed(*rank, at))).collect();
    assert_eq!(different, right);

    let mut dealt = vec![0; 40 * size];
    team.all_to_all(world, source, &mut dealt).unwrap();
    for (at, value) in dealt.iter().enumerate() {
        assert_eq!(*value, mixed(members[at / 40], own * 40 + at % 40));
    }
    if size > 1 {
        assert!(team.all_to_all(world, source, &mut dealt[1..]).is_err());
    }

    let most = team.reduce(world, me as i64 - 3, i64::max).unwrap();
    assert_eq!(most, *members.iter().max().unwrap() as i64 - 3);
    let sum = team.reduce(world, 0.5 + me as f64, |a, b| a + b).unwrap();
    assert_eq!(sum, members.iter().map(|rank| *rank as f64 + 0.5).sum::<f64>());
    team.reduce_all(world, (source, sums), LENGTH, u64::wrapping_add).unwrap();
    let total = |number: usize, upto: usize| members[..=upto].iter().fold(0u64, |a, rank| a.wrapping_add(mixed(*rank, number)));
    sums.at(me, 0).get_all(world, &mut got).unwrap();
    assert!((0..LENGTH).all(|number| got[number] == total(number, size - 1)));

    let upto: u64 = members[..=own].iter().map(|rank| *rank as u64).sum();
    assert_eq!(team.scan(world, me as u64, |a, b| a + b), Ok(upto));
    team.scan_all(world, source, &mut got, u64::wrapping_add).unwrap();
    assert!((0..LENGTH).all(|number| got[number] == total(number, own)));
    assert!(team.reduce_all(world, (source, sums), LENGTH + 1, u64::wrapping_add).is_err());
}

/// Collectives of all ranks, of every second one, and of rows and columns, against the same computed by one.
#[test]
fn teams_compute_together() {
    fn body(world: &World) {
        let (ranks, me) = (world.ranks(), world.me());
        let all = world.team();
        let source = world.alloc::<u64>(LENGTH * ranks).unwrap();
        let sums = world.alloc::<u64>(LENGTH).unwrap();
        for number in 0..LENGTH * ranks {
            source.at(me, number).put(world, mixed(me, number)).unwrap();
        }
        world.barrier().unwrap();
        let odd = all.split(world, 0, 2, ranks.div_ceil(2)).unwrap();
        assert_eq!(odd.is_some(), me % 2 == 0);
        let (row, column) = all.split_grid(world, 2).unwrap();
        assert_eq!((row.index(world), column.index(world)), (me % 2, me / 2));
        assert!(matches!(all.split(world, 0, 1, ranks + 1), Err(Error::Member { .. })));
        let host = world.team_of_host();
        assert!(host.place(world, me).is_some());
        for team in [Some(&all), odd.as_ref(), Some(&row), Some(&column), Some(&host)] {
            if let Some(team) = team {
                together(world, team, source, sums);
            }
            // Teams that have members in common take turns.
            world.barrier().unwrap();
        }
        drop((row, column, odd));
        // Places of teams that are over are used again: there is room for 256 at a time.
        for _ in 0..300 {
            assert_eq!(all.split(world, 0, 1, ranks).unwrap().unwrap().size(world), ranks);
            world.barrier().unwrap();
        }
    }
    everywhere("teams_compute_together", body);
}

/// What a rank does between taking a lock and giving it back is not mixed with another's.
#[test]
fn a_lock_is_one_rank_s_at_a_time() {
    fn body(world: &World) {
        let lock = world.lock().unwrap();
        let pair = world.alloc::<u64>(2).unwrap();
        const TURNS: u64 = 100;
        for _ in 0..TURNS {
            let _guard = lock.acquire(world).unwrap();
            // Not atomic, and in two places.
            let (first, second) = (pair.at(0, 0).get(world).unwrap(), pair.at(0, 1).get(world).unwrap());
            assert_eq!(first, second);
            pair.at(0, 0).put(world, first + 1).unwrap();
            pair.at(0, 1).put(world, second + 1).unwrap();
        }
        world.barrier().unwrap();
        assert_eq!(pair.at(0, 1).get(world), Ok(TURNS * world.ranks() as u64));
        world.barrier().unwrap();
        if world.me() == world.ranks() - 1 {
            let guard = lock.try_acquire(world).unwrap();
            assert!(guard.is_some() && lock.try_acquire(world).unwrap().is_none());
        }
        world.barrier().unwrap();
        world.free_lock(lock).unwrap();
    }
    everywhere("a_lock_is_one_rank_s_at_a_time", body);
}

/// Stores that all ranks wait for together, counted ones, and spread arrays.
#[test]
fn stores_arrive() {
    fn body(world: &World) {
        let (ranks, me) = (world.ranks(), world.me());
        let spread = world.spread::<u64>(1000, 7).unwrap();
        for index in (0..1000).filter(|index| index % ranks == me) {
            world.store(spread.at(index), &[mixed(0, index)]).unwrap();
        }
        world.all_store_sync().unwrap();
        for index in 0..1000 {
            assert_eq!(spread.at(index).get(world), Ok(mixed(0, index)));
        }
        let counted: usize = (0..1000).filter(|index| spread.owner(*index) == me).count();
        world.store_sync(8 * counted as u64).unwrap();
    }
    everywhere("stores_arrive", body);
}
