//! How a program is started: on which side, with what arguments, as which user.

use crate::host::Host;
use crate::namespace::{check, die_with_parent};
use crate::output::Output;
use crate::process::Process;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// Held for reading while a program is started and for writing while one is copied: a descriptor that is open for
/// writing on an executable, and that a child of another thread inherits, would make its start fail with ETXTBSY.
pub(crate) static EXECUTABLES: RwLock<()> = RwLock::new(());

/// Starts a command while no executable is being copied, and so none is open for writing in the child.
///
/// # Errors
/// As [`Command::spawn`].
pub fn spawn(command: &mut Command) -> std::io::Result<std::process::Child> {
    let _unharmed = EXECUTABLES.read().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Which part a program plays; the test's mode decides which parts run under shunt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It accepts connections.
    Server,
    /// It makes connections.
    Client,
    /// Neither: preparation and checks. Never under shunt.
    Plain,
}

/// A program about to be started in a test's namespace.
#[must_use = "nothing runs before `start` or `run`"]
pub struct Launch<'host> {
    host: &'host Host,
    side: Side,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: PathBuf,
    input: Input,
    output: Option<PathBuf>,
    user: Option<(libc::uid_t, libc::gid_t)>,
}

enum Input {
    Nothing,
    File(PathBuf),
    Pipe,
}

impl<'host> Launch<'host> {
    pub(crate) fn new(host: &'host Host, side: Side, program: PathBuf) -> Launch<'host> {
        Launch {
            host,
            side,
            program,
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: host.scratch().path().to_path_buf(),
            input: Input::Nothing,
            output: None,
            user: None,
        }
    }

    /// Adds one argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_os_string());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_os_string()));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_os_string()));
        self
    }

    /// Runs in `directory`, not in the scratch directory.
    pub fn directory(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = directory.as_ref().to_path_buf();
        self
    }

    /// Takes standard input from a file; without this it is empty.
    pub fn input_file(mut self, path: impl AsRef<Path>) -> Self {
        self.input = Input::File(path.as_ref().to_path_buf());
        self
    }

    /// Gives the test a pipe to standard input: see [`Process::write_line`].
    pub fn interactive(mut self) -> Self {
        self.input = Input::Pipe;
        self
    }

    /// Writes standard output to this file.
    pub fn output_file(mut self, path: impl AsRef<Path>) -> Self {
        self.output = Some(path.as_ref().to_path_buf());
        self
    }

    /// Runs as the given user of this machine if the test is root (some servers refuse to be root); else changes nothing.
    pub fn as_user(mut self, name: &str) -> Self {
        self.user = user_numbers(name);
        self
    }

    /// Starts the program and lets it run.
    ///
    /// The kernel kills it when the calling thread ends, so start programs from the test's own thread.
    pub fn start(self) -> Process<'host> {
        let mut line = vec![self.program.clone().into_os_string()];
        line.extend(self.arguments);
        if self.host.mode().accelerates(self.side) {
            let shunt = self.host.shunt_command().as_os_str().to_os_string();
            line.splice(0..0, [shunt, "run".into(), "--".into()]);
        }
        let mut command = Command::new(&line[0]);
        command
            .args(&line[1..])
            .current_dir(&self.directory)
            .env_remove("LD_PRELOAD")
            .env_remove("SHUNT_LIBRARY")
            .envs(self.environment);

        let name = self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = self.host.new_log(&name);
        let stdout = self.output.unwrap_or_else(|| log.with_extension("out"));
        let stderr = log.with_extension("err");
        command.stdout(File::create(&stdout).expect("the output file can be made"));
        command.stderr(File::create(&stderr).expect("the error file can be made"));
        command.stdin(match &self.input {
            Input::Nothing => Stdio::null(),
            Input::File(path) => File::open(path).expect("the input file can be read").into(),
            Input::Pipe => Stdio::piped(),
        });

        let entry = self.host.namespace().entry();
        let user = self.user;
        // SAFETY: between fork and exec the closure only makes system calls.
        unsafe {
            command.pre_exec(move || {
                entry.join()?;
                if let Some((user, group)) = user {
                    check(libc::setgroups(0, std::ptr::null()))?;
                    check(libc::setgid(group))?;
                    check(libc::setuid(user))?;
                }
                // A program in the background of a shell ignores it, and so would its children.
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                // After the change of user, which clears it.
                die_with_parent()
            });
        }
        // `spawn` returns after the exec: until then the child holds a copy of every descriptor of this process.
        let _no_program_is_being_written = EXECUTABLES.read().unwrap_or_else(PoisonError::into_inner);
        let text = line.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let text: String = text.chars().take(500).collect();
        // A child that another thread is forking may hold the writing end of a fresh copy for a moment longer.
        let mut tries = 0;
        let child = loop {
            match command.spawn() {
                Ok(child) => break child,
                Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) && tries < 500 => {
                    tries += 1;
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                Err(error) => panic!("{text}: {error}"),
            }
        };
        Process::new(self.host, child, text, stdout, stderr)
    }

    /// Runs the program to its end, whatever that is; fails the test after `deadline`.
    pub fn run_to_any_end(self, deadline: Duration) -> Output {
        self.start().wait(deadline)
    }

    /// Runs the program to its end; fails the test after `deadline` or if it does not end with status 0.
    pub fn run(self, deadline: Duration) -> Output {
        self.run_to_any_end(deadline).expect_success()
    }
}

fn user_numbers(name: &str) -> Option<(libc::uid_t, libc::gid_t)> {
    let name = CString::new(name).expect("user names have no zero byte");
    // SAFETY: getpwnam returns null or a record in static storage; its numbers are copied at once. Tests of one
    // binary may race for that storage, but every caller asks for the same few users and reads only two integers,
    // so the lock below keeps the record whole.
    unsafe {
        static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock();
        if libc::geteuid() != 0 {
            return None;
        }
        let record = libc::getpwnam(name.as_ptr());
        assert!(!record.is_null(), "this machine has no user {name:?}");
        Some(((*record).pw_uid, (*record).pw_gid))
    }
}
