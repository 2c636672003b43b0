//! A peer that sends what it likes, scribbles over what it can reach, and gives back what it never had.

use proptest::prelude::*;
use shunt_buffers::costs::Costs;
use shunt_buffers::port::{Error, Port};
use shunt_buffers::record::{Kind, Record};
use shunt_buffers::Semantics;
use shunt_region::{Audience, Limit, Pages, Pool, Reference, Shape, Violation};
use shunt_sys::{calls, libc};

fn record(kind: Kind, offset: u64, length: u64, pool: u32) -> Record {
    let reference = Reference { offset, length, generation: 1, pool, ticket: 3 };
    Record { kind, semantics: Semantics::EMULATED_SHARE, serial: 1, reference, source: 0 }
}

fn offered() -> (Port, Port, Pool) {
    let (honest, mut hostile) = Port::pair().unwrap();
    let pool = Pool::create(Shape { unit: 4096, units: 16 }, Pages::Small, Audience::Anyone).unwrap();
    hostile.set_costs(Costs::USUAL);
    hostile.offer(&pool).unwrap();
    (honest, hostile, pool)
}

#[test]
fn references_outside_are_refused() {
    for (offset, length, number) in
        [(0, 65_537, 0), (65_536, 1, 0), (u64::MAX, 2, 0), (1, u64::MAX, 0), (0, 1, 1), (0, 1, u32::MAX)]
    {
        let (mut honest, mut hostile, _pool) = offered();
        hostile.put_raw(0, &record(Kind::Region, offset, length, number).to_bytes()).unwrap();
        let got = honest.receive(&mut [0; 10]);
        assert!(matches!(got, Err(Error::Violation(Violation::Outside | Violation::Pool))), "{got:?}");
    }
}

#[test]
fn tickets_that_were_never_lent_are_refused() {
    for ticket in [0u64, 5, 1 << 32, u64::MAX] {
        let (mut honest, mut hostile, _pool) = offered();
        hostile.put_raw(1, &ticket.to_le_bytes()).unwrap();
        assert_eq!(honest.progress(), Err(Error::Violation(Violation::Ticket)));
    }
}

/// Loans of a slot are counted; no count makes a ticket one of another kind.
#[test]
fn tickets_are_taken_back_however_many_there_were() {
    let (mut honest, mut sender, pool) = offered();
    sender.lent_so_often((1 << 31) - 2);
    let region = pool.allocate(4096).unwrap();
    // Each slot twice.
    for _ in 0..2 * shunt_region::LOANS + 2 {
        sender.send_shared(&region, 4096, Semantics::EMULATED_SHARE).unwrap();
        assert_eq!(sender.lent().1, 1);
        assert_eq!(honest.receive(&mut [0; 4096]), Ok(4096));
        sender.progress().unwrap();
        assert_eq!(sender.lent().1, 0);
    }
}

/// What a child takes out of the rings would be missing in its parent.
#[test]
fn a_child_of_fork_takes_nothing_of_its_parents() {
    let (mut honest, mut sender, pool) = offered();
    let (mut kept, mut left) = Port::pair().unwrap();
    kept.send(b"well", false).unwrap();
    let mut region = pool.allocate(4096).unwrap();
    region.bytes_mut().fill(5);
    sender.send_shared(&region, 4096, Semantics::EMULATED_SHARE).unwrap();
    // SAFETY: the child calls what needs no lock of another thread's, and ends.
    let child = unsafe { ::libc::fork() };
    if child == 0 {
        let forked = Error::Limit(Limit::Forked);
        let mut bytes = [0; 4096];
        let refused = honest.receive(&mut bytes) == Err(forked)
            && honest.next_length() == Err(forked)
            && honest.progress() == Err(forked)
            && !honest.has_message()
            && sender.send(b"from the child", false) == Err(forked)
            && sender.progress() == Err(forked);
        drop((honest, sender));
        let refused = refused && left.receive(&mut bytes) == Err(forked);
        left.inherit();
        let refused = refused && left.receive(&mut bytes) == Ok(4) && left.send(b"yes", false).is_ok();
        core::mem::forget(left);
        // SAFETY: ends the child.
        unsafe { ::libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: a child of this test's.
    assert_eq!(unsafe { ::libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "it was let");
    assert_eq!(kept.receive(&mut [0; 4]), Ok(3), "by the port that was left to it");
    let mut bytes = [0; 4096];
    assert_eq!(honest.receive(&mut bytes), Ok(4096));
    assert_eq!(bytes, [5; 4096]);
    sender.progress().unwrap();
    assert_eq!(sender.lent().1, 0);
}

#[test]
fn a_pool_that_can_shrink_is_not_mapped() {
    let (mut honest, mut hostile) = Port::pair().unwrap();
    let file = calls::memfd_create(b"shrinks\0", libc::MFD_CLOEXEC).unwrap();
    calls::ftruncate(file, 1 << 20).unwrap();
    hostile.pass_raw(b'P', file).unwrap();
    hostile.put_raw(0, &record(Kind::Region, 0, 1, 0).to_bytes()).unwrap();
    assert_eq!(honest.receive(&mut [0; 1]), Err(Error::Limit(Limit::Unsealed)));
}

/// Pages that nobody has written are memory of whoever reads them first.
#[test]
fn references_to_holes_are_refused() {
    for kind in [Kind::Region, Kind::Forwarded, Kind::Pull] {
        let (mut honest, mut hostile, pool) = offered();
        hostile.put_raw(0, &record(kind, 4096, 8192, 0).to_bytes()).unwrap();
        let before = calls::status_of(pool.descriptor()).unwrap().st_blocks;
        assert_eq!(honest.receive(&mut [0; 8192]), Err(Error::Violation(Violation::Hole)), "{kind:?}");
        assert_eq!(honest.receive_reference().map(|_| ()).unwrap_err(), Error::Violation(Violation::Hole));
        assert_eq!(calls::status_of(pool.descriptor()).unwrap().st_blocks, before);
    }
}

/// A peer that rings on and on does not keep this side from what it asked for: a call looks at so many bells, and no more.
#[test]
fn a_peer_that_goes_on_ringing_holds_up_nothing() {
    let (mut honest, mut hostile, _pool) = offered();
    while calls::send_byte(hostile.descriptor(), 0, 0).is_ok() {}
    let rung = calls::bytes_waiting(honest.descriptor()).unwrap();
    // Its second pool has not come, and what else has is not gone through to the end.
    hostile.put_raw(0, &record(Kind::Region, 0, 1, 1).to_bytes()).unwrap();
    assert_eq!(honest.receive(&mut [0; 1]), Err(Error::Violation(Violation::Pool)));
    let left = calls::bytes_waiting(honest.descriptor()).unwrap();
    assert!(rung > 200 && (1..rung).contains(&left), "{left} of {rung}");
}

/// A message that lies in the peer's memory can be read for as long as there is the message.
#[test]
fn a_message_outlives_the_port_that_it_came_by() {
    let (mut here, mut there, pool) = offered();
    let mut region = pool.allocate(4096).unwrap();
    region.bytes_mut().fill(9);
    there.send_shared(&region, 4096, Semantics::EMULATED_SHARE).unwrap();
    let message = here.receive_reference().unwrap();
    drop(here);
    assert!(message.in_place().is_some() && message.to_vec() == [9; 4096]);
}

/// Only the other side can find out whether a peer could change this process, and its word would be a stranger's.
#[test]
fn pools_for_trusted_peers_are_passed_only_where_the_program_says_so() {
    let pool = Pool::create(Shape { unit: 4096, units: 16 }, Pages::Small, Audience::Trusted).unwrap();
    let (mut one, mut other) = Port::pair().unwrap();
    assert!(matches!(one.offer(&pool), Err(Error::Limit(Limit::Untrusted))));
    one.trust();
    one.set_costs(Costs::USUAL);
    one.offer(&pool).unwrap();
    let mut region = pool.allocate(4096).unwrap();
    region.bytes_mut().fill(1);
    one.send_shared(&region, 4096, Semantics::EMULATED_SHARE).unwrap();
    assert_eq!(other.receive(&mut [0; 4096]), Err(Error::Limit(Limit::Untrusted)), "nor are they mapped");
}

#[test]
fn a_peer_names_no_length_that_this_process_has_to_find_memory_for() {
    for length in [65 << 20, 1 << 40, u64::MAX >> 1] {
        let (mut honest, mut hostile) = Port::pair().unwrap();
        hostile.put_raw(0, &record(Kind::Bytes, 0, length, 0).to_bytes()).unwrap();
        assert!(matches!(honest.receive_reference(), Err(Error::Limit(Limit::TooLong))));
    }
    let (mut honest, mut hostile) = Port::pair().unwrap();
    honest.set_largest(10);
    hostile.put_raw(0, &record(Kind::Bytes, 0, 11, 0).to_bytes()).unwrap();
    assert!(matches!(honest.receive_reference(), Err(Error::Limit(Limit::TooLong))));
}

#[test]
fn what_was_copied_does_not_change_any_more() {
    let (mut honest, mut hostile, pool) = offered();
    let own = Pool::create(Shape { unit: 4096, units: 16 }, Pages::Small, Audience::Anyone).unwrap();
    honest.offer(&own).unwrap();
    let mut region = pool.allocate(4096).unwrap();
    region.bytes_mut().fill(1);
    hostile.send_shared(&region, 4096, Semantics::EMULATED_SHARE).unwrap();
    let (mine, length) = honest.receive_region(Semantics::EMULATED_MOVE).unwrap();
    region.bytes_mut().fill(2);
    assert!(mine.bytes()[..length].iter().all(|byte| *byte == 1));
}

/// Half of the pool for the region that is prepared, and no room for what comes: nothing of it is kept.
#[test]
fn a_message_that_the_pool_has_no_room_for_leaves_the_pool_whole() {
    let (mut honest, mut hostile, _pool) = offered();
    let own = Pool::create(Shape { unit: 4096, units: 16 }, Pages::Small, Audience::Anyone).unwrap();
    honest.offer(&own).unwrap();
    hostile.send(&[1; 9 * 4096], false).unwrap();
    assert_eq!(honest.receive_region(Semantics::EMULATED_WEAK_MOVE).map(|_| ()), Err(Error::Limit(Limit::PoolFull)));
    assert_eq!(own.free(), 16);
    let mut bytes = [0; 9 * 4096];
    assert_eq!(honest.receive(&mut bytes), Ok(9 * 4096), "it can still be received");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Records of any bytes, words of any value in any place of the link: an answer, in time, and no fault.
    #[test]
    fn any_bytes_are_survived(
        records in prop::collection::vec((any::<[u8; 16]>(), 1u8..5, 0u64..100_000, 0u64..100_000, 0u32..2), 1..6),
        words in prop::collection::vec((any::<usize>(), any::<u64>()), 0..20),
        last in 0usize..8,
    ) {
        let (mut honest, mut hostile, _pool) = offered();
        for (bytes, kind, offset, length, number) in records {
            let mut raw = record(Kind::Region, offset, length, number).to_bytes();
            raw[0] = kind;
            raw[1] = bytes[0] % 9;
            raw[2..4].copy_from_slice(&bytes[2..4]);
            hostile.put_raw(0, &raw).unwrap();
        }
        for (at, value) in words {
            // The header and the channels' pages, and the last page: where words count.
            let at = if at % 3 == 0 { shunt_segment::area::LINK_SIZE + at % 4096 } else { at % (64 << 10) };
            hostile.scribble(at, value);
        }
        hostile.scribble(shunt_segment::area::LINK_SIZE + 128 + 64, last as u64);
        // The hang-up ends every wait.
        drop(hostile);
        let mut room = vec![0; 100_000];
        for _ in 0..8 {
            if honest.receive(&mut room).is_err() {
                break;
            }
        }
        let _ = honest.progress();
    }
}
