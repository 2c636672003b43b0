//! Bytes of the environment and of files, which any program may have written.

use super::*;
use crate::image::{is_go, judge, judge_in_path, Start};
use crate::inherit::{take_up, VARIABLE};
use std::ffi::CString;

#[test]
fn a_variable_of_nonsense_takes_nothing_up_and_closes_nothing() {
    let connection = Connection::new();
    let probe = pair(libc::SOCK_STREAM);
    let outputs = [1, 2].map(is_open);
    let mut random = random_numbers(0x0bad_5eed_0bad_5eed);
    for _ in 0..200 {
        let mut list = Vec::new();
        for _ in 0..random() % 8 {
            list.extend([b"L", b"R", b"I", b"E", b",", b"x"][random() as usize % 6]);
            let number = [probe[0] as i64, connection.client as i64, -1, 1 << 40, 1, 2, random() as i64][random() as usize % 7];
            list.extend(number.to_string().bytes());
            list.extend([&b","[..], b".", b".1.2.3,", b""][random() as usize % 4]);
        }
        take_up(&list);
    }
    assert!(probe.into_iter().chain([connection.client, connection.server]).all(is_open));
    assert_eq!([1, 2].map(is_open), outputs);
    assert_eq!([connection.client, connection.server].map(|fd| table::get(fd).kind()), [Kind::Stream; 2]);
    probe.into_iter().for_each(|fd| calls::close(fd).unwrap());
    assert!(!VARIABLE.contains('='));
}

#[test]
fn notes_are_read_to_their_end_whatever_they_say() {
    let mut random = random_numbers(0x2545_f491_4f6c_dd1d);
    for _ in 0..20_000 {
        let mut notes: Vec<u8> = (0..random() % 80).map(|_| random() as u8).collect();
        for at in (0..notes.len()).step_by(4).filter(|_| random() & 1 == 0).collect::<Vec<_>>() {
            notes[at..].iter_mut().take(4).enumerate().for_each(|(place, byte)| *byte = if place == 0 { *byte & 15 } else { 0 });
        }
        let says_go = notes.windows(3).any(|part| part == b"Go\0");
        assert!(!is_go(&notes) || says_go);
    }
}

/// A script with this text, as a file that may be executed.
fn script(name: &str, text: &str) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("shunt-texts-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn judged(path: &std::path::Path) -> Start {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a C string.
    unsafe { judge(libc::AT_FDCWD, path.as_ptr()) }
}

#[test]
fn a_script_whose_interpreter_is_a_script_is_followed_as_far_as_the_kernel_follows() {
    let mut path = script("0", "#!/bin/sh\n");
    let mut judgements = Vec::new();
    for depth in 1..7 {
        path = script(&depth.to_string(), &format!("#!{}\n", path.display()));
        // A child that another test forks may have the file open for writing for a moment more.
        let runs = loop {
            match std::process::Command::new(&path).status() {
                Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => {}
                other => break other.is_ok(),
            }
        };
        judgements.push((judged(&path) == Start::Shunt, runs));
    }
    assert!(judgements.iter().all(|(shunt, runs)| shunt == runs), "{judgements:?}");
    assert!(judgements[0].0 && !judgements[5].0);
    (0..7).for_each(|depth| {
        drop(std::fs::remove_file(std::env::temp_dir().join(format!("shunt-texts-{}-{depth}", std::process::id()))))
    });
}

#[test]
fn a_program_is_found_where_execvp_finds_it() {
    let at = script("found", "#!/bin/sh\n");
    let (directory, name) = (at.parent().unwrap().to_str().unwrap(), at.file_name().unwrap().to_str().unwrap());
    let file = CString::new(name).unwrap();
    // SAFETY: a C string.
    let look = |search: Option<&str>| unsafe { judge_in_path(file.as_ptr(), search.map(str::as_bytes)) };
    assert_eq!(look(Some(directory)), Start::Shunt);
    assert_eq!(look(Some(&format!("/no/such:{directory}:/bin"))), Start::Shunt);
    assert_eq!([look(Some("/no/such")), look(None), look(Some(&"x".repeat(5_000)))], [Start::Fails; 3]);
    std::fs::remove_file(&at).unwrap();
}

#[test]
fn a_directory_of_the_program_s_name_is_passed_by() {
    let at = std::env::temp_dir().join(format!("shunt-search-{}", std::process::id()));
    std::fs::create_dir_all(at.join("sh")).unwrap();
    let search = format!("{}:/bin", at.display());
    // SAFETY: C strings.
    let found = unsafe {
        [judge_in_path(c"sh".as_ptr(), Some(search.as_bytes())), judge_in_path(c"sh".as_ptr(), at.to_str().map(str::as_bytes))]
    };
    assert_eq!(found, [Start::Shunt, Start::Fails]);
    std::fs::remove_dir_all(&at).unwrap();
}

#[test]
fn what_is_no_file_to_execute_fails_before_it_is_opened() {
    for path in ["/", "/dev/null", "/proc/self/mem", ""] {
        assert_ne!(judged(std::path::Path::new(path)), Start::Shunt, "{path:?}");
    }
    let fifo = std::env::temp_dir().join(format!("shunt-fifo-{}", std::process::id()));
    let name = CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: a C string; mknod makes a FIFO without a device.
    assert_eq!(unsafe { shunt_sys::syscall!(libc::SYS_mknodat, libc::AT_FDCWD, name.as_ptr(), libc::S_IFIFO | 0o777, 0) }, 0);
    assert_ne!(judged(&fifo), Start::Shunt, "nor does it hold the caller");
    std::fs::remove_file(&fifo).unwrap();
}
