//! `shunt capture`: what two programs say to each other through shared memory is what tshark reads, and no program waits for the reader.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{library, plain, SHUNT};

/// A program under shunt, ended with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(words: &[&str]) -> Command {
    let mut command = plain(SHUNT);
    command.args(["run", "--"]).args(words).env("SHUNT_LIBRARY", library()).stdout(Stdio::piped());
    command
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn redis(port: u16) -> Program {
    let server = run(&["redis-server", "--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1"]).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "the server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Program(server)
}

/// The file that a process's state lies in, its notes behind it.
fn memory_of_state(pid: u32) -> File {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let is_state = |path: &PathBuf| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("shunt-process"));
    let found = entries.filter_map(|entry| Some(entry.ok()?.path())).find(is_state);
    File::open(found.expect("the server is under shunt")).unwrap()
}

/// A process is captured by one command at a time.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A capture that runs.
struct Capture {
    child: Child,
    errors: BufReader<std::process::ChildStderr>,
}

impl Capture {
    fn start(file: &Path, arguments: &[&str]) -> Capture {
        let mut command = plain(SHUNT);
        command.arg("capture").arg("-o").arg(file).args(arguments).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        assert!(line.starts_with("shunt: capturing"), "{line}");
        Capture { child, errors }
    }

    /// What it says at its end.
    fn end(mut self) -> String {
        // SAFETY: a signal to our own child.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) }, 0);
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

fn tshark(file: &Path, arguments: &[&str]) -> String {
    let output =
        Command::new("tshark").arg("-r").arg(file).args(arguments).output().expect("tshark is there (scripts/prepare test)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn tshark_follows_what_was_said() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.pcapng");
    let port = free_port();
    let port_text = port.to_string();
    let _server = redis(port);
    // It connects before the capture begins, and goes on afterwards.
    let mut old = Program(run(&["redis-cli", "-p", &port_text]).stdin(Stdio::piped()).spawn().unwrap());
    let mut answers = BufReader::new(old.0.stdout.take().unwrap()).lines();
    let mut say = |line: &str| {
        writeln!(old.0.stdin.as_ref().unwrap(), "{line}").unwrap();
        answers.next().unwrap().unwrap()
    };
    assert_eq!(say("set before nobody-sees-this"), "OK");

    let capture = Capture::start(&file, &[&format!("dport = :{port}")]);
    assert_eq!(say("set key said-by-the-old-one"), "OK");
    assert_eq!(say("get key"), "said-by-the-old-one");
    // Both ends have all of their memory for notes when they were looked at once: much that comes before that may find no room.
    let times = || std::fs::read(&file).unwrap().windows(19).filter(|part| part == b"said-by-the-old-one").count();
    let limit = Instant::now() + Duration::from_secs(20);
    while times() < 2 {
        assert!(Instant::now() < limit, "nothing is captured");
        std::thread::sleep(Duration::from_millis(5));
    }
    // One that lives for a moment is told of by the server's end.
    let young = run(&["redis-cli", "-p", &port_text, "get", "key"]).output().unwrap();
    assert!(young.status.success());
    // Something long, in both directions.
    let long = "0123456789abcdef".repeat(12_000);
    let mut client = run(&["redis-cli", "-p", &port_text, "-x", "set", "long"]).stdin(Stdio::piped()).spawn().unwrap();
    client.stdin.take().unwrap().write_all(long.as_bytes()).unwrap();
    assert!(client.wait_with_output().unwrap().status.success());
    let back = run(&["redis-cli", "-p", &port_text, "get", "long"]).output().unwrap();
    assert_eq!(back.stdout.len(), long.len() + 1);
    std::thread::sleep(Duration::from_millis(100));
    let said = capture.end();
    assert!(said.contains("4 connections") && !said.contains("missing"), "{said}");

    let streams = tshark(&file, &["-T", "fields", "-e", "tcp.stream"]);
    let count = streams.lines().filter_map(|line| line.parse::<u32>().ok()).max().unwrap() + 1;
    assert_eq!(count, 4, "{streams}");
    let follow = |stream: u32| tshark(&file, &["-q", "-z", &format!("follow,tcp,ascii,{stream}")]);
    let all: Vec<String> = (0..count).map(follow).collect();
    let first = &all[0];
    for words in ["said-by-the-old-one", "get", "+OK"] {
        assert!(first.contains(words), "{words}:\n{first}");
    }
    assert!(all.iter().all(|stream| !stream.contains("nobody-sees-this")));
    assert!(all[1].contains("get") && all[1].contains("said-by-the-old-one"), "the young one:\n{}", all[1]);
    for stream in &all[2..] {
        assert!(stream.matches("0123456789abcdef").count() > 11_000, "{}", stream.len());
    }
    // Nothing lost, nothing twice, as a stranger sees it.
    let odd = tshark(&file, &["-Y", "tcp.analysis.lost_segment or tcp.analysis.retransmission or tcp.analysis.out_of_order"]);
    assert_eq!(odd, "");
    // The dissector of the protocol understands it, too.
    let resp = tshark(&file, &["-d", &format!("tcp.port=={port},resp"), "-Y", "resp", "-T", "fields", "-e", "frame.protocols"]);
    assert!(resp.contains("resp"), "{resp}");

    // Afterwards it is as it was.
    assert_eq!(say("get key"), "said-by-the-old-one");
    let size = std::fs::metadata(&file).unwrap().len();
    let again = Capture::start(&directory.path().join("y.pcapng"), &["dport = :1"]);
    assert_eq!(say("get key"), "said-by-the-old-one");
    assert!(again.end().contains("0 connections"));
    assert_eq!(std::fs::metadata(&file).unwrap().len(), size);
}

#[test]
fn no_program_waits_for_a_reader_that_stopped() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let port_text = port.to_string();
    let _server = redis(port);
    let capture = Capture::start(&directory.path().join("x.pcapng"), &[]);
    // SAFETY: a signal to our own child.
    unsafe { libc::kill(capture.child.id() as i32, libc::SIGSTOP) };
    // Far more than the notes have room for.
    let output =
        run(&["redis-benchmark", "-p", &port_text, "-t", "set", "-n", "20000", "-d", "4096", "-c", "2", "-q"]).output().unwrap();
    assert!(output.status.success());
    // SAFETY: as above.
    unsafe { libc::kill(capture.child.id() as i32, libc::SIGCONT) };
    let said = capture.end();
    assert!(said.contains("bytes are missing"), "{said}");
}

#[test]
fn a_capture_that_was_killed_leaves_nothing_in_the_way() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let port_text = port.to_string();
    let server = redis(port);
    let mut capture = Capture::start(&directory.path().join("x.pcapng"), &[]);
    capture.child.kill().unwrap();
    capture.child.wait().unwrap();
    let output = run(&["redis-benchmark", "-p", &port_text, "-t", "get", "-n", "20000", "-c", "2", "-q"]).output().unwrap();
    assert!(output.status.success());
    // Once the old one has been silent for a while, nothing is noted any more, and the memory for notes is given back.
    let state = memory_of_state(server.0.id());
    let before = state.metadata().unwrap().blocks() * 512;
    let end = Instant::now() + Duration::from_secs(60);
    while state.metadata().unwrap().blocks() * 512 * 2 > before {
        assert!(Instant::now() < end, "{before} bytes, and they stay");
        assert!(run(&["redis-cli", "-p", &port_text, "ping"]).output().unwrap().status.success());
    }
    // And the next one has the processes.
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let file = directory.path().join("y.pcapng");
        let capture = Capture::start(&file, &[&format!("dport = :{port}")]);
        assert!(run(&["redis-cli", "-p", &port_text, "ping"]).output().unwrap().status.success());
        std::thread::sleep(Duration::from_millis(200));
        if !capture.end().contains("0 connections") {
            assert!(tshark(&file, &["-q", "-z", "follow,tcp,ascii,0"]).contains("PONG"));
            break;
        }
        assert!(Instant::now() < end, "the killed capture is in the way for ever");
    }
}

#[test]
fn mistakes_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x");
    for (arguments, status) in [(&["dport", "x"][..], 2), (&["--snaplen", "0"], 2)] {
        let output = plain(SHUNT).arg("capture").arg("-o").arg(&file).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
    }
    let output = plain(SHUNT).args(["capture", "-o", "/nowhere/x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_child_of_another_user_has_nothing_of_its_parent_s_state() {
    if !crate::common::is_root() {
        return; // it cannot become another user
    }
    const PROGRAM: &str = r#"
import ctypes, os, socket
def states():
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            if "shunt-process" in os.readlink("/proc/self/fd/" + number):
                found.add(os.stat("/proc/self/fd/" + number).st_ino)
        except OSError:
            pass
    found.update(int(line.split()[4]) for line in open("/proc/self/maps") if "shunt-process" in line)
    return found
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
served, _ = server.accept()
own = states()
assert len(own) == 1, own
if os.fork() == 0:
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
    theirs = states()
    assert not own & theirs, (own, theirs)
    served.sendall(b"still")
    os._exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
assert client.recv(9) == b"still" and states() == own
print("separate")
"#;
    let output = run(&["python3", "-c", PROGRAM]).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "separate\n", "{}", String::from_utf8_lossy(&output.stderr));
}
