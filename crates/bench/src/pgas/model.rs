//! What U-Net's seven programs would take on the machines of its table 2, from what was counted and measured here.
//!
//! The paper has no number for any program, so its columns are modelled, in the manner of LogP:
//!
//! | part | a processor's time on a machine |
//! |---|---|
//! | computation | cycles that one process computes here / processors * SLOWER / clock |
//! | a message, small or in bulk | its overhead where it is sent, and again where it is received (each gets as many as it sends) |
//! | bytes in bulk | / bandwidth |
//! | a read or an exchange that is waited for | a round trip, and two overheads for serving one |
//! | a barrier | half a round trip in each of log2(processors) rounds |
//!
//! Nothing overlaps. A processor of 1995 needs more cycles than one of today for the same work, and the paper does not say how many: times are
//! shown for as many (`SLOWER[0]`), so that computation is too short and the part of communication too large, and sentences of the paper are
//! compared at further factors.

use std::fmt::Write as _;

use super::figure::Stack;
use super::published::{Machine, CM5, MACHINES, SENTENCES};

/// Cycles of a processor of 1995 for each of one of today.
pub const SLOWER: [f64; 3] = [1.0, 4.0, 16.0];

/// What a processor asks of others, as the mean over processors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// One-way messages of at most 16 bytes.
    pub stores: f64,
    /// Reads and exchanges that are waited for.
    pub trips: f64,
    /// Longer messages, either way, and their bytes.
    pub bulk: f64,
    pub bytes: f64,
    pub barriers: f64,
}

impl Counts {
    /// As the line `counted: STORES TRIPS BULK BYTES BARRIERS` says.
    pub fn of(said: &str) -> Option<Counts> {
        let line = said.lines().find_map(|line| line.strip_prefix("counted: "))?;
        let numbers: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let [stores, trips, bulk, bytes, barriers] = numbers[..] else { return None };
        Some(Counts { stores, trips, bulk, bytes, barriers })
    }
}

/// A processor's time, in one unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time {
    pub computation: f64,
    pub communication: f64,
}

impl Time {
    pub fn total(self) -> f64 {
        self.computation + self.communication
    }

    fn over(self, unit: f64) -> Time {
        Time { computation: self.computation / unit, communication: self.communication / unit }
    }
}

/// One program at one number of processes: what was counted, and what it took here.
pub struct Measured {
    pub program: &'static str,
    pub processes: usize,
    pub counts: Counts,
    /// Nanoseconds of computation with one process.
    pub alone: f64,
    /// Nanoseconds with all processes: computation and communication.
    pub here: Time,
}

/// This machine.
#[derive(Clone, Copy)]
pub struct Here {
    /// Nanoseconds of a cycle, as a chain of multiplications takes them.
    pub cycle: f64,
    /// Processors that the processes share.
    pub processors: usize,
}

impl Here {
    /// Of the rows that were measured.
    pub fn of(row: impl Fn(&str) -> Option<f64>) -> Option<Here> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Some(Here { cycle: row("cycle")?, processors })
    }
}

/// Counts of a program and a number of processes, and the rows measured of it, together.
pub fn measured(counts: &[(&'static str, usize, Counts)], row: impl Fn(&str) -> Option<f64>) -> Vec<Measured> {
    let time = |program: &str, processes: usize| {
        let name = format!("{program} of {processes}");
        let (whole, share) = (row(&name)?, row(&format!("{name}, communication"))?.min(100.0) / 100.0);
        Some(Time { computation: whole * (1.0 - share), communication: whole * share })
    };
    let of = |(program, processes, counts): &(&'static str, usize, Counts)| {
        let (alone, here) = (time(program, 1)?.computation, time(program, *processes)?);
        Some(Measured { program, processes: *processes, counts: *counts, alone, here })
    };
    counts.iter().filter_map(of).collect()
}

/// Seconds of a processor on a machine of table 2.
pub fn time(machine: &Machine, measured: &Measured, here: Here, slower: f64) -> Time {
    let Counts { stores, trips, bulk, bytes, barriers } = measured.counts;
    let processors = measured.processes as f64;
    let cycles = measured.alone / here.cycle / processors * slower;
    let rounds = processors.log2().ceil();
    let overheads = 2.0 * machine.overhead * (stores + bulk + trips);
    let waits = machine.round_trip * (trips + barriers * rounds / 2.0);
    Time { computation: cycles / (machine.megahertz * 1e6), communication: (overheads + waits + bytes / machine.bandwidth) / 1e6 }
}

/// Seconds of all programs at one number of processors.
pub struct Modelled(Vec<(&'static str, [Time; MACHINES.len()])>);

impl Modelled {
    pub fn new(all: &[Measured], processes: usize, here: Here, slower: f64) -> Modelled {
        let of =
            |measured: &Measured| (measured.program, MACHINES.each_ref().map(|machine| time(machine, measured, here, slower)));
        Modelled(all.iter().filter(|measured| measured.processes == processes).map(of).collect())
    }

    /// As `MACHINES` are.
    pub fn of(&self, program: &str) -> Option<[Time; MACHINES.len()]> {
        self.0.iter().find(|(name, _)| *name == program).map(|(_, times)| *times)
    }
}

/// A process's time here, in cycles, for one processor each: processes that share one take turns.
fn cycles_here(measured: &Measured, here: Here) -> Time {
    let share = measured.processes.min(here.processors) as f64 / measured.processes as f64;
    measured.here.over(here.cycle / share)
}

/// A program's bars: the three machines in units of the CM-5's time, this one in units of the CM-5's cycles.
fn bars(measured: &Measured, here: Here) -> ([Time; MACHINES.len()], Time) {
    let times = MACHINES.each_ref().map(|machine| time(machine, measured, here, SLOWER[0]));
    let unit = times[CM5].total();
    (times.map(|time| time.over(unit)), cycles_here(measured, here).over(unit * MACHINES[CM5].megahertz * 1e6))
}

fn processes_of(all: &[Measured]) -> Vec<usize> {
    let mut numbers: Vec<usize> = all.iter().map(|measured| measured.processes).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Figure 5 with its columns, and what of the paper's text the model says, too.
pub fn table(all: &[Measured], here: Here) -> String {
    let mut text = String::new();
    for processes in processes_of(all) {
        let _ = writeln!(
            text,
            "\nFigure 5 by table 2, {processes} processors: computation + communication; the CM-5's time is 1, for this machine its cycles"
        );
        let _ = write!(text, "{:<20}", "");
        MACHINES.iter().for_each(|machine| text += &format!(" {:>20}", format!("{}, modelled", machine.name)));
        let _ = writeln!(
            text,
            " {:>20} {:>10} {:>9} {:>7} {:>8} {:>9}",
            "here, measured", "x CM-5", "stores", "waits", "in bulk", "of bytes"
        );
        for measured in all.iter().filter(|measured| measured.processes == processes) {
            let (machines, own) = bars(measured, here);
            let _ = write!(text, "{:<20}", measured.program);
            machines.iter().chain([&own]).for_each(|time| text += &format!(" {:>20}", sum(*time)));
            let seconds = time(&MACHINES[CM5], measured, here, SLOWER[0]).total();
            let counts = measured.counts;
            let _ = writeln!(
                text,
                " {:>10.0} {:>9.0} {:>7.0} {:>8.0} {:>9.0}",
                seconds * 1e9 / measured.here.total(),
                counts.stores,
                counts.trips,
                counts.bulk,
                if counts.bulk > 0.0 { counts.bytes / counts.bulk } else { 0.0 }
            );
        }
    }
    let _ = writeln!(
        text,
        "x CM-5: its modelled seconds / those measured here. Counts are those of a processor. A cycle here is {:.2} ns.",
        here.cycle
    );
    let _ = writeln!(
        text,
        "\nWhat section 6 says of figure 5, and whether the model does, too; 1995's cycles for one of today: {}",
        SLOWER.map(|factor| factor.to_string()).join(", ")
    );
    for sentence in &SENTENCES {
        let said = SLOWER.map(|slower| match (sentence.holds)(&Modelled::new(all, 8, here, slower)) {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        });
        let _ = writeln!(text, "{:<104} {}", sentence.says, said.join(", "));
    }
    text
}

fn sum(time: Time) -> String {
    format!("{:.2} + {:.2} = {:.2}", time.computation, time.communication, time.total())
}

/// The bars of eight processors, or of as many as there are.
pub fn stacks(all: &[Measured], here: Here) -> Vec<Stack> {
    let most = processes_of(all).last().copied();
    let mut stacks = Vec::new();
    for measured in all.iter().filter(|measured| Some(measured.processes) == most) {
        let (machines, own) = bars(measured, here);
        let names = MACHINES.iter().map(|machine| machine.name).chain(["here"]);
        for (label, time) in names.zip(machines.iter().chain([&own])) {
            stacks.push(Stack {
                group: measured.program,
                label: label.to_owned(),
                computed: time.computation,
                communicated: time.communication,
            });
        }
    }
    stacks
}

/// For tools: what was counted, and modelled seconds.
pub fn json(all: &[Measured], here: Here) -> serde_json::Value {
    let row = |measured: &Measured| {
        let counts = measured.counts;
        let machines: Vec<_> = MACHINES
            .iter()
            .map(|machine| {
                let time = time(machine, measured, here, SLOWER[0]);
                serde_json::json!({ "machine": machine.name, "computation_s": time.computation, "communication_s": time.communication })
            })
            .collect();
        serde_json::json!({
            "program": measured.program, "processes": measured.processes, "stores": counts.stores, "waits": counts.trips, "bulk": counts.bulk,
            "bulk_bytes": counts.bytes, "barriers": counts.barriers, "modelled": machines,
            "here_computation_s": measured.here.computation / 1e9, "here_communication_s": measured.here.communication / 1e9,
        })
    };
    all.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pgas::published::{CS2, UNET};

    const HERE: Here = Here { cycle: 0.5, processors: 2 };

    fn measured(program: &'static str, counts: Counts) -> Measured {
        let here = Time { computation: 40e6, communication: 10e6 };
        Measured { program, processes: 8, counts, alone: 132e6, here }
    }

    #[test]
    fn parts_add_up_as_the_table_of_the_model_says() {
        let counts = Counts { stores: 1000.0, trips: 10.0, bulk: 5.0, bytes: 1e6, barriers: 4.0 };
        let matrix = measured("matrix", counts);
        let on_cm5 = time(&MACHINES[CM5], &matrix, HERE, 1.0);
        // 132 ms are 264 M cycles, 33 M on each of eight.
        assert!((on_cm5.computation - 1.0).abs() < 1e-9, "{on_cm5:?}");
        let microseconds = 2.0 * 3.0 * 1015.0 + 10.0 * 12.0 + 4.0 * 3.0 * 6.0 + 1e6 / 10.0;
        assert!((on_cm5.communication * 1e6 - microseconds).abs() < 1e-6, "{on_cm5:?}");
        assert!((time(&MACHINES[CS2], &matrix, HERE, 4.0).computation - 4.0 * 33.0 / 40.0).abs() < 1e-9);
        let (machines, own) = bars(&matrix, HERE);
        assert!((machines[CM5].total() - 1.0).abs() < 1e-9);
        // 40 ms of two processors that eight processes share are 10 of each: 20 M cycles of 33 M that the CM-5 computes.
        assert!((own.computation - 20e6 / 33e6 / on_cm5.total()).abs() < 1e-9, "{own:?}");
    }

    #[test]
    fn counts_are_read_from_the_line_that_says_them() {
        let counts = Counts::of("matrix: 2 processors\ncounted: 1.5 2 3 4e3 5\n").unwrap();
        assert_eq!(counts, Counts { stores: 1.5, trips: 2.0, bulk: 3.0, bytes: 4000.0, barriers: 5.0 });
        assert_eq!((Counts::of("counted: 1 2"), Counts::of("matrix")), (None, None));
    }

    #[test]
    fn a_sentence_of_a_program_that_was_not_measured_has_no_answer() {
        let small = measured("sample-sort-small", Counts { stores: 100_000.0, ..Counts::default() });
        let times = Modelled::new(std::slice::from_ref(&small), 8, HERE, 1.0);
        let answers = SENTENCES.each_ref().map(|sentence| (sentence.holds)(&times));
        assert_eq!(answers, [None, Some(true), None, None, None, None, None, None, None]);
        let small_times = times.of("sample-sort-small").unwrap();
        assert!(small_times[UNET].communication < small_times[CS2].communication);
        let text = table(&[small], HERE);
        assert!(text.contains("0.62 + 0.37 = 1.00"), "{text}");
        assert!(
            text.contains("lower overhead                             ")
                && text.contains("yes, yes, yes")
                && text.contains("-, -, -"),
            "{text}"
        );
    }
}
