//! epoll, edge-triggered: what is told once for each time that it comes (`ep_poll_callback`).

use super::*;
use shunt_sys::libc::{MSG_DONTWAIT, SHUT_RD, SHUT_WR};

#[test]
fn what_holds_is_told_once_when_the_entry_joins() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.send(near, b"x", 0).unwrap();
        world.add(set, far, IN | OUT | ET, 1).unwrap();
        [world.look(set), world.look(set)]
    });
    assert_eq!(told, [vec![(1, IN | OUT)], vec![]]);
}

#[test]
fn bytes_that_come_are_an_edge_whether_or_not_the_others_were_read() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | ET, 1).unwrap();
        let mut told = vec![world.look(set)];
        for _ in 0..3 {
            world.send(near, b"x", 0).unwrap();
            told.extend([world.look(set), world.look(set)]);
        }
        world.drain(far);
        told.push(world.look(set));
        told
    });
    let one = vec![(1, IN)];
    assert_eq!(told, [vec![], one.clone(), vec![], one.clone(), vec![], one, vec![], vec![]]);
}

#[test]
fn several_edges_between_two_looks_are_told_as_one() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | ET, 1).unwrap();
        (0..5).for_each(|_| _ = world.send(near, b"x", 0).unwrap());
        [world.look(set), world.look(set)]
    });
    assert_eq!(told, [vec![(1, IN)], vec![]]);
}

#[test]
fn bytes_that_were_taken_before_the_look_are_no_event() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | ET, 1).unwrap();
        world.send(near, b"x", 0).unwrap();
        world.drain(far);
        world.look(set)
    });
    assert_eq!(told, []);
}

#[test]
fn bytes_are_an_edge_of_space_that_holds() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | OUT | ET, 1).unwrap();
        let first = world.look(set);
        world.send(near, b"x", 0).unwrap();
        [first, world.look(set), world.look(set)]
    });
    assert_eq!(told, [vec![(1, OUT)], vec![(1, IN | OUT)], vec![]]);
}

#[test]
fn bytes_are_no_edge_for_those_that_ask_for_space_alone() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, OUT | ET, 1).unwrap();
        let first = world.look(set);
        world.send(near, b"x", 0).unwrap();
        [first, world.look(set)]
    });
    assert_eq!(told, [vec![(1, OUT)], vec![]]);
}

#[test]
fn space_is_an_edge_when_it_was_wanted_in_vain() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, near, OUT | ET, 1).unwrap();
        let first = world.look(set);
        world.fill(near);
        let full = world.look(set);
        world.drain(far);
        let told = world.wait(set, 4, Some(5_000_000_000)).unwrap();
        (first, full, told)
    });
    assert_eq!(told, (vec![(1, OUT)], vec![], vec![(1, OUT)]));
}

#[test]
fn an_end_is_an_edge_for_all() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        let copy = world.dup(far);
        world.add(set, far, IN | RDHUP | ET, 1).unwrap();
        world.add(set, copy, OUT | ET, 2).unwrap();
        world.look(set);
        world.shut(near, SHUT_WR).unwrap();
        [world.look(set), world.look(set)]
    });
    assert_eq!(told, [vec![(1, IN | RDHUP), (2, OUT)], vec![]]);
}

#[test]
fn a_reset_is_an_edge_and_goes_on_being_none() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | ET, 1).unwrap();
        world.reset(near);
        let told = [world.look(set), world.look(set)];
        (told, world.take_error(far) != 0, world.look(set))
    });
    assert_eq!(told, ([vec![(1, IN | ERR | HUP)], vec![]], true, vec![]));
}

#[test]
fn shutting_the_own_receiving_half_is_an_edge() {
    let told = in_both(|world| {
        let ((_, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | RDHUP | ET, 1).unwrap();
        let before = world.look(set);
        world.shut(far, SHUT_RD).unwrap();
        [before, world.look(set), world.look(set)]
    });
    assert_eq!(told, [vec![], vec![(1, IN | RDHUP)], vec![]]);
}

#[test]
fn a_change_tells_what_holds_once_more() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | ET, 1).unwrap();
        world.send(near, b"x", 0).unwrap();
        let first = world.look(set);
        world.modify(set, far, IN | ET, 2).unwrap();
        [first, world.look(set), world.look(set)]
    });
    assert_eq!(told, [vec![(1, IN)], vec![(2, IN)], vec![]]);
}

#[test]
fn a_change_from_edges_to_levels_tells_as_long_as_it_holds() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | ET, 1).unwrap();
        world.send(near, b"x", 0).unwrap();
        let edge = [world.look(set), world.look(set)];
        world.modify(set, far, IN, 1).unwrap();
        (edge, [world.look(set), world.look(set)])
    });
    let one = vec![(1, IN)];
    assert_eq!(told, ([one.clone(), vec![]], [one.clone(), one]));
}

#[test]
fn an_edge_that_was_taken_out_and_put_back_is_told_anew() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | ET, 1).unwrap();
        world.send(near, b"x", 0).unwrap();
        let first = world.look(set);
        world.delete(set, far).unwrap();
        world.add(set, far, IN | ET, 2).unwrap();
        [first, world.look(set), world.look(set)]
    });
    assert_eq!(told, [vec![(1, IN)], vec![(2, IN)], vec![]]);
}

#[test]
fn an_edge_by_one_shot_waits_for_its_change() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | ET | ONESHOT, 1).unwrap();
        world.send(near, b"x", 0).unwrap();
        let first = world.look(set);
        world.send(near, b"y", 0).unwrap();
        let disabled = world.look(set);
        world.modify(set, far, IN | ET | ONESHOT, 2).unwrap();
        [first, disabled, world.look(set), world.look(set)]
    });
    assert_eq!(told, [vec![(1, IN)], vec![], vec![(2, IN)], vec![]]);
}

#[test]
fn two_sets_are_told_of_one_edge_each_for_itself() {
    let told = in_both(|world| {
        let ((near, far), one, other) = (world.pair(), world.epoll(), world.epoll());
        world.add(one, far, IN | ET, 1).unwrap();
        world.add(other, far, IN | ET, 2).unwrap();
        world.send(near, b"x", 0).unwrap();
        let first = [world.look(one), world.look(one)];
        world.send(near, b"y", 0).unwrap();
        (first, [world.look(other), world.look(other)], world.look(one))
    });
    assert_eq!(told, ([vec![(1, IN)], vec![]], [vec![(2, IN)], vec![]], vec![(1, IN)]));
}

#[test]
fn an_edge_without_room_is_told_in_the_next_answer() {
    let told = in_both(|world| {
        let (set, pairs) = (world.epoll(), [world.pair(), world.pair(), world.pair()]);
        for (data, (near, far)) in pairs.into_iter().enumerate() {
            world.add(set, far, IN | ET, data as u64).unwrap();
            world.send(near, b"x", 0).unwrap();
        }
        let mut all: Vec<(u64, i32)> = (0..4).flat_map(|_| world.wait(set, 1, AT_ONCE).unwrap()).collect();
        all.sort();
        all
    });
    assert_eq!(told, [0, 1, 2].map(|data| (data, IN)));
}

#[test]
fn a_receive_that_leaves_bytes_is_no_edge() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | ET, 1).unwrap();
        world.send(near, b"abc", 0).unwrap();
        let first = world.look(set);
        world.receive(far, 1, MSG_DONTWAIT).unwrap();
        [first, world.look(set)]
    });
    assert_eq!(told, [vec![(1, IN)], vec![]]);
}

#[test]
fn a_close_behind_an_end_is_no_edge() {
    for number in [false, true] {
        let told = in_both(|world| {
            let ((near, far), set) = (world.pair(), world.epoll());
            let _copy = world.dup(far);
            world.add(set, far, IN | ET, 1).unwrap();
            if number {
                world.close(far);
            }
            world.shut(near, SHUT_WR).unwrap();
            let end = world.look(set);
            world.close(near);
            [end, world.look(set)]
        });
        assert_eq!(told, [vec![(1, IN)], vec![]]);
    }
}
