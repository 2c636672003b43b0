//! Bytes that a receiver takes where they lie: whatever comes between, they are what was sent, and no send is complete before they are given
//! back.

use super::referring::{Lent, LONG, ZERO_COPY};
use super::*;
use crate::error_queue;
use crate::references::keep;
use crate::views::{self, Next};
use proptest::prelude::*;
use shunt_segment::channel::references::HELD;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// A piece that is held.
#[derive(Clone, Copy)]
struct Piece {
    address: usize,
    length: usize,
    number: u64,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped until the piece is given back, and no test writes there meanwhile.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.length) }
    }
}

fn next(end: &End, most: usize) -> Next {
    views::next(end.socket, end.fd, most).expect("an honest peer")
}

fn piece(end: &End, most: usize) -> Piece {
    match next(end, most) {
        Next::InPlace { address, length, number } => Piece { address, length, number },
        Next::Copied(count) => panic!("{count} bytes to be copied"),
    }
}

impl Lent {
    fn refer(&self, from: usize) {
        assert_eq!(self.near().send(&self.region.bytes()[from..from + LONG], ZERO_COPY), Ok(LONG));
    }

    fn give_back(&self, piece: Piece) {
        views::give_back(self.far().fd, piece.number).expect("held");
    }

    /// The numbers of the sends that the error queue tells of.
    fn told(&self) -> Option<(u32, u32)> {
        error_queue::take(self.near().socket).map(|told| (told.ee_info, told.ee_data))
    }
}

#[test]
fn a_send_is_complete_when_its_bytes_are_given_back() {
    let lent = Lent::met();
    lent.refer(77);
    let piece = piece(lent.far(), usize::MAX);
    assert_eq!(piece.bytes(), &lent.region.bytes()[77..77 + LONG]);
    assert_ne!(piece.address, lent.region.bytes()[77..].as_ptr() as usize, "a mapping of its own");
    assert_eq!(lent.far().socket.incoming().look().1, 0, "FIONREAD");
    assert_eq!(lent.near().socket.outgoing().unacknowledged(), 0, "SIOCOUTQ");
    assert_eq!(lent.far().receive(&mut [0; 1], NOW), Err(EAGAIN));
    assert_eq!((lent.told(), lent.near().events(0)), (None, 0));
    lent.give_back(piece);
    assert_eq!(lent.near().events(0), libc::POLLERR);
    assert_eq!((lent.told(), lent.told()), (Some((1, 1)), None));
    assert_eq!(views::give_back(lent.far().fd, piece.number), Err(Errno(libc::EINVAL)), "a second time");
}

#[test]
fn pieces_are_given_back_in_any_order() {
    let lent = Lent::met();
    (0..3).for_each(|part| lent.refer(part * LONG));
    let pieces = [0, 1, 2].map(|_| piece(lent.far(), usize::MAX));
    lent.give_back(pieces[1]);
    assert_eq!(lent.told(), None);
    lent.give_back(pieces[0]);
    assert_eq!(lent.told(), Some((1, 2)));
    assert_eq!(pieces[2].bytes(), &lent.region.bytes()[2 * LONG..3 * LONG]);
    lent.give_back(pieces[2]);
    assert_eq!(lent.told(), Some((3, 3)));
    assert_eq!(lent.far().socket.own().receive.held.load(Ordering::Relaxed), 0);
}

#[test]
fn a_run_is_taken_in_pieces_of_both_kinds() {
    let lent = Lent::met();
    lent.refer(0);
    let (mut first, mut last) = ([0; 10], vec![0; LONG]);
    assert_eq!(lent.far().receive(&mut first, 0), Ok(10));
    let (left, right) = (piece(lent.far(), 20_000), piece(lent.far(), 1));
    assert_eq!((left.length, right.length), (20_000, 1));
    assert_eq!(lent.far().receive(&mut last, libc::MSG_PEEK), Ok(LONG - 20_011));
    assert_eq!(lent.far().receive(&mut last, 0), Ok(LONG - 20_011));
    assert_eq!([&first, left.bytes(), right.bytes(), &last[..LONG - 20_011]].concat(), lent.region.bytes()[..LONG]);
    lent.give_back(left);
    assert_eq!(lent.told(), None);
    lent.give_back(right);
    assert_eq!(lent.told(), Some((1, 1)));
}

#[test]
fn what_lies_in_rings_is_to_be_copied_up_to_what_does_not() {
    let lent = Lent::fresh();
    assert_eq!(next(lent.far(), usize::MAX), Next::Copied(0), "nothing waits");
    assert_eq!(lent.near().send(&lent.region.bytes()[..LONG], ZERO_COPY), Ok(LONG));
    assert_eq!(next(lent.far(), usize::MAX), Next::Copied(4), "the offer");
    let copied = receive_whole(lent.far(), LONG);
    assert_eq!(copied, lent.region.bytes()[..LONG]);
    assert_eq!(lent.near().send(b"head", NOW), Ok(4));
    lent.refer(5);
    assert_eq!(lent.near().send(b"tail", NOW), Ok(4));
    assert_eq!(next(lent.far(), usize::MAX), Next::Copied(4));
    assert_eq!(lent.far().text(4, 0).unwrap(), "head");
    let piece = piece(lent.far(), usize::MAX);
    assert_eq!(piece.bytes(), &lent.region.bytes()[5..5 + LONG]);
    assert_eq!((next(lent.far(), usize::MAX), next(lent.far(), 0)), (Next::Copied(4), Next::Copied(4)));
    assert_eq!(lent.far().text(100, 0).unwrap(), "tail");
    lent.give_back(piece);
}

#[test]
fn what_is_held_is_not_sent_over() {
    let lent = Lent::met();
    lent.refer(0);
    let held = piece(lent.far(), 50);
    let expected = lent.region.bytes()[..50].to_vec();
    assert_eq!(receive_whole(lent.far(), LONG - 50).len(), LONG - 50);
    // Records run out, and all else is copied.
    for round in 0..20 {
        lent.refer(100 + round * 7);
        assert_eq!(receive_whole(lent.far(), LONG), lent.region.bytes()[100 + round * 7..100 + round * 7 + LONG]);
    }
    assert_eq!(lent.referred(), 8 * LONG as u64);
    assert_eq!(lent.told(), None);
    assert_eq!(held.bytes(), expected);
    lent.give_back(held);
    let mut told = 0;
    while let Some((first, last)) = lent.told() {
        assert_eq!(first, told + 1);
        told = last;
    }
    assert_eq!(told, 21);
    lent.refer(0);
    assert_eq!(lent.referred(), 9 * LONG as u64);
}

#[test]
fn the_end_of_either_side_leaves_what_is_held_readable() {
    let lent = Lent::met();
    (0..2).for_each(|part| lent.refer(part * LONG));
    let expected = lent.region.bytes()[..2 * LONG].to_vec();
    let pieces = [0, 1].map(|_| piece(lent.far(), usize::MAX));
    views::part(lent.far().socket);
    lent.far().close(false);
    assert_eq!(lent.told(), Some((1, 2)), "no more than for bytes that were never taken");
    let other = Lent::met();
    assert_eq!(views::give_back(other.far().fd, pieces[0].number), Ok(()), "by whatever descriptor");
    let Lent { pair, pool, region } = lent;
    drop((pair, pool, region));
    assert_eq!(pieces[1].bytes(), &expected[LONG..]);
    assert_eq!(views::give_back(-1, pieces[1].number), Ok(()));
    assert_eq!(views::give_back(-1, pieces[1].number), Err(Errno(libc::EINVAL)));
}

#[test]
fn a_side_that_gets_other_owners_keeps_what_it_holds_and_copies_the_rest() {
    let lent = Lent::met();
    (0..2).for_each(|part| lent.refer(part * LONG));
    let first = piece(lent.far(), 60_000);
    lent.far().socket.share();
    keep::on_sharing(lent.far().socket);
    assert_eq!(next(lent.far(), usize::MAX), Next::Copied(LONG - 60_000));
    assert_eq!(receive_whole(lent.far(), 2 * LONG - 60_000), lent.region.bytes()[60_000..2 * LONG]);
    assert_eq!(lent.told(), None);
    lent.give_back(first);
    assert_eq!(lent.told(), Some((1, 2)));
}

#[test]
fn of_a_killed_holder_another_owner_takes_it_back() {
    let lent = Lent::met();
    lent.refer(0);
    let piece = piece(lent.far(), usize::MAX);
    // As if another process had held it.
    let mut child = std::process::Command::new("/bin/sleep").arg("100").spawn().expect("a process");
    let receive = &lent.far().socket.own().receive;
    receive.holder.store(child.id(), Ordering::Relaxed);
    lent.far().socket.share();
    views::stand_in(lent.far().socket);
    assert_ne!(receive.held.load(Ordering::Relaxed), 0, "it lives");
    child.kill().expect("a process");
    child.wait().expect("an end");
    views::stand_in(lent.far().socket);
    assert_eq!((receive.held.load(Ordering::Relaxed), lent.told()), (0, Some((1, 1))));
    lent.give_back(piece);
}

#[test]
fn an_image_after_an_exec_has_nothing_in_use() {
    let lent = Lent::met();
    lent.refer(0);
    let piece = piece(lent.far(), usize::MAX);
    views::taken_up(lent.near().socket, lent.near().fd);
    assert_eq!(lent.told(), None, "that side holds nothing");
    views::taken_up(lent.far().socket, lent.far().fd);
    assert_eq!(lent.told(), Some((1, 1)));
    lent.give_back(piece);
}

#[test]
fn whatever_the_receiver_s_word_says_only_completions_hear_of_it() {
    for word in [u64::MAX, HELD, 1, HELD | 1 << 47, HELD | (LONG as u64 * 3)] {
        let lent = Lent::met();
        lent.far().socket.own().receive.held.store(word, Ordering::Relaxed);
        for part in 0..3 {
            lent.refer(part);
            assert_eq!(receive_whole(lent.far(), LONG), lent.region.bytes()[part..part + LONG]);
            lent.told();
        }
        assert_eq!(lent.near().socket.outgoing().unacknowledged(), 0, "{word:#x}");
    }
}

#[test]
fn there_are_only_so_many_pieces_and_the_next_is_copied() {
    let lent = Lent::met();
    lent.refer(0);
    let mut pieces = Vec::new();
    let copied = loop {
        match next(lent.far(), 100) {
            Next::InPlace { address, length, number } => pieces.push(Piece { address, length, number }),
            Next::Copied(count) => break count,
        }
    };
    assert_eq!((pieces.len(), copied), (64, 100));
    let rest = receive_whole(lent.far(), LONG - 6400);
    let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes().to_vec()).chain(rest).collect();
    assert_eq!(whole, lent.region.bytes()[..LONG]);
    pieces.into_iter().for_each(|piece| lent.give_back(piece));
    assert_eq!(lent.told(), Some((1, 1)));
}

#[derive(Clone, Debug)]
enum Step {
    Plain(usize),
    Refer(usize, usize),
    Receive(usize),
    View(usize),
    GiveBack(usize),
    Completions,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let long = || prop_oneof![1usize..50, 30_000..40_000usize, 60_000..300_000usize];
    let step = prop_oneof![
        1 => long().prop_map(Step::Plain),
        4 => (0usize..500_000, long()).prop_map(|(from, length)| Step::Refer(from, length)),
        2 => long().prop_map(Step::Receive),
        4 => long().prop_map(Step::View),
        3 => any::<usize>().prop_map(Step::GiveBack),
        2 => Just(Step::Completions),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_row_of_views_and_receives_moves_the_bytes_and_completes_no_send_early(steps in steps()) {
        let lent = Lent::met();
        let bytes = lent.region.bytes();
        let mut under_way: VecDeque<u8> = VecDeque::new();
        // Positions from here on: of the ends of sends that went by reference, by their numbers; of what is held.
        let (mut position, mut sent) = (0usize, 0usize);
        let (mut ends, mut held): (Vec<Option<usize>>, Vec<(usize, Piece, Vec<u8>)>) = (vec![None], Vec::new());
        let mut told = 0;
        for step in steps.into_iter().chain([Step::Completions]) {
            match step {
                Step::Plain(length) => {
                    let count = lent.near().send(&bytes[..length], NOW).unwrap_or(0);
                    under_way.extend(&bytes[..count]);
                    sent += count;
                }
                Step::Refer(from, length) => {
                    let before = lent.referred();
                    if let Ok(count) = lent.near().send(&bytes[from..from + length], ZERO_COPY) {
                        under_way.extend(&bytes[from..from + count]);
                        let referred = (lent.referred() - before) as usize;
                        ends.push((referred > 0).then_some(sent + referred));
                        sent += count;
                    }
                }
                Step::Receive(length) => {
                    let mut got = vec![0; length];
                    let count = lent.far().receive(&mut got, NOW).unwrap_or(0);
                    prop_assert_eq!(count, length.min(under_way.len()));
                    prop_assert!(under_way.drain(..count).eq(got[..count].iter().copied()));
                    position += count;
                }
                Step::View(most) => match next(lent.far(), most) {
                    Next::Copied(count) => prop_assert!(count <= under_way.len() && (count > 0 || under_way.is_empty())),
                    Next::InPlace { address, length, number } => {
                        prop_assert!(length <= most);
                        let expected: Vec<u8> = under_way.drain(..length).collect();
                        let piece = Piece { address, length, number };
                        prop_assert!(piece.bytes() == expected);
                        held.push((position, piece, expected));
                        position += length;
                    }
                },
                Step::GiveBack(which) => if !held.is_empty() {
                    let (_, piece, expected) = held.swap_remove(which % held.len());
                    prop_assert!(piece.bytes() == expected);
                    lent.give_back(piece);
                },
                Step::Completions => while let Some((first, last)) = lent.told() {
                    prop_assert_eq!(first, told + 1);
                    told = last;
                },
            }
            let oldest = held.iter().map(|held| held.0).min().unwrap_or(position);
            for end in ends[..=told as usize].iter().flatten() {
                prop_assert!(*end <= oldest, "{} {}", end, oldest);
            }
            prop_assert_eq!(lent.far().socket.incoming().look().1, under_way.len());
        }
        let rest: Vec<u8> = under_way.into_iter().collect();
        prop_assert!(receive_whole(lent.far(), rest.len()) == rest);
        held.into_iter().for_each(|held| lent.give_back(held.1));
        while let Some((first, last)) = lent.told() {
            prop_assert_eq!(first, told + 1);
            told = last;
        }
        prop_assert_eq!(told as usize + 1, ends.len(), "each send is complete when all is given back");
    }
}
