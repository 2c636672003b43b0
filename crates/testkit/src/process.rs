//! A running program: waited for with a deadline, signalled by pid, and never left behind.

use crate::host::Host;
use crate::output::{Follower, Output};
use crate::wait::{wait_until, SECOND};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// How long a program may take to end after a polite signal.
const ENDING_DEADLINE: Duration = Duration::from_secs(30);

/// A program started by [`Launch::start`](crate::Launch::start). Dropping it kills it.
pub struct Process<'host> {
    host: &'host Host,
    child: Child,
    command: String,
    stdout: PathBuf,
    stderr: PathBuf,
    status: Option<ExitStatus>,
}

impl<'host> Process<'host> {
    pub(crate) fn new(host: &'host Host, child: Child, command: String, stdout: PathBuf, stderr: PathBuf) -> Self {
        Process { host, child, command, stdout, stderr, status: None }
    }

    /// The program's process number; `shunt run` keeps it, because it replaces itself by the program.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("the child is ours to wait for");
        }
        self.status.is_none()
    }

    /// What it wrote to standard output so far.
    pub fn output_so_far(&self) -> String {
        read_text(&self.stdout)
    }

    /// Reads what it writes to standard output line by line.
    pub fn follow(&self) -> Follower {
        Follower::new(self.stdout.clone())
    }

    /// What it wrote to standard error so far.
    pub fn errors_so_far(&self) -> String {
        read_text(&self.stderr)
    }

    /// Writes a line to the standard input of a program started as interactive.
    pub fn write_line(&mut self, line: &str) {
        let pipe = self.child.stdin.as_mut().expect("the program was started as interactive");
        pipe.write_all(format!("{line}\n").as_bytes()).expect("the program reads its input");
    }

    /// Closes the standard input of a program started as interactive.
    pub fn close_input(&mut self) {
        self.child.stdin = None;
    }

    /// Waits until standard output contains `wanted`; fails the test if the program ends or `deadline` passes first.
    pub fn wait_for_output(&mut self, wanted: &str, deadline: Duration) {
        let found = wait_until(deadline, || {
            let ended = !self.is_running();
            let seen = self.output_so_far().contains(wanted);
            (seen || ended).then_some(seen)
        });
        if found != Some(true) {
            self.fail(&format!("waited for {wanted:?} in the output"));
        }
    }

    /// Sends a signal to the program alone.
    pub fn signal(&self, signal: i32) {
        assert!(self.status.is_none(), "{} has ended already", self.command);
        // SAFETY: kill takes two integers; the pid is ours until it is waited for, which `status` says it was not.
        let result = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        assert_eq!(result, 0, "{} can be signalled", self.command);
    }

    /// Waits for the end; fails the test after `deadline`.
    pub fn wait(mut self, deadline: Duration) -> Output {
        if wait_until(deadline, || (!self.is_running()).then_some(())).is_none() {
            self.fail(&format!("did not end within {deadline:?}"));
        }
        self.output()
    }

    /// Sends `signal` and waits for the end.
    pub fn terminate(self, signal: i32) -> Output {
        self.signal(signal);
        self.wait(ENDING_DEADLINE)
    }

    /// Kills the program (signal 9) and waits for the end.
    pub fn kill(self) -> Output {
        self.terminate(libc::SIGKILL)
    }

    /// Fails the test, showing the program's outputs and what every process of the namespace is doing.
    pub fn fail(&mut self, what: &str) -> ! {
        let state = match self.status {
            None => "still running".to_string(),
            Some(status) => status.to_string(),
        };
        panic!(
            "{}: {what} ({state})\n--- standard output (end)\n{}\n--- standard error (end)\n{}\n--- processes\n{}",
            self.command,
            crate::output::tail(&self.output_so_far()),
            crate::output::tail(&self.errors_so_far()),
            self.host.describe_processes()
        );
    }

    fn output(&mut self) -> Output {
        Output {
            command: self.command.clone(),
            status: self.status.expect("the program has ended"),
            stdout: fs::read(&self.stdout).unwrap_or_default(),
            stderr: fs::read(&self.stderr).unwrap_or_default(),
        }
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = self.child.kill();
            // A killed process ends at once unless the kernel itself hangs; the bound keeps that from hanging the test.
            wait_until(5 * SECOND, || (!self.is_running()).then_some(()));
        }
    }
}

fn read_text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
