//! An offer that is taken back, and its channel offered to another connection, while a server takes it, in every order that the
//! memory model allows: RUSTFLAGS="--cfg loom" cargo test --release --test loom_claim
#![cfg(loom)]

use loom::sync::atomic::Ordering;
use loom::sync::Arc;
use loom::thread;
use shunt_ring::claim;
use shunt_segment::channel::{life, Head};

const FIRST: u32 = 1;

/// A channel whose first connection, with a companion of its own, is over.
fn lent() -> Arc<Head> {
    let head = Arc::new(Head::new());
    assert_eq!(claim::renew(&head), FIRST);
    head
}

fn offer(head: &Head) {
    head.state.store(life::OFFERED, Ordering::Release);
}

/// The client takes its offer back, and offers the channel to a connection with a new companion. False: it was accepted.
fn changes_its_mind(head: &Head) -> bool {
    let taken_back = claim::take_back(head);
    if taken_back {
        claim::renew(head);
        offer(head);
    }
    taken_back
}

#[test]
fn a_kept_companion_serves_no_other_connection() {
    loom::model(|| {
        let head = lent();
        head.generation.fetch_add(1, Ordering::Relaxed);
        offer(&head);
        let client = {
            let head = head.clone();
            thread::spawn(move || changes_its_mind(&head))
        };
        let accepted = claim::on_kept(&head).is_some_and(|generation| claim::accept(&head, generation));
        let taken_back = client.join().unwrap();
        assert!(!(accepted && taken_back), "the old companion was given to the new connection");
        // What was put back can be accepted by those who mean it.
        assert!(!taken_back || claim::accept(&head, FIRST + 2));
    });
}

#[test]
fn an_arrival_is_accepted_as_what_it_came_as() {
    loom::model(|| {
        let head = lent();
        offer(&head);
        let client = {
            let head = head.clone();
            thread::spawn(move || changes_its_mind(&head))
        };
        let accepted = claim::is_offered(&head, FIRST) && claim::accept(&head, FIRST);
        let taken_back = client.join().unwrap();
        assert!(!(accepted && taken_back), "the companion of the first connection was given to the second");
        assert!(!taken_back || claim::accept(&head, FIRST + 1));
    });
}
