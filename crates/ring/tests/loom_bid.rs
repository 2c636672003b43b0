//! A bid, two processes that accept, and a client that waits no longer, in every order that the memory model allows:
//! RUSTFLAGS="--cfg loom" cargo test --release --test loom_bid
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering;
use loom::sync::Arc;
use loom::thread;
use shunt_ring::bid;
use shunt_segment::bid::Bid;
use shunt_segment::channel::{release, Side};

struct Link {
    bid: Bid,
    sides: [[Side; 2]; 2],
    /// What is written in a channel's page by whoever has it.
    pages: [UnsafeCell<u32>; 2],
}

impl Link {
    fn idle() -> Arc<Link> {
        let link = Link {
            bid: Bid::new(),
            sides: core::array::from_fn(|_| [Side::new(), Side::new()]),
            pages: core::array::from_fn(|_| UnsafeCell::new(0)),
        };
        for side in link.sides.iter().flatten() {
            side.released.store(release::KEPT, Ordering::Relaxed);
        }
        Arc::new(link)
    }

    fn write(&self, channel: usize) {
        self.pages[channel].with_mut(|page| unsafe { *page += 1 });
    }

    /// The process that has the other end of `channel`'s pair accepts.
    fn accept(&self, channel: usize) -> bool {
        let Some(word) = bid::look(&self.bid) else { return false };
        if word & 1 << channel == 0 || !bid::claim(&self.sides[channel]) {
            return false;
        }
        self.write(channel);
        self.sides[channel][0].released.store(release::NOT, Ordering::Relaxed);
        let taken = bid::take(&self.bid, word, channel);
        if !taken {
            bid::give_back(&self.sides[channel]);
        }
        taken
    }

    /// The client lends `channel` to a connection through the kernel, if it may.
    fn lend(&self, channel: usize) -> bool {
        let free = self.sides[channel].iter().all(|side| side.released.load(Ordering::Acquire) != release::NOT);
        let lent = free && bid::withhold(&self.sides[channel][1]);
        if lent {
            self.write(channel);
        }
        lent
    }
}

#[test]
fn one_of_two_acceptors_has_it_or_the_client_keeps_it() {
    loom::model(|| {
        let link = Link::idle();
        let word = bid::open(&link.bid, 0b11, 0);
        let acceptors = [0, 1].map(|channel| {
            let link = link.clone();
            thread::spawn(move || link.accept(channel))
        });
        let given = bid::close(&link.bid, word);
        match given {
            Some(channel) => link.write(channel),
            None => {
                link.lend(0);
            }
        }
        let accepted = acceptors.map(|acceptor| acceptor.join().unwrap());
        assert_eq!(accepted, [given == Some(0), given == Some(1)]);
    });
}

#[test]
fn an_acceptor_that_is_late_takes_no_other_bid_for_the_one_that_it_saw() {
    loom::model(|| {
        let link = Link::idle();
        let word = bid::open(&link.bid, 0b1, 0);
        let acceptor = {
            let link = link.clone();
            thread::spawn(move || link.accept(0))
        };
        let mut given = [bid::close(&link.bid, word), None];
        if given[0].is_none() {
            link.lend(0);
            let word = bid::open(&link.bid, 0b10, 0);
            given[1] = bid::close(&link.bid, word);
        }
        assert_eq!(acceptor.join().unwrap(), given[0].is_some());
        assert_eq!(given[1], None);
    });
}

#[test]
fn an_acceptor_that_is_late_touches_no_connection_that_another_has_closed() {
    loom::model(|| {
        let link = Link::idle();
        let word = bid::open(&link.bid, 0b1, 0);
        let acceptor = {
            let link = link.clone();
            thread::spawn(move || link.accept(0))
        };
        let given = bid::close(&link.bid, word);
        if given.is_none() && link.lend(0) {
            let sides = &link.sides[0];
            sides.iter().for_each(|side| side.released.store(release::NOT, Ordering::Relaxed));
            sides[1].released.store(release::KEPT, Ordering::Release);
            link.write(0);
            sides[0].released.store(release::KEPT, Ordering::Release);
        }
        assert_eq!(acceptor.join().unwrap(), given.is_some());
    });
}
