//! What happened, for the runner: a line when the program ends.

use std::collections::BTreeMap;
use std::fmt::Display;

/// Counts.
#[derive(Default)]
pub struct Report {
    counts: BTreeMap<String, u64>,
}

impl Report {
    pub fn count(&mut self, what: impl Display) {
        *self.counts.entry(what.to_string()).or_default() += 1;
    }

    /// Writes it to the file that the runner reads. Where that cannot be, the runner finds none.
    pub fn write(&self, path: &str) {
        let line: Vec<String> = self.counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
        let _ = std::fs::write(path, line.join("\n"));
    }
}
