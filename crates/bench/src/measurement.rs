//! What a cell hands over: rows of figures, one series of repeats for each contender.

use serde::Serialize;

use crate::contenders::Carrier;
use crate::statistics::{median, median_interval, median_quotient, quotients, Distribution, Point};

/// What a figure counts, and with that which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Elapsed nanoseconds of one operation: less is better.
    Nanoseconds,
    /// Bytes in a second: more is better.
    BytesPerSecond,
    /// Requests or transactions in a second: more is better.
    PerSecond,
    /// A size in bytes: less is better.
    Bytes,
    /// CPU nanoseconds used over a stated time: less is better, none is right.
    CpuNanoseconds,
}

impl Unit {
    /// How many times better `challenger` is than `baseline`, over their rounds: above one it wins.
    /// `None` without figures.
    pub fn times_better(self, baseline: &Series, challenger: &Series) -> Option<f64> {
        match self {
            Unit::Nanoseconds | Unit::CpuNanoseconds | Unit::Bytes => median_quotient(&baseline.values, &challenger.values),
            Unit::BytesPerSecond | Unit::PerSecond => median_quotient(&challenger.values, &baseline.values),
        }
    }

    /// Between which two values [`Unit::times_better`] lies in 95 of 100 cases, by the rounds alone; `None` of fewer than six.
    pub fn interval(self, baseline: &Series, challenger: &Series) -> Option<(f64, f64)> {
        let ratios = match self {
            Unit::Nanoseconds | Unit::CpuNanoseconds | Unit::Bytes => quotients(&baseline.values, &challenger.values),
            Unit::BytesPerSecond | Unit::PerSecond => quotients(&challenger.values, &baseline.values),
        };
        median_interval(&ratios)
    }
}

/// The repeats of one contender in one row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// One figure a repeat, in the row's unit.
    pub values: Vec<f64>,
    /// CPU nanoseconds of both sides for each operation, one figure a repeat.
    pub cpu_per_operation_ns: Vec<f64>,
    /// Whether the bytes were seen to take shared memory: looked up while the processes lived.
    /// `None` for contenders that have none, and where the run was too short to look.
    pub accelerated: Option<bool>,
    /// The distribution of single operations over all repeats, where the cell times them.
    pub curve: Vec<Point>,
    /// A percentile of so few operations, in a turn at least, that it is the slowest of them: no figure to compare.
    pub few: bool,
    /// Why the contender stopped: its figures so far stand, the rest is missing.
    pub error: Option<String>,
    #[serde(skip)]
    distribution: Option<Distribution>,
}

impl Series {
    /// The figure that stands in the table.
    pub fn median(&self) -> Option<f64> {
        median(&self.values)
    }

    /// Median CPU nanoseconds of both sides for each operation.
    pub fn cpu_median(&self) -> Option<f64> {
        median(&self.cpu_per_operation_ns)
    }

    fn add_distribution(&mut self, distribution: &Distribution) {
        let merged = match self.distribution.take() {
            Some(mut all) => {
                all.merge(distribution);
                all
            }
            None => distribution.clone(),
        };
        self.curve = merged.curve();
        self.distribution = Some(merged);
    }
}

/// A bound that no sockets layer can beat, measured in the same run.
#[derive(Clone, Debug, Serialize)]
pub struct Floor {
    /// What was measured: `cache line`, `byte ring 256 KiB`.
    pub title: String,
    /// Its repeats.
    pub series: Series,
}

/// One line of the instrument: the same question to every contender.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Stable name for tools: `pingpong/8B/p50`.
    pub name: String,
    /// What a person reads.
    pub title: String,
    /// Unit of every figure in the row.
    pub unit: Unit,
    /// What each contender did, in the order they ran.
    pub contenders: Vec<(Carrier, Series)>,
    /// Floors, the closest first.
    pub floors: Vec<Floor>,
}

impl Row {
    /// The series of one contender, if it took part.
    pub fn series(&self, carrier: Carrier) -> Option<&Series> {
        self.contenders.iter().find(|(found, _)| *found == carrier).map(|(_, series)| series)
    }
}

/// One figure of one repeat, on its way into a row.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of the row: rows come to be when their first figure arrives.
    pub row: String,
    /// Title of the row.
    pub title: String,
    /// Unit of the row.
    pub unit: Unit,
    /// The figure.
    pub value: f64,
    /// CPU nanoseconds of both sides for each operation, where they were taken.
    pub cpu_per_operation_ns: Option<f64>,
    /// A percentile of too few operations: [`Distribution::holds`].
    pub few: bool,
    /// Distribution of single operations, where they were timed.
    pub distribution: Option<Distribution>,
}

impl Figure {
    /// A figure with neither CPU time nor distribution.
    pub fn new(row: impl Into<String>, title: impl Into<String>, unit: Unit, value: f64) -> Self {
        Self { row: row.into(), title: title.into(), unit, value, cpu_per_operation_ns: None, few: false, distribution: None }
    }

    /// A percentile of single operations, in nanoseconds.
    pub fn percentile(row: impl Into<String>, title: impl Into<String>, percentile: f64, of: &Distribution) -> Self {
        let value = of.percentile(percentile) as f64;
        Self { few: !of.holds(percentile), ..Self::new(row, title, Unit::Nanoseconds, value) }
    }

    /// With the CPU time of both sides for each operation, in nanoseconds.
    pub fn with_cpu(mut self, nanoseconds: f64) -> Self {
        self.cpu_per_operation_ns = Some(nanoseconds);
        self
    }

    /// With the distribution behind the figure.
    pub fn with_distribution(mut self, distribution: Distribution) -> Self {
        self.distribution = Some(distribution);
        self
    }
}

/// Collects the figures of a cell, repeat by repeat.
#[derive(Debug, Default)]
pub struct Collector {
    rows: Vec<Row>,
    failed: Vec<(Carrier, String)>,
}

impl Collector {
    /// Adds what one contender did in one repeat.
    pub fn add(&mut self, carrier: Carrier, figures: Vec<Figure>, accelerated: Option<bool>) {
        for figure in figures {
            let contenders = &mut self.row(&figure).contenders;
            let at = contenders.iter().position(|(found, _)| *found == carrier).unwrap_or_else(|| {
                contenders.push((carrier, Series::default()));
                contenders.len() - 1
            });
            let series = &mut contenders[at].1;
            take(series, &figure);
            // Seen once is seen: later repeats are not looked at, lest looking disturbs them.
            series.accelerated = accelerated.or(series.accelerated);
        }
    }

    /// Adds one repeat of a floor.
    pub fn add_floor(&mut self, title: &str, figures: Vec<Figure>) {
        for figure in figures {
            let floors = &mut self.row(&figure).floors;
            let at = floors.iter().position(|floor| floor.title == title).unwrap_or_else(|| {
                floors.push(Floor { title: title.into(), series: Series::default() });
                floors.len() - 1
            });
            take(&mut floors[at].series, &figure);
        }
    }

    /// The rows so far.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Notes that a contender broke down; its cell asks it no more.
    pub fn fail(&mut self, carrier: Carrier, error: String) {
        self.failed.push((carrier, error));
    }

    /// Whether the contender broke down before.
    pub fn has_failed(&self, carrier: Carrier) -> bool {
        self.failed.iter().any(|(failed, _)| *failed == carrier)
    }

    /// The rows, each breakdown written into the series it left short, and all breakdowns.
    pub fn into_rows(mut self) -> (Vec<Row>, Vec<(Carrier, String)>) {
        for (carrier, error) in &self.failed {
            for row in &mut self.rows {
                match row.contenders.iter_mut().find(|(found, _)| found == carrier) {
                    Some((_, series)) => series.error = Some(error.clone()),
                    None => {
                        let series = Series { error: Some(error.clone()), ..Series::default() };
                        row.contenders.push((*carrier, series));
                    }
                }
            }
        }
        (self.rows, self.failed)
    }

    fn row(&mut self, figure: &Figure) -> &mut Row {
        let at = self.rows.iter().position(|row| row.name == figure.row).unwrap_or_else(|| {
            self.rows.push(Row {
                name: figure.row.clone(),
                title: figure.title.clone(),
                unit: figure.unit,
                contenders: Vec::new(),
                floors: Vec::new(),
            });
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }
}

fn take(series: &mut Series, figure: &Figure) {
    series.values.push(figure.value);
    series.few |= figure.few;
    series.cpu_per_operation_ns.extend(figure.cpu_per_operation_ns);
    if let Some(distribution) = &figure.distribution {
        series.add_distribution(distribution);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64) -> Figure {
        Figure::new("cell/row", "row", Unit::PerSecond, value)
    }

    #[test]
    fn better_follows_the_unit() {
        let series = |value| Series { values: vec![value], ..Series::default() };
        assert_eq!(Unit::Nanoseconds.times_better(&series(80.0), &series(8.0)), Some(10.0));
        assert_eq!(Unit::PerSecond.times_better(&series(80.0), &series(8.0)), Some(0.1));
    }

    #[test]
    fn a_contender_that_broke_down_keeps_its_figures_and_its_error() {
        let mut collector = Collector::default();
        collector.add(Carrier::Kernel, vec![figure(1.0)], None);
        collector.add(Carrier::Kernel, vec![figure(3.0)], None);
        collector.add(Carrier::Shunt, vec![figure(10.0)], Some(true));
        collector.add(Carrier::Shunt, vec![figure(12.0)], None);
        collector.add_floor("bare", vec![figure(20.0)]);
        collector.fail(Carrier::Shunt, "hung".into());
        assert!(collector.has_failed(Carrier::Shunt) && !collector.has_failed(Carrier::Kernel));
        let (rows, _) = collector.into_rows();
        let shunt = rows[0].series(Carrier::Shunt).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].series(Carrier::Kernel).unwrap().median(), Some(2.0));
        assert_eq!((shunt.median(), shunt.accelerated, shunt.error.as_deref()), (Some(11.0), Some(true), Some("hung")));
        assert_eq!(rows[0].floors[0].series.median(), Some(20.0));
    }

    #[test]
    fn a_contender_that_never_got_a_figure_is_named_in_every_row() {
        let mut collector = Collector::default();
        collector.add(Carrier::Kernel, vec![figure(1.0)], None);
        collector.fail(Carrier::Shunt, "did not start".into());
        let (rows, _) = collector.into_rows();
        assert_eq!(rows[0].series(Carrier::Shunt).unwrap().error.as_deref(), Some("did not start"));
    }
}
