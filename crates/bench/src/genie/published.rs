//! What the paper printed: Micron P166s, ATM at 155 Mb/s, OSDI '96. Microseconds, and microseconds for each byte.

use shunt_buffers::Semantics;

/// Table 6: the paper's name, for each byte, fixed.
pub const COSTS: &[(&str, f64, f64)] = &[
    ("Base", 0.0598, 130.0),
    ("Copyin output data.", 0.0180, -3.0),
    ("Copyout input data.", 0.0220, 15.0),
    ("Reference application pages.", 0.000_363, 5.0),
    ("Unreference application pages.", 0.000_100, 2.0),
    ("Wire region.", 0.001_41, 18.0),
    ("Unwire region.", 0.000_237, 10.0),
    ("Read-only application pages.", 0.000_367, 2.0),
    ("Invalidate application pages.", 0.000_373, 2.0),
    ("Mark region moving out.", 0.0, 3.0),
    ("Swap pages.", 0.001_63, 15.0),
    ("Create region.", 0.0, 24.0),
    ("Fill region.", 0.000_398, 9.0),
    ("Map region.", 0.000_474, 6.0),
    ("Check region.", 0.0, 5.0),
    ("Mark region moved in.", 0.0, 1.0),
    ("Allocate overlay buffer.", 0.0, 7.0),
    ("Overlay buffer.", 0.0, 7.0),
    ("Deallocate overlay buffer.", 0.000_344, 12.0),
];

/// Table 7, the actual lines: early demultiplexing, application-aligned pooled, unaligned pooled; in the order of the semantics.
pub const LATENCIES: [[(f64, f64); 3]; 8] = [
    [(0.0998, 125.0), (0.101, 139.0), (0.101, 144.0)],
    [(0.0622, 150.0), (0.0622, 175.0), (0.0848, 195.0)],
    [(0.0621, 162.0), (0.0638, 197.0), (0.0846, 219.0)],
    [(0.0600, 137.0), (0.0619, 167.0), (0.0824, 178.0)],
    [(0.0626, 202.0), (0.0631, 234.0), (0.0631, 234.0)],
    [(0.0609, 150.0), (0.0623, 183.0), (0.0623, 183.0)],
    [(0.0615, 170.0), (0.0633, 206.0), (0.0633, 206.0)],
    [(0.0602, 143.0), (0.0619, 184.0), (0.0619, 184.0)],
];

/// Figure 4: processor time of 60 KB datagrams, parts of a hundred.
pub fn utilization(semantics: Semantics) -> f64 {
    match semantics {
        Semantics::COPY => 26.0,
        Semantics::EMULATED_COPY | Semantics::EMULATED_MOVE => 10.0,
        Semantics::EMULATED_WEAK_MOVE => 9.0,
        Semantics::EMULATED_SHARE => 8.0,
        _ => 12.0,
    }
}

/// Section 8: 60 KB datagrams at 622 Mb/s, Mb/s.
pub const PREDICTED: [(Semantics, f64); 4] =
    [(Semantics::COPY, 140.0), (Semantics::EMULATED_COPY, 404.0), (Semantics::EMULATED_SHARE, 463.0), (Semantics::MOVE, 380.0)];

/// Table 8: type of parameter, and against the Gateway P5-90 what was estimated, and the geometric mean, least and most of the ratios.
pub const SCALING: [(&str, &str, f64, f64, f64); 4] = [
    ("memory-dominated", "2.40", 2.43, 2.43, 2.43),
    ("cache-dominated", "1.44 to 3.33", 2.46, 2.46, 2.46),
    ("CPU-dominated, multiplicative", "> 1.57", 1.79, 1.58, 1.92),
    ("CPU-dominated, fixed", "> 1.57", 1.83, 1.53, 2.59),
];
