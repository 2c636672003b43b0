//! What `shunt run` must hand to the program as it found it: arguments, status, signals, descriptors, environment.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;

use crate::common::{copy, plain, quiet_output, Stage, SHUNT};

#[test]
fn exit_status() {
    let stage = Stage::new();
    for status in [0, 1, 2, 126, 127, 128, 255] {
        let result = stage.run().args(["--", "sh", "-c", &format!("exit {status}")]).status().unwrap();
        assert_eq!(result.code(), Some(status));
    }
}

#[test]
fn death_by_signal() {
    let stage = Stage::new();
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGPIPE] {
        let result = stage.run().args(["sh", "-c", &format!("kill -{signal} $$")]).status().unwrap();
        assert_eq!(result.signal(), Some(signal));
    }
}

#[test]
fn process_number() {
    let stage = Stage::new();
    let child = stage.run().args(["sh", "-c", "echo $$"]).stdout(Stdio::piped()).spawn().unwrap();
    let number = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), number.to_string());
}

#[test]
fn arguments_to_the_last_byte() {
    let stage = Stage::new();
    let words: [&[u8]; 11] =
        [b"sh", b"-c", b"cat /proc/$$/cmdline", b"name", b"", b"--ring", b"12q", b"--", b"--help", b"a\xff\xfe b", b"\n\t'\"$x"];
    for separator in [&["--"][..], &[]] {
        let output = stage.run().args(separator).args(words.iter().map(|word| OsStr::from_bytes(word))).output().unwrap();
        let expected: Vec<u8> = words.iter().flat_map(|word| word.iter().copied().chain([0])).collect();
        assert_eq!(output.stdout, expected);
    }
}

#[test]
fn the_programs_name_is_not_resolved() {
    let stage = Stage::new();
    let script = stage.executable("where", "#!/bin/sh\necho \"$0\"\n");
    let output = quiet_output(stage.run().arg("./where").current_dir(script.parent().unwrap()));
    assert_eq!(output, "./where\n");
    let output = quiet_output(stage.run().args(["head", "-c4", "/proc/self/cmdline"]));
    assert_eq!(output, "head");
}

#[test]
fn standard_input() {
    let stage = Stage::new();
    let mut child = stage.run().arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through the command").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"through the command");
}

#[test]
fn closed_descriptors_stay_closed() {
    let stage = Stage::new();
    let mut command = stage.run();
    command.args(["sh", "-c", "if test -e /proc/$$/fd/0; then echo open; else echo closed; fi"]);
    // SAFETY: close is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::close(0);
            Ok(())
        });
    }
    assert_eq!(quiet_output(&mut command), "closed\n");
}

/// The lines of /proc/PID/status that tell the signal mask and the ignored signals.
fn signal_lines(mut command: std::process::Command, change: fn()) -> String {
    // SAFETY: `change` makes only async-signal-safe calls.
    unsafe {
        command.pre_exec(move || {
            change();
            Ok(())
        });
    }
    quiet_output(command.args(["grep", "-E", "SigBlk|SigIgn", "/proc/self/status"]))
}

#[test]
fn signal_mask_and_dispositions() {
    fn defaults() {}
    fn unusual() {
        // SAFETY: these calls are async-signal-safe, and the set is initialised before it is used.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGUSR1);
            libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
        }
    }
    let stage = Stage::new();
    for change in [defaults, unusual] {
        assert_eq!(signal_lines(stage.run(), change), signal_lines(plain("env"), change));
    }
    // SIGHUP and SIGPIPE, beside whatever the tests' own caller ignores.
    let lines = signal_lines(stage.run(), unusual);
    let ignored = lines.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 0x1001, 0x1001);
    assert!(lines.contains("SigBlk:\t0000000000000200"), "{lines}");
}

#[test]
fn environment_except_for_ours() {
    let stage = Stage::new();
    let mut command = stage.run();
    command.args(["--ring", "64K", "--log=fallbacks", "env", "-0"]).env_clear();
    command.env("PATH", "/usr/bin:/bin").env("SHUNT_LIBRARY", stage.library()).env("EMPTY", "").env("SHUNT_SPIN", "1ms");
    command.env("ODD", OsStr::from_bytes(b"\xff=\n"));
    let output = command.output().unwrap().stdout;
    let mut lines: Vec<&[u8]> = output.split(|byte| *byte == 0).filter(|line| !line.is_empty()).collect();
    lines.sort();
    let preload = format!("LD_PRELOAD={}", stage.library().display());
    let library = format!("SHUNT_LIBRARY={}", stage.library().display());
    let mut expected: Vec<&[u8]> = vec![
        b"EMPTY=",
        preload.as_bytes(),
        b"ODD=\xff=\n",
        b"PATH=/usr/bin:/bin",
        library.as_bytes(),
        b"SHUNT_LOG=fallbacks",
        b"SHUNT_RING=64K",
        b"SHUNT_SPIN=1ms",
    ];
    expected.sort();
    assert_eq!(lines, expected);
}

#[test]
fn other_preloaded_libraries() {
    let stage = Stage::new();
    let other = stage.compile("other.so", "int other;", &["-shared", "-fPIC"]);
    let mut command = stage.run();
    let output = quiet_output(command.args(["cat", "/proc/self/environ", "/proc/self/maps"]).env("LD_PRELOAD", &other));
    let (library, other) = (stage.library().display().to_string(), other.display().to_string());
    assert!(output.contains(&format!("LD_PRELOAD={other}:{library}\0")), "{output}");
    let maps = output.rsplit('\0').next().unwrap();
    assert!(maps.contains(&library) && maps.contains(&other), "{maps}");
}

#[test]
fn running_within_running_preloads_once() {
    let stage = Stage::new();
    let output = quiet_output(stage.run().args([SHUNT, "run", "sh", "-c", "echo $LD_PRELOAD"]));
    assert_eq!(output, format!("{}\n", stage.library().display()));
}

#[test]
fn the_library_is_found_where_it_is_installed() {
    let stage = Stage::new();
    let command = stage.path("prefix/bin/shunt");
    copy(SHUNT, &command);
    let preloaded = || quiet_output(plain(&command).args(["run", "sh", "-c", "echo $LD_PRELOAD"]));
    for place in ["prefix/lib", "prefix/lib/shunt", "prefix/bin"] {
        let library = stage.path(place).join("libshunt.so");
        copy(stage.library(), &library);
        assert_eq!(preloaded(), format!("{}\n", library.display()));
    }
    let output =
        quiet_output(plain(&command).arg("run").arg("--library").arg(stage.library()).args(["sh", "-c", "echo $LD_PRELOAD"]));
    assert_eq!(output, format!("{}\n", stage.library().display()));
}

/// Only root can take /proc away, and only in a namespace of its own.
#[test]
fn the_library_is_found_without_proc() {
    let stage = Stage::new();
    let command = stage.path("bin/shunt");
    copy(SHUNT, &command);
    copy(stage.library(), &stage.path("bin/libshunt.so"));
    let hidden = "mount -t tmpfs none /proc && exec shunt run sh -c 'test ! -e /proc/self && echo $LD_PRELOAD'";
    let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", stage.path("bin").display());
    let output = plain("unshare").args(["--mount", "sh", "-c", hidden]).env("PATH", path).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if !errors.contains("unshare failed") && !errors.contains("mount: ") {
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{}\n", stage.path("bin/libshunt.so").display()), "{errors}");
    }
}
