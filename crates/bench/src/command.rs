//! The command line: `shunt bench demo`, `shunt bench applications`, `shunt bench cell NAME`, `shunt bench list`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cells;
use crate::contenders::{contenders, Carrier};
use crate::curves;
use crate::drawing;
use crate::genie;
use crate::heat;
use crate::hosts;
use crate::instrument::{Cell, Instrument, Settings};
use crate::machine::{self, Machine};
use crate::network::{Network, Ports};
use crate::output::say;
use crate::papers;
use crate::pgas;
use crate::plot;
use crate::programs;
use crate::progress::Progress;
use crate::report::{Document, SCHEMA};
use crate::supervisor::supervise;
use crate::vrpc;

/// Measure this machine: kernel TCP and shunt side by side, with the floor in the same run.
#[derive(Clone, Debug, Parser)]
#[command(name = "shunt bench", bin_name = "shunt bench", version)]
pub struct Bench {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Action {
    /// The cells that show most in three minutes: a table, raw JSON, and a plot as SVG and PNG
    Demo {
        /// PostgreSQL too: half a minute more
        #[arg(long)]
        with_postgres: bool,
        /// How to measure
        #[command(flatten)]
        options: Options,
        /// Directory of demo.json, demo.txt, demo.svg and demo.png
        #[arg(long, value_name = "DIRECTORY", default_value = "target/demo")]
        output: PathBuf,
    },
    /// One cell (or several), for trying something out: prints the table
    Cell {
        /// Names as `shunt bench list` prints them
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// How to measure
        #[command(flatten)]
        options: Options,
        /// Directory to write cell.json, cell.txt, cell.svg and cell.png to
        #[arg(long, value_name = "DIRECTORY")]
        output: Option<PathBuf>,
    },
    /// The tables of the papers that shunt comes from, with this machine's figures beside the published ones
    Papers {
        /// "Effects of Buffering Semantics on I/O Performance" instead: its tables 6 to 8 and figures 3 to 7
        #[arg(long, group = "paper")]
        genie: bool,
        /// RPC of SHRIMP and SOVIA instead: null calls and their sections, latency and bandwidth by length, in-out arguments
        #[arg(long, group = "paper")]
        rpc: bool,
        /// With --genie: over what [default: shm, udp and, for root, xdp]
        #[arg(long, value_name = "CARRIER", value_delimiter = ',', requires = "genie", conflicts_with = "rpc", value_parser = ["shm", "udp", "xdp"])]
        over: Vec<String>,
        /// With --genie: genie.json of other machines, for table 8
        #[arg(long, value_name = "FILE", requires = "genie", conflicts_with = "rpc")]
        against: Vec<PathBuf>,
        /// With --genie: a quarter of the messages. With --rpc: three rounds in place of seven
        #[arg(long, requires = "paper")]
        quick: bool,
        /// How to measure
        #[command(flatten)]
        options: Options,
        /// Directory of papers.txt, papers.json and so on
        #[arg(long, value_name = "DIRECTORY")]
        output: Option<PathBuf>,
    },
    /// Never slower: sizes x connections x threads x waiting x place x sides, with a heat map
    Matrix {
        /// A third of the combinations: 8 B and 64 KiB, one thread, without edge-triggered epoll
        #[arg(long)]
        quick: bool,
        /// Only fields whose titles contain this, as "50 connections, 1 thread, blocking, apart"
        #[arg(long, value_name = "TEXT", default_value = "")]
        only: String,
        /// How to measure
        #[command(flatten)]
        options: Options,
        /// Directory of matrix.txt, matrix.json, matrix.svg and matrix.png
        #[arg(long, value_name = "DIRECTORY", default_value = "target/matrix")]
        output: PathBuf,
    },
    /// Every cell, the papers' tables and the matrix, within ten minutes
    AllOfIt {
        /// Within four minutes: fewer repeats, a third of the matrix
        #[arg(long)]
        quick: bool,
        /// How to measure
        #[command(flatten)]
        options: Options,
        /// Directory of all.txt, all.json, all.svg and all.png, and of the matrix
        #[arg(long, value_name = "DIRECTORY", default_value = "target/all")]
        output: PathBuf,
    },
    /// Programs that people run, under their usual load generators: redis, memcached, nginx, haproxy, PostgreSQL, FTP, Python,
    /// Node.js
    Applications {
        /// How to measure
        #[command(flatten)]
        options: Options,
        /// Directory of applications.txt, applications.json and so on
        #[arg(long, value_name = "DIRECTORY", default_value = "target/applications")]
        output: PathBuf,
    },
    /// Two hosts (network namespaces, so root): endpoints, active messages and sockets, beside UDP and TCP of the kernel
    Hosts {
        /// The shunt command, which is the agent [default: the one beside this program]
        #[arg(long, value_name = "PATH")]
        shunt: Option<PathBuf>,
        /// Turns of each contender
        #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
        repeat: u64,
        /// Milliseconds that one turn measures
        #[arg(long, value_name = "NUMBER", default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..=60_000))]
        milliseconds: u64,
        /// Bytes of messages
        #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [8u64, 512, 1400],
              value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
        sizes: Vec<u64>,
        /// Which tables [default: all]
        #[arg(long, value_name = "TABLE", value_delimiter = ',')]
        tables: Vec<hosts::Table>,
        /// Without programs under shunt
        #[arg(long)]
        no_sockets: bool,
        /// Directory of hosts.txt and hosts.json
        #[arg(long, value_name = "DIRECTORY", default_value = "target/hosts")]
        output: PathBuf,
    },
    /// The global address space: operations, barriers and U-Net's seven programs, beside another OpenSHMEM with the same source
    Pgas {
        /// The shunt command, beside which the compiler script and the library lie [default: the one beside this program]
        #[arg(long, value_name = "PATH")]
        shunt: Option<PathBuf>,
        /// Beside Open MPI's oshmem (oshcc and oshrun in PATH; Debian: openmpi-bin, libopenmpi-dev)
        #[arg(long)]
        with_oshmem: bool,
        /// Turns of each contender
        #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
        repeat: u64,
        /// Without the seven programs
        #[arg(long)]
        no_programs: bool,
        /// Two hosts (network namespaces, so root) instead: operations on the other one's memory over this device, beside active messages
        #[arg(long, value_name = "DEVICE")]
        hosts: Option<pgas::Between>,
        /// One host, and then two over each device: what README.md in the directory shows
        #[arg(long, conflicts_with = "hosts")]
        everywhere: bool,
        /// Directory of pgas.txt, pgas.json and figure5.svg
        #[arg(long, value_name = "DIRECTORY", default_value = "target/pgas")]
        output: PathBuf,
    },
    /// Name the cells
    List,
}

/// How to measure; what is not given keeps the value of [`Settings::default`].
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// The shunt command to measure [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    pub shunt: Option<PathBuf>,
    /// Turns of each contender [default: demo 7, matrix as many as a verdict takes, others 5]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub repeat: Option<u64>,
    /// Milliseconds that one run of a small program measures [default: 250, matrix 40]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub milliseconds: Option<u64>,
    /// Message size of pingpong (default 8) and of stream (default 65536), and both in the cell unix
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=1 << 22))]
    pub size: Option<u64>,
    /// Let the measured programs go before everything else that runs here (nice -20; needs root)
    #[arg(long)]
    pub urgent: bool,
    /// Silent connections of the idle cell [default: 100]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub idle_connections: Option<u64>,
    /// How long they stay silent [default: 10]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub idle_seconds: Option<u64>,
}

/// Options that only some cells look at, and which those are.
const OPTIONS_OF_CELLS: [(&str, &[&str]); 3] =
    [("--size", &["pingpong", "stream", "unix"]), ("--idle-connections", &["idle"]), ("--idle-seconds", &["idle", "idle-many"])];

impl Options {
    /// What was asked for and changes nothing in the cells of these names.
    fn without_effect(&self, cells: &[&str]) -> Vec<String> {
        let given = [self.size.is_some(), self.idle_connections.is_some(), self.idle_seconds.is_some()];
        let idle = OPTIONS_OF_CELLS
            .iter()
            .zip(given)
            .filter(|((_, users), given)| *given && !cells.iter().any(|cell| users.contains(cell)));
        idle.map(|((option, users), _)| format!("{option} has no effect here; it is for {}", users.join(", "))).collect()
    }

    fn settings(&self, limit_seconds: Option<u64>) -> Settings {
        let default = Settings::default();
        Settings {
            repeats: self.repeat.map_or(default.repeats, |repeat| repeat as usize),
            milliseconds: self.milliseconds.unwrap_or(default.milliseconds),
            round_trip_bytes: self.size.map_or(default.round_trip_bytes, |size| size as usize),
            stream_bytes: self.size.map_or(default.stream_bytes, |size| size as usize),
            idle_milliseconds: self.idle_seconds.map_or(default.idle_milliseconds, |seconds| seconds * 1000),
            idle_connections: self.idle_connections.map_or(default.idle_connections, |count| count as usize),
            urgent: self.urgent,
            limit_seconds,
        }
    }
}

impl Bench {
    /// Does it. Must be called while the process has one thread, since it forks.
    ///
    /// The exit code is 0 when every contender finished every cell (a skipped cell is no failure),
    /// 1 when one broke down or the run could not begin, 2 for a command line that makes no sense.
    pub fn run(&self) -> ExitCode {
        match &self.action {
            Action::List => {
                let cells = cells::all().into_iter().chain(cells::applications());
                let lines: Vec<String> = cells.map(|cell| format!("{:<13} {}", cell.name(), cell.about())).collect();
                say(&lines.join("\n"));
                ExitCode::SUCCESS
            }
            Action::Hosts { shunt, repeat, milliseconds, sizes, tables, no_sockets, output } => {
                let found = shunt.clone().or_else(crate::contenders::shunt_beside_us);
                // Programs are started in another directory.
                let Some(shunt) = found.and_then(|path| fs::canonicalize(path).ok()) else {
                    eprintln!("shunt bench hosts: no shunt command beside this one or at --shunt PATH");
                    return ExitCode::from(2);
                };
                let time = std::time::Duration::from_millis(*milliseconds);
                let tables = if tables.is_empty() { hosts::Table::value_variants().to_vec() } else { tables.clone() };
                supervise(|scratch| {
                    let devices = [hosts::Carrier::Own, hosts::Carrier::Udp];
                    let sockets = devices.into_iter().filter(|_| !no_sockets).collect();
                    let (sizes, repeats) = (sizes.iter().map(|&size| size as usize).collect(), *repeat as usize);
                    let tables = tables.clone();
                    let plan = hosts::Plan { shunt: &shunt, repeats, time, sizes, tables, sockets, scratch, output };
                    let done = programs::unpack(scratch).map_err(|error| error.to_string()).and_then(|()| hosts::run(&plan));
                    done.inspect_err(|error| eprintln!("shunt bench hosts: {error}")).is_err().into()
                })
            }
            Action::Pgas { shunt, with_oshmem, repeat, no_programs, hosts, everywhere, output } => {
                let found = shunt.clone().or_else(crate::contenders::shunt_beside_us);
                let Some(shunt) = found.and_then(|path| fs::canonicalize(path).ok()) else {
                    eprintln!("shunt bench pgas: no shunt command beside this one or at --shunt PATH");
                    return ExitCode::from(2);
                };
                let plan = pgas::Plan {
                    shunt: &shunt,
                    with_oshmem: *with_oshmem,
                    repeats: *repeat as usize,
                    programs: !no_programs,
                    output,
                };
                let between = |device: pgas::Between| {
                    let (carrier, repeats, programs) = (device.carrier(), plan.repeats, plan.programs);
                    pgas::hosts::run(&pgas::hosts::Plan { shunt: &shunt, carrier, repeats, programs, output })
                };
                let devices: &[pgas::Between] = if *everywhere { pgas::Between::value_variants() } else { hosts.as_slice() };
                let here = if hosts.is_none() { pgas::run(&plan) } else { Ok(()) };
                let all = here.and_then(|()| devices.iter().try_for_each(|device| between(*device)));
                match all.and_then(|()| pgas::page::write(output)) {
                    Ok(()) => ExitCode::SUCCESS,
                    Err(error) => {
                        eprintln!("shunt bench pgas: {error}");
                        ExitCode::FAILURE
                    }
                }
            }
            Action::Demo { with_postgres, options, output } => {
                // A quiet machine needs less than two minutes; a busy one gets fewer repeats.
                let limit_seconds = Some(if *with_postgres { 180 } else { 150 });
                let cells = cells::demo(*with_postgres);
                Plan { cells, options, limit_seconds, output: Some(output), stem: "demo" }.run()
            }
            Action::Applications { options, output } => {
                let options = Options { repeat: options.repeat.or(Some(5)), ..options.clone() };
                let cells = cells::applications();
                Plan { cells, options: &options, limit_seconds: None, output: Some(output), stem: "applications" }.run()
            }
            Action::Papers { rpc: true, quick, options, output, .. } => {
                if options.urgent {
                    let _ = crate::machine::go_first();
                }
                // Programs are started in another directory.
                let found = options.shunt.as_deref().map(fs::canonicalize).transpose();
                let shunt = match found {
                    Ok(shunt) => shunt,
                    Err(error) => {
                        eprintln!("shunt bench papers: --shunt {}: {error}", options.shunt.as_ref().unwrap().display());
                        return ExitCode::from(2);
                    }
                };
                // Before half a minute of measuring, not after it.
                if let Some(Err(error)) = output.as_deref().map(|directory| can_write(directory, "rpc")) {
                    eprintln!("shunt bench papers: --output: {error}");
                    return ExitCode::FAILURE;
                }
                let rounds = options.repeat.map(|repeat| repeat as usize);
                supervise(|scratch| {
                    let plan = vrpc::Plan { quick: *quick, rounds, shunt: shunt.as_deref(), scratch };
                    let done = vrpc::reproduce(&plan, output.as_deref());
                    done.inspect_err(|error| eprintln!("shunt bench papers: {error}")).is_err().into()
                })
            }
            Action::Papers { genie: true, over, against, quick, options, output, .. } => {
                if options.urgent {
                    let _ = crate::machine::go_first();
                }
                let named = |carrier: &genie::Carrier| over.is_empty() || over.iter().any(|word| word == carrier.word());
                let carriers: Vec<_> = genie::Carrier::ALL.into_iter().filter(named).collect();
                let shunt = options.shunt.clone().or_else(crate::contenders::shunt_beside_us);
                let plan = genie::Plan { carriers: &carriers, quick: *quick, against, shunt: shunt.as_deref() };
                let done = genie::reproduce(&plan, output.as_deref());
                done.inspect_err(|error| eprintln!("shunt bench papers: {error}"))
                    .map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
            }
            Action::Papers { options, output, .. } => {
                let names = ["latency", "bandwidth", "ttcp", "netperf", "ftp"];
                let cells =
                    cells::all().into_iter().chain(cells::applications()).filter(|cell| names.contains(&cell.name())).collect();
                let options = Options { repeat: options.repeat.or(Some(5)), ..options.clone() };
                Plan { cells, options: &options, limit_seconds: None, output: output.as_deref(), stem: "papers" }.run()
            }
            Action::Matrix { quick, only, options, output } => matrix(*quick, only, options, output),
            Action::AllOfIt { quick, options, output } => {
                let limit_seconds = Some(if *quick { 120 } else { 330 });
                let repeat = options.repeat.or(Some(if *quick { 3 } else { 5 }));
                let cells = cells::all();
                let chosen = Options { repeat, ..options.clone() };
                let first = Plan { cells, options: &chosen, limit_seconds, output: Some(output), stem: "all" }.run();
                let second = matrix(*quick, "", options, output);
                if first == ExitCode::SUCCESS {
                    second
                } else {
                    first
                }
            }
            Action::Cell { names, options, output } => {
                let mut chosen = Vec::new();
                for name in names {
                    match cells::named(name) {
                        Some(cell) => chosen.push(cell),
                        None => {
                            eprintln!("shunt bench: there is no cell {name:?}; `shunt bench list` names them, such as pingpong");
                            return ExitCode::from(2);
                        }
                    }
                }
                let mut options = options.clone();
                options.repeat = options.repeat.or(Some(5));
                // A user who asks for many repeats of one cell means it: no limit.
                let output = output.as_deref();
                Plan { cells: chosen, options: &options, limit_seconds: None, output, stem: "cell" }.run()
            }
        }
    }
}

/// Runs `shunt bench ARGUMENTS`: what the command does with the words after `bench`.
pub fn run_from(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words = std::iter::once(OsString::from("shunt bench")).chain(arguments);
    match Bench::try_parse_from(words) {
        Ok(bench) => bench.run(),
        Err(error) => {
            let _ = error.print();
            ExitCode::from(error.exit_code() as u8)
        }
    }
}

/// Short turns of each combination, as many as decide whether it is slower than the kernel.
fn matrix(quick: bool, only: &str, options: &Options, output: &Path) -> ExitCode {
    let options = Options {
        repeat: options.repeat.or(Some(cells::matrix::TURNS)),
        milliseconds: options.milliseconds.or(Some(40)),
        ..options.clone()
    };
    let cells = cells::matrix::matrix(quick, only);
    if cells.is_empty() {
        eprintln!(
            "shunt bench matrix: no field's title contains {only:?}; one is \"8 B, 1 connection, 1 thread, poll, apart, both\""
        );
        return ExitCode::from(2);
    }
    Plan { cells, options: &options, limit_seconds: None, output: Some(output), stem: "matrix" }.run()
}

/// Makes the directory, and opens the first of the files that the run will write to it.
fn can_write(directory: &Path, stem: &str) -> io::Result<()> {
    fs::create_dir_all(directory)
        .map_err(|error| io::Error::other(format!("cannot make the directory {}: {error}", directory.display())))?;
    let path = directory.join(format!("{stem}.txt"));
    let opened = fs::OpenOptions::new().create(true).append(true).open(&path);
    opened.map(drop).map_err(|error| io::Error::other(format!("cannot write {}: {error}", path.display())))
}

fn write(directory: &Path, stem: &str, extension: &str, bytes: &[u8]) -> io::Result<()> {
    let path = directory.join(format!("{stem}.{extension}"));
    fs::write(&path, bytes).map_err(|error| io::Error::other(format!("cannot write {}: {error}", path.display())))
}

/// A run about to happen.
struct Plan<'a> {
    cells: Vec<Box<dyn Cell>>,
    options: &'a Options,
    limit_seconds: Option<u64>,
    output: Option<&'a Path>,
    stem: &'a str,
}

impl Plan<'_> {
    fn run(self) -> ExitCode {
        // Before a minute of measuring, not after it.
        if let Some(Err(error)) = self.output.map(|directory| can_write(directory, self.stem)) {
            eprintln!("shunt bench: --output: {error}");
            return ExitCode::FAILURE;
        }
        let shunt = match self.options.shunt.as_deref().map(fs::canonicalize).transpose() {
            Ok(shunt) => shunt,
            Err(error) => {
                eprintln!("shunt bench: --shunt {}: {error}", self.options.shunt.as_ref().unwrap().display());
                return ExitCode::from(2);
            }
        };
        supervise(|scratch| match self.measure(scratch, shunt.as_deref()) {
            Ok(document) => u8::from(document.has_failures()),
            Err(error) => {
                eprintln!("shunt bench: {error}");
                1
            }
        })
    }

    fn measure(mut self, scratch: &Path, shunt: Option<&Path>) -> io::Result<Document> {
        let mut warnings = Vec::new();
        let machine = Machine::here();
        if machine.load_average > 0.3 * machine.usable_cores as f64 {
            warnings.push(format!("the machine was busy (load average {}): figures are noisy", machine.load_average));
        }
        if machine.server_core == machine.client_core {
            warnings.push("one core only: servers and clients share it".into());
        }
        // Inherited by every program that is started.
        machine::allow_many_descriptors();
        let mut settings = self.options.settings(self.limit_seconds);
        if let Err(error) = if settings.urgent { machine::go_first() } else { Ok(()) } {
            warnings.push(format!("--urgent had no effect, as it needs root: {error}"));
            settings.urgent = false;
        }
        let names: Vec<&str> = self.cells.iter().map(|cell| cell.name()).collect();
        warnings.extend(self.options.without_effect(&names));
        let network = Network::enter();
        warnings.extend(network.warning.clone());
        let contenders = contenders(shunt)?;
        if !contenders.iter().any(|contender| contender.carrier == Carrier::Shunt) {
            warnings.push("no shunt command beside this one, and no --shunt PATH: only the kernel is measured".into());
        }
        programs::unpack(scratch)?;
        eprintln!("{}\n{}", machine.describe(), network.describe());
        for warning in &warnings {
            eprintln!("warning: {warning}");
        }
        let mut instrument = Instrument {
            machine,
            contenders,
            scratch: scratch.to_path_buf(),
            ports: Ports::default(),
            settings,
            progress: Progress::new(self.cells.len()),
        };
        let reports = self.cells.iter_mut().map(|cell| instrument.measure(cell.as_mut())).collect();
        let document = Document {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            command: std::env::args().map(|word| quoted(&word)).collect::<Vec<_>>().join(" "),
            unix_time: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            seconds: instrument.progress.elapsed().as_secs_f64(),
            machine: instrument.machine,
            network,
            settings: instrument.settings,
            shunt_environment: shunt_environment(),
            warnings,
            cells: reports,
        };
        self.publish(&document)?;
        Ok(document)
    }

    fn publish(&self, document: &Document) -> io::Result<()> {
        let is_matrix = self.stem == "matrix";
        let mut table;
        if is_matrix {
            table = format!("{}\n{}", heat::summary(document), heat::table(document));
            say(&format!("\n{}", heat::summary(document)));
        } else {
            table = document.table();
            // Cells that the user picked have some of the rows that the papers' tables are made of.
            if ["papers", "all"].contains(&self.stem) {
                table = format!("{table}\n{}", papers::tables(document));
            }
            say(&format!("\n{table}"));
        }
        let Some(directory) = self.output else { return Ok(()) };
        write(directory, self.stem, "txt", table.as_bytes())?;
        write(directory, self.stem, "json", (serde_json::to_string_pretty(document)? + "\n").as_bytes())?;
        let svg = if is_matrix { heat::svg(document) } else { plot::svg(document) }.map_err(io::Error::other)?;
        let mut pictures = vec![(self.stem, svg)];
        pictures.extend(curves::pictures(document).map_err(io::Error::other)?);
        for (stem, svg) in &pictures {
            write(directory, stem, "png", &drawing::png(svg).map_err(io::Error::other)?)?;
            write(directory, stem, "svg", svg.as_bytes())?;
        }
        let first = directory.join(format!("{}.png", self.stem));
        let further: String = pictures[1..].iter().map(|(stem, _)| format!("; {stem}.png, .svg")).collect();
        say(&format!("wrote {} (and .txt, .json, .svg{further}) in {:.0} s", first.display(), document.seconds));
        Ok(())
    }
}

/// A word of a command line as a shell would have to be told it.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./=,:+@%".contains(letter);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn shunt_environment() -> Vec<String> {
    let mut set: Vec<String> =
        std::env::vars().filter(|(name, _)| name.starts_with("SHUNT_")).map(|(name, value)| format!("{name}={value}")).collect();
    set.sort();
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_no_cell_of_the_run_looks_at_is_said() {
        let options = Options { size: Some(64), idle_seconds: Some(1), ..Options::default() };
        assert_eq!(
            options.without_effect(&["pingpong", "redis"]),
            ["--idle-seconds has no effect here; it is for idle, idle-many"]
        );
        assert_eq!(options.without_effect(&["idle", "stream"]), [""; 0]);
        assert_eq!(Options::default().without_effect(&["redis"]), [""; 0]);
    }

    #[test]
    fn a_paper_is_chosen_by_one_option() {
        let is_taken = |words: &[&str]| Bench::try_parse_from(["shunt bench", "papers"].iter().chain(words)).is_ok();
        assert!(
            is_taken(&[])
                && is_taken(&["--rpc", "--quick", "--repeat", "3"])
                && is_taken(&["--genie", "--quick", "--over", "shm"])
        );
        for wrong in [&["--rpc", "--genie"][..], &["--quick"], &["--rpc", "--over", "shm"], &["--over", "shm"]] {
            assert!(!is_taken(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn the_command_of_a_report_can_be_given_to_a_shell() {
        let words = ["matrix", "--only", "8 B, 1 thread", "it's", ""];
        assert_eq!(words.map(quoted).join(" "), r"matrix --only '8 B, 1 thread' 'it'\''s' ''");
    }
}
