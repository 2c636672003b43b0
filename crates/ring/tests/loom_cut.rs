//! A stream that goes back to TCP while both ends send, in every order that the memory model allows: no byte stays in a ring, and none goes there behind the
//! move. RUSTFLAGS="--cfg loom" cargo test --release --test loom_cut
#![cfg(loom)]

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::Arc;
use loom::thread;
use shunt_ring::cut;
use shunt_segment::channel::Head;

/// A channel: of each side, how many bytes it has put into its ring, how many the other has taken, and how many it has written into TCP.
struct Channel {
    head: Head,
    sent: [AtomicUsize; 2],
    taken: [AtomicUsize; 2],
    by_tcp: [AtomicUsize; 2],
}

impl Channel {
    fn new() -> Arc<Channel> {
        let counts = || [AtomicUsize::new(0), AtomicUsize::new(0)];
        Arc::new(Channel { head: Head::new(), sent: counts(), taken: counts(), by_tcp: counts() })
    }

    /// One byte of side `side`; its lock is the thread's own.
    fn send(&self, side: usize) {
        match cut::thaw(&self.head, side) {
            true => self.sent[side].fetch_add(1, Ordering::Release),
            false => self.by_tcp[side].fetch_add(1, Ordering::Relaxed),
        };
    }

    /// Side `side` takes what has come.
    fn take(&self, side: usize) {
        let sent = self.sent[1 - side].load(Ordering::Acquire);
        self.taken[1 - side].store(sent, Ordering::Release);
    }

    fn freeze(&self, side: usize) {
        let all_taken = self.sent[side].load(Ordering::Relaxed) == self.taken[side].load(Ordering::Acquire);
        if all_taken && cut::freeze(&self.head, side) {
            self.look_when_moved();
        }
    }

    fn look_when_moved(&self) {
        for side in 0..2 {
            assert_eq!(
                self.sent[side].load(Ordering::Acquire),
                self.taken[side].load(Ordering::Acquire),
                "a byte stays in a ring"
            );
        }
    }

    /// What each side may do once more.
    fn side(&self, side: usize) {
        self.send(side);
        self.take(side);
        self.freeze(side);
        self.send(side);
        self.take(side);
        self.freeze(side);
    }
}

#[test]
fn no_byte_is_left_in_a_ring() {
    loom::model(|| {
        let channel = Channel::new();
        cut::ask(&channel.head).unwrap();
        let other = {
            let channel = channel.clone();
            thread::spawn(move || channel.side(1))
        };
        channel.side(0);
        other.join().unwrap();
        if cut::has_moved(&channel.head) {
            channel.look_when_moved();
        } else {
            let by_tcp: usize = channel.by_tcp.iter().map(|count| count.load(Ordering::Relaxed)).sum();
            assert_eq!(by_tcp, 0, "a byte went by TCP, and the stream did not move");
        }
    });
}

#[test]
fn a_request_that_is_taken_back_moves_nothing() {
    loom::model(|| {
        let channel = Channel::new();
        cut::ask(&channel.head).unwrap();
        let other = {
            let channel = channel.clone();
            thread::spawn(move || channel.freeze(1))
        };
        let tool = {
            let channel = channel.clone();
            thread::spawn(move || cut::take_back(&channel.head))
        };
        channel.freeze(0);
        channel.send(0);
        other.join().unwrap();
        let is_taken_back = tool.join().unwrap();
        assert_ne!(is_taken_back, cut::has_moved(&channel.head));
        assert_eq!(is_taken_back, channel.by_tcp[0].load(Ordering::Relaxed) == 0);
    });
}
