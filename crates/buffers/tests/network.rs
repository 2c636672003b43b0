//! Ports over networks: every sender with every receiver, however its bytes come in; what is written meanwhile is not what comes.

mod common;
mod pairs;

use common::{pool, UNIT};
use pairs::{all_pairs, fill, is_filled, post, ready, receive, receives_all, send, sends_all, whole, WAYS};
use shunt_am::port::Trouble;
use shunt_am::{Dispatch, Message, Replier, Store};
use shunt_buffers::port::network::{memory, NetworkPort as Port};
use shunt_buffers::port::Error;
use shunt_buffers::{Integrity, Semantics};
use shunt_endpoint::device::shm::Shm;
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_endpoint::wrapper::fault::{Fault, Faults};
use shunt_region::{Audience, Limit, Pages, Pool, Shape};

fn udp() -> Udp {
    Udp::bind(&ipv4([127, 0, 0, 1], 0), Options::default()).unwrap()
}

#[test]
fn every_sender_and_every_receiver_over_udp() {
    all_pairs(|_| udp());
}

#[test]
fn every_sender_and_every_receiver_over_shared_memory() {
    all_pairs(|_| Shm::new(Default::default()).unwrap());
}

#[test]
fn every_sender_and_every_receiver_over_a_bad_network() {
    all_pairs(|seed| {
        Fault::new(udp(), Faults { seed, loss: 10_000, duplicate: 20_000, reorder: 20_000, corrupt: 5_000, delay: 0 })
    });
}

#[test]
fn every_sender_and_every_receiver_in_two_processes() {
    common::alone("every_sender_and_every_receiver_in_two_processes", || {
        for way in WAYS {
            common::with_child(
                |fd| {
                    let (endpoint, pool) = (udp(), pool());
                    let mut memory = memory(&endpoint);
                    let mut port = Port::over(fd, endpoint, &mut memory, &pool).unwrap();
                    receives_all(&mut port, &pool, way);
                    drop(port);
                    whole(&pool);
                },
                |fd, kill| {
                    let (endpoint, pool) = (udp(), pool());
                    let mut memory = memory(&endpoint);
                    let mut port = Port::over(fd, endpoint, &mut memory, &pool).unwrap();
                    ready(&mut port);
                    sends_all(&mut port, &pool, way);
                    assert_eq!(port.receive(&mut [0], Semantics::COPY), Err(Error::Gone));
                    kill();
                    drop(port);
                    whole(&pool);
                },
            );
        }
    });
}

/// Two ports and their pools, to one test.
fn with_pair(test: impl FnOnce(Port<'_, Udp>, Port<'_, Udp>, &Pool, &Pool)) {
    let (a, b) = (udp(), udp());
    let (mut for_a, mut for_b, ours, theirs) = (memory(&a), memory(&b), pool(), pool());
    let (mut here, there) = Port::pair((a, &mut for_a, &ours), (b, &mut for_b, &theirs)).unwrap();
    ready(&mut here);
    test(here, there, &ours, &theirs);
    whole(&ours);
    whole(&theirs);
}

/// Drives the other end until the message is there.
fn meet<T>(here: &mut Port<'_, Udp>, there: &mut Port<'_, Udp>, act: impl FnOnce(&mut Port<'_, Udp>) -> T + Send) -> T
where
    T: Send,
{
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let result = act(there);
            done.store(true, std::sync::atomic::Ordering::SeqCst);
            result
        });
        while !done.load(std::sync::atomic::Ordering::SeqCst) {
            here.progress().unwrap();
            std::thread::yield_now();
        }
        other.join().unwrap()
    })
}

#[test]
fn strong_integrity_is_the_arm_s_doing() {
    for armed in [true, false] {
        with_pair(|mut here, mut there, ours, _| {
            there.set_outboard();
            let mut region = ours.allocate(3 * UNIT).unwrap();
            region.bytes_mut().fill(1);
            let free = ours.free();
            let ticket = here.send(region.bytes(), Semantics::EMULATED_COPY).unwrap();
            assert_eq!((here.queued(), ours.free()), ((3 * UNIT, 1), free), "it waits, uncopied");
            if !armed {
                shunt_sys::calls::mprotect(region.pointer(), 3 * UNIT, 3).unwrap();
            }
            region.bytes_mut().fill(2);
            let bytes = meet(&mut here, &mut there, |there| receive(there, Semantics::COPY, 3 * UNIT, false));
            assert_eq!(bytes.iter().all(|byte| *byte == 1), armed);
            assert!(here.completed(ticket).unwrap());
            assert!(region.bytes().iter().all(|byte| *byte == 2));
        });
    }
}

#[test]
fn a_hidden_region_is_sent_and_the_next_input_has_it() {
    with_pair(|mut here, mut there, ours, theirs| {
        there.set_outboard();
        let mut region = ours.allocate(3 * UNIT).unwrap();
        fill(region.bytes_mut(), 5);
        let place = region.pointer();
        let at = region.located();
        here.send_region(region, 3 * UNIT, Semantics::EMULATED_MOVE).unwrap();
        assert_eq!(ours.value(at.first).state(), shunt_region::state::State::MovingOut);
        assert!(is_filled(&meet(&mut here, &mut there, |there| receive(there, Semantics::SHARE, 3 * UNIT, false)), 5));
        here.progress().unwrap();
        assert_eq!(ours.value(at.first).state(), shunt_region::state::State::MovedOut);
        // Region caching: what was moved out is what the next message comes into.
        here.post(3 * UNIT, Semantics::EMULATED_MOVE).unwrap();
        let mut other = theirs.allocate(3 * UNIT).unwrap();
        fill(other.bytes_mut(), 6);
        meet(&mut here, &mut there, |there| {
            there.send_region(other, 3 * UNIT, Semantics::WEAK_MOVE).unwrap();
            there.drain().unwrap();
        });
        let (region, length) = here.posted().unwrap();
        assert_eq!((region.pointer(), length), (place, 3 * UNIT));
        assert!(is_filled(region.bytes(), 6));
    });
}

#[test]
fn what_is_pooled_is_bounded_and_what_waits_is_not_overtaken() {
    with_pair(|mut here, mut there, ours, theirs| {
        there.set_pooled(16 * UNIT);
        let long = [6, 5, 9, 1, 2].map(|units| units * UNIT);
        let (mut kept, mut tickets) = (vec![], vec![]);
        for (seed, length) in long.into_iter().enumerate() {
            let (region, ticket) = send(&mut here, ours, Semantics::SHARE, length, seed);
            kept.push(region);
            tickets.push(ticket);
        }
        let settle = |here: &mut Port<'_, Udp>, there: &mut Port<'_, Udp>| {
            for _ in 0..2000 {
                here.progress().unwrap();
                there.progress().unwrap();
                assert!(there.pooled() <= 16 * UNIT);
            }
        };
        settle(&mut here, &mut there);
        let gone = |here: &mut Port<'_, Udp>| tickets.iter().filter(|ticket| here.completed(**ticket).unwrap()).count();
        assert_eq!(gone(&mut here), 1, "beside the overlays that are kept, for one");
        assert_eq!(there.next_length(), Ok(6 * UNIT));
        // An input of the program's is not pooled.
        assert!(is_filled(&receive(&mut there, Semantics::EMULATED_COPY, 6 * UNIT, false), 0));
        assert!(is_filled(&meet(&mut here, &mut there, |there| receive(there, Semantics::EMULATED_SHARE, 5 * UNIT, false)), 1));
        // It is longer than what may be pooled at all.
        settle(&mut here, &mut there);
        assert_eq!((gone(&mut here), there.next_length()), (2, Ok(9 * UNIT)));
        assert_eq!(there.receive(&mut [0; 9], Semantics::SHARE), Err(Error::Length(9 * UNIT)));
        for (seed, length) in long.into_iter().enumerate().skip(2) {
            assert!(is_filled(
                &meet(&mut here, &mut there, |there| receive(there, Semantics::EMULATED_MOVE, length, false)),
                seed
            ));
        }
        assert_eq!(gone(&mut here), 5);
        drop(there);
        whole(theirs);
    });
}

#[test]
fn a_sender_waits_for_its_quota() {
    with_pair(|mut here, mut there, ours, _| {
        there.set_outboard();
        here.set_quota(4 * UNIT);
        let first = send(&mut here, ours, Semantics::EMULATED_SHARE, 3 * UNIT, 1);
        assert_eq!(here.queued(), (3 * UNIT, 1));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for seed in [1, 2] {
                    assert!(is_filled(&receive(&mut there, Semantics::COPY, 3 * UNIT, false), seed));
                }
                drop(there);
            });
            let second = send(&mut here, ours, Semantics::EMULATED_SHARE, 3 * UNIT, 2);
            assert!(here.queued().1 <= 1 && here.completed(first.1).unwrap());
            here.drain().unwrap();
            drop((first, second));
        });
    });
}

#[test]
fn inputs_that_are_posted_take_messages_in_order() {
    with_pair(|mut here, mut there, ours, theirs| {
        post(&mut there, theirs, Semantics::EMULATED_SHARE, 2 * UNIT);
        post(&mut there, theirs, Semantics::EMULATED_WEAK_MOVE, UNIT);
        assert_eq!(there.receive(&mut [0; 9], Semantics::COPY), Err(Error::Limit(Limit::State)));
        assert_eq!(there.take_back().unwrap_err(), Limit::State, "the peer was told");
        let sent: Vec<_> =
            [2 * UNIT, 10, 3 * UNIT].iter().map(|length| send(&mut here, ours, Semantics::COPY, *length, *length)).collect();
        assert!(is_filled(&meet(&mut here, &mut there, |there| receive(there, Semantics::SHARE, 0, true)), 2 * UNIT));
        assert!(is_filled(&meet(&mut here, &mut there, |there| receive(there, Semantics::SHARE, 0, true)), 10));
        assert_eq!(there.posted().unwrap_err(), Error::Limit(Limit::State));
        // Too short for what is announced: it is taken back, and the message stays.
        meet(&mut here, &mut there, |there| assert_eq!(there.next_length(), Ok(3 * UNIT)));
        post(&mut there, theirs, Semantics::COPY, UNIT);
        post(&mut there, theirs, Semantics::SHARE, 4 * UNIT);
        let behind = send(&mut here, ours, Semantics::SHARE, 4 * UNIT, 9);
        let too_long = meet(&mut here, &mut there, |there| there.posted().unwrap_err());
        assert_eq!(too_long, Error::Length(3 * UNIT));
        assert!(there.take_back().unwrap().is_some());
        assert_eq!(there.posted().unwrap_err(), Error::Limit(Limit::State));
        assert!(is_filled(&meet(&mut here, &mut there, |there| receive(there, Semantics::COPY, 3 * UNIT, false)), 3 * UNIT));
        assert!(is_filled(&meet(&mut here, &mut there, |there| receive(there, Semantics::SHARE, 0, true)), 9));
        drop((sent, behind));
    });
}

#[test]
fn private_memory_is_sent_and_received_and_more_than_the_pool_holds() {
    with_pair(|mut here, mut there, ours, _| {
        let length = 2 * ours.shape().bytes();
        let mut bytes = vec![0; length];
        fill(&mut bytes, 3);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(there.receive(&mut [0; 9], Semantics::COPY), Ok(5));
                assert!(is_filled(&receive(&mut there, Semantics::SHARE, length, false), 3));
                assert_eq!(there.receive(&mut [0; 9], Semantics::COPY), Err(Error::Gone));
            });
            here.send(b"short", Semantics::EMULATED_COPY).unwrap();
            assert_eq!(here.copied(Limit::Private), 1);
            here.send(&bytes, Semantics::COPY).unwrap();
            here.drain().unwrap();
            drop(here);
        });
    });
}

/// Bytes for a posted input are in it when they come, with weak integrity; with strong they are when it is complete.
#[test]
fn a_posted_input_is_filled_in_place_or_at_once() {
    for semantics in [Semantics::COPY, Semantics::EMULATED_COPY, Semantics::SHARE, Semantics::EMULATED_SHARE] {
        with_pair(|mut here, mut there, ours, theirs| {
            there.progress().unwrap();
            let region = theirs.allocate(2 * UNIT).unwrap();
            let (at, pooled) = (region.pointer(), there.pooled());
            there.post_region(region, 2 * UNIT, semantics).unwrap();
            let kept = send(&mut here, ours, Semantics::SHARE, 2 * UNIT, 3);
            meet(&mut here, &mut there, |there| {
                while there.semantics().is_none() {
                    there.progress().unwrap();
                }
            });
            assert_eq!((there.semantics(), there.pooled()), (Some(Semantics::SHARE), pooled));
            // SAFETY: two units of the pool's; nobody writes there now.
            let seen = is_filled(unsafe { core::slice::from_raw_parts(at, 2 * UNIT) }, 3);
            assert_eq!(seen, semantics.integrity == Integrity::Weak, "{}", semantics.name());
            let (region, length) = there.posted().unwrap();
            assert_eq!((region.pointer(), length), (at, 2 * UNIT));
            assert!(is_filled(region.bytes(), 3));
            drop(kept);
        });
    }
}

/// The alignment query's answer, and pages that are swapped: a window stays where it is, and has what an exact copy would have.
#[test]
fn pages_are_swapped_into_a_window() {
    let (a, b) = (udp(), udp());
    let theirs = Pool::create(Shape { unit: UNIT, units: 64 }, Pages::Small, Audience::Trusted).unwrap();
    let (mut for_a, mut for_b, ours) = (memory(&a), memory(&b), pool());
    let (mut here, mut there) = Port::pair((a, &mut for_a, &ours), (b, &mut for_b, &theirs)).unwrap();
    let alignment = there.alignment();
    assert_eq!((alignment.granularity, alignment.offset, alignment.preferred), (4096, 0, UNIT));
    assert_eq!(alignment.copy_below, usize::MAX, "ordinary pages are copied, unless the program says otherwise");
    there.set_swap_from(3000);
    let mut window = there.window(5 * UNIT).unwrap();
    assert!(there.alignment().suits(window.bytes().as_ptr() as usize));
    let place = window.bytes().as_ptr();
    window.bytes_mut().fill(0x33);
    let mut model = vec![0x33; 5 * UNIT];
    let semantics = [Semantics::COPY, Semantics::EMULATED_COPY, Semantics::SHARE, Semantics::EMULATED_SHARE];
    for (seed, length) in [10, 2999, 3000, 4096, 5000, 7000, UNIT, UNIT + 100, 5 * UNIT, 8192].into_iter().enumerate() {
        for semantics in semantics {
            let kept = send(&mut here, &ours, Semantics::SHARE, length, seed);
            // It is pooled: its input comes later.
            meet(&mut here, &mut there, |there| there.next_length().map(|_| ()).unwrap());
            let came = meet(&mut here, &mut there, |there| there.receive_into(&mut window, semantics));
            assert_eq!(came, Ok(length));
            fill(&mut model[..length], seed);
            assert!(window.bytes() == &model[..] && window.bytes().as_ptr() == place, "{length} by {}", semantics.name());
            drop(kept);
        }
    }
    assert_eq!(here.window(UNIT).err(), Some(Limit::Untrusted));
    drop((here, there));
    whole(&ours);
    assert_eq!(theirs.shape().units - theirs.free(), 6, "the pages of the last two messages");
    drop(window);
    whole(&theirs);
}

/// Pages that a port in shared memory has lent are not written by a port over a network.
#[test]
fn what_is_lent_to_a_window_is_kept_first() {
    let trusted = || Pool::create(Shape { unit: UNIT, units: 64 }, Pages::Small, Audience::Trusted).unwrap();
    let (a, b) = (udp(), udp());
    let (ours, theirs, from) = (pool(), trusted(), trusted());
    let (mut for_a, mut for_b) = (memory(&a), memory(&b));
    let (mut here, mut there) = Port::pair((a, &mut for_a, &ours), (b, &mut for_b, &theirs)).unwrap();
    let mut window = there.window(2 * UNIT).unwrap();
    let (mut sender, mut receiver) = shunt_buffers::port::Port::pair().unwrap();
    sender.trust();
    receiver.trust();
    receiver.set_swap_from(1);
    sender.offer(&from).unwrap();
    let mut region = from.allocate(2 * UNIT).unwrap();
    region.bytes_mut().fill(0x44);
    sender.send_region(region, 2 * UNIT, Semantics::EMULATED_WEAK_MOVE).unwrap();
    receiver.receive_into(&mut window).unwrap();
    assert!(window.is_lent());
    drop(sender);
    let mut all = from.allocate(64 * UNIT).unwrap();
    all.bytes_mut().fill(0x55);
    let kept = send(&mut here, &ours, Semantics::SHARE, UNIT, 3);
    assert_eq!(meet(&mut here, &mut there, |there| there.receive_into(&mut window, Semantics::SHARE)), Ok(UNIT));
    assert!(!window.is_lent() && is_filled(&window.bytes()[..UNIT], 3));
    assert!(all.bytes().iter().all(|byte| *byte == 0x55));
    drop(kept);
}

/// Where there are huge pages, they are swapped without being asked for.
#[test]
fn huge_pages_are_swapped_by_themselves() {
    const HUGE: usize = 2 << 20;
    let (a, b) = (udp(), udp());
    let shape = Shape { unit: UNIT, units: 16 * HUGE / UNIT };
    let theirs = Pool::create(shape, Pages::HugeIfPossible, Audience::Trusted).unwrap();
    let (mut for_a, mut for_b, ours) = (memory(&a), memory(&b), pool());
    let (mut here, mut there) = Port::pair((a, &mut for_a, &ours), (b, &mut for_b, &theirs)).unwrap();
    if !theirs.is_huge() {
        return println!("no huge pages here");
    }
    assert_eq!((there.alignment().granularity, there.alignment().copy_below), (HUGE, HUGE));
    ready(&mut here);
    let mut window = there.window(HUGE + 1).unwrap();
    let mut model = window.bytes().to_vec();
    assert!(model.len() == 2 * HUGE && window.bytes().as_ptr().addr().is_multiple_of(HUGE));
    for (seed, length) in [HUGE - 1, HUGE, HUGE + HUGE / 2 + 1, HUGE + 9].into_iter().enumerate() {
        let kept = send(&mut here, &ours, Semantics::SHARE, length, seed);
        meet(&mut here, &mut there, |there| there.next_length().map(|_| ()).unwrap());
        let came = meet(&mut here, &mut there, |there| there.receive_into(&mut window, Semantics::EMULATED_COPY));
        assert_eq!(came, Ok(length));
        fill(&mut model[..length], seed);
        assert!(window.bytes() == &model[..], "{length}");
        drop(kept);
    }
    drop((here, there));
    assert_eq!(theirs.shape().units - theirs.free(), 4, "a page each of the last two messages");
    drop(window);
    whole(&theirs);
}

struct Stranger;

impl Dispatch for Stranger {
    fn request(&mut self, _message: Message<'_>, _replier: Replier<'_>) {}
    fn reply(&mut self, _message: Message<'_>) {}
}

fn poll(port: &mut Port<'_, Udp>) {
    // SAFETY: the engine stays the port's.
    unsafe { port.raw() }.0.poll(&mut Stranger);
}

/// What no honest peer says ends the port; nothing of it reaches memory, and every buffer is its program's again.
#[test]
fn a_hostile_peer_is_refused() {
    const MARK: u64 = 1 << 63;
    let message = |length: u64, offset: u64| MARK | length << 32 | offset;
    let stores: [(u64, usize, u8, &[u64]); 9] = [
        (0, 10, 1, &[0, 0]),
        (message(10, 1), 9, 1, &[0, 0]),
        (message(10, 0), 11, 1, &[0, 0]),
        (message(5, 6), 0, 1, &[0, 0]),
        // Longer than may come unasked, and not announced.
        (message(1 << 20, 0), 100, 1, &[0, 0]),
        // Another number, another length, semantics and notices that do not exist.
        (message(10, 0), 10, 1, &[1, 0]),
        (message(10, 0), 9, 1, &[0, 0]),
        (message(10, 0), 10, 1, &[0, 8]),
        (message(10, 0), 10, 7, &[0, 0]),
    ];
    for (offset, count, handler, words) in stores {
        with_pair(|mut here, mut there, _, theirs| {
            let region = theirs.allocate(UNIT).unwrap();
            // A short message reaches the posted input, as it may; what is wrong with it shows at its end.
            there.post_region(region, 5, Semantics::EMULATED_SHARE).unwrap();
            // SAFETY: the engine stays the port's.
            let (messages, peer) = unsafe { here.raw() };
            messages.store(peer, &Store { offset, handler, words }, &vec![0xaa; count], &mut Stranger).unwrap();
            let error = loop {
                if let Err(error) = there.progress() {
                    break error;
                }
                poll(&mut here);
            };
            assert!(matches!(error, Error::Violation(_)), "{offset:x} {count}: {error:?}");
            assert!(matches!(there.posted(), Err(Error::Violation(_))));
            let region = there.take_back().unwrap().unwrap();
            assert!(region.bytes().iter().all(|byte| *byte == 0));
        });
    }
    for (handler, words) in [(2u8, &[0u64; 3][..]), (2, &[0, 1 << 40, 0, 0]), (3, &[0, 1 << 31]), (3, &[1 << 40, 9]), (9, &[])] {
        with_pair(|mut here, mut there, _, _| {
            // SAFETY: the engine stays the port's.
            let (messages, peer) = unsafe { here.raw() };
            messages.request(peer, handler, words, &[], &mut Stranger).unwrap();
            while there.progress().is_ok() {
                poll(&mut here);
            }
            assert!(matches!(there.send(b"x", Semantics::COPY), Err(Error::Violation(_))));
        });
    }
    // An honest message after all that: the checks are not what ends it.
    with_pair(|mut here, mut there, _, _| {
        there.progress().unwrap();
        // SAFETY: the engine stays the port's.
        let (messages, peer) = unsafe { here.raw() };
        let store = Store { offset: message(10, 0), handler: 1, words: &[0, 3] };
        assert!(!matches!(messages.store(peer, &store, &[7; 10], &mut Stranger), Err(Trouble::Refused(_))));
        assert_eq!(there.next_length(), Ok(10));
        assert_eq!(receive(&mut there, Semantics::MOVE, 10, false), [7; 10]);
    });
}

#[test]
fn who_speaks_of_something_else_is_refused() {
    use std::io::Write;
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;
    let refused = |bytes: &[u8]| {
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(bytes).unwrap();
        there.shutdown(std::net::Shutdown::Write).unwrap();
        let endpoint = udp();
        let mut memory = memory(&endpoint);
        Port::over(here.into_raw_fd(), endpoint, &mut memory, &pool()).err()
    };
    assert!(matches!(refused(&[b'x'; 64]), Some(Error::Violation(_))));
    // An address of no family, and a tag.
    let mut hello = [1u8; 64];
    hello[..8].copy_from_slice(b"shunt-n1");
    assert!(matches!(refused(&hello), Some(Error::Violation(_))));
    assert_eq!(refused(&hello[..63]), Some(Error::Gone));
    let endpoint = udp();
    let mut memory = memory(&endpoint);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = Port::over(silent.into_raw_fd(), endpoint, &mut memory, &pool()).err();
    assert!(matches!(error, Some(Error::System(errno)) if errno.0 == libc::ENOTCONN), "{error:?}");
}

#[test]
fn a_child_of_fork_has_no_port_and_says_no_farewell() {
    common::alone("a_child_of_fork_has_no_port_and_says_no_farewell", || {
        with_pair(|mut here, mut there, ours, _| {
            // SAFETY: the program has this thread.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let refused = here.send(b"x", Semantics::COPY) == Err(Error::Limit(Limit::Forked));
                drop(here);
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(!refused)) };
            }
            assert_eq!(shunt_sys::process::reap(child), Some(0));
            let sent = send(&mut here, ours, Semantics::EMULATED_COPY, 2 * UNIT, 1);
            assert!(is_filled(&meet(&mut here, &mut there, |there| receive(there, Semantics::COPY, 2 * UNIT, false)), 1));
            drop(sent);
        });
    });
}
