//! Whose functions this library stands before, by the tables of what this test has loaded.

use super::*;
use crate::segments::{dynamic, tests::object};

/// The object of this file, taken for one of the name `file`.
fn holder(loaded: &[u8], file: &'static [u8], behind: bool) -> Holder<'static> {
    let object = object(loaded);
    // SAFETY: the loader's description of an object that stays.
    let table = unsafe { Table::new(object.dlpi_addr as usize, dynamic(&object).unwrap()) };
    Holder { file, table, behind }
}

#[test]
fn the_c_library_and_its_parts_are_stood_for() {
    for file in [&b"libc.so.6"[..], b"libpthread.so.0", b"librt.so.1", b"liburing.so.2", b"libdl.so.2"] {
        assert!(holder(b"libc.so", file, true).is_stood_for());
    }
}

#[test]
fn other_libraries_are_not_stood_for() {
    for file in [&b""[..], b"libcrypt.so.1", b"libc++.so.1", b"liburing-ffi.so.2", b"ld-linux-x86-64.so.2"] {
        assert!(!holder(b"libc.so", file, true).is_stood_for());
    }
}

#[test]
fn a_library_behind_that_defines_a_function_means_the_next_one() {
    assert!(holder(b"libc.so", b"libwrap.so", true).asks_for_itself(b"read"));
}

#[test]
fn a_library_before_that_wraps_calls_gets_ours_for_descriptors() {
    assert!(!holder(b"libc.so", b"libwrap.so", false).asks_for_itself(b"read"));
}

#[test]
fn a_library_that_wraps_calls_means_the_c_librarys_own_processes() {
    for behind in [false, true] {
        assert!(holder(b"libc.so", b"libprofiler.so", behind).asks_for_itself(b"posix_spawn"));
    }
}

#[test]
fn a_library_that_wraps_nothing_gets_ours() {
    for name in [&b"read"[..], b"posix_spawn"] {
        assert!(!holder(b"libgcc_s", b"libgcc_s.so.1", true).asks_for_itself(name));
    }
}

#[test]
fn the_program_gets_ours_whatever_it_defines() {
    for name in [&b"read"[..], b"posix_spawn"] {
        assert!(!holder(b"libc.so", b"", true).asks_for_itself(name));
    }
}
