//! The launcher's side: makes a job's memory, starts its ranks, and ends the job when one of them ends before its time.

pub mod agent;
pub mod frames;
pub mod hosts;
mod labels;
pub mod remote;
mod signals;
mod trace;

use crate::error::Ended;
use crate::layout::{rank_state, state, Header, Layout, RankBlock, MAGIC, PAGE, RANKS, VERSION};
use crate::memory::{Mapping, Memory};
use crate::remote::hosts::Hosts;
use crate::remote::keeper;
use crate::trace::RECORDS;
use crate::wait::futex_wake;
use crate::world::VARIABLE;
use signals::Signals;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trace::Recording;

/// From the end of a job to SIGTERM at those who are still there, and from there to SIGKILL.
const PATIENCE: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(30)];

/// From a rank's word that the job ends to that, if the rank itself does not end.
const SLOW: Duration = Duration::from_secs(1);

/// A job to be started.
#[derive(Debug, Clone)]
pub struct Job {
    /// How many ranks.
    pub ranks: usize,
    /// Bytes of each heap.
    pub heap: usize,
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Each line of output begins with its rank.
    pub label: bool,
    /// Each rank has a processor of its own, as far as there are enough.
    pub bind: bool,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The exit status for the launcher.
    pub status: i32,
    /// Why, if not all was well; with the process that was the rank.
    pub cause: Option<(Ended, u32)>,
}

/// Writes the header into memory that is zero.
pub(crate) fn write_header(address: usize, layout: &Layout, crowded: bool) {
    // SAFETY: callers pass the beginning of a job's memory that no other process has yet.
    unsafe {
        let header = address as *mut Header;
        (&raw mut (*header).version).write(VERSION);
        (&raw mut (*header).ranks).write(layout.ranks as u32);
        (&raw mut (*header).heap_bytes).write(layout.heap_bytes as u64);
        (&raw mut (*header).crowded).write(u32::from(crowded));
        (&raw mut (*header).local).write(layout.ranks as u32);
        (&raw mut (*header).trace).write(layout.trace as u32);
        (&raw mut (*header).magic).write(MAGIC);
    }
}

/// Writes the table of hosts, and which ranks are this one's.
///
/// # Safety
/// As [`write_header`], which has written the header.
unsafe fn write_hosts(address: usize, hosts: &Hosts, (first, ranks): (usize, usize)) {
    let words = hosts.words();
    // SAFETY: by the caller; the table lies within the header's page.
    unsafe {
        let header = address as *mut Header;
        (&raw mut (*header).first).write(first as u32);
        (&raw mut (*header).local).write(ranks as u32);
        std::ptr::copy_nonoverlapping(words.as_ptr(), (address + Layout::HOSTS) as *mut u64, words.len());
    }
}

/// A job's memory, with its header.
pub(crate) fn create(layout: &Layout, crowded: bool) -> io::Result<Memory> {
    let memory = Memory::create(layout.data())?;
    write_header(memory.map(0, PAGE)?.address(), layout, crowded);
    Ok(memory)
}

/// Wakes the ranks that sleep, to look at the header. Their sleeps are short, so a group's sleepers are not sought out.
pub(crate) fn wake_all(base: usize, layout: &Layout) {
    for rank in 0..layout.ranks {
        // SAFETY: callers have mapped the job's memory there, which has all blocks; all is atomic.
        futex_wake(unsafe { &(*((base + layout.block(rank)) as *const RankBlock)).asleep });
    }
}

/// Writes why the job ends; the first cause stays. True if this is it.
pub(crate) fn end(header: &Header, why: Ended) -> bool {
    let (kind, rank, code) = why.words();
    if header.cause.compare_exchange(0, kind, AcqRel, Relaxed).is_err() {
        return false;
    }
    header.cause_rank.store(rank, Relaxed);
    header.cause_code.store(code, Relaxed);
    header.state.store(state::ENDED, Release);
    true
}

/// Processors that this process may use.
pub fn processors() -> Vec<usize> {
    // SAFETY: plain data of ours.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &mut set) != 0 {
            return vec![0];
        }
        (0..libc::CPU_SETSIZE as usize).filter(|&number| libc::CPU_ISSET(number, &set)).collect()
    }
}

/// Moves this thread to the processor that is this rank's turn, and leaves it free to be moved on: ranks that share processors begin evenly
/// spread, and those that give theirs away instead of sleeping stay so.
pub(crate) fn settle(rank: usize) {
    let processors = processors();
    // SAFETY: plain data of ours.
    unsafe {
        let mut before: libc::cpu_set_t = std::mem::zeroed();
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processors[rank % processors.len()], &mut one);
        if libc::sched_getaffinity(0, size_of_val(&before), &mut before) == 0 {
            libc::sched_setaffinity(0, size_of_val(&one), &one);
            libc::sched_setaffinity(0, size_of_val(&before), &before);
        }
    }
}

struct Rank {
    process: u32,
    status: Option<i32>,
    /// A process group of its own, which ends with it.
    grouped: bool,
}

/// Which ranks of a job this process starts.
pub(crate) struct Part {
    /// The hosts, if they are several, and the listener of this one's keeper.
    pub(crate) apart: Option<(Hosts, TcpListener)>,
    /// The first of them.
    first: usize,
    /// How many there are, with those of other hosts.
    total: usize,
    /// Variables for them, beside this process's.
    environment: Vec<(OsString, OsString)>,
    /// Where their output goes, if not to this process's.
    sink: Option<labels::Sink>,
}

impl Part {
    /// All of a job.
    fn whole(job: &Job) -> Part {
        Part { first: 0, total: job.ranks, environment: Vec::new(), sink: None, apart: None }
    }
}

struct Running<'j> {
    job: &'j Job,
    part: &'j Part,
    layout: Layout,
    control: Mapping,
    ranks: Vec<Rank>,
    signals: Signals,
    cause: Option<(Ended, u32)>,
    status: i32,
    /// A rank that ended with status 0 without ever having been one, as programs may that share nothing.
    absent: Option<usize>,
    /// The first rank that ended with another status than 0 after it had finalized.
    late: Option<(Ended, u32)>,
}

/// Starts the ranks, waits for them, and ends what must end.
///
/// # Errors
/// If there is no memory for the job, or if the program cannot be started.
pub fn run(job: &Job) -> io::Result<Outcome> {
    let part = Part::whole(job);
    run_part(job, &part, Signals::hold()?)
}

/// The same, and writes what the ranks did to `file` as JSON of Chrome's trace event format, however the job ended. The second result tells
/// whether that could be written.
///
/// # Errors
/// As [`run`].
pub fn run_traced(job: &Job, file: File) -> io::Result<(Outcome, io::Result<()>)> {
    let part = Part::whole(job);
    let recording = Recording::begin();
    let layout = fitting(job.ranks, job.heap)?.traced(RECORDS);
    let (outcome, control) = run_with(job, &part, Signals::hold()?, layout)?;
    // SAFETY: the control mapping has all that lies before the heaps.
    let written = unsafe { recording.write(file, control.address(), &layout) };
    Ok((outcome, written))
}

/// The same for the ranks of one host.
fn run_part(job: &Job, part: &Part, signals: Signals) -> io::Result<Outcome> {
    run_with(job, part, signals, fitting(part.total, job.heap)?).map(|(outcome, _)| outcome)
}

fn fitting(ranks: usize, heap: usize) -> io::Result<Layout> {
    Layout::fitting(ranks, heap).map_err(|why| io::Error::new(io::ErrorKind::OutOfMemory, why))
}

/// The same with this layout; with the memory before the heaps.
fn run_with(job: &Job, part: &Part, signals: Signals, layout: Layout) -> io::Result<(Outcome, Mapping)> {
    if job.ranks == 0 || job.ranks > RANKS {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a job has 1 to {RANKS} ranks")));
    }
    let processors = processors();
    let crowded = job.ranks > processors.len();
    let memory = create(&layout, crowded)?;
    if let Some((hosts, listener)) = &part.apart {
        // SAFETY: no other process has the memory yet.
        unsafe { write_hosts(memory.map(0, PAGE)?.address(), hosts, (part.first, job.ranks)) };
        let shown = Memory::received(memory.descriptor().try_clone_to_owned()?)?;
        keeper::start(listener.try_clone()?, hosts.clone(), hosts.of(part.first), (shown, layout), crowded)?;
    }
    let control = memory.map(0, layout.heaps())?;
    let mut running =
        Running { job, part, layout, control, ranks: Vec::new(), signals, cause: None, status: 0, absent: None, late: None };
    let mut labels = labels::Labels::new(job.label, part.sink.clone().unwrap_or_else(|| Arc::new(labels::own_output)));
    for rank in 0..job.ranks {
        match running.start(rank, &memory, &processors, &mut labels) {
            Ok(started) => running.ranks.push(started),
            Err(error) => {
                running.end(Ended::Left { rank: part.first + rank }, 0);
                running.finish();
                return Err(error);
            }
        }
    }
    drop(memory);
    running.watch();
    running.finish();
    // A rank whose output was refused ends by its next piece, if there is one, or a shell says so.
    const BY_PIPE: i32 = 128 + libc::SIGPIPE;
    let by_pipe = |(why, _): (Ended, u32)| {
        matches!(why, Ended::Signal { signal: libc::SIGPIPE, .. } | Ended::Status { status: BY_PIPE, .. })
    };
    match labels.finish(running.cause.is_some()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe && running.cause.is_none_or(by_pipe) => return Err(error),
        _ => {}
    }
    Ok((
        Outcome { status: running.status, cause: running.cause.or(running.late.filter(|_| part.sink.is_none())) },
        running.control,
    ))
}

impl Running<'_> {
    fn header(&self) -> &Header {
        // SAFETY: `run` wrote it; what changes is atomic.
        unsafe { &*(self.control.address() as *const Header) }
    }

    /// Of the rank with this number on this host.
    fn block(&self, rank: usize) -> &RankBlock {
        // SAFETY: the mapping has all blocks; all is atomic.
        unsafe { &*((self.control.address() + self.layout.block(self.part.first + rank)) as *const RankBlock) }
    }

    fn start(&self, rank: usize, memory: &Memory, processors: &[usize], labels: &mut labels::Labels) -> io::Result<Rank> {
        let descriptor = memory.descriptor().as_fd().as_raw_fd();
        let mut command = Command::new(&self.job.program[0]);
        command.args(&self.job.program[1..]);
        // Ranks inherit the memory by a number that programs hardly close.
        let number = 900.min(open_files().saturating_sub(1)) as i32;
        command.envs(self.part.environment.iter().map(|(name, value)| (name, value)));
        command.env(VARIABLE, format!("{number}:{}", self.part.first + rank));
        command.env("SHMEM_SYMMETRIC_SIZE", self.layout.heap_bytes.to_string());
        if rank > 0 || self.part.sink.is_some() {
            command.stdin(Stdio::null());
        }
        if self.job.label || self.part.sink.is_some() {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        // In the group of the terminal's foreground, a rank that reads the terminal may.
        // SAFETY: asks about a descriptor.
        let grouped = rank > 0 || unsafe { libc::isatty(0) } == 0;
        let processor = (self.job.bind && self.job.ranks <= processors.len()).then(|| processors[rank]);
        let (mask, children_ignored) = (self.signals.before(), self.signals.children_ignored());
        let launcher = std::process::id();
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                if libc::dup2(descriptor, number) < 0 {
                    return Err(io::Error::last_os_error());
                }
                if grouped {
                    libc::setpgid(0, 0);
                    // In the background of a terminal with `stty tostop` too, a rank may write.
                    libc::signal(libc::SIGTTOU, libc::SIG_IGN);
                }
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() as u32 != launcher {
                    libc::_exit(1);
                }
                if let Some(processor) = processor {
                    let mut set: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(processor, &mut set);
                    libc::sched_setaffinity(0, size_of_val(&set), &set);
                }
                if children_ignored {
                    libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                }
                libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
                Ok(())
            });
        }
        let mut child = command.spawn()?;
        if let (Some(out), Some(error)) = (child.stdout.take(), child.stderr.take()) {
            let read = labels.read(self.part.first + rank, out, error);
            if let Err(error) = read {
                // It is none of the job's ranks yet.
                let _ = child.kill().and_then(|()| child.wait());
                return Err(io::Error::new(error.kind(), format!("no thread for a rank's output: {error}")));
            }
        }
        Ok(Rank { process: child.id(), status: None, grouped })
    }

    /// Until all ranks have ended, or the job must.
    fn watch(&mut self) {
        let mut told: Option<Instant> = None;
        while self.cause.is_none() && self.ranks.iter().any(|rank| rank.status.is_none()) {
            match self.signals.next(None) {
                // Another thread of this process may have taken the signal.
                Some(libc::SIGCHLD) | None => self.reap(),
                Some(signal) => {
                    self.end(Ended::Launcher { signal }, std::process::id());
                    self.kill(signal);
                }
            }
            self.miss();
            // A rank that has ended the job may have much to do at its own end, or never come to it.
            let is_told = self.cause.is_none() && self.header().state.load(Acquire) == state::ENDED;
            if is_told && told.get_or_insert_with(Instant::now).elapsed() > SLOW {
                self.adopt(0);
            }
        }
    }

    /// Ends the job if ranks of this host wait for one that never was.
    fn miss(&mut self) {
        let Some(absent) = self.absent.filter(|_| self.part.apart.is_none() && self.cause.is_none()) else { return };
        if (0..self.ranks.len()).any(|rank| self.block(rank).state.load(Acquire) == rank_state::JOINED) {
            self.end(Ended::Left { rank: self.part.first + absent }, self.ranks[absent].process);
        }
    }

    /// Takes the cause that a rank has written; `process` is one that ended by it.
    fn adopt(&mut self, process: u32) {
        let header = self.header();
        let (kind, who, code) = (header.cause.load(Relaxed), header.cause_rank.load(Relaxed), header.cause_code.load(Relaxed));
        let why = Ended::from_words(kind, who, code);
        let named = (who as usize).checked_sub(self.part.first).and_then(|rank| self.ranks.get(rank));
        self.cause = Some((why, named.map_or(process, |rank| rank.process)));
        self.status = why.status() & 0xff;
    }

    /// Takes what has ended, and judges it.
    fn reap(&mut self) {
        let mut ended = Vec::new();
        for (number, rank) in self.ranks.iter_mut().enumerate().filter(|(_, rank)| rank.status.is_none()) {
            let mut status = 0;
            // Each by itself: this process may have children of its own.
            // SAFETY: `status` is ours.
            let found = unsafe { libc::waitpid(rank.process as i32, &mut status, libc::WNOHANG) };
            // Another part of this process has taken it, with its status.
            let is_taken = found < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD);
            if found > 0 || is_taken {
                rank.status = Some(status);
                ended.push((number, status));
            }
        }
        // One that was killed explains others that only noticed.
        ended.sort_by_key(|(_, status)| !libc::WIFSIGNALED(*status));
        ended.into_iter().for_each(|(rank, status)| self.judge(rank, status));
    }

    fn judge(&mut self, rank: usize, status: i32) {
        let process = self.ranks[rank].process;
        if self.header().state.load(Acquire) == state::ENDED && self.cause.is_none() {
            // A rank has asked for it.
            return self.adopt(process);
        }
        let joined = self.block(rank).state.load(Acquire);
        let rank = self.part.first + rank;
        let why = if libc::WIFSIGNALED(status) {
            Ended::Signal { rank, signal: libc::WTERMSIG(status) }
        } else if libc::WEXITSTATUS(status) != 0 {
            Ended::Status { rank, status: libc::WEXITSTATUS(status) }
        } else if joined == rank_state::JOINED {
            Ended::Left { rank }
        } else {
            if joined != rank_state::FINALIZED {
                self.absent.get_or_insert(rank - self.part.first);
            }
            return;
        };
        if joined == rank_state::FINALIZED && matches!(why, Ended::Status { .. }) {
            // The others need nothing of it any more.
            if self.status == 0 {
                self.status = why.status();
                self.late = Some((why, process));
            }
            return;
        }
        self.end(why, process);
    }

    fn end(&mut self, why: Ended, process: u32) {
        if self.cause.is_none() && end(self.header(), why) {
            self.cause = Some((why, process));
            self.status = why.status();
        }
        wake_all(self.control.address(), &self.layout);
    }

    fn kill(&self, signal: i32) {
        for rank in self.ranks.iter().filter(|rank| rank.status.is_none() || rank.grouped && signal == libc::SIGKILL) {
            let target = if rank.grouped { -(rank.process as i32) } else { rank.process as i32 };
            // SAFETY: takes numbers only. A group is named by a child that was started, and lasts as long as it has members.
            unsafe { libc::kill(target, signal) };
        }
    }

    /// Of a job that ended before its time, nothing is left.
    fn finish(&mut self) {
        if self.cause.is_none() {
            return;
        }
        for (signal, patience) in [libc::SIGTERM, libc::SIGKILL].into_iter().zip(PATIENCE) {
            let limit = Instant::now() + patience;
            while self.ranks.iter().any(|rank| rank.status.is_none()) && Instant::now() < limit {
                if self.signals.next(Some(limit.saturating_duration_since(Instant::now()))) == Some(libc::SIGCHLD) {
                    self.reap();
                }
            }
            self.kill(signal);
        }
        while self.ranks.iter().any(|rank| rank.status.is_none()) {
            self.signals.next(Some(Duration::from_millis(10)));
            self.reap();
        }
    }
}

fn open_files() -> usize {
    // SAFETY: plain data of ours.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur as usize
    }
}
