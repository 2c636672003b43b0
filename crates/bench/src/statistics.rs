//! Medians of repeats, and the distribution of the single operations behind them.

use hdrhistogram::Histogram;
use serde::Serialize;

/// The middle value, or the mean of the two middle ones; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The median of the quotients of each round, or the quotient of the medians where rounds are missing.
///
/// Two series that took turns met the same machine round by round: where that machine changes under
/// them (a virtual core moves, a neighbour wakes), their quotients hold still and their medians need
/// not come from the same rounds.
pub fn median_quotient(dividends: &[f64], divisors: &[f64]) -> Option<f64> {
    median(&quotients(dividends, divisors)).or_else(|| Some(median(dividends)? / median(divisors)?))
}

/// The quotients of each round; none where rounds are missing.
pub fn quotients(dividends: &[f64], divisors: &[f64]) -> Vec<f64> {
    if dividends.len() != divisors.len() {
        return Vec::new();
    }
    dividends.iter().zip(divisors).map(|(one, other)| one / other).collect()
}

/// Between which two values the median of what `values` were drawn from lies, in 95 of 100 cases; `None` of fewer than six.
///
/// The order statistics that a sign test leaves: nothing is assumed of the distribution, so that one turn which the machine
/// spoilt moves the bounds as little as any other.
pub fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // The chance that at most `below` of them fall on one given side of the median.
    let (mut term, mut chance, mut below) = (0.5f64.powi(values.len() as i32), 0.0, 0);
    while chance + term <= 0.025 {
        chance += term;
        term *= (values.len() - below) as f64 / (below + 1) as f64;
        below += 1;
    }
    (below > 0).then(|| (sorted[below - 1], sorted[sorted.len() - below]))
}

/// Fits `r n / (n + h)` to points `(n, rate)` by least squares of the relative errors; gives `(r, h)`.
///
/// Relative ones, because the curve spans three decades: a fit of the absolute ones is one of its last points alone.
pub fn fit_half_power(points: &[(f64, f64)]) -> (f64, f64) {
    // 1/rate = 1/r + (h/r) / n is linear in 1/n; weighting by the rate makes errors relative.
    let (mut aa, mut ab, mut bb, mut a1, mut b1) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (size, rate) in points {
        let (a, b) = (*rate, rate / size);
        aa += a * a;
        ab += a * b;
        bb += b * b;
        a1 += a;
        b1 += b;
    }
    let determinant = aa * bb - ab * ab;
    let (x, y) = ((a1 * bb - b1 * ab) / determinant, (aa * b1 - ab * a1) / determinant);
    (1.0 / x, y / x)
}

/// How long single operations took, over all repeats of one contender.
///
/// A histogram with three significant digits: the figures of a table and the curve of a plot
/// come from the same counts.
#[derive(Clone, Debug)]
pub struct Distribution {
    histogram: Histogram<u64>,
}

/// One point of a distribution: this share of the operations took at most so long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// From 0 to 100.
    pub percentile: f64,
    /// Nanoseconds.
    pub nanoseconds: u64,
}

impl Distribution {
    /// Counts samples in nanoseconds.
    pub fn of(samples: &[u32]) -> Self {
        let mut histogram = Histogram::new(3).expect("three significant digits are allowed");
        for &sample in samples {
            // An auto-resizing histogram takes every 32-bit value.
            histogram.record(u64::from(sample).max(1)).expect("a 32-bit value fits");
        }
        Self { histogram }
    }

    /// Adds the operations of another repeat.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("an auto-resizing histogram takes any other");
    }

    /// Nanoseconds within which `percentile` per cent of the operations were over.
    pub fn percentile(&self, percentile: f64) -> u64 {
        self.histogram.value_at_percentile(percentile)
    }

    /// Whether at least one operation lies beyond this percentile, so that it is not simply the slowest of few.
    pub fn holds(&self, percentile: f64) -> bool {
        // A hair of room: 0.1 % of a thousand is one.
        self.histogram.len() as f64 * (100.0 - percentile) > 99.99
    }

    /// The curve, denser towards the tail: what a report keeps of the histogram.
    pub fn curve(&self) -> Vec<Point> {
        const PERCENTILES: [f64; 24] = [
            0.0, 0.1, 1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.0, 98.0, 99.0,
            99.5, 99.9, 99.99, 100.0,
        ];
        PERCENTILES.iter().map(|&percentile| Point { percentile, nanoseconds: self.percentile(percentile) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_of_the_known_form_is_fitted_exactly() {
        let points: Vec<(f64, f64)> = [8.0, 64.0, 1024.0, 65536.0].map(|n| (n, 12e9 * n / (n + 441.0))).into();
        let (most, half) = fit_half_power(&points);
        assert!((most / 12e9 - 1.0).abs() < 1e-9 && (half / 441.0 - 1.0).abs() < 1e-9, "{most} {half}");
    }

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn quotients_are_taken_round_by_round() {
        // The machine was four times slower in two of three rounds for one, in one for the other.
        assert_eq!(median_quotient(&[10.0, 40.0, 40.0], &[1.0, 4.0, 4.0]), Some(10.0));
        assert_eq!(median_quotient(&[10.0, 40.0, 40.0], &[2.0, 4.0]), Some(40.0 / 3.0));
        assert_eq!(median_quotient(&[1.0], &[]), None);
    }

    #[test]
    fn the_interval_of_the_median_is_that_of_the_sign_test() {
        let counted = |n: usize| (1..=n).map(|k| k as f64).collect::<Vec<_>>();
        assert_eq!(median_interval(&counted(5)), None);
        assert_eq!(median_interval(&counted(6)), Some((1.0, 6.0)));
        assert_eq!(median_interval(&counted(8)), Some((1.0, 8.0)));
        assert_eq!(median_interval(&counted(9)), Some((2.0, 8.0)));
        assert_eq!(median_interval(&counted(20)), Some((6.0, 15.0)));
        assert_eq!(median_interval(&[]), None);
    }

    #[test]
    fn one_slow_operation_in_a_hundred_shows_only_in_the_tail() {
        let mut samples = vec![100; 199];
        samples.push(90_000);
        let mut distribution = Distribution::of(&samples);
        distribution.merge(&Distribution::of(&[100; 100]));
        assert_eq!(distribution.percentile(50.0), 100);
        assert_eq!(distribution.percentile(99.0), 100);
        assert!(distribution.holds(99.0) && !distribution.holds(99.9));
        assert!(Distribution::of(&[1; 1000]).holds(99.9) && !Distribution::of(&[1; 999]).holds(99.9));
        assert!(distribution.percentile(100.0) >= 90_000);
        assert_eq!(distribution.curve().len(), 24);
    }
}
