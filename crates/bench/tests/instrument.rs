//! The instrument from outside: what a run writes, what a broken contender does to it, and what is
//! left when it is killed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Runs spin on the same two cores: one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A directory that is also the run's TMPDIR, removed at the end of the test.
struct Place(PathBuf, #[allow(dead_code)] MutexGuard<'static, ()>);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("instrument-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        // Servers that change their user look in.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self(path, ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn bench(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt-bench"));
        command.args(arguments).env("TMPDIR", &self.0).current_dir(&self.0).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.bench(arguments).output().unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&fs::read(self.0.join("out/cell.json")).unwrap()).unwrap()
    }

    /// A command in shunt's place: does `run -- PROGRAM ARGUMENTS` as the script says.
    fn stand_in(&self, script: &str) -> String {
        let path = self.0.join("stand-in");
        fs::write(&path, format!("#!/bin/sh\nshift 2\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_string_lossy().into_owned()
    }

    /// What runs have left here: scratch directories, and processes that stand in one.
    fn left_behind(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let inside = |path: &Path| path.starts_with(&self.0) && path.to_string_lossy().contains("shunt-bench-");
        let paths = |directory: &str| fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
        let directories = paths(self.0.to_str().unwrap()).filter(|path| inside(path)).collect();
        let processes = paths("/proc").filter_map(|path| fs::read_link(path.join("cwd")).ok()).filter(|cwd| inside(cwd));
        (directories, processes.collect())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Median of a contender in a row of the first cell.
fn values<'a>(document: &'a Value, row: usize, contender: &str) -> &'a Vec<Value> {
    let contenders = document["cells"][0]["rows"][row]["contenders"].as_array().unwrap();
    let found = contenders.iter().find(|pair| pair[0] == contender).expect("the contender took part");
    found[1]["values"].as_array().unwrap()
}

#[test]
fn a_run_measures_every_contender_and_the_floor_and_writes_four_files() {
    let place = Place::new("files");
    let stand_in = place.stand_in("exec \"$@\"");
    let output =
        place.run(&["cell", "pingpong", "--repeat", "2", "--milliseconds", "400", "--output", "out", "--shunt", &stand_in]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document = place.json();
    for contender in ["kernel", "kernel-spinning", "shunt"] {
        assert_eq!(values(&document, 0, contender).len(), 2, "{contender}");
        assert!(values(&document, 0, contender).iter().all(|value| value.as_f64().unwrap() > 0.0));
    }
    assert_eq!(document["cells"][0]["rows"][0]["floors"][0]["series"]["values"].as_array().unwrap().len(), 2);
    let shunt = &document["cells"][0]["rows"][0]["contenders"][2][1];
    assert_eq!(shunt["accelerated"], Value::Bool(false), "a stand-in maps no link and is not taken for one that does");
    let table = fs::read_to_string(place.0.join("out/cell.txt")).unwrap();
    assert!(table.contains("8 B round trip, p50") && table.contains("no shared memory was seen"));
    assert!(fs::read(place.0.join("out/cell.png")).unwrap().starts_with(b"\x89PNG"));
    assert!(fs::read_to_string(place.0.join("out/cell.svg")).unwrap().contains("<svg"));
    assert_eq!(place.left_behind(), (vec![], vec![]));
}

#[test]
fn the_papers_calls_are_put_to_every_contender_and_drawn() {
    let place = Place::new("papers");
    let stand_in = place.stand_in("case \"$*\" in *\" -- \"*) while [ \"$1\" != -- ]; do shift; done; shift;; esac; exec \"$@\"");
    let output = place.run(&["papers", "--rpc", "--repeat", "1", "--output", "out", "--shunt", &stand_in]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&fs::read(place.0.join("out/rpc.json")).unwrap()).unwrap();
    assert_eq!((&document["schema"], &document["missing"]), (&"shunt.bench.rpc/1".into(), &Value::Array(vec![])));
    let points = document["points"].as_array().unwrap();
    let values = |series: &str, question: &str, length: u64| {
        let found = points.iter().find(|p| p["series"] == series && p["question"] == question && p["length"] == length);
        found.unwrap_or_else(|| panic!("{series}, {question}, {length}"))["values"].as_array().unwrap().len()
    };
    for series in ["kernel", "stream", "collapsed", "own"] {
        for (question, length) in [("echo", 0), ("echo", 3072), ("echo", 65_536), ("text", 0), ("text", 4096)] {
            assert_eq!(values(series, question, length), 1);
        }
    }
    for (series, question, length) in
        [("line", "trip", 0), ("endpoint", "trip", 0), ("own", "changed", 65_536), ("kernel", "sections", 0)]
    {
        assert_eq!(values(series, question, length), 1);
    }
    let text = fs::read_to_string(place.0.join("out/rpc.txt")).unwrap();
    assert!(text.contains("What reproduces") && String::from_utf8_lossy(&output.stdout).contains(&text), "{text}");
    for stem in ["rpc-shrimp-figure-4", "rpc-shrimp-figure-5", "rpc-shrimp-figure-6", "rpc-bandwidth", "rpc-sovia-figure-10"] {
        assert!(fs::read(place.0.join(format!("out/{stem}.png"))).unwrap().starts_with(b"\x89PNG"), "{stem}");
        assert!(fs::read_to_string(place.0.join(format!("out/{stem}.svg"))).unwrap().contains("<svg"), "{stem}");
    }
    assert_eq!(place.left_behind(), (vec![], vec![]));
}

#[test]
fn a_contender_that_breaks_down_is_named_and_the_others_go_on() {
    let place = Place::new("broken");
    let stand_in = place.stand_in("test \"$1\" = true && exit 0; echo out of order >&2; exit 3");
    let output = place.run(&["cell", "stream", "--repeat", "2", "--milliseconds", "20", "--output", "out", "--shunt", &stand_in]);
    assert_eq!(output.status.code(), Some(1));
    let document = place.json();
    assert_eq!(values(&document, 0, "kernel").len(), 2);
    let failure = document["cells"][0]["failures"][0].to_string();
    assert!(failure.contains("exit 3") && failure.contains("out of order"), "{failure}");
}

#[test]
fn a_shunt_that_does_not_work_at_all_is_an_error_before_any_figure() {
    let place = Place::new("dead");
    let stand_in = place.stand_in("echo no library >&2; exit 1");
    let output = place.run(&["cell", "pingpong", "--shunt", &stand_in]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no library"));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_place_that_cannot_be_written_is_told_before_any_figure() {
    let place = Place::new("unwritable");
    let stand_in = place.stand_in("exec \"$@\"");
    // A directory where the table should go: root is refused as well.
    fs::create_dir_all(place.0.join("out/cell.txt")).unwrap();
    for (output, word) in [("out", "cannot write out/cell.txt"), ("stand-in", "cannot make the directory stand-in")] {
        let ended = place.run(&["cell", "pingpong", "--shunt", &stand_in, "--output", output]);
        assert_eq!(ended.status.code(), Some(1));
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains(word) && !said.contains("pingpong"), "{said}");
    }
}

#[test]
fn who_reads_no_further_ends_nothing() {
    let place = Place::new("unread");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let arguments = ["cell", "idle", "--repeat", "1", "--idle-connections", "1", "--idle-seconds", "1", "--output", "out"];
    let ended = place.bench(&arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(place.0.join("out/cell.txt").exists());
}

#[test]
fn a_killed_run_leaves_neither_process_nor_file() {
    for (signal, whom) in [("KILL", "the measuring process"), ("TERM", "the supervisor"), ("INT", "the supervisor")] {
        let place = Place::new(signal);
        let mut run = place.bench(&["cell", "pingpong", "--milliseconds", "20000"]).stdout(Stdio::null()).spawn().unwrap();
        // Measuring has begun when a program runs in the scratch directory.
        wait_until("a program to start", || !place.left_behind().1.is_empty());
        let victim = if whom == "the supervisor" { run.id().to_string() } else { child_of(&run) };
        assert!(Command::new("kill").args(["-s", signal, &victim]).status().unwrap().success());
        assert!(!run.wait().unwrap().success());
        assert_eq!(place.left_behind(), (vec![], vec![]), "after SIG{signal} to {whom}");
    }
}

#[test]
fn the_files_of_a_killed_supervisor_go_with_the_next_run() {
    let place = Place::new("sweep");
    let mut run = place.bench(&["cell", "pingpong", "--milliseconds", "20000"]).stdout(Stdio::null()).spawn().unwrap();
    wait_until("a program to start", || !place.left_behind().1.is_empty());
    run.kill().unwrap();
    run.wait().unwrap();
    // Every program asked for SIGKILL when its parent dies.
    wait_until("all programs to end", || place.left_behind().1.is_empty());
    assert_eq!(place.left_behind().0.len(), 1, "nobody was left to remove the directory");
    place.run(&["cell", "pingpong", "--repeat", "1", "--milliseconds", "10"]);
    assert_eq!(place.left_behind(), (vec![], vec![]));
}

fn child_of(parent: &Child) -> String {
    let path = format!("/proc/{0}/task/{0}/children", parent.id());
    fs::read_to_string(path).unwrap().split(' ').next().unwrap().to_string()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(60), "waited a minute for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
