//! Lists of arguments, with five in registers.

use super::*;

fn list(registers: &[*const c_char; 5], stack: &[*const c_char], n: usize) -> Vec<*const c_char> {
    // SAFETY: one of the two parts has the null.
    let list = unsafe { List::new(registers.as_ptr(), stack.as_ptr()) };
    // SAFETY: the array has as many, and a null behind them.
    let gathered = list.gather(|array, next| unsafe {
        assert_eq!(next, n + 1);
        assert!((*array.add(n)).is_null());
        core::slice::from_raw_parts(array, n).to_vec()
    });
    gathered.unwrap()
}

fn word(n: usize) -> *const c_char {
    n as *const c_char
}

const END: *const c_char = core::ptr::null();

#[test]
fn a_list_may_end_in_registers() {
    assert_eq!(list(&[word(1), word(2), END, word(9), word(9)], &[], 2), [word(1), word(2)]);
}

#[test]
fn an_empty_list_has_only_the_null() {
    assert!(list(&[END; 5], &[], 0).is_empty());
}

#[test]
fn the_null_of_five_arguments_lies_on_the_stack() {
    assert_eq!(list(&[1, 2, 3, 4, 5].map(word), &[END], 5), [1, 2, 3, 4, 5].map(word));
}

#[test]
fn arguments_go_on_from_registers_to_the_stack_in_order() {
    let stack: Vec<_> = (6..2000).map(word).chain([END]).collect();
    let expected: Vec<_> = (1..2000).map(word).collect();
    assert_eq!(list(&[1, 2, 3, 4, 5].map(word), &stack, 1999), expected);
}

#[test]
fn what_follows_the_null_can_be_asked_for_as_execle_does() {
    let (registers, stack) = ([1, 2, 3, 4, 5].map(word), [END, word(77)]);
    // SAFETY: the stack has the null and the environment behind it.
    let list = unsafe { List::new(registers.as_ptr(), stack.as_ptr()) };
    // SAFETY: as above.
    assert_eq!(list.gather(|_, next| unsafe { list.get(next) }), Ok(word(77)));
}

#[test]
fn the_environment_may_follow_the_null_within_registers() {
    let registers = [word(1), END, word(77), word(9), word(9)];
    // SAFETY: the registers have the null and the environment behind it.
    let list = unsafe { List::new(registers.as_ptr(), core::ptr::null()) };
    // SAFETY: as above.
    assert_eq!(list.gather(|_, next| unsafe { list.get(next) }), Ok(word(77)));
}
