//! `shunt why PID FILTER`: every socket of a process, or of all under shunt, what carries it, and why.
use std::collections::HashMap;

use clap::ArgMatches;
use serde::Serialize;
use shunt_config::Options;
use shunt_segment::process::{found, kind};
use shunt_segment::reason::Reason;

use crate::failure::Failure;
use crate::filter::{self, End, Filter, Row as Shown};
use crate::inspect::connection::{ip_text, socket_text};
use crate::inspect::diagnosis::{self, Companion, UnixSockets};
use crate::inspect::kernel_tcp::{self, KernelSocket};
use crate::inspect::process_state::{Row, State};
use crate::inspect::processes::{self, Descriptor, Target};
use crate::inspect::regions;
use crate::inspect::stations::{self, Stream};
use crate::inspect::sunrpc::SunRpc;
use crate::output::{print, print_json};
use crate::run::{library, obstacle::Obstacle};
use crate::text_table::text_table;

#[derive(Serialize)]
struct Report {
    /// Fields are added under one number, never changed.
    schema: &'static str,
    pid: u32,
    program: String,
    /// Whether the process has loaded shunt.
    under_shunt: bool,
    /// Whether shunt does anything in it: not if the option accelerate is off.
    active: bool,
    /// Why not, if that is known.
    obstacle: Option<String>,
    /// Whether its threads look at TCP sockets of the kernel before they sleep on them, where that pays.
    looks_at_kernel_sockets: bool,
    sockets: Vec<Socket>,
    /// Objects whose own instructions could make calls on connections, and what becomes of these.
    instructions: Vec<Instructions>,
    /// How often each reason was given since the process started.
    counters: serde_json::Map<String, serde_json::Value>,
    /// How often each limit made a message of its regions a copy (`shunt-region`); of a program that uses them.
    regions: serde_json::Map<String, serde_json::Value>,
    /// Whose layers of SunRPC are collapsed, and why others' are not; of a program with libtirpc.
    sunrpc: Option<SunRpc>,
}

/// An object that could make calls past the C library.
#[derive(Serialize)]
struct Instructions {
    /// Its file's name; the program's own.
    object: String,
    /// One such call, where its number is known.
    call: Option<&'static str>,
    /// Whether they are trapped. If not, the process keeps to the kernel.
    trapped: bool,
}

impl Instructions {
    fn of(state: &State, program: &str) -> Vec<Instructions> {
        let entry = |(object, call, fate): (String, Option<u32>, u32)| Instructions {
            object: if object.is_empty() { program.to_owned() } else { object },
            call: call.and_then(shunt_instructions::number::name),
            trapped: fate == found::TRAPPED,
        };
        state.found().into_iter().map(entry).collect()
    }

    fn sentence(&self) -> String {
        let call = self.call.map(|call| format!(" ({call} is one)")).unwrap_or_default();
        let fate = match self.trapped {
            true => "are trapped",
            false => "cannot be trapped, so the process keeps to the kernel (with --raw off it does not)",
        };
        format!("calls by instructions of {}{call} {fate}\n", self.object)
    }
}

/// A socket or epoll descriptor.
#[derive(Serialize)]
struct Socket {
    descriptor: u32,
    kind: &'static str,
    local: Option<String>,
    remote: Option<String>,
    state: Option<&'static str>,
    carrier: &'static str,
    /// A stream to another host: its way, path, windows and agent, as in `shunt ss`.
    stream: Option<Stream>,
    /// The short name of the reason.
    reason: &'static str,
    /// The reason as a sentence.
    explanation: &'static str,
    /// Whether the own end is the one that accepted, or listens.
    #[serde(skip)]
    is_server: bool,
    /// The ends: the own one, the other one.
    #[serde(skip)]
    places: [Option<(String, u16)>; 2],
}

/// Several processes.
#[derive(Serialize)]
struct Reports {
    schema: &'static str,
    processes: Vec<Report>,
}

impl Socket {
    /// As a filter sees it.
    fn row<'a>(&'a self, program: &'a str, pid: &'a [u32]) -> Shown<'a> {
        let end = |place: &'a Option<(String, u16)>, program, pids| {
            let (address, port) = place.as_ref().map_or(("", 0), |(address, port)| (address.as_str(), *port));
            End { address, port, program, pid: None, pids }
        };
        let own = end(&self.places[0], program, pid);
        let other = end(&self.places[1], "", &[]);
        Shown {
            state: self.state.unwrap_or(if self.kind == "tcp" && self.places[1].is_some() { "established" } else { "" }),
            carrier: self.carrier,
            reason: self.reason,
            ends: if self.is_server { [other, own] } else { [own, other] },
        }
    }
}

/// The short name of a reason, and the reason as a sentence.
type Told = (&'static str, &'static str);

const NO_SHUNT: Told = ("no-shunt", "The program does not run under shunt.");
const NO_STATE: Told = ("no-state", "Shunt is loaded, and had no memory or descriptor for its records.");
const FORKED: Told = ("forked", "Inherited over fork, and not used since: the process has no records of its own yet.");
const NO_RECORD: Told =
    ("no-record", "Not made by this program: it came over an exec or in another unseen way, so the kernel carries it.");
const ELSEWHERE: Told =
    ("listens-elsewhere", "Another process listens by this socket; what this one would accept is the kernel's.");
const NOT_KNOWN: Told = ("unknown", "This command does not know the reason that the program gave.");
const OWN: Told = ("private", "Shunt keeps this descriptor for itself.");

/// Processes that are listed where a name means several.
const CANDIDATES: usize = 20;

/// The process that `word` means: its number, or the name of a program that one process runs.
fn process(word: &str) -> Result<u32, Failure> {
    if let Ok(pid @ 1..) = word.parse() {
        return Ok(pid);
    }
    if word.parse::<i128>().is_ok() || word.is_empty() {
        return Err(Failure::of_usage(format_args!("{word:?} is no process number: these begin with 1")));
    }
    let own = std::process::id();
    let found: Vec<u32> = processes::all().into_iter().filter(|pid| *pid != own && processes::is_program(*pid, word)).collect();
    match found[..] {
        [pid] => Ok(pid),
        [] => Err(Failure::of_environment(format_args!(
            "no process runs a program of the name {word:?}; a process number is expected, or such a name (pgrep -f {word:?} finds numbers by \
             command lines, shunt ss shows those of connections)"
        ))),
        _ => {
            let more = if found.len() > CANDIDATES { ", ..." } else { "" };
            let numbers: Vec<String> = found.iter().take(CANDIDATES).map(u32::to_string).collect();
            Err(Failure::of_usage(format_args!(
                "{} processes run {word:?}: {}{more}; name one by its number: shunt why {}",
                found.len(),
                numbers.join(", "),
                found[0]
            )))
        }
    }
}

/// Prints what is asked for: of one process, or of all under shunt.
///
/// # Errors
/// If the filter has a mistake, there is no such process, or more than one, or it may not be inspected.
pub fn why(matches: &ArgMatches) -> Result<u8, Failure> {
    let words: Vec<String> = matches.get_many::<String>("words").into_iter().flatten().cloned().collect();
    let json = matches.get_flag("json");
    let (process, words) = match words.split_first() {
        Some((first, rest)) if !filter::begins_with(first) => (Some(first), rest),
        _ => (None, words.as_slice()),
    };
    let filter = Filter::parse(words)?;
    processes::are_shown()?;
    if let Some(word) = process {
        let report = report(self::process(word)?, &filter)?;
        match json {
            true => print_json(&report)?,
            false => print(&text(&report))?,
        }
        return Ok(0);
    }
    let under_shunt = processes::all().into_iter().filter(|pid| processes::has_mapped(*pid, library::FILE));
    // One that ends meanwhile is left out.
    let mut reports: Vec<Report> = under_shunt.filter_map(|pid| report(pid, &filter).ok()).collect();
    reports.retain(|report| filter == Filter::All || !report.sockets.is_empty());
    if json {
        print_json(&Reports { schema: "shunt.why.list/1", processes: reports })?;
    } else if reports.is_empty() {
        print(if filter == Filter::All { "no process under shunt\n" } else { "no socket that the filter lets through\n" })?;
    } else {
        print(&reports.iter().map(text).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(0)
}

fn report(pid: u32, filter: &Filter) -> Result<Report, Failure> {
    let program = processes::program(pid).filter(|_| processes::exists(pid));
    let program = program.ok_or_else(|| Failure::of_environment(format_args!("there is no process {pid}")))?;
    let descriptors = processes::descriptors(pid).map_err(|error| {
        Failure::of_environment(format_args!(
            "process {pid} ({program}) cannot be inspected: {error}; only its own user may, and root with CAP_SYS_PTRACE (on the host, not in a container)"
        ))
    })?;
    let state = State::find(pid, &descriptors);
    let loaded = state.is_some() || processes::has_mapped(pid, library::FILE);
    let without_row = match (&state, loaded) {
        (Some(state), _) if state.own => NO_RECORD,
        (Some(_), _) => FORKED,
        (None, true) if is_switched_off(pid) => told(Reason::SwitchedOff),
        (None, true) => NO_STATE,
        (None, false) => NO_SHUNT,
    };
    let own = state.as_ref().filter(|state| state.own);
    let mut sockets = sockets(pid, &descriptors, state.as_ref(), without_row);
    sockets.retain(|socket| filter.holds(&socket.row(&program, &[pid])));
    Ok(Report {
        schema: "shunt.why/1",
        pid,
        instructions: own.map(|state| Instructions::of(state, &program)).unwrap_or_default(),
        program,
        under_shunt: loaded,
        active: state.is_some(),
        looks_at_kernel_sockets: state.is_some() && started_with(pid).is_some_and(|options| options.looks_at_kernel_sockets()),
        obstacle: match loaded {
            true => None,
            false => Obstacle::of_process(pid).map(|obstacle| obstacle.to_string()),
        },
        sockets,
        counters: own.into_iter().flat_map(State::counters).map(|(word, count)| (word.to_owned(), count.into())).collect(),
        regions: regions::counters(pid, &descriptors).into_iter().map(|(word, count)| (word.to_owned(), count.into())).collect(),
        sunrpc: SunRpc::of(pid, &descriptors),
    })
}

/// Whether the process was started with acceleration switched off: then the library only passes calls through.
fn is_switched_off(pid: u32) -> bool {
    started_with(pid).is_some_and(|options| !options.accelerate)
}

/// The options that the process was started with, if they make sense.
fn started_with(pid: u32) -> Option<Options> {
    let environment = processes::environment(pid);
    let lookup = |name: &str| environment.iter().find(|(known, _)| known == name.as_bytes()).map(|(_, value)| value.as_slice());
    Options::from_environment(lookup).ok()
}

fn sockets(pid: u32, descriptors: &[Descriptor], state: Option<&State>, without_row: Told) -> Vec<Socket> {
    // A companion's own process tells of its streams; which others share them does not matter here.
    let mut stations = if state.is_some() { stations::of_processes(&[pid], &mut Vec::new()).streams } else { Vec::new() };
    for stream in &mut stations {
        stream.pids = vec![pid];
        stream.program = processes::program(pid).unwrap_or_default();
    }
    let tables = Tables {
        without_row,
        stations,
        kernel: kernel_tcp::sockets(pid),
        // Where the kernel does not tell, the addresses of accelerated connections stay open; the reasons do not.
        unix: if state.is_some() { diagnosis::unix_sockets(pid).unwrap_or_default() } else { UnixSockets::default() },
    };
    let mut sockets: Vec<Socket> = descriptors
        .iter()
        .filter_map(|descriptor| {
            let row = state.filter(|state| state.own).and_then(|state| state.row(descriptor.number));
            let inode = match descriptor.target {
                Target::Socket(inode) => Some(inode),
                Target::Epoll if row.is_some_and(|row| row.kind == kind::EPOLL) => None,
                _ => return None,
            };
            Some(tables.socket(descriptor.number, inode, row))
        })
        .collect();
    let port = |socket: &Socket| socket.places[0].as_ref().map(|(_, port)| *port);
    let listens: Vec<Option<u16>> = sockets.iter().filter(|socket| socket.kind == "tcp-listener").map(port).collect();
    for socket in &mut sockets {
        socket.is_server |= socket.kind.starts_with("tcp") && listens.contains(&port(socket));
    }
    sockets
}

struct Tables {
    /// The streams to other hosts.
    stations: Vec<Stream>,
    /// Why the kernel carries a TCP socket of which the process noted nothing.
    without_row: Told,
    kernel: HashMap<u64, KernelSocket>,
    unix: UnixSockets,
}

impl Tables {
    fn socket(&self, descriptor: u32, inode: Option<u64>, row: Option<Row>) -> Socket {
        let kernel = inode.and_then(|inode| self.kernel.get(&inode));
        let companion = inode.and_then(|inode| self.unix.companions.get(&(inode as u32)));
        let rendezvous = inode.is_some_and(|inode| self.unix.rendezvous.contains(&(inode as u32)));
        // The companion knows better than the row, which may be another process's or not yet written.
        let row = match (row, companion) {
            (None, Some(_)) => Some(Row { kind: kind::STREAM, reason: Some(Reason::Accelerated) }),
            _ => row,
        };
        let row_kind = if rendezvous { Some(kind::PRIVATE) } else { row.map(|row| row.kind) };
        let (kind, carrier) = match (row_kind, kernel) {
            (Some(kind::STREAM), _) => match row.and_then(|row| row.reason) {
                Some(Reason::Taken) => ("tcp", "user-level"),
                Some(reason) if reason.is_given_back() => ("tcp", "kernel"),
                _ => ("tcp", "shared-memory"),
            },
            (Some(kind::LISTENER), _) => ("tcp-listener", "both"),
            (Some(kind::EPOLL), _) => ("epoll", "-"),
            (Some(kind::DATAGRAM), _) if row.is_some_and(|row| row.reason == Some(Reason::Accelerated)) => ("udp", "both"),
            (Some(kind::DATAGRAM), _) => ("udp", "kernel"),
            (Some(kind::LOCAL), _) if row.is_some_and(|row| row.reason == Some(Reason::Accelerated)) => ("unix", "both"),
            (Some(kind::LOCAL), _) => ("unix", "kernel"),
            (Some(kind::PRIVATE), _) => ("private", "-"),
            (_, Some(socket)) if socket.state == "listening" => ("tcp-listener", "kernel"),
            (_, Some(_)) | (Some(kind::TCP), None) => ("tcp", "kernel"),
            (_, None) => ("other", "kernel"),
        };
        let (reason, explanation) = match row {
            _ if row_kind == Some(kind::PRIVATE) => OWN,
            Some(row) if kind == "tcp-listener" && row.reason == Some(Reason::Unconnected) => ELSEWHERE,
            Some(row) => row.reason.map_or(NOT_KNOWN, told),
            None if kernel.is_some() => self.without_row,
            None => told(Reason::NotTcp),
        };
        let (local, remote) = match (companion, kernel) {
            _ if row_kind == Some(kind::PRIVATE) => (None, None),
            (Some(Companion { hello, end }), _) => {
                let ends = [&hello.client, &hello.server];
                (Some(ends[*end]), Some(ends[1 - *end]))
            }
            (None, Some(socket)) => (Some(&socket.local), Some(&socket.remote).filter(|remote| remote.port != 0)),
            (None, None) => (None, None),
        };
        let ends = |local: &shunt_segment::address::Address, remote: &shunt_segment::address::Address| {
            let written = [local, remote].map(|address| socket_text(&ip_text(address), address.port));
            self.stations.iter().find(|stream| stream.ends() == written)
        };
        let stream = match (companion.is_some(), local, remote) {
            (true, Some(local), Some(remote)) => ends(local, remote),
            _ => None,
        };
        let written = |address: &shunt_segment::address::Address| socket_text(&ip_text(address), address.port);
        Socket {
            descriptor,
            kind,
            local: local.map(written),
            remote: remote.map(written),
            state: kernel.map(|socket| socket.state),
            carrier: stream.map_or(carrier, Stream::carrier),
            stream: stream.cloned(),
            reason,
            explanation,
            is_server: companion.is_some_and(|companion| companion.end == 1),
            places: [local, remote].map(|address| address.map(|address| (ip_text(address), address.port))),
        }
    }
}

fn told(reason: Reason) -> Told {
    (reason.word(), reason.text())
}

fn text(report: &Report) -> String {
    let mut text = format!("{} (process {})", report.program, report.pid);
    match (&report.obstacle, report.under_shunt) {
        (_, true) if report.active => text.push_str(" runs under shunt"),
        (_, true) => text.push_str(" runs under shunt, which does nothing in it"),
        (Some(obstacle), false) => text.push_str(&format!(" does not run under shunt: {obstacle}")),
        (None, false) => text.push_str(" does not run under shunt; start it by: shunt run -- PROGRAM"),
    }
    text.push('\n');
    let (own, sockets): (Vec<&Socket>, Vec<&Socket>) = report.sockets.iter().partition(|socket| socket.kind == OWN.0);
    if sockets.is_empty() {
        text.push_str("it has no sockets\n");
    } else {
        let cell = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let rows: Vec<Vec<String>> = sockets
            .iter()
            .map(|socket| {
                vec![
                    socket.descriptor.to_string(),
                    socket.kind.to_owned(),
                    cell(&socket.local),
                    cell(&socket.remote),
                    socket.carrier.to_owned(),
                    format!("{}: {}", socket.reason, socket.explanation),
                ]
            })
            .collect();
        text.push_str(&text_table(&["FD", "KIND", "LOCAL", "REMOTE", "CARRIER", "WHY"], &rows));
        for socket in &sockets {
            let Some(stream) = &socket.stream else { continue };
            text.push_str(&format!("{} to {} ({}):\n", socket.descriptor, stream.ends()[1], stream.way));
            stream.sentences().iter().for_each(|sentence| text.push_str(&format!("  {sentence}\n")));
        }
    }
    if report.looks_at_kernel_sockets && sockets.iter().any(|socket| socket.kind == "tcp" && socket.carrier == "kernel") {
        text.push_str("threads look at the kernel's tcp sockets before they sleep on them, where that pays (--spin-on-kernel)\n");
    }
    if !own.is_empty() {
        let numbers: Vec<String> = own.iter().map(|socket| socket.descriptor.to_string()).collect();
        text.push_str(&format!("shunt keeps for itself: {}\n", numbers.join(", ")));
    }
    text.push_str(&report.sunrpc.as_ref().map(SunRpc::text).unwrap_or_default());
    report.instructions.iter().for_each(|found| text.push_str(&found.sentence()));
    if !report.counters.is_empty() {
        let counts: Vec<String> = report.counters.iter().map(|(word, count)| format!("{word} {count}")).collect();
        text.push_str(&format!("since it started: {}\n", counts.join(", ")));
    }
    if !report.regions.is_empty() {
        let counts: Vec<String> = report.regions.iter().map(|(word, count)| format!("{word} {count}")).collect();
        text.push_str(&format!("messages that were copied although regions can be passed: {}\n", counts.join(", ")));
    }
    text
}
