//! One run of one scenario: the processes, the pipes between them, the deadline, the transcript.

use crate::arrangement::{Arrangement, Role};
use crate::catalogue::Scenario;
use crate::site::Site;
use crate::{namespace, programs, told};
use std::fs;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a scenario may take before it counts as hung. The longest takes about two seconds on the kernel.
pub const DEADLINE: Duration = Duration::from_secs(12);

/// Where scenarios find the pipes to and from far; `far.c` has the same numbers.
const COMMANDS: RawFd = 200;
const ANSWERS: RawFd = 201;

/// What to run.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The scenario's name.
    pub scenario: String,
    /// Which end near is.
    pub role: Role,
    /// Whether far is a thread of near rather than a process.
    pub far_is_thread: bool,
    /// Which binary.
    pub fortified: bool,
    /// The `shunt` command, if near runs under it.
    pub near_shunt: Option<PathBuf>,
    /// The `shunt` command, if far runs under it.
    pub far_shunt: Option<PathBuf>,
    /// For scenarios that draw their calls from a seed.
    pub seed: Option<u64>,
    /// The two hosts' way of carrying streams, in an arrangement that has two.
    pub hosts: Option<Arrangement>,
    /// Under shunt, what becomes of the program's own system calls: the option `raw`. Scenarios that make none are run as a
    /// program that could make none; it is the others' instructions that their program holds.
    pub raw: &'static str,
    /// How long it may take.
    pub deadline: Duration,
}

/// The variable from which it is drawn after how many turns connections are given back; another one draws others.
pub const SEED: &str = "SHUNT_DIFFERENTIAL_INET";

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The transcript, and how the process ended as its last line.
    pub lines: Vec<String>,
    /// Whether any connection was carried by something else than a TCP socket of the kernel.
    pub accelerated: bool,
    /// Whether any was carried by one; between hosts only those to the other host count.
    pub fell_back: bool,
    /// Near did not end by itself in the time that it has.
    pub late: bool,
    /// What the processes wrote to standard error; not compared.
    pub errors: String,
}

impl Outcome {
    /// What the scenario waited for, or prepared, in vain. What follows such a line says nothing, not even where both sides say it.
    pub fn in_vain(&self) -> Option<&str> {
        let vain = |line: &&String| {
            line.starts_with("AWAIT:")
                || line.contains("PREPARATION FAILED")
                || line.starts_with("  far:") && line.ends_with("-> did not come")
        };
        self.lines.iter().find(vain).map(String::as_str)
    }
}

impl Trial {
    /// The scenario on the kernel alone, with the processes as in `arrangement`.
    pub fn on_kernel(scenario: &str, role: Role, arrangement: Arrangement) -> Trial {
        Trial {
            scenario: scenario.into(),
            role,
            far_is_thread: arrangement == Arrangement::OneProcess,
            fortified: arrangement == Arrangement::Fortified,
            near_shunt: None,
            far_shunt: None,
            seed: None,
            hosts: arrangement.has_two_hosts().then_some(arrangement),
            raw: "off",
            deadline: DEADLINE,
        }
    }

    /// The scenario in `arrangement`, with the `shunt` command given.
    pub fn under_shunt(scenario: &Scenario, role: Role, arrangement: Arrangement, shunt: &Path) -> Trial {
        Trial {
            raw: match arrangement {
                Arrangement::Trapped => "trap",
                _ if scenario.may_be_trapped() => "auto",
                _ => "off",
            },
            near_shunt: arrangement.near_under_shunt(role).then(|| shunt.into()),
            far_shunt: arrangement.far_under_shunt(role).then(|| shunt.into()),
            ..Trial::on_kernel(&scenario.name, role, arrangement)
        }
    }

    /// Runs it, in a thread of its own because the network namespace belongs to the thread.
    ///
    /// # Errors
    /// When the processes or the namespace could not be made; what a scenario does is never an error here.
    pub fn run(&self) -> io::Result<Outcome> {
        std::thread::scope(|scope| scope.spawn(|| self.run_here()).join().expect("a trial does not panic"))
    }

    fn run_here(&self) -> io::Result<Outcome> {
        let agent = self.near_shunt.as_deref().or(self.far_shunt.as_deref());
        let site = match self.hosts {
            None => {
                namespace::enter_new()?;
                Site::one_host()
            }
            Some(arrangement) => Site::two_hosts(arrangement, agent)?,
        };
        let scratch = Scratch::new()?;
        let (command_reader, command_writer) = io::pipe()?;
        let (answer_reader, answer_writer) = io::pipe()?;
        let (transcript, transcript_writer) = io::pipe()?;

        let far = if self.role == Role::Solo || self.far_is_thread {
            None
        } else {
            let mut command = self.command(self.far_shunt.as_deref(), "--far", &scratch);
            site.enter(&mut command, 1);
            inherit(&mut command, &[(command_reader.as_raw_fd(), COMMANDS), (answer_writer.as_raw_fd(), ANSWERS)]);
            Some(command.stdout(Stdio::null()).stderr(scratch.errors()?).spawn()?)
        };
        let mut command = self.command(self.near_shunt.as_deref(), &self.scenario, &scratch);
        site.enter(&mut command, 0);
        if far.is_some() {
            inherit(&mut command, &[(command_writer.as_raw_fd(), COMMANDS), (answer_reader.as_raw_fd(), ANSWERS)]);
        } else {
            command.env("LABORATORY_FAR", "thread");
        }
        let near = command.stdout(transcript_writer).stderr(scratch.errors()?).spawn()?;
        // The commands hold copies of the pipes; without them far sees the end when near is gone.
        drop(command);
        drop((command_reader, command_writer, answer_reader, answer_writer));

        let mut lines = Vec::new();
        let deadline = Instant::now() + self.deadline;
        let ended = finish(near, deadline, &transcript, &mut lines);
        if let Some(far) = far {
            let patience = Instant::now() + Duration::from_secs(2);
            if finish_silent(far, patience).is_none() && ended.is_some() {
                lines.push("far: did not end".into());
            }
        }
        lines.push(match ended {
            None => "near: did not end before the deadline".into(),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("near: exit {code}"),
                (None, signal) => format!("near: killed by signal {}", signal.unwrap_or(0)),
            },
        });
        // Nothing of shunt's may stay on a host whose programs are gone.
        lines.extend(site.left_behind());
        let carriers = fs::read_to_string(scratch.carriers()).unwrap_or_default();
        Ok(Outcome {
            lines,
            accelerated: carriers.contains('u'),
            fell_back: carriers.contains('k'),
            late: ended.is_none(),
            errors: fs::read_to_string(scratch.0.join("errors")).unwrap_or_default(),
        })
    }

    fn command(&self, shunt: Option<&Path>, argument: &str, scratch: &Scratch) -> Command {
        let program = programs::scenarios(self.fortified);
        let mut command = match shunt {
            Some(shunt) => {
                let mut command = Command::new(shunt);
                // Everything that may go through shared memory does, and what may look at the kernel's sockets looks.
                command.args(["run", "--udp", "eager", "--unix", "eager", "--spin-on-kernel", "on"]);
                command.args(["--raw", self.raw]).arg("--").arg(program);
                command
            }
            None => Command::new(program),
        };
        let takes = self.hosts.is_some_and(|arrangement| arrangement.takes().is_some());
        if takes && shunt.is_some() {
            command.env("SHUNT_INET", "all").env("SHUNT_INET_SEED", self.turns_seed().to_string());
            command.env(told::MARKS, "1");
        }
        command
            .arg(argument)
            // A plain end's connections are the kernel's, which says nothing.
            .env("LABORATORY_CARRIERS", if takes && shunt.is_none() { PathBuf::new() } else { scratch.carriers() })
            .env("LABORATORY_ROLE", self.role.name())
            .env_remove("LABORATORY_FAR")
            .stdin(Stdio::null())
            .process_group(0);
        if let Some(seed) = self.seed {
            command.env("LABORATORY_SEED", seed.to_string());
        }
        command
    }
}

impl Trial {
    /// From what the library draws: the same for the same trial.
    fn turns_seed(&self) -> u32 {
        let drawn = std::env::var(SEED).ok().and_then(|text| text.parse().ok()).unwrap_or(1u32);
        let text = self.scenario.bytes().chain(self.role.name().bytes());
        text.fold(drawn, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte))).max(1)
    }

    /// A new directory for what a run leaves beside its transcript; the caller removes it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn scratch_directory() -> io::Result<PathBuf> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("shunt-differential-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                // Left by a run that was killed, and had this process's number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| path),
            }
        }
    }

    /// Lets the child have `pairs` of (descriptor here, number there).
    pub fn inherit(command: &mut Command, pairs: &[(RawFd, RawFd)]) {
        inherit(command, pairs);
    }
}

fn inherit(command: &mut Command, pairs: &[(RawFd, RawFd)]) {
    let mut pairs: Vec<(RawFd, RawFd)> = pairs.to_vec();
    let beyond = pairs.iter().map(|(_, there)| there + 1).max().unwrap_or(0);
    let result = |number: RawFd| if number == -1 { Err(io::Error::last_os_error()) } else { Ok(number) };
    // SAFETY: the closure calls fcntl and dup2 alone, which are async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            // With a dozen trials at once a number here may be one there: first they all go out of the way.
            for (here, _) in &mut pairs {
                *here = result(libc::fcntl(*here, libc::F_DUPFD_CLOEXEC, beyond))?;
            }
            for (here, there) in &pairs {
                result(libc::dup2(*here, *there))?;
            }
            Ok(())
        });
    }
}

/// Collects the transcript until the process is gone or the deadline has come; then ends its whole group.
fn finish(mut child: Child, deadline: Instant, transcript: &PipeReader, lines: &mut Vec<String>) -> Option<ExitStatus> {
    let mut text = Vec::new();
    let mut status = None;
    while status.is_none() && Instant::now() < deadline {
        read_available(transcript, &mut text, Duration::from_millis(5));
        status = child.try_wait().unwrap_or(None);
    }
    end_group(&child);
    let status_after = child.wait().ok();
    read_available(transcript, &mut text, Duration::ZERO);
    lines.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
    status.and(status_after)
}

fn finish_silent(mut child: Child, deadline: Instant) -> Option<ExitStatus> {
    let mut status = None;
    while status.is_none() && Instant::now() < deadline {
        status = child.try_wait().unwrap_or(None);
        if status.is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    end_group(&child);
    let _ = child.wait();
    status
}

/// Ends the process and everything it started: each trial's process leads a group of its own.
fn end_group(child: &Child) {
    // SAFETY: kill takes no pointer. The leader has either not been waited for, or ended within this loop's last turn, so that
    // its number cannot have been given to a stranger's group.
    unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
}

fn read_available(mut from: &PipeReader, into: &mut Vec<u8>, patience: Duration) {
    let mut entry = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut wait = patience.as_millis() as libc::c_int;
    loop {
        // SAFETY: one pollfd, which outlives the call.
        let ready = unsafe { libc::poll(&mut entry, 1, wait) };
        if ready != 1 || entry.revents & libc::POLLIN == 0 {
            if ready == 1 {
                // Every writer is gone, and the process will be in a moment.
                std::thread::sleep(patience.min(Duration::from_millis(1)));
            }
            return;
        }
        let mut piece = [0; 65536];
        match from.read(&mut piece) {
            Ok(count) if count > 0 => into.extend_from_slice(&piece[..count]),
            _ => return,
        }
        wait = 0;
    }
}

/// A directory for what a trial leaves beside its transcript, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Scratch> {
        Trial::scratch_directory().map(Scratch)
    }

    fn carriers(&self) -> PathBuf {
        self.0.join("carriers")
    }

    fn errors(&self) -> io::Result<fs::File> {
        fs::OpenOptions::new().create(true).append(true).open(self.0.join("errors"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing depends on it being gone.
        let _ = fs::remove_dir_all(&self.0);
    }
}
