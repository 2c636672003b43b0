//! Modes, beside what the C library's own fopen(3) and popen(3) do with them.

use super::*;
use std::ffi::CString;

/// Modes that programs use, and such whose letters stand in odd places.
const MODES: [&str; 22] = [
    "r",
    "w",
    "a",
    "r+",
    "w+",
    "a+",
    "rb",
    "wb",
    "ab",
    "rb+",
    "r+b",
    "re",
    "we",
    "ae",
    "w+e",
    "ab+e",
    "rm",
    "rc",
    "w,",
    "r,ccs=UTF-8",
    "rbbbbbbe",
    "wbbbbbb+",
];

/// A directory of the test's, and a file in it.
fn place(name: &str) -> std::path::PathBuf {
    let directory = std::env::temp_dir().join(format!("shunt-modes-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory.join("file")
}

/// What the C library's fopen(3) opens a file with: open flags as the kernel tells them, with O_CLOEXEC. `None`: it refuses.
fn as_fopen(path: &std::path::Path, mode: &str) -> Option<c_int> {
    let (path, mode) = (CString::new(path.to_str().unwrap()).unwrap(), CString::new(mode).unwrap());
    // SAFETY: C strings; a FILE that is asked and closed.
    unsafe {
        let stream = libc::fopen(path.as_ptr(), mode.as_ptr());
        if stream.is_null() {
            return None;
        }
        let fd = libc::fileno(stream);
        let closed = libc::fcntl(fd, libc::F_GETFD) & libc::FD_CLOEXEC != 0;
        let flags = libc::fcntl(fd, libc::F_GETFL) & (libc::O_ACCMODE | libc::O_APPEND);
        libc::fclose(stream);
        Some(flags | if closed { libc::O_CLOEXEC } else { 0 })
    }
}

#[test]
fn a_file_is_opened_as_fopen_opens_it() {
    let path = place("opened");
    for mode in MODES {
        std::fs::write(&path, "text").unwrap();
        let told = libc::O_ACCMODE | libc::O_APPEND | libc::O_CLOEXEC;
        assert_eq!(Some(open_flags(mode.as_bytes()).unwrap() & told), as_fopen(&path, mode), "{mode}");
    }
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn a_file_is_made_and_emptied_where_fopen_does_so() {
    let path = place("made");
    for mode in MODES {
        let _ = std::fs::remove_file(&path);
        let flags = open_flags(mode.as_bytes()).unwrap();
        assert_eq!(flags & libc::O_CREAT != 0, as_fopen(&path, mode).is_some(), "{mode} makes it");
        std::fs::write(&path, "text").unwrap();
        as_fopen(&path, mode).unwrap();
        assert_eq!(flags & libc::O_TRUNC != 0, std::fs::read(&path).unwrap().is_empty(), "{mode} empties it");
    }
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn an_exclusive_mode_refuses_a_file_that_is_there_as_fopen_does() {
    let path = place("exclusive");
    std::fs::write(&path, "text").unwrap();
    for mode in ["wx", "w+x", "ax"] {
        assert_ne!(open_flags(mode.as_bytes()).unwrap() & libc::O_EXCL, 0, "{mode}");
        assert_eq!(as_fopen(&path, mode), None, "{mode}");
    }
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn a_mode_that_fopen_refuses_opens_nothing() {
    let path = place("refused");
    for mode in ["", "z", "+r", "b", "R", " r"] {
        assert_eq!(open_flags(mode.as_bytes()), None, "{mode:?}");
        assert_eq!(as_fopen(&path, mode), None, "{mode:?}");
    }
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

/// The bits that say which directions a FILE of the C library's forbids, and that it appends.
const BITS: c_int = NO_READS | NO_WRITES | IS_APPENDING;

#[test]
fn a_file_forbids_what_the_c_librarys_own_forbids() {
    let path = place("forbids");
    for mode in MODES {
        std::fs::write(&path, "text").unwrap();
        let (name, text) = (CString::new(path.to_str().unwrap()).unwrap(), CString::new(mode).unwrap());
        // SAFETY: C strings; the first word of a FILE is its flags.
        let flags = unsafe {
            let stream = libc::fopen(name.as_ptr(), text.as_ptr());
            let flags = *stream.cast::<c_int>();
            libc::fclose(stream);
            flags
        };
        assert_eq!(directed(0, open_flags(mode.as_bytes()).unwrap()), flags & BITS, "{mode}");
    }
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn the_direction_that_a_file_had_before_is_forgotten() {
    assert_eq!(directed(BITS, open_flags(b"r+").unwrap()), 0);
    assert_eq!(directed(BITS, open_flags(b"w").unwrap()), NO_READS);
    assert_eq!(directed(NO_WRITES, open_flags(b"a").unwrap()), NO_READS | IS_APPENDING);
}

#[test]
fn bits_that_are_not_about_direction_stay() {
    let others = 0xfbad_2488_u32 as c_int & !BITS;
    assert_eq!(directed(others, open_flags(b"r").unwrap()), others | NO_WRITES);
}

/// Whether the C library's popen(3) takes a mode.
fn as_popen(mode: &str) -> bool {
    let mode = CString::new(mode).unwrap();
    // SAFETY: C strings; a FILE that is closed.
    unsafe {
        let stream = libc::popen(c"cat >/dev/null </dev/null".as_ptr(), mode.as_ptr());
        !stream.is_null() && libc::pclose(stream) >= 0
    }
}

#[test]
fn modes_of_pipes_are_those_that_popen_takes() {
    for mode in ["r", "w", "re", "we", "er", "rr", "", "e", "rw", "r+", "a", "wb", "R", " r", "ree"] {
        assert_eq!(of_pipe(mode.as_bytes()).is_some(), as_popen(mode), "{mode:?}");
    }
}

#[test]
fn a_pipes_mode_tells_direction_and_closing() {
    assert_eq!(of_pipe(b"r"), Some((true, false)));
    assert_eq!(of_pipe(b"ew"), Some((false, true)));
}
