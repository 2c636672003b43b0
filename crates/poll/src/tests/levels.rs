//! epoll, level-triggered: what a set tells as long as it holds, in which order, and in how much room.

use super::*;
use shunt_sys::libc::{SHUT_RDWR, SHUT_WR};

#[test]
fn a_level_is_told_in_each_answer_until_it_falls() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN, 7).unwrap();
        let before = world.look(set);
        world.send(near, b"ab", 0).unwrap();
        let during = [world.look(set), world.look(set)];
        world.receive(far, 1, 0).unwrap();
        let half = world.look(set);
        world.receive(far, 1, 0).unwrap();
        (before, during, half, world.look(set))
    });
    let one = vec![(7, IN)];
    assert_eq!(told, (vec![], [one.clone(), one.clone()], one, vec![]));
}

#[test]
fn hang_ups_and_errors_are_told_to_entries_that_ask_for_nothing() {
    let told = in_both(|world| {
        let ((near, far), (other, shut), set) = (world.pair(), world.pair(), world.epoll());
        world.add(set, far, 0, 1).unwrap();
        world.add(set, shut, 0, 2).unwrap();
        world.reset(near);
        world.shut(other, SHUT_RDWR).unwrap();
        world.shut(shut, SHUT_RDWR).unwrap();
        world.look(set)
    });
    assert_eq!(told, [(1, ERR | HUP), (2, HUP)]);
}

#[test]
fn an_end_is_told_to_those_that_ask_for_it_or_for_input() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        let copies = [world.dup(far), world.dup(far)];
        world.add(set, far, IN, 1).unwrap();
        world.add(set, copies[0], RDHUP, 2).unwrap();
        world.add(set, copies[1], OUT, 3).unwrap();
        world.shut(near, SHUT_WR).unwrap();
        world.look(set)
    });
    assert_eq!(told, [(1, IN), (2, RDHUP), (3, OUT)]);
}

#[test]
fn the_data_is_the_programs_whatever_it_looks_like() {
    // The first looks like a tag of the engine's own.
    let values = [0x9d3f_0000_0000_0000, 0x9d3f_ffff_ffff_ffff, 0, u64::MAX, 0x0000_7fff_ffff_f000];
    for data in values {
        let told = in_both(|world| {
            let ((_, far), set, event) = (world.pair(), world.epoll(), world.event(1));
            world.add(set, far, OUT, data).unwrap();
            world.add(set, event, IN, data).unwrap();
            world.look(set)
        });
        assert_eq!(told, [(data, IN), (data, OUT)]);
    }
}

#[test]
fn an_answer_has_no_more_than_there_is_room_for_and_the_rest_comes_next() {
    let told = in_both(|world| {
        let set = world.epoll();
        for data in 0..5 {
            let (_, far) = world.pair();
            world.add(set, far, OUT, data).unwrap();
        }
        let answers: Vec<Vec<(u64, i32)>> = (0..5).map(|_| world.wait(set, 2, AT_ONCE).unwrap()).collect();
        let mut all = answers.concat();
        all.sort();
        (answers.iter().map(Vec::len).collect::<Vec<_>>(), all)
    });
    let twice = (0..5).flat_map(|data| [(data, OUT); 2]).collect();
    assert_eq!(told, (vec![2; 5], twice), "each has its turn before any has a third");
}

#[test]
fn entries_are_told_in_the_order_in_which_they_became_ready() {
    let told = in_both(|world| {
        let set = world.epoll();
        let pairs: Vec<(i32, i32)> = (0..6).map(|_| world.pair()).collect();
        for (data, (_, far)) in pairs.iter().enumerate() {
            world.add(set, *far, IN, data as u64).unwrap();
        }
        world.look(set);
        for at in [4, 0, 5, 2] {
            world.send(pairs[at].0, b"x", 0).unwrap();
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        world.wait(set, 8, AT_ONCE).unwrap()
    });
    assert_eq!(told, [4, 0, 5, 2].map(|data| (data, IN)));
}

#[test]
fn a_change_takes_hold_at_once() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN, 1).unwrap();
        world.send(near, b"x", 0).unwrap();
        let before = world.look(set);
        world.modify(set, far, OUT, 2).unwrap();
        let changed = world.look(set);
        world.modify(set, far, RDHUP, 3).unwrap();
        let nothing = world.look(set);
        world.modify(set, far, IN | OUT, 4).unwrap();
        [before, changed, nothing, world.look(set)]
    });
    assert_eq!(told, [vec![(1, IN)], vec![(2, OUT)], vec![], vec![(4, IN | OUT)]]);
}

#[test]
fn what_was_taken_out_is_not_told_and_may_come_back() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN, 1).unwrap();
        world.send(near, b"x", 0).unwrap();
        let there = world.look(set);
        world.delete(set, far).unwrap();
        let gone = world.look(set);
        world.add(set, far, IN, 2).unwrap();
        [there, gone, world.look(set)]
    });
    assert_eq!(told, [vec![(1, IN)], vec![], vec![(2, IN)]]);
}

#[test]
fn what_is_closed_leaves_the_set() {
    let told = in_both(|world| {
        let ((near, far), (kept, other), set) = (world.pair(), world.pair(), world.epoll());
        world.add(set, far, IN | OUT, 1).unwrap();
        world.add(set, other, OUT, 2).unwrap();
        world.close(far);
        world.send(kept, b"x", 0).unwrap();
        let left = world.look(set);
        world.close(near);
        (left, world.look(set))
    });
    assert_eq!(told, (vec![(2, OUT)], vec![(2, OUT)]));
}

#[test]
fn a_closed_number_is_told_as_long_as_a_duplicate_lives() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN, 1).unwrap();
        let copy = world.dup(far);
        world.close(far);
        world.send(near, b"x", 0).unwrap();
        let alive = world.look(set);
        world.close(copy);
        (alive, world.look(set))
    });
    assert_eq!(told, (vec![(1, IN)], vec![]), "epoll(7), Q6");
}

#[test]
fn a_number_that_is_another_streams_by_now_joins_beside_the_one_that_was_closed() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        let copy = world.dup(far);
        world.add(set, far, IN, 1).unwrap();
        world.close(far);
        let again = world.dup(near);
        let joined = (again == far).then(|| world.add(set, again, OUT, 2));
        world.send(near, b"x", 0).unwrap();
        let told = world.look(set);
        world.close(copy);
        // Tests run beside each other: the number may be another's.
        let expected = if joined == Some(Ok(())) { vec![(1, IN), (2, OUT)] } else { vec![(1, IN)] };
        told == expected
    });
    assert!(told);
}

#[test]
fn duplicates_are_entries_of_their_own() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        let copy = world.dup(far);
        world.add(set, far, IN, 1).unwrap();
        world.add(set, copy, IN | OUT, 2).unwrap();
        world.send(near, b"x", 0).unwrap();
        let both = world.look(set);
        world.delete(set, far).unwrap();
        (both, world.look(set))
    });
    assert_eq!(told, (vec![(1, IN), (2, IN | OUT)], vec![(2, IN | OUT)]));
}

#[test]
fn one_stream_in_two_sets_is_told_in_both() {
    let told = in_both(|world| {
        let ((near, far), one, other) = (world.pair(), world.epoll(), world.epoll());
        world.add(one, far, IN, 1).unwrap();
        world.add(other, far, IN | OUT, 2).unwrap();
        world.send(near, b"x", 0).unwrap();
        let both = (world.look(one), world.look(other));
        world.close(one);
        (both, world.look(other))
    });
    assert_eq!(told, ((vec![(1, IN)], vec![(2, IN | OUT)]), vec![(2, IN | OUT)]));
}

#[test]
fn a_duplicate_of_the_set_is_the_same_set() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        let copy = world.dup(set);
        world.add(set, far, IN, 1).unwrap();
        world.send(near, b"x", 0).unwrap();
        let by_copy = world.look(copy);
        world.close(set);
        world.modify(copy, far, OUT, 2).unwrap();
        (by_copy, world.look(copy))
    });
    assert_eq!(told, (vec![(1, IN)], vec![(2, OUT)]));
}

#[test]
fn one_shot_entries_are_told_once_until_they_are_changed() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | ONESHOT, 1).unwrap();
        world.send(near, b"x", 0).unwrap();
        let looks = [world.look(set), world.look(set)];
        world.send(near, b"y", 0).unwrap();
        let still = world.look(set);
        world.modify(set, far, IN | ONESHOT, 2).unwrap();
        (looks, still, world.look(set), world.look(set))
    });
    assert_eq!(told, ([vec![(1, IN)], vec![]], vec![], vec![(2, IN)], vec![]));
}

#[test]
fn a_one_shot_entry_that_was_told_hears_not_even_a_hang_up() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, OUT | ONESHOT, 1).unwrap();
        let first = world.look(set);
        world.reset(near);
        let disabled = world.look(set);
        world.modify(set, far, ONESHOT, 2).unwrap();
        (first, disabled, world.look(set))
    });
    assert_eq!(told, (vec![(1, OUT)], vec![], vec![(2, ERR | HUP)]));
}

#[test]
fn exclusive_entries_are_told_as_others_are() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | EXCLUSIVE, 1).unwrap();
        let before = world.look(set);
        world.send(near, b"x", 0).unwrap();
        let during = [world.look(set), world.look(set)];
        world.receive(far, 1, 0).unwrap();
        (before, during, world.look(set))
    });
    assert_eq!(told, (vec![], [vec![(1, IN)], vec![(1, IN)]], vec![]));
}

#[test]
fn foreign_descriptors_and_streams_are_told_in_one_answer() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        let (read, write) = world.pipe();
        world.add(set, read, IN, 1).unwrap();
        world.add(set, far, IN, 2).unwrap();
        world.add(set, write, OUT, 3).unwrap();
        world.send(near, b"x", 0).unwrap();
        let open = world.look(set);
        world.close(write);
        (open, world.look(set))
    });
    assert_eq!(told, (vec![(2, IN), (3, OUT)], vec![(1, HUP), (2, IN)]));
}

#[test]
fn urgent_bytes_are_told_to_those_that_ask() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, PRI, 1).unwrap();
        world.send(near, b"a", 0).unwrap();
        let plain = world.look(set);
        world.send(near, b"!", shunt_sys::libc::MSG_OOB).unwrap();
        (plain, world.look(set))
    });
    assert_eq!(told, (vec![], vec![(1, PRI)]));
}

#[test]
fn thousands_of_changes_leave_each_entry_as_it_was_asked_for_last() {
    let told = in_both(|world| {
        let (set, pairs) = (world.epoll(), [world.pair(), world.pair(), world.pair()]);
        for round in 0..1000 {
            for (_, far) in pairs {
                world.add(set, far, IN, round).unwrap();
                world.modify(set, far, OUT, round).unwrap();
                world.delete(set, far).unwrap();
            }
        }
        world.add(set, pairs[0].1, IN, 0).unwrap();
        world.add(set, pairs[1].1, IN, 1).unwrap();
        world.modify(set, pairs[1].1, OUT, 2).unwrap();
        let told = world.look(set);
        (told, pairs.map(|(_, far)| world.delete(set, far).is_ok()))
    });
    assert_eq!(told, (vec![(2, OUT)], [true, true, false]));
}
