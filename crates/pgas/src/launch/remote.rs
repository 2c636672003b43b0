//! A job on several hosts: one agent on each, reached by a command such as ssh.

use super::frames::{Frame, Start, VERSION};
use super::hosts::Host;
use super::labels::own_output;
use super::signals::{ignore_broken_pipes, Signals};
use super::trace::{from_bytes, Recording};
use super::Job;
use crate::error::Ended;
use crate::remote::hosts::Host as Place;
use crate::remote::hosts::{choose, Hosts, HOSTS};
use crate::remote::Device;
use crate::trace::{clock, Words, RECORDS};
use shunt_endpoint::Tag;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::{Duration, Instant};

/// From the end of a job to the end of the commands that reach hosts which have not said that all is over.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same of a traced job, whose records are on the way then.
const PATIENCE_TRACED: Duration = Duration::from_secs(10);
/// How wrong a host's times may be, in nanoseconds, after one question for the launcher's clock.
const SLACK: u64 = 50_000_000;
/// Variables that ranks on other hosts get from the launcher: these, and those that begin with a [`PREFIXES`].
const PASSED: [&str; 2] = ["PATH", "LD_LIBRARY_PATH"];
/// See [`PASSED`].
const PREFIXES: [&str; 3] = ["SHMEM_", "SMA_", "SHUNT_"];

/// How a job of several hosts ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apart {
    /// The exit status for the launcher.
    pub status: i32,
    /// Why, if not all was well and if a sentence is due.
    pub why: Option<String>,
}

/// An agent, as the launcher sees it.
struct Agent<'h> {
    host: &'h Host,
    command: Child,
    over: bool,
    /// Where its keeper can be reached, once it has said so.
    here: Option<(u16, Vec<(IpAddr, u32)>)>,
}

struct Running<'h> {
    agents: Vec<Agent<'h>>,
    outcome: Apart,
    ending: bool,
    device: Device,
    /// How many agents there are to be.
    expected: usize,
    /// Of a job that is traced.
    traced: Option<Records>,
}

/// Starts an agent on each host by `rsh` (words, in which `{host}` is the host; without that it is the last word) followed by
/// `agent` (words), and waits for the job. Standard input of ranks is empty. Frames between
/// ranks of different hosts go by `device`.
///
/// # Errors
/// If a command cannot be started, or if the ranks of a host cannot.
pub fn run(job: &Job, hosts: &[Host], device: Device, rsh: &str, agent: &[OsString]) -> io::Result<Apart> {
    run_recorded(job, hosts, device, rsh, agent, None).map(|(outcome, _)| outcome)
}

/// The same, and writes what the ranks of all hosts did to `file`, as [`super::run_traced`], by the launcher's clock. The second result tells
/// whether that could be written.
///
/// # Errors
/// As [`run`].
pub fn run_traced(
    job: &Job,
    hosts: &[Host],
    device: Device,
    rsh: &str,
    agent: &[OsString],
    file: File,
) -> io::Result<(Apart, io::Result<()>)> {
    let recording = Recording::begin();
    let (outcome, records) = run_recorded(job, hosts, device, rsh, agent, Some(BTreeMap::new()))?;
    let ranks = hosts.iter().map(|host| host.ranks).sum();
    // Of a host that was lost there is nothing.
    let of = |rank: usize| records.as_ref().and_then(|records| records.get(&rank).cloned()).unwrap_or_default();
    Ok((outcome, recording.write_records(file, ranks, SLACK, of)))
}

/// By rank: records, and how many were lost.
type Records = BTreeMap<usize, (Vec<Words>, u64)>;

fn run_recorded(
    job: &Job,
    hosts: &[Host],
    device: Device,
    rsh: &str,
    agent: &[OsString],
    traced: Option<Records>,
) -> io::Result<(Apart, Option<Records>)> {
    if rsh.trim().is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "--rsh is empty; example: ssh"));
    }
    if hosts.len() > HOSTS {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a job has at most {} hosts", HOSTS)));
    }
    let signals = Signals::hold()?;
    ignore_broken_pipes();
    let (sender, events) = channel();
    let outcome = Apart { status: 0, why: None };
    let mut running = Running { agents: Vec::new(), outcome, ending: false, device, expected: hosts.len(), traced };
    let mask = signals.before();
    let mut failed = Ok(());
    for host in hosts {
        if let Err(error) = running.reach(job, hosts, host, rsh, agent, mask, &sender) {
            failed = Err(io::Error::new(error.kind(), format!("host {}: {error}", host.name)));
            running.end(libc::SIGTERM);
            break;
        }
    }
    let result = running.watch(&signals, &events);
    running.agents.iter_mut().for_each(Agent::finish);
    failed.and(result).map(|()| (running.outcome, running.traced))
}

impl<'h> Running<'h> {
    #[allow(clippy::too_many_arguments)]
    fn reach(
        &mut self,
        job: &Job,
        hosts: &[Host],
        host: &'h Host,
        rsh: &str,
        agent: &[OsString],
        mask: libc::sigset_t,
        sender: &Sender<(usize, Event)>,
    ) -> io::Result<()> {
        let mut words: Vec<String> = rsh.split_whitespace().map(|word| word.replace("{host}", &host.name)).collect();
        if !rsh.contains("{host}") {
            words.push(host.name.clone());
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(agent).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A group of its own: ctrl-C reaches the agent as a frame.
        command.process_group(0);
        // SAFETY: between fork and exec only a system call is made.
        unsafe {
            command.pre_exec(move || {
                libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
                Ok(())
            });
        }
        let mut child =
            command.spawn().map_err(|error| io::Error::new(error.kind(), format!("cannot run {}: {error}", words[0])))?;
        let out = child.stdout.take().expect("piped");
        let number = self.agents.len();
        self.agents.push(Agent { host, command: child, over: false, here: None });
        let sender = sender.clone();
        std::thread::Builder::new().spawn(move || listen(number, out, &sender))?;
        let start = Start {
            version: VERSION,
            first: host.first as u32,
            ranks: host.ranks as u32,
            total: hosts.iter().map(|host| host.ranks).sum::<usize>() as u32,
            heap: job.heap as u64,
            label: job.label,
            bind: job.bind,
            trace: self.traced.is_some(),
            directory: std::env::current_dir()?.into_os_string().into_vec(),
            environment: environment(),
            program: job.program.iter().map(|word| word.as_bytes().to_vec()).collect(),
        };
        match self.agents[number].send(&Frame::Start(start)) {
            // A command that ended at once: its end is told by the thread that listens.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }

    /// Until each agent has said that all is over, or is gone.
    fn watch(&mut self, signals: &Signals, events: &Receiver<(usize, Event)>) -> io::Result<()> {
        let mut result = Ok(());
        let mut limit = None;
        let patience = if self.traced.is_some() { PATIENCE_TRACED } else { PATIENCE };
        while self.agents.iter().any(|agent| !agent.over) {
            if self.ending && Instant::now() > *limit.get_or_insert_with(|| Instant::now() + patience) {
                return result;
            }
            if let Some(signal) = signals.next(None).filter(|signal| Signals::ends(*signal)) {
                self.because(128 + signal, Some(Ended::Launcher { signal }.to_string()), signal);
            }
            while let Ok((number, event)) = events.try_recv() {
                let event = match event {
                    Event::Said(event) => event,
                    Event::Unwritten(error) => {
                        self.agents[number].over = true;
                        let silent = error.kind() == io::ErrorKind::BrokenPipe;
                        let status = if silent { 128 + libc::SIGPIPE } else { 1 };
                        self.because(status, (!silent).then(|| format!("{error}; the job is over")), libc::SIGTERM);
                        continue;
                    }
                };
                let event = match event {
                    Ok(Some(Frame::Here { port, addresses })) => {
                        self.hear(number, port, &addresses);
                        continue;
                    }
                    Ok(Some(Frame::Clock(_))) if self.traced.is_some() => {
                        // One that cannot be told is gone, which is an event of its own.
                        let _ = self.agents[number].send(&Frame::Clock(clock()));
                        continue;
                    }
                    Ok(Some(Frame::Trace { rank, lost, records })) if self.is_trace(number, rank, &records) => {
                        if let Some(traced) = &mut self.traced {
                            traced.insert(rank as usize, (from_bytes(&records), lost));
                        }
                        continue;
                    }
                    event => event,
                };
                let agent = &mut self.agents[number];
                let name = agent.host.name.clone();
                let was_over = std::mem::replace(&mut agent.over, true);
                match event {
                    Ok(Some(Frame::Done { cause: None, status })) => {
                        if self.outcome.status == 0 {
                            self.outcome.status = status;
                        }
                    }
                    Ok(Some(Frame::Done { cause: Some([kind, rank, code, process]), status })) => {
                        let why = Ended::from_words(kind, rank, code as i32);
                        let asked = matches!(why, Ended::Asked { .. });
                        let sentence = format!("{why} (host {name}, process {process}); the job is over");
                        self.because(status, (!asked).then_some(sentence), libc::SIGTERM);
                    }
                    Ok(Some(Frame::Failed { code, why })) => {
                        if !self.ending {
                            let kind = if code == 0 { io::ErrorKind::Other } else { io::Error::from_raw_os_error(code).kind() };
                            result = Err(io::Error::new(kind, format!("host {name}: {}", String::from_utf8_lossy(&why))));
                        }
                        self.end(libc::SIGTERM);
                    }
                    _ if was_over => {}
                    Ok(None) => {
                        let ranks = agent.ranks();
                        self.because(
                            1,
                            Some(format!("the agent on host {name} was lost, with {ranks}; the job is over")),
                            libc::SIGTERM,
                        );
                    }
                    Ok(Some(_)) | Err(_) => {
                        let sentence =
                            format!("what host {name} says is no agent's: another version of shunt, or a shell that prints?");
                        self.because(1, Some(sentence), libc::SIGTERM);
                    }
                }
            }
        }
        result
    }

    /// Whether an agent may tell this of a rank.
    fn is_trace(&self, number: usize, rank: u32, records: &[u8]) -> bool {
        let host = self.agents[number].host;
        let own = host.first..host.first + host.ranks;
        own.contains(&(rank as usize)) && records.len() <= RECORDS * size_of::<Words>()
    }

    /// An agent has said where it is. When all have, each is told of all.
    fn hear(&mut self, number: usize, port: u32, addresses: &[Vec<u8>]) {
        let read = |text: &Vec<u8>| {
            let (at, bits) = std::str::from_utf8(text).ok()?.split_once('/')?;
            Some((at.parse().ok()?, bits.parse().ok()?))
        };
        let found = (u16::try_from(port).ok(), addresses.iter().map(read).collect::<Option<Vec<_>>>());
        let (Some(port), Some(found)) = found else {
            let name = &self.agents[number].host.name;
            return self.because(1, Some(format!("what host {name} says of its addresses is none")), libc::SIGTERM);
        };
        self.agents[number].here = Some((port, found));
        let here: Vec<_> = self.agents.iter().filter_map(|agent| agent.here.clone()).collect();
        if here.len() < self.agents.len() || here.len() < self.expected {
            return;
        }
        let have: Vec<_> = here.iter().map(|(_, addresses)| addresses.clone()).collect();
        let secret = [Tag::random(), Tag::random()].map(|tag| tag.map_or(0, |tag| tag.0));
        let (Some(chosen), false) = (choose(&have), secret.contains(&0)) else {
            let names: Vec<_> =
                self.agents.iter().zip(&have).filter(|(_, have)| have.is_empty()).map(|(agent, _)| &*agent.host.name).collect();
            let sentence =
                format!("the hosts of the job cannot reach each other: {} has no address but loopback", names.join(", "));
            return self.because(1, Some(sentence), libc::SIGTERM);
        };
        let list = self.agents.iter().zip(chosen).zip(&here);
        let list = list.map(|((agent, address), (port, _))| Place {
            first: agent.host.first,
            ranks: agent.host.ranks,
            address,
            port: *port,
        });
        let table = Hosts { list: list.collect(), secret, device: self.device };
        let table: Vec<u8> = table.words().into_iter().flat_map(u64::to_le_bytes).collect();
        for agent in &mut self.agents {
            // One that cannot be told is gone, which is an event of its own.
            let _ = agent.send(&Frame::Hosts(table.clone()));
        }
    }

    /// The first reason stays.
    fn because(&mut self, status: i32, why: Option<String>, signal: i32) {
        if !self.ending {
            self.outcome = Apart { status, why };
        }
        self.end(signal);
    }

    fn end(&mut self, signal: i32) {
        self.ending = true;
        for agent in self.agents.iter_mut().filter(|agent| !agent.over) {
            // An agent that cannot be told is gone, which is an event of its own.
            let _ = agent.send(&Frame::Signal(signal));
        }
    }
}

impl Agent<'_> {
    fn send(&mut self, frame: &Frame) -> io::Result<()> {
        frame.write(self.command.stdin.as_mut().expect("piped, and not closed before the end"))
    }

    fn ranks(&self) -> String {
        match self.host.ranks {
            1 => format!("rank {}", self.host.first),
            ranks => format!("ranks {} to {}", self.host.first, self.host.first + ranks - 1),
        }
    }

    /// The command is gone when this returns. An agent behind it ends its ranks when its standard input ends.
    fn finish(&mut self) {
        drop(self.command.stdin.take());
        if !self.over {
            // SAFETY: takes numbers only; the group is the command's own, which has not been waited for.
            unsafe { libc::kill(-(self.command.id() as i32), libc::SIGKILL) };
        }
        let _ = self.command.wait();
    }
}

/// What a thread that listens to an agent tells.
enum Event {
    /// A frame, the end, or what is none.
    Said(io::Result<Option<Frame>>),
    /// Output of its ranks was refused.
    Unwritten(io::Error),
}

fn tell(to: &Sender<(usize, Event)>, number: usize, event: Event) {
    let _ = to.send((number, event));
    // Wakes the thread that takes this process's signals.
    // SAFETY: a signal to this process, which holds it back.
    unsafe { libc::kill(libc::getpid(), libc::SIGCHLD) };
}

/// Passes output on, and the rest to the thread that decides.
fn listen(number: usize, mut from: ChildStdout, to: &Sender<(usize, Event)>) {
    loop {
        match Frame::read(&mut from) {
            Ok(Some(Frame::Output { error, bytes })) => {
                if let Err(error) = own_output(error, &bytes) {
                    tell(to, number, Event::Unwritten(error));
                    return;
                }
            }
            event => {
                let last = !matches!(
                    event,
                    Ok(Some(
                        Frame::Here { .. } | Frame::Clock(_) | Frame::Trace { .. } | Frame::Done { .. } | Frame::Failed { .. }
                    ))
                );
                tell(to, number, Event::Said(event));
                if last {
                    return;
                }
            }
        }
    }
}

fn environment() -> Vec<Vec<u8>> {
    let passed = std::env::vars_os().filter(|(name, _)| {
        let name = name.to_string_lossy();
        PASSED.contains(&&*name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    });
    passed.map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat()).collect()
}
