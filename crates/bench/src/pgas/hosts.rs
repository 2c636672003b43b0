//! Between two hosts (network namespaces): operations on a rank of the other one, beside the active messages that carry them.
//!
//! Contenders take turns. The active messages are bare: two threads, one of which answers as soon as it looks; a rank's operations need a keeper on the
//! other host, and its own memory does not.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use shunt_am::port::{config_for, memory, Port};
use shunt_am::{Config, Dispatch, Message, Replier, Store};
use shunt_testkit::hosts::{pair, Host, Joint};

use crate::hosts::contender::side_by_side;
use crate::hosts::endpoints::{agents_of, Boxed, Carrier};
use crate::hosts::messages::{loose, Loose};
use crate::output::say;
use crate::statistics::median;

use super::figure;
use super::model::{self, Here};
use super::programs::{self, Counting, Directory, Report, BINARIES, PROGRAMS};
use super::PROCESSES;

/// Bytes of a store in bulk.
const STORES: [usize; 2] = [64 << 10, 1 << 20];
/// What one turn of active messages takes.
const TIME: Duration = Duration::from_millis(200);
const CONNECTING: Duration = Duration::from_secs(5);

/// What to measure.
pub struct Plan<'p> {
    /// The shunt command.
    pub shunt: &'p Path,
    /// By what frames go.
    pub carrier: Carrier,
    /// Turns of each.
    pub repeats: usize,
    /// The seven programs, too.
    pub programs: bool,
    /// Where the table goes.
    pub output: &'p Path,
}

/// Keys of the sorts whose keys go one by one: a sixteenth of those on one host, for each is a message.
const KEYS: &str = "262144";

type Figures = BTreeMap<String, Vec<f64>>;

struct Memory {
    bytes: Vec<u8>,
    replies: u64,
}

impl Dispatch for Memory {
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        let _ = replier.reply(1, message.words, message.data);
    }
    fn reply(&mut self, _: Message<'_>) {
        self.replies += 1;
    }
    fn segment(&mut self, _: u32) -> &mut [u8] {
        &mut self.bytes
    }
}

/// A port over one end, connected by `connect`, and what `act` makes of it.
fn with_port<T>(
    (endpoint, tags, at): Loose,
    connect: impl FnOnce(&mut Port<'_, Boxed>, u32, &mut Memory) -> Result<(), String>,
    act: impl FnOnce(&mut Port<'_, Boxed>, u32, &mut Memory) -> Result<T, String>,
) -> Result<T, String> {
    // As a rank and its keeper have it.
    let config = Config { channels: 1, replies: 128, ..config_for(&endpoint, 1) };
    let mut space = memory(&config);
    let mut port = Port::new(endpoint, &mut space, &config).map_err(|error| error.to_string())?;
    let peer = port.open(&at, tags).map_err(|error| format!("{error:?}"))?;
    let mut program = Memory { bytes: vec![0; STORES[1]], replies: 0 };
    connect(&mut port, peer, &mut program)?;
    act(&mut port, peer, &mut program)
}

/// What a waiting side does between two looks: where agents move the frames, they need the processor, and a rank that waits offers its own.
fn between_looks(carrier: Carrier) {
    if carrier == Carrier::Multiplexed {
        std::thread::yield_now();
    }
}

/// Nanoseconds of what `act` does, which is called again and again, as the median, or as what each takes of the whole.
fn messages(
    plan: &Plan<'_>,
    hosts: &[Host; 2],
    act: impl FnOnce(&mut Port<'_, Boxed>, u32, &mut Memory) -> Result<f64, String> + Send,
) -> Result<f64, String> {
    let [a, b] = loose(plan.carrier, hosts.each_ref())?;
    let serve = |over: &AtomicBool, _: &AtomicU64| {
        let accept = |port: &mut Port<'_, Boxed>, peer, memory: &mut Memory| {
            port.accept(peer, memory, CONNECTING).map_err(|error| error.to_string())
        };
        with_port(b, accept, |port, _, memory| {
            while !over.load(Relaxed) {
                port.poll(memory);
                between_looks(plan.carrier);
            }
            Ok(())
        })
    };
    let drive = |_: &AtomicU64| {
        let connect =
            |port: &mut Port<'_, Boxed>, peer, memory: &mut Memory| port.connect(peer, memory).map_err(|error| error.to_string());
        with_port(a, connect, act)
    };
    let (served, driven) = side_by_side(serve, drive);
    served?;
    driven
}

/// As the ranks' program does it: the median of several batches.
fn round_trip(carrier: Carrier, port: &mut Port<'_, Boxed>, peer: u32, memory: &mut Memory) -> Result<f64, String> {
    const BATCHES: usize = 9;
    const TURNS: u64 = 500;
    let mut times = Vec::new();
    for _ in 0..BATCHES {
        let began = Instant::now();
        for _ in 0..TURNS {
            let before = memory.replies;
            port.request(peer, 1, &[1], &[], memory).map_err(|error| error.to_string())?;
            while memory.replies == before {
                port.poll(memory);
                between_looks(carrier);
            }
        }
        times.push(began.elapsed().as_nanos() as f64 / TURNS as f64);
    }
    median(&times).ok_or_else(|| "no round trip".to_owned())
}

fn stores(carrier: Carrier, bytes: usize, port: &mut Port<'_, Boxed>, peer: u32, memory: &mut Memory) -> Result<f64, String> {
    let data = vec![7u8; bytes];
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < TIME {
        let store = Store { offset: 0, handler: 1, words: &[] };
        port.store(peer, &store, &data, memory).map_err(|error| error.to_string())?;
        count += 1;
    }
    // The answer of the last one says that it is there.
    while memory.replies < count {
        port.poll(memory);
        between_looks(carrier);
    }
    Ok(began.elapsed().as_nanos() as f64 / count as f64)
}

/// Compiles, measures, and writes the table.
pub fn run(plan: &Plan<'_>) -> Result<(), String> {
    let hosts = pair(Joint::default()).map_err(|error| format!("two hosts cannot be made: {error}"))?;
    let _agents = agents_of(plan.carrier, hosts.each_ref(), plan.shunt)?;
    let directory = Directory::new(plan.output)?;
    for name in ["hosts"].into_iter().chain(BINARIES) {
        let compiler = Command::new(plan.shunt.with_file_name("shunt-shmemcc"));
        programs::compile(compiler, &directory.join(format!("{name}.c")), &directory.join(name))?;
    }
    let keys = |argument: &str| if argument == "small" { KEYS } else { "" };
    let counts = if plan.programs { super::counted(&Counting::new(plan.shunt, &directory)?, keys)? } else { Vec::new() };
    let mut figures = Figures::new();
    for turn in 0..plan.repeats {
        eprintln!("shunt bench pgas: turn {} of {}", turn + 1, plan.repeats);
        let mut note = |row: &str, value| figures.entry(row.to_owned()).or_default().push(value);
        note("am-8", messages(plan, &hosts, |port, peer, memory| round_trip(plan.carrier, port, peer, memory))?);
        for bytes in STORES {
            note(
                &format!("am-store-{bytes}"),
                messages(plan, &hosts, |port, peer, memory| stores(plan.carrier, bytes, port, peer, memory))?,
            );
        }
        for line in job(plan, &hosts, 1, &directory.join("hosts"), &[])?.lines() {
            if let Some((name, Ok(value))) = line.split_once(' ').map(|(name, value)| (name, value.parse())) {
                note(name, value);
            }
        }
        for (source, argument, name) in PROGRAMS.iter().filter(|_| plan.programs) {
            for ranks in [1].into_iter().chain(PROCESSES) {
                let (program, words) = (directory.join(source), [*argument, keys(argument)]);
                let said = match ranks {
                    1 => programs::said(plan.shunt, 1, &program, &words)?,
                    _ => job(plan, &hosts, ranks / 2, &program, &words)?,
                };
                let report = Report::of(&said).ok_or_else(|| format!("{name} of {ranks} said {said:?}"))?;
                note(&format!("{name} of {ranks}"), report.time);
                note(&format!("{name} of {ranks}, communication"), report.share);
            }
        }
    }
    let mut table = super::head(plan.repeats) + &table(plan, &figures);
    let write = |name: String, text: &str| super::write(plan.output, &name, text);
    let word = plan.carrier.word();
    if plan.programs {
        let (row, bars) = (|row: &str| middle(&figures, row), bars(&figures));
        table.push_str(&figure::table(&bars, &figure::Own::of(row)));
        write(format!("figure5-{word}.svg"), &figure::svg(&bars)?)?;
        if let Some(here) = Here::of(row) {
            let measured = model::measured(&counts, row);
            table.push_str(&model::table(&measured, here));
            write(
                format!("figure5-machines-{word}.svg"),
                &figure::stacked(super::MACHINES_TITLE, &model::stacks(&measured, here))?,
            )?;
        }
    }
    say(&table);
    write(format!("pgas-{word}.txt"), &table)
}

fn middle(figures: &Figures, row: &str) -> Option<f64> {
    median(figures.get(row)?)
}

fn bars(figures: &Figures) -> Vec<figure::Bar> {
    let bar = |program: &'static str, ranks: usize| {
        let row = format!("{program} of {ranks}");
        let share = middle(figures, &format!("{row}, communication"))?.min(100.0);
        Some(figure::Bar { program, ranks, time: middle(figures, &row)?, share })
    };
    PROGRAMS.iter().flat_map(|(_, _, program)| PROCESSES.map(|ranks| bar(program, ranks))).flatten().collect()
}

/// What a program says, with so many ranks on each host.
fn job(plan: &Plan<'_>, hosts: &[Host; 2], share: usize, program: &Path, words: &[&str]) -> Result<String, String> {
    let name = |host: &Host| format!("/proc/{}/fd/{}:{share}", std::process::id(), host.namespace());
    let list = hosts.each_ref().map(name).join(",");
    let mut command = Command::new(plan.shunt);
    command.args(["spmd", "--rsh", "nsenter --net={host}", "--hosts", &list, "--device", plan.carrier.word(), "--"]);
    command.arg(program).args(words.iter().filter(|word| !word.is_empty())).stdin(Stdio::null());
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("ranks on two hosts: {}: {}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

fn table(plan: &Plan<'_>, figures: &Figures) -> String {
    let figure = |row: &str| middle(figures, row);
    let mut text = format!("Two hosts, {}; us\n", plan.carrier.word());
    let message = "a message and its answer";
    let rows = [
        ("get-8", Some(("am-8", message, 1.15))),
        ("fetch-add-8", Some(("am-8", message, 1.15))),
        ("put-quiet-8", None),
        ("put-64K", Some(("am-store-65536", "a store of active messages", 1.0 / 0.9))),
        ("put-1M", Some(("am-store-1048576", "a store of active messages", 1.0 / 0.9))),
        ("put-8", None),
        ("put-1K", None),
        ("get-64K", None),
        ("get-1M", None),
        ("ping-pong", None),
        ("barrier", None),
    ];
    for (row, beside) in rows {
        let own = figure(row);
        let shown = own.map_or("-".to_owned(), |own| format!("{:.1}", own / 1e3));
        let _ = match own.zip(beside).and_then(|(own, (other, name, bar))| Some((own, figure(other)?, name, bar))) {
            Some((own, other, name, bar)) => writeln!(
                text,
                "{row:<14} {shown:>9}   {:.2} x {name} ({:.1}), asked {bar:.2}: {}",
                own / other,
                other / 1e3,
                verdict(own / other, bar)
            ),
            None => writeln!(text, "{row:<14} {shown:>9}"),
        };
    }
    if plan.programs {
        let _ =
            writeln!(text, "\nThe sorts with small messages sort {KEYS} keys between hosts, a sixteenth of those of one host.");
    }
    text
}

/// A figure beside which another took more than twice as long says that the other was held up, as where its end spins for the processor that its keeper
/// needs.
fn verdict(ratio: f64, bar: f64) -> &'static str {
    if ratio < 0.5 {
        "not judged, the other was held up"
    } else {
        super::met(ratio <= bar)
    }
}
