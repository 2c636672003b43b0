//! Objects that were looked at.

use super::*;

#[test]
fn an_object_is_new_once() {
    let mut seen = Seen::new();
    assert!(seen.enter(7));
    assert!(!seen.enter(7));
    assert!(seen.enter(8));
}

#[test]
fn all_were_seen_until_the_loader_counts_a_change() {
    let mut seen = Seen::new();
    seen.begin((5, 0));
    assert!(seen.are_all((5, 0)));
    assert!(!seen.are_all((6, 0)));
    assert!(!seen.are_all((5, 1)));
}

#[test]
fn a_loader_that_does_not_count_is_never_believed() {
    assert!(!Seen::new().are_all((0, 0)));
}

#[test]
fn what_is_loaded_leaves_the_others_seen() {
    let mut seen = Seen::new();
    seen.begin((5, 0));
    seen.enter(7);
    seen.begin((6, 0));
    assert!(!seen.enter(7));
}

#[test]
fn what_is_unloaded_has_all_looked_at_again() {
    let mut seen = Seen::new();
    seen.begin((5, 0));
    seen.enter(7);
    seen.begin((6, 1));
    assert!(seen.enter(7));
}

#[test]
fn more_objects_than_there_is_room_for_are_new_each_time() {
    let mut seen = Seen::new();
    seen.begin((1, 0));
    for mark in 0..SEEN as u64 {
        assert!(seen.enter(mark));
    }
    assert!(!seen.are_all((1, 0)));
    assert!(seen.enter(9999));
    assert!(seen.enter(9999));
    assert!(!seen.enter(0));
}
