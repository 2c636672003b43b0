//! Ranges of addresses that may enter the kernel.

use super::*;

/// Objects of one page of text each, where the program lies at `program`: C library, preload library, loader and kernel's object
/// lie at 10, 14, 20 and 22.
fn places(program: usize) -> Places {
    let mut places = Places::new([10, 14, 20, 22]);
    places.add(&(program..program + 1), &(program..program + 1), false);
    for start in [10, 12, 14, 20, 22] {
        places.add(&(start..start + 2), &(start + 1..start + 2), false);
    }
    places
}

#[test]
fn the_range_reaches_from_the_c_library_to_the_kernels_object() {
    assert_eq!(places(1).range(), Some(11..24));
}

#[test]
fn a_program_between_the_libraries_leaves_no_range() {
    assert_eq!(places(13).range(), None);
}

#[test]
fn a_program_on_the_near_side_of_the_loader_leaves_the_loader_out() {
    assert_eq!(places(18).range(), Some(11..16));
}

#[test]
fn a_program_behind_the_loader_leaves_only_the_kernels_object_out() {
    let mut places = Places::new([10, 14, 20, 30]);
    places.add(&(25..26), &(25..26), false);
    for start in [10, 14, 20, 30] {
        places.add(&(start..start + 2), &(start..start + 2), false);
    }
    assert_eq!(places.range(), Some(10..22));
}

#[test]
fn an_object_of_gos_leaves_no_range() {
    let mut places = places(1);
    places.add(&(40..42), &(40..42), true);
    assert_eq!(places.range(), None);
}

#[test]
fn a_program_of_gos_leaves_no_range() {
    let mut places = Places::new([10, 14, 20, 22]);
    places.add(&(1..2), &(1..2), true);
    places.add(&(10..12), &(10..12), false);
    places.add(&(14..16), &(14..16), false);
    assert_eq!(places.range(), None);
}

#[test]
fn without_this_library_or_the_c_library_there_is_no_range() {
    for only in [10, 14] {
        let mut places = Places::new([10, 14, 20, 22]);
        places.add(&(1..2), &(1..2), false);
        places.add(&(only..only + 2), &(only..only + 2), false);
        assert_eq!(places.range(), None);
    }
}

#[test]
fn a_process_without_the_kernels_object_has_the_range_of_the_others() {
    let mut places = Places::new([10, 14, 20, 0]);
    for start in [1, 10, 14, 20] {
        places.add(&(start..start + 2), &(start..start + 2), false);
    }
    assert_eq!(places.range(), Some(10..22));
}

#[test]
fn the_objects_that_enter_for_all_others_are_known() {
    let places = places(1);
    assert!([11, 15, 21, 23].into_iter().all(|start| places.is_known(&(start..start + 1))));
    // The program, and what lies between.
    assert!(!places.is_known(&(1..2)));
    assert!(!places.is_known(&(13..14)));
}

#[test]
fn ranges_that_only_touch_do_not_overlap() {
    assert!(!overlap(&(1..2), &(2..3)));
    assert!(overlap(&(1..3), &(2..4)));
    assert!(overlap(&(1..9), &(2..3)));
    assert!(!overlap(&NONE, &(0..9)));
}

#[test]
fn nothing_is_around_nothing() {
    assert_eq!(around(&NONE, &(5..6)), 5..6);
    assert_eq!(around(&(5..6), &NONE), 5..6);
    assert_eq!(around(&(8..9), &(2..3)), 2..9);
}
