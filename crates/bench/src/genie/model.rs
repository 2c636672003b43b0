//! From single times to the paper's tables: lines by least squares, the breakdown model, and how costs scale.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shunt_buffers::costs::Line;
use shunt_buffers::tables::Architecture;
use shunt_buffers::Semantics;

use super::memory::{name, Variant};
use super::rig::{Case, Stage};

/// A line as it is stored: nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    pub fixed: f64,
    pub each: f64,
    pub r2: f64,
}

impl Fit {
    pub fn of(points: &[(f64, f64)]) -> Fit {
        let Line { fixed, each, r2 } = Line::fit(points);
        Fit { fixed, each, r2 }
    }
    pub fn at(&self, bytes: usize) -> f64 {
        (self.fixed + self.each * bytes as f64).max(0.0)
    }
}

/// The three ways of figures 3, 6 and 7, and the fourth that the paper could not measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    Early,
    Aligned,
    Unaligned,
    Outboard,
}

impl Way {
    pub const ALL: [Way; 4] = [Way::Early, Way::Aligned, Way::Unaligned, Way::Outboard];

    pub fn title(self) -> &'static str {
        match self {
            Way::Early => "early demultiplexing",
            Way::Aligned => "pooled, application-aligned",
            Way::Unaligned => "pooled, unaligned",
            Way::Outboard => "outboard",
        }
    }

    pub fn case(self, semantics: Semantics, length: usize) -> Case {
        let architecture = match self {
            Way::Early => Architecture::Early,
            Way::Outboard => Architecture::Outboard,
            _ => Architecture::Pooled,
        };
        let aligned = self != Way::Unaligned;
        Case { sender: semantics, receiver: semantics, architecture, aligned, swaps: true, variant: Variant::Genie, length }
    }
}

/// What one kind of message took, by length.
#[derive(Clone, Debug)]
pub struct Measured {
    pub semantics: Semantics,
    pub way: Way,
    /// Bytes, and the median in nanoseconds.
    pub latencies: Vec<(f64, f64)>,
    /// Operations, by stage and number, at each length the median.
    pub operations: BTreeMap<(u8, u8), Vec<(f64, f64)>>,
    /// How many of one operation a stage has.
    pub times: BTreeMap<(u8, u8), usize>,
}

impl Measured {
    pub fn fit(&self, most: f64) -> Fit {
        Fit::of(&self.latencies.iter().copied().filter(|point| point.0 <= most).collect::<Vec<_>>())
    }

    /// The processor's time of both sides in operations, at a length.
    pub fn busy(&self, length: usize) -> f64 {
        let times = self.operations.values().flatten().filter(|point| point.0 == length as f64);
        times.map(|point| point.1).sum()
    }
}

/// Table 6: each operation's line, fitted over all semantics and ways that have it.
pub fn costs(all: &[Measured], most: f64) -> BTreeMap<u8, Fit> {
    let mut points: BTreeMap<u8, Vec<(f64, f64)>> = BTreeMap::new();
    for measured in all {
        for ((stage, code), found) in &measured.operations {
            let times = measured.times.get(&(*stage, *code)).copied().unwrap_or(1).max(1) as f64;
            let each = found.iter().filter(|point| point.0 <= most).map(|point| (point.0, point.1 / times));
            points.entry(*code).or_default().extend(each);
        }
    }
    points.into_iter().map(|(code, points)| (code, Fit::of(&points))).collect()
}

fn counts(stage: u8, way: Way) -> bool {
    let stages: &[Stage] = match way {
        Way::Early => &[Stage::SenderPrepare, Stage::Dispose],
        _ => &[Stage::SenderPrepare, Stage::Ready, Stage::Dispose],
    };
    stages.iter().any(|known| *known as u8 == stage)
}

fn sum(measured: &Measured, costs: &BTreeMap<u8, Fit>, also: impl Fn(u8) -> bool) -> Fit {
    let mut total = Fit { r2: 1.0, ..Fit::default() };
    for ((stage, code), times) in &measured.times {
        if counts(*stage, measured.way) && also(*code) {
            let cost = costs.get(code).copied().unwrap_or_default();
            total.fixed += cost.fixed * *times as f64;
            total.each += cost.each * *times as f64;
        }
    }
    total
}

/// The latency that does not depend on semantics: emulated share's with early demultiplexing, without its operations. Over an outboard
/// buffer the device's own copy is not part of it.
pub fn base(all: &[Measured], costs: &BTreeMap<u8, Fit>, most: f64) -> Option<Fit> {
    let share = all.iter().find(|one| one.semantics == Semantics::EMULATED_SHARE && one.way == Way::Early)?;
    let (actual, own) = (share.fit(most), sum(share, costs, |_| true));
    Some(Fit { fixed: actual.fixed - own.fixed, each: actual.each - own.each, r2: actual.r2 })
}

/// The breakdown model: base, the sender's prepare-time operations, the receiver's that do not overlap.
pub fn estimate(measured: &Measured, base: &Fit, costs: &BTreeMap<u8, Fit>) -> Fit {
    let own = sum(measured, costs, |_| true);
    let each = if measured.way == Way::Outboard { 0.0 } else { base.each };
    Fit { fixed: base.fixed + own.fixed, each: each + own.each, r2: 1.0 }
}

/// How far estimates are from what was measured, at each length that the lines were fitted to: geometric mean, and the worst.
pub fn errors(pairs: &[(Fit, &Measured)], most: f64) -> (f64, f64) {
    let mut logarithms = Vec::new();
    for (estimate, measured) in pairs {
        for (length, actual) in measured.latencies.iter().filter(|point| point.0 <= most && point.0 >= 4096.0) {
            logarithms.push((estimate.at(*length as usize) / actual).ln().abs());
        }
    }
    let mean = logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64;
    (mean.exp() - 1.0, logarithms.into_iter().fold(0.0, f64::max).exp() - 1.0)
}

/// A type of parameter, and the ratios of what belongs to it: geometric mean, least, most.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scaling {
    pub kind: String,
    pub mean: f64,
    pub least: f64,
    pub most: f64,
    pub count: usize,
}

/// Table 8: by how much each parameter of `other` is more than here. What changes protections or mappings is a type of its own: the paper's
/// footnote 2 feared that it does not scale with the processor.
pub fn scaling(here: &BTreeMap<String, Fit>, other: &BTreeMap<String, Fit>) -> Vec<Scaling> {
    const TABLES: [&str; 7] = ["Read-only", "Invalidate", "Reinstate", "Swap pages", "Wire", "Unwire", "Map region"];
    let kind = |name: &str, fixed: bool| match (name, fixed) {
        ("Base", _) | ("Copyin output data." | "Copyout input data.", true) => None,
        ("Copyin output data.", false) => Some("cache-dominated"),
        ("Copyout input data.", false) => Some("memory-dominated"),
        (name, fixed) => Some(match (TABLES.iter().any(|table| name.starts_with(table)), fixed) {
            (true, false) => "page tables, multiplicative",
            (true, true) => "page tables, fixed",
            (false, false) => "CPU-dominated, multiplicative",
            (false, true) => "CPU-dominated, fixed",
        }),
    };
    let mut found: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, ours) in here {
        let Some(theirs) = other.get(name) else { continue };
        for (fixed, a, b) in [(true, ours.fixed, theirs.fixed), (false, ours.each, theirs.each)] {
            // A term that a fit finds below nothing, or at less than a clock shows, has no ratio.
            let seen = if fixed { 1.0 } else { 1e-5 };
            if let Some(kind) = kind(name, fixed).filter(|_| a > seen && b > seen) {
                found.entry(kind).or_default().push(b / a);
            }
        }
    }
    let kinds = found.into_iter().map(|(kind, ratios)| {
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let (least, most) =
            ratios.iter().fold((f64::MAX, 0.0), |(least, most), ratio| (f64::min(least, *ratio), f64::max(most, *ratio)));
        Scaling { kind: kind.into(), mean, least, most, count: ratios.len() }
    });
    kinds.collect()
}

/// Bits in a second of single messages, at a network's rate in bits a second: the network takes the place of the base's slope.
pub fn throughput(estimate: &Fit, base: &Fit, length: usize, rate: f64) -> f64 {
    let own = (estimate.each - base.each) * length as f64 + estimate.fixed;
    let seconds = (own.max(0.0) + length as f64 * 8e9 / rate) / 1e9;
    length as f64 * 8.0 / seconds
}

/// Lines by the operations' names.
pub fn by_name(costs: &BTreeMap<u8, Fit>, base: Option<Fit>) -> BTreeMap<String, Fit> {
    let named = costs.iter().map(|(code, fit)| (name(*code).to_owned(), *fit));
    named.chain(base.map(|base| ("Base".to_owned(), base))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(semantics: Semantics, way: Way, slope: f64, stages: &[(Stage, u8, f64)]) -> Measured {
        let lengths = [4096.0, 8192.0, 61440.0];
        let latencies = lengths.iter().map(|length| (*length, 100.0 + slope * length)).collect();
        let operations =
            stages.iter().map(|(stage, code, cost)| ((*stage as u8, *code), lengths.map(|length| (length, *cost)).to_vec()));
        let times = stages.iter().map(|(stage, code, _)| ((*stage as u8, *code), 1)).collect();
        Measured { semantics, way, latencies, operations: operations.collect(), times }
    }

    #[test]
    fn the_model_adds_what_does_not_overlap() {
        let share =
            measured(Semantics::EMULATED_SHARE, Way::Early, 0.01, &[(Stage::SenderPrepare, 3, 10.0), (Stage::Dispose, 4, 5.0)]);
        let copy = measured(
            Semantics::COPY,
            Way::Early,
            0.02,
            &[
                (Stage::SenderPrepare, 1, 50.0),
                (Stage::Ready, 0, 7.0),
                (Stage::Dispose, 14, 30.0),
                (Stage::SenderDispose, 2, 99.0),
            ],
        );
        let all = [share, copy];
        let costs = costs(&all, 61440.0);
        let base = base(&all, &costs, 61440.0).unwrap();
        assert!((base.fixed - 85.0).abs() < 1e-6 && (base.each - 0.01).abs() < 1e-9);
        let estimate = estimate(&all[1], &base, &costs);
        assert!((estimate.fixed - 165.0).abs() < 1e-6, "{estimate:?}");
        let (mean, worst) = errors(&[(estimate, &all[1])], 61440.0);
        assert!(mean > 0.0 && worst >= mean);
        // At a rate of a byte a nanosecond the network's slope is 1.
        let bits = throughput(&estimate, &base, 1000, 8e9);
        assert!((bits - 8000.0 / 1165e-9).abs() < 1.0, "{bits}");
    }

    #[test]
    fn ratios_are_of_their_type() {
        let line = |fixed, each| Fit { fixed, each, r2: 1.0 };
        let here: BTreeMap<String, Fit> = [
            ("Copyin output data.", line(10.0, 0.02)),
            ("Copyout input data.", line(10.0, 0.04)),
            ("Read-only application pages.", line(1000.0, 0.001)),
            ("Create region.", line(50.0, 0.0)),
        ]
        .map(|(name, fit)| (name.to_owned(), fit))
        .into();
        let other: BTreeMap<String, Fit> =
            here.iter().map(|(name, fit)| (name.clone(), line(fit.fixed * 2.0, fit.each * 3.0))).collect();
        let found: BTreeMap<String, (f64, usize)> =
            scaling(&here, &other).into_iter().map(|one| (one.kind, ((one.mean * 1e6).round() / 1e6, one.count))).collect();
        let expected = [
            ("CPU-dominated, fixed", (2.0, 1)),
            ("cache-dominated", (3.0, 1)),
            ("memory-dominated", (3.0, 1)),
            ("page tables, fixed", (2.0, 1)),
            ("page tables, multiplicative", (3.0, 1)),
        ];
        assert_eq!(found, expected.map(|(kind, found)| (kind.to_owned(), found)).into());
    }
}
