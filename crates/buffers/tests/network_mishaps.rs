//! Ports over networks when something goes wrong in the middle: a panic in a call that waits, more frames than one call takes, memory that
//! cannot be touched, and what two outputs of one region both want.

mod common;
mod pairs;

use common::UNIT;
use pairs::{between, fill, is_filled};
use shunt_buffers::port::network::NetworkPort as Port;
use shunt_buffers::port::Error;
use shunt_buffers::Semantics;
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_endpoint::{
    Address, Area, Arrival, Backlog, Capabilities, Channel, Counters, Endpoint, Message, OpenError, PostError, Segment,
    SendError, Tag, Tags, Ticket,
};
use shunt_region::Pool;
use shunt_sys::{calls, Errno};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// What is to go wrong.
#[derive(Default)]
struct Orders {
    /// Looks for a frame until one panics; 0: none does.
    panics: AtomicU32,
    /// Frames of nobody's that are here.
    frames: AtomicU32,
    /// Frames that are lost.
    loses: AtomicU32,
}

/// An endpoint that does so.
struct Odd {
    inner: Udp,
    orders: Arc<Orders>,
}

fn odd() -> (Odd, Arc<Orders>) {
    let orders = Arc::new(Orders::default());
    (Odd { inner: Udp::bind(&ipv4([127, 0, 0, 1], 0), Options::default()).unwrap(), orders: orders.clone() }, orders)
}

fn less(word: &AtomicU32) -> u32 {
    word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |value| value.checked_sub(1)).unwrap_or(0)
}

impl Endpoint for Odd {
    fn receive(&mut self, arrival: &mut Arrival) -> bool {
        assert_ne!(less(&self.orders.panics), 1, "as ordered");
        if less(&self.orders.frames) > 0 {
            *arrival = Arrival::empty();
            return true;
        }
        let came = self.inner.receive(arrival);
        if came && less(&self.orders.loses) > 0 {
            self.inner.release(arrival);
            *arrival = Arrival::empty();
            return false;
        }
        came
    }
    fn release(&mut self, arrival: &mut Arrival) {
        if !arrival.buffers().is_empty() {
            self.inner.release(arrival);
        }
    }
    fn arm(&mut self) -> bool {
        self.orders.frames.load(Ordering::SeqCst) == 0 && self.inner.arm()
    }
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }
    fn segment(&self) -> Segment {
        self.inner.segment()
    }
    fn address(&self) -> Address {
        self.inner.address()
    }
    fn new_tag(&mut self) -> Result<Tag, Errno> {
        self.inner.new_tag()
    }
    fn open(&mut self, remote: &Address, tags: Tags) -> Result<Channel, OpenError> {
        self.inner.open(remote, tags)
    }
    fn close(&mut self, channel: Channel) {
        self.inner.close(channel);
    }
    fn send(&mut self, message: &Message<'_>) -> Result<Ticket, SendError> {
        self.inner.send(message)
    }
    fn flush(&mut self) -> Result<bool, SendError> {
        self.inner.flush()
    }
    fn injected(&mut self) -> Ticket {
        self.inner.injected()
    }
    fn post(&mut self, buffer: Area) -> Result<(), PostError> {
        self.inner.post(buffer)
    }
    fn backlog(&mut self) -> Backlog {
        self.inner.backlog()
    }
    fn descriptor(&self) -> i32 {
        self.inner.descriptor()
    }
    fn disarm(&mut self) {
        self.inner.disarm();
    }
    fn counters(&self) -> &Counters {
        self.inner.counters()
    }
}

fn with_pair(test: impl FnOnce(Port<'_, Odd>, Port<'_, Odd>, [Arc<Orders>; 2], &Pool, &Pool)) {
    let ((a, for_here), (b, for_there)) = (odd(), odd());
    between([a, b], 64, |here, there, ours, theirs| test(here, there, [for_here, for_there], ours, theirs));
}

fn settle(here: &mut Port<'_, Odd>, there: &mut Port<'_, Odd>) {
    for _ in 0..5000 {
        let _ = here.progress();
        let _ = there.progress();
    }
}

/// A program that catches a panic has its memory to itself afterwards: nothing is read from there, or written.
#[test]
fn a_panic_in_a_call_that_waits_ends_what_it_lent() {
    with_pair(|mut here, mut there, [orders, _], _, _| {
        // Longer than half of the pool: it stays the caller's.
        let mut bytes = vec![1; 40 * UNIT];
        orders.panics.store(100, Ordering::SeqCst);
        catch_unwind(AssertUnwindSafe(|| here.send(&bytes, Semantics::COPY))).unwrap_err();
        assert_eq!(here.queued(), (0, 0), "nothing of it is under way");
        bytes.fill(2);
        settle(&mut here, &mut there);
        assert_eq!(here.send(b"x", Semantics::COPY), Err(Error::Gone));
        assert_eq!(there.receive_region(Semantics::MOVE).map(|_| ()), Err(Error::Gone));
    });
    with_pair(|mut here, mut there, [_, orders], ours, _| {
        let mut buffer = vec![0; 3 * UNIT];
        let mut region = ours.allocate(3 * UNIT).unwrap();
        region.bytes_mut().fill(1);
        here.progress().unwrap();
        orders.panics.store(100, Ordering::SeqCst);
        catch_unwind(AssertUnwindSafe(|| there.receive(&mut buffer, Semantics::SHARE))).unwrap_err();
        let _ = here.send_shared(&region, 3 * UNIT, Semantics::SHARE);
        settle(&mut here, &mut there);
        assert!(buffer.iter().all(|byte| *byte == 0), "the peer had been told of it");
        assert_eq!(there.receive(&mut buffer, Semantics::SHARE), Err(Error::Gone));
        assert_eq!(here.send(b"x", Semantics::COPY), Err(Error::Gone), "it is no violation");
    });
    // A call that lends nothing is only a call that did not end.
    with_pair(|mut here, mut there, [_, orders], _, _| {
        orders.panics.store(100, Ordering::SeqCst);
        catch_unwind(AssertUnwindSafe(|| there.next_length())).unwrap_err();
        here.send(b"x", Semantics::COPY).unwrap();
        settle(&mut here, &mut there);
        assert_eq!(there.receive(&mut [0], Semantics::COPY), Ok(1));
    });
}

/// Who sleeps when [`Port::progress`] has said that no more is here leaves nothing that the descriptor does not tell of.
#[test]
fn more_than_one_call_takes_is_told() {
    with_pair(|mut here, mut there, [orders, _], _, _| {
        for frames in [0, 1, 511, 512, 513, 5000] {
            orders.frames.store(frames, Ordering::SeqCst);
            there.send(b"x", Semantics::COPY).unwrap();
            let mut calls = 1;
            while here.progress().unwrap() {
                calls += 1;
            }
            assert!(here.endpoint().arm(), "{frames}");
            // The engine takes 64 at a time.
            assert!(frames < 8 * 64 || calls > 1, "{frames}");
            while here.receive(&mut [0], Semantics::COPY) != Ok(1) {}
        }
        settle(&mut here, &mut there);
    });
}

/// A program that calls [`Port::progress`] some times in a second sends what was lost again: timers do not wait for many calls.
#[test]
fn what_was_lost_is_sent_again_in_a_few_calls() {
    with_pair(|mut here, mut there, [_, orders], _, _| {
        settle(&mut here, &mut there);
        orders.loses.store(1, Ordering::SeqCst);
        here.send(b"x", Semantics::COPY).unwrap();
        let mut calls = 0;
        while !there.has_whole_message().unwrap() {
            std::thread::sleep(std::time::Duration::from_millis(100));
            here.progress().unwrap();
            calls += 1;
            assert!(calls < 20, "{calls}");
        }
        assert_eq!(orders.loses.load(Ordering::SeqCst), 0);
        settle(&mut here, &mut there);
    });
}

/// The copy of an output cannot be made memory of: its region is free all the same, and the message goes from where it lies.
#[test]
fn a_copy_that_cannot_be_touched_leaves_nothing() {
    with_pair(|mut here, mut there, _, ours, _| {
        let mut free = vec![];
        while let Ok(region) = ours.allocate(UNIT) {
            free.push(region);
        }
        let behind = |region: &shunt_region::Region| region.pointer().wrapping_add(4096);
        free.iter().for_each(|region| calls::mprotect(behind(region), UNIT - 4096, 0).unwrap());
        let places: Vec<_> = free.iter().map(behind).collect();
        drop(free);
        let before = ours.free();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = [0; 100];
                assert!(there.receive(&mut buffer, Semantics::COPY) == Ok(100) && is_filled(&buffer, 4));
                drop(there);
            });
            let mut bytes = [0; 100];
            fill(&mut bytes, 4);
            here.send(&bytes, Semantics::COPY).unwrap();
            assert_eq!(ours.free(), before);
            let _ = here.drain();
        });
        places.into_iter().for_each(|place| calls::mprotect(place, UNIT - 4096, 3).unwrap());
    });
}

/// Each of two outputs wants the region's pages to stay in memory: they do until both have ended.
#[test]
fn a_region_stays_locked_as_long_as_an_output_wants_it() {
    fn locked() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmLck")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
    common::alone("a_region_stays_locked_as_long_as_an_output_wants_it", || {
        with_pair(|mut here, mut there, _, ours, _| {
            there.set_outboard();
            let region = ours.allocate(2 * UNIT).unwrap();
            let first = here.send_shared(&region, 2 * UNIT, Semantics::SHARE).unwrap();
            let second = here.send_shared(&region, 2 * UNIT, Semantics::SHARE).unwrap();
            assert_eq!(locked(), 2 * UNIT / 1024);
            let mut receives = || {
                let done = std::sync::atomic::AtomicBool::new(false);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        assert_eq!(there.receive(&mut vec![0; 2 * UNIT], Semantics::COPY), Ok(2 * UNIT));
                        done.store(true, Ordering::SeqCst);
                    });
                    while !done.load(Ordering::SeqCst) {
                        here.progress().unwrap();
                    }
                });
                (here.completed(first).unwrap(), here.completed(second).unwrap(), locked())
            };
            assert_eq!(receives(), (true, false, 2 * UNIT / 1024), "the second is under way");
            assert_eq!(receives(), (true, true, 0));
        });
    });
}
