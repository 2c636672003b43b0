//! Sets inside sets, and in poll: when an epoll descriptor is readable (`ep_eventpoll_poll`).

use super::*;
use shunt_sys::libc::{POLLIN, POLLOUT, POLLRDNORM};

#[test]
fn a_set_is_readable_while_it_has_something_to_tell() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN, 1).unwrap();
        let ask = || world.events(set, POLLIN | POLLRDNORM | POLLOUT);
        let before = ask();
        world.send(near, b"x", 0).unwrap();
        let during = [ask(), ask()];
        world.drain(far);
        (before, during, ask())
    });
    assert_eq!(told, (0, [POLLIN | POLLRDNORM; 2], 0));
}

#[test]
fn an_edge_in_a_set_is_readable_until_it_is_told() {
    let told = in_both(|world| {
        let ((near, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN | ET, 1).unwrap();
        world.send(near, b"x", 0).unwrap();
        let before = [world.events(set, POLLIN), world.events(set, POLLIN)];
        (before, world.look(set), world.events(set, POLLIN))
    });
    assert_eq!(told, ([POLLIN; 2], vec![(1, IN)], 0));
}

#[test]
fn a_set_inside_another_is_told_by_levels() {
    let told = in_both(|world| {
        let ((near, far), inner, outer) = (world.pair(), world.epoll(), world.epoll());
        world.add(inner, far, IN, 1).unwrap();
        world.add(outer, inner, IN, 2).unwrap();
        let before = world.look(outer);
        world.send(near, b"x", 0).unwrap();
        let during = [world.look(outer), world.look(outer), world.look(inner)];
        world.drain(far);
        (before, during, world.look(outer))
    });
    assert_eq!(told, (vec![], [vec![(2, IN)], vec![(2, IN)], vec![(1, IN)]], vec![]));
}

#[test]
fn a_set_inside_another_is_told_by_edges() {
    let told = in_both(|world| {
        let ((near, far), inner, outer) = (world.pair(), world.epoll(), world.epoll());
        world.add(inner, far, IN, 1).unwrap();
        world.add(outer, inner, IN | ET, 2).unwrap();
        world.look(outer);
        let mut told = Vec::new();
        for _ in 0..2 {
            world.send(near, b"x", 0).unwrap();
            told.extend([world.look(outer), world.look(outer)]);
        }
        told
    });
    assert_eq!(told, [vec![(2, IN)], vec![], vec![(2, IN)], vec![]]);
}

#[test]
fn a_set_inside_another_is_told_once_by_one_shot() {
    let told = in_both(|world| {
        let ((near, far), inner, outer) = (world.pair(), world.epoll(), world.epoll());
        world.add(inner, far, IN, 1).unwrap();
        world.add(outer, inner, IN | ONESHOT, 2).unwrap();
        world.send(near, b"x", 0).unwrap();
        let looks = [world.look(outer), world.look(outer)];
        world.modify(outer, inner, IN | ONESHOT, 3).unwrap();
        (looks, world.look(outer))
    });
    assert_eq!(told, ([vec![(2, IN)], vec![]], vec![(3, IN)]));
}

#[test]
fn three_sets_inside_each_other_tell_of_one_stream() {
    let told = in_both(|world| {
        let ((near, far), [a, b, c]) = (world.pair(), [(); 3].map(|()| world.epoll()));
        world.add(a, far, IN, 1).unwrap();
        world.add(b, a, IN, 2).unwrap();
        world.add(c, b, IN, 3).unwrap();
        world.send(near, b"x", 0).unwrap();
        let during = [world.look(c), world.look(b), world.look(a)];
        let polled = world.events(c, POLLIN);
        world.drain(far);
        (during, polled, world.look(c), world.events(c, POLLIN))
    });
    assert_eq!(told, ([vec![(3, IN)], vec![(2, IN)], vec![(1, IN)]], POLLIN, vec![], 0));
}

#[test]
fn a_set_of_foreign_descriptors_is_told_inside_another() {
    let told = in_both(|world| {
        let ((_, far), inner, outer, event) = (world.pair(), world.epoll(), world.epoll(), world.event(1));
        world.add(inner, event, IN, 1).unwrap();
        world.add(inner, far, IN, 2).unwrap();
        world.add(outer, inner, IN, 3).unwrap();
        let both = [world.look(outer), world.look(inner)];
        world.delete(inner, event).unwrap();
        (both, world.look(outer), world.events(inner, POLLIN))
    });
    assert_eq!(told, ([vec![(3, IN)], vec![(1, IN)]], vec![], 0));
}

#[test]
fn a_set_that_is_closed_leaves_the_set_around_it() {
    let told = in_both(|world| {
        let ((_, far), inner, outer) = (world.pair(), world.epoll(), world.epoll());
        world.add(inner, far, OUT, 1).unwrap();
        world.add(outer, inner, IN, 2).unwrap();
        let there = world.look(outer);
        world.close(inner);
        [there, world.look(outer)]
    });
    assert_eq!(told, [vec![(2, IN)], vec![]]);
}

#[test]
fn poll_waits_for_a_set_beside_a_stream() {
    let told = in_both(|world| {
        let ((near, far), (_, other), set) = (world.pair(), world.pair(), world.epoll());
        world.add(set, far, IN, 1).unwrap();
        while_asleep(|| world.poll(&[(other, POLLIN), (set, POLLIN)], FOR_EVER), || _ = world.send(near, b"x", 0).unwrap())
    });
    assert_eq!(told, (Ok(1), vec![0, POLLIN]));
}

#[test]
fn an_exclusive_entry_whose_number_was_closed_does_not_join_by_another() {
    let told = in_both(|world| {
        let ((near, far), inner, outer) = (world.pair(), world.epoll(), world.epoll());
        let copy = world.dup(far);
        world.add(outer, inner, IN, 1).unwrap();
        world.add(inner, copy, IN | EXCLUSIVE, 2).unwrap();
        world.close(copy);
        let told = world.look(outer);
        (told, world.add(inner, far, 0, 3), world.send(near, b"x", 0), world.look(inner))
    });
    assert_eq!(told, (vec![], Ok(()), Ok(1), vec![(2, IN)]));
}

#[test]
fn a_ready_set_that_joins_another_wakes_those_that_sleep_there() {
    let told = in_both(|world| {
        let ((near, far), inner, outer) = (world.pair(), world.epoll(), world.epoll());
        world.add(inner, far, IN, 1).unwrap();
        world.look(inner);
        world.send(near, b"x", 0).unwrap();
        // A sleep that is not ended gives nothing.
        while_asleep(|| world.wait(outer, 8, Some(5_000_000_000)).unwrap(), || world.add(outer, inner, IN, 2).unwrap())
    });
    assert_eq!(told, [(2, IN)]);
}

#[test]
fn what_goes_once_stays_told_when_its_stream_becomes_the_kernels() {
    let world = World::new(true);
    let ((near, far), inner, outer) = (world.pair(), world.epoll(), world.epoll());
    world.add(inner, far, IN | ONESHOT, 1).unwrap();
    world.add(outer, inner, IN, 2).unwrap();
    world.send(near, b"x", 0).unwrap();
    assert_eq!((world.look(inner), world.look(outer)), (vec![(1, IN)], vec![]));
    let kernels = World::new(false);
    let (peer, connection) = kernels.pair();
    kernels.send(peer, b"x", 0).unwrap();
    world.give_back(far, world.adopt(&kernels, connection));
    assert_eq!((world.look(outer), world.look(inner)), (vec![], vec![]));
    world.modify(inner, far, IN | ONESHOT, 3).unwrap();
    assert_eq!((world.look(outer), world.look(inner)), (vec![(2, IN)], vec![(3, IN)]));
}
