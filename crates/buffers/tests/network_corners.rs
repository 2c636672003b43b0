//! Ports over networks where they are full, small, exchanged, forked or polled.

mod common;
mod pairs;

use common::UNIT;
use pairs::between;
use shunt_am::{Dispatch, Message, Replier};
use shunt_buffers::port::network::{memory, NetworkPort as Port, UdpPort};
use shunt_buffers::port::Error;
use shunt_buffers::Semantics;
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_endpoint::Endpoint;
use shunt_region::{Audience, Limit, Pages, Pool, Shape};
use std::time::Duration;

fn udp() -> Udp {
    Udp::bind(&ipv4([127, 0, 0, 1], 0), Options::default()).unwrap()
}

fn pool_of(units: usize, audience: Audience) -> Pool {
    Pool::create(Shape { unit: UNIT, units }, Pages::Small, audience).unwrap()
}

fn with_pair(units: usize, test: impl FnOnce(Port<'_, Udp>, Port<'_, Udp>, &Pool, &Pool)) {
    between([udp(), udp()], units, test);
}

/// Drives both until nothing is under way any more.
fn settle(here: &mut Port<'_, Udp>, there: &mut Port<'_, Udp>) {
    for _ in 0..20_000 {
        let _ = here.progress();
        let _ = there.progress();
    }
}

struct Stranger;

impl Dispatch for Stranger {
    fn request(&mut self, _message: Message<'_>, _replier: Replier<'_>) {}
    fn reply(&mut self, _message: Message<'_>) {}
}

/// Two ports over UDP, whose frames the kernel joins.
fn two(ours: &Pool, theirs: &Pool) -> (UdpPort, UdpPort) {
    use std::os::fd::IntoRawFd;
    let (x, y) = std::os::unix::net::UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| UdpPort::over(y.into_raw_fd(), theirs).unwrap());
        (UdpPort::over(x.into_raw_fd(), ours).unwrap(), other.join().unwrap())
    })
}

/// What is behind the two values is exchanged: each engine's memory goes with it.
#[test]
fn ports_that_are_swapped_own_what_they_stand_on() {
    let (ours, theirs) = (common::pool(), common::pool());
    let (mut a, mut b) = two(&ours, &theirs);
    core::mem::swap(&mut *a, &mut *b);
    a.send(b"x", Semantics::COPY).unwrap();
    while a.queued() != (0, 0) {
        a.progress().unwrap();
        b.progress().unwrap();
    }
    drop(a);
    assert_eq!(b.receive(&mut [0], Semantics::COPY), Ok(1));
    assert_eq!(b.receive(&mut [0], Semantics::COPY), Err(Error::Gone));
}

/// In a child the kernel may give a window's place to another mapping, which is not the window's to read, or to unmap.
#[test]
fn a_child_of_fork_has_no_window() {
    let theirs = pool_of(64, Audience::Trusted);
    let (a, b, ours) = (udp(), udp(), common::pool());
    let (mut for_a, mut for_b) = (memory(&a), memory(&b));
    let (_here, there) = Port::pair((a, &mut for_a, &ours), (b, &mut for_b, &theirs)).unwrap();
    let window = there.window(5 * UNIT).unwrap();
    let place = window.bytes().as_ptr();
    // SAFETY: the child makes system calls, and drops the window, whose regions take no lock.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(place.cast_mut().cast(), 5 * UNIT, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            let taken = at.cast_const().cast() == place;
            let seen = window.bytes().len();
            drop(window);
            let mut resident = 0u8;
            let stays = libc::mincore(at, 4096, &mut resident) == 0;
            libc::_exit(if taken && stays && seen == 0 { 0 } else { 1 });
        }
        let mut status = 0;
        libc::waitpid(pid, &mut status, 0);
        assert_eq!(status, 0);
    }
    assert_eq!(window.bytes().len(), 5 * UNIT);
}

/// Two messages are told of overlays; an input that is posted then, and is too short for its message, takes no room from it.
#[test]
fn room_that_was_told_does_not_shrink() {
    with_pair(512, |mut here, mut there, ours, _| {
        let (first, second) = (ours.allocate(20 * UNIT).unwrap(), ours.allocate(16 * UNIT).unwrap());
        let pooled = there.pooled();
        here.send_shared(&first, 20 * UNIT, Semantics::EMULATED_SHARE).unwrap();
        here.send_shared(&second, 16 * UNIT, Semantics::EMULATED_SHARE).unwrap();
        while there.pooled() < pooled + 36 * UNIT {
            here.progress().unwrap();
            there.progress().unwrap();
        }
        there.post(20 * UNIT, Semantics::EMULATED_MOVE).unwrap();
        there.post(2 * UNIT, Semantics::EMULATED_MOVE).unwrap();
        settle(&mut here, &mut there);
        assert_eq!(here.queued(), (0, 0));
        assert_eq!(there.posted().unwrap().1, 20 * UNIT);
        assert_eq!(there.posted().map(|_| ()), Err(Error::Length(16 * UNIT)));
        assert!(there.take_back().unwrap().is_none());
        assert_eq!(there.receive_region(Semantics::EMULATED_MOVE).unwrap().1, 16 * UNIT);
    });
}

/// The word of room for a posted input may wait for credit; the input is promised all the same.
#[test]
fn an_input_whose_room_is_still_to_be_told_is_not_taken_back() {
    with_pair(512, |mut here, mut there, ours, _| {
        there.set_pooled(8 * UNIT);
        let region = ours.allocate(20 * UNIT).unwrap();
        here.send_shared(&region, 20 * UNIT, Semantics::EMULATED_SHARE).unwrap();
        settle(&mut here, &mut there);
        assert_eq!(there.next_length(), Ok(20 * UNIT));
        // Their notices are not acknowledged: no credit is left.
        for _ in 0..64 {
            there.send(b"x", Semantics::COPY).unwrap();
        }
        there.post(20 * UNIT, Semantics::EMULATED_MOVE).unwrap();
        assert_eq!(there.take_back().map(|_| ()), Err(Limit::State));
        settle(&mut here, &mut there);
        assert_eq!(there.posted().unwrap().1, 20 * UNIT);
    });
}

/// A send that waits, for its bytes to go or for its quota, says so when the peer goes meanwhile.
#[test]
fn a_send_that_waits_for_a_peer_that_goes_has_failed() {
    with_pair(64, |mut here, mut there, _, _| {
        let bytes = vec![1; 100 * UNIT];
        let sent = std::thread::scope(|scope| {
            let other = scope.spawn(|| here.send(&bytes, Semantics::COPY));
            assert_eq!(there.next_length(), Ok(100 * UNIT));
            drop(there);
            other.join().unwrap()
        });
        assert_eq!((sent, here.send(b"x", Semantics::COPY)), (Err(Error::Gone), Err(Error::Gone)));
    });
    with_pair(64, |mut here, mut there, ours, _| {
        there.set_outboard();
        here.set_quota(4 * UNIT);
        let region = ours.allocate(3 * UNIT).unwrap();
        here.send_shared(&region, 3 * UNIT, Semantics::SHARE).unwrap();
        let sent = std::thread::scope(|scope| {
            let other = scope.spawn(|| here.send_shared(&region, 3 * UNIT, Semantics::SHARE));
            // Most likely it waits by then; if not, it fails all the same.
            std::thread::sleep(Duration::from_millis(50));
            drop(there);
            other.join().unwrap()
        });
        assert_eq!(sent, Err(Error::Gone));
    });
}

/// What a program sets stays, whatever is sent next.
#[test]
fn a_policy_that_was_set_is_kept() {
    let (a, b, ours, theirs) = (udp(), udp(), common::pool(), common::pool());
    let (mut for_a, mut for_b) = (memory(&a), memory(&b));
    let (mut here, _there) = Port::pair((a, &mut for_a, &ours), (b, &mut for_b, &theirs)).unwrap();
    here.policy().tcow_from = 12345;
    let region = ours.allocate(UNIT).unwrap();
    here.send(region.bytes(), Semantics::EMULATED_COPY).unwrap();
    assert_eq!(here.policy().tcow_from, 12345);
}

/// The peer is told of nothing before the program has said how it receives.
#[test]
fn nothing_is_pooled_before_the_first_call() {
    with_pair(64, |mut here, mut there, _, theirs| {
        there.set_outboard();
        for _ in 0..20 {
            here.send(&[1; 60_000], Semantics::COPY).unwrap();
        }
        settle(&mut here, &mut there);
        assert_eq!((here.queued(), there.semantics()), ((20 * 60_000, 20), None));
        assert_eq!((there.pooled(), theirs.free()), (0, 64));
    });
    with_pair(64, |mut here, mut there, _, _| {
        there.set_pooled(0);
        here.send(b"x", Semantics::COPY).unwrap();
        settle(&mut here, &mut there);
        assert_eq!((here.queued(), there.pooled()), ((1, 1), 0));
    });
}

/// A message that is here is taken over, whatever else the pool has no room for; with strong integrity or not, by a posted input or not.
#[test]
fn a_message_that_is_here_needs_no_second_region() {
    for semantics in [Semantics::MOVE, Semantics::EMULATED_MOVE, Semantics::WEAK_MOVE, Semantics::EMULATED_WEAK_MOVE] {
        for posted in [false, true] {
            with_pair(64, |mut here, mut there, ours, theirs| {
                there.progress().unwrap();
                if posted {
                    there.post(20 * UNIT, semantics).unwrap();
                }
                let mut region = ours.allocate(20 * UNIT).unwrap();
                region.bytes_mut().fill(3);
                here.send_region(region, 20 * UNIT, Semantics::EMULATED_MOVE).unwrap();
                while there.semantics().is_none() {
                    here.progress().unwrap();
                    there.progress().unwrap();
                }
                let mut rest = vec![];
                while let Ok(region) = theirs.allocate(UNIT) {
                    rest.push(region);
                }
                let (region, length) = match posted {
                    true => there.posted().unwrap(),
                    false => there.receive_region(semantics).unwrap(),
                };
                assert!(length == 20 * UNIT && region.bytes()[..length].iter().all(|byte| *byte == 3), "{}", semantics.name());
            });
        }
    }
}

/// A region that the system chooses has nothing of others behind the message.
#[test]
fn behind_a_message_are_zeros() {
    for semantics in [Semantics::MOVE, Semantics::EMULATED_MOVE, Semantics::WEAK_MOVE, Semantics::EMULATED_WEAK_MOVE] {
        for posted in [false, true] {
            with_pair(64, |mut here, mut there, _, theirs| {
                let mut poisoned = vec![];
                while let Ok(mut region) = theirs.allocate(UNIT) {
                    region.bytes_mut().fill(0xee);
                    poisoned.push(region);
                }
                drop(poisoned);
                if posted {
                    there.post(2 * UNIT, semantics).unwrap();
                }
                here.send(b"ten bytes.", Semantics::COPY).unwrap();
                settle(&mut here, &mut there);
                let (region, length) = match posted {
                    true => there.posted().unwrap(),
                    false => there.receive_region(semantics).unwrap(),
                };
                assert_eq!(&region.bytes()[..length], b"ten bytes.");
                assert!(region.bytes()[length..].iter().all(|byte| *byte == 0), "{}, {posted}", semantics.name());
            });
        }
    }
}

/// An input that is taken back when the peer has gone has its message with it: nothing is left to be received.
#[test]
fn an_input_with_a_message_is_taken_back_from_a_peer_that_is_gone() {
    with_pair(64, |mut here, mut there, _, _| {
        there.post(100, Semantics::EMULATED_MOVE).unwrap();
        here.send(b"x", Semantics::COPY).unwrap();
        settle(&mut here, &mut there);
        assert_eq!(there.take_back().map(|_| ()), Err(Limit::State));
        drop(here);
        assert_eq!(there.drain(), Ok(()));
        while there.send(b"x", Semantics::COPY) != Err(Error::Gone) {}
        assert!(there.take_back().unwrap().is_none());
        assert_eq!(there.receive_region(Semantics::EMULATED_MOVE).map(|_| ()), Err(Error::Gone));
    });
}

/// Words alone have no more than half of the pool.
#[test]
fn announcements_leave_half_of_the_pool() {
    with_pair(64, |mut here, mut there, _, theirs| {
        for number in 0..60u64 {
            // SAFETY: the engine stays the port's.
            let (messages, peer) = unsafe { here.raw() };
            messages.request(peer, 3, &[number, UNIT as u64], &[], &mut Stranger).unwrap();
            there.progress().unwrap();
            messages.poll(&mut Stranger);
        }
        for _ in 0..20_000 {
            there.progress().unwrap();
            // SAFETY: as above.
            unsafe { here.raw() }.0.poll(&mut Stranger);
        }
        assert_eq!((there.next_length(), theirs.free(), there.pooled()), (Ok(UNIT), 32, 32 * UNIT));
    });
}

/// A receive by basic share leaves the program's own locks, and needs none.
#[test]
fn memory_that_the_program_locked_stays_locked() {
    fn locked() -> String {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        status.lines().find(|line| line.starts_with("VmLck")).unwrap().to_string()
    }
    common::alone("memory_that_the_program_locked_stays_locked", || {
        with_pair(64, |mut here, mut there, _, _| {
            let mut own = vec![0u8; 1 << 20];
            // SAFETY: the buffer's own pages.
            assert_eq!(unsafe { libc::mlock(own.as_ptr().cast(), own.len()) }, 0);
            let before = locked();
            let mut long = vec![0u8; 64 << 20];
            for room in [&mut own, &mut long] {
                here.send(b"x", Semantics::COPY).unwrap();
                settle(&mut here, &mut there);
                assert_eq!(there.receive(room, Semantics::SHARE), Ok(1));
                assert_eq!(locked(), before);
            }
        });
    });
}

/// A program that sleeps in poll(2) has nothing left in the port that the descriptor does not tell of.
#[test]
fn progress_takes_all_that_is_here() {
    let (ours, theirs) = (common::pool(), common::pool());
    let (mut here, mut there) = two(&ours, &theirs);
    settle(&mut here, &mut there);
    for _ in 0..4 {
        there.send(&[1; 30_000], Semantics::COPY).unwrap();
    }
    // Nothing had come for a while, and now many frames are there.
    here.progress().unwrap();
    assert!(here.endpoint().arm(), "frames that were taken from the kernel");
    settle(&mut here, &mut there);
    for _ in 0..4 {
        assert_eq!(here.receive(&mut [0; 30_000], Semantics::COPY), Ok(30_000));
    }
}

/// A message that is announced is a message; it is whole when no call waits for it any more.
#[test]
fn a_message_is_whole_when_all_of_it_is_here() {
    with_pair(64, |mut here, mut there, ours, _| {
        there.set_pooled(0);
        let region = ours.allocate(3 * UNIT).unwrap();
        here.send_shared(&region, 3 * UNIT, Semantics::EMULATED_SHARE).unwrap();
        settle(&mut here, &mut there);
        assert_eq!((there.has_message(), there.has_whole_message()), (Ok(true), Ok(false)));
        there.post(3 * UNIT, Semantics::EMULATED_MOVE).unwrap();
        settle(&mut here, &mut there);
        assert_eq!(there.has_whole_message(), Ok(true));
        assert_eq!(there.posted().unwrap().1, 3 * UNIT);
    });
}

/// Copies have at most half of the pool: what is beyond waits with the caller's bytes, and leaves room for what comes.
#[test]
fn copies_have_half_of_the_pool() {
    use shunt_buffers::port::AT_ONCE;
    with_pair(64, |mut here, mut there, ours, _| {
        let bytes = vec![1; 40 * UNIT];
        std::thread::scope(|scope| {
            scope.spawn(move || {
                assert_eq!(there.receive(&mut vec![0; 40 * UNIT], Semantics::COPY), Ok(40 * UNIT));
                assert_eq!(there.receive(&mut vec![0; 20 * UNIT], Semantics::COPY), Ok(20 * UNIT));
            });
            assert_eq!(here.send(&bytes, Semantics::COPY), Ok(AT_ONCE));
            assert_ne!(here.send(&bytes[..20 * UNIT], Semantics::COPY), Ok(AT_ONCE));
            here.drain().unwrap();
            assert_eq!(ours.free(), 64 - 8);
        });
    });
}

/// What is written into the connection beside would hide its end.
#[test]
fn who_writes_into_the_connection_is_refused() {
    use std::io::Write;
    use std::os::fd::IntoRawFd;
    let (x, y) = std::os::unix::net::UnixStream::pair().unwrap();
    let (ours, theirs, mut again) = (common::pool(), common::pool(), y.try_clone().unwrap());
    let (mut here, mut there) = std::thread::scope(|scope| {
        let other = scope.spawn(|| UdpPort::over(y.into_raw_fd(), &theirs).unwrap());
        (UdpPort::over(x.into_raw_fd(), &ours).unwrap(), other.join().unwrap())
    });
    again.write_all(b"x").unwrap();
    let error = loop {
        there.progress().unwrap();
        if let Err(error) = here.progress() {
            break error;
        }
    };
    assert!(matches!(error, Error::Violation(_)), "{error:?}");
}
