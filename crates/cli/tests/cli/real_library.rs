//! The whole command with the real library: two programs talk, and `ss`, `why` and `doctor` tell the truth about it.
//! The programs are those of the doctor's trial connection; they use sockets as any program does.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::{plain, quiet_output, SHUNT};
use serde_json::Value;

/// The library as `make build` leaves it.
fn library() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/libshunt.so");
    path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}; run: make build", path.display()))
}

/// A program that lives until its input is closed, or until it is dropped.
struct Program {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Program {
    fn start(command: &mut Command) -> Program {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Program { child, lines }
    }

    /// The next line it prints: a port, or that it is done.
    fn line(&mut self) -> String {
        self.lines.next().expect("the program printed a line").unwrap()
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives it a line.
    fn tell(&mut self, line: &str) {
        let mut input = self.child.stdin.as_ref().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Closes its input and waits for its good end.
    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A doctor's probe, under shunt with `options` or as a plain program.
fn probe(shunt_config: Option<&[&str]>, words: &[&str]) -> Program {
    let mut command = plain(SHUNT);
    if let Some(options) = shunt_config {
        command.arg("run").args(options).arg("--").arg(SHUNT).env("SHUNT_LIBRARY", library());
    }
    Program::start(command.args(["doctor", "--probe"]).args(words))
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&quiet_output(plain(SHUNT).args(arguments).arg("--json"))).unwrap()
}

/// The connections to `port`.
fn connections(port: &str) -> Vec<Value> {
    let report = json(&["ss"]);
    let all = report["connections"].as_array().unwrap();
    let port: u16 = port.parse().unwrap();
    all.iter().filter(|connection| connection["server"]["port"] == port).cloned().collect()
}

/// The connected TCP socket of `program`, as `why` tells it.
fn socket_of(program: &Program) -> Value {
    let report = json(&["why", &program.pid().to_string()]);
    let sockets = report["sockets"].as_array().unwrap();
    sockets.iter().find(|socket| socket["kind"] == "tcp").unwrap_or_else(|| panic!("{report}")).clone()
}

#[test]
fn a_connection_is_shown_with_both_ends_and_then_no_more() {
    let mut server = probe(Some(&[]), &["serve"]);
    let port = server.line();
    let mut client = probe(Some(&[]), &["ask", &port]);
    assert_eq!(client.line(), "answered");

    let [connection] = &connections(&port)[..] else { panic!("{:?}", connections(&port)) };
    assert_eq!((&connection["state"], &connection["carrier"]), (&"established".into(), &"shared-memory".into()));
    for (end, program) in [("client", &client), ("server", &server)] {
        let end = &connection[end];
        assert_eq!((&end["pid"], &end["address"]), (&program.pid().into(), &"127.0.0.1".into()), "{connection}");
        assert_eq!(end["pids"].as_array().unwrap()[..], [Value::from(program.pid())]);
        assert_eq!((&end["sent_bytes"], &end["in_flight_bytes"]), (&8.into(), &0.into()), "{connection}");
    }

    let metrics = quiet_output(plain(SHUNT).arg("metrics"));
    for role in ["client", "server"] {
        let row = format!("shunt_connections_sent_bytes{{program=\"shunt\",role=\"{role}\",server_port=\"{port}\",carrier=\"shared-memory\"}} 8");
        assert!(metrics.lines().any(|line| line == row), "{row} is not in {metrics}");
    }

    let (asked, served) = (socket_of(&client), socket_of(&server));
    assert_eq!((&asked["reason"], &served["reason"]), (&"accelerated".into(), &"accelerated".into()));
    assert_eq!((&asked["local"], &asked["remote"]), (&served["remote"], &served["local"]));
    assert_eq!(asked["remote"], format!("127.0.0.1:{port}"));
    let listening = json(&["why", &server.pid().to_string()]);
    assert!(!listening.to_string().contains("no-record"), "{listening}");
    // What shunt keeps for itself is not taken for the program's.
    for program in [&client, &server] {
        let report = json(&["why", &program.pid().to_string()]);
        let of_kind = |kind| report["sockets"].as_array().unwrap().iter().filter(|socket| socket["kind"] == kind).count();
        assert_eq!((of_kind("tcp"), of_kind("other")), (1, 0), "{report}");
    }

    client.end();
    server.end();
    assert_eq!(connections(&port), [] as [Value; 0]);
}

/// Makes `command` unable to make AF_UNIX sockets, as RestrictAddressFamilies= of systemd does it.
fn without_unix(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt;
    let load = |at: u32| libc::sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: at };
    let unless = |value: u32, jf: u8| {
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        libc::sock_filter { code, jt: 0, jf, k: value }
    };
    let end = |with: u32| libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: with };
    let filter = [
        load(0), // the call's number
        unless(libc::SYS_socket as u32, 3),
        load(16), // the lower half of its first argument
        unless(libc::AF_UNIX as u32, 1),
        end(libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32),
        end(libc::SECCOMP_RET_ALLOW),
    ];
    let confine = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: the program lives until the kernel has copied it, and is not written.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        };
        if refused {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(())
        }
    };
    // SAFETY: two system calls, on memory that was made before the fork.
    unsafe { command.pre_exec(confine) }
}

/// A doctor's probe under shunt that may make no AF_UNIX sockets.
fn probe_without_unix(words: &[&str]) -> Program {
    let mut command = plain(SHUNT);
    command.args(["run", "--", SHUNT, "doctor", "--probe"]).args(words).env("SHUNT_LIBRARY", library());
    Program::start(without_unix(&mut command))
}

/// The reasons for which the kernel carries a program's sockets.
fn reasons(program: &Program) -> Vec<Value> {
    let report = json(&["why", &program.pid().to_string()]);
    report["sockets"].as_array().unwrap().iter().map(|socket| socket["reason"].clone()).collect()
}

#[test]
fn a_program_that_may_make_no_unix_sockets_says_so() {
    let mut server = probe_without_unix(&["serve"]);
    let port = server.line();
    let mut client = probe(Some(&[]), &["ask", &port]);
    client.line();
    assert_eq!(socket_of(&client)["reason"], "peer-plain");
    let counted = |program: &Program, reason: &str| json(&["why", &program.pid().to_string()])["counters"][reason].clone();
    assert_eq!(counted(&server, "no-unix"), 1, "{:?}", reasons(&server));
    client.end();
    server.end();

    let mut server = probe(Some(&[]), &["serve"]);
    let port = server.line();
    let mut client = probe_without_unix(&["ask", &port]);
    client.line();
    assert_eq!(socket_of(&client)["reason"], "no-unix");
    client.end();
    server.end();
}

#[test]
fn a_stopped_program_is_inspected_like_any_other() {
    let mut server = probe(Some(&[]), &["serve"]);
    let port = server.line();
    let mut client = probe(Some(&[]), &["ask", &port]);
    client.line();
    for program in [&server, &client] {
        // SAFETY: a signal to our own child.
        assert_eq!(unsafe { libc::kill(program.pid() as i32, libc::SIGSTOP) }, 0);
    }
    assert_eq!(connections(&port).len(), 1);
    assert_eq!(socket_of(&server)["carrier"], "shared-memory");
    assert_eq!(socket_of(&client)["carrier"], "shared-memory");
}

const SERVER: &str = "
import socket, sys
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
";
const CLIENT: &str = "
import socket, sys
connection = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
print(connection.fileno(), flush=True)
";
const UNTIL_RESET: &str = "
try:
    print(connection.recv(100), flush=True)
except ConnectionResetError:
    print('reset', flush=True)
sys.stdin.read()
";

/// A Python program under shunt.
fn python(script: &str, arguments: &[&str]) -> Program {
    let mut command = plain(SHUNT);
    command.args(["run", "--"]).arg(shunt_testkit::python_program()).env("SHUNT_LIBRARY", library());
    Program::start(command.arg("-c").arg(script).args(arguments))
}

/// A copy of a program's descriptor.
fn copy_of(program: &Program, descriptor: i32) -> rustix::fd::OwnedFd {
    use rustix::process::{pidfd_getfd, pidfd_open, Pid, PidfdFlags, PidfdGetfdFlags};
    let process = pidfd_open(Pid::from_child(&program.child), PidfdFlags::empty()).unwrap();
    pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty()).unwrap()
}

/// Another process writes on the client's descriptor, as a system call of the client's own would that the library does not see.
#[test]
fn both_ends_tell_of_bytes_that_were_written_past_the_library() {
    let mut server = python(&format!("{SERVER}{UNTIL_RESET}"), &[]);
    let port = server.line();
    let mut client = python(&format!("{CLIENT}{UNTIL_RESET}"), &[&port]);
    let descriptor = client.line();
    let copy = copy_of(&client, descriptor.parse().unwrap());
    assert_eq!(rustix::io::write(&copy, b"hello").unwrap(), 5);
    drop(copy);

    assert_eq!((server.line().as_str(), client.line().as_str()), ("reset", "reset"));
    assert_eq!(connections(&port)[0]["state"], "foreign-bytes");
    assert_eq!(
        (&socket_of(&server)["reason"], &socket_of(&client)["reason"]),
        (&"foreign-bytes".into(), &"foreign-bytes".into())
    );
    client.end();
    server.end();
}

const GIVES_UP_ITS_RIGHTS: &str = "
import os, socket, sys
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
os.seteuid(65534)
listener.listen()
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
";
const STAYS: &str = "
sys.stdin.read()
";

/// Clients would take the answer of such a listener for a stranger's, each of them after a look.
#[test]
fn a_listener_whose_socket_another_user_made_is_the_kernels() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("without root no socket is another user's");
        return;
    }
    let mut server = python(GIVES_UP_ITS_RIGHTS, &[]);
    let port = server.line();
    let mut client = python(&format!("{CLIENT}{STAYS}"), &[&port]);
    client.line();
    let report = json(&["why", &server.pid().to_string()]).to_string();
    assert!(report.contains("other-user") && !report.contains("bad-segment") && !report.contains("client-left"), "{report}");
    assert_eq!(socket_of(&client)["reason"], "peer-plain");
    client.end();
    server.end();
}

const POLLED: &str = "
import select
print(connection.fileno(), flush=True)
waiting = select.poll()
waiting.register(connection, select.POLLIN)
while True:
    waiting.poll()
    print('polled', flush=True)
    again = sys.stdin.readline().strip()
    print(connection.recv(100), flush=True)
    if again != 'again':
        break
for _ in range(3):
    waiting.poll(1)
print('slept', flush=True)
sys.stdin.read()
";
const ASKED: &str = "
for line in sys.stdin:
    connection.send(b'hello')
";

/// Another process reads on the server's descriptor, as a system call of the server's own would that the library does not see:
/// what it gets is a bell, the server's bytes are whole, and `why` counts it.
#[test]
fn bells_that_were_read_past_the_library_are_counted() {
    let mut server = python(&format!("{SERVER}{POLLED}"), &[]);
    let port = server.line();
    let mut client = python(&format!("{CLIENT}{ASKED}"), &[&port]);
    client.line();
    let descriptor = server.line();
    let copy = copy_of(&server, descriptor.parse().unwrap());
    let mut byte = [0u8; 8];
    loop {
        client.tell("once");
        assert_eq!(server.line(), "polled");
        // A server that was not asleep yet needed no bell.
        let got = rustix::net::recv(&copy, &mut byte, rustix::net::RecvFlags::DONTWAIT);
        let got = got.map_or(0, |(_, length)| length);
        server.tell(if got == 0 { "again" } else { "enough" });
        assert_eq!(server.line(), "b'hello'");
        if got > 0 {
            assert_eq!(byte[..got], [0xbe]);
            break;
        }
    }
    assert_eq!(server.line(), "slept");
    let counters = &json(&["why", &server.pid().to_string()])["counters"];
    assert_eq!(counters["foreign-reads"], 1, "{counters}");
    assert_eq!(socket_of(&server)["reason"], "accelerated");
    drop(copy);
    client.end();
    server.end();
}

/// Every way to miss shared memory that a user can choose has its own reason, and the programs talk all the same.
#[test]
fn the_kernel_carries_what_cannot_be_accelerated_and_the_reason_is_told() {
    type Options = Option<&'static [&'static str]>;
    let cases: [(Options, Options, &str); 4] = [
        (None, Some(&[]), "peer-plain"),
        (Some(&[]), Some(&["--accelerate", "off"]), "switched-off"),
        (Some(&["--accelerate", "off"]), Some(&[]), "peer-plain"),
        (Some(&[]), Some(&["--ports", "1"]), "port-not-listed"),
    ];
    for (server_options, client_options, reason) in cases {
        let mut server = probe(server_options, &["serve"]);
        let port = server.line();
        let mut client = probe(client_options, &["ask", &port]);
        assert_eq!(client.line(), "answered", "{reason}");
        let socket = socket_of(&client);
        assert_eq!((&socket["reason"], &socket["carrier"]), (&reason.into(), &"kernel".into()), "{socket}");
        assert_eq!(socket["remote"], format!("127.0.0.1:{port}"));
        client.end();
        server.end();
    }
    let mut server = probe(Some(&[]), &["serve"]);
    let port = server.line();
    let mut client = probe(None, &["ask", &port]);
    assert_eq!(client.line(), "answered");
    assert_eq!(socket_of(&server)["reason"], "accepted-from-kernel");
    assert_eq!(socket_of(&client)["reason"], "no-shunt");
}

#[test]
fn the_doctor_finds_this_machine_able() {
    let output = plain(SHUNT).arg("doctor").env("SHUNT_LIBRARY", library()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("ok       trial connection"), "{text}");
}

#[test]
fn a_small_limit_of_file_size_ends_no_program() {
    // Both the program itself and a child that it forks make files in memory.
    let script = "ulimit -f 1; exec \"$0\" run -- sh -c '(exit 3); test $? = 3 && sh -c \"exit 4\"'";
    let status = plain("sh").args(["-c", script, SHUNT]).env("SHUNT_LIBRARY", library()).status().unwrap();
    assert_eq!(status.code(), Some(4), "{status}");
}
