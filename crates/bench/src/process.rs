//! Starting the programs under test, waiting for them, and counting their CPU time.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{sched_setaffinity, CpuSet};
use nix::sys::prctl;
use nix::sys::signal::{killpg, Signal};
use nix::unistd::{Gid, Pid, Uid};

use crate::contenders::Contender;
use crate::supervisor::{children_of, forget_group, remember_group};

/// A command line with the conditions under which it runs.
#[derive(Debug)]
pub struct Launch {
    name: String,
    words: Vec<OsString>,
    core: Option<usize>,
    user: Option<(Uid, Gid)>,
}

impl Launch {
    /// `program` behind the contender's prefix.
    pub fn through(contender: &Contender, program: &Path) -> Self {
        let mut launch = Self::plain(program);
        launch.words.splice(0..0, contender.prefix.iter().cloned());
        launch
    }

    /// `program` by itself: floors and preparations.
    pub fn plain(program: &Path) -> Self {
        let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
        Self { name, words: vec![program.into()], core: None, user: None }
    }

    /// Adds arguments.
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Self {
        self.words.extend(args.into_iter().map(|arg| arg.as_ref().to_os_string()));
        self
    }

    /// Keeps the program and its children on one core.
    pub fn core(mut self, core: usize) -> Self {
        self.core = Some(core);
        self
    }

    /// Runs as another user, where we may change ours.
    pub fn user(mut self, user: Option<(Uid, Gid)>) -> Self {
        self.user = user;
        self
    }

    /// Starts it in a process group of its own, with its output in files of `scratch`.
    pub fn start(self, scratch: &Path) -> io::Result<Running> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let output = scratch.join(format!("{}.{number}.out", self.name));
        let errors = scratch.join(format!("{}.{number}.err", self.name));
        let mut command = Command::new(&self.words[0]);
        command
            .args(&self.words[1..])
            .current_dir(scratch)
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .stdout(File::create(&output)?)
            .stderr(File::create(&errors)?)
            .process_group(0);
        if let Some((user, group)) = self.user {
            command.uid(user.as_raw()).gid(group.as_raw());
        }
        let core = self.core;
        // SAFETY: between fork and exec only system calls that need no allocation are made.
        unsafe {
            command.pre_exec(move || {
                prctl::set_pdeathsig(Signal::SIGKILL)?;
                if let Some(core) = core {
                    let mut set = CpuSet::new();
                    set.set(core)?;
                    sched_setaffinity(Pid::from_raw(0), &set)?;
                }
                Ok(())
            });
        }
        let child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start {}: {error}", self.words[0].to_string_lossy()))
        })?;
        let process = Pid::from_raw(child.id() as i32);
        remember_group(process);
        Ok(Running { name: self.name, process, pidfd: pidfd_open(process)?, output, errors, ended: None })
    }

    /// Starts it, waits until it ends, and returns what it wrote.
    pub fn run(self, scratch: &Path, limit: Duration) -> io::Result<Finished> {
        self.start(scratch)?.finish(limit)
    }
}

/// A started program. Dropping it ends its process group.
#[derive(Debug)]
pub struct Running {
    name: String,
    process: Pid,
    pidfd: OwnedFd,
    output: PathBuf,
    errors: PathBuf,
    ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    status: i32,
    cpu: Duration,
}

/// A program that ended well.
#[derive(Debug)]
pub struct Finished {
    /// What it wrote to standard output.
    pub output: String,
    /// CPU time of it and the children that it waited for.
    pub cpu: Duration,
}

impl Running {
    /// Waits until `condition` holds, looking often enough for a start and too seldom to disturb.
    pub fn wait_until(&mut self, what: &str, limit: Duration, mut condition: impl FnMut(&Self) -> bool) -> io::Result<()> {
        let begin = Instant::now();
        while !condition(self) {
            if self.wait_end(Duration::from_millis(2))? {
                return Err(self.failure("ended before it was ready"));
            }
            if begin.elapsed() > limit {
                return Err(self.failure(&format!("{what}: not within {} s", limit.as_secs())));
            }
        }
        Ok(())
    }

    /// Waits until the program's output holds this text.
    pub fn wait_for_output(&mut self, text: &str, limit: Duration) -> io::Result<()> {
        self.wait_until(text, limit, |running| fs::read_to_string(&running.output).is_ok_and(|said| said.contains(text)))
    }

    /// Waits until the program ends by itself; an error when it does not in time, or not well.
    pub fn finish(mut self, limit: Duration) -> io::Result<Finished> {
        if !self.wait_end(limit)? {
            return Err(self.failure(&format!("did not end within {} s", limit.as_secs())));
        }
        let ended = self.ended.expect("wait_end said so");
        if ended.status != 0 {
            return Err(self.failure("failed"));
        }
        Ok(Finished { output: fs::read_to_string(&self.output)?, cpu: ended.cpu })
    }

    /// Asks the program to end, and insists after `limit`.
    pub fn stop(mut self, signal: Signal, limit: Duration) {
        let _ = nix::sys::signal::kill(self.process, signal);
        let _ = self.wait_end(limit);
    }

    /// Waits at most `limit`; whether the program has ended. Sleeps, so that it costs the measured
    /// programs nothing.
    pub fn wait_end(&mut self, limit: Duration) -> io::Result<bool> {
        if self.ended.is_some() {
            return Ok(true);
        }
        let mut poll = libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd, which outlives the call.
        match unsafe { libc::poll(&mut poll, 1, limit.as_millis() as libc::c_int) } {
            0 => Ok(false),
            count if count > 0 => {
                self.ended = Some(wait4(self.process)?);
                Ok(true)
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The process that was started.
    pub fn process(&self) -> Pid {
        self.process
    }

    /// Processes of this program: itself and all its descendants.
    pub fn tree(&self) -> Vec<Pid> {
        let mut tree = vec![self.process];
        let mut at = 0;
        while at < tree.len() {
            tree.extend(children_of(tree[at]));
            at += 1;
        }
        tree
    }

    /// CPU time so far of the whole tree.
    pub fn cpu(&self) -> Duration {
        self.tree().into_iter().map(cpu_of).sum()
    }

    /// Whether a link segment of shunt is mapped by any process of the tree: its connections, or
    /// some of them, take shared memory.
    pub fn maps_a_link(&self) -> bool {
        self.tree().into_iter().any(|process| {
            fs::read_to_string(format!("/proc/{process}/maps")).is_ok_and(|maps| maps.contains("/memfd:shunt-link"))
        })
    }

    /// An error with the program's own last words.
    pub fn failure(&self, what: &str) -> io::Error {
        let said = fs::read_to_string(&self.errors).unwrap_or_default();
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(3)..].join(" / ");
        let status = match self.ended.map(|ended| ended.status) {
            Some(status) if libc::WIFSIGNALED(status) => format!(" (signal {})", libc::WTERMSIG(status)),
            Some(status) => format!(" (exit {})", libc::WEXITSTATUS(status)),
            None => String::new(),
        };
        let colon = if last.is_empty() { "" } else { ": " };
        io::Error::other(format!("{} {what}{status}{colon}{last}", self.name))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = killpg(self.process, Signal::SIGKILL);
        if self.ended.is_none() {
            let _ = wait4(self.process);
        }
        forget_group(self.process);
    }
}

/// pidfd_open(2): readable when the process ends.
fn pidfd_open(process: Pid) -> io::Result<OwnedFd> {
    // SAFETY: plain system call; a non-negative result is a descriptor that only we own.
    unsafe {
        match libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd as i32)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// wait4(2): the status and, with it, the CPU time of the child and its waited-for children.
fn wait4(process: Pid) -> io::Result<Ended> {
    let mut status = 0;
    // SAFETY: all bytes zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to valid, writable values.
        if unsafe { libc::wait4(process.as_raw(), &mut status, 0, &mut usage) } >= 0 {
            let time = |value: libc::timeval| Duration::new(value.tv_sec as u64, value.tv_usec as u32 * 1000);
            return Ok(Ended { status, cpu: time(usage.ru_utime) + time(usage.ru_stime) });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// CPU time of the live threads of a process (schedstat, nanoseconds) and of the children that it
/// has waited for (proc_pid_stat(5), clock ticks).
fn cpu_of(process: Pid) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let own: u64 = threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum();
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    // Fields 16 and 17, cutime and cstime: the 14th and 15th after the name.
    let children: u64 = after_name.split_ascii_whitespace().skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    // SAFETY: sysconf(3) has no precondition.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    Duration::from_nanos(own + children * 1_000_000_000 / ticks_per_second)
}
