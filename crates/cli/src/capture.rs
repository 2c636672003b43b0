//! `shunt capture`: the bytes of accelerated streams, as segments of TCP in a file that Wireshark and tshark read.
//!
//! Programs note what they send in memory that this command has made ([`taps`]), [`flows`] puts the notes of both ends in order and gives them
//! headers, [`mod@file`] writes. No program waits for it: what it does not read in time is lost, counted and told.
mod file;
mod flows;
mod links;
mod taps;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{value_parser, Arg, ArgMatches, Command};

use crate::failure::Failure;
use crate::filter::Filter;
use crate::inspect::processes;
use file::Output;
use flows::{Flows, Known};
use links::Links;
use taps::{Attached, Note, Tap};

/// As clap sees it.
pub fn command() -> Command {
    Command::new("capture")
        .about("Write what accelerated connections carry to a file for Wireshark, as segments of TCP (of your processes; of all, for root)")
        .override_usage("shunt capture -o FILE [OPTIONS] [FILTER]...")
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .help("The file, in the format pcapng; - for standard output: shunt capture -o - | tshark -r -")
                .required(true)
                .value_parser(value_parser!(OsString)),
        )
        .arg(
            Arg::new("snaplen")
                .long("snaplen")
                .value_name("BYTES")
                .default_value("262144")
                .help("Bytes that are kept of each send; headers tell the whole length")
                .value_parser(value_parser!(u32).range(1..=1 << 20)),
        )
        .arg(
            Arg::new("duration")
                .long("duration")
                .value_name("SECONDS")
                .help("End after so long [default: SIGINT or SIGTERM ends it]")
                .value_parser(value_parser!(u64).range(1..)),
        )
        .arg(
            Arg::new("filter")
                .value_name("FILTER")
                .help("Capture only these, as shunt ss takes it: dport = :6379")
                .num_args(0..),
        )
        .after_help(
            "Connections that there are appear from the capture's start on, with a hand-shake made up for it; new ones from their first byte. Sequence\n\
             numbers are positions in the stream; acknowledgements and times between segments of both ends are what was known when. Packets that tcpdump sees are\n\
             left out: those of connections that the kernel carries, and those between hosts.\n\n\
             Programs note what they send in 4 MiB of memory each (256 KiB until this command has looked once), and go on when that is full: what found\n\
             no room is missing in the file, and counted. A process may be captured by those who may trace it: its own user and root. The filter chooses what is in the file: all\n\
             of these processes' connections are noted in their memory. What a process notes is its own word: no evidence against it.\n\
             Exit status: 0, also where bytes are missing, which is told on standard error.",
        )
}

static ENDED: AtomicBool = AtomicBool::new(false);

extern "C" fn end(_: libc::c_int) {
    ENDED.store(true, Ordering::Relaxed);
}

/// How often processes and connections are looked for.
const SCAN: Duration = Duration::from_millis(50);
/// The lowest priority, for setpriority(2).
const LAST: i32 = 19;
/// How often notes are read, when there were some and when there were none.
const READ: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(20)];

/// Captures until it is ended.
///
/// # Errors
/// If the filter has a mistake, processes are not shown here, or the file cannot be written.
pub fn capture(matches: &ArgMatches) -> Result<u8, Failure> {
    let words: Vec<String> = matches.get_many::<String>("filter").into_iter().flatten().cloned().collect();
    let filter = Filter::parse(&words)?;
    processes::are_shown()?;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores one word. A second signal ends the command where it is: taps that it leaves are ended by their processes.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = end as extern "C" fn(libc::c_int) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
    // SAFETY: ignoring signals runs no code of ours in a handler. A reader that ends, or a limit of file sizes, is an error of a write.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    let path: PathBuf = matches.get_one::<OsString>("output").expect("clap requires it").into();
    let longest = *matches.get_one("snaplen").expect("it has a default");
    let output = Output::create(&path).map_err(|error| written(&path, error))?;
    let end = matches.get_one::<u64>("duration").map(|seconds| Instant::now() + Duration::from_secs(*seconds));
    let mut capture =
        Capture { filter, longest, taps: BTreeMap::new(), links: Links::default(), flows: Flows::new(output), refused: 0 };
    capture.look();
    told(&format!("capturing {} processes{}", capture.taps.len(), capture.refused_text()));
    // Programs go before it: on processors that they keep busy, it misses bytes rather than take time from them.
    let _ = rustix::process::setpriority_process(None, LAST);
    let mut scanned = Instant::now();
    while !ENDED.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
        if scanned.elapsed() >= SCAN {
            capture.look();
            scanned = Instant::now();
        }
        let some = capture.read().map_err(|error| written(&path, error))?;
        std::thread::sleep(if some { READ[0] } else { READ[1] });
    }
    capture.finish()
}

fn written(path: &std::path::Path, error: std::io::Error) -> Failure {
    Failure::of_environment(format_args!("{}: cannot be written: {error}", path.display()))
}

fn told(text: &str) {
    let _ = writeln!(std::io::stderr(), "shunt: {text}");
}

struct Capture {
    filter: Filter,
    longest: u32,
    taps: BTreeMap<(u64, u64), Tap>,
    links: Links,
    flows: Flows<Output>,
    /// Processes that another capture has.
    refused: usize,
}

impl Capture {
    /// Finds processes and connections that are new.
    fn look(&mut self) {
        self.refused = 0;
        for tap in self.taps.values_mut() {
            tap.gone = true;
        }
        for pid in processes::all() {
            let Ok(descriptors) = processes::descriptors(pid) else { continue };
            match taps::attach(pid, &descriptors, self.longest, &mut self.taps) {
                Attached::Yes => self.links.look(pid, &descriptors),
                Attached::ByAnother => self.refused += 1,
                Attached::No => {}
            }
        }
        let (filter, flows) = (&self.filter, &mut self.flows);
        self.links.ask(|known| {
            let holds = filter.holds(&known.row());
            if holds {
                flows.known(known);
            }
            holds
        });
    }

    fn refused_text(&self) -> String {
        match self.refused {
            0 => String::new(),
            count => format!(", and not {count} that another capture has"),
        }
    }

    /// Reads what was noted; whether there was anything.
    fn read(&mut self) -> std::io::Result<bool> {
        let mut notes: Vec<Note> = Vec::new();
        for (index, tap) in self.taps.values_mut().enumerate() {
            tap.read(index, &mut notes);
        }
        let some = !notes.is_empty();
        // Both ends note by one counter.
        notes.sort_by_key(|note| note.ticks);
        let filter = &self.filter;
        let taps: Vec<&Tap> = self.taps.values().collect();
        for note in notes {
            let process = (taps[note.tap].pid, taps[note.tap].program.as_str());
            self.flows.note(taps[note.tap].id, process, &note, |known: &Known| filter.holds(&known.row()))?;
        }
        self.flows.flush()?;
        // One that has ended and whose notes were read.
        let ended: Vec<(u64, u64)> = self.taps.iter().filter(|(_, tap)| tap.gone).map(|(key, _)| *key).collect();
        for key in ended {
            if let Some(tap) = self.taps.remove(&key) {
                self.flows.lost_before += tap.lost();
                self.flows.process_ended(tap.id);
            }
        }
        Ok(some)
    }

    fn finish(mut self) -> Result<u8, Failure> {
        self.links.leave();
        for tap in self.taps.values_mut() {
            tap.stop();
        }
        // What calls that were under way have noted since.
        std::thread::sleep(Duration::from_millis(5));
        let done = self.read();
        self.taps.values_mut().for_each(Tap::give_back);
        if self.taps.values().any(|tap| tap.interrupted) {
            told("this command was held up for seconds, in which programs noted nothing: bytes are missing that are not counted");
        }
        let lost: u64 = self.flows.lost_before + self.taps.values().map(Tap::lost).sum::<u64>();
        let told_lost = if lost > 0 { format!("; {lost} bytes are missing: they found no room") } else { String::new() };
        told(&format!(
            "{} connections, {} segments, {} bytes{told_lost}",
            self.flows.connections, self.flows.segments, self.flows.bytes
        ));
        match done {
            Ok(_) => Ok(0),
            // A reader that has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(0),
            Err(error) => Err(Failure::of_environment(format_args!("the file cannot be written: {error}"))),
        }
    }
}
