//! How jobs start, here and on other hosts, what ranks inherit, and where their output goes.

mod jobs;

use jobs::{built, compiled, run, running, text, Apart};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_program_that_cannot_start_is_named() {
    let output = run(2, Path::new("/nonexistent/program"), &[]);
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("/nonexistent/program"));
}

/// By a launcher without standard input, or with few descriptors.
#[test]
fn jobs_start_in_poor_surroundings() {
    let program = compiled("ends");
    for how in ["exec \"$@\" <&-", "exec \"$@\" <&- >&- 2>&-", "ulimit -n 20; exec \"$@\""] {
        let mut command = Command::new("sh");
        command.args(["-c", how, "sh"]).arg(built("shunt")).args(["spmd", "-n", "3", "--"]).arg(&program).arg("");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{how}: {output:?}");
    }
}

/// By a launcher whose own parent ignores signals, as `nohup` does, and shells for what runs in the background.
#[test]
fn signals_that_are_ignored_stay_so() {
    let program = compiled("ends");
    let started = |ignored: &str, how: &str| {
        let mut command = Command::new("env");
        command
            .arg(format!("--ignore-signal={ignored}"))
            .arg(built("shunt"))
            .args(["spmd", "-n", "2", "--"])
            .arg(&program)
            .arg(how);
        running(&mut command)
    };
    let output = started("CHLD", "").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mut child = started("HUP,INT", "storm");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    // The last of them alone has an effect.
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        // SAFETY: a process that this test has started.
        unsafe { libc::kill(child.id() as i32, signal) };
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + libc::SIGTERM), "{output:?}");
}

/// Nobody reads what the ranks have written, and the job ends all the same.
#[test]
fn a_reader_that_does_not_read_holds_nothing_up() {
    let mut command = Command::new(built("shunt"));
    command.args(["spmd", "-n", "2", "--label", "--", "sh", "-c", "echo up >&2; yes"]);
    let mut child = running(&mut command);
    let (unread, mut said) = (child.stdout.take(), BufReader::new(child.stderr.take().unwrap()));
    (0..2).for_each(|_| assert!(said.read_line(&mut String::new()).unwrap() > 0));
    // SAFETY: a process that this test has started.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGTERM));
    drop(unread);
}

#[test]
fn lines_are_labelled() {
    let mut command = Command::new(built("shunt"));
    let output = command.args(["spmd", "-n", "3", "--label", "--", "sh", "-c", "echo one; echo two >&2"]).output().unwrap();
    let sorted = |bytes: &[u8]| text(bytes).lines().map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
    assert_eq!(sorted(&output.stdout), ["[0] one", "[1] one", "[2] one"]);
    assert_eq!(sorted(&output.stderr), ["[0] two", "[1] two", "[2] two"]);
}

/// Ranks on two hosts: each where it should be, with output in whole lines, arguments, directory and variables.
#[test]
fn ranks_start_on_their_hosts() {
    let Some(apart) = Apart::new() else { return };
    let script = "echo $(pwd) \"$1\" $SHMEM_SAMPLE $(ip -br -4 addr show up | grep -o '10.77.0.[12]'); echo two >&2";
    let mut command = apart.job([2, 1], &["--label", "--", "sh", "-c", script, "sh", "a  b"]);
    let output = command.env("SHMEM_SAMPLE", "v").current_dir("/usr").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let sorted = |bytes: &[u8]| text(bytes).lines().map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
    let lines = ["[0] /usr a  b v 10.77.0.1", "[1] /usr a  b v 10.77.0.1", "[2] /usr a  b v 10.77.0.2"];
    assert_eq!(sorted(&output.stdout), lines);
    assert_eq!(sorted(&output.stderr), ["[0] two", "[1] two", "[2] two"]);
    // More than a frame and more than a pipe holds.
    let output = apart.job([1, 1], &["--", "head", "-c", "3000000", "/dev/zero"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 6_000_000));
}

/// A job whose ranks all live on another host shares a heap there, as one of both hosts does (`spmd_hosts.rs`).
#[test]
fn a_heap_on_another_host() {
    let Some(apart) = Apart::new() else { return };
    let program = compiled("types").display().to_string();
    let output = apart.job([0, 3], &["--", &program]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "fine\n".into()), "{output:?}");
    let output = apart.job([1, 1], &["--", &program]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "fine\n".into()), "{output:?}");
}

#[test]
fn hosts_that_cannot_start_are_named() {
    let Some(apart) = Apart::new() else { return };
    let output = apart.job([1, 1], &["--", "/nonexistent/program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert!(text(&output.stderr).contains(&format!("host {}", apart.names[0])) || text(&output.stderr).contains(&apart.names[1]));
    for (rsh, sentence) in [
        ("/nonexistent/rsh", "host left: cannot run /nonexistent/rsh"),
        ("false", "the agent on host left was lost"),
        ("echo", "what host left says is no agent's"),
    ] {
        let output = Command::new(built("shunt")).args(["spmd", "--rsh", rsh, "--hosts", "left", "--", "true"]).output().unwrap();
        assert_ne!(output.status.code(), Some(0));
        assert!(text(&output.stderr).contains(sentence), "{rsh}: {output:?}");
    }
}

/// Output that cannot be written is an error in words, whichever host it came from.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let check = |mut command: Command| {
        let output = command.stdout(std::fs::File::create("/dev/full").unwrap()).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains("the ranks' output cannot be written: No space left on device"), "{output:?}");
    };
    let mut command = Command::new(built("shunt"));
    command.args(["spmd", "-n", "2", "--label", "--", "echo", "words"]);
    check(command);
    let mut command = Command::new(built("shunt"));
    command.args(["spmd", "-n", "2", "--label", "--", "sh", "-c", "yes"]);
    check(command);
    if let Some(apart) = Apart::new() {
        check(apart.job([1, 1], &["--", "sh", "-c", "yes"]));
    }
}
