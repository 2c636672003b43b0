//! What primitive operations cost on a machine (the paper's table 6), and what a message should cost by that (section 8).
//!
//! Each cost is a fixed part and a part for each byte, fitted by least squares. Copies are not linear across caches, so they are
//! fitted for messages up to [`NEAR`] bytes and for longer ones.

/// Messages up to here are copied within caches.
pub const NEAR: usize = 256 << 10;

/// `fixed + each * bytes`, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Line {
    /// The fixed term.
    pub fixed: f64,
    /// For each byte.
    pub each: f64,
    /// How much of the variance the line explains.
    pub r2: f64,
}

impl Line {
    /// A line as it is.
    pub const fn new(fixed: f64, each: f64) -> Line {
        Line { fixed, each, r2: 1.0 }
    }

    /// The cost of so many bytes; never negative, as a fit can be.
    pub fn at(&self, bytes: usize) -> f64 {
        let cost = self.fixed + self.each * bytes as f64;
        if cost > 0.0 {
            cost
        } else {
            0.0
        }
    }

    /// The least-squares line through `(bytes, nanoseconds)`.
    pub fn fit(points: &[(f64, f64)]) -> Line {
        let count = points.len() as f64;
        let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |value: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>();
        let (xx, xy) = (sum(&|p| (p.0 - x) * (p.0 - x)), sum(&|p| (p.0 - x) * (p.1 - y)));
        let each = if xx > 0.0 { xy / xx } else { 0.0 };
        let fixed = y - each * x;
        let total = sum(&|p| (p.1 - y) * (p.1 - y));
        let left = sum(&|p| (p.1 - fixed - each * p.0) * (p.1 - fixed - each * p.0));
        Line { fixed, each, r2: if total > 0.0 { 1.0 - left / total } else { 1.0 } }
    }
}

/// The costs that choices depend on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// A message without bytes, from one process to the other.
    pub base: Line,
    /// A copy in the caches.
    pub copy: Line,
    /// A copy past them.
    pub far_copy: Line,
    /// Reference and unreference.
    pub reference: Line,
    /// Taking writing away.
    pub read_only: Line,
    /// Hiding.
    pub invalidate: Line,
    /// Giving it back.
    pub reinstate: Line,
    /// Wire.
    pub wire: Line,
    /// Unwire.
    pub unwire: Line,
    /// A write fault of TCOW that saves nothing, and gives all of the region back.
    pub fault: Line,
    /// What writing a message's buffer again takes longer, where the message went under TCOW and was read, than where it was copied: the fault, and
    /// lines that come back from the reader's caches.
    pub rewriting: Line,
    /// The sender's own time of a message that is copied out of its caches into the ring.
    pub sending: Line,
    /// From here on a message that is pulled while the call lasts is there sooner than one that is copied, where both were tried.
    pub waiting_from: Option<usize>,
}

impl Costs {
    /// Of the machine that this was written on: for before a calibration.
    pub const USUAL: Costs = Costs {
        base: Line::new(400.0, 0.0),
        copy: Line::new(40.0, 0.02),
        far_copy: Line::new(0.0, 0.06),
        reference: Line::new(60.0, 0.0),
        read_only: Line::new(1_900.0, 0.003_4),
        invalidate: Line::new(2_900.0, 0.003_4),
        reinstate: Line::new(2_000.0, 0.003_9),
        wire: Line::new(2_400.0, 0.016),
        unwire: Line::new(2_100.0, 0.009),
        fault: Line::new(3_000.0, 0.0),
        rewriting: Line::new(3_000.0, 0.03),
        sending: Line::new(200.0, 0.06),
        waiting_from: None,
    };

    /// One copy of so many bytes.
    pub fn copying(&self, bytes: usize) -> f64 {
        if bytes <= NEAR {
            self.copy.at(bytes)
        } else {
            self.far_copy.at(bytes).max(self.copy.at(bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again() {
        let points: Vec<(f64, f64)> = (1..20).map(|i| (i as f64 * 4096.0, 1900.0 + i as f64 * 4096.0 * 0.0035)).collect();
        let line = Line::fit(&points);
        assert!((line.fixed - 1900.0).abs() < 1e-6 && (line.each - 0.0035).abs() < 1e-9 && line.r2 > 0.999_999);
        assert_eq!(Line::new(-5.0, 0.1).at(10), 0.0);
    }
}
