//! Which calls of dlopen(3) bind past this library.

use super::*;
use shunt_calls::libc::{RTLD_DEEPBIND, RTLD_GLOBAL, RTLD_LAZY, RTLD_NOLOAD, RTLD_NOW};

#[test]
fn a_path_that_is_bound_deeply_is_a_concern() {
    assert!(concerns(Some(b"/usr/lib/php/mysqli.so"), RTLD_LAZY | RTLD_DEEPBIND));
    assert!(concerns(Some(b"./x.so"), RTLD_NOW | RTLD_DEEPBIND));
}

#[test]
fn what_is_bound_as_usual_is_none() {
    assert!(!concerns(Some(b"/x.so"), RTLD_NOW | RTLD_GLOBAL));
}

#[test]
fn what_is_not_loaded_is_none() {
    assert!(!concerns(Some(b"/x.so"), RTLD_NOW | RTLD_DEEPBIND | RTLD_NOLOAD));
}

#[test]
fn a_name_whose_place_depends_on_the_caller_is_none() {
    assert!(!concerns(Some(b"x.so"), RTLD_NOW | RTLD_DEEPBIND));
    assert!(!concerns(Some(b"$ORIGIN/x.so"), RTLD_NOW | RTLD_DEEPBIND));
    assert!(!concerns(None, RTLD_NOW | RTLD_DEEPBIND));
}

#[test]
fn lazy_binding_becomes_binding_at_once_and_the_rest_stays() {
    assert_eq!(at_once(RTLD_LAZY | RTLD_DEEPBIND | RTLD_GLOBAL), RTLD_NOW | RTLD_DEEPBIND | RTLD_GLOBAL);
    assert_eq!(at_once(RTLD_NOW), RTLD_NOW);
}
