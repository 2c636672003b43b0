//! Three processes' ports: the middle one does not read what it passes on.

mod common;

use common::{pool, UNIT};
use shunt_buffers::costs::Costs;
use shunt_buffers::port::{Error, Port};
use shunt_buffers::Semantics;
use shunt_region::{Limit, Pool};

/// first -> middle, middle -> last.
fn chain() -> (Port, Pool, [Port; 2], Port) {
    let (mut first, inward) = Port::pair().unwrap();
    let (outward, last) = Port::pair().unwrap();
    first.set_costs(Costs::USUAL);
    let pool = pool();
    first.offer(&pool).unwrap();
    (first, pool, [inward, outward], last)
}

fn sent(first: &mut Port, pool: &Pool, fill: u8) {
    let mut region = pool.allocate(3 * UNIT).unwrap();
    region.bytes_mut().fill(fill);
    first.send_region(region, 3 * UNIT, Semantics::EMULATED_WEAK_MOVE).unwrap();
}

#[test]
fn what_is_passed_on_is_read_in_the_first_process_and_comes_back() {
    let (mut first, pool, [mut inward, mut outward], mut last) = chain();
    // A pool of the middle's own in between: numbers are the order of passing.
    let own = common::pool();
    outward.set_costs(Costs::USUAL);
    outward.offer(&own).unwrap();
    for turn in 0..5u8 {
        sent(&mut first, &pool, turn);
        let message = inward.receive_reference().unwrap();
        outward.forward(message, &mut inward).unwrap();
        assert_eq!(outward.settle(&mut inward), Ok(1));
        if turn % 2 == 0 {
            let message = last.receive_reference().unwrap();
            assert!(message.in_place().is_some() && last.is_whole(&message));
            assert!(message.to_vec().iter().all(|byte| *byte == turn));
            last.give_back(message).unwrap();
        } else {
            let mut bytes = vec![9; 3 * UNIT];
            assert_eq!(last.receive(&mut bytes), Ok(3 * UNIT));
            assert!(bytes.iter().all(|byte| *byte == turn));
        }
        first.progress().unwrap();
        assert_eq!(first.lent().1, 1, "the middle has not said so yet");
        assert_eq!(outward.settle(&mut inward), Ok(0));
        first.progress().unwrap();
        assert_eq!(first.lent(), (0, 0));
    }
}

#[test]
fn what_cannot_be_passed_on_is_copied() {
    let (mut first, _pool, [mut inward, mut outward], mut last) = chain();
    first.send(b"short", false).unwrap();
    let message = inward.receive_reference().unwrap();
    outward.forward(message, &mut inward).unwrap();
    assert_eq!(outward.copied(Limit::Private), 1);
    let message = last.receive_reference().unwrap();
    assert_eq!(message.to_vec(), b"short");
    last.give_back(message).unwrap();
}

#[test]
fn a_last_process_that_ends_holds_nothing() {
    let (mut first, pool, [mut inward, mut outward], last) = chain();
    assert!(!inward.has_message());
    sent(&mut first, &pool, 1);
    assert!(inward.has_message());
    let message = inward.receive_reference().unwrap();
    assert!(!inward.has_message());
    outward.forward(message, &mut inward).unwrap();
    drop(last);
    assert_eq!(outward.receive(&mut [0]), Err(Error::Gone));
    outward.abandon();
    assert_eq!(outward.settle(&mut inward), Ok(0));
    first.progress().unwrap();
    assert_eq!(first.lent(), (0, 0));
}

/// The first process takes back what a middle that died had: the last one does not take other bytes for the message.
#[test]
fn a_region_that_was_taken_back_is_not_a_message_any_more() {
    let (mut first, pool, [mut inward, mut outward], mut last) = chain();
    sent(&mut first, &pool, 1);
    sent(&mut first, &pool, 2);
    for _ in 0..2 {
        let message = inward.receive_reference().unwrap();
        outward.forward(message, &mut inward).unwrap();
    }
    let kept = last.receive_reference().unwrap();
    assert!(last.is_whole(&kept));
    drop((inward, outward));
    first.abandon();
    drop(first);
    let mut all = pool.allocate(64 * UNIT).unwrap();
    all.bytes_mut().fill(7);
    assert!(!last.is_whole(&kept));
    assert_eq!(last.receive(&mut vec![0; 3 * UNIT]), Err(Error::Limit(Limit::Stale)));
    assert_eq!(last.receive(&mut [0]), Err(Error::Gone));
    let _ = last.give_back(kept);
}

#[test]
fn a_ticket_of_no_forwarded_message_is_refused() {
    let (_first, _pool, [_inward, mut outward], mut last) = chain();
    last.put_raw(1, &(1u64 << 63 | 5).to_le_bytes()).unwrap();
    assert!(matches!(outward.progress(), Err(Error::Violation(_))));
}

#[test]
fn a_message_is_given_back_and_passed_on_by_the_port_that_brought_it() {
    let (mut first, pool, [mut inward, mut outward], _last) = chain();
    let (mut other, _peer) = Port::pair().unwrap();
    for wrongly in [
        &mut |message, _: &mut Port, other: &mut Port| other.give_back(message),
        &mut |message, _: &mut Port, other: &mut Port| outward.forward(message, other),
    ] as [&mut dyn FnMut(_, &mut Port, &mut Port) -> Result<(), Error>; 2]
    {
        sent(&mut first, &pool, 1);
        let message = inward.receive_reference().unwrap();
        assert_eq!(other.has_brought(&message), Err(Limit::WrongPort));
        assert_eq!(inward.has_brought(&message), Ok(()));
        assert_eq!(wrongly(message, &mut inward, &mut other), Err(Error::Limit(Limit::WrongPort)));
    }
    // Its sender still counts both, and one that is given back as it should be is counted no more.
    sent(&mut first, &pool, 2);
    assert_eq!(first.lent().1, 3);
    let message = inward.receive_reference().unwrap();
    inward.give_back(message).unwrap();
    first.progress().unwrap();
    assert_eq!(first.lent().1, 2);
}
