//! The instrument: lets contenders take turns at a cell, with the floor in every round.
//!
//! Turns are interleaved (floor, A, B, C, floor, A, B, C, ...), so that whatever else the machine
//! does falls on all of them alike. A contender that breaks down is named and asked no more in
//! that cell; the others go on.

use std::io;
use std::path::PathBuf;

use serde::Serialize;

use crate::contenders::{Carrier, Contender};
use crate::machine::Machine;
use crate::measurement::{Collector, Figure, Row};
use crate::network::Ports;
use crate::programs::External;
use crate::progress::Progress;

/// How long and how often to measure.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Turns of each contender in a cell.
    pub repeats: usize,
    /// Measured time of one run of a small program, in milliseconds.
    pub milliseconds: u64,
    /// Message size of round trips in bytes.
    pub round_trip_bytes: usize,
    /// Message size of streams in bytes.
    pub stream_bytes: usize,
    /// How long connections stay silent in the idle cell, in milliseconds.
    pub idle_milliseconds: u64,
    /// Silent connections in the idle cell.
    pub idle_connections: usize,
    /// Whether the measured programs go before everything else on the machine (nice -20).
    pub urgent: bool,
    /// Seconds for the whole run, if they are limited: each cell has its share, together with what
    /// those before it left, and begins no further repeat beyond it.
    pub limit_seconds: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            repeats: 7,
            milliseconds: 250,
            round_trip_bytes: 8,
            stream_bytes: 65536,
            idle_milliseconds: 10_000,
            idle_connections: 100,
            urgent: false,
            limit_seconds: None,
        }
    }
}

/// What one contender did in one turn.
#[derive(Debug, Default)]
pub struct Turn {
    /// Its figures, each for a row of the cell.
    pub figures: Vec<Figure>,
    /// Whether shared memory was seen to carry it; `None` where no look was taken.
    pub accelerated: Option<bool>,
}

/// Turns of each contender at most, where the first ones leave the question open.
pub const MOST_TURNS: usize = 24;

/// A question that can be put to every contender.
pub trait Cell {
    /// The word on the command line.
    fn name(&self) -> &'static str;

    /// One line for `shunt bench list`.
    fn about(&self) -> &'static str;

    /// Programs of the system without which the cell is skipped.
    fn needs(&self) -> &'static [External] {
        &[]
    }

    /// The carriers that take part.
    fn carriers(&self) -> &'static [Carrier] {
        &[Carrier::Kernel, Carrier::Shunt]
    }

    /// Turns of each contender, given what the user asked for.
    fn repeats(&self, settings: &Settings) -> usize {
        settings.repeats
    }

    /// Whether the turns so far answer the question. Asked after the last of them, and after each further one that is made
    /// until it says yes, up to [`MOST_TURNS`].
    fn settled(&self, _rows: &[Row]) -> bool {
        true
    }

    /// Once, before the first turn.
    fn prepare(&mut self, _instrument: &mut Instrument) -> io::Result<()> {
        Ok(())
    }

    /// One round of the floors, before the contenders of that round.
    fn floors(&mut self, _instrument: &mut Instrument, _collector: &mut Collector) -> io::Result<()> {
        Ok(())
    }

    /// One turn of one contender. `repeat` counts from zero.
    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn>;
}

/// What came out of a cell.
#[derive(Debug, Serialize)]
pub struct CellReport {
    /// The cell's name.
    pub name: String,
    /// Its rows; empty when it was skipped.
    pub rows: Vec<Row>,
    /// Why it was skipped.
    pub skipped: Option<String>,
    /// Which carriers broke down, and how.
    pub failures: Vec<(Carrier, String)>,
    /// Seconds that the cell took.
    pub seconds: f64,
}

/// Everything that a turn needs.
#[derive(Debug)]
pub struct Instrument {
    /// The machine and the two cores.
    pub machine: Machine,
    /// All contenders of the run.
    pub contenders: Vec<Contender>,
    /// Directory that lives as long as the run.
    pub scratch: PathBuf,
    /// Ports to listen on.
    pub ports: Ports,
    /// How long and how often.
    pub settings: Settings,
    /// The narrator.
    pub progress: Progress,
}

impl Instrument {
    /// Puts one cell to all its contenders.
    pub fn measure(&mut self, cell: &mut dyn Cell) -> CellReport {
        let begin = self.progress.elapsed();
        self.progress.begin_cell(cell.name());
        let mut report = CellReport {
            name: cell.name().into(),
            rows: Vec::new(),
            skipped: cell.needs().iter().find_map(|program| program.find().err()),
            failures: Vec::new(),
            seconds: 0.0,
        };
        if report.skipped.is_none() {
            report.skipped = cell.prepare(self).err().map(|error| error.to_string());
        }
        if let Some(reason) = &report.skipped {
            self.progress.end_cell(&format!("skipped, {reason}"));
            return report;
        }
        (report.rows, report.failures) = self.rounds(cell).into_rows();
        report.seconds = (self.progress.elapsed() - begin).as_secs_f64();
        let remark: Vec<String> =
            report.failures.iter().map(|(carrier, error)| format!("{} failed: {error}", carrier.title())).collect();
        self.progress.end_cell(&remark.join("; "));
        report
    }

    fn rounds(&mut self, cell: &mut dyn Cell) -> Collector {
        let mut collector = Collector::default();
        let contenders: Vec<Contender> =
            self.contenders.iter().filter(|contender| cell.carriers().contains(&contender.carrier)).cloned().collect();
        let repeats = cell.repeats(&self.settings);
        // Rounds that were asked for, or had time; and when those began that the cell needs beyond them.
        let (mut planned, mut since) = (repeats, None);
        for repeat in 0..MOST_TURNS.max(repeats) {
            if since.is_none() && repeat > 0 && self.progress.is_past_share_of(self.settings.limit_seconds) {
                planned = repeat;
            }
            if repeat >= planned {
                if cell.settled(collector.rows()) {
                    break;
                }
                since.get_or_insert(self.progress.elapsed());
            }
            self.progress.turn(repeat + 1, repeats.max(repeat + 1), "floor");
            if let Err(error) = cell.floors(self, &mut collector) {
                self.progress.end_cell(&format!("no floor: {error}"));
            }
            for contender in &contenders {
                if collector.has_failed(contender.carrier) {
                    continue;
                }
                self.progress.turn(repeat + 1, repeats.max(repeat + 1), contender.carrier.title());
                match cell.turn(self, contender, repeat) {
                    Ok(turn) => collector.add(contender.carrier, turn.figures, turn.accelerated),
                    Err(error) => collector.fail(contender.carrier, error.to_string()),
                }
            }
            if since.is_some() && contenders.iter().any(|contender| collector.has_failed(contender.carrier)) {
                break; // there is no carrier to compare with
            }
        }
        if let Some(since) = since {
            self.progress.grant(self.progress.elapsed() - since);
        }
        collector
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Unit;

    /// A question that is answered after so many rounds.
    struct Question(usize);

    impl Cell for Question {
        fn name(&self) -> &'static str {
            "question"
        }

        fn about(&self) -> &'static str {
            ""
        }

        fn settled(&self, rows: &[Row]) -> bool {
            assert_eq!(rows.len(), 1);
            rows[0].series(Carrier::Shunt).unwrap().values.len() >= self.0
        }

        fn turn(&mut self, _: &mut Instrument, _: &Contender, repeat: usize) -> io::Result<Turn> {
            let figures = vec![Figure::new("row", "row", Unit::PerSecond, repeat as f64)];
            Ok(Turn { figures, accelerated: None })
        }
    }

    #[test]
    fn a_question_is_asked_again_until_it_is_settled() {
        let contender = |carrier| Contender { carrier, prefix: Vec::new() };
        let mut instrument = Instrument {
            machine: Machine::here(),
            contenders: vec![contender(Carrier::Kernel), contender(Carrier::Shunt)],
            scratch: PathBuf::new(),
            ports: Ports::default(),
            settings: Settings { repeats: 2, ..Settings::default() },
            progress: Progress::new(3),
        };
        for (needed, turns) in [(0, 2), (5, 5), (usize::MAX, MOST_TURNS)] {
            let report = instrument.measure(&mut Question(needed));
            for carrier in [Carrier::Kernel, Carrier::Shunt] {
                assert_eq!(report.rows[0].series(carrier).unwrap().values.len(), turns);
            }
        }
    }
}
