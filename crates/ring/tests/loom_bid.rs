//! A bid, two processes that accept, and a client that waits no longer, in every order that the memory model allows:
//! RUSTFLAGS="--cfg loom" cargo test --release --test loom_bid
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering;
use loom::sync::Arc;
use loom::thread;
use shunt_ring::bid::{self, Closed};
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
            Closed::Taken(channel) => link.write(channel),
            _ => {
                link.lend(0);
            }
        }
        let accepted = acceptors.map(|acceptor| acceptor.join().unwrap());
        assert_eq!(accepted, [0, 1].map(|channel| given == Closed::Taken(channel)));
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
        let mut given = [bid::close(&link.bid, word), Closed::InVain];
        if given[0] == Closed::InVain {
            link.lend(0);
            let word = bid::open(&link.bid, 0b10, 0);
            given[1] = bid::close(&link.bid, word);
        }
        assert_eq!(acceptor.join().unwrap(), given[0] == Closed::Taken(0));
        assert_eq!(given[1], Closed::InVain);
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
        if given == Closed::InVain && link.lend(0) {
            let sides = &link.sides[0];
            sides.iter().for_each(|side| side.released.store(release::NOT, Ordering::Relaxed));
            sides[1].released.store(release::KEPT, Ordering::Release);
            link.write(0);
            sides[0].released.store(release::KEPT, Ordering::Release);
        }
        assert_eq!(acceptor.join().unwrap(), given == Closed::Taken(0));
    });
}

#[test]
fn who_was_told_of_a_client_finds_it_here_or_hears_where_it_is() {
    loom::model(|| {
        let link = Link::idle();
        let word = bid::open(&link.bid, 0b1, 0);
        let acceptor = {
            let link = link.clone();
            thread::spawn(move || {
                let Some(word) = bid::look(&link.bid) else { return (false, false, false) };
                let told = bid::tell(&link.bid, word);
                let accepted = told && link.accept(0);
                // What the client did before it said that it has arrived is seen.
                let number = bid::number(word);
                let gone = !accepted && bid::look(&link.bid).is_none() && !bid::is_coming(&link.bid, number);
                if told && gone {
                    link.pages[1].with(|page| assert_eq!(unsafe { *page }, 1));
                }
                (told, accepted, gone)
            })
        };
        let closed = bid::close(&link.bid, word);
        if closed == Closed::Told {
            link.write(1); // it connects
            bid::arrived(&link.bid);
        }
        let (told, accepted, _) = acceptor.join().unwrap();
        assert_eq!(accepted, closed == Closed::Taken(0));
        assert_eq!(told && !accepted, closed == Closed::Told);
    });
}

#[test]
fn of_two_acceptors_one_tells_its_program_and_either_may_take_it() {
    loom::model(|| {
        let link = Link::idle();
        let word = bid::open(&link.bid, 0b11, 0);
        let acceptors = [0, 1].map(|channel| {
            let link = link.clone();
            thread::spawn(move || {
                let told = bid::look(&link.bid).is_some_and(|word| bid::tell(&link.bid, word));
                (told, link.accept(channel))
            })
        });
        let accepted = acceptors.map(|acceptor| acceptor.join().unwrap());
        assert!(!(accepted[0].0 && accepted[1].0));
        let given = bid::close(&link.bid, word);
        assert_eq!(accepted.map(|(_, accepts)| accepts), [0, 1].map(|channel| given == Closed::Taken(channel)));
    });
}
