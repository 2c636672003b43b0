//! The stage: two processes with their children and threads, which act one at a time.
//!
//! An actor that was told to act either answers, or sleeps in its call: then the call *blocks*, which is an outcome too, and the
//! actor can be woken by what another does. Asleep is what `/proc` says twice in a row while no answer has come; nothing depends
//! on how long that takes. A replay knows from the kernel which calls answer, and waits for these with patience.

use super::hunt::Setting;
use super::sequence::Operation;
use crate::arrangement::Role;
use crate::site::Site;
use crate::trial::Trial;
use crate::{namespace, programs};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How many actors there can be; the first two are processes from the beginning.
pub const ACTORS: usize = 8;
/// How long to wait for an answer that must come.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where actors find their channels; `actor.c` has the same number.
const CHANNELS: RawFd = 300;

/// What one operation led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The answer, or [`BLOCKS`], or why nothing was done.
    pub reply: String,
    /// Actors whose earlier call ended because of it, in the order of their numbers, and their answers.
    pub woken: Vec<(usize, String)>,
}

/// The reply of an actor that sleeps in its call.
pub const BLOCKS: &str = "blocks";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    Absent,
    Idle,
    Blocked,
}

struct Actor {
    condition: Condition,
    process: i32,
    thread: i32,
    commands: File,
    answers: File,
    heard: Vec<u8>,
}

/// Two processes and what became of them.
pub struct Stage {
    actors: Vec<Actor>,
    roots: Vec<Child>,
    ports: HashMap<String, usize>,
    scratch: PathBuf,
    /// How long to wait after each operation: what was said reaches another host later.
    under_way: Option<Duration>,
    /// The hosts, for as long as there are processes on them.
    _site: Site,
}

impl Stage {
    /// Starts both processes, each on a host of its own or in a network namespace that the calling thread enters for it.
    ///
    /// # Errors
    /// When the namespace, the pipes or the processes cannot be made, or one does not introduce itself.
    pub fn open(setting: Setting<'_>) -> io::Result<Stage> {
        let site = match setting.hosts {
            None => {
                namespace::enter_new()?;
                Site::one_host()
            }
            Some(arrangement) => Site::two_hosts(arrangement, setting.shunts[0])?,
        };
        let mut actors = Vec::new();
        let mut inherited = Vec::new();
        for number in 0..ACTORS as RawFd {
            let (command_reader, command_writer) = io::pipe()?;
            let (answer_reader, answer_writer) = io::pipe()?;
            inherited.push((command_reader.as_raw_fd(), CHANNELS + 2 * number));
            inherited.push((answer_writer.as_raw_fd(), CHANNELS + 2 * number + 1));
            actors.push((command_reader, answer_writer, command_writer, answer_reader));
        }
        let scratch = Trial::scratch_directory()?;
        let mut roots = Vec::new();
        for (number, shunt) in setting.shunts.into_iter().enumerate() {
            let program = programs::scenarios(false);
            let mut command = match shunt {
                Some(shunt) => {
                    let mut command = Command::new(shunt);
                    command.args(["run", "--"]).arg(program);
                    command
                }
                None => Command::new(program),
            };
            let errors = File::options().create(true).append(true).open(scratch.join("errors"))?;
            command.args(["--actor", &number.to_string()]).env("LABORATORY_CARRIERS", scratch.join("carriers"));
            command.env("LABORATORY_ROLE", Role::Solo.name()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
            site.enter(&mut command, number);
            Trial::inherit(&mut command, &inherited);
            roots.push(command.process_group(0).spawn()?);
        }
        let actors = actors.into_iter().map(|(_, _, commands, answers)| Actor {
            condition: Condition::Absent,
            process: 0,
            thread: 0,
            commands: File::from(std::os::fd::OwnedFd::from(commands)),
            answers: File::from(std::os::fd::OwnedFd::from(answers)),
            heard: Vec::new(),
        });
        let under_way = setting.hosts.is_some().then_some(setting.under_way);
        let mut stage = Stage { actors: actors.collect(), roots, ports: HashMap::new(), scratch, under_way, _site: site };
        for number in 0..stage.roots.len() {
            stage.actors[number].process = stage.roots[number].id() as i32;
            stage.actors[number].condition = Condition::Idle;
            if stage.meet(number).is_none() {
                let said = std::fs::read_to_string(stage.scratch.join("errors")).unwrap_or_default();
                return Err(io::Error::other(format!("actor {number} did not introduce itself: {said}")));
            }
        }
        Ok(stage)
    }

    /// Whether any connection was carried by something else than a TCP socket of the kernel.
    pub fn accelerated(&self) -> bool {
        std::fs::read_to_string(self.scratch.join("carriers")).is_ok_and(|carriers| carriers.contains('u'))
    }

    /// Whether an actor exists and waits for something to do.
    pub fn is_idle(&self, actor: usize) -> bool {
        self.actors[actor].condition == Condition::Idle
    }

    /// Performs one operation. With what is `expected`, an answer that must come gets the time it needs.
    pub fn perform(&mut self, operation: &Operation, expected: Option<&Step>) -> Step {
        let reply = self.act(operation, expected.map(|step| step.reply.as_str()));
        if let Some(under_way) = self.under_way {
            std::thread::sleep(under_way);
        }
        let mut woken = Vec::new();
        for number in 0..ACTORS {
            if self.actors[number].condition != Condition::Blocked || (number == operation.actor && reply == BLOCKS) {
                continue;
            }
            let must = expected.is_some_and(|step| step.woken.iter().any(|(actor, _)| *actor == number));
            if let Some(answer) = if must { self.hear(number) } else { self.settle(number) } {
                self.actors[number].condition = Condition::Idle;
                let answer = self.labelled(&answer);
                woken.push((number, answer));
            }
            self.bury(number);
        }
        Step { reply, woken }
    }

    fn act(&mut self, operation: &Operation, expected: Option<&str>) -> String {
        let number = operation.actor;
        match operation.verb() {
            "kill" => return self.kill(operation.number(1) % ACTORS),
            "signal" => return self.signal(operation.number(1) % ACTORS),
            _ => {}
        }
        match self.actors[number].condition {
            Condition::Absent => return "no such actor".into(),
            Condition::Blocked => return "is blocked".into(),
            Condition::Idle => {}
        }
        let other = operation.number(1) % ACTORS;
        let makes = matches!(operation.verb(), "fork" | "thread");
        if makes && self.actors[other].condition != Condition::Absent {
            return "that actor exists".into();
        }
        let process = self.actors[number].process;
        if operation.verb() == "exec" && self.company(process) > 1 {
            return "has company".into();
        }
        if writeln!(self.actors[number].commands, "{}", operation.words).is_err() {
            return "the channel is gone".into();
        }
        let answer = match expected {
            Some(expected) if expected != BLOCKS => self.hear(number).or(Some("does not answer".into())),
            _ if !may_block(operation.verb()) => self.hear(number).or(Some("does not answer".into())),
            _ => self.settle(number),
        };
        let Some(answer) = answer else {
            self.actors[number].condition = Condition::Blocked;
            return BLOCKS.into();
        };
        if makes && answer == "ok" {
            self.actors[other].process = process;
            self.actors[other].condition = Condition::Idle;
            if self.meet(other).is_none() {
                return "the new actor did not introduce itself".into();
            }
        }
        self.bury(number);
        match answer.strip_prefix("hello ") {
            Some(rest) => {
                let mut words = rest.splitn(3, ' ');
                self.actors[number].thread = words.nth(1).and_then(|word| word.parse().ok()).unwrap_or(process);
                words.next().unwrap_or("").into()
            }
            None => self.labelled(&answer),
        }
    }

    /// SIGKILL for the process of an actor, until it is gone.
    fn kill(&mut self, number: usize) -> String {
        if self.actors[number].condition == Condition::Absent {
            return "no such actor".into();
        }
        let process = self.actors[number].process;
        // SAFETY: kill takes no pointer; the process is ours, and its number is kept until it is buried.
        unsafe { libc::kill(process, libc::SIGKILL) };
        let deadline = Instant::now() + PATIENCE;
        while !gone(process) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
        self.bury(number);
        "killed".into()
    }

    /// SIGUSR1 for an actor that is blocked.
    fn signal(&mut self, number: usize) -> String {
        let actor = &self.actors[number];
        if actor.condition != Condition::Blocked {
            return "is not blocked".into();
        }
        // SAFETY: tgkill takes no pointer; the thread is ours and asleep in its call.
        unsafe { libc::syscall(libc::SYS_tgkill, actor.process, actor.thread, libc::SIGUSR1) };
        // Until the kernel has begun to deliver it the thread looks asleep as before.
        let deadline = Instant::now() + PATIENCE;
        while pending_signals(actor.process, actor.thread) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
        "signalled".into()
    }

    /// The introduction of a new actor.
    fn meet(&mut self, number: usize) -> Option<()> {
        let hello = self.hear(number)?;
        let mut words = hello.strip_prefix("hello ")?.split(' ');
        self.actors[number].process = words.next()?.parse().ok()?;
        self.actors[number].thread = words.next()?.parse().ok()?;
        Some(())
    }

    /// An answer that must come. `None` if the process is gone, or patience is.
    fn hear(&mut self, number: usize) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(line) = self.listen(number, Duration::from_millis(20)) {
                return Some(line);
            }
            if gone(self.actors[number].process) {
                return Some(self.listen(number, Duration::ZERO).unwrap_or_else(|| "the process is gone".into()));
            }
            if Instant::now() > deadline {
                return None;
            }
        }
    }

    /// An answer, or `None` when the actor sleeps in its call.
    fn settle(&mut self, number: usize) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut asleep = 0;
        let mut patience = self.under_way.unwrap_or(Duration::from_millis(2));
        while asleep < 3 && Instant::now() < deadline {
            if let Some(line) = self.listen(number, patience) {
                return Some(line);
            }
            let actor = &self.actors[number];
            if gone(actor.process) {
                return Some(self.listen(number, Duration::ZERO).unwrap_or_else(|| "the process is gone".into()));
            }
            asleep = if state(actor.process, actor.thread) == Some('S') { asleep + 1 } else { 0 };
            patience = Duration::from_micros(300);
        }
        // The last look at the state came after the last look at the channel.
        self.listen(number, Duration::ZERO)
    }

    /// A line from an actor, if one comes within `patience`.
    fn listen(&mut self, number: usize, patience: Duration) -> Option<String> {
        let actor = &mut self.actors[number];
        loop {
            if let Some(end) = actor.heard.iter().position(|&byte| byte == b'\n') {
                let line = String::from_utf8_lossy(&actor.heard[..end]).into_owned();
                actor.heard.drain(..=end);
                return Some(line);
            }
            let mut entry = libc::pollfd { fd: actor.answers.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let wait = libc::timespec { tv_sec: patience.as_secs() as libc::time_t, tv_nsec: i64::from(patience.subsec_nanos()) };
            // SAFETY: one pollfd and one timespec, which outlive the call; no signal mask.
            if unsafe { libc::ppoll(&mut entry, 1, &wait, std::ptr::null()) } != 1 {
                return None;
            }
            let mut piece = [0; 1024];
            match actor.answers.read(&mut piece) {
                Ok(count) if count > 0 => actor.heard.extend_from_slice(&piece[..count]),
                _ => return None,
            }
        }
    }

    fn company(&self, process: i32) -> usize {
        self.actors.iter().filter(|actor| actor.condition != Condition::Absent && actor.process == process).count()
    }

    /// Takes every actor of a process that ended off the stage.
    fn bury(&mut self, number: usize) {
        let process = self.actors[number].process;
        if !gone(process) {
            return;
        }
        for other in 0..ACTORS {
            if self.actors[other].process != process || self.actors[other].condition == Condition::Absent {
                continue;
            }
            self.actors[other].condition = Condition::Absent;
            // What it said with its last breath is not the introduction of the next one.
            while self.listen(other, Duration::ZERO).is_some() {}
            self.actors[other].heard.clear();
        }
    }

    /// Ephemeral ports become labels in the order of their appearance.
    fn labelled(&mut self, answer: &str) -> String {
        let mut text = String::new();
        let mut rest = answer;
        while let Some(at) = rest.find("port:") {
            let (head, tail) = rest.split_at(at);
            let digits: String = tail["port:".len()..].chars().take_while(char::is_ascii_digit).collect();
            text.push_str(head);
            if digits.parse().is_ok_and(|port: u16| port < 30000) {
                text.push_str(&digits);
            } else {
                let next = self.ports.len() + 1;
                text.push_str(&format!("p{}", self.ports.entry(digits.clone()).or_insert(next)));
            }
            rest = &tail["port:".len() + digits.len()..];
        }
        text + rest
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for root in &mut self.roots {
            // SAFETY: kill takes no pointer; each root leads a group of its own and has not been waited for.
            unsafe { libc::kill(-(root.id() as libc::pid_t), libc::SIGKILL) };
            let _ = root.wait();
        }
        // Nothing depends on it being gone.
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// Whether the operation can sleep until another actor does something.
fn may_block(verb: &str) -> bool {
    matches!(
        verb,
        "connect"
            | "accept"
            | "send"
            | "write"
            | "writev"
            | "sendmsg"
            | "sendfile"
            | "recv"
            | "read"
            | "readv"
            | "recvmsg"
            | "poll"
            | "poll2"
            | "select"
            | "wait"
    )
}

/// The state of a thread as `/proc` tells it: `R` runs, `S` sleeps.
fn state(process: i32, thread: i32) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/stat")).ok()?;
    text.rsplit(')').next()?.trim_start().chars().next()
}

/// Whether nothing of the process runs any more, so that the kernel has closed what it held.
fn gone(process: i32) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return true };
    let Some(rest) = text.rsplit(')').next() else { return true };
    let mut words = rest.split_whitespace();
    let ended = matches!(words.next(), Some("Z" | "X"));
    // Number 20 of the line, of which the state is number 3.
    ended && words.nth(16).and_then(|threads| threads.parse::<u32>().ok()).is_none_or(|threads| threads <= 1)
}

/// Whether a signal for the thread has not been taken yet.
fn pending_signals(process: i32, thread: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).unwrap_or_default();
    text.lines().any(|line| line.strip_prefix("SigPnd:").is_some_and(|mask| mask.trim().bytes().any(|digit| digit != b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_gone_and_runs() {
        let own = std::process::id() as i32;
        assert!(!gone(own) && gone(0x3fff_ffff));
        // SAFETY: gettid takes nothing.
        let thread = unsafe { libc::gettid() };
        assert_eq!(state(own, thread), Some('R'));
    }
}
