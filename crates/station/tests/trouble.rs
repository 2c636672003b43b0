//! What goes wrong: drivers that are killed, peers that restart, forged and replayed messages, full tables.

mod two;

use shunt_segment::address::Address;
use shunt_station::discovery_packet::{Datagram, Kind, SIZE};
use shunt_station::*;
use two::*;

#[test]
fn a_driver_that_is_killed_costs_the_fast_path_only() {
    let Some(mut world) = World::new(None) else { return };
    let [client, server] = world.connect(40000, 10_000);
    // SAFETY: the child makes system calls and atomic writes only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        shunt_sys::thread::forget_id();
        let _driver = world.sides[0].station.lock();
        // SAFETY: ends this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    // Not waited for yet: a zombie is dead, too.
    // SAFETY: structures of this frame.
    unsafe {
        let mut information: libc::siginfo_t = std::mem::zeroed();
        assert_eq!(libc::waitid(libc::P_PID, child as u32, &mut information, libc::WEXITED | libc::WNOWAIT), 0);
    }
    assert!(world.sides[0].station.try_lock().is_none(), "the dead hold it until somebody doubts");
    world.until(SECOND, "the news", |world| world.sides[0].program.flow(client).lost == 1);
    assert_eq!(world.sides[0].station.count(Count::Recovered), 1);
    assert_eq!(world.sides[0].station.bound().collect::<Vec<_>>(), [client], "until it is released");
    // The other side notices when somebody waits: here, because it sends.
    world.sides[1].program.flow(server).sending = vec![1; 100];
    world.until(20 * SECOND, "the other side", |world| world.sides[1].program.flow(server).lost == 1);
    for (number, stream) in [(0, client), (1, server)] {
        world.sides[number].program.flows.clear();
        world.sides[number].station.lock().unwrap().release(world.now, stream);
        assert_eq!(world.sides[number].station.lent(), 0);
    }
    // Everything begins anew.
    let [client, server] = world.connect(40001, 10_000);
    world.sides[0].program.flow(client).sending = pattern(30_000, 3);
    world.until(20 * SECOND, "bytes", |world| world.sides[1].program.flow(server).received.len() == 30_000);
    // SAFETY: waits for our child.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}

#[test]
fn a_forked_process_drives_as_well() {
    let Some(mut world) = World::new(None) else { return };
    let [client, server] = world.connect(40000, 100_000);
    world.sides[0].program.flow(client).sending = pattern(50_000, 9);
    world.until(SECOND, "some bytes", |world| world.sides[1].program.flow(server).received.len() > 10_000);
    // SAFETY: the child makes system calls and atomic writes only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        shunt_sys::thread::forget_id();
        // It takes frames in and sends others, as far as memory that is there suffices.
        let end = world.now + MILLISECOND;
        let Side { station, program, .. } = &mut world.sides[0];
        while let Some(mut driver) = station.lock().filter(|_| world.now < end) {
            world.now += 20 * MICROSECOND;
            program.now = world.now;
            let _ = driver.drive(world.now, program);
        }
        // SAFETY: ends this process.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: waits for our child.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    world.now += MILLISECOND;
    // What the child sent is not known to this program; here only that the path lives.
    let peer = world.peer();
    assert!(world.sides[0].station.lock().unwrap().status(peer).unwrap().up);
    let other = world.connect(40001, 100_000);
    world.sides[1].program.flows.remove(&server);
    world.sides[0].program.flows.remove(&client);
    for (number, stream) in [(0, client), (1, server)] {
        world.sides[number].station.lock().unwrap().release(world.now, stream);
    }
    world.sides[1].program.flow(other[1]).sending = pattern(50_000, 10);
    world.until(20 * SECOND, "bytes", |world| world.sides[0].program.flow(other[0]).received.len() == 50_000);
    assert!(world.sides[0].program.flow(other[0]).received == pattern(50_000, 10));
}

#[test]
fn a_station_is_attached_by_its_descriptors() {
    let Some(mut world) = World::new(None) else { return };
    let [client, server] = world.connect(40000, 10_000);
    // SAFETY: a duplicate of each.
    let copies = world.sides[0].station.descriptors().map(|fd| if fd < 0 { fd } else { unsafe { libc::dup(fd) } });
    let other = Station::attach(copies).expect("the same station");
    for turn in 0..20usize {
        let length = 2_000 * (turn + 1);
        world.sides[0].program.flow(client).sending = pattern(length, 4);
        world.until(20 * SECOND, "bytes", |world| {
            // Both handles take turns.
            other.drive(world.now, &mut world.sides[0].program);
            world.sides[1].program.flow(server).received.len() == length
        });
    }
    assert!(world.sides[1].program.flow(server).received == pattern(40_000, 4));
    // Memory that is no station's is refused, and its descriptors are closed.
    // SAFETY: a new file.
    let file = unsafe { libc::memfd_create(c"nothing".as_ptr(), 0) };
    assert!(Station::attach([file, -1, -1, -1, -1, -1, -1, -1]).is_err());
    // SAFETY: no preconditions.
    assert_eq!(unsafe { libc::fcntl(file, libc::F_GETFD) }, -1);
}

#[test]
fn a_peer_that_restarts_is_noticed() {
    let Some(mut world) = World::new(None) else { return };
    let [client, server] = world.connect(40000, 10_000);
    let _ = server;
    // SAFETY: the ear is this test's.
    unsafe { libc::close(world.sides[1].query) };
    let at = world.sides[1].address;
    world.sides[1].station = world.hosts[1].enter(|| udp_station(&at, None, world.now));
    world.sides[1].program = Program::default();
    world.listen();
    world.sides[0].program.flow(client).sending = vec![1; 10];
    world.until(20 * SECOND, "the loss", |world| world.sides[0].program.flow(client).lost == 1);
    let four = world.four(1);
    assert_eq!(world.sides[0].station.known(&four, world.now), None, "asked anew");
    world.sides[0].program.flows.clear();
    world.sides[0].station.lock().unwrap().release(world.now, client);
    world.connect(40001, 1000);
}

#[test]
fn opens_that_are_not_believed() {
    let Some(mut world) = World::new(None) else { return };
    let peer = world.peer();
    let mut refused = |four: FourTuple| {
        let stream = world.sides[0].station.lock().unwrap().open(world.now, peer, &four, MARK).unwrap();
        world.until(SECOND, "an answer", |world| world.sides[0].station.opening(stream) != Opening::Pending);
        let opening = world.sides[0].station.opening(stream);
        world.sides[0].station.lock().unwrap().release(world.now, stream);
        assert_eq!([0, 1].map(|side: usize| world.sides[side].station.lent()), [0, 0]);
        opening
    };
    let good = FourTuple { client: Address::v4([10, 77, 0, 1], 5), server: Address::v4([10, 77, 0, 2], PORT) };
    let stranger = FourTuple { client: Address::v4([10, 77, 0, 9], 5), ..good };
    assert_eq!(refused(stranger), Opening::Refused(Refusal::Source));
    let nobody = FourTuple { server: Address::v4([10, 77, 0, 2], 1), ..good };
    assert_eq!(refused(nobody), Opening::Refused(Refusal::Elsewhere));
    // The same connection twice: the newer one counts.
    let first = world.open(40000).0;
    let second = world.open(40000).0;
    let four = world.four(40000);
    let token = world.sides[0].station.lock().unwrap().token(second);
    assert_eq!(world.sides[1].station.lock().unwrap().claim(&four, MARK.0.into(), world.now).unwrap().1, token);
    assert_ne!(world.sides[0].station.lock().unwrap().token(first), token);
}

/// A second station on the client's host becomes the side that asks and opens; gives back the first one.
fn another_user(world: &mut World) -> Station {
    let at = world.sides[0].address;
    let other = world.hosts[0].enter(|| udp_station(&at, None, world.now));
    std::mem::replace(&mut world.sides[0].station, other)
}

/// The first reservation holds against other users of the client's host, who can read its mark as soon as there is a SYN.
#[test]
fn a_reservation_of_another_station() {
    let Some(mut world) = World::new(None) else { return };
    let (stream, opening) = world.open(40000);
    assert_eq!(opening, Opening::Opened);
    let token = world.sides[0].station.lock().unwrap().token(stream);
    let first = another_user(&mut world);
    let (other, opening) = world.open(40000);
    assert_eq!(opening, Opening::Refused(Refusal::Source));
    assert_eq!(world.sides[1].station.lent(), 1, "the first one's");
    world.sides[0].station.lock().unwrap().release(world.now, other);
    let four = world.four(40000);
    assert_eq!(world.sides[1].station.lock().unwrap().claim(&four, MARK.0.into(), world.now).unwrap().1, token);
    drop(first);
}

/// Nor is a connection had by who reserves it when it is there, its first reservation being over.
#[test]
fn a_reservation_after_the_connection() {
    let Some(mut world) = World::new(None) else { return };
    let (stream, _) = world.open(40000);
    let made = world.now;
    world.now += MILLISECOND;
    world.sides[0].station.lock().unwrap().release(world.now, stream);
    world.until(SECOND, "its end", |world| world.sides[1].station.lent() == 0);
    let first = another_user(&mut world);
    world.now += 2 * SECOND; // the first one's time is over
    let (_, opening) = world.open(40000);
    assert_eq!(opening, Opening::Opened);
    let four = world.four(40000);
    assert_eq!(world.sides[1].station.lock().unwrap().claim(&four, MARK.0.into(), made), None);
    assert!(world.sides[1].station.lock().unwrap().claim(&four, MARK.0.into(), world.now).is_some(), "a later connection's");
    drop(first);
}

/// A reservation that was given up, or closed, while its SYN is on the way: the connection is nobody else's for a time.
#[test]
fn a_reservation_that_is_over() {
    let Some(mut world) = World::new(None) else { return };
    let (given_up, _) = world.open(40000);
    let (closed, _) = world.open(40001);
    world.sides[0].station.lock().unwrap().cancel(world.now, given_up);
    world.until(SECOND, "the answer", |world| world.sides[0].station.opening(given_up) == Opening::Refused(Refusal::Cancelled));
    world.sides[0].station.lock().unwrap().release(world.now, closed);
    world.until(SECOND, "its end", |world| world.sides[1].station.lent() == 0);
    let again = world.open(40001).0;
    world.sides[0].station.lock().unwrap().release(world.now, again);
    world.until(SECOND, "its end", |world| world.sides[1].station.lent() == 0);
    let first = another_user(&mut world);
    for port in [40000, 40001] {
        assert_eq!(world.open(port).1, Opening::Refused(Refusal::Source), "{port}");
    }
    world.now += 2 * SECOND;
    assert_eq!(world.open(40000).1, Opening::Refused(Refusal::Source), "its SYN may be repeated");
    assert_eq!(world.open(40001).1, Opening::Opened, "its SYN was the last");
    drop(first);
}

/// Nor is the connection of a reservation that the same station replaced another one's; its own it is.
#[test]
fn a_reservation_that_is_replaced() {
    let Some(mut world) = World::new(None) else { return };
    let four = world.four(40000);
    for _ in 0..3 {
        assert_eq!(world.open(40000).1, Opening::Opened);
    }
    assert!(world.sides[1].station.lock().unwrap().claim(&four, MARK.0.into(), world.now).is_some());
    let first = another_user(&mut world);
    assert_eq!(world.open(40000).1, Opening::Refused(Refusal::Source));
    world.now += 2 * SECOND;
    assert_eq!(world.open(40000).1, Opening::Opened);
    drop(first);
}

/// Who gives up before OPENED has come has no reservation when it comes, and nobody else claims the one that was made for him.
#[test]
fn a_reservation_that_comes_late() {
    let Some(mut world) = World::new(None) else { return };
    let (peer, four) = (world.peer(), world.four(40000));
    world.until(SECOND, "the peer", |world| world.sides[1].station.lock().unwrap().status(0).is_some());
    let (first, _) = world.open(40001);
    let stream = world.sides[0].station.lock().unwrap().open(world.now, peer, &four, MARK).unwrap();
    world.turn(0);
    assert_eq!(world.sides[0].station.opening(stream), Opening::Pending);
    world.now += 60 * MILLISECOND;
    world.sides[0].station.lock().unwrap().release_unmarked(world.now, stream);
    // OPEN arrives, and with it the connection that shows no mark; then what the client says of it.
    let mut reserved = false;
    world.until(2 * SECOND, "its end", |world| {
        let lent = world.sides[1].station.lent();
        reserved |= lent == 2;
        if lent == 2 {
            assert_eq!(world.sides[1].station.lock().unwrap().claim(&four, 1460, world.now), None);
        }
        world.sides[0].station.lent() == 1 && lent == 1
    });
    assert_ne!(world.sides[0].station.opening(first), Opening::Pending);
    assert_eq!(world.open(40002).1, Opening::Opened, "the next one is as good as the first");
}

/// Who gave up has his connection accepted before CANCEL comes: that it shows no mark says nothing about the next ones.
#[test]
fn a_reservation_that_was_given_up_and_found() {
    let Some(mut world) = World::new(None) else { return };
    let peer = world.peer();
    for (port, in_time) in [(40000, false), (40001, true)] {
        let four = world.four(port);
        let stream = world.sides[0].station.lock().unwrap().open(world.now, peer, &four, MARK).unwrap();
        let opening = |world: &World| world.sides[0].station.opening(stream);
        // Whether OPENED has come, too, since the client looked.
        world
            .until(SECOND, "OPEN", |world| world.sides[1].station.lent() == 1 && (!in_time || opening(world) == Opening::Opened));
        assert_eq!(opening(&world) == Opening::Opened, in_time);
        world.sides[0].station.lock().unwrap().release_unmarked(world.now, stream);
        assert_eq!(world.sides[1].station.lock().unwrap().claim(&four, 1460, world.now), None);
        world.until(SECOND, "the numbers' return", |world| world.sides.iter().all(|side| side.station.lent() == 0));
        assert_eq!(world.sides[0].station.known(&four, world.now), Some(Ok(peer)), "{port}");
    }
    assert_eq!(world.open(40002).1, Opening::Opened);
}

/// Where too many of a host's are over to remember them, its other stations' connections are not reserved.
#[test]
fn reservations_that_are_over_in_crowds() {
    let Some(mut world) = World::new(None) else { return };
    for port in 30_000..30_300 {
        let (stream, opening) = world.open(port);
        assert_eq!(opening, Opening::Opened, "{port}");
        world.sides[0].station.lock().unwrap().cancel(world.now, stream);
        world.until(SECOND, "the answer", |world| world.sides[0].station.opening(stream) == Opening::Refused(Refusal::Cancelled));
        world.sides[0].station.lock().unwrap().release(world.now, stream);
    }
    let first = another_user(&mut world);
    assert_eq!(world.open(30_000).1, Opening::Refused(Refusal::Source), "remembered");
    assert_eq!(world.open(40_000).1, Opening::Refused(Refusal::Full), "it may be one of the others");
    world.now += 131 * SECOND;
    assert_eq!(world.open(40_001).1, Opening::Opened);
    drop(first);
}

/// Who has reserved another's connection does not get it: that does not show the mark. Nor does he keep the reservation.
#[test]
fn connections_that_show_no_mark() {
    let Some(mut world) = World::new(None) else { return };
    let mark = u32::from(MARK.0);
    for (port, segment) in (40000..).zip([0, 536, 1448, 1460, mark - 1, mark + 2, mark - 12]) {
        let (stream, opening) = world.open(port);
        assert_eq!(opening, Opening::Opened);
        let four = world.four(port);
        assert_eq!(world.sides[1].station.lock().unwrap().claim(&four, segment, world.now), None, "{segment}");
        assert_eq!(world.sides[1].station.lock().unwrap().claim(&four, mark, world.now), None, "it was given back");
        let now = world.now;
        let known = |world: &World| world.sides[0].station.known(&four, now);
        world.until(SECOND, "the news", |world| known(world) == Some(Err(Refusal::Unclaimed)));
        world.sides[0].station.lock().unwrap().release(world.now, stream);
        world.until(SECOND, "the numbers' return", |world| world.sides.iter().all(|side| side.station.lent() == 0));
        assert_eq!(world.sides[0].station.known(&four, world.now + 31 * SECOND), None, "asked again by then");
    }
    let (stream, _) = world.open(40009);
    let four = world.four(40009);
    let token = world.sides[0].station.lock().unwrap().token(stream);
    let claimed = world.sides[1].station.lock().unwrap().claim(&four, mark, world.now);
    assert_eq!(claimed.map(|(_, token)| token), Some(token));
    // A largest segment that plain connections name is no mark.
    let peer = world.peer();
    let four = world.four(40001);
    let stream = world.sides[0].station.lock().unwrap().open(world.now, peer, &four, Mark(1460)).unwrap();
    world.until(SECOND, "an answer", |world| world.sides[0].station.opening(stream) != Opening::Pending);
    assert_eq!(world.sides[0].station.opening(stream), Opening::Refused(Refusal::Device));
    for (largest, least) in [(1460, 1333), (1461, 1333), (8960, 8833), (536, 409)] {
        let marks = (0..1000).map(|random| Mark::below(largest, random));
        assert!(marks.into_iter().all(|mark| mark.is_one() && (least..largest).contains(&mark.0)), "{largest}");
    }
}

#[test]
fn tables_that_are_full() {
    let Some(mut world) = World::new(None) else { return };
    let peer = world.peer();
    let mut streams = vec![];
    let refusal = loop {
        let four = world.four(10_000 + streams.len() as u16);
        match world.sides[0].station.lock().unwrap().open(world.now, peer, &four, MARK) {
            Ok(stream) => streams.push(stream),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((streams.len(), refusal), (STREAMS as usize, Refusal::Full));
    let opening = |world: &World, stream: &Stream| world.sides[0].station.opening(*stream);
    world.until(4 * SECOND, "answers", |world| streams.iter().all(|stream| opening(world, stream) != Opening::Pending));
    let opened = streams.iter().filter(|stream| opening(&world, stream) == Opening::Opened).count();
    assert_eq!(opened, STREAMS as usize / 2, "as many as may wait");
    for stream in streams {
        world.sides[0].station.lock().unwrap().release(world.now, stream);
    }
    world.until(40 * SECOND, "the numbers' return", |world| world.sides.iter().all(|side| side.station.lent() == 0));
}

#[test]
fn silence_and_refusals_are_remembered() {
    let Some(mut world) = World::new(None) else { return };
    // A port at which the gate knows nobody.
    let mut four = world.four(1);
    four.server.port = 1;
    let ask = |world: &mut World, four: &FourTuple| {
        let station = &world.sides[0].station;
        let now = world.now;
        let mut inquiry = world.hosts[0].enter(|| Inquiry::begin(station, four, now, &mut Program::default()).unwrap());
        loop {
            match inquiry.step(&world.sides[0].station, world.now) {
                Answer::Pending => {}
                answer => return answer,
            }
            if !waits(&[inquiry.descriptor(), world.gate.descriptor()], 1000) {
                world.now = inquiry.deadline();
            }
            world.gate.serve(world.now, &mut |_, _| true, &mut |_| None);
        }
    };
    assert_eq!(ask(&mut world, &four), Answer::None(Refusal::Elsewhere));
    assert_eq!(world.sides[0].station.known(&four, world.now), Some(Err(Refusal::Elsewhere)));
    assert_eq!(world.sides[0].station.known(&four, world.now + 60 * SECOND), None);
    // A host without a gate says so at once: its port is unreachable. This one's own, for instance.
    let here = FourTuple { server: Address { port: 5, ..world.sides[0].address }, ..four };
    let before = world.now;
    assert_eq!(ask(&mut world, &here), Answer::None(Refusal::NoStation));
    assert_eq!(world.now, before, "without waiting");
}

#[test]
fn strangers_are_not_answered() {
    let Some(mut world) = World::new(None) else { return };
    let socket = world.hosts[0].enter(|| std::net::UdpSocket::bind("10.77.0.1:0")).expect("a socket");
    socket.connect(("10.77.0.2", GATE)).expect("a route");
    socket.set_nonblocking(true).expect("a flag");
    let (nonce, cookie, identity) = ([1, 2], [0; 2], [0; 2]);
    let four = world.four(1);
    let question = Datagram { kind: Kind::Ask, nonce, cookie, four, flags: 0, identity, tag: 0, port: 0, refusal: None }.emit();
    let mut asks = |question: &[u8], knows: bool, proves: bool| {
        socket.send(question).expect("sent");
        assert!(waits(&[world.gate.descriptor()], 10_000));
        let mut asker = None;
        world.gate.serve(
            world.now,
            &mut |from, proved| {
                assert_eq!(proved, proves);
                asker = Some(*from);
                knows
            },
            &mut |_| None,
        );
        assert_eq!(asker.and_then(|asker| asker.as_v4()), Some([10, 77, 0, 1]));
        // A veth delivers before the system call is over.
        let mut bytes = [0; SIZE];
        socket.recv(&mut bytes).ok().and_then(|_| Datagram::parse(&bytes))
    };
    assert_eq!(asks(&question, false, false), None);
    let cookie = asks(&question, true, false).expect("a cookie");
    let again = Datagram { kind: Kind::Ask, ..cookie }.emit();
    assert_eq!(asks(&again, false, true), None);
    assert_eq!(asks(&again, true, true).map(|answer| answer.kind), Some(Kind::Answer));
}

#[test]
fn the_gate_believes_fresh_cookies_only() {
    let asker = Address::v4([10, 77, 0, 1], 999);
    let four = FourTuple { client: Address { port: 40000, ..asker }, server: Address::v4([10, 77, 0, 2], PORT) };
    let gate = Judge::new([11, 12]);
    let question = Datagram {
        kind: Kind::Ask,
        nonce: [1, 2],
        cookie: [0; 2],
        four,
        flags: 0,
        identity: [3, 4],
        tag: 5,
        port: 6,
        refusal: None,
    };
    let judge = |datagram: &Datagram, asker: &Address, now| {
        let mut found = None;
        let answer = gate.judge(now, &datagram.emit(), asker, &mut |_| Some(7), &mut found);
        (answer.map(|answer| (answer.kind, answer.refusal)), answer.map(|answer| answer.cookie), found)
    };
    let (kind, cookie, found) = judge(&question, &asker, SECOND);
    assert_eq!((kind, found), (Some((Kind::Cookie, None)), None));
    let asked = Datagram { cookie: cookie.unwrap(), ..question };
    assert_eq!(judge(&asked, &asker, SECOND).2, Some(7));
    assert_eq!(judge(&asked, &asker, 11 * SECOND).2, Some(7));
    // Too old; by another asker; for another question; from somebody who is not the client.
    assert_eq!(judge(&asked, &asker, 31 * SECOND).0, Some((Kind::Cookie, None)));
    assert_eq!(judge(&asked, &Address { port: 998, ..asker }, SECOND).0, Some((Kind::Cookie, None)));
    assert_eq!(judge(&Datagram { nonce: [1, 3], ..asked }, &asker, SECOND).0, Some((Kind::Cookie, None)));
    let mut four = asked.four;
    four.client = Address::v4([10, 77, 0, 99], 1);
    assert_eq!(judge(&Datagram { four, ..asked }, &asker, SECOND).0, Some((Kind::Answer, Some(Refusal::Source))));
    // No answer is longer than its question, and answers are not answered.
    assert_eq!(question.emit().len(), SIZE);
    assert_eq!(judge(&Datagram { kind: Kind::Answer, ..asked }, &asker, SECOND).0, None);
}

/// Control messages that no station sends: a peer that keeps no rule.
#[test]
fn control_messages_of_a_hostile_peer() {
    let Some(mut world) = World::new(None) else { return };
    let [client, server] = world.connect(40000, 10_000);
    let peer = world.peer();
    let mut dice = 88172645463325252u64;
    let mut draw = move || {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice >> 11
    };
    let generation = world.sides[0].station.lock().unwrap().generation(client);
    let client_words = world.four(40000).client.words();
    let server_words = world.four(40000).server.words();
    for _ in 0..3_000 {
        // Channels of streams that are there, and others; generations that fit, and others; handlers that exist, and others.
        let channel = 1 + (draw() % 6) as u16;
        let mut words: Vec<u64> = (0..draw() % 9).map(|_| draw() % 3).collect();
        if words.len() == 8 {
            let ports = (40_000 + draw() % 8) | (u64::from(PORT) << 16) | ((1001 + draw() % 8) << 32);
            words[3..].copy_from_slice(&[client_words[0], client_words[1], server_words[0], server_words[1], ports]);
        }
        if let Some(first) = words.first_mut().filter(|_| draw() % 2 == 0) {
            *first = generation.into();
        }
        // Not what would end the stream that is to be found intact: FIN, RESET, CLOSE of its own use.
        let handler = (draw() % 12) as u8;
        let own = words.first() == Some(&u64::from(generation));
        if own && matches!(handler, 4..=7) {
            continue;
        }
        world.sides[0].station.lock().unwrap().say(world.now, peer, channel, handler, &words);
        world.turns();
        assert!(world.sides[1].station.lent() <= 1 + 6, "one for each channel at most");
    }
    assert!(world.sides[1].station.count(Count::Dropped) > 0);
    assert!(world.sides[1].station.count(Count::Reserved) > 1, "some of them reserve");
    let flow = world.sides[1].program.flow(server);
    assert_eq!((flow.resets, flow.finished, flow.lost, flow.received.len()), (0, 0, 0, 0));
    world.sides[0].program.flow(client).sending = pattern(40_000, 8);
    world.until(20 * SECOND, "bytes", |world| world.sides[1].program.flow(server).received.len() == 40_000);
    assert!(world.sides[1].program.flow(server).received == pattern(40_000, 8));
}
