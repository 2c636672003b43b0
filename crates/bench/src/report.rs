//! What a run leaves behind: one document, as a table for people and as JSON for tools.

use std::fmt::Write as _;

use serde::Serialize;

use crate::contenders::Carrier;
use crate::instrument::{CellReport, Settings};
use crate::machine::Machine;
use crate::measurement::{Row, Series, Unit};
use crate::network::Network;

/// Grows when a field changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// A whole run: figures, and everything needed to judge and repeat them.
#[derive(Debug, Serialize)]
pub struct Document {
    /// Version of this layout.
    pub schema: u32,
    /// Version of the instrument.
    pub version: &'static str,
    /// The command that made it.
    pub command: String,
    /// Seconds since 1970 at the end of the run.
    pub unix_time: u64,
    /// Seconds that the run took.
    pub seconds: f64,
    /// Where.
    pub machine: Machine,
    /// Over what.
    pub network: Network,
    /// How long and how often.
    pub settings: Settings,
    /// Options of shunt that stood in the environment: none means default settings.
    pub shunt_environment: Vec<String>,
    /// What a reader should know before the figures.
    pub warnings: Vec<String>,
    /// The figures.
    pub cells: Vec<CellReport>,
}

/// One comparison: a contender that is not shunt against shunt, in one row.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// The row it comes from.
    pub row: &'a Row,
    /// Cell of the row.
    pub cell: &'a str,
    /// What shunt is held against.
    pub baseline: Carrier,
    /// The baseline's figures.
    pub kernel: &'a Series,
    /// Those of shunt, if it took part.
    pub shunt: Option<&'a Series>,
    /// Those of the closest floor, if there is one.
    pub floor: Option<&'a Series>,
}

impl Comparison<'_> {
    /// How many times better shunt is; `None` where a side is missing, or has too few operations for a percentile, or there is
    /// nothing to divide.
    pub fn ratio(&self) -> Option<f64> {
        if self.kernel.few || self.shunt?.few {
            return None;
        }
        // Two processes that sleep: what they use is the cost of looking at the clock.
        let nothing = self.row.unit == Unit::CpuNanoseconds;
        self.row.unit.times_better(self.kernel, self.shunt?).filter(|ratio| !nothing && ratio.is_finite())
    }

    /// Between which two values [`Comparison::ratio`] lies in 95 of 100 cases; `None` of fewer than six rounds.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.row.unit.interval(self.kernel, self.shunt?)
    }

    /// How many times better the floor is than shunt.
    pub fn above_floor(&self) -> Option<f64> {
        self.row.unit.times_better(self.shunt?, self.floor?)
    }

    /// How many times better the floor is than the baseline: the most that any carrier can win.
    pub fn floor_ratio(&self) -> Option<f64> {
        self.row.unit.times_better(self.kernel, self.floor?)
    }
}

impl Document {
    /// Every comparison of the run, in the order of the cells.
    pub fn comparisons(&self) -> Vec<Comparison<'_>> {
        let mut all = Vec::new();
        for cell in &self.cells {
            for row in &cell.rows {
                let shunt = row.series(Carrier::Shunt);
                let floor = row.floors.first().map(|floor| &floor.series);
                for (baseline, kernel) in row.contenders.iter().filter(|(carrier, _)| *carrier != Carrier::Shunt) {
                    all.push(Comparison { row, cell: &cell.name, baseline: *baseline, kernel, shunt, floor });
                }
            }
        }
        all
    }

    /// Whether any contender broke down.
    pub fn has_failures(&self) -> bool {
        self.cells.iter().any(|cell| !cell.failures.is_empty())
    }

    /// The head, the table and the notes under it.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "{}", self.machine.describe());
        let _ = writeln!(text, "{}", self.network.describe());
        let _ = writeln!(
            text,
            "medians of up to {} interleaved repeats; servers on core {}, clients on core {}{}",
            self.settings.repeats,
            self.machine.server_core,
            self.machine.client_core,
            if self.settings.urgent { "; all programs at the highest nice value" } else { "" }
        );
        let _ = writeln!(text, "made by: {}\n", self.command);
        let titles = self.cells.iter().flat_map(|cell| &cell.rows).map(|row| row.title.chars().count());
        let widest = titles.max().unwrap_or(0).max(38);
        let line = |cells: [&str; 8]| {
            let [title, kernel, shunt, ratio, floor, above, kernel_cpu, shunt_cpu] = cells;
            let text = format!(
                "{title:<widest$} {kernel:>10} {shunt:>10} {ratio:>8}  {floor:>10} {above:>7}  {kernel_cpu:>9} {shunt_cpu:>9}"
            );
            format!("{}\n", text.trim_end())
        };
        text += &line(["", "", "", "shunt /", "", "shunt /", "CPU per", "operation"]);
        text += &line(["", "kernel", "shunt", "kernel", "floor", "floor", "kernel", "shunt"]);
        let comparisons = self.comparisons();
        for row in self.cells.iter().flat_map(|cell| &cell.rows) {
            // A figure that the kernel has none of, such as memory.
            if let [(Carrier::Shunt, _)] = row.contenders[..] {
                let (figure, cpu) = (figure_of(row, Carrier::Shunt), cpu_of(row, Carrier::Shunt));
                text += &line([&row.title, "-", &figure, "-", "-", "-", "-", &cpu]);
            }
            for comparison in comparisons.iter().filter(|one| std::ptr::eq(one.row, row)) {
                text += &lines(comparison, line);
            }
        }
        text + &self.notes()
    }

    fn notes(&self) -> String {
        let mut notes = String::from(
            "\nshunt / kernel: how many times better, in time or in rate. shunt / floor: how many times the floor's\n\
             time, or what part of its rate is missing as a factor. Ratios are medians of the rounds' own ratios, so\n\
             they need not be the quotients of the columns. CPU is that of both ends.\n",
        );
        for cell in &self.cells {
            if let Some(reason) = &cell.skipped {
                let _ = writeln!(notes, "{}: skipped, {reason}", cell.name);
            }
            for (carrier, error) in &cell.failures {
                let _ = writeln!(notes, "{}: {} failed: {error}", cell.name, carrier.title());
            }
            if let Some(floors) = first_floors(&cell.rows) {
                let _ = writeln!(notes, "{}: the floor is {floors}", cell.name);
            }
            if cell.rows.iter().flat_map(|row| &row.contenders).any(|(_, series)| series.few) {
                let _ = writeln!(notes, "{}: + the slowest of fewer operations than the percentile asks for", cell.name);
            }
            if cell.rows.iter().filter_map(|row| row.series(Carrier::Shunt)).any(|one| one.accelerated == Some(false)) {
                let _ = writeln!(notes, "{}: * no shared memory was seen: shunt left these bytes to the kernel", cell.name);
            }
        }
        for warning in &self.warnings {
            let _ = writeln!(notes, "warning: {warning}");
        }
        notes
    }
}

/// The lines of one comparison; the first of a row has its further floors below it.
fn lines(comparison: &Comparison, line: impl Fn([&str; 8]) -> String) -> String {
    let row = comparison.row;
    let mut text = String::new();
    let first = row.contenders.first().is_some_and(|(carrier, _)| *carrier == comparison.baseline);
    let title = match first {
        true => row.title.clone(),
        false => format!("  against the {}", comparison.baseline.title().replace(", ", " ")),
    };
    text += &line([
        &title,
        &figure_of(row, comparison.baseline),
        &figure_of(row, Carrier::Shunt),
        &comparison.ratio().map_or("-".into(), ratio),
        &comparison.floor.and_then(Series::median).map_or("-".into(), |floor| figure(row.unit, floor)),
        &comparison.above_floor().map_or("-".into(), ratio),
        &cpu_of(row, comparison.baseline),
        &cpu_of(row, Carrier::Shunt),
    ]);
    if first {
        for floor in row.floors.iter().skip(1) {
            let median = floor.series.median();
            let above = comparison.shunt.and_then(|shunt| row.unit.times_better(shunt, &floor.series));
            text += &line([
                &format!("  floor: {}", floor.title),
                "",
                "",
                "",
                &median.map_or("-".into(), |value| figure(row.unit, value)),
                &above.map_or("-".into(), ratio),
                "",
                "",
            ]);
        }
    }
    text
}

/// What stands in the floor's column: its title, and from which row on it is another.
fn first_floors(rows: &[Row]) -> Option<String> {
    let mut named: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let Some(floor) = row.floors.first() else { continue };
        if named.last().is_none_or(|(title, _)| *title != floor.title) {
            named.push((&floor.title, row.title.trim_start()));
        }
    }
    let later = |(title, row): &(&str, &str)| format!("; from \"{row}\" on {title}");
    let (first, more) = named.split_first()?;
    Some(format!("{}{}", first.0, more.iter().map(later).collect::<String>()))
}

fn figure_of(row: &Row, carrier: Carrier) -> String {
    let Some(series) = row.series(carrier) else { return "-".into() };
    let mark = match series {
        Series { few: true, .. } => "+",
        Series { accelerated: Some(false), .. } => "*",
        _ => "",
    };
    match (series.median(), &series.error) {
        (Some(median), None) => format!("{}{mark}", figure(row.unit, median)),
        (Some(median), Some(_)) => format!("{} !", figure(row.unit, median)),
        (None, _) => "failed".into(),
    }
}

fn cpu_of(row: &Row, carrier: Carrier) -> String {
    row.series(carrier).and_then(Series::cpu_median).map_or("-".into(), |cpu| figure(Unit::Nanoseconds, cpu))
}

/// A figure with three significant digits and its unit.
pub fn figure(unit: Unit, value: f64) -> String {
    let (scaled, name) = match unit {
        Unit::Nanoseconds | Unit::CpuNanoseconds => match value {
            value if value < 999.5 => (value, "ns"),
            value if value < 999_500.0 => (value / 1e3, "us"),
            value => (value / 1e6, "ms"),
        },
        Unit::BytesPerSecond if value < 999.5e6 => (value / 1e6, "MB/s"),
        Unit::BytesPerSecond => (value / 1e9, "GB/s"),
        Unit::Bytes => (value, "B"),
        Unit::PerSecond => match value {
            value if value < 999.5 => (value, "/s"),
            value if value < 999_500.0 => (value / 1e3, "k/s"),
            value => (value / 1e6, "M/s"),
        },
    };
    format!("{} {name}", three_digits(scaled))
}

/// A ratio with three significant digits.
pub fn ratio(value: f64) -> String {
    format!("{} x", three_digits(value))
}

fn three_digits(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value if value >= 0.0995 || value == 0.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::measurement::{Collector, Figure};
    use crate::statistics::Distribution;

    #[test]
    fn figures_keep_three_digits_across_units() {
        assert_eq!(figure(Unit::Nanoseconds, 161.0), "161 ns");
        assert_eq!(figure(Unit::Nanoseconds, 6_104.0), "6.10 us");
        assert_eq!(figure(Unit::Nanoseconds, 999.7), "1.00 us");
        assert_eq!(figure(Unit::BytesPerSecond, 7.81e9), "7.81 GB/s");
        assert_eq!(figure(Unit::BytesPerSecond, 6.71e6), "6.71 MB/s");
        assert_eq!((ratio(0.0041), ratio(0.27)), ("0.004 x".into(), "0.27 x".into()));
        assert_eq!(figure(Unit::PerSecond, 1.234e6), "1.23 M/s");
        assert_eq!(ratio(258.4), "258 x");
    }

    #[test]
    fn comparisons_count_against_every_baseline_and_the_first_floor() {
        let mut collector = Collector::default();
        let figure = |value| vec![Figure::new("pingpong/8B/p50", "8 B round trip, p50", Unit::Nanoseconds, value)];
        collector.add_floor("cache line", figure(200.0));
        collector.add(Carrier::Kernel, figure(60_000.0), None);
        collector.add(Carrier::KernelSpinning, figure(6_000.0), None);
        collector.add(Carrier::Shunt, figure(300.0), Some(true));
        let document = document_of(collector);
        let ratios: Vec<_> = document.comparisons().iter().map(|one| (one.baseline, one.ratio().unwrap())).collect();
        assert_eq!(ratios, [(Carrier::Kernel, 200.0), (Carrier::KernelSpinning, 20.0)]);
        assert_eq!(document.comparisons()[0].above_floor(), Some(1.5));
        let table = document.table();
        assert!(table.contains("200 x") && table.contains("1.50 x") && table.contains("against the kernel spinning"));
    }

    #[test]
    fn skipped_cells_and_unaccelerated_runs_are_said() {
        let mut collector = Collector::default();
        collector.add(Carrier::Kernel, vec![Figure::new("a", "a", Unit::PerSecond, 1.0)], None);
        collector.add(Carrier::Shunt, vec![Figure::new("a", "a", Unit::PerSecond, 1.0)], Some(false));
        let (rows, failures) = collector.into_rows();
        let ran = CellReport { name: "ran".into(), rows, skipped: None, failures, seconds: 0.0 };
        let skipped = Some("wrk is not installed (Debian package wrk)".into());
        let not = CellReport { name: "nginx".into(), rows: vec![], skipped, failures: vec![], seconds: 0.0 };
        let table = document(vec![ran, not]).table();
        assert!(table.contains("nginx: skipped, wrk is not installed (Debian package wrk)"));
        assert!(table.contains("ran: * no shared memory was seen"));
    }

    #[test]
    fn a_percentile_of_too_few_is_marked_and_not_compared() {
        let mut collector = Collector::default();
        let percentile = |samples: usize| {
            vec![Figure::percentile(
                "a/p99",
                "the longest title that a row of any table has ever had",
                99.0,
                &Distribution::of(&vec![70; samples]),
            )]
        };
        collector.add(Carrier::Kernel, percentile(99), None);
        collector.add(Carrier::Shunt, percentile(100), None);
        let document = document_of(collector);
        assert_eq!(document.comparisons()[0].ratio(), None);
        let table = document.table();
        assert!(table.contains(" 70.0 ns+ ") && table.contains("cell: + the slowest of fewer"), "{table}");
        let ends = |word: &str| table.lines().find_map(|line| Some(line.find(word)? + word.len()));
        assert_eq!(ends("kernel      shunt").map(|end| end - 11), ends("70.0 ns+"));
    }

    #[test]
    fn a_figure_that_the_kernel_has_none_of_has_its_line() {
        let mut collector = Collector::default();
        collector.add(Carrier::Shunt, vec![Figure::new("memory", "resident memory of each", Unit::Bytes, 512.0)], None);
        let table = document_of(collector).table();
        assert!(table.lines().any(|line| line.starts_with("resident memory of each ") && line.contains(" 512 B ")), "{table}");
    }

    #[test]
    fn the_floors_column_is_named() {
        let mut collector = Collector::default();
        for (name, title) in [("1", "1 B"), ("48", "48 B"), ("64", "64 B")] {
            let figure = vec![Figure::new(name, title, Unit::Nanoseconds, 1.0)];
            collector.add_floor(if name == "64" { "byte ring" } else { "cache line" }, figure.clone());
            collector.add(Carrier::Kernel, figure, None);
        }
        let table = document_of(collector).table();
        assert!(table.contains("cell: the floor is cache line; from \"64 B\" on byte ring\n"), "{table}");
    }

    /// A run of one cell.
    pub(crate) fn document_of(collector: Collector) -> Document {
        let (rows, failures) = collector.into_rows();
        document(vec![CellReport { name: "cell".into(), rows, skipped: None, failures, seconds: 1.0 }])
    }

    fn document(cells: Vec<CellReport>) -> Document {
        Document {
            schema: SCHEMA,
            version: "0",
            command: "shunt bench".into(),
            unix_time: 0,
            seconds: 1.0,
            machine: Machine::here(),
            network: Network { private: true, congestion_control: "reno".into(), warning: None },
            settings: Settings::default(),
            shunt_environment: Vec::new(),
            warnings: Vec::new(),
            cells,
        }
    }
}
