//! Streams between two hosts, at virtual time: bytes arrive once and in order, ends are told, numbers are lent again.

mod two;

use shunt_endpoint::wrapper::fault::Faults;
use shunt_station::*;
use two::*;

/// Sends so many bytes both ways, ends both, and gives the numbers back.
fn converse(world: &mut World, port: u16, length: usize, window: u64) {
    let streams = world.connect(port, window);
    let texts = [pattern(length, port.into()), pattern(length / 2 + 1, u64::from(port) + 7)];
    for ((side, stream), text) in world.sides.iter_mut().zip(streams).zip(&texts) {
        let flow = side.program.flow(stream);
        flow.sending = text.clone();
        flow.finish = true;
    }
    world.until(600 * SECOND, "both ends", |world| {
        (0..2).all(|side| {
            let flow = world.sides[side].program.flow(streams[side]);
            flow.finished == 1 && flow.acknowledged == texts[side].len() as u64
        })
    });
    for side in 0..2 {
        let flow = world.sides[side].program.flows.remove(&streams[side]).unwrap();
        assert!(flow.received == texts[1 - side], "bytes of side {side}");
        assert_eq!((flow.resets, flow.lost), (0, 0));
        world.sides[side].station.lock().unwrap().release(world.now, streams[side]);
    }
    world.until(20 * SECOND, "the numbers' return", |world| {
        (0..2).all(|side| world.sides[side].station.opening(streams[side]) == Opening::Refused(Refusal::Lost))
            && world.sides.iter().all(|side| side.station.lent() == 0)
    });
}

/// What a turn that ended early has left is done by the next.
#[test]
fn content_programs() {
    for faults in [None, Some(Faults { seed: 3, loss: 20_000, ..Faults::default() })] {
        let Some(mut world) = World::new(faults) else { return };
        world.sides.iter_mut().for_each(|side| side.program.content = true);
        converse(&mut world, 40000, 300_000, 1 << 16);
    }
}

/// Who sleeps without a turn asks first whether the last one left something.
#[test]
fn a_turn_that_ended_early_owes_another() {
    let Some(mut world) = World::new(None) else { return };
    let [client, server] = world.connect(40000, 1 << 16);
    world.sides[0].program.flow(client).sending = pattern(8, 1);
    world.until(SECOND, "the first bytes", |world| world.sides[1].program.flow(server).received.len() == 8);
    world.sides[1].program.content = true;
    world.sides[0].program.flow(client).sending = pattern(16, 1);
    world.turn(0);
    let mut progress = world.turn(1);
    while world.sides[1].program.flow(server).received.len() < 16 {
        assert!(waits(&[world.sides[1].station.poll_fd()], 10_000), "the bytes behind");
        progress = world.turn(1);
    }
    assert!(progress.early && world.sides[1].station.owes());
    world.sides[1].program.content = false;
    world.turn(1);
    assert!(!world.sides[1].station.owes());
}

#[test]
fn bytes_and_ends() {
    let Some(mut world) = World::new(None) else { return };
    converse(&mut world, 40000, 300_000, 1 << 16);
    // The same channel again, with less room: what was granted before counts no more.
    converse(&mut world, 40001, 5_000, 1_000);
    assert_eq!(world.sides[0].station.count(Count::Opened), 2);
    assert_eq!(world.sides[1].station.count(Count::Dropped), 0);
}

#[test]
fn over_a_bad_network() {
    let kinds = [
        Faults { seed: 11, loss: 50_000, ..Faults::default() },
        Faults { seed: 12, duplicate: 50_000, reorder: 100_000, ..Faults::default() },
        Faults { seed: 13, loss: 10_000, duplicate: 10_000, reorder: 20_000, corrupt: 20_000, ..Faults::default() },
    ];
    for faults in kinds {
        let Some(mut world) = World::new(Some(faults)) else { return };
        for port in 0..4 {
            converse(&mut world, 40000 + port, 60_000, 20_000);
        }
    }
}

#[test]
fn many_streams_at_once() {
    let Some(mut world) = World::new(Some(Faults { seed: 5, loss: 5_000, ..Faults::default() })) else { return };
    let streams: Vec<_> = (0..100).map(|at| world.connect(41000 + at, 4_000)).collect();
    assert_eq!(streams[7][0], 7, "lowest numbers first");
    for (at, pair) in streams.iter().enumerate() {
        for side in 0..2 {
            world.sides[side].program.flow(pair[side]).sending = pattern(6_000 + at, at as u64 + side as u64 * 1000);
        }
    }
    let sent = |world: &mut World, side: usize, stream| world.sides[side].program.flow(stream).sending.clone();
    world.until(100 * SECOND, "all bytes", |world| {
        streams
            .iter()
            .enumerate()
            .all(|(at, pair)| (0..2).all(|side| world.sides[side].program.flow(pair[side]).received.len() == 6_000 + at))
    });
    for pair in &streams {
        for side in 0..2 {
            let expected = sent(&mut world, 1 - side, pair[1 - side]);
            assert!(world.sides[side].program.flow(pair[side]).received == expected);
        }
    }
}

#[test]
fn urgent_bytes_and_resets() {
    let Some(mut world) = World::new(None) else { return };
    let [client, server] = world.connect(40000, 100);
    world.sides[0].program.flow(client).sending = b"before".to_vec();
    world.until(SECOND, "room", |world| world.sides[0].program.flow(client).sent == 6);
    assert!(world.sides[0].station.lock().unwrap().urgent(world.now, client, b'!'));
    world.sides[0].program.flow(client).sending.extend(b"behind");
    world.until(SECOND, "the urgent byte", |world| world.sides[1].program.flow(server).received.len() == 12);
    assert_eq!(world.sides[1].program.flow(server).urgent, [(6, b'!')]);
    assert!(world.sides[0].station.lock().unwrap().reset(world.now, client));
    world.until(SECOND, "the reset", |world| world.sides[1].program.flow(server).resets == 1);
    for side in 0..2 {
        world.sides[side].program.flows.clear();
        world.sides[side].station.lock().unwrap().release(world.now, [client, server][side]);
    }
    world.until(SECOND, "the numbers' return", |world| world.sides.iter().all(|side| side.station.lent() == 0));
}

#[test]
fn one_side_goes_without_a_word() {
    let Some(mut world) = World::new(None) else { return };
    let [client, server] = world.connect(40000, 1000);
    // Released without FIN: what its program sent is for nobody, and its peer hears of a reset, as of a closed socket's.
    world.sides[1].program.flows.clear();
    world.sides[1].station.lock().unwrap().release(world.now, server);
    world.until(SECOND, "the reset", |world| world.sides[0].program.flow(client).resets == 1);
    world.sides[0].program.flows.clear();
    world.sides[0].station.lock().unwrap().release(world.now, client);
    world.until(SECOND, "the numbers' return", |world| world.sides.iter().all(|side| side.station.lent() == 0));
}

#[test]
fn reservations_are_cancelled_claimed_or_expire() {
    let Some(mut world) = World::new(None) else { return };
    // Cancelled before anybody claimed it.
    let (stream, opening) = world.open(40000);
    assert_eq!(opening, Opening::Opened);
    world.sides[0].station.lock().unwrap().cancel(world.now, stream);
    assert_eq!(world.sides[0].station.opening(stream), Opening::Pending);
    let opening = |world: &World| world.sides[0].station.opening(stream);
    world.until(SECOND, "the end", |world| opening(world) != Opening::Pending);
    assert_eq!(opening(&world), Opening::Refused(Refusal::Cancelled));
    assert_eq!(world.sides[1].station.lent(), 0);
    let four = world.four(40000);
    assert!(world.sides[1].station.lock().unwrap().claim(&four, MARK.0.into(), world.now).is_none());
    world.sides[0].station.lock().unwrap().release(world.now, stream);
    assert_eq!(world.sides[0].station.lent(), 0);
    // Too late.
    let (stream, _) = world.open(40001);
    let four = world.four(40001);
    let (claimed, _) = world.sides[1].station.lock().unwrap().claim(&four, MARK.0.into(), world.now).expect("a reservation");
    assert!(world.sides[1].station.lock().unwrap().claim(&four, MARK.0.into(), world.now).is_none(), "once");
    world.sides[0].station.lock().unwrap().cancel(world.now, stream);
    world.until(SECOND, "the answer", |world| world.sides[0].station.opening(stream) != Opening::Pending);
    assert_eq!(world.sides[0].station.opening(stream), Opening::Opened);
    for (side, stream) in [(0, stream), (1, claimed)] {
        world.sides[side].station.lock().unwrap().release(world.now, stream);
    }
    world.until(SECOND, "the numbers' return", |world| world.sides.iter().all(|side| side.station.lent() == 0));
    // Nobody claims it.
    let (stream, _) = world.open(40002);
    world.until(40 * SECOND, "the end", |world| world.sides[1].station.count(Count::Expired) == 1);
    world.sides[0].station.lock().unwrap().release(world.now, stream);
    world.until(SECOND, "the numbers' return", |world| world.sides.iter().all(|side| side.station.lent() == 0));
}
