//! One test's world: a namespace, a scratch directory, a mode, and the check that nothing is left at the end.

use crate::inspect;
use crate::launch::{Launch, Side};
use crate::mode::Mode;
use crate::namespace::NetworkNamespace;
use crate::process::Process;
use crate::scratch::Scratch;
use crate::wait::{wait_until, SECOND};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// Segments of TCP sockets connected to themselves, by which the kernel is asked what an option of a connected socket is.
const QUESTIONS: u64 = 1000;

/// How long a server may take until it listens, and processes until they are gone.
const SETTLING_DEADLINE: Duration = Duration::from_secs(30);

/// The world of one test.
pub struct Host {
    mode: Mode,
    // Declared before the scratch directory, hence dropped first: no process writes there any more.
    namespace: NetworkNamespace,
    scratch: Scratch,
    shunt: PathBuf,
    logs: Mutex<Vec<PathBuf>>,
}

impl Host {
    /// Makes the world of a test; `None`, said loudly, where this machine allows no network namespace.
    ///
    /// # Panics
    /// If the mode needs shunt and it is not built.
    pub fn prepare(label: &str, mode: Mode) -> Option<Host> {
        let namespace = match NetworkNamespace::new() {
            Ok(namespace) => namespace,
            Err(reason) => {
                // The harness captures what goes through `eprintln!`; a skipped test must be seen.
                let mut terminal = fs::OpenOptions::new().write(true).open("/proc/self/fd/2").expect("standard error");
                let _ = writeln!(terminal, "SKIPPED {label}: no network namespace can be made here: {}", reason.0);
                return None;
            }
        };
        let scratch = Scratch::new(label);
        let shunt = if mode.needs_shunt() { link_shunt(&scratch) } else { PathBuf::new() };
        fs::create_dir(scratch.join("log")).expect("the scratch directory can be written");
        Some(Host { mode, namespace, scratch, shunt, logs: Mutex::new(Vec::new()) })
    }

    /// The mode the scenario runs in.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The directory of this test.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// The namespace of this test.
    pub fn namespace(&self) -> &NetworkNamespace {
        &self.namespace
    }

    /// A program that accepts connections.
    pub fn server(&self, program: PathBuf) -> Launch<'_> {
        Launch::new(self, Side::Server, program)
    }

    /// A program that makes connections.
    pub fn client(&self, program: PathBuf) -> Launch<'_> {
        Launch::new(self, Side::Client, program)
    }

    /// A program that is never under shunt: preparation, checks.
    pub fn plain(&self, program: PathBuf) -> Launch<'_> {
        Launch::new(self, Side::Plain, program)
    }

    /// Waits until something listens on `port`, without connecting; fails the test if `server` ends first.
    pub fn wait_for_listener(&self, server: &Process<'_>, port: u16) {
        let ended = format!("/proc/{}/stat", server.pid());
        let listening = wait_until(SETTLING_DEADLINE, || {
            // A process that ended and is not waited for yet is a zombie, state Z after the name in parentheses.
            let stat = fs::read_to_string(&ended).unwrap_or_default();
            let gone = stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('Z'));
            let listening = inspect::has_listener(&self.namespace, port);
            (listening || gone).then_some(listening)
        });
        assert!(
            listening == Some(true),
            "nothing listens on port {port}\n--- standard output\n{}\n--- standard error\n{}\n--- processes\n{}",
            crate::output::tail(&server.output_so_far()),
            crate::output::tail(&server.errors_so_far()),
            self.describe_processes()
        );
    }

    /// Waits until `condition` holds; fails the test with a description of every process after `deadline`.
    pub fn wait_until(&self, what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
        if wait_until(deadline, || condition().then_some(())).is_none() {
            panic!("waited {deadline:?} for: {what}\n--- processes\n{}", self.describe_processes());
        }
    }

    /// Checks that the scenario took the path its mode promises: with both sides under shunt the kernel's TCP has sent
    /// at most `segments`; with a plain program on either side it has sent some.
    pub fn expect_path(&self, segments: u64) {
        let sent = inspect::tcp_segments_sent(&self.namespace);
        if self.mode == Mode::Both {
            let segments = segments + QUESTIONS;
            assert!(sent <= segments, "not accelerated: kernel TCP sent {sent} segments, expected at most {segments}");
        } else {
            assert!(sent > 0, "kernel TCP sent nothing in mode {:?}: nothing was tested", self.mode);
        }
    }

    /// What every process in the namespace is doing.
    pub fn describe_processes(&self) -> String {
        inspect::describe_processes(&self.namespace)
    }

    /// The processes in the namespace.
    pub fn processes(&self) -> Vec<u32> {
        inspect::processes_in(&self.namespace)
    }

    /// How many AF_UNIX sockets of the namespace carry an abstract name of shunt.
    pub fn abstract_names(&self) -> usize {
        inspect::abstract_names(&self.namespace).len()
    }

    /// Ends the test: every program is gone by itself, no abstract name is left, and shunt had nothing to complain of.
    pub fn finish(self) {
        let gone = wait_until(SETTLING_DEADLINE, || self.processes().is_empty().then_some(()));
        assert!(gone.is_some(), "processes are left behind\n{}", self.describe_processes());
        // The kernel frees the last files of a process, and sockets that were in flight, behind its end.
        let none = wait_until(SETTLING_DEADLINE, || (self.abstract_names() == 0).then_some(()));
        assert!(none.is_some(), "abstract names are left behind: {:?}", inspect::abstract_names(&self.namespace));
        for log in self.logs.lock().expect("no test thread panicked").iter() {
            let text = String::from_utf8_lossy(&fs::read(log.with_extension("err")).unwrap_or_default()).into_owned();
            let complaint = text.lines().find(|line| line.starts_with("shunt:") || line.contains("cannot be preloaded"));
            assert!(complaint.is_none(), "{}: {}", log.display(), complaint.unwrap_or_default());
        }
    }

    /// The preload library of this test, for tests that write LD_PRELOAD themselves.
    pub fn library(&self) -> String {
        self.shunt.with_file_name("libshunt.so").to_str().expect("the scratch directory has a plain name").into()
    }

    pub(crate) fn shunt_command(&self) -> &Path {
        &self.shunt
    }

    /// The path, without extension, of the next program's output files.
    pub(crate) fn new_log(&self, program: &str) -> PathBuf {
        let mut logs = self.logs.lock().expect("no test thread panicked");
        let log = self.scratch.join(format!("log/{:03}-{program}", logs.len()));
        logs.push(log.clone());
        log
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A failed test may leave workers of a killed server. They are in our namespace, so we started them.
        for pid in self.processes() {
            // SAFETY: kill takes two integers.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
        }
        wait_until(5 * SECOND, || self.processes().is_empty().then_some(()));
    }
}

/// Gives the shunt command and its library names in the scratch directory, where servers running as another user reach
/// them and a build going on at the same time cannot replace them. Returns the command. (As copies the two took a test a twentieth
/// of a second of a processor.)
pub fn link_shunt(scratch: &Scratch) -> PathBuf {
    let named = |variable: &str| {
        let path = PathBuf::from(std::env::var_os(variable)?);
        assert!(path.is_file(), "{variable} names no file: {path:?}");
        Some(path)
    };
    let command = match named("SHUNT_BINARY") {
        Some(path) => path,
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/shunt"),
    };
    let library = match named("SHUNT_LIBRARY") {
        Some(path) => path,
        None => command.with_file_name("libshunt.so"),
    };
    fs::create_dir(scratch.join("shunt")).expect("the scratch directory can be written");
    let name = |path: &Path| PathBuf::from("shunt").join(path.file_name().expect("a file name"));
    scratch.link_program(&library, name(&library));
    scratch.link_program(&command, name(&command))
}
