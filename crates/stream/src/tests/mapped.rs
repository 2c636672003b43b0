//! Files in memory that sendfile sends again, mapped until they are closed.

use shunt_pipes::mapped_files;
use shunt_sys::calls;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;

fn file(name: &str, bytes: &[u8]) -> std::fs::File {
    let name = std::ffi::CString::new(name).unwrap();
    let fd = calls::memfd_create(name.as_bytes_with_nul(), shunt_sys::libc::MFD_CLOEXEC).unwrap();
    // SAFETY: just made, and of no other owner.
    let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
    file.write_all(bytes).unwrap();
    file
}

fn is_mapped(name: &str) -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains(name)
}

fn seen(fd: i32, offset: i64, most: usize) -> Option<Vec<u8>> {
    let mapped = mapped_files::get(fd)?;
    let (start, length) = mapped.bytes(offset, most);
    // SAFETY: mapped as long as `mapped` is there, and nobody shortens it.
    Some(unsafe { std::slice::from_raw_parts(start, length) }.to_vec())
}

#[test]
fn a_file_that_comes_again_is_mapped_until_it_is_closed() {
    let file = file("mapped-again", &[7; 9000]);
    let fd = file.as_raw_fd();
    assert!(mapped_files::get(fd).is_none(), "it never came");
    mapped_files::enter(fd);
    assert!(!is_mapped("mapped-again"), "it came once");
    assert_eq!(seen(fd, 8990, 100), Some(vec![7; 10]));
    assert_eq!(seen(fd, 9000, 100), Some(vec![]));
    assert_eq!(seen(fd, -1, 100), Some(vec![]));
    assert!(is_mapped("mapped-again"));
    let used = mapped_files::get(fd).unwrap();
    mapped_files::closing(fd);
    assert!(mapped_files::get(fd).is_none() && is_mapped("mapped-again"), "a call reads it");
    drop(used);
    assert!(!is_mapped("mapped-again"));
}

#[test]
fn what_has_changed_is_not_read_through_a_mapping() {
    let (one, other) = (file("mapped-one", &[1; 5000]), file("mapped-other", &[2; 5000]));
    let fd = one.as_raw_fd();
    let enter = || {
        mapped_files::enter(fd);
        assert!(mapped_files::get(fd).is_some() && is_mapped("mapped-one"));
    };
    enter();
    one.set_len(4000).unwrap();
    assert!(mapped_files::get(fd).is_none() && !is_mapped("mapped-one"), "it is shorter");
    enter();
    one.set_len(100_000).unwrap();
    assert!(mapped_files::get(fd).is_none(), "it has a hole");
    mapped_files::enter(fd);
    assert!(mapped_files::get(fd).is_none(), "it still has");
    one.set_len(4000).unwrap();
    enter();
    // Past the library, as an instruction of the program's own would.
    calls::dup3(other.as_raw_fd(), fd, shunt_sys::libc::O_CLOEXEC).unwrap();
    assert!(mapped_files::get(fd).is_none() && !is_mapped("mapped-one"), "the number is another file's");
}

#[test]
fn long_files_and_those_of_other_kinds_are_left_alone() {
    let long = file("mapped-long", &vec![0; (4 << 20) + 1]);
    let on_disk = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    for fd in [long.as_raw_fd(), on_disk.as_raw_fd()] {
        mapped_files::enter(fd);
        assert!(mapped_files::get(fd).is_none());
        mapped_files::closing(fd);
    }
}
