//! `shunt bench pgas`: a global address space beside another OpenSHMEM, in one run, by the same C source.
//!
//! One-sided operations and two-rank rows are of two bound ranks; barriers also of four and eight, which is more than most machines that
//! measure have processors; the seven programs of two, four and eight. Contenders take turns, so that ratios are of one moment.

mod figure;
pub mod hosts;
mod model;
pub mod page;
mod programs;
mod published;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::output::say;
use crate::statistics::median;
use model::{Counts, Here, Measured};
use programs::{Counting, Directory, Report, BINARIES, PROGRAMS};

/// Processes of the seven programs, beside one alone, whose computation the model takes.
const PROCESSES: [usize; 3] = [2, 4, 8];

/// The most a run may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to measure.
pub struct Plan<'p> {
    /// The shunt command.
    pub shunt: &'p Path,
    /// Beside oshmem.
    pub with_oshmem: bool,
    /// Turns of each.
    pub repeats: usize,
    /// The seven programs, too.
    pub programs: bool,
    /// Where the table goes.
    pub output: &'p Path,
}

/// By what frames go between two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Between {
    /// Datagrams of the kernel
    Udp,
    /// AF_XDP; the agents move all frames, as a rank and its keeper share the only queue of a veth
    Xdp,
}

impl Between {
    /// The carrier of active messages.
    pub fn carrier(self) -> crate::hosts::endpoints::Carrier {
        match self {
            Between::Udp => crate::hosts::endpoints::Carrier::Udp,
            Between::Xdp => crate::hosts::endpoints::Carrier::Multiplexed,
        }
    }
}

/// What runs a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Library {
    Shunt,
    Oshmem,
}

impl Library {
    fn name(self) -> &'static str {
        match self {
            Library::Shunt => "shunt",
            Library::Oshmem => "oshmem",
        }
    }
}

type Figures = BTreeMap<(String, Library), Vec<f64>>;

/// The values of one row, of one library.
fn middle(figures: &Figures, row: &str, library: Library) -> Option<f64> {
    median(figures.get(&(row.to_owned(), library))?)
}

struct Measuring<'p> {
    plan: &'p Plan<'p>,
    directory: Directory,
    figures: Figures,
    counts: Vec<(&'static str, usize, Counts)>,
    troubles: Vec<String>,
}

/// Compiles, measures, and writes the table.
pub fn run(plan: &Plan<'_>) -> Result<(), String> {
    let directory = Directory::new(plan.output)?;
    let mut measuring = Measuring { plan, directory, figures: Figures::new(), counts: Vec::new(), troubles: Vec::new() };
    let libraries = if plan.with_oshmem { vec![Library::Shunt, Library::Oshmem] } else { vec![Library::Shunt] };
    for library in &libraries {
        measuring.compile(*library)?;
    }
    if plan.programs {
        measuring.counts = counted(&Counting::new(plan.shunt, &measuring.directory)?, |_| "")?;
    }
    for turn in 0..plan.repeats {
        eprintln!("shunt bench pgas: turn {} of {}", turn + 1, plan.repeats);
        for ranks in PROCESSES {
            for library in &libraries {
                measuring.micro(*library, ranks);
            }
        }
        for (source, argument, name) in PROGRAMS.iter().filter(|_| plan.programs) {
            measuring.program(Library::Shunt, 1, source, argument, name);
            for ranks in PROCESSES {
                for library in &libraries {
                    measuring.program(*library, ranks, source, argument, name);
                }
            }
        }
    }
    let table = head(plan.repeats) + &measuring.table(plan.with_oshmem);
    say(&table);
    let write = |name: &str, text: String| write(plan.output, name, &text);
    write("pgas.txt", table)?;
    if plan.programs {
        write("figure5.svg", figure::svg(&measuring.bars())?)?;
        write("figure5-machines.svg", figure::stacked(MACHINES_TITLE, &measuring.stacks())?)?;
    }
    write("pgas.json", measuring.json())
}

/// Of the picture with the paper's machines.
const MACHINES_TITLE: &str =
    "Eight processors: the CM-5 modelled = 1, CS-2 and U-Net modelled, this machine measured (by its clock)";

/// What each table begins with: the machine, the day, and how it was made.
fn head(repeats: usize) -> String {
    let machine = crate::machine::Machine::here();
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    format!(
        "{}; load {} at the start; medians of {repeats} turns, {}\nmade by: {command}\n\n",
        machine.describe(),
        machine.load_average,
        time::OffsetDateTime::now_utc().date()
    )
}

fn write(output: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = output.join(name);
    fs::create_dir_all(output).and_then(|()| fs::write(&path, text)).map_err(|error| format!("{}: {error}", path.display()))
}

/// What each program asks of others, with so many keys as `keys` says for its argument.
fn counted(counting: &Counting<'_>, keys: impl Fn(&str) -> &'static str) -> Result<Vec<(&'static str, usize, Counts)>, String> {
    let mut counts = Vec::new();
    for (source, argument, name) in PROGRAMS {
        for processes in PROCESSES {
            counts.push((name, processes, counting.counts(source, &[argument, keys(argument)], processes)?));
        }
    }
    Ok(counts)
}

impl Measuring<'_> {
    fn compile(&self, library: Library) -> Result<(), String> {
        for name in ["micro"].into_iter().chain(BINARIES) {
            let command = match library {
                Library::Shunt => Command::new(self.plan.shunt.with_file_name("shunt-shmemcc")),
                Library::Oshmem => {
                    let mut command = Command::new("oshcc");
                    // Its finalize does not end; its header warns of what is deprecated in it.
                    command.args(["-w", "-DLEAVE"]).arg("-I").arg(self.directory.join("header"));
                    command
                }
            };
            programs::compile(command, &self.directory.join(format!("{name}.c")), &self.binary(library, name))?;
        }
        Ok(())
    }

    fn binary(&self, library: Library, name: &str) -> PathBuf {
        self.directory.join(format!("{name}-{}", library.name()))
    }

    fn command(&self, library: Library, ranks: usize, name: &str) -> Command {
        let mut command;
        match library {
            Library::Shunt => {
                command = Command::new(self.plan.shunt);
                command.args(["spmd", "--bind", "-n", &ranks.to_string(), "--"]);
            }
            Library::Oshmem => {
                command = Command::new("oshrun");
                command.args(["--allow-run-as-root", "--quiet", "--oversubscribe", "-n", &ranks.to_string()]);
            }
        }
        command.arg(self.binary(library, name)).stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// What a run says; none if it fails or takes too long. oshmem's programs leave without finalizing, which dies: so its launcher has a
    /// status that says nothing, and what was said has to be enough.
    fn said(&mut self, library: Library, mut command: Command, what: &str) -> Option<String> {
        let file = self.directory.join("said");
        let started = fs::File::create(&file).and_then(|output| command.stdout(output).spawn());
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                self.troubles.push(format!("{what} does not start: {error}"));
                return None;
            }
        };
        let limit = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait().ok()? {
                Some(status) => break Some(status),
                None if Instant::now() > limit => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        if !status.is_some_and(|status| status.success() || library == Library::Oshmem) {
            self.troubles.push(format!("{what} {}", status.map_or("did not end".to_owned(), |status| status.to_string())));
            return None;
        }
        fs::read_to_string(file).ok()
    }

    fn note(&mut self, row: String, library: Library, value: f64) {
        self.figures.entry((row, library)).or_default().push(value);
    }

    fn micro(&mut self, library: Library, ranks: usize) {
        let command = self.command(library, ranks, "micro");
        let Some(said) = self.said(library, command, &format!("{} micro of {ranks}", library.name())) else { return };
        for line in said.lines() {
            if let Some((name, Ok(value))) = line.rsplit_once(' ').map(|(name, value)| (name, value.parse())) {
                let row = if name == "barrier" { format!("barrier of {ranks}") } else { name.to_owned() };
                self.note(row, library, value);
            }
        }
    }

    fn program(&mut self, library: Library, ranks: usize, source: &str, argument: &str, name: &str) {
        let mut command = self.command(library, ranks, source);
        if !argument.is_empty() {
            command.arg(argument);
        }
        let what = format!("{} {name} of {ranks}", library.name());
        let Some(said) = self.said(library, command, &what) else { return };
        match Report::of(&said) {
            Some(Report { time, share }) => {
                self.note(format!("{name} of {ranks}"), library, time);
                self.note(format!("{name} of {ranks}, communication"), library, share);
            }
            None => self.troubles.push(format!("{what} said {said:?}")),
        }
    }

    fn table(&self, with_oshmem: bool) -> String {
        let mut text = String::new();
        let figure = |row: &str, library| middle(&self.figures, row, library);
        let _ = writeln!(text, "{:<34} {:>12} {:>12} {:>8}  bar", "", "shunt", "oshmem", "ratio");
        let time = |value: Option<f64>| match value {
            None => "-".to_owned(),
            Some(value) if value < 1e4 => format!("{value:.1} ns"),
            Some(value) if value < 1e7 => format!("{:.1} us", value / 1e3),
            Some(value) => format!("{:.1} ms", value / 1e6),
        };
        // Row, what it is divided by, and the bar; `most` or at least.
        let mut line = |row: &str, by: (Option<f64>, &str), bar: Option<f64>, most: bool| {
            let own = figure(row, Library::Shunt);
            let ratio = own.zip(by.0).map(|(own, by)| if most { own / by } else { by / own });
            let verdict = match (ratio, bar) {
                (Some(ratio), Some(bar)) if most => format!("<= {bar} x {}: {}", by.1, met(ratio <= bar)),
                (Some(ratio), Some(bar)) => format!(">= {bar} x {}: {}", by.1, met(ratio >= bar)),
                _ => String::new(),
            };
            let other = time(figure(row, Library::Oshmem));
            let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
            let _ = writeln!(text, "{row:<34} {:>12} {other:>12} {ratio:>8}  {verdict}", time(own));
        };
        let other = |row: &str| (figure(row, Library::Oshmem), "oshmem");
        for row in ["p-8", "put-8", "get-8", "g-8", "fetch-add-8"] {
            line(row, other(row), Some(0.5), true);
        }
        line("put-quiet-8", other("put-quiet-8"), Some(0.6), true);
        for (row, idle) in [("get-8 of one that computes", "get-8"), ("fetch-add-8 at one that computes", "fetch-add-8")] {
            line(row, (figure(idle, Library::Shunt), "an idle one"), Some(1.1), true);
        }
        let cache_line = (figure("line", Library::Shunt), "the line");
        line("line", (None, ""), None, true);
        line("ping-pong", cache_line, Some(1.1), true);
        line("ping-pong", other("ping-pong"), Some(1.0), true);
        line("barrier of 2", cache_line, Some(2.2), true);
        for row in ["barrier of 2", "barrier of 4", "barrier of 8"] {
            let bar = (row != "barrier of 2").then_some(0.5);
            line(row, other(row), bar, true);
        }
        for (row, by) in [("put-64K", "memcpy-64K"), ("get-64K", "memcpy-64K"), ("put-1M", "memcpy-1M"), ("get-1M", "memcpy-1M")]
        {
            line(row, (figure(by, Library::Shunt), "memcpy"), Some(0.95), false);
        }
        for (_, _, name) in PROGRAMS.iter().filter(|_| self.plan.programs) {
            let two = format!("{name} of 2");
            line(&two, other(&two), Some(1.0), true);
            for ranks in [4, 8] {
                let bar = if name.contains("bulk") || *name == "matrix" { 1.3 } else { 2.0 };
                line(&format!("{name} of {ranks}"), (figure(&two, Library::Shunt), "2 processes"), Some(bar), true);
            }
        }
        if self.plan.programs {
            let share = |name: &str, ranks: usize, library| {
                figure(&format!("{name} of {ranks}, communication"), library).map_or("-".into(), |share| format!("{share:.0} %"))
            };
            let _ = writeln!(text, "\nShare of communication          2        4        8   oshmem, 2");
            for (_, _, name) in PROGRAMS {
                let own = |ranks| share(name, ranks, Library::Shunt);
                let _ = writeln!(
                    text,
                    "{name:<24} {:>8} {:>8} {:>8} {:>11}",
                    own(2),
                    own(4),
                    own(8),
                    share(name, 2, Library::Oshmem)
                );
            }
        }
        if self.plan.programs {
            let own = figure::Own::of(|row| figure(row, Library::Shunt));
            text.push_str(&figure::table(&self.bars(), &own));
            if let Some((measured, here)) = self.modelled() {
                text.push_str(&model::table(&measured, here));
            }
        }
        if !with_oshmem {
            let _ = writeln!(text, "\nWithout oshmem: --with-oshmem, where oshcc and oshrun are.");
        }
        for trouble in &self.troubles {
            let _ = writeln!(text, "failed: {trouble}");
        }
        text
    }

    /// What figure 5 shows, as far as it was measured.
    fn bars(&self) -> Vec<figure::Bar> {
        let of = |row: &str| middle(&self.figures, row, Library::Shunt);
        let bar = |(_, _, program): &(_, _, &'static str), ranks: usize| {
            let row = format!("{program} of {ranks}");
            let time = of(&row)?;
            Some(figure::Bar { program, ranks, time, share: of(&format!("{row}, communication"))?.min(100.0) })
        };
        PROGRAMS.iter().flat_map(|program| PROCESSES.map(|ranks| bar(program, ranks))).flatten().collect()
    }

    /// What the model needs, as far as it was measured.
    fn modelled(&self) -> Option<(Vec<Measured>, Here)> {
        let row = |row: &str| middle(&self.figures, row, Library::Shunt);
        Some((model::measured(&self.counts, row), Here::of(row)?))
    }

    fn stacks(&self) -> Vec<figure::Stack> {
        self.modelled().map_or_else(Vec::new, |(measured, here)| model::stacks(&measured, here))
    }

    fn json(&self) -> String {
        let rows: Vec<_> = self
            .figures
            .iter()
            .map(|((row, library), values)| serde_json::json!({ "row": row, "library": library.name(), "values": values }))
            .collect();
        let model = self.modelled().map(|(measured, here)| model::json(&measured, here));
        let all =
            serde_json::json!({ "rows": rows, "figure5": figure::json(&self.bars()), "model": model, "failed": self.troubles });
        format!("{all:#}\n")
    }
}

fn met(held: bool) -> &'static str {
    if held {
        "met"
    } else {
        "missed"
    }
}
