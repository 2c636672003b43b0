//! Lists of FILEs.

use super::*;
use std::collections::HashSet;

/// An empty list that stays.
fn list() -> &'static List {
    Box::leak(Box::new(List::new()))
}

fn stream(number: usize) -> *mut c_void {
    number as *mut c_void
}

#[test]
fn nobody_hears_of_a_slot_that_is_only_reserved() {
    let list = list();
    let slot = list.reserve(5).unwrap();
    assert_eq!((slot.fd(), slot.stream()), (5, core::ptr::null_mut()));
    assert_eq!(list.entered().count(), 0);
}

#[test]
fn a_file_is_found_by_its_address() {
    let list = list();
    list.enter(list.reserve(5).unwrap(), stream(0x50), 0);
    list.enter(list.reserve(6).unwrap(), stream(0x60), 77);
    let found = list.find(stream(0x60)).unwrap();
    assert_eq!((found.fd(), found.child()), (6, 77));
    assert!(list.find(stream(0x70)).is_none());
}

#[test]
fn descriptor_zero_is_no_empty_slot() {
    let list = list();
    let (first, second) = (list.reserve(0).unwrap(), list.reserve(0).unwrap());
    assert!(!core::ptr::eq(first, second));
    assert_eq!((first.fd(), second.fd()), (0, 0));
}

#[test]
fn a_file_that_left_is_not_found_and_its_slot_serves_again() {
    let list = list();
    let slot = list.reserve(5).unwrap();
    list.enter(slot, stream(0x50), 0);
    list.leave(slot);
    assert!(list.find(stream(0x50)).is_none());
    assert_eq!(slot.fd(), -1);
    assert!(core::ptr::eq(list.reserve(9).unwrap(), slot));
}

#[test]
fn a_slot_that_was_forsaken_serves_again() {
    let list = list();
    let slot = list.reserve(5).unwrap();
    list.forsake(slot);
    assert!(core::ptr::eq(list.reserve(9).unwrap(), slot));
}

#[test]
fn two_files_may_have_one_descriptor() {
    let list = list();
    list.enter(list.reserve(5).unwrap(), stream(0x50), 0);
    list.enter(list.reserve(5).unwrap(), stream(0x51), 0);
    assert_eq!(list.entered().filter(|slot| slot.fd() == 5).count(), 2);
}

#[test]
fn a_list_grows_beyond_its_first_part() {
    let list = list();
    let most = 2 * PART + 3;
    for i in 1..=most {
        list.enter(list.reserve(i as c_int).unwrap(), stream(i), 0);
    }
    assert_eq!(list.entered().count(), most);
    assert_eq!(list.find(stream(most)).unwrap().fd(), most as c_int);
    // What leaves the first part makes room there.
    list.leave(list.find(stream(1)).unwrap());
    assert!(core::ptr::eq(list.reserve(7).unwrap(), &list.first.slots[0]));
}

#[test]
fn threads_never_get_one_slot() {
    let list = list();
    let reserve = || (0..PART).map(|i| core::ptr::from_ref(list.reserve(i as c_int).unwrap()) as usize).collect::<Vec<_>>();
    let all: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(reserve)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 4 * PART);
}
