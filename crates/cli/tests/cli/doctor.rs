//! `shunt doctor` says the truth about a machine that lacks something, and leaves a machine that has it alone.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::common::{copy, plain, Stage, SHUNT};
use serde_json::Value;

/// The report and the exit status.
fn report(command: &mut Command) -> (Value, Option<i32>) {
    let output = command.args(["doctor", "--json"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (serde_json::from_slice(&output.stdout).unwrap(), output.status.code())
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

fn with_limit(resource: libc::__rlimit_resource_t, value: u64) -> Command {
    let mut command = plain(SHUNT);
    // SAFETY: setrlimit is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
            libc::setrlimit(resource, &limit);
            Ok(())
        });
    }
    command
}

#[test]
fn without_the_library_nothing_can_be_accelerated() {
    let stage = Stage::new();
    let command = stage.path("alone/shunt");
    copy(SHUNT, &command);
    let (report, status) = report(&mut plain(&command));
    assert_eq!((status, &report["verdict"]), (Some(1), &"missing".into()));
    assert_eq!(check(&report, "library")["verdict"], "missing");

    let output = plain(&command).arg("doctor").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (lines, end) = text.split_once("\n\n").unwrap();
    for line in lines.lines() {
        assert!(["ok  ", "limited  ", "missing  "].iter().any(|verdict| line.starts_with(verdict)), "{line}");
    }
    assert!(end.starts_with("No program can be run under shunt"), "{end}");
}

#[test]
fn a_library_that_does_nothing_is_loaded_and_found_out() {
    let stage = Stage::new();
    let (report, status) = report(plain(SHUNT).env("SHUNT_LIBRARY", stage.library()));
    assert_eq!((check(&report, "library")["verdict"].as_str(), status), (Some("ok"), Some(1)));
    let trial = check(&report, "trial connection");
    assert_eq!(trial["verdict"], "missing");
    assert!(trial["found"].as_str().unwrap().contains("kept no record"), "{trial}");
}

#[test]
fn a_library_that_cannot_be_loaded_is_told() {
    let stage = Stage::new();
    let broken = stage.executable("broken.so", "not a library");
    let (report, status) = report(plain(SHUNT).env("SHUNT_LIBRARY", &broken));
    assert_eq!((check(&report, "library")["verdict"].as_str(), status), (Some("missing"), Some(1)));

    let fatal = stage.compile(
        "fatal.so",
        "#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { _Exit(9); }\n",
        &["-shared", "-fPIC"],
    );
    let (report, _) = self::report(plain(SHUNT).env("SHUNT_LIBRARY", &fatal));
    assert!(check(&report, "library")["found"].as_str().unwrap().contains("exit status: 9"), "{report}");
}

#[test]
fn limits_of_the_shell_are_told() {
    let (report, status) = report(&mut with_limit(libc::RLIMIT_FSIZE, 1 << 20));
    assert_eq!((check(&report, "limit of file size")["verdict"].as_str(), status), (Some("missing"), Some(1)));
    assert_eq!(check(&report, "memory files")["verdict"], "missing");

    let (report, _) = self::report(&mut with_limit(libc::RLIMIT_NOFILE, 64));
    assert_eq!(check(&report, "limit of open files")["verdict"], "limited");
}

#[test]
fn what_makes_regions_copies_is_told() {
    let (report, _) = report(&mut with_limit(libc::RLIMIT_MEMLOCK, 64 << 10));
    assert_eq!(check(&report, "limit of locked memory")["verdict"], "limited");
    let (report, _) = self::report(&mut with_limit(libc::RLIMIT_MEMLOCK, 4 << 20));
    assert_eq!(check(&report, "limit of locked memory")["verdict"], "ok");
    assert!(check(&report, "memory cgroup")["found"].is_string());

    // A user namespace that allows no other inside.
    let mut command = plain(SHUNT);
    // SAFETY: system calls alone.
    unsafe {
        command.pre_exec(|| {
            if libc::unshare(libc::CLONE_NEWUSER) != 0 {
                return Ok(());
            }
            let file = libc::open(c"/proc/sys/user/max_user_namespaces".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            libc::write(file, c"0".as_ptr().cast(), 1);
            Ok(())
        });
    }
    let (report, _) = self::report(&mut command);
    let huge = check(&report, "huge pages of regions");
    assert_eq!(huge["verdict"], "limited", "{huge}");
    assert!(huge["found"].as_str().unwrap().contains("user namespace"), "{huge}");
}
