//! The receiving half, with any peer.

use super::*;
use crate::semantics::Integrity;
use proptest::prelude::*;
use shunt_region::{Audience, Pages, Pool, Shape};

const UNIT: usize = 4 << 10;
const UNITS: usize = 256;
const QUOTA: usize = 100 * UNIT;

/// What a peer, or the program, does.
#[derive(Clone, Debug)]
enum Act {
    /// Bytes of a message: its length, how far the offset is beside what has come, how many.
    Bytes(usize, isize, usize),
    /// All of the message that comes, and its end: as an honest peer does.
    Rest,
    /// Its end, with a number and a count beside the right ones.
    Whole(i64, i64),
    Announce(i64, usize),
    Post(usize, usize),
    Complete(usize, usize),
    Unpost,
}

fn act() -> impl Strategy<Value = Act> {
    let length = || prop_oneof![0usize..3, 0..2 * EACH, Just(EACH), Just(EACH + 1), 0..1usize << 31];
    let beside = || prop_oneof![8 => Just(0i64), 1 => -2i64..3, 1 => any::<i64>()];
    prop_oneof![
        4 => (length(), prop_oneof![6 => Just(0isize), 1 => -3isize..4], length()).prop_map(|(a, b, c)| Act::Bytes(a, b, c)),
        6 => Just(Act::Rest),
        1 => (beside(), beside()).prop_map(|(a, b)| Act::Whole(a, b)),
        3 => (beside(), length()).prop_map(|(a, b)| Act::Announce(a, b)),
        2 => (0usize..8, 0..3 * EACH).prop_map(|(a, b)| Act::Post(a, b)),
        3 => (0usize..8, 0..3 * EACH).prop_map(|(a, b)| Act::Complete(a, b)),
        1 => Just(Act::Unpost),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Whatever a peer stores and says, and whenever: its bytes lie in the message's own memory, what is pooled stays within the
    /// quota, memory that is not an input's is untouched, and the pool is whole at the end.
    #[test]
    fn any_peer_is_survived(acts in prop::collection::vec(act(), 1..60), outboard: bool) {
        let pool = Pool::create(Shape { unit: UNIT, units: UNITS }, Pages::Small, Audience::Anyone).unwrap();
        let mut host = Host::new(pool.clone());
        let mut bystander = pool.allocate(8 * UNIT).unwrap();
        bystander.bytes_mut().fill(7);
        let units = pool.address()..pool.address() + pool.shape().front() + pool.shape().bytes();
        let mut incoming = Incoming::new(&host, QUOTA);
        if outboard {
            incoming.set_outboard();
        }
        let mut kept = Vec::new();
        for act in acts {
            while incoming.notice(&mut host).is_some() {}
            let coming = incoming.messages.back().filter(|message| !message.whole).map(|message| (message.length, message.arrived));
            let last = incoming.next().wrapping_sub(1);
            match act {
                Act::Bytes(length, beside, count) => {
                    let (length, arrived) = coming.unwrap_or((length.min(crate::port::network::LONGEST), 0));
                    let address = Place { length, offset: 0 }.address().wrapping_add_signed(arrived as i64 + beside as i64);
                    if let Some(bytes) = incoming.place(&host, address, count as u64) {
                        prop_assert_eq!(bytes.len(), count);
                        let at = bytes.as_ptr() as usize;
                        prop_assert!(count == 0 || (units.contains(&at) && at + count <= units.end));
                        bytes.fill(0xab);
                    }
                }
                Act::Rest => {
                    let Some((length, arrived)) = coming else { continue };
                    let rest = incoming.place(&host, Place { length, offset: arrived }.address(), (length - arrived) as u64);
                    rest.expect("there is room for the rest of a message that has begun").fill(0xab);
                    let (address, count) = (Place { length, offset: 0 }.address(), length as u64);
                    prop_assert!(incoming.place(&host, address, count).is_some());
                    prop_assert!(incoming.whole(&mut host, last, Semantics::SHARE, (address, count)));
                }
                Act::Whole(number, count) => {
                    let (length, arrived) = coming.unwrap_or((9, 9));
                    let (address, told) = (Place { length, offset: 0 }.address(), (length as u64).wrapping_add_signed(count));
                    let whole = incoming.whole(&mut host, last.wrapping_add_signed(number), Semantics::COPY, (address, told));
                    prop_assert!(!whole || (arrived, number, count) == (length, 0, 0) && coming.is_some());
                }
                Act::Announce(number, length) => {
                    let after = incoming.announced.back().map_or(incoming.next(), |announced| announced.number + 1);
                    let _ = incoming.announce(after.wrapping_add_signed(number), length);
                    prop_assert!(incoming.announced.len() <= 4 * AHEAD);
                }
                Act::Post(number, length) => {
                    let semantics = Semantics::of_index(number).unwrap();
                    // What is wired may exceed a limit.
                    let _ = match semantics.allocation {
                        Allocation::System => {
                            incoming.post(&mut host, semantics, Work { length, ..Work::default() }, None, false).map_err(|error| error.1)
                        }
                        Allocation::Application => pool.allocate(length).and_then(|region| {
                            let work = host.work(region.pointer() as usize, length);
                            incoming.post(&mut host, semantics, work, Some(region), false).map_err(|error| error.1)
                        }),
                    };
                }
                Act::Complete(number, room) => {
                    let semantics = Semantics::of_index(number).unwrap();
                    let posted = incoming.is_posted();
                    let mut own = vec![0x55u8; room + 16];
                    let address = if semantics.allocation == Allocation::Application { own.as_mut_ptr() as usize } else { 0 };
                    let unposted = (!posted).then_some((semantics, Work { address, length: room, ..Work::default() }));
                    let before = (incoming.state(), incoming.held());
                    let Ok((work, region, length)) = incoming.complete(&mut host, unposted, None) else {
                        prop_assert_eq!((incoming.state(), incoming.held()), before);
                        continue;
                    };
                    if !posted {
                        prop_assert!(length <= room);
                        let strong = semantics.integrity == Integrity::Strong;
                        prop_assert!(own[room..].iter().all(|byte| *byte == 0x55), "behind the buffer, {}", strong);
                    }
                    match region {
                        Some(region) => kept.push(region),
                        None if work.region.is_some() => {
                            let region = Region::regain(pool.clone(), work.region.unwrap()).unwrap();
                            prop_assert!(region.bytes()[length..].iter().all(|byte| *byte == 0), "bytes of others");
                            kept.push(region);
                        }
                        None => {}
                    }
                    kept.truncate(8);
                }
                Act::Unpost => {
                    // Only where the port would: the peer may be filling it.
                    if !incoming.is_promised() {
                        let _ = incoming.unpost(&mut host);
                    }
                }
            }
            prop_assert!(incoming.held() <= QUOTA);
            prop_assert!(bystander.bytes().iter().all(|byte| *byte == 7));
        }
        incoming.end(&mut host);
        prop_assert_eq!(incoming.held(), 0);
        drop((bystander, kept, host));
        prop_assert_eq!(pool.free(), UNITS);
    }
}
