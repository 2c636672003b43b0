//! select(2) and pselect(2): three sets of bits that become a question of poll's, and its answer.

use super::world::Bits;
use super::*;
use shunt_sys::libc::{self, MSG_OOB, SHUT_RDWR, SHUT_WR};
use shunt_sys::{Errno, Result};

type Told = (Result<isize>, [Option<Bits>; 3]);

/// As much room as the sets have.
const MOST: i32 = 1024;

/// Which of the `fds` stand in each of the sets: numbers differ from world to world.
fn which(told: &Told, fds: &[i32]) -> (Result<isize>, Vec<Vec<usize>>) {
    let of = |set: &Option<Bits>| (0..fds.len()).filter(|at| set.is_some_and(|bits| bits.has(fds[*at]))).collect();
    (told.0, told.1.iter().map(of).collect())
}

fn look(world: &World, fds: &[i32]) -> (Result<isize>, Vec<Vec<usize>>) {
    which(&world.select(MOST, [Some(Bits::of(fds)); 3], AT_ONCE), fds)
}

#[test]
fn each_set_is_told_what_it_asks_for_and_the_number_counts_bits() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        world.send(near, b"x", 0).unwrap();
        look(world, &[near, far])
    });
    assert_eq!(told, (Ok(3), vec![vec![1], vec![0, 1], vec![]]));
}

#[test]
fn an_end_is_readable_and_a_hang_up_is_too() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        world.shut(near, SHUT_WR).unwrap();
        let half = look(world, &[near, far]);
        world.shut(far, SHUT_RDWR).unwrap();
        (half, look(world, &[near, far]))
    });
    assert_eq!(told, ((Ok(3), vec![vec![1], vec![0, 1], vec![]]), (Ok(4), vec![vec![0, 1], vec![0, 1], vec![]])));
}

#[test]
fn a_reset_is_readable_and_writable_and_no_exception() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        world.reset(near);
        look(world, &[far])
    });
    assert_eq!(told, (Ok(2), vec![vec![0], vec![0], vec![]]));
}

#[test]
fn an_urgent_byte_is_an_exception() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        world.send(near, b"!", MSG_OOB).unwrap();
        which(&world.select(MOST, [None, None, Some(Bits::of(&[far, near]))], AT_ONCE), &[near, far])
    });
    assert_eq!(told, (Ok(1), vec![vec![], vec![], vec![1]]));
}

#[test]
fn sets_that_find_nothing_come_back_empty() {
    let told = in_both(|world| {
        let (_, far) = world.pair();
        world.select(MOST, [Some(Bits::of(&[far])), None, Some(Bits::of(&[far]))], Some(1_000_000))
    });
    assert_eq!(told, (Ok(0), [Some(Bits([0; 16])), None, Some(Bits([0; 16]))]));
}

#[test]
fn bits_from_the_count_on_are_not_asked_about() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        let (low, high) = (near.min(far), near.max(far));
        which(&world.select(high, [None, Some(Bits::of(&[low, high])), None], AT_ONCE), &[low, high])
    });
    assert_eq!(told, (Ok(1), vec![vec![], vec![0], vec![]]));
}

#[test]
fn words_behind_the_last_number_stay_as_they_are() {
    let told = in_both(|world| {
        let (_, far) = world.pair();
        let count = far + 1;
        let words = (count as usize).div_ceil(64);
        let mut bits = Bits::of(&[far]);
        bits.0[words..].fill(u64::MAX);
        let (ready, [_, set, _]) = world.select(count, [None, Some(bits), None], AT_ONCE);
        (ready, set.unwrap().0[words..].iter().all(|word| *word == u64::MAX))
    });
    assert_eq!(told, (Ok(1), true));
}

#[test]
fn bits_behind_the_last_number_in_its_word_are_cleared() {
    let told = in_both(|world| {
        let (_, far) = world.pair();
        let bits = Bits([u64::MAX; 16]);
        let mut asked = Bits::of(&[far]);
        // All behind the number, in its own word.
        asked.0[far as usize / 64] |= u64::MAX.checked_shl(far as u32 % 64 + 1).unwrap_or(0) & bits.0[0];
        let (ready, [_, set, _]) = world.select(far + 1, [None, Some(asked), None], AT_ONCE);
        (ready, set == Some(Bits::of(&[far])))
    });
    assert_eq!(told, (Ok(1), true));
}

#[test]
fn a_number_that_is_not_open_is_an_error_and_leaves_the_sets_alone() {
    let told = in_both(|world| {
        let (_, far) = world.pair();
        let asked = Bits::of(&[far, 890]);
        // A number that no test has: ours of the engine lie above, and the program's far below.
        let (ready, sets) = world.select(MOST, [Some(asked), Some(asked), None], AT_ONCE);
        (ready, sets == [Some(asked), Some(asked), None])
    });
    assert_eq!(told, (Err(Errno(libc::EBADF)), true));
}

#[test]
fn the_kernels_descriptors_are_told_in_the_same_sets() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        let (read, write) = world.pipe();
        let event = world.event(2);
        world.send(near, b"x", 0).unwrap();
        look(world, &[far, read, write, event])
    });
    assert_eq!(told, (Ok(5), vec![vec![0, 3], vec![0, 2, 3], vec![]]));
}

#[test]
fn bytes_end_a_wait_and_time_does() {
    let told = in_both(|world| {
        let (near, far) = world.pair();
        let asked = [Some(Bits::of(&[far])), None, None];
        let nothing = which(&world.select(MOST, asked, Some(5_000_000)), &[far]);
        let waiting = || which(&world.select(MOST, asked, FOR_EVER), &[far]);
        let waited = while_asleep(waiting, || _ = world.send(near, b"x", 0).unwrap());
        (nothing, waited)
    });
    assert_eq!(told, ((Ok(0), vec![vec![]; 3]), (Ok(1), vec![vec![0], vec![], vec![]])));
}

#[test]
fn the_mask_lets_a_signal_end_the_wait_and_the_sets_stay() {
    let told = in_both(|world| {
        let (_, far) = world.pair();
        let asked = Bits::of(&[far]);
        let (ready, sets) = with_pending_signal(|mask| world.pselect(MOST, [Some(asked), None, None], FOR_EVER, mask));
        (ready, sets == [Some(asked), None, None])
    });
    assert_eq!(told, (Err(Errno(libc::EINTR)), true));
}

#[test]
fn a_descriptor_that_is_closed_during_the_call_is_ready_for_all_that_was_asked() {
    let told = in_both(|world| {
        let (_, far) = world.pair();
        let (read, _write) = world.pipe();
        let read = world.apart(read);
        let asked = [Some(Bits::of(&[far, read])), None, Some(Bits::of(&[read]))];
        let waiting = || which(&world.select(MOST, asked, Some(200_000_000)), &[far, read]);
        while_asleep(waiting, || world.close(read))
    });
    assert_eq!(told, (Ok(2), vec![vec![1], vec![], vec![1]]));
}
