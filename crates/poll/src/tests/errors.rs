//! Mistakes in calls about sets: which errno, and that nothing else happens (`do_epoll_ctl`, `do_epoll_wait`).

use super::*;
use shunt_sys::libc::{self, EBADF, EEXIST, EFAULT, EINVAL, ELOOP, ENOENT, EPERM, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use shunt_sys::{Errno, Result};

/// A number that nobody has.
const CLOSED: i32 = 890;

const fn error(number: i32) -> Result<()> {
    Err(Errno(number))
}

#[test]
fn what_is_in_the_set_cannot_be_added_again() {
    let told = in_both(|world| {
        let ((_, far), set, event) = (world.pair(), world.epoll(), world.event(0));
        world.add(set, far, OUT, 1).unwrap();
        world.add(set, event, IN, 2).unwrap();
        let again = [world.add(set, far, IN, 3), world.add(set, event, OUT, 3), world.add(set, far, OUT | ET, 3)];
        (again, world.look(set))
    });
    assert_eq!(told, ([error(EEXIST); 3], vec![(1, OUT)]), "and is what it was");
}

#[test]
fn what_is_not_in_the_set_can_be_neither_changed_nor_removed() {
    let told = in_both(|world| {
        let ((_, far), set, event) = (world.pair(), world.epoll(), world.event(1));
        world.add(set, far, OUT, 1).unwrap();
        world.delete(set, far).unwrap();
        [world.modify(set, far, IN, 1), world.delete(set, far), world.modify(set, event, IN, 1), world.delete(set, event)]
    });
    assert_eq!(told, [error(ENOENT); 4]);
}

#[test]
fn an_entry_is_of_its_number_and_not_of_the_file_behind_it() {
    let told = in_both(|world| {
        let ((_, far), set) = (world.pair(), world.epoll());
        let copy = world.dup(far);
        world.add(set, far, OUT, 1).unwrap();
        [world.modify(set, copy, IN, 2), world.delete(set, copy), world.add(set, copy, OUT, 2), world.add(set, copy, OUT, 3)]
    });
    assert_eq!(told, [error(ENOENT), error(ENOENT), Ok(()), error(EEXIST)]);
}

#[test]
fn numbers_that_are_not_open_are_bad() {
    let told = in_both(|world| {
        let ((_, far), set) = (world.pair(), world.epoll());
        world.add(set, far, OUT, 1).unwrap();
        let in_set =
            [EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL].map(|operation| world.control(set, operation, CLOSED, Some((IN, 0))));
        (in_set, world.add(CLOSED, far, IN, 0), world.add(set, -1, IN, 0), world.wait(CLOSED, 1, AT_ONCE).is_err())
    });
    assert_eq!(told, ([error(EBADF); 3], error(EBADF), error(EBADF), true));
}

#[test]
fn a_set_is_needed_to_put_a_stream_into() {
    let told = in_both(|world| {
        let ((near, far), event) = (world.pair(), world.event(0));
        [world.add(event, far, IN, 0), world.add(near, far, IN, 0)]
    });
    assert_eq!(told, [error(EINVAL); 2]);
}

#[test]
fn a_set_does_not_go_into_itself() {
    let told = in_both(|world| {
        let set = world.epoll();
        let copy = world.dup(set);
        [EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL].map(|operation| {
            [world.control(set, operation, set, Some((IN, 0))), world.control(set, operation, copy, Some((IN, 0)))]
        })
    });
    assert_eq!(told, [[error(EINVAL); 2]; 3]);
}

#[test]
fn unknown_operations_are_refused_before_the_entry_is_looked_for() {
    let told = in_both(|world| {
        let ((_, far), set) = (world.pair(), world.epoll());
        [0, 4, -1, i32::MAX].map(|operation| world.control(set, operation, far, Some((IN, 0))))
    });
    assert_eq!(told, [error(EINVAL); 4]);
}

#[test]
fn an_event_that_faults_is_told_before_other_mistakes_but_not_where_it_is_not_read() {
    let told = in_both(|world| {
        let ((_, far), set) = (world.pair(), world.epoll());
        let faults = [EPOLL_CTL_ADD, EPOLL_CTL_MOD].map(|operation| world.control(set, operation, far, None));
        world.add(set, far, OUT, 1).unwrap();
        (faults, world.control(set, EPOLL_CTL_ADD, far, None), world.control(set, 77, far, None), world.delete(set, far))
    });
    assert_eq!(told, ([error(EFAULT); 2], error(EFAULT), error(EFAULT), Ok(())));
}

#[test]
fn exclusive_entries_are_added_and_never_changed() {
    let told = in_both(|world| {
        let ((_, far), set) = (world.pair(), world.epoll());
        let wrong = [RDHUP, PRI, ONESHOT, libc::EPOLLRDNORM].map(|events| world.add(set, far, events | EXCLUSIVE, 1));
        world.add(set, far, IN | OUT | ET | EXCLUSIVE, 1).unwrap();
        let changes = [world.modify(set, far, IN, 1), world.modify(set, far, IN | EXCLUSIVE, 1)];
        (wrong, changes, world.delete(set, far))
    });
    assert_eq!(told, ([error(EINVAL); 4], [error(EINVAL); 2], Ok(())));
}

#[test]
fn an_entry_cannot_become_exclusive() {
    let told = in_both(|world| {
        let ((_, far), set) = (world.pair(), world.epoll());
        world.add(set, far, IN, 1).unwrap();
        (world.modify(set, far, OUT | EXCLUSIVE, 2), world.modify(set, far, OUT, 3), world.look(set))
    });
    assert_eq!(told, (error(EINVAL), Ok(()), vec![(3, OUT)]));
}

#[test]
fn a_set_does_not_join_another_exclusively() {
    let told = in_both(|world| {
        let (inner, outer) = (world.epoll(), world.epoll());
        [world.add(outer, inner, IN | EXCLUSIVE, 1), world.add(outer, inner, IN, 1)]
    });
    assert_eq!(told, [error(EINVAL), Ok(())]);
}

#[test]
fn sets_in_a_circle_are_refused() {
    let told = in_both(|world| {
        let [a, b, c] = [(); 3].map(|()| world.epoll());
        world.add(a, b, IN, 1).unwrap();
        world.add(b, c, IN, 2).unwrap();
        [world.add(c, a, IN, 3), world.add(b, a, IN, 3), world.delete(b, c), world.add(c, a, IN, 3)]
    });
    assert_eq!(told, [error(ELOOP), error(ELOOP), Ok(()), Ok(())]);
}

#[test]
fn sets_are_put_into_each_other_to_a_depth() {
    let told = in_both(|world| {
        let sets: Vec<i32> = (0..8).map(|_| world.epoll()).collect();
        let (_, far) = world.pair();
        world.add(sets[0], far, OUT, 0).unwrap();
        let joined: Vec<Result<()>> = sets.windows(2).map(|pair| world.add(pair[1], pair[0], IN, 1)).collect();
        joined.iter().position(|result| result.is_err()).map(|depth| (depth, joined[depth]))
    });
    assert!(matches!(told, Some((4 | 5, Err(Errno(EINVAL | ELOOP))))), "{told:?}");
}

#[test]
fn answers_have_room_for_one_event_at_least() {
    let told = in_both(|world| {
        let ((_, far), set) = (world.pair(), world.epoll());
        let empty = [0, -1, i32::MIN].map(|room| world.wait(set, room, AT_ONCE));
        world.add(set, far, OUT, 1).unwrap();
        (empty, [0, -1, i32::MIN, i32::MAX].map(|room| world.wait(set, room, AT_ONCE)))
    });
    let wrong = || Err(Errno(EINVAL));
    assert_eq!(told, ([(); 3].map(|()| wrong()), [(); 4].map(|()| wrong())));
}

#[test]
fn files_that_cannot_be_polled_do_not_join() {
    let told = in_both(|world| {
        let ((_, far), set) = (world.pair(), world.epoll());
        let file = world.file();
        world.add(set, far, OUT, 1).unwrap();
        (world.add(set, file, IN, 2), world.look(set))
    });
    assert_eq!(told, (error(EPERM), vec![(1, OUT)]));
}

#[test]
fn data_that_looks_like_a_tag_does_not_hide_a_mistake() {
    const TAG: u64 = 0x9d3f << 48;
    let told = in_both(|world| {
        let (set, event, file) = (world.epoll(), world.event(1), world.file());
        let added = world.add(set, event, IN, TAG | 5);
        let mistakes = [
            world.add(set, event, IN, TAG | 6),
            world.add(set, CLOSED, IN, TAG),
            world.add(set, file, IN, TAG),
            world.modify(set, CLOSED, IN, TAG),
            world.modify(set, event, IN | EXCLUSIVE, TAG),
        ];
        let before = world.look(set);
        let changed = world.modify(set, event, IN, TAG | 7);
        (added, mistakes, before, changed, world.look(set), world.delete(set, event), world.delete(set, event))
    });
    let mistakes = [EEXIST, EBADF, EPERM, EBADF, EINVAL].map(error);
    assert_eq!(told, (Ok(()), mistakes, vec![(TAG | 5, IN)], Ok(()), vec![(TAG | 7, IN)], Ok(()), error(ENOENT)));
}
