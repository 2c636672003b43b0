//! One word a number. Numbers here are no descriptor's, so that no other test of the process uses them.

use crate::table::*;
use std::cell::Cell;

struct Plain(u32);
struct Set;

// SAFETY: entered under kinds that are no other type's in this test, and never freed.
unsafe impl Object for Plain {
    fn is(kind: Kind) -> bool {
        matches!(kind, Kind::Tcp | Kind::Stream)
    }
}

// SAFETY: as above.
unsafe impl Object for Set {
    fn is(kind: Kind) -> bool {
        kind == Kind::Epoll
    }
}

static ONE: Plain = Plain(1);
static OTHER: Plain = Plain(2);
static SET: Set = Set;

/// Far above all descriptors.
const HIGH: i32 = 700_000;

#[test]
fn any_number_may_be_asked_for_and_most_are_the_kernel_s() {
    for fd in [-1, i32::MIN, i32::MAX, LIMIT as i32, HIGH] {
        assert!(get(fd).kind() == Kind::Foreign && find::<Plain>(fd).is_none() && take(fd).kind() == Kind::Foreign);
    }
    assert!(fits(0) && fits(LIMIT as i32 - 1) && !fits(LIMIT as i32) && !fits(-1));
}

#[test]
fn a_number_beyond_the_table_stays_the_kernel_s() {
    for fd in [-1, LIMIT as i32] {
        enter(fd, Kind::Tcp, &ONE);
        set_private(fd);
        assert_eq!(get(fd).kind(), Kind::Foreign);
        assert!(!replace(fd, &ONE, Kind::Stream, &OTHER));
    }
}

#[test]
fn a_word_gives_its_object_to_those_that_ask_for_its_type() {
    enter(HIGH + 1, Kind::Stream, &ONE);
    enter(HIGH + 2, Kind::Epoll, &SET);
    assert_eq!(find::<Plain>(HIGH + 1).map(|object| object.0), Some(1));
    assert!(find::<Set>(HIGH + 1).is_none() && find::<Plain>(HIGH + 2).is_none());
    assert!(find::<Set>(HIGH + 2).is_some_and(|set| core::ptr::eq(set, &SET)));
    assert!(any_ours());
    assert_eq!([take(HIGH + 1).kind(), take(HIGH + 1).kind()], [Kind::Stream, Kind::Foreign]);
    take(HIGH + 2);
}

#[test]
fn one_of_several_that_close_gets_the_word() {
    for _ in 0..200 {
        enter(HIGH + 3, Kind::Tcp, &ONE);
        let takers: Vec<_> = (0..3).map(|_| std::thread::spawn(|| u32::from(take(HIGH + 3).kind() == Kind::Tcp))).collect();
        assert_eq!(takers.into_iter().map(|taker| taker.join().unwrap()).sum::<u32>(), 1);
    }
}

#[test]
fn a_number_is_replaced_where_it_still_is_the_object_s() {
    enter(HIGH + 4, Kind::Stream, &ONE);
    assert!(!replace(HIGH + 4, &OTHER, Kind::Tcp, &ONE), "another's");
    assert!(replace(HIGH + 4, &ONE, Kind::Tcp, &OTHER));
    assert_eq!((get(HIGH + 4).kind(), find::<Plain>(HIGH + 4).map(|object| object.0)), (Kind::Tcp, Some(2)));
    take(HIGH + 4);
    assert!(!replace(HIGH + 4, &OTHER, Kind::Tcp, &ONE), "it was closed meanwhile");
    assert_eq!(get(HIGH + 4).kind(), Kind::Foreign);
}

#[test]
fn private_numbers_lie_above_those_that_the_program_is_asked_about() {
    let far = LIMIT as i32 - 1;
    set_private(far);
    assert_eq!((get(far).kind(), high_water()), (Kind::Private, LIMIT as i32));
    assert!(!programs().any(|fd| fd == far));
    enter(HIGH + 5, Kind::Tcp, &ONE);
    assert!(programs().any(|fd| fd == HIGH + 5) && !programs().any(|fd| fd == far));
    take(far);
    take(HIGH + 5);
}

#[test]
fn what_lingers_is_told_of_private_numbers_alone() {
    set_lingering(HIGH + 6, 0x1234_5679);
    enter(HIGH + 7, Kind::Tcp, &ONE);
    set_private(HIGH + 8);
    assert_eq!([6, 7, 8].map(|number| get(HIGH + number).lingering()), [0x1234_5679, 0, 0]);
    assert!(find::<Plain>(HIGH + 6).is_none());
    for number in [6, 7, 8] {
        take(HIGH + number);
    }
}

thread_local! {
    static ENTERED: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn what_comes_before_each_socket_comes_before_no_set() {
    fn counts() {
        ENTERED.with(|entered| entered.set(entered.get() + 1));
    }
    before_each(counts);
    enter(HIGH + 9, Kind::Epoll, &SET);
    assert_eq!(ENTERED.get(), 0);
    enter(HIGH + 9, Kind::Tcp, &ONE);
    assert!(!replace(HIGH + 9, &OTHER, Kind::Tcp, &ONE));
    assert_eq!(ENTERED.get(), 1);
    take(HIGH + 9);
}
