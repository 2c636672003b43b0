//! What can be seen of a job: which rank waits for what, and traces.

mod jobs;

use jobs::{built, compiled, job, running, scratch, text, Apart};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output};

/// Processes that one has started.
fn children(process: u32) -> Vec<u64> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    children.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// What each rank waits for, as the ranks have written it before they slept: looked at until all sleep.
#[test]
fn the_view_tells_what_ranks_wait_for() {
    let program = compiled("waits");
    let mut job = running(&mut job(4, &program, &[]));
    let mut line = String::new();
    BufReader::new(job.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    let wanted = [
        "barrier of ranks 0 to 3; not there: ranks 1 to 3",
        "-",
        "a lock that rank 1 has",
        "a value at offset 0x0 of the own heap",
    ];
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let number = job.id().to_string();
    let view = || Command::new(built("shunt")).args(["spmd", "--view", &number]).output().unwrap();
    loop {
        let said = text(&view().stdout);
        let rows: Vec<&str> = said.lines().skip(1).collect();
        if rows.len() == 4 && rows.iter().zip(wanted).all(|(row, wait)| row.contains("runs") && row.trim_end().ends_with(wait)) {
            break;
        }
        assert!(std::time::Instant::now() < limit, "{said}");
    }
    // Among all that runs on this host, the same is in lines of JSON.
    let filter = format!("program {}", program.file_name().unwrap().to_str().unwrap());
    let top = |words: &[&str]| Command::new(built("shunt")).args(["top", "-n", "1", "-d", "0.1"]).args(words).output().unwrap();
    let line: serde_json::Value = serde_json::from_slice(&top(&["--json"]).stdout).unwrap();
    let own: Vec<u64> = children(job.id());
    let ranks: Vec<_> =
        line["ranks"].as_array().unwrap().iter().filter(|row| own.contains(&row["pid"].as_u64().unwrap())).collect();
    assert_eq!(ranks.iter().map(|row| row["rank"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3], "{line}");
    let waits: Vec<_> = ranks.iter().map(|row| (row["waits"].as_str(), row["waits_for_ranks"].clone())).collect();
    let none = serde_json::json!([]);
    let right = [
        (Some("barrier"), serde_json::json!([1, 2, 3])),
        (None, none.clone()),
        (Some("lock"), serde_json::json!([1])),
        (Some("value"), none),
    ];
    assert_eq!(waits, right, "{line}");
    assert!(ranks.iter().all(|row| row["job"] == ranks[0]["job"] && row["state"] == "runs"), "{line}");
    let tables = text(&top(&["-b", &filter]).stdout);
    assert!(tables.contains("4 ranks;") && tables.contains("a lock that rank 1 has"), "{tables}");
    // SAFETY: a process that this test has started.
    unsafe { libc::kill(job.id() as i32, libc::SIGTERM) };
    job.wait().unwrap();
    let output = view();
    assert!(text(&output.stderr).contains("there is no process"), "{output:?}");
}

/// Runs `traced.c` on three ranks, traced; how it ended, and the file.
fn traced(how: &str) -> (Output, serde_json::Value) {
    let program = compiled("traced");
    let file = scratch().join(format!("trace-{how}.json"));
    let mut command = Command::new(built("shunt"));
    command.args(["spmd", "-n", "3", "--trace"]).arg(&file).arg("--").arg(&program).arg(how);
    let output = command.output().unwrap();
    (output, serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap())
}

/// Nanoseconds of a number of microseconds with three digits behind the point.
fn nanoseconds(value: &serde_json::Value) -> i64 {
    (value.as_f64().unwrap() * 1000.0).round() as i64
}

/// The events of a rank's track: names, begin and end; those that cross are refused here.
fn events(trace: &serde_json::Value, rank: usize) -> Vec<(String, i64, i64, serde_json::Value)> {
    let of_rank = |event: &&serde_json::Value| event["tid"] == rank && event["ph"] == "X";
    let events: Vec<_> = trace["traceEvents"].as_array().unwrap().iter().filter(of_rank).collect();
    let event = |event: &&serde_json::Value| {
        let (begin, length) = (nanoseconds(&event["ts"]), nanoseconds(&event["dur"]));
        assert!(begin >= 0 && length >= 0, "{event}");
        (event["name"].as_str().unwrap().to_owned(), begin, begin + length, event["args"].clone())
    };
    let events: Vec<_> = events.iter().map(event).collect();
    for (at, (name, begin, end, _)) in events.iter().enumerate() {
        // Ordered by their ends: the next few are enough, and a trace may have many.
        for (other, later, last, _) in events[at + 1..].iter().take(20) {
            assert!(end <= last && (end <= later || later <= begin), "{name} and {other} of rank {rank}");
        }
    }
    events
}

#[test]
fn a_trace_tells_what_each_rank_did() {
    let (output, trace) = traced("whole");
    assert!(output.status.success() && output.stdout == b"fine\n", "{output:?}");
    assert_eq!(trace["otherData"], serde_json::json!({ "ranks": 3, "lost": [0, 0, 0], "refused": [0, 0, 0] }));
    for rank in 0..3 {
        let named = |event: &serde_json::Value| event["tid"] == rank && event["args"]["name"] == format!("rank {rank}");
        assert!(trace["traceEvents"].as_array().unwrap().iter().any(named), "{trace}");
        let events = events(&trace, rank);
        let find =
            |name: &str| -> Vec<_> { events.iter().filter(|event| event.0 == name).map(|event| event.3.clone()).collect() };
        let next = (rank + 1) % 3;
        let all = serde_json::json!({ "start": 0, "stride": 1, "size": 3 });
        assert!(find("barrier").len() > 3 && find("barrier").iter().all(|group| *group == all), "{trace}");
        assert_eq!(find("sync"), std::slice::from_ref(&all));
        for name in ["put", "get"] {
            assert_eq!(find(name), [serde_json::json!({ "bytes": 65536, "rank": next })], "{name}");
        }
        let waits = find("wait_until");
        assert_eq!(waits.len(), 2, "{waits:?}");
        // The signal is the second word of what was allocated after 64 KiB.
        assert!(waits[0]["offset"].as_u64().unwrap() >= 65536 + 8 && waits[1]["static_offset"].is_u64(), "{waits:?}");
        let lock = find("set_lock");
        assert!(lock.len() == 1 && lock[0]["static_offset"].is_u64(), "{lock:?}");
        assert_eq!(find("reduce"), [serde_json::json!({ "start": 0, "stride": 1, "size": 3, "bytes": 8 })]);
    }
}

#[test]
fn a_trace_counts_what_it_lost() {
    let (output, trace) = traced("many");
    assert!(output.status.success(), "{output:?}");
    for rank in 0..3 {
        let events = events(&trace, rank);
        assert_eq!(events.len(), 65536);
        assert!(trace["otherData"]["lost"][rank].as_u64().unwrap() > 2 * 40000 - 65536);
        assert_eq!(trace["otherData"]["refused"][rank], 0);
    }
}

#[test]
fn a_killed_rank_leaves_a_trace() {
    let (output, trace) = traced("kill");
    assert_eq!(output.status.code(), Some(137), "{output:?}");
    for rank in 0..3 {
        let events = events(&trace, rank);
        for name in ["barrier", "put", "wait_until", "set_lock"] {
            assert!(events.iter().any(|event| event.0 == name), "{name} of rank {rank}");
        }
    }
}

#[test]
fn a_trace_that_cannot_be_written_is_refused_before_the_start() {
    let refused = |words: &[&str]| {
        let output = Command::new(built("shunt")).arg("spmd").args(words).args(["--", "echo", "started"]).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        text(&output.stderr)
    };
    let said = refused(&["-n", "2", "--trace", "/no/such/directory/file"]);
    assert!(said.contains("--trace /no/such/directory/file: cannot be written") && said.lines().count() == 1, "{said}");
    let said = refused(&["--hosts", "a:1,b:1", "--trace", "/no/such/directory/file"]);
    assert!(said.contains("--trace /no/such/directory/file: cannot be written"), "{said}");
    let output = Command::new(built("shunt")).args(["spmd", "--view", "1", "--trace", "file"]).output().unwrap();
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("--trace"), "{output:?}");
    let full = Command::new(built("shunt")).args(["spmd", "-n", "1", "--trace", "/dev/full", "--", "true"]).output().unwrap();
    assert!(full.status.code() == Some(1) && text(&full.stderr).contains("cannot be written"), "{full:?}");
}

/// Runs `traced.c` on a rank of one host and two of another.
fn traced_apart(apart: &Apart, how: &str) -> (Output, serde_json::Value) {
    let program = compiled("traced").display().to_string();
    let file = scratch().join(format!("trace-apart-{how}.json"));
    let words = ["--trace", &file.display().to_string(), "--", &program, how];
    let output = apart.job([1, 2], &words).output().unwrap();
    (output, serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap())
}

/// Ranks of several hosts are in one file, by one clock.
#[test]
fn a_trace_is_of_all_hosts() {
    let Some(apart) = Apart::new() else { return };
    let (output, trace) = traced_apart(&apart, "whole");
    assert!(output.status.success() && output.stdout == b"fine\n", "{output:?}");
    assert_eq!(trace["otherData"], serde_json::json!({ "ranks": 3, "lost": [0, 0, 0], "refused": [0, 0, 0] }));
    let barriers: Vec<Vec<(i64, i64)>> = (0..3)
        .map(|rank| {
            let events = events(&trace, rank);
            for name in ["put", "get", "wait_until", "set_lock", "reduce", "sync"] {
                assert!(events.iter().any(|event| event.0 == name), "{name} of rank {rank}: {trace}");
            }
            events.iter().filter(|event| event.0 == "barrier").map(|(_, begin, end, _)| (*begin, *end)).collect()
        })
        .collect();
    // No rank leaves a barrier before the last one has come, as far as clocks of two hosts can tell.
    const CLOCKS: i64 = 50_000_000;
    assert!(barriers[0].len() > 3 && barriers.iter().all(|of| of.len() == barriers[0].len()), "{barriers:?}");
    for at in 0..barriers[0].len() {
        let last = barriers.iter().map(|of| of[at].0).max().unwrap();
        assert!(barriers.iter().all(|of| of[at].1 + CLOCKS > last), "{barriers:?}");
    }

    let (output, trace) = traced_apart(&apart, "kill");
    assert_eq!(output.status.code(), Some(137), "{output:?}");
    for rank in 0..3 {
        assert!(events(&trace, rank).iter().any(|event| event.0 == "wait_until"), "rank {rank}");
    }
}
